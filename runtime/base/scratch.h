/* Scratch memory that kernels need: planned by the compiler (codegen/target), used by runtime/cuda and
 * runtime/kernels/c. */
#ifndef RT_BASE_SCRATCH_H
#define RT_BASE_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Workspace of cuBLASLt for each matrix product, bytes: enough for its fastest kernels on sm_80 to sm_90. */
#define RT_PRODUCT_WORKSPACE (32 << 20)

/* Attention's scratch begins with its scores, or statistics of their rows; a library's workspace follows at the next
 * multiple of this alignment. */
#define RT_SCORES_ALIGNMENT 256
static inline int64_t rt_behind_scores(int64_t bytes) {
    return (bytes + RT_SCORES_ALIGNMENT - 1) / RT_SCORES_ALIGNMENT * RT_SCORES_ALIGNMENT;
}

/* cuDNN's attention backward in deterministic mode stores the gradient of the scores in 16 bits. To limit this, it is
 * called for some of the key-value heads at a time, each with the `group` query heads that share it: as many as fit
 * RT_ATTEND_WORKSPACE, at least one, equally many in each call. heads: of keys and values; t, s: query and key
 * positions; size: elements of a head of k and of v. rt_attend_bytes is what cuDNN 9.19 needs on sm_80 and sm_90:
 * scores padded to tiles, and partial dk and dv of each query head if heads are shared. */
#define RT_ATTEND_SPARE (4 * RT_SCORES_ALIGNMENT)
#ifndef RT_ATTEND_WORKSPACE /* tests override it */
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
/* False if even one key-value head needs more than a GPU should give up for it: long sequences. Its gradient is then
 * left to runtime/cuda/flash.cuh. */
#define RT_ATTEND_LIMIT ((int64_t)1 << 30)
static inline bool rt_attend_is_small(int64_t group, int64_t t, int64_t s, int64_t size) {
    return rt_attend_bytes(1, group, t, s, size) <= RT_ATTEND_LIMIT;
}
/* One call: `batch` samples with all their heads, or `heads` heads of one sample. */
struct rt_attend_part {
    int64_t batch, heads;
};
static inline struct rt_attend_part rt_attend_part_of(int64_t batch, int64_t heads, int64_t group, int64_t t, int64_t s,
                                                      int64_t size) {
    struct rt_attend_part part = {1, rt_attend_heads(heads, group, t, s, size)};
    if (part.heads == heads) part.batch = rt_attend_heads(batch, heads * group, t, s, size);
    return part;
}

/* Ring attention: a part of k and v, `lines` heads of all samples by at most `keys` keys of `width` bytes of both; the
 * rest of its scratch follows. */
static inline int64_t rt_ring_part_bytes(int64_t lines, int64_t keys, int64_t width) {
    return rt_behind_scores(lines * keys * width);
}

/* Number of partial sums (f64) of a sum of squares. */
#define RT_SQUARE_BLOCKS 1024

/* Column reductions: a thread block reduces RT_REDUCE_COLUMNS adjacent columns. Columns may be divided into chunks of
 * at least RT_REDUCE_ROWS rows; more than RT_REDUCE_BLOCKS thread blocks gain nothing. */
#define RT_REDUCE_COLUMNS 32
#define RT_REDUCE_ROWS    64
#define RT_REDUCE_BLOCKS  1024

/* Number of chunks into which the reduction of (outer,r,inner) over r is divided. If more than 1, partial results
 * (outer,chunks,inner) lie in SCRATCH, in the accumulation type: f32 for 16-bit floats, else the element type. */
static inline int64_t rt_reduce_chunks_of(int64_t outer, int64_t r, int64_t inner) {
    const int64_t blocks = outer * ((inner + RT_REDUCE_COLUMNS - 1) / RT_REDUCE_COLUMNS);
    const int64_t most = blocks ? RT_REDUCE_BLOCKS / blocks : 1, rows = r / RT_REDUCE_ROWS;
    const int64_t chunks = rows < most ? rows : most;
    return inner > 1 && chunks > 1 ? chunks : 1;
}

/* Determinants: elements per matrix of n rows (kernels/c/determinant.h). */
#define RT_DET_WORKSPACE(n) ((n) * ((n) + 1))

/* Radix sort of n indices (cuda/sort.cuh): keys and positions, double-buffered, and a histogram of digits per run of
 * keys. */
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
