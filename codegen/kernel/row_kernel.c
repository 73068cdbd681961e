#include "codegen/kernel/row_kernel.h"

#include "codegen/kernel/row_kernel_of.h"
#include "ir/op.h"

static void make_loops(struct row_kernel *kernel) {
    struct loops *loops = &kernel->loops;
    int ndim[EXPR_INPUTS];
    const int64_t *dims[EXPR_INPUTS];
    for (int k = 0; k < loops->node->ninputs; k++) {
        ndim[k] = loops->graph->tensors.at[loops->node->inputs[k]].ndim;
        dims[k] = loops->class->dims[loops->node->inputs[k]];
    }
    loops->n = rows_shape(loops->node->ninputs, ndim, dims, loops->extent);
    kernel->columns = loops->extent[loops->n - 1];
    kernel->rows = 1;
    for (int d = 0; d < loops->n - 1; d++) kernel->rows *= loops->extent[d];
    for (int k = 0; k < loops->node->ninputs; k++) loops_strides(loops, k, loops->n);
    loops_merge(loops, loops->n - 1);
    loops->width = loops_width(loops);
    loops->open = loops_are_open(loops);
}

bool row_kernel_varies(const struct row_kernel *kernel, int k) {
    return kernel->loops.stride[k][kernel->loops.n - 1] != 0;
}

bool row_kernel_differs(const struct row_kernel *kernel, int k) {
    bool differs = false;
    for (int d = 0; d < kernel->loops.n - 1; d++) differs = differs || kernel->loops.stride[k][d];
    return differs;
}

struct row_kernel row_kernel_new(const struct target *target, struct arena *arena, const struct graph *graph,
                                 const struct rank_class *class, const struct node *node) {
    struct row_kernel kernel = {
        .loops = {.graph = graph, .node = node, .class = class, .target = target, .arena = arena}};
    if (!rows_read(graph, node, &kernel.program)) BUG("%s has no program", node->op->name);
    make_loops(&kernel);
    return kernel;
}

const char *const row_kernel_results[] = {"y", "y1", "y2", "y3", "y4", "y5"};
_Static_assert(sizeof row_kernel_results / sizeof *row_kernel_results == EXPR_VALUES, "a name for each result");

const char *row_kernel_input(const struct row_kernel *kernel, int k) {
    return arena_printf(kernel->loops.arena, "%c", 'a' + k);
}

const char *row_kernel_type(const struct row_kernel *kernel) {
    return rt_dtypes[loops_type(&kernel->loops)].c_type;
}

const char *row_kernel_index(const struct row_kernel *kernel, int k) {
    return loops_index(&kernel->loops, kernel->loops.stride[k]);
}

const char *row_kernel_column(const struct row_kernel *kernel) {
    return arena_printf(kernel->loops.arena, "i%d", kernel->loops.n - 1);
}

/* True if some input differs along loop d, so that its index is needed. */
static bool is_indexed(const struct row_kernel *kernel, int d) {
    bool indexed = false;
    for (int k = 0; k < kernel->loops.node->ninputs; k++) indexed = indexed || kernel->loops.stride[k][d];
    return indexed;
}

static bool is_narrow(const struct row_kernel *kernel) {
    return loops_are_narrow(&kernel->loops, kernel->rows * kernel->columns);
}

const char *row_kernel_of_row(const struct row_kernel *kernel, int d) {
    struct arena *arena = kernel->loops.arena;
    int64_t rows = 1;
    for (int inner = d + 1; inner < kernel->loops.n - 1; inner++) rows *= kernel->loops.extent[inner];
    if (rows == 1 && !d) return "row";
    /* the divisor is an open size, not a constant: a 32-bit division is cheaper */
    const char *row = kernel->loops.open && is_narrow(kernel) ? "(uint32_t)row" : "row";
    const char *from = rows != 1 ? arena_printf(arena, "%s / %lld", row, (long long)at_least_one(rows)) : row;
    return d ? arena_printf(arena, "%s %% %lld", from, (long long)at_least_one(kernel->loops.extent[d])) : from;
}

void row_kernel_bind_loops(const struct row_kernel *kernel, struct tmpl_env *env) {
    tmpl_list(env, "loops");
    for (int d = 0; d < kernel->loops.n - 1; d++) {
        if (!is_indexed(kernel, d)) continue;
        struct tmpl_env *loop = tmpl_entry(env, "loops");
        tmpl_setf(loop, "index", "i%d", d);
        tmpl_set(loop, "of_row", row_kernel_of_row(kernel, d));
    }
    tmpl_set(env, "column", row_kernel_column(kernel));
    tmpl_setf(env, "width", "%d", kernel->loops.width);
    tmpl_setf(env, "rows", "%lld", (long long)kernel->rows);
    tmpl_setf(env, "columns", "%lld", (long long)kernel->columns);
    tmpl_set(env, "type", row_kernel_type(kernel));
    loops_bind_open(&kernel->loops, env, is_narrow(kernel));
}

bool row_kernel_bind_results(const struct row_kernel *kernel, struct tmpl_env *env, int pass) {
    bool writes = false;
    tmpl_list(env, "writes");
    tmpl_list(env, "stores");
    EACH(kernel->program.value, kernel->program.nvalues, o, const struct row_value *value) {
        if (value->phase != pass) continue;
        writes = writes || value->varies;
        struct tmpl_env *entry = tmpl_entry(env, value->varies ? "writes" : "stores");
        tmpl_set(entry, "pointer", row_kernel_results[o]);
        tmpl_set(entry, "type", loops_type_name(&kernel->loops, kernel->loops.node->outputs[o]));
        tmpl_set(entry, "value", loops_stored(&kernel->loops, o, loops_text(&kernel->loops, value->expr)));
    }
    return writes;
}

bool row_kernel_was_read(const struct row_kernel *kernel, int pass, int k) {
    bool read = false;
    for (int p = 0; p < pass; p++) read = read || kernel->read[p][k];
    return read;
}

void row_kernel_put_inputs(const struct row_kernel *kernel, struct strbuf *parameters) {
    for (int k = 0; k < kernel->loops.node->ninputs; k++)
        strbuf_printf(parameters, "%sconst %s *%c", parameters->length ? ", " : "",
                      loops_type_name(&kernel->loops, kernel->loops.node->inputs[k]), 'a' + k);
}

void row_kernel_put_result(const struct row_kernel *kernel, struct strbuf *parameters, const char *type, int o) {
    strbuf_printf(parameters, "%s%s *%s %s", parameters->length ? ", " : "", type,
                  kernel->loops.target->arguments->restricted, row_kernel_results[o]);
}

void row_kernel_bind_value(struct tmpl_env *entry, const char *name, const char *type, const char *value) {
    tmpl_setf(entry, "v", "const %s %s", type, name);
    tmpl_set(entry, "value", value);
}

const char *row_kernel_call(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                            int id, int **tensors, int *n) {
    struct arena *arena = plan->graph->arena;
    const struct node *node = &plan->graph->nodes.at[id];
    const struct target *target = kernels->target;
    struct row_kernel kernel = row_kernel_new(target, arena, plan->graph, class, node);
    struct tmpl_env *env = tmpl_env(arena, NULL);
    const bool rows = node->op->id == OP_Rows;
    (rows ? target->rows->rows : target->rows->columns)(&kernel, env);
    const char *template = rows ? target->rows_template : target->columns_template;
    struct strbuf out = {.arena = arena};
    *tensors = ARENA_ARRAY(arena, int, node->noutputs + node->ninputs);
    *n = 0;
    for (int o = 0; o < node->noutputs; o++) (*tensors)[(*n)++] = node->outputs[o];
    for (int k = 0; k < node->ninputs; k++) (*tensors)[(*n)++] = node->inputs[k];
    strbuf_printf(&out, "%s(%s", kernels_share(kernels, env, template, node->op->name),
                  target->arguments->names_rank || kernel.loops.open ? "rt, " : "");
    for (int t = 0; t < *n; t++) strbuf_puts(&out, t ? ", \001" : "\001");
    strbuf_puts(&out, ");");
    return strbuf_text(&out);
}
