/* The policy of a rule file (passes/plan/policy/rules.h). Each rule is applied, or refused with node and dimension;
 * none is ignored. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "passes/plan/policy/policy.h"
#include "passes/plan/policy/rules.h"
#include "passes/plan/stages.h"

struct manual {
    const struct graph *graph;
    struct draft *draft;
    const struct rules *rules;
    struct diags *diags;
    struct propagation propagation[RT_MAX_AXES];
    bool *applied; /* per rule: some node has the tensor that it splits */
};

static const char *place_of(const struct manual *m, const struct rule *rule) {
    return arena_printf(m->graph->arena, "%s:%d", m->rules->file, rule->line);
}

/* The last rule that matches the node: the one for its stage, or the one for its split; NULL if there is none. */
static const struct rule *rule_for(const struct manual *m, int id, bool stage) {
    for (int i = m->rules->all.n - 1; i >= 0; i--) {
        const struct rule *rule = &m->rules->all.at[i];
        if ((rule->kind == RULE_STAGE) == stage && fnmatch(rule->pattern, m->graph->nodes.at[id].name, 0) == 0)
            return rule;
    }
    return NULL;
}

/* Reports a rule that splits along the pipeline axis, along which ranks have stages and no shards. */
static void refuse_pipeline(const struct manual *m, const struct rule *rule, const char *axis) {
    int node = 0;
    while (fnmatch(rule->pattern, m->graph->nodes.at[m->graph->order.at[node]].name, 0) != 0) node++;
    diag_error(m->diags, 424, EXIT_MALFORMED, place_of(m, rule),
               "rules: %s cannot be split along '%s', the axis of the pipeline stages",
               node_place(m->graph, m->graph->order.at[node]), axis);
    diag_help(m->diags, "assign nodes to pipeline stages with: match \"GLOB\" stage K");
}

static void check_axes(const struct manual *m, const struct rule *rule) {
    for (int i = 0; i < rule->naxes; i++) {
        const int axis = mesh_axis_by_name(&m->graph->mesh, rule->axis[i]);
        if (axis < 0)
            diag_error(m->diags, 424, EXIT_MALFORMED, place_of(m, rule), "rules: the mesh has no axis '%s'",
                       rule->axis[i]);
        else if (axis == mesh_pipeline_axis(&m->graph->mesh))
            refuse_pipeline(m, rule, rule->axis[i]);
    }
}

/* Checks that every rule matches a node and that its mesh axes exist. */
static int check_matches(const struct manual *m) {
    int before = m->diags->errors;
    for (int i = 0; i < m->rules->all.n; i++) {
        const struct rule *rule = &m->rules->all.at[i];
        bool matched = false;
        for (int k = 0; k < m->graph->order.n && !matched; k++)
            matched = fnmatch(rule->pattern, m->graph->nodes.at[m->graph->order.at[k]].name, 0) == 0;
        if (!matched)
            diag_error(m->diags, 424, EXIT_MALFORMED, place_of(m, rule), "rules: no node matches %s",
                       diag_quote(m->diags, rule->pattern));
        else
            check_axes(m, rule);
    }
    return m->diags->errors == before ? 0 : -1;
}

static int refuse_split(const struct manual *m, int id, const struct rule *rule, const char *axis, const char *why) {
    diag_error(m->diags, 420, EXIT_LIMIT, node_place(m->graph, id), "cannot split dimension %d of %s along %s: %s",
               rule->dim, diag_quote(m->diags, rule->tensor), axis, why);
    diag_note(m->diags, "requested by %s", place_of(m, rule));
    return -1;
}

/* Splits the operand of the node along axis number `level` of the rule, the first being that of the outermost cut. */
static int apply_axis(struct manual *m, int id, const struct rule *rule, int operand, int level) {
    const int axis = mesh_axis_by_name(&m->graph->mesh, rule->axis[level]);
    struct propagation *propagation = &m->propagation[axis];
    propagation->nests = level > 0;
    const char *why = policy_pin(propagation, id, operand, rule->dim, rule->stride);
    return why ? refuse_split(m, id, rule, rule->axis[level], why) : 0;
}

static int apply_split(struct manual *m, int id, const struct rule *rule) {
    const struct node *node = &m->graph->nodes.at[id];
    const struct dims *dims = propagation_dims(&m->propagation[0], id);
    int operand = split_operand(m->graph, node, dims, rule->tensor);
    /* An ONNX node may have become several nodes (Gemm: product and bias): the rule is for those with the tensor. */
    if (operand < 0 || rule->dim >= dims->operand[operand].ndim) return 0;
    m->applied[rule - m->rules->all.at] = true;
    for (int level = 0; level < rule->naxes; level++)
        if (apply_axis(m, id, rule, operand, level) < 0) return -1;
    return 0;
}

static int apply_stages(struct manual *m) {
    const int stages = draft_stages(m->draft);
    int stage = 0;
    for (int i = 0; i < m->graph->order.n; i++) {
        int id = m->graph->order.at[i];
        const struct rule *rule = rule_for(m, id, true);
        if (rule && rule->stage >= stages)
            return diag_error(m->diags, 424, EXIT_MALFORMED, place_of(m, rule),
                              m->draft->chunks.n ? "rules: stage %lld, but the schedule has only %d stages"
                                                 : "rules: stage %lld, but the pipeline axis of the mesh has size %d",
                              (long long)rule->stage, stages);
        if (rule) stage = (int)rule->stage;
        if (rule) draft_give_stage(m->draft, id, stage);
        m->draft->stage[id] = stage;
    }
    stages_follow(m->draft);
    return 0;
}

/* Reports rules that decide for some node but whose tensor no such node has. Rules that later ones override for
 * every node are accepted. */
static void check_applied(const struct manual *m) {
    bool *wins = ARENA_ARRAY(m->graph->arena, bool, m->rules->all.n + 1);
    for (int i = 0; i < m->graph->order.n; i++) {
        const struct rule *rule = rule_for(m, m->graph->order.at[i], false);
        if (rule) wins[rule - m->rules->all.at] = true;
    }
    for (int i = 0; i < m->rules->all.n; i++) {
        const struct rule *rule = &m->rules->all.at[i];
        if (rule->kind == RULE_SPLIT && wins[i] && !m->applied[i])
            diag_error(m->diags, 424, EXIT_MALFORMED, place_of(m, rule),
                       "rules: no matching node has a dimension %d of %s", rule->dim,
                       diag_quote(m->diags, rule->tensor));
    }
}

/* Closes nodes that have a split rule of their own to propagation with gathers. */
static void close_ruled(struct manual *m) {
    for (int i = 0; i < m->graph->order.n; i++) {
        const struct rule *rule = rule_for(m, m->graph->order.at[i], false);
        for (int axis = 0; axis < m->graph->mesh.naxes && rule; axis++)
            m->propagation[axis].closed[m->graph->order.at[i]] = rule->kind == RULE_SPLIT;
    }
}

int policy_manual(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    struct manual m = {.graph = graph, .draft = draft, .rules = context->rules, .diags = context->diags};
    int before = m.diags->errors;
    struct rules *decided;
    if (context->plugin) {
        if (policy_plugin_rules(context->plugin, graph, m.diags, &decided) < 0) return -1;
        m.rules = decided;
    }
    m.applied = ARENA_ARRAY(graph->arena, bool, m.rules->all.n + 1);
    if (check_matches(&m) < 0 || apply_stages(&m) < 0) return -1;
    for (int axis = 0; axis < graph->mesh.naxes; axis++)
        propagation_init(&m.propagation[axis], draft, graph->arena, axis);
    for (int i = 0; i < graph->order.n; i++) {
        const struct rule *rule = rule_for(&m, graph->order.at[i], false);
        for (int axis = 0; axis < graph->mesh.naxes && rule && rule->kind == RULE_REPLICATE; axis++)
            m.propagation[axis].decided[graph->order.at[i]] = true;
    }
    close_ruled(&m);
    for (int i = 0; i < graph->order.n; i++) {
        const struct rule *rule = rule_for(&m, graph->order.at[i], false);
        if (rule && rule->kind == RULE_SPLIT) apply_split(&m, graph->order.at[i], rule);
    }
    check_applied(&m);
    return m.diags->errors == before ? 0 : -1;
}
