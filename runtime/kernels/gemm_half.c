/* Note [Products of packed halves]
 * Products of 16-bit floats, or of f32 and 16-bit weights, with a packed right operand. A block of y is summed in f32
 * on the stack, in blocks of k, then finished by the epilogue, and rounded once unless it is f32. bf16 by bf16 is
 * multiplied in pairs where the processor does that faster (Note [Products with pairs] in gemm_pairs.c). On other
 * processors, and for other types, operands of 16 bits are widened to f32 block by block, where the CHUNK x DEPTH
 * elements of b serve all rows of the block, while the next block of b is prefetched as it is stored; for few rows b is
 * widened in registers (Note [Few rows of halves] in gemm_few.c), and where b serves all rows at once it is read panel
 * by panel, in the order of memory. In all cases m and n may be cut anywhere without changing a bit. */
#include "gemm.h"

#include "../base/shape/panel.h"
#include "c/internal.h"
#include "gemm_pairs.h"
#include "halves.h"

#include <string.h>

#define TALL     224            /* rows of a block: a multiple of the rows that are held in registers */
#define CHUNK    RT_PAIRS_CHUNK /* columns of a block */
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

static const struct widening {
    void (*row)(float *to, const uint16_t *from, int64_t n);
    void (*panel)(float *to, const uint16_t *from, int64_t depth);
    void (*round)(uint16_t *to, const float *from, int64_t n);
    int64_t few; /* rows up to which b is widened in registers, which of fp16 takes more instructions */
} widenings[RT_DTYPE_COUNT] = {[RT_BF16] = {rt_widen_bf16, rt_widen_panel_bf16, rt_narrow_bf16, 64},
                               [RT_F16] = {rt_widen_fp16, rt_widen_panel_fp16, rt_narrow_fp16, 24}};

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

/* What a block reads after this part: the same columns further down, or the next columns from their beginning. */
static const uint16_t *part_after(const struct rt_packed_half *product, const struct part *part) {
    const int64_t p = part->p + DEPTH < product->k ? part->p + DEPTH : 0;
    return panel_of(product, p, p ? part->j : part->j + CHUNK);
}

/* Tiles of equal height, but for one row. */
static void add_few(float *sum, const struct rt_packed_half *product, const struct part *part, const float *left) {
    const int64_t tiles = (part->rows + RT_GEMM_FEW_ROWS - 1) / RT_GEMM_FEW_ROWS;
    for (int64_t j = 0; j < part->width; j += RT_PANEL)
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t first = part->rows * t / tiles, rows = part->rows * (t + 1) / tiles - first;
            rt_gemm_few(sum + first * CHUNK + j, CHUNK, left + first * LEFT_ROW,
                        panel_of(product, part->p, part->j + j), part->depth, part->p == 0, rows, product->dtype);
        }
}

/* sum += a's part times b's. */
static void add_widened(float *sum, const struct rt_packed_half *product, const struct part *part,
                        const struct rt_gemm_packed *set) {
    float left[TALL * LEFT_ROW];
    for (int64_t i = 0; i < part->rows; i++) {
        const int64_t from = (part->i + i) * product->k + part->p;
        if (product->wide_a)
            memcpy(left + i * LEFT_ROW, product->wide_a + from, (size_t)part->depth * sizeof *left);
        else
            widenings[product->dtype].row(left + i * LEFT_ROW, product->a + from, part->depth);
    }
    if (!set->multiply_turned) return add_reference(sum, product, part, left);
    if (part->rows <= widenings[product->dtype].few && rt_processor_has_avx512bw())
        return add_few(sum, product, part, left);
    const struct source source = {product, part->p, part->j};
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
                                                     .next = (const float *)(const void *)part_after(product, part),
                                                     .next_step = rt_pair_rows(product->k) * RT_PANEL / 2,
                                                     .next_slices = SLICES});
}

/* As add_widened. */
static void add_pairs(float *sum, const struct rt_packed_half *product, const struct part *part) {
    const int64_t from = part->i * product->k + part->p;
    rt_pairs_add(&(struct rt_pairs_block){.sum = sum,
                                          .a = product->a ? product->a + from : NULL,
                                          .wide_a = product->a ? NULL : product->wide_a + from,
                                          .b = panel_of(product, part->p, part->j),
                                          .a_row = product->k,
                                          .panel = rt_pair_rows(product->k) * RT_PANEL,
                                          .rows = part->rows,
                                          .columns = part->width,
                                          .depth = part->depth,
                                          .first = part->p == 0});
}

static void finish_wide(const struct rt_packed_half *product, const float *sum, struct rt_block at) {
    for (int64_t i = 0; i < at.rows; i++)
        memcpy(product->wide_y + (at.row + i) * product->n + at.column, sum + i * CHUNK,
               (size_t)at.columns * sizeof *sum);
    if (product->wide_epilogue) product->wide_epilogue->apply(product->wide_y, product->wide_epilogue->x, at);
}

static void finish(const struct rt_packed_half *product, const float *sum, struct rt_block at) {
    if (product->wide_y)
        finish_wide(product, sum, at);
    else if (product->epilogue)
        product->epilogue->apply(product->y, sum, CHUNK, product->epilogue->x, at);
    else
        for (int64_t i = 0; i < at.rows; i++)
            widenings[product->dtype].round(product->y + (at.row + i) * product->n + at.column, sum + i * CHUNK,
                                            at.columns);
}

/* Rows and columns that fit on the stack. */
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
    const int64_t across = block.rows <= RT_GEMM_FEW_ROWS ? RT_PANEL : CHUNK;
    for (int64_t j = 0; j < block.columns; j += across)
        for (int64_t i = 0; i < block.rows; i += TALL)
            multiply_block(product,
                           (struct rt_block){block.row + i, min_i64(block.rows - i, TALL), block.column + j,
                                             min_i64(block.columns - j, across)},
                           set, pairs);
}
