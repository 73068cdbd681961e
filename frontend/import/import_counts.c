/* Values whose size along one dimension depends on data.
 *
 * Note [Counted values]
 * The tensor of such a value has a bound as its extent, and a scalar that says how many of the indices are valid, from
 * 0 on (struct counted). A lowering that creates one records it. A core operator computes each index of a dimension
 * that can be split (FACTOR_PASS) from the same index of its operands alone, so what it makes of the valid indices does
 * not depend on the others: its result is then counted, too. Where an index is reduced over, or is one of several that
 * are read together, the lowering must mask the operand first, or the operator is refused by name. Lowerings that read
 * extents must know that they are bounds: only those of the list below are given counted operands. */
#include <string.h>

#include "frontend/import/import_state.h"
#include "ir/dims.h"

enum { DECIDED = 0 /* in import->counts: all elements are valid; else 1 + the index in import->counted */ };

/* Operators besides those of MAP rows. Their lowerings read no extent that is a bound, or handle it. */
static const char *const takes_counted[] = {
    "Cast",
    "CastLike",
    "Clip",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "Dropout",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "Identity",
    "If",
    "IsInf",
    "LayerNormalization",
    "LogSoftmax",
    "Loop",
    "MatMul",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "NonMaxSuppression",
    "NonZero",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "Pow",
    "RMSNormalization",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Reshape",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "SequenceAt",
    "SequenceConstruct",
    "Shape",
    "SimplifiedLayerNormalization",
    "Size",
    "Slice",
    "Softmax",
    "Split",
    "Squeeze",
    "Sum",
    "Transpose",
    "Unsqueeze",
};

const struct counted *import_counted(const struct import *import, int id) {
    int at = import->counts.n ? map_get(&import->counts, (const char *)&id, sizeof id) : -1;
    return at <= DECIDED ? NULL : &import->counted.at[at - 1];
}

const struct counted *lower_counted(const struct lower *lower, int tensor) {
    return import_counted(lower->import, tensor);
}

void lower_set_counted(struct lower *lower, int tensor, const struct counted *counted) {
    struct import *import = lower->import;
    if (tensor < 0) return;
    if (counted) VEC_PUSH(import->arena, &import->counted, *counted);
    map_put(&import->counts, (const char *)&tensor, sizeof tensor, counted ? import->counted.n : DECIDED);
}

int lower_valid(struct lower *lower, const struct counted *counted, int64_t bound, int ndim, int dim) {
    int64_t shape[RT_MAX_NDIM], *values = ARENA_ARRAY(lower->import->arena, int64_t, bound + 1);
    for (int64_t i = 0; i < bound; i++) values[i] = i;
    for (int d = 0; d < ndim; d++) shape[d] = d == dim ? bound : 1;
    int valid = emit2(lower, OP_Less, emit_ints(lower, (int)bound, values, ndim, shape), counted->count);
    lower_set_counted(lower, valid, NULL);
    return valid;
}

int lower_masked(struct lower *lower, int x, int value) {
    const struct counted *found = lower_counted(lower, x);
    if (!found || x < 0 || value < 0) return x < 0 || value < 0 ? -1 : x;
    struct counted counted = *found;
    struct tensor tensor = lower_tensor(lower, x);
    int valid = lower_valid(lower, &counted, tensor.dims[counted.dim], tensor.ndim, counted.dim);
    int masked = emit3(lower, OP_Where, valid, x, value);
    lower_set_counted(lower, masked, NULL);
    return masked;
}

int lower_masked_index(struct lower *lower, int x) {
    const struct counted *found = lower_counted(lower, x);
    if (!found || found->zero) return x;
    struct counted counted = *found;
    counted.zero = true;
    int masked = lower_masked(lower, x, emit_like(lower, x, 0));
    lower_set_counted(lower, masked, &counted);
    return masked;
}

static int refuse_counted(struct lower *lower, const char *what, int dim) {
    return lower_error(lower, 410, EXIT_UNSUPPORTED,
                       "%s is not supported for an operand whose size along dimension %d depends on data", what, dim);
}

int import_check_counted(struct lower *lower) {
    for (int i = 0; i < lower->ninputs; i++) {
        const struct counted *counted = lower->inputs[i] < 0 ? NULL : lower_counted(lower, lower->inputs[i]);
        size_t row = 0, rows = sizeof takes_counted / sizeof *takes_counted;
        if (!counted || lower->op->core) continue;
        while (row < rows && strcmp(takes_counted[row], lower->op->name) != 0) row++;
        if (row == rows) return refuse_counted(lower, diag_quote(lower->builder.diags, lower->op->name), counted->dim);
    }
    return 0;
}

/* Propagation ------------------------------------------------------------------------------------------------------ */

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

/* Every other input that has the factor is counted along it, by the same scalar. */
static bool inputs_agree(const struct import *import, const struct dims *dims, const struct node *node, int factor,
                         int count) {
    for (int k = 0; k < node->ninputs; k++) {
        int dim = node->inputs[k] < 0 ? -1 : dim_of_factor(&dims->operand[k], factor);
        const struct counted *counted = dim < 0 ? NULL : import_counted(import, node->inputs[k]);
        if (dim == -2 || (dim >= 0 && (!counted || counted->dim != dim || counted->count != count))) return false;
    }
    return true;
}

/* The results of a node with input k counted: 0, or -1 if the operator cannot be applied to valid indices alone. */
static int pass_on(struct lower *lower, const struct node *node, int k) {
    struct import *import = lower->import;
    struct counted counted = *import_counted(import, node->inputs[k]);
    struct dims dims;
    const char *why;
    bool found = false;
    if (dims_bind(import->arena, import->graph, node, &dims, &why) < 0) return -1;
    const struct dim_factors *at = &dims.operand[k].dim[counted.dim];
    if (at->n != 1 || dims.factor[at->factor[0]].kind != FACTOR_PASS) return -1;
    int factor = at->factor[0];
    if (!inputs_agree(import, &dims, node, factor, counted.count)) return -1;
    counted.zero = counted.zero && moves_only(node->op);
    for (int i = 0; i < node->noutputs; i++) {
        int dim = dim_of_factor(&dims.operand[dims.ninputs + i], factor);
        if (dim == -2) return -1;
        if (dim < 0) continue;
        const struct counted *before = import_counted(import, node->outputs[i]);
        if (before && before->dim != dim) return -1; /* counted along two dimensions */
        found = true;
        counted.dim = dim;
        if (!before) lower_set_counted(lower, node->outputs[i], &counted);
    }
    return found ? 0 : -1;
}

static bool is_decided(const struct import *import, const struct node *node) {
    for (int i = 0; i < node->noutputs; i++)
        if (map_get(&import->counts, (const char *)&node->outputs[i], sizeof(int)) >= 0) return true;
    return false;
}

int import_pass_counts(struct lower *lower, int first) {
    struct import *import = lower->import;
    for (int n = first; import->counts.n && n < import->graph->nodes.n; n++) {
        const struct node *node = &import->graph->nodes.at[n];
        if (is_decided(import, node)) continue;
        for (int k = 0; k < node->ninputs; k++) {
            const struct counted *counted = node->inputs[k] < 0 ? NULL : import_counted(import, node->inputs[k]);
            if (counted && pass_on(lower, node, k) < 0)
                return refuse_counted(lower, diag_quote(lower->builder.diags, lower->op ? lower->op->name : "function"),
                                      counted->dim);
        }
    }
    return 0;
}

/* Outputs ---------------------------------------------------------------------------------------------------------- */

void import_count_outputs(struct import *import) {
    struct graph *graph = import->graph;
    const int n = graph->outputs.n;
    for (int i = 0; i < n; i++) {
        const struct counted *counted = import_counted(import, graph->outputs.at[i]);
        if (!counted) continue;
        int at = n;
        while (at < graph->outputs.n && graph->outputs.at[at] != counted->count) at++;
        if (at == graph->outputs.n) {
            VEC_PUSH(graph->arena, &graph->outputs, counted->count);
            VEC_PUSH(graph->arena, &graph->output_names,
                     arena_printf(graph->arena, "%s.count", graph->output_names.at[i]));
        }
        struct counted_output output = {i, counted->dim, at};
        VEC_PUSH(graph->arena, &graph->counted, output);
    }
}
