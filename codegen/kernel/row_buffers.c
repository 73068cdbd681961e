#include "codegen/kernel/row_buffers.h"

#include <stdlib.h>

#include "codegen/kernel/row_kernel_of.h"
#include "codegen/text/extents.h"
#include "ir/op.h"

/* Note [Rows in buffers]
 * A function over rows works on one tile of rows at a time, so that the tile stays in a core's cache. Each pass is a
 * loop over the rows of the tile, followed by the reductions. A tile has enough rows for reductions to process several
 * at a time, and for the cost of their calls not to matter. A value with a number per element is computed once, in the
 * first pass that needs it. It is stored in a buffer if a later pass or a reduction reads it. A 16-bit input that is
 * read again has a buffer for its converted elements. Pass fuse_rows limits the size of the buffers. Buffers are
 * aligned for vectors: gcc 12 assumes this alignment where it vectorises the last columns of a row, but by itself
 * aligns arrays less. */
enum {
    TILE = 2048,   /* elements of a tile, */
    LEAST_ROWS = 4 /* but so many rows */
};

struct writer {
    struct row_kernel *kernel;
    int64_t tile;              /* rows */
    bool held[EXPR_NAMED];     /* named values of elements with a buffer */
    bool widened[EXPR_INPUTS]; /* inputs with a buffer */
};

static int input_of(const struct expr *expr) {
    return expr->kind == EXPR_NAME && !expr->name[1] ? *expr->name - 'a' : -1;
}

/* The index of the named value that the expression refers to, if that value has a number per element; else -1. */
static int named_elements(const struct row_kernel *kernel, const struct expr *expr) {
    const int i = expr->kind == EXPR_NAME && expr->name[1] ? atoi(expr->name + 1) : -1;
    return i >= 0 && kernel->program.named[i].varies ? i : -1;
}

static bool is_half(const struct row_kernel *kernel, int k) {
    return rt_dtypes[kernel->loops.graph->tensors.at[kernel->loops.node->inputs[k]].dtype].kind == RT_KIND_HALF;
}

/* True if input k has the elements of the rows one after the other. */
static bool is_dense(const struct row_kernel *kernel, int k) {
    const struct loops *loops = &kernel->loops;
    return row_kernel_varies(kernel, k) && (loops->n == 1 || (loops->n == 2 && loops->stride[k][0] == kernel->columns));
}

/* The input that the reduction reads directly, from its own memory or the buffer of its converted elements; or -1. */
static int reduced_input(const struct row_kernel *kernel, const struct row_value *value) {
    const int k = value->fold ? input_of(value->expr) : -1;
    const bool read = k >= 0 && (is_half(kernel, k) ? row_kernel_varies(kernel, k) : is_dense(kernel, k));
    return read ? k : -1;
}

/* True if the operand of the reduction is computed into a buffer of its own. */
static bool has_own_buffer(const struct row_kernel *kernel, const struct row_value *value) {
    return value->fold && named_elements(kernel, value->expr) < 0 && reduced_input(kernel, value) < 0;
}

static bool was_made(const struct row_kernel *kernel, int pass, int i) {
    bool made = false;
    for (int p = 0; p < pass; p++) made = made || kernel->made[p][i];
    return made;
}

/* Marks the inputs and named values that the expression needs in a pass. Values of elements that an earlier pass
 * computes have a buffer; values of a row are computed again, from the reductions. */
static void want(struct writer *w, int pass, const struct expr *expr) {
    for (int a = 0; a < expr->nargs; a++) want(w, pass, expr->arg[a]);
    const int i = expr->kind == EXPR_NAME && expr->name[1] ? atoi(expr->name + 1) : -1, k = input_of(expr);
    const struct row_value *named = i >= 0 ? &w->kernel->program.named[i] : NULL;
    if (k >= 0) {
        const bool again =
            row_kernel_varies(w->kernel, k) && is_half(w->kernel, k) && row_kernel_was_read(w->kernel, pass, k);
        w->widened[k] = w->widened[k] || again;
        w->kernel->read[pass][k] = true;
    } else if (named && named->varies && was_made(w->kernel, pass, i)) {
        w->held[i] = true;
    } else if (named && !w->kernel->made[pass][i]) {
        w->kernel->made[pass][i] = true;
        if (!named->fold) want(w, pass, named->expr);
    }
}

static void want_operand(struct writer *w, int pass, const struct row_value *fold) {
    const int i = named_elements(w->kernel, fold->expr), k = reduced_input(w->kernel, fold);
    if (k < 0 || is_half(w->kernel, k)) want(w, pass, fold->expr);
    if (k >= 0 && is_half(w->kernel, k)) w->widened[k] = true;
    if (i >= 0) w->held[i] = true;
}

static void want_pass(struct writer *w, int pass) {
    const struct row_program *program = &w->kernel->program;
    for (int i = 0; i < program->nnamed; i++)
        if (program->named[i].fold && program->named[i].phase == pass) want_operand(w, pass, &program->named[i]);
    for (int o = 0; o < program->nvalues; o++)
        if (program->value[o].phase == pass) want(w, pass, program->value[o].expr);
}

static void bind(struct tmpl_env *env, const char *list, const char *v, const char *value) {
    struct tmpl_env *entry = tmpl_entry(env, list);
    tmpl_set(entry, "v", v);
    tmpl_set(entry, "value", value);
}

/* "const float v2", or "v2[r]" of a value with a buffer. */
static const char *variable(const struct writer *w, const char *name, bool held) {
    struct arena *arena = w->kernel->loops.arena;
    return held ? name : arena_printf(arena, "const %s %s", row_kernel_type(w->kernel), name);
}

/* The element of a buffer of the tile. */
static const char *element_of(const struct writer *w, const char *buffer) {
    return arena_printf(w->kernel->loops.arena, "%s[r * %lld + %s]", buffer, (long long)w->kernel->columns,
                        row_kernel_column(w->kernel));
}

static const char *loaded(const struct writer *w, int k) {
    const struct loops *loops = &w->kernel->loops;
    return loops_loaded(loops, loops->node->inputs[k],
                        arena_printf(loops->arena, "%c[%s]", 'a' + k, row_kernel_index(w->kernel, k)));
}

/* Sets the spelling of inputs and named values. */
static void name_all(const struct writer *w) {
    struct loops *loops = &w->kernel->loops;
    for (int k = 0; k < loops->node->ninputs; k++) {
        loops->operand[k] = arena_printf(loops->arena, "v%c", 'a' + k);
        if (w->widened[k]) loops->operand[k] = element_of(w, loops->operand[k]);
    }
    for (int i = 0; i < w->kernel->program.nnamed; i++)
        if (w->held[i]) loops->local[i] = element_of(w, arena_printf(loops->arena, "v%d", i));
}

/* Binds what the pass computes: "known" for a row, "named" in the loop over its columns. An input is read before it is
 * used: compilers vectorise a choice between values, but not one between loads. */
static void bind_values(const struct writer *w, struct tmpl_env *env, int pass) {
    struct row_kernel *kernel = w->kernel;
    const struct loops *loops = &kernel->loops;
    tmpl_list(env, "known");
    tmpl_list(env, "named");
    for (int k = 0; k < loops->node->ninputs; k++)
        if (kernel->read[pass][k] && !(w->widened[k] && row_kernel_was_read(kernel, pass, k)))
            bind(env, row_kernel_varies(kernel, k) ? "named" : "known", variable(w, loops->operand[k], w->widened[k]),
                 loaded(w, k));
    EACH(kernel->program.named, kernel->program.nnamed, i, const struct row_value *value) {
        if (!kernel->made[pass][i]) continue;
        const char *text = value->fold ? arena_printf(loops->arena, "s%d[r]", i) : loops_text(loops, value->expr);
        bind(env, value->varies ? "named" : "known", variable(w, loops_local(loops, i), w->held[i]), text);
    }
}

/* Binds a reduction of the rows of the tile. */
static void bind_fold(const struct writer *w, struct tmpl_env *env, int i) {
    const struct loops *loops = &w->kernel->loops;
    const struct row_value *value = &w->kernel->program.named[i];
    const int named = named_elements(w->kernel, value->expr), k = reduced_input(w->kernel, value);
    const char *operand = arena_printf(loops->arena, named >= 0 ? "v%d" : "t%d", named >= 0 ? named : i);
    if (k >= 0)
        operand = w->widened[k] ? arena_printf(loops->arena, "v%c", 'a' + k)
                  : loops->n == 1
                      ? row_kernel_input(w->kernel, k)
                      : arena_printf(loops->arena, "%c + first * %lld", 'a' + k, (long long)w->kernel->columns);
    if (has_own_buffer(w->kernel, value)) bind(env, "named", element_of(w, operand), loops_text(loops, value->expr));
    struct tmpl_env *fold = tmpl_entry(env, "folds");
    tmpl_setf(fold, "function", "rt_rows_%s_%s", value->fold, rt_dtypes[loops_type(loops)].name);
    tmpl_setf(fold, "v", "s%d", i);
    tmpl_set(fold, "operand", operand);
}

/* True if loops of the pass use the index of loop d over rows. */
static bool uses_index(const struct row_kernel *kernel, int pass, int d) {
    bool used = false;
    for (int k = 0; k < kernel->loops.node->ninputs; k++)
        used = used || (kernel->read[pass][k] && kernel->loops.stride[k][d]);
    return used;
}

static bool has_results(const struct row_kernel *kernel, int pass, bool varies) {
    bool has = false;
    for (int o = 0; o < kernel->program.nvalues; o++)
        has = has || (kernel->program.value[o].phase == pass && kernel->program.value[o].varies == varies);
    return has;
}

/* True if the pass has a loop over columns. */
static bool has_elements(const struct row_kernel *kernel, int pass) {
    bool has = has_results(kernel, pass, true);
    for (int k = 0; k < kernel->loops.node->ninputs; k++)
        has = has || (kernel->read[pass][k] && row_kernel_varies(kernel, k));
    EACH(kernel->program.named, kernel->program.nnamed, i, const struct row_value *value) {
        has =
            has || (kernel->made[pass][i] && value->varies) || (value->phase == pass && has_own_buffer(kernel, value));
    }
    return has;
}

/* Binds the indices of the row that the pass needs. */
static void bind_indices(const struct row_kernel *kernel, struct tmpl_env *env, int pass) {
    const int rows = kernel->loops.n - 1;
    bool used = has_results(kernel, pass, true) || has_results(kernel, pass, false);
    for (int d = 0; d < rows; d++) used = used || uses_index(kernel, pass, d);
    tmpl_list(env, "indices");
    if (used) bind(env, "indices", rows == 1 ? "i0" : "row", "first + r");
    for (int d = 0; d < rows && rows > 1; d++)
        if (uses_index(kernel, pass, d))
            bind(env, "indices", arena_printf(kernel->loops.arena, "i%d", d), row_kernel_of_row(kernel, d));
}

static void bind_pass(const struct writer *w, struct tmpl_env *env, int pass) {
    const struct row_program *program = &w->kernel->program;
    const bool elements = has_elements(w->kernel, pass);
    tmpl_list(env, "folds");
    tmpl_set(env, "elements", elements ? "yes" : "");
    tmpl_set(env, "loop", elements || has_results(w->kernel, pass, false) ? "yes" : "");
    bind_indices(w->kernel, env, pass);
    bind_values(w, env, pass);
    for (int i = 0; i < program->nnamed; i++)
        if (program->named[i].fold && program->named[i].phase == pass) bind_fold(w, env, i);
    row_kernel_bind_results(w->kernel, env, pass);
}

static void put_buffer(struct strbuf *out, const char *name, const char *size) {
    strbuf_printf(out, "%s%s[%s]", out->length ? ", " : "", name, size);
}

/* Binds the buffers: of reductions of the tile's rows, and of its elements at the largest size. */
static void bind_buffers(const struct writer *w, struct tmpl_env *env) {
    struct arena *arena = w->kernel->loops.arena;
    const struct graph *graph = w->kernel->loops.graph;
    const int64_t columns = at_least_one(open_most(graph->open, w->kernel->columns));
    const char *rows = extents_fixed(graph, w->tile);
    const char *elements = arena_printf(arena, "%s * %s", rows, extents_fixed(graph, columns));
    struct strbuf out = {.arena = arena};
    EACH(w->kernel->program.named, w->kernel->program.nnamed, i, const struct row_value *value) {
        if (value->fold) put_buffer(&out, arena_printf(arena, "s%d", i), rows);
        if (w->held[i]) put_buffer(&out, arena_printf(arena, "v%d", i), elements);
        if (has_own_buffer(w->kernel, value)) put_buffer(&out, arena_printf(arena, "t%d", i), elements);
    }
    for (int k = 0; k < w->kernel->loops.node->ninputs; k++)
        if (w->widened[k]) put_buffer(&out, arena_printf(arena, "v%c", 'a' + k), elements);
    tmpl_set(env, "buffers", strbuf_text(&out));
}

/* The loop that threads share goes over `extent` rows or columns in blocks of `each`. */
static void bind_parameters(const struct row_kernel *kernel, struct tmpl_env *env, int64_t extent, const char *each) {
    struct strbuf out = {.arena = kernel->loops.arena};
    if (kernel->loops.open) strbuf_puts(&out, "const struct rt *rt");
    for (int o = 0; o < kernel->loops.node->noutputs; o++)
        row_kernel_put_result(kernel, &out, loops_type_name(&kernel->loops, kernel->loops.node->outputs[o]), o);
    row_kernel_put_inputs(kernel, &out);
    tmpl_set(env, "parameters", strbuf_text(&out));
    const char *blocks = arena_printf(kernel->loops.arena, "(%lld + %s - 1) / %s", (long long)extent, each, each);
    tmpl_set(env, "pragma", loops_pragma(&kernel->loops, kernel->rows * kernel->columns, blocks, "parallel for", ""));
}

/* The rows of a tile: at most as many as there are at the typical size. */
static int64_t tile_of(const struct row_kernel *kernel) {
    struct open_sizes *open = kernel->loops.graph->open;
    const int64_t rows = at_least_one(open_typical(open, kernel->rows));
    const int64_t enough = TILE / at_least_one(open_typical(open, kernel->columns));
    const int64_t tile = enough > LEAST_ROWS ? enough : LEAST_ROWS;
    return tile < rows ? tile : rows;
}

static void bind_rows(struct row_kernel *kernel, struct tmpl_env *env) {
    struct writer w = {.kernel = kernel, .tile = tile_of(kernel)};
    for (int p = 0; p <= kernel->program.passes; p++) want_pass(&w, p);
    const char *tile = extents_fixed(kernel->loops.graph, w.tile);
    row_kernel_bind_loops(kernel, env);
    bind_parameters(kernel, env, kernel->rows, tile);
    bind_buffers(&w, env);
    name_all(&w);
    tmpl_set(env, "tile", tile);
    tmpl_set(env, "row", kernel->loops.n == 2 ? "i0" : "row");
    for (int p = 0; p <= kernel->program.passes; p++) bind_pass(&w, tmpl_entry(env, "passes"), p);
}

/* A sum over rows: each is added to the partial sums of all columns of a block. */
static void bind_sums(const struct writer *w, struct tmpl_env *env) {
    const struct loops *loops = &w->kernel->loops;
    tmpl_list(env, "sums");
    for (int o = 0; o < w->kernel->program.nvalues; o++) {
        struct tmpl_env *sum = tmpl_entry(env, "sums");
        const char *total = arena_printf(loops->arena, "(%s)rt_column_sum(&s%d, %s - first)",
                                         row_kernel_type(w->kernel), o, row_kernel_column(w->kernel));
        tmpl_setf(sum, "sum", "s%d", o);
        tmpl_set(sum, "pointer", row_kernel_results[o]);
        tmpl_set(sum, "value", loops_text(loops, w->kernel->program.value[o].expr));
        tmpl_set(sum, "total", loops_stored(loops, o, total));
    }
}

static void bind_columns(struct row_kernel *kernel, struct tmpl_env *env) {
    struct writer w = {.kernel = kernel};
    for (int o = 0; o < kernel->program.nvalues; o++) want(&w, 0, kernel->program.value[o].expr);
    row_kernel_bind_loops(kernel, env);
    bind_parameters(kernel, env, kernel->columns, "RT_COLUMNS");
    name_all(&w);
    bind_values(&w, env, 0);
    bind_sums(&w, env);
}

const struct row_writer row_buffers = {bind_rows, bind_columns};
