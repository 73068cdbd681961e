/* Operators whose indices are data of their own. */
#include "ir/ops/ops.h"

#include <string.h>

static const struct tensor *input(const struct graph *graph, const struct node *node, int i) {
    return &graph->tensors.at[node->inputs[i]];
}

/* An index tensor of GatherElements and ScatterElements: as many dimensions as the data, none longer but `axis`. */
static int check_elements(struct dims *dims, const struct graph *graph, const struct node *node, const char **why) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1);
    int64_t axis = attr_int(node, "axis", 0);
    if (axis < 0 || axis >= x->ndim)
        return refuse(dims, why, "axis %lld of %d dimensions", (long long)axis, x->ndim);
    if (index->ndim != x->ndim)
        return refuse(dims, why, "indices of %d and data of %d dimensions", index->ndim, x->ndim);
    for (int d = 0; d < x->ndim; d++)
        if (d != axis && index->dims[d] > x->dims[d])
            return refuse(dims, why, "dimension %d has %lld indices for extent %lld", d, (long long)index->dims[d],
                          (long long)x->dims[d]);
    return 0;
}

static bool same_dims(const int64_t *a, const int64_t *b, int n) {
    return n <= 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

DIMS_FN(dims_gather_elements) {
    return check_elements(dims, graph, node, why) < 0 ? -1 : dims_whole_like_1(dims, graph, node, why);
}

DIMS_FN(dims_scatter_elements) {
    const struct tensor *index = input(graph, node, 1), *updates = input(graph, node, 2);
    if (check_elements(dims, graph, node, why) < 0) return -1;
    if (updates->ndim != index->ndim || !same_dims(updates->dims, index->dims, index->ndim))
        return refuse(dims, why, "updates are not shaped as the indices");
    return dims_whole_like_0(dims, graph, node, why);
}

/* index (i.., depth), updates (i.., the data's dimensions from depth on). */
DIMS_FN(dims_scatter_nd) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1),
                        *updates = input(graph, node, 2);
    int64_t depth = attr_int(node, "depth", 0);
    int rows = index->ndim - 1;
    if (depth < 1 || depth > x->ndim || rows < 0 || index->dims[rows] != depth)
        return refuse(dims, why, "%lld indices into %d dimensions", (long long)depth, x->ndim);
    int rest = x->ndim - (int)depth;
    if (updates->ndim != rows + rest || !same_dims(updates->dims, index->dims, rows) ||
        !same_dims(updates->dims + rows, x->dims + depth, rest))
        return refuse(dims, why, "updates do not fit the indices and the data");
    return dims_whole_like_0(dims, graph, node, why);
}

/* data (b.., v.., q..), index (b.., i.., depth) -> (b.., i.., q..): nothing but the dimensions that pass may be cut, and
 * kernels take them all whole so far. */
DIMS_FN(dims_gather_nd) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]], *index = &graph->tensors.at[node->inputs[1]];
    int64_t batch = attr_int(node, "batch_dims", 0), depth = attr_int(node, "depth", 0);
    if (batch < 0 || depth < 1 || batch >= index->ndim || batch + depth > x->ndim)
        return refuse(dims, why, "%lld indices after %lld dimensions", (long long)depth, (long long)batch);
    if (index->dims[index->ndim - 1] != depth || !same_dims(index->dims, x->dims, (int)batch))
        return refuse(dims, why, "the indices fit neither depth nor data");
    if (index->ndim - 1 + x->ndim - batch - depth > MAX_NDIM)
        return refuse(dims, why, "the result has more than %d dimensions", MAX_NDIM);
    struct operand *in = &dims->operand[0], *at = &dims->operand[1], *out = &dims->operand[2];
    in->ndim = x->ndim;
    at->ndim = index->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims_set(in, d,
                 dims_factor(dims,
                             d < batch           ? "b"
                             : d < batch + depth ? "v"
                                                 : "q",
                             d, x->dims[d], FACTOR_WHOLE));
    for (int d = 0; d < batch; d++) at->dim[d] = in->dim[d];
    for (int d = (int)batch; d < index->ndim; d++)
        dims_set(at, d, dims_factor(dims, d < index->ndim - 1 ? "i" : "n", d, index->dims[d], FACTOR_WHOLE));
    for (int d = 0; d < index->ndim - 1; d++) out->dim[out->ndim++] = at->dim[d];
    for (int d = (int)(batch + depth); d < x->ndim; d++) out->dim[out->ndim++] = in->dim[d];
    return 0;
}

/* Folding --------------------------------------------------------------------------------------------------------- */

static void copy_elements(struct eval *eval, int64_t to, int from_input, int64_t from, int64_t count) {
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

EVAL(eval_gather_elements) {
    const struct tensor *x = eval->in[0], *index = eval->in[1];
    int64_t axis = attr_int(eval->node, "axis", 0), at[MAX_NDIM] = {0}, i = 0;
    if (!tensor_elements(index)) return 0;
    do {
        int64_t from[MAX_NDIM];
        memcpy(from, at, sizeof from);
        if ((from[axis] = index_at(eval, i, x->dims[axis])) < 0) return -1;
        copy_elements(eval, i++, 0, eval_offset(from, x->dims, x->ndim), 1);
    } while (eval_next(at, index->dims, index->ndim));
    return 0;
}

EVAL(eval_scatter_elements) {
    const struct tensor *x = eval->in[0], *index = eval->in[1];
    int64_t axis = attr_int(eval->node, "axis", 0), at[MAX_NDIM] = {0}, i = 0;
    copy_elements(eval, 0, 0, 0, tensor_elements(x));
    if (!tensor_elements(index)) return 0;
    do {
        int64_t to[MAX_NDIM];
        memcpy(to, at, sizeof to);
        if ((to[axis] = index_at(eval, i, x->dims[axis])) < 0) return -1;
        copy_elements(eval, eval_offset(to, x->dims, x->ndim), 2, i++, 1);
    } while (eval_next(at, index->dims, index->ndim));
    return 0;
}

EVAL(eval_gather_nd) {
    const struct tensor *x = eval->in[0], *index = eval->in[1];
    int64_t batch = attr_int(eval->node, "batch_dims", 0), depth = attr_int(eval->node, "depth", 1);
    int64_t picks = 1, inner = 1, rows = tensor_elements(index) / depth;
    for (int d = (int)batch; d < index->ndim - 1; d++) picks *= index->dims[d];
    for (int d = (int)(batch + depth); d < x->ndim; d++) inner *= x->dims[d];
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row / picks;
        for (int64_t d = 0; d < depth; d++) {
            int64_t extent = x->dims[batch + d], at = index_at(eval, row * depth + d, extent);
            if (at < 0) return -1;
            offset = offset * extent + at;
        }
        copy_elements(eval, row * inner, 0, offset * inner, inner);
    }
    return 0;
}

/* The gradient of Gather. dy (p.., i+.., q..), index (i+..) -> (p.., v, q..): ranks that hold some of the indices sum what
 * they add; a rank that holds some of the rows takes what falls there. */
DIMS_FN(dims_gather_grad) {
    const struct tensor *dy = input(graph, node, 0), *index = input(graph, node, 1);
    int64_t axis = attr_int(node, "axis", 0), size = attr_int(node, "size", -1);
    struct operand *in = &dims->operand[0], *at = &dims->operand[1], *out = &dims->operand[2];
    if (axis < 0 || axis > dy->ndim - index->ndim || size < 0 ||
        !same_dims(dy->dims + axis, index->dims, index->ndim) || dy->ndim - index->ndim + 1 > MAX_NDIM)
        return refuse(dims, why, "indices %s from dimension %lld of %s on", tensor_type(dims->arena, index),
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
