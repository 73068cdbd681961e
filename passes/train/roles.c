/* Pass roles: decides which weights are parameters (roles.h). It runs before fold and recognise, which treat constants
 * differently. */
#include "passes/train/roles.h"

#include <fnmatch.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/expr/eval.h"
#include "passes/pipeline.h"

enum evidence_bit {
#define EVIDENCE(name, test) BIT_##name,
#include "passes/train/roles.def"
};

enum {
#define EVIDENCE(name, test) name = 1u << BIT_##name,
#include "passes/train/roles.def"
};

static const struct role_rule rules[] = {
#define RULE(name, role, needs, excludes, reason) {#name, role, needs, excludes, reason},
#include "passes/train/roles.def"
};
enum { RULES = sizeof rules / sizeof *rules };

/* The first rule that applies to the evidence; NULL: none, the weight is a parameter. */
static const struct role_rule *role_rule_for(unsigned evidence) {
    for (int i = 0; i < RULES; i++)
        if ((evidence & rules[i].needs) == rules[i].needs && !(evidence & rules[i].excludes)) return &rules[i];
    return NULL;
}

const struct weight_role *weight_role_of(const struct weight_roles *roles, const char *name) {
    for (int i = 0; roles && i < roles->all.n; i++)
        if (strcmp(roles->all.at[i].name, name) == 0) return &roles->all.at[i];
    return NULL;
}

/* Per tensor: it is a float weight that may be a parameter or a constant. One that the model itself updates, such as a
 * running statistic, is neither. */
static bool *find_candidates(const struct evidence *e) {
    const struct graph *graph = e->graph;
    bool *candidates = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor)
        candidates[t] = tensor->kind == TENSOR_WEIGHT && rt_dtype_is_float(tensor->dtype) && evidence_is_read(e, t);
    for (int i = 0; i < graph->updates.n; i++) candidates[graph->updates.at[i].weight] = false;
    return candidates;
}

/* A constant of one element becomes a CONST, so that it folds. A frozen weight does too, unless --init gives it another
 * value. */
static void make_constant(struct graph *graph, int t, bool by_role, const struct training *training) {
    struct tensor *tensor = &graph->tensors.at[t];
    const void *bytes = tensor_elements(tensor) == 1 ? eval_bytes(graph, tensor) : NULL;
    if (by_role) tensor->constant = true;
    if (!bytes || (!by_role && init_rule_of(training, tensor->name))) return;
    tensor->kind = TENSOR_CONST;
    tensor->data = bytes;
    tensor->mark = MARK_NONE;
    tensor->sources = NULL;
    tensor->constant = false;
}

static void decide(struct graph *graph, const struct evidence *e, int t, const struct pass_context *context) {
    struct tensor *tensor = &graph->tensors.at[t];
    const unsigned evidence = evidence_of(e, t);
    const struct role_rule *rule = role_rule_for(evidence);
    if (tensor->mark == MARK_FOLDED && (evidence & FOLDED_MEMBER)) tensor->sources = evidence_members(e, t);
    if (evidence & SAME_ELEMENTS) tensor->mark = MARK_MOVED;
    const struct parameter_rule *option = parameter_rule_of(context->training, tensor);
    const bool constant = rule && rule->role == ROLE_CONSTANT && !(option && option->train);
    if (rule && rule->role != ROLE_PARAMETER && context->roles) {
        struct weight_role decision = {tensor->name, tensor_type(graph->arena, tensor), tensor->sources, rule,
                                       constant ? ROLE_CONSTANT
                                       : option ? ROLE_PARAMETER
                                                : rule->role};
        VEC_PUSH(graph->arena, &context->roles->all, decision);
    }
    if (constant || (option && option->frozen)) make_constant(graph, t, constant, context->training);
}

enum { MOST_NAMED = 3 };

static const char *named(const struct weight_role *decision, struct diags *diags) {
    if (!decision->sources || decision->role == ROLE_CONSTANT) return diag_quote(diags, decision->name);
    return arena_printf(diags->arena, "%s (of %s)", diag_quote(diags, decision->name),
                        diag_quote(diags, decision->sources));
}

/* A line for each rule that names the first weights it applied to; all of them if `verbose`. */
static void tell_rule(const struct weight_roles *roles, const struct role_rule *rule, enum role role, bool verbose,
                      struct diags *diags) {
    int count = 0;
    struct strbuf names = {.arena = diags->arena};
    VEC_EACH(&roles->all, i, const struct weight_role *decision) {
        if (decision->rule != rule || decision->role != role) continue;
        if (count++ < MOST_NAMED || verbose)
            strbuf_printf(&names, "%s%s %s", count > 1 ? ", " : "", named(decision, diags), decision->type);
    }
    if (!count) return;
    if (count > MOST_NAMED && !verbose) strbuf_printf(&names, " and %d more", count - MOST_NAMED);
    diag_note(diags, "%s: %s", rule->reason, strbuf_text(&names));
}

static int count_of(const struct weight_roles *roles, enum role role) {
    int count = 0;
    for (int i = 0; i < roles->all.n; i++) count += roles->all.at[i].role == role;
    return count;
}

static void tell(const struct graph *graph, const struct weight_roles *roles, enum role role, bool verbose,
                 struct diags *diags) {
    const int count = count_of(roles, role);
    const bool constants = role == ROLE_CONSTANT;
    if (!count) return;
    if (constants)
        diag_remark(diags, graph->name, "%d initializer%s not trained: classified as constant", count,
                    count == 1 ? " is" : "s are");
    else
        diag_remark(diags, graph->name, "%d initializer%s trained, but may be constant", count,
                    count == 1 ? " is" : "s are");
    for (int i = 0; i < RULES; i++) tell_rule(roles, &rules[i], role, verbose, diags);
    diag_help(diags, constants ? "--param 'NAME:train' trains one%s" : "--param 'NAME:frozen' freezes one%s",
              verbose ? "" : "; -v lists all");
}

int pass_roles(struct graph *graph, const struct pass_context *context) {
    struct evidence evidence;
    if (!graph->train) return 0;
    evidence_begin(&evidence, graph);
    const bool *candidates = find_candidates(&evidence);
    for (int t = 0; t < graph->tensors.n; t++)
        if (candidates[t]) decide(graph, &evidence, t, context);
    if (!context->roles) return 0;
    tell(graph, context->roles, ROLE_CONSTANT, context->verbose, context->diags);
    tell(graph, context->roles, ROLE_DOUBTFUL, context->verbose, context->diags);
    return 0;
}
