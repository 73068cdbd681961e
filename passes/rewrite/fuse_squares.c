/* Joins a sum of squares with the addition to the sum so far, so that the norm of the gradients is one sum in one place
 * to which every gradient adds its squares in turn:
 *
 *   s = SumSquares(gradient); total = Add(before, s)      total = AddSquares(before, gradient)
 *
 * The order of the additions stays. Runs after the plan is applied, since partial sums are regrouped and reduced
 * between such additions; both operands have the result's layout then. */
#include "ir/op.h"
#include "passes/pipeline.h"

/* The SumSquares that computes the operand, if only this node reads it and both are in the same stage and phase; else
 * -1. */
static int squares_before(const struct graph *graph, const int *readers, const struct node *add, int operand) {
    const int tensor = add->inputs[operand];
    const struct node *node = made_by(graph, tensor, OP_SumSquares);
    const bool together = node && readers[tensor] == 1 && node->stage == add->stage && node->phase == add->phase;
    return together ? graph->tensors.at[tensor].producer : -1;
}

/* True if all three have one element in f64 and lie alike. */
static bool fits(const struct graph *graph, const struct node *add) {
    const struct tensor *sum = &graph->tensors.at[add->outputs[0]];
    bool same = sum->dtype == RT_F64 && sum->ndim == 0;
    for (int k = 0; k < 2 && same; k++) {
        const struct tensor *operand = &graph->tensors.at[add->inputs[k]];
        same = operand->dtype == RT_F64 && operand->ndim == 0 && layout_equal(&operand->layout, &sum->layout);
    }
    return same;
}

static void join(struct graph *graph, const int *readers, bool *gone, struct node *add) {
    for (int k = 1; k >= 0; k--) {
        const int id = squares_before(graph, readers, add, k);
        if (id < 0) continue;
        const struct node *squares = &graph->nodes.at[id];
        const int before = add->inputs[1 - k];
        gone[id] = true;
        add->op = &ops[OP_AddSquares];
        add->name = squares->name; /* of the gradient: a regrouped addition has another's */
        graph->tensors.at[add->outputs[0]].name = graph->tensors.at[squares->outputs[0]].name;
        add->inputs[0] = before;
        add->inputs[1] = squares->inputs[0];
        for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++) add->split[axis] = squares->split[axis];
        return;
    }
}

int pass_fuse_squares(struct graph *graph, const struct pass_context *context) {
    const int *readers = graph_readers(graph, graph->arena);
    bool *gone = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    (void)context;
    GRAPH_EACH(graph, i, struct node *const node)
        if (node->op->id == OP_Add && fits(graph, node)) join(graph, readers, gone, node);
    graph_keep(graph, gone, false);
    return 0;
}
