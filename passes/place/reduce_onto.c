/* Joins the reduction of a micro-batch's gradient over scale units with the node that adds it to the sum of the
 * micro-batches before. The ranks' gradients are then added to that sum one after the other, as a single rank adds its
 * micro-batches: with ZeRO 2 and 3 the sums have the bits that they have on one rank. */
#include "ir/op.h"
#include "passes/pipeline.h"

/* The operator that adds the result of `reduction` to a sum; OP_NONE: there is none, or it is along no replica axis. */
static enum op_id onto(const struct graph *graph, const struct node *reduction) {
    if (attr_int(reduction, "mesh", -1) < graph->mesh.naxes) return OP_NONE;
    if (reduction->op->id == OP_AllReduce) return OP_AllReduceOnto;
    return reduction->op->id == OP_ReduceScatter ? OP_ReduceScatterOnto : OP_NONE;
}

/* The reduction over scale units whose result the node alone reads and adds to a sum, in the same phase; -1: none. */
static int reduction_of(const struct graph *graph, const int *readers, const struct node *node) {
    const int gradient = node->op->id == OP_Accumulate ? node->inputs[1] : -1;
    const struct node *producer = graph_producer(graph, gradient);
    if (!producer || readers[gradient] != 1 || producer->phase != node->phase) return -1;
    return onto(graph, producer) == OP_NONE ? -1 : graph->tensors.at[gradient].producer;
}

int pass_reduce_onto(struct graph *graph, const struct pass_context *context) {
    const int *readers = graph_readers(graph, graph->arena);
    bool *gone = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    (void)context;
    GRAPH_EACH(graph, i, struct node *const node) {
        const int id = reduction_of(graph, readers, node);
        if (id < 0) continue;
        const struct node *reduction = &graph->nodes.at[id];
        gone[id] = true;
        node->op = &ops[onto(graph, reduction)];
        node->ninputs = 2;
        node->inputs[1] = reduction->inputs[0];
        node->attrs = reduction->attrs;
        node->nattrs = reduction->nattrs;
        for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++)
            node->split[axis] = (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
    }
    graph_keep(graph, gone, false);
    return 0;
}
