/* Note [Products with pairs]
 * Products of 16-bit floats with a packed right operand. A block of y is summed in f32 on the stack, in blocks of k,
 * then finished by the epilogue and rounded once. AMD's processors with AVX512-BF16 multiply pairs of bf16 at twice the
 * rate of f32; each element of y is then a chain of such products in order of k. On other processors, and for fp16,
 * both operands are widened to f32 block by block, where the CHUNK x DEPTH elements of b serve all rows of the block,
 * while the next block of b is prefetched as it is stored. Intel's processors are among these: their AVX512-BF16
 * instructions do half the multiply-adds per cycle that those of f32 do (measured on Emerald Rapids). In both cases m
 * and n may be cut anywhere without changing a bit. */
#include "gemm.h"

#include "../base/shape/panel.h"
#include "c/internal.h"
#include "halves.h"

#include <string.h>

#define TALL     224 /* rows of a block: a multiple of the rows that are held in registers */
#define CHUNK    256 /* columns of a block */
#define DEPTH    RT_GEMM_DEPTH
#define SLICES   (DEPTH * RT_PANEL / 2048) /* of 4 KB, in the part of a panel that a block reads */
#define LEFT_ROW RT_GEMM_LEFT_ROW          /* elements from one copied row of a to the next */

/* A block of a product: rows [i, i + rows), columns [j, j + width), of k the part [p, p + depth). */
struct part {
    int64_t i, rows, j, width, p, depth;
};

static const uint16_t *panel_of(const struct rt_packed_half *product, int64_t p, int64_t j) {
    return product->b + rt_pair_place(product->k, p, j);
}

/* Widened operands ------------------------------------------------------------------------------------------------ */

static const struct widening {
    void (*row)(float *to, const uint16_t *from, int64_t n);
    void (*panel)(float *to, const uint16_t *from, int64_t depth);
    void (*round)(uint16_t *to, const float *from, int64_t n);
} widenings[RT_DTYPE_COUNT] = {[RT_BF16] = {rt_widen_bf16, rt_widen_panel_bf16, rt_narrow_bf16},
                               [RT_F16] = {rt_widen_fp16, rt_widen_panel_fp16, rt_narrow_fp16}};

/* The packed operand from a block on, for the callback of a product with a right side that is packed as it is read. */
struct source {
    const struct rt_packed_half *product;
    int64_t p, j;
};

static void pack_widened(float *to, const void *source, int64_t p, int64_t depth, int64_t j, int64_t width) {
    const struct source *from = source;
    (void)width; /* panels are padded */
    widenings[from->product->dtype].panel(to, panel_of(from->product, from->p + p, from->j + j), depth);
}

static void add_reference(float *sum, const struct rt_packed_half *product, const struct part *part,
                          const float *left) {
    float panel[DEPTH * RT_PANEL];
    for (int64_t j = 0; j < part->width; j += RT_PANEL) {
        widenings[product->dtype].panel(panel, panel_of(product, part->p, part->j + j), part->depth);
        rt_gemm_reference_add_f32(sum + j, CHUNK, left, LEFT_ROW, panel, RT_PANEL, part->rows, part->depth, RT_PANEL,
                                  part->p == 0);
    }
}

/* sum += a's part times b's. */
static void add_widened(float *sum, const struct rt_packed_half *product, const struct part *part,
                        const struct rt_gemm_packed *set) {
    float left[TALL * LEFT_ROW];
    for (int64_t i = 0; i < part->rows; i++)
        widenings[product->dtype].row(left + i * LEFT_ROW, product->a + (part->i + i) * product->k + part->p,
                                      part->depth);
    if (!set->multiply_turned) return add_reference(sum, product, part, left);
    const struct source source = {product, part->p, part->j};
    const int64_t p = part->p + DEPTH < product->k ? part->p + DEPTH : 0, j = p ? part->j : part->j + CHUNK;
    set->multiply_turned(&(struct rt_turned_product){.y = sum,
                                                     .a = left,
                                                     .y_row = CHUNK,
                                                     .a_row = LEFT_ROW,
                                                     .m = part->rows,
                                                     .k = part->depth,
                                                     .n = part->width,
                                                     .onto = part->p > 0,
                                                     .pack = pack_widened,
                                                     .source = &source,
                                                     .next = (const float *)(const void *)panel_of(product, p, j),
                                                     .next_step = rt_pair_rows(product->k) * RT_PANEL / 2,
                                                     .next_slices = SLICES});
}

/* Products of pairs ----------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512bf16")))
#define ROWS   14 /* of y that are held in registers, two vectors wide */
#define LINE   32 /* elements of a cache line */

int rt_gemm_has_pairs(void) {
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
}

TARGET static inline __m512bh pairs_at(const uint16_t *from) {
    return (__m512bh)_mm512_loadu_si512(from);
}

/* The pair of a row, in every lane. */
TARGET static inline __m512bh every_lane(const uint16_t *from) {
    int32_t pair;
    memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* sum(rows,RT_PANEL) (+)= left(rows,depth) b(depth,RT_PANEL); depth is even. Fetches a line at `ahead` for each pair of
 * rows. rows is a constant after inlining. */
TARGET static inline __attribute__((always_inline)) void
tile(float *sum, const uint16_t *left, const uint16_t *b, const uint16_t *ahead, int64_t depth, int first, int rows) {
    __m512 low[ROWS], high[ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        low[i] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum + i * CHUNK);
        high[i] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum + i * CHUNK + 16);
    }
    for (int64_t p = 0; p < depth; p += 2) {
        const __m512bh b_low = pairs_at(b + p * RT_PANEL), b_high = pairs_at(b + p * RT_PANEL + 32);
        __builtin_prefetch(ahead + p / 2 * LINE, 0, 2);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const __m512bh a = every_lane(left + i * LEFT_ROW + p);
            low[i] = _mm512_dpbf16_ps(low[i], a, b_low);
            high[i] = _mm512_dpbf16_ps(high[i], a, b_high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        _mm512_storeu_ps(sum + i * CHUNK, low[i]);
        _mm512_storeu_ps(sum + i * CHUNK + 16, high[i]);
    }
}

TARGET static void any_tile(float *sum, const uint16_t *left, const uint16_t *b, const uint16_t *ahead, int64_t depth,
                            int first, int rows) {
    switch (rows) {
#define CASE(n)                                                                                                        \
    case n: tile(sum, left, b, ahead, depth, first, n); break;
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
        CASE(12)
        CASE(13)
        CASE(14)
#undef CASE
    }
}

/* Rows of a, side by side; a row of odd length ends in a zero. */
static void copy_left(uint16_t *to, const struct rt_packed_half *product, const struct part *part, int64_t first,
                      int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        memcpy(to + i * LEFT_ROW, product->a + (part->i + first + i) * product->k + part->p,
               (size_t)part->depth * sizeof *to);
        to[i * LEFT_ROW + part->depth] = 0;
    }
}

/* As add_widened. The first two rows of tiles fetch the next block of b ahead: weights come from memory in every step.
 * Tiles are of equal height, but for one row. */
static void add_pairs(float *sum, const struct rt_packed_half *product, const struct part *part) {
    uint16_t left[ROWS * LEFT_ROW];
    const int64_t tiles = (part->rows + ROWS - 1) / ROWS, depth = (part->depth + 1) / 2 * 2;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t first = part->rows * t / tiles, rows = part->rows * (t + 1) / tiles - first;
        copy_left(left, product, part, first, rows);
        for (int64_t j = 0; j < part->width; j += RT_PANEL) {
            const uint16_t *b = panel_of(product, part->p, part->j + j);
            const uint16_t *ahead = t < 2 ? b + DEPTH * RT_PANEL + t * (DEPTH / 2) * LINE : b;
            any_tile(sum + first * CHUNK + j, left, b, ahead, depth, part->p == 0, (int)rows);
        }
    }
}

#else

int rt_gemm_has_pairs(void) {
    return 0;
}

static void add_pairs(float *sum, const struct rt_packed_half *product, const struct part *part) {
    add_widened(sum, product, part, rt_gemm_packed_choose(0));
}

#endif

/* Blocks ---------------------------------------------------------------------------------------------------------- */

static void finish(const struct rt_packed_half *product, const float *sum, struct rt_block at) {
    if (product->epilogue)
        product->epilogue->apply(product->y, sum, CHUNK, product->epilogue->x, at);
    else
        for (int64_t i = 0; i < at.rows; i++)
            widenings[product->dtype].round(product->y + (at.row + i) * product->n + at.column, sum + i * CHUNK,
                                            at.columns);
}

/* Rows and columns that fit a block on the stack. */
static void multiply_block(const struct rt_packed_half *product, struct rt_block at, const struct rt_gemm_packed *set,
                           int pairs) {
    _Alignas(64) float sum[TALL * CHUNK];
    if (product->k == 0) memset(sum, 0, sizeof sum);
    for (int64_t p = 0; p < product->k; p += DEPTH) {
        const struct part part = {at.row, at.rows, at.column, at.columns, p, min_i64(product->k - p, DEPTH)};
        if (pairs)
            add_pairs(sum, product, &part);
        else
            add_widened(sum, product, &part, set);
    }
    finish(product, sum, at);
}

void rt_gemm_half(const struct rt_packed_half *product, struct rt_block block, const struct rt_gemm_packed *set,
                  int pairs) {
    for (int64_t j = 0; j < block.columns; j += CHUNK)
        for (int64_t i = 0; i < block.rows; i += TALL)
            multiply_block(product,
                           (struct rt_block){block.row + i, min_i64(block.rows - i, TALL), block.column + j,
                                             min_i64(block.columns - j, CHUNK)},
                           set, pairs);
}
