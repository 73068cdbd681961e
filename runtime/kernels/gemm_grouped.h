/* Products with weights of 4 or 8 bits, of which each group of indices of k shares a scale and a zero point, on one
 * thread.
 *
 * Note [Products in groups]
 * A piece is a group, or up to RT_GROUP_PIECE indices of a longer one. Every element of y is
 *
 *     sum over pieces, in order, of fma(s, scale, ..),  s = sum over a piece, in order, of fma(x, w - zero, ..)
 *
 * so that weights are not scaled one by one, and are converted in registers while they are multiplied: they are read
 * from memory in their own bits, once for many rows. With `rounded`, x is rounded to 8 bits as ONNX Runtime does at
 * accuracy level 4: of each piece to q = round(x / x_scale), x_scale = max |x| / 127. s is then the exact sum of q (w -
 * zero), and its factor x_scale scale. All instruction sets give the same bits, for every division of m and n. */
#ifndef RT_KERNELS_GEMM_GROUPED_H
#define RT_KERNELS_GEMM_GROUPED_H

#include <stdint.h>

#include "../base/dtype.h"
#include "../base/shape/panel.h"
#include "c/epilogue.h"

struct rt_grouped_product {
    float *y;            /* (m,n) */
    const float *x;      /* (m,k) */
    const void *w;       /* the bytes (k bits / 8,n) in panels (Note [Panels] in base/shape/panel.h) */
    const float *scale;  /* (groups,n) in panels */
    const uint8_t *zero; /* (n,groups) codes, one byte each; NULL: `offset` */
    float offset;
    int64_t m, k, n, groups;
    enum rt_dtype codes; /* i4, u4, i8 or u8 */
    int rounded;
};

/* The kernels of an instruction set, one row each, the best first; is_present is NULL for the last, plain C. multiply
 * computes a block, which begins at a panel and is not empty; needs 500 KB of stack. */
struct rt_gemm_grouped {
    const char *name;
    int (*is_present)(void);
    void (*multiply)(const struct rt_grouped_product *product, struct rt_block block);
};
extern const struct rt_gemm_grouped rt_gemm_grouped[];

/* The best row that this processor supports, or plain C. */
const struct rt_gemm_grouped *rt_gemm_grouped_choose(int reference);

#endif
