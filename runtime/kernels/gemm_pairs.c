/* Note [Products with pairs]
 * AMD's processors with AVX512-BF16 multiply pairs of bf16 at twice the rate of f32: an instruction adds the products
 * of two pairs of neighbours in k to a sum in f32, rounding to nearest even, subnormal numbers counting as 0. Each
 * element of y is one chain of such instructions in order of k, from pair to pair, which the blocks only interrupt; so
 * m and n may be cut anywhere without changing a bit. Intel's processors do half the multiply-adds per cycle with these
 * instructions that they do with those of f32 (measured on Emerald Rapids), so they are not used there.
 *
 * A right operand that is not packed is packed block by block, RT_GEMM_DEPTH by RT_PAIRS_CHUNK elements that stay in
 * the L2 cache while all rows of a block of y are computed. While a block is used, the next one is prefetched. */
#include "gemm_pairs.h"

#include "../base/shape/panel.h"
#include "c/internal.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#include "c/turn.h"

#define TARGET  __attribute__((target("avx512f,avx512bw,avx512bf16")))
#define INLINED TARGET static inline __attribute__((always_inline))
#define ROWS    14 /* of y that are held in registers, two vectors wide */
#define LINE    32 /* elements of a cache line */
#define AHEAD   32 /* pairs of rows from what a single tile reads to what it fetches: a page */
#define SIDE    32 /* elements from one pair of k to the next in a left operand that is stored transposed */

/* Rows of the left operand: side by side, RT_GEMM_LEFT_ROW apart, or `turned`, for each pair of k the pairs of all
 * rows. */
struct left {
    int turned;
    uint16_t pairs[16 * RT_GEMM_LEFT_ROW];
};

/* Memory to prefetch while a panel is multiplied: a cache line at `at` for each pair of k, `step` elements apart, and
 * another one `second` elements behind each. */
struct ahead {
    const uint16_t *at;
    int64_t step, second;
};

INLINED __m512bh pairs_at(const uint16_t *from) {
    return (__m512bh)_mm512_loadu_si512(from);
}

/* The pair of a row, in every lane. */
INLINED __m512bh every_lane(const uint16_t *from) {
    int32_t pair;
    memcpy(&pair, from, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* The first n of 32 elements. */
INLINED __m512i elements_at(const uint16_t *from, int64_t n) {
    return _mm512_maskz_loadu_epi16(n >= 32 ? 0xffffffffu : (1u << n) - 1, from);
}

/* Elements of two rows, side by side: of the first 16 columns, and of those behind them. */
INLINED __m512i pairs_of_rows(__m512i even, __m512i odd, int behind) {
    const __m512i order = _mm512_add_epi16(_mm512_set1_epi16((short)(behind ? 16 : 0)),
                                           _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                                            8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0));
    return _mm512_permutex2var_epi16(even, order, odd);
}

/* Takes rows [0, rows) of the operand at `a`, each of `depth` elements; trans: element (i, p) is at
 * a[p * a_row + i]. */
TARGET static void take_left(struct left *left, const uint16_t *a, int64_t a_row, int trans, int64_t rows,
                             int64_t depth) {
    left->turned = trans;
    if (!trans) {
        for (int64_t i = 0; i < rows; i++) {
            uint16_t *row = left->pairs + i * RT_GEMM_LEFT_ROW;
            memcpy(row, a + i * a_row, (size_t)depth * sizeof *row);
            row[depth] = 0;
        }
        return;
    }
    for (int64_t p = 0; p < depth; p += 2) {
        const __m512i even = elements_at(a + p * a_row, rows);
        const __m512i odd = p + 1 < depth ? elements_at(a + (p + 1) * a_row, rows) : _mm512_setzero_si512();
        _mm512_storeu_si512(left->pairs + p / 2 * SIDE, pairs_of_rows(even, odd, 0));
    }
}

TARGET static void pack_rows(uint16_t *panel, const uint16_t *b, int64_t b_row, int64_t depth, int64_t width) {
    for (int64_t p = 0; p < depth; p += 2) {
        const __m512i even = elements_at(b + p * b_row, width);
        const __m512i odd = p + 1 < depth ? elements_at(b + (p + 1) * b_row, width) : _mm512_setzero_si512();
        _mm512_storeu_si512(panel + p * RT_PANEL, pairs_of_rows(even, odd, 0));
        _mm512_storeu_si512(panel + p * RT_PANEL + 32, pairs_of_rows(even, odd, 1));
    }
}

/* Blocks of 16 columns of 16 pairs are transposed. */
TARGET static void pack_columns(uint16_t *panel, const uint16_t *b, int64_t b_row, int64_t depth, int64_t width) {
    for (int64_t p = 0; p < depth; p += 32)
        for (int64_t j = 0; j < RT_PANEL; j += 16) {
            __m512 rows[16];
            for (int c = 0; c < 16; c++)
                rows[c] = _mm512_castsi512_ps(j + c < width ? elements_at(b + (j + c) * b_row + p, depth - p)
                                                            : _mm512_setzero_si512());
            rt_turn_16(rows);
            for (int64_t q = 0; q < 16 && p + 2 * q < depth; q++)
                _mm512_storeu_ps(panel + (p + 2 * q) * RT_PANEL + 2 * j, rows[q]);
        }
}

/* Packs elements (p, j) of a right operand, p < depth and j < width <= RT_PANEL, as a panel of pairs, with zeros
 * beyond; trans: element (p, j) is at b[j * b_row + p]. */
static void pack(uint16_t *panel, const uint16_t *b, int64_t b_row, int trans, int64_t depth, int64_t width) {
    (trans ? pack_columns : pack_rows)(panel, b, b_row, depth, width);
}

/* sum(rows,RT_PANEL) (+)= left b(depth,RT_PANEL), where row i's pair of (p, p + 1) is at left[i * row + p * step];
 * rows, row and step are constants after inlining. */
INLINED void tile(float *sum, const uint16_t *left, const uint16_t *b, struct ahead ahead, int64_t depth, int first,
                  int rows, int64_t row, int64_t step) {
    __m512 low[ROWS], high[ROWS];
    uintptr_t line = (uintptr_t)ahead.at;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        low[i] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum + i * RT_PAIRS_CHUNK);
        high[i] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum + i * RT_PAIRS_CHUNK + 16);
    }
    for (int64_t p = 0; p < depth; p += 2, line += (uintptr_t)ahead.step * sizeof *b) {
        const __m512bh b_low = pairs_at(b + p * RT_PANEL), b_high = pairs_at(b + p * RT_PANEL + 32);
        __builtin_prefetch((const void *)line, 0, 2);
        __builtin_prefetch((const void *)(line + (uintptr_t)ahead.second * sizeof *b), 0, 2);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const __m512bh a = every_lane(left + i * row + p * step);
            low[i] = _mm512_dpbf16_ps(low[i], a, b_low);
            high[i] = _mm512_dpbf16_ps(high[i], a, b_high);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        _mm512_storeu_ps(sum + i * RT_PAIRS_CHUNK, low[i]);
        _mm512_storeu_ps(sum + i * RT_PAIRS_CHUNK + 16, high[i]);
    }
}

#define DEFINE_TILES(name, row, step)                                                                                  \
    TARGET static void name(float *sum, const uint16_t *left, const uint16_t *b, struct ahead ahead, int64_t depth,    \
                            int first, int64_t rows) {                                                                 \
        switch (rows) { RT_CASES_14(CASE, row, step) }                                                                 \
    }
#define CASE(n, row, step)                                                                                             \
    case n: tile(sum, left, b, ahead, depth, first, n, row, step); break;

DEFINE_TILES(tiles_of_rows, RT_GEMM_LEFT_ROW, 1)
DEFINE_TILES(tiles_of_turned, 2, SIDE / 2)

static void multiply(float *sum, const struct left *left, const uint16_t *panel, int64_t rows, int64_t depth, int first,
                     struct ahead ahead) {
    (left->turned ? tiles_of_turned : tiles_of_rows)(sum, left->pairs, panel, ahead, depth, first, rows);
}

/* The first n of 16 elements. */
INLINED __m512 floats_at(const float *from, int64_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1 << n) - 1 : 0), from);
}

/* As take_left, of rows of f32, which are rounded. Subnormal numbers become 0, as products of pairs count them. */
TARGET static void round_left(struct left *left, const float *a, int64_t a_row, int64_t rows, int64_t depth) {
    left->turned = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < depth; p += 32) {
            const float *from = a + i * a_row + p;
            const __m512bh rounded =
                _mm512_cvtne2ps_pbh(floats_at(from + 16, depth - p - 16), floats_at(from, depth - p));
            _mm512_storeu_si512(left->pairs + i * RT_GEMM_LEFT_ROW + p, (__m512i)rounded);
        }
}

/* What tile t of a block fetches beside the panel at b: the first two rows of tiles the next block, since weights come
 * from memory in every step; a single one what lies behind b. */
static struct ahead ahead_of_panel(const uint16_t *b, int64_t t, int64_t tiles) {
    if (tiles == 1) return (struct ahead){b + (int64_t)AHEAD * 2 * LINE, 2 * LINE, LINE};
    return (struct ahead){t < 2 ? b + (RT_GEMM_DEPTH * RT_PANEL / 2 / LINE * t + RT_GEMM_DEPTH) * LINE : b, LINE, 0};
}

/* Tiles are of equal height, but for one row. */
void rt_pairs_add(const struct rt_pairs_block *block) {
    const int64_t tiles = (block->rows + ROWS - 1) / ROWS, even = (block->depth + 1) / 2 * 2;
    struct left left;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t first = block->rows * t / tiles, rows = block->rows * (t + 1) / tiles - first;
        if (block->a)
            take_left(&left, block->a + first * block->a_row, block->a_row, 0, rows, block->depth);
        else
            round_left(&left, block->wide_a + first * block->a_row, block->a_row, rows, block->depth);
        for (int64_t j = 0; j < block->columns; j += RT_PANEL) {
            const uint16_t *b = block->b + j / RT_PANEL * block->panel;
            multiply(block->sum + first * RT_PAIRS_CHUNK + j, &left, b, rows, even, block->first,
                     ahead_of_panel(b, t, tiles));
        }
    }
}

struct product {
    uint16_t *y;
    const uint16_t *a, *b;
    int64_t y_row, a_row, b_row, m, k, n;
    int trans_a, trans_b;
};

/* What to fetch while tile `t` of rows meets the panel at column j of the block: together the block that is packed
 * next, of which lines of neighbouring rows, or columns, are fetched one after the other. */
static struct ahead ahead_of(const struct product *product, int64_t p, int64_t column, int64_t t, int64_t j) {
    enum { LINES = RT_GEMM_DEPTH / LINE, PAIRS = RT_GEMM_DEPTH / 2 };
    const int64_t next_p = p + RT_GEMM_DEPTH < product->k ? p + RT_GEMM_DEPTH : 0;
    const int64_t next = next_p ? column : column + RT_PAIRS_CHUNK;
    const int64_t call = t * (RT_PAIRS_CHUNK / RT_PANEL) + j / RT_PANEL;
    const int64_t row = product->trans_b ? next + call / LINES * PAIRS : next_p + t * PAIRS;
    const int64_t line = product->trans_b ? next_p + call % LINES * LINE : next + j;
    if (row >= (product->trans_b ? product->n : product->k)) return (struct ahead){product->a, 0, 0};
    return (struct ahead){product->b + row * product->b_row + line, product->b_row, 0};
}

/* Sums of products of pairs are never subnormal, which this instruction would make 0. */
TARGET static void narrow(uint16_t *to, const float *from, int64_t n) {
    int64_t j = 0;
    for (; j + 16 <= n; j += 16)
        _mm256_storeu_si256((__m256i *)(to + j), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + j)));
    if (j == n) return;
    const __m256i rest = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + j)); /* rows of sums are whole vectors */
    memcpy(to + j, &rest, (size_t)(n - j) * sizeof *to);
}

/* Columns [column, column + width) of rows [row, row + rows), which are sums of several blocks of k only if they fit
 * the block's sums. */
static void multiply_block(const struct product *product, int64_t row, int64_t rows, int64_t column, int64_t width,
                           float *sums, uint16_t *panels) {
    const int64_t tiles = (rows + ROWS - 1) / ROWS;
    const int several = product->k > RT_GEMM_DEPTH;
    struct left left;
    for (int64_t p = 0; p < product->k; p += RT_GEMM_DEPTH) {
        const int64_t depth = min_i64(product->k - p, RT_GEMM_DEPTH), even = (depth + 1) / 2 * 2;
        for (int64_t j = 0; j < width; j += RT_PANEL)
            pack(panels + j * even,
                 product->b + (product->trans_b ? (column + j) * product->b_row + p : p * product->b_row + column + j),
                 product->b_row, product->trans_b, depth, min_i64(width - j, RT_PANEL));
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t first = rows * t / tiles, height = rows * (t + 1) / tiles - first, i = row + first;
            float *sum = sums + (several ? first * RT_PAIRS_CHUNK : 0);
            take_left(&left, product->a + (product->trans_a ? p * product->a_row + i : i * product->a_row + p),
                      product->a_row, product->trans_a, height, depth);
            for (int64_t j = 0; j < width; j += RT_PANEL)
                multiply(sum + j, &left, panels + j * even, height, even, p == 0, ahead_of(product, p, column, t, j));
            for (int64_t r = 0; r < height && p + depth == product->k; r++)
                narrow(product->y + (i + r) * product->y_row + column, sum + r * RT_PAIRS_CHUNK, width);
        }
    }
}

void rt_gemm_pairs(RT_GEMM_OPERANDS(uint16_t)) {
    enum { TALL = 20 * ROWS };
    _Alignas(64) float sums[TALL * RT_PAIRS_CHUNK];
    _Alignas(64) uint16_t panels[RT_GEMM_DEPTH * RT_PAIRS_CHUNK];
    const struct product product = {y, a, b, y_row, a_row, b_row, m, k, n, trans_a, trans_b};
    const int64_t blocks = k > RT_GEMM_DEPTH ? (m + TALL - 1) / TALL : 1;
    for (int64_t j = 0; j < n; j += RT_PAIRS_CHUNK)
        for (int64_t i = 0; i < blocks; i++)
            multiply_block(&product, m * i / blocks, m * (i + 1) / blocks - m * i / blocks, j,
                           min_i64(n - j, RT_PAIRS_CHUNK), sums, panels);
    for (int64_t i = 0; i < m && k == 0; i++) memset(y + i * y_row, 0, (size_t)n * sizeof *y);
}

#else

void rt_gemm_pairs(RT_GEMM_OPERANDS(uint16_t)) {
    (void)y, (void)y_row, (void)a, (void)a_row, (void)trans_a, (void)b, (void)b_row, (void)trans_b, (void)m, (void)k,
        (void)n;
}

void rt_pairs_add(const struct rt_pairs_block *block) {
    (void)block;
}

#endif
