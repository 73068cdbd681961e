/* Heads of keys and values for more ranks than there are. In grouped-query attention kv heads of keys and values are
 * each shared by a group of g query heads. Ranks divide kv, or along tensor g; where neither has as many heads as there
 * are ranks, each key head is repeated for parts of its group, so that queries and keys can be divided alike. Each rank
 * gathers its heads from the whole keys and values, which all ranks have (Shazeer 2019, "Fast transformer decoding",
 * arXiv 1911.02150, keeps the single head of multi-query attention on every rank likewise).
 *
 * Heads are repeated no more often than the ranks need if they divide them evenly, else once for each query head. Those
 * of a cache (Note [State] in state.c) are repeated as rows are added to it, so that no step repeats the past. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* The ranks that divide heads: those along tensor, and along context where the policy asks for it. */
struct dividing {
    struct build builder;
    int64_t tensor, context;
    const int *readers;
    /* per node that was there before: how often an attention's heads are repeated; those of rows that it adds */
    int64_t *times, *cached;
};

/* Operands of attention with heads of keys and values: of codes, their scales too. */
static const int kept[] = {1, 2, 6, 7};
enum { KEYS = 1, NKEPT = 4 };

/* How often each of `heads` key heads is repeated, if `group` query heads share it. The gradient of flash attention
 * does not divide the group. */
static int64_t times_for(int64_t heads, int64_t group, bool trains_flash, const struct dividing *by) {
    const int64_t ways = by->tensor * by->context;
    const bool divides_group = by->context == 1 && group >= ways && !trains_flash;
    if (heads >= ways || divides_group || heads * group < ways) return 1;
    for (int64_t times = 1; times < group; times++)
        if (group % times == 0 && heads * times % ways == 0) return times;
    return group;
}

/* For each of the repeated heads, which one it is. */
static int add_numbers(const struct build *builder, int64_t heads, int64_t times) {
    struct arena *arena = builder->graph->arena;
    const int64_t n = heads * times;
    int64_t *head = ARENA_ARRAY(arena, int64_t, n);
    for (int64_t i = 0; i < n; i++) head[i] = i / times;
    return graph_add_const(builder->graph, arena_printf(arena, "%s.heads", builder->node), RT_I64, 1, &n, head);
}

/* The node that adds rows to the cache of which tensor `seen` is all or a slice; NULL: it is of no cache. */
static const struct node *writer_of(const struct graph *graph, int seen) {
    const struct node *slice = made_by(graph, seen, OP_Slice);
    const int cache = slice ? slice->inputs[0] : seen;
    const struct node *append = made_by(graph, cache, OP_Append);
    return append ? append : made_by(graph, cache, OP_ScatterND);
}

/* True if the node adds rows to each head. */
static bool adds_to_heads(const struct node *writer, int heads) {
    if (writer->op->id == OP_Append) return attr_int(writer, "axis", -1) != heads;
    return attr_int(writer, "batch_dims", 0) == heads + 1 && attr_int(writer, "depth", 0) == 1;
}

/* The node that adds rows to the cache of which the operand has all heads; -1: the operand is of no cache, or others
 * read the cache. */
static int cache_of(const struct dividing *by, int operand) {
    const struct graph *graph = by->builder.graph;
    const struct node *writer = writer_of(graph, operand);
    if (!writer || by->readers[writer->inputs[0]] != 1) return -1;
    const struct tensor *seen = &graph->tensors.at[operand], *state = &graph->tensors.at[writer->inputs[0]];
    const int axis = seen->ndim - 3;
    const bool sliced = operand != writer->outputs[0];
    if (sliced && by->readers[operand] != 1) return -1;
    if (by->readers[writer->outputs[0]] != 2 /* one beside the update */ || state->kind != TENSOR_STATE) return -1;
    if (!adds_to_heads(writer, axis) || seen->dims[axis] != state->dims[axis]) return -1;
    return graph->tensors.at[writer->outputs[0]].producer;
}

/* True if the graph, as text IR may, says already what ranks divide of the node: factors by their numbers, of which
 * heads that are repeated leave fewer. */
static bool is_divided(const struct graph *graph, const struct node *node) {
    for (int axis = 0; axis < graph->mesh.naxes; axis++)
        if (node->split[axis].factor >= 0) return true;
    return false;
}

static int64_t times_of(const struct dividing *by, const struct node *node) {
    const struct graph *graph = by->builder.graph;
    if ((node->op->id != OP_Attention && node->op->id != OP_FlashAttention) || is_divided(graph, node)) return 1;
    const struct tensor *q = &graph->tensors.at[node->inputs[0]], *k = &graph->tensors.at[node->inputs[KEYS]];
    const int64_t axis = k->ndim - 3, heads = k->dims[axis];
    return times_for(heads, q->dims[axis] / heads, graph->train && node->op->id == OP_FlashAttention, by);
}

static void find_caches(struct dividing *by) {
    struct graph *graph = by->builder.graph;
    by->readers = graph_readers(graph, graph->arena);
    by->times = ARENA_ARRAY(graph->arena, int64_t, graph->nodes.n + 1);
    by->cached = ARENA_ARRAY(graph->arena, int64_t, graph->nodes.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        const int64_t times = by->times[graph->order.at[i]] = times_of(by, node);
        for (int k = 0; k < NKEPT && kept[k] < node->ninputs && times > 1; k++) {
            const int writer = cache_of(by, node->inputs[kept[k]]);
            if (writer >= 0) by->cached[writer] = times;
        }
    }
}

/* The tensor with the heads that are numbered, along its third dimension from behind. */
static int pick_heads(struct build *builder, int tensor, int numbers) {
    const struct attr attr = attr_of_int("axis", builder->graph->tensors.at[tensor].ndim - 3);
    return build(builder, OP_Gather, 2, (int[]){tensor, numbers}, 1, &attr);
}

static int add_numbers_for(const struct build *builder, int tensor, int64_t times) {
    const struct tensor *t = &builder->graph->tensors.at[tensor];
    return add_numbers(builder, t->dims[t->ndim - 3], times);
}

/* Repeats the heads of rows that are added to a cache, of their places, and of the cache. */
static int repeat_rows(struct dividing *by, int id) {
    struct graph *graph = by->builder.graph;
    const struct node writer = graph->nodes.at[id];
    const int64_t times = by->cached[id];
    by->builder.node = writer.name;
    const int numbers = add_numbers_for(&by->builder, writer.inputs[1], times);
    for (int i = 1; i < writer.ninputs; i++) {
        const int rows = pick_heads(&by->builder, writer.inputs[i], numbers);
        if (rows < 0) return -1;
        writer.inputs[i] = rows;
    }
    const int cache[] = {writer.inputs[0], writer.outputs[0]};
    for (int i = 0; i < 2; i++) {
        struct tensor *t = &graph->tensors.at[cache[i]];
        t->dims[t->ndim - 3] *= times;
    }
    return REWRITE_KEPT;
}

/* True for what a slice of such a cache sees. */
static bool is_repeated(const struct dividing *by, int tensor) {
    const struct graph *graph = by->builder.graph;
    const struct node *writer = writer_of(graph, tensor);
    return writer && by->cached[graph->tensors.at[writer->outputs[0]].producer];
}

/* A slice of such a cache has its heads. */
static void see_repeated(struct graph *graph, struct node *slice) {
    const struct tensor *cache = &graph->tensors.at[slice->inputs[0]];
    struct tensor *seen = &graph->tensors.at[slice->outputs[0]];
    int64_t size[RT_MAX_NDIM];
    seen->dims[seen->ndim - 3] = cache->dims[cache->ndim - 3];
    for (int d = 0; d < seen->ndim; d++) size[d] = seen->dims[d];
    attr_set(graph, slice, attr_of_ints("size", seen->ndim, size));
}

/* Repeats the heads of the node's keys and values, if it is an attention; as rewrite_each wants it. */
static int repeat_heads(void *env, int id) {
    struct dividing *by = env;
    struct build *builder = &by->builder;
    struct graph *graph = builder->graph;
    struct node *node = &graph->nodes.at[id];
    if (by->cached[id]) return repeat_rows(by, id);
    if (node->op->id == OP_Slice && is_repeated(by, node->outputs[0])) see_repeated(graph, node);
    const int64_t times = by->times[id];
    if (times <= 1) return REWRITE_KEPT;
    builder->node = node->name;
    int numbers = -1;
    for (int i = 0; i < NKEPT && kept[i] < graph->nodes.at[id].ninputs; i++) {
        const int operand = graph->nodes.at[id].inputs[kept[i]];
        if (is_repeated(by, operand)) continue;
        if (numbers < 0) numbers = add_numbers_for(builder, operand, times);
        const int more = pick_heads(builder, operand, numbers);
        if (more < 0) return -1;
        graph->nodes.at[id].inputs[kept[i]] = more;
    }
    return REWRITE_KEPT;
}

static int64_t ways_along(const struct graph *graph, enum axis_role role) {
    const int axis = mesh_axis(&graph->mesh, role);
    return axis < 0 ? 1 : graph->mesh.axis[axis].size;
}

int pass_repeat_heads(struct graph *graph, const struct pass_context *context) {
    const int64_t context_ways = ways_along(graph, AXIS_CONTEXT);
    struct dividing by = {.builder = {graph, context->diags, NULL},
                          .tensor = ways_along(graph, AXIS_TENSOR),
                          .context = context->decisions.attention == ATTENTION_HEADS ? context_ways : 1};
    if (by.tensor * by.context == 1) return 0;
    find_caches(&by);
    return rewrite_each(graph, repeat_heads, &by);
}
