/* Operators that change the shape or repeat elements: Reshape, Expand, Tile, DepthToSpace and the like. */
#include "frontend/lower/lower_counted.h"

#include "runtime/base/number/checked.h"

/* Records which extents must be equal for both shapes to have as many elements (lower_meet). Extents that both shapes
 * have cancel out. If one shape has a single extent left, that equals the product of those left in the other.
 * Otherwise, extents at the same place that are equal at typical sizes are taken to be equal. `open`: the dimension
 * whose extent is inferred; -1: none. */
static void meet_elements(struct lower *lower, const struct tensor *from, const struct tensor *to, int open) {
    struct open_sizes *sizes = lower_open(lower);
    int64_t left[RT_MAX_NDIM], right = 1, product = 1;
    int nleft = from->ndim, nright = 0;
    memcpy(left, from->dims, sizeof left);
    for (int d = 0; d < to->ndim; d++) {
        int k = 0;
        while (k < nleft && left[k] != to->dims[d]) k++;
        if (k < nleft)
            left[k] = left[--nleft];
        else
            right *= to->dims[d], nright++;
    }
    for (int k = 0; k < nleft; k++) product *= left[k];
    if (open < 0 && (nleft == 1 || nright == 1)) {
        lower_meet(lower, product, right);
        return;
    }
    for (int d = 0; d < to->ndim && d < from->ndim; d++)
        if (d != open && open_typical(sizes, from->dims[d]) == open_typical(sizes, to->dims[d]))
            lower_meet(lower, from->dims[d], to->dims[d]);
}

/* Reshapes an operand that is not counted. A single extent that is not known is inferred from the others. An extent of
 * 0 at the same place in both shapes is the same dimension and is left out: [2,0,8] as [2,0,4,-1] is [2,0,4,2]. */
static int reshape_whole(struct lower *lower, int n, const struct amount *given, int open) {
    const struct tensor x = lower_input(lower, 0);
    struct tensor from = x, to = {.ndim = n}; /* without those dimensions */
    int64_t shape[RT_MAX_NDIM], rest = 0, left = 0, elements = tensor_elements(&x);
    for (int d = 0; d < n; d++) {
        if (given[d].n && open >= 0) return lower_too_open(lower);
        if (given[d].n) open = d;
    }
    for (int d = 0; d < n; d++) {
        shape[d] = to.dims[d] = d == open ? 1 : given[d].offset;
        if (d < x.ndim && !shape[d] && !x.dims[d]) from.dims[d] = to.dims[d] = 1;
    }
    bool fits = rt_product(to.dims, n, &rest) && rt_product(from.dims, x.ndim, &left);
    if (open >= 0) shape[open] = rest ? left / rest : 0;
    fits = fits && rt_product(shape, n, &rest);
    if (fits && rest == elements) return lower_result(lower, emit_reshape(lower, lower->inputs[0], n, shape));
    memcpy(to.dims, shape, (size_t)n * sizeof *shape);
    if (fits) meet_elements(lower, &x, &to, open);
    return lower_error(lower, 377, "the shape does not have the %lld element(s) of the input %s", (long long)elements,
                       lower_type(lower, &x));
}

static int reshape(struct lower *lower, int n, const struct amount *shape, int open) {
    if (!lower_counted(lower, lower->inputs[0])) return reshape_whole(lower, n, shape, open);
    return lower_result(lower, lower_reshaped(lower, lower->inputs[0], n, shape, open));
}

/* ONNX Reshape-14: 0 copies the input's extent unless allowzero is set; one extent may be -1 and is inferred. */
int lower_reshape(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int n, open = -1;
    const struct amount *given = lower_amounts(lower, 1, "shape", &n);
    struct amount shape[RT_MAX_NDIM];
    if (!given) return -1;
    if (n > RT_MAX_NDIM)
        return lower_error(lower, 506, "a shape of %d dimension(s): at most %d are supported", n, RT_MAX_NDIM);
    for (int d = 0; d < n; d++) {
        const int64_t extent = given[d].n ? given[d].most : given[d].offset;
        bool copies = extent == 0 && !lower_int(lower, "allowzero");
        if (extent < -1 || (extent == -1 && open >= 0) || (copies && d >= x.ndim))
            return lower_error(lower, 377, "invalid extent %lld in dimension %d of the shape", (long long)extent, d);
        shape[d] = copies ? lower_extent(lower, lower->inputs[0], d) : given[d];
        if (extent == -1) open = d;
    }
    return reshape(lower, n, shape, open);
}

int lower_flatten(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int64_t axis = lower_int(lower, "axis");
    if (axis < -x.ndim || axis > x.ndim)
        return lower_error(lower, 375, "axis %lld is out of range for %d dimension(s)", (long long)axis, x.ndim);
    if (axis < 0) axis += x.ndim;
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    const struct amount shape[] = {amount_of_number(extent_between(&x, 0, (int)axis)),
                                   amount_of_number(extent_between(&x, (int)axis, x.ndim))};
    return reshape(lower, 2, shape, counted ? counted->dim >= axis : -1);
}

/* Without axes, an extent that is 1 for some sizes would be a dimension for others alone. */
static int check_squeezed(struct lower *lower, int64_t extent) {
    if (!open_is(lower_open(lower), extent)) return 0;
    return lower_at_least(lower, extent, 2, "an extent that Squeeze without axes keeps", "2 or more");
}

int lower_squeeze(struct lower *lower) {
    const struct tensor *x = &lower->builder.graph->tensors.at[lower->inputs[0]];
    const int64_t *axes;
    bool flags[RT_MAX_NDIM];
    int64_t shape[RT_MAX_NDIM];
    int n, ndim = 0;
    if (lower_list(lower, 1, "axes", &axes, &n) < 0 || lower_axes(lower, axes, n, x->ndim, flags) < 0) return -1;
    for (int d = 0; d < x->ndim; d++) {
        bool taken = axes ? flags[d] : x->dims[d] == 1; /* no counted dimension has extent 1 */
        if (taken && x->dims[d] != 1)
            return lower_error(lower, 375, "dimension %d has extent %lld, not 1", d, (long long)x->dims[d]);
        if (!taken && !axes && check_squeezed(lower, x->dims[d]) < 0) return -1;
        if (!taken) shape[ndim++] = x->dims[d];
    }
    return lower_result(lower, emit_reshape(lower, lower->inputs[0], ndim, shape));
}

int lower_unsqueeze(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    const int64_t *axes;
    bool flags[RT_MAX_NDIM];
    int64_t shape[RT_MAX_NDIM];
    int n;
    if (lower_list(lower, 1, "axes", &axes, &n) < 0) return -1;
    if (n > RT_MAX_NDIM - x.ndim)
        return lower_error(lower, 506, "%d and %d dimensions: at most %d are supported", x.ndim, n, RT_MAX_NDIM);
    if (lower_axes(lower, axes, n, x.ndim + n, flags) < 0) return -1;
    for (int d = 0, from = 0; d < x.ndim + n; d++) shape[d] = flags[d] ? 1 : x.dims[from++];
    return lower_result(lower, emit_reshape(lower, lower->inputs[0], x.ndim + n, shape));
}

int lower_transpose(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int n = x.ndim;
    unsigned seen = 0;
    int64_t perm[RT_MAX_NDIM];
    const int64_t *given = lower_ints(lower, "perm", &n);
    if (!given) n = x.ndim;
    for (int d = 0; d < n && d < RT_MAX_NDIM; d++) {
        perm[d] = given ? given[d] : n - 1 - d;
        if (perm[d] >= 0 && perm[d] < x.ndim) seen |= 1u << perm[d];
    }
    if (n != x.ndim || seen != (1u << n) - 1)
        return lower_error(lower, 376, "perm is not a permutation of %d dimension(s)", x.ndim);
    return lower_result(lower, emit_transpose(lower, lower->inputs[0], perm));
}

/* An extent of the shape that Expand broadcasts dimension `at` of x to; at < 0: x has no such dimension. *open: the
 * extent is a size that depends on data. A known size and one that depends on data are equal, unless one is 1. */
static int expanded(struct lower *lower, int at, const struct amount *given, int64_t *extent, bool *open) {
    const struct amount one = amount_of_number(1), own = at < 0 ? one : lower_extent(lower, lower->inputs[0], at);
    const bool is_one = amount_equal(lower->shared, &own, &one);
    *open = is_one && given->n;
    *extent = *open ? (given->most > 2 ? given->most : 2) : given->offset;
    if (*open || (!own.n && !given->n)) return 0;
    *extent = lower_input(lower, 0).dims[at];
    if (!own.n || amount_equal(lower->shared, given, &one) || amount_equal(lower->shared, given, &own)) return 0;
    return lower_error(lower, 410, "the shape is not that of the operand, which depends on data");
}

/* ONNX Expand-13: bidirectional broadcasting of the input's shape and the given one. */
int lower_expand(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int n, ndim, dynamic = -1;
    int64_t dims[RT_MAX_NDIM], shape[RT_MAX_NDIM];
    const struct amount *given = lower_amounts(lower, 1, "shape", &n);
    if (!given) return -1;
    for (int d = 0; d < n && n <= RT_MAX_NDIM; d++) {
        bool open;
        if (!given[d].n && given[d].offset < 0)
            return lower_error(lower, 377, "invalid extent %lld in dimension %d of the shape",
                               (long long)given[d].offset, d);
        if (expanded(lower, d - (n - x.ndim), &given[d], &shape[d], &open) < 0) return -1;
        if (open && dynamic >= 0) return lower_too_open(lower);
        if (open) dynamic = d;
    }
    if (n > RT_MAX_NDIM || !broadcast_dims(lower->builder.graph->open, x.ndim, x.dims, n, shape, &ndim, dims))
        return lower_error(lower, 378, "%s does not expand to that shape", lower_type(lower, &x));
    const int y = emit_expand(lower, lower->inputs[0], ndim, dims);
    return lower_result(lower, dynamic < 0 ? y : lower_sized(lower, y, dynamic + ndim - n, &given[dynamic]));
}

/* Repeats one dimension: (p, 1, q) -> (p, n, q) -> (p, n x q). */
static int tile_axis(struct lower *lower, int x, int axis, int64_t times) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    int64_t before = extent_between(&tensor, 0, axis), after = extent_between(&tensor, axis, tensor.ndim);
    x = emit_reshape(lower, x, 3, (int64_t[]){before, 1, after});
    x = emit_expand(lower, x, 3, (int64_t[]){before, times, after});
    tensor.dims[axis] *= times;
    return emit_reshape(lower, x, tensor.ndim, tensor.dims);
}

/* Repeats all dimensions at once: each dimension d gets a new one before it, (1, d) -> (n, d) -> (n x d). */
static int tile_all(struct lower *lower, int x, const struct tensor *tensor, const int64_t *times) {
    int64_t apart[RT_MAX_NDIM], repeated[RT_MAX_NDIM], shape[RT_MAX_NDIM];
    int n = 0;
    for (int d = 0; d < tensor->ndim; d++) {
        if (times[d] != 1) {
            apart[n] = 1;
            repeated[n++] = times[d];
        }
        apart[n] = repeated[n] = tensor->dims[d];
        n++;
        shape[d] = tensor->dims[d] * times[d];
    }
    return emit_reshape(lower, emit_expand(lower, emit_reshape(lower, x, n, apart), n, repeated), tensor->ndim, shape);
}

/* Copies of a tensor that is counted along `dim`, one behind the other, are joined. */
static int tile_counted(struct lower *lower, const struct tensor *tensor, const int64_t *times, int dim) {
    if (times[dim] > ONNX_NODES || tensor->ndim > RT_MAX_NDIM / 2) return lower_too_large(lower);
    int64_t others[RT_MAX_NDIM];
    int *copies = ARENA_ARRAY(lower->arena, int, times[dim] + 1);
    for (int64_t i = 0; i < times[dim]; i++) copies[i] = lower->inputs[0];
    for (int d = 0; d < tensor->ndim; d++) others[d] = d == dim ? 1 : times[d];
    const int x = times[dim] ? lower_join(lower, dim, (int)times[dim], copies)
                             : emit_piece(lower, lower_all_valid(lower, lower->inputs[0]), dim, 0, 1, 0);
    if (x < 0) return -1;
    const struct tensor joined = lower_tensor(lower, x);
    return tile_all(lower, x, &joined, others);
}

int lower_tile(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), y = x;
    int n, more = 0;
    const int64_t *times = lower_known(lower, 1, "repeats", &n);
    if (!times) return -1;
    if (n != x.ndim) return lower_error(lower, 377, "%d repeat(s) are given for %d dimension(s)", n, x.ndim);
    for (int d = 0; d < n; d++) {
        if (times[d] < 0)
            return lower_error(lower, 377, "repeats contains the negative value %lld", (long long)times[d]);
        if (!rt_mul(x.dims[d], times[d], &y.dims[d])) return lower_too_large(lower);
        more += times[d] != 1;
    }
    if (!graph_shape_fits(lower->builder.graph, n, y.dims)) return lower_too_large(lower);
    const struct counted *counted = lower_counted(lower, lower->inputs[0]);
    if (counted && times[counted->dim] != 1) return lower_result(lower, tile_counted(lower, &x, times, counted->dim));
    if (n + more <= RT_MAX_NDIM) return lower_result(lower, tile_all(lower, lower->inputs[0], &x, times));
    int tiled = lower->inputs[0];
    for (int d = n - 1; d >= 0; d--)
        if (times[d] != 1) tiled = tile_axis(lower, tiled, d, times[d]);
    return lower_result(lower, tiled);
}

/* Reads the block size and checks that the input has four dimensions and is divisible by it. */
static int block_size(struct lower *lower, const struct tensor *x, bool to_space, int64_t *block) {
    *block = lower_int(lower, "blocksize");
    if (x->ndim != 4) return lower_error(lower, 378, "the input has %d dimension(s), not 4", x->ndim);
    bool fits = *block > 0 && *block <= 1 << 20;
    if (fits && to_space)
        fits = x->dims[1] % (*block * *block) == 0;
    else if (fits)
        fits = x->dims[2] % *block == 0 && x->dims[3] % *block == 0;
    return fits ? 0
                : lower_error(lower, 378, "blocksize %lld does not divide the extents of the input", (long long)*block);
}

int lower_depth_to_space(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    bool crd = strcmp(lower_text(lower, "mode"), "CRD") == 0;
    int64_t b;
    if (block_size(lower, &x, true, &b) < 0) return -1;
    int64_t n = x.dims[0], c = x.dims[1] / (b * b), h = x.dims[2], w = x.dims[3];
    const int64_t *apart = crd ? (int64_t[]){n, c, b, b, h, w} : (int64_t[]){n, b, b, c, h, w};
    const int64_t *perm = crd ? (int64_t[]){0, 1, 4, 2, 5, 3} : (int64_t[]){0, 3, 4, 1, 5, 2};
    int y = emit_transpose(lower, emit_reshape(lower, lower->inputs[0], 6, apart), perm);
    return lower_result(lower, emit_reshape(lower, y, 4, (int64_t[]){n, c, h * b, w * b}));
}

int lower_space_to_depth(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int64_t b;
    if (block_size(lower, &x, false, &b) < 0) return -1;
    int64_t n = x.dims[0], c = x.dims[1], h = x.dims[2] / b, w = x.dims[3] / b;
    bool crd = lower->op->since >= 28 && strcmp(lower_text(lower, "mode"), "CRD") == 0;
    int y = emit_reshape(lower, lower->inputs[0], 6, (int64_t[]){n, c, h, b, w, b});
    y = emit_transpose(lower, y, crd ? (int64_t[]){0, 1, 3, 5, 2, 4} : (int64_t[]){0, 3, 5, 1, 2, 4});
    return lower_result(lower, emit_reshape(lower, y, 4, (int64_t[]){n, c * b * b, h, w}));
}
