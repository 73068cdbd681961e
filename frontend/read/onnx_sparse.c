#include <inttypes.h>
#include <string.h>

#include "frontend/read/onnx_data.h"
#include "runtime/base/number/checked.h"

enum { SPARSE_BYTES = 1 << 28 /* of all sparse tensors of a model, stored densely */ };

/* ONNX SparseTensorProto: `values` (n) are elements in the order of their places. `indices` gives these: (n),
 * row-major, or (n, dimensions). */
struct sparse {
    struct onnx_model *model;
    const char *where;
    struct onnx_tensor values, indices;
    struct onnx_tensor *dense;
};

#define FAIL(sparse, ...) diag_error((sparse)->model->diags, 359, EXIT_MALFORMED, (sparse)->where, __VA_ARGS__)

static int check_parts(const struct sparse *sparse) {
    const struct onnx_tensor *values = &sparse->values, *indices = &sparse->indices;
    const int ndim = sparse->dense->ndim;
    const bool flat = indices->ndim == 1, by_dimension = indices->ndim == 2 && indices->dims[1] == ndim;
    if (values->ndim != 1) return FAIL(sparse, "values of a sparse tensor have %d dimension(s), not 1", values->ndim);
    if (indices->dtype != RT_I64)
        return FAIL(sparse, "indices of a sparse tensor are %s, not i64", rt_dtypes[indices->dtype].name);
    if ((flat || by_dimension) && indices->dims[0] == values->count) return 0;
    return FAIL(sparse, "indices of a sparse tensor do not fit its %" PRId64 " value(s) in %d dimension(s)",
                values->count, ndim);
}

/* The row-major place of value i, -1: beyond the tensor. */
static int64_t place_of(const struct sparse *sparse, int64_t i) {
    const struct onnx_tensor *dense = sparse->dense;
    const int n = sparse->indices.ndim == 1 ? 1 : dense->ndim;
    int64_t at[ONNX_DIMS] = {0}, place = 0;
    if (n) memcpy(at, (const char *)sparse->indices.data + (size_t)(i * n) * sizeof *at, (size_t)n * sizeof *at);
    if (sparse->indices.ndim == 1) return at[0] < dense->count ? at[0] : -1;
    for (int d = 0; d < n; d++) {
        if (at[d] < 0 || at[d] >= dense->dims[d]) return -1;
        place = place * dense->dims[d] + at[d];
    }
    return place;
}

static int scatter(const struct sparse *sparse, unsigned char *to) {
    const size_t size = rt_dtype_bytes(sparse->dense->dtype);
    int64_t last = -1;
    for (int64_t i = 0; i < sparse->values.count; i++) {
        const int64_t place = place_of(sparse, i);
        if (place < 0) return FAIL(sparse, "index %" PRId64 " of a sparse tensor is beyond it", i);
        if (place <= last)
            return FAIL(sparse, "index %" PRId64 " of a sparse tensor is not behind the one before it", i);
        memcpy(to + (size_t)place * size, (const unsigned char *)sparse->values.data + (size_t)i * size, size);
        last = place;
    }
    return 0;
}

/* Sets the shape, type and size of `dense`. */
static int shape_dense(struct sparse *sparse, const Onnx__SparseTensorProto *proto) {
    struct onnx_model *model = sparse->model;
    struct onnx_tensor *dense = sparse->dense;
    const struct onnx_place place = {.text = sparse->where};
    int64_t bytes;
    *dense = sparse->values;
    if (onnx_dims_check(model, proto->dims, proto->n_dims, dense->name, &place, &dense->count) < 0) return -1;
    if (dense->bits < 8)
        return diag_error(model->diags, 407, EXIT_UNSUPPORTED, sparse->where, "sparse tensors of %s are not supported",
                          rt_dtypes[dense->dtype].name);
    if (!rt_mul(dense->count, (int64_t)rt_dtype_bytes(dense->dtype), &bytes) || bytes > SPARSE_BYTES - model->densified)
        return diag_error(model->diags, 505, EXIT_LIMIT, sparse->where,
                          "sparse tensors need more than %d MiB when they are stored densely", SPARSE_BYTES >> 20);
    model->densified += bytes;
    dense->ndim = (int)proto->n_dims;
    if (dense->ndim) memcpy(dense->dims, proto->dims, proto->n_dims * sizeof *dense->dims);
    dense->bytes = (uint64_t)bytes;
    dense->in_file = false;
    return 0;
}

int onnx_sparse(struct onnx_model *model, const Onnx__SparseTensorProto *proto, const char *where,
                struct onnx_tensor *out) {
    struct sparse sparse = {.model = model, .where = where, .dense = out};
    if (!proto->values || !proto->indices) return FAIL(&sparse, "a sparse tensor needs values and indices");
    if (onnx_tensor(model, proto->values, where, &sparse.values) < 0 ||
        onnx_tensor(model, proto->indices, where, &sparse.indices) < 0 || shape_dense(&sparse, proto) < 0 ||
        check_parts(&sparse) < 0)
        return -1;
    unsigned char *bytes = arena_alloc(model->arena, out->bytes + 1, 1);
    out->data = bytes;
    return scatter(&sparse, bytes);
}
