/* Operators that gather and scatter elements by indices. */
#include "frontend/lower/lower_counted.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/number/checked.h"

/* E382 if indices known at compile time are outside of [-extent, extent). Sets *values and *n if they are known. */
static int check_indices(struct lower *lower, int index, int64_t extent, const int64_t **values, int *n) {
    struct tensor tensor = lower_tensor(lower, index);
    *values = tensor_elements(&tensor) < INT_MAX ? build_known_ints(lower->builder.graph, index, n) : NULL;
    for (int i = 0; *values && i < *n; i++)
        if ((*values)[i] < -extent || (*values)[i] >= extent)
            return lower_error(lower, 382, "index %lld is out of range for extent %lld", (long long)(*values)[i],
                               (long long)extent);
    return 0;
}

/* Index operands are i64 or i32. */
static int index_type(struct lower *lower, int index) {
    if (index < 0) return -1;
    enum rt_dtype dtype = lower_dtype(lower, index);
    if (rt_dtype_is_float(dtype) || dtype == RT_BOOL)
        return lower_error(lower, 379, "indices must have an integer type, not %s", rt_dtypes[dtype].name);
    return dtype == RT_I32 ? index : emit_cast(lower, index, RT_I64);
}

/* PyTorch's padding_idx of an embedding of so many rows, which its default exporter leaves in the text of the call that
 * the node is of: "..aten.embedding.default](args = (%p_embed_weight, %input_ids, 3), ..". -1: there is none. */
static int64_t padding_of(const struct lower *lower, int64_t rows) {
    static const char call[] = "aten.embedding.default](args = (";
    const Onnx__NodeProto *node = lower->node;
    const char *at =
        strstr(onnx_property(node->metadata_props, node->n_metadata_props, "pkg.torch.onnx.fx_node"), call);
    if (at) at = strchr(at + strlen(call), ',');
    if (at) at = strchr(at + 1, ',');
    char *end;
    const long long row = at ? strtoll(at + 1, &end, 10) : -1;
    return row >= 0 && row < rows && (*end == ',' || *end == ')') && end > at + 2 ? row : -1;
}

/* Gathers rows; of a table that has a row of padding, with attribute `padding`. */
static int gather_rows(struct lower *lower, int x, int index, int axis) {
    struct graph *graph = lower->builder.graph;
    const int64_t row = graph->train && axis == 0 ? padding_of(lower, graph->tensors.at[x].dims[0]) : -1;
    const int rows = emit_gather(lower, x, index, axis), node = rows < 0 ? -1 : graph->tensors.at[rows].producer;
    if (row >= 0 && node >= 0) attr_set(graph, &graph->nodes.at[node], attr_of_int("padding", row));
    return rows;
}

/* True if the indices select all of that many, in order. */
static bool selects_all(const int64_t *values, int n, int64_t extent) {
    int i = 0;
    while (i < n && values[i] == i) i++;
    return i == n && n == extent;
}

/* A single known index becomes a slice, so that the parts of a fused query-key-value product are recognised; all, in
 * order, become a reshape. */
int lower_gather(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    const int64_t *values;
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (check_indices(lower, lower->inputs[1], x.dims[axis], &values, &n) < 0) return -1;
    const struct amount extent = lower_extent(lower, lower->inputs[0], axis);
    const bool all = values && selects_all(values, n, x.dims[axis]);
    if (!values || (n != 1 && !all) || extent.n) {
        const int at = index_type(lower, lower->inputs[1]);
        return lower_result(lower, gather_rows(lower, lower->inputs[0],
                                               lower_from_begin(lower, lower_masked_index(lower, at), &extent), axis));
    }
    int piece = lower->inputs[0];
    if (!all) piece = emit_piece(lower, piece, axis, values[0] < 0 ? values[0] + x.dims[axis] : values[0], 1, 1);
    int64_t shape[2 * RT_MAX_NDIM];
    int ndim = 0;
    for (int d = 0; d < axis; d++) shape[ndim++] = x.dims[d];
    for (int d = 0; d < index.ndim; d++) shape[ndim++] = index.dims[d];
    for (int d = axis + 1; d < x.ndim; d++) shape[ndim++] = x.dims[d];
    return lower_result(lower, emit_reshape(lower, piece, ndim, shape));
}

/* True if no extent of `index` exceeds that of x, except along `axis` (GatherElements, ScatterElements). Open ones that
 * are equal at typical sizes are taken to be equal. */
static bool fits_elements(const struct lower *lower, const struct tensor *x, const struct tensor *index, int axis) {
    struct open_sizes *open = lower->builder.graph->open;
    bool fits = index->ndim == x->ndim;
    for (int d = 0; fits && d < x->ndim; d++) {
        if (d == axis || open_at_most(open, index->dims[d], x->dims[d])) continue;
        fits = open_typical(open, index->dims[d]) == open_typical(open, x->dims[d]) &&
               lower_meet(lower, index->dims[d], x->dims[d]);
    }
    return fits;
}

int lower_gather_elements(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    const int64_t *values;
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (!fits_elements(lower, &x, &index, axis)) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (check_indices(lower, lower->inputs[1], x.dims[axis], &values, &n) < 0) return -1;
    const struct amount extent = lower_extent(lower, lower->inputs[0], axis);
    const int at = lower_from_begin(lower, index_type(lower, lower_masked_index(lower, lower->inputs[1])), &extent);
    return lower_result(lower, emit_gather_elements(lower, lower->inputs[0], at, axis));
}

/* The values of attribute reduction, and their core operators. */
static const struct scatter {
    const char *reduction;
    enum op_id elements, nd;
    bool compares;
} scatters[] = {{"none", OP_ScatterElements, OP_ScatterND, false},
                {"add", OP_ScatterElementsAdd, OP_ScatterNDAdd, false},
                {"mul", OP_ScatterElementsMul, OP_ScatterNDMul, false},
                {"max", OP_ScatterElementsMax, OP_ScatterNDMax, true},
                {"min", OP_ScatterElementsMin, OP_ScatterNDMin, true}};

/* The row for the node's reduction; NULL after a diagnostic. */
static const struct scatter *scatter_of(struct lower *lower) {
    const char *reduction = lower_text(lower, "reduction");
    for (size_t i = 0; i < sizeof scatters / sizeof *scatters; i++)
        if (strcmp(scatters[i].reduction, reduction) == 0) return &scatters[i];
    lower_unknown(lower, "reduction", reduction);
    return NULL;
}

/* The scatter `op` of the updates, input 2, onto `data`, which a reduction computes in a type of kernels. */
static int emit_scatter(struct lower *lower, const struct scatter *scatter, enum op_id op, int data, int index,
                        struct attr attr) {
    const enum rt_dtype dtype = lower_dtype(lower, lower->inputs[0]);
    const bool folds = op != OP_ScatterElements && op != OP_ScatterND;
    int operands[] = {data, index, lower->inputs[2]};
    for (int i = 0; i < 3 && folds; i += 2)
        operands[i] = scatter->compares ? emit_ordered(lower, operands[i]) : emit_wrapping(lower, operands[i]);
    const int y = emit(lower, op, 3, operands, 1, &attr);
    if (!folds) return y;
    return scatter->compares ? emit_from_ordered(lower, y, dtype) : emit_narrowed(lower, y, dtype);
}

/* Note [Counted scatter]
 * Updates at indices that are not valid are scattered to an index behind dimension `axis` of the data: the data gets
 * one more, which is cut off afterwards. `at`: the indices, counted. */
static int scatter_counted(struct lower *lower, const struct scatter *scatter, enum op_id op, int axis, int at,
                           int outside, struct attr attr) {
    struct tensor x = lower_input(lower, 0);
    const struct amount size = lower_extent(lower, lower->inputs[0], axis);
    const struct counted *index = lower_counted(lower, at), *updates = lower_counted(lower, lower->inputs[2]);
    const struct counted *known = lower_counted(lower, lower->inputs[0]);
    if ((known && known->dim != axis) || !index || !updates || index->dim != updates->dim)
        return lower_error(lower, 410, "indices and updates do not have the same size, which depends on data");
    const int data = emit_padded(lower, lower_all_valid(lower, lower->inputs[0]), axis, 0, 1, 0);
    int y = emit_scatter(lower, scatter, op, data, lower_masked(lower, at, outside), attr);
    lower_set_counted(lower, y, NULL);
    return y < 0 ? -1 : lower_sized(lower, emit_piece(lower, y, axis, 0, 1, x.dims[axis]), axis, &size);
}

static bool scatters_counted(struct lower *lower) {
    return lower_counted(lower, lower->inputs[1]) || lower_counted(lower, lower->inputs[2]);
}

int lower_scatter_elements(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1), updates = lower_input(lower, 2);
    const int64_t *values;
    int axis, n;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (lower_fit(lower, 2, lower->inputs + 1, -1) < 0) return -1;
    index = lower_input(lower, 1), updates = lower_input(lower, 2);
    bool same = updates.ndim == index.ndim;
    for (int d = 0; same && d < index.ndim; d++) same = lower_meet(lower, updates.dims[d], index.dims[d]);
    if (!same) return lower_misfit(lower, lower->inputs[1], lower->inputs[2]);
    if (!fits_elements(lower, &x, &index, axis)) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    const struct scatter *scatter = scatter_of(lower);
    if (!scatter) return -1;
    if (check_indices(lower, lower->inputs[1], x.dims[axis], &values, &n) < 0) return -1;
    const struct amount extent = lower_extent(lower, lower->inputs[0], axis);
    const struct attr attr = attr_of_int("axis", axis);
    const struct counted *known = lower_counted(lower, lower->inputs[0]);
    const bool masks = scatters_counted(lower) && (!known || known->dim == axis);
    int at = index_type(lower, lower->inputs[1]);
    at = lower_from_begin(lower, masks ? at : lower_masked_index(lower, at), &extent);
    if (at < 0) return -1;
    if (masks) {
        const int outside = emit_cast(lower, emit_ints(lower, 1, &x.dims[axis], 0, NULL), lower_dtype(lower, at));
        return lower_result(lower, scatter_counted(lower, scatter, scatter->elements, axis, at, outside, attr));
    }
    return lower_result(lower, emit_scatter(lower, scatter, scatter->elements, lower->inputs[0], at, attr));
}

/* Checks indices of GatherND and ScatterND that are numbers at compile time: each row of `depth` selects in dimensions
 * from `first`. */
static int check_rows(struct lower *lower, const struct tensor *x, int first, int64_t depth) {
    int n;
    struct tensor index = lower_input(lower, 1);
    const int64_t *values =
        tensor_elements(&index) < INT_MAX ? build_known_ints(lower->builder.graph, lower->inputs[1], &n) : NULL;
    for (int i = 0; values && i < n; i++) {
        int64_t extent = x->dims[first + i % depth];
        if (open_is(lower->builder.graph->open, values[i])) continue; /* checked by each step */
        if (values[i] < -extent || values[i] >= extent)
            return lower_error(lower, 382, "index %lld is out of range for extent %lld", (long long)values[i],
                               (long long)extent);
    }
    return 0;
}

/* The rows of indices of GatherND or ScatterND as i64. Those that count from the end of a dimension whose size depends
 * on data become those from its begin. */
static int rows_of_counted(struct lower *lower, int index, int first, int64_t depth) {
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    const int at = emit_cast(lower, index, RT_I64);
    if (at < 0 || !counted || counted->dim < first || counted->dim >= first + depth) return at;
    const int64_t column = counted->dim - first;
    int64_t *places = ARENA_ARRAY(lower->arena, int64_t, depth);
    places[column] = 1;
    const int extent = emit2(lower, OP_Mul, emit_ints(lower, (int)depth, places, 1, &depth), counted->count);
    return emit3(lower, OP_Where, emit_with(lower, OP_Less, at, 0), emit2(lower, OP_Add, at, extent), at);
}

/* True if every step-th of the values is the index along dimension d of an element of this shape. */
static bool counts(const int64_t *values, int64_t step, int ndim, const int64_t *dims, int d) {
    int64_t inner = 1, n = 1;
    for (int i = 0; i < ndim; i++) n *= dims[i], inner *= i > d ? dims[i] : 1;
    for (int64_t i = 0; i < n; i++)
        if (values[i * step] != i / inner % dims[d]) return false;
    return true;
}

static bool is_all(struct lower *lower, int tensor, int64_t number) {
    int n;
    const struct node *node;
    while ((node = made_by(lower->builder.graph, tensor, OP_Expand)) ||
           (node = made_by(lower->builder.graph, tensor, OP_Reshape)))
        tensor = node->inputs[0];
    const int64_t *values = build_known_ints(lower->builder.graph, tensor, &n);
    for (int i = 0; values && i < n; i++)
        if (values[i] != number) return false;
    return values;
}

/* The dimension in which that of the producer's operand lies in the tensor, as both have the same elements before it;
 * -1: it was divided or merged. */
static int moved(const struct tensor *from, int d, const struct tensor *to) {
    int64_t before = 1, reached = 1;
    for (int i = 0; i < d; i++) before *= from->dims[i];
    for (int i = 0; i < to->ndim; reached *= to->dims[i++])
        if (reached == before && to->dims[i] == from->dims[d]) return i;
    return -1;
}

/* The dimension along which the elements are 0, 1, ..; -1: none. */
static int counted_dim(struct lower *lower, int tensor) {
    struct graph *graph = lower->builder.graph;
    const struct tensor *t = &graph->tensors.at[tensor];
    const struct node *node = graph_producer(graph, tensor);
    int n, d = -1;
    if (node && node->op->id == OP_CumSum)
        return attr_int(node, "exclusive", 0) && !attr_int(node, "reverse", 0) && is_all(lower, node->inputs[0], 1)
                   ? (int)attr_int(node, "axis", 0)
                   : -1;
    if (node && (node->op->id == OP_Reshape || node->op->id == OP_Expand)) {
        const struct tensor *from = &graph->tensors.at[node->inputs[0]];
        d = counted_dim(lower, node->inputs[0]);
        if (d < 0 || node->op->id == OP_Reshape) return d < 0 ? -1 : moved(from, d, t);
        return from->dims[d] == t->dims[d + t->ndim - from->ndim] ? d + t->ndim - from->ndim : -1;
    }
    const int64_t *values = build_known_ints(graph, tensor, &n);
    for (d = values ? t->ndim - 1 : -1; d >= 0 && !(t->dims[d] > 1 && counts(values, 1, t->ndim, t->dims, d));) d--;
    return d;
}

/* The same of column j of an index: the dimension of the result along which it is 0, 1, .. */
static int dim_of_column(struct lower *lower, int index, int j) {
    struct graph *graph = lower->builder.graph;
    const struct tensor *t = &graph->tensors.at[index];
    const struct node *concat = made_by(graph, index, OP_Concat);
    const int last = t->ndim - 1;
    int n;
    if (concat && attr_int(concat, "axis", 0) == last && concat->ninputs == t->dims[last])
        return counted_dim(lower, concat->inputs[j]);
    const int64_t *values = build_known_ints(graph, index, &n);
    int d = values ? last - 1 : -1;
    while (d >= 0 && !(t->dims[d] > 1 && counts(values + j, t->dims[last], last, t->dims, d))) d--;
    return d;
}

/* The result of a GatherND whose indices select each element of x once, in order, or rows of such results: x in another
 * shape. Where a mask is a function of two positions, exporters write mask[i, j] for i = 0, 1, .. of its rows and
 * j = 0, 1, .. of its columns. -1: the indices are not known to do so. */
static int gathered_whole(struct lower *lower, int x, int index) {
    const struct tensor from = lower_tensor(lower, x), at = lower_tensor(lower, index);
    int64_t shape[RT_MAX_NDIM];
    if (at.dims[at.ndim - 1] != from.ndim) return -1;
    for (int d = 0; d < at.ndim - 1; d++) shape[d] = 1;
    for (int j = 0, before = -1; j < from.ndim; j++) {
        if (from.dims[j] == 1) continue; /* every valid index is that of its only element */
        const int d = dim_of_column(lower, index, j);
        if (d <= before || at.dims[d] != from.dims[j]) return -1;
        shape[d] = from.dims[j], before = d;
    }
    return emit_expand(lower, emit_reshape(lower, x, at.ndim - 1, shape), at.ndim - 1, at.dims);
}

int lower_gather_nd(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    int64_t batch = lower_int(lower, "batch_dims");
    bool fits = index.ndim > 0 && batch >= 0 && batch < index.ndim && batch < x.ndim;
    int64_t depth = fits ? index.dims[index.ndim - 1] : 0;
    fits = fits && depth > 0 && depth <= x.ndim - batch;
    for (int d = 0; fits && d < batch; d++) fits = lower_meet(lower, x.dims[d], index.dims[d]);
    if (!fits) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (check_rows(lower, &x, (int)batch, depth) < 0) return -1;
    struct attr attrs[] = {attr_of_int("batch_dims", batch), attr_of_int("depth", depth)};
    int at = rows_of_counted(lower, lower_masked_index(lower, lower->inputs[1]), (int)batch, depth);
    if (at >= 0 && batch == 0 && depth == 1) { /* whole slices: Gather, which ranks can divide along the dimension */
        at = emit_reshape(lower, at, index.ndim - 1, lower_tensor(lower, at).dims);
        return lower_result(lower, emit_gather(lower, lower->inputs[0], at, 0));
    }
    const int whole = at < 0 || batch ? -1 : gathered_whole(lower, lower->inputs[0], at);
    if (whole >= 0) return lower_result(lower, whole);
    return lower_result(lower, emit(lower, OP_GatherND, 2, (int[]){lower->inputs[0], at}, 2, attrs));
}

int lower_scatter_nd(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1), updates = lower_input(lower, 2);
    int64_t depth = index.ndim ? index.dims[index.ndim - 1] : 0;
    for (int d = 0; d < index.ndim - 1 && d < updates.ndim; d++)
        if (lower_fit_along(lower, 2, lower->inputs + 1, (int[]){d, d}) < 0) return -1;
    index = lower_input(lower, 1), updates = lower_input(lower, 2);
    bool fits = depth > 0 && depth <= x.ndim && updates.ndim == index.ndim - 1 + x.ndim - (int)depth;
    for (int d = 0; fits && d < updates.ndim; d++)
        fits = lower_meet(lower, updates.dims[d],
                          d < index.ndim - 1 ? index.dims[d] : x.dims[d - (index.ndim - 1) + depth]);
    if (!fits) return lower_misfit(lower, lower->inputs[1], lower->inputs[2]);
    const struct scatter *scatter = scatter_of(lower);
    if (!scatter) return -1;
    if (check_rows(lower, &x, 0, depth) < 0) return -1;
    const struct attr attr = attr_of_int("depth", depth);
    const int at = rows_of_counted(lower, lower->inputs[1], 0, depth);
    if (at < 0) return -1;
    if (scatters_counted(lower)) {
        int64_t *outside = ARENA_ARRAY(lower->arena, int64_t, depth);
        outside[0] = x.dims[0];
        const int place = emit_ints(lower, (int)depth, outside, 1, &depth);
        return lower_result(lower, scatter_counted(lower, scatter, scatter->nd, 0, at, place, attr));
    }
    return lower_result(lower, emit_scatter(lower, scatter, scatter->nd, lower->inputs[0], at, attr));
}

/* Input `input`, a number per index of dimension `axis` of extent n, in a shape that broadcasts to `ndim`
 * dimensions. */
static int emit_numbers(struct lower *lower, int input, int ndim, int axis, int64_t n) {
    struct tensor numbers = lower_input(lower, input);
    int64_t shape[RT_MAX_NDIM];
    if (numbers.ndim != 1 || numbers.dims[0] != n) return lower_misfit(lower, lower->inputs[0], lower->inputs[input]);
    for (int d = 0; d < ndim; d++) shape[d] = d == axis ? n : 1;
    return emit_cast(lower, emit_reshape(lower, lower->inputs[input], ndim, shape), RT_I64);
}

/* ONNX ReverseSequence-10: of each sequence the first sequence_lens steps, in reverse order; the others stay. */
int lower_reverse_sequence(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int time, batch;
    if (lower_axis(lower, lower_int(lower, "time_axis"), x.ndim, &time) < 0 ||
        lower_axis(lower, lower_int(lower, "batch_axis"), x.ndim, &batch) < 0)
        return -1;
    if (time == batch) return lower_error(lower, 384, "time_axis is batch_axis");
    int at = emit_places(lower, 0, x.dims[time], x.ndim, time);
    int length = emit_numbers(lower, 1, x.ndim, batch, x.dims[batch]);
    int turned = emit2(lower, OP_Sub, emit_with(lower, OP_Sub, length, 1), at);
    int from = emit3(lower, OP_Where, emit2(lower, OP_Less, at, length), turned, at);
    from = emit_expand(lower, emit_cast(lower, from, RT_I32), x.ndim, x.dims);
    return lower_result(lower, emit_gather_elements(lower, lower->inputs[0], from, time));
}

/* ONNX TensorScatter-24: the update replaces steps of the cache from write_indices of the batch on, or from 0; in mode
 * "circular" step S is step 0 again. */
int lower_tensor_scatter(struct lower *lower) {
    struct tensor cache = lower_input(lower, 0), update = lower_input(lower, 1);
    const char *mode = lower_text(lower, "mode");
    const bool circular = strcmp(mode, "circular") == 0;
    int axis;
    if (!circular && strcmp(mode, "linear") != 0)
        return lower_error(lower, 335, "mode is neither 'linear' nor 'circular'");
    if (lower_axis(lower, lower_int(lower, "axis"), cache.ndim, &axis) < 0) return -1;
    bool fits = axis > 0 && update.ndim == cache.ndim;
    for (int d = 0; fits && d < cache.ndim; d++)
        fits = d == axis ? open_at_most(lower_open(lower), update.dims[d], cache.dims[d])
                         : open_meet(lower_open(lower), update.dims[d], cache.dims[d]);
    if (!fits) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    int at = emit_places(lower, 0, update.dims[axis], cache.ndim, axis);
    if (lower_has(lower, 2)) at = emit2(lower, OP_Add, at, emit_numbers(lower, 2, cache.ndim, 0, cache.dims[0]));
    if (circular && cache.dims[axis]) at = emit_with(lower, OP_Mod, at, (double)cache.dims[axis]);
    at = emit_expand(lower, emit_cast(lower, at, RT_I32), update.ndim, update.dims);
    const int inputs[] = {lower->inputs[0], at, lower->inputs[1]};
    return lower_result(lower, emit_along(lower, OP_ScatterElements, 3, inputs, axis));
}

enum { MOST_CLASSES = 1 << 24 }; /* of OneHot, whose class numbers are a constant tensor */

/* ONNX OneHot-11: on_value where the index equals the position along the new dimension, else off_value; an index
 * outside of [-depth, depth) selects nothing. */
int lower_one_hot(struct lower *lower) {
    int index = lower->inputs[0], ndim = lower_ndim(lower, index), axis;
    double depth;
    if (lower_known_float(lower, 1, "depth", &depth) < 0) return -1;
    if (!(depth > 0)) return lower_error(lower, 384, "depth is %g, but must be greater than 0", depth);
    if (depth > MOST_CLASSES)
        return lower_error(lower, 505, "depth is %g, but at most %d are supported", depth, MOST_CLASSES);
    if (lower_axis(lower, lower_int(lower, "axis"), ndim + 1, &axis) < 0) return -1;
    struct tensor values = lower_input(lower, 2);
    if (values.ndim != 1 || values.dims[0] != 2) return lower_error(lower, 384, "values must have two elements");
    const int64_t n = (int64_t)depth;
    if (ndim == RT_MAX_NDIM) return lower_error(lower, 506, "more than %d dimensions", RT_MAX_NDIM);
    index = emit_unsqueeze(lower, emit_cast(lower, index, RT_I64), axis);
    index =
        emit3(lower, OP_Where, emit_with(lower, OP_Less, index, 0), emit_with(lower, OP_Add, index, (double)n), index);
    int hot = emit2(lower, OP_Equal, index, emit_places(lower, 0, n, ndim + 1, axis));
    int off = emit_squeeze(lower, emit_piece(lower, lower->inputs[2], 0, 0, 1, 1), 0);
    int on = emit_squeeze(lower, emit_piece(lower, lower->inputs[2], 0, 1, 1, 1), 0);
    return lower_result(lower, emit3(lower, OP_Where, hot, on, off));
}
