/* The constraints of a plan (constraints.h) while a policy makes it: what they give is split before the policy decides,
 * with the nodes to which that propagates. */
#include "passes/plan/constrain/constraints.h"
#include "passes/plan/policy/policy.h"

const char *policy_pin(struct propagation *propagation, int id, int operand, int dim, int64_t blocks) {
    struct cut_option options[RT_MAX_NDIM];
    const int n = dims_cut_options(propagation_dims(propagation, id), operand, dim, blocks, 1, options);
    for (int i = 0; i < n; i++) {
        const struct node_split *have = &propagation->split[id][propagation->axis], *wanted = &options[i].split;
        if (propagation->decided[id] && have->factor == wanted->factor && have->blocks == wanted->blocks)
            return NULL; /* by propagation from another node */
        if (propagation->ways == 1 || propagate_split(propagation, id, wanted)) return NULL;
    }
    return propagation->decided[id] ? "another rule or constraint splits it otherwise"
           : n                      ? propagation_refuses(propagation, id, &options[0].split)
                                    : "the operator needs the dimension whole";
}

/* Splits the node as the pin says, with the nodes to which that propagates. A node without the dimension is not meant:
 * an ONNX node may have become several. */
static int apply_pin(struct draft *draft, struct propagation *propagation, int id, const struct constraint *pin,
                     struct diags *diags) {
    const struct dims *dims = propagation_dims(propagation, id);
    const int operand = constraint_operand(draft->graph, id, dims, &pin->dims.at[0]);
    if (operand < 0 || limits_pinned(draft, id, dims, pin)) return 0;
    const char *why = policy_pin(propagation, id, operand, pin->dims.at[0].dim, 1);
    return why ? limits_refuse(diags, draft->graph, id, pin, why) : 0;
}

void policy_propagate_given(struct propagation *propagation, int id) {
    const struct graph *graph = propagation->graph;
    const struct node *node = &graph->nodes.at[id];
    const struct node_split *split = &propagation->split[id][propagation->axis];
    const struct dims *dims = propagation_dims(propagation, id);
    for (int o = 0; split->factor >= 0 && o < dims->ninputs + dims->noutputs; o++) {
        const int tensor = split_tensor(node, dims, o);
        const struct placement part = dims_placement(dims, o, split);
        if (tensor >= 0 && !tensor_is_stored(&graph->tensors.at[tensor]) && part.kind == PLACED_PART)
            propagate_held(propagation, tensor, &part);
    }
}

/* Applies the pins along one axis. What they split is fixed. */
static int apply_pins(struct draft *draft, int axis, struct diags *diags) {
    const struct graph *graph = draft->graph;
    struct propagation propagation;
    const int before = diags->errors;
    propagation_init(&propagation, draft, graph->arena, axis);
    for (int i = 0; i < graph->order.n; i++)
        if (propagation.decided[graph->order.at[i]]) policy_propagate_given(&propagation, graph->order.at[i]);
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i];
        for (int c = 0; c < draft->limits->of[id].all.n; c++) {
            const struct constraint *pin = draft->limits->of[id].all.at[c];
            if (pin->kind == CONSTRAINT_PIN && constraint_axis(graph, pin) == axis)
                apply_pin(draft, &propagation, id, pin, diags);
        }
    }
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i];
        if (graph->nodes.at[id].phase == PHASE_FORWARD && propagation.decided[id])
            policy_divide_updates(&propagation, id);
    }
    for (int id = 0; id < graph->nodes.n; id++) draft->fixed[id][axis] = propagation.decided[id];
    return diags->errors == before ? 0 : -1;
}

static int apply_all_pins(struct draft *draft, bool of_some_stages, struct diags *diags) {
    const struct mesh *mesh = &draft->graph->mesh;
    const int pipeline = mesh_pipeline_axis(mesh);
    for (int axis = 0; axis < mesh->naxes; axis++) {
        if (axis == pipeline || mesh->axis[axis].size == 1 || (mesh->axis[axis].end != 0) != of_some_stages) continue;
        if (apply_pins(draft, axis, diags) < 0) return -1;
    }
    return 0;
}

int policy_constrain(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    const struct constraints *constraints = context->constraints;
    bool *seen;
    if (!constraints->checked && constraints_check(constraints, graph, context->diags) < 0) return -1;
    draft->limits = limits_find(graph, constraints, &seen);
    draft->fixed = arena_alloc(graph->arena, (size_t)graph->nodes.n + 1, sizeof *draft->fixed);
    if (constraints->refine && plan_refine(draft, constraints->refine, constraints->checked, context->diags) < 0)
        return -1;
    return apply_all_pins(draft, false, context->diags);
}

int policy_constrain_stages(struct draft *draft, const struct pass_context *context) {
    return context->constraints ? apply_all_pins(draft, true, context->diags) : 0;
}
