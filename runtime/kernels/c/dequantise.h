/* Stored weights, those of rt_dequant_matmul in kernels.h, which kernels dequantise in blocks. Not for programs. */
#ifndef RT_KERNELS_C_DEQUANTISE_H
#define RT_KERNELS_C_DEQUANTISE_H

#include <stdint.h>

#include "../../base/dtype.h"
#include "lists.h"

/* w(k,n), or one of a stack of such matrices. */
struct weights {
    const uint8_t *w, *zero;
    const void *scale;    /* of the type that the weights are dequantised to; NULL: ones */
    int64_t k, n, groups; /* groups 0 stands for 1 */
    double offset;
    enum rt_dtype type, codes;
    int turned, across;
    int64_t first;    /* first column of the thread's part */
    int bits;         /* of a stored element; this and what follows by rt_weights_of */
    float value[256]; /* of each code of at most 8 bits */
};

/* Completes what the caller gives. */
struct weights rt_weights_of(struct weights given);

/* Matrix `i` of a stack that begins with `first`; scales are of `scale_bytes` bytes. */
struct weights rt_weights_at(const struct weights *first, int64_t i, int64_t scale_bytes);

/* Rows [p, p + depth) and columns [j, j + width) of w(k,n) as a panel: rows of RT_PANEL numbers with zeros behind those
 * of the columns; depth <= RT_GEMM_DEPTH, width <= RT_PANEL. */
#define RT_DECLARE_DEQUANTISE(T, s)                                                                                    \
    void rt_dequantise_##s(T *to, const struct weights *w, int64_t p, int64_t depth, int64_t j, int64_t width);
RT_FLOATS(RT_DECLARE_DEQUANTISE)

#endif
