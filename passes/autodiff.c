/* Reverse-mode differentiation: nodes that give the gradient of the loss with respect to every parameter.
 *
 * The loss is output 0, one float. Parameters are the float weights it depends on. The walk goes back from the loss; a
 * tensor that is read several times sums what comes from its readers, the last reader first, so the order of sums is that of
 * PyTorch's autograd for a chain. */
#include "ir/gradient.h"
#include "passes/pipeline.h"

struct autodiff {
    struct graph *graph;
    struct diags *diags;
    int tensors;   /* of the forward graph */
    bool *depends; /* per tensor: on a parameter, differentiably */
    int *gradient; /* per tensor: the sum so far, -1: none */
};

static bool is_parameter(const struct tensor *tensor) {
    return tensor->kind == TENSOR_WEIGHT && rt_dtype_is_float(tensor->dtype);
}

static void mark_dependent(struct autodiff *a) {
    const struct graph *graph = a->graph;
    for (int t = 0; t < a->tensors; t++) a->depends[t] = is_parameter(&graph->tensors.at[t]);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (!rt_dtype_is_float(graph->tensors.at[node->outputs[0]].dtype)) continue;
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && a->depends[node->inputs[k]]) a->depends[node->outputs[0]] = true;
    }
}

/* Adds `more` to the gradient of a tensor. */
static int add_to(struct autodiff *a, struct build *b, int tensor, int more) {
    int sum = a->gradient[tensor] < 0 ? more : build2(b, "Add", a->gradient[tensor], more);
    return a->gradient[tensor] = sum;
}

static int differentiate(struct autodiff *a, int id) {
    const struct node node = a->graph->nodes.at[id];
    bool *wanted = ARENA_ARRAY(a->graph->arena, bool, node.ninputs + 1);
    struct gradient g = {.node = node, .wanted = wanted, .dy = a->gradient[node.outputs[0]]};
    g.b = (struct build){a->graph, a->diags, arena_printf(a->graph->arena, "%s.grad", node.name)};
    g.dx = ARENA_ARRAY(a->graph->arena, int, node.ninputs + 1);
    for (int k = 0; k < node.ninputs; k++) wanted[k] = node.inputs[k] >= 0 && a->depends[node.inputs[k]];
    if (gradient_make(&g) < 0) {
        diag_note(a->diags, "of %s, between the loss and its parameters", node_place(a->graph, id));
        return -1;
    }
    for (int k = 0; k < node.ninputs; k++)
        if (wanted[k] && g.dx[k] >= 0 && add_to(a, &g.b, node.inputs[k], g.dx[k]) < 0) return -1;
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
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++) {
            int t = node->inputs[k];
            if (t < 0 || listed[t] || !is_parameter(&graph->tensors.at[t]) || a->gradient[t] < 0) continue;
            listed[t] = true;
            VEC_PUSH(graph->arena, &graph->parameters, (struct parameter){t, a->gradient[t]});
        }
    }
    if (graph->parameters.n) return 0;
    return diag_error(a->diags, 413, EXIT_USAGE, graph->name, "the loss depends on no parameter");
}

int pass_autodiff(struct graph *graph, const struct pass_context *context) {
    struct autodiff a = {.graph = graph, .diags = context->diags, .tensors = graph->tensors.n};
    int loss = find_loss(graph, context->diags), nodes = graph->order.n;
    if (loss < 0) return -1;
    a.depends = ARENA_ARRAY(graph->arena, bool, a.tensors + 1);
    a.gradient = ARENA_ARRAY(graph->arena, int, a.tensors + 1);
    mark_dependent(&a);
    for (int t = 0; t < a.tensors; t++) a.gradient[t] = -1;
    struct build b = {graph, context->diags, graph->output_names.at[0]};
    int one = build_scalar(&b, graph->tensors.at[loss].dtype, 1);
    a.gradient[loss] = build_reshape(&b, one, graph->tensors.at[loss].ndim, graph->tensors.at[loss].dims);
    if (a.gradient[loss] < 0) return -1;
    for (int i = nodes - 1; i >= 0; i--) {
        int id = graph->order.at[i], out = graph->nodes.at[id].outputs[0];
        if (a.gradient[out] >= 0 && a.depends[out] && differentiate(&a, id) < 0) return -1;
    }
    return list_parameters(&a, nodes);
}
