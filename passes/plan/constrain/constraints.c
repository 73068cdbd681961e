#include "passes/plan/constrain/constraints.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/op.h"

/* Words of --require and --forbid ---------------------------------------------------------------------------------- */

bool constraint_is_of_nodes(const char *word) {
    return word[strcspn(word, ":=")] == ':';
}

/* "in1.0", "out0.2" */
static bool parse_dim(const char *text, struct arena *arena, struct constraint_dim *dim) {
    const char *dot = strrchr(text, '.');
    const size_t digits = dot ? strlen(dot + 1) : 0;
    if (!digits || digits > 2 || dot == text || strspn(dot + 1, "0123456789") != digits) return false;
    *dim = (struct constraint_dim){arena_copy(arena, text, (size_t)(dot - text)), atoi(dot + 1)};
    return true;
}

int constraints_parse_word(struct constraints *constraints, struct arena *arena, struct diags *diags,
                           const char *option, const char *word, bool forbids) {
    const char *colon = strrchr(word, ':'), *at = strchr(colon, '@');
    const char *what = at ? arena_copy(arena, colon + 1, (size_t)(at - colon - 1)) : colon + 1;
    struct constraint pin = {.kind = forbids ? CONSTRAINT_FORBID : CONSTRAINT_PIN,
                             .place = arena_printf(arena, "--%s %s", option, diag_quote(diags, word)),
                             .node = arena_copy(arena, word, (size_t)(colon - word)),
                             .axis = at ? arena_strdup(arena, at + 1) : axis_rows[AXIS_TENSOR].name,
                             .replica = true};
    struct constraint_dim dim;
    if (!*pin.node || (at && (forbids || !*pin.axis)))
        return diag_error(diags, 205, EXIT_USAGE, arena_printf(arena, "--%s", option),
                          "%s is not GLOB:TENSOR.DIM%s or GLOB:replicate", diag_quote(diags, word),
                          forbids ? "" : "[@AXIS]");
    const enum axis_role role = axis_role_of(pin.axis);
    if (role == AXIS_ROLES || !axis_rows[role].splits)
        return diag_error(diags, 205, EXIT_USAGE, arena_printf(arena, "--%s", option),
                          "%s: the axis after '@' must be tensor, context, expert or data", diag_quote(diags, word));
    if (strcmp(what, "replicate") == 0 && !at) {
        pin.kind = forbids ? CONSTRAINT_FORBID : CONSTRAINT_ALLOW;
        pin.replica = !forbids;
    } else if (parse_dim(what, arena, &dim)) {
        VEC_PUSH(arena, &pin.dims, dim);
    } else {
        return diag_error(diags, 205, EXIT_USAGE, arena_printf(arena, "--%s", option),
                          "%s does not end in a dimension such as in1.0, or in replicate", diag_quote(diags, word));
    }
    VEC_PUSH(arena, &constraints->all, pin);
    return 0;
}

/* Which nodes ------------------------------------------------------------------------------------------------------ */

static bool is_separator(char c) {
    return c == '/' || c == '.';
}

/* What follows the first '/'; NULL: there is none. */
static char *next_component(char *path) {
    char *separator = strchr(path, '/');
    return separator ? separator + 1 : NULL;
}

/* True if the glob matches some consecutive components of the name, the last one left out. Components end at '/' or
 * '.'; both stand for each other. */
static bool module_matches(const char *glob, const char *name, struct arena *arena) {
    char *pattern = (char *)arena_strdup(arena, glob), *path = (char *)arena_strdup(arena, name);
    size_t length = strlen(path), components = 1;
    while (length && !is_separator(path[length - 1])) length--;
    path[length ? length - 1 : 0] = 0;
    for (char *c = path; *c; c++) *c = is_separator(*c) ? '/' : *c;
    for (char *c = pattern; *c; c++)
        if (is_separator(*c)) *c = '/', components++;
    for (char *from = path; from; from = next_component(from)) {
        char *to = from;
        for (size_t n = 0; n < components && to; n++) to = strchr(n ? to + 1 : to, '/');
        if (to) *to = 0;
        const bool matches = *from && fnmatch(pattern, from, FNM_PATHNAME) == 0;
        if (to) *to = '/';
        if (matches) return true;
    }
    return false;
}

static bool concerns(const struct constraint *constraint, const struct node *node, struct arena *arena) {
    return (!constraint->op || fnmatch(constraint->op, node->op->name, 0) == 0) &&
           (!constraint->node || fnmatch(constraint->node, node->name, 0) == 0) &&
           (!constraint->module || module_matches(constraint->module, node->name, arena));
}

static size_t closeness(const struct constraint *constraint) {
    return constraint->module ? strlen(constraint->module) : 0;
}

/* Lists the constraints of a node of the forward phase, marking those in `seen`. */
static void find_own(struct limits *limits, int id, bool *seen, struct arena *arena) {
    const struct constraints *constraints = limits->constraints;
    const struct node *node = &limits->graph->nodes.at[id];
    const struct constraint *closest = NULL;
    for (int i = 0; i < constraints->all.n; i++) {
        const struct constraint *constraint = &constraints->all.at[i];
        if (!concerns(constraint, node, arena)) continue;
        seen[i] = true;
        if (!constraint->in_file)
            VEC_PUSH(limits->graph->arena, &limits->of[id].all, constraint);
        else if (!closest || closeness(constraint) >= closeness(closest))
            closest = constraint;
    }
    if (closest) VEC_PUSH(limits->graph->arena, &limits->of[id].all, closest);
}

/* The gradient of a node that must not be split must not be either. */
static void find_of_gradient(struct limits *limits, int id) {
    const int origin = limits->graph->nodes.at[id].origin;
    if (origin < 0) return;
    for (int i = 0; i < limits->of[origin].all.n; i++) {
        const struct constraint *constraint = limits->of[origin].all.at[i];
        if (constraint->kind == CONSTRAINT_ALLOW && !constraint->dims.n)
            VEC_PUSH(limits->graph->arena, &limits->of[id].all, constraint);
    }
}

int constraint_operand(const struct graph *graph, int id, const struct dims *dims,
                       const struct constraint_dim *listed) {
    const int operand = split_operand(graph, &graph->nodes.at[id], dims, listed->tensor);
    return operand >= 0 && listed->dim < dims->operand[operand].ndim ? operand : -1;
}

static bool is_listed(const struct graph *graph, int id, const struct constraint *constraint, const struct dims *dims,
                      const struct node_split *split) {
    struct cut_option options[RT_MAX_NDIM];
    for (int d = 0; d < constraint->dims.n; d++) {
        const struct constraint_dim *listed = &constraint->dims.at[d];
        const int operand = constraint_operand(graph, id, dims, listed);
        const int n = operand < 0 ? 0 : dims_cut_options(dims, operand, listed->dim, 1, 1, options);
        for (int i = 0; i < n; i++)
            if (options[i].split.factor == split->factor) return true;
    }
    return false;
}

bool limits_allow(const struct limits *limits, int node, const struct dims *dims, const struct node_split *split) {
    for (int i = 0; i < limits->of[node].all.n; i++) {
        const struct constraint *constraint = limits->of[node].all.at[i];
        if (constraint->kind == CONSTRAINT_PIN) continue;
        if (is_listed(limits->graph, node, constraint, dims, split) != (constraint->kind == CONSTRAINT_ALLOW))
            return false;
    }
    return true;
}

/* True if the constraint concerns the node, and the node has the listed dimension. */
static bool has_listed(const struct limits *limits, int id, const struct constraint *constraint,
                       const struct constraint_dim *listed) {
    bool concerned = false, has = false;
    for (int c = 0; c < limits->of[id].all.n; c++) concerned = concerned || limits->of[id].all.at[c] == constraint;
    if (!concerned) return false;
    struct arena *scratch = arena_scratch(limits->graph->arena);
    struct dims dims;
    const char *why;
    if (dims_bind(scratch, limits->graph, &limits->graph->nodes.at[id], &dims, &why) < 0) BUG("%s", why);
    has = constraint_operand(limits->graph, id, &dims, listed) >= 0;
    arena_release(limits->graph->arena, scratch);
    return has;
}

/* E0437 for constraints that concern no node, or list a dimension that none of their nodes has. */
static int check_seen(const struct limits *limits, const bool *seen, struct diags *diags) {
    const struct graph *graph = limits->graph;
    const int before = diags->errors;
    for (int i = 0; i < limits->constraints->all.n; i++) {
        const struct constraint *constraint = &limits->constraints->all.at[i];
        if (!seen[i]) diag_error(diags, 437, EXIT_MALFORMED, constraint->place, "constraints: no node matches it");
        for (int d = 0; d < constraint->dims.n && seen[i]; d++) {
            const struct constraint_dim *listed = &constraint->dims.at[d];
            bool found = false;
            for (int k = 0; k < graph->order.n && !found; k++)
                found = has_listed(limits, graph->order.at[k], constraint, listed);
            if (!found)
                diag_error(diags, 437, EXIT_MALFORMED, constraint->place,
                           "constraints: no node that it decides has a dimension %d of %s%s", listed->dim,
                           constraint->in_file ? "input " : "",
                           constraint->in_file ? listed->tensor + strlen("in") : diag_quote(diags, listed->tensor));
        }
    }
    return diags->errors == before ? 0 : -1;
}

/* Pins ------------------------------------------------------------------------------------------------------------- */

int constraint_axis(const struct graph *graph, const struct constraint *pin) {
    const int axis = mesh_axis_by_name(&graph->mesh, pin->axis);
    return axis < 0 || axis >= graph->mesh.naxes || axis == mesh_pipeline_axis(&graph->mesh) ||
                   graph->mesh.axis[axis].size == 1
               ? -1
               : axis;
}

bool limits_pinned(const struct draft *draft, int id, const struct dims *dims, const struct constraint *pin) {
    const int axis = constraint_axis(draft->graph, pin);
    return axis >= 0 && draft->split[id][axis].factor >= 0 &&
           is_listed(draft->graph, id, pin, dims, &draft->split[id][axis]);
}

int limits_refuse(struct diags *diags, const struct graph *graph, int id, const struct constraint *constraint,
                  const char *what) {
    return diag_error(diags, 438, EXIT_LIMIT, constraint->place, "node %s: %s",
                      diag_quote(diags, graph->nodes.at[id].name), what);
}

/* Plans ------------------------------------------------------------------------------------------------------------ */

struct limits *limits_find(const struct graph *graph, const struct constraints *constraints, bool **seen) {
    const int pipeline = mesh_pipeline_axis(&graph->mesh);
    struct limits *limits = ARENA_NEW(graph->arena, struct limits);
    struct arena *scratch = arena_scratch(graph->arena);
    *limits = (struct limits){.graph = graph, .constraints = constraints};
    limits->of = arena_alloc(graph->arena, (size_t)graph->nodes.n + 1, sizeof *limits->of);
    limits->ranks = mesh_size(&graph->mesh) / (pipeline < 0 ? 1 : graph->mesh.axis[pipeline].size);
    *seen = ARENA_ARRAY(graph->arena, bool, constraints->all.n + 1);
    for (int i = 0; i < graph->order.n; i++)
        if (graph->nodes.at[graph->order.at[i]].phase == PHASE_FORWARD)
            find_own(limits, graph->order.at[i], *seen, scratch);
    for (int i = 0; i < graph->order.n; i++)
        if (graph->nodes.at[graph->order.at[i]].phase != PHASE_FORWARD) find_of_gradient(limits, graph->order.at[i]);
    arena_release(graph->arena, scratch);
    return limits;
}

int constraints_check(const struct constraints *constraints, const struct graph *graph, struct diags *diags) {
    bool *seen;
    const struct limits *limits = limits_find(graph, constraints, &seen);
    if (constraints->refine && plan_check_entries(constraints->refine, graph, diags) < 0) return -1;
    return check_seen(limits, seen, diags);
}

/* What the draft does with the node against the constraint; NULL: nothing. */
static const char *against(const struct draft *draft, int id, const struct dims *dims,
                           const struct constraint *constraint) {
    const struct graph *graph = draft->graph;
    bool whole = true;
    if (constraint->kind == CONSTRAINT_PIN)
        return constraint_operand(graph, id, dims, &constraint->dims.at[0]) < 0 ||
                       limits_pinned(draft, id, dims, constraint)
                   ? NULL
                   : "it is not split so";
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        const struct node_split *split = &draft->split[id][axis];
        if (split->factor < 0) continue;
        whole = false;
        if (is_listed(graph, id, constraint, dims, split) != (constraint->kind == CONSTRAINT_ALLOW))
            return "it is split otherwise";
    }
    const bool alone = constraint->in_file && draft->limits->ranks == 1;
    return whole && !constraint->replica && !alone ? "it is whole on every rank" : NULL;
}

int limits_check(const struct draft *draft, struct diags *diags) {
    const struct graph *graph = draft->graph;
    struct arena *scratch = arena_scratch(graph->arena);
    int status = 0;
    for (int i = 0; i < graph->order.n && !status; i++) {
        const int id = graph->order.at[i];
        const struct node *node = &graph->nodes.at[id];
        struct dims dims;
        const char *why, *what;
        if (!draft->limits->of[id].all.n || node->phase != PHASE_FORWARD) continue;
        if (dims_bind(scratch, graph, node, &dims, &why) < 0) BUG("%s: %s", node->name, why);
        for (int c = 0; c < draft->limits->of[id].all.n && !status; c++)
            if ((what = against(draft, id, &dims, draft->limits->of[id].all.at[c])))
                status = limits_refuse(diags, graph, id, draft->limits->of[id].all.at[c], what);
    }
    arena_release(graph->arena, scratch);
    return status;
}
