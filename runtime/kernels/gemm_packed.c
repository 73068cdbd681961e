#include "gemm.h"

#include "../base/shape/panel.h"
#include "c/types.h"

#include <string.h>

/* Note [Products with panels]
 * Every element of y is fma(a, b, ... fma(a, b, 0)) in order of k; the blocking below only decides when a partial sum
 * is stored in y. So m and n may be cut anywhere, among ranks, threads and tiles, without changing a bit.
 *
 * A block of b, DEPTH rows of CHUNK columns, stays in the L2 cache while all rows of a are multiplied with it, ROWS at
 * a time. These rows are copied side by side, at a distance that avoids cache set conflicts, since rows at a distance
 * of 12 KiB would evict each other; if few columns read them they are read where they lie. While a block is used, the
 * next one is prefetched a few lines at a time: weights come from memory in every step. Few rows, as of a step of
 * decoding, meet one panel after the other, which is prefetched as it is read. A right operand that is not stored in
 * panels is packed in blocks of RT_GEMM_DEPTH rows, each summed separately like in the library. */
#define DEPTH          256
#define CHUNK          256
#define LEFT_ROW       RT_GEMM_LEFT_ROW /* elements from one copied row of a to the next */
#define FETCH          4                /* rows of b for each line that is fetched ahead */
#define STREAM         64               /* rows of b from what few rows of a are multiplied with to what is fetched */
#define LINE           16               /* elements of a cache line */
#define DISTANT        1024             /* bytes between rows that are not read in place, and their multiples */
#define FEW_COLUMNS    128              /* for which it does not pay to copy rows of a */
#define FEW_ROWS       48               /* that are read in place at any distance */
#define TILE           8                /* of them at a time */
#define REFERENCE_ROWS 8                /* of a that are collected at a time */
#define TURNED         64               /* rows of a panel that are transposed at a time */

/* Rows of a, `row` elements apart, whose elements are in runs of `run`. Run r begins offset[r] elements behind a row's
 * beginning; the first element is number `from` of the first run. */
struct left {
    const float *a;
    int64_t row, run, from;
    const int64_t *offset;
};

static inline struct left left_of(const float *a, int64_t row) {
    static const int64_t none[1];
    return (struct left){a, row, INT64_MAX, 0, none};
}

/* y(rows,width) = left(rows,depth) b(depth,width). first: y is overwritten. Else the sum continues from y, or, if
 * `adds`, a sum that starts from 0 is added to y. Lines at `ahead` are prefetched meanwhile, or if it `streams`, those
 * of b behind what is read. */
struct tile {
    float *y;
    struct left left;
    const float *b, *ahead; /* rows of b are RT_PANEL apart */
    int64_t y_row, depth;
    int first, adds, streams;
};

/* What to prefetch while a block is used: of each panel of the next block, `slices` slices of DEPTH / FETCH lines, one
 * for each tile that reads the same panel of this block. Panels are `step` floats apart. */
struct ahead {
    const float *next;
    int64_t step, slices;
};

/* Slice number `slice` of the panel at column j; when all are prefetched, the tile's own data. */
static inline const float *slice_ahead(struct ahead ahead, int64_t j, int64_t slice, const float *now) {
    if (slice >= ahead.slices) return now;
    return ahead.next + j / RT_PANEL * ahead.step + slice * (DEPTH / FETCH) * LINE;
}

/* Rows of a at this distance would evict each other from the cache. */
static inline int evict(int64_t row) {
    return row % (DISTANT / (int64_t)sizeof(float)) == 0;
}

/* The height of the next tile, from row i on, of the `rest` rows: at most `most`, and no slivers. left->a is NULL if
 * its rows have to be copied, which pays if many columns read them. */
static int64_t next_rows(struct left *left, const struct rt_packed_product *product, int64_t i, int64_t rest,
                         int64_t most, int64_t columns) {
    const struct rt_gemm_places *places = product->places;
    int64_t rows = rest;
    left->a = NULL;
    if (places && !evict(places->row)) {
        const int64_t reach = min_i64(places->reach(&left->a, product, i), rest);
        *left = (struct left){left->a, places->row, places->run, 0, places->offset};
        if (2 * reach > most || reach == rest)
            rows = reach;
        else
            left->a = NULL;
    } else if (!product->collect && columns <= FEW_COLUMNS && !evict(product->k)) {
        *left = left_of(product->a + i * product->k, product->k);
    }
    const int64_t tiles = (rows + most - 1) / most;
    return (rows + tiles - 1) / tiles;
}

static inline void finish(const struct rt_packed_product *product, struct rt_block block) {
    if (product->epilogue) product->epilogue->apply(product->y, product->epilogue->x, block);
}

typedef float quad __attribute__((vector_size(16)));

#if defined __clang__ || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t order __attribute__((vector_size(16)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (order){__VA_ARGS__})
#endif

static inline quad load_quad(const float *from) {
    quad q;
    memcpy(&q, from, sizeof q);
    return q;
}

/* to[i][c] = from[c][i] for i and c < 4. */
static inline void turn_quads(float *to, int64_t to_row, const float *from, int64_t from_row) {
    const quad a = load_quad(from), b = load_quad(from + from_row), c = load_quad(from + 2 * from_row),
               d = load_quad(from + 3 * from_row);
    const quad ab_low = SHUFFLE(a, b, 0, 4, 1, 5), ab_high = SHUFFLE(a, b, 2, 6, 3, 7),
               cd_low = SHUFFLE(c, d, 0, 4, 1, 5), cd_high = SHUFFLE(c, d, 2, 6, 3, 7);
    const quad rows[] = {SHUFFLE(ab_low, cd_low, 0, 1, 4, 5), SHUFFLE(ab_low, cd_low, 2, 3, 6, 7),
                         SHUFFLE(ab_high, cd_high, 0, 1, 4, 5), SHUFFLE(ab_high, cd_high, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) memcpy(to + i * to_row, &rows[i], sizeof rows[i]);
}

/* TURNED rows at a time, which stay in the L1 cache. */
static inline void turn(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t depth, int64_t width) {
    for (int64_t first = 0; first < depth; first += TURNED) {
        const int64_t end = min_i64(first + TURNED, depth), quads = first + (end - first) / 4 * 4,
                      whole = width / 4 * 4;
        for (int64_t c = 0; c < whole; c += 4)
            for (int64_t q = first; q < quads; q += 4)
                turn_quads(to + q * to_row + c, to_row, from + c * from_row + q, from_row);
        for (int64_t c = 0; c < width; c++)
            for (int64_t q = c < whole ? quads : first; q < end; q++) to[q * to_row + c] = from[c * from_row + q];
    }
}

void rt_gemm_turn(float *to, const float *from, int64_t from_row, int64_t depth, int64_t width) {
    if (width < RT_PANEL) memset(to, 0, (size_t)(depth * RT_PANEL) * sizeof *to);
    turn(to, RT_PANEL, from, from_row, depth, width);
}

void rt_gemm_turn_left(float *to, const float *from, int64_t from_row, int64_t depth, int64_t width) {
    turn(to, RT_GEMM_LEFT_ROW, from, from_row, depth, width);
}

/* Packs rows [p, p + depth) and columns [j, j + width) of b. */
static inline void pack_panel(float *to, const struct rt_turned_product *t, int64_t p, int64_t depth, int64_t j,
                              int64_t width) {
    if (t->pack)
        t->pack(to, t->source, p, depth, j, width);
    else
        rt_gemm_turn(to, t->b + j * t->b_row + p, t->b_row, depth, width);
}

/* Each panel is a matrix of its own. Rows that are collected are so a few at a time, in blocks of k. */
static void packed_reference(const struct rt_packed_product *product, struct rt_block block) {
    const int64_t k = product->k, y_row = product->n, end = block.column + block.columns,
                  most = product->collect ? REFERENCE_ROWS : block.rows;
    float left[REFERENCE_ROWS * LEFT_ROW];
    for (int64_t i = 0, rows; i < block.rows; i += rows) {
        float *y = product->y + (block.row + i) * y_row;
        rows = min_i64(most, block.rows - i);
        for (int64_t p = 0, depth; p < k; p += depth) {
            const float *a = product->collect ? left : product->a + (block.row + i) * k;
            depth = product->collect ? min_i64(k - p, RT_GEMM_DEPTH) : k;
            if (product->collect) product->collect(left, product, block.row + i, rows, p, depth);
            for (int64_t j = block.column, width; j < end; j += width) {
                width = min_i64(end - j, RT_PANEL - j % RT_PANEL);
                rt_gemm_reference_add_f32(y + j, y_row, a, product->collect ? LEFT_ROW : k,
                                          product->b + rt_panel_place(k, p, j), RT_PANEL, rows, depth, width, p == 0);
            }
        }
        for (int64_t r = 0; k == 0 && r < rows; r++)
            memset(y + r * y_row + block.column, 0, (size_t)block.columns * sizeof *y);
    }
    finish(product, block);
}

static void near_reference(float *y, const float *a, const float *panel, const float *ahead, int64_t rows,
                           int64_t depth, int first) {
    (void)ahead;
    rt_gemm_reference_add_f32(y, RT_PANEL, a, RT_GEMM_NEAR_ROW, panel, RT_PANEL, rows, depth, RT_PANEL, first);
}

#ifdef __x86_64__
#include <immintrin.h>

/* Vectors of ELEMENTS elements; ROWS of y are held in registers, two vectors wide. */
#define VECTOR                      PASTE(VECTOR, SET)
#define VECTOR_avx512               __m512
#define VECTOR_avx2                 __m256
#define ELEMENTS                    ((int)(sizeof(VECTOR) / sizeof(float)))
#define LOAD                        PASTE(LOAD, SET)
#define LOAD_avx512                 _mm512_loadu_ps
#define LOAD_avx2                   _mm256_loadu_ps
#define STORE                       PASTE(STORE, SET)
#define STORE_avx512                _mm512_storeu_ps
#define STORE_avx2                  _mm256_storeu_ps
#define NARROW                      PASTE(NARROW, SET) /* half a vector */
#define NARROW_avx512               __m256
#define NARROW_avx2                 __m128
#define LOAD_NARROW                 PASTE(LOAD_NARROW, SET)
#define LOAD_NARROW_avx512          _mm256_loadu_ps
#define LOAD_NARROW_avx2            _mm_loadu_ps
#define STORE_NARROW                PASTE(STORE_NARROW, SET)
#define STORE_NARROW_avx512         _mm256_storeu_ps
#define STORE_NARROW_avx2           _mm_storeu_ps
#define MADD(a, x, s)               PASTE(MADD, SET)(a, x, s)
#define MADD_avx512(a, x, s)        _mm512_fmadd_ps(_mm512_set1_ps(a), x, s)
#define MADD_avx2(a, x, s)          _mm256_fmadd_ps(_mm256_set1_ps(a), x, s)
#define MADD_NARROW(a, x, s)        PASTE(MADD_NARROW, SET)(a, x, s)
#define MADD_NARROW_avx512(a, x, s) _mm256_fmadd_ps(_mm256_set1_ps(a), x, s)
#define MADD_NARROW_avx2(a, x, s)   _mm_fmadd_ps(_mm_set1_ps(a), x, s)
#define ROWS                        PASTE(ROWS, SET)
#define ROWS_avx512                 14
#define ROWS_avx2                   6

#define SET    avx512
#define TARGET __attribute__((target("avx512f,fma")))
#include "gemm_packed.inc"
#undef SET
#undef TARGET

#define SET    avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "gemm_packed.inc"
#endif

const struct rt_gemm_packed rt_gemm_packed[] = {
#ifdef __x86_64__
    {"avx512", rt_processor_has_avx512, packed_avx512, turned_avx512, near_avx512},
    {"avx2", rt_processor_has_avx2, packed_avx2, turned_avx2, near_avx2},
#endif
    {"reference", NULL, packed_reference, NULL, near_reference}};

const struct rt_gemm_packed *rt_gemm_packed_choose(int reference) {
    const struct rt_gemm_packed *set = rt_gemm_packed;
    while (set->is_present && (reference || !set->is_present())) set++;
    return set;
}
