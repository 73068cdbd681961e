/* Convolutions and pooling: operators that slide a window over the spatial dimensions, those after batch and channels.
 *
 * Note [Windows]
 * Attributes stride, dilation, begin, end (and window, for pooling) have one number per spatial dimension. Output index
 * o reads the input indices o * stride + k * dilation - begin, for each k of the window. Indices outside the input
 * count as zero (convolution) or are left out (pooling). begin and end are the padding in front of and behind the
 * input. With ceil, the last window may extend beyond the padding if it starts before its end.
 *
 * A spatial dimension whose window and stride are 1, without padding, is an ordinary factor: each output reads one
 * input. Any other has factor o in the output and factor i (FACTOR_HALO) in the input. A split of o gives each rank a
 * part of the output positions, and of the input the window that these read (PLACED_WINDOW). Windows of neighbours
 * overlap, so ranks fetch rows from others, however the producer was split: the halo exchange. Padding is not
 * transferred: a rank's operator pads as the whole operator does, but only where its window ends with the input. Its
 * begin and end are therefore its own (rt_placement_before and _behind in runtime/base/shape/part.h; $before and
 * $behind in calls). With them it reads the same elements in the same order, includes the same elements in a mean, and
 * gives bit-identical results.
 *
 * Transposed convolutions write through windows. Their overlaps would have to be added, so o is not split.
 *
 * With attribute channels_last, channels are the last dimension of input and result, as pass channels_last
 * (passes/rewrite/channels_last.c) stores them, and the spatial ones follow the batch. Weights have the same dimensions
 * in either case. */
#include "ir/ops/ops.h"

#include <math.h>

#include "runtime/base/number/checked.h"

enum { SPATIAL = 2 }; /* the first spatial dimension of weights, and of images with channels before it */

/* Which dimensions of images are channels, and the first spatial one. */
struct image {
    int channels, spatial;
};

static struct image image_of(const struct node *node, const struct tensor *x) {
    const bool last = attr_int(node, "channels_last", 0) != 0;
    return last ? (struct image){x->ndim - 1, SPATIAL - 1} : (struct image){1, SPATIAL};
}

struct window {
    int n; /* spatial dimensions */
    bool ceil;
    struct open_sizes *open;
    int64_t extent[RT_MAX_NDIM];
    const int64_t *stride, *dilation, *begin, *end;
};

/* Reads the window of a node, except its extents. Returns NULL, or what is wrong. All numbers are bounded, so that
 * arithmetic on them cannot overflow. */
static const char *read_window(const struct graph *graph, const struct node *node, int n, struct window *w) {
    static const char *const keys[] = {"stride", "dilation", "begin", "end"};
    const int64_t *lists[4], most = (int64_t)1 << 30;
    for (int i = 0; i < 4; i++) {
        int length;
        lists[i] = attr_ints(node, keys[i], &length);
        if (length != n) return "needs stride, dilation, begin and end per spatial dimension";
        for (int d = 0; d < n; d++)
            if (open_most(graph->open, lists[i][d]) > most ||
                open_least(graph->open, lists[i][d]) < (i < 2 ? 1 : -most))
                return "a stride, dilation or padding is out of range";
    }
    *w = (struct window){
        .n = n, .open = graph->open, .stride = lists[0], .dilation = lists[1], .begin = lists[2], .end = lists[3]};
    w->ceil = attr_int(node, "ceil", 0) != 0;
    return n < 1 ? "needs a spatial dimension" : NULL;
}

static bool passes(const struct window *w, int d) {
    return w->extent[d] == 1 && w->stride[d] == 1 && !w->begin[d] && !w->end[d];
}

/* Sets *span to the number of elements from the first to the last that the window reads; false if it is too large. */
static bool span(const struct window *w, int d, int64_t *span) {
    if (w->extent[d] < 1 || w->extent[d] > (int64_t)1 << 30) return false;
    *span = (w->extent[d] - 1) * w->dilation[d] + 1;
    return *span <= (int64_t)1 << 40;
}

/* Counts the positions of the window over `in` elements; false if there are none. */
static bool positions(const struct window *w, int d, int64_t in, int64_t *out) {
    struct open_sizes *open = w->open;
    int64_t covers;
    if (!span(w, d, &covers) || in > (int64_t)1 << 48) return false;
    const int64_t padding = open_sum(open, w->begin[d], w->end[d]), beyond = w->ceil ? w->stride[d] - 1 : 0;
    const int64_t room = open_sum(open, in, open_sum(open, padding, beyond - covers));
    if (open_least(open, room) < 0) return false;
    *out = open_sum(open, open_quotient(open, room, w->stride[d]), 1);
    if (w->ceil) { /* a window starts before the padding at the end */
        const int64_t starts = open_sum(open, in, w->begin[d] - 1);
        *out = open_lesser(open, *out, open_sum(open, open_quotient(open, starts, w->stride[d]), 1));
    }
    return open_least(open, *out) > 0;
}

/* The inverse, for transposed convolutions: the number of elements that `in` positions write, without the padding. */
static bool covered(const struct window *w, int d, int64_t in, int64_t *out) {
    int64_t covers;
    if (!span(w, d, &covers) || open_least(w->open, in) < 1 || in > (int64_t)1 << 32) return false;
    if (!rt_mul(in, w->stride[d], out)) return false;
    const int64_t padding = open_sum(w->open, w->begin[d], w->end[d]);
    *out = open_sum(w->open, *out, open_sum(w->open, covers - w->stride[d], -padding));
    return open_least(w->open, *out) > 0;
}

typedef bool extent_fn(const struct window *w, int d, int64_t in, int64_t *out);

/* For each spatial dimension of input 0, operand `at` has a dimension o of the extent that `extent_of` returns and of
 * factor kind `kind`. Unless that kind is FACTOR_WHOLE, o counts positions that read windows of input 0. */
struct sliding {
    extent_fn *extent_of;
    int at;
    enum factor_kind kind;
    int spatial; /* the first spatial dimension of both */
};

/* Binds spatial dimension d: factor i of extent `in` to input 0, factor o of extent `out` to the other operand. */
static void bind_windows(struct dims *dims, const struct window *w, const struct sliding *how, int d, int64_t in,
                         int64_t out) {
    int i = dims_factor(dims, "i", d, in, FACTOR_HALO), o = dims_factor(dims, "o", d, out, how->kind);
    dims_set(&dims->operand[0], how->spatial + d, i);
    dims_set(&dims->operand[how->at], how->spatial + d, o);
    if (how->kind == FACTOR_WHOLE) return;
    struct reach reach = {.positions = out, .stride = w->stride[d], .before = w->begin[d]};
    if (!span(w, d, &reach.span)) BUG("the span of a checked window is out of range");
    dims->factor[i].over = o;
    dims->factor[i].reach = reach;
}

/* Binds the spatial dimensions of input 0 and of the operand how.at. */
static int bind_spatial(struct dims *dims, const struct window *w, const struct tensor *x, struct sliding how,
                        const char **why) {
    struct operand *in = &dims->operand[0], *out = &dims->operand[how.at];
    in->ndim = out->ndim = x->ndim;
    for (int d = 0; d < w->n; d++) {
        int64_t extent, own = x->dims[how.spatial + d];
        if (!how.extent_of(w, d, own, &extent))
            return refuse(dims, why, "the window is larger than dimension %d of extent %lld", how.spatial + d,
                          (long long)own);
        if (!passes(w, d)) {
            bind_windows(dims, w, &how, d, own, extent);
            continue;
        }
        int i = dims_factor(dims, "i", d, own, how.kind == FACTOR_SUM ? FACTOR_SUM : FACTOR_PASS);
        dims_set(in, how.spatial + d, i);
        dims_set(out, how.spatial + d, i);
    }
    return 0;
}

/* Binds dimension `dim` to the compound (g f), or to f if there is one group (g < 0). */
static void set_grouped(struct operand *operand, int dim, int g, int f) {
    struct dim_factors *to = &operand->dim[dim];
    if (g >= 0) to->factor[to->n++] = (signed char)g;
    to->factor[to->n++] = (signed char)f;
}

/* x (n, (g c+), i..), w ((g m), c+, k..) -> y (n, (g m), o..), with w ((g c+), m, k..) if transposed. A split of g
 * divides the groups: a rank has the input and output channels of its groups. */
DIMS_FN(dims_conv) {
    const struct tensor *x = input(graph, node, 0), *w = input(graph, node, 1);
    const bool transposed = node->op->id == OP_ConvTranspose;
    const struct image image = image_of(node, x);
    int64_t groups = attr_int(node, "group", 1);
    struct window window;
    if (x->ndim < 3 || w->ndim != x->ndim)
        return refuse(dims, why, "input and weights have %d and %d dimensions", x->ndim, w->ndim);
    if ((*why = read_window(graph, node, x->ndim - SPATIAL, &window))) return -1;
    const int64_t channels = x->dims[image.channels], each = transposed ? w->dims[0] : w->dims[1];
    if (groups < 1 || w->dims[0] % groups || (transposed ? channels : channels / groups) != each || channels % groups)
        return refuse(dims, why, "weights %s do not fit %lld channel(s) in %lld group(s)", tensor_type(dims->arena, w),
                      (long long)channels, (long long)groups);
    struct operand *in = &dims->operand[0], *weights = &dims->operand[1], *out = &dims->operand[2];
    int n = dims_factor(dims, "n", -1, x->dims[0], FACTOR_PASS);
    int g = groups == 1 ? -1 : dims_factor(dims, "g", -1, groups, FACTOR_PASS);
    int c = dims_factor(dims, "c", -1, channels / groups, FACTOR_SUM);
    int m = dims_factor(dims, "m", -1, transposed ? w->dims[1] : w->dims[0] / groups, FACTOR_PASS);
    dims_set(in, 0, n);
    dims_set(out, 0, n);
    set_grouped(in, image.channels, g, c);
    set_grouped(out, image.channels, g, m);
    set_grouped(weights, 0, g, transposed ? c : m);
    dims_set(weights, 1, transposed ? m : c);
    weights->ndim = w->ndim;
    for (int d = 0; d < window.n; d++) {
        window.extent[d] = w->dims[SPATIAL + d];
        dims_set(weights, SPATIAL + d, dims_factor(dims, "k", d, window.extent[d], FACTOR_WHOLE));
    }
    const struct sliding reads = {positions, 2, FACTOR_PASS, image.spatial},
                         writes = {covered, 2, FACTOR_WHOLE, image.spatial};
    if (bind_spatial(dims, &window, x, transposed ? writes : reads, why) < 0) return -1;
    if (image.spatial != SPATIAL) dims->alternative = 1;
    if (!attr_find(node, "expr")) return 0;
    return attr_int(node, "packed", 0) ? bind_epilogue(dims, graph, node, why)
                                       : refuse(dims, why, "only convolutions with packed weights have an expression");
}

/* Sets attribute group to the number of groups on this rank. All operands are split by the same groups. */
SPLIT_ATTR(split_conv) {
    const int weights = node->op->id == OP_ConvWeightGrad ? 2 : 1;
    const int operand = node->op->id == OP_ConvTranspose ? dims->ninputs : 0;
    const int channels = attr_int(node, "channels_last", 0) ? dims->operand[0].ndim - 1 : 1;
    if (local[weights][1]) attr_set(graph, node, attr_of_int("group", local[operand][channels] / local[weights][1]));
}

/* Reads the window of a node that has its extents in attribute window. */
static int read_extents(struct dims *dims, const struct graph *graph, const struct node *node, const struct tensor *x,
                        struct window *window, const char **why) {
    int n;
    const int64_t *extents = attr_ints(node, "window", &n);
    if (x->ndim != n + SPATIAL)
        return refuse(dims, why, "a window of %d dimension(s) does not fit %s", n, tensor_type(dims->arena, x));
    if ((*why = read_window(graph, node, n, window))) return -1;
    for (int d = 0; d < n; d++) window->extent[d] = extents[d];
    return 0;
}

/* Checks that the gradient of a result has the shape of the result. */
static int check_positions(struct dims *dims, const struct tensor *dy, const char **why) {
    if (dims_fits(dims, 1, dy)) return 0;
    return refuse(dims, why, "the gradient %s is of another result", tensor_type(dims->arena, dy));
}

/* x (n+, (g c), i..) and the gradient (n+, (g m), o+..), or both with channels last -> weights ((g m), c, k..). Every
 * weight's gradient is a sum over samples and positions, so ranks that hold a part of these have partial sums. */
DIMS_FN(dims_conv_weight_grad) {
    const struct tensor *x = input(graph, node, 0), *dy = input(graph, node, 1);
    struct operand *in = &dims->operand[0], *out = &dims->operand[1], *weights = &dims->operand[2];
    int64_t groups = attr_int(node, "group", 1);
    struct window window;
    if (read_extents(dims, graph, node, x, &window, why) < 0) return -1;
    const struct image image = image_of(node, x);
    const int channels = image.channels;
    if (groups < 1 || x->dims[channels] % groups || dy->ndim <= channels || dy->dims[channels] % groups)
        return refuse(dims, why, "%lld group(s) do not fit the channels of %s and %s", (long long)groups,
                      tensor_type(dims->arena, x), tensor_type(dims->arena, dy));
    int n = dims_factor(dims, "n", -1, x->dims[0], FACTOR_SUM);
    int g = groups == 1 ? -1 : dims_factor(dims, "g", -1, groups, FACTOR_PASS);
    int c = dims_factor(dims, "c", -1, x->dims[channels] / groups, FACTOR_PASS);
    int m = dims_factor(dims, "m", -1, dy->dims[channels] / groups, FACTOR_PASS);
    dims_set(in, 0, n);
    dims_set(out, 0, n);
    set_grouped(in, channels, g, c);
    set_grouped(out, channels, g, m);
    set_grouped(weights, 0, g, m);
    dims_set(weights, 1, c);
    weights->ndim = x->ndim;
    for (int d = 0; d < window.n; d++)
        dims_set(weights, SPATIAL + d, dims_factor(dims, "k", d, window.extent[d], FACTOR_WHOLE));
    if (bind_spatial(dims, &window, x, (struct sliding){positions, 1, FACTOR_SUM, image.spatial}, why) < 0) return -1;
    if (image.spatial != SPATIAL) dims->alternative = 1;
    return check_positions(dims, dy, why);
}

/* Binds samples and channels, which operands 0 and 1 share. */
static void bind_planes(struct dims *dims, const struct tensor *x, int channels) {
    for (int k = 0; k < 2; k++) {
        const int d = k ? channels : 0;
        dims_set(&dims->operand[0], d, dims_factor(dims, k ? "c" : "n", -1, x->dims[d], FACTOR_PASS));
        dims->operand[1].dim[d] = dims->operand[0].dim[d];
    }
}

static int bind_pool(struct dims *dims, const struct graph *graph, const struct node *node, const char **why,
                     enum factor_kind kind) {
    const struct tensor *x = input(graph, node, 0);
    const struct image image = image_of(node, x);
    struct window window;
    if (read_extents(dims, graph, node, x, &window, why) < 0) return -1;
    bind_planes(dims, x, image.channels);
    if (image.spatial != SPATIAL) dims->alternative = 1;
    return bind_spatial(dims, &window, x, (struct sliding){positions, 1, kind, image.spatial}, why);
}

DIMS_FN(dims_pool) {
    return bind_pool(dims, graph, node, why, FACTOR_PASS);
}

/* Places count from the beginning of the plane, so that only samples and channels are divided. */
DIMS_FN(dims_max_pool_places) {
    if (bind_pool(dims, graph, node, why, FACTOR_WHOLE) < 0) return -1;
    for (int f = SPATIAL; f < dims->nfactors; f++)
        if (dims->factor[f].kind == FACTOR_PASS) dims->factor[f].kind = FACTOR_WHOLE;
    return 0;
}

/* x (n, c, i..) and the gradient (n, c, o..) -> (n, c, i..). Windows may overlap in the result, so its spatial
 * dimensions are not split. */
DIMS_FN(dims_max_pool_grad) {
    if (bind_pool(dims, graph, node, why, FACTOR_WHOLE) < 0) return -1;
    dims->operand[2] = dims->operand[0];
    return check_positions(dims, input(graph, node, 1), why);
}

/* Folding: plain loops over every window */

/* The elements of an operand as doubles. */
static double *as_doubles(struct eval *eval, int operand) {
    const struct tensor *tensor = eval->in[operand];
    int64_t n = tensor_elements(tensor);
    double *values = ARENA_ARRAY(eval->graph->arena, double, n + 1);
    rt_convert(values, RT_F64, eval->x[operand], tensor->dtype, (size_t)n);
    return values;
}

static void store_all(struct eval *eval, const double *values) {
    rt_convert(eval->y, eval->out->dtype, values, RT_F64, (size_t)tensor_elements(eval->out));
}

/* The spatial index that position `o` and window element `k` read; false if it lies outside. */
static bool read_at(const struct window *w, const int64_t *o, const int64_t *k, const int64_t *extent, int64_t *i) {
    for (int d = 0; d < w->n; d++) {
        i[d] = o[d] * w->stride[d] + k[d] * w->dilation[d] - w->begin[d];
        if (i[d] < 0 || i[d] >= extent[d]) return false;
    }
    return true;
}

static int64_t spatial_elements(const struct tensor *tensor) {
    int64_t n = 1;
    for (int d = SPATIAL; d < tensor->ndim; d++) n *= tensor->dims[d];
    return n;
}

/* Sizes of a convolution. A plane is one channel of one sample. */
struct planes {
    struct window window;
    const int64_t *positions, *values; /* spatial extents: of the window's positions, and of the tensor that it reads */
    int64_t groups, batch, c, m;       /* channels per group */
    int64_t at, over, weights;         /* elements of a plane of positions, of a plane of values, and of a window */
};

/* out[..] += in[..] weights[..] for each position and each element of its window; which of the three is of the
 * positions, the values and the window, `of` says. */
enum part { POSITION, VALUE, TAP };

static void add_products(const struct planes *p, double *out, const double *in, const double *weights,
                         const enum part of[3]) {
    int64_t o[RT_MAX_NDIM] = {0}, i[RT_MAX_NDIM], at[3] = {0};
    do {
        int64_t k[RT_MAX_NDIM] = {0};
        at[TAP] = 0;
        do {
            if (read_at(&p->window, o, k, p->values, i)) {
                at[VALUE] = eval_offset(i, p->values, p->window.n);
                out[at[of[0]]] += in[at[of[1]]] * weights[at[of[2]]];
            }
            at[TAP]++;
        } while (eval_next(k, p->window.extent, p->window.n));
        at[POSITION]++;
    } while (eval_next(o, p->positions, p->window.n));
}

/* All planes; weights are (m, c) in each group, or if it is transposed (c, m). */
static void each_plane(const struct planes *p, double *y, const double *x, const double *w, int64_t y_plane,
                       int64_t x_plane, bool transposed) {
    static const enum part correlate[] = {POSITION, VALUE, TAP}, spread[] = {VALUE, POSITION, TAP};
    for (int64_t n = 0; n < p->batch; n++)
        for (int64_t g = 0; g < p->groups; g++)
            for (int64_t m = 0; m < p->m; m++)
                for (int64_t c = 0; c < p->c; c++) {
                    int64_t window = transposed ? (g * p->c + c) * p->m + m : (g * p->m + m) * p->c + c;
                    add_products(p, y + ((n * p->groups + g) * p->m + m) * y_plane,
                                 x + ((n * p->groups + g) * p->c + c) * x_plane, w + window * p->weights,
                                 transposed ? spread : correlate);
                }
}

/* The sizes of a convolution of x by w to y; false if its window is invalid. */
static bool planes_of(const struct eval *eval, const struct tensor *x, const struct tensor *w, const struct tensor *y,
                      bool transposed, struct planes *p) {
    *p = (struct planes){
        .groups = attr_int(eval->node, "group", 1), .batch = x->dims[0], .weights = spatial_elements(w)};
    if (attr_find(eval->node, "channels_last")) return false; /* made when constants have been folded */
    if (read_window(eval->graph, eval->node, x->ndim - SPATIAL, &p->window)) return false;
    for (int d = 0; d < p->window.n; d++) p->window.extent[d] = w->dims[SPATIAL + d];
    p->positions = (transposed ? x : y)->dims + SPATIAL;
    p->values = (transposed ? y : x)->dims + SPATIAL;
    p->c = x->dims[1] / p->groups;
    p->m = y->dims[1] / p->groups;
    return true;
}

EVAL(eval_conv) {
    const bool transposed = eval->node->op->id == OP_ConvTranspose;
    const struct tensor *x = eval->in[0], *w = eval->in[1], *y = eval->out;
    struct planes p;
    if (!planes_of(eval, x, w, y, transposed, &p)) return -1;
    double *sums = ARENA_ARRAY(eval->graph->arena, double, tensor_elements(y) + 1);
    if (tensor_elements(y) && tensor_elements(x))
        each_plane(&p, sums, as_doubles(eval, 0), as_doubles(eval, 1), spatial_elements(y), spatial_elements(x),
                   transposed);
    store_all(eval, sums);
    return 0;
}

EVAL(eval_conv_weight_grad) {
    const struct tensor *x = eval->in[0], *dy = eval->in[1], *w = eval->out;
    struct planes p;
    if (!planes_of(eval, x, w, dy, false, &p)) return -1;
    double *sums = ARENA_ARRAY(eval->graph->arena, double, tensor_elements(w) + 1);
    const double *values = as_doubles(eval, 0), *gradients = as_doubles(eval, 1);
    for (int64_t n = 0; n < p.batch && tensor_elements(x) && tensor_elements(dy); n++)
        for (int64_t m = 0; m < p.groups * p.m; m++)
            for (int64_t c = 0; c < p.c; c++)
                add_products(&p, sums + (m * p.c + c) * p.weights,
                             values + (n * p.groups * p.c + m / p.m * p.c + c) * spatial_elements(x),
                             gradients + (n * p.groups * p.m + m) * spatial_elements(dy),
                             (const enum part[]){TAP, VALUE, POSITION});
    store_all(eval, sums);
    return 0;
}

/* Number of elements of the window inside the padded input: the divisor of a mean with count_include_pad. */
static int64_t padded_elements(const struct window *w, const int64_t *o, const int64_t *extent) {
    int64_t count = 1;
    for (int d = 0; d < w->n; d++) {
        int64_t inside = 0;
        for (int64_t k = 0; k < w->extent[d]; k++)
            inside += o[d] * w->stride[d] + k * w->dilation[d] - w->begin[d] < extent[d] + w->end[d];
        count *= inside;
    }
    return count;
}

/* The index of the largest element in the window: the first of equal ones, but the last NaN, as in PyTorch; -1 if the
 * window lies outside of the plane. */
static int64_t place_of_largest(const struct window *w, const double *x, const int64_t *o, const int64_t *extent) {
    int64_t k[RT_MAX_NDIM] = {0}, i[RT_MAX_NDIM], largest = -1;
    do {
        if (!read_at(w, o, k, extent, i)) continue;
        int64_t at = eval_offset(i, extent, w->n);
        if (largest < 0 || x[at] > x[largest] || isnan(x[at])) largest = at;
    } while (eval_next(k, w->extent, w->n));
    return largest;
}

static double mean_of(const struct window *w, const double *x, const int64_t *o, const int64_t *extent, bool padded) {
    int64_t k[RT_MAX_NDIM] = {0}, i[RT_MAX_NDIM], count = 0;
    double sum = 0;
    do {
        if (!read_at(w, o, k, extent, i)) continue;
        sum += x[eval_offset(i, extent, w->n)];
        count++;
    } while (eval_next(k, w->extent, w->n));
    return sum / (double)(padded ? padded_elements(w, o, extent) : count);
}

static bool window_of(const struct graph *graph, const struct node *node, struct window *w) {
    int n;
    const int64_t *extents = attr_ints(node, "window", &n);
    if (attr_find(node, "channels_last") || read_window(graph, node, n, w)) return false;
    for (int d = 0; d < n; d++) w->extent[d] = extents[d];
    return true;
}

static double pooled(const struct eval *eval, const struct window *w, const double *x, const int64_t *o) {
    const int64_t *extent = eval->in[0]->dims + SPATIAL;
    if (eval->node->op->id != OP_MaxPool) return mean_of(w, x, o, extent, attr_int(eval->node, "count_include_pad", 0));
    const int64_t place = place_of_largest(w, x, o, extent);
    return place < 0 ? -INFINITY : x[place];
}

EVAL(eval_pool) {
    const struct tensor *x = eval->in[0], *y = eval->out;
    struct window w;
    if (!window_of(eval->graph, eval->node, &w)) return -1;
    double *values = as_doubles(eval, 0), *results = ARENA_ARRAY(eval->graph->arena, double, tensor_elements(y) + 1);
    int64_t planes = y->dims[0] * y->dims[1], at = 0;
    for (int64_t plane = 0; plane < planes && tensor_elements(y); plane++) {
        int64_t o[RT_MAX_NDIM] = {0};
        do results[at++] = pooled(eval, &w, values + plane * spatial_elements(x), o);
        while (eval_next(o, y->dims + SPATIAL, w.n));
    }
    store_all(eval, results);
    return 0;
}

EVAL(eval_max_pool_grad) {
    const struct tensor *x = eval->in[0], *dy = eval->in[1];
    struct window w;
    if (!window_of(eval->graph, eval->node, &w)) return -1;
    const double *values = as_doubles(eval, 0), *gradients = as_doubles(eval, 1);
    double *sums = ARENA_ARRAY(eval->graph->arena, double, tensor_elements(x) + 1);
    for (int64_t plane = 0; plane < x->dims[0] * x->dims[1] && tensor_elements(dy); plane++) {
        int64_t o[RT_MAX_NDIM] = {0}, first = plane * spatial_elements(x);
        do {
            int64_t place = place_of_largest(&w, values + first, o, x->dims + SPATIAL);
            if (place >= 0) sums[first + place] += *gradients;
            gradients++;
        } while (eval_next(o, dy->dims + SPATIAL, w.n));
    }
    store_all(eval, sums);
    return 0;
}
