/* Operators along dimensions: reductions, softmax, cumulative sums. */
#include "frontend/lower/lower_counted.h"

#include <math.h>

/* Core reductions take adjacent dimensions: emits one for each run of them, the last run first, so that the axes of the
 * others stay valid. */
int emit_reduce(struct lower *lower, enum op_id op, int x, const bool *axes, bool keepdims) {
    if (x < 0) return -1;
    for (int end = lower_ndim(lower, x); end > 0 && x >= 0; end--) {
        if (!axes[end - 1]) continue;
        int64_t run[RT_MAX_NDIM];
        int first = end - 1;
        while (first > 0 && axes[first - 1]) first--;
        for (int d = first; d < end; d++) run[d - first] = d;
        struct attr attrs[] = {attr_of_ints("axes", end - first, run), attr_of_int("keepdims", keepdims)};
        x = emit(lower, op, 1, &x, 2, attrs);
        end = first + 1;
    }
    return x;
}

int emit_reduce_along(struct lower *lower, enum op_id op, int x, int axis, bool keepdims) {
    bool axes[RT_MAX_NDIM + 1] = {false};
    axes[axis] = true;
    return emit_reduce(lower, op, x, axes, keepdims);
}

static int emit_arg(struct lower *lower, enum op_id op, int x, int64_t axis, bool keepdims, bool last) {
    const struct attr attrs[] = {attr_of_ints("axes", 1, &axis), attr_of_int("keepdims", keepdims),
                                 attr_of_int("select_last", last)};
    return emit(lower, op, 1, &x, 3, attrs);
}

int emit_arg_max(struct lower *lower, int x, int axis, bool keepdims) {
    return emit_arg(lower, OP_ArgMax, x, axis, keepdims, false);
}

int emit_mean(struct lower *lower, int x, const bool *axes, bool keepdims) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    const struct counted *counted = lower_counted(lower, x);
    const int valid = counted && axes[counted->dim] ? counted->count : -1;
    int64_t count = 1;
    for (int d = 0; d < tensor.ndim; d++)
        if (axes[d] && (valid < 0 || d != counted->dim)) count *= tensor.dims[d];
    int sum = emit_reduce(lower, OP_ReduceSum, x, axes, keepdims);
    if (valid >= 0) {
        const int all = emit2(lower, OP_Mul, valid, emit_number(lower, lower_dtype(lower, valid), count));
        return emit2(lower, OP_Div, sum, emit_cast(lower, all, tensor.dtype));
    }
    if (!rt_dtype_is_float(tensor.dtype)) return emit2(lower, OP_Div, sum, emit_number(lower, tensor.dtype, count));
    return emit2(lower, OP_Mul, sum, emit_reciprocal(lower, tensor.dtype, count));
}

/* ONNX reductions: a core one, an operator before it (Mul: of x with itself) and one after it. */
static int log_sum_exp(struct lower *lower, int x, const bool *axes, bool keepdims);

static const struct reduction {
    const char *name;
    enum op_id before, core, after;
    int (*compose)(struct lower *lower, int x, const bool *axes, bool keepdims);
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

/* max + log(sum(exp(x - max))). An infinite maximum is replaced by 0, so that -inf does not become NaN. */
static int log_sum_exp(struct lower *lower, int x, const bool *axes, bool keepdims) {
    int most = emit_reduce(lower, OP_ReduceMax, x, axes, true), zero = emit_like(lower, x, 0);
    struct attr attrs[] = {attr_of_int("positive", 1), attr_of_int("negative", 1)};
    if (most < 0) return -1;
    int shift = emit3(lower, OP_Where, emit(lower, OP_IsInf, 1, &most, 2, attrs), zero, most);
    int sum = emit_reduce(lower, OP_ReduceSum, emit1(lower, OP_Exp, emit2(lower, OP_Sub, x, shift)), axes, true);
    int y = emit2(lower, OP_Add, emit1(lower, OP_Log, sum), shift);
    if (keepdims || y < 0) return y;
    struct tensor tensor = lower_tensor(lower, y);
    int n = 0;
    for (int d = 0; d < tensor.ndim; d++)
        if (!axes[d]) tensor.dims[n++] = tensor.dims[d];
    return emit_reshape(lower, y, n, tensor.dims);
}

static int reduce_by(struct lower *lower, const struct reduction *row, int x, const bool *axes, bool keepdims) {
    if (row->compose) return row->compose(lower, x, axes, keepdims);
    if (row->before != OP_NONE) x = row->before == OP_Mul ? emit2(lower, OP_Mul, x, x) : emit1(lower, row->before, x);
    x = emit_reduce(lower, row->core, x, axes, keepdims);
    if (row->after == OP_NONE) return x;
    return row->after == OP_Sqrt ? emit_root(lower, x) : emit1(lower, row->after, x);
}

static bool is_extreme(const struct reduction *row) {
    return row->core == OP_ReduceMax || row->core == OP_ReduceMin;
}

/* Integers under a square root or logarithm are computed as floats; bool has no order of its own in the kernels. */
static enum rt_dtype work_type(const struct reduction *row, enum rt_dtype dtype) {
    bool real = row->after != OP_NONE || row->compose == log_sum_exp;
    if (dtype == RT_BOOL || (!rt_dtype_is_float(dtype) && dtype != RT_I64))
        dtype = real ? RT_F64 : dtype == RT_I32 ? RT_I32 : RT_I64;
    return dtype == RT_I64 && real ? RT_F64 : dtype;
}

int emit_extreme(struct lower *lower, enum rt_dtype dtype, bool least) {
    const bool is_signed = rt_dtypes[dtype].kind == RT_KIND_INT;
    if (rt_dtype_is_float(dtype)) return build_scalar(&lower->builder, dtype, least ? -INFINITY : INFINITY);
    if (dtype == RT_BOOL) return build_scalar(&lower->builder, dtype, !least);
    const int bits = 8 * (int)rt_dtype_bytes(dtype) - is_signed;
    const int64_t most = bits == 64 ? -1 : (int64_t)((1ull << bits) - 1); /* -1: the bits of the greatest u64 */
    const int64_t value = !least ? most : is_signed ? -most - 1 : 0;
    return emit_narrowed(lower, emit_cast(lower, emit_ints(lower, 1, &value, 0, NULL), bits > 32 ? RT_I64 : dtype),
                         dtype);
}

/* The result of ReduceMax or ReduceMin of no elements. */
static int extreme_of_none(struct lower *lower, const struct reduction *row, const bool *axes, bool keepdims) {
    struct tensor x = lower_input(lower, 0);
    int n = 0;
    for (int d = 0; d < x.ndim; d++)
        if (!axes[d] || keepdims) x.dims[n++] = axes[d] ? 1 : x.dims[d];
    return emit_expand(lower, emit_extreme(lower, x.dtype, row->core == OP_ReduceMax), n, x.dims);
}

/* The operand of the core reduction, in a type that it has a kernel for. */
static int emit_operand(struct lower *lower, const struct reduction *row, int x) {
    const enum rt_dtype dtype = lower_dtype(lower, x);
    if (is_extreme(row) && dtype != RT_BOOL) return emit_ordered(lower, x);
    return emit_cast(lower, x, work_type(row, dtype));
}

static int emit_result(struct lower *lower, const struct reduction *row, int y, enum rt_dtype dtype) {
    return is_extreme(row) && dtype != RT_BOOL ? emit_from_ordered(lower, y, dtype) : emit_cast(lower, y, dtype);
}

int lower_reduce(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    const struct reduction *row = reductions;
    const int64_t *list;
    bool axes[RT_MAX_NDIM], keepdims = lower_int(lower, "keepdims");
    int n;
    while (strcmp(row->name, lower->op->name) != 0) row++;
    if (lower_list(lower, 1, "axes", &list, &n) < 0) return -1;
    if (lower_axes(lower, list, n, x.ndim, axes) < 0) return -1;
    bool nothing = lower->op->in_max > 1 && lower_int(lower, "noop_with_empty_axes");
    for (int d = 0; d < x.ndim && n == 0; d++) axes[d] = !nothing;
    bool none = false;
    for (int d = 0; d < x.ndim; d++) none = none || (axes[d] && x.dims[d] == 0);
    if (none && is_extreme(row)) return lower_result(lower, extreme_of_none(lower, row, axes, keepdims));
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    int operand = lower->inputs[0];
    if (counted && axes[counted->dim] && is_extreme(row)) /* in its own type, which may be narrower than the kernel's */
        operand = lower_masked(lower, operand, emit_extreme(lower, x.dtype, row->core == OP_ReduceMax));
    if ((operand = emit_operand(lower, row, operand)) < 0) return -1;
    int y = reduce_by(lower, row, operand, axes, keepdims);
    if (x.dtype == RT_BOOL)
        y = emit_with(lower, OP_Max, emit_with(lower, OP_Min, y, 1),
                      0); /* the maximum of no elements is neither 0 nor 1 */
    return lower_result(lower, emit_result(lower, row, y, x.dtype));
}

/* The result of ArgMax along a dimension without elements, which must not have elements itself. */
static int place_in_none(struct lower *lower, int axis, bool keepdims) {
    struct tensor x = lower_input(lower, 0);
    int64_t dims[RT_MAX_NDIM];
    int n = 0;
    x.dims[axis] = 1;
    if (tensor_elements(&x)) return lower_error(lower, 390, "dimension %d has no elements to choose from", axis);
    for (int d = 0; d < x.ndim; d++)
        if (d != axis || keepdims) dims[n++] = x.dims[d];
    return emit_ints(lower, 0, NULL, n, dims);
}

/* ONNX ArgMax-13, ArgMin-13. */
int lower_arg(struct lower *lower) {
    int axis;
    struct tensor x = lower_input(lower, 0);
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    const bool keepdims = lower_int(lower, "keepdims") != 0;
    if (x.dims[axis] == 0) return lower_result(lower, place_in_none(lower, axis, keepdims));
    return lower_result(lower, emit_arg(lower, lower_namesake(lower), emit_ordered(lower, lower->inputs[0]), axis,
                                        keepdims, lower_int(lower, "select_last_index") != 0));
}

/* The number of elements k of ONNX TopK, of `extent`. */
static int topk_count(struct lower *lower, const struct amount *extent, struct amount *k) {
    int n = 1;
    const struct amount given = amount_of_number(lower->op->since < 10 ? lower_int(lower, "k") : 0);
    const struct amount *amounts = lower->op->since < 10 ? &given : lower_amounts(lower, 1, "k", &n);
    if (!amounts) return -1;
    if (n != 1) return lower_error(lower, 384, "k must be one value, but %d are given", n);
    *k = *amounts;
    struct open_sizes *open = lower_open(lower);
    const int64_t least = open_least(open, k->least), most = open_most(open, extent->most);
    if (k->most >= 0 && least <= most) return 0; /* where both are open sizes, dims_topk compares them */
    return lower_error(lower, 384, "k is %lld, but the dimension has %lld element(s)", (long long)k->offset,
                       (long long)extent->most);
}

/* ONNX TopK-24. The results are sorted if attribute sorted is 0, too. Elements of a counted operand that are not valid
 * come last. */
int lower_topk(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int axis;
    struct amount k;
    bool largest = lower->op->since < 11 || lower_int(lower, "largest");
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    const struct amount extent = lower_extent(lower, lower->inputs[0], axis);
    if (topk_count(lower, &extent, &k) < 0) return -1;
    const int64_t most = k.n ? open_lesser(lower_open(lower), k.most, x.dims[axis]) : k.offset;
    int compared = emit_ordered(lower, lower->inputs[0]);
    if (extent.n) compared = lower_masked(lower, compared, emit_extreme(lower, lower_dtype(lower, compared), largest));
    const int at = lower_sized(lower, emit_top(lower, compared, axis, most, largest), axis, &k);
    if (lower_wants(lower, 1)) lower->outputs[1] = at;
    return lower_result(lower, emit_gather_elements(lower, lower->inputs[0], at, axis));
}

int emit_cumulated(struct lower *lower, enum op_id op, int x, int axis, bool exclusive, bool reverse) {
    const struct attr attrs[] = {attr_of_int("axis", axis), attr_of_int("exclusive", exclusive),
                                 attr_of_int("reverse", reverse)};
    return emit(lower, op, 1, &x, 3, attrs);
}

/* ONNX CumSum-14, CumProd-26. */
int lower_cumulative(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int64_t value;
    int axis;
    if (lower_known_int(lower, 1, "axis", &value) < 0 || lower_axis(lower, value, x.ndim, &axis) < 0) return -1;
    const int y = emit_cumulated(lower, lower_namesake(lower), emit_wrapping(lower, lower->inputs[0]), axis,
                                 lower_int(lower, "exclusive") != 0, lower_int(lower, "reverse") != 0);
    return lower_result(lower, emit_narrowed(lower, y, x.dtype));
}

static int global(struct lower *lower, bool mean) {
    struct tensor x = lower_input(lower, 0);
    bool axes[RT_MAX_NDIM];
    if (x.ndim < 2) return lower_error(lower, 378, "the input has %d dimension(s), but at least 2 are needed", x.ndim);
    for (int d = 0; d < RT_MAX_NDIM; d++) axes[d] = d >= 2;
    if (mean) return lower_result(lower, emit_mean(lower, lower->inputs[0], axes, true));
    return lower_result(lower, emit_reduce(lower, OP_ReduceMax, lower->inputs[0], axes, true));
}

int lower_global_average(struct lower *lower) {
    return global(lower, true);
}
int lower_global_max(struct lower *lower) {
    return global(lower, false);
}

int emit_softmax(struct lower *lower, enum op_id op, int x, int axis) {
    return emit_along(lower, op, 1, &x, axis);
}

/* 1 at the largest element along the dimension (the first of equal ones), else 0. */
static int emit_hardmax(struct lower *lower, int x, int axis) {
    struct tensor tensor = lower_tensor(lower, x);
    const int at = emit_arg_max(lower, x, axis, true);
    const int places = emit_places(lower, 0, tensor.dims[axis], tensor.ndim, axis);
    return emit_cast(lower, emit2(lower, OP_Equal, at, places), tensor.dtype);
}

/* Softmax or LogSoftmax, as the node. */
static int emit_same(struct lower *lower, int x, int axis) {
    return emit_softmax(lower, lower_namesake(lower), x, axis);
}

/* ONNX Softmax, LogSoftmax, Hardmax: from opset 13 on along one dimension, before over all dimensions from `axis`
 * on. */
static int lower_along(struct lower *lower, int (*along)(struct lower *lower, int x, int axis)) {
    struct tensor x = lower_input(lower, 0);
    int axis, y = lower->inputs[0];
    int64_t given = lower_int(lower, "axis");
    if (lower->op->since < 13 && given == x.ndim) given = x.ndim ? x.ndim - 1 : 0;
    if (!x.ndim) y = emit_unsqueeze(lower, y, 0);
    if (lower_axis(lower, given, x.ndim ? x.ndim : 1, &axis) < 0) return -1;
    bool one = lower->op->since >= 13 || axis >= x.ndim - 1;
    if (one) {
        y = along(lower, y, axis);
        return lower_result(lower, x.ndim ? y : emit_squeeze(lower, y, 0));
    }
    y = emit_reshape(lower, y, 2, (int64_t[]){extent_between(&x, 0, axis), extent_between(&x, axis, x.ndim)});
    return lower_result(lower, y < 0 ? -1 : emit_reshape(lower, along(lower, y, 1), x.ndim, x.dims));
}

int lower_softmax(struct lower *lower) {
    return lower_along(lower, emit_same);
}
int lower_hardmax(struct lower *lower) {
    return lower_along(lower, emit_hardmax);
}
