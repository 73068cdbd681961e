#include "passes/plan/layouts.h"

#include "ir/dims.h"
#include "ir/op.h"
#include "ir/schedule.h"

static bool is_partial_sum(const struct graph *graph, int tensor, int axis) {
    const struct placement sum = placement_partial_sum();
    if (tensor < 0) return false;
    const struct placement held = layout_along(&graph->tensors.at[tensor].layout, axis);
    return placement_equal(&held, &sum);
}

/* Per tensor: true for gradients that only accumulations and later phases read, possibly through linear nodes. */
static const bool *find_gradients(const struct graph *graph, const struct uses *uses, struct arena *arena) {
    bool *gradient = ARENA_ARRAY(arena, bool, graph->tensors.n + 1);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        const int tensor = node->outputs[0];
        bool waits = node->phase == PHASE_BACKWARD && uses->first[tensor] < uses->first[tensor + 1];
        for (int u = uses->first[tensor]; u < uses->first[tensor + 1] && waits; u++) {
            const struct node *reader = &graph->nodes.at[uses->users[u]];
            waits = reader->phase >= PHASE_REDUCE || reader->op->id == OP_Accumulate ||
                    (node_is_linear(graph, reader) && gradient[reader->outputs[0]]);
        }
        gradient[tensor] = waits;
    }
    return gradient;
}

struct assignment {
    struct graph *graph;
    struct uses uses;
    const bool *kept;     /* graph_kept */
    const bool *gradient; /* find_gradients */
    bool reduces_each;    /* gradients are reduced over scale units in each micro-batch */
};

/* True if one operand of one node reads the tensor, and it is no output or update. */
static bool has_one_reader(const struct assignment *a, int tensor) {
    return !a->kept[tensor] && a->uses.first[tensor + 1] - a->uses.first[tensor] == 1;
}

static int64_t elements_of(const struct assignment *a, int tensor) {
    return tensor_elements(&a->graph->tensors.at[tensor]);
}

static bool is_split(const struct node *node, int axis) {
    return node->split[axis].factor >= 0 || node->split[axis].factor == SPLIT_FLAT;
}

/* True for a sum that has fewer elements than its operand, which nothing else reads: less is reduced after it. */
static bool shrinks(const struct assignment *a, const struct node *node) {
    return node->op->id == OP_ReduceSum && has_one_reader(a, node->inputs[0]) &&
           elements_of(a, node->outputs[0]) < elements_of(a, node->inputs[0]);
}

/* True for nodes of one operand whose result may stay partial: views, and casts to a gradient, if nothing else reads
 * the operand; sums that shrink it. */
static bool may_wait(const struct assignment *a, const struct node *node) {
    if (!has_one_reader(a, node->inputs[0])) return false;
    return node->op->kind == OP_VIEW || (node->op->id == OP_Cast && a->gradient[node->outputs[0]]) || shrinks(a, node);
}

/* The only node that reads the tensor, behind views of it that only one node reads; NULL: there are several readers. */
static const struct node *reader_behind_views(const struct assignment *a, int tensor) {
    const struct node *node = NULL;
    do {
        if (!has_one_reader(a, tensor)) return NULL;
        node = &a->graph->nodes.at[a->uses.users[a->uses.first[tensor]]];
        tensor = node->outputs[0];
    } while (node->op->kind == OP_VIEW);
    return node;
}

/* The elements of the sum that alone reads a product of a partial tensor and a whole one; -1: there is no such sum. */
static int64_t elements_after(const struct assignment *a, const struct node *product, int partial, int axis) {
    const int result = product->outputs[0];
    if (product->op->id != OP_Mul || is_split(product, axis) || product->inputs[0] == product->inputs[1]) return -1;
    const int other = product->inputs[product->inputs[0] == partial];
    if (layout_along(&a->graph->tensors.at[other].layout, axis).kind != PLACED_WHOLE ||
        elements_of(a, result) != elements_of(a, partial))
        return -1;
    const struct node *sum = reader_behind_views(a, result);
    return sum && shrinks(a, sum) && !is_split(sum, axis) ? elements_of(a, sum->outputs[0]) : -1;
}

/* True if the product stays partial: of the partial results of experts and the weights of their tokens, which is summed
 * over the experts of a token. One reduction of tokens takes the place of one for each expert of a token. All readers
 * of the partial tensor are such products (in training there are two), and their sums together are smaller. */
static bool scales_partial(const struct assignment *a, const struct node *node, int axis) {
    const struct graph *graph = a->graph;
    if (node->op->id != OP_Mul) return false;
    const int partial = node->inputs[!is_partial_sum(graph, node->inputs[0], axis)];
    int64_t after = 0;
    if (!is_partial_sum(graph, partial, axis) || a->kept[partial]) return false;
    for (int u = a->uses.first[partial]; u < a->uses.first[partial + 1]; u++) {
        const int64_t elements = elements_after(a, &graph->nodes.at[a->uses.users[u]], partial, axis);
        if (elements < 0) return false;
        after += elements;
    }
    return after < elements_of(a, partial);
}

/* True if the operand has to be reduced for another reader too, so that a sum with it saves no reduction: the residual
 * of a transformer, which a norm reads. Then its addends are reduced, and one tensor is kept, not two. */
static bool is_reduced_anyway(const struct assignment *a, const struct node *node, int k, int axis) {
    if (axis >= a->graph->mesh.naxes || node->phase > PHASE_BACKWARD || a->gradient[node->inputs[k]]) return false;
    return node->op->id == OP_Add && !has_one_reader(a, node->inputs[k]);
}

/* True if the node's stage has the axis, so that its ranks there may have partial values. */
static bool has_axis(const struct assignment *a, const struct node *node, int axis) {
    return mesh_has(&a->graph->mesh, axis, schedule_home(a->graph, node->stage));
}

/* True if the node's result stays partial along the axis: a linear node that is not split, all of whose summed inputs
 * are partial, or a product that scales one. */
static bool passes_partial(const struct assignment *a, const struct node *node, int axis) {
    if (is_split(node, axis) || !has_axis(a, node, axis)) return false;
    if (scales_partial(a, node, axis)) return true;
    if (!node_is_linear(a->graph, node)) return false;
    if (node->ninputs < 2 && !may_wait(a, node)) return false;
    for (int k = 0; k < node->ninputs; k++)
        if (node_sums_input(node, k) &&
            (!is_partial_sum(a->graph, node->inputs[k], axis) || is_reduced_anyway(a, node, k, axis)))
            return false;
    return true;
}

/* Makes the accumulator of a partial gradient partial. ZeRO 2 and 3 in one group reduce the gradient of each
 * micro-batch over scale units, to be exact also for parameters that they do not cut. */
static void hold_partial(const struct assignment *a, const struct node *node, int axis) {
    if ((a->reduces_each && axis >= a->graph->mesh.naxes) || !has_axis(a, node, axis)) return;
    if (node->op->id == OP_Accumulate && node->split[axis].factor < 0 && node->split[axis].factor != SPLIT_FLAT &&
        is_partial_sum(a->graph, node->inputs[1], axis))
        layout_place(a->graph->arena, &a->graph->tensors.at[node->inputs[0]].layout, axis, placement_partial_sum());
}

void layouts_assign(struct graph *graph, bool reduces_each) {
    struct arena *scratch = arena_scratch(graph->arena);
    const struct uses uses = graph_uses(graph, scratch);
    const struct assignment a = {.graph = graph,
                                 .uses = uses,
                                 .kept = graph_kept(graph, scratch),
                                 .gradient = find_gradients(graph, &uses, scratch),
                                 .reduces_each = reduces_each};
    GRAPH_EACH(graph, i, struct node *const node) {
        struct dims dims;
        dims_bind_checked(scratch, graph, node, &dims);
        for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++) {
            hold_partial(&a, node, axis);
            if (passes_partial(&a, node, axis)) node->split[axis].factor = SPLIT_PARTIAL;
        }
        for (int k = 0; k < node->noutputs; k++)
            if (node->outputs[k] >= 0)
                graph->tensors.at[node->outputs[k]].layout = dims_layout_given(graph, &dims, node, k);
    }
    arena_release(graph->arena, scratch);
}
