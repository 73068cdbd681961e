/* Operators that move elements: slicing, splitting, padding. */
#include "frontend/lower/lower_counted.h"

#include <limits.h>
#include <string.h>

#include "runtime/base/number/checked.h"

static int64_t clamp(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

static int64_t within(struct open_sizes *open, int64_t value, int64_t least, int64_t most) {
    return open_lesser(open, open_greater(open, value, least), most);
}

/* A bound of ONNX Slice-13 that is negative counts from the end of the dimension. One near INT64_MIN is before its
 * begin. */
static int64_t from_begin(struct open_sizes *open, int64_t bound, int64_t extent) {
    return open_least(open, bound) >= 0 || bound < -AMOUNT_LIMIT ? bound : open_sum(open, bound, extent);
}

/* Clamps the start of a slice: to [0, extent] if it steps forward, to [0, extent - 1] if it steps backward. */
static int64_t slice_start(struct open_sizes *open, int64_t start, int64_t extent, int64_t step) {
    return within(open, from_begin(open, start, extent), 0, step > 0 ? extent : open_sum(open, extent, -1));
}

/* Clamps the end of a slice: to [0, extent] if it steps forward, to [-1, extent - 1] if it steps backward. */
static int64_t slice_end(struct open_sizes *open, int64_t end, int64_t extent, int64_t step) {
    end = from_begin(open, end, extent);
    return step > 0 ? within(open, end, 0, extent) : within(open, end, -1, open_sum(open, extent, -1));
}

static int64_t slice_size(struct open_sizes *open, int64_t start, int64_t end, int64_t step) {
    const int64_t by = step > 0 ? step : -step;
    const int64_t span = step > 0 ? open_sum(open, end, -start) : open_sum(open, start, -end);
    const int64_t positive = open_greater(open, span, 0);
    return positive ? open_sum(open, open_quotient(open, open_sum(open, positive, -1), by), 1) : 0;
}

/* A bound that counts from the begin for some open sizes and from the end for others is refused. */
static int slice_sign(struct lower *lower, int64_t bound, int axis) {
    struct open_sizes *open = lower->builder.graph->open;
    if (open_least(open, bound) >= 0 || open_most(open, bound) < 0) return 0;
    const char *text = open_text(open, lower->arena, bound, NULL, false);
    return lower_error(lower, 439, "a bound of axis %d is %s, which is negative for some open sizes only", axis, text);
}

struct slice_lists {
    int nstarts, nends, naxes, nsteps;
    const struct amount *starts, *ends;
    const int64_t *axes, *steps;
};

/* Note [Counted slice]
 * A slice of a dimension whose size depends on data, or with such bounds. The bound is clamped to [0, extent], where a
 * negative one counts from the end. A start that is known makes a slice of which the first elements are valid; else
 * they are gathered. */
static struct amount slice_bound(struct lower *lower, const struct amount *bound, const struct amount *extent) {
    struct amount at = *bound;
    if (!bound->n && bound->offset < 0) at = amount_plus(lower->shared, extent, 1, bound);
    if (bound->n && bound->least < 0) {
        const int given = emit_amount(lower, bound), behind = emit2(lower, OP_Add, given, emit_amount(lower, extent));
        at = lower_amount(lower, emit3(lower, OP_Where, emit_with(lower, OP_Less, given, 0), behind, given));
    }
    const struct amount zero = amount_of_number(0);
    if (amount_at_most(lower->shared, extent, &at)) return *extent;
    if (!amount_at_most(lower->shared, &at, extent))
        at = lower_amount(lower, emit2(lower, OP_Min, emit_amount(lower, &at), emit_amount(lower, extent)));
    if (amount_at_most(lower->shared, &zero, &at)) return at;
    return lower_amount(lower, emit_with(lower, OP_Max, emit_amount(lower, &at), 0));
}

static int slice_counted(struct lower *lower, int x, int axis, const struct amount *start, const struct amount *end,
                         int64_t step) {
    const struct amount extent = lower_extent(lower, x, axis);
    struct open_sizes *open = lower_open(lower);
    if (step < 0) return lower_unsupported(lower, "a negative step along a dimension whose size depends on data");
    const bool known = !start->n && start->offset >= 0;
    const struct amount first = known ? *start : slice_bound(lower, start, &extent);
    const struct amount last = slice_bound(lower, end, &extent);
    if (!first.n) {
        const int64_t bound = lower_tensor(lower, x).dims[axis];
        const int64_t begin = open_lesser(open, first.offset, bound);
        const struct amount size = lower_steps(lower, &last, first.offset, step);
        const int64_t most = slice_size(open, begin, bound, step);
        const struct counted *counted = lower_counted(lower, x);
        if (counted && counted->dim == axis) x = lower_all_valid(lower, x);
        return lower_sized(lower,
                           emit_piece(lower, x, axis, most ? begin : 0, open_most(open, most) > 1 ? step : 1, most),
                           axis, &size);
    }
    if (step != 1) return lower_unsupported(lower, "a step from a start that depends on data");
    struct amount size = amount_plus(lower->shared, &last, -1, &first);
    if (size.least < 0) size = lower_amount(lower, emit_with(lower, OP_Max, emit_amount(lower, &size), 0));
    return lower_run(lower, x, axis, emit_amount(lower, &first), &size);
}

static int slice(struct lower *lower, const struct slice_lists *lists) {
    struct tensor x = lower_input(lower, 0);
    struct open_sizes *open = lower->builder.graph->open;
    int n = lists->nstarts, y = lower->inputs[0];
    int64_t start[RT_MAX_NDIM] = {0}, step[RT_MAX_NDIM];
    bool seen[RT_MAX_NDIM] = {false};
    for (int d = 0; d < RT_MAX_NDIM; d++) step[d] = 1;
    if (lists->nends != n || (lists->axes && lists->naxes != n) || (lists->steps && lists->nsteps != n) || n > x.ndim)
        return lower_error(lower, 380, "%d start(s), %d end(s), %d axes and %d step(s) do not fit %d dimension(s)", n,
                           lists->nends, lists->naxes, lists->nsteps, x.ndim);
    for (int i = 0; i < n; i++) {
        int axis;
        if (lower_axis(lower, lists->axes ? lists->axes[i] : i, x.ndim, &axis) < 0) return -1;
        int64_t by = lists->steps ? lists->steps[i] : 1;
        if (by == 0 || seen[axis])
            return lower_error(lower, 380, by && seen[axis] ? "axis %d is given twice" : "invalid step for axis %d",
                               axis);
        if (by == INT64_MIN) by = -INT64_MAX; /* beyond every extent, too */
        seen[axis] = true;
        if (lists->starts[i].n || lists->ends[i].n || lower_extent(lower, y, axis).n) {
            y = slice_counted(lower, y, axis, &lists->starts[i], &lists->ends[i], by);
            if (y < 0) return -1;
            x.dims[axis] = lower_tensor(lower, y).dims[axis];
            continue;
        }
        const int64_t first = lists->starts[i].offset, last = lists->ends[i].offset;
        if (slice_sign(lower, first, axis) < 0 || slice_sign(lower, last, axis) < 0) return -1;
        start[axis] = slice_start(open, first, x.dims[axis], by);
        x.dims[axis] = x.dims[axis] ? slice_size(open, start[axis], slice_end(open, last, x.dims[axis], by), by) : 0;
        step[axis] = by;
        if (open_most(open, x.dims[axis]) <= 1) step[axis] = 1;
        if (x.dims[axis] == 0) start[axis] = 0;
    }
    return lower_result(lower, build_slice(&lower->builder, y, start, step, x.dims));
}

static const struct amount *numbers(struct lower *lower, const int64_t *values, int n) {
    struct amount *amounts = ARENA_ARRAY(lower->arena, struct amount, n + 1);
    for (int i = 0; i < n; i++) amounts[i] = amount_of_number(values[i]);
    return amounts;
}

int lower_slice_attributes(struct lower *lower) {
    struct slice_lists lists = {0};
    const int64_t *starts = lower_ints(lower, "starts", &lists.nstarts);
    lists.starts = numbers(lower, starts, lists.nstarts);
    const int64_t *ends = lower_ints(lower, "ends", &lists.nends);
    lists.ends = numbers(lower, ends, lists.nends);
    lists.axes = lower_ints(lower, "axes", &lists.naxes);
    return slice(lower, &lists);
}

/* Any integers: they are clamped to the extents. */
static const struct amount *slice_bounds(struct lower *lower, int input, const char *what, int *n) {
    const struct tensor bounds = lower_input(lower, input);
    *n = (int)tensor_elements(&bounds);
    const struct amount *amounts =
        rt_dtype_is_float(bounds.dtype) ? NULL : amounts_of(lower->shared, lower->inputs[input]);
    return amounts ? amounts : lower_amounts(lower, input, what, n);
}

int lower_slice(struct lower *lower) {
    struct slice_lists lists = {0};
    if (!(lists.starts = slice_bounds(lower, 1, "starts", &lists.nstarts))) return -1;
    if (!(lists.ends = slice_bounds(lower, 2, "ends", &lists.nends))) return -1;
    if (lower_has(lower, 3) && !(lists.axes = lower_known(lower, 3, "axes", &lists.naxes))) return -1;
    if (lower_has(lower, 4) && !(lists.steps = lower_known(lower, 4, "steps", &lists.nsteps))) return -1;
    return slice(lower, &lists);
}

/* Split, Concat */

/* A traced loop over the experts that the example's tokens chose (of a mixture of experts), or over other elements that
 * a condition picks, is a Split of a size that depends on data into the example's sizes. */
static int refuse_traced(struct lower *lower, int axis, int parts) {
    diag_error(lower->builder.diags, 381, EXIT_UNSUPPORTED, lower_where(lower),
               "the %d size(s) are those of the exporter's example input: the size of dimension %d depends on data",
               parts, axis);
    diag_help(lower->builder.diags,
              "such a Split is a loop over the experts that the example's tokens chose, which the "
              "legacy exporter traced; other tokens choose others");
    return lower_help_experts(lower);
}

/* The sizes of ONNX Split-18: as given, else equal parts with a smaller last one. */
static int split_sizes(struct lower *lower, int64_t extent, int64_t *sizes) {
    struct open_sizes *open = lower_open(lower);
    const int64_t *given;
    int n, count = lower->noutputs;
    if (lower_list(lower, 1, "split", &given, &n) < 0) return -1;
    int64_t total = 0, share = open_quotient(open, open_sum(open, extent, count - 1), count);
    if (given && n != count) return lower_error(lower, 381, "%d size(s) are given for %d output(s)", n, count);
    if (lower->op->since >= 13 && lower_given(lower, "num_outputs") && lower_int(lower, "num_outputs") != count)
        return lower_error(lower, 381, "num_outputs is %lld, but there are %d output(s)",
                           (long long)lower_int(lower, "num_outputs"), count);
    for (int i = 0; i < count; i++) {
        sizes[i] = given ? given[i] : within(open, open_sum(open, extent, -total), 0, share);
        int64_t sum;
        if (sizes[i] < 0 || !rt_add(total, sizes[i], &sum))
            return lower_error(lower, 381, "invalid size %lld", (long long)sizes[i]);
        total = open_sum(open, total, sizes[i]);
    }
    if (total == extent) return 0;
    return lower_error(lower, 381, "the sizes add up to %lld, but the dimension has %lld element(s)", (long long)total,
                       (long long)extent);
}

/* Each of the sizes is at most the extent, since they add up to it. */
static void record_sizes(struct lower *lower, int axis, int n, const struct amount *sizes) {
    const struct amount extent = lower_extent(lower, lower->inputs[0], axis);
    const int64_t bound = lower_input(lower, 0).dims[axis];
    for (int i = 0; i < n; i++)
        if (sizes[i].n == 1 && !sizes[i].offset && sizes[i].terms[0].factor == 1)
            amounts_bound(lower->shared, sizes[i].terms[0].tensor, sizes[i].terms[0].element, bound);
    amounts_sum(lower->shared, n, sizes, &extent);
}

int lower_split_at(struct lower *lower, int axis, int n, int *pieces) {
    const struct amount *sizes = amounts_of(lower->shared, lower->inputs[1]);
    const struct tensor tensor = lower_input(lower, 1);
    struct amount start = amount_of_number(0);
    int known;
    if (!sizes || rt_dtype_is_float(tensor.dtype)) return lower_known(lower, 1, "split", &known) ? 0 : -1;
    if (tensor.ndim != 1 || tensor.dims[0] != n)
        return lower_error(lower, 381, "%lld size(s) are given for %d outputs", (long long)tensor_elements(&tensor), n);
    record_sizes(lower, axis, n, sizes);
    for (int i = 0; i < n; i++) {
        const struct amount size = amounts_of(lower->shared, lower->inputs[1])[i]; /* now with its bound */
        pieces[i] = lower_run(lower, lower->inputs[0], axis, emit_amount(lower, &start), &size);
        if (pieces[i] < 0) return -1;
        start = amount_plus(lower->shared, &start, 1, &size);
    }
    return 0;
}

int lower_split(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    int64_t *sizes = ARENA_ARRAY(lower->arena, int64_t, lower->noutputs), start = 0;
    const bool given = lower->op->since >= 13 ? lower_has(lower, 1) : lower_given(lower, "split");
    const bool known = lower->op->since < 13 || !given || build_known_ints(lower->builder.graph, lower->inputs[1], &n);
    if (!known) return lower_split_at(lower, axis, lower->noutputs, lower->outputs);
    if (counted && counted->dim == axis && given) return refuse_traced(lower, axis, lower->noutputs);
    if (counted && counted->dim == axis)
        return lower_unsupported(lower, "equal parts of a dimension whose size depends on data");
    if (split_sizes(lower, x.dims[axis], sizes) < 0) return -1;
    for (int i = 0; i < lower->noutputs; start = open_sum(lower_open(lower), start, sizes[i++])) {
        if (!lower_wants(lower, i)) continue;
        lower->outputs[i] = emit_piece(lower, lower->inputs[0], axis, sizes[i] ? start : 0, 1, sizes[i]);
        if (lower->outputs[i] < 0) return -1;
    }
    return 0;
}

int lower_concat(struct lower *lower) {
    int axis;
    if (lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, lower->inputs[0]), &axis) < 0) return -1;
    return lower_result(lower, lower_join(lower, axis, lower->ninputs, lower->inputs));
}

/* Pad, Trilu */

/* The index in the input of element i of a padded dimension; i may be negative. */
static int64_t pad_source(char mode, int64_t i, int64_t extent) {
    int64_t period = mode == 'r' ? 2 * (extent - 1) : extent;
    if (mode == 'e') return clamp(i, 0, extent - 1);
    if (period == 0) return 0;
    i = ((i % period) + period) % period;
    return mode == 'r' && i >= extent ? period - i : i;
}

/* The same at run time for `n` elements from -begin on, of which some depend on open sizes. */
static int emit_pad_sources(struct lower *lower, char mode, int64_t begin, int64_t n, int64_t extent) {
    struct open_sizes *open = lower_open(lower);
    const int64_t last = open_sum(open, extent, -1), period = mode == 'r' ? open_greater(open, 2 * last, 1) : extent;
    const int at = emit2(lower, OP_Sub, emit_places(lower, 0, n, 1, 0), emit_number(lower, RT_I64, begin));
    if (mode == 'e') return emit2(lower, OP_Min, emit_with(lower, OP_Max, at, 0), emit_number(lower, RT_I64, last));
    const int around = emit_number(lower, RT_I64, period), place = emit2(lower, OP_Mod, at, around);
    return mode == 'r' ? emit2(lower, OP_Min, place, emit2(lower, OP_Sub, around, place)) : place;
}

/* Padding modes that repeat elements of the tensor: a Gather along each padded dimension. */
static int pad_by_picks(struct lower *lower, char mode, const int64_t *begin, const int64_t *end) {
    struct tensor x = lower_input(lower, 0);
    int y = lower->inputs[0];
    for (int d = 0; d < x.ndim; d++) {
        struct open_sizes *open = lower_open(lower);
        int64_t n = open_sum(open, x.dims[d], open_sum(open, begin[d], end[d]));
        if (!begin[d] && !end[d]) continue;
        if (open_is(open, n) || open_is(open, x.dims[d]) || open_is(open, begin[d])) {
            if (lower_at_least(lower, x.dims[d], 1, "the padded input", "1 or more") < 0 ||
                lower_at_least(lower, n, 0, "the result", "0 or more") < 0)
                return -1;
            y = emit_gather(lower, y, emit_pad_sources(lower, mode, begin[d], n, x.dims[d]), d);
            continue;
        }
        if (n < 0 || n > 1 << 28 || !x.dims[d]) return lower_error(lower, 378, "cannot pad dimension %d", d);
        int64_t *places = ARENA_ARRAY(lower->arena, int64_t, n + 1);
        for (int64_t i = 0; i < n; i++) places[i] = pad_source(mode, i - begin[d], x.dims[d]);
        y = emit_gather(lower, y, emit_ints(lower, (int)n, places, 1, &n), d);
    }
    return y;
}

static int pad_value(struct lower *lower) {
    if (lower->op->since < 11) return emit_like(lower, lower->inputs[0], lower_float(lower, "value"));
    return lower_has(lower, 2) ? emit_reshape(lower, lower->inputs[2], 0, NULL) : emit_like(lower, lower->inputs[0], 0);
}

/* The padding before and after each dimension, from pads for all dimensions or for those in axes. */
static int pad_amounts(struct lower *lower, int ndim, int64_t *begin, int64_t *end) {
    const int64_t *pads, *axes;
    int n, naxes;
    bool flags[RT_MAX_NDIM];
    if (lower_list(lower, lower->op->since < 11 ? -1 : 1, "pads", &pads, &n) < 0) return -1;
    if (lower_list(lower, 3, "axes", &axes, &naxes) < 0 || lower_axes(lower, axes, naxes, ndim, flags) < 0) return -1;
    int count = axes ? naxes : ndim;
    if (n != 2 * count) return lower_error(lower, 377, "%d pad(s) are given for %d dimension(s)", n, count);
    for (int i = 0; i < count; i++) {
        int axis = i;
        if (axes && lower_axis(lower, axes[i], ndim, &axis) < 0) return -1;
        begin[axis] = pads[i];
        end[axis] = pads[count + i];
        if (begin[axis] >> 46 < -1 || end[axis] >> 46 < -1)
            return lower_error(lower, 374, "the negative pads of dimension %d remove more elements than it has", axis);
        if (begin[axis] >> 46 > 0 || end[axis] >> 46 > 0) return lower_too_large(lower);
    }
    return 0;
}

int lower_pad(struct lower *lower) {
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    struct tensor x = lower_input(lower, 0);
    int64_t begin[RT_MAX_NDIM] = {0}, end[RT_MAX_NDIM] = {0};
    const char *mode = lower_text(lower, "mode");
    int known = 0, pads = 0;
    while (known < 4 && strcmp(mode, modes[known]) != 0) known++;
    if (known == 4) return lower_unknown(lower, "mode", mode);
    if (pad_amounts(lower, x.ndim, begin, end) < 0) return -1;
    for (int d = 0; d < x.ndim; d++) pads += begin[d] || end[d];
    if (!pads) return lower_result(lower, lower->inputs[0]);
    if (known) return lower_result(lower, pad_by_picks(lower, mode[0], begin, end));
    int value = pad_value(lower);
    struct attr attrs[] = {attr_of_ints("begin", x.ndim, begin), attr_of_ints("end", x.ndim, end)};
    return lower_result(lower, emit(lower, OP_Pad, 2, (int[]){lower->inputs[0], value}, 2, attrs));
}

/* ONNX CenterCropPad-18: from the middle of a dimension, or zeros around it, with the odd one behind. */
int lower_center_crop_pad(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int64_t start[RT_MAX_NDIM] = {0}, begin[RT_MAX_NDIM] = {0}, end[RT_MAX_NDIM] = {0};
    int n, naxes;
    bool seen[RT_MAX_NDIM];
    const int64_t *shape = lower_known(lower, 1, "shape", &n), *axes = lower_ints(lower, "axes", &naxes);
    if (!shape || (axes && lower_axes(lower, axes, naxes, x.ndim, seen) < 0)) return -1;
    if (n != (axes ? naxes : x.ndim))
        return lower_error(lower, 377, "shape has %d extent(s), not %d", n, axes ? naxes : x.ndim);
    for (int i = 0; i < n; i++) {
        int axis = i;
        if (axes && lower_axis(lower, axes[i], x.ndim, &axis) < 0) return -1;
        struct open_sizes *open = lower_open(lower);
        if (open_least(open, shape[i]) < 0) return lower_error(lower, 377, "negative extent %lld", (long long)shape[i]);
        if (shape[i] >> 46) return lower_too_large(lower);
        const int64_t difference = open_sum(open, shape[i], -x.dims[axis]);
        const int64_t more = open_greater(open, difference, 0), less = open_greater(open, -difference, 0);
        start[axis] = shape[i] ? open_quotient(open, less, 2) : 0;
        begin[axis] = open_quotient(open, more, 2);
        end[axis] = open_sum(open, more, -begin[axis]);
        x.dims[axis] = open_lesser(open, shape[i], x.dims[axis]);
    }
    int y = build_slice(&lower->builder, lower->inputs[0], start, NULL, x.dims), zero = emit_like(lower, y, 0);
    struct attr attrs[] = {attr_of_ints("begin", x.ndim, begin), attr_of_ints("end", x.ndim, end)};
    return lower_result(lower, emit(lower, OP_Pad, 2, (int[]){y, zero}, 2, attrs));
}

int lower_trilu(struct lower *lower) {
    int64_t k = 0;
    if (lower_has(lower, 1) && lower_known_int(lower, 1, "k", &k) < 0) return -1;
    if (lower_ndim(lower, lower->inputs[0]) < 2)
        return lower_error(lower, 378, "the input has fewer than 2 dimensions");
    struct attr attrs[] = {attr_of_int("upper", lower_int(lower, "upper") != 0),
                           attr_of_int("k", clamp(k, -(1ll << 46), 1ll << 46))};
    return lower_result(lower, emit(lower, OP_Trilu, 1, lower->inputs, 2, attrs));
}
