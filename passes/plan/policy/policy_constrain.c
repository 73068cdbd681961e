/* The constraints of a plan (constraints.h) while a policy makes it: the splits that they give propagate before the
 * policy decides the rest. Policy manual has rules alone. */
#include "passes/plan/constrain/constraints.h"
#include "passes/plan/policy/policy.h"
#include "passes/plan/policy/rules.h"
#include "passes/plan/stages.h"

/* Splits the node so that ranks divide dimension `dim` of the operand, in so many blocks, and propagates. NULL, or why
 * it cannot be. */
static const char *pin_operand(struct propagation *propagation, int id, int operand, int dim, int64_t blocks) {
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

static int refuse_pin(const struct draft *draft, int id, const struct constraint *pin, int level, const char *why,
                      struct diags *diags) {
    diag_error(diags, pin->source == FROM_RULES ? 420 : 438, EXIT_LIMIT, node_place(draft->graph, id),
               "cannot split dimension %d of %s along %s: %s", pin->dims.at[0].dim,
               diag_quote(diags, pin->dims.at[0].tensor), pin->axis[level], why);
    return diag_note(diags, "requested by %s", pin->place);
}

/* Splits the node as the pin says along those of its axes that are in the set, with the nodes to which that propagates.
 * A node without the dimension is not meant: an ONNX node may have become several. */
static int apply_pin(struct draft *draft, struct propagation *along, unsigned axes, int id,
                     const struct constraint *pin, struct diags *diags) {
    const struct dims *dims = propagation_dims(&along[__builtin_ctz(axes)], id);
    const int operand = constraint_operand(draft->graph, id, dims, &pin->dims.at[0]);
    for (int level = 0; level < pin->naxes && operand >= 0; level++) {
        const int axis = constraint_axis(draft->graph, pin, level);
        if (axis < 0 || !(axes >> axis & 1u)) continue;
        if (pin->source != FROM_RULES && limits_pinned(draft, id, dims, pin, level)) continue;
        along[axis].nests = level > 0;
        const char *why = pin_operand(&along[axis], id, operand, pin->dims.at[0].dim, pin->stride);
        if (why) return refuse_pin(draft, id, pin, level, why, diags);
    }
    return 0;
}

static void propagate_given(struct propagation *propagation, int id) {
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

/* The largest number of cuts outside one along the axis. */
static int deepest(const struct draft *draft, int axis) {
    int depth = 0;
    for (int id = 0; id < draft->graph->nodes.n; id++)
        if (draft->split[id][axis].factor >= 0 && draft->split[id][axis].depth > depth)
            depth = draft->split[id][axis].depth;
    return depth;
}

static void begin_axis(struct propagation *propagation, struct draft *draft, int axis) {
    const struct graph *graph = draft->graph;
    propagation_init(propagation, draft, graph->arena, axis);
    propagation->nests = true;
    for (int i = 0; i < graph->order.n; i++)
        if (propagation->decided[graph->order.at[i]]) propagate_given(propagation, graph->order.at[i]);
    propagation->nests = false;
    for (int i = 0; i < graph->order.n && draft->limits; i++) {
        const int id = graph->order.at[i];
        const struct constraint *rule = limits_rule(draft->limits, id, false);
        if (rule && rule->kind == CONSTRAINT_PIN) propagation->closed[id] = true;
        if (rule && rule->kind == CONSTRAINT_ALLOW) propagation->decided[id] = true;
    }
}

/* Starts along the axes of the set: what is fixed propagates, outer cuts before those that divide their parts. Nodes
 * stay whole for which a rule says so, and those that a rule splits are closed to propagation with gathers. */
static void begin_axes(struct propagation *along, struct draft *draft, unsigned axes) {
    const struct graph *graph = draft->graph;
    int depths[RT_MAX_AXES];
    for (int axis = 0; axis < graph->mesh.naxes; axis++) depths[axis] = axes >> axis & 1u ? deepest(draft, axis) : -1;
    for (int depth = 0; depth < graph->mesh.naxes; depth++)
        for (int axis = 0; axis < graph->mesh.naxes; axis++)
            if (depths[axis] == depth) begin_axis(&along[axis], draft, axis);
}

/* What was decided along the axes of the set is fixed. */
static void end_axes(struct propagation *along, struct draft *draft, unsigned axes) {
    const struct graph *graph = draft->graph;
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        if (!(axes >> axis & 1u)) continue;
        VEC_EACH_VALUE(&graph->order, i, const int id) {
            if (graph->nodes.at[id].phase == PHASE_FORWARD && along[axis].decided[id])
                policy_divide_updates(&along[axis], id);
        }
        for (int id = 0; id < graph->nodes.n; id++) draft->fixed[id][axis] = along[axis].decided[id];
    }
}

/* Applies the pins along the axes of the set. */
static int apply_pins(struct draft *draft, unsigned axes, struct diags *diags) {
    const struct graph *graph = draft->graph;
    struct propagation along[RT_MAX_AXES];
    const int before = diags->errors;
    begin_axes(along, draft, axes);
    for (int i = 0; i < graph->order.n && axes; i++) {
        const int id = graph->order.at[i];
        for (int c = 0; c < draft->limits->of[id].all.n; c++)
            if (draft->limits->of[id].all.at[c]->kind == CONSTRAINT_PIN)
                apply_pin(draft, along, axes, id, draft->limits->of[id].all.at[c], diags);
    }
    end_axes(along, draft, axes);
    return diags->errors == before ? 0 : -1;
}

/* The set of axes along which nodes are divided and that all stages have, or some alone. */
static unsigned axes_of(const struct mesh *mesh, bool all_stages, bool some_stages) {
    unsigned axes = 0;
    for (int axis = 0; axis < mesh->naxes; axis++)
        if (axis != mesh_pipeline_axis(mesh) && (mesh->axis[axis].end ? some_stages : all_stages)) axes |= 1u << axis;
    return axes;
}

void policy_propagate_fixed(struct draft *draft) {
    const unsigned axes = axes_of(&draft->graph->mesh, true, true);
    struct propagation along[RT_MAX_AXES];
    begin_axes(along, draft, axes);
    end_axes(along, draft, axes);
}

/* A node without a rule for its stage is of that of the node before it. */
static int apply_stages(struct draft *draft, struct diags *diags) {
    const struct graph *graph = draft->graph;
    const int stages = draft_stages(draft);
    int stage = 0;
    VEC_EACH_VALUE(&graph->order, i, const int id) {
        const struct constraint *rule = limits_rule(draft->limits, id, true);
        if (rule && rule->stage >= stages)
            return diag_error(diags, 424, EXIT_MALFORMED, rule->place,
                              draft->chunks.n ? "rules: stage %lld, but the schedule has only %d stage(s)"
                                              : "rules: stage %lld, but the pipeline axis of the mesh has size %d",
                              (long long)rule->stage, stages);
        if (rule) draft_give_stage(draft, id, stage = (int)rule->stage);
        draft->stage[id] = stage;
    }
    stages_follow(draft);
    return 0;
}

/* Lists the constraints of the user, then the rules: those that a plug-in has for the graph, or of a file. */
static int list(struct constraints *all, const struct graph *graph, const struct pass_context *context) {
    const struct constraints *rules = context->rules;
    struct constraints *decided;
    if (context->plugin) {
        if (policy_plugin_rules(context->plugin, graph, context->diags, &decided) < 0) return -1;
        rules = decided;
    }
    *all = context->constraints ? *context->constraints : (struct constraints){0};
    VEC_UNSHARE(graph->arena, &all->all);
    for (int i = 0; rules && i < rules->all.n; i++) VEC_PUSH(graph->arena, &all->all, rules->all.at[i]);
    return 0;
}

int policy_constrain(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    struct constraints *constraints = ARENA_NEW(graph->arena, struct constraints);
    if (list(constraints, graph, context) < 0) return -1;
    draft->limits = limits_find(graph, constraints, context->diags);
    if (!draft->limits) return -1;
    draft->fixed = arena_alloc(graph->arena, (size_t)graph->nodes.n + 1, sizeof *draft->fixed);
    if (constraints->refine && plan_refine(draft, constraints->refine, constraints->checked, context->diags) < 0)
        return -1;
    if (context->rules && apply_stages(draft, context->diags) < 0) return -1;
    return apply_pins(draft, axes_of(&graph->mesh, true, context->rules), context->diags);
}

int policy_constrain_stages(struct draft *draft, const struct pass_context *context) {
    const unsigned axes = axes_of(&draft->graph->mesh, false, true);
    return context->constraints && axes ? apply_pins(draft, axes, context->diags) : 0;
}
