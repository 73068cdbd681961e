/* Replaces products of dequantised tensors. DequantizeLinear is (Cast(codes) - zero) * scale after import:
 *
 *   MatMul(x, dequantised weights)                   DequantMatMul: weights are dequantised in blocks inside the kernel
 *   MatMul(dequantised a, dequantised b), and Conv    product of integers, times both scales
 *   Gather(dequantised rows, index)                  the rows are gathered first, and then dequantised
 *   MaxPool(dequantised x), quantised again          the greatest codes
 *
 *   Round(.. product of integers .. / scale)         the scale is divided out of the constants that the sums meet
 *
 * So stored weights keep their small types in memory. Weights whose scales differ along k other than in blocks are left
 * as they are. */
#include <string.h>

#include "ir/build.h"
#include "ir/expr/eval.h"
#include "passes/pipeline.h"
#include "passes/rewrite/matcher.h"
#include "passes/rewrite/quantised.h"
#include "passes/rewrite/rewrite.h"
#include "runtime/base/shape/panel.h"

static const struct tensor *tensor_of(const struct graph *graph, int tensor) {
    return &graph->tensors.at[tensor];
}

static bool is_stored(const struct graph *graph, const struct dequantised *d) {
    return tensor_is_stored(tensor_of(graph, d->packed < 0 ? d->codes : before_views(graph, d->packed)));
}

/* Zero points as integers of the type of the codes: where their Cast was folded, the constant is converted back. */
static int integer_zero(struct build *builder, const struct dequantised *d) {
    const enum rt_dtype dtype = tensor_of(builder->graph, d->codes)->dtype;
    const struct tensor zero = *tensor_of(builder->graph, d->zero);
    int before = before_views(builder->graph, d->zero);
    if (tensor_of(builder->graph, before)->dtype == dtype) return build_reshape(builder, before, zero.ndim, zero.dims);
    if (zero.kind != TENSOR_CONST) return -1;
    const int64_t n = tensor_elements(&zero);
    unsigned char *values = arena_alloc(builder->graph->arena, (size_t)n + 1, 1), back[8], element[8];
    rt_convert(values, dtype, zero.data, zero.dtype, (size_t)n);
    for (int64_t i = 0; i < n; i++) { /* a zero point that is no integer of the type */
        memcpy(element, (const char *)zero.data + i * (int64_t)rt_dtype_bytes(zero.dtype), rt_dtype_bytes(zero.dtype));
        rt_convert(back, zero.dtype, values + i, dtype, 1);
        if (memcmp(back, element, rt_dtype_bytes(zero.dtype)) != 0) return -1;
    }
    return graph_add_const(builder->graph, zero.name, dtype, zero.ndim, zero.dims, values);
}

/* Scales or zero points of weights (k, n), or (n, k) if `turned`, as (groups, n) or (n, groups); -1: they have another
 * form, -2 after a diagnostic. */
static int in_groups(struct build *builder, int tensor, const struct dequantised *d, bool turned) {
    const struct tensor t = *tensor_of(builder->graph, tensor), *w = tensor_of(builder->graph, d->codes);
    const int64_t n = w->dims[!turned];
    const bool blocked = d->ndim == 3;
    int64_t dims[3] = {1, 1, 1};
    if (t.ndim > d->ndim || d->ndim > 3) return -1;
    for (int i = 0; i < t.ndim; i++) dims[d->ndim - t.ndim + i] = t.dims[i];
    if (tensor_elements(&t) == 1) {
        const int64_t one[] = {1, 1}, all[] = {turned ? n : 1, turned ? 1 : n};
        return build_expand(builder, build_reshape(builder, tensor, 2, one), 2, all);
    }
    const int64_t groups = !blocked ? 1 : turned ? d->dims[1] : d->dims[0];
    const int64_t per_n[] = {turned ? n : groups, turned ? groups : n};
    const bool fits = blocked ? (turned ? dims[0] == n && dims[1] == groups && dims[2] == 1
                                        : dims[0] == groups && dims[1] == 1 && dims[2] == n)
                              : dims[turned ? 0 : 1] == n && dims[turned ? 1 : 0] == 1;
    return fits ? build_reshape(builder, tensor, 2, per_n) : -1;
}

/* The codes in the shape of the tensor that is dequantised from them. */
static int codes_as(struct build *builder, const struct dequantised *d, int tensor) {
    const struct tensor t = *tensor_of(builder->graph, tensor);
    return build_reshape(builder, d->codes, t.ndim, t.dims);
}

/* Weights per k (groups of indices that are not blocks, packed rows that are divided otherwise) are not supported. */
static bool fits_blocks(const struct graph *graph, const struct dequantised *d, bool turned) {
    const struct tensor *w = tensor_of(graph, d->codes);
    const int bits = d->packed < 0 ? 8 : rt_dtype_bits(w->dtype);
    if (w->ndim != 2 || bits == 6 || d->ndim < 2 || d->ndim > 3) return false;
    if (d->ndim == 2) return true;
    const int64_t block = turned ? d->dims[2] : d->dims[1];
    return (turned ? d->dims[0] == w->dims[0] : d->dims[2] == w->dims[1]) && (!turned || block * bits % 8 == 0);
}

static int by_weights(struct build *builder, const struct node *node, const struct dequantised *d) {
    const bool turned = attr_int(node, "trans_b", 0);
    if (!tensor_same_shape(tensor_of(builder->graph, d->codes), tensor_of(builder->graph, node->inputs[1])) ||
        !fits_blocks(builder->graph, d, turned) || attr_int(node, "trans_a", 0))
        return REWRITE_KEPT;
    const enum rt_dtype real = tensor_of(builder->graph, node->inputs[0])->dtype;
    int scale = in_groups(builder, d->scale, d, turned), zero = -1;
    if (scale < 0) return REWRITE_KEPT;
    scale = build_cast(builder, scale, op_summed_in(real));
    double offset = 0;
    const struct tensor *z = d->zero < 0 ? NULL : tensor_of(builder->graph, d->zero);
    if (z && z->kind == TENSOR_CONST && tensor_elements(z) == 1) {
        offset = eval_load(z->data, z->dtype, 0).f;
    } else if (z) {
        struct dequantised integers = *d;
        integers.zero = integer_zero(builder, d);
        if (integers.zero < 0) return REWRITE_KEPT;
        zero = in_groups(builder, integers.zero, d, turned);
        if (zero < 0) return REWRITE_KEPT;
    }
    const int64_t groups = tensor_of(builder->graph, scale)->dims[turned];
    const int64_t block = tensor_of(builder->graph, d->codes)->dims[turned] / (groups ? groups : 1);
    const bool rounded = attr_int(node, "rounded", 0) && block <= RT_GROUP_PIECE;
    const struct attr attrs[] = {attr_of_text("codes", rt_dtypes[tensor_of(builder->graph, d->codes)->dtype].name),
                                 attr_of_float("offset", offset), attr_of_int("trans_b", turned),
                                 attr_of_int("rounded", 1)};
    const int inputs[] = {node->inputs[0], d->packed < 0 ? d->codes : d->packed, scale, zero};
    return build(builder, OP_DequantMatMul, 4, inputs, rounded ? 4 : 3, attrs);
}

static bool is_byte(const struct graph *graph, const struct dequantised *d) {
    const enum rt_dtype dtype = tensor_of(graph, d->codes)->dtype;
    return dtype == RT_I8 || dtype == RT_U8;
}

/* A scalar zero point of the type of the codes; *zero is -1 for 0. False: it is none. */
static bool scalar_zero(struct build *builder, const struct dequantised *d, int *zero) {
    *zero = -1;
    if (d->zero < 0) return true;
    if (!is_scalar(builder->graph, d->zero) || (*zero = integer_zero(builder, d)) < 0) return false;
    *zero = build_reshape(builder, *zero, 0, NULL);
    return *zero >= 0;
}

/* Weights that are transposed in their last two dimensions are read as they are stored. */
static bool turn_back(const struct graph *graph, struct dequantised *d) {
    const struct node *turn = made_by(graph, d->codes, OP_Transpose);
    if (!turn || !op_exchanges_last(turn) || d->ndim != tensor_of(graph, d->codes)->ndim) return false;
    d->codes = turn->inputs[0];
    return true;
}

/* The product of integers of two dequantised tensors, a with one scale, b with one or one per column or channel. */
static int of_integers(struct build *builder, const struct node *node, const struct dequantised *a,
                       const struct dequantised *b) {
    const bool conv = node->op->id == OP_Conv, turned = attr_int(node, "trans_b", 0) != 0;
    const struct tensor w = *tensor_of(builder->graph, b->codes), scales = *tensor_of(builder->graph, b->scale);
    const int dim = conv     ? 0
                    : turned ? w.ndim - 2
                             : w.ndim - 1,
              ndim = tensor_of(builder->graph, node->outputs[0])->ndim;
    const enum rt_dtype real = tensor_of(builder->graph, node->outputs[0])->dtype;
    int a_zero, b_zero;
    bool fits = is_byte(builder->graph, a) && is_byte(builder->graph, b) && is_scalar(builder->graph, a->scale) &&
                !attr_int(node, "trans_a", 0) && b->ndim == w.ndim &&
                tensor_same_shape(&w, tensor_of(builder->graph, node->inputs[1]));
    if (!is_scalar(builder->graph, b->scale)) /* one per index of dimension `dim` */
        for (int d = 0; fits && d < scales.ndim; d++)
            fits = scales.dims[d] == (d + w.ndim - scales.ndim == dim ? w.dims[dim] : 1);
    if (!fits || (!conv && w.ndim > 2 && !is_scalar(builder->graph, b->scale)) || !scalar_zero(builder, a, &a_zero) ||
        !scalar_zero(builder, b, &b_zero))
        return REWRITE_KEPT;
    struct dequantised stored = *b;
    const struct attr trans_b = attr_of_int("trans_b", !conv && turn_back(builder->graph, &stored) ? !turned : turned);
    const int inputs[] = {codes_as(builder, a, node->inputs[0]), stored.codes, a_zero, b_zero};
    if (inputs[0] < 0) return -1;
    int sums = conv ? build(builder, OP_IntConv, 4, inputs, node->nattrs, node->attrs)
                    : build(builder, OP_IntMatMul, 4, inputs, 1, &trans_b);
    if (sums < 0) return -1;
    int64_t shape[RT_MAX_NDIM];
    for (int d = 0; d < ndim; d++) shape[d] = 1;
    int scale = build_reshape(builder, a->scale, 0, NULL), other = b->scale;
    shape[conv ? 1 : ndim - 1] = is_scalar(builder->graph, other) ? 1 : w.dims[dim];
    other = is_scalar(builder->graph, other) ? build_reshape(builder, other, 0, NULL)
                                             : build_reshape(builder, other, ndim, shape);
    if (scale < 0 || other < 0 || (scale = build2(builder, OP_Mul, scale, other)) < 0) return -1;
    sums = build_cast(builder, sums, real);
    return sums < 0 ? -1 : build2(builder, OP_Mul, sums, build_cast(builder, scale, real));
}

/* Rows of `tensor`, which has one per row of the gathered matrix, one for all rows, or one per column. */
static int rows_of(struct build *builder, int tensor, const struct dequantised *d, const struct node *gather) {
    const struct tensor t = *tensor_of(builder->graph, tensor);
    if (tensor_elements(&t) == 1) return build_reshape(builder, tensor, 0, NULL);
    if (t.ndim < d->ndim || t.dims[0] == 1)
        return t.ndim <= 1 ? tensor : build_reshape(builder, tensor, t.ndim - 1, t.dims + 1);
    return build(builder, OP_Gather, 2, (int[]){tensor, gather->inputs[1]}, gather->nattrs, gather->attrs);
}

static int of_rows(struct build *builder, const struct node *node, const struct dequantised *d) {
    const enum rt_dtype real = tensor_of(builder->graph, node->outputs[0])->dtype;
    const struct tensor codes = *tensor_of(builder->graph, d->codes);
    if (attr_int(node, "axis", 0) != 0 || d->ndim != codes.ndim ||
        !tensor_same_shape(&codes, tensor_of(builder->graph, node->inputs[0])) || codes.ndim < 2 ||
        !is_stored(builder->graph, d))
        return REWRITE_KEPT;
    const int inputs[] = {d->packed < 0 ? d->codes : d->packed, node->inputs[1]};
    int y = build(builder, OP_Gather, 2, inputs, node->nattrs, node->attrs);
    const struct attr to = attr_of_text("to", rt_dtypes[codes.dtype].name);
    if (y >= 0 && d->packed >= 0) y = build(builder, OP_Unpack, 1, &y, 1, &to);
    if (y < 0 || (y = build_cast(builder, y, real)) < 0) return -1;
    int zero = d->zero < 0 ? -1 : rows_of(builder, d->zero, d, node), scale = rows_of(builder, d->scale, d, node);
    if (scale < 0 || (d->zero >= 0 && zero < 0)) return -1;
    if (zero >= 0) y = build2(builder, OP_Sub, y, zero);
    return y < 0 ? -1 : build2(builder, OP_Mul, y, scale);
}

/* Quantised again with the same scale and zero point after it was only moved: the codes, moved. */
static int moved_codes(struct build *builder, const struct node *node) {
    struct graph *graph = builder->graph;
    struct node moves[4];
    struct requantised q;
    struct dequantised d;
    int nmoves = 0;
    if (!read_requantised(graph, node, &q)) return REWRITE_KEPT;
    int x = q.x;
    while (!read_dequantised(graph, x, &d)) {
        const struct node *move = made_by(graph, x, OP_Transpose);
        if (!move) move = made_by(graph, x, OP_Reshape);
        if (!move || nmoves == 4) return REWRITE_KEPT;
        moves[nmoves++] = *move;
        x = move->inputs[0];
    }
    if (!requantises(graph, node, &q, &d)) return REWRITE_KEPT;
    int y = codes_as(builder, &d, x);
    while (nmoves > 0 && y >= 0) {
        const struct node *move = &moves[--nmoves];
        y = build(builder, move->op->id, 1, &y, move->nattrs, move->attrs);
    }
    return y;
}

/* Reads the pool whose result the node, a Cast to codes, rounds, and the codes that its operand was made from in the
 * opposite way: by a Cast, or by dequantisation with the same scale and zero point. False: there is no such pool. */
static bool read_pool(const struct graph *graph, const struct node *node, const struct node **pool,
                      struct dequantised *d) {
    struct requantised q = {.x = node->inputs[0]};
    const bool rounded = read_requantised(graph, node, &q);
    if (!(*pool = made_by(graph, q.x, OP_MaxPool))) return false;
    if (rounded) return read_dequantised(graph, (*pool)->inputs[0], d) && requantises(graph, node, &q, d);
    const struct node *cast = made_by(graph, (*pool)->inputs[0], OP_Cast);
    *d = (struct dequantised){.codes = cast ? cast->inputs[0] : -1};
    return cast && tensor_of(graph, d->codes)->dtype == tensor_of(graph, node->outputs[0])->dtype;
}

/* The greatest of elements that codes stand for, as codes again: the greatest code. */
static int pooled_codes(struct build *builder, const struct node *node) {
    const struct node *found;
    struct dequantised d;
    if (!read_pool(builder->graph, node, &found, &d) || !is_byte(builder->graph, &d)) return REWRITE_KEPT;
    const struct node pool = *found;
    const int codes = codes_as(builder, &d, pool.inputs[0]);
    return codes < 0 ? -1 : build(builder, OP_IntMaxPool, 1, &codes, pool.nattrs, pool.attrs);
}

/* Requantisation --------------------------------------------------------------------------------------------------- */

enum { MOST_STEPS = 8 /* elementwise operators from a product to the quotient */ };

static bool is_float_const(const struct graph *graph, int tensor) {
    return tensor_of(graph, tensor)->kind == TENSOR_CONST && rt_dtype_is_float(tensor_of(graph, tensor)->dtype);
}

/* Operators whose result is divided by dividing operands: the first, the second (of a product, a constant), or both. */
static const struct divisible {
    enum op_id op;
    bool first, second;
} divisible[] = {{OP_Mul, false, true}, {OP_Add, true, true}, {OP_Relu, true, false}};

static const struct divisible *find_divisible(const struct node *node) {
    for (size_t i = 0; i < sizeof divisible / sizeof *divisible; i++)
        if (divisible[i].op == node->op->id) return &divisible[i];
    return NULL;
}

static bool is_sum_of_products(const struct graph *graph, const struct node *cast) {
    const struct node *product = cast->op->id == OP_Cast ? graph_producer(graph, cast->inputs[0]) : NULL;
    return product && op_multiplies_integers(product->op);
}

/* True if the tensor is computed from the sums of a product of integers, or is a sum of dequantised tensors, by
 * operators that `divided` knows. added: the tensor is the operand of a sum. */
static bool is_of_sums(const struct graph *graph, int tensor, int steps, bool added) {
    const struct node *node = graph_producer(graph, tensor);
    struct dequantised d;
    if (!node || !steps) return false;
    const struct divisible *how = find_divisible(node);
    if (!how) return is_sum_of_products(graph, node);
    if (added && node->op->id == OP_Mul && read_dequantised(graph, tensor, &d) && d.scale == node->inputs[1] &&
        is_float_const(graph, d.scale))
        return true;
    added = added || node->op->id == OP_Add;
    if (!is_of_sums(graph, node->inputs[0], steps - 1, added)) return false;
    return !how->second || is_float_const(graph, node->inputs[1]) ||
           (how->first && is_of_sums(graph, node->inputs[1], steps - 1, added));
}

/* x / scale, of x that is_of_sums, with the quotient in the constants: sums are multiplied by a_scale b_scale / scale,
 * and codes by their scale / scale, as ONNX Runtime does. */
static int divided(struct build *builder, int x, int scale) {
    const struct node node = *graph_producer(builder->graph, x);
    const struct divisible *how = find_divisible(&node);
    if (!how) return build2(builder, OP_Div, x, scale);
    int inputs[] = {node.inputs[0], how->second ? node.inputs[1] : -1};
    if (how->first && (inputs[0] = divided(builder, inputs[0], scale)) < 0) return -1;
    if (how->second)
        inputs[1] = is_float_const(builder->graph, inputs[1]) ? build2(builder, OP_Div, inputs[1], scale)
                                                              : divided(builder, inputs[1], scale);
    if (how->second && inputs[1] < 0) return -1;
    return build(builder, node.op->id, how->second ? 2 : 1, inputs, 0, NULL);
}

/* A quotient by a positive constant that is rounded. */
static int requantised(struct build *builder, const struct node *round) {
    const struct node *quotient = made_by(builder->graph, round->inputs[0], OP_Div);
    if (!quotient || !is_float_const(builder->graph, quotient->inputs[1]) ||
        !is_scalar(builder->graph, quotient->inputs[1]))
        return REWRITE_KEPT;
    const int x = quotient->inputs[0], scale = quotient->inputs[1];
    const struct tensor *s = tensor_of(builder->graph, scale);
    const struct node *node = graph_producer(builder->graph, x);
    if (!(eval_load(s->data, s->dtype, 0).f > 0) || !node || node->op->id == OP_Cast ||
        !is_of_sums(builder->graph, x, MOST_STEPS, false))
        return REWRITE_KEPT;
    const int y = divided(builder, x, scale);
    return y < 0 ? -1 : build1(builder, OP_Round, y);
}

/* The tensor that replaces the node's result, as rewrite_each wants it. */
static int replaced(struct build *builder, const struct node *node) {
    struct dequantised a, b;
    if (node->op->id == OP_Gather)
        return read_dequantised(builder->graph, node->inputs[0], &a) ? of_rows(builder, node, &a) : REWRITE_KEPT;
    if (node->op->id == OP_Cast && is_code(tensor_of(builder->graph, node->outputs[0])->dtype))
        return moved_codes(builder, node);
    if (node->op->id == OP_Round) return requantised(builder, node);
    if (node->op->id != OP_MatMul && node->op->id != OP_Conv) return REWRITE_KEPT;
    if (node->ninputs != 2 || !read_dequantised(builder->graph, node->inputs[1], &b)) return REWRITE_KEPT;
    if (read_dequantised(builder->graph, node->inputs[0], &a)) {
        const int product = of_integers(builder, node, &a, &b);
        if (product != REWRITE_KEPT) return product;
    }
    if (node->op->id != OP_MatMul || !is_stored(builder->graph, &b)) return REWRITE_KEPT;
    return by_weights(builder, node, &b);
}

struct walk {
    struct build builder;
    bool pools; /* the target has a kernel for pools of codes */
};

/* The same; it keeps the name of the result. */
static int replaced_by_name(void *env, int id) {
    struct walk *walk = env;
    struct build *builder = &walk->builder;
    const struct node node = builder->graph->nodes.at[id];
    builder->node = node.name;
    int result = replaced(builder, &node);
    if (result == REWRITE_KEPT && node.op->id == OP_Cast && walk->pools) result = pooled_codes(builder, &node);
    if (result >= 0) builder->graph->tensors.at[result].name = builder->graph->tensors.at[node.outputs[0]].name;
    return result;
}

int pass_quantised_products(struct graph *graph, const struct pass_context *context) {
    struct walk walk = {{graph, context->diags, NULL}, !context->library_products};
    return graph->train ? 0 : rewrite_each(graph, replaced_by_name, &walk);
}
