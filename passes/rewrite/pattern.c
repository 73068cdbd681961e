#include "passes/rewrite/pattern.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/expr/eval.h"

enum { MAX_CHILDREN = 4 };

struct pattern {
    enum { PATTERN_OP, PATTERN_TENSOR, PATTERN_NUMBER, PATTERN_SCALAR, PATTERN_EITHER } kind;
    const char *name; /* label of OP or EITHER; of TENSOR, SCALAR; or NULL */
    bool shared;
    const struct op *op;
    bool (*test)(const struct graph *graph, const struct node *node);
    double number;
    int n;
    const struct pattern *child[MAX_CHILDREN];
};

/* Tests --------------------------------------------------------------------------------------------------------- */

bool about(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

bool constant_number(const struct graph *graph, int id, double *value) {
    const struct tensor *tensor = &graph->tensors.at[id];
    if (tensor->kind != TENSOR_CONST || tensor_elements(tensor) != 1 || !rt_dtype_is_float(tensor->dtype)) return false;
    *value = eval_load(tensor->data, tensor->dtype, 0).f;
    return true;
}

const struct node *made_by(const struct graph *graph, int tensor, enum op_id op) {
    int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    if (producer < 0 || graph->nodes.at[producer].op->id != op) return NULL;
    return &graph->nodes.at[producer];
}

static const struct tensor *input(const struct graph *graph, const struct node *node) {
    return &graph->tensors.at[node->inputs[0]];
}

static const struct tensor *output(const struct graph *graph, const struct node *node) {
    return &graph->tensors.at[node->outputs[0]];
}

/* A mean over the last dimension, of extent N, which stays as extent 1: the sum times 1/N, or divided by N. */
static bool test_mean(const struct graph *graph, const struct node *node) {
    bool divides = node->op->id == OP_Div;
    for (int i = 0; i < 2 - divides; i++) {
        const struct node *sum = made_by(graph, node->inputs[i], OP_ReduceSum);
        int naxes = 0;
        double value;
        const int64_t *axes = sum ? attr_ints(sum, "axes", &naxes) : NULL;
        if (naxes != 1 || !attr_int(sum, "keepdims", 1) || !constant_number(graph, node->inputs[1 - i], &value))
            continue;
        const struct tensor *x = input(graph, sum);
        if (axes[0] == x->ndim - 1 && about(divides ? 1 / value : value, 1 / (double)x->dims[x->ndim - 1])) return true;
    }
    return false;
}

static bool test_last(const struct graph *graph, const struct node *node) {
    return attr_int(node, "axis", -1) == input(graph, node)->ndim - 1;
}

/* A Slice of half of the last dimension, from `start` (-1: from the middle) in steps of `step`. */
static bool takes_half(const struct graph *graph, const struct node *node, int64_t start, int64_t step) {
    const struct tensor *x = input(graph, node);
    int n, last = x->ndim - 1;
    const int64_t *starts = attr_ints(node, "start", &n), *steps = attr_ints(node, "step", &n);
    const int64_t *sizes = attr_ints(node, "size", &n);
    if (n < 1 || x->dims[last] % 2 || sizes[last] != x->dims[last] / 2) return false;
    for (int d = 0; d < last; d++)
        if (starts[d] != 0 || steps[d] != 1 || sizes[d] != x->dims[d]) return false;
    return starts[last] == (start < 0 ? sizes[last] : start) && steps[last] == step;
}

static bool test_front(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, 0, 1);
}
static bool test_back(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, -1, 1);
}
static bool test_even(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, 0, 2);
}
static bool test_odd(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, 1, 2);
}

/* A Slice of all but the last element of the last dimension. */
static bool test_but_last(const struct graph *graph, const struct node *node) {
    const struct tensor *x = input(graph, node);
    int n, last = x->ndim - 1;
    const int64_t *starts = attr_ints(node, "start", &n), *steps = attr_ints(node, "step", &n);
    const int64_t *sizes = attr_ints(node, "size", &n);
    if (n < 1) return false;
    for (int d = 0; d < n; d++)
        if (starts[d] != 0 || steps[d] != 1 || sizes[d] != x->dims[d] - (d == last)) return false;
    return true;
}

static bool begins_alike(const struct tensor *a, const struct tensor *b, int n) {
    return a->ndim >= n && b->ndim >= n && memcmp(a->dims, b->dims, (size_t)n * sizeof *a->dims) == 0;
}

/* A Reshape of (.., c) to (.., c, 1). */
static bool test_column(const struct graph *graph, const struct node *node) {
    const struct tensor *x = input(graph, node), *y = output(graph, node);
    return y->ndim == x->ndim + 1 && begins_alike(x, y, x->ndim);
}

/* A Reshape of (.., c, 2) to (.., 2c). */
static bool test_flat(const struct graph *graph, const struct node *node) {
    const struct tensor *x = input(graph, node), *y = output(graph, node);
    return y->ndim == x->ndim - 1 && begins_alike(x, y, y->ndim - 1);
}

/* A Gather of whole slices along the first dimension. */
static bool test_rows(const struct graph *graph, const struct node *node) {
    (void)graph;
    return attr_int(node, "axis", 0) == 0;
}

static const struct {
    const char *name;
    bool (*test)(const struct graph *graph, const struct node *node);
} tests[] = {{"mean", test_mean},         {"last", test_last}, {"front", test_front},   {"back", test_back},
             {"even", test_even},         {"odd", test_odd},   {"column", test_column}, {"flat", test_flat},
             {"but_last", test_but_last}, {"rows", test_rows}};

/* Texts --------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
} macros[] = {
    {"regrouped", "{@ | Reshape(@)}"},
    {"mean", "{Mul[mean](ReduceSum(@), #) | Div[mean](ReduceSum(@), #)}"},
    {"square", "{Pow(@, 2) | Mul(@, @)}"},
    {"cube", "{Pow(@, 3) | Mul(square(@), @)}"},
    {"half", "{Mul(@, 0.5) | Div(@, 2)}"},
    {"variance", "Add(mean(square(@)), epsilon#)"},
    {"normed", "{Div(@, Sqrt(variance(@)))"
               "|Mul(@, {Div(1, Sqrt(variance(@))) | Reciprocal(Sqrt(variance(@))) | Pow(variance(@), -0.5)})}"},
    /* x @ / 2, in any order of the factors */
    {"gate", "{half(Mul(x, @)) | Mul(x, half(@)) | Mul(half(x), @)}"},
};

struct reader {
    struct arena *arena;
    const char *at;
    const struct pattern *argument; /* of the macro whose text this is */
    bool shared;
};

static const struct pattern *read_pattern(struct reader *r);

static char next(struct reader *r) {
    while (*r->at == ' ') r->at++;
    return *r->at;
}

static void expect(struct reader *r, char c) {
    if (next(r) != c) BUG("pattern: '%c' is missing at '%s'", c, r->at);
    r->at++;
}

static const char *read_name(struct reader *r) {
    size_t n = 0;
    while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_') n++;
    const char *name = arena_copy(r->arena, r->at, n);
    r->at += n;
    return name;
}

static void read_children(struct reader *r, struct pattern *p, char separator, char end) {
    do {
        if (p->n == MAX_CHILDREN) BUG("pattern: too many parts at '%s'", r->at);
        p->child[p->n++] = read_pattern(r);
    } while (next(r) == separator && r->at++);
    expect(r, end);
}

static void read_operator(struct reader *r, struct pattern *p) {
    p->kind = PATTERN_OP;
    p->op = op_named(read_name(r));
    if (next(r) == '[') {
        r->at++;
        const char *name = read_name(r);
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
            if (strcmp(tests[i].name, name) == 0) p->test = tests[i].test;
        if (!p->test) BUG("pattern: no test '%s'", name);
        expect(r, ']');
    }
    expect(r, '(');
    read_children(r, p, ',', ')');
}

static const struct pattern *expand_macro(struct reader *r, const char *name) {
    expect(r, '(');
    const struct pattern *argument = read_pattern(r);
    expect(r, ')');
    for (size_t i = 0; i < sizeof macros / sizeof *macros; i++)
        if (strcmp(macros[i].name, name) == 0)
            return read_pattern(&(struct reader){r->arena, macros[i].text, argument, r->shared});
    BUG("pattern: no macro '%s'", name);
}

/* A term that begins with a small letter: a label, a macro, a tensor or a scalar. */
static const struct pattern *read_named(struct reader *r, struct pattern *p) {
    const char *name = read_name(r);
    if (next(r) == '(') return expand_macro(r, name);
    if (*r->at == ':') {
        r->at++;
        struct pattern *labelled = arena_copy(r->arena, read_pattern(r), sizeof *p);
        labelled->name = name;
        return labelled;
    }
    p->kind = *r->at == '#' ? PATTERN_SCALAR : PATTERN_TENSOR;
    p->name = name;
    r->at += *r->at == '#';
    return p;
}

static const struct pattern *read_shared(struct reader *r) {
    const bool before = r->shared;
    r->at++;
    r->shared = true;
    const struct pattern *p = read_pattern(r);
    r->shared = before;
    return p;
}

static const struct pattern *read_pattern(struct reader *r) {
    struct pattern *p = ARENA_NEW(r->arena, struct pattern);
    char c = next(r);
    p->shared = r->shared;
    if (c == '&') return read_shared(r);
    if (islower((unsigned char)c)) return read_named(r, p);
    if (c == '@') return r->at++, r->argument;
    if (c == '{') {
        r->at++;
        p->kind = PATTERN_EITHER;
        read_children(r, p, '|', '}');
    } else if (c == '#') {
        r->at++;
        p->kind = PATTERN_SCALAR;
    } else if (isdigit((unsigned char)c) || c == '-') {
        p->kind = PATTERN_NUMBER;
        p->number = strtod(r->at, (char **)&r->at);
    } else {
        read_operator(r, p);
    }
    return p;
}

const struct pattern *pattern_parse(struct arena *arena, const char *text) {
    struct reader reader = {arena, text, NULL, false};
    const struct pattern *pattern = read_pattern(&reader);
    if (next(&reader)) BUG("pattern: '%s' is left over", reader.at);
    return pattern;
}

/* Matching ------------------------------------------------------------------------------------------------------ */

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
    graph_uses(graph, graph->arena, &matcher->uses);
    matcher->kept = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->outputs.n; i++) matcher->kept[graph->outputs.at[i]] = true;
    for (int i = 0; i < graph->updates.n; i++) matcher->kept[graph->updates.at[i].value] = true;
}

bool matcher_sole(const struct matcher *matcher, int tensor) {
    if (tensor >= matcher->tensors || matcher->kept[tensor]) return false;
    return matcher->uses.first[tensor + 1] - matcher->uses.first[tensor] == 1;
}

static bool has_node(const struct match *match, int node) {
    for (int i = 0; i < match->nnodes; i++)
        if (match->node[i] == node) return true;
    return false;
}

/* Notes that `tensor` is not what the pattern expects, if no other way of matching had more nodes before. */
static bool missed(const struct match *match, int tensor, const char *expected, double number) {
    if (match->near_miss && match->nnodes > match->near_miss->nodes)
        *match->near_miss = (struct near_miss){match->nnodes, tensor, expected, number};
    return false;
}

/* True if only nodes of the match read the results of its nodes, except for the root's and those of shared nodes. */
static bool is_closed(const struct match *match) {
    const struct matcher *m = match->matcher;
    for (int i = 1; i < match->nnodes; i++) {
        int tensor = m->graph->nodes.at[match->node[i]].outputs[0];
        if (match->shared[i]) continue;
        if (tensor >= m->tensors || m->kept[tensor]) return missed(match, tensor, NULL, 0);
        for (int u = m->uses.first[tensor]; u < m->uses.first[tensor + 1]; u++)
            if (!has_node(match, m->uses.users[u])) return missed(match, tensor, NULL, 0);
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
    if (match->nnames == MATCH_NAMES) BUG("pattern: too many names");
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
    double value;
    if (!constant_number(match->matcher->graph, goal->tensor, &value) || !about(value, goal->pattern->number))
        return missed(match, goal->tensor, "", goal->pattern->number);
    return solve(match, goal->rest);
}

static bool solve_scalar(struct match *match, const struct goal *goal) {
    double value;
    if (!constant_number(match->matcher->graph, goal->tensor, &value)) return false;
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
    struct goal parts[MAX_CHILDREN];
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
        if (match->nnodes == MATCH_NODES) BUG("pattern: too many nodes");
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
    int producer = graph->tensors.at[goal->tensor].producer;
    const struct node *node = producer < 0 ? NULL : &graph->nodes.at[producer];
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
                  bool (*accept)(void *env, const struct match *match), void *env) {
    return matcher_find_near(matcher, pattern, tensor, accept, env, NULL);
}

bool matcher_find_near(const struct matcher *matcher, const struct pattern *pattern, int tensor,
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

int match_tensor(const struct match *match, const char *name) {
    for (int i = 0; i < match->nnames; i++)
        if (strcmp(match->name[i].name, name) == 0) return match->name[i].tensor;
    return -1;
}

double match_number(const struct match *match, const char *name) {
    for (int i = 0; i < match->nnames; i++)
        if (strcmp(match->name[i].name, name) == 0) return match->name[i].number;
    BUG("pattern: no number '%s'", name);
}
