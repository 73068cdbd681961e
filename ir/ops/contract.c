/* Matrix products and reductions: dimension annotations and evaluation. */
#include "ir/ops/ops.h"

#include <math.h>
#include <string.h>

/* Batched products need equal batch dimensions: kernels do not broadcast; an Expand is inserted where they differ. */
static bool same_batches(const struct tensor *a, const struct tensor *b) {
    if (a->ndim != b->ndim) return false;
    for (int d = 0; d < a->ndim - 2; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

/* An operand of an epilogue, aligned to the right of y: it has all rows of y or one, and all columns or one. */
static int bind_beside(struct dims *dims, int k, const struct tensor *t, const char **why) {
    const int y = dims->ninputs, ndim = dims->operand[y].ndim, missing = ndim - t->ndim;
    struct operand *operand = &dims->operand[k];
    bool all = true, one = true, fits = missing >= 0;
    operand->ndim = t->ndim;
    for (int d = 0; d < ndim && fits; d++) {
        int64_t extent = dims_extent(dims, y, d), own = d < missing ? 1 : t->dims[d - missing];
        fits = own == extent || own == 1;
        if (d < ndim - 1) all = all && own == extent, one = one && own == 1;
        if (own == extent && d >= missing) operand->dim[d - missing] = dims->operand[y].dim[d];
    }
    return fits && (all || one) ? 0 : refuse(dims, why, "input %d does not fit the rows of the product", k);
}

int bind_epilogue(struct dims *dims, const struct graph *graph, const struct node *node, const char **why) {
    const struct operand *product = dims->operand;
    const int first = op_epilogue_first(node), beside = node->ninputs - first;
    const bool one = attr_int(node, "packed", 0) || op_multiplies_integers(node->op); /* value */
    int64_t result = attr_int(node, "result", -1);
    const struct expr_chain *chain = expr_texts_chain(graph->texts, attr_text(node, "expr", ""), beside + 1, false);
    if (result < 0 || result > beside || !chain || chain->nvalues != node->noutputs || (one && chain->nvalues != 1))
        return refuse(dims, why, "expr is not an expression of the product and %d more input(s)", beside);
    dims->ninputs = node->ninputs;
    dims->noutputs = node->noutputs;
    dims->operand = ARENA_ARRAY(dims->arena, struct operand, node->ninputs + node->noutputs);
    memcpy(dims->operand, product, (size_t)first * sizeof *product);
    for (int o = 0; o < node->noutputs; o++) dims->operand[node->ninputs + o] = product[first];
    for (int k = first; k < node->ninputs; k++)
        if (node->inputs[k] < 0) return refuse(dims, why, "required input %d is omitted", k);
    for (int k = first; k < node->ninputs; k++)
        if (bind_beside(dims, k, &graph->tensors.at[node->inputs[k]], why) < 0) return -1;
    return 0;
}

/* Binds the second result of a product with attribute sums: one of its operands, summed over k. */
static int bind_sums(struct dims *dims, const struct node *node, const char **why) {
    int64_t summed = attr_int(node, "sums", -1);
    const struct operand *product = dims->operand, *operand = product + (summed == 1);
    if (summed < 0 || summed > 1 || node->ninputs != 2 || node->noutputs != 2 || dims->alternative != 0 ||
        attr_find(node, "expr") || attr_int(node, "packed", 0))
        return refuse(dims, why,
                      "sums needs a product of two matrices without batch dimensions and without an epilogue");
    dims->alternative = 3;
    dims->noutputs = 2;
    dims->operand = ARENA_ARRAY(dims->arena, struct operand, 4);
    memcpy(dims->operand, product, 3 * sizeof *product);
    for (int d = 0; d < operand->ndim; d++)
        if (operand->dim[d].n != 1 || dims->factor[operand->dim[d].factor[0]].kind != FACTOR_SUM)
            dims->operand[3].dim[dims->operand[3].ndim++] = operand->dim[d];
    return 0;
}

/* A transposed first operand with leading dimensions occurs in batched products only. A product is batched if the
 * second operand has leading dimensions ("*"). */
DIMS_FN(dims_matmul) {
    static const char *const text[2][2] = {
        {"* m k+, k n -> * m n | * m k+, * k n -> * m n", "* m k+, n k -> * m n | * m k+, * n k -> * m n"},
        {"k+ m, k n -> m n | * k+ m, * k n -> * m n", "k+ m, n k -> m n | * k+ m, * n k -> * m n"}};
    bool trans_a = attr_int(node, "trans_a", 0), trans_b = attr_int(node, "trans_b", 0);
    const struct tensor *a = &graph->tensors.at[node->inputs[0]], *b = &graph->tensors.at[node->inputs[1]];
    struct node product = *node;
    product.ninputs = 2, product.noutputs = 1;
    if (dims_bind_text(dims, text[trans_a][trans_b], graph, &product, why) < 0) return -1;
    if (attr_find(node, "sums")) return bind_sums(dims, node, why);
    if (node->ninputs > 2 || node->noutputs > 1 || attr_find(node, "expr")) {
        if (dims->alternative != 0) return refuse(dims, why, "products in batches have no expression");
        if (!attr_int(node, "packed", 0)) dims->alternative = 2;
        return bind_epilogue(dims, graph, node, why);
    }
    if (dims->alternative == 0 || same_batches(a, b)) return 0;
    return refuse(dims, why, "batches %s and %s differ", tensor_type(dims->arena, a), tensor_type(dims->arena, b));
}

/* The matrices are the last input. */
DIMS_FN(dims_det) {
    const int last = node->ninputs - 1;
    const char *text = last ? "*, * r^ n^ -> * r^ n^" : "* r^ n^ -> *";
    if (dims_bind_text(dims, text, graph, node, why) < 0) return -1;
    const int n = dims->operand[last].ndim;
    if (dims_extent(dims, last, n - 1) == dims_extent(dims, last, n - 2)) return 0;
    return refuse(dims, why, "the matrix is not square");
}

/* The sum over k of products, for small constants such as rotary tables. */
EVAL(eval_matmul) {
    const struct tensor *a = eval->in[0], *b = eval->in[1], *y = eval->out;
    bool trans_a = attr_int(eval->node, "trans_a", 0), trans_b = attr_int(eval->node, "trans_b", 0);
    int64_t at[RT_MAX_NDIM] = {0}, i = 0, k = a->dims[a->ndim - (trans_a ? 2 : 1)];
    if (!tensor_elements(y)) return 0;
    do {
        struct number sum = {rt_dtype_is_float(y->dtype), 0, 0};
        int64_t ia[RT_MAX_NDIM], ib[RT_MAX_NDIM];
        for (int d = 0; d < a->ndim; d++) ia[d] = a->dims[d] == 1 ? 0 : at[y->ndim - a->ndim + d];
        for (int d = 0; d < b->ndim; d++) ib[d] = b->dims[d] == 1 ? 0 : at[y->ndim - b->ndim + d];
        ia[a->ndim - (trans_a ? 1 : 2)] = at[y->ndim - 2];
        ib[b->ndim - (trans_b ? 2 : 1)] = at[y->ndim - 1];
        for (int64_t j = 0; j < k; j++) {
            ia[a->ndim - (trans_a ? 2 : 1)] = j;
            ib[b->ndim - (trans_b ? 1 : 2)] = j;
            struct number u = eval_load(eval->x[0], a->dtype, eval_offset(ia, a->dims, a->ndim));
            struct number v = eval_load(eval->x[1], b->dtype, eval_offset(ib, b->dims, b->ndim));
            sum.f += u.f * v.f;
            sum.i = (int64_t)((uint64_t)sum.i + (uint64_t)u.i * (uint64_t)v.i); /* integers wrap */
        }
        eval_store(eval->y, y->dtype, i++, sum);
    } while (eval_next(at, y->dims, y->ndim));
    return 0;
}

/* Binds an operand (p.., c, q..): factor c of dimension `axis` has the given kind, the others are FACTOR_PASS. */
static int bind_along(struct dims *dims, const struct graph *graph, const struct node *node, const char **why,
                      enum factor_kind kind) {
    struct operand *in = &dims->operand[0];
    const struct tensor *x = &graph->tensors.at[node->inputs[0]];
    int64_t axis = attr_int(node, "axis", -1);
    if (axis < 0 || axis >= x->ndim)
        return refuse(dims, why, "axis %lld is out of range for %d dimension(s)", (long long)axis, x->ndim);
    in->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++)
        dims_set(in, d,
                 d == axis ? dims_factor(dims, "c", -1, x->dims[d], kind)
                           : dims_factor(dims, d < axis ? "p" : "q", d, x->dims[d], FACTOR_PASS));
    return 0;
}

DIMS_FN(dims_along) {
    if (bind_along(dims, graph, node, why, FACTOR_WHOLE) < 0) return -1;
    for (int k = 1; k < dims->ninputs + dims->noutputs; k++) dims->operand[k] = dims->operand[0];
    for (int k = 1; k < dims->ninputs; k++)
        if (!dims_fits(dims, k, input(graph, node, k))) return refuse(dims, why, "the operands have different shapes");
    return 0;
}

/* Binds scores, their maximum, class numbers and loss terms as operands 0, 1, 2 and 3; of the gradient operator, the
 * gradient of the scores as operand 4. */
DIMS_FN(dims_class_terms) {
    const bool gradient = node->op->id == OP_ClassTermsGrad;
    struct operand *in = dims->operand;
    if (bind_along(dims, graph, node, why, gradient ? FACTOR_PASS : FACTOR_SUM) < 0) return -1;
    const int axis = (int)attr_int(node, "axis", -1);
    in[1] = in[0];
    in[1].dim[axis].n = 0;
    dims_set(&in[3], in[3].ndim++, dims_factor(dims, "n", -1, 3, FACTOR_WHOLE));
    for (int d = 0; d < in[0].ndim; d++)
        if (d != axis) in[2].dim[in[2].ndim++] = in[3].dim[in[3].ndim++] = in[0].dim[d];
    for (int k = 1; k < node->ninputs; k++)
        if (!dims_fits(dims, k, input(graph, node, k))) return refuse(dims, why, "input %d does not fit the scores", k);
    if (gradient) in[4] = in[0];
    return 0;
}

static bool is_reduced(const int64_t *axes, int naxes, int dim) {
    for (int i = 0; i < naxes; i++)
        if (axes[i] == dim) return true;
    return false;
}

static const struct reduction {
    enum op_id op;
    enum factor_kind kind; /* the reduction that combines the results of ranks with parts of a reduced dimension */
    const char *combine;
    double first;
} reductions[] = {{OP_ReduceSum, FACTOR_SUM, "a + b", 0},
                  {OP_ReduceMax, FACTOR_MAX, "max(a, b)", -INFINITY},
                  {OP_ReduceMin, FACTOR_MIN, "min(a, b)", INFINITY},
                  {OP_ReduceProd, FACTOR_WHOLE, "a * b", 1},
                  {OP_ArgMax, FACTOR_WHOLE, NULL, 0},
                  {OP_ArgMin, FACTOR_WHOLE, NULL, 0}};

static const struct reduction *reduction_of(const struct op *op) {
    const struct reduction *row = reductions;
    while (row->op != op->id) row++;
    return row;
}

/* The kind of a reduction that an attribute names as column `fold` does. */
static enum factor_kind named_kind(const struct node *node, const char *attribute) {
    const char *fold = attr_text(node, attribute, "");
    const struct reduction *row = reductions;
    while (ops[row->op].fold && strcmp(ops[row->op].fold, fold) != 0) row++;
    return row->kind;
}

/* Binds an operand (p.., r.., q..): the reduced dimensions r.. are adjacent. */
static int bind_reduced(struct dims *dims, const struct graph *graph, const struct node *node, const char **why,
                        enum factor_kind kind) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]];
    struct operand *in = &dims->operand[0], *out = &dims->operand[1];
    int naxes;
    const int64_t *axes = attr_ints(node, "axes", &naxes);
    bool keep = attr_int(node, "keepdims", 1);
    for (int i = 0; i < naxes; i++)
        if (axes[i] < 0 || axes[i] >= x->ndim || (i && axes[i] != axes[i - 1] + 1))
            return refuse(dims, why, "axes must be adjacent dimensions of %d", x->ndim);
    in->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = is_reduced(axes, naxes, d);
        const char *name = reduced ? "r" : naxes && d > axes[0] ? "q" : "p";
        dims_set(in, d, dims_factor(dims, name, d, x->dims[d], reduced ? kind : FACTOR_PASS));
        if (!reduced)
            dims_set(out, out->ndim++, in->dim[d].factor[0]);
        else if (keep)
            out->ndim++;
    }
    return 0;
}

DIMS_FN(dims_reduce) {
    return bind_reduced(dims, graph, node, why, reduction_of(node->op)->kind);
}

DIMS_FN(dims_reduce_pair) {
    if (bind_reduced(dims, graph, node, why, named_kind(node, "first")) < 0) return -1;
    dims->operand[2] = dims->operand[1];
    dims->operand[2].reduced = named_kind(node, "second");
    return 0;
}

/* The sum runs over all dimensions of the last input. */
DIMS_FN(dims_sum_all) {
    const int last = node->ninputs - 1;
    const struct tensor *x = input(graph, node, last);
    struct operand *in = &dims->operand[last];
    (void)why;
    in->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) dims_set(in, d, dims_factor(dims, "r", d, x->dims[d], FACTOR_SUM));
    return 0;
}

/* No dimension can be divided. */
DIMS_FN(dims_whole) {
    const struct tensor *x = input(graph, node, 0);
    struct operand *in = &dims->operand[0], *out = &dims->operand[1];
    (void)why;
    in->ndim = out->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        dims_set(in, d, dims_factor(dims, "n", d, x->dims[d], FACTOR_WHOLE));
        dims_set(out, d, in->dim[d].factor[0]);
    }
    return 0;
}

EVAL(eval_sum_squares) {
    struct number sum = {true, 0, 0};
    for (int64_t i = 0; i < tensor_elements(eval->in[0]); i++) {
        double x = eval_load(eval->x[0], eval->in[0]->dtype, i).f;
        sum.f += x * x;
    }
    eval_store(eval->y, eval->out->dtype, 0, sum);
    return 0;
}

DIMS_FN(dims_topk) {
    const int64_t axis = attr_int(node, "axis", -1), k = attr_int(node, "k", -1);
    if (bind_along(dims, graph, node, why, FACTOR_WHOLE) < 0) return -1;
    const int64_t extent = dims_extent(dims, 0, (int)axis);
    if (k < 0 || !open_at_most(graph->open, k, extent))
        return refuse(dims, why, "there are no %lld element(s) in an extent of %lld", (long long)k, (long long)extent);
    dims->operand[1] = dims->operand[0];
    dims_set(&dims->operand[1], (int)axis, dims_factor(dims, "k", -1, k, FACTOR_WHOLE));
    return 0;
}

/* Visits every input element and combines it with the output element that it belongs to. */
EVAL(eval_reduce) {
    const struct tensor *x = eval->in[0], *y = eval->out;
    const struct reduction *row = reduction_of(eval->node->op);
    const struct expr *combine = expr_parse(eval->graph->arena, row->combine);
    int naxes;
    const int64_t *axes = attr_ints(eval->node, "axes", &naxes);
    int64_t at[RT_MAX_NDIM] = {0}, i = 0;
    struct number first = {true, row->first, 0};
    for (int64_t j = 0; j < tensor_elements(y); j++) eval_store(eval->y, y->dtype, j, first);
    if (!tensor_elements(x)) return 0;
    do {
        int64_t offset = 0;
        for (int d = 0; d < x->ndim; d++)
            if (!is_reduced(axes, naxes, d)) offset = offset * x->dims[d] + at[d];
        struct pair pair = {eval_load(eval->y, y->dtype, offset), eval_load(eval->x[0], x->dtype, i++)};
        eval_store(eval->y, y->dtype, offset, expr_eval(combine, pair_look_up, &pair));
    } while (eval_next(at, x->dims, x->ndim));
    return 0;
}

/* A line of a dimension, in the order in which the operator goes through it. */
struct line {
    int64_t first, step;
};

/* Calls `along` for each line of dimension `axis`, of `extent` elements. */
static int each_line(struct eval *eval, void (*along)(struct eval *eval, struct line line, int64_t extent)) {
    const struct tensor *x = eval->in[0];
    int64_t axis = attr_int(eval->node, "axis", 0), extent = x->dims[axis], inner = 1, outer = 1;
    bool reverse = attr_int(eval->node, "reverse", 0);
    for (int d = (int)axis + 1; d < x->ndim; d++) inner *= x->dims[d];
    for (int d = 0; d < axis; d++) outer *= x->dims[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t q = 0; q < inner; q++) {
            struct line line = {o * extent * inner + q, inner};
            if (reverse) line = (struct line){line.first + (extent - 1) * inner, -inner};
            along(eval, line, extent);
        }
    return 0;
}

static void scan(struct eval *eval, struct line line, int64_t extent) {
    const enum rt_dtype dtype = eval->in[0]->dtype;
    const bool exclusive = attr_int(eval->node, "exclusive", 0), sums = eval->node->op->id == OP_CumSum;
    struct number total = {rt_dtype_is_float(dtype), !sums, !sums};
    for (int64_t j = 0, at = line.first; j < extent; j++, at += line.step) {
        const struct number x = eval_load(eval->x[0], dtype, at), before = total;
        total.f = sums ? total.f + x.f : total.f * x.f;
        total.i = (int64_t)(sums ? (uint64_t)total.i + (uint64_t)x.i : (uint64_t)total.i * (uint64_t)x.i);
        eval_store(eval->y, dtype, at, exclusive ? before : total);
    }
}

EVAL(eval_cumulate) {
    return each_line(eval, scan);
}

/* The formula is at rt_cumprod_grad in runtime/kernels/c/kernels.h. */
static void scan_cumprod_grad(struct eval *eval, struct line line, int64_t extent) {
    const enum rt_dtype dtype = eval->in[0]->dtype;
    const bool exclusive = attr_int(eval->node, "exclusive", 0);
    struct number product = {true, 1, 0};
    double sum = 0, behind_x = 0, behind_dy = 0;
    for (int64_t j = 0; j < extent; j++) {
        eval_store(eval->y, dtype, line.first + j * line.step, product);
        product.f *= eval_load(eval->x[0], dtype, line.first + j * line.step).f;
    }
    for (int64_t j = extent - 1; j >= 0; j--) {
        const int64_t at = line.first + j * line.step;
        const double dy = eval_load(eval->x[1], dtype, at).f;
        sum = (exclusive ? behind_dy : dy) + behind_x * sum;
        behind_x = eval_load(eval->x[0], dtype, at).f;
        behind_dy = dy;
        product = eval_load(eval->y, dtype, at);
        product.f *= sum;
        eval_store(eval->y, dtype, at, product);
    }
}

EVAL(eval_cumprod_grad) {
    return each_line(eval, scan_cumprod_grad);
}

/* True if `a` goes before `b`: NaN is larger than every number. */
static bool goes_before(struct number a, struct number b, bool largest) {
    if (a.is_float && (isnan(a.f) || isnan(b.f)))
        return largest ? isnan(a.f) && !isnan(b.f) : isnan(b.f) && !isnan(a.f);
    if (a.is_float) return largest ? a.f > b.f : a.f < b.f;
    return largest ? a.i > b.i : a.i < b.i;
}

/* An element's place in the order is the number of those that go before it, or are equal and before it in the
 * tensor. */
EVAL(eval_topk) {
    const struct tensor *x = eval->in[0];
    const int64_t axis = attr_int(eval->node, "axis", 0), k = attr_int(eval->node, "k", 0), extent = x->dims[axis];
    const bool largest = attr_int(eval->node, "largest", 1);
    int64_t inner = 1;
    for (int d = (int)axis + 1; d < x->ndim; d++) inner *= x->dims[d];
    for (int64_t i = 0; i < tensor_elements(x); i++) {
        const int64_t at = i / inner % extent, first = i - at * inner;
        const struct number own = eval_load(eval->x[0], x->dtype, i);
        int64_t place = 0;
        for (int64_t j = 0; j < extent && place < k; j++) {
            const struct number other = eval_load(eval->x[0], x->dtype, first + j * inner);
            place += goes_before(other, own, largest) || (j < at && !goes_before(own, other, largest));
        }
        const int64_t to = (first / inner / extent * k + place) * inner + first % inner;
        if (place < k) eval_store(eval->y, RT_I64, to, (struct number){false, 0, at});
    }
    return 0;
}
