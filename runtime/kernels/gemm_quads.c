#include "gemm_quads.h"

#include "../base/shape/panel.h"
#include "c/internal.h"

#include <string.h>

/* A block of w, DEPTH rows of CHUNK columns, stays in the L2 cache while ROWS_AT_ONCE rows of x are multiplied with it,
 * a tile of rows at a time. These rows are copied side by side, at a distance that avoids cache set conflicts. */
#define DEPTH        RT_QUAD_DEPTH
#define CHUNK        256
#define LEFT_ROW     RT_QUAD_ROW
#define ROWS_AT_ONCE 112
#define TALLEST      14 /* rows of a tile, at most */

/* sum(rows,RT_PANEL) = x(rows,4 quads) w(4 quads,RT_PANEL) + start, added to sum unless `first`. Rows of x are x_row
 * apart, those of sum CHUNK. */
struct tile {
    int32_t *sum;
    const uint8_t *x;
    int64_t x_row;
    const int8_t *w;
    const int32_t *start;
    int64_t quads;
    int first;
};

typedef void tile_fn(const struct tile *tile, int rows);

/* What is known of a block while it is computed. */
struct work {
    const struct rt_quad_product *product;
    tile_fn *tile;
    int rows;       /* of a tile, at most */
    int64_t column; /* the first of the chunk */
    int64_t width;  /* columns of the chunk */
    int32_t x_zero; /* of unsigned x */
    int has_zeros;  /* w has zero points that are not 0 */
    _Alignas(64) int8_t panels[CHUNK * DEPTH];
    _Alignas(64) int32_t sums[ROWS_AT_ONCE * CHUNK];
    _Alignas(64) uint8_t left[TALLEST * LEFT_ROW];
    _Alignas(64) int32_t start[CHUNK];
    int32_t zero[CHUNK];           /* of signed w */
    int32_t row_sum[ROWS_AT_ONCE]; /* of unsigned x */
};

/* Packing of w that is not stored in panels */

/* Columns [0, width) of (n,k). */
static void pack_turned(int8_t *to, const uint8_t *w, int64_t row, int64_t depth, int64_t width) {
    for (int64_t c = 0; c < width; c++) {
        const uint8_t *from = w + c * row;
        int8_t *column = to + c * RT_QUAD;
        int64_t q = 0;
        for (; q < depth / RT_QUAD; q++) memcpy(column + q * RT_QUAD * RT_PANEL, from + q * RT_QUAD, RT_QUAD);
        if (depth % RT_QUAD) memcpy(column + q * RT_QUAD * RT_PANEL, from + q * RT_QUAD, (size_t)(depth % RT_QUAD));
    }
}

/* Interleaves four rows of `width` <= RT_PANEL elements. */
CLONES static void pack_quad(int8_t *to, const uint8_t *w, int64_t row, int64_t width) {
    if (width == RT_PANEL)
        for (int c = 0; c < RT_PANEL; c++)
            for (int r = 0; r < RT_QUAD; r++) to[c * RT_QUAD + r] = (int8_t)w[r * row + c];
    else
        for (int64_t c = 0; c < width; c++)
            for (int r = 0; r < RT_QUAD; r++) to[c * RT_QUAD + r] = (int8_t)w[r * row + c];
}

static void pack_rows(int8_t *to, const uint8_t *w, int64_t row, int64_t depth, int64_t width) {
    int64_t q = 0;
    for (; q < depth / RT_QUAD; q++) pack_quad(to + q * RT_QUAD * RT_PANEL, w + q * RT_QUAD * row, row, width);
    for (int64_t c = 0; c < width && depth % RT_QUAD; c++)
        for (int64_t r = 0; r < depth % RT_QUAD; r++)
            to[q * RT_QUAD * RT_PANEL + c * RT_QUAD + r] = (int8_t)w[(q * RT_QUAD + r) * row + c];
}

CLONES static void flip(void *bytes, int64_t n) {
    uint8_t *at = bytes;
    for (int64_t i = 0; i < n; i++) at[i] ^= 0x80;
}

/* Elements beyond the depth and the width count as 0. */
static void clear_edge(int8_t *panel, int64_t depth, int64_t width) {
    const int64_t quads = rt_quad_rows(depth) / RT_QUAD;
    for (int64_t q = 0; q < quads && width < RT_PANEL; q++)
        memset(panel + (q * RT_PANEL + width) * RT_QUAD, 0, (size_t)(RT_PANEL - width) * RT_QUAD);
    for (int64_t c = 0; c < width && depth % RT_QUAD; c++)
        for (int64_t r = depth % RT_QUAD; r < RT_QUAD; r++) panel[((quads - 1) * RT_PANEL + c) * RT_QUAD + r] = 0;
}

/* Packs rows [p, p + depth) of the chunk. */
static void pack(struct work *work, int64_t p, int64_t depth) {
    const struct rt_quad_product *t = work->product;
    for (int64_t j = 0; j < work->width; j += RT_PANEL) {
        const int64_t column = work->column + j, width = min_i64(work->width - j, RT_PANEL);
        int8_t *panel = work->panels + j * DEPTH;
        const uint8_t *w = t->w;
        if (t->turned)
            pack_turned(panel, w + column * t->w_row + p, t->w_row, depth, width);
        else
            pack_rows(panel, w + p * t->w_row + column, t->w_row, depth, width);
        if (!t->w_signed) flip(panel, rt_quad_rows(depth) * RT_PANEL);
        clear_edge(panel, depth, width);
    }
}

static int32_t zero_at(const struct rt_quad_product *t, int64_t column) {
    const int64_t at = t->per_column ? column : 0;
    const int32_t zero = !t->w_zero    ? 0
                         : t->w_signed ? ((const int8_t *)t->w_zero)[at]
                                       : ((const uint8_t *)t->w_zero)[at];
    return t->w_signed ? zero : zero - 128;
}

static void find_zeros(struct work *work) {
    work->has_zeros = 0;
    for (int64_t j = 0; j < work->width; j++) {
        work->zero[j] = zero_at(work->product, work->column + j);
        work->has_zeros = work->has_zeros || work->zero[j];
    }
}

/* The panel at column j of the chunk, from row p on. */
static const int8_t *panel_at(const struct work *work, int64_t p, int64_t j) {
    const struct rt_quad_product *t = work->product;
    return t->packed ? (const int8_t *)t->w + rt_quad_place(t->k, p, work->column + j) : work->panels + j * DEPTH;
}

/* Adds -x_zero times the sums of w's columns to what the sums of a block begin with. Those of stored panels are sums
 * over all of k, which the first block has. */
static void add_columns(struct work *work, int64_t p, int64_t depth) {
    static const uint8_t ones[DEPTH] = {[0 ... DEPTH - 1] = 1};
    static const int32_t none[RT_PANEL];
    const struct rt_quad_product *t = work->product;
    if (!work->x_zero || (t->packed && p)) return;
    for (int64_t j = 0; j < work->width; j += RT_PANEL) {
        int32_t sums[RT_PANEL], *start = work->start + j;
        const int8_t *panel = panel_at(work, p, j);
        if (t->packed)
            memcpy(sums, panel + rt_quad_rows(t->k) * RT_PANEL, sizeof sums);
        else
            work->tile(&(struct tile){sums, ones, 0, panel, none, rt_quad_rows(depth) / RT_QUAD, 1}, 1);
        for (int c = 0; c < RT_PANEL; c++)
            start[c] = (int32_t)((uint32_t)start[c] - (uint32_t)sums[c] * (uint32_t)work->x_zero);
    }
}

static void find_start(struct work *work, int64_t p, int64_t depth) {
    const int32_t *bias = p ? NULL : work->product->bias;
    memset(work->start, 0, sizeof work->start);
    if (bias) memcpy(work->start, bias + work->column, (size_t)work->width * sizeof *bias);
    add_columns(work, p, depth);
}

CLONES static int32_t sum_of(const uint8_t *x, int64_t n) {
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

static void subtract_zeros(struct work *work, int64_t first, int64_t rows) {
    const uint32_t of_zeros = (uint32_t)work->product->k * (uint32_t)work->x_zero;
    for (int64_t i = first; i < first + rows; i++) {
        int32_t *sum = work->sums + i * CHUNK;
        const uint32_t row = (uint32_t)work->row_sum[i] - of_zeros;
        for (int64_t j = 0; j < work->width; j++) sum[j] = (int32_t)((uint32_t)sum[j] - row * (uint32_t)work->zero[j]);
    }
}

CLONES static void copy_rows(uint8_t *to, const struct rt_quad_product *t, int64_t row, int64_t rows, int64_t p,
                             int64_t depth) {
    for (int64_t i = 0; i < rows; i++)
        rt_quad_copy(to + i * LEFT_ROW, (const uint8_t *)t->source + (row + i) * t->x_row + p, depth);
}

/* Copies elements [p, p + depth) of rows [row, row + rows), unsigned and followed by zeros up to a quad. */
static void copy_left(struct work *work, int64_t row, int64_t rows, int64_t p, int64_t depth, int32_t *row_sum) {
    const struct rt_quad_product *t = work->product;
    if (t->rows)
        t->rows(work->left, t->source, row, rows, p, depth);
    else
        copy_rows(work->left, t, row, rows, p, depth);
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *to = work->left + i * LEFT_ROW;
        if (t->x_signed) flip(to, depth);
        memset(to + depth, 0, (size_t)(rt_quad_rows(depth) - depth));
        if (work->has_zeros) row_sum[i] = (p ? row_sum[i] : 0) + sum_of(to, depth);
    }
}

/* Rows of x need not be copied if they are as copy_left makes them, and the rows of a tile do not displace each other
 * from the L1 cache. */
static int is_in_place(const struct work *work, int64_t depth) {
    const struct rt_quad_product *t = work->product;
    return !t->rows && !t->x_signed && !work->has_zeros && depth % RT_QUAD == 0 && t->x_row % 2048;
}

/* Gives rows [row, row + rows) of the result, whose sums begin at row `first`, to y. */
static void finish(struct work *work, int64_t row, int64_t first, int64_t rows) {
    const struct rt_quad_product *t = work->product;
    const int32_t *sum = work->sums + first * CHUNK;
    if (work->has_zeros) subtract_zeros(work, first, rows);
    if (t->epilogue)
        t->epilogue->apply(t->y, sum, CHUNK, t->epilogue->x,
                           (struct rt_block){t->first + row, rows, work->column, work->width});
    else
        for (int64_t i = 0; i < rows; i++)
            memcpy((int32_t *)t->y + (t->first + row + i) * t->n + work->column, sum + i * CHUNK,
                   (size_t)work->width * sizeof *sum);
}

/* Rows [row, row + rows), rows <= ROWS_AT_ONCE, of the chunk. Tiles are of equal height, but for one row. */
static void multiply_rows(struct work *work, int64_t row, int64_t rows) {
    const struct rt_quad_product *t = work->product;
    const int64_t tiles = (rows + work->rows - 1) / work->rows;
    for (int64_t p = 0; p == 0 || p < t->k; p += DEPTH) {
        const int64_t depth = min_i64(t->k - p, DEPTH);
        const int in_place = is_in_place(work, depth);
        if (!t->packed) pack(work, p, depth);
        find_start(work, p, depth);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t first = rows * i / tiles, height = rows * (i + 1) / tiles - first;
            const uint8_t *x = work->left;
            if (in_place)
                x = (const uint8_t *)t->source + (row + first) * t->x_row + p;
            else
                copy_left(work, row + first, height, p, depth, work->row_sum + first);
            for (int64_t j = 0; j < work->width; j += RT_PANEL) {
                const struct tile tile = {.sum = work->sums + first * CHUNK + j,
                                          .x = x,
                                          .x_row = in_place ? t->x_row : LEFT_ROW,
                                          .w = panel_at(work, p, j),
                                          .start = work->start + j,
                                          .quads = rt_quad_rows(depth) / RT_QUAD,
                                          .first = p == 0};
                work->tile(&tile, (int)height);
            }
            if (p + DEPTH >= t->k) finish(work, row + first, first, height);
        }
    }
}

static void multiply(const struct rt_quad_product *product, struct rt_block block, tile_fn *tile, int rows) {
    struct work work;
    work.product = product;
    work.tile = tile;
    work.rows = rows;
    work.x_zero = product->x_zero + (product->x_signed ? 128 : 0);
    for (int64_t j = 0; j < block.columns; j += CHUNK) {
        work.column = block.column + j;
        work.width = min_i64(block.columns - j, CHUNK);
        find_zeros(&work);
        for (int64_t i = 0; i < block.rows; i += ROWS_AT_ONCE)
            multiply_rows(&work, block.row + i, min_i64(block.rows - i, ROWS_AT_ONCE));
    }
}

enum { PLAIN_ROWS = 4 };

CLONES static void tile_plain(const struct tile *tile, int rows) {
    for (int i = 0; i < rows; i++) {
        uint32_t sum[RT_PANEL];
        for (int c = 0; c < RT_PANEL; c++)
            sum[c] = (uint32_t)tile->start[c] + (tile->first ? 0 : (uint32_t)tile->sum[i * CHUNK + c]);
        for (int64_t q = 0; q < tile->quads; q++) {
            const uint8_t *x = tile->x + i * tile->x_row + q * RT_QUAD;
            const int8_t *w = tile->w + q * RT_QUAD * RT_PANEL;
            for (int c = 0; c < RT_PANEL; c++)
                sum[c] += (uint32_t)(x[0] * w[RT_QUAD * c] + x[1] * w[RT_QUAD * c + 1] + x[2] * w[RT_QUAD * c + 2] +
                                     x[3] * w[RT_QUAD * c + 3]);
        }
        for (int c = 0; c < RT_PANEL; c++) tile->sum[i * CHUNK + c] = (int32_t)sum[c];
    }
}

static void multiply_plain(const struct rt_quad_product *product, struct rt_block block) {
    multiply(product, block, tile_plain, PLAIN_ROWS);
}

#ifdef __x86_64__
#include <immintrin.h>

/* Vectors of ELEMENTS sums; ROWS of y are held in registers, two vectors wide. */
#define VECTOR               PASTE(VECTOR, SET)
#define VECTOR_avx512        __m512i
#define VECTOR_avxvnni       __m256i
#define VECTOR_avx2          __m256i
#define ELEMENTS             ((int)(sizeof(VECTOR) / sizeof(int32_t)))
#define LOAD                 PASTE(LOAD, SET)
#define LOAD_avx512          _mm512_loadu_si512
#define LOAD_avxvnni(at)     _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define LOAD_avx2            LOAD_avxvnni
#define STORE                PASTE(STORE, SET)
#define STORE_avx512         _mm512_storeu_si512
#define STORE_avxvnni(at, v) _mm256_storeu_si256((__m256i *)(void *)(at), v)
#define STORE_avx2           STORE_avxvnni
#define SAME                 PASTE(SAME, SET)
#define SAME_avx512          _mm512_set1_epi32
#define SAME_avxvnni         _mm256_set1_epi32
#define SAME_avx2            _mm256_set1_epi32
#define SUM                  PASTE(SUM, SET)
#define SUM_avx512           _mm512_add_epi32
#define SUM_avxvnni          _mm256_add_epi32
#define SUM_avx2             _mm256_add_epi32
#define DOT                  PASTE(DOT, SET)
#define DOT_avx512           _mm512_dpbusd_epi32
#define DOT_avxvnni          _mm256_dpbusd_avx_epi32
#define DOT_avx2             dot_pairs
#define ROWS                 PASTE(ROWS, SET)
#define ROWS_avx512          14
#define ROWS_avxvnni         6
#define ROWS_avx2            4

/* The same as DOT without instructions for quads: in 16 bits, even and odd elements apart. */
__attribute__((target("avx2"))) static inline __m256i dot_pairs(__m256i sum, __m256i x, __m256i w) {
    const __m256i x_even = _mm256_and_si256(x, _mm256_set1_epi16(0xff)), x_odd = _mm256_srli_epi16(x, 8);
    const __m256i w_even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), w_odd = _mm256_srai_epi16(w, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x_even, w_even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x_odd, w_odd));
}

#define SET    avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))
#include "gemm_quads.inc"
#undef SET
#undef TARGET

#define SET    avxvnni
#define TARGET __attribute__((target("avx2,avxvnni")))
#include "gemm_quads.inc"
#undef SET
#undef TARGET

#define SET    avx2
#define TARGET __attribute__((target("avx2")))
#include "gemm_quads.inc"
#endif

const struct rt_gemm_quads rt_gemm_quads[] = {
#ifdef __x86_64__
    {"avx512-vnni", rt_processor_has_avx512_vnni, multiply_avx512},
    {"avx-vnni", rt_processor_has_avx_vnni, multiply_avxvnni},
    {"avx2", rt_processor_has_avx2, multiply_avx2},
#endif
    {"plain", NULL, multiply_plain}};

const struct rt_gemm_quads *rt_gemm_quads_choose(int reference) {
    const struct rt_gemm_quads *set = rt_gemm_quads;
    while (set->is_present && (reference || !set->is_present())) set++;
    return set;
}
