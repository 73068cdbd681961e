/* Selection of elements: the sizes of the results depend on data. They are bounds with a count (struct counted), and
 * are computed from the positions of true elements, which TopK of 1 and 0 puts first and in their order. */
#include "frontend/lower/lower_counted.h"

#include <limits.h>

#include "ir/expr/eval.h"

enum { MOST_COMPARED = 1 << 26 }; /* elements that Unique compares along an axis: of all pairs of slices */

/* x != 0; of a counted x, false at indices that are not valid. */
static int flags_of(struct lower *lower, int x) {
    if (x < 0) return -1;
    int flags =
        lower_dtype(lower, x) == RT_BOOL ? x : emit1(lower, OP_Not, emit2(lower, OP_Equal, x, emit_like(lower, x, 0)));
    const struct counted *counted = lower_counted(lower, x);
    if (counted && flags != x) lower_set_counted(lower, flags, counted);
    return lower_masked(lower, flags, build_scalar(&lower->builder, RT_BOOL, 0));
}

/* x, of which `count` indices along `dim` are valid; zero: the others are 0. */
static int with_count(struct lower *lower, int x, int dim, int count, bool zero) {
    if (x < 0 || count < 0) return -1;
    const struct amount size = lower_amount(lower, count);
    const int y = lower_sized(lower, x, dim, &size);
    const struct counted *found = y < 0 ? NULL : lower_counted(lower, y);
    if (!found) return y;
    struct counted counted = *found;
    counted.zero = zero;
    lower_set_counted(lower, y, &counted);
    return y;
}

/* The number of true elements of flags (n). */
static int count_of(struct lower *lower, int flags) {
    return emit_reduce_along(lower, OP_ReduceSum, emit_cast(lower, flags, RT_I64), 0, false);
}

/* The positions of true elements of flags (n) first, in their order; then 0. */
static int positions_of(struct lower *lower, int flags, int count) {
    if (flags < 0 || count < 0) return -1;
    int64_t n = lower_tensor(lower, flags).dims[0];
    const struct counted counted = {0, count, true};
    int order = emit_top(lower, emit_cast(lower, flags, RT_I32), 0, n, true);
    int valid = lower_valid(lower, &counted, n, 1, 0);
    return order < 0 ? -1 : emit3(lower, OP_Where, valid, order, emit_like(lower, order, 0));
}

static int flat(struct lower *lower, int x) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    int64_t elements = tensor_elements(&tensor);
    if (elements > INT_MAX / 16) return lower_error(lower, 505, "the operand is too large");
    return emit_reshape(lower, x, 1, &elements);
}

/* NonZero of known elements. */
static int known_non_zero(struct lower *lower, const struct tensor *x) {
    int64_t elements = tensor_elements(x), found = 0, at[RT_MAX_NDIM] = {0};
    int64_t *index = ARENA_ARRAY(lower->arena, int64_t, elements * (x->ndim ? x->ndim : 1) + 1);
    bool *keeps = ARENA_ARRAY(lower->arena, bool, elements + 1);
    if (elements * (x->ndim + 1) > INT_MAX) return lower_too_large(lower);
    for (int64_t i = 0; i < elements; i++) {
        struct number value = eval_load(x->data, x->dtype, i);
        keeps[i] = value.is_float ? value.f != 0 : value.i != 0;
        found += keeps[i];
    }
    for (int64_t i = 0, k = 0; i < elements; i++, eval_next(at, x->dims, x->ndim)) {
        if (!keeps[i]) continue;
        for (int d = 0; d < x->ndim; d++) index[d * found + k] = at[d];
        k++;
    }
    return emit_ints(lower, (int)(found * x->ndim), index, 2, (int64_t[]){x->ndim, found});
}

/* The indices along each dimension of the elements at flat positions (n): (ndim, n). */
static int coordinates(struct lower *lower, int positions, const struct tensor *x) {
    int rows[RT_MAX_NDIM];
    for (int d = 0; d < x->ndim; d++) {
        int64_t stride = extent_between(x, d + 1, x->ndim);
        int at = stride == 1 ? positions : emit_with(lower, OP_Div, positions, (double)stride);
        if (d) at = emit_with(lower, OP_Mod, at, (double)x->dims[d]);
        rows[d] = emit_unsqueeze(lower, at, 0);
    }
    return x->ndim == 1 ? rows[0] : emit_concat(lower, 0, x->ndim, rows);
}

int lower_non_zero(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    if (x.kind == TENSOR_CONST) return lower_result(lower, known_non_zero(lower, &x));
    if (!x.ndim) return lower_unsupported(lower, "an operand without dimensions");
    if (!tensor_elements(&x)) return lower_result(lower, emit_ints(lower, 0, NULL, 2, (int64_t[]){x.ndim, 0}));
    int flags = flat(lower, flags_of(lower, lower->inputs[0])), count = count_of(lower, flags);
    return lower_result(lower,
                        with_count(lower, coordinates(lower, positions_of(lower, flags, count), &x), 1, count, true));
}

/* The positions of true values of a known condition. */
static int known_positions(struct lower *lower, const int64_t *condition, int n) {
    int64_t count = 0, *index = ARENA_ARRAY(lower->arena, int64_t, n + 1);
    for (int i = 0; i < n; i++)
        if (condition[i]) index[count++] = i;
    return emit_ints(lower, (int)count, index, 1, &count);
}

int lower_compress(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), condition = lower_input(lower, 1);
    int n, axis = 0, data = lower->inputs[0];
    if (lower_given(lower, "axis") && lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (!lower_given(lower, "axis")) data = flat(lower, data);
    if (data < 0) return -1;
    if (condition.ndim != 1 || condition.dims[0] > lower_tensor(lower, data).dims[axis])
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    const int64_t *known = build_known_ints(lower->builder.graph, lower->inputs[1], &n);
    if (!condition.dims[0]) known = ARENA_ARRAY(lower->arena, int64_t, 1), n = 0;
    if (known) return lower_result(lower, emit_gather(lower, data, known_positions(lower, known, n), axis));
    int flags = flags_of(lower, lower->inputs[1]), count = count_of(lower, flags);
    const int at = with_count(lower, positions_of(lower, flags, count), 0, count, true);
    return lower_result(lower, emit_gather(lower, data, at, axis));
}

/* Slices of `data` along `axis`, n of them; without attribute axis, elements. */
struct unique {
    int data, axis;
    int64_t n;
    int order, first; /* the slices in ascending order, (n) i64; in that order, whether each is the first of its kind */
};

static int any_along(struct lower *lower, int flags, int axis) {
    const int any = emit_reduce_along(lower, OP_ReduceMax, emit_cast(lower, flags, RT_I32), axis, false);
    return emit_with(lower, OP_Greater, any, 0);
}

/* Scatters `values` (n) to the positions `at` (n), which are all different. */
static int permuted(struct lower *lower, int at, int values) {
    return emit_along(lower, OP_ScatterElements, 3, (int[]){values, at, values}, 0);
}

static int sort_elements(struct lower *lower, struct unique *unique) {
    int64_t n = unique->n;
    int keys = emit_ordered(lower, unique->data);
    unique->order = emit_top(lower, keys, 0, n, false);
    int sorted = emit_gather(lower, keys, unique->order, 0);
    int places = emit_places(lower, 0, n, 1, 0), starts = emit_with(lower, OP_Equal, places, 0);
    int previous = emit_with(lower, OP_Max, emit_with(lower, OP_Add, places, -1), 0);
    int before = emit_gather(lower, sorted, previous, 0);
    unique->first = emit2(lower, OP_Or, starts, emit1(lower, OP_Not, emit2(lower, OP_Equal, sorted, before)));
    return unique->first < 0 ? -1 : 0;
}

/* Compares all pairs of slices: i is before j if it is less at the first element in which they differ. */
static int sort_slices(struct lower *lower, struct unique *unique) {
    struct tensor x = lower_tensor(lower, unique->data);
    int64_t n = unique->n, m = tensor_elements(&x) / n, perm[RT_MAX_NDIM];
    if (m < 1 || n > MOST_COMPARED / n / m) return lower_unsupported(lower, "an axis of more than 2^26 comparisons");
    for (int d = 0; d < x.ndim; d++) perm[d] = d == 0 ? unique->axis : d <= unique->axis ? d - 1 : d;
    int rows = emit_transpose(lower, emit_ordered(lower, unique->data), perm);
    int a = emit_expand(lower, emit_reshape(lower, rows, 3, (int64_t[]){n, 1, m}), 3, (int64_t[]){n, n, m}),
        b = emit_expand(lower, emit_reshape(lower, rows, 3, (int64_t[]){1, n, m}), 3, (int64_t[]){n, n, m});
    int differ = emit1(lower, OP_Not, emit2(lower, OP_Equal, a, b)), less = emit2(lower, OP_Less, a, b);
    int at = emit_arg_max(lower, emit_cast(lower, differ, RT_I32), 2, true);
    int before = emit_squeeze(lower, emit_gather_elements(lower, less, at, 2), 2); /* [i, j]: i is before j */
    int same = emit1(lower, OP_Not, any_along(lower, differ, 2));
    int earlier = emit2(lower, OP_Less, emit_places(lower, 0, n, 2, 0), emit_places(lower, 0, n, 2, 1));
    same = emit2(lower, OP_And, same, earlier);
    int precedes = emit_cast(lower, emit2(lower, OP_Or, before, same), RT_I64);
    int place = emit_reduce_along(lower, OP_ReduceSum, precedes, 0, false);
    unique->order = permuted(lower, place, emit_places(lower, 0, n, 1, 0));
    unique->first = emit_gather(lower, emit1(lower, OP_Not, any_along(lower, same, 0)), unique->order, 0);
    return unique->first < 0 ? -1 : 0;
}

/* The number of true elements of flags (n) before each, and itself, less 1. */
static int rank_of(struct lower *lower, int flags) {
    const int sums = emit_cumulated(lower, OP_CumSum, emit_cast(lower, flags, RT_I64), 0, false, false);
    return emit_with(lower, OP_Add, sums, -1);
}

/* How many of the slices have each number; `number` is (n), in any order. */
static int tally(struct lower *lower, int number, int64_t n) {
    int zeros = emit_expand(lower, build_scalar(&lower->builder, RT_F64, 0), 1, &n),
        ones = emit_expand(lower, build_scalar(&lower->builder, RT_F64, 1), 1, &n);
    return emit_cast(lower, emit_along(lower, OP_ScatterElementsAdd, 3, (int[]){zeros, number, ones}, 0), RT_I64);
}

/* Sets the outputs: unique slices, the index of the first of each, the number of each slice, the size of each kind. */
static int unique_outputs(struct lower *lower, const struct unique *unique) {
    int count = count_of(lower, unique->first), number = rank_of(lower, unique->first);
    int starts = positions_of(lower, unique->first, count), index = emit_gather(lower, unique->order, starts, 0);
    if (!lower_int(lower, "sorted")) {
        int first = permuted(lower, unique->order, unique->first), rank = rank_of(lower, first);
        number = emit_gather(lower, rank, emit_gather(lower, index, number, 0), 0);
        index = positions_of(lower, first, count);
    }
    int outputs[] = {emit_gather(lower, unique->data, index, unique->axis), index,
                     permuted(lower, unique->order, number), tally(lower, number, unique->n)};
    for (int i = 0; i < 4; i++) {
        if (i != 2) outputs[i] = with_count(lower, outputs[i], i ? 0 : unique->axis, count, false);
        if (outputs[i] < 0) return -1;
        if (i < lower->noutputs) lower->outputs[i] = outputs[i];
    }
    return 0;
}

static int unique_of_none(struct lower *lower, int data) {
    const int64_t none = 0;
    for (int i = 1; i < lower->noutputs; i++) lower->outputs[i] = emit_ints(lower, 0, NULL, 1, &none);
    return lower_result(lower, data);
}

/* ONNX Unique-11 */
int lower_unique(struct lower *lower) {
    struct unique unique = {.data = lower->inputs[0]};
    struct tensor x = lower_input(lower, 0);
    if (lower_given(lower, "axis") && lower_axis(lower, lower_int(lower, "axis"), x.ndim, &unique.axis) < 0) return -1;
    if (!lower_given(lower, "axis")) unique.data = flat(lower, unique.data);
    if (unique.data < 0) return -1;
    unique.n = lower_tensor(lower, unique.data).dims[unique.axis];
    if (!unique.n) return unique_of_none(lower, unique.data);
    if (!tensor_elements(&x)) return lower_unsupported(lower, "slices without elements");
    bool elements = lower_ndim(lower, unique.data) == 1;
    if ((elements ? sort_elements : sort_slices)(lower, &unique) < 0) return -1;
    return unique_outputs(lower, &unique);
}

/* Boxes of n images, b each, with scores of c classes; at most `most` are selected of every class. */
struct suppression {
    int64_t n, c, b, most;
    int boxes, scores, eligible; /* eligible: bool (n, c, b), -1: all are */
    int limit;                   /* the number to select, i64, where it is not known; else -1 */
};

static int scalar_input(struct lower *lower, int input, enum rt_dtype dtype) {
    if (lower_has(lower, input)) return emit_cast(lower, emit_reshape(lower, lower->inputs[input], 0, NULL), dtype);
    return build_scalar(&lower->builder, dtype, 0);
}

/* A box must have a valid index and a score above the threshold, if there is one. */
static int find_eligible(struct lower *lower, struct suppression *nms) {
    const struct counted *counted = lower_counted(lower, nms->scores);
    if (counted && counted->dim != 2)
        return lower_unsupported(lower, "scores whose size along dimension %d depends on data", counted->dim);
    const int valid = counted ? lower_valid(lower, counted, nms->b, 3, 2) : -1;
    nms->scores = lower_masked(lower, nms->scores, emit_like(lower, nms->scores, 0));
    nms->boxes = lower_masked(lower, nms->boxes, emit_like(lower, nms->boxes, 0));
    if (lower_has(lower, 4))
        nms->eligible = emit2(lower, OP_Greater, nms->scores, scalar_input(lower, 4, lower_dtype(lower, nms->scores)));
    if (counted)
        nms->eligible = nms->eligible < 0 ? emit_expand(lower, valid, 3, (int64_t[]){nms->n, nms->c, nms->b})
                                          : emit2(lower, OP_And, nms->eligible, valid);
    return nms->scores < 0 || nms->boxes < 0 ? -1 : 0;
}

/* The selected boxes of every class first, in falling order of score: *chosen (n, c, most), *flags: which there are. */
static int select_boxes(struct lower *lower, const struct suppression *nms, int *chosen, int *flags) {
    const struct attr center = attr_of_int("center", lower_int(lower, "center_point_box") != 0);
    const int order = emit_top(lower, emit_ordered(lower, nms->scores), 2, nms->b, true);
    int candidates = order;
    if (nms->eligible >= 0)
        candidates = emit3(lower, OP_Where, emit_gather_elements(lower, nms->eligible, order, 2), order,
                           emit_like(lower, order, -1));
    const int overlap = scalar_input(lower, 3, lower_dtype(lower, nms->boxes));
    const int keep = emit(lower, OP_Suppress, 3, (int[]){nms->boxes, candidates, overlap}, 1, &center);
    const int first = emit_top(lower, emit_cast(lower, keep, RT_I32), 2, nms->most, true);
    *chosen = emit_gather_elements(lower, order, first, 2);
    *flags = emit_gather_elements(lower, keep, first, 2);
    if (nms->limit >= 0)
        *flags =
            emit2(lower, OP_And, *flags, emit2(lower, OP_Less, emit_places(lower, 0, nms->most, 1, 0), nms->limit));
    return *chosen < 0 || *flags < 0 ? -1 : 0;
}

/* Rows of image, class and box, at positions (n) of the (n, c, most) selected boxes. */
static int rows_of_boxes(struct lower *lower, const struct suppression *nms, int positions, int chosen) {
    const int class = emit_with(lower, OP_Div, positions, (double)nms->most);
    const int columns[] = {emit_unsqueeze(lower, emit_with(lower, OP_Div, class, (double)nms->c), 1),
                           emit_unsqueeze(lower, emit_with(lower, OP_Mod, class, (double)nms->c), 1),
                           emit_unsqueeze(lower, emit_gather(lower, flat(lower, chosen), positions, 0), 1)};
    return emit_concat(lower, 1, 3, columns);
}

/* ONNX NonMaxSuppression-11 */
int lower_non_max_suppression(struct lower *lower) {
    const struct tensor boxes = lower_input(lower, 0), scores = lower_input(lower, 1);
    struct suppression nms = {.boxes = lower->inputs[0], .scores = lower->inputs[1], .eligible = -1, .limit = -1};
    int known = 1, chosen, flags;
    const int64_t none = 0, *limit = lower_has(lower, 2)
                                         ? build_known_ints(lower->builder.graph, lower->inputs[2], &known)
                                         : &none;
    if (boxes.ndim != 3 || scores.ndim != 3 || boxes.dims[2] != 4 || boxes.dims[0] != scores.dims[0] ||
        boxes.dims[1] != scores.dims[2] || known != 1)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    nms.n = scores.dims[0];
    nms.c = scores.dims[1];
    nms.b = scores.dims[2];
    nms.most = limit ? open_lesser(lower_open(lower), *limit, nms.b) : nms.b;
    if (open_most(lower_open(lower), nms.most) < 1 || !tensor_elements(&scores))
        return lower_result(lower, emit_ints(lower, 0, &none, 2, (int64_t[]){0, 3}));
    if (!limit) nms.limit = scalar_input(lower, 2, RT_I64);
    if (find_eligible(lower, &nms) < 0 || select_boxes(lower, &nms, &chosen, &flags) < 0) return -1;
    flags = flat(lower, flags);
    const int count = count_of(lower, flags);
    const int rows = rows_of_boxes(lower, &nms, positions_of(lower, flags, count), chosen);
    return lower_result(lower, with_count(lower, rows, 0, count, false));
}
