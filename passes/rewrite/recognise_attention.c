/* Recognises attention: softmax(scale q k + masks) v.
 *
 * Note [Scores]
 * Between the product of q and k and the softmax, exporters scale and mask the scores in many orders. So the operators
 * are followed back from the softmax one step at a time (table `steps`). The steps are then applied, from the product
 * on, to struct attention, which describes what the operator can compute: scale q k, at most one replacement of some
 * scores by a value (`fill`), and sums of biases before or after it. Scores beyond that are no match. A constant mask
 * that hides from row i exactly the keys after i + offset becomes attribute `causal`, and the hidden half of the
 * products is not computed.
 *
 * Grouped-query attention repeats each of the heads of k and v for the heads of q that share it. The operator reads k
 * and v unrepeated; repeat_heads.c repeats them again where a mesh has more ranks.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "passes/rewrite/known_mask.h"
#include "passes/rewrite/recognise.h"

enum { MAX_MASKS = 4, ROOTS = 4, STEPS = 13, MAX_STEPS = 32 /* on the way from a softmax to its product */ };

/* The leading dimensions of a tensor: all but the last two. */
struct lead {
    int n;
    int64_t dims[RT_MAX_NDIM], count;
};

struct mask {
    int tensor;
    struct lead lead; /* of the scores that it is applied to */
};

struct attention {
    struct recognition *recognition;
    const struct pass_context *context;
    struct patterns *patterns;
    int depth; /* steps taken */
    int q, k, v;
    bool k_upright; /* k is (.., keys, head), not (.., head, keys) */
    struct lead lead;
    double scale;
    bool masked, causal, drop, clamp; /* masked: some scores are replaced by fill */
    int nan_to_zero;
    double fill, cap; /* cap 0: none */
    int64_t offset, window;
    bool sees; /* the causal mask leaves every row a key */
    /* tensor -1: none. keep: which scores stay; factor: multiplies scores, equal for all keys; sink: of each row */
    struct mask keep, factor, sink;
    int nbias, before; /* the first `before` of them are added before scores are replaced */
    struct mask bias[MAX_MASKS];
};

/* Data of a run of the pass. */
struct patterns {
    const struct pass_context *context;
    const struct pattern *root[ROOTS], *step[STEPS];
    struct known_masks known;
    const char *why; /* the last root is no attention, of the way that got furthest; NULL: it is nothing like it */
    int depth;       /* of that way */
};

static const struct tensor *tensor_at(const struct attention *a, int id) {
    return &a->recognition->builder.graph->tensors.at[id];
}

static struct lead lead_of(const struct tensor *t) {
    struct lead lead = {.n = t->ndim - 2, .count = 1};
    for (int d = 0; d < lead.n; d++) lead.count *= lead.dims[d] = t->dims[d];
    return lead;
}

static bool lead_equal(const struct lead *a, const struct lead *b) {
    return a->n == b->n && (a->n <= 0 || memcmp(a->dims, b->dims, (size_t)a->n * sizeof *a->dims) == 0);
}

/* The shape a->lead, rows, columns. */
static int with_lead(const struct attention *a, int64_t rows, int64_t columns, int64_t *shape) {
    memcpy(shape, a->lead.dims, (size_t)a->lead.n * sizeof *shape);
    shape[a->lead.n] = rows;
    shape[a->lead.n + 1] = columns;
    return a->lead.n + 2;
}

/* The mask before any Expand: the operator broadcasts masks. */
static int unrepeated_mask(const struct attention *a, int mask) {
    const struct node *node;
    while ((node = made_by(a->recognition->builder.graph, mask, OP_Expand))) mask = node->inputs[0];
    return mask;
}

/* Notes why scores that were followed so far are no match, for a remark; false. */
__attribute__((format(printf, 2, 3))) static bool refuses(struct attention *a, const char *format, ...) {
    va_list arguments;
    if (!a->context->verbose || (a->patterns->why && a->depth < a->patterns->depth)) return false;
    va_start(arguments, format);
    a->patterns->why = arena_vprintf(a->recognition->builder.graph->arena, format, arguments);
    va_end(arguments);
    a->patterns->depth = a->depth;
    return false;
}

/* Steps --------------------------------------------------------------------------------------------------------- */

static bool take_scale_by(struct attention *a, double factor) {
    if (!(factor > 0) || isinf(factor) || a->nbias || a->clamp || a->cap > 0) return false;
    a->scale *= factor;
    if (a->masked) a->fill *= factor;
    return true;
}

static bool take_factor(struct attention *a, const struct match *match) {
    return take_scale_by(a, match_number(match, "n"));
}

static bool take_divisor(struct attention *a, const struct match *match) {
    return take_scale_by(a, 1 / match_number(match, "n"));
}

/* Soft cap: cap tanh(score factor). */
static bool take_cap(struct attention *a, double factor, double cap) {
    if (!(cap > 0) || a->masked || !take_scale_by(a, factor * cap)) return false;
    a->cap = cap;
    return true;
}

static bool take_cap_by_factor(struct attention *a, const struct match *match) {
    return take_cap(a, match_number(match, "n"), match_number(match, "cap"));
}

static bool take_cap_by_divisor(struct attention *a, const struct match *match) {
    return take_cap(a, 1 / match_number(match, "n"), match_number(match, "cap"));
}

/* A factor that is equal for all keys, such as one per head, is multiplied with q. */
static bool take_factors(struct attention *a, const struct match *match) {
    int factor = match_tensor(match, "factor");
    const struct tensor *t = tensor_at(a, factor);
    if (a->nbias || a->masked || a->clamp || a->cap > 0 || a->factor.tensor >= 0 || t->ndim < 1 ||
        t->dims[t->ndim - 1] != 1)
        return false;
    a->factor = (struct mask){factor, lead_of(tensor_at(a, match_tensor(match, "score")))};
    return true;
}

/* Replaces some scores by fill. A second replacement must have the same fill and no bias between both. */
static bool take_fill(struct attention *a, double fill) {
    if (a->clamp || isnan(fill) || (a->masked && (a->fill != fill || a->nbias > a->before))) return false;
    if (!a->masked) a->before = a->nbias;
    a->masked = true;
    a->fill = fill;
    return true;
}

static bool take_causal(struct attention *a, const struct known_mask *known, double fill) {
    bool same = a->offset == known->offset && a->window == known->window;
    if ((a->causal && !same) || !take_fill(a, fill)) return false;
    a->causal = true;
    a->offset = known->offset;
    a->window = known->window;
    a->sees = known->sees;
    return true;
}

/* Adds a condition to those under which a score stays, or with a->drop is replaced. */
static bool take_condition(struct attention *a, int mask, const struct tensor *score, bool drop) {
    struct lead lead = lead_of(score);
    if (a->keep.tensor < 0) {
        a->keep = (struct mask){mask, lead};
        a->drop = drop;
        return true;
    }
    if (a->drop != drop || !lead_equal(&a->keep.lead, &lead)) return false;
    a->keep.tensor = build2(&a->recognition->builder, drop ? OP_Or : OP_And, a->keep.tensor, mask);
    return a->keep.tensor >= 0;
}

/* Replaces scores by `fill` where the mask is false, or with `drop` where it is true. The mask may be a conjunction of
 * a constant one, which becomes attributes, and a computed one. */
static bool take_mask(struct attention *a, int mask, const struct tensor *score, double fill, bool drop) {
    struct graph *graph = a->recognition->builder.graph;
    const struct node *node;
    mask = unrepeated_mask(a, mask);
    if ((node = made_by(graph, mask, OP_Not))) return take_mask(a, node->inputs[0], score, fill, !drop);
    if ((node = made_by(graph, mask, drop ? OP_Or : OP_And))) {
        struct attention before = *a;
        const int parts[] = {node->inputs[0], node->inputs[1]};
        if (take_mask(a, parts[0], score, fill, drop) && take_mask(a, parts[1], score, fill, drop)) return true;
        *a = before;
    }
    struct known_mask known = known_mask(graph, &a->patterns->known, mask, score, !drop);
    if (known.kind == MASK_NOTHING) return true;
    if (known.kind == MASK_CAUSAL && take_causal(a, &known, fill)) return true;
    return take_fill(a, fill) && take_condition(a, mask, score, drop);
}

static bool take_where(struct attention *a, const struct match *match, bool drop) {
    const struct tensor *score = tensor_at(a, match_tensor(match, "score"));
    return take_mask(a, match_tensor(match, "mask"), score, match_number(match, "n"), drop);
}

static bool take_keep(struct attention *a, const struct match *match) {
    return take_where(a, match, false);
}

static bool take_drop(struct attention *a, const struct match *match) {
    return take_where(a, match, true);
}

/* True if adding the value to a score is the same as replacing the score: the sum rounds to the value. */
static bool replaces(double value) {
    return value <= -1e30;
}

static bool take_keep_added(struct attention *a, const struct match *match) {
    return replaces(match_number(match, "n")) && take_where(a, match, false);
}

static bool take_drop_added(struct attention *a, const struct match *match) {
    return replaces(match_number(match, "n")) && take_where(a, match, true);
}

static bool add_bias(struct attention *a, int bias, const struct tensor *score) {
    bias = unrepeated_mask(a, bias);
    struct known_mask known = known_mask(a->recognition->builder.graph, &a->patterns->known, bias, score, 0);
    if (known.kind == MASK_NOTHING) return true;
    if (a->clamp || a->nbias == MAX_MASKS) return false;
    if (known.kind == MASK_CAUSAL && replaces(known.fill)) {
        struct attention before = *a;
        if (take_causal(a, &known, known.fill)) return true;
        *a = before;
    }
    a->bias[a->nbias++] = (struct mask){bias, lead_of(score)};
    return true;
}

static bool take_bias(struct attention *a, const struct match *match) {
    return add_bias(a, match_tensor(match, "bias"), tensor_at(a, match_tensor(match, "score")));
}

/* Max(score, least finite number): OPT's exporter writes it because two masks may add up to -inf. */
static bool take_clamp(struct attention *a, const struct match *match) {
    a->clamp = true;
    return about(match_number(match, "n"), -(double)3.402823466e+38f);
}

static bool take_reshape(struct attention *a, const struct match *match) {
    (void)a, (void)match;
    return true;
}

static bool take_product(struct attention *a, const struct match *match) {
    const struct node *node = &a->recognition->builder.graph->nodes.at[match->node[0]];
    a->q = match_tensor(match, "q");
    a->k = match_tensor(match, "k");
    a->k_upright = attr_int(node, "trans_b", 0);
    return !attr_int(node, "trans_a", 0);
}

/* The steps from one tensor of scores to the next, and the functions that add them to struct attention; applied from
 * the product on. */
static const struct {
    const char *text;
    bool (*take)(struct attention *a, const struct match *match);
} steps[] = {
    {"MatMul(q, k)", take_product},
    {"Add(score, &Where(mask, 0, n#))", take_keep_added},
    {"Add(score, &Where(mask, n#, 0))", take_drop_added},
    {"Add(score, bias)", take_bias},
    {"Mul(Tanh(Mul(score, n#)), cap#)", take_cap_by_factor},
    {"Mul(Tanh(Div(score, n#)), cap#)", take_cap_by_divisor},
    {"Mul(score, n#)", take_factor},
    {"Div(score, n#)", take_divisor},
    {"Where(mask, score, n#)", take_keep},
    {"Where(mask, n#, score)", take_drop},
    {"Max(score, n#)", take_clamp},
    {"Mul(score, factor)", take_factors},
    {"Reshape(score)", take_reshape},
};
_Static_assert(sizeof steps / sizeof *steps == STEPS, "a pattern per step");

/* The way in ---------------------------------------------------------------------------------------------------- */

static bool follow(struct attention *a, const struct matcher *matcher, int tensor);

struct way {
    struct attention *a;
    int step, tensor;
};

/* True if scores before and after a step have the same shape; a Reshape may merge or divide leading dimensions. */
static bool alike(const struct tensor *a, const struct tensor *b, bool reshaped) {
    if (a->ndim < 3 || b->ndim < 3 || (a->ndim != b->ndim && !reshaped)) return false;
    for (int d = 1; d <= (reshaped ? 2 : a->ndim); d++)
        if (a->dims[a->ndim - d] != b->dims[b->ndim - d]) return false;
    return true;
}

static bool accept_step(void *env, const struct match *match) {
    struct way *way = env;
    struct attention *a = way->a, before = *a;
    int score = match_tensor(match, "score");
    bool reshaped = steps[way->step].take == take_reshape;
    bool goes_on = score < 0 || (alike(tensor_at(a, way->tensor), tensor_at(a, score), reshaped) &&
                                 matcher_sole(match->matcher, score) && follow(a, match->matcher, score));
    struct lead lead = lead_of(tensor_at(a, way->tensor));
    if (goes_on && lead.count == a->lead.count && steps[way->step].take(a, match)) return true;
    *a = before;
    return false;
}

/* Fills in the description of the scores in `tensor`; false if they are none. a->lead becomes the longest list of
 * leading dimensions met; q, k, v and masks are brought into its shape. */
static bool follow(struct attention *a, const struct matcher *matcher, int tensor) {
    struct lead lead = lead_of(tensor_at(a, tensor));
    if (lead.n < 1 || ++a->depth > MAX_STEPS) return false;
    if (lead.n > a->lead.n) a->lead = lead;
    for (int i = 0; i < STEPS; i++) {
        struct way way = {a, i, tensor};
        if (matcher_find(matcher, a->patterns->step[i], tensor, accept_step, &way)) return true;
    }
    const int producer = tensor_at(a, tensor)->producer;
    return refuses(a, "scores '%s' (%s) are no product of q and k that is scaled, capped or masked",
                   tensor_at(a, tensor)->name,
                   producer < 0 ? "not computed" : a->recognition->builder.graph->nodes.at[producer].op->name);
}

/* Operands ------------------------------------------------------------------------------------------------------ */

static bool has_shape(const struct tensor *t, int n, const int64_t *shape) {
    return t->ndim == n && memcmp(t->dims, shape, (size_t)n * sizeof *shape) == 0;
}

/* The tensor in that shape: the input of a Reshape that computes it if that has the shape, else a new Reshape. */
static int reshaped(struct attention *a, int id, int n, const int64_t *shape) {
    const struct node *reshape;
    while ((reshape = made_by(a->recognition->builder.graph, id, OP_Reshape))) {
        id = reshape->inputs[0];
        if (has_shape(tensor_at(a, id), n, shape)) return id;
    }
    return build_reshape(&a->recognition->builder, id, n, shape);
}

/* The tensor with leading dimensions a->lead, if its own are other groups of the same elements; else the tensor. */
static int bring(struct attention *a, int id) {
    const struct tensor *t = tensor_at(a, id);
    int64_t shape[RT_MAX_NDIM];
    struct lead lead = lead_of(t);
    if (lead_equal(&lead, &a->lead) || lead.count != a->lead.count) return id;
    int n = with_lead(a, t->dims[lead.n], t->dims[lead.n + 1], shape);
    return reshaped(a, id, n, shape);
}

/* The tensor before a product with a positive number, which is multiplied into the scale. */
static int unscaled(struct attention *a, int id) {
    const struct graph *graph = a->recognition->builder.graph;
    for (int i = 0; i < 2; i++) {
        const struct node *node = made_by(graph, id, i ? OP_Div : OP_Mul);
        for (int k = 0; node && k < 2 - i; k++) {
            double value;
            int other = node->inputs[k];
            if (!constant_number(graph, node->inputs[1 - k], &value) || !(value > 0) || isinf(value)) continue;
            if (!has_shape(tensor_at(a, id), tensor_at(a, other)->ndim, tensor_at(a, other)->dims)) continue;
            a->scale *= i ? 1 / value : value;
            return other;
        }
    }
    return id;
}

/* The tensor with its last two dimensions exchanged; combined with the Transpose that computes it, if there is one. */
static int upright(struct attention *a, int id) {
    const struct node *node = made_by(a->recognition->builder.graph, id, OP_Transpose);
    int64_t perm[RT_MAX_NDIM];
    int n = tensor_at(a, id)->ndim;
    for (int d = 0; d < n; d++) perm[d] = node ? attr_ints(node, "perm", &n)[d] : d;
    int64_t last = perm[n - 1];
    perm[n - 1] = perm[n - 2];
    perm[n - 2] = last;
    return build_transpose(&a->recognition->builder, node ? node->inputs[0] : id, perm);
}

/* True if the shapes are equal except in dimension dim, where `from` has extent 1. */
static bool repeats(const struct tensor *from, const struct tensor *to, int dim) {
    if (from->ndim != to->ndim || from->dims[dim] != 1) return false;
    for (int d = 0; d < to->ndim; d++)
        if (d != dim && from->dims[d] != to->dims[d]) return false;
    return true;
}

/* The tensor before its heads were repeated: by an Expand of one head, or by an Expand of (.., kv, 1, ..) to
 * (.., kv, g, ..) and a Reshape to (.., kv g, ..). */
static int unrepeated(struct attention *a, int id) {
    const struct graph *graph = a->recognition->builder.graph;
    int n = a->lead.n + 2, heads = a->lead.n - 1;
    const struct node *expand = made_by(graph, id, OP_Expand), *reshape = made_by(graph, id, OP_Reshape);
    if (tensor_at(a, id)->ndim != n) return id;
    if (expand) return repeats(tensor_at(a, expand->inputs[0]), tensor_at(a, id), heads) ? expand->inputs[0] : id;
    if (!reshape || !(expand = made_by(graph, reshape->inputs[0], OP_Expand))) return id;
    const struct tensor *wide = tensor_at(a, reshape->inputs[0]), *from = tensor_at(a, expand->inputs[0]);
    if (wide->ndim != n + 1 || !repeats(from, wide, heads + 1)) return id;
    int64_t shape[RT_MAX_NDIM];
    for (int d = 0, e = 0; d < n; d++, e++) {
        int64_t extent = wide->dims[e];
        if (d == heads) extent *= wide->dims[++e];
        if (extent != tensor_at(a, id)->dims[d]) return id;
        shape[d] = d == heads ? from->dims[heads] : extent;
    }
    return reshaped(a, expand->inputs[0], n, shape);
}

/* The input of a Transpose that exchanges the last two dimensions, in the leading dimensions of the Reshape `id` that
 * reads it; -1 if `id` is not computed so. */
static int before_exchange(struct attention *a, int id) {
    const struct graph *graph = a->recognition->builder.graph;
    const struct node *reshape = made_by(graph, id, OP_Reshape),
                      *exchange = reshape ? made_by(graph, reshape->inputs[0], OP_Transpose) : NULL;
    if (!exchange) return -1;
    const struct tensor *x = tensor_at(a, exchange->inputs[0]), *y = tensor_at(a, id);
    int n;
    const int64_t *perm = attr_ints(exchange, "perm", &n);
    int64_t shape[RT_MAX_NDIM];
    for (int d = 0; d < n; d++)
        if (perm[d] != (d < n - 2 ? d : 2 * n - 3 - d)) return -1;
    if (n < 2 || y->ndim < 2 || x->dims[n - 1] != y->dims[y->ndim - 2] || x->dims[n - 2] != y->dims[y->ndim - 1])
        return -1;
    memcpy(shape, y->dims, sizeof shape);
    shape[y->ndim - 2] = x->dims[n - 2];
    shape[y->ndim - 1] = x->dims[n - 1];
    return reshaped(a, exchange->inputs[0], y->ndim, shape);
}

/* a->k as (lead, keys, head); with `share`, before its heads were repeated. */
static int keys(struct attention *a, bool share) {
    int id = a->k;
    bool stands = a->k_upright;
    for (int before = -1; id >= 0 && id != before;) {
        before = id;
        id = unscaled(a, id);
        if (!stands && (made_by(a->recognition->builder.graph, id, OP_Transpose))) id = upright(a, id), stands = true;
        int other = stands ? -1 : before_exchange(a, id);
        if (other >= 0) id = other, stands = true;
        if (made_by(a->recognition->builder.graph, id, OP_Reshape)) id = bring(a, id);
        if (share) id = unrepeated(a, id);
    }
    return bring(a, stands ? id : upright(a, id));
}

static int values(struct attention *a, bool share) {
    int id = bring(a, a->v);
    return share ? unrepeated(a, id) : id;
}

static bool fits(const struct attention *a, const struct tensor *t, int64_t heads) {
    int n = a->lead.n;
    return t->ndim == n + 2 && t->dims[n - 1] == heads &&
           memcmp(t->dims, a->lead.dims, (size_t)(n - 1) * sizeof *t->dims) == 0;
}

/* Masks --------------------------------------------------------------------------------------------------------- */

/* The extent of a mask in dimension `dim` of scores of n dimensions, to which it is broadcast. */
static int64_t mask_extent(const struct tensor *t, int n, int dim) {
    int own = dim - (n - t->ndim);
    return own < 0 ? 1 : t->dims[own];
}

/* The mask reshaped to leading dimensions a->lead. A group of dimensions that becomes another group of the same extent
 * must be either there in full or broadcast as a whole; -1 if it is neither. */
static int mask_tensor(struct attention *a, const struct mask *mask) {
    const struct tensor *t = tensor_at(a, mask->tensor);
    const struct lead *from = &mask->lead, *to = &a->lead;
    int64_t shape[RT_MAX_NDIM], n = from->n + 2;
    if (lead_equal(from, to)) return mask->tensor;
    for (int i = 0, j = 0; i < from->n || j < to->n;) {
        int64_t have = 1, want = 1, own = 1;
        int first = j;
        do {
            bool reads = j == to->n || (i < from->n && have <= want);
            if (reads)
                own *= mask_extent(t, (int)n, i), have *= from->dims[i++];
            else
                want *= to->dims[j++];
        } while (have != want);
        if (own != 1 && own != have) return -1;
        for (int d = first; d < j; d++) shape[d] = own == 1 ? 1 : to->dims[d];
    }
    shape[to->n] = mask_extent(t, (int)n, from->n);
    shape[to->n + 1] = mask_extent(t, (int)n, from->n + 1);
    return build_reshape(&a->recognition->builder, mask->tensor, to->n + 2, shape);
}

/* -1: no bias; -2: one does not fit. */
static int sum_of_biases(struct attention *a) {
    int sum = -1;
    for (int i = 0; i < a->nbias; i++) {
        int bias = mask_tensor(a, &a->bias[i]);
        if (bias < 0) return -2;
        sum = sum < 0 ? bias : build2(&a->recognition->builder, OP_Add, sum, bias);
    }
    return sum;
}

static void add_flag(struct attention *a, const char *name, int64_t value) {
    if (value) recognition_attr(a->recognition, attr_of_int(name, value));
}

static int optional_mask(struct attention *a, const struct mask *mask) {
    return mask->tensor < 0 ? -1 : mask_tensor(a, mask);
}

/* Where every row has a visible key, hidden ones have no weight beside it, and -inf lets the kernel leave out keys
 * before a window. */
static void hide_completely(struct attention *a) {
    bool alone = a->keep.tensor < 0 && a->nbias == 0 && !a->clamp;
    if (a->causal && a->window && a->sees && alone && a->fill <= -1e9) a->fill = -INFINITY;
}

static bool make_masks(struct attention *a) {
    struct recognition *recognition = a->recognition;
    int *inputs = recognition->inputs;
    hide_completely(a);
    inputs[3] = optional_mask(a, &a->keep);
    inputs[4] = sum_of_biases(a);
    inputs[5] = optional_mask(a, &a->sink);
    if ((a->keep.tensor >= 0 && inputs[3] < 0) || inputs[4] < -1 || (a->sink.tensor >= 0 && inputs[5] < 0))
        return false;
    recognition->ninputs = 6;
    while (inputs[recognition->ninputs - 1] < 0) recognition->ninputs--;
    recognition_attr(recognition, attr_of_float("scale", a->scale));
    if (a->masked) recognition_attr(recognition, attr_of_float("fill", a->fill));
    if (a->cap > 0) recognition_attr(recognition, attr_of_float("cap", a->cap));
    add_flag(a, "causal", a->causal);
    add_flag(a, "offset", a->offset);
    add_flag(a, "window", a->window);
    add_flag(a, "drop", a->drop);
    add_flag(a, "bias_first", a->masked && a->before);
    add_flag(a, "clamp", a->clamp);
    add_flag(a, "nan_to_zero", a->nan_to_zero);
    return true;
}

static int queries(struct attention *a) {
    int id = bring(a, unscaled(a, a->q));
    if (a->factor.tensor < 0) return id;
    int factor = mask_tensor(a, &a->factor);
    return factor < 0 ? -1 : build2(&a->recognition->builder, OP_Mul, id, factor);
}

static bool make_operands(struct attention *a, bool share) {
    struct recognition *recognition = a->recognition;
    int64_t heads = a->lead.dims[a->lead.n - 1];
    recognition->inputs[0] = queries(a);
    recognition->inputs[1] = keys(a, share);
    recognition->inputs[2] = values(a, share);
    if (recognition->inputs[0] < 0) return false;
    const struct tensor *q = tensor_at(a, recognition->inputs[0]), *k = tensor_at(a, recognition->inputs[1]),
                        *v = tensor_at(a, recognition->inputs[2]);
    int64_t kv = k->ndim == a->lead.n + 2 ? k->dims[a->lead.n - 1] : 0;
    recognition->ninputs = 3;
    return kv > 0 && heads % kv == 0 && fits(a, q, heads) && fits(a, k, kv) && fits(a, v, kv);
}

/* The match ------------------------------------------------------------------------------------------------------ */

/* Note [Flash attention]
 * Where the target has it and the user asked for it, attention is FlashAttention: then also in training, since that has
 * a gradient. It takes f32 and 16-bit floats, heads of up to RT_FLASH_HEAD elements, and masks that no
 * gradient flows to; what it does not take stays what it is without it. */

enum attention_kind attention_kind_of(const char *word) {
    static const char *const words[] = {
        [ATTENTION_PRODUCTS] = "products",
        [ATTENTION_FLASH] = "flash",
        [ATTENTION_LIBRARY] = "cudnn",
        [ATTENTION_ATOMIC] = "cudnn-atomic",
    };
    int kind = word ? ATTENTION_ATOMIC : ATTENTION_PRODUCTS;
    while (kind != ATTENTION_PRODUCTS && strcmp(words[kind], word) != 0) kind--;
    return (enum attention_kind)kind;
}

static bool depends_on_weights(const struct attention *a, int id) {
    const struct graph *graph = a->recognition->builder.graph;
    bool *seen = ARENA_ARRAY(graph->arena, bool, graph->tensors.n), found = false;
    int *left = ARENA_ARRAY(graph->arena, int, graph->tensors.n), n = 0;
    for (left[n++] = id, seen[id] = true; n > 0 && !found;) {
        const struct tensor *t = &graph->tensors.at[left[--n]];
        const struct node *node = t->producer < 0 ? NULL : &graph->nodes.at[t->producer];
        found = t->kind == TENSOR_WEIGHT && !t->constant && rt_dtype_is_float(t->dtype);
        for (int k = 0; node && k < node->ninputs; k++) {
            if (node->inputs[k] < 0 || seen[node->inputs[k]]) continue;
            left[n++] = node->inputs[k];
            seen[node->inputs[k]] = true;
        }
    }
    return found;
}

static bool takes_flash(const struct attention *a) {
    const struct recognition *recognition = a->recognition;
    const struct graph *graph = recognition->builder.graph;
    const struct tensor *q = tensor_at(a, recognition->inputs[0]), *v = tensor_at(a, recognition->inputs[2]);
    if (a->context->attention == ATTENTION_PRODUCTS || q->dtype == RT_F64) return false;
    if (q->dims[q->ndim - 1] > RT_FLASH_HEAD || v->dims[v->ndim - 1] > RT_FLASH_HEAD) return false;
    for (int i = 4; graph->train && i < recognition->ninputs; i++)
        if (recognition->inputs[i] >= 0 && depends_on_weights(a, recognition->inputs[i])) return false;
    return true;
}

/* The operator with a kernel for these operands; OP_NONE if there is none. */
static enum op_id operator_of(const struct attention *a) {
    const bool half = rt_dtypes[recognition_result(a->recognition)->dtype].kind == RT_KIND_HALF;
    if (takes_flash(a)) return OP_FlashAttention;
    if (half && a->context->attention != ATTENTION_PRODUCTS && !op_is_listed(&ops[OP_Attention], a->context->halves))
        return OP_NONE;
    return a->recognition->builder.graph->train ? OP_NONE : OP_Attention;
}

/* Builds the operator and returns its first result; FlashAttention has a second one. */
static int make_attention(struct attention *a, enum op_id op) {
    struct recognition *recognition = a->recognition;
    int outputs[2];
    if (build_many(&recognition->builder, op, recognition->ninputs, recognition->inputs, op == OP_Attention ? 1 : 2,
                   outputs, recognition->nattrs, recognition->attrs) < 0)
        return -1;
    return outputs[0];
}

static enum rt_library library_of(enum attention_kind kind) {
    return kind == ATTENTION_ATOMIC ? RT_LIBRARY_ATOMIC : kind == ATTENTION_LIBRARY ? RT_LIBRARY : RT_NO_LIBRARY;
}

/* Turns the root into the operator, or into a Reshape of its result. */
static bool replace(struct attention *a) {
    struct recognition *recognition = a->recognition;
    struct tensor result = *recognition_result(recognition);
    const enum op_id op = operator_of(a);
    if (op == OP_NONE) return false;
    if (op == OP_FlashAttention) add_flag(a, "library", library_of(a->context->attention));
    if (result.ndim == a->lead.n + 2 && op == OP_Attention) {
        recognition_replace(recognition, &ops[op]);
        return true;
    }
    recognition->inputs[0] = make_attention(a, op);
    if (recognition->inputs[0] < 0) return false;
    recognition->ninputs = 1;
    recognition->nattrs = 0;
    recognition_attr(recognition, attr_of_ints("shape", result.ndim, result.dims));
    recognition_replace(recognition, &ops[OP_Reshape]);
    return true;
}

/* Makes a constant causal mask that is the only bias the attribute `causal`, even if its value is not as low as
 * replaces() requires: every row sees some key, so hidden keys get weight 0 unless scores are as large as the mask. */
static void see_causal(struct attention *a, const struct tensor *weights) {
    if (a->nbias != 1 || a->masked || a->clamp) return;
    struct known_mask known =
        known_mask(a->recognition->builder.graph, &a->patterns->known, a->bias[0].tensor, weights, 0);
    if (known.kind != MASK_CAUSAL || !known.sees || known.fill > -1e9) return;
    a->nbias = 0;
    take_causal(a, &known, known.fill);
}

/* A score of each row that is equal for all queries of a head. */
static bool take_sink(struct attention *a, const struct match *match) {
    int sink = match_tensor(match, "sink");
    if (sink < 0) return true;
    a->sink = (struct mask){unrepeated_mask(a, sink), lead_of(tensor_at(a, sink))};
    const struct tensor *t = tensor_at(a, a->sink.tensor);
    int rows = t->ndim - 2;
    if (rows < 0 || t->dims[rows + 1] != 1) return false;
    if (t->dims[rows] == 1) return true;
    if (!known_repeats(a->recognition->builder.graph, a->sink.tensor, rows)) return false;
    int64_t start[RT_MAX_NDIM] = {0}, step[RT_MAX_NDIM], size[RT_MAX_NDIM];
    for (int d = 0; d < t->ndim; d++) step[d] = 1, size[d] = d == rows ? 1 : t->dims[d];
    a->sink.tensor = build_slice(&a->recognition->builder, a->sink.tensor, start, step, size);
    return a->sink.tensor >= 0;
}

/* From scores to the result. */
static const struct {
    const char *text;
    enum rt_nan_to_zero nan_to_zero;
} roots[] = {
    {"MatMul(regrouped(Softmax[last](score)), v)", RT_NAN_STAYS},
    {"MatMul(regrouped(Where(IsNaN(w), 0, w:Softmax[last](score))), v)", RT_NAN_TO_ZERO}, /* PyTorch 2.15 */
    {"MatMul(regrouped(Slice[but_last](Softmax[last](Sub(c, ReduceMax(c:Concat[last](score, sink)))))), v)",
     RT_NAN_STAYS},
    {"MatMul(regrouped(Slice[but_last](Softmax[last](Concat[last](score, sink)))), v)", RT_NAN_STAYS},
};
_Static_assert(sizeof roots / sizeof *roots == ROOTS, "a pattern per root");

/* Operands and masks in their shortest form, and the node that computes them. False: the node stays what it is. */
static bool make(struct attention *a) {
    struct attention found = *a;
    a->depth = MAX_STEPS;
    if (!make_operands(a, true) && (*a = found, a->depth = MAX_STEPS, !make_operands(a, false)))
        return refuses(a, "q '%s', k '%s' and v '%s' have no heads that fit", tensor_at(a, a->q)->name,
                       tensor_at(a, a->k)->name, tensor_at(a, a->v)->name);
    if (!make_masks(a)) return refuses(a, "a mask cannot be broadcast to the scores");
    return replace(a) || refuses(a, "the target has no kernel for it in this type, or in training");
}

static bool accept_root(void *env, const struct match *match) {
    struct attention *a = env;
    const struct node *root = &a->recognition->builder.graph->nodes.at[a->recognition->root];
    const struct tensor *weights = tensor_at(a, root->inputs[0]);
    int score = match_tensor(match, "score");
    if (attr_int(root, "trans_a", 0) || attr_int(root, "trans_b", 0) || weights->ndim < 3) return false;
    if (!alike(weights, tensor_at(a, score), true) || !matcher_sole(match->matcher, score)) return false;
    a->v = match_tensor(match, "v");
    a->lead = lead_of(weights);
    if (!take_sink(a, match)) return false;
    if (!follow(a, match->matcher, score) || (a->masked && a->before && a->nbias > a->before)) return false;
    see_causal(a, weights);
    return make(a);
}

/* The description of a node Attention, as ONNX's operator is imported. Its masks are examined here. */
static bool describe_node(struct attention *a, const struct node *node) {
    const int *in = node->inputs;
    const struct tensor *q = tensor_at(a, in[0]), *k = tensor_at(a, in[1]);
    struct tensor score = *q;
    score.dims[q->ndim - 1] = k->dims[q->ndim - 2];
    a->q = in[0];
    a->k = in[1];
    a->v = in[2];
    a->k_upright = true;
    a->lead = lead_of(q);
    a->scale = attr_float(node, "scale", 1);
    a->cap = attr_float(node, "cap", 0);
    a->nan_to_zero = (int)attr_int(node, "nan_to_zero", 0);
    const double fill = attr_float(node, "fill", 0);
    if (attr_int(node, "causal", 0)) {
        a->masked = a->causal = true;
        a->fill = fill;
        a->offset = attr_int(node, "offset", 0);
        a->window = attr_int(node, "window", 0);
    }
    if (node->ninputs > 3 && in[3] >= 0 && !take_mask(a, in[3], &score, fill, false)) return false;
    return node->ninputs < 5 || in[4] < 0 || add_bias(a, in[4], &score);
}

static bool find(struct matcher *matcher, struct build *builder, int node, const void *env) {
    struct patterns *patterns = *(struct patterns *const *)env;
    const struct node *root = &builder->graph->nodes.at[node];
    int result = root->outputs[0];
    enum rt_dtype dtype = builder->graph->tensors.at[result].dtype;
    struct recognition recognition = {.builder = *builder, .root = node};
    struct attention a = {.recognition = &recognition,
                          .context = patterns->context,
                          .patterns = patterns,
                          .scale = 1,
                          .keep = {.tensor = -1},
                          .factor = {.tensor = -1},
                          .sink = {.tensor = -1}};
    if (!rt_dtype_is_float(dtype)) return false;
    if (root->op->id == OP_Attention) return describe_node(&a, root) && make(&a);
    patterns->why = NULL;
    for (int i = 0; i < ROOTS; i++) {
        a.nan_to_zero = roots[i].nan_to_zero;
        if (matcher_find(matcher, patterns->root[i], result, accept_root, &a)) return true;
    }
    if (patterns->why) diag_remark(patterns->context->diags, root->name, "nearly Attention: %s", patterns->why);
    return false;
}

void recognise_attention(struct graph *graph, const struct pass_context *context) {
    struct patterns patterns = {.context = context}, *shared = &patterns;
    for (int i = 0; i < ROOTS; i++) patterns.root[i] = pattern_parse(graph->arena, roots[i].text);
    for (int i = 0; i < STEPS; i++) patterns.step[i] = pattern_parse(graph->arena, steps[i].text);
    recognise_each(graph, context, find, &shared);
}
