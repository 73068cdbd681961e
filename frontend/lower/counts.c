/* Values whose size along one dimension depends on data.
 *
 * Note [Counted values]
 * The tensor of such a value has a bound as its extent, and a scalar that says how many of the indices are valid, from
 * 0 on (struct counted). A lowering that creates one records it. How core operators treat one follows from their
 * dimension annotation, by the factor of the counted dimension:
 *   - FACTOR_PASS: each index of the results is computed from the same index of the operands alone, so what is made of
 *     the valid indices does not depend on the others: results with the factor are counted, too;
 *   - reduced (FACTOR_SUM, MAX, MIN): elements that are not valid are replaced by the neutral element of the reduction;
 *   - FACTOR_WHOLE: the same, with what column `neutral` of ops.def says. Results with the factor are counted;
 *   - else the operator is refused by name.
 * What a lowering computes from extents is not in the annotation. It must know that extents are bounds: only those
 * marked `counted` in onnx_ops.def are given counted operands.
 *
 * No bound is 1, since dimensions of extent 1 are broadcast (lower_sized). */
#include <string.h>

#include "frontend/lower/lower_counted.h"
#include "frontend/lower/lowering_state.h"
#include "ir/dims.h"

enum { DECIDED = 0 /* in lowering->counts: all elements are valid; else 1 + the index in lowering->counted */ };

const struct counted *lowering_counted(const struct lowering *lowering, int id) {
    int at = lowering->counts.n ? map_get(&lowering->counts, (const char *)&id, sizeof id) : -1;
    return at <= DECIDED ? NULL : &lowering->counted.at[at - 1];
}

static void find_counts(struct lowering *lowering);

const struct counted *lower_counted(const struct lower *lower, int tensor) {
    find_counts(lower->shared);
    return lowering_counted(lower->shared, tensor);
}

void lower_set_counted(struct lower *lower, int tensor, const struct counted *counted) {
    struct lowering *lowering = lower->shared;
    if (tensor < 0) return;
    if (counted) {
        amounts_bound(lowering, counted->count, 0, lowering->graph->tensors.at[tensor].dims[counted->dim]);
        VEC_PUSH(lowering->arena, &lowering->counted, *counted);
    }
    map_put(&lowering->counts, (const char *)&tensor, sizeof tensor, counted ? lowering->counted.n : DECIDED);
}

bool lower_is_resized(const struct lower *lower, int x) {
    const struct lowering *lowering = lower->shared;
    find_counts(lower->shared);
    while (lowering->counts.n) {
        if (map_get(&lowering->counts, (const char *)&x, sizeof x) >= 0) return true;
        const int producer = lowering->graph->tensors.at[x].producer;
        if (producer < 0 || lowering->graph->nodes.at[producer].op->id != OP_Reshape) return false;
        x = lowering->graph->nodes.at[producer].inputs[0];
    }
    return false;
}

int lower_valid(struct lower *lower, const struct counted *counted, int64_t bound, int ndim, int dim) {
    int valid = emit2(lower, OP_Less, emit_places(lower, 0, bound, ndim, dim), counted->count);
    lower_set_counted(lower, valid, NULL);
    return valid;
}

int lower_masked(struct lower *lower, int x, int value) {
    const struct counted *found = x < 0 ? NULL : lower_counted(lower, x);
    if (!found || value < 0) return value < 0 ? -1 : x;
    struct counted counted = *found;
    struct tensor tensor = lower_tensor(lower, x);
    int valid = lower_valid(lower, &counted, tensor.dims[counted.dim], tensor.ndim, counted.dim);
    int masked = emit3(lower, OP_Where, valid, x, value);
    lower_set_counted(lower, masked, NULL);
    return masked;
}

int lower_masked_index(struct lower *lower, int x) {
    const struct counted *found = x < 0 ? NULL : lower_counted(lower, x);
    if (!found || found->zero) return x;
    struct counted counted = *found;
    counted.zero = true;
    int masked = lower_masked(lower, x, emit_like(lower, x, 0));
    lower_set_counted(lower, masked, &counted);
    return masked;
}

static int refuse_counted(struct lower *lower, const char *what, int dim) {
    return lower_error(lower, 410, "%s is not supported for an operand whose size along dimension %d depends on data",
                       what, dim);
}

int lower_check_counted(struct lower *lower) {
    bool any = false;
    for (int i = 0; i < lower->ninputs; i++) {
        const struct counted *counted =
            lower->inputs[i] < 0 || lower_is_sequence(lower->inputs[i]) ? NULL : lower_counted(lower, lower->inputs[i]);
        if (counted && lower->op->counted == COUNTED_NO)
            return refuse_counted(lower, lower_quote(lower, lower->op->name), counted->dim);
        any = any || counted;
    }
    return any && lower->op->counted == COUNTED_BROADCAST ? lower_fit(lower, lower->ninputs, lower->inputs, -1) : 0;
}

/* Operators that only move elements: where invalid ones are 0, they stay 0. */
static bool moves_only(const struct op *op) {
    static const enum op_id list[] = {OP_Cast, OP_Reshape, OP_Transpose, OP_Slice, OP_Concat, OP_NONE};
    return op_is_listed(op, list);
}

/* The dimension of the operand that is the factor alone; -1 if none contains it, -2 if one contains others, too. */
static int dim_of_factor(const struct operand *operand, int factor) {
    for (int d = 0; d < operand->ndim; d++)
        for (int i = 0; i < operand->dim[d].n; i++)
            if (operand->dim[d].factor[i] == factor) return operand->dim[d].n == 1 ? d : -2;
    return -1;
}

/* Every other input that has the factor is counted along it, by the same number. */
static bool inputs_agree(struct lowering *lowering, const struct dims *dims, const struct node *node, int factor,
                         int count) {
    const struct amount *here = amounts_of(lowering, count);
    for (int k = 0; k < node->ninputs; k++) {
        int dim = node->inputs[k] < 0 ? -1 : dim_of_factor(&dims->operand[k], factor);
        const struct counted *counted = dim < 0 ? NULL : lowering_counted(lowering, node->inputs[k]);
        if (dim == -2 || (dim >= 0 && (!counted || counted->dim != dim ||
                                       !amount_equal(lowering, here, amounts_of(lowering, counted->count)))))
            return false;
    }
    return true;
}

static void set_counted(struct lowering *lowering, int tensor, const struct counted *counted) {
    VEC_PUSH(lowering->arena, &lowering->counted, *counted);
    map_put(&lowering->counts, (const char *)&tensor, sizeof tensor, lowering->counted.n);
}

/* The factor that a counted dimension of operand k is; -1 if it is several. */
static int factor_of(const struct dims *dims, int k, const struct counted *counted) {
    const struct dim_factors *at = &dims->operand[k].dim[counted->dim];
    return at->n == 1 ? at->factor[0] : -1;
}

/* The results of a node with input k counted; false if the operator cannot be applied to valid indices alone. */
static bool pass_on(struct lowering *lowering, const struct node *node, int k) {
    struct counted counted = *lowering_counted(lowering, node->inputs[k]);
    struct dims dims;
    bool found = false;
    if (dims_bind(lowering->arena, lowering->graph, node, &dims, NULL) < 0) return false;
    const int factor = factor_of(&dims, k, &counted);
    if (factor < 0) return false;
    const bool any = dims.factor[factor].kind != FACTOR_PASS && node->op->neutral == NEUTRAL_ANY;
    if (!any && dims.factor[factor].kind != FACTOR_PASS) return false;
    if (!inputs_agree(lowering, &dims, node, factor, counted.count)) return false;
    counted.zero = counted.zero && moves_only(node->op);
    for (int i = 0; i < node->noutputs; i++) {
        int dim = dim_of_factor(&dims.operand[dims.ninputs + i], factor);
        if (dim == -2) return false;
        if (dim < 0) continue;
        const struct counted *before = lowering_counted(lowering, node->outputs[i]);
        if (before && before->dim != dim) return false; /* counted along two dimensions */
        found = true;
        counted.dim = dim;
        if (!before) set_counted(lowering, node->outputs[i], &counted);
    }
    return found || any;
}

static bool is_decided(const struct lowering *lowering, const struct node *node) {
    for (int i = 0; i < node->noutputs; i++)
        if (map_get(&lowering->counts, (const char *)&node->outputs[i], sizeof(int)) >= 0) return true;
    return false;
}

/* The first counted input that the node's results do not follow from; NULL: none. */
static const struct counted *find_obstacle(struct lowering *lowering, const struct node *node) {
    for (int k = 0; k < node->ninputs; k++) {
        const struct counted *counted = node->inputs[k] < 0 ? NULL : lowering_counted(lowering, node->inputs[k]);
        if (counted && !pass_on(lowering, node, k)) return lowering_counted(lowering, node->inputs[k]);
    }
    return NULL;
}

static void find_counts(struct lowering *lowering) {
    for (; lowering->counts.n && lowering->passed < lowering->graph->nodes.n; lowering->passed++) {
        const struct node *node = &lowering->graph->nodes.at[lowering->passed];
        if (!is_decided(lowering, node)) find_obstacle(lowering, node);
    }
}

int lower_pass_counts(struct lower *lower, int first) {
    struct lowering *lowering = lower->shared;
    find_counts(lowering);
    for (int n = first; lowering->counts.n && n < lowering->graph->nodes.n; n++) {
        const struct node *node = &lowering->graph->nodes.at[n];
        const struct counted *obstacle = is_decided(lowering, node) ? NULL : find_obstacle(lowering, node);
        if (obstacle)
            return refuse_counted(lower, lower_quote(lower, lower->op ? lower->op->name : "function"), obstacle->dim);
    }
    return 0;
}

static enum neutral neutral_of(const struct op *op, enum factor_kind kind) {
    if (kind == FACTOR_PASS || op->neutral == NEUTRAL_ANY) return NEUTRAL_NONE;
    if (op->neutral != NEUTRAL_NONE) return op->neutral;
    return kind == FACTOR_SUM   ? NEUTRAL_ZERO
           : kind == FACTOR_MAX ? NEUTRAL_LEAST
           : kind == FACTOR_MIN ? NEUTRAL_MOST
                                : NEUTRAL_NONE;
}

static int neutral_value(struct lower *lower, int x, enum neutral neutral) {
    if (neutral == NEUTRAL_LEAST || neutral == NEUTRAL_MOST)
        return emit_extreme(lower, lower_dtype(lower, x), neutral == NEUTRAL_LEAST);
    return emit_like(lower, x, neutral == NEUTRAL_ONE);
}

bool lower_mask(struct lower *lower, const struct node *node, int *inputs, struct counted *result) {
    struct lowering *lowering = lower->shared;
    struct dims dims;
    bool counts = false;
    find_counts(lowering);
    if (!lowering->counts.n) return false;
    for (int k = 0; k < node->ninputs; k++)
        counts = counts || (node->inputs[k] >= 0 && lowering_counted(lowering, node->inputs[k]));
    if (!counts || dims_bind(lowering->arena, lowering->graph, node, &dims, NULL) < 0) return false;
    counts = false;
    for (int k = 0; k < node->ninputs; k++) {
        const struct counted *counted = node->inputs[k] < 0 ? NULL : lowering_counted(lowering, node->inputs[k]);
        const int factor = counted ? factor_of(&dims, k, counted) : -1;
        const enum neutral neutral = factor < 0 ? NEUTRAL_NONE : neutral_of(node->op, dims.factor[factor].kind);
        if (neutral == NEUTRAL_NONE || !inputs_agree(lowering, &dims, node, factor, counted->count)) continue;
        const int dim = dim_of_factor(&dims.operand[dims.ninputs], factor);
        counts = counts || dim >= 0;
        if (dim >= 0) *result = (struct counted){dim, counted->count, false};
        inputs[k] = lower_masked(lower, inputs[k], neutral_value(lower, inputs[k], neutral));
    }
    return counts;
}
