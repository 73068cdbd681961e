#include "codegen/rows.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/elementwise.h"
#include "codegen/loops.h"
#include "codegen/tmpl.h"
#include "ir/expr/rows.h"
#include "ir/op.h"

/* Note [Rows in registers]
 * The extents are known when a kernel is written, so it is decided here how many threads share a row. What is read of
 * it and differs from row to row stays in registers from pass to pass: as few threads as keep it in HELD_BYTES of each,
 * a warp if that is enough, so that sums need no barrier. With rows too few to fill a GPU more threads take one. A row
 * that MOST_THREADS cannot hold is read again in every pass. */
enum {
    WARP = 32,
    MOST_THREADS = 512,
    ROW_BLOCK = 128,        /* threads of a block of several rows */
    HELD_BYTES = 256,       /* of a thread: 64 registers of the 255 that it can have in a block of .. */
    WIDE_BLOCK = 256,       /* .. so many threads; in a larger one it has half */
    MANY_THREADS = 1 << 16, /* enough for a GPU */
    COLUMN_BLOCK = 256,     /* RT_BLOCK of runtime/cuda/launch.cuh */
    COLUMN_BLOCKS = 512,    /* more gain nothing */
    COLUMN_ROWS = 64        /* of a chunk, at least */
};

/* Loops over the rows, and one over the columns, which is the last. */
struct rows {
    struct loops l;
    struct row_program program;
    int64_t rows, columns;
    /* per pass: inputs and names that it wants */
    bool read[EXPR_NAMED + 1][EXPR_INPUTS], made[EXPR_NAMED + 1][EXPR_NAMED];
};

/* Of a kernel over rows. */
struct row_shape {
    int threads, block, parts; /* of a row; of a block; vectors of a thread if it holds them, else 0 */
};

/* Of a kernel over columns: a block takes `across` vectors of each row of a chunk. */
struct column_shape {
    int across;
    int64_t groups, chunks, length;
};

static int64_t at_least_one(int64_t n) {
    return n > 0 ? n : 1;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Looping and shapes --------------------------------------------------------------------------------------------- */

static void make_loops(struct rows *r) {
    struct loops *l = &r->l;
    int ndim[EXPR_INPUTS];
    const int64_t *dims[EXPR_INPUTS];
    for (int k = 0; k < l->node->ninputs; k++) {
        ndim[k] = l->graph->tensors.at[l->node->inputs[k]].ndim;
        dims[k] = l->class->dims[l->node->inputs[k]];
    }
    l->n = rows_shape(l->node->ninputs, ndim, dims, l->extent);
    r->columns = l->extent[l->n - 1];
    r->rows = 1;
    for (int d = 0; d < l->n - 1; d++) r->rows *= l->extent[d];
    for (int k = 0; k < l->node->ninputs; k++) loops_strides(l, k, l->n);
    loops_merge(l, l->n - 1);
    l->width = loops_width(l);
}

static bool varies(const struct rows *r, int k) {
    return r->l.stride[k][r->l.n - 1] != 0;
}

/* It is not the same for all rows. */
static bool differs(const struct rows *r, int k) {
    bool differs = false;
    for (int d = 0; d < r->l.n - 1; d++) differs = differs || r->l.stride[k][d];
    return differs;
}

/* What the expression reads, in a pass. */
static void want(struct rows *r, int pass, const struct expr *e) {
    for (int i = 0; i < e->nargs; i++) want(r, pass, e->arg[i]);
    if (e->kind != EXPR_NAME) return;
    if (!e->name[1]) {
        r->read[pass][*e->name - 'a'] = true;
        return;
    }
    const int i = atoi(e->name + 1);
    if (!r->program.named[i].varies || r->made[pass][i]) return;
    r->made[pass][i] = true;
    want(r, pass, r->program.named[i].expr);
}

static void want_all(struct rows *r) {
    const struct row_program *p = &r->program;
    for (int i = 0; i < p->nnamed; i++)
        if (p->named[i].fold) want(r, p->named[i].phase, p->named[i].expr);
    for (int i = 0; i < p->nvalues; i++)
        if (p->value[i].varies) want(r, p->value[i].phase, p->value[i].expr);
}

static struct rows new_rows(const struct target *target, struct arena *arena, const struct graph *graph,
                            const struct plan_class *class, const struct node *node) {
    struct rows r = {.l = {.graph = graph, .node = node, .class = class, .target = target, .arena = arena}};
    if (!rows_read(arena, graph, node, &r.program)) BUG("%s has no program", node->op->name);
    make_loops(&r);
    want_all(&r);
    return r;
}

/* It is read in several passes, and differs from row to row. */
static bool is_held(const struct rows *r, int k) {
    int passes = 0;
    for (int p = 0; p < r->program.passes; p++) passes += r->read[p][k];
    return varies(r, k) && differs(r, k) && passes > 1;
}

/* Bytes in which a thread holds its elements of a row. */
static int64_t held_bytes(const struct rows *r, int64_t elements) {
    int64_t bytes = 0;
    for (int k = 0; k < r->l.node->ninputs; k++)
        if (varies(r, k) && differs(r, k))
            bytes += elements * (int64_t)rt_dtype_bytes(r->l.graph->tensors.at[r->l.node->inputs[k]].dtype);
    return bytes;
}

static bool fits(const struct rows *r, int threads, int64_t parts) {
    return held_bytes(r, parts * r->l.width) <= (threads > WIDE_BLOCK ? HELD_BYTES / 2 : HELD_BYTES);
}

static struct row_shape row_shape_of(const struct rows *r) {
    struct row_shape shape = {.threads = WARP};
    int64_t parts = 0;
    for (;; shape.threads *= 2) {
        parts = ceil_div(r->columns, shape.threads * r->l.width);
        bool fills = parts <= 1 || r->rows * shape.threads >= MANY_THREADS;
        if ((fills && fits(r, shape.threads, parts)) || shape.threads == MOST_THREADS) break;
    }
    shape.block = shape.threads > WARP ? shape.threads : ROW_BLOCK;
    shape.parts = fits(r, shape.threads, parts) ? (int)parts : 0;
    return shape;
}

static struct column_shape column_shape_of(const struct rows *r) {
    struct column_shape shape = {.across = 1};
    const int64_t vectors = at_least_one(r->columns / r->l.width);
    while (shape.across < WARP && shape.across < vectors) shape.across *= 2;
    shape.groups = ceil_div(vectors, shape.across);
    int64_t most = COLUMN_BLOCKS / shape.groups, least = r->rows / COLUMN_ROWS;
    shape.length = ceil_div(r->rows, at_least_one(most < least ? most : least));
    shape.chunks = at_least_one(shape.length ? ceil_div(r->rows, shape.length) : 1);
    return shape;
}

/* Sums that are stored as they are made need no second kernel. */
static bool is_chunked(const struct rows *r, const struct column_shape *shape) {
    bool chunked = shape->chunks > 1;
    for (int o = 0; o < r->l.node->noutputs; o++)
        chunked = chunked || r->l.graph->tensors.at[r->l.node->outputs[o]].dtype != loops_type(&r->l);
    return chunked;
}

int64_t rows_scratch(const struct graph *graph, const struct plan_class *class, const struct node *node) {
    const struct rows r = new_rows(&target_cuda, graph->arena, graph, class, node);
    const struct column_shape shape = column_shape_of(&r);
    if (!is_chunked(&r, &shape)) return 0;
    return node->noutputs * shape.chunks * r.columns * (int64_t)rt_dtype_bytes(loops_type(&r.l));
}

/* Binding -------------------------------------------------------------------------------------------------------- */

static const char *const results[] = {"y", "y1", "y2", "y3", "y4", "y5"};
_Static_assert(sizeof results / sizeof *results == EXPR_VALUES, "a name for each result");

static const char *letter(const struct rows *r, int k) {
    return arena_printf(r->l.arena, "%c", 'a' + k);
}

static const char *dtype_name(const struct rows *r) {
    return rt_dtypes[loops_type(&r->l)].c_type;
}

static const char *index_of(const struct rows *r, int k) {
    return loops_index(&r->l, r->l.stride[k]);
}

/* Some input differs along the loop: none does where there are no columns. */
static bool is_indexed(const struct rows *r, int d) {
    bool indexed = false;
    for (int k = 0; k < r->l.node->ninputs; k++) indexed = indexed || r->l.stride[k][d];
    return indexed;
}

static void bind_loops(const struct rows *r, struct tmpl_env *env) {
    int64_t rows = 1;
    tmpl_list(env, "loops");
    const char *of_row[MAX_NDIM];
    for (int d = r->l.n - 2; d >= 0; d--) {
        const char *from = rows == 1 ? "row" : arena_printf(r->l.arena, "row / %lld", (long long)at_least_one(rows));
        of_row[d] = d ? arena_printf(r->l.arena, "%s %% %lld", from, (long long)at_least_one(r->l.extent[d])) : from;
        rows *= r->l.extent[d];
    }
    for (int d = 0; d < r->l.n - 1; d++) {
        if (!is_indexed(r, d)) continue;
        struct tmpl_env *loop = tmpl_entry(env, "loops");
        tmpl_setf(loop, "index", "i%d", d);
        tmpl_set(loop, "of_row", of_row[d]);
    }
    tmpl_setf(env, "column", "i%d", r->l.n - 1);
    tmpl_setf(env, "width", "%d", r->l.width);
    tmpl_setf(env, "rows", "%lld", (long long)r->rows);
    tmpl_setf(env, "columns", "%lld", (long long)r->columns);
    tmpl_set(env, "type", dtype_name(r));
}

/* Inputs: parameters, what is read once for a row, and how each is spelled; `part` is how a vector is chosen that is
 * held. */
static void bind_inputs(struct rows *r, struct tmpl_env *env, const char *part) {
    struct loops *l = &r->l;
    tmpl_list(env, "scalars");
    for (int k = 0; k < l->node->ninputs; k++) {
        const char *chosen = *part && is_held(r, k) ? part : "";
        const char *element = varies(r, k) ? arena_printf(l->arena, "v%c%s.at[lane]", 'a' + k, chosen)
                                           : arena_printf(l->arena, "v%c", 'a' + k);
        l->operand[k] = loops_loaded(l, l->node->inputs[k], element);
        if (varies(r, k)) continue;
        struct tmpl_env *scalar = tmpl_entry(env, "scalars");
        tmpl_set(scalar, "pointer", letter(r, k));
        tmpl_set(scalar, "type", loops_type_name(l, l->node->inputs[k]));
        tmpl_set(scalar, "at", index_of(r, k));
    }
}

/* "const float *a, const uint16_t *b" and "a, b", behind what there is. */
static void put_inputs(const struct rows *r, struct strbuf *parameters, struct strbuf *arguments) {
    for (int k = 0; k < r->l.node->ninputs; k++) {
        strbuf_printf(parameters, "%sconst %s *%c", parameters->length ? ", " : "",
                      loops_type_name(&r->l, r->l.node->inputs[k]), 'a' + k);
        strbuf_printf(arguments, "%s%c", arguments->length ? ", " : "", 'a' + k);
    }
}

static void put_result(const struct rows *r, struct strbuf *out, const char *type, int o) {
    strbuf_printf(out, "%s%s *%s %s", out->length ? ", " : "", type, r->l.target->arguments->restricted, results[o]);
}

static void bind_value(struct tmpl_env *entry, const char *name, const char *type, const char *value) {
    tmpl_setf(entry, "v", "const %s %s", type, name);
    tmpl_set(entry, "value", value);
}

static void bind_reads(const struct rows *r, struct tmpl_env *env, int pass, bool holds) {
    bool first;
    tmpl_list(env, "reads");
    for (int k = 0; k < r->l.node->ninputs; k++) {
        if (!varies(r, k) || !r->read[pass][k]) continue;
        const bool held = holds && is_held(r, k);
        first = true;
        for (int p = 0; p < pass; p++) first = first && !r->read[p][k];
        if (held && !first) continue;
        struct tmpl_env *read = tmpl_entry(env, "reads");
        tmpl_setf(read, "vector", held ? "v%c[part]" : "const auto v%c", 'a' + k);
        tmpl_set(read, "pointer", letter(r, k));
        tmpl_set(read, "at", index_of(r, k));
    }
}

static void bind_named(const struct rows *r, struct tmpl_env *env, int pass) {
    tmpl_list(env, "named");
    for (int i = 0; i < r->program.nnamed; i++) {
        if (!r->made[pass][i]) continue;
        bind_value(tmpl_entry(env, "named"), arena_printf(r->l.arena, "v%d", i), dtype_name(r),
                   loops_text(&r->l, r->program.named[i].expr));
    }
}

static const struct fold {
    const char *name, *op, *identity; /* % is the type */
} folds[] = {{"sum", "rt_sum_of()", "(%s)0"},
             {"max", "rt_max_of()", "rt_limits<%s>::lowest()"},
             {"min", "rt_min_of()", "rt_limits<%s>::highest()"}};

static void bind_fold(const struct rows *r, struct tmpl_env *env, int i) {
    const struct row_value *value = &r->program.named[i];
    const struct fold *fold = folds;
    while (strcmp(fold->name, value->fold) != 0) fold++;
    const int before = (int)strcspn(fold->identity, "%");
    struct tmpl_env *entry = tmpl_entry(env, "folds");
    tmpl_setf(entry, "v", "v%d", i);
    tmpl_setf(entry, "sum", "s%d", i);
    tmpl_set(entry, "op", fold->op);
    tmpl_setf(entry, "identity", "%.*s%s%s", before, fold->identity, dtype_name(r), fold->identity + before + 2);
    tmpl_set(entry, "value", loops_text(&r->l, value->expr));
}

/* Results that are stored in that pass: of rows before it, of elements in it. */
static bool bind_results(const struct rows *r, struct tmpl_env *env, int pass) {
    bool writes = false;
    tmpl_list(env, "writes");
    tmpl_list(env, "stores");
    for (int o = 0; o < r->program.nvalues; o++) {
        const struct row_value *value = &r->program.value[o];
        if (value->phase != pass) continue;
        writes = writes || value->varies;
        struct tmpl_env *entry = tmpl_entry(env, value->varies ? "writes" : "stores");
        tmpl_set(entry, "pointer", results[o]);
        tmpl_set(entry, "type", loops_type_name(&r->l, r->l.node->outputs[o]));
        tmpl_set(entry, "value", loops_stored(&r->l, o, loops_text(&r->l, value->expr)));
    }
    return writes;
}

/* Values of the row that are known before that pass. */
static void bind_known(const struct rows *r, struct tmpl_env *env, int pass) {
    tmpl_list(env, "known");
    for (int i = 0; i < r->program.nnamed; i++) {
        const struct row_value *value = &r->program.named[i];
        if (value->varies || value->fold || value->phase != pass) continue;
        bind_value(tmpl_entry(env, "known"), arena_printf(r->l.arena, "v%d", i), dtype_name(r),
                   loops_text(&r->l, value->expr));
    }
}

static void bind_pass(const struct rows *r, struct tmpl_env *env, int pass, bool holds) {
    bool folded = false;
    tmpl_list(env, "folds");
    for (int i = 0; i < r->program.nnamed; i++) {
        if (!r->program.named[i].fold || r->program.named[i].phase != pass) continue;
        bind_fold(r, env, i);
        folded = true;
    }
    bind_known(r, env, pass);
    bool writes = bind_results(r, env, pass);
    tmpl_set(env, "loop", folded || writes ? "yes" : "");
    bind_reads(r, env, pass, holds);
    bind_named(r, env, pass);
}

static void bind_held(const struct rows *r, struct tmpl_env *env, bool holds) {
    tmpl_list(env, "held");
    for (int k = 0; k < r->l.node->ninputs && holds; k++) {
        if (!is_held(r, k)) continue;
        struct tmpl_env *held = tmpl_entry(env, "held");
        tmpl_set(held, "pointer", letter(r, k));
        tmpl_set(held, "type", loops_type_name(&r->l, r->l.node->inputs[k]));
    }
}

static const char *bind_rows(struct rows *r, struct tmpl_env *env) {
    const struct row_shape shape = row_shape_of(r);
    const bool holds = shape.parts > 0;
    struct strbuf parameters, arguments;
    strbuf_init(&parameters, r->l.arena);
    strbuf_init(&arguments, r->l.arena);
    for (int o = 0; o < r->l.node->noutputs; o++) {
        put_result(r, &parameters, loops_type_name(&r->l, r->l.node->outputs[o]), o);
        strbuf_printf(&arguments, "%s%s", o ? ", " : "", results[o]);
    }
    put_inputs(r, &parameters, &arguments);
    bind_loops(r, env);
    bind_inputs(r, env, holds ? "[part]" : "");
    bind_held(r, env, holds);
    for (int p = 0; p <= r->program.passes; p++) bind_pass(r, tmpl_entry(env, "passes"), p, holds);
    tmpl_set(env, "each", holds ? "RT_EACH_HELD" : "RT_EACH_READ");
    tmpl_setf(env, "threads", "%d", shape.threads);
    tmpl_setf(env, "block", "%d", shape.block);
    tmpl_setf(env, "parts", "%d", shape.parts);
    tmpl_setf(env, "blocks", "%lld", (long long)ceil_div(r->rows, shape.block / shape.threads));
    tmpl_set(env, "parameters", strbuf_text(&parameters));
    tmpl_set(env, "arguments", strbuf_text(&arguments));
    return r->l.target->rows_template;
}

/* A sum's name, where its chunks lie, and where it goes: through elements that round, if it is a half. */
static void bind_sums(struct rows *r, struct tmpl_env *env, const struct column_shape *shape) {
    const bool chunked = is_chunked(r, shape);
    struct strbuf parameters, sums, parts;
    strbuf_init(&parameters, r->l.arena);
    strbuf_init(&sums, r->l.arena);
    strbuf_init(&parts, r->l.arena);
    for (int o = 0; o < r->l.node->noutputs; o++) {
        const int y = r->l.node->outputs[o];
        const bool half = rt_dtypes[r->l.graph->tensors.at[y].dtype].kind == RT_KIND_HALF;
        const int64_t offset = o * shape->chunks * r->columns;
        struct tmpl_env *fold = tmpl_entry(env, "folds");
        put_result(r, &parameters, loops_type_name(&r->l, y), o);
        put_result(r, &sums, dtype_name(r), o);
        const char *from = arena_printf(r->l.arena, offset ? "parts + %lld" : "parts", (long long)offset);
        strbuf_printf(&parts, "%s%s", o ? ", " : "", chunked ? from : results[o]);
        tmpl_setf(fold, "sum", "s%d", o);
        tmpl_set(fold, "from", from);
        tmpl_set(fold, "pointer", results[o]);
        tmpl_setf(fold, "element", half ? "rt_element_%s" : "%s",
                  half ? rt_dtypes[r->l.graph->tensors.at[y].dtype].name : dtype_name(r));
        tmpl_set(fold, "value", loops_text(&r->l, r->program.value[o].expr));
    }
    tmpl_set(env, "results", strbuf_text(&parameters));
    tmpl_set(env, "sums", strbuf_text(&sums));
    tmpl_set(env, "parts", strbuf_text(&parts));
    tmpl_set(env, "chunked", chunked ? "yes" : "");
    tmpl_setf(env, "nsums", "%d", r->l.node->noutputs);
}

/* Sums of columns have one pass, in which every value is wanted, though it may be of the row alone. */
static void want_values(struct rows *r) {
    for (int i = 0; i < r->program.nnamed; i++) r->program.named[i].varies = true;
    for (int i = 0; i < r->program.nvalues; i++) want(r, 0, r->program.value[i].expr);
}

static const char *bind_columns(struct rows *r, struct tmpl_env *env) {
    const struct column_shape shape = column_shape_of(r);
    struct strbuf parameters, arguments;
    strbuf_init(&parameters, r->l.arena);
    strbuf_init(&arguments, r->l.arena);
    put_inputs(r, &parameters, &arguments);
    want_values(r);
    bind_loops(r, env);
    bind_inputs(r, env, "");
    bind_reads(r, env, 0, false);
    bind_named(r, env, 0);
    bind_sums(r, env, &shape);
    tmpl_setf(env, "across", "%d", shape.across);
    tmpl_setf(env, "groups", "%lld", (long long)shape.groups);
    tmpl_setf(env, "chunks", "%lld", (long long)shape.chunks);
    tmpl_setf(env, "length", "%lld", (long long)shape.length);
    tmpl_setf(env, "blocks", "%lld", (long long)(shape.groups * shape.chunks));
    tmpl_set(env, "parameters", strbuf_text(&parameters));
    tmpl_set(env, "arguments", strbuf_text(&arguments));
    return r->l.target->columns_template;
}

const char *rows_call(struct kernels *kernels, const struct rankplan *plan, const struct plan_class *class, int id,
                      int **tensors, int *n) {
    struct arena *arena = plan->graph->arena;
    const struct node *node = &plan->graph->nodes.at[id];
    struct rows r = new_rows(kernels->target, arena, plan->graph, class, node);
    struct tmpl_env *env = tmpl_env(arena, NULL);
    const char *template = (node->op->id == OP_Rows ? bind_rows : bind_columns)(&r, env);
    struct strbuf out;
    strbuf_init(&out, arena);
    *tensors = ARENA_ARRAY(arena, int, node->noutputs + node->ninputs);
    *n = 0;
    for (int o = 0; o < node->noutputs; o++) (*tensors)[(*n)++] = node->outputs[o];
    for (int k = 0; k < node->ninputs; k++) (*tensors)[(*n)++] = node->inputs[k];
    strbuf_printf(&out, "%s(rt", kernels_share(kernels, env, template, node->op->name));
    for (int t = 0; t < *n; t++) strbuf_puts(&out, ", \001");
    strbuf_puts(&out, ");");
    return strbuf_text(&out);
}
