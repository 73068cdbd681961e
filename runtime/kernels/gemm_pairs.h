/* Products of bf16 by instructions that multiply pairs (AVX512-BF16); see Note [Products with pairs] in gemm_pairs.c.
 * Must not be called where rt_processor_has_pairs() is 0. */
#ifndef RT_KERNELS_GEMM_PAIRS_H
#define RT_KERNELS_GEMM_PAIRS_H

#include <stdint.h>

#include "gemm.h"

/* The whole product, on one thread. Needs 500 KB of stack. */
void rt_gemm_pairs(RT_GEMM_OPERANDS(uint16_t));

/* One block of a longer product: sum(rows,columns) (+)= a(rows,depth) b(depth,columns), depth <= RT_GEMM_DEPTH, b in
 * panels of pairs (Note [Panels] in base/shape/panel.h), of which neighbouring ones begin `panel` elements apart. Rows
 * of sums are RT_PAIRS_CHUNK apart. `first`: the sums begin. Prefetches what follows the block in each panel. a is NULL
 * where it is f32, which is rounded. */
enum { RT_PAIRS_CHUNK = 256 };
struct rt_pairs_block {
    float *sum;
    const uint16_t *a, *b;
    const float *wide_a;
    int64_t a_row, panel, rows, columns, depth;
    int first;
};
void rt_pairs_add(const struct rt_pairs_block *block);

#endif
