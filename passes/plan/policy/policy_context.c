/* Context parallelism: splits the sequence of every input that has one, and propagates.
 *
 * All operators between two attentions work on each position alone and follow the split. Attention keeps its rows of
 * queries split; redistribution gathers keys and values before it (the all-gather form of context parallelism, as in
 * Llama 3, arXiv 2407.21783, section 3.3.2), or attention is split by heads. The cut of the sequence may be mirrored,
 * as it is there, so that all ranks have as much work of causal attention. Every rank then has a part of the gradient
 * of every parameter. */
#include "passes/plan/policy/policy.h"

#include "ir/base/str.h"
#include "ir/op.h"

enum { SEQUENCE = 1 }; /* the dimension that counts positions, in inputs that have one */

/* The number of positions: of the first input of tokens (batch, sequence), else of the first input of vectors (batch,
 * sequence, features). 0: no input has a sequence of at least `ways` positions. Matrices of floats are samples of
 * features, and tensors of four and more dimensions are images or masks: they alone do not define a sequence. */
static int64_t find_positions(const struct graph *graph, int ways) {
    int64_t vectors = 0;
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        const bool floats = rt_dtype_is_float(input->dtype);
        if (input->ndim <= SEQUENCE || input->dims[SEQUENCE] < ways) continue;
        if (input->ndim == 2 && !floats && input->dtype != RT_BOOL) return input->dims[SEQUENCE];
        if (input->ndim == 3 && floats && !vectors) vectors = input->dims[SEQUENCE];
    }
    return vectors;
}

/* The factor of the heads of an attention, or of one of the products of which it or its gradient is composed: (batch,
 * heads, rows, columns). -1: the node is neither. */
static int heads_of(struct propagation *propagation, int id) {
    const struct graph *graph = propagation->graph;
    const struct node *node = &graph->nodes.at[id];
    const bool attention = op_is_attention(node->op);
    if ((!attention && node->op->id != OP_MatMul) || node->outputs[0] < 0) return -1;
    const int ndim = graph->tensors.at[node->outputs[0]].ndim;
    if (ndim < 4) return -1;
    for (int k = 0; k < 2; k++)
        if (tensor_is_stored(&graph->tensors.at[node->inputs[k]])) return -1;
    const struct dims *dims = propagation_dims(propagation, id);
    const struct dim_factors *heads = &dims->operand[dims->ninputs].dim[ndim - 3];
    return heads->n ? heads->factor[0] : -1;
}

/* Splits attentions by heads, with the nodes between them and other products: redistribution exchanges positions for
 * heads before attention, and back after it (Ulysses, arXiv 2309.14509). Reports how many have too few heads. */
static void split_heads(struct propagation *propagation, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    int whole = 0;
    VEC_EACH_VALUE(&graph->order, i, const int id)
        propagation->closed[id] = graph->nodes.at[id].op->id == OP_MatMul && heads_of(propagation, id) < 0;
    propagation->nests = true; /* heads of a rank along tensor are divided further */
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i], heads = propagation->decided[id] ? -1 : heads_of(propagation, id);
        whole += heads >= 0 && !propagate_region(propagation, id, heads);
    }
    propagation->nests = false;
    for (int i = 0; i < graph->order.n; i++) propagation->closed[graph->order.at[i]] = false;
    if (whole)
        diag_remark(diags, graph->name,
                    "policy context: %d attentions, or products of attention, cannot be split by heads %d ways; they "
                    "gather keys and values",
                    whole, propagation->ways);
}

/* Splits the readers of attentions that are split by heads by positions again, where no other path from an input leads
 * to them: (batch, positions, features). */
static void split_behind_heads(struct propagation *propagation, int64_t positions) {
    const struct graph *graph = propagation->graph;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        for (int k = 0; k < node->ninputs && !propagation->decided[id]; k++) {
            const struct tensor *tensor = node->inputs[k] < 0 ? NULL : &graph->tensors.at[node->inputs[k]];
            if (tensor && tensor->ndim == 3 && tensor->dims[SEQUENCE] == positions && tensor->producer >= 0 &&
                propagation->decided[tensor->producer])
                policy_split_positions(propagation, id, k);
        }
    }
}

/* The blocks of the cut of the sequence. Reports where it cannot be mirrored. */
static int64_t blocks_of_cut(const struct propagation *propagation, int64_t positions,
                             const struct pass_context *context) {
    const struct mesh *mesh = &propagation->graph->mesh;
    const int tensor = mesh_axis(mesh, AXIS_TENSOR);
    const bool nested = context->decisions.sequence_parallel && tensor >= 0; /* the parts are divided further */
    const int pieces = propagation->ways * (nested ? mesh->axis[tensor].size : 1);
    const struct rt_cut cut = {positions, -2, 1, pieces};
    if (context->decisions.cut == CUT_ORDERED) return 1;
    if (rt_cut_is_sound(&cut)) return -2;
    diag_remark(
        context->diags, propagation->graph->name,
        "policy context: the cut is not mirrored, because the %lld positions are not a multiple of %d, two pieces "
        "for each rank; ranks of the last positions have more work of causal attention",
        (long long)positions, 2 * pieces);
    return 1;
}

/* Splits the inputs of so many positions. */
static void split_inputs(struct propagation *propagation, int64_t positions, int64_t blocks, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        if (input->ndim > SEQUENCE && input->dims[SEQUENCE] == positions)
            propagate_input(propagation, graph->inputs.at[i], SEQUENCE, blocks, 1, PROPAGATE_GATHER);
        else
            diag_remark(diags, graph->name,
                        "policy context: dimension %d of input %s %s is not the sequence of %lld positions; the input "
                        "is replicated",
                        SEQUENCE, diag_quote(diags, input->name), tensor_type(graph->arena, input),
                        (long long)positions);
    }
}

int policy_context(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    const int axis = mesh_axis(&graph->mesh, AXIS_CONTEXT);
    if (axis < 0 || graph->mesh.axis[axis].size == 1) return 0;
    struct propagation propagation;
    propagation_init(&propagation, draft, graph->arena, axis);
    const int64_t positions = find_positions(graph, propagation.ways);
    if (!positions) {
        diag_remark(context->diags, graph->name,
                    "policy context: nothing is split, because no input is a sequence of %d or more positions: neither "
                    "tokens (batch, sequence) nor vectors (batch, sequence, features)",
                    propagation.ways);
        return 0;
    }
    const char *why = open_cut_refused(graph, positions, propagation.ways);
    if (why)
        return diag_error(context->diags, 420, EXIT_LIMIT, graph->name,
                          "policy context: the positions cannot be divided among %d ranks: %s", propagation.ways, why);
    const bool by_heads = context->decisions.attention == ATTENTION_HEADS;
    if (by_heads) split_heads(&propagation, context->diags);
    split_inputs(&propagation, positions, blocks_of_cut(&propagation, positions, context), context->diags);
    if (by_heads) split_behind_heads(&propagation, positions);
    policy_report_replicated(&propagation, "context", context->diags);
    return 0;
}
