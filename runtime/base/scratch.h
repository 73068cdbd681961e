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

/* cuDNN's attention backward, deterministic or `atomic`. The deterministic one stores the gradient of the scores in 16
 * bits, padded to tiles. The atomic one adds up dq in f32 (rt_attend_sum_bytes), in any order; on sm_80 the library
 * does so once more. Both store partial dk and dv of each query head if heads are shared. To limit this memory, cuDNN
 * is called for some of the key-value heads at a time, each with the query heads that share it: as many as fit
 * RT_ATTEND_WORKSPACE, at least one, equally many in each call. rt_attend_bytes is what cuDNN 9.19 needs on sm_80 and
 * sm_90. */
#define RT_ATTEND_SPARE (4 * RT_SCORES_ALIGNMENT)
#ifndef RT_ATTEND_WORKSPACE /* tests override it */
#define RT_ATTEND_WORKSPACE ((512 << 20) + RT_ATTEND_SPARE)
#endif
#define RT_ATTEND_TILE 128
struct rt_attend_size {
    int64_t group; /* query heads that share a key-value head */
    int64_t t, s;  /* query and key positions */
    int64_t d, e;  /* elements of a head of q and k, and of v */
    bool atomic;
};
static inline int64_t rt_attend_padded(int64_t lines) {
    return (lines + RT_ATTEND_TILE - 1) / RT_ATTEND_TILE * RT_ATTEND_TILE;
}
/* heads: of keys and values */
static inline int64_t rt_attend_sum_bytes(const struct rt_attend_size *size, int64_t heads) {
    return size->atomic ? rt_behind_scores(heads * size->group * rt_attend_padded(size->t) * size->d * 4) : 0;
}
static inline int64_t rt_attend_bytes(const struct rt_attend_size *size, int64_t heads) {
    const int64_t keys = rt_attend_padded(size->s), partial = size->group > 1 ? keys * (size->d + size->e) * 2 : 0;
    const int64_t scores = size->atomic ? 0 : keys * rt_attend_padded(size->t) * 2;
    return 2 * rt_attend_sum_bytes(size, heads) + heads * size->group * (scores + partial) + RT_ATTEND_SPARE;
}
/* False if even one key-value head needs more than a GPU should give up for it: long sequences. Its gradient is then
 * left to runtime/cuda/flash.cuh. */
#define RT_ATTEND_LIMIT ((int64_t)1 << 30)
static inline bool rt_attend_is_small(const struct rt_attend_size *size) {
    return rt_attend_bytes(size, 1) <= RT_ATTEND_LIMIT;
}
/* One call: `batch` samples with all their heads, or `heads` key-value heads of one sample. */
struct rt_attend_part {
    int64_t batch, heads;
};
/* The largest divisor of `count` so that as many times `each` heads fit. */
static inline int64_t rt_attend_fitting(const struct rt_attend_size *size, int64_t count, int64_t each) {
    int64_t n = count;
    while (n > 1 && (count % n || rt_attend_bytes(size, n * each) > RT_ATTEND_WORKSPACE)) n--;
    return n;
}
static inline struct rt_attend_part rt_attend_part_of(const struct rt_attend_size *size, int64_t batch, int64_t heads) {
    struct rt_attend_part part = {1, rt_attend_fitting(size, heads, 1)};
    if (part.heads == heads) part.batch = rt_attend_fitting(size, batch, heads);
    return part;
}

/* Attention of few rows for each head of k and v: its keys are divided into pieces, each for the warps of a thread
 * block, so that there are thread blocks enough for a GPU. What each warp has summed is a row's two statistics and its
 * e elements, in f32. */
#define RT_FLASH_ROWS   16  /* few: at most so many */
#define RT_FLASH_KEYS   256 /* of a piece, unless there are fewer keys, or heads enough */
#define RT_FLASH_WARPS  4
#define RT_FLASH_BLOCKS 512
/* The number of keys counts as the power of two above it, so that a graph of a step holds while caches grow (Note
 * [Growing sizes] in cuda/grow.cuh). */
static inline int64_t rt_power_above(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}
static inline int64_t rt_flash_pieces(int64_t heads, int64_t s) {
    const int64_t most = heads < RT_FLASH_BLOCKS ? RT_FLASH_BLOCKS / heads : 1;
    const int64_t pieces = rt_power_above(s) / RT_FLASH_KEYS;
    return pieces < 1 ? 1 : pieces < most ? pieces : most;
}
/* For up to `rows` rows of each of up to `heads` heads of up to s keys. */
static inline int64_t rt_flash_bytes(int64_t heads, int64_t rows, int64_t s, int64_t e) {
    const int64_t pieces = s < RT_FLASH_KEYS ? 1 : rt_power_above(s) / RT_FLASH_KEYS, all = heads * pieces;
    const int64_t few = rows < RT_FLASH_ROWS ? rows : RT_FLASH_ROWS;
    const int64_t most = heads < RT_FLASH_BLOCKS ? RT_FLASH_BLOCKS : heads; /* thread blocks */
    return (all < most ? all : most) * few * RT_FLASH_WARPS * (e + 2) * (int64_t)sizeof(float);
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

/* Elements of partial results of reductions of up to as many elements: no fewer than outer x chunks x inner. */
static inline int64_t rt_reduce_parts_most(int64_t outer, int64_t r, int64_t inner) {
    const int64_t parts = r / RT_REDUCE_ROWS * outer * inner, blocks = RT_REDUCE_BLOCKS * RT_REDUCE_COLUMNS;
    return inner < 2 || r < 2 * RT_REDUCE_ROWS ? 0 : parts < blocks ? parts : blocks;
}

/* Sums of columns by generated kernels (cuda/rows.cuh): a thread block adds up `across` vectors of the `length` rows of
 * a chunk; there are `groups` x `chunks` blocks. Chunks have at least RT_COLUMN_ROWS rows; more blocks than
 * RT_COLUMN_BLOCKS are not faster. */
#define RT_COLUMN_ROWS   64
#define RT_COLUMN_BLOCKS 512
struct rt_column_chunks {
    int64_t groups, chunks, length;
};
static inline struct rt_column_chunks rt_column_chunks_of(int64_t rows, int64_t vectors, int across) {
    const int64_t groups = vectors > 0 ? (vectors + across - 1) / across : 1;
    const int64_t most = RT_COLUMN_BLOCKS / groups, least = rows / RT_COLUMN_ROWS, number = most < least ? most : least;
    const int64_t length = number > 1 ? (rows + number - 1) / number : rows;
    const struct rt_column_chunks made = {groups, length ? (rows + length - 1) / length : 1, length};
    return made;
}
/* Partial sums of up to as many rows and columns: no fewer than chunks x columns. across: columns of a block, at
 * most. */
static inline int64_t rt_column_sums_most(int64_t rows, int64_t columns, int64_t across) {
    const int64_t chunks = rows / RT_COLUMN_ROWS * columns, blocks = RT_COLUMN_BLOCKS * across;
    const int64_t parts = chunks < blocks ? chunks : blocks;
    return parts > columns ? parts : columns;
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
