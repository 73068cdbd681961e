#include "ir/verify/verifier.h"

#include "ir/op.h"

static int dim_of_factor(const struct operand *operand, int factor) {
    for (int d = 0; d < operand->ndim; d++)
        for (int i = 0; i < operand->dim[d].n; i++)
            if (operand->dim[d].factor[i] == factor) return d;
    return -1;
}

/* Checks one operand of a node that is split along `axis`. */
static void check_operand(struct verifier *v, const struct dims *dims, const struct node *node, int o, int axis) {
    bool is_input = o < dims->ninputs;
    const struct tensor *tensor = verify_tensor(v, is_input ? node->inputs[o] : node->outputs[o - dims->ninputs]);
    const struct placement held = layout_along(&tensor->layout, axis);
    const struct node_split *split = &node->split[axis];
    const struct factor *factor = &dims->factor[split->factor];
    int ways = v->graph->mesh.axis[axis].size, dim = dim_of_factor(&dims->operand[o], split->factor);
    enum rt_reduce needs;
    const bool reduced = dims_reduces(dims, is_input ? 0 : o - dims->ninputs, split->factor, &needs);
    struct rt_cut by_factor = {factor->extent, split->blocks, split->grain, ways};
    int window = is_input ? dims_window_dim(dims, o, split->factor) : -1;
    if (window >= 0) {
        const struct factor *halo = &dims->factor[dims->operand[o].dim[window].factor[0]];
        verify_window(v, halo, tensor, axis, window, &by_factor);
    } else if (dim >= 0) {
        if (split->depth == 0) verify_parts(v, dims, node, o, tensor, split->factor, dim);
    } else if (reduced && (!is_input || (o == 0 && node->op->onto))) {
        if (held.kind != PLACED_PARTIAL || held.reduce != needs)
            verify_fail(v, "'%s' is not marked partial (%s)", tensor->name, reduce_names[needs]);
    } else if (held.kind != PLACED_WHOLE) {
        verify_fail(v, "'%s' is not complete along %s", tensor->name, v->graph->mesh.axis[axis].name);
    }
}

/* Along a replica axis: what is computed from a rank's own values is its own. Fused nodes have results of both
 * kinds. */
void verify_replicas(struct verifier *v, const struct node *node, int axis) {
    bool own = false;
    for (int k = 0; k < node->ninputs; k++) {
        const enum placement_kind kind = verify_kind(v, node->inputs[k], axis);
        own = own || kind == PLACED_OWN;
        if (kind != PLACED_OWN && kind != PLACED_WHOLE && v->graph->level >= COMMUNICATING)
            verify_fail(v, "reads '%s', which is not complete along %s", verify_tensor(v, node->inputs[k])->name,
                        v->graph->mesh.axis[axis].name);
    }
    for (int k = 0; k < node->noutputs; k++) {
        const enum placement_kind given = verify_kind(v, node->outputs[k], axis);
        const bool joined = verify_tensor(v, node->outputs[k])->joined && given == PLACED_PARTIAL;
        const bool fits =
            own ? given == PLACED_OWN || (given == PLACED_WHOLE && node->noutputs > 1) : given == PLACED_WHOLE;
        if (!joined && (!fits || (verify_tensor(v, node->outputs[k])->joined && v->graph->level < STAGED)))
            verify_fail(v, "its result has the wrong layout along %s", v->graph->mesh.axis[axis].name);
    }
}

/* A node whose ranks compute slices of the elements: operands of one element are whole, the others have the same
 * slices as the result, or give a partial sum of squares. Scales of blocks have the slices of their blocks. */
void verify_flat(struct verifier *v, const struct dims *dims, const struct node *node, int axis) {
    const bool sums = node->op->id == OP_SumSquares || node->op->onto;
    if (!sums && !op_has_blocks(node->op) && node->op->kind != OP_ELEMENTWISE)
        return verify_fail(v, "is cut flat, but is not elementwise");
    for (int k = 0; k < node->noutputs; k++) {
        const enum placement_kind given = verify_kind(v, node->outputs[k], axis);
        const bool joined = v->graph->level >= STAGED && given == PLACED_OWN;
        if (sums ? given != PLACED_PARTIAL && !joined : given != PLACED_FLAT)
            verify_fail(v, "its result has the wrong layout along %s", v->graph->mesh.axis[axis].name);
    }
    for (int k = 0; k < node->ninputs && v->graph->level >= COMMUNICATING; k++) {
        if (node->inputs[k] < 0) continue;
        const struct tensor *operand = verify_tensor(v, node->inputs[k]), *result = verify_tensor(v, node->outputs[0]);
        const struct layout wanted = dims_layout_wanted(v->graph, dims, node, k);
        const bool alike = op_has_blocks(node->op) ? layout_same_part(&operand->layout, &wanted)
                                                   : tensor_same_shape(operand, result) &&
                                                         layout_same_part(&operand->layout, &result->layout);
        const bool one = tensor_elements(operand) == 1;
        const enum placement_kind kind = verify_kind(v, node->inputs[k], axis);
        if (k == 0 && node->op->onto) {
            if (kind != verify_kind(v, node->outputs[0], axis))
                verify_fail(v, "'%s' is not laid out as the sum", operand->name);
            continue;
        }
        if (one ? kind != PLACED_WHOLE && kind != PLACED_OWN : kind != PLACED_FLAT || (!sums && !alike))
            verify_fail(v, "'%s' is not cut as the result is", operand->name);
    }
}

/* True if one of the two splits divides the parts of the other, as Note [Nested cuts] in runtime/base/shape/part.h
 * has it. */
static bool nests(const struct dims *dims, const struct node_split *a, const struct node_split *b) {
    const struct node_split *outer = a->depth < b->depth ? a : b, *inner = a->depth < b->depth ? b : a;
    return outer->factor == inner->factor && outer->depth != inner->depth && outer->blocks == inner->blocks &&
           outer->grain % inner->grain == 0 && !dims_has_windows(dims, a->factor);
}

void verify_split(struct verifier *v, const struct dims *dims, const struct node *node, int axis) {
    const struct node_split *split = &node->split[axis];
    int ways = v->graph->mesh.axis[axis].size;
    if (split->factor >= dims->nfactors) return verify_fail(v, "splits a factor that it does not have");
    struct rt_cut cut = {dims->factor[split->factor].extent, split->blocks, split->grain, ways};
    if (!rt_cut_is_sound(&cut) || !dims_can_split(dims, split, ways) || !op_can_split(node->op, dims, split))
        return verify_fail(v, "'%s' cannot be split in %d", dims->factor[split->factor].name, ways);
    for (int a = 0; a < v->graph->mesh.naxes; a++)
        if (a != axis && dims_splits_meet(dims, &node->split[a], split) && !nests(dims, &node->split[a], split))
            return verify_fail(v, "two mesh axes split '%s', but the cuts do not nest",
                               dims->factor[split->factor].name);
    bool inputs_too = v->graph->level >= COMMUNICATING;
    for (int o = inputs_too ? 0 : dims->ninputs; o < dims->ninputs + dims->noutputs; o++) {
        int k = o < dims->ninputs ? o : o - dims->ninputs;
        if (o < dims->ninputs ? k < node->ninputs && node->inputs[k] >= 0 : k < node->noutputs)
            check_operand(v, dims, node, o, axis);
    }
}

/* Checks a node that is linear in each input alone: one input is a partial sum, the others are whole. */
static void check_scaled(struct verifier *v, const struct node *node, int axis) {
    int partial = 0;
    for (int k = 0; k < node->ninputs && v->graph->level >= COMMUNICATING; k++) {
        const enum placement_kind kind = verify_kind(v, node->inputs[k], axis);
        partial += kind == PLACED_PARTIAL;
        if (kind != PLACED_PARTIAL && kind != PLACED_WHOLE)
            verify_fail(v, "'%s' is neither partial nor whole along %s", verify_tensor(v, node->inputs[k])->name,
                        v->graph->mesh.axis[axis].name);
    }
    if (partial != 1 && v->graph->level >= COMMUNICATING) verify_fail(v, "has not one partial operand but %d", partial);
    for (int k = 0; k < node->noutputs; k++)
        if (verify_kind(v, node->outputs[k], axis) != PLACED_PARTIAL) verify_fail(v, "its result has the wrong layout");
}

/* Checks a node that is not split along the axis: its inputs and outputs are whole; or, if it is linear, partial sums,
 * except for conditions. */
void verify_unsplit(struct verifier *v, const struct node *node, int axis) {
    bool passes = node->split[axis].factor < -1;
    if (passes && node->op->linear == LINEAR_EACH) return check_scaled(v, node, axis);
    if (passes && !node_is_linear(v->graph, node)) return verify_fail(v, "is not linear, but takes partial values");
    enum placement_kind wants = passes ? PLACED_PARTIAL : PLACED_WHOLE;
    for (int k = 0; k < node->ninputs && v->graph->level >= COMMUNICATING; k++) {
        bool partial = passes && node_sums_input(node, k);
        const enum placement_kind kind = verify_kind(v, node->inputs[k], axis);
        if (kind != (partial ? PLACED_PARTIAL : PLACED_WHOLE) && (partial || kind != PLACED_OWN))
            verify_fail(v, "'%s' is not %s along %s", verify_tensor(v, node->inputs[k])->name,
                        partial ? "partial" : "whole", v->graph->mesh.axis[axis].name);
    }
    for (int k = 0; k < node->noutputs; k++)
        if (verify_kind(v, node->outputs[k], axis) != wants) verify_fail(v, "its result has the wrong layout");
}

void verify_ring(struct verifier *v, const struct dims *dims, const struct node *node) {
    const int positions = dims_find(dims, "t");
    bool alone = true;
    for (int axis = 0; axis < mesh_layout_axes(&v->graph->mesh); axis++) {
        const struct node_split *split = &node->split[axis];
        const bool own = axis == attr_int(node, "mesh", -1);
        alone = alone && (split->factor == positions) == own;
        if (own && split->blocks != 1 && split->blocks != -2) verify_fail(v, "positions are divided in strides");
    }
    if (!alone) verify_fail(v, "positions must be divided along its axis alone");
}
