/* What kernels for GPUs want of SCRATCH: planned by the compiler (codegen/target/target_cuda.c), used by
 * runtime/cuda. */
#ifndef RT_BASE_SCRATCH_H
#define RT_BASE_SCRATCH_H

#include <stdint.h>

/* Bytes that cuBLASLt may use, whatever the product: what its fastest kernels want on GPUs from sm_80 to sm_90. */
#define RT_PRODUCT_WORKSPACE (32 << 20)

/* An attention's scores, or numbers of its rows, come first; a library's workspace begins at the next multiple of
 * this. */
#define RT_SCORES_ALIGNMENT 256
static inline int64_t rt_behind_scores(int64_t bytes) {
    return (bytes + RT_SCORES_ALIGNMENT - 1) / RT_SCORES_ALIGNMENT * RT_SCORES_ALIGNMENT;
}

/* The gradient of attention by cuDNN keeps how scores change, in 16 bits, since sums would have no order otherwise. So
 * it is asked for some heads of k and v at a time, each with the `group` of q that share it: as many as do with
 * RT_ATTEND_WORKSPACE, at least one, in calls alike. `size`: elements of a head of k and of v. What it wants (9.19, for
 * sm_80 and sm_90) are lines and columns in tiles, and a part of dk and dv from every head that shares them. */
#define RT_ATTEND_SPARE (4 * RT_SCORES_ALIGNMENT)
#ifndef RT_ATTEND_WORKSPACE /* programs of tests have less */
#define RT_ATTEND_WORKSPACE ((256 << 20) + RT_ATTEND_SPARE)
#endif
#define RT_ATTEND_TILE 128
static inline int64_t rt_attend_bytes(int64_t heads, int64_t group, int64_t t, int64_t s, int64_t size) {
    const int64_t rows = (t + RT_ATTEND_TILE - 1) / RT_ATTEND_TILE * RT_ATTEND_TILE;
    const int64_t keys = (s + RT_ATTEND_TILE - 1) / RT_ATTEND_TILE * RT_ATTEND_TILE;
    return heads * group * keys * (rows + (group > 1 ? size : 0)) * 2 + RT_ATTEND_SPARE;
}
static inline int64_t rt_attend_heads(int64_t heads, int64_t group, int64_t t, int64_t s, int64_t size) {
    int64_t n = heads;
    while (n > 1 && (heads % n || rt_attend_bytes(n, group, t, s, size) > RT_ATTEND_WORKSPACE)) n--;
    return n;
}
/* Several of a batch with all their heads, or some heads of one. */
struct rt_attend_part {
    int64_t batch, heads;
};
static inline struct rt_attend_part rt_attend_part_of(int64_t batch, int64_t heads, int64_t group, int64_t t, int64_t s,
                                                      int64_t size) {
    struct rt_attend_part part = {1, rt_attend_heads(heads, group, t, s, size)};
    if (part.heads == heads) part.batch = rt_attend_heads(batch, heads * group, t, s, size);
    return part;
}

/* Partial sums of a sum of squares, f64. */
#define RT_SQUARE_BLOCKS 1024

/* A block reduces this many neighbouring columns together, at least RT_REDUCE_ROWS of them if columns are cut; more
 * blocks than RT_REDUCE_BLOCKS gain nothing. */
#define RT_REDUCE_COLUMNS 32
#define RT_REDUCE_ROWS    64
#define RT_REDUCE_BLOCKS  1024

/* Chunks that the columns of (outer,r,inner) are reduced in; if they are more than 1, partial results
 * (outer,chunks,inner) lie in SCRATCH, in what sums of the type are kept in: f32 for 16-bit floats, else as many bytes
 * as an element. */
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
