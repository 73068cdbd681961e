#include "codegen/kernel/row_kernel.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/kernel/elementwise.h"
#include "codegen/kernel/loops.h"
#include "codegen/text/tmpl.h"
#include "ir/expr/row_program.h"
#include "ir/op.h"
#include "runtime/base/scratch.h"

/* Note [Rows in registers]
 * The number of threads that share a row is chosen when a kernel is generated. Inputs that several passes read and that
 * differ between rows stay in registers between passes. A row gets the fewest threads that need at most HELD_BYTES
 * each: a warp if that is enough, since its reductions need no barrier; more if there are too few rows to fill a GPU. A
 * row too large for MOST_THREADS is read again in every pass. With open sizes (ir/open.h) the threads are those for the
 * typical size, and rows are held if they fit at the largest one. */
enum {
    WARP = 32,
    MOST_THREADS = 512,
    ROW_BLOCK = 128,        /* threads of a block of several rows */
    HELD_BYTES = 256,       /* of a thread: 64 of the 255 registers that it can have in a block of up to WIDE_BLOCK */
    WIDE_BLOCK = 256,       /* threads; in a larger block a thread has half as many registers */
    MANY_THREADS = 1 << 16, /* enough to fill a GPU */
    MOST_ACROSS = 256       /* columns of a block: `across` times the width, at most */
};

/* A kernel being generated. The last of its loops is over the columns, the others are over the rows. */
struct row_kernel {
    struct loops loops;
    struct row_program program;
    int64_t rows, columns;
    /* by pass: inputs that it reads, named values that it computes */
    bool read[EXPR_NAMED + 1][EXPR_INPUTS], made[EXPR_NAMED + 1][EXPR_NAMED];
};

/* Launch configuration of a kernel over rows. */
struct row_shape {
    int threads, block, parts; /* threads of a row; of a block; vectors that a thread holds in registers, 0: none */
};

/* Launch configuration of a kernel over columns: a block handles `across` vectors of each of the rows of a chunk. */
struct column_shape {
    int across;
    int64_t vectors; /* of a row */
    struct rt_column_chunks chunks;
};

static int64_t at_least_one(int64_t n) {
    return n > 0 ? n : 1;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Looping and shapes --------------------------------------------------------------------------------------------- */

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

/* True if input k differs between columns. */
static bool varies(const struct row_kernel *kernel, int k) {
    return kernel->loops.stride[k][kernel->loops.n - 1] != 0;
}

/* True if input k differs between rows. */
static bool differs(const struct row_kernel *kernel, int k) {
    bool differs = false;
    for (int d = 0; d < kernel->loops.n - 1; d++) differs = differs || kernel->loops.stride[k][d];
    return differs;
}

/* Marks the inputs and named values that the expression uses in a pass. */
static void want(struct row_kernel *kernel, int pass, const struct expr *expr) {
    for (int i = 0; i < expr->nargs; i++) want(kernel, pass, expr->arg[i]);
    if (expr->kind != EXPR_NAME) return;
    if (!expr->name[1]) {
        kernel->read[pass][*expr->name - 'a'] = true;
        return;
    }
    const int i = atoi(expr->name + 1);
    if (!kernel->program.named[i].varies || kernel->made[pass][i]) return;
    kernel->made[pass][i] = true;
    want(kernel, pass, kernel->program.named[i].expr);
}

static struct row_kernel new_kernel(const struct target *target, struct arena *arena, const struct graph *graph,
                                    const struct rank_class *class, const struct node *node) {
    struct row_kernel kernel = {
        .loops = {.graph = graph, .node = node, .class = class, .target = target, .arena = arena}};
    if (!rows_read(graph, node, &kernel.program)) BUG("%s has no program", node->op->name);
    make_loops(&kernel);
    const struct row_program *program = &kernel.program;
    for (int i = 0; i < program->nnamed; i++)
        if (program->named[i].fold) want(&kernel, program->named[i].phase, program->named[i].expr);
    for (int i = 0; i < program->nvalues; i++)
        if (program->value[i].varies) want(&kernel, program->value[i].phase, program->value[i].expr);
    return kernel;
}

/* True if input k stays in registers between passes (Note [Rows in registers]). */
static bool is_held(const struct row_kernel *kernel, int k) {
    int reads = 0;
    for (int p = 0; p < kernel->program.passes; p++) reads += kernel->read[p][k];
    return varies(kernel, k) && differs(kernel, k) && reads > 1;
}

/* Bytes of registers that a thread needs for `elements` elements of each input of its row. */
static int64_t held_bytes(const struct row_kernel *kernel, int64_t elements) {
    int64_t bytes = 0;
    for (int k = 0; k < kernel->loops.node->ninputs; k++)
        if (varies(kernel, k) && differs(kernel, k))
            bytes += elements *
                     (int64_t)rt_dtype_bytes(kernel->loops.graph->tensors.at[kernel->loops.node->inputs[k]].dtype);
    return bytes;
}

static bool fits(const struct row_kernel *kernel, int threads, int64_t parts) {
    return held_bytes(kernel, parts * kernel->loops.width) <= (threads > WIDE_BLOCK ? HELD_BYTES / 2 : HELD_BYTES);
}

static struct row_shape row_shape_of(const struct row_kernel *kernel) {
    struct open_sizes *open = kernel->loops.graph->open;
    const int64_t columns = open_typical(open, kernel->columns), rows = open_typical(open, kernel->rows);
    struct row_shape shape = {.threads = WARP};
    for (;; shape.threads *= 2) {
        const int64_t parts = ceil_div(columns, shape.threads * kernel->loops.width);
        bool fills = parts <= 1 || rows * shape.threads >= MANY_THREADS;
        if ((fills && fits(kernel, shape.threads, parts)) || shape.threads == MOST_THREADS) break;
    }
    const int64_t parts = ceil_div(open_most(open, kernel->columns), shape.threads * kernel->loops.width);
    shape.block = shape.threads > WARP ? shape.threads : ROW_BLOCK;
    shape.parts = fits(kernel, shape.threads, parts) ? (int)parts : 0;
    return shape;
}

static struct column_shape column_shape_of(const struct row_kernel *kernel) {
    struct column_shape shape = {.across = 1};
    const int64_t typical = open_typical(kernel->loops.graph->open, kernel->columns);
    while (shape.across < WARP && shape.across < typical / kernel->loops.width) shape.across *= 2;
    shape.vectors = at_least_one(kernel->columns / kernel->loops.width);
    shape.chunks = rt_column_chunks_of(kernel->rows, shape.vectors, shape.across);
    return shape;
}

/* True if a second kernel must add up the sums of chunks or convert them to the type of the result; with open sizes in
 * any case, since there may be chunks. */
static bool is_chunked(const struct row_kernel *kernel, const struct column_shape *shape) {
    bool chunked = shape->chunks.chunks > 1 || kernel->loops.open;
    for (int o = 0; o < kernel->loops.node->noutputs; o++)
        chunked = chunked ||
                  kernel->loops.graph->tensors.at[kernel->loops.node->outputs[o]].dtype != loops_type(&kernel->loops);
    return chunked;
}

int64_t row_kernel_scratch(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const struct row_kernel kernel = new_kernel(&target_cuda, graph->arena, graph, class, node);
    const struct column_shape shape = column_shape_of(&kernel);
    const int64_t bytes = node->noutputs * (int64_t)rt_dtype_bytes(loops_type(&kernel.loops));
    if (graph->open) return bytes * rt_column_sums_most(kernel.rows, kernel.columns, MOST_ACROSS);
    return is_chunked(&kernel, &shape) ? bytes * shape.chunks.chunks * kernel.columns : 0;
}

/* Binding -------------------------------------------------------------------------------------------------------- */

static const char *const results[] = {"y", "y1", "y2", "y3", "y4", "y5"};
_Static_assert(sizeof results / sizeof *results == EXPR_VALUES, "a name for each result");

static const char *letter(const struct row_kernel *kernel, int k) {
    return arena_printf(kernel->loops.arena, "%c", 'a' + k);
}

static const char *dtype_name(const struct row_kernel *kernel) {
    return rt_dtypes[loops_type(&kernel->loops)].c_type;
}

static const char *index_of(const struct row_kernel *kernel, int k) {
    return loops_index(&kernel->loops, kernel->loops.stride[k]);
}

/* True if some input differs along loop d, so that its index is needed. */
static bool is_indexed(const struct row_kernel *kernel, int d) {
    bool indexed = false;
    for (int k = 0; k < kernel->loops.node->ninputs; k++) indexed = indexed || kernel->loops.stride[k][d];
    return indexed;
}

static void bind_loops(const struct row_kernel *kernel, struct tmpl_env *env) {
    const bool narrow = loops_are_narrow(&kernel->loops, kernel->rows * kernel->columns);
    const char *row = kernel->loops.open && narrow ? "(uint32_t)row" : "row"; /* divides by what is no constant */
    int64_t rows = 1;
    tmpl_list(env, "loops");
    const char *of_row[RT_MAX_NDIM];
    for (int d = kernel->loops.n - 2; d >= 0; d--) {
        const char *from = rows != 1
                               ? arena_printf(kernel->loops.arena, "%s / %lld", row, (long long)at_least_one(rows))
                           : d ? row
                               : "row";
        of_row[d] =
            d ? arena_printf(kernel->loops.arena, "%s %% %lld", from, (long long)at_least_one(kernel->loops.extent[d]))
              : from;
        rows *= kernel->loops.extent[d];
    }
    for (int d = 0; d < kernel->loops.n - 1; d++) {
        if (!is_indexed(kernel, d)) continue;
        struct tmpl_env *loop = tmpl_entry(env, "loops");
        tmpl_setf(loop, "index", "i%d", d);
        tmpl_set(loop, "of_row", of_row[d]);
    }
    tmpl_setf(env, "column", "i%d", kernel->loops.n - 1);
    tmpl_setf(env, "width", "%d", kernel->loops.width);
    tmpl_setf(env, "rows", "%lld", (long long)kernel->rows);
    tmpl_setf(env, "columns", "%lld", (long long)kernel->columns);
    tmpl_set(env, "type", dtype_name(kernel));
    loops_bind_open(&kernel->loops, env, narrow);
}

/* Binds the inputs that are read once per row and sets the spelling of all inputs. `part`: the index of a vector held
 * in registers, "[part]" or "". */
static void bind_inputs(struct row_kernel *kernel, struct tmpl_env *env, const char *part) {
    struct loops *loops = &kernel->loops;
    tmpl_list(env, "scalars");
    for (int k = 0; k < loops->node->ninputs; k++) {
        const char *chosen = *part && is_held(kernel, k) ? part : "";
        const char *element = varies(kernel, k) ? arena_printf(loops->arena, "v%c%s.at[lane]", 'a' + k, chosen)
                                                : arena_printf(loops->arena, "v%c", 'a' + k);
        loops->operand[k] = loops_loaded(loops, loops->node->inputs[k], element);
        if (varies(kernel, k)) continue;
        struct tmpl_env *scalar = tmpl_entry(env, "scalars");
        tmpl_set(scalar, "pointer", letter(kernel, k));
        tmpl_set(scalar, "type", loops_type_name(loops, loops->node->inputs[k]));
        tmpl_set(scalar, "at", index_of(kernel, k));
    }
}

/* Appends the inputs to the parameters, "const float *a, const uint16_t *b", and to the arguments, "a, b". */
static void put_inputs(const struct row_kernel *kernel, struct strbuf *parameters, struct strbuf *arguments) {
    for (int k = 0; k < kernel->loops.node->ninputs; k++) {
        strbuf_printf(parameters, "%sconst %s *%c", parameters->length ? ", " : "",
                      loops_type_name(&kernel->loops, kernel->loops.node->inputs[k]), 'a' + k);
        strbuf_printf(arguments, "%s%c", arguments->length ? ", " : "", 'a' + k);
    }
}

static void put_result(const struct row_kernel *kernel, struct strbuf *out, const char *type, int o) {
    strbuf_printf(out, "%s%s *%s %s", out->length ? ", " : "", type, kernel->loops.target->arguments->restricted,
                  results[o]);
}

static void bind_value(struct tmpl_env *entry, const char *name, const char *type, const char *value) {
    tmpl_setf(entry, "v", "const %s %s", type, name);
    tmpl_set(entry, "value", value);
}

static void bind_reads(const struct row_kernel *kernel, struct tmpl_env *env, int pass, bool holds) {
    bool first;
    tmpl_list(env, "reads");
    for (int k = 0; k < kernel->loops.node->ninputs; k++) {
        if (!varies(kernel, k) || !kernel->read[pass][k]) continue;
        const bool held = holds && is_held(kernel, k);
        first = true;
        for (int p = 0; p < pass; p++) first = first && !kernel->read[p][k];
        if (held && !first) continue;
        struct tmpl_env *read = tmpl_entry(env, "reads");
        tmpl_setf(read, "vector", held ? "v%c[part]" : "const auto v%c", 'a' + k);
        tmpl_set(read, "pointer", letter(kernel, k));
        tmpl_set(read, "at", index_of(kernel, k));
    }
}

static void bind_named(const struct row_kernel *kernel, struct tmpl_env *env, int pass) {
    tmpl_list(env, "named");
    for (int i = 0; i < kernel->program.nnamed; i++) {
        if (!kernel->made[pass][i]) continue;
        bind_value(tmpl_entry(env, "named"), arena_printf(kernel->loops.arena, "v%d", i), dtype_name(kernel),
                   loops_text(&kernel->loops, kernel->program.named[i].expr));
    }
}

static const struct fold {
    const char *name, *op, *identity; /* of a reduction; %s is the type */
} folds[] = {{"sum", "rt_sum_of()", "(%s)0"},
             {"max", "rt_max_of()", "rt_limits<%s>::lowest()"},
             {"min", "rt_min_of()", "rt_limits<%s>::highest()"}};

static void bind_fold(const struct row_kernel *kernel, struct tmpl_env *env, int i) {
    const struct row_value *value = &kernel->program.named[i];
    const struct fold *fold = folds;
    while (strcmp(fold->name, value->fold) != 0) fold++;
    const int before = (int)strcspn(fold->identity, "%");
    struct tmpl_env *entry = tmpl_entry(env, "folds");
    tmpl_setf(entry, "v", "v%d", i);
    tmpl_setf(entry, "sum", "s%d", i);
    tmpl_set(entry, "op", fold->op);
    tmpl_setf(entry, "identity", "%.*s%s%s", before, fold->identity, dtype_name(kernel), fold->identity + before + 2);
    tmpl_set(entry, "value", loops_text(&kernel->loops, value->expr));
}

/* Binds the results that are known in the pass: those of a row are stored before it, those of elements in it. */
static bool bind_results(const struct row_kernel *kernel, struct tmpl_env *env, int pass) {
    bool writes = false;
    tmpl_list(env, "writes");
    tmpl_list(env, "stores");
    for (int o = 0; o < kernel->program.nvalues; o++) {
        const struct row_value *value = &kernel->program.value[o];
        if (value->phase != pass) continue;
        writes = writes || value->varies;
        struct tmpl_env *entry = tmpl_entry(env, value->varies ? "writes" : "stores");
        tmpl_set(entry, "pointer", results[o]);
        tmpl_set(entry, "type", loops_type_name(&kernel->loops, kernel->loops.node->outputs[o]));
        tmpl_set(entry, "value", loops_stored(&kernel->loops, o, loops_text(&kernel->loops, value->expr)));
    }
    return writes;
}

/* Binds a pass over the row: first the named values of the whole row that are known before it ("known"), then the
 * reductions, results and reads of a loop over the columns, if there are any. */
static void bind_pass(const struct row_kernel *kernel, struct tmpl_env *env, int pass, bool holds) {
    bool folded = false;
    tmpl_list(env, "known");
    tmpl_list(env, "folds");
    for (int i = 0; i < kernel->program.nnamed; i++) {
        const struct row_value *value = &kernel->program.named[i];
        if (value->phase != pass) continue;
        folded = folded || value->fold;
        if (value->fold)
            bind_fold(kernel, env, i);
        else if (!value->varies)
            bind_value(tmpl_entry(env, "known"), arena_printf(kernel->loops.arena, "v%d", i), dtype_name(kernel),
                       loops_text(&kernel->loops, value->expr));
    }
    bool writes = bind_results(kernel, env, pass);
    tmpl_set(env, "loop", folded || writes ? "yes" : "");
    bind_reads(kernel, env, pass, holds);
    bind_named(kernel, env, pass);
}

static void bind_held(const struct row_kernel *kernel, struct tmpl_env *env, bool holds) {
    tmpl_list(env, "held");
    for (int k = 0; k < kernel->loops.node->ninputs && holds; k++) {
        if (!is_held(kernel, k)) continue;
        struct tmpl_env *held = tmpl_entry(env, "held");
        tmpl_set(held, "pointer", letter(kernel, k));
        tmpl_set(held, "type", loops_type_name(&kernel->loops, kernel->loops.node->inputs[k]));
    }
}

/* The number of blocks that compute the rows, `each` rows each: an expression where it is open. */
static const char *blocks_text(const struct row_kernel *kernel, int each) {
    struct open_sizes *open = kernel->loops.graph->open;
    if (each == 1 || !open_is(open, kernel->rows))
        return arena_printf(kernel->loops.arena, "%lld", (long long)ceil_div(kernel->rows, each));
    return arena_printf(kernel->loops.arena, "(%lld + %d) / %d", (long long)kernel->rows, each - 1, each);
}

static const char *bind_rows(struct row_kernel *kernel, struct tmpl_env *env) {
    const struct row_shape shape = row_shape_of(kernel);
    const bool holds = shape.parts > 0;
    struct strbuf parameters, arguments;
    strbuf_init(&parameters, kernel->loops.arena);
    strbuf_init(&arguments, kernel->loops.arena);
    for (int o = 0; o < kernel->loops.node->noutputs; o++) {
        put_result(kernel, &parameters, loops_type_name(&kernel->loops, kernel->loops.node->outputs[o]), o);
        strbuf_printf(&arguments, "%s%s", o ? ", " : "", results[o]);
    }
    put_inputs(kernel, &parameters, &arguments);
    bind_loops(kernel, env);
    bind_inputs(kernel, env, holds ? "[part]" : "");
    bind_held(kernel, env, holds);
    for (int p = 0; p <= kernel->program.passes; p++) bind_pass(kernel, tmpl_entry(env, "passes"), p, holds);
    tmpl_set(env, "each", holds ? "RT_EACH_HELD" : "RT_EACH_READ");
    tmpl_setf(env, "threads", "%d", shape.threads);
    tmpl_setf(env, "block", "%d", shape.block);
    tmpl_setf(env, "parts", "%d", shape.parts);
    tmpl_set(env, "blocks", blocks_text(kernel, shape.block / shape.threads));
    tmpl_set(env, "parameters", strbuf_text(&parameters));
    tmpl_set(env, "arguments", strbuf_text(&arguments));
    return kernel->loops.target->rows_template;
}

/* Binds each sum of columns: its variable, the scratch memory of its chunks, and its result, which 16-bit types
 * round. */
static void bind_sums(struct row_kernel *kernel, struct tmpl_env *env, const struct column_shape *shape) {
    const bool chunked = is_chunked(kernel, shape);
    struct strbuf parameters, sums, parts;
    strbuf_init(&parameters, kernel->loops.arena);
    strbuf_init(&sums, kernel->loops.arena);
    strbuf_init(&parts, kernel->loops.arena);
    for (int o = 0; o < kernel->loops.node->noutputs; o++) {
        const int y = kernel->loops.node->outputs[o];
        const bool half = rt_dtypes[kernel->loops.graph->tensors.at[y].dtype].kind == RT_KIND_HALF;
        const int64_t offset = o * shape->chunks.chunks * kernel->columns;
        struct tmpl_env *fold = tmpl_entry(env, "folds");
        put_result(kernel, &parameters, loops_type_name(&kernel->loops, y), o);
        put_result(kernel, &sums, dtype_name(kernel), o);
        const char *from = arena_printf(kernel->loops.arena, offset ? "parts + %lld" : "parts", (long long)offset);
        if (kernel->loops.open && o)
            from = arena_printf(kernel->loops.arena, "parts + at.chunks * %lld", (long long)(o * kernel->columns));
        strbuf_printf(&parts, "%s%s", o ? ", " : "", chunked ? from : results[o]);
        tmpl_setf(fold, "sum", "s%d", o);
        tmpl_set(fold, "from", from);
        tmpl_set(fold, "pointer", results[o]);
        tmpl_setf(fold, "element", half ? "rt_element_%s" : "%s",
                  half ? rt_dtypes[kernel->loops.graph->tensors.at[y].dtype].name : dtype_name(kernel));
        tmpl_set(fold, "value", loops_text(&kernel->loops, kernel->program.value[o].expr));
    }
    tmpl_set(env, "results", strbuf_text(&parameters));
    tmpl_set(env, "sums", strbuf_text(&sums));
    tmpl_set(env, "parts", strbuf_text(&parts));
    tmpl_set(env, "chunked", chunked ? "yes" : "");
    tmpl_setf(env, "nsums", "%d", kernel->loops.node->noutputs);
}

/* Binds the chunks: numbers, or members of `at`, which the host computes from open sizes. */
static void bind_chunks(const struct row_kernel *kernel, struct tmpl_env *env, const struct column_shape *shape) {
    const struct rt_column_chunks *chunks = &shape->chunks;
    const bool open = kernel->loops.open;
    const struct {
        const char *name, *member;
        int64_t value;
    } rows[] = {{"groups", "at.groups", chunks->groups},
                {"chunks", "at.chunks", chunks->chunks},
                {"length", "at.length", chunks->length},
                {"blocks", "at.groups * at.chunks", chunks->groups * chunks->chunks}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (open)
            tmpl_set(env, rows[i].name, rows[i].member);
        else
            tmpl_setf(env, rows[i].name, "%lld", (long long)rows[i].value);
    tmpl_setf(env, "across", "%d", shape->across);
    tmpl_setf(env, "vectors", "%lld", (long long)shape->vectors);
    tmpl_set(env, "chunks_parameter", open ? ", rt_column_chunks at" : "");
    tmpl_set(env, "chunks_argument", open ? ", at" : "");
}

/* Sums over columns have a single pass, which needs all values, even those that are the same for a whole row. */
static void want_values(struct row_kernel *kernel) {
    for (int i = 0; i < kernel->program.nnamed; i++) kernel->program.named[i].varies = true;
    for (int i = 0; i < kernel->program.nvalues; i++) want(kernel, 0, kernel->program.value[i].expr);
}

static const char *bind_columns(struct row_kernel *kernel, struct tmpl_env *env) {
    const struct column_shape shape = column_shape_of(kernel);
    struct strbuf parameters, arguments;
    strbuf_init(&parameters, kernel->loops.arena);
    strbuf_init(&arguments, kernel->loops.arena);
    put_inputs(kernel, &parameters, &arguments);
    want_values(kernel);
    bind_loops(kernel, env);
    bind_inputs(kernel, env, "");
    bind_reads(kernel, env, 0, false);
    bind_named(kernel, env, 0);
    bind_sums(kernel, env, &shape);
    bind_chunks(kernel, env, &shape);
    tmpl_set(env, "parameters", strbuf_text(&parameters));
    tmpl_set(env, "arguments", strbuf_text(&arguments));
    return kernel->loops.target->columns_template;
}

const char *row_kernel_call(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                            int id, int **tensors, int *n) {
    struct arena *arena = plan->graph->arena;
    const struct node *node = &plan->graph->nodes.at[id];
    struct row_kernel kernel = new_kernel(kernels->target, arena, plan->graph, class, node);
    struct tmpl_env *env = tmpl_env(arena, NULL);
    const char *template = (node->op->id == OP_Rows ? bind_rows : bind_columns)(&kernel, env);
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
