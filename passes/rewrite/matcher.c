#include "passes/rewrite/matcher.h"

#include <string.h>

/* Note [Goals]
 * Matching is a search with backtracking over a list of goals: pairs of a pattern and a tensor that are still to be
 * matched. The first goal is replaced by goals for its operands, before the rest of the list. A function that solves a
 * goal calls solve for the rest; if that fails it tries its next alternative, so that early choices are undone when a
 * later goal fails. */
struct goal {
    const struct pattern *pattern;
    int tensor;
    const struct goal *rest;
};

void matcher_init(struct matcher *matcher, struct graph *graph) {
    *matcher = (struct matcher){.graph = graph, .tensors = graph->tensors.n};
    matcher->uses = graph_uses(graph, graph->arena);
    matcher->kept = graph_kept(graph, graph->arena);
}

static bool has_node(const struct match *match, int node) {
    for (int i = 0; i < match->nnodes; i++)
        if (match->node[i] == node) return true;
    return false;
}

/* Records `tensor`, which is not what the pattern expects, as a near miss. An earlier near miss is kept if it had
 * matched as many nodes. */
static bool missed(const struct match *match, int tensor, const char *expected, double number) {
    if (match->near_miss && match->nnodes > match->near_miss->nodes)
        *match->near_miss = (struct near_miss){match->nnodes, tensor, expected, number};
    return false;
}

bool match_encloses(const struct match *match, int tensor) {
    const struct matcher *m = match->matcher;
    if (tensor >= m->tensors || m->kept[tensor]) return false;
    for (int u = m->uses.first[tensor]; u < m->uses.first[tensor + 1]; u++)
        if (!has_node(match, m->uses.users[u])) return false;
    return true;
}

/* True if only nodes of the match read the results of its nodes, except for the root's and those of shared nodes. */
static bool is_closed(const struct match *match) {
    for (int i = 1; i < match->nnodes; i++) {
        int tensor = match->matcher->graph->nodes.at[match->node[i]].outputs[0];
        if (!match->shared[i] && !match_encloses(match, tensor)) return missed(match, tensor, NULL, 0);
    }
    return true;
}

static bool solve(struct match *match, const struct goal *goals);

/* Binds the name to the tensor, or to the number if tensor is -1, and solves the rest. False if it is bound to another
 * one already. */
static bool solve_name(struct match *match, const char *name, int tensor, double number, const struct goal *rest) {
    for (int i = 0; i < match->nnames; i++)
        if (strcmp(match->name[i].name, name) == 0) {
            bool same = match->name[i].tensor == tensor && (tensor >= 0 || match->name[i].number == number);
            return same && solve(match, rest);
        }
    if (match->nnames == MATCH_NAMES) return false;
    match->name[match->nnames].name = name;
    match->name[match->nnames].tensor = tensor;
    match->name[match->nnames++].number = number;
    bool solved = solve(match, rest);
    match->nnames -= !solved;
    return solved;
}

static bool solve_tensor(struct match *match, const struct goal *goal) {
    return solve_name(match, goal->pattern->name, goal->tensor, 0, goal->rest);
}

static bool solve_number(struct match *match, const struct goal *goal) {
    if (!is_constant_number(match->matcher->graph, goal->tensor, goal->pattern->number))
        return missed(match, goal->tensor, "", goal->pattern->number);
    return solve(match, goal->rest);
}

static bool solve_scalar(struct match *match, const struct goal *goal) {
    double value;
    if (!constant_number(match->matcher->graph, goal->tensor, &value)) return false;
    for (int i = 0; goal->pattern->name && i < match->nnames; i++)
        if (strcmp(match->name[i].name, goal->pattern->name) == 0 && match->name[i].number != value)
            return missed(match, goal->tensor, "", match->name[i].number);
    return goal->pattern->name ? solve_name(match, goal->pattern->name, -1, value, goal->rest)
                               : solve(match, goal->rest);
}

static bool solve_either(struct match *match, const struct goal *goal) {
    struct goal first = {.tensor = goal->tensor, .rest = goal->rest};
    struct pattern label = {.kind = PATTERN_TENSOR, .name = goal->pattern->name};
    struct goal labelled = {&label, goal->tensor, goal->rest};
    if (label.name) first.rest = &labelled;
    for (int i = 0; i < goal->pattern->n; i++) {
        first.pattern = goal->pattern->child[i];
        if (solve(match, &first)) return true;
    }
    return false;
}

/* Matches the node's operands with the pattern's in order, or with the first two exchanged, then the rest. */
static bool solve_operands(struct match *match, const struct goal *goal, const struct node *node, bool exchanged) {
    struct goal parts[PATTERN_CHILDREN];
    const struct pattern *p = goal->pattern;
    for (int i = p->n - 1; i >= 0; i--) {
        int from = exchanged ? 1 - i : i;
        parts[i] = (struct goal){p->child[i], node->inputs[from], i + 1 < p->n ? &parts[i + 1] : goal->rest};
        if (node->inputs[from] < 0) return false;
    }
    return solve(match, &parts[0]);
}

static bool solve_node(struct match *match, const struct goal *goal, const struct node *node) {
    const struct graph *graph = match->matcher->graph;
    int id = graph->tensors.at[goal->tensor].producer, before = match->nnodes;
    if (!has_node(match, id)) {
        if (match->nnodes == MATCH_NODES) return false;
        match->shared[match->nnodes] = goal->pattern->shared;
        match->node[match->nnodes++] = id;
    }
    bool solved =
        solve_operands(match, goal, node, false) || (node->op->commutes && solve_operands(match, goal, node, true));
    if (!solved) match->nnodes = before;
    return solved;
}

static bool solve_op(struct match *match, const struct goal *goal) {
    const struct graph *graph = match->matcher->graph;
    const struct pattern *p = goal->pattern;
    const struct node *node = graph_producer(graph, goal->tensor);
    if (!node || node->op != p->op || node->ninputs != p->n || (p->test && !p->test(graph, node)))
        return missed(match, goal->tensor, p->op->name, 0);
    if (!p->name) return solve_node(match, goal, node);
    struct pattern label = {.kind = PATTERN_TENSOR, .name = p->name};
    struct goal labelled = {&label, goal->tensor, goal->rest};
    struct goal self = {p, goal->tensor, &labelled};
    return solve_node(match, &self, node);
}

static bool solve(struct match *match, const struct goal *goals) {
    static bool (*const by_kind[])(struct match *, const struct goal *) = {
        [PATTERN_OP] = solve_op,         [PATTERN_TENSOR] = solve_tensor, [PATTERN_NUMBER] = solve_number,
        [PATTERN_SCALAR] = solve_scalar, [PATTERN_EITHER] = solve_either,
    };
    if (!goals) return is_closed(match) && match->accept(match->env, match);
    return by_kind[goals->pattern->kind](match, goals);
}

bool matcher_find(const struct matcher *matcher, const struct pattern *pattern, int tensor,
                  bool (*accept)(void *env, const struct match *match), void *env, struct near_miss *near_miss) {
    struct match match = {.matcher = matcher, .accept = accept, .env = env, .near_miss = near_miss};
    return solve(&match, &(struct goal){pattern, tensor, NULL});
}

const char *near_miss_text(const struct graph *graph, const struct near_miss *near_miss) {
    const struct tensor *t = &graph->tensors.at[near_miss->tensor];
    const char *computed = t->producer < 0 ? "not computed" : graph->nodes.at[t->producer].op->name;
    if (!near_miss->expected)
        return arena_printf(graph->arena, "'%s' (%s) is also read by other nodes", t->name, computed);
    if (!*near_miss->expected)
        return arena_printf(graph->arena, "'%s' is not the constant %g", t->name, near_miss->number);
    return arena_printf(graph->arena, "'%s' (%s) is no %s of the expected operands and attributes", t->name, computed,
                        near_miss->expected);
}

static int find_name(const struct match *match, const char *name) {
    for (int i = 0; i < match->nnames; i++)
        if (strcmp(match->name[i].name, name) == 0) return i;
    return -1;
}

bool match_has(const struct match *match, const char *name) {
    return find_name(match, name) >= 0;
}

int match_tensor(const struct match *match, const char *name) {
    const int i = find_name(match, name);
    return i < 0 ? -1 : match->name[i].tensor;
}

double match_number(const struct match *match, const char *name) {
    const int i = find_name(match, name);
    if (i < 0) BUG("pattern: no number '%s'", name);
    return match->name[i].number;
}
