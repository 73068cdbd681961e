#include <limits.h>
#include <string.h>

#include "ir/text/reader.h"
#include "ir/number.h"
#include "ir/provenance.h"
#include "ir/schedule.h"

enum {
    MAX_WAYS = 1 << 20, /* size of a mesh */
    MAX_CONST_BYTES =
        1 << 30 /* of all constants together: repetitions such as 8*2 make large constants of short texts */
};

/* units=* or groups=*: the size of a replica axis is known when a job starts. */
static bool read_replica_axis(struct reader *r, const char *start, const char *name) {
    struct mesh *mesh = &r->graph->mesh;
    mesh_add_replicas(mesh, mesh->nreplicas + 1);
    if (mesh->nreplicas <= RT_MAX_REPLICAS && strcmp(mesh->axis[mesh->naxes + mesh->nreplicas - 1].name, name) == 0)
        return true;
    return fail_at(r, start, "the replica axes are units and groups, in this order");
}

/* The pipeline stages that have the axis, behind '@': 0, or 0-1. */
static bool read_stages(struct reader *r, struct rt_mesh_axis *axis) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_word(r, "-", "stages", word)) return false;
    return rt_mesh_parse_stages(arena_printf(r->arena, "@%s", word), &axis->first, &axis->end) ||
           fail_at(r, start, "stages are FIRST or FIRST-LAST");
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
    if (!read_int(r, 1, MAX_WAYS / mesh_product(mesh), "its size", &size)) return false;
    struct rt_mesh_axis axis = {.size = (int)size};
    if (take(r, "@") && !read_stages(r, &axis)) return false;
    mesh_add_axis(mesh, arena_strdup(r->arena, word), &axis);
    return true;
}

bool read_mesh(struct reader *r) {
    if (mesh_layout_axes(&r->graph->mesh) || r->graph->tensors.n)
        return fail_at(r, place(r), "the mesh must come first, and only once");
    do {
        if (!read_mesh_axis(r)) return false;
    } while (!at_line_end(r));
    const char *why = mesh_refused(&r->graph->mesh);
    return !why || fail_at(r, place(r), "%s", why);
}

bool read_chunks(struct reader *r) {
    struct graph *graph = r->graph;
    const int coordinates = schedule_coordinates(graph);
    const char *start = place(r);
    VEC(int) homes = {0};
    int64_t home;
    if (graph->chunks.n || graph->tensors.n) return fail_at(r, start, "the chunks come after the mesh, and only once");
    do {
        if (!read_int(r, 0, coordinates - 1, "the coordinate of a chunk", &home)) return false;
        VEC_PUSH(r->arena, &homes, (int)home);
    } while (!at_line_end(r));
    graph->chunks = (struct chunks){homes.n, homes.at};
    return chunks_are_whole(&graph->chunks, coordinates) ||
           fail_at(r, start, "every coordinate of the pipeline axis has from 1 to %d chunks", RT_MAX_CHUNKS);
}

bool read_file(struct reader *r) {
    const char *name, *start = place(r);
    if (!read_string(r, &name)) return false;
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fail_at(r, start, "the name of a file in the same directory expected");
    VEC_PUSH(r->arena, &r->graph->files, name);
    return true;
}

bool read_model(struct reader *r) {
    const char *exporter;
    int64_t opset;
    if (!read_string(r, &exporter) || !expect(r, "opset=") || !read_int(r, 0, INT_MAX, "the opset", &opset))
        return false;
    provenance_exporter(r->graph, exporter, "", (int)opset);
    return true;
}

bool read_from(struct reader *r) {
    struct provenance from = {0};
    if (!read_string(r, &from.node)) return false;
    if (take(r, "scope=") && !read_string(r, &from.scope)) return false;
    if (take(r, "word=") && !read_string(r, &from.word)) return false;
    if (take(r, "line=") && !read_string(r, &from.line)) return false;
    if (take(r, "code=") && !read_string(r, &from.code)) return false;
    provenance_add(r->graph, &from);
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

bool read_input(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_INPUT);
    if (!tensor) return false;
    const char *start = place(r);
    tensor->gradient = take(r, "gradient");
    tensor->shared = take(r, "shared") || !tensor->ndim;
    if (!tensor->gradient && graph_gradient_inputs(r->graph))
        return fail_at(r, start, "gradients come after all other inputs");
    VEC_PUSH(r->arena, &r->graph->inputs, r->defined[0].tensor);
    return read_source_layout(r, tensor);
}

bool read_control(struct reader *r) {
    const char *start = place(r);
    struct tensor *tensor = add_source(r, TENSOR_CONTROL);
    if (!tensor) return false;
    if (r->graph->controls.n == RT_CONTROLS || tensor->dtype != RT_F64 || tensor->ndim)
        return fail_at(r, start, "a control is f64[], and a graph has at most %d", RT_CONTROLS);
    VEC_PUSH(r->arena, &r->graph->controls, r->defined[0].tensor);
    return read_source_layout(r, tensor);
}

bool read_state(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_STATE);
    if (!tensor) return false;
    tensor->gradient = take(r, "gradient");
    tensor->host = take(r, "host");
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

static bool read_coding(struct reader *r, struct rt_coding *coding) {
    int64_t bits = 0;
    for (int makes = RT_CODES; makes <= RT_ROUNDED && !coding->makes; makes++)
        if (take(r, coding_names[makes])) coding->makes = (enum rt_makes)makes;
    if (coding->makes == RT_AS_STORED || coding->makes == RT_ROUNDED) return true;
    if (!expect(r, "bits=") || !read_int(r, 4, 8, "bits of a code", &bits) || !expect(r, "group=") ||
        !read_int(r, 2, INT_MAX, "a group", &coding->group))
        return false;
    coding->bits = bits < 8 ? 4 : 8;
    coding->turned = take(r, "turned");
    return true;
}

static bool read_role(struct reader *r, struct tensor *tensor) {
    for (int mark = MARK_NONE + 1; mark < MARKS && !tensor->mark; mark++)
        if (take(r, mark_names[mark])) tensor->mark = (enum mark)mark;
    if ((tensor->mark == MARK_FOLDED || tensor->mark == MARK_MOVED) && !read_string(r, &tensor->sources)) return false;
    tensor->constant = take(r, "constant");
    return true;
}

bool read_weight(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_WEIGHT);
    if (!tensor || (take(r, "@") && !read_stored(r, &tensor->stored)) || !read_coding(r, &tensor->stored.coding) ||
        !read_role(r, tensor))
        return false;
    tensor->host = take(r, "host");
    return read_source_layout(r, tensor);
}

bool read_number(struct reader *r, char word[MAX_WORD]) {
    return read_word(r, "+-.:", "a number", word);
}

/* Reads an element of a constant, which may depend on sizes, and stores its bits unless `bits` is NULL. */
static bool read_element(struct reader *r, enum rt_dtype dtype, unsigned char bits[8]) {
    char word[MAX_WORD];
    int64_t value;
    const char *start = place(r);
    if (starts_extent(r) && !rt_dtype_is_float(dtype)) {
        if (!read_factor(r, &value)) return false;
        if (bits) rt_convert(bits, dtype, &value, RT_I64, 1);
        return true;
    }
    if (!read_number(r, word)) return false;
    return !bits || number_parse(word, dtype, bits) ||
           fail_at(r, start, "'%s' is not a valid %s", word, rt_dtypes[dtype].name);
}

/* Reads the elements of a constant after "[": counts them in *n, and stores them at `to` unless it is NULL. */
static bool read_values(struct reader *r, enum rt_dtype dtype, unsigned char *to, int64_t most, int64_t *n) {
    size_t size = rt_dtype_bytes(dtype);
    *n = 0;
    for (bool more = !take(r, "]"); more; more = !take(r, "]")) {
        unsigned char bits[8];
        int64_t run = 1;
        if (*n && !expect(r, ",")) return false;
        skip_blanks(r);
        const char *start = r->at;
        if (!read_element(r, dtype, to ? bits : NULL)) return false;
        if (take(r, "*") && !read_int(r, 1, INT64_MAX, "the run length", &run)) return false;
        if (run > most - *n) return fail_at(r, start, "more than %lld values", (long long)most);
        for (int64_t i = 0; to && i < run; i++) memcpy(to + (size_t)(*n + i) * size, bits, size);
        *n += run;
    }
    return true;
}

bool read_const(struct reader *r) {
    struct tensor *tensor = add_source(r, TENSOR_CONST);
    if (!tensor || !read_source_layout(r, tensor) || !expect(r, "=") || !expect(r, "[")) return false;
    const char *start = r->at;
    int64_t elements = tensor_elements(tensor), n;
    if (tensor_bytes(tensor) > MAX_CONST_BYTES - r->const_bytes)
        return fail_at(r, start, "the constants are too large");
    r->const_bytes += tensor_bytes(tensor);
    if (!read_values(r, tensor->dtype, NULL, elements, &n)) return false;
    if (n < elements) return fail_at(r, start, "%lld value(s) for %s", (long long)n, tensor_type(r->arena, tensor));
    unsigned char *data = arena_alloc(r->arena, (size_t)tensor_bytes(tensor) + 1, 1);
    tensor->data = data;
    r->at = start;
    return read_values(r, tensor->dtype, data, elements, &n);
}

/* Reads "dim=1 count=3" of a counted output (Note [Counted outputs] in ir/ir.h), the last one; verify.c checks it. */
static bool read_counted(struct reader *r) {
    int64_t dim, count;
    if (!take(r, "dim=")) return true;
    if (!read_int(r, 0, RT_MAX_NDIM - 1, "a dimension", &dim) || !expect(r, "count=") ||
        !read_int(r, 0, INT_MAX, "an output", &count))
        return false;
    struct counted_output counted = {r->graph->outputs.n - 1, (int)dim, (int)count};
    VEC_PUSH(r->arena, &r->graph->counted, counted);
    return true;
}

bool read_output(struct reader *r) {
    int tensor;
    const char *name, *start;
    if (!read_use(r, &tensor) || !read_string(r, &name)) return false;
    VEC_PUSH(r->arena, &r->graph->outputs, tensor);
    VEC_PUSH(r->arena, &r->graph->output_names, name);
    if (!read_counted(r)) return false;
    start = place(r);
    bool metric = take(r, "metric");
    if (!metric && r->graph->nmetrics) return fail_at(r, start, "metrics come after all other outputs");
    r->graph->nmetrics += metric;
    return true;
}

/* A state grows by rows of one dimension until pass state has made a buffer of it. */
static bool grows(const struct tensor *state, const struct tensor *value) {
    int differ = 0;
    for (int d = 0; d < state->ndim && state->ndim == value->ndim; d++) differ += state->dims[d] != value->dims[d];
    return state->kind == TENSOR_STATE && state->dtype == value->dtype && differ == 1;
}

/* Reads two tensors of one type with `between` between them. The first is a WEIGHT, or if `states` a STATE. */
static bool read_pair(struct reader *r, const char *between, bool states, int *weight, int *value) {
    const char *start = place(r);
    if (!read_use(r, weight) || !expect(r, between) || !read_use(r, value)) return false;
    const struct tensor *tensors = r->graph->tensors.at;
    const enum tensor_kind kind = tensors[*weight].kind;
    if (kind != TENSOR_WEIGHT && !(states && kind == TENSOR_STATE))
        return fail_at(r, start, states ? "only weights and states are updated" : "only weights have gradients");
    return tensor_same_type(&tensors[*weight], &tensors[*value]) || grows(&tensors[*weight], &tensors[*value]) ||
           fail_at(r, start, "the types differ");
}

bool read_update(struct reader *r) {
    struct update update;
    if (!read_pair(r, "<-", true, &update.weight, &update.value)) return false;
    VEC_PUSH(r->arena, &r->graph->updates, update);
    return true;
}

bool read_parameter(struct reader *r) {
    struct parameter parameter;
    if (!read_pair(r, "", false, &parameter.weight, &parameter.gradient)) return false;
    VEC_PUSH(r->arena, &r->graph->parameters, parameter);
    return true;
}
