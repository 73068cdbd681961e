/* Products of quantised tensors, and the unpacking of elements of fewer than 8 bits: dimension annotations. */
#include "ir/ops/ops.h"

#include <string.h>

static void add_factor(struct dim_factors *dim, int factor) {
    dim->factor[dim->n++] = (signed char)factor;
}

/* Elements and bytes of the smallest group of packed elements that fills whole bytes: (4, 3) for 6 bits. */
static void packed_group(enum rt_dtype dtype, int64_t *elements, int64_t *bytes) {
    *bytes = rt_dtype_bits(dtype) == 6 ? 3 : 1;
    *elements = *bytes * 8 / rt_dtype_bits(dtype);
}

/* A type of fewer than 8 bits; RT_DTYPE_NONE, and the reason in *why, if `name` is none. */
static enum rt_dtype packed_type(struct dims *dims, const char *name, const char **why) {
    enum rt_dtype dtype = rt_dtype_by_name(name);
    if (dtype != RT_DTYPE_NONE && rt_dtype_bits(dtype) < 8) return dtype;
    refuse(dims, why, "%s is no type of fewer than 8 bits", name);
    return RT_DTYPE_NONE;
}

/* p.. (c b) -> p.. (c e): c groups of b bytes hold e elements each. Rows are divided between groups. */
DIMS_FN(dims_unpack) {
    const struct tensor *x = input(graph, node, 0);
    struct operand *in = &dims->operand[0], *out = &dims->operand[1];
    const enum rt_dtype dtype = packed_type(dims, attr_text(node, "to", ""), why);
    int64_t elements, bytes;
    if (dtype == RT_DTYPE_NONE) return -1;
    packed_group(dtype, &elements, &bytes);
    if (x->ndim < 1 || x->dims[x->ndim - 1] % bytes) return refuse(dims, why, "rows are not whole groups of elements");
    in->ndim = out->ndim = x->ndim;
    for (int d = 0; d < x->ndim - 1; d++) {
        dims_set(in, d, dims_factor(dims, "p", d, x->dims[d], FACTOR_PASS));
        out->dim[d] = in->dim[d];
    }
    int c = dims_factor(dims, "c", -1, x->dims[x->ndim - 1] / bytes, FACTOR_PASS);
    add_factor(&in->dim[x->ndim - 1], c);
    add_factor(&out->dim[x->ndim - 1], c);
    if (bytes > 1) add_factor(&in->dim[x->ndim - 1], dims_factor(dims, "b", -1, bytes, FACTOR_WHOLE));
    add_factor(&out->dim[x->ndim - 1], dims_factor(dims, "e", -1, elements, FACTOR_WHOLE));
    return 0;
}

/* The factors of a matrix product with quantised weights: k = (kg kb ke), n = (nb ne). kg counts the groups that share
 * a scale; ke or ne the elements of a byte, of which k has some if rows of stored weights run along k. Absent factors
 * are -1. */
struct weight_factors {
    int kg, kb, ke, nb, ne;
};

static void add_all(struct dim_factors *dim, int a, int b, int c) {
    if (a >= 0) add_factor(dim, a);
    if (b >= 0) add_factor(dim, b);
    if (c >= 0) add_factor(dim, c);
}

/* Scales and zero points: (n, groups) if the weights are stored as (n, k), else (groups, n). */
static int bind_scale(struct dims *dims, const struct graph *graph, const struct node *node, int k, bool turned,
                      const struct weight_factors *f, const char **why) {
    const struct tensor *t = input(graph, node, k);
    struct operand *operand = &dims->operand[k];
    operand->ndim = 2;
    add_all(&operand->dim[turned ? 0 : 1], f->nb, f->ne, -1);
    if (f->kg >= 0) add_factor(&operand->dim[turned ? 1 : 0], f->kg);
    if (dims_fits(dims, k, t)) return 0;
    return refuse(dims, why, "input %d, %s, does not fit the weights", k, tensor_type(dims->arena, t));
}

/* x (m.., k), weights (n, k) if trans_b, else (k, n), scales, zero points -> (m.., n). With one group of scales, ranks
 * may divide k anywhere between bytes, else between groups. */
DIMS_FN(dims_dequant_matmul) {
    const struct tensor *x = input(graph, node, 0), *w = input(graph, node, 1), *scale = input(graph, node, 2);
    const enum rt_dtype codes = rt_dtype_by_name(attr_text(node, "codes", ""));
    const bool turned = attr_int(node, "trans_b", 0);
    if (codes == RT_DTYPE_NONE || rt_dtype_bits(codes) == 6) return refuse(dims, why, "no type of codes");
    const int64_t per_byte = rt_dtype_bits(codes) < 8 && w->dtype == RT_U8 ? 8 / rt_dtype_bits(codes) : 1;
    if (x->ndim < 1 || w->ndim != 2 || scale->ndim != 2 || (w->dtype != codes && per_byte == 1))
        return refuse(dims, why, "the operands are no matrices of %s", rt_dtypes[codes].name);
    const int64_t k = w->dims[turned] * (turned ? per_byte : 1), groups = scale->dims[turned];
    if (x->dims[x->ndim - 1] != k || groups < 1 || k % groups || k / groups % (turned ? per_byte : 1))
        return refuse(dims, why, "%s does not fit weights %s with %lld groups", tensor_type(dims->arena, x),
                      tensor_type(dims->arena, w), (long long)groups);
    struct weight_factors f = {-1, -1, -1, -1, -1};
    struct operand *in = &dims->operand[0], *weights = &dims->operand[1], *out = &dims->operand[dims->ninputs];
    in->ndim = out->ndim = x->ndim;
    for (int d = 0; d < x->ndim - 1; d++) {
        dims_set(in, d, dims_factor(dims, "m", d, x->dims[d], FACTOR_PASS));
        out->dim[d] = in->dim[d];
    }
    if (groups > 1) f.kg = dims_factor(dims, "kg", -1, groups, FACTOR_SUM);
    f.kb = dims_factor(dims, "kb", -1, w->dims[turned] / groups, groups > 1 ? FACTOR_WHOLE : FACTOR_SUM);
    f.nb = dims_factor(dims, "nb", -1, w->dims[!turned], FACTOR_PASS);
    if (per_byte > 1) *(turned ? &f.ke : &f.ne) = dims_factor(dims, turned ? "ke" : "ne", -1, per_byte, FACTOR_WHOLE);
    add_all(&in->dim[x->ndim - 1], f.kg, f.kb, f.ke);
    add_all(&out->dim[x->ndim - 1], f.nb, f.ne, -1);
    weights->ndim = 2;
    add_all(&weights->dim[turned], f.kg, f.kb, -1);
    add_factor(&weights->dim[!turned], f.nb);
    for (int i = 2; i < node->ninputs; i++)
        if (input(graph, node, i) && bind_scale(dims, graph, node, i, turned, &f, why) < 0) return -1;
    return 0;
}

/* An operand that is one number, or one for each index of an output dimension in its last one. */
static int bind_vector(struct dims *dims, const struct graph *graph, const struct node *node, int i,
                       const struct dim_factors *of, const char **why) {
    const struct tensor *t = input(graph, node, i);
    struct operand *operand = &dims->operand[i];
    operand->ndim = t->ndim;
    if (t->ndim) operand->dim[t->ndim - 1] = *of;
    if (t->ndim == 0 ||
        (tensor_elements(t) == t->dims[t->ndim - 1] && t->dims[t->ndim - 1] == dims_extent(dims, i, t->ndim - 1)))
        return 0;
    return refuse(dims, why, "input %d, %s, does not fit the product", i, tensor_type(dims->arena, t));
}

/* Binds the bare product of inputs 0 and 1 by `bare`, then zero points 2 and 3 and the bias. All but the first zero
 * point may be given per index of dimension `dim` of the result. */
static int bind_bare(struct dims *dims, const struct graph *graph, const struct node *node, const char **why,
                     int (*bare)(struct dims *, const struct graph *, const struct node *, const char **), int dim) {
    struct node product = *node;
    product.ninputs = 2;
    dims->ninputs = 2;
    if (bare(dims, graph, &product, why) < 0) return -1;
    const struct operand *old = dims->operand;
    dims->ninputs = node->ninputs;
    dims->operand = ARENA_ARRAY(dims->arena, struct operand, node->ninputs + 1);
    memcpy(dims->operand, old, 2 * sizeof *old);
    dims->operand[node->ninputs] = old[2];
    const struct operand *out = &dims->operand[node->ninputs];
    const struct dim_factors one = {0}, per_index = out->dim[dim < 0 ? out->ndim + dim : dim];
    if (input(graph, node, 2) && input(graph, node, 2)->ndim)
        return refuse(dims, why, "the first zero point must be a scalar");
    if (input(graph, node, OP_INTEGER_BIAS) && !input(graph, node, OP_INTEGER_BIAS)->ndim)
        return refuse(dims, why, "the bias must be a vector");
    for (int i = 2; i <= OP_INTEGER_BIAS; i++)
        if (input(graph, node, i) && bind_vector(dims, graph, node, i, i == 2 ? &one : &per_index, why) < 0) return -1;
    return 0;
}

static bool is_finished(const struct graph *graph, const struct node *node) {
    return attr_find(node, "expr") || input(graph, node, OP_INTEGER_BIAS);
}

/* The same with an epilogue, if the node has one. Bias and epilogue take complete sums. */
static int bind_integers(struct dims *dims, const struct graph *graph, const struct node *node, const char **why,
                         int (*bare)(struct dims *, const struct graph *, const struct node *, const char **),
                         int dim) {
    const bool finished = attr_find(node, "expr") != NULL;
    struct node product = *node;
    if (!finished && node->ninputs > OP_INTEGER_INPUTS)
        return refuse(dims, why, "has operands, but no expression of them");
    if (finished && node->ninputs < OP_INTEGER_INPUTS)
        return refuse(dims, why, "an expression needs both zero points and a bias, or '_' for them");
    if (finished) product.ninputs = OP_INTEGER_INPUTS;
    if (bind_bare(dims, graph, &product, why, bare, dim) < 0) return -1;
    for (int f = 0; f < dims->nfactors && is_finished(graph, node); f++)
        if (dims->factor[f].kind == FACTOR_SUM) dims->factor[f].kind = FACTOR_WHOLE;
    return finished ? bind_epilogue(dims, graph, node, why) : 0;
}

/* The node without what makes it more than a product. */
static struct node bare(const struct node *node, struct attr *attrs) {
    struct node product = *node;
    product.attrs = attrs, product.nattrs = 0;
    for (int i = 0; i < node->nattrs; i++)
        if (strcmp(node->attrs[i].key, "packed") != 0 && strcmp(node->attrs[i].key, "expr") != 0)
            attrs[product.nattrs++] = node->attrs[i];
    return product;
}

static int bare_matmul(struct dims *dims, const struct graph *graph, const struct node *node, const char **why) {
    const struct node product = bare(node, ARENA_ARRAY(dims->arena, struct attr, node->nattrs + 1));
    return dims_matmul(dims, graph, &product, why);
}

static int bare_conv(struct dims *dims, const struct graph *graph, const struct node *node, const char **why) {
    const struct node product = bare(node, ARENA_ARRAY(dims->arena, struct attr, node->nattrs + 1));
    return dims_conv(dims, graph, &product, why);
}

/* The calls (ops.def): of one matrix w, and of one for each matrix of x; then both of products that are packed, or have
 * a bias or an epilogue. */
DIMS_FN(dims_int_matmul) {
    if (bind_integers(dims, graph, node, why, bare_matmul, -1) < 0) return -1;
    if (attr_int(node, "packed", 0) || is_finished(graph, node)) dims->alternative = 3 - dims->alternative;
    return 0;
}

DIMS_FN(dims_int_conv) {
    const bool last = attr_int(node, "channels_last", 0) != 0;
    if (bind_integers(dims, graph, node, why, bare_conv, last ? -1 : 1) < 0) return -1;
    if (is_finished(graph, node) && !attr_int(node, "packed", 0))
        return refuse(dims, why, "only convolutions with packed weights have a bias or an expression");
    dims->alternative = last;
    return 0;
}
