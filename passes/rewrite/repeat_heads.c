/* Heads of keys and values for more ranks than there are. In grouped-query attention kv heads of keys and values are
 * each shared by a group of g query heads. Ranks divide kv, or along tensor g; where neither has as many heads as there
 * are ranks, each key head is repeated for parts of its group, so that queries and keys can be divided alike. Each rank
 * gathers its heads from the whole keys and values, which all ranks have (Shazeer 2019, "Fast transformer decoding",
 * arXiv 1911.02150, keeps the single head of multi-query attention on every rank likewise).
 *
 * Heads are repeated no more often than the ranks need if they divide them evenly, else once for each query head. */
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* The ranks that divide heads: those along tensor, and along context where the policy asks for it. */
struct dividing {
    struct build builder;
    int64_t tensor, context;
};

/* How often each of `heads` key heads is repeated, if `group` query heads share it. */
static int64_t times_for(int64_t heads, int64_t group, const struct dividing *by) {
    const int64_t ways = by->tensor * by->context;
    const bool divides_group = by->context == 1 && group >= ways;
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

/* Repeats the heads of the node's keys and values, if it is an attention; as rewrite_each wants it. */
static int repeat_heads(void *env, int id) {
    enum { KEYS = 1, VALUES = 2 };
    struct dividing *by = env;
    struct build *builder = &by->builder;
    struct graph *graph = builder->graph;
    const struct node *node = &graph->nodes.at[id];
    if (node->op->id != OP_Attention && node->op->id != OP_FlashAttention) return REWRITE_KEPT;
    const struct tensor *q = &graph->tensors.at[node->inputs[0]], *k = &graph->tensors.at[node->inputs[KEYS]];
    const int64_t axis = k->ndim - 3, heads = k->dims[axis];
    const int64_t times = times_for(heads, q->dims[axis] / heads, by);
    const struct attr attr = attr_of_int("axis", axis);
    if (times == 1) return REWRITE_KEPT;
    builder->node = node->name;
    const int numbers = add_numbers(builder, heads, times);
    for (int i = KEYS; i <= VALUES; i++) {
        const int repeated = build(builder, OP_Gather, 2, (int[]){graph->nodes.at[id].inputs[i], numbers}, 1, &attr);
        if (repeated < 0) return -1;
        graph->nodes.at[id].inputs[i] = repeated;
    }
    return REWRITE_KEPT;
}

static int64_t ways_along(const struct graph *graph, enum axis_role role) {
    const int axis = mesh_axis(&graph->mesh, role);
    return axis < 0 ? 1 : graph->mesh.axis[axis].size;
}

int pass_repeat_heads(struct graph *graph, const struct pass_context *context) {
    struct dividing by = {{graph, context->diags, NULL},
                          ways_along(graph, AXIS_TENSOR),
                          context->decisions.attention == ATTENTION_HEADS ? ways_along(graph, AXIS_CONTEXT) : 1};
    return by.tensor * by.context == 1 ? 0 : rewrite_each(graph, repeat_heads, &by);
}
