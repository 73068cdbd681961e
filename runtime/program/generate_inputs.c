/* The inputs of a step of generation, by their roles.
 *
 * Note [Padding]
 * Prompts of a batch have different lengths. Exports of Hugging Face's models take the last column for the newest token
 * of every row and are told by the mask which columns are padding: prompts are padded on the left. A program whose
 * caches are written at a place per row (GroupQueryAttention with seqlens_k, TensorScatter with write_indices) has the
 * tokens of a row side by side: prompts are padded on the right, a row's first new token comes from the logits of its
 * last one, and its tokens behind the prompt take the places of the padding. */
#include "program/generate.h"

#include "base/number/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rt_columns columns_of(const struct grid *grid, bool pads_right, struct window window) {
    return (struct rt_columns){window.first, window.count, grid->width, pads_right};
}

bool grid_has(const struct grid *grid, bool pads_right, int64_t row, int64_t column) {
    const struct rt_columns columns = columns_of(grid, pads_right, (struct window){0, 0});
    return rt_is_token(&columns, grid->lengths[row], column);
}

/* An input and memory for it. */
struct fed {
    void *data;
    size_t bytes;
    int64_t dims[RT_MAX_NDIM]; /* of the step */
    const char *shape;         /* a letter for each dimension; NULL: it is a tensor of --input */
};

struct feeder {
    struct rank *self;
    struct rt *rt;
    const struct generation *generation;
    struct fed *fed;
    const void **inputs;
    struct rt_tensor *given;
    int64_t sizes[RT_MAX_SIZES];      /* of the step */
    int64_t from_files[RT_MAX_SIZES]; /* those that the tensors of --input have; -1: none */
    int64_t *values;                  /* of the input that is being filled */
    size_t nvalues;
};

/* The tokens that are to be filled in. */
struct step {
    const struct grid *grid;
    struct window window;
    bool pads_right;
};

static int64_t end_of(const struct step *step) {
    return step->window.first + step->window.count;
}

static int64_t value_of(const struct step *step, enum rt_role role, int64_t b, int64_t t, int64_t k) {
    const struct rt_columns columns = columns_of(step->grid, step->pads_right, step->window);
    const int64_t id = step->grid->ids[b * step->grid->room + step->window.first + t];
    return rt_role_value(role, &columns, step->grid->lengths[b], id, t, k);
}

/* The shape of the role that has `ndim` dimensions; NULL: none. Shapes are words, "." has no dimension. */
static const char *shape_of(enum rt_role role, int ndim) {
    for (const char *word = rt_role_row(role)->shapes; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        if ((*word == '.' ? 0 : (int)length) == ndim) return *word == '.' ? "" : word;
        word += length;
    }
    return NULL;
}

/* The extent of a dimension of that letter; -1: any. */
static int64_t extent_of(char letter, const struct step *step) {
    switch (letter) {
    case 'b': return step->grid->rows;
    case 't': return step->window.count;
    case 'k': return end_of(step);
    case '1': return 1;
    default: return -1;
    }
}

static int fail_input(struct feeder *feeder, int exit, int input, const char *what) {
    return fail_with(feeder->self, exit, RT_CODE_INPUT, "input '%s' %s",
                     rt_quote_text(feeder->self->job->manifest.inputs[input]).text, what);
}

/* A mask that has the tokens of the step alone: its extent is that of the ids. */
static bool is_of_step(const struct feeder *feeder, int input) {
    const struct rt_port *port = &feeder->rt->program->inputs[input],
                         *ids = &feeder->rt->program->inputs[feeder->generation->ids];
    return feeder->generation->roles[input] == RT_ROLE_MASK && port->ndim == 2 && ids->ndim == 2 &&
           port->dims[1] == ids->dims[1] && rt_open_extent(port->dims[1]) >= 0;
}

static int find_shapes(struct feeder *feeder) {
    const struct rt_program *program = feeder->rt->program;
    for (int i = 0; i < program->ninputs; i++) {
        const enum rt_role role = feeder->generation->roles[i];
        if (feeder->given[i].data) continue;
        feeder->fed[i].shape = is_of_step(feeder, i) ? "bt" : shape_of(role, program->inputs[i].ndim);
        if (!feeder->fed[i].shape)
            return fail_with(feeder->self, EXIT_UNSUPPORTED, RT_CODE_INPUT,
                             "input '%s' has the role %s and %d dimension(s), which is not supported",
                             rt_quote_text(feeder->self->job->manifest.inputs[i]).text, rt_role_row(role)->word,
                             program->inputs[i].ndim);
        if (!rt_dtype_is_integer(program->inputs[i].dtype) && role != RT_ROLE_MASK && role != RT_ROLE_BRANCH)
            return fail_input(feeder, EXIT_UNSUPPORTED, i, "has a role that takes integers");
    }
    return RT_OK;
}

int feeder_open(struct feeder **out, struct rank *self, struct rt *rt, const struct generation *generation) {
    const int n = rt->program->ninputs;
    struct feeder *feeder = *out = calloc(1, sizeof *feeder);
    if (feeder) {
        *feeder = (struct feeder){.self = self, .rt = rt, .generation = generation, .given = self->job->inputs};
        memcpy(feeder->from_files, self->job->sizes, sizeof feeder->from_files);
        feeder->fed = calloc((size_t)n + 1, sizeof *feeder->fed);
        feeder->inputs = calloc((size_t)n + 1, sizeof(*feeder->inputs));
    }
    if (!feeder || !feeder->fed || !feeder->inputs) return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    return find_shapes(feeder);
}

void feeder_free(struct feeder *feeder) {
    if (!feeder) return;
    for (int i = 0; feeder->fed && i < feeder->rt->program->ninputs; i++) free(feeder->fed[i].data);
    free(feeder->fed);
    free(feeder->inputs);
    free(feeder->values);
    free(feeder);
}

/* What the program has for dimension d of the ids: one size, or a range. */
static struct rt_size range_of(const struct feeder *feeder, int d) {
    const struct rt_program *program = feeder->rt->program;
    const int64_t extent = program->inputs[feeder->generation->ids].dims[d];
    const int s = rt_open_extent(extent);
    if (s >= 0 && s < program->nsizes) return program->sizes[s];
    return (struct rt_size){"", extent, extent, 1};
}

static const char *ids_name(const struct feeder *feeder) {
    return feeder->self->job->manifest.inputs[feeder->generation->ids];
}

int64_t feeder_rows(struct feeder *feeder, int64_t rows) {
    const struct rt_size size = range_of(feeder, 0);
    char range[80];
    if (rows <= size.least) return size.least;
    if (rows <= size.most) return size.least + (rows - size.least + size.step - 1) / size.step * size.step;
    rt_size_range(&size, range, sizeof range);
    fail_with(feeder->self, EXIT_LIMIT, RT_CODE_INPUT,
              "there are %" PRId64 " prompt(s), but the program was compiled for %s (rows of input '%s')", rows, range,
              rt_quote_text(ids_name(feeder)).text);
    return -1;
}

int64_t feeder_count(struct feeder *feeder, int64_t left) {
    const struct rt_size size = range_of(feeder, 1);
    char range[80];
    if (left >= size.most) return size.most;
    if (left >= size.least) return size.least + (left - size.least) / size.step * size.step;
    rt_size_range(&size, range, sizeof range);
    fail_with(feeder->self, EXIT_LIMIT, RT_CODE_INPUT,
              "a step of %" PRId64 " token(s) is needed, but the program was compiled for %s (columns of input '%s')",
              left, range, rt_quote_text(ids_name(feeder)).text);
    return -1;
}

/* Sets the size that a dimension is; no dimension contradicts another. */
static int take_size(struct feeder *feeder, int input, int d, int64_t wanted) {
    const struct rt_program *program = feeder->rt->program;
    const int s = rt_open_extent(program->inputs[input].dims[d]);
    if (wanted < 0 || s < 0 || s >= program->nsizes) return RT_OK;
    if (feeder->sizes[s] >= 0 && feeder->sizes[s] != wanted)
        return fail_with(feeder->self, EXIT_UNSUPPORTED, RT_CODE_INPUT,
                         "size %s would be %" PRId64 " for input '%s', and %" PRId64 " for another",
                         program->sizes[s].name, wanted, rt_quote_text(feeder->self->job->manifest.inputs[input]).text,
                         feeder->sizes[s]);
    feeder->sizes[s] = wanted;
    return RT_OK;
}

/* Sizes that no input has follow from the state, or nothing depends on them. */
static int set_sizes(struct feeder *feeder, const struct step *step) {
    const struct rt_program *program = feeder->rt->program;
    memcpy(feeder->sizes, feeder->from_files, sizeof feeder->sizes);
    for (int i = 0; i < program->ninputs; i++)
        for (int d = 0; feeder->fed[i].shape && d < program->inputs[i].ndim; d++)
            RT_TRY(take_size(feeder, i, d, extent_of(feeder->fed[i].shape[d], step)));
    for (int s = 0; s < program->nsizes; s++)
        if (feeder->sizes[s] < 0) feeder->sizes[s] = program->sizes[s].least;
    return check_rank(feeder->self, feeder->rt, rt_set_sizes(feeder->rt, feeder->sizes));
}

/* A mask may have columns behind the newest token, and one row can serve all. */
static bool fits(const struct feeder *feeder, int input, int d, const struct step *step) {
    const struct fed *fed = &feeder->fed[input];
    const int64_t wanted = extent_of(fed->shape[d], step), has = fed->dims[d];
    if (fed->shape[d] == 'k') return has >= wanted;
    return wanted < 0 || has == wanted || (fed->shape[d] == 'b' && has == 1);
}

static int check_extents(struct feeder *feeder, const struct step *step) {
    const struct rt_program *program = feeder->rt->program;
    for (int i = 0; i < program->ninputs; i++) {
        struct fed *fed = &feeder->fed[i];
        rt_port_extents(feeder->rt, &program->inputs[i], fed->dims);
        for (int d = 0; fed->shape && d < program->inputs[i].ndim; d++)
            if (!fits(feeder, i, d, step))
                return fail_with(feeder->self, EXIT_LIMIT, RT_CODE_INPUT,
                                 "dimension %d of input '%s' is to be %" PRId64
                                 ", but the program was compiled for %" PRId64,
                                 d, rt_quote_text(feeder->self->job->manifest.inputs[i]).text,
                                 extent_of(fed->shape[d], step), fed->dims[d]);
        if (!fed->shape &&
            memcmp(fed->dims, feeder->given[i].dims, (size_t)program->inputs[i].ndim * sizeof *fed->dims))
            return fail_input(feeder, EXIT_MALFORMED, i, "has another shape than the program needs");
    }
    return RT_OK;
}

/* Room for the input's values, as integers, and for the input. */
static int make_room(struct feeder *feeder, struct fed *fed, int64_t count, size_t bytes) {
    if ((size_t)count > feeder->nvalues) {
        free(feeder->values);
        feeder->nvalues = (size_t)count * 2;
        feeder->values = calloc(feeder->nvalues, sizeof *feeder->values);
        if (!feeder->values) feeder->nvalues = 0;
    }
    if (bytes > fed->bytes || !fed->data) {
        free(fed->data);
        fed->bytes = bytes * 2 + 1;
        fed->data = malloc(fed->bytes);
    }
    if (feeder->values && fed->data) return RT_OK;
    return fail_with(feeder->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

/* Fills feeder->values. An input without rows of its own is right if the rows that are read agree: *agree. */
static void find_values(struct feeder *feeder, const struct step *step, int input, int64_t count, bool *agree) {
    const struct fed *fed = &feeder->fed[input];
    const int ndim = feeder->rt->program->inputs[input].ndim;
    const int of_b = rt_dimension_of(fed->shape, ndim, 'b'), of_t = rt_dimension_of(fed->shape, ndim, 't'),
              of_k = rt_dimension_of(fed->shape, ndim, 'k');
    const enum rt_role role = feeder->generation->roles[input];
    const int64_t others = of_b >= 0 && fed->dims[of_b] > 1 ? 0 : step->grid->given;
    int64_t at[RT_MAX_NDIM] = {0};
    *agree = true;
    for (int64_t i = 0; i < count; i++) {
        const int64_t b = of_b < 0 ? 0 : at[of_b], t = of_t < 0 ? step->window.count - 1 : at[of_t];
        const int64_t k = of_k < 0 ? step->window.first + t : at[of_k];
        const bool behind = k >= end_of(step);
        feeder->values[i] = behind ? 0 : value_of(step, role, b, t, k);
        for (int64_t row = 1; row < others && !behind; row++)
            *agree = *agree && value_of(step, role, row, t, k) == feeder->values[i];
        for (int d = ndim - 1; d >= 0 && ++at[d] == fed->dims[d]; d--) at[d] = 0;
    }
}

/* A mask of floats with four dimensions is added to scores. Fully masked rows of padding stay finite. */
static void make_additive(struct fed *fed, enum rt_dtype dtype, const int64_t *taken, int64_t count) {
    const double least = dtype == RT_F16 ? -65504 : -0x1.fep127;
    const size_t each = rt_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++)
        rt_convert((unsigned char *)fed->data + (size_t)i * each, dtype, &(double){taken[i] ? 0 : least}, RT_F64, 1);
}

static int fill(struct feeder *feeder, const struct step *step, int input) {
    const struct rt_port *port = &feeder->rt->program->inputs[input];
    struct fed *fed = &feeder->fed[input];
    int64_t count, bytes;
    bool agree;
    if (!rt_product(fed->dims, port->ndim, &count) || !rt_mul(count, (int64_t)rt_dtype_bytes(port->dtype), &bytes))
        return fail_with(feeder->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    RT_TRY(make_room(feeder, fed, count, (size_t)bytes));
    find_values(feeder, step, input, count, &agree);
    if (!agree)
        return fail_input(feeder, EXIT_UNSUPPORTED, input,
                          "is the same for all rows, but the prompts have different lengths: give them one by one");
    if (port->ndim == 4 && rt_dtype_is_float(port->dtype))
        make_additive(fed, port->dtype, feeder->values, count);
    else
        rt_convert(fed->data, port->dtype, feeder->values, RT_I64, (size_t)count);
    return RT_OK;
}

bool feeder_describe(const struct feeder *feeder, struct rt_fed *fed) {
    for (int i = 0; i < feeder->rt->program->ninputs; i++) {
        if (!feeder->fed[i].shape) return false;
        fed[i].role = feeder->generation->roles[i];
        snprintf(fed[i].shape, sizeof fed[i].shape, "%s", feeder->fed[i].shape);
    }
    return true;
}

int feeder_set_sizes(struct feeder *feeder, const struct grid *grid, struct window window) {
    const struct step step = {grid, window, feeder->generation->pads_right};
    RT_TRY(set_sizes(feeder, &step));
    return check_extents(feeder, &step);
}

int feeder_fill(struct feeder *feeder, const struct grid *grid, struct window window, const void *const **inputs) {
    const struct step step = {grid, window, feeder->generation->pads_right};
    RT_TRY(feeder_set_sizes(feeder, grid, window));
    for (int i = 0; i < feeder->rt->program->ninputs; i++) {
        if (feeder->fed[i].shape) RT_TRY(fill(feeder, &step, i));
        feeder->inputs[i] = feeder->fed[i].shape ? feeder->fed[i].data : feeder->given[i].data;
    }
    *inputs = feeder->inputs;
    return RT_OK;
}
