/* Reverse-mode differentiation: nodes that give the gradient of the loss with respect to every parameter.
 *
 * The loss is output 0, one float. Parameters are the float weights it depends on, but for those that a rule freezes. The
 * walk goes back from the loss; a tensor that is read several times sums what comes from its readers, the last reader first,
 * so the order of sums is that of PyTorch's autograd for a chain. */
#include <string.h>

#include "ir/gradient.h"
#include "passes/optimizer.h"
#include "passes/pipeline.h"

/* What comes from each reader of a tensor, the last reader first. */
struct parts {
    VEC(int) all;
};

struct autodiff {
    struct graph *graph;
    struct diags *diags;
    const struct training *training;
    int tensors;         /* of the forward graph */
    bool *depends;       /* per tensor: on a parameter, differentiably */
    struct parts *parts; /* per tensor */
    int *gradient;       /* per tensor: once all its readers gave their parts; -1: none, or not yet */
};

static bool is_parameter(const struct autodiff *a, const struct tensor *tensor) {
    if (tensor->kind != TENSOR_WEIGHT || !rt_dtype_is_float(tensor->dtype)) return false;
    const struct parameter_rule *rule = parameter_rule_of(a->training, tensor->name);
    return !rule || !rule->frozen;
}

static void mark_dependent(struct autodiff *a) {
    const struct graph *graph = a->graph;
    for (int t = 0; t < a->tensors; t++) a->depends[t] = is_parameter(a, &graph->tensors.at[t]);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (!rt_dtype_is_float(graph->tensors.at[node->outputs[0]].dtype)) continue;
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && a->depends[node->inputs[k]]) a->depends[node->outputs[0]] = true;
    }
}

/* Pieces of a split tensor -------------------------------------------------------------------------------------------
 *
 * Readers that took slices give their gradients padded with zeros. Where the slices tile the tensor along one dimension the
 * sum of them is a Concat: no additions, and a cut inside of every piece (heads of a fused query-key-value) goes through. */

struct piece {
    int inner, dim; /* what was padded, and along which dimension; -1: not along one alone */
    int64_t begin, end;
};

static struct piece piece_of(const struct graph *graph, int tensor) {
    struct piece piece = {.dim = -1};
    int producer = graph->tensors.at[tensor].producer, n;
    if (producer < 0 || strcmp(graph->nodes.at[producer].op->name, "Pad") != 0) return piece;
    const struct node *node = &graph->nodes.at[producer];
    const int64_t *begin = attr_ints(node, "begin", &n), *end = attr_ints(node, "end", &n);
    for (int d = 0; d < n; d++) {
        if (!begin[d] && !end[d]) continue;
        if (piece.dim >= 0 || begin[d] < 0 || end[d] < 0) return (struct piece){.dim = -1};
        piece = (struct piece){node->inputs[0], d, begin[d], graph->tensors.at[tensor].dims[d] - end[d]};
    }
    return piece;
}

/* The Concat of the parts if they tile the tensor, else -1. */
static int join_pieces(struct autodiff *a, struct build *b, const struct parts *parts) {
    const struct graph *graph = a->graph;
    int n = parts->all.n, *inputs = ARENA_ARRAY(graph->arena, int, n + 1);
    int64_t at = 0;
    int dim = piece_of(graph, parts->all.at[0]).dim;
    for (int placed = 0; placed < n; placed++) {
        int next = -1;
        for (int i = 0; i < n && dim >= 0; i++) {
            struct piece piece = piece_of(graph, parts->all.at[i]);
            if (piece.dim == dim && piece.begin == at && piece.end > at) next = i;
        }
        if (next < 0) return -1;
        struct piece piece = piece_of(graph, parts->all.at[next]);
        inputs[placed] = piece.inner;
        at = piece.end;
    }
    if (at != graph->tensors.at[parts->all.at[0]].dims[dim]) return -1;
    struct attr axis = attr_of_int("axis", dim);
    return build(b, "Concat", n, inputs, 1, &axis);
}

/* The gradient of a tensor all of whose readers have been visited; -1 if there is none, or after a diagnostic. */
static int settle(struct autodiff *a, struct build *b, int tensor) {
    const struct parts *parts = &a->parts[tensor];
    if (a->gradient[tensor] >= 0 || !parts->all.n) return a->gradient[tensor];
    int errors = a->diags->errors, sum = parts->all.n > 1 ? join_pieces(a, b, parts) : -1;
    if (sum < 0 && a->diags->errors == errors) {
        sum = parts->all.at[0];
        for (int i = 1; i < parts->all.n && sum >= 0; i++) sum = build2(b, "Add", sum, parts->all.at[i]);
    }
    return a->gradient[tensor] = sum;
}

static int differentiate(struct autodiff *a, int id) {
    const struct node node = a->graph->nodes.at[id];
    bool *wanted = ARENA_ARRAY(a->graph->arena, bool, node.ninputs + 1);
    struct gradient g = {.node = node, .wanted = wanted};
    g.b = (struct build){a->graph, a->diags, arena_printf(a->graph->arena, "%s.grad", node.name)};
    if ((g.dy = settle(a, &g.b, node.outputs[0])) < 0) return a->diags->errors ? -1 : 0;
    g.dx = ARENA_ARRAY(a->graph->arena, int, node.ninputs + 1);
    for (int k = 0; k < node.ninputs; k++) wanted[k] = node.inputs[k] >= 0 && a->depends[node.inputs[k]];
    if (gradient_make(&g) < 0) {
        diag_note(a->diags, "of %s, between the loss and its parameters", node_place(a->graph, id));
        return -1;
    }
    for (int k = 0; k < node.ninputs; k++)
        if (wanted[k] && g.dx[k] >= 0) VEC_PUSH(a->graph->arena, &a->parts[node.inputs[k]].all, g.dx[k]);
    return 0;
}

static int find_loss(const struct graph *graph, struct diags *diags) {
    const struct tensor *loss = graph->outputs.n ? &graph->tensors.at[graph->outputs.at[0]] : NULL;
    if (loss && tensor_elements(loss) == 1 && rt_dtype_is_float(loss->dtype)) return graph->outputs.at[0];
    return diag_error(diags, 412, EXIT_USAGE, graph->name,
                      "the model has no loss: output 0 is %s, not one float; say --loss",
                      loss ? tensor_type(graph->arena, loss) : "missing");
}

/* In the order of their first readers, which a graph read back from its text has too. */
static int list_parameters(struct autodiff *a, int nodes) {
    struct graph *graph = a->graph;
    bool *listed = ARENA_ARRAY(graph->arena, bool, a->tensors + 1);
    for (int i = 0; i < nodes; i++) {
        const struct node node = graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node.ninputs; k++) {
            int t = node.inputs[k];
            if (t < 0 || listed[t] || !is_parameter(a, &graph->tensors.at[t]) || !a->parts[t].all.n) continue;
            struct build b = {graph, a->diags, arena_printf(graph->arena, "%s.grad", graph->tensors.at[t].name)};
            listed[t] = true;
            if (settle(a, &b, t) < 0) return -1;
            VEC_PUSH(graph->arena, &graph->parameters, (struct parameter){t, a->gradient[t]});
        }
    }
    if (graph->parameters.n) return 0;
    return diag_error(a->diags, 413, EXIT_USAGE, graph->name, "the loss depends on no parameter");
}

int pass_autodiff(struct graph *graph, const struct pass_context *context) {
    struct autodiff a = {.graph = graph,
                         .diags = context->diags,
                         .training = context->training,
                         .tensors = graph->tensors.n};
    int loss = find_loss(graph, context->diags), nodes = graph->order.n;
    if (loss < 0 || parameter_rules_check(context->training, graph, context->diags) < 0) return -1;
    a.depends = ARENA_ARRAY(graph->arena, bool, a.tensors + 1);
    a.gradient = ARENA_ARRAY(graph->arena, int, a.tensors + 1);
    a.parts = ARENA_ARRAY(graph->arena, struct parts, a.tensors + 1);
    mark_dependent(&a);
    for (int t = 0; t < a.tensors; t++) a.gradient[t] = -1;
    struct build b = {graph, context->diags, graph->output_names.at[0]};
    int one = build_scalar(&b, graph->tensors.at[loss].dtype, 1);
    a.gradient[loss] = build_reshape(&b, one, graph->tensors.at[loss].ndim, graph->tensors.at[loss].dims);
    if (a.gradient[loss] < 0) return -1;
    for (int i = nodes - 1; i >= 0; i--) {
        int id = graph->order.at[i], out = graph->nodes.at[id].outputs[0];
        if (a.depends[out] && differentiate(&a, id) < 0) return -1;
    }
    return list_parameters(&a, nodes);
}
