#include "gemm_grouped.h"

#include "../base/shape/panel.h"
#include "c/internal.h"
#include "gemm.h"
#include "gemm_quads.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ROWS_AT_ONCE rows of a part of k are copied side by side, and each chunk of w is multiplied with them while it is in
 * the L2 cache, a tile of rows and a panel at a time. */
#define LEFT_BYTES   2048              /* of a row of x in a part: f32, or 8 bits with `rounded` */
#define LEFT_ROW     (LEFT_BYTES + 64) /* at this distance rows do not evict each other from the cache */
#define MOST_PIECES  64                /* of a part */
#define CHUNK        256
#define ROWS_AT_ONCE 112
#define TALLEST      12   /* rows of a tile, at most */
#define AHEAD        4096 /* bytes before they are read, w is fetched: processors do not look beyond a page */
#define LANE         4    /* bytes of a column that lie together */

/* Indices of k of one group: `lanes` times 4 bytes of each column. */
struct piece {
    int64_t first, length, lanes, group;
};

/* sum(rows,RT_PANEL) += x(rows,..) w(..,RT_PANEL) over the pieces, or = if `first`. */
struct tile {
    float *sum;
    const uint8_t *x;     /* rows are LEFT_ROW bytes apart, and of 8 bits if x_scale is set */
    const float *x_scale; /* of rows that are MOST_PIECES apart, per piece */
    const float *x_sum;   /* likewise, of the rounded x */
    const uint8_t *w;     /* bytes that `flip` makes unsigned codes */
    const float *scale;   /* of a panel: (groups,RT_PANEL) */
    const float *zero;    /* of unsigned codes, of each column; the next piece's are zero_step behind */
    int zero_step;
    const struct piece *pieces;
    int npieces, first;
    uint32_t flip;
};

typedef void tile_fn(const struct tile *tile, int rows);

/* The tiles of an instruction set: of 4 and of 8 bits. */
struct tiles {
    tile_fn *real[2], *rounded[2];
    int rows; /* of a tile, at most */
};

/* What is known of a block while it is computed. */
struct work {
    const struct rt_grouped_product *product;
    const struct tiles *tiles;
    int bits, bias; /* of the code that is 0 when it is made unsigned */
    uint32_t flip;
    struct piece piece[MOST_PIECES];
    int npieces;
    _Alignas(64) uint8_t left[ROWS_AT_ONCE * LEFT_ROW];
    float x_scale[ROWS_AT_ONCE * MOST_PIECES], x_sum[ROWS_AT_ONCE * MOST_PIECES];
    _Alignas(64) float zero[MOST_PIECES * CHUNK];
};

/* Pieces ----------------------------------------------------------------------------------------------------------- */

/* Finds the pieces from index p of k on that fit a part; returns where they end. */
static int64_t find_pieces(struct work *work, int64_t p) {
    const struct rt_grouped_product *t = work->product;
    const int64_t block = t->k / t->groups, per_lane = 8 * LANE / work->bits,
                  depth = LEFT_BYTES / (int64_t)(t->rounded ? 1 : sizeof(float)), begin = p;
    for (work->npieces = 0; p < t->k && work->npieces < MOST_PIECES; work->npieces++) {
        const int64_t group = p / block, length = min_i64(min_i64(RT_GROUP_PIECE, (group + 1) * block - p), t->k - p);
        if (p + length - begin > depth) break;
        work->piece[work->npieces] = (struct piece){p, length, (length + per_lane - 1) / per_lane, group};
        p += length;
    }
    return p;
}

CLONES static void widen(float *to, const uint8_t *from, int64_t n, int is_signed, int bias) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)((is_signed ? (int8_t)from[i] : from[i]) + bias);
}

/* Zero points of unsigned codes of columns [column, column + width), a row for each piece. */
static void load_zeros(struct work *work, int64_t column, int64_t width) {
    const struct rt_grouped_product *t = work->product;
    const int64_t first = work->piece[0].group, groups = work->piece[work->npieces - 1].group + 1 - first;
    float rows[RT_PANEL * MOST_PIECES], turned[MOST_PIECES * RT_PANEL];
    for (int64_t j = 0; j < width; j += RT_PANEL) {
        const int64_t columns = min_i64(width - j, RT_PANEL);
        for (int64_t c = 0; c < columns; c++)
            widen(rows + c * groups, t->zero + (column + j + c) * t->groups + first, groups,
                  rt_dtype_is_signed(t->codes), work->bias);
        rt_gemm_turn(turned, rows, groups, groups, columns);
        for (int i = 0; i < work->npieces; i++)
            memcpy(work->zero + i * CHUNK + j, turned + (work->piece[i].group - first) * RT_PANEL,
                   RT_PANEL * sizeof *turned);
    }
}

/* The left operand ------------------------------------------------------------------------------------------------- */

/* The largest magnitude; NaN if there is one, whose bits are above those of infinity. */
CLONES static float largest(const float *x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, sizeof value);
    return value;
}

/* Returns the sum of what x is rounded to; NaN becomes -127. */
CLONES static int32_t round_to_bytes(int8_t *to, const float *x, int64_t n, float inverse) {
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        float v = rintf(x[i] * inverse);
        v = v > -127 ? v : -127;
        v = v < 127 ? v : 127;
        to[i] = (int8_t)v;
        sum += to[i];
    }
    return sum;
}

/* Bytes in the order of the codes: of each lane, those of the low halves of its bytes, then those of the high ones. */
CLONES static void part_halves(int8_t *to, const int8_t *from, int64_t lanes) {
    for (int64_t l = 0; l < lanes; l++, to += 2 * LANE, from += 2 * LANE)
        for (int i = 0; i < LANE; i++) {
            to[i] = from[2 * i];
            to[LANE + i] = from[2 * i + 1];
        }
}

static void round_piece(struct work *work, int8_t *to, const float *x, const struct piece *piece, float *x_scale,
                        float *x_sum) {
    const int64_t n = piece->lanes * 8 * LANE / work->bits;
    const float most = largest(x, piece->length);
    int8_t whole[RT_GROUP_PIECE + 2 * LANE];
    int8_t *bytes = work->bits == 4 ? whole : to;
    *x_scale = most / 127;
    *x_sum = (float)round_to_bytes(bytes, x, piece->length, most >= 128 * FLT_MIN ? 127 / most : 0);
    memset(bytes + piece->length, 0, (size_t)(n - piece->length));
    if (work->bits == 4) part_halves(to, whole, piece->lanes);
}

/* Copies the part of rows [row, row + rows), zeros up to a whole lane. */
static void copy_left(struct work *work, int64_t row, int64_t rows) {
    const struct rt_grouped_product *t = work->product;
    const struct piece *last = &work->piece[work->npieces - 1];
    const int64_t first = work->piece[0].first, per_lane = 8 * LANE / work->bits;
    for (int64_t i = 0; i < rows; i++) {
        uint8_t *to = work->left + i * LEFT_ROW;
        const float *x = t->x + (row + i) * t->k;
        if (t->rounded) {
            for (int s = 0; s < work->npieces; s++) {
                const struct piece *piece = &work->piece[s];
                round_piece(work, (int8_t *)to + (piece->first - first), x + piece->first, piece,
                            &work->x_scale[i * MOST_PIECES + s], &work->x_sum[i * MOST_PIECES + s]);
            }
        } else {
            const int64_t n = last->first + last->length - first;
            memcpy(to, x + first, (size_t)n * sizeof *x);
            memset(to + n * (int64_t)sizeof *x, 0, (size_t)(last->lanes * per_lane - last->length) * sizeof *x);
        }
    }
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* Rows of y may evict each other from the cache, so the sums lie beside each other meanwhile. */
static void multiply_tile(const struct work *work, struct tile tile, float *y, int rows, int64_t width) {
    const int64_t y_row = work->product->n;
    tile_fn *const *fn = work->product->rounded ? work->tiles->rounded : work->tiles->real;
    _Alignas(64) float sum[TALLEST * RT_PANEL];
    for (int i = 0; i < rows && !tile.first; i++) memcpy(sum + i * RT_PANEL, y + i * y_row, (size_t)width * sizeof *y);
    tile.sum = sum;
    fn[work->bits == 8](&tile, rows);
    for (int i = 0; i < rows; i++) memcpy(y + i * y_row, sum + i * RT_PANEL, (size_t)width * sizeof *y);
}

/* Adds the part's products of the left rows and a chunk of w to y. Tiles are of equal height, but for one row. */
static void multiply_chunk(struct work *work, struct rt_block at) {
    const struct rt_grouped_product *t = work->product;
    const int64_t tiles = (at.rows + work->tiles->rows - 1) / work->tiles->rows, first = work->piece[0].first;
    if (t->zero) load_zeros(work, at.column, at.columns);
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t row = at.rows * i / tiles, rows = at.rows * (i + 1) / tiles - row;
        for (int64_t j = 0; j < at.columns; j += RT_PANEL) {
            const int64_t place = rt_quad_place((t->k * work->bits + 7) / 8, first * work->bits / 8, at.column + j);
            float *y = t->y + (at.row + row) * t->n + at.column + j;
            const struct tile tile = {.x = work->left + row * LEFT_ROW,
                                      .x_scale = work->x_scale + row * MOST_PIECES,
                                      .x_sum = work->x_sum + row * MOST_PIECES,
                                      .w = (const uint8_t *)t->w + place,
                                      .scale = t->scale + rt_panel_place(t->groups, 0, at.column + j),
                                      .zero = work->zero + j,
                                      .zero_step = t->zero ? CHUNK : 0,
                                      .pieces = work->piece,
                                      .npieces = work->npieces,
                                      .first = first == 0,
                                      .flip = work->flip};
            multiply_tile(work, tile, y, (int)rows, min_i64(at.columns - j, RT_PANEL));
        }
    }
}

/* Bits that make unsigned codes of the bytes in a panel, which are those of the tensor less 128. */
static uint32_t flips_of(enum rt_dtype codes) {
    return codes == RT_I4 ? 0x08080808 : 0x80808080;
}

static void multiply(const struct rt_grouped_product *product, struct rt_block block, const struct tiles *tiles) {
    struct work work;
    work.product = product;
    work.tiles = tiles;
    work.bits = rt_dtype_bits(product->codes);
    work.bias = rt_dtype_is_signed(product->codes) ? 1 << (work.bits - 1) : 0;
    work.flip = flips_of(product->codes);
    for (int i = 0; i < CHUNK && !product->zero; i++) work.zero[i] = product->offset + (float)work.bias;
    for (int64_t i = 0; i < block.rows; i += ROWS_AT_ONCE)
        for (int64_t p = 0; p < product->k;) {
            const int64_t rows = min_i64(block.rows - i, ROWS_AT_ONCE);
            p = find_pieces(&work, p);
            copy_left(&work, block.row + i, rows);
            for (int64_t j = 0; j < block.columns; j += CHUNK)
                multiply_chunk(
                    &work, (struct rt_block){block.row + i, rows, block.column + j, min_i64(block.columns - j, CHUNK)});
        }
}

/* Tiles ------------------------------------------------------------------------------------------------------------ */

enum { PLAIN_ROWS = 4 };

/* The sum of a piece with one row of x; column c, codes of `bits` bits. */
IN_CLONE float real_sum(const struct tile *tile, const struct piece *piece, const uint8_t *x, const uint8_t *w,
                        float zero, int bits) {
    float sum = 0;
    for (int64_t l = 0; l < piece->lanes; l++) {
        uint32_t lane;
        memcpy(&lane, w + l * LANE * RT_PANEL, sizeof lane);
        lane ^= tile->flip;
        for (int i = 0; i < 8 * LANE / bits; i++, lane >>= bits) {
            float left;
            memcpy(&left, x + (l * 8 * LANE / bits + i) * (int64_t)sizeof left, sizeof left);
            sum = fmaf(left, (float)(lane & ((1U << bits) - 1)) - zero, sum);
        }
    }
    return sum;
}

IN_CLONE float rounded_sum(const struct tile *tile, const struct piece *piece, const uint8_t *x, const uint8_t *w,
                           float zero, float x_sum, int bits) {
    int32_t sum = 0;
    const int8_t *left = (const int8_t *)x;
    for (int64_t l = 0; l < piece->lanes; l++)
        for (int part = 0; part < 8 / bits; part++)
            for (int b = 0; b < LANE; b++) {
                const int code = (w[l * LANE * RT_PANEL + b] ^ (int)(tile->flip & 0xff)) >> (part * bits);
                sum += (code & ((1 << bits) - 1)) * *left++;
            }
    return fmaf(-zero, x_sum, (float)sum);
}

IN_CLONE void any_plain(const struct tile *tile, int rows, int bits, int rounded) {
    const uint8_t *w = tile->w;
    int64_t done = 0; /* bytes of x */
    for (int s = 0; s < tile->npieces; s++) {
        const struct piece *piece = &tile->pieces[s];
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < RT_PANEL; c++) {
                const uint8_t *x = tile->x + i * LEFT_ROW + done;
                const float zero = tile->zero[s * tile->zero_step + c];
                float *y = tile->sum + i * RT_PANEL + c, scale = tile->scale[piece->group * RT_PANEL + c], sum;
                if (rounded) {
                    sum = rounded_sum(tile, piece, x, w + c * LANE, zero, tile->x_sum[i * MOST_PIECES + s], bits);
                    scale *= tile->x_scale[i * MOST_PIECES + s];
                } else {
                    sum = real_sum(tile, piece, x, w + c * LANE, zero, bits);
                }
                *y = fmaf(sum, scale, s == 0 && tile->first ? 0 : *y);
            }
        w += piece->lanes * LANE * RT_PANEL;
        done += piece->lanes * (8 * LANE / bits) * (rounded ? 1 : (int64_t)sizeof(float));
    }
}

CLONES static void real_4_plain(const struct tile *tile, int rows) {
    any_plain(tile, rows, 4, 0);
}
CLONES static void real_8_plain(const struct tile *tile, int rows) {
    any_plain(tile, rows, 8, 0);
}
CLONES static void rounded_4_plain(const struct tile *tile, int rows) {
    any_plain(tile, rows, 4, 1);
}
CLONES static void rounded_8_plain(const struct tile *tile, int rows) {
    any_plain(tile, rows, 8, 1);
}

static void multiply_plain(const struct rt_grouped_product *product, struct rt_block block) {
    static const struct tiles tiles = {{real_4_plain, real_8_plain}, {rounded_4_plain, rounded_8_plain}, PLAIN_ROWS};
    multiply(product, block, &tiles);
}

#ifdef __x86_64__
#include <immintrin.h>

/* Vectors of ELEMENTS numbers of 32 bits; ROWS of y are held in registers, two vectors wide. CODES(w, zero, bits): the
 * lowest codes of each lane as floats, less the zero points. UNPACK: the lowest codes of each byte. */
#define VECTOR                 PASTE(VECTOR, SET)
#define VECTOR_avx512          __m512
#define VECTOR_avxvnni         __m256
#define VECTOR_avx2            __m256
#define INTEGERS               PASTE(INTEGERS, SET)
#define INTEGERS_avx512        __m512i
#define INTEGERS_avxvnni       __m256i
#define INTEGERS_avx2          __m256i
#define ELEMENTS               ((int)(sizeof(VECTOR) / sizeof(float)))
#define LOAD                   PASTE(LOAD, SET)
#define LOAD_avx512            _mm512_loadu_ps
#define LOAD_avxvnni           _mm256_loadu_ps
#define LOAD_avx2              _mm256_loadu_ps
#define STORE                  PASTE(STORE, SET)
#define STORE_avx512           _mm512_storeu_ps
#define STORE_avxvnni          _mm256_storeu_ps
#define STORE_avx2             _mm256_storeu_ps
#define LOAD_LANES             PASTE(LOAD_LANES, SET)
#define LOAD_LANES_avx512      _mm512_loadu_si512
#define LOAD_LANES_avxvnni(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define LOAD_LANES_avx2        LOAD_LANES_avxvnni
#define SAME                   PASTE(SAME, SET)
#define SAME_avx512            _mm512_set1_ps
#define SAME_avxvnni           _mm256_set1_ps
#define SAME_avx2              _mm256_set1_ps
#define SAME_LANE              PASTE(SAME_LANE, SET)
#define SAME_LANE_avx512       _mm512_set1_epi32
#define SAME_LANE_avxvnni      _mm256_set1_epi32
#define SAME_LANE_avx2         _mm256_set1_epi32
#define MADD                   PASTE(MADD, SET)
#define MADD_avx512            _mm512_fmadd_ps
#define MADD_avxvnni           _mm256_fmadd_ps
#define MADD_avx2              _mm256_fmadd_ps
#define MINUS                  PASTE(MINUS, SET) /* c - a b */
#define MINUS_avx512           _mm512_fnmadd_ps
#define MINUS_avxvnni          _mm256_fnmadd_ps
#define MINUS_avx2             _mm256_fnmadd_ps
#define WIDEN                  PASTE(WIDEN, SET)
#define WIDEN_avx512           _mm512_cvtepi32_ps
#define WIDEN_avxvnni          _mm256_cvtepi32_ps
#define WIDEN_avx2             _mm256_cvtepi32_ps
#define SHIFT                  PASTE(SHIFT, SET)
#define SHIFT_avx512(w, bits)  _mm512_srli_epi32(w, (unsigned)(bits))
#define SHIFT_avxvnni(w, bits) _mm256_srli_epi32(w, bits)
#define SHIFT_avx2(w, bits)    _mm256_srli_epi32(w, bits)
#define LOWEST                 PASTE(LOWEST, SET)
#define LOWEST_avx512(w, bits)                                                                                         \
    ((bits) == 4 ? _mm512_permutexvar_ps(w, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))      \
                 : _mm512_cvtepi32_ps((w)&_mm512_set1_epi32((1 << (bits)) - 1)))
#define LOWEST_avxvnni(w, bits) _mm256_cvtepi32_ps((w)&_mm256_set1_epi32((1 << (bits)) - 1))
#define LOWEST_avx2             LOWEST_avxvnni
#define DOT                     PASTE(DOT, SET)
#define DOT_avx512              _mm512_dpbusd_epi32
#define DOT_avxvnni             _mm256_dpbusd_avx_epi32
#define DOT_avx2                dot_pairs
#define ROWS                    PASTE(ROWS, SET)
#define ROWS_avx512             12
#define ROWS_avxvnni            4
#define ROWS_avx2               4

/* The same as DOT without instructions for quads: in 16 bits, even and odd elements apart. */
__attribute__((target("avx2"))) static inline __m256i dot_pairs(__m256i sum, __m256i x, __m256i w) {
    const __m256i x_even = x & _mm256_set1_epi16(0xff), x_odd = _mm256_srli_epi16(x, 8);
    const __m256i w_even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), w_odd = _mm256_srai_epi16(w, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x_even, w_even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x_odd, w_odd));
}

#define SET    avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vnni,fma")))
#include "gemm_grouped.inc"
#undef SET
#undef TARGET

#define SET    avxvnni
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#include "gemm_grouped.inc"
#undef SET
#undef TARGET

#define SET    avx2
#define TARGET __attribute__((target("avx2,fma")))
#include "gemm_grouped.inc"
#endif

const struct rt_gemm_grouped rt_gemm_grouped[] = {
#ifdef __x86_64__
    {"avx512-vnni", rt_processor_has_avx512_vnni, multiply_avx512},
    {"avx-vnni", rt_processor_has_avx_vnni, multiply_avxvnni},
    {"avx2", rt_processor_has_avx2, multiply_avx2},
#endif
    {"plain", NULL, multiply_plain}};

const struct rt_gemm_grouped *rt_gemm_grouped_choose(int reference) {
    const struct rt_gemm_grouped *set = rt_gemm_grouped;
    while (set->is_present && (reference || !set->is_present())) set++;
    return set;
}
