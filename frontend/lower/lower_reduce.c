/* Along dimensions: reductions, softmax, prefix sums. */
#include "frontend/lower/onnx_lower.h"

/* Core reductions take adjacent dimensions: one for each run of them, from the back so that the others keep their
 * places. */
int emit_reduce(struct lower *l, enum op_id op, int x, const bool *axes, bool keepdims) {
    if (x < 0) return -1;
    for (int end = lower_ndim(l, x); end > 0 && x >= 0; end--) {
        if (!axes[end - 1]) continue;
        int64_t run[MAX_NDIM];
        int first = end - 1;
        while (first > 0 && axes[first - 1]) first--;
        for (int d = first; d < end; d++) run[d - first] = d;
        struct attr attrs[] = {attr_of_ints("axes", end - first, run), attr_of_int("keepdims", keepdims)};
        x = emit(l, op, 1, &x, 2, attrs);
        end = first + 1;
    }
    return x;
}

int emit_mean(struct lower *l, int x, const bool *axes, bool keepdims) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(l, x);
    double count = 1;
    for (int d = 0; d < tensor.ndim; d++)
        if (axes[d]) count *= (double)tensor.dims[d];
    int sum = emit_reduce(l, OP_ReduceSum, x, axes, keepdims);
    if (!rt_dtype_is_float(tensor.dtype)) return emit_with(l, OP_Div, sum, count);
    return emit_with(l, OP_Mul, sum, 1 / count);
}

/* ONNX reductions: a core one, an operator before it (Mul: of x with itself) and one after it. */
static int log_sum_exp(struct lower *l, int x, const bool *axes, bool keepdims);

static const struct reduction {
    const char *name;
    enum op_id before, core, after;
    int (*compose)(struct lower *l, int x, const bool *axes, bool keepdims);
} reductions[] = {{"ReduceSum", OP_NONE, OP_ReduceSum, OP_NONE, NULL},
                  {"ReduceMax", OP_NONE, OP_ReduceMax, OP_NONE, NULL},
                  {"ReduceMin", OP_NONE, OP_ReduceMin, OP_NONE, NULL},
                  {"ReduceProd", OP_NONE, OP_ReduceProd, OP_NONE, NULL},
                  {"ReduceMean", OP_NONE, OP_NONE, OP_NONE, emit_mean},
                  {"ReduceL1", OP_Abs, OP_ReduceSum, OP_NONE, NULL},
                  {"ReduceL2", OP_Mul, OP_ReduceSum, OP_Sqrt, NULL},
                  {"ReduceLogSum", OP_NONE, OP_ReduceSum, OP_Log, NULL},
                  {"ReduceSumSquare", OP_Mul, OP_ReduceSum, OP_NONE, NULL},
                  {"ReduceLogSumExp", OP_NONE, OP_NONE, OP_NONE, log_sum_exp}};

/* max + log(sum(exp(x - max))); where the maximum is infinite it is left out, so that -inf does not become NaN. */
static int log_sum_exp(struct lower *l, int x, const bool *axes, bool keepdims) {
    int most = emit_reduce(l, OP_ReduceMax, x, axes, true), zero = emit_like(l, x, 0);
    struct attr attrs[] = {attr_of_int("positive", 1), attr_of_int("negative", 1)};
    if (most < 0) return -1;
    int shift = emit3(l, OP_Where, emit(l, OP_IsInf, 1, &most, 2, attrs), zero, most);
    int sum = emit_reduce(l, OP_ReduceSum, emit1(l, OP_Exp, emit2(l, OP_Sub, x, shift)), axes, true);
    int y = emit2(l, OP_Add, emit1(l, OP_Log, sum), shift);
    if (keepdims || y < 0) return y;
    struct tensor tensor = lower_tensor(l, y);
    int n = 0;
    for (int d = 0; d < tensor.ndim; d++)
        if (!axes[d]) tensor.dims[n++] = tensor.dims[d];
    return emit_reshape(l, y, n, tensor.dims);
}

static int reduce_by(struct lower *l, const struct reduction *row, int x, const bool *axes, bool keepdims) {
    if (row->compose) return row->compose(l, x, axes, keepdims);
    if (row->before != OP_NONE) x = row->before == OP_Mul ? emit2(l, OP_Mul, x, x) : emit1(l, row->before, x);
    x = emit_reduce(l, row->core, x, axes, keepdims);
    if (row->after == OP_NONE) return x;
    return row->after == OP_Sqrt ? emit_root(l, x) : emit1(l, row->after, x);
}

/* Integers under a square root or logarithm are computed as floats; bool has no order of its own in the kernels. */
static enum rt_dtype work_type(const struct reduction *row, enum rt_dtype dtype) {
    bool real = row->after != OP_NONE || row->compose == log_sum_exp;
    if (dtype == RT_BOOL || (!rt_dtype_is_float(dtype) && dtype != RT_I64))
        dtype = real ? RT_F64 : dtype == RT_I32 ? RT_I32 : RT_I64;
    return dtype == RT_I64 && real ? RT_F64 : dtype;
}

int lower_reduce(struct lower *l) {
    struct tensor x = lower_input(l, 0);
    const struct reduction *row = reductions;
    const int64_t *list;
    bool axes[MAX_NDIM], keepdims = lower_int(l, "keepdims");
    int n;
    while (strcmp(row->name, l->op->name) != 0) row++;
    if (lower_list(l, 1, "axes", &list, &n) < 0) return -1;
    if (lower_axes(l, list, n, x.ndim, axes) < 0) return -1;
    bool nothing = l->op->in_max > 1 && lower_int(l, "noop_with_empty_axes");
    for (int d = 0; d < x.ndim && n == 0; d++) axes[d] = !nothing;
    int y = reduce_by(l, row, emit_cast(l, l->inputs[0], work_type(row, x.dtype)), axes, keepdims);
    if (x.dtype == RT_BOOL)
        y = emit_with(l, OP_Max, emit_with(l, OP_Min, y, 1), 0); /* of no elements it may be neither */
    return lower_result(l, emit_cast(l, y, x.dtype));
}

/* ONNX ArgMax-13, ArgMin-13. */
int lower_arg(struct lower *l) {
    int axis;
    struct tensor x = lower_input(l, 0);
    if (lower_axis(l, lower_int(l, "axis"), x.ndim, &axis) < 0) return -1;
    if (x.dims[axis] == 0)
        return lower_error(l, 390, EXIT_MALFORMED, "dimension %d has no elements to choose from", axis);
    int64_t axes[] = {axis};
    struct attr attrs[] = {attr_of_ints("axes", 1, axes), attr_of_int("keepdims", lower_int(l, "keepdims") != 0),
                           attr_of_int("select_last", lower_int(l, "select_last_index") != 0)};
    return lower_result(l, emit(l, lower_namesake(l), 1, l->inputs, 3, attrs));
}

int lower_cumsum(struct lower *l) {
    int64_t value;
    int axis;
    if (lower_known_int(l, 1, "axis", &value) < 0) return -1;
    if (lower_axis(l, value, lower_ndim(l, l->inputs[0]), &axis) < 0) return -1;
    struct attr attrs[] = {attr_of_int("axis", axis), attr_of_int("exclusive", lower_int(l, "exclusive") != 0),
                           attr_of_int("reverse", lower_int(l, "reverse") != 0)};
    return lower_result(l, emit(l, OP_CumSum, 1, l->inputs, 3, attrs));
}

static int global(struct lower *l, bool mean) {
    struct tensor x = lower_input(l, 0);
    bool axes[MAX_NDIM];
    if (x.ndim < 2) return lower_error(l, 378, EXIT_MALFORMED, "the input has %d dimensions, needs 2 or more", x.ndim);
    for (int d = 0; d < MAX_NDIM; d++) axes[d] = d >= 2;
    if (mean) return lower_result(l, emit_mean(l, l->inputs[0], axes, true));
    return lower_result(l, emit_reduce(l, OP_ReduceMax, l->inputs[0], axes, true));
}

int lower_global_average(struct lower *l) {
    return global(l, true);
}
int lower_global_max(struct lower *l) {
    return global(l, false);
}

/* Softmax --------------------------------------------------------------------------------------------------------- */

int emit_softmax(struct lower *l, enum op_id op, int x, int axis) {
    struct attr attr = attr_of_int("axis", axis);
    return x < 0 ? -1 : emit(l, op, 1, &x, 1, &attr);
}

/* Ones where the largest element of the dimension is, the first of equals. */
static int emit_hardmax(struct lower *l, int x, int axis) {
    struct tensor tensor = lower_tensor(l, x);
    int64_t axes[] = {axis}, n = tensor.dims[axis], *index = ARENA_ARRAY(l->b.graph->arena, int64_t, n + 1);
    int64_t shape[MAX_NDIM];
    for (int64_t i = 0; i < n; i++) index[i] = i;
    for (int d = 0; d < tensor.ndim; d++) shape[d] = d == axis ? n : 1;
    struct attr attrs[] = {attr_of_ints("axes", 1, axes), attr_of_int("keepdims", 1), attr_of_int("select_last", 0)};
    int at = emit(l, OP_ArgMax, 1, &x, 3, attrs);
    return emit_cast(l, emit2(l, OP_Equal, at, emit_ints(l, (int)n, index, tensor.ndim, shape)), tensor.dtype);
}

/* Softmax or LogSoftmax, as the node. */
static int emit_same(struct lower *l, int x, int axis) {
    return emit_softmax(l, lower_namesake(l), x, axis);
}

/* From opset 13 on along one dimension; before, along all from `axis` on, as one. */
static int lower_along(struct lower *l, int (*along)(struct lower *l, int x, int axis)) {
    struct tensor x = lower_input(l, 0);
    int axis, y = l->inputs[0];
    int64_t given = lower_int(l, "axis");
    if (l->op->since < 13 && given == x.ndim) given = x.ndim ? x.ndim - 1 : 0;
    if (!x.ndim) y = emit_unsqueeze(l, y, 0);
    if (lower_axis(l, given, x.ndim ? x.ndim : 1, &axis) < 0) return -1;
    bool one = l->op->since >= 13 || axis >= x.ndim - 1;
    if (one) {
        y = along(l, y, axis);
        return lower_result(l, x.ndim ? y : emit_squeeze(l, y, 0));
    }
    y = emit_reshape(l, y, 2, (int64_t[]){extent_between(&x, 0, axis), extent_between(&x, axis, x.ndim)});
    return lower_result(l, y < 0 ? -1 : emit_reshape(l, along(l, y, 1), x.ndim, x.dims));
}

int lower_softmax(struct lower *l) {
    return lower_along(l, emit_same);
}
int lower_hardmax(struct lower *l) {
    return lower_along(l, emit_hardmax);
}
