/* Reverse-mode differentiation: adds nodes that compute the gradient of the loss with respect to every parameter.
 *
 * Parameters are the float weights that the loss depends on, except constants (roles.h) and those that a rule
 * freezes. The walk goes back from the loss. The gradient of a tensor with several readers is the sum of their
 * contributions, the last reader's first: for sequential models the order of additions of PyTorch's autograd. */
#include <string.h>

#include "ir/base/str.h"
#include "ir/gradient.h"
#include "ir/ops/grad.h"
#include "passes/pipeline.h"
#include "passes/train/lora.h"

enum { MOST_NAMED = 8 }; /* weights that a remark lists by name */

/* The contributions of a tensor's readers to its gradient, the last reader's first. */
struct parts {
    VEC(int) all;
};

struct autodiff {
    struct graph *graph;
    struct diags *diags;
    const struct training *training;
    struct build_known *known;
    bool module;         /* the model has no loss: its caller gives the gradients of its outputs */
    bool adapts;         /* the graph has adapters (lora.h) */
    int tensors, nodes;  /* of the forward graph, dead ones included */
    bool *depends;       /* per tensor: it depends differentiably on a parameter */
    struct parts *parts; /* per tensor */
    int *gradient;       /* per tensor: the sum of its parts, once they are complete; -1: none yet */
};

static bool is_parameter(const struct autodiff *a, const struct tensor *tensor) {
    return weight_is_trained(a->training, a->adapts, tensor);
}

/* True for parameters and, of a module, for float inputs, whose gradients its caller needs. */
static bool wants_gradient(const struct autodiff *a, const struct tensor *tensor) {
    return is_parameter(a, tensor) || (a->module && tensor->kind == TENSOR_INPUT && rt_dtype_is_float(tensor->dtype));
}

static void mark_dependent(struct autodiff *a) {
    const struct graph *graph = a->graph;
    for (int t = 0; t < a->tensors; t++) a->depends[t] = wants_gradient(a, &graph->tensors.at[t]);
    GRAPH_EACH(graph, i, const struct node *node) {
        if (!rt_dtype_is_float(graph->tensors.at[node->outputs[0]].dtype) || node->op->grad == grad_none) continue;
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && a->depends[node->inputs[k]]) a->depends[node->outputs[0]] = true;
    }
}

/* Pieces of a split tensor -------------------------------------------------------------------------------------------
 *
 * The gradient of a Slice is padded with zeros. If slices tile a tensor along one dimension, the sum of their
 * gradients is a Concat of the unpadded ones. That needs no additions, and a split inside of every piece (heads of a
 * fused query-key-value tensor) can propagate through it. */

struct piece {
    int inner, dim; /* the tensor that was padded, and the dimension; -1: it was not padded along exactly one */
    int64_t begin, end;
};

static struct piece piece_of(const struct graph *graph, int tensor) {
    struct piece piece = {.dim = -1};
    int n;
    const struct node *node = made_by(graph, tensor, OP_Pad);
    if (!node) return piece;
    const int64_t *begin = attr_ints(node, "begin", &n), *end = attr_ints(node, "end", &n);
    for (int d = 0; d < n; d++) {
        if (!begin[d] && !end[d]) continue;
        if (piece.dim >= 0 || begin[d] < 0 || end[d] < 0) return (struct piece){.dim = -1};
        piece = (struct piece){node->inputs[0], d, begin[d], graph->tensors.at[tensor].dims[d] - end[d]};
    }
    return piece;
}

/* The Concat of the parts if they tile the tensor, else -1. */
static int join_pieces(struct autodiff *a, struct build *builder, const struct parts *parts) {
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
    return build_concat(builder, dim, n, inputs);
}

/* The gradient of a tensor all of whose readers have been visited; -1 if there is none, or after a diagnostic. The
 * gradient of a sum over scale units, which all of them read, is the sum of theirs. */
static int settle(struct autodiff *a, struct build *builder, int tensor) {
    const struct parts *parts = &a->parts[tensor];
    if (a->gradient[tensor] >= 0 || !parts->all.n) return a->gradient[tensor];
    int errors = a->diags->errors, sum = parts->all.n > 1 ? join_pieces(a, builder, parts) : -1;
    if (sum < 0 && a->diags->errors == errors) {
        sum = parts->all.at[0];
        for (int i = 1; i < parts->all.n && sum >= 0; i++) sum = build2(builder, OP_Add, sum, parts->all.at[i]);
    }
    if (a->graph->tensors.at[tensor].joined && sum >= 0) sum = build_unit_sum(builder, sum);
    return a->gradient[tensor] = sum;
}

/* The nodes from position `first` of the order on compute the gradient of the node. */
static void set_origin(struct graph *graph, int first, int origin) {
    for (int i = first; i < graph->order.n; i++) graph->nodes.at[graph->order.at[i]].origin = origin;
}

/* PyTorch's padding_idx: indices of that row of an embedding leave its gradient alone. --param says which it is, else
 * the model's attribute. The table may be a cast of the parameter. -1: there is no such row. */
static int64_t padding_of(const struct autodiff *a, const struct node *gather) {
    const struct node *cast;
    int table = gather->inputs[0];
    while ((cast = made_by(a->graph, table, OP_Cast))) table = cast->inputs[0];
    const struct tensor *weight = &a->graph->tensors.at[table];
    const struct parameter_rule *rule = weight->kind == TENSOR_WEIGHT ? parameter_rule_of(a->training, weight) : NULL;
    if (!rule || !rule->pads) return attr_int(gather, "padding", -1);
    return rule->padding < 0 ? rule->padding + weight->dims[0] : rule->padding;
}

/* The gradient of a Gather's result without that of the padding row; -1 after a diagnostic. */
static int without_padding(struct autodiff *a, struct build *builder, const struct node *gather, int dy) {
    const int64_t row = gather->op->id == OP_Gather && attr_int(gather, "axis", 0) == 0 ? padding_of(a, gather) : -1;
    if (row < 0 || dy < 0) return dy;
    const struct tensor index = a->graph->tensors.at[gather->inputs[1]], values = a->graph->tensors.at[dy];
    int64_t dims[RT_MAX_NDIM];
    for (int d = 0; d < values.ndim; d++) dims[d] = d < index.ndim ? index.dims[d] : 1;
    const int padded = build2(builder, OP_Equal, build_cast(builder, gather->inputs[1], RT_I64),
                              build_scalar(builder, RT_I64, (double)row));
    const int beside = padded < 0 ? -1 : build_reshape(builder, padded, values.ndim, dims);
    if (beside < 0) return -1;
    return build(builder, OP_Where, 3, (int[]){beside, build_scalar(builder, values.dtype, 0), dy}, 0, NULL);
}

static int differentiate(struct autodiff *a, int id) {
    const int first = a->graph->order.n;
    const struct node node = a->graph->nodes.at[id];
    bool *wanted = ARENA_ARRAY(a->graph->arena, bool, node.ninputs + 1);
    struct gradient gradient = {.node = node, .place = node_place(a->graph, id), .known = a->known, .wanted = wanted};
    gradient.builder = (struct build){a->graph, a->diags, arena_printf(a->graph->arena, "%s.grad", node.name)};
    if ((gradient.dy = settle(a, &gradient.builder, node.outputs[0])) < 0) return a->diags->errors ? -1 : 0;
    if ((gradient.dy = without_padding(a, &gradient.builder, &node, gradient.dy)) < 0) return -1;
    gradient.dx = ARENA_ARRAY(a->graph->arena, int, node.ninputs + 1);
    for (int k = 0; k < node.ninputs; k++) wanted[k] = node.inputs[k] >= 0 && a->depends[node.inputs[k]];
    if (gradient_make(&gradient) < 0) {
        return diag_note(a->diags, "it is on a path from a parameter to the loss");
    }
    set_origin(a->graph, first, id);
    for (int k = 0; k < node.ninputs; k++)
        if (wanted[k] && gradient.dx[k] >= 0) VEC_PUSH(a->graph->arena, &a->parts[node.inputs[k]].all, gradient.dx[k]);
    return 0;
}

/* Where the walk begins --------------------------------------------------------------------------------------------
 *
 * Output 0 is the loss if it is one float: its gradient is what the runtime scales it with, usually 1. Other models are
 * modules of a larger one: the gradient of each output is an input more, and those of the inputs are outputs. */

static bool has_loss(const struct graph *graph) {
    const struct tensor *loss = graph->outputs.n ? &graph->tensors.at[graph->outputs.at[0]] : NULL;
    return loss && tensor_elements(loss) == 1 && rt_dtype_is_float(loss->dtype);
}

/* With a loss scale, the gradient of the loss begins with that. */
static int scaled_seed(struct autodiff *a, struct build *builder) {
    int seed = graph_control(a->graph, RT_SEED), errors = a->diags->errors;
    int scale = a->training ? loss_scale_begin(builder, &a->training->amp) : -1;
    if (a->diags->errors > errors) return -1;
    return scale < 0 ? seed : build2(builder, OP_Mul, seed, scale);
}

static int seed_loss(struct autodiff *a) {
    struct graph *graph = a->graph;
    const int first = graph->order.n;
    const struct tensor loss = graph->tensors.at[graph->outputs.at[0]];
    struct build builder = {graph, a->diags, graph->output_names.at[0]};
    int seed = scaled_seed(a, &builder);
    if (seed >= 0) seed = build_cast(&builder, seed, loss.dtype);
    if (seed < 0 || (seed = build_reshape(&builder, seed, loss.ndim, loss.dims)) < 0) return -1;
    set_origin(graph, first, loss.producer);
    return a->gradient[graph->outputs.at[0]] = seed;
}

static int seed_outputs(struct autodiff *a) {
    struct graph *graph = a->graph;
    VEC_EACH_VALUE(&graph->outputs, i, int output) {
        const struct tensor t = graph->tensors.at[output];
        if (output >= a->tensors || !rt_dtype_is_float(t.dtype)) continue;
        const char *name = arena_printf(graph->arena, "%s.gradient", graph->output_names.at[i]);
        int seed = graph_add_tensor(graph, TENSOR_INPUT, name, t.dtype, t.ndim, t.dims);
        graph->tensors.at[seed].gradient = true;
        VEC_PUSH(graph->arena, &graph->inputs, seed);
        VEC_PUSH(graph->arena, &a->parts[output].all, seed);
    }
    if (graph_gradient_inputs(graph)) return 0;
    return diag_error(a->diags, 412, EXIT_USAGE, graph->name, "the model has no output that is differentiable");
}

/* Adds the gradients of a module's float inputs to its outputs; zeros for inputs that no output depends on. */
static int give_input_gradients(struct autodiff *a) {
    struct graph *graph = a->graph;
    for (int i = 0; a->module && i < graph->inputs.n; i++) {
        int input = graph->inputs.at[i];
        const struct tensor t = graph->tensors.at[input];
        if (t.gradient || !rt_dtype_is_float(t.dtype)) continue;
        const char *name = arena_printf(graph->arena, "%s.gradient", t.name);
        struct build builder = {graph, a->diags, name};
        int gradient = settle(a, &builder, input);
        if (gradient < 0 && a->diags->errors) return -1;
        if (gradient < 0) gradient = build_expand(&builder, build_scalar(&builder, t.dtype, 0), t.ndim, t.dims);
        if (gradient < 0) return -1;
        graph_add_metric(graph, gradient, name);
    }
    return 0;
}

/* Lists parameters and gradients in the order of the parameters' first readers, which a graph parsed from text has
 * too. */
static int list_parameters(struct autodiff *a, int nodes) {
    struct graph *graph = a->graph;
    bool *listed = ARENA_ARRAY(graph->arena, bool, a->tensors + 1);
    for (int i = 0; i < nodes; i++) {
        const struct node node = graph->nodes.at[graph->order.at[i]];
        EACH_VALUE(node.inputs, node.ninputs, k, int t) {
            if (t < 0 || listed[t] || !is_parameter(a, &graph->tensors.at[t]) || !a->parts[t].all.n) continue;
            struct build builder = {graph, a->diags, arena_printf(graph->arena, "%s.grad", graph->tensors.at[t].name)};
            listed[t] = true;
            const int first = graph->order.n;
            if (settle(a, &builder, t) < 0) return -1;
            set_origin(graph, first, graph->order.at[i]);
            VEC_PUSH(graph->arena, &graph->parameters, (struct parameter){t, a->gradient[t]});
        }
    }
    if (graph->parameters.n) return 0;
    return diag_error(a->diags, 413, EXIT_USAGE, graph->name, "the loss does not depend on any parameter");
}

/* Per tensor: true for weights that differentiable nodes of the model read, dead nodes included. Scalars that only dead
 * nodes read are left out: there they are constants of decompositions that were recognised. */
static const bool *find_read(const struct autodiff *a) {
    const struct graph *graph = a->graph;
    bool *read = ARENA_ARRAY(graph->arena, bool, a->tensors + 1), *live = ARENA_ARRAY(graph->arena, bool, a->nodes + 1);
    for (int i = 0; i < graph->order.n; i++)
        if (graph->order.at[i] < a->nodes) live[graph->order.at[i]] = true;
    EACH(graph->nodes.at, a->nodes, id, const struct node *node) {
        for (int k = 0; k < node->ninputs && node->op->grad != grad_none; k++)
            if (node->inputs[k] >= 0 && (live[id] || tensor_elements(&graph->tensors.at[node->inputs[k]]) > 1))
                read[node->inputs[k]] = true;
    }
    for (int i = 0; i < graph->updates.n; i++) read[graph->updates.at[i].weight] = false; /* running statistics */
    return read;
}

/* Remarks weights that look like parameters but get no gradient. */
static void tell_untrained(const struct autodiff *a) {
    const bool *read = find_read(a);
    int count = 0;
    struct strbuf names = {.arena = a->graph->arena};
    for (int t = 0; t < a->tensors; t++) {
        if (!read[t] || !is_parameter(a, &a->graph->tensors.at[t]) || a->parts[t].all.n) continue;
        if (count++ < MOST_NAMED)
            strbuf_printf(&names, "%s%s", count > 1 ? ", " : "", diag_quote(a->diags, a->graph->tensors.at[t].name));
    }
    if (!count) return;
    if (count > MOST_NAMED) strbuf_printf(&names, " and %d more", count - MOST_NAMED);
    diag_remark(a->diags, a->graph->name, "not trained, because the loss has no gradient with respect to them: %s",
                strbuf_text(&names));
}

/* The tensor in whose memory this one lies: the operand of all views that lead to it. */
static int seen_tensor(const struct graph *graph, int tensor) {
    const struct node *view;
    while ((view = graph_producer(graph, tensor)) && view->op->kind == OP_VIEW) tensor = view->inputs[0];
    return tensor;
}

/* Copies outputs that are parameters or views of parameters: outputs are read after the update, which overwrites
 * parameters. */
static int copy_stored_outputs(struct graph *graph, struct diags *diags) {
    VEC_EACH_VALUE(&graph->outputs, i, const int output) {
        const struct tensor *seen = &graph->tensors.at[seen_tensor(graph, output)];
        struct build builder = {graph, diags, graph->output_names.at[i]};
        if (seen->kind != TENSOR_WEIGHT || !rt_dtype_is_float(seen->dtype)) continue;
        const int one = build_scalar(&builder, graph->tensors.at[output].dtype, 1);
        int copy; /* build() would return the output itself */
        if (build_many(&builder, OP_Mul, 2, (int[]){output, one}, 1, &copy, 0, NULL) < 0) return -1;
        graph->outputs.at[i] = copy;
    }
    return 0;
}

int pass_autodiff(struct graph *graph, const struct pass_context *context) {
    if (copy_stored_outputs(graph, context->diags) < 0) return -1;
    struct autodiff a = {.graph = graph,
                         .diags = context->diags,
                         .training = context->training,
                         .module = !has_loss(graph),
                         .adapts = lora_is_in(graph),
                         .tensors = graph->tensors.n,
                         .nodes = graph->nodes.n};
    int nodes = graph->order.n;
    if (parameter_rules_check(context->training, graph, context->roles, context->diags) < 0) return -1;
    a.known = build_know(graph->arena);
    a.depends = ARENA_ARRAY(graph->arena, bool, a.tensors + 1);
    a.gradient = ARENA_ARRAY(graph->arena, int, a.tensors + 1);
    a.parts = ARENA_ARRAY(graph->arena, struct parts, a.tensors + 1);
    for (int t = 0; t < a.tensors; t++) a.gradient[t] = -1;
    mark_dependent(&a);
    if ((a.module ? seed_outputs(&a) : seed_loss(&a)) < 0) return -1;
    for (int i = nodes - 1; i >= 0; i--) {
        int id = graph->order.at[i], out = graph->nodes.at[id].outputs[0];
        if (a.depends[out] && differentiate(&a, id) < 0) return -1;
    }
    if (a.module)
        diag_remark(a.diags, graph->name,
                    "the model has no loss: its forward and backward functions (model.h) are for a C program that "
                    "computes the loss");
    if (list_parameters(&a, nodes) < 0 || give_input_gradients(&a) < 0) return -1;
    tell_untrained(&a);
    graph_set_phase(graph, nodes, PHASE_BACKWARD);
    return 0;
}
