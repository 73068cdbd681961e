/* Operators that move elements without computing: each is a mapping of output indices to input indices. */
#include "ir/ops/ops.h"

#include <string.h>

#include "ir/base/str.h"
#include "ir/expr/expr.h"
#include "runtime/base/number/checked.h"

/* Binds every dimension of an operand to a factor of its own. */
static void bind_each(struct dims *dims, struct operand *operand, const struct tensor *tensor, const char *name,
                      enum factor_kind kind) {
    operand->ndim = tensor->ndim;
    for (int d = 0; d < tensor->ndim; d++) dims_set(operand, d, dims_factor(dims, name, d, tensor->dims[d], kind));
}

DIMS_FN(dims_same) {
    (void)why;
    bind_each(dims, &dims->operand[0], input(graph, node, 0), "d", FACTOR_PASS);
    dims->operand[1] = dims->operand[0];
    return 0;
}

/* " -> n" */
DIMS_FN(dims_sizes) {
    int n;
    (void)graph;
    if (!attr_ints(node, "values", &n)) return refuse(dims, why, "has no values");
    dims->operand[0].ndim = 1;
    dims_set(&dims->operand[0], 0, dims_factor(dims, "n", -1, n, FACTOR_WHOLE));
    return 0;
}

/* "d0 .. c^ .. , d0 .. n^ .. -> d0 .. c^ .." */
DIMS_FN(dims_append) {
    const struct tensor *x = input(graph, node, 0), *rows = input(graph, node, 1);
    const int axis = (int)attr_int(node, "axis", -1);
    const int64_t at = attr_int(node, "at", -1);
    if (axis < 0 || axis >= x->ndim || rows->ndim != x->ndim) return refuse(dims, why, "needs a dimension of both");
    if (at < 0 || !open_at_most(graph->open, open_sum(graph->open, at, rows->dims[axis]), x->dims[axis]))
        return refuse(dims, why, "the rows exceed dimension %d of extent %lld", axis, (long long)x->dims[axis]);
    bind_each(dims, &dims->operand[0], x, "d", FACTOR_PASS);
    dims->factor[dims->operand[0].dim[axis].factor[0]].kind = FACTOR_WHOLE;
    dims->operand[1] = dims->operand[2] = dims->operand[0];
    dims_set(&dims->operand[1], axis, dims_factor(dims, "n", -1, rows->dims[axis], FACTOR_WHOLE));
    for (int d = 0; d < x->ndim; d++)
        if (d != axis && !open_meet(graph->open, x->dims[d], rows->dims[d]))
            return refuse(dims, why, "the rows have extent %lld in dimension %d, not %lld", (long long)rows->dims[d], d,
                          (long long)x->dims[d]);
    return 0;
}

DIMS_FN(dims_bit_cast) {
    const enum rt_dtype from = input(graph, node, 0)->dtype, to = rt_dtype_by_name(attr_text(node, "to", ""));
    if (to == RT_DTYPE_NONE || rt_dtype_bytes(to) != rt_dtype_bytes(from))
        return refuse(dims, why, "type %s does not have elements of %zu bytes", attr_text(node, "to", ""),
                      rt_dtype_bytes(from));
    return dims_same(dims, graph, node, why);
}

/* Binds the annotation "*, *, .. -> *, ..". */
DIMS_FN(dims_fused) {
    if (node->ninputs < 1 || node->ninputs > EXPR_INPUTS) return refuse(dims, why, "takes 1 to %d inputs", EXPR_INPUTS);
    const struct expr_chain *chain = expr_texts_chain(graph->texts, attr_text(node, "expr", ""), node->ninputs, false);
    if (!chain || chain->nvalues != node->noutputs)
        return refuse(dims, why, "expr is not an expression of the inputs for each output");
    struct strbuf text = {.arena = dims->arena};
    for (int k = 0; k < node->ninputs; k++) strbuf_puts(&text, k ? ", *" : "*");
    for (int o = 0; o < node->noutputs; o++) strbuf_puts(&text, o ? ", *" : " -> *");
    return dims_bind_text(dims, strbuf_text(&text), graph, node, why);
}

/* Reshape: the finest factors of which both shapes are products */

/* A run of adjacent dimensions of one shape whose product equals that of a run of the other shape. */
struct run {
    const int64_t *dims;
    int first, end;
};

/* Reads the next boundary of a run: the product of its dimensions up to and including the first whose product
 * reaches more than `done`. */
static int64_t next_boundary(const struct run *run, int64_t done) {
    int64_t product = 1;
    for (int d = run->first; d < run->end; d++) {
        product *= run->dims[d];
        if (product > done) return product;
    }
    return product;
}

/* Gives each dimension of the run the factors that lie between its boundaries. factors[i] spans (bound[i],
 * bound[i+1]]. */
static void assign_factors(struct operand *operand, const struct run *run, const int64_t *bound, const int *factors,
                           int n) {
    int64_t product = 1;
    int i = 0;
    for (int d = run->first; d < run->end; d++) {
        product *= run->dims[d];
        struct dim_factors *to = &operand->dim[d];
        for (; i < n && bound[i + 1] <= product; i++) to->factor[to->n++] = (signed char)factors[i];
    }
}

/* Adds the factors of two runs of equal product: one between every two neighbouring boundaries of either run, if each
 * boundary divides the next; otherwise no dimension may be split. Returns -1 if there are too many factors. */
static int bind_runs(struct dims *dims, struct run in, struct run out, int *next) {
    int64_t bound[2 * RT_MAX_NDIM + 1] = {1}, total = 1;
    int factors[2 * RT_MAX_NDIM], n = 0;
    for (int d = in.first; d < in.end; d++) total *= in.dims[d];
    while (bound[n] < total) {
        int64_t a = next_boundary(&in, bound[n]), b = next_boundary(&out, bound[n]);
        bound[n + 1] = a < b ? a : b;
        if (bound[n + 1] % bound[n]) break;
        factors[n] = dims_factor(dims, "r", (*next)++, bound[n + 1] / bound[n], FACTOR_PASS);
        if (factors[n++] < 0) return -1;
    }
    if (bound[n] == total) {
        assign_factors(&dims->operand[0], &in, bound, factors, n);
        assign_factors(&dims->operand[1], &out, bound, factors, n);
        return 0;
    }
    dims->nfactors -= n; /* the last ones made: no operand has them */
    *next -= n;
    for (int side = 0; side < 2; side++) {
        const struct run *run = side ? &out : &in;
        for (int d = run->first; d < run->end; d++) {
            if (run->dims[d] == 1) continue;
            int factor = dims_factor(dims, "w", (*next)++, run->dims[d], FACTOR_WHOLE);
            if (factor < 0) return -1;
            dims_set(&dims->operand[side], d, factor);
        }
    }
    return 0;
}

static int bind_empty(struct dims *dims, const struct tensor *x, int ndim, const int64_t *shape) {
    bind_each(dims, &dims->operand[0], x, "a", FACTOR_WHOLE);
    dims->operand[1].ndim = ndim;
    for (int d = 0; d < ndim; d++) dims_set(&dims->operand[1], d, dims_factor(dims, "b", d, shape[d], FACTOR_WHOLE));
    return 0;
}

DIMS_FN(dims_reshape) {
    const struct tensor *x = input(graph, node, 0);
    int ndim, next = 0;
    const int64_t *shape = attr_ints(node, "shape", &ndim);
    int64_t elements;
    if (ndim > RT_MAX_NDIM || !rt_product(shape, ndim, &elements) || elements != tensor_elements(x))
        return refuse(dims, why, "%s cannot be reshaped to that shape", tensor_type(dims->arena, x));
    if (!elements) return bind_empty(dims, x, ndim, shape);
    dims->operand[0].ndim = x->ndim;
    dims->operand[1].ndim = ndim;
    struct run in = {x->dims, 0, 0}, out = {shape, 0, 0};
    while (in.first < x->ndim || out.first < ndim) {
        int64_t a = 1, b = 1;
        if (in.end < x->ndim) a = x->dims[in.end++];
        if (out.end < ndim) b = shape[out.end++];
        while (a != b) {
            if (a < b)
                a *= x->dims[in.end++];
            else
                b *= shape[out.end++];
        }
        if (bind_runs(dims, in, out, &next) < 0) return refuse(dims, why, "too many dimensions");
        in.first = in.end;
        out.first = out.end;
    }
    return 0;
}

void split_shape(struct graph *graph, const struct dims *dims, const int64_t (*local)[RT_MAX_NDIM], struct node *node) {
    int out = dims->ninputs;
    attr_set(graph, node, attr_of_ints("shape", dims->operand[out].ndim, local[out]));
}

/* Transpose, Expand, Slice */

DIMS_FN(dims_transpose) {
    const struct tensor *x = input(graph, node, 0);
    int n;
    unsigned seen = 0;
    const int64_t *perm = attr_ints(node, "perm", &n);
    for (int i = 0; i < n && n == x->ndim; i++)
        if (perm[i] >= 0 && perm[i] < n) seen |= 1u << perm[i];
    if (n != x->ndim || seen != (1u << n) - 1)
        return refuse(dims, why, "perm is not a permutation of %d dimension(s)", x->ndim);
    bind_each(dims, &dims->operand[0], x, "d", FACTOR_PASS);
    dims->operand[1].ndim = n;
    for (int i = 0; i < n; i++) dims->operand[1].dim[i] = dims->operand[0].dim[perm[i]];
    return 0;
}

DIMS_FN(dims_expand) {
    const struct tensor *x = input(graph, node, 0);
    int n;
    const int64_t *shape = attr_ints(node, "shape", &n);
    if (n < x->ndim || n > RT_MAX_NDIM)
        return refuse(dims, why, "the shape has %d dimension(s), the input %d", n, x->ndim);
    dims->operand[0].ndim = x->ndim;
    dims->operand[1].ndim = n;
    for (int d = 0; d < n; d++) {
        int from = d - (n - x->ndim), factor = dims_factor(dims, "d", d, shape[d], FACTOR_PASS);
        bool repeats = from < 0 || (x->dims[from] == 1 && shape[d] != 1);
        if (!repeats && !open_meet(graph->open, x->dims[from], shape[d]))
            return refuse(dims, why, "cannot repeat %lld to %lld in dimension %d", (long long)x->dims[from],
                          (long long)shape[d], d);
        dims_set(&dims->operand[1], d, factor);
        if (!repeats) dims_set(&dims->operand[0], from, factor);
    }
    return 0;
}

/* If a slice takes one of S equal pieces of a dimension, the dimension is the compound (S d), and d may be split. So
 * the three pieces of a fused query-key-value product can be split in the same way. */
static bool is_piece(int64_t extent, int64_t start, int64_t step, int64_t size) {
    return step == 1 && size > 0 && size < extent && extent % size == 0 && start % size == 0;
}

static bool slice_fits(int64_t extent, int64_t start, int64_t step, int64_t size) {
    int64_t last;
    if (size == 0) return true;
    return size > 0 && start >= 0 && start < extent && rt_mul(size - 1, step, &last) && rt_add(start, last, &last) &&
           last >= 0 && last < extent;
}

/* At every corner of the sizes' ranges, between which starts, extents and their differences grow or fall. */
static bool open_slice_fits(struct open_sizes *open, int64_t extent, int64_t start, int64_t step, int64_t size) {
    int64_t sizes[OPEN_SIZES];
    if (!open_is(open, extent) && !open_is(open, start) && !open_is(open, size))
        return slice_fits(extent, start, step, size);
    if (step == 1 && start >= 0 && size >= 0 && open_at_most(open, open_sum(open, start, size), extent)) return true;
    for (unsigned corner = 0; corner < 1u << open->all.n; corner++) {
        for (int i = 0; i < open->all.n; i++) {
            const struct open_range *range = &open->all.at[i].range;
            sizes[i] = corner >> i & 1 ? range->most : range->least;
        }
        if (!slice_fits(open_at(open, extent, sizes), open_at(open, start, sizes), step, open_at(open, size, sizes)))
            return false;
    }
    return true;
}

DIMS_FN(dims_slice) {
    const struct tensor *x = input(graph, node, 0);
    int n, nstep, nsize;
    const int64_t *start = attr_ints(node, "start", &n), *step = attr_ints(node, "step", &nstep);
    const int64_t *size = attr_ints(node, "size", &nsize);
    if (n != x->ndim || nstep != n || nsize != n) return refuse(dims, why, "needs start, step and size per dimension");
    struct operand *in = &dims->operand[0], *out = &dims->operand[1];
    in->ndim = out->ndim = n;
    for (int d = 0; d < n; d++) {
        if (!open_slice_fits(graph->open, x->dims[d], start[d], step[d], size[d]))
            return refuse(dims, why, "the slice exceeds dimension %d of extent %lld", d, (long long)x->dims[d]);
        bool piece = is_piece(x->dims[d], start[d], step[d], size[d]);
        bool all = size[d] == x->dims[d] && step[d] == 1;
        if (piece) {
            in->dim[d].factor[in->dim[d].n++] =
                (signed char)dims_factor(dims, "s", d, x->dims[d] / size[d], FACTOR_WHOLE);
            in->dim[d].factor[in->dim[d].n++] = (signed char)dims_factor(dims, "d", d, size[d], FACTOR_PASS);
            dims_set(out, d, in->dim[d].factor[1]);
        } else {
            dims_set(in, d, dims_factor(dims, "d", d, x->dims[d], all ? FACTOR_PASS : FACTOR_WHOLE));
            dims_set(out, d, all ? in->dim[d].factor[0] : dims_factor(dims, "t", d, size[d], FACTOR_WHOLE));
        }
    }
    return 0;
}

void split_slice(struct graph *graph, const struct dims *dims, const int64_t (*local)[RT_MAX_NDIM], struct node *node) {
    int n, out = dims->ninputs;
    const int64_t *start = attr_ints(node, "start", &n), *size = attr_ints(node, "size", &n);
    int64_t moved[RT_MAX_NDIM];
    for (int d = 0; d < n; d++) moved[d] = size[d] ? start[d] / size[d] * local[out][d] + start[d] % size[d] : start[d];
    for (int d = 0; d < n; d++)
        if (local[out][d] == size[d]) moved[d] = start[d];
    attr_set(graph, node, attr_of_ints("start", n, moved));
    attr_set(graph, node, attr_of_ints("size", n, local[out]));
}

/* A Concat of S equal pieces is the inverse: its result's dimension is (S d). With unequal pieces the dimension is not
 * split. */
DIMS_FN(dims_concat) {
    const struct tensor *first = input(graph, node, 0);
    int64_t axis = attr_int(node, "axis", -1), total = 0;
    bool equal = true;
    if (axis < 0 || axis >= first->ndim)
        return refuse(dims, why, "axis %lld is out of range for %d dimension(s)", (long long)axis, first->ndim);
    for (int i = 0; i < node->ninputs; i++) {
        const struct tensor *x = input(graph, node, i);
        if (x->ndim != first->ndim) return refuse(dims, why, "inputs have %d and %d dimensions", first->ndim, x->ndim);
        for (int d = 0; d < x->ndim; d++)
            if (d != axis && !open_meet(graph->open, x->dims[d], first->dims[d]))
                return refuse(dims, why, "input %d has extent %lld in dimension %d, but the first input has %lld", i,
                              (long long)x->dims[d], d, (long long)first->dims[d]);
        equal = equal && x->dims[axis] == first->dims[axis];
        if (!rt_add(total, x->dims[axis], &total)) return refuse(dims, why, "the result is too large");
    }
    struct operand *out = &dims->operand[node->ninputs];
    bind_each(dims, &dims->operand[0], first, "d", FACTOR_PASS);
    int whole = dims_factor(dims, equal ? "s" : "t", -1, equal ? node->ninputs : total, FACTOR_WHOLE);
    *out = dims->operand[0];
    int along = out->dim[axis].factor[0];
    if (equal) {
        out->dim[axis].n = 2;
        out->dim[axis].factor[0] = (signed char)whole;
        out->dim[axis].factor[1] = (signed char)along;
    } else {
        dims_set(out, (int)axis, whole);
        dims->factor[along].kind = FACTOR_WHOLE;
    }
    for (int i = 1; i < node->ninputs; i++) {
        dims->operand[i] = dims->operand[0];
        if (!equal) dims->operand[i].dim[axis].n = 0; /* not split: it needs no factor */
    }
    return 0;
}

/* Negative padding removes elements. Amounts are bounded so that indices cannot overflow. */
static bool pad_extent(int64_t extent, int64_t begin, int64_t end, int64_t *padded) {
    const int64_t most = (int64_t)1 << 48;
    if (begin < -most || begin > most || end < -most || end > most) return false;
    *padded = extent + begin + end;
    return *padded >= 0;
}

DIMS_FN(dims_pad) {
    const struct tensor *x = input(graph, node, 0), *value = input(graph, node, 1);
    int n, nend;
    const int64_t *begin = attr_ints(node, "begin", &n), *end = attr_ints(node, "end", &nend);
    struct operand *out = &dims->operand[2];
    if (n != x->ndim || nend != n) return refuse(dims, why, "needs begin and end per dimension");
    if (tensor_elements(value) != 1) return refuse(dims, why, "the value must be one element");
    bind_each(dims, &dims->operand[0], x, "d", FACTOR_PASS);
    dims->operand[1].ndim = value->ndim;
    *out = dims->operand[0];
    for (int d = 0; d < n; d++) {
        int64_t extent;
        if (!begin[d] && !end[d]) continue;
        if (!pad_extent(x->dims[d], begin[d], end[d], &extent))
            return refuse(dims, why, "the padding of dimension %d is out of range", d);
        extent = open_sum(graph->open, open_sum(graph->open, x->dims[d], begin[d]), end[d]);
        dims->factor[dims->operand[0].dim[d].factor[0]].kind = FACTOR_WHOLE;
        dims_set(out, d, dims_factor(dims, "e", d, extent, FACTOR_WHOLE));
    }
    return 0;
}

/* data (p.., v+, q..), index (i..) -> (p.., i.., q..). */
DIMS_FN(dims_gather) {
    const struct tensor *x = input(graph, node, 0), *index = input(graph, node, 1);
    int64_t axis = attr_int(node, "axis", 0);
    if (axis < 0 || axis >= x->ndim)
        return refuse(dims, why, "axis %lld is out of range for %d dimension(s)", (long long)axis, x->ndim);
    if (x->ndim - 1 + index->ndim > RT_MAX_NDIM)
        return refuse(dims, why, "the result has more than %d dimensions", RT_MAX_NDIM);
    struct operand *in = &dims->operand[0], *out = &dims->operand[2];
    in->ndim = x->ndim;
    enum factor_kind kind = x->dtype == RT_BOOL ? FACTOR_WHOLE : FACTOR_SUM;
    for (int d = 0; d < x->ndim; d++)
        dims_set(in, d,
                 d == axis ? dims_factor(dims, "v", -1, x->dims[d], kind)
                           : dims_factor(dims, d < axis ? "p" : "q", d, x->dims[d], FACTOR_PASS));
    bind_each(dims, &dims->operand[1], index, "i", FACTOR_PASS);
    for (int d = 0; d < axis; d++) out->dim[out->ndim++] = in->dim[d];
    for (int d = 0; d < index->ndim; d++) out->dim[out->ndim++] = dims->operand[1].dim[d];
    for (int d = (int)axis + 1; d < x->ndim; d++) out->dim[out->ndim++] = in->dim[d];
    return 0;
}

EVAL(eval_copy) {
    memcpy(eval->y, eval->x[0], (size_t)tensor_bytes(eval->out));
    return 0;
}

/* Sets `from` to the input index of output index `at`; false if the element is zero or the pad value instead. */
static bool map_transpose(const struct eval *eval, const int64_t *at, int64_t *from) {
    int n;
    const int64_t *perm = attr_ints(eval->node, "perm", &n);
    for (int d = 0; d < n; d++) from[perm[d]] = at[d];
    return true;
}

static bool map_expand(const struct eval *eval, const int64_t *at, int64_t *from) {
    const struct tensor *x = eval->in[0];
    for (int d = 0; d < x->ndim; d++) from[d] = x->dims[d] == 1 ? 0 : at[eval->out->ndim - x->ndim + d];
    return true;
}

static bool map_slice(const struct eval *eval, const int64_t *at, int64_t *from) {
    int n;
    const int64_t *start = attr_ints(eval->node, "start", &n), *step = attr_ints(eval->node, "step", &n);
    for (int d = 0; d < n; d++) from[d] = start[d] + at[d] * step[d];
    return true;
}

static bool map_pad(const struct eval *eval, const int64_t *at, int64_t *from) {
    int n;
    const int64_t *begin = attr_ints(eval->node, "begin", &n);
    bool inside = true;
    for (int d = 0; d < n; d++) {
        from[d] = at[d] - begin[d];
        inside = inside && from[d] >= 0 && from[d] < eval->in[0]->dims[d];
    }
    return inside;
}

static bool map_trilu(const struct eval *eval, const int64_t *at, int64_t *from) {
    int n = eval->out->ndim;
    for (int d = 0; d < n; d++) from[d] = at[d];
    int64_t diagonal = at[n - 1] - at[n - 2], k = attr_int(eval->node, "k", 0);
    return attr_int(eval->node, "upper", 1) ? diagonal >= k : diagonal <= k;
}

static const struct {
    enum op_id op;
    bool (*map)(const struct eval *eval, const int64_t *at, int64_t *from);
} maps[] = {{OP_Transpose, map_transpose},
            {OP_Expand, map_expand},
            {OP_Slice, map_slice},
            {OP_Pad, map_pad},
            {OP_Trilu, map_trilu}};

EVAL(eval_mapped) {
    const struct tensor *x = eval->in[0];
    int64_t at[RT_MAX_NDIM] = {0}, from[RT_MAX_NDIM] = {0}, i = 0;
    size_t row = 0;
    while (maps[row].op != eval->node->op->id) row++;
    if (!tensor_elements(eval->out)) return 0;
    do {
        if (maps[row].map(eval, at, from))
            copy_elements(eval, i, 0, eval_offset(from, x->dims, x->ndim), 1);
        else if (eval->node->ninputs > 1)
            copy_elements(eval, i, 1, 0, 1);
        i++;
    } while (eval_next(at, eval->out->dims, eval->out->ndim));
    return 0;
}

EVAL(eval_concat) {
    int64_t axis = attr_int(eval->node, "axis", 0), outer = 1, inner = 1, done = 0;
    const struct tensor *out = eval->out;
    for (int d = 0; d < axis; d++) outer *= out->dims[d];
    for (int d = (int)axis + 1; d < out->ndim; d++) inner *= out->dims[d];
    size_t size = rt_dtype_bytes(out->dtype);
    for (int i = 0; i < eval->node->ninputs; i++) {
        size_t run = (size_t)(eval->in[i]->dims[axis] * inner) * size;
        for (int64_t o = 0; o < outer && run; o++)
            memcpy(eval->y + (size_t)((o * out->dims[axis] + done) * inner) * size,
                   (const char *)eval->x[i] + (size_t)o * run, run);
        done += eval->in[i]->dims[axis];
    }
    return 0;
}

/* A divisor that contains 0 is not folded: the error belongs to the step, which need not reach the division. */
EVAL(eval_divisor) {
    const int64_t count = tensor_elements(eval->out);
    for (int64_t i = 0; i < count; i++)
        if (eval_load(eval->x[0], eval->out->dtype, i).i == 0) return -1;
    memcpy(eval->y, eval->x[0], (size_t)tensor_bytes(eval->out));
    return 0;
}
