/* Matrix products: MatMul with any number of dimensions, Gemm. */
#include "frontend/lower/lower_counted.h"

/* Expands the leading dimensions of x to `lead`, unless x has them already. */
static int expand_leading(struct lower *lower, int x, int nlead, const int64_t *lead) {
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[RT_MAX_NDIM];
    if (nlead + 2 > RT_MAX_NDIM) return lower_error(lower, 506, "more than %d dimensions", RT_MAX_NDIM);
    for (int d = 0; d < nlead; d++) shape[d] = lead[d];
    for (int d = 0; d < 2; d++) shape[nlead + d] = tensor.dims[tensor.ndim - 2 + d];
    return emit_expand(lower, x, nlead + 2, shape);
}

/* Adds leading dimensions of extent 1 until x has `ndim` dimensions. */
static int add_leading(struct lower *lower, int x, int ndim) {
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[RT_MAX_NDIM];
    int more = ndim - tensor.ndim;
    for (int d = 0; d < ndim; d++) shape[d] = d < more ? 1 : tensor.dims[d - more];
    return emit_reshape(lower, x, ndim, shape);
}

/* Integers that MatMul has no kernel for are multiplied as integers of the same size that it has.
 *
 * The core operator MatMul does not broadcast, but if b has two dimensions, a may have any number. So leading
 * dimensions of extent 1 of b are removed; if both operands have different leading dimensions, they are expanded. */
int emit_matmul(struct lower *lower, int a, int b, bool trans_a, bool trans_b) {
    if (a < 0 || b < 0) return -1;
    const enum rt_dtype dtype = lower_dtype(lower, a);
    a = emit_wrapping(lower, a);
    b = emit_wrapping(lower, b);
    if (a < 0 || b < 0) return -1;
    const int summed[] = {lower_ndim(lower, a) - (trans_a ? 2 : 1), lower_ndim(lower, b) - (trans_b ? 1 : 2)};
    int operands[] = {a, b};
    if (lower_fit_along(lower, 2, operands, summed) < 0) return -1;
    a = operands[0], b = operands[1];
    struct tensor ta = lower_tensor(lower, a), tb = lower_tensor(lower, b);
    int64_t lead[RT_MAX_NDIM];
    int n;
    if (!lower_meet(lower, ta.dims[summed[0]], tb.dims[summed[1]]) ||
        !broadcast_dims(lower->builder.graph->open, ta.ndim - 2, ta.dims, tb.ndim - 2, tb.dims, &n, lead))
        return lower_misfit(lower, a, b);
    if (tb.ndim > 2 && !(trans_a && ta.ndim > 2) && extent_between(&tb, 0, tb.ndim - 2) == 1) {
        if (ta.ndim < tb.ndim) a = add_leading(lower, a, tb.ndim);
        b = emit_reshape(lower, b, 2, tb.dims + tb.ndim - 2);
    } else if (tb.ndim > 2 || (trans_a && ta.ndim > 2)) {
        a = expand_leading(lower, a, n, lead);
        b = expand_leading(lower, b, n, lead);
    }
    struct attr attrs[2];
    int nattrs = 0;
    if (trans_a) attrs[nattrs++] = attr_of_int("trans_a", 1);
    if (trans_b) attrs[nattrs++] = attr_of_int("trans_b", 1);
    if (a < 0 || b < 0) return -1;
    return emit_narrowed(lower, emit(lower, OP_MatMul, 2, (int[]){a, b}, nattrs, attrs), dtype);
}

int lower_matmul(struct lower *lower) {
    int a = lower->inputs[0], b = lower->inputs[1], na = lower_ndim(lower, a), nb = lower_ndim(lower, b);
    if (na == 0 || nb == 0) return lower_misfit(lower, a, b);
    if (na == 1) a = emit_unsqueeze(lower, a, 0);
    if (nb == 1) b = emit_unsqueeze(lower, b, 1);
    int y = emit_matmul(lower, a, b, false, false);
    if (y < 0 || (na > 1 && nb > 1)) return lower_result(lower, y);
    struct tensor product = lower_tensor(lower, y);
    int n = product.ndim - 2;
    if (na > 1) n++;
    if (nb > 1) product.dims[n++] = product.dims[product.ndim - 1];
    return lower_result(lower, emit_reshape(lower, y, n, product.dims));
}

/* ONNX Gemm-13: alpha A' B' + beta C. */
int lower_gemm(struct lower *lower) {
    int a = lower->inputs[0], b = lower->inputs[1];
    if (lower_ndim(lower, a) != 2 || lower_ndim(lower, b) != 2) return lower_misfit(lower, a, b);
    int y = emit_matmul(lower, a, b, lower_int(lower, "transA") != 0, lower_int(lower, "transB") != 0);
    double alpha = lower_float(lower, "alpha"), beta = lower_float(lower, "beta");
    if (alpha != 1) y = emit_with(lower, OP_Mul, y, alpha);
    if (y < 0 || !lower_has(lower, 2) || beta == 0) return lower_result(lower, y);
    struct tensor product = lower_tensor(lower, y), c = lower_input(lower, 2);
    int64_t dims[RT_MAX_NDIM];
    int n;
    if (!broadcast_dims(lower->builder.graph->open, 2, product.dims, c.ndim, c.dims, &n, dims) || n != 2 ||
        dims[0] != product.dims[0] || dims[1] != product.dims[1])
        return lower_misfit(lower, y, lower->inputs[2]);
    int bias = beta == 1 ? lower->inputs[2] : emit_with(lower, OP_Mul, lower->inputs[2], beta);
    return lower_result(lower, emit2(lower, OP_Add, y, bias));
}

/* ONNX Det-22 */
int lower_det(struct lower *lower) {
    const struct tensor x = lower_input(lower, 0);
    const int n = x.ndim - 2;
    if (n < 0 || x.dims[n] != x.dims[n + 1] || x.dims[n] < 1)
        return lower_error(lower, 378, "%s is not a square matrix", lower_type(lower, &x));
    return lower_result(lower, emit1(lower, OP_Det, lower->inputs[0]));
}
