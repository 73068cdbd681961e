/* How a weight in fewer bits (--weight-dtype) is made of the floats that the model stores.
 *
 * Codes are symmetric, with a scale for each group of indices of k, as MatMulNBits of ONNX Runtime stores weights and
 * llama.cpp does in Q4_0 and Q8_0: of 4 bits, scale = m / -8 of the element m that is farthest from 0, and code =
 * w / scale rounded, within -8 and 7; of 8 bits, scale = |m| / 127. Codes of 4 bits are stored with 8 added, two in a
 * byte, the first in the low half. Codes lie as (n, k) and scales as (n, groups); of stacks, of each matrix. */
#ifndef RT_BASE_CODING_H
#define RT_BASE_CODING_H

#include <stdbool.h>
#include <stdint.h>

/* ROUNDED: floats of fewer bits. */
enum rt_makes { RT_AS_STORED, RT_CODES, RT_SCALES, RT_ROUNDED };

struct rt_coding {
    enum rt_makes makes;
    int bits;      /* of a code: 4 or 8 */
    int64_t group; /* indices of k that share a scale; k is a multiple */
    bool turned;   /* the model stores (n, k), else (k, n) */
};

/* True for codes and scales, whose layout differs from that of the weight that they are computed from. */
static inline bool rt_coding_is_code(const struct rt_coding *coding) {
    return coding->makes == RT_CODES || coding->makes == RT_SCALES;
}

/* Elements that the model stores for `elements` of a weight that is made so. */
static inline int64_t rt_coding_stored(const struct rt_coding *coding, int64_t elements) {
    return coding->makes == RT_CODES    ? elements * (8 / coding->bits)
           : coding->makes == RT_SCALES ? elements * coding->group
                                        : elements;
}

#endif
