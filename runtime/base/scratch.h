/* What kernels for GPUs want of SCRATCH: planned by the compiler (codegen/target_cuda.c), used by runtime/cuda. */
#ifndef RT_BASE_SCRATCH_H
#define RT_BASE_SCRATCH_H

#include <stdint.h>

/* Bytes that cuBLASLt may use, whatever the product: what its fastest kernels want on GPUs from sm_80 to sm_90. */
#define RT_PRODUCT_WORKSPACE (32 << 20)

/* An attention's scores come first; the workspace of its products begins at the next multiple of this. */
#define RT_SCORES_ALIGNMENT 256

/* Partial sums of a sum of squares, f64. */
#define RT_SQUARE_BLOCKS 1024

/* A block reduces this many neighbouring columns together, at least RT_REDUCE_ROWS of them if columns are cut; more blocks than
 * RT_REDUCE_BLOCKS gain nothing. */
#define RT_REDUCE_COLUMNS 32
#define RT_REDUCE_ROWS    64
#define RT_REDUCE_BLOCKS  1024

/* Chunks that the columns of (outer,r,inner) are reduced in; if they are more than 1, partial results (outer,chunks,inner) lie in
 * SCRATCH, in what sums of the type are kept in: f32 for 16-bit floats, else as many bytes as an element. */
static inline int64_t rt_reduce_chunks_of(int64_t outer, int64_t r, int64_t inner) {
    const int64_t blocks = outer * ((inner + RT_REDUCE_COLUMNS - 1) / RT_REDUCE_COLUMNS);
    const int64_t most = blocks ? RT_REDUCE_BLOCKS / blocks : 1, rows = r / RT_REDUCE_ROWS;
    const int64_t chunks = rows < most ? rows : most;
    return inner > 1 && chunks > 1 ? chunks : 1;
}

/* Sorting of n indices (cuda/sort.cuh): keys and positions twice, and how often each run of keys has each digit. */
#define RT_SORT_BITS   8
#define RT_SORT_DIGITS (1 << RT_SORT_BITS)
#define RT_SORT_RUN    64
static inline int64_t rt_sort_runs(int64_t n) {
    return (n + RT_SORT_RUN - 1) / RT_SORT_RUN;
}
static inline int64_t rt_sort_bytes(int64_t n) {
    return (4 * n + RT_SORT_DIGITS * (1 + rt_sort_runs(n))) * (int64_t)sizeof(int64_t);
}

#endif
