#include "passes/plan/constrain/constraints.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/op.h"

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
                             .axis = {at ? arena_strdup(arena, at + 1) : axis_rows[AXIS_TENSOR].name},
                             .naxes = 1,
                             .stride = 1,
                             .replica = true};
    struct constraint_dim dim;
    if (!*pin.node || (at && (forbids || !*pin.axis[0])))
        return diag_error(diags, 205, EXIT_USAGE, arena_printf(arena, "--%s", option),
                          "%s is not GLOB:TENSOR.DIM%s or GLOB:replicate", diag_quote(diags, word),
                          forbids ? "" : "[@AXIS]");
    const enum axis_role role = axis_role_of(pin.axis[0]);
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
    return (constraint->source == FROM_RULES || node->phase == PHASE_FORWARD) &&
           (!constraint->op || fnmatch(constraint->op, node->op->name, 0) == 0) &&
           (!constraint->node || fnmatch(constraint->node, node->name, 0) == 0) &&
           (!constraint->module || module_matches(constraint->module, node->name, arena));
}

static size_t closeness(const struct constraint *constraint) {
    return constraint->module ? strlen(constraint->module) : 0;
}

/* Which nodes a constraint concerns. */
struct seen {
    bool any, decides; /* some; one that no other constraint decides in its place */
    uint64_t dims;     /* bits of its dimensions that a node which it decides has */
};

/* Lists the constraints of a node, marking those that concern it in `seen`. */
static void find_own(struct limits *limits, const struct constraints *constraints, int id, struct seen *seen,
                     struct arena *arena) {
    const struct node *node = &limits->graph->nodes.at[id];
    const struct constraint *deciding[3] = {NULL}; /* the entry of a file, the rules of split and stage */
    VEC_EACH(&constraints->all, i, const struct constraint *constraint) {
        if (!concerns(constraint, node, arena)) continue;
        seen[i].any = true;
        const int kind = constraint->kind == CONSTRAINT_STAGE ? 2 : constraint->source == FROM_RULES;
        if (constraint->source == FROM_OPTION)
            VEC_PUSH(limits->graph->arena, &limits->of[id].all, constraint);
        else if (!deciding[kind] || closeness(constraint) >= closeness(deciding[kind]))
            deciding[kind] = constraint;
    }
    for (int kind = 0; kind < 3; kind++)
        if (deciding[kind]) VEC_PUSH(limits->graph->arena, &limits->of[id].all, deciding[kind]);
}

const struct constraint *limits_rule(const struct limits *limits, int id, bool stage) {
    VEC_EACH_VALUE(&limits->of[id].all, i, const struct constraint *constraint)
        if (constraint->source == FROM_RULES && (constraint->kind == CONSTRAINT_STAGE) == stage) return constraint;
    return NULL;
}

/* The gradient of a node that must not be split must not be either. */
static void find_of_gradient(struct limits *limits, int id) {
    const int origin = limits->graph->nodes.at[id].origin;
    if (origin < 0) return;
    VEC_EACH_VALUE(&limits->of[origin].all, i, const struct constraint *constraint) {
        if (constraint->kind == CONSTRAINT_ALLOW && !constraint->dims.n && constraint->source != FROM_RULES)
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
    VEC_EACH(&constraint->dims, d, const struct constraint_dim *listed) {
        const int operand = constraint_operand(graph, id, dims, listed);
        const int n = operand < 0 ? 0 : dims_cut_options(dims, operand, listed->dim, 1, 1, options);
        for (int i = 0; i < n; i++)
            if (options[i].split.factor == split->factor) return true;
    }
    return false;
}

bool limits_allow(const struct limits *limits, int node, const struct dims *dims, const struct node_split *split) {
    VEC_EACH_VALUE(&limits->of[node].all, i, const struct constraint *constraint) {
        if (constraint->kind == CONSTRAINT_PIN || constraint->kind == CONSTRAINT_STAGE) continue;
        if (is_listed(limits->graph, node, constraint, dims, split) != (constraint->kind == CONSTRAINT_ALLOW))
            return false;
    }
    return true;
}

/* By source: the code of an error, and the word before it. */
static const struct {
    int code;
    const char *word;
} sources[] = {[FROM_OPTION] = {437, "constraints"}, [FROM_FILE] = {437, "constraints"}, [FROM_RULES] = {424, "rules"}};

#define REFUSE(diags, constraint, text, ...)                                                                           \
    diag_error(diags, sources[(constraint)->source].code, EXIT_MALFORMED, (constraint)->place, "%s: " text,            \
               sources[(constraint)->source].word, __VA_ARGS__)

static void see(const struct limits *limits, const struct constraints *constraints, int id, struct seen *seen,
                struct arena *arena) {
    const struct graph *graph = limits->graph;
    struct dims dims;
    if (!limits->of[id].all.n) return;
    dims_bind_checked(arena, graph, &graph->nodes.at[id], &dims);
    VEC_EACH_VALUE(&limits->of[id].all, i, const struct constraint *constraint) {
        struct seen *of = &seen[constraint - constraints->all.at];
        of->decides = true;
        VEC_EACH(&constraint->dims, d, const struct constraint_dim *listed)
            if (constraint_operand(graph, id, &dims, listed) >= 0) of->dims |= UINT64_C(1) << d;
    }
}

static void refuse_dim(const struct constraint *constraint, const struct constraint_dim *listed, struct diags *diags) {
    const bool numbered = constraint->source == FROM_FILE;
    REFUSE(diags, constraint, "no node that it decides has a dimension %d of %s%s", listed->dim,
           numbered ? "input " : "", numbered ? listed->tensor + strlen("in") : diag_quote(diags, listed->tensor));
}

/* Checks that the mesh has the axes of a rule. Along that of the pipeline ranks have stages and no shards. */
static void check_axes(const struct graph *graph, const struct constraint *rule, struct diags *diags) {
    for (int i = 0; i < rule->naxes; i++) {
        const int axis = mesh_axis_by_name(&graph->mesh, rule->axis[i]);
        if (axis >= 0 && axis != mesh_pipeline_axis(&graph->mesh)) continue;
        if (axis < 0) {
            REFUSE(diags, rule, "the mesh has no axis '%s'", rule->axis[i]);
            continue;
        }
        REFUSE(diags, rule, "%s cannot be split along '%s', the axis of the pipeline stages",
               diag_quote(diags, rule->node), rule->axis[i]);
        diag_help(diags, "assign nodes to pipeline stages with: match \"GLOB\" stage K");
    }
}

/* A rule may be overridden for every node. */
static int check_seen(const struct limits *limits, const struct constraints *constraints, const struct seen *seen,
                      struct diags *diags) {
    const int before = diags->errors;
    VEC_EACH(&constraints->all, i, const struct constraint *constraint) {
        const bool decides = seen[i].decides || constraint->source != FROM_RULES;
        if (!seen[i].any) {
            REFUSE(diags, constraint, "no node matches %s",
                   constraint->node ? diag_quote(diags, constraint->node) : "it");
            continue;
        }
        if (constraint->source == FROM_RULES) check_axes(limits->graph, constraint, diags);
        for (int d = 0; d < constraint->dims.n && decides; d++)
            if (!(seen[i].dims >> d & 1)) refuse_dim(constraint, &constraint->dims.at[d], diags);
    }
    return diags->errors == before ? 0 : -1;
}

int constraint_axis(const struct graph *graph, const struct constraint *pin, int level) {
    const int axis = mesh_axis_by_name(&graph->mesh, pin->axis[level]);
    return axis < 0 || axis >= graph->mesh.naxes || axis == mesh_pipeline_axis(&graph->mesh) ? -1 : axis;
}

bool limits_pinned(const struct draft *draft, int id, const struct dims *dims, const struct constraint *pin,
                   int level) {
    const int axis = constraint_axis(draft->graph, pin, level);
    return axis >= 0 && draft->split[id][axis].factor >= 0 &&
           is_listed(draft->graph, id, pin, dims, &draft->split[id][axis]);
}

struct limits *limits_find(const struct graph *graph, const struct constraints *constraints, struct diags *diags) {
    const int pipeline = mesh_pipeline_axis(&graph->mesh);
    struct limits *limits = ARENA_NEW(graph->arena, struct limits);
    struct arena *scratch = arena_scratch(graph->arena);
    struct seen *seen = ARENA_ARRAY(scratch, struct seen, constraints->all.n + 1);
    int status = 0;
    *limits = (struct limits){.graph = graph};
    limits->of = arena_alloc(graph->arena, (size_t)graph->nodes.n + 1, sizeof *limits->of);
    limits->ranks = mesh_size(&graph->mesh) / (pipeline < 0 ? 1 : graph->mesh.axis[pipeline].size);
    for (int i = 0; i < graph->order.n; i++) find_own(limits, constraints, graph->order.at[i], seen, scratch);
    for (int i = 0; i < graph->order.n; i++)
        if (graph->nodes.at[graph->order.at[i]].phase != PHASE_FORWARD) find_of_gradient(limits, graph->order.at[i]);
    if (!constraints->checked && constraints->refine) status = plan_check_entries(constraints->refine, graph, diags);
    for (int i = 0; i < graph->order.n && !constraints->checked; i++)
        see(limits, constraints, graph->order.at[i], seen, scratch);
    if (!constraints->checked && !status) status = check_seen(limits, constraints, seen, diags);
    arena_release(graph->arena, scratch);
    return status < 0 ? NULL : limits;
}

int constraints_check(const struct constraints *constraints, const struct graph *graph, struct diags *diags) {
    return limits_find(graph, constraints, diags) ? 0 : -1;
}

/* What the draft does with the node against the constraint; NULL: nothing. */
static const char *against(const struct draft *draft, int id, const struct dims *dims,
                           const struct constraint *constraint) {
    const struct graph *graph = draft->graph;
    bool whole = true;
    if (constraint->kind == CONSTRAINT_PIN)
        return constraint_operand(graph, id, dims, &constraint->dims.at[0]) < 0 ||
                       limits_pinned(draft, id, dims, constraint, 0)
                   ? NULL
                   : "it is not split so";
    EACH(draft->split[id], graph->mesh.naxes, axis, const struct node_split *split) {
        if (split->factor < 0) continue;
        whole = false;
        if (is_listed(graph, id, constraint, dims, split) != (constraint->kind == CONSTRAINT_ALLOW))
            return "it is split otherwise";
    }
    const bool alone = constraint->source == FROM_FILE && draft->limits->ranks == 1;
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
        const char *what;
        if (!draft->limits->of[id].all.n || node->phase != PHASE_FORWARD) continue;
        dims_bind_checked(scratch, graph, node, &dims);
        for (int c = 0; c < draft->limits->of[id].all.n && !status; c++) {
            const struct constraint *constraint = draft->limits->of[id].all.at[c];
            if (constraint->source != FROM_RULES && (what = against(draft, id, &dims, constraint)))
                status = diag_error(diags, 438, EXIT_LIMIT, constraint->place, "node %s: %s",
                                    diag_quote(diags, node->name), what);
        }
    }
    arena_release(graph->arena, scratch);
    return status;
}
