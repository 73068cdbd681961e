/* Sequence parallelism beside tensor parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models", arXiv 2205.05198, section 4.2.2).
 *
 * Between a product that is split by rows and the next one that is split by columns, tensor parallelism leaves norms,
 * dropouts and residual sums whole on every rank. Here they are split along the sequence instead. Redistribution then
 * scatters the partial sums of the first product where it would reduce them to all ranks, and gathers the operand of
 * the second: together as many bytes as one all-reduce.
 *
 * Where the gradients of several products are added, such as those of the query, key and value projections, the sum is
 * not split: it stays partial, and is scattered once (passes/place/partition.c). */
#include "passes/plan/policy/policy.h"

#include "ir/op.h"

enum { POSITIONS = 1, SEQUENCE_DIMS = 3 }; /* activations are (batch, positions, features) */

/* True if ranks have addends of the tensor, a sequence. sums: per node, whether it is a sum that stays partial. */
static bool is_partial_sequence(struct propagation *propagation, const bool *sums, int tensor) {
    const struct graph *graph = propagation->graph;
    const int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    if (producer < 0 || graph->tensors.at[tensor].ndim != SEQUENCE_DIMS) return false;
    if (sums[producer]) return true;
    const struct dims *dims = propagation_dims(propagation, producer);
    int k = 0;
    while (graph->nodes.at[producer].outputs[k] != tensor) k++;
    return dims_placement(dims, dims->ninputs + k, &propagation->split[producer][propagation->axis]).kind ==
           PLACED_PARTIAL;
}

/* The blocks of the cut that divides the positions along another axis; 1: there is none. Nested cuts have the same. */
static int64_t blocks_outside(struct propagation *propagation, int id, int operand) {
    const struct dims *dims = propagation_dims(propagation, id);
    for (int axis = 0; axis < propagation->graph->mesh.naxes; axis++) {
        const struct placement outside = dims_placement(dims, operand, &propagation->split[id][axis]);
        if (axis != propagation->axis && outside.kind == PLACED_PART && outside.dim == POSITIONS) return outside.blocks;
    }
    return 1;
}

bool policy_split_positions(struct propagation *propagation, int id, int operand) {
    struct cut_option options[RT_MAX_NDIM];
    const int64_t blocks = blocks_outside(propagation, id, operand);
    const int n = dims_cut_options(propagation_dims(propagation, id), operand, POSITIONS, blocks, 1, options);
    for (int i = 0; i < n; i++)
        if (options[i].more_blocks == 1 && options[i].more_grain == 1 &&
            propagate_cut(propagation, id, &options[i].split, PROPAGATE_GATHER))
            return true;
    return false;
}

static bool has_one_reader(const struct propagation *propagation, int tensor) {
    return propagation->uses.first[tensor + 1] - propagation->uses.first[tensor] == 1;
}

/* Decides that a sum of partial sequences is not split if only the sum reads them; it is scattered once instead. A
 * partial sequence with other readers has to be scattered for those in any case, and adding scattered parts is less
 * work. Returns for each node whether it is such a sum. */
static const bool *keep_sums(struct propagation *propagation) {
    const struct graph *graph = propagation->graph;
    bool *sums = ARENA_ARRAY(propagation->arena, bool, graph->nodes.n + 1);
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        bool all = node->op->id == OP_Add && !propagation->decided[id];
        for (int k = 0; k < node->ninputs && all; k++)
            all =
                is_partial_sequence(propagation, sums, node->inputs[k]) && has_one_reader(propagation, node->inputs[k]);
        sums[id] = all;
        propagation->decided[id] = propagation->decided[id] || all;
    }
    return sums;
}

/* Splits the node by the positions of its input; E0420 if they are open and cannot be divided. */
static int split_positions(struct propagation *propagation, int id, int k, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    const struct tensor *tensor = &graph->tensors.at[graph->nodes.at[id].inputs[k]];
    const char *why = open_cut_refused(graph, tensor->dims[POSITIONS], propagation->ways);
    if (why)
        return diag_error(diags, 420, EXIT_LIMIT, node_place(graph, id),
                          "--sequence-parallel cannot divide dimension %d of %s: %s", POSITIONS,
                          diag_quote(diags, tensor->name), why);
    policy_split_positions(propagation, id, k);
    return 0;
}

static int split_sequences(struct propagation *propagation, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    const bool *sums = keep_sums(propagation);
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        for (int k = 0; k < node->ninputs && node->phase <= PHASE_BACKWARD && !propagation->decided[id]; k++)
            if (is_partial_sequence(propagation, sums, node->inputs[k]) &&
                split_positions(propagation, id, k, diags) < 0)
                return -1;
    }
    return 0;
}

int policy_sequence(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    const int axis = mesh_axis(&graph->mesh, AXIS_TENSOR);
    if (!context->decisions.sequence_parallel || axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct arena *scratch = arena_scratch(graph->arena);
    struct propagation propagation;
    propagation_init(&propagation, draft, scratch, axis);
    propagation.nests = true; /* parts along axis context are divided further */
    VEC_EACH_VALUE(&graph->order, i, const int id)
        propagation.decided[id] = propagation.decided[id] || draft->split[id][axis].factor != SPLIT_NONE;
    const int status = split_sequences(&propagation, context->diags);
    for (int i = 0; i < graph->order.n && graph->nodes.at[graph->order.at[i]].phase == PHASE_FORWARD; i++)
        policy_divide_updates(&propagation, graph->order.at[i]);
    arena_release(graph->arena, scratch);
    return status;
}
