#include "state/load_part.h"

#include "base/number/checked.h"
#include "base/number/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 };

/* A block of Philox gives two elements: two uniform numbers in (0, 1), or two normal ones by the Box-Muller transform
 * (1958). */
static void draw(const struct rt_init *init, int64_t block, double pair[2]) {
    const struct rt_philox random = rt_philox_at((uint64_t)block, 0, init->key);
    const double u = rt_philox_open(random.word[0], random.word[1]), v = rt_philox_open(random.word[2], random.word[3]);
    if (init->kind == RT_INIT_UNIFORM) {
        pair[0] = init->a + (init->b - init->a) * u;
        pair[1] = init->a + (init->b - init->a) * v;
        return;
    }
    const double radius = init->b * sqrt(-2 * log(u)), angle = 2 * M_PI * v;
    pair[0] = init->a + radius * cos(angle);
    pair[1] = init->a + radius * sin(angle);
}

static void fill_piece(const struct rt_init *init, int64_t first, int64_t count, double *values) {
    double pair[2] = {init->a, init->a};
    for (int64_t i = 0; i < count; i++) {
        const int64_t index = first + i;
        if (init->kind != RT_INIT_CONSTANT && (i == 0 || index % 2 == 0)) draw(init, index / 2, pair);
        values[i] = pair[index % 2];
    }
}

void rt_init_fill(const struct rt_init *init, int64_t first, int64_t count, void *dst, enum rt_dtype dtype) {
    double values[PIECE];
    for (int64_t done = 0, n; done < count; done += n) {
        n = count - done < PIECE ? count - done : PIECE;
        fill_piece(init, first + done, n, values);
        rt_convert((unsigned char *)dst + (size_t)done * rt_dtype_bytes(dtype), dtype, values, RT_F64, (size_t)n);
    }
}

/* Bytes read at once: a cut tensor's runs are short and close to each other. */
enum { WINDOW = 1 << 16 };

/* Codes or scales that were made of some rows of the complete tensor: of columns [column, column + columns). */
struct made_rows {
    unsigned char *bytes;
    int64_t row, column, columns, all; /* all: columns of the complete tensor */
};

/* Destination of the next element. */
struct target {
    const struct load_part *part;
    unsigned char *dst;    /* of a part that is not packed */
    int64_t row, column;   /* next element of a packed part */
    unsigned char *window; /* buffer of WINDOW bytes: bytes [first, end) of the complete tensor */
    int64_t first, end;
    struct made_rows made; /* of codes and scales */
    struct rt_reason *why; /* of a read error */
    bool failed;
};

/* Reads the window that begins at byte `offset` of the complete tensor. */
static void move_window(struct target *at, int64_t offset) {
    const struct load_part *part = at->part;
    const int64_t left = part->stored_bytes - offset;
    at->first = offset;
    at->end = offset + (left < WINDOW ? left : WINDOW);
    at->failed = at->failed || !rt_reader_get(part->file, (int64_t)part->weight->offset + offset, at->window,
                                              (size_t)(at->end - offset), at->why);
}

/* Reads `count` elements from `index` on and converts them, window by window. */
static void read_elements(struct target *at, int64_t index, int64_t count, unsigned char *dst, enum rt_dtype dtype) {
    const enum rt_dtype stored = at->part->weight->stored;
    const int64_t size = (int64_t)rt_dtype_bytes(stored);
    for (int64_t done = 0, n; done < count && !at->failed; done += n) {
        const int64_t offset = (index + done) * size;
        if (offset < at->first || offset + size > at->end) move_window(at, offset);
        n = (at->end - offset) / size;
        n = n < count - done ? n : count - done;
        rt_retype(dst + (size_t)done * rt_dtype_bytes(dtype), dtype, at->window + (offset - at->first), stored,
                  (size_t)n);
    }
}

/* Elements of rows that were made: a stretch of one row, or whole rows. */
static void take_made(const struct target *at, int64_t index, int64_t count, void *dst, enum rt_dtype dtype) {
    const struct made_rows *made = &at->made;
    const enum rt_dtype type = at->part->weight->coding.makes == RT_SCALES ? RT_F32 : dtype;
    const int64_t place = (index / made->all - made->row) * made->columns + index % made->all - made->column;
    rt_retype(dst, dtype, made->bytes + place * (int64_t)rt_dtype_bytes(type), type, (size_t)count);
}

/* `count` elements of the complete tensor from `index` on, read, made or generated. */
static void fetch(struct target *at, int64_t index, int64_t count, void *dst, enum rt_dtype dtype) {
    const struct rt_weight *weight = at->part->weight;
    if (weight->init.kind != RT_INIT_STORED)
        rt_init_fill(&weight->init, index, count, dst, dtype);
    else if (at->made.bytes)
        take_made(at, index, count, dst, dtype);
    else
        read_elements(at, index, count, dst, dtype);
}

/* Packing -------------------------------------------------------------------------------------------------------- */

/* Index of an element of a packed part. */
static int64_t packed_place(const struct load_part *part, int64_t row, int64_t column) {
    return rt_packed_place(&part->panels, part->weight->dtype, row, column);
}

/* Packs `run` elements of one row, of a 16-bit float. */
static void pack_pairs(struct target *at, int64_t index, int64_t run) {
    const struct load_part *part = at->part;
    uint16_t values[RT_PANEL], *panels = (uint16_t *)(void *)part->dst;
    for (int64_t j = 0, n; j < run; j += n) {
        n = run - j < RT_PANEL ? run - j : RT_PANEL;
        fetch(at, index + j, n, values, part->weight->dtype);
        for (int64_t i = 0; i < n; i++) panels[packed_place(part, at->row, at->column + j + i)] = values[i];
    }
}

/* Packs n elements of a row of the matrix (k,n), `to` being the row in the first panel. */
static void pack_row(float *to, int64_t k, int64_t column, const float *values, int64_t n) {
    for (int64_t i = 0, width; i < n; i += width) {
        float *panel = to + (column + i) / RT_PANEL * RT_PANEL * k;
        width = RT_PANEL - (column + i) % RT_PANEL;
        if (width == RT_PANEL && n - i >= RT_PANEL) {
            memcpy(panel, values + i, RT_PANEL * sizeof *panel);
        } else {
            width = width < n - i ? width : n - i;
            memcpy(panel + (column + i) % RT_PANEL, values + i, (size_t)width * sizeof *panel);
        }
    }
}

/* Packs n elements of a row (c, taps) from element `first` on, a column of the matrix that begins at `to`. */
static void pack_column(float *to, const struct rt_packed *panels, int64_t first, const float *values, int64_t n) {
    int64_t channel = first / panels->taps, tap = first % panels->taps;
    for (int64_t i = 0; i < n; i++) {
        to[(tap * panels->channels + channel) * RT_PANEL] = values[i];
        if (++tap == panels->taps) tap = 0, channel++;
    }
}

/* Packs `run` elements of one row, of f32. */
static void pack_floats(struct target *at, int64_t index, int64_t run) {
    const struct rt_packed *panels = &at->part->panels;
    const bool rows = panels->packing == RT_PACK_ROWS;
    float values[PIECE], *to = (float *)(void *)at->part->dst;
    to += rows ? rt_panel_place(panels->k, at->row, 0) : rt_panel_place(panels->k, 0, at->row);
    for (int64_t j = 0, n; j < run; j += n) {
        n = run - j < PIECE ? run - j : PIECE;
        fetch(at, index + j, n, values, RT_F32);
        if (rows)
            pack_row(to, panels->k, at->column + j, values, n);
        else
            pack_column(to, panels, at->column + j, values, n);
    }
}

/* Packs n bytes of a row (c, taps) from element `first` on, as packed_place would: without its divisions. */
static void pack_windows(const struct load_part *part, int64_t row, int64_t first, const unsigned char *values,
                         int64_t n) {
    const struct rt_packed *panels = &part->panels;
    unsigned char *to = part->dst + rt_quad_place(panels->k, 0, row);
    int64_t channel = first / panels->taps, tap = first % panels->taps;
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = tap * panels->channels + channel;
        to[p / RT_QUAD * RT_QUAD * RT_PANEL + p % RT_QUAD] = values[i];
        if (++tap == panels->taps) tap = 0, channel++;
    }
}

/* Packs `run` elements of one row, of 8-bit integers. */
static void pack_bytes(struct target *at, int64_t index, int64_t run) {
    const struct load_part *part = at->part;
    const unsigned char shift = part->weight->dtype == RT_U8 ? 0x80 : 0;
    unsigned char values[PIECE];
    for (int64_t j = 0, n; j < run; j += n) {
        n = run - j < PIECE ? run - j : PIECE;
        fetch(at, index + j, n, values, part->weight->dtype);
        for (int64_t i = 0; i < n; i++) values[i] ^= shift;
        if (part->weight->packing == RT_PACK_ROWS)
            for (int64_t i = 0; i < n; i++) part->dst[packed_place(part, at->row, at->column + j + i)] = values[i];
        else
            pack_windows(part, at->row, at->column + j, values, n);
    }
}

/* Transforms the windows of `run` elements of one row. */
static void pack_winograd(struct target *at, int64_t index, int64_t run) {
    const struct rt_packed *panels = &at->part->panels;
    const int64_t apart = panels->channels * RT_PANEL;
    float w[9], u[RT_WINOGRAD_PRODUCTS], *to = (float *)(void *)at->part->dst;
    to += rt_panel_place(panels->k, at->column / panels->taps, at->row);
    for (int64_t j = 0; j < run; j += panels->taps, to += RT_PANEL) {
        fetch(at, index + j, panels->taps, w, RT_F32);
        rt_winograd_weights(u, w);
        for (int64_t e = 0; e < RT_WINOGRAD_PRODUCTS; e++) to[e * apart] = u[e];
    }
}

/* Packs the next `run` elements, all of one row. */
static void pack_run(struct target *at, int64_t index, int64_t run) {
    const struct load_part *part = at->part;
    if (part->panels.packing == RT_PACK_WINOGRAD)
        pack_winograd(at, index, run);
    else if (part->weight->dtype == RT_F32)
        pack_floats(at, index, run);
    else if (rt_dtype_bytes(part->weight->dtype) == 1)
        pack_bytes(at, index, run);
    else
        pack_pairs(at, index, run);
    at->column += run;
    if (at->column == part->panel_columns) at->row++, at->column = 0;
}

static void pack(struct target *at, int64_t index, int64_t count) {
    for (int64_t j = 0, n; j < count; j += n) {
        n = at->part->panel_columns - at->column;
        n = n < count - j ? n : count - j;
        pack_run(at, index + j, n);
    }
}

/* Copying -------------------------------------------------------------------------------------------------------- */

/* Copies `length` consecutive indices from `first` on, in the flattened first `depth` dimensions. */
static void copy_run(struct target *at, int64_t first, int64_t length) {
    const struct load_part *part = at->part;
    const int64_t index = first * part->tail, count = length * part->tail;
    if (part->weight->packing != RT_PLAIN) {
        pack(at, index, count);
        return;
    }
    fetch(at, index, count, at->dst, part->weight->dtype);
    at->dst += (size_t)count * rt_dtype_bytes(part->weight->dtype);
}

/* Index of the stored dimension at which the part's run `run` begins. */
static int64_t run_stored(const struct load_dim *dim, int64_t run) {
    return run * dim->block + (run % 2 ? dim->turned : dim->start);
}

/* Copies the part's box in `dim` and the next `behind` dimensions; `above` is the flattened index of the dimensions
 * before. */
static void copy_box(struct target *at, const struct load_dim *dim, int behind, int64_t above) {
    for (int64_t b = 0; b < dim->blocks; b++) {
        const int64_t first = above * dim->extent + run_stored(dim, b);
        if (behind == 0)
            copy_run(at, first, dim->length);
        else
            for (int64_t i = 0; i < dim->length; i++) copy_box(at, dim + 1, behind - 1, first + i);
    }
}

/* Index in the stored tensor of a row of the part. */
static int64_t row_stored(const struct load_part *part, int64_t row) {
    return run_stored(&part->dim[0], row / part->dim[0].length) + row % part->dim[0].length;
}

/* Copies `rows` rows of the part from `row` on, which follow each other in the stored tensor. */
static void copy_rows(struct target *at, int64_t row, int64_t rows) {
    const struct load_part *part = at->part;
    for (int64_t i = 0; i < rows && part->depth > 1; i++)
        copy_box(at, &part->dim[1], part->depth - 2, row_stored(part, row + i));
    if (part->depth <= 1) copy_run(at, row_stored(part, row), rows);
}

/* Makes the codes or scales that `rows` rows of the part need: of the stored rows whole groups, those of the rank where
 * it has one stretch of each. */
static void make_rows(struct target *at, int64_t row, int64_t rows) {
    const struct load_part *part = at->part;
    const struct rt_coded *coded = &part->coded;
    const struct load_dim *last = &part->dim[part->weight->ndim - 1];
    const int64_t matrix = part->weight->ndim > 2 ? coded->n : 1, group = coded->coding.group;
    const int64_t per = rt_coded_columns(&coded->coding), begin = last->blocks == 1 ? last->start / per : 0,
                  end = last->blocks == 1 ? (last->start + last->length + per - 1) / per : coded->k / group;
    at->made = (struct made_rows){.row = row_stored(part, row) * matrix,
                                  .column = begin * per,
                                  .columns = (end - begin) * per,
                                  .all = coded->k / group * per};
    at->made.bytes = malloc((size_t)(rows * matrix * rt_coded_bytes(&coded->coding, end - begin) + 1));
    if (at->made.bytes)
        at->failed |= !rt_coded_make(coded, at->made.row, rows * matrix, begin, end - begin, at->made.bytes, at->why);
    else
        at->failed = !rt_refuse_memory(at->why, (size_t)(rows * matrix));
}

bool load_part_copy(const struct load_part *part, int64_t from, int64_t to, struct rt_reason *why) {
    unsigned char window[WINDOW];
    struct target at = {.part = part,
                        .dst = part->dst + (size_t)((from - part->first) * part->row_bytes),
                        .row = from,
                        .window = window,
                        .why = why};
    const bool coded = rt_coding_is_code(&part->weight->coding) && part->file;
    for (int64_t row = from, run; row < to && !at.failed; row += run) {
        run = part->dim[0].length - row % part->dim[0].length;
        run = run < to - row ? run : to - row;
        if (coded) make_rows(&at, row, run);
        if (!at.failed) copy_rows(&at, row, run);
        free(at.made.bytes);
        at.made.bytes = NULL;
    }
    return !at.failed;
}

void load_part_sum(const struct load_part *part, int threads) {
    if (part->weight->packing == RT_PLAIN || rt_dtype_bytes(part->weight->dtype) != 1) return;
    const int64_t k = part->panels.k, n = part->panels.n;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < rt_panels(n); i++) {
        const signed char *panel = (const signed char *)part->dst + i * rt_quad_panel(k);
        int32_t sums[RT_PANEL] = {0};
        for (int64_t q = 0; q < rt_quad_rows(k) / RT_QUAD; q++)
            for (int c = 0; c < RT_PANEL; c++)
                for (int r = 0; r < RT_QUAD; r++) sums[c] += panel[(q * RT_PANEL + c) * RT_QUAD + r];
        memcpy(part->dst + i * rt_quad_panel(k) + rt_quad_rows(k) * RT_PANEL, sums, sizeof sums);
    }
}

/* Finding -------------------------------------------------------------------------------------------------------- */

static bool cut_is_valid(const struct rt *rt, const struct rt_weight *weight, const struct rt_split *split) {
    return split->dim >= 0 && split->dim < weight->ndim && split->axis >= 0 && split->axis < rt->program->mesh.naxes &&
           split->blocks != INT64_MIN;
}

static bool cut_dims(struct load_part *part, const struct rt *rt) {
    const struct rt_weight *weight = part->weight;
    for (int s = 0; s < weight->nsplits; s++) {
        const struct rt_split *split = &weight->split[s];
        if (!cut_is_valid(rt, weight, split)) return false;
        struct load_dim *dim = &part->dim[split->dim];
        if (dim->length < dim->block && dim->blocks != rt_blocks(split->blocks)) return false;
        const int64_t extent = dim->blocks * dim->length; /* that the cuts before leave */
        const struct rt_cut cut = rt_cut_along(rt, split->axis, extent, split->blocks, split->grain);
        if (!rt_cut_is_sound(&cut)) return false;
        dim->blocks = rt_blocks(cut.blocks);
        dim->block = weight->dims[split->dim] / dim->blocks;
        dim->start += rt_cut_start_in(&cut, rt->coordinate[split->axis], 0);
        dim->turned += rt_cut_start_in(&cut, rt->coordinate[split->axis], 1);
        dim->length = rt_cut_length(&cut, rt->coordinate[split->axis]);
        if (split->dim + 1 > part->depth) part->depth = split->dim + 1;
    }
    return true;
}

/* Sets the shape of a packed part; *elements: size of its panels. Weights are not transformed for the reference's sums,
 * which no division of pixels changes: they take less of the same memory. */
static bool lay_out_panels(struct load_part *part, const struct rt *rt, int64_t *elements) {
    const struct rt_weight *weight = part->weight;
    int64_t dims[RT_MAX_NDIM];
    const bool windows = weight->packing == RT_PACK_WINDOWS || weight->packing == RT_PACK_WINOGRAD;
    if (weight->ndim < 2 || (weight->ndim > 2 && !windows) || !rt_is_packable(weight->dtype)) return false;
    for (int d = 0; d < weight->ndim; d++) dims[d] = part->dim[d].blocks * part->dim[d].length;
    part->panels = rt_packed_of(weight->packing, weight->ndim, dims);
    part->panel_columns = weight->packing == RT_PACK_ROWS ? part->panels.n : part->panels.channels * part->panels.taps;
    if (weight->packing == RT_PACK_WINOGRAD && (part->panels.taps != 9 || weight->dtype != RT_F32)) return false;
    *elements = rt_packed_elements(&part->panels, weight->dtype);
    if (weight->packing == RT_PACK_WINOGRAD && rt->reference_kernels)
        part->panels = rt_packed_of(RT_PACK_WINDOWS, weight->ndim, dims);
    return true;
}

/* What codes and scales are made of, but for the file. */
static bool find_coded(struct load_part *part) {
    const struct rt_weight *weight = part->weight;
    const struct rt_coding *coding = &weight->coding;
    if (!rt_coding_is_code(coding)) return true;
    if (weight->ndim < 2 || weight->ndim > 3 || coding->group < 1 || (coding->bits != 4 && coding->bits != 8))
        return false;
    const int64_t columns = weight->dims[weight->ndim - 1], per = rt_coded_columns(coding);
    part->coded = (struct rt_coded){.coding = *coding,
                                    .offset = (int64_t)weight->offset,
                                    .stored = weight->stored,
                                    .n = weight->dims[weight->ndim - 2],
                                    .k = columns / per * coding->group};
    return columns % per == 0;
}

bool load_part_find(struct load_part *part, const struct rt *rt, const struct rt_weight *weight, int64_t *elements) {
    int64_t stored, row = 1;
    if (weight->ndim < 0 || weight->ndim > RT_MAX_NDIM || weight->nsplits > RT_MAX_AXES) return false;
    *part = (struct load_part){.weight = weight, .depth = 1, .dim[0] = {1, 1, 1, 0, 0, 1}};
    for (int d = 0; d < weight->ndim; d++) {
        const int64_t extent = weight->dims[d];
        part->dim[d].extent = part->dim[d].block = part->dim[d].length = extent;
        part->dim[d].blocks = 1;
    }
    if (!rt_product(weight->dims, weight->ndim, &stored) ||
        !rt_mul(rt_coding_stored(&weight->coding, stored), (int64_t)rt_dtype_bytes(weight->stored),
                &part->stored_bytes) ||
        !cut_dims(part, rt) || !find_coded(part))
        return false;
    for (int d = 1; d < weight->ndim; d++) row *= part->dim[d].blocks * part->dim[d].length;
    part->rows = part->dim[0].blocks * part->dim[0].length;
    part->row_bytes = row * (int64_t)rt_dtype_bytes(weight->dtype);
    *elements = part->rows * row;
    if (weight->packing != RT_PLAIN && !lay_out_panels(part, rt, elements)) return false;
    const int tail_dims = weight->ndim - part->depth;
    return rt_product(weight->dims + part->depth, tail_dims > 0 ? tail_dims : 0, &part->tail);
}
