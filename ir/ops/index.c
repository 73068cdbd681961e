/* Operators that take indices as an operand: Gather, Scatter and their variants. */
#include "ir/ops/ops.h"

#include <string.h>

/* Checks the index tensor of GatherElements and ScatterElements: it has as many dimensions as the data, and except for
 * `axis` none is longer. */
static int check_elements(struct dims *dims, const struct graph *graph, const struct node *node, const char **why) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1);
    int64_t axis = attr_int(node, "axis", 0);
    if (axis < 0 || axis >= x->ndim)
        return refuse(dims, why, "axis %lld is out of range for %d dimension(s)", (long long)axis, x->ndim);
    if (index->ndim != x->ndim)
        return refuse(dims, why, "the indices have %d dimension(s), the data has %d", index->ndim, x->ndim);
    for (int d = 0; d < x->ndim; d++)
        if (d != axis && !open_at_most(graph->open, index->dims[d], x->dims[d]))
            return refuse(dims, why, "dimension %d has %lld indices for an extent of %lld", d,
                          (long long)index->dims[d], (long long)x->dims[d]);
    return 0;
}

static bool same_dims(const struct graph *graph, const int64_t *a, const int64_t *b, int n) {
    bool same = true;
    for (int d = 0; d < n; d++) same = open_meet(graph->open, a[d], b[d]) && same;
    return same;
}

/* Binds data and indices. They share the dimensions other than `axis` that have the same extent in both; these may be
 * split. */
static void bind_elements(struct dims *dims, const struct tensor *x, const struct tensor *index, int64_t axis) {
    struct operand *in = &dims->operand[0], *at = &dims->operand[1];
    in->ndim = at->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        bool shared = d != axis && x->dims[d] == index->dims[d];
        dims_set(in, d, dims_factor(dims, "d", d, x->dims[d], shared ? FACTOR_PASS : FACTOR_WHOLE));
        at->dim[d] = in->dim[d];
        if (!shared) dims_set(at, d, dims_factor(dims, "i", d, index->dims[d], FACTOR_WHOLE));
    }
}

DIMS_FN(dims_gather_elements) {
    if (check_elements(dims, graph, node, why) < 0) return -1;
    bind_elements(dims, input(graph, node, 0), input(graph, node, 1), attr_int(node, "axis", 0));
    dims->operand[2] = dims->operand[1];
    return 0;
}

DIMS_FN(dims_scatter_elements) {
    const struct tensor *index = input(graph, node, 1), *updates = input(graph, node, 2);
    if (dims_gather_elements(dims, graph, node, why) < 0) return -1;
    if (!tensor_same_shape(updates, index))
        return refuse(dims, why, "the updates do not have the shape of the indices");
    dims->operand[3] = dims->operand[0];
    return 0;
}

/* GatherND and ScatterND: data (b.., v.., q..), index (b.., i.., depth), and operand 2, (b.., i.., q..), the gathered
 * or scattered slices. All dimensions may be split except the indexed ones, v, and depth; i only in a gather, where the
 * picks are an output. */
DIMS_FN(dims_gather_nd) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1);
    int64_t batch = attr_int(node, "batch_dims", 0), depth = attr_int(node, "depth", 0);
    int rows = index->ndim - 1;
    if (batch < 0 || depth < 1 || batch > rows || depth > x->ndim - batch)
        return refuse(dims, why, "invalid %lld indices after %lld batch dimension(s)", (long long)depth,
                      (long long)batch);
    if (index->dims[rows] != depth || !same_dims(graph, index->dims, x->dims, (int)batch))
        return refuse(dims, why, "the indices fit neither depth nor data");
    if (rows + x->ndim - batch - depth > RT_MAX_NDIM)
        return refuse(dims, why, "the result has more than %d dimensions", RT_MAX_NDIM);
    struct operand *in = &dims->operand[0], *at = &dims->operand[1], *out = &dims->operand[2];
    enum factor_kind row = dims->ninputs > 2 ? FACTOR_WHOLE : FACTOR_PASS;
    for (int d = 0; d < x->ndim; d++) {
        bool indexed = d >= batch && d < batch + depth;
        dims_set(in, in->ndim++,
                 dims_factor(dims,
                             indexed     ? "v"
                             : d < batch ? "b"
                                         : "q",
                             d, x->dims[d], indexed ? FACTOR_WHOLE : FACTOR_PASS));
    }
    for (int d = 0; d < batch; d++) at->dim[at->ndim++] = in->dim[d];
    for (int d = (int)batch; d < rows; d++) dims_set(at, at->ndim++, dims_factor(dims, "i", d, index->dims[d], row));
    for (int d = 0; d < rows; d++) out->dim[out->ndim++] = at->dim[d];
    for (int d = (int)(batch + depth); d < x->ndim; d++) out->dim[out->ndim++] = in->dim[d];
    dims_set(at, at->ndim++, dims_factor(dims, "n", rows, depth, FACTOR_WHOLE));
    return 0;
}

DIMS_FN(dims_scatter_nd) {
    if (dims_gather_nd(dims, graph, node, why) < 0) return -1;
    if (!dims_fits(dims, 2, input(graph, node, 2)))
        return refuse(dims, why, "updates do not fit the indices and the data");
    dims->operand[3] = dims->operand[0];
    return 0;
}

void copy_elements(struct eval *eval, int64_t to, int from_input, int64_t from, int64_t count) {
    size_t size = rt_dtype_bytes(eval->out->dtype);
    if (count)
        memcpy(eval->y + (size_t)to * size, (const char *)eval->x[from_input] + (size_t)from * size,
               (size_t)count * size);
}

/* Element i of the index operand for a dimension of that extent, -1 if it is out of range. */
static int64_t index_at(const struct eval *eval, int64_t i, int64_t extent) {
    int64_t at = eval_load(eval->x[1], eval->in[1]->dtype, i).i;
    if (at < -extent || at >= extent) return -1;
    return at < 0 ? at + extent : at;
}

EVAL(eval_gather) {
    const struct tensor *x = eval->in[0];
    int64_t axis = attr_int(eval->node, "axis", 0), outer = 1, inner = 1, extent = x->dims[axis];
    int64_t count = tensor_elements(eval->in[1]);
    for (int d = 0; d < axis; d++) outer *= x->dims[d];
    for (int d = (int)axis + 1; d < x->ndim; d++) inner *= x->dims[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = index_at(eval, i, extent);
            if (at < 0) return -1;
            copy_elements(eval, (o * count + i) * inner, 0, (o * extent + at) * inner, inner);
        }
    return 0;
}

EVAL(eval_gather_elements) {
    const struct tensor *x = eval->in[0], *index = eval->in[1];
    int64_t axis = attr_int(eval->node, "axis", 0), at[RT_MAX_NDIM] = {0}, i = 0;
    if (!tensor_elements(index)) return 0;
    do {
        int64_t from[RT_MAX_NDIM];
        memcpy(from, at, sizeof from);
        if ((from[axis] = index_at(eval, i, x->dims[axis])) < 0) return -1;
        copy_elements(eval, i++, 0, eval_offset(from, x->dims, x->ndim), 1);
    } while (eval_next(at, index->dims, index->ndim));
    return 0;
}

typedef void put_fn(struct eval *eval, int64_t to, int from_input, int64_t from, int64_t count);

/* How an operator combines an element with an update, as an expression. */
static const struct {
    enum op_id op;
    const char *combine;
} folds[] = {{OP_ScatterElementsAdd, "a + b"},     {OP_ScatterElementsMul, "a * b"},
             {OP_ScatterElementsMax, "max(a, b)"}, {OP_ScatterElementsMin, "min(a, b)"},
             {OP_ScatterNDAdd, "a + b"},           {OP_ScatterNDMul, "a * b"},
             {OP_ScatterNDMax, "max(a, b)"},       {OP_ScatterNDMin, "min(a, b)"}};

static void fold_elements(struct eval *eval, int64_t to, int from_input, int64_t from, int64_t count) {
    int row = 0;
    while (folds[row].op != eval->node->op->id) row++;
    const struct expr *combine = expr_parse(eval->graph->arena, folds[row].combine);
    for (int64_t i = 0; i < count; i++) {
        struct pair pair = {eval_load(eval->y, eval->out->dtype, to + i),
                            eval_load(eval->x[from_input], eval->out->dtype, from + i)};
        eval_store(eval->y, eval->out->dtype, to + i, expr_eval(combine, pair_look_up, &pair));
    }
}

EVAL(eval_scatter_elements) {
    const struct tensor *x = eval->in[0], *index = eval->in[1];
    put_fn *put = eval->node->op->id == OP_ScatterElements ? copy_elements : fold_elements;
    int64_t axis = attr_int(eval->node, "axis", 0), at[RT_MAX_NDIM] = {0}, i = 0;
    copy_elements(eval, 0, 0, 0, tensor_elements(x));
    if (!tensor_elements(index)) return 0;
    do {
        int64_t to[RT_MAX_NDIM];
        memcpy(to, at, sizeof to);
        if ((to[axis] = index_at(eval, i, x->dims[axis])) < 0) return -1;
        put(eval, eval_offset(to, x->dims, x->ndim), 2, i++, 1);
    } while (eval_next(at, index->dims, index->ndim));
    return 0;
}

/* The sizes of a GatherND or ScatterND: each row of indices selects `inner` elements of the data by its index in
 * `depth` dimensions, which follow the `batch` dimensions that data and indices share. */
struct rows {
    int64_t batch, depth, count, picks, inner; /* picks: rows per index of the batch */
};

static struct rows rows_of(const struct eval *eval) {
    const struct tensor *x = eval->in[0], *index = eval->in[1];
    struct rows rows = {attr_int(eval->node, "batch_dims", 0), attr_int(eval->node, "depth", 1), 0, 1, 1};
    rows.count = tensor_elements(index) / rows.depth;
    for (int d = (int)rows.batch; d < index->ndim - 1; d++) rows.picks *= index->dims[d];
    for (int d = (int)(rows.batch + rows.depth); d < x->ndim; d++) rows.inner *= x->dims[d];
    return rows;
}

/* Offset in the data of the elements that the row selects; -1 if an index is out of range. */
static int64_t place_of_row(const struct eval *eval, const struct rows *rows, int64_t row) {
    int64_t place = row / rows->picks;
    for (int64_t d = 0; d < rows->depth; d++) {
        int64_t extent = eval->in[0]->dims[rows->batch + d], at = index_at(eval, row * rows->depth + d, extent);
        if (at < 0) return -1;
        place = place * extent + at;
    }
    return place * rows->inner;
}

EVAL(eval_gather_nd) {
    const struct rows rows = rows_of(eval);
    for (int64_t row = 0; row < rows.count; row++) {
        int64_t place = place_of_row(eval, &rows, row);
        if (place < 0) return -1;
        copy_elements(eval, row * rows.inner, 0, place, rows.inner);
    }
    return 0;
}

EVAL(eval_scatter_nd) {
    put_fn *put = eval->node->op->id == OP_ScatterND ? copy_elements : fold_elements;
    const struct rows rows = rows_of(eval);
    copy_elements(eval, 0, 0, 0, tensor_elements(eval->out));
    for (int64_t row = 0; row < rows.count; row++) {
        int64_t place = place_of_row(eval, &rows, row);
        if (place < 0) return -1;
        put(eval, place, 2, row * rows.inner, rows.inner);
    }
    return 0;
}

/* The gradient of Gather. dy (p.., i+.., q..), index (i+..) -> (p.., v, q..): ranks with a part of
 * the indices have partial sums; a rank with a part of the rows v adds the gradients of those rows alone. */
DIMS_FN(dims_gather_grad) {
    const struct tensor *dy = input(graph, node, 0), *index = input(graph, node, 1);
    int64_t axis = attr_int(node, "axis", 0), size = attr_int(node, "size", -1);
    struct operand *in = &dims->operand[0], *at = &dims->operand[1], *out = &dims->operand[2];
    if (axis < 0 || axis > dy->ndim - index->ndim || size < 0 ||
        !same_dims(graph, dy->dims + axis, index->dims, index->ndim) || dy->ndim - index->ndim + 1 > RT_MAX_NDIM)
        return refuse(dims, why, "indices %s do not fit dimension %lld of %s", tensor_type(dims->arena, index),
                      (long long)axis, tensor_type(dims->arena, dy));
    in->ndim = dy->ndim;
    at->ndim = index->ndim;
    for (int d = 0; d < dy->ndim; d++) {
        bool indexed = d >= axis && d < axis + index->ndim;
        dims_set(in, d,
                 dims_factor(dims,
                             indexed    ? "i"
                             : d < axis ? "p"
                                        : "q",
                             d, dy->dims[d], indexed ? FACTOR_SUM : FACTOR_PASS));
        if (indexed) at->dim[d - axis] = in->dim[d];
    }
    for (int d = 0; d < axis; d++) out->dim[out->ndim++] = in->dim[d];
    dims_set(out, out->ndim++, dims_factor(dims, "v", -1, size, FACTOR_PASS));
    for (int d = (int)axis + index->ndim; d < dy->ndim; d++) out->dim[out->ndim++] = in->dim[d];
    return 0;
}

SPLIT_ATTR(split_gather_grad) {
    attr_set(graph, node, attr_of_int("size", local[dims->ninputs][attr_int(node, "axis", 0)]));
}

EVAL(eval_gather_grad) {
    const struct tensor *dy = eval->in[0], *y = eval->out;
    int64_t axis = attr_int(eval->node, "axis", 0), extent = y->dims[axis], count = tensor_elements(eval->in[1]);
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < axis; d++) outer *= y->dims[d];
    for (int d = (int)axis + 1; d < y->ndim; d++) inner *= y->dims[d];
    memset(eval->y, 0, (size_t)tensor_bytes(y));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count; i++) {
            int64_t at = index_at(eval, i, extent);
            if (at < 0) return -1;
            for (int64_t q = 0; q < inner; q++) {
                int64_t to = (o * extent + at) * inner + q;
                struct number sum = eval_load(eval->y, y->dtype, to);
                sum.f += eval_load(eval->x[0], dy->dtype, (o * count + i) * inner + q).f;
                eval_store(eval->y, y->dtype, to, sum);
            }
        }
    return 0;
}
