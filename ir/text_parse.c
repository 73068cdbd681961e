#include "ir/text.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/infer.h"
#include "ir/number.h"
#include "ir/op.h"
#include "ir/schedule.h"

enum {
    MAX_ERRORS = 20,
    MAX_WORD = 64,
    MAX_ATTRS = 64,
    MAX_OUTPUTS = 16,
    MAX_WAYS = 1 << 20, /* size of a mesh */
    MAX_STAGE = 1 << 20,
    MAX_ROWS = 1 << 24, /* positions, micro-batches and slots of a schedule */
    MAX_CONST_BYTES =
        1 << 30,        /* of all constants together: repetitions such as 8*2 make large constants of short texts */
    MAX_TEXT_SHIFT = 33 /* longer texts could overflow counts */
};

/* A tensor that a statement defines. op_infer infers the type of a computed tensor if the text omits it. */
struct definition {
    const char *at; /* position in the text */
    int number, tensor;
    bool left_out, typed;
    struct tensor given;
};

/* Note [Statements in error]
 * A statement that fails still defines its tensors, marked as in error. Statements that use those are skipped without a
 * diagnostic, so that one mistake is reported once, at its own line. */
enum { IN_ERROR = 0 };

struct reader {
    struct arena *arena;
    struct diags *diags;
    const char *file;
    const char *at, *end, *line_start;
    long long line;
    struct graph *graph;
    struct map ids; /* number in the text -> tensor id + 1, or IN_ERROR */
    struct definition defined[MAX_OUTPUTS];
    int ndefined; /* tensors that the current statement defines */
    int64_t const_bytes;
    VEC(struct rt_step_op) rows; /* of the last schedule */
};

/* Errors and characters ---------------------------------------------------------------------------------------- */

static bool fail_at(struct reader *r, const char *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool fail_at(struct reader *r, const char *at, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *where = arena_printf(r->arena, "%s:%lld:%lld", r->file, r->line, (long long)(at - r->line_start) + 1);
    diag_error(r->diags, 345, EXIT_MALFORMED, where, "%s", text);
    return false;
}

static int peek(const struct reader *r) {
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

static void skip_blanks(struct reader *r) {
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\r') r->at++;
}

/* The start of the next token. */
static const char *place(struct reader *r) {
    skip_blanks(r);
    return r->at;
}

static bool take(struct reader *r, const char *token) {
    skip_blanks(r);
    size_t length = strlen(token);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, token, length) != 0) return false;
    r->at += length;
    return true;
}

static bool expect(struct reader *r, const char *token) {
    return take(r, token) || fail_at(r, r->at, "'%s' expected", token);
}

static bool at_line_end(struct reader *r) {
    skip_blanks(r);
    return peek(r) < 0 || peek(r) == '\n' || peek(r) == '#';
}

static bool expect_line_end(struct reader *r) {
    return at_line_end(r) || fail_at(r, r->at, "unexpected text at the end of the statement");
}

static void next_line(struct reader *r) {
    while (peek(r) >= 0 && peek(r) != '\n') r->at++;
    if (peek(r) < 0) return;
    r->line_start = ++r->at;
    r->line++;
}

/* Moves to the first statement at or after the cursor; false at the end of the text. */
static bool next_statement(struct reader *r) {
    while (at_line_end(r) && peek(r) >= 0) next_line(r);
    return peek(r) >= 0;
}

/* Words, numbers, strings -------------------------------------------------------------------------------------- */

/* Reads a word of at least one character: letters, digits and the characters in `also`. */
static bool read_word(struct reader *r, const char *also, const char *what, char word[MAX_WORD]) {
    const char *start = place(r);
    while (peek(r) > 0 && (isalnum(peek(r)) || strchr(also, peek(r)))) r->at++;
    size_t length = (size_t)(r->at - start);
    if (length == 0 || length >= MAX_WORD) return fail_at(r, start, length ? "%s is too long" : "%s expected", what);
    memcpy(word, start, length);
    word[length] = 0;
    return true;
}

static bool read_name(struct reader *r, const char *what, char word[MAX_WORD]) {
    return read_word(r, "_", what, word);
}

static bool read_int(struct reader *r, int64_t least, int64_t most, const char *what, int64_t *value) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_word(r, "-", what, word)) return false;
    if (!number_parse(word, RT_I64, value)) return fail_at(r, start, "%s must be an integer of 64 bits", what);
    if (*value >= least && *value <= most) return true;
    if (most == INT64_MAX) return fail_at(r, start, "%s must be at least %lld", what, (long long)least);
    return fail_at(r, start, "%s must be from %lld to %lld", what, (long long)least, (long long)most);
}

static int hex_digit(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The byte of an escape \xNN, from its "x" on; -1 if it is malformed. */
static int read_escape(struct reader *r) {
    if (r->end - r->at < 3 || r->at[0] != 'x') return -1;
    int high = hex_digit(r->at[1]), low = hex_digit(r->at[2]);
    r->at += 3;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool read_string(struct reader *r, const char **text) {
    if (!expect(r, "\"")) return false;
    const char *close = r->at;
    while (close < r->end && *close != '"' && *close != '\n') close++;
    if (close == r->end || *close != '"') return fail_at(r, r->at, "unclosed quote");
    char *to = arena_alloc(r->arena, (size_t)(close - r->at) + 1, 1);
    *text = to;
    while (r->at < close) {
        const char *start = r->at++;
        int c = (unsigned char)*start;
        if (c < 0x20 || c >= 0x7f) return fail_at(r, start, "write byte 0x%02x as \\x%02x", c, c);
        if (c == '\\' && (c = read_escape(r)) <= 0) return fail_at(r, start, "an escape is \\xNN, not \\x00");
        *to++ = (char)c;
    }
    r->at = close + 1;
    return true;
}

/* Reads a list such as [1, -2, 3] of at most `most` integers, each at least `least`; *n is their number. */
static bool read_ints(struct reader *r, int most, int64_t least, int *n, const int64_t **ints) {
    VEC(int64_t) list = {0};
    int64_t value;
    if (!expect(r, "[")) return false;
    for (bool more = !take(r, "]"); more; more = !take(r, "]")) {
        if (list.n == most) return fail_at(r, r->at, "more than %d numbers", most);
        if (list.n && !expect(r, ",")) return false;
        if (!read_int(r, least, INT64_MAX, "the number", &value)) return false;
        VEC_PUSH(r->arena, &list, value);
    }
    *n = list.n;
    *ints = list.at;
    return true;
}

/* Types, layouts, definitions and uses ------------------------------------------------------------------------- */

static bool read_dtype(struct reader *r, enum rt_dtype *dtype) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a type", word)) return false;
    *dtype = rt_dtype_by_name(word);
    return *dtype != RT_DTYPE_NONE || fail_at(r, start, "unknown type '%s'", word);
}

static bool read_type(struct reader *r, struct tensor *tensor) {
    const int64_t *dims;
    const char *start = place(r);
    if (!read_dtype(r, &tensor->dtype) || !read_ints(r, RT_MAX_NDIM, 0, &tensor->ndim, &dims)) return false;
    for (int d = 0; d < tensor->ndim; d++) tensor->dims[d] = dims[d];
    return tensor_shape_fits(tensor->ndim, tensor->dims) || fail_at(r, start, "the tensor is too large");
}

static bool read_axis(struct reader *r, int *axis) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a mesh axis", word)) return false;
    *axis = mesh_axis_by_name(&r->graph->mesh, word);
    return *axis >= 0 ? expect(r, ":") : fail_at(r, start, "the mesh has no axis '%s'", word);
}

static bool read_reduce(struct reader *r, struct placement *placement) {
    *placement = (struct placement){.kind = PLACED_PARTIAL};
    for (int i = 0; i < 3; i++)
        if (take(r, reduce_names[i])) return placement->reduce = (enum rt_reduce)i, true;
    return fail_at(r, r->at, "sum, max or min expected");
}

/* Reads blocks and grain, with `separator` before each. */
static bool read_cut(struct reader *r, const char *separator, int64_t *blocks, int64_t *grain) {
    return expect(r, separator) && read_int(r, 1, INT64_MAX, "blocks", blocks) && expect(r, separator) &&
           read_int(r, 1, INT64_MAX, "grain", grain);
}

static bool read_part(struct reader *r, struct placement *placement) {
    int64_t dim;
    *placement = (struct placement){.kind = PLACED_PART};
    if (!read_int(r, 0, RT_MAX_NDIM - 1, "the dimension", &dim)) return false;
    placement->dim = (int)dim;
    return read_cut(r, ",", &placement->blocks, &placement->grain);
}

/* Reads a window. Its numbers are bounded, so that the indices that positions read do not overflow. */
static bool read_window(struct reader *r, struct placement *placement) {
    const int64_t most = (int64_t)1 << 30;
    struct reach *reach = &placement->reach;
    int64_t dim;
    *placement = (struct placement){.kind = PLACED_WINDOW, .blocks = 1};
    bool done = read_int(r, 0, RT_MAX_NDIM - 1, "the dimension", &dim) && expect(r, ",") &&
                read_int(r, 1, most, "grain", &placement->grain) && expect(r, ",") &&
                read_int(r, 1, most, "positions", &reach->positions) && expect(r, ",") &&
                read_int(r, 1, most, "stride", &reach->stride) && expect(r, ",") &&
                read_int(r, -most, most, "before", &reach->before) && expect(r, ",") &&
                read_int(r, 1, (int64_t)1 << 40, "span", &reach->span);
    if (done) placement->dim = (int)dim;
    return done;
}

static bool read_placement(struct reader *r, struct placement *placement) {
    if (take(r, "own")) return *placement = (struct placement){.kind = PLACED_OWN}, true;
    if (take(r, "flat")) return *placement = (struct placement){.kind = PLACED_FLAT}, true;
    if (take(r, "partial(")) return read_reduce(r, placement) && expect(r, ")");
    if (take(r, "window(")) return read_window(r, placement) && expect(r, ")");
    return expect(r, "part(") && read_part(r, placement) && expect(r, ")");
}

/* Reads a layout after its "{": {axis:part(dim,blocks,grain), axis:partial(sum), axis:own, axis:flat,
 * axis:window(dim,grain,positions,stride,before,span)} */
static bool read_layout(struct reader *r, struct layout *layout) {
    int axis;
    do {
        if (!read_axis(r, &axis)) return false;
        struct placement *placement = &layout->axis[axis];
        if (placement->kind != PLACED_WHOLE) return fail_at(r, r->at, "this axis is given twice");
        if (!read_placement(r, placement)) return false;
        if ((placement->kind == PLACED_OWN) > (axis >= r->graph->mesh.naxes))
            return fail_at(r, r->at, "only along a replica axis a value is a rank's own");
    } while (take(r, ","));
    return expect(r, "}");
}

/* True if blocks * grain divides the extent, as rt_cut requires. */
static bool cut_fits(int64_t extent, int64_t blocks, int64_t grain) {
    int64_t product;
    return !__builtin_mul_overflow(blocks, grain, &product) && extent % product == 0;
}

static bool check_layout(struct reader *r, const struct definition *definition, const struct tensor *tensor) {
    for (int a = 0; a < r->graph->mesh.naxes; a++) {
        const struct placement *placement = &tensor->layout.axis[a];
        if (!placement_divides(placement)) continue;
        if (placement->dim >= tensor->ndim) return fail_at(r, definition->at, "it has %d dimensions", tensor->ndim);
        bool part = placement->kind == PLACED_PART;
        if (!cut_fits(part ? tensor->dims[placement->dim] : placement->reach.positions, placement->blocks,
                      placement->grain))
            return fail_at(r, definition->at, "blocks times grain does not divide %s",
                           part ? arena_printf(r->arena, "dimension %d", placement->dim) : "the positions");
    }
    return true;
}

static bool read_number_of_tensor(struct reader *r, int *number) {
    int64_t value;
    if (!expect(r, "%") || !read_int(r, 0, INT_MAX - 1, "the number of a tensor", &value)) return false;
    *number = (int)value;
    return true;
}

static bool is_defined(const struct reader *r, int number) {
    for (int i = 0; i < r->ndefined; i++)
        if (!r->defined[i].left_out && r->defined[i].number == number) return true;
    return map_get(&r->ids, (const char *)&number, sizeof number) >= 0;
}

/* Reads %7 "name" and adds it to r->defined. */
static struct definition *read_definition(struct reader *r) {
    struct definition new = {.at = place(r), .tensor = -1};
    if (r->ndefined == MAX_OUTPUTS) return fail_at(r, r->at, "too many tensors in one statement"), NULL;
    if (!read_number_of_tensor(r, &new.number)) return NULL;
    if (is_defined(r, new.number)) return fail_at(r, new.at, "%%%d is already defined", new.number), NULL;
    r->defined[r->ndefined++] = new;
    struct definition *definition = &r->defined[r->ndefined - 1];
    if (!read_string(r, &definition->given.name)) return NULL;
    if (!*definition->given.name) return fail_at(r, new.at, "a tensor needs a name"), NULL;
    return definition;
}

/* Reads %7, a tensor that was defined before; *tensor is its id. */
static bool read_use(struct reader *r, int *tensor) {
    int number;
    const char *start = place(r);
    if (!read_number_of_tensor(r, &number)) return false;
    int found = map_get(&r->ids, (const char *)&number, sizeof number);
    *tensor = found - 1;
    return found < 0 ? fail_at(r, start, "%%%d is not defined here", number) : found != IN_ERROR;
}

/* Defines the statement's tensors. See Note [Statements in error]. */
static void end_statement(struct reader *r, bool good) {
    for (int i = 0; i < r->ndefined; i++) {
        const struct definition *d = &r->defined[i];
        if (!d->left_out) map_put(&r->ids, (const char *)&d->number, sizeof d->number, good ? d->tensor + 1 : IN_ERROR);
    }
    r->ndefined = 0;
}

/* Statements --------------------------------------------------------------------------------------------------- */

/* units=* or groups=*: the size of a replica axis is known when a job starts. */
static bool read_replica_axis(struct reader *r, const char *start, const char *name) {
    struct mesh *mesh = &r->graph->mesh;
    mesh_add_replicas(mesh, mesh->nreplicas + 1);
    if (mesh->nreplicas <= RT_MAX_REPLICAS && strcmp(mesh->axis[mesh->naxes + mesh->nreplicas - 1].name, name) == 0)
        return true;
    return fail_at(r, start, "the replica axes are units and groups, in this order");
}

static bool read_mesh_axis(struct reader *r) {
    struct mesh *mesh = &r->graph->mesh;
    char word[MAX_WORD];
    int64_t size;
    const char *start = place(r);
    if (!read_name(r, "a mesh axis", word) || !expect(r, "=")) return false;
    if (mesh_axis_by_name(mesh, word) >= 0) return fail_at(r, start, "this axis is given twice");
    if (take(r, "*")) return read_replica_axis(r, start, word);
    if (mesh->nreplicas) return fail_at(r, start, "replica axes come last");
    if (mesh->naxes == RT_MAX_AXES) return fail_at(r, start, "a mesh has at most %d axes", RT_MAX_AXES);
    if (!read_int(r, 1, MAX_WAYS / mesh_size(mesh), "its size", &size)) return false;
    mesh->axis[mesh->naxes].name = arena_strdup(r->arena, word);
    mesh->axis[mesh->naxes++].size = (int)size;
    return true;
}

static bool read_mesh(struct reader *r) {
    if (mesh_layout_axes(&r->graph->mesh) || r->graph->tensors.n)
        return fail_at(r, place(r), "the mesh must come first, and only once");
    do {
        if (!read_mesh_axis(r)) return false;
    } while (!at_line_end(r));
    return true;
}

/* Reads the name of a file in the directory of the text; other directories are not permitted. */
static bool read_file(struct reader *r) {
    const char *name, *start = place(r);
    if (!read_string(r, &name)) return false;
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fail_at(r, start, "the name of a file in the same directory expected");
    VEC_PUSH(r->arena, &r->graph->files, name);
    return true;
}

/* Reads the definition of an input, weight or const statement, which has a type, and adds the tensor. */
static struct tensor *add_source(struct reader *r, enum tensor_kind kind) {
    struct definition *d = read_definition(r);
    if (!d || !read_type(r, &d->given)) return NULL;
    d->tensor = graph_add_tensor(r->graph, kind, d->given.name, d->given.dtype, d->given.ndim, d->given.dims);
    struct tensor *tensor = &r->graph->tensors.at[d->tensor];
    tensor->stored = (struct stored){.file = -1, .dtype = tensor->dtype};
    return tensor;
}

static bool read_source_layout(struct reader *r, struct tensor *tensor) {
    if (take(r, "{") && !read_layout(r, &tensor->layout)) return false;
    return check_layout(r, &r->defined[0], tensor);
}

static bool read_input(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_INPUT);
    if (!tensor) return false;
    const char *start = place(r);
    tensor->gradient = take(r, "gradient");
    if (!tensor->gradient && graph_gradient_inputs(r->graph))
        return fail_at(r, start, "gradients come after all other inputs");
    VEC_PUSH(r->arena, &r->graph->inputs, r->defined[0].tensor);
    return read_source_layout(r, tensor);
}

static bool read_control(struct reader *r) {
    const char *start = place(r);
    struct tensor *tensor = add_source(r, TENSOR_CONTROL);
    if (!tensor) return false;
    if (!r->graph->train || r->graph->controls.n == RT_CONTROLS || tensor->dtype != RT_F64 || tensor->ndim)
        return fail_at(r, start, "a control is f64[], and a graph that trains has at most %d", RT_CONTROLS);
    VEC_PUSH(r->arena, &r->graph->controls, r->defined[0].tensor);
    return read_source_layout(r, tensor);
}

static bool read_state(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_STATE);
    if (!tensor) return false;
    tensor->gradient = take(r, "gradient");
    return read_source_layout(r, tensor);
}

static bool read_stored(struct reader *r, struct stored *stored) {
    int64_t file, offset;
    if (!read_int(r, 0, INT_MAX, "the file", &file) || !expect(r, "+")) return false;
    if (!read_int(r, 0, INT64_MAX, "the offset", &offset) || !expect(r, "as")) return false;
    stored->file = (int)file;
    stored->offset = (uint64_t)offset;
    return read_dtype(r, &stored->dtype);
}

static bool read_role(struct reader *r, struct tensor *tensor) {
    for (int mark = MARK_NONE + 1; mark < MARKS && !tensor->mark; mark++)
        if (take(r, mark_names[mark])) tensor->mark = (enum mark)mark;
    if ((tensor->mark == MARK_FOLDED || tensor->mark == MARK_MOVED) && !read_string(r, &tensor->sources)) return false;
    tensor->constant = take(r, "constant");
    return true;
}

static bool read_weight(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_WEIGHT);
    if (!tensor || (take(r, "@") && !read_stored(r, &tensor->stored)) || !read_role(r, tensor)) return false;
    return read_source_layout(r, tensor);
}

static bool read_number(struct reader *r, char word[MAX_WORD]) {
    return read_word(r, "+-.:", "a number", word);
}

/* Reads the elements of a constant after "[": counts them in *n, and stores them at `to` unless it is NULL. */
static bool read_values(struct reader *r, enum rt_dtype dtype, unsigned char *to, int64_t most, int64_t *n) {
    size_t size = rt_dtype_bytes(dtype);
    *n = 0;
    for (bool more = !take(r, "]"); more; more = !take(r, "]")) {
        char word[MAX_WORD];
        unsigned char bits[8];
        int64_t run = 1;
        if (*n && !expect(r, ",")) return false;
        skip_blanks(r);
        const char *start = r->at;
        if (!read_number(r, word) || (take(r, "*") && !read_int(r, 1, INT64_MAX, "the run length", &run))) return false;
        if (run > most - *n) return fail_at(r, start, "more than %lld values", (long long)most);
        if (to && !number_parse(word, dtype, bits))
            return fail_at(r, start, "'%s' is not a valid %s", word, rt_dtypes[dtype].name);
        for (int64_t i = 0; to && i < run; i++) memcpy(to + (size_t)(*n + i) * size, bits, size);
        *n += run;
    }
    return true;
}

static bool read_const(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_CONST);
    if (!tensor || !read_source_layout(r, tensor) || !expect(r, "=") || !expect(r, "[")) return false;
    const char *start = r->at;
    int64_t elements = tensor_elements(tensor), n;
    if (tensor_bytes(tensor) > MAX_CONST_BYTES - r->const_bytes)
        return fail_at(r, start, "the constants are too large");
    r->const_bytes += tensor_bytes(tensor);
    if (!read_values(r, tensor->dtype, NULL, elements, &n)) return false;
    if (n < elements) return fail_at(r, start, "%lld values for %s", (long long)n, tensor_type(r->arena, tensor));
    unsigned char *data = arena_alloc(r->arena, (size_t)tensor_bytes(tensor) + 1, 1);
    tensor->data = data;
    r->at = start;
    return read_values(r, tensor->dtype, data, elements, &n);
}

static bool read_output(struct reader *r) {
    int tensor;
    const char *name, *start;
    if (!read_use(r, &tensor) || !read_string(r, &name)) return false;
    VEC_PUSH(r->arena, &r->graph->outputs, tensor);
    VEC_PUSH(r->arena, &r->graph->output_names, name);
    start = place(r);
    bool metric = take(r, "metric");
    if (!metric && r->graph->nmetrics) return fail_at(r, start, "metrics come after all other outputs");
    r->graph->nmetrics += metric;
    return true;
}

static bool same_type(const struct tensor *a, const struct tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static bool read_update(struct reader *r) {
    struct update update;
    const char *start = place(r);
    if (!read_use(r, &update.weight) || !expect(r, "<-") || !read_use(r, &update.value)) return false;
    const struct tensor *tensors = r->graph->tensors.at;
    enum tensor_kind kind = tensors[update.weight].kind;
    if (kind != TENSOR_WEIGHT && kind != TENSOR_STATE) return fail_at(r, start, "only weights and states are updated");
    if (!same_type(&tensors[update.weight], &tensors[update.value])) return fail_at(r, start, "the types differ");
    VEC_PUSH(r->arena, &r->graph->updates, update);
    return true;
}

static bool read_parameter(struct reader *r) {
    struct parameter parameter;
    const char *start = place(r);
    if (!read_use(r, &parameter.weight) || !read_use(r, &parameter.gradient)) return false;
    const struct tensor *tensors = r->graph->tensors.at;
    if (tensors[parameter.weight].kind != TENSOR_WEIGHT) return fail_at(r, start, "only weights have gradients");
    if (!same_type(&tensors[parameter.weight], &tensors[parameter.gradient]))
        return fail_at(r, start, "the types differ");
    VEC_PUSH(r->arena, &r->graph->parameters, parameter);
    return true;
}

/* Segments and schedules --------------------------------------------------------------------------------------- */

static bool read_phase(struct reader *r, enum phase *phase) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a phase", word)) return false;
    for (int p = 0; p < PHASES; p++)
        if (strcmp(word, phase_names[p]) == 0) return *phase = (enum phase)p, true;
    return fail_at(r, start, "unknown phase '%s'", word);
}

static bool read_count(struct reader *r, int least, const char *what, int *count) {
    int64_t value;
    if (!read_int(r, least, MAX_ROWS, what, &value)) return false;
    *count = (int)value;
    return true;
}

/* 2..5 */
static bool read_range(struct reader *r, const char *what, int *first, int *end) {
    return read_count(r, 0, what, first) && expect(r, "..") && read_count(r, *first, what, end);
}

/* The phase and the chunk of a segment. */
static bool read_segment_name(struct reader *r, enum phase *phase, int *chunk) {
    return read_phase(r, phase) && read_count(r, 0, "the chunk", chunk);
}

static bool read_tensors(struct reader *r, struct segment *segment, bool in) {
    int tensor;
    if (!expect(r, in ? "in=" : "out=") || !expect(r, "[")) return false;
    for (bool more = !take(r, "]"), first = true; more; more = !take(r, "]"), first = false) {
        const char *start = place(r);
        if ((!first && !expect(r, ",")) || !read_use(r, &tensor)) return false;
        if (r->graph->tensors.at[tensor].kind != TENSOR_VALUE) return fail_at(r, start, "no node computes this tensor");
        if (in)
            VEC_PUSH(r->arena, &segment->in, tensor);
        else
            VEC_PUSH(r->arena, &segment->out, tensor);
    }
    return true;
}

static bool read_segment(struct reader *r) {
    struct segment segment = {0};
    if (!read_segment_name(r, &segment.phase, &segment.chunk) || !expect(r, "order=")) return false;
    if (!read_range(r, "the position", &segment.first, &segment.end)) return false;
    if (!read_tensors(r, &segment, true) || !read_tensors(r, &segment, false)) return false;
    VEC_PUSH(r->arena, &r->graph->segments, segment);
    return true;
}

static bool read_schedule(struct reader *r) {
    struct rt_schedule schedule = {0};
    int coordinate;
    const char *start = place(r);
    if (!read_count(r, 0, "the coordinate", &coordinate)) return false;
    if (coordinate != r->graph->schedules.n)
        return fail_at(r, start, "schedule %d must come next", r->graph->schedules.n);
    if (!expect(r, "micro_batches=") || !read_count(r, 1, "micro_batches", &schedule.micro_batches)) return false;
    if (!expect(r, "slots=") || !read_count(r, 1, "slots", &schedule.slots)) return false;
    if (take(r, "repeat=") && !read_range(r, "the row", &schedule.repeat_first, &schedule.repeat_end)) return false;
    r->rows.at = NULL;
    r->rows.n = r->rows.capacity = 0;
    VEC_PUSH(r->arena, &r->graph->schedules, schedule);
    return true;
}

/* A row of the last schedule. */
static bool read_run(struct reader *r) {
    struct rt_step_op op = {0};
    struct rt_schedule *schedule = r->graph->schedules.at + r->graph->schedules.n - 1;
    enum phase phase = PHASE_FORWARD;
    int chunk = 0;
    const char *start = place(r);
    if (r->graph->schedules.n == 0) return fail_at(r, start, "a row belongs to the schedule before it");
    if (!read_segment_name(r, &phase, &chunk)) return false;
    op.segment = schedule_find(r->graph, chunk, phase);
    if (op.segment < 0) return fail_at(r, start, "there is no such segment");
    if (phase <= PHASE_BACKWARD && (!expect(r, "micro=") || !read_count(r, 0, "micro", &op.micro) ||
                                    !expect(r, "slot=") || !read_count(r, 0, "slot", &op.slot)))
        return false;
    VEC_PUSH(r->arena, &r->rows, op);
    schedule->ops = r->rows.at;
    schedule->nops = r->rows.n;
    return true;
}

/* Nodes -------------------------------------------------------------------------------------------------------- */

/* A node as read. Its splits are resolved when its factors are known. */
struct call {
    const struct op *op;
    const char *at, *name, *splits;
    VEC(int) inputs;
    struct attr attrs[MAX_ATTRS];
    int nattrs;
    int64_t stage;
    enum phase phase;
};

static bool read_joined(struct reader *r, enum joined *joined) {
    for (int i = JOINED_SUM; i <= JOINED_MAX; i++)
        if (take(r, joined_names[i])) return *joined = (enum joined)i, true;
    return fail_at(r, r->at, "sum or max expected");
}

static bool read_results(struct reader *r) {
    do {
        if (take(r, "_")) {
            if (r->ndefined == MAX_OUTPUTS) return fail_at(r, r->at, "too many tensors in one statement");
            r->defined[r->ndefined++] = (struct definition){.tensor = -1, .left_out = true};
            continue;
        }
        struct definition *d = read_definition(r);
        if (!d) return false;
        skip_blanks(r);
        d->typed = peek(r) > 0 && isalpha(peek(r));
        if (d->typed && !read_type(r, &d->given)) return false;
        if (take(r, "joined=") && !read_joined(r, &d->given.joined)) return false;
        if (take(r, "{") && !read_layout(r, &d->given.layout)) return false;
    } while (take(r, ","));
    return expect(r, "=");
}

static bool read_arguments(struct reader *r, struct call *call) {
    int tensor;
    if (!expect(r, "(")) return false;
    for (bool more = !take(r, ")"); more; more = !take(r, ")")) {
        if (call->inputs.n && !expect(r, ",")) return false;
        if (take(r, "_"))
            tensor = -1;
        else if (!read_use(r, &tensor))
            return false;
        VEC_PUSH(r->arena, &call->inputs, tensor);
    }
    return true;
}

/* Reads 7 or 0.5. A float has a point or an exponent, or is not finite. */
static bool read_scalar(struct reader *r, struct attr *attr) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_number(r, word)) return false;
    attr->kind = strpbrk(word, ".enE") ? ATTR_FLOAT : ATTR_INT;
    bool good =
        attr->kind == ATTR_INT ? number_parse(word, RT_I64, &attr->value) : number_parse(word, RT_F64, &attr->number);
    return good || fail_at(r, start, "'%s' is not a number", word);
}

static bool read_value(struct reader *r, struct attr *attr) {
    skip_blanks(r);
    if (peek(r) == '"') return attr->kind = ATTR_TEXT, read_string(r, &attr->text);
    if (peek(r) == '[') return attr->kind = ATTR_INTS, read_ints(r, INT_MAX, INT64_MIN, &attr->n, &attr->ints);
    return read_scalar(r, attr);
}

/* Skips the splits, which read_splits reads later. */
static bool skip_splits(struct reader *r, struct call *call, const char *start) {
    if (call->splits) return fail_at(r, start, "the node already has a split");
    call->splits = r->at;
    while (peek(r) > 0 && peek(r) != '\n' && peek(r) != ')') r->at++;
    return expect(r, ")");
}

/* Reads key=value, split(...), node="name", stage=2 or phase=backward. */
static bool read_property(struct reader *r, struct call *call) {
    char key[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "an attribute", key)) return false;
    if (strcmp(key, "split") == 0 && take(r, "(")) return skip_splits(r, call, start);
    if (!expect(r, "=")) return false;
    if (strcmp(key, "node") == 0) return read_string(r, &call->name);
    if (strcmp(key, "phase") == 0) return read_phase(r, &call->phase);
    if (strcmp(key, "stage") == 0) return read_int(r, STAGE_ALL, MAX_STAGE, "the stage", &call->stage);
    for (int i = 0; i < call->nattrs; i++)
        if (strcmp(call->attrs[i].key, key) == 0) return fail_at(r, start, "attribute '%s' is given twice", key);
    if (call->nattrs == MAX_ATTRS) return fail_at(r, start, "more than %d attributes", MAX_ATTRS);
    struct attr *attr = &call->attrs[call->nattrs++];
    attr->key = arena_strdup(r->arena, key);
    return read_value(r, attr);
}

static bool read_split(struct reader *r, const struct dims *dims, struct node *node) {
    int axis;
    char word[MAX_WORD];
    if (!read_axis(r, &axis)) return false;
    struct node_split *split = &node->split[axis];
    const char *start = r->at;
    if (split->factor != SPLIT_NONE) return fail_at(r, start, "this axis is given twice");
    if (take(r, "partial")) return split->factor = SPLIT_PARTIAL, true;
    if (take(r, "flat")) return split->factor = SPLIT_FLAT, true;
    if (!read_word(r, "_*", "a factor", word)) return false;
    int factor = dims_find(dims, word);
    if (factor < 0) return fail_at(r, start, "the factors are %s", dims_print(r->arena, dims));
    if (!read_cut(r, "/", &split->blocks, &split->grain)) return false;
    if (!cut_fits(dims->factor[factor].extent, split->blocks, split->grain))
        return fail_at(r, start, "blocks times grain does not divide '%s', which is %lld", word,
                       (long long)dims->factor[factor].extent);
    split->factor = factor;
    return true;
}

static bool read_splits(struct reader *r, const char *at, struct node *node) {
    struct dims dims;
    const char *why;
    if (dims_bind(r->arena, r->graph, node, &dims, &why) < 0) return fail_at(r, at, "%s", why);
    r->at = at;
    do {
        if (!read_split(r, &dims, node)) return false;
    } while (take(r, ","));
    return expect(r, ")");
}

/* Infers the types of the results and compares them with the types in the text. */
static bool infer(struct reader *r, int node) {
    if (op_infer(r->graph, node, r->diags) < 0) {
        diag_note(r->diags, "in %s:%lld", r->file, r->line);
        return false;
    }
    for (int i = 0; i < r->ndefined; i++) {
        struct definition *d = &r->defined[i];
        if (d->left_out) continue;
        struct tensor *tensor = &r->graph->tensors.at[d->tensor];
        if (d->typed && !same_type(tensor, &d->given))
            return fail_at(r, d->at, "declared as %s, but it is %s", tensor_type(r->arena, &d->given),
                           tensor_type(r->arena, tensor));
        tensor->layout = d->given.layout;
        tensor->joined = d->given.joined;
        if (!check_layout(r, d, tensor)) return false;
    }
    return true;
}

static bool add_node(struct reader *r, const struct call *call) {
    int outputs[MAX_OUTPUTS];
    for (int i = 0; i < r->ndefined; i++) {
        struct definition *d = &r->defined[i];
        if (!d->left_out) d->tensor = graph_add_tensor(r->graph, TENSOR_VALUE, d->given.name, RT_F32, 0, NULL);
        outputs[i] = d->tensor;
    }
    int node = graph_add_node(r->graph, call->op, call->name, call->inputs.n, call->inputs.at, r->ndefined, outputs,
                              call->nattrs, call->attrs);
    r->graph->nodes.at[node].stage = (int)call->stage;
    r->graph->nodes.at[node].phase = call->phase;
    const char *end = r->at;
    if (!infer(r, node)) return false;
    if (call->splits && !read_splits(r, call->splits, &r->graph->nodes.at[node])) return false;
    r->at = end;
    return true;
}

static bool read_node(struct reader *r) {
    struct call call = {.name = ""};
    char word[MAX_WORD];
    if (!read_results(r)) return false;
    call.at = place(r);
    if (!read_name(r, "an operator", word)) return false;
    if (!(call.op = op_find(word))) return fail_at(r, call.at, "unknown core operator '%s'", word);
    if (!read_arguments(r, &call)) return false;
    while (!at_line_end(r))
        if (!read_property(r, &call)) return false;
    return add_node(r, &call);
}

/* The text ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *keyword;
    bool (*read)(struct reader *r);
} statements[] = {
    {"mesh", read_mesh},       {"file", read_file},           {"input", read_input},     {"weight", read_weight},
    {"const", read_const},     {"output", read_output},       {"update", read_update},   {"state", read_state},
    {"control", read_control}, {"parameter", read_parameter}, {"segment", read_segment}, {"schedule", read_schedule},
    {"run", read_run}};

static bool read_statement(struct reader *r) {
    char word[MAX_WORD];
    const char *start = r->at;
    if (peek(r) == '%' || peek(r) == '_') return read_node(r) && expect_line_end(r);
    if (!read_name(r, "a statement", word)) return false;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (strcmp(statements[i].keyword, word) == 0) return statements[i].read(r) && expect_line_end(r);
    return fail_at(r, start, "unknown statement '%s'", word);
}

static bool read_level(struct reader *r) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!expect(r, "level=") || !read_name(r, "a level", word)) return false;
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(level_names[i], word) == 0) return r->graph->level = (enum level)i, true;
    return fail_at(r, start, "unknown level '%s'", word);
}

/* Reads the first two statements. */
static bool read_head(struct reader *r) {
    const char *name;
    next_statement(r);
    if (!expect(r, "rankc-ir") || !expect(r, "1") || !expect_line_end(r)) return false;
    next_statement(r);
    if (!expect(r, "graph") || !read_string(r, &name)) return false;
    graph_init(r->graph, r->arena, name);
    if (!read_level(r)) return false;
    r->graph->train = take(r, "train");
    return expect_line_end(r);
}

static void read_body(struct reader *r, int errors_before) {
    for (next_line(r); next_statement(r); next_line(r)) {
        end_statement(r, read_statement(r));
        if (r->diags->errors - errors_before < MAX_ERRORS) continue;
        diag_note(r->diags, "there may be more errors");
        return;
    }
}

int text_parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
               struct graph **out) {
    struct reader *r = ARENA_NEW(arena, struct reader);
    int before = diags->errors;
    *r = (struct reader){
        .arena = arena, .diags = diags, .at = bytes, .end = bytes + length, .line_start = bytes, .line = 1};
    r->file = str_escape(arena, file, strlen(file), 0);
    r->graph = ARENA_NEW(arena, struct graph);
    map_init(&r->ids, arena);
    if (length >> MAX_TEXT_SHIFT)
        fail_at(r, bytes, "the text is too long");
    else if (read_head(r))
        read_body(r, before);
    if (diags->errors > before) return -1;
    *out = r->graph;
    return 0;
}
