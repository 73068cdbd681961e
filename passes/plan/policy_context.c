/* Context parallelism: splits the sequence of every input that has one, and propagates.
 *
 * All operators between two attentions work on each position alone and follow the split. Attention keeps its rows of
 * queries split; redistribution gathers keys and values before it (the all-gather form of context parallelism, as in
 * Llama 3, arXiv 2407.21783, section 3.3.2). Every rank then has a part of the gradient of every parameter. */
#include "passes/plan/policy.h"

#include "ir/base/str.h"

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

/* Splits the inputs of so many positions. */
static void split_inputs(struct propagation *propagation, int64_t positions, struct diags *diags) {
    const struct graph *graph = propagation->graph;
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        if (input->ndim > SEQUENCE && input->dims[SEQUENCE] == positions)
            propagate_input(propagation, graph->inputs.at[i], SEQUENCE, PROPAGATE_GATHER);
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
    const int axis = mesh_axis_by_name(&graph->mesh, "context");
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
    split_inputs(&propagation, positions, context->diags);
    policy_report_replicated(&propagation, "context", context->diags);
    return 0;
}
