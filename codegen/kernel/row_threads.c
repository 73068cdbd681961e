#include "codegen/kernel/row_threads.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/kernel/row_kernel_of.h"
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

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
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

static void want_all(struct row_kernel *kernel) {
    const struct row_program *program = &kernel->program;
    for (int i = 0; i < program->nnamed; i++)
        if (program->named[i].fold) want(kernel, program->named[i].phase, program->named[i].expr);
    for (int i = 0; i < program->nvalues; i++)
        if (program->value[i].varies) want(kernel, program->value[i].phase, program->value[i].expr);
}

/* True if input k stays in registers between passes (Note [Rows in registers]). */
static bool is_held(const struct row_kernel *kernel, int k) {
    int reads = 0;
    for (int p = 0; p < kernel->program.passes; p++) reads += kernel->read[p][k];
    return row_kernel_varies(kernel, k) && row_kernel_differs(kernel, k) && reads > 1;
}

/* Bytes of registers that a thread needs for `elements` elements of each input of its row. */
static int64_t held_bytes(const struct row_kernel *kernel, int64_t elements) {
    int64_t bytes = 0;
    for (int k = 0; k < kernel->loops.node->ninputs; k++)
        if (row_kernel_varies(kernel, k) && row_kernel_differs(kernel, k))
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

int64_t row_threads_scratch(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const struct row_kernel kernel = row_kernel_new(&target_cuda, graph->arena, graph, class, node);
    const struct column_shape shape = column_shape_of(&kernel);
    const int64_t bytes = node->noutputs * (int64_t)rt_dtype_bytes(loops_type(&kernel.loops));
    if (graph->open) return bytes * rt_column_sums_most(kernel.rows, kernel.columns, MOST_ACROSS);
    return is_chunked(&kernel, &shape) ? bytes * shape.chunks.chunks * kernel.columns : 0;
}

/* Binds the inputs that are read once per row and sets the spelling of all inputs. `part`: the index of a vector held
 * in registers, "[part]" or "". */
static void bind_inputs(struct row_kernel *kernel, struct tmpl_env *env, const char *part) {
    struct loops *loops = &kernel->loops;
    tmpl_list(env, "scalars");
    for (int k = 0; k < loops->node->ninputs; k++) {
        const char *chosen = *part && is_held(kernel, k) ? part : "";
        const char *element = row_kernel_varies(kernel, k)
                                  ? arena_printf(loops->arena, "v%c%s.at[lane]", 'a' + k, chosen)
                                  : arena_printf(loops->arena, "v%c", 'a' + k);
        loops->operand[k] = loops_loaded(loops, loops->node->inputs[k], element);
        if (row_kernel_varies(kernel, k)) continue;
        struct tmpl_env *scalar = tmpl_entry(env, "scalars");
        tmpl_set(scalar, "pointer", row_kernel_input(kernel, k));
        tmpl_set(scalar, "type", loops_type_name(loops, loops->node->inputs[k]));
        tmpl_set(scalar, "at", row_kernel_index(kernel, k));
    }
}

/* Appends the inputs to the arguments of a launch, "a, b". */
static void put_arguments(const struct row_kernel *kernel, struct strbuf *arguments) {
    for (int k = 0; k < kernel->loops.node->ninputs; k++)
        strbuf_printf(arguments, "%s%c", arguments->length ? ", " : "", 'a' + k);
}

static void bind_reads(const struct row_kernel *kernel, struct tmpl_env *env, int pass, bool holds) {
    tmpl_list(env, "reads");
    for (int k = 0; k < kernel->loops.node->ninputs; k++) {
        if (!row_kernel_varies(kernel, k) || !kernel->read[pass][k]) continue;
        const bool held = holds && is_held(kernel, k);
        if (held && row_kernel_was_read(kernel, pass, k)) continue;
        struct tmpl_env *read = tmpl_entry(env, "reads");
        tmpl_setf(read, "vector", held ? "v%c[part]" : "const auto v%c", 'a' + k);
        tmpl_set(read, "pointer", row_kernel_input(kernel, k));
        tmpl_set(read, "at", row_kernel_index(kernel, k));
    }
}

static void bind_named(const struct row_kernel *kernel, struct tmpl_env *env, int pass) {
    tmpl_list(env, "named");
    for (int i = 0; i < kernel->program.nnamed; i++) {
        if (!kernel->made[pass][i]) continue;
        row_kernel_bind_value(tmpl_entry(env, "named"), arena_printf(kernel->loops.arena, "v%d", i),
                              row_kernel_type(kernel), loops_text(&kernel->loops, kernel->program.named[i].expr));
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
    tmpl_setf(entry, "identity", "%.*s%s%s", before, fold->identity, row_kernel_type(kernel),
              fold->identity + before + 2);
    tmpl_set(entry, "value", loops_text(&kernel->loops, value->expr));
}

/* Binds a pass over the row: first the named values of the whole row that are known before it ("known"), then the
 * reductions, results and reads of a loop over the columns, if there are any. */
static void bind_pass(const struct row_kernel *kernel, struct tmpl_env *env, int pass, bool holds) {
    bool folded = false;
    tmpl_list(env, "known");
    tmpl_list(env, "folds");
    EACH(kernel->program.named, kernel->program.nnamed, i, const struct row_value *value) {
        if (value->phase != pass) continue;
        folded = folded || value->fold;
        if (value->fold)
            bind_fold(kernel, env, i);
        else if (!value->varies)
            row_kernel_bind_value(tmpl_entry(env, "known"), arena_printf(kernel->loops.arena, "v%d", i),
                                  row_kernel_type(kernel), loops_text(&kernel->loops, value->expr));
    }
    const bool writes = row_kernel_bind_results(kernel, env, pass);
    tmpl_set(env, "loop", folded || writes ? "yes" : "");
    bind_reads(kernel, env, pass, holds);
    bind_named(kernel, env, pass);
}

static void bind_held(const struct row_kernel *kernel, struct tmpl_env *env, bool holds) {
    tmpl_list(env, "held");
    for (int k = 0; k < kernel->loops.node->ninputs && holds; k++) {
        if (!is_held(kernel, k)) continue;
        struct tmpl_env *held = tmpl_entry(env, "held");
        tmpl_set(held, "pointer", row_kernel_input(kernel, k));
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

static void bind_rows(struct row_kernel *kernel, struct tmpl_env *env) {
    want_all(kernel);
    const struct row_shape shape = row_shape_of(kernel);
    const bool holds = shape.parts > 0;
    struct strbuf parameters = {.arena = kernel->loops.arena}, arguments = {.arena = kernel->loops.arena};
    for (int o = 0; o < kernel->loops.node->noutputs; o++) {
        row_kernel_put_result(kernel, &parameters, loops_type_name(&kernel->loops, kernel->loops.node->outputs[o]), o);
        strbuf_printf(&arguments, "%s%s", o ? ", " : "", row_kernel_results[o]);
    }
    row_kernel_put_inputs(kernel, &parameters);
    put_arguments(kernel, &arguments);
    row_kernel_bind_loops(kernel, env);
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
}

/* Binds each sum of columns: its variable, the scratch memory of its chunks, and its result, which 16-bit types
 * round. */
static void bind_sums(struct row_kernel *kernel, struct tmpl_env *env, const struct column_shape *shape) {
    const bool chunked = is_chunked(kernel, shape);
    struct strbuf parameters = {.arena = kernel->loops.arena}, sums = {.arena = kernel->loops.arena},
                  parts = {.arena = kernel->loops.arena};
    EACH_VALUE(kernel->loops.node->outputs, kernel->loops.node->noutputs, o, const int y) {
        const bool half = rt_dtypes[kernel->loops.graph->tensors.at[y].dtype].kind == RT_KIND_HALF;
        const int64_t offset = o * shape->chunks.chunks * kernel->columns;
        struct tmpl_env *fold = tmpl_entry(env, "folds");
        row_kernel_put_result(kernel, &parameters, loops_type_name(&kernel->loops, y), o);
        row_kernel_put_result(kernel, &sums, row_kernel_type(kernel), o);
        const char *from = arena_printf(kernel->loops.arena, offset ? "parts + %lld" : "parts", (long long)offset);
        if (kernel->loops.open && o)
            from = arena_printf(kernel->loops.arena, "parts + at.chunks * %lld", (long long)(o * kernel->columns));
        strbuf_printf(&parts, "%s%s", o ? ", " : "", chunked ? from : row_kernel_results[o]);
        tmpl_setf(fold, "sum", "s%d", o);
        tmpl_set(fold, "from", from);
        tmpl_set(fold, "pointer", row_kernel_results[o]);
        tmpl_setf(fold, "element", half ? "rt_element_%s" : "%s",
                  half ? rt_dtypes[kernel->loops.graph->tensors.at[y].dtype].name : row_kernel_type(kernel));
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

static void bind_columns(struct row_kernel *kernel, struct tmpl_env *env) {
    const struct column_shape shape = column_shape_of(kernel);
    struct strbuf parameters = {.arena = kernel->loops.arena}, arguments = {.arena = kernel->loops.arena};
    row_kernel_put_inputs(kernel, &parameters);
    put_arguments(kernel, &arguments);
    want_values(kernel);
    row_kernel_bind_loops(kernel, env);
    bind_inputs(kernel, env, "");
    bind_reads(kernel, env, 0, false);
    bind_named(kernel, env, 0);
    bind_sums(kernel, env, &shape);
    bind_chunks(kernel, env, &shape);
    tmpl_set(env, "parameters", strbuf_text(&parameters));
    tmpl_set(env, "arguments", strbuf_text(&arguments));
}

const struct row_writer row_threads = {bind_rows, bind_columns};
