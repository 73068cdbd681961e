/* Property `pattern` of declared operators: the subgraph that the operator takes the place of. */
#include "ir/user.h"

#include <ctype.h>
#include <string.h>

#include "ir/build.h"
#include "ir/pattern.h"

/* What a pattern names. Macros share their arguments, so a short text may be a large pattern. */
struct names {
    const struct user_op *user;
    struct arena *arena;
    int parts; /* visited */
    bool input[USER_INPUTS];
    VEC(const char *) labels, tensors, numbers;
};

enum { MOST_PARTS = 1000 };

static void collect(struct names *names, const struct pattern *p) {
    if (++names->parts > MOST_PARTS) return;
    if (p->name && p->kind == PATTERN_TENSOR)
        VEC_PUSH(names->arena, &names->tensors, p->name);
    else if (p->name && p->kind == PATTERN_SCALAR)
        VEC_PUSH(names->arena, &names->numbers, p->name);
    else if (p->name)
        VEC_PUSH(names->arena, &names->labels, p->name);
    for (int i = 0; i < p->n; i++) collect(names, p->child[i]);
}

static bool is_among(const char *const *list, int n, const char *name) {
    while (n > 0 && strcmp(list[n - 1], name) != 0) n--;
    return n > 0;
}

int user_pattern_input(const struct user_op *user, const char *name) {
    if (name[0] != 'x' || !isdigit((unsigned char)name[1]) || name[2]) return -1;
    return name[1] - '0' < user_inputs(user) ? name[1] - '0' : -1;
}

static const char *check_inputs(struct names *names) {
    VEC_EACH_VALUE(&names->tensors, i, const char *name) {
        const int input = user_pattern_input(names->user, name);
        if (input >= 0)
            names->input[input] = true;
        else if (!is_among(names->labels.at, names->labels.n, name))
            return arena_printf(names->arena, "'%s' is no input: these are x0, x1 ..", name);
    }
    for (int i = 0; i < user_required(names->user); i++)
        if (!names->input[i]) return arena_printf(names->arena, "input x%d does not occur", i);
    return NULL;
}

static const char *check_numbers(const struct names *names) {
    struct user_attr attr;
    const char *why;
    for (int i = 0; i < names->numbers.n; i++) {
        bool found = false;
        for (const char *rest = names->user->attrs; (rest = user_next_attr(rest, &attr, &why)) && !found;)
            found = attr.kind == 'f' && strcmp(attr.name, names->numbers.at[i]) == 0;
        if (!found) return arena_printf(names->arena, "'%s' is no attribute of kind f", names->numbers.at[i]);
    }
    for (const char *rest = names->user->attrs; (rest = user_next_attr(rest, &attr, &why));)
        if (attr.required && !is_among(names->numbers.at, names->numbers.n, attr.name))
            return arena_printf(names->arena, "attribute '%s' has no default and does not occur", attr.name);
    return NULL;
}

const char *user_pattern_fault(const struct user_op *user, struct arena *arena, size_t *at) {
    struct pattern_fault fault;
    const struct pattern *pattern = pattern_read(arena, user->pattern, &fault);
    struct names names = {.user = user, .arena = arena};
    const char *why;
    *at = fault.at;
    if (!pattern) return fault.why;
    *at = 0;
    if (pattern->kind != PATTERN_OP) return "a pattern begins with an operator";
    if (user_outputs(user) != 1) return "an operator with a pattern has one output";
    collect(&names, pattern);
    if (names.parts > MOST_PARTS) return "the pattern has more than 1000 parts";
    if ((why = check_inputs(&names)) || (why = check_numbers(&names))) return why;
    return NULL;
}

/* A subgraph being built; labels have the tensors that are computed already. */
struct subgraph {
    struct build *builder;
    const struct user_op *user;
    const int *inputs;
    struct node numbers; /* the attributes */
    int nlabels;
    struct {
        const char *name;
        int tensor;
    } label[USER_INPUTS];
};

static int build_part(struct subgraph *subgraph, const struct pattern *p);

static int named_tensor(struct subgraph *subgraph, const char *name) {
    const int input = user_pattern_input(subgraph->user, name);
    for (int i = 0; i < subgraph->nlabels; i++)
        if (strcmp(subgraph->label[i].name, name) == 0) return subgraph->label[i].tensor;
    if (input >= 0) return subgraph->inputs[input];
    return diag_error(subgraph->builder->diags, 1105, EXIT_MISMATCH, subgraph->user->op.name,
                      "the pattern uses '%s' before it is computed", name);
}

static int64_t last_extent(const struct graph *graph, int tensor) {
    const struct tensor *x = &graph->tensors.at[tensor];
    return x->ndim ? x->dims[x->ndim - 1] : 1;
}

static int build_number(struct subgraph *subgraph, double value) {
    const struct graph *graph = subgraph->builder->graph;
    return build_scalar(subgraph->builder, graph->tensors.at[subgraph->inputs[0]].dtype, value);
}

/* The number # of a mean: that of the elements that `sum` adds, or its reciprocal. */
static double number_of_mean(const struct graph *graph, int sum, bool divides) {
    const struct node *node = made_by(graph, sum, OP_ReduceSum);
    const double n = node ? (double)last_extent(graph, node->inputs[0]) : 1;
    return divides ? n : 1 / n;
}

static int build_node(struct subgraph *subgraph, const struct pattern *p) {
    static const enum op_id reductions[] = {OP_ReduceSum, OP_ReduceMax, OP_ReduceMin, OP_ReduceProd, OP_NONE},
                            along[] = {OP_Softmax, OP_LogSoftmax, OP_CumSum, OP_NONE};
    const struct graph *graph = subgraph->builder->graph;
    int in[PATTERN_CHILDREN], nattrs = 0;
    struct attr attrs[2];
    EACH_VALUE(p->child, p->n, i, const struct pattern *child) {
        const bool of_mean = p->test && i && child->kind == PATTERN_SCALAR && !child->name;
        in[i] = of_mean ? build_number(subgraph, number_of_mean(graph, in[0], p->op->id == OP_Div))
                        : build_part(subgraph, child);
        if (in[i] < 0) return -1;
    }
    const int64_t last = graph->tensors.at[in[0]].ndim - 1;
    if (op_is_listed(p->op, reductions)) {
        attrs[nattrs++] = attr_of_ints("axes", 1, &last);
        attrs[nattrs++] = attr_of_int("keepdims", 1);
    }
    if (op_is_listed(p->op, along)) attrs[nattrs++] = attr_of_int("axis", last);
    return build(subgraph->builder, p->op->id, p->n, in, nattrs, attrs);
}

static int build_labelled(struct subgraph *subgraph, const struct pattern *p, int tensor) {
    if (tensor >= 0 && p->name && subgraph->nlabels < USER_INPUTS) {
        subgraph->label[subgraph->nlabels].name = p->name;
        subgraph->label[subgraph->nlabels++].tensor = tensor;
    }
    return tensor;
}

static int build_part(struct subgraph *subgraph, const struct pattern *p) {
    switch (p->kind) {
    case PATTERN_TENSOR: return named_tensor(subgraph, p->name);
    case PATTERN_NUMBER: return build_number(subgraph, p->number);
    case PATTERN_SCALAR: return build_number(subgraph, p->name ? attr_float(&subgraph->numbers, p->name, 1) : 1);
    case PATTERN_EITHER: return build_labelled(subgraph, p, build_part(subgraph, p->child[0]));
    default: return build_labelled(subgraph, p, build_node(subgraph, p));
    }
}

int user_pattern_build(struct build *builder, const struct user_op *user, const int *inputs) {
    struct subgraph subgraph = {.builder = builder, .user = user, .inputs = inputs};
    subgraph.numbers.attrs = (struct attr *)user_attrs(user, NULL, builder->graph->arena, &subgraph.numbers.nattrs);
    return build_part(&subgraph, pattern_parse(builder->graph->arena, user->pattern));
}
