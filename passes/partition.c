/* Gives every computed tensor the layout in which its producer leaves it. Nodes that add partial values to partial
 * values keep them partial, so that one reduction serves for all; and so do views, so that it may wait until the sum is wanted. */
#include "passes/pipeline.h"
#include "passes/redist.h"

static struct holding partial_sum(void) {
    return (struct holding){.kind = HOLD_PARTIAL, .reduce = REDUCE_SUM};
}

static bool is_partial_sum(const struct graph *graph, int tensor, int axis) {
    struct holding sum = partial_sum();
    return tensor >= 0 && holding_equal(&graph->tensors.at[tensor].layout.axis[axis], &sum);
}

struct holding redist_wanted(const struct graph *graph, const struct dims *dims, const struct node *node,
                             int operand, int axis) {
    if (node->split[axis].factor != SPLIT_PARTIAL) return dims_holding(dims, operand, &node->split[axis]);
    return is_partial_sum(graph, node->inputs[operand], axis) ? partial_sum() : (struct holding){HOLD_WHOLE};
}

struct holding redist_given(const struct dims *dims, const struct node *node, int output, int axis) {
    return node->split[axis].factor == SPLIT_PARTIAL ? partial_sum()
                                                     : dims_holding(dims, dims->ninputs + output, &node->split[axis]);
}

/* Nobody but one node reads the tensor. */
static bool has_one_reader(const struct graph *graph, const struct uses *uses, int tensor) {
    for (int i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i] == tensor) return false;
    for (int i = 0; i < graph->updates.n; i++)
        if (graph->updates.at[i].value == tensor) return false;
    return uses->first[tensor + 1] - uses->first[tensor] == 1;
}

/* Several partial inputs and nothing else: their sum may stay partial. So may the view of a value that is not wanted whole
 * beside it. */
static bool passes_partial(const struct graph *graph, const struct uses *uses, const struct node *node, int axis) {
    if (node->op->linear != LINEAR_ALL || node->split[axis].factor >= 0) return false;
    if (node->ninputs < 2 && (node->op->class != OP_VIEW || !has_one_reader(graph, uses, node->inputs[0]))) return false;
    for (int k = 0; k < node->ninputs; k++)
        if (!is_partial_sum(graph, node->inputs[k], axis)) return false;
    return true;
}

int pass_partition(struct graph *graph, const struct pass_context *context) {
    const char *why;
    struct uses uses;
    (void)context;
    graph_uses(graph, graph->arena, &uses);
    for (int i = 0; i < graph->order.n; i++) VEC_PUSH(graph->arena, &graph->placed, graph->order.at[i]);
    for (int i = 0; i < graph->order.n; i++) {
        struct node *node = &graph->nodes.at[graph->order.at[i]];
        struct dims dims;
        if (dims_bind(graph->arena, graph, node, &dims, &why) < 0) BUG("%s: %s", node->name, why);
        for (int axis = 0; axis < graph->mesh.naxes; axis++) {
            if (passes_partial(graph, &uses, node, axis)) node->split[axis].factor = SPLIT_PARTIAL;
            for (int k = 0; k < node->noutputs; k++)
                if (node->outputs[k] >= 0)
                    graph->tensors.at[node->outputs[k]].layout.axis[axis] = redist_given(&dims, node, k, axis);
        }
    }
    return 0;
}
