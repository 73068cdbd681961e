/* Products of quantised tensors, the unpacking of elements of fewer than 8 bits, and moments of optimizers in 8 bits:
 * dimension annotations. */
#include "ir/ops/ops.h"

#include <string.h>

#include "runtime/base/number/moments.h"

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

/* The factors of a dimension of quantised weights, k or n: groups of indices that share a scale, bytes of a group, and
 * elements of a byte. Absent ones are -1. */
struct weight_factors {
    int groups, bytes, elements;
};

static void add_all(struct dim_factors *dim, const struct weight_factors *f, bool elements) {
    if (f->groups >= 0) add_factor(dim, f->groups);
    add_factor(dim, f->bytes);
    if (elements && f->elements >= 0) add_factor(dim, f->elements);
}

/* A name of factors, of k or of n. */
struct factor_names {
    const char *groups, *bytes, *elements;
};

/* The factors of `extent` indices that are stored in groups, `per_byte` of them in a byte. Where there are several
 * groups, ranks divide the dimension between these, else anywhere between bytes. */
static struct weight_factors weight_factors(struct dims *dims, const struct factor_names *names, int64_t extent,
                                            int64_t groups, int64_t per_byte, enum factor_kind kind) {
    struct weight_factors f = {-1, -1, -1};
    if (groups > 1) f.groups = dims_factor(dims, names->groups, -1, groups, kind);
    f.bytes = dims_factor(dims, names->bytes, -1, extent / per_byte / groups, groups > 1 ? FACTOR_WHOLE : kind);
    if (per_byte > 1) f.elements = dims_factor(dims, names->elements, -1, per_byte, FACTOR_WHOLE);
    return f;
}

/* Scales and zero points, as the weights are stored, with one for all indices of a group of dimension `along`. */
static int bind_scale(struct dims *dims, const struct graph *graph, const struct node *node, int input_index, int along,
                      const struct weight_factors *stored[2], const char **why) {
    const struct tensor *t = input(graph, node, input_index);
    const int lead = input(graph, node, 1)->ndim - 2;
    struct operand *operand = &dims->operand[input_index];
    operand->ndim = lead + 2;
    if (lead) operand->dim[0] = dims->operand[1].dim[0];
    add_all(&operand->dim[lead + !along], stored[!along], true);
    if (stored[along]->groups >= 0) add_factor(&operand->dim[lead + along], stored[along]->groups);
    if (dims_fits(dims, input_index, t)) return 0;
    return refuse(dims, why, "input %d, %s, does not fit the weights", input_index, tensor_type(dims->arena, t));
}

/* What DequantMatMul and DequantExpertMatMul multiply by: matrices of codes, one or a stack. */
struct stored_matrices {
    enum rt_dtype codes;
    bool turned, across;
    int lead, along;   /* dimensions before those of a matrix; that of the two in which indices share scales */
    int64_t extent[2]; /* of a stored matrix, in elements */
    int64_t per_byte, groups;
};

static int check_stored(struct dims *dims, const struct graph *graph, const struct node *node,
                        struct stored_matrices *m, const char **why) {
    const struct tensor *x = input(graph, node, 0), *w = input(graph, node, 1), *scale = input(graph, node, 2);
    const enum rt_dtype codes = rt_dtype_by_name(attr_text(node, "codes", ""));
    const int bits = codes == RT_DTYPE_NONE ? 0 : rt_dtype_bits(codes);
    if (!bits || bits == 6 || (bits > 8 && rt_dtypes[codes].kind != RT_KIND_HALF))
        return refuse(dims, why, "no type of codes");
    *m = (struct stored_matrices){codes, attr_int(node, "trans_b", 0), attr_int(node, "across", 0), w->ndim - 2};
    m->along = m->turned != m->across;
    m->per_byte = bits < 8 && w->dtype == RT_U8 ? 8 / bits : 1;
    if (x->ndim < 1 || m->lead < 0 || m->lead > 1 || (scale && scale->ndim != w->ndim) ||
        (w->dtype != codes && m->per_byte == 1) ||
        (!scale && node->op->id == OP_DequantMatMul && input(graph, node, 3)))
        return refuse(dims, why, "the operands are no matrices of %s", rt_dtypes[codes].name);
    m->extent[0] = w->dims[m->lead], m->extent[1] = w->dims[m->lead + 1] * m->per_byte;
    m->groups = scale ? scale->dims[m->lead + m->along] : 1;
    const int64_t unit = m->along == 1 ? m->per_byte : 1, shared = m->extent[m->along];
    if (x->dims[x->ndim - 1] == m->extent[m->turned] && m->groups >= 1 && shared % m->groups == 0 &&
        shared / m->groups % unit == 0)
        return 0;
    return refuse(dims, why, "%s does not fit weights %s with %lld groups", tensor_type(dims->arena, x),
                  tensor_type(dims->arena, w), (long long)m->groups);
}

/* Rows x (m.., k) and the result (m.., n). The first dimension of rows that a batch multiplies is that of the stack; of
 * experts, the index has the dimensions of rows. */
static int bind_rows(struct dims *dims, const struct graph *graph, const struct node *node, int stack,
                     const char **why) {
    const struct tensor *x = input(graph, node, 0), *w = input(graph, node, 1);
    const bool experts = node->op->id == OP_DequantExpertMatMul;
    struct operand *in = &dims->operand[0], *out = &dims->operand[dims->ninputs], *index = &dims->operand[3];
    if (experts && check_expert_rows(dims, x, input(graph, node, 3), why) < 0) return -1;
    if (!experts && stack >= 0 && (x->ndim < 2 || x->dims[0] != w->dims[0]))
        return refuse(dims, why, "%s has no rows for each matrix of %s", tensor_type(dims->arena, x),
                      tensor_type(dims->arena, w));
    in->ndim = out->ndim = x->ndim;
    for (int d = 0; d < x->ndim - 1; d++) {
        const bool batch = d == 0 && stack >= 0 && !experts;
        dims_set(in, d, batch ? stack : dims_factor(dims, "m", d, x->dims[d], FACTOR_PASS));
        out->dim[d] = in->dim[d];
        if (experts) index->dim[d] = in->dim[d];
    }
    if (experts) index->ndim = x->ndim - 1;
    return 0;
}

/* x (m.., k), weights (n, k) if trans_b, else (k, n), scales, zero points or index -> (m.., n). Stacks have a dimension
 * e before these: a batch, or experts of which a rank gives zeros for rows of the others. */
DIMS_FN(dims_dequant_matmul) {
    static const struct factor_names of_k = {"kg", "kb", "ke"}, of_n = {"ng", "nb", "ne"};
    const bool experts = node->op->id == OP_DequantExpertMatMul;
    const struct tensor *x = input(graph, node, 0), *w = input(graph, node, 1);
    struct stored_matrices m = {0};
    if (check_stored(dims, graph, node, &m, why) < 0) return -1;
    if (experts && !m.lead) return refuse(dims, why, "%s is no stack of matrices", tensor_type(dims->arena, w));
    const int stack = m.lead ? dims_factor(dims, "e", -1, w->dims[0], experts ? FACTOR_SUM : FACTOR_PASS) : -1;
    if (bind_rows(dims, graph, node, stack, why) < 0) return -1;
    struct operand *in = &dims->operand[0], *weights = &dims->operand[1], *out = &dims->operand[dims->ninputs];
    const struct weight_factors k = weight_factors(dims, &of_k, m.extent[m.turned], m.across ? 1 : m.groups,
                                                   m.turned ? m.per_byte : 1, FACTOR_SUM),
                                n = weight_factors(dims, &of_n, m.extent[!m.turned], m.across ? m.groups : 1,
                                                   m.turned ? 1 : m.per_byte, FACTOR_PASS),
                                *stored[2] = {m.turned ? &n : &k, m.turned ? &k : &n};
    add_all(&in->dim[x->ndim - 1], &k, true);
    add_all(&out->dim[x->ndim - 1], &n, true);
    weights->ndim = w->ndim;
    if (m.lead) dims_set(weights, 0, stack);
    for (int d = 0; d < 2; d++) add_all(&weights->dim[m.lead + d], stored[d], false);
    if (experts) dims->points = (double)(tensor_elements(x) * m.extent[!m.turned]);
    for (int i = 2; i < (experts ? 3 : node->ninputs); i++)
        if (input(graph, node, i) && bind_scale(dims, graph, node, i, m.along, stored, why) < 0) return -1;
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

/* The last dimension of which some indices, with all that is behind them, make up whole blocks; -1: there is none.
 * *behind: the elements of one of its indices. */
static int block_dim(const struct tensor *codes, int64_t *behind) {
    int d = codes->ndim - 1;
    for (*behind = 1; d >= 0 && *behind * codes->dims[d] % RT_MOMENT_BLOCK; d--) *behind *= codes->dims[d];
    return d;
}

int op_block_scales(const struct tensor *codes, int64_t dims[RT_MAX_NDIM]) {
    int64_t behind;
    const int last = block_dim(codes, &behind);
    for (int d = 0; d < last; d++) dims[d] = codes->dims[d];
    if (last >= 0) dims[last] = codes->dims[last] * behind / RT_MOMENT_BLOCK;
    return last + 1;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b ? common_divisor(b, a % b) : a;
}

/* Adds a factor that stays whole to the dimension, behind those that it has. */
static void add_whole(struct dims *dims, struct dim_factors *dim, const char *name, int64_t extent) {
    if (extent > 1) dim->factor[dim->n++] = (signed char)dims_factor(dims, name, -1, extent, FACTOR_WHOLE);
}

/* Elements p.. (c e) w.. and scales p.. (c s): e indices of a dimension, with all that is behind them, are s blocks.
 * Ranks divide p and c, so no block is divided. */
DIMS_FN(dims_blocks) {
    const struct tensor *codes = input(graph, node, 0);
    struct operand *elements = &dims->operand[0], *scales = &dims->operand[1];
    int64_t behind;
    const int last = block_dim(codes, &behind);
    if (last < 0 || !tensor_elements(codes)) return refuse(dims, why, "the elements are not whole blocks");
    const int64_t run = RT_MOMENT_BLOCK / common_divisor(behind, RT_MOMENT_BLOCK);
    elements->ndim = codes->ndim, scales->ndim = last + 1;
    for (int d = 0; d < codes->ndim; d++)
        dims_set(elements, d,
                 dims_factor(dims,
                             d < last    ? "p"
                             : d == last ? "c"
                                         : "w",
                             d, codes->dims[d] / (d == last ? run : 1), d > last ? FACTOR_WHOLE : FACTOR_PASS));
    for (int d = 0; d <= last; d++) scales->dim[d] = elements->dim[d];
    add_whole(dims, &elements->dim[last], "e", run);
    add_whole(dims, &scales->dim[last], "s", run * behind / RT_MOMENT_BLOCK);
    if (node->op->id == OP_QuantizeBlocks) {
        dims->operand[2] = *elements;
        dims->operand[dims->ninputs + 1] = *scales;
    }
    dims->operand[dims->ninputs] = *elements;
    return 0;
}
