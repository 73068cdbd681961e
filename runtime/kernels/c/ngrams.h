/* Occurrences of an n-gram in a row, for C and CUDA: ONNX TfIdfVectorizer-9. */
#ifndef RT_KERNELS_C_NGRAMS_H
#define RT_KERNELS_C_NGRAMS_H

#include "../../base/inline.h"

#include <stdint.h>

/* How often gram(l) is in row(c) with its elements 1, 2 .. `distances` apart. A gram of one element is counted once. */
RT_INLINE int64_t rt_ngrams_in(const int64_t *row, const int64_t *gram, int64_t c, int64_t l, int64_t distances) {
    int64_t count = 0;
    for (int64_t distance = 1; distance <= (l > 1 ? distances : 1); distance++)
        for (int64_t start = 0; start + (l - 1) * distance < c; start++) {
            int64_t same = 0;
            while (same < l && row[start + same * distance] == gram[same]) same++;
            count += same == l;
        }
    return count;
}

#endif
