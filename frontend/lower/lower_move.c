/* Operators that move elements: slicing, splitting, gathering, scattering, padding. */
#include "frontend/lower/onnx_lower.h"

#include <limits.h>

#include "ir/expr/eval.h"
#include "runtime/base/checked.h"

/* Slice ----------------------------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* A bound of ONNX Slice-13 that is negative counts from the end of the dimension. */
static int64_t from_begin(int64_t bound, int64_t extent) {
    return bound < 0 ? bound + extent : bound;
}

/* Clamps the start of a slice: to [0, extent] if it steps forward, to [0, extent - 1] if it steps backward. */
static int64_t slice_start(int64_t start, int64_t extent, int64_t step) {
    return clamp(from_begin(start, extent), 0, step > 0 ? extent : extent - 1);
}

/* Clamps the end of a slice: to [0, extent] if it steps forward, to [-1, extent - 1] if it steps backward. */
static int64_t slice_end(int64_t end, int64_t extent, int64_t step) {
    return step > 0 ? clamp(from_begin(end, extent), 0, extent) : clamp(from_begin(end, extent), -1, extent - 1);
}

static int64_t slice_size(int64_t start, int64_t end, int64_t step) {
    if (step > 0 ? end <= start : end >= start) return 0;
    return step > 0 ? (end - start - 1) / step + 1 : (start - end - 1) / -step + 1;
}

struct slice_lists {
    int nstarts, nends, naxes, nsteps;
    const int64_t *starts, *ends, *axes, *steps;
};

static int slice(struct lower *lower, const struct slice_lists *lists) {
    struct tensor x = lower_input(lower, 0);
    int n = lists->nstarts;
    int64_t start[RT_MAX_NDIM] = {0}, step[RT_MAX_NDIM];
    bool seen[RT_MAX_NDIM] = {false};
    for (int d = 0; d < RT_MAX_NDIM; d++) step[d] = 1;
    if (lists->nends != n || (lists->axes && lists->naxes != n) || (lists->steps && lists->nsteps != n) || n > x.ndim)
        return lower_error(lower, 380, EXIT_MALFORMED,
                           "%d starts, %d ends, %d axes and %d steps do not fit %d dimensions", n, lists->nends,
                           lists->naxes, lists->nsteps, x.ndim);
    for (int i = 0; i < n; i++) {
        int axis;
        if (lower_axis(lower, lists->axes ? lists->axes[i] : i, x.ndim, &axis) < 0) return -1;
        int64_t by = lists->steps ? lists->steps[i] : 1;
        if (by == 0 || seen[axis])
            return lower_error(lower, 380, EXIT_MALFORMED,
                               by && seen[axis] ? "axis %d is given twice" : "invalid step for axis %d", axis);
        if (by == INT64_MIN) by = -INT64_MAX; /* beyond every extent, too */
        seen[axis] = true;
        start[axis] = slice_start(lists->starts[i], x.dims[axis], by);
        x.dims[axis] = x.dims[axis] ? slice_size(start[axis], slice_end(lists->ends[i], x.dims[axis], by), by) : 0;
        step[axis] = by;
        if (x.dims[axis] <= 1) step[axis] = 1;
        if (x.dims[axis] == 0) start[axis] = 0;
    }
    return lower_result(lower, build_slice(&lower->builder, lower->inputs[0], start, step, x.dims));
}

int lower_slice_attributes(struct lower *lower) {
    struct slice_lists lists = {0};
    lists.starts = lower_ints(lower, "starts", &lists.nstarts);
    lists.ends = lower_ints(lower, "ends", &lists.nends);
    lists.axes = lower_ints(lower, "axes", &lists.naxes);
    return slice(lower, &lists);
}

int lower_slice(struct lower *lower) {
    struct slice_lists lists = {0};
    if (!(lists.starts = lower_known(lower, 1, "starts", &lists.nstarts))) return -1;
    if (!(lists.ends = lower_known(lower, 2, "ends", &lists.nends))) return -1;
    if (lower_has(lower, 3) && !(lists.axes = lower_known(lower, 3, "axes", &lists.naxes))) return -1;
    if (lower_has(lower, 4) && !(lists.steps = lower_known(lower, 4, "steps", &lists.nsteps))) return -1;
    return slice(lower, &lists);
}

/* Split, Concat --------------------------------------------------------------------------------------------------- */

/* The sizes of ONNX Split-18: as given, else equal parts with a smaller last one. */
static int split_sizes(struct lower *lower, int64_t extent, int64_t *sizes) {
    const int64_t *given;
    int n, count = lower->noutputs;
    if (lower_list(lower, 1, "split", &given, &n) < 0) return -1;
    int64_t total = 0, share = (extent + count - 1) / count;
    if (given && n != count)
        return lower_error(lower, 381, EXIT_MALFORMED, "%d sizes are given for %d outputs", n, count);
    if (lower->op->since >= 13 && lower_given(lower, "num_outputs") && lower_int(lower, "num_outputs") != count)
        return lower_error(lower, 381, EXIT_MALFORMED, "num_outputs is %lld, but there are %d outputs",
                           (long long)lower_int(lower, "num_outputs"), count);
    for (int i = 0; i < count; i++) {
        sizes[i] = given ? given[i] : clamp(extent - total, 0, share);
        if (sizes[i] < 0 || !rt_add(total, sizes[i], &total))
            return lower_error(lower, 381, EXIT_MALFORMED, "invalid size %lld", (long long)sizes[i]);
    }
    if (total == extent) return 0;
    return lower_error(lower, 381, EXIT_MALFORMED, "the sizes add up to %lld, but the dimension has %lld elements",
                       (long long)total, (long long)extent);
}

int lower_split(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int axis;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    int64_t *sizes = ARENA_ARRAY(lower->builder.graph->arena, int64_t, lower->noutputs), start = 0;
    if (split_sizes(lower, x.dims[axis], sizes) < 0) return -1;
    for (int i = 0; i < lower->noutputs; start += sizes[i++]) {
        if (!lower_wants(lower, i)) continue;
        lower->outputs[i] = emit_piece(lower, lower->inputs[0], axis, sizes[i] ? start : 0, 1, sizes[i]);
        if (lower->outputs[i] < 0) return -1;
    }
    return 0;
}

int lower_concat(struct lower *lower) {
    int axis;
    if (lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, lower->inputs[0]), &axis) < 0) return -1;
    return lower_result(lower, emit_concat(lower, axis, lower->ninputs, lower->inputs));
}

/* Gather, Scatter ------------------------------------------------------------------------------------------------- */

/* E382 if indices known at compile time are outside of [-extent, extent). Sets *values and *n if they are known. */
static int check_indices(struct lower *lower, int index, int64_t extent, const int64_t **values, int *n) {
    struct tensor tensor = lower_tensor(lower, index);
    *values = tensor_elements(&tensor) < INT_MAX ? build_known_ints(lower->builder.graph, index, n) : NULL;
    for (int i = 0; *values && i < *n; i++)
        if ((*values)[i] < -extent || (*values)[i] >= extent)
            return lower_error(lower, 382, EXIT_MALFORMED, "index %lld is out of range for extent %lld",
                               (long long)(*values)[i], (long long)extent);
    return 0;
}

/* Index operands are i64 or i32. */
static int index_type(struct lower *lower, int index) {
    if (index < 0) return -1;
    enum rt_dtype dtype = lower_dtype(lower, index);
    if (rt_dtype_is_float(dtype) || dtype == RT_BOOL)
        return lower_error(lower, 379, EXIT_MALFORMED, "indices must have an integer type, not %s",
                           rt_dtypes[dtype].name);
    return dtype == RT_I32 ? index : emit_cast(lower, index, RT_I64);
}

/* A single known index becomes a slice, so that the parts of a fused query-key-value product are recognised. */
int lower_gather(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    const int64_t *values;
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (check_indices(lower, lower->inputs[1], x.dims[axis], &values, &n) < 0) return -1;
    if (!values || n != 1)
        return lower_result(lower, emit_gather(lower, lower->inputs[0],
                                               index_type(lower, lower_masked_index(lower, lower->inputs[1])), axis));
    int piece = emit_piece(lower, lower->inputs[0], axis, values[0] < 0 ? values[0] + x.dims[axis] : values[0], 1, 1);
    int64_t shape[2 * RT_MAX_NDIM];
    int ndim = 0;
    for (int d = 0; d < axis; d++) shape[ndim++] = x.dims[d];
    for (int d = 0; d < index.ndim; d++) shape[ndim++] = 1;
    for (int d = axis + 1; d < x.ndim; d++) shape[ndim++] = x.dims[d];
    return lower_result(lower, emit_reshape(lower, piece, ndim, shape));
}

/* True if no extent of `index` exceeds that of x, except along `axis` (GatherElements, ScatterElements). */
static bool fits_elements(const struct tensor *x, const struct tensor *index, int axis) {
    if (index->ndim != x->ndim) return false;
    for (int d = 0; d < x->ndim; d++)
        if (d != axis && index->dims[d] > x->dims[d]) return false;
    return true;
}

int lower_gather_elements(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    const int64_t *values;
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (!fits_elements(&x, &index, axis)) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (check_indices(lower, lower->inputs[1], x.dims[axis], &values, &n) < 0) return -1;
    struct attr attr = attr_of_int("axis", axis);
    int at = index_type(lower, lower_masked_index(lower, lower->inputs[1]));
    return lower_result(lower,
                        at < 0 ? -1 : emit(lower, OP_GatherElements, 2, (int[]){lower->inputs[0], at}, 1, &attr));
}

/* The core operator for attribute reduction; OP_NONE after a diagnostic. */
static enum op_id scatter_of(struct lower *lower, enum op_id replaces, enum op_id adds) {
    const char *reduction = lower_text(lower, "reduction");
    if (strcmp(reduction, "none") == 0) return replaces;
    if (strcmp(reduction, "add") == 0 && rt_dtype_is_float(lower_dtype(lower, lower->inputs[0]))) return adds;
    return lower_unsupported(lower, "reduction"), OP_NONE;
}

/* Note [Counted scatter]
 * Updates at indices that are not valid are scattered to an index behind dimension `axis` of the data: the data gets
 * one more, which is cut off afterwards. */
static int scatter_counted(struct lower *lower, enum op_id op, int axis, int outside, int nattrs,
                           const struct attr *attrs) {
    struct tensor x = lower_input(lower, 0);
    int64_t begin[RT_MAX_NDIM] = {0}, end[RT_MAX_NDIM] = {0};
    const struct counted *index = lower_counted(lower, lower->inputs[1]),
                         *updates = lower_counted(lower, lower->inputs[2]);
    if (lower_counted(lower, lower->inputs[0]) || !index || !updates || index->dim != updates->dim ||
        index->count != updates->count)
        return lower_error(lower, 410, EXIT_UNSUPPORTED,
                           "indices and updates do not have the same size, which depends on data");
    end[axis] = 1;
    struct attr pad[] = {attr_of_ints("begin", x.ndim, begin), attr_of_ints("end", x.ndim, end)};
    int data = emit(lower, OP_Pad, 2, (int[]){lower->inputs[0], emit_like(lower, lower->inputs[0], 0)}, 2, pad);
    int at = emit_cast(lower, lower_masked(lower, lower->inputs[1], outside), RT_I64);
    int y = data < 0 || at < 0 ? -1 : emit(lower, op, 3, (int[]){data, at, lower->inputs[2]}, nattrs, attrs);
    lower_set_counted(lower, y, NULL);
    return emit_piece(lower, y, axis, 0, 1, x.dims[axis]);
}

static bool scatters_counted(struct lower *lower) {
    return lower_counted(lower, lower->inputs[1]) || lower_counted(lower, lower->inputs[2]);
}

int lower_scatter_elements(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1), updates = lower_input(lower, 2);
    const int64_t *values;
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    bool same = updates.ndim == index.ndim;
    for (int d = 0; same && d < index.ndim; d++) same = updates.dims[d] == index.dims[d];
    if (!same) return lower_misfit(lower, lower->inputs[1], lower->inputs[2]);
    if (!fits_elements(&x, &index, axis)) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    const enum op_id op = scatter_of(lower, OP_ScatterElements, OP_ScatterElementsAdd);
    if (op == OP_NONE) return -1;
    if (check_indices(lower, lower->inputs[1], x.dims[axis], &values, &n) < 0) return -1;
    struct attr attr = attr_of_int("axis", axis);
    if (scatters_counted(lower)) {
        int outside =
            emit_cast(lower, emit_ints(lower, 1, &x.dims[axis], 0, NULL), lower_dtype(lower, lower->inputs[1]));
        return lower_result(lower, scatter_counted(lower, op, axis, outside, 1, &attr));
    }
    int at = index_type(lower, lower->inputs[1]);
    int inputs[] = {lower->inputs[0], at, lower->inputs[2]};
    return lower_result(lower, at < 0 ? -1 : emit(lower, op, 3, inputs, 1, &attr));
}

/* Checks indices of GatherND and ScatterND known at compile time: each row of `depth` selects in dimensions from
 * `first`. */
static int check_rows(struct lower *lower, const struct tensor *x, int first, int64_t depth) {
    int n;
    struct tensor index = lower_input(lower, 1);
    const int64_t *values =
        tensor_elements(&index) < INT_MAX ? build_known_ints(lower->builder.graph, lower->inputs[1], &n) : NULL;
    for (int i = 0; values && i < n; i++) {
        int64_t extent = x->dims[first + i % depth];
        if (values[i] < -extent || values[i] >= extent)
            return lower_error(lower, 382, EXIT_MALFORMED, "index %lld is out of range for extent %lld",
                               (long long)values[i], (long long)extent);
    }
    return 0;
}

int lower_gather_nd(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    int64_t batch = lower_int(lower, "batch_dims");
    bool fits = index.ndim > 0 && batch >= 0 && batch < index.ndim && batch < x.ndim;
    int64_t depth = fits ? index.dims[index.ndim - 1] : 0;
    fits = fits && depth > 0 && depth <= x.ndim - batch;
    for (int d = 0; fits && d < batch; d++) fits = x.dims[d] == index.dims[d];
    if (!fits) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (check_rows(lower, &x, (int)batch, depth) < 0) return -1;
    struct attr attrs[] = {attr_of_int("batch_dims", batch), attr_of_int("depth", depth)};
    int at = emit_cast(lower, lower_masked_index(lower, lower->inputs[1]), RT_I64);
    if (at >= 0 && batch == 0 && depth == 1) { /* whole slices: Gather, which ranks can divide along the dimension */
        struct attr axis = attr_of_int("axis", 0);
        at = build_reshape(&lower->builder, at, index.ndim - 1, index.dims);
        return lower_result(lower, at < 0 ? -1 : emit(lower, OP_Gather, 2, (int[]){lower->inputs[0], at}, 1, &axis));
    }
    return lower_result(lower, at < 0 ? -1 : emit(lower, OP_GatherND, 2, (int[]){lower->inputs[0], at}, 2, attrs));
}

int lower_scatter_nd(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1), updates = lower_input(lower, 2);
    int64_t depth = index.ndim ? index.dims[index.ndim - 1] : 0;
    bool fits = depth > 0 && depth <= x.ndim && updates.ndim == index.ndim - 1 + x.ndim - (int)depth;
    for (int d = 0; fits && d < updates.ndim; d++)
        fits = updates.dims[d] == (d < index.ndim - 1 ? index.dims[d] : x.dims[d - (index.ndim - 1) + depth]);
    if (!fits) return lower_misfit(lower, lower->inputs[1], lower->inputs[2]);
    const enum op_id op = scatter_of(lower, OP_ScatterND, OP_ScatterNDAdd);
    if (op == OP_NONE) return -1;
    if (check_rows(lower, &x, 0, depth) < 0) return -1;
    struct attr attr = attr_of_int("depth", depth);
    if (scatters_counted(lower)) {
        int64_t *outside = ARENA_ARRAY(lower->builder.graph->arena, int64_t, depth);
        outside[0] = x.dims[0];
        int place =
            emit_cast(lower, emit_ints(lower, (int)depth, outside, 1, &depth), lower_dtype(lower, lower->inputs[1]));
        return lower_result(lower, scatter_counted(lower, op, 0, place, 1, &attr));
    }
    int inputs[] = {lower->inputs[0], emit_cast(lower, lower->inputs[1], RT_I64), lower->inputs[2]};
    return lower_result(lower, inputs[1] < 0 ? -1 : emit(lower, op, 3, inputs, 1, &attr));
}

enum { MOST_CLASSES = 1 << 24 }; /* of OneHot, whose class numbers are a constant tensor */

/* ONNX OneHot-11: on_value where the index equals the position along the new dimension, else off_value; an index
 * outside of [-depth, depth) selects nothing. */
int lower_one_hot(struct lower *lower) {
    int index = lower->inputs[0], ndim = lower_ndim(lower, index), axis;
    double depth;
    if (lower_known_float(lower, 1, "depth", &depth) < 0) return -1;
    if (!(depth > 0)) return lower_error(lower, 384, EXIT_MALFORMED, "depth is %g, but must be greater than 0", depth);
    if (depth > MOST_CLASSES)
        return lower_error(lower, 505, EXIT_LIMIT, "depth is %g, but at most %d are supported", depth, MOST_CLASSES);
    if (lower_axis(lower, lower_int(lower, "axis"), ndim + 1, &axis) < 0) return -1;
    struct tensor values = lower_input(lower, 2);
    if (values.ndim != 1 || values.dims[0] != 2)
        return lower_error(lower, 384, EXIT_MALFORMED, "values must have two elements");
    int64_t n = (int64_t)depth, shape[RT_MAX_NDIM + 1], *places = ARENA_ARRAY(lower->builder.graph->arena, int64_t, n);
    for (int64_t i = 0; i < n; i++) places[i] = i;
    for (int d = 0; d <= ndim; d++) shape[d] = d == axis ? n : 1;
    if (ndim == RT_MAX_NDIM) return lower_error(lower, 506, EXIT_LIMIT, "more than %d dimensions", RT_MAX_NDIM);
    index = emit_unsqueeze(lower, emit_cast(lower, index, RT_I64), axis);
    index =
        emit3(lower, OP_Where, emit_with(lower, OP_Less, index, 0), emit_with(lower, OP_Add, index, (double)n), index);
    int hot = emit2(lower, OP_Equal, index, emit_ints(lower, (int)n, places, ndim + 1, shape));
    int off = emit_squeeze(lower, emit_piece(lower, lower->inputs[2], 0, 0, 1, 1), 0);
    int on = emit_squeeze(lower, emit_piece(lower, lower->inputs[2], 0, 1, 1, 1), 0);
    return lower_result(lower, emit3(lower, OP_Where, hot, on, off));
}

/* Pad, Trilu ------------------------------------------------------------------------------------------------------ */

/* The index in the input of element i of a padded dimension; i may be negative. */
static int64_t pad_source(char mode, int64_t i, int64_t extent) {
    int64_t period = mode == 'r' ? 2 * (extent - 1) : extent;
    if (mode == 'e') return clamp(i, 0, extent - 1);
    if (period == 0) return 0;
    i = ((i % period) + period) % period;
    return mode == 'r' && i >= extent ? period - i : i;
}

/* Padding modes that repeat elements of the tensor: a Gather along each padded dimension. */
static int pad_by_picks(struct lower *lower, char mode, const int64_t *begin, const int64_t *end) {
    struct tensor x = lower_input(lower, 0);
    int y = lower->inputs[0];
    for (int d = 0; d < x.ndim; d++) {
        int64_t n = x.dims[d] + begin[d] + end[d];
        if (!begin[d] && !end[d]) continue;
        if (n < 0 || n > 1 << 28 || !x.dims[d])
            return lower_error(lower, 378, EXIT_MALFORMED, "cannot pad dimension %d", d);
        int64_t *places = ARENA_ARRAY(lower->builder.graph->arena, int64_t, n + 1);
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
    if (n != 2 * count) return lower_error(lower, 377, EXIT_MALFORMED, "%d pads are given for %d dimensions", n, count);
    for (int i = 0; i < count; i++) {
        int axis = i;
        if (axes && lower_axis(lower, axes[i], ndim, &axis) < 0) return -1;
        begin[axis] = pads[i];
        end[axis] = pads[count + i];
        if (begin[axis] >> 46 < -1 || end[axis] >> 46 < -1)
            return lower_error(lower, 374, EXIT_MALFORMED,
                               "the negative pads of dimension %d remove more elements than it has", axis);
        if (begin[axis] >> 46 > 0 || end[axis] >> 46 > 0)
            return lower_error(lower, 505, EXIT_LIMIT, "the result is too large");
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
    if (known == 4)
        return lower_error(lower, 335, EXIT_MALFORMED, "unknown mode %s", diag_quote(lower->builder.diags, mode));
    if (pad_amounts(lower, x.ndim, begin, end) < 0) return -1;
    for (int d = 0; d < x.ndim; d++) pads += begin[d] || end[d];
    if (!pads) return lower_result(lower, lower->inputs[0]);
    if (known) return lower_result(lower, pad_by_picks(lower, mode[0], begin, end));
    int value = pad_value(lower);
    struct attr attrs[] = {attr_of_ints("begin", x.ndim, begin), attr_of_ints("end", x.ndim, end)};
    return lower_result(lower, value < 0 ? -1 : emit(lower, OP_Pad, 2, (int[]){lower->inputs[0], value}, 2, attrs));
}

int lower_trilu(struct lower *lower) {
    int64_t k = 0;
    if (lower_has(lower, 1) && lower_known_int(lower, 1, "k", &k) < 0) return -1;
    if (lower_ndim(lower, lower->inputs[0]) < 2)
        return lower_error(lower, 378, EXIT_MALFORMED, "the input has fewer than 2 dimensions");
    struct attr attrs[] = {attr_of_int("upper", lower_int(lower, "upper") != 0),
                           attr_of_int("k", clamp(k, -(1ll << 46), 1ll << 46))};
    return lower_result(lower, emit(lower, OP_Trilu, 1, lower->inputs, 2, attrs));
}
