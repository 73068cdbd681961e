/* Recognises attention: softmax(scale q k + masks) v.
 *
 * Scores are followed back from the softmax to the product: Note [Scores] in recognise_attention_steps.c.
 *
 * Grouped-query attention repeats each of the heads of k and v for the heads of q that share it. The operator reads k
 * and v unrepeated; repeat_heads.c repeats them again where a mesh has more ranks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "passes/rewrite/recognise_attention.h"
#include "passes/rewrite/rewrite.h"

enum { MAX_STEPS = 32 /* on the way from a softmax to its product */ };

/* The shape a->lead, rows, columns. */
static int with_lead(const struct attention *a, int64_t rows, int64_t columns, int64_t *shape) {
    memcpy(shape, a->lead.dims, (size_t)a->lead.n * sizeof *shape);
    shape[a->lead.n] = rows;
    shape[a->lead.n + 1] = columns;
    return a->lead.n + 2;
}

/* Notes why scores that were followed so far are no match, for a remark; false. */
__attribute__((format(printf, 2, 3))) static bool refuses(struct attention *a, const char *format, ...) {
    if (!a->context->verbose || (a->patterns->why && a->depth < a->patterns->depth)) return false;
    ARENA_PRINT_TO(a->patterns->why, a->recognition->builder.graph->arena, format);
    a->patterns->depth = a->depth;
    return false;
}

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

static bool encloses(struct attention *a, const struct match *match, int score) {
    return match_encloses(match, score) ||
           refuses(a, "scores '%s' are also read by other nodes", attention_tensor(a, score)->name);
}

static bool accept_step(void *env, const struct match *match) {
    struct way *way = env;
    struct attention *a = way->a, before = *a;
    int score = match_tensor(match, "score");
    const struct attention_step *step = &attention_steps[way->step];
    bool goes_on = score < 0 || (alike(attention_tensor(a, way->tensor), attention_tensor(a, score), step->reshapes) &&
                                 encloses(a, match, score) && follow(a, match->matcher, score));
    struct lead lead = lead_of(attention_tensor(a, way->tensor));
    if (goes_on && lead.count == a->lead.count && (!step->take || step->take(a, match, step))) return true;
    *a = before;
    return false;
}

/* Fills in the description of the scores in `tensor`; false if they are none. a->lead becomes the longest list of
 * leading dimensions met; q, k, v and masks are brought into its shape. */
static bool follow(struct attention *a, const struct matcher *matcher, int tensor) {
    struct lead lead = lead_of(attention_tensor(a, tensor));
    if (lead.n < 1 || ++a->depth > MAX_STEPS) return false;
    if (lead.n > a->lead.n) a->lead = lead;
    for (int i = 0; i < ATTENTION_STEPS; i++) {
        struct way way = {a, i, tensor};
        if (matcher_find(matcher, a->patterns->step[i], tensor, accept_step, &way, NULL)) return true;
    }
    const int producer = attention_tensor(a, tensor)->producer;
    return refuses(a, "scores '%s' (%s) are no product of q and k that is scaled, capped or masked",
                   attention_tensor(a, tensor)->name,
                   producer < 0 ? "not computed" : a->recognition->builder.graph->nodes.at[producer].op->name);
}

static bool has_shape(const struct tensor *t, int n, const int64_t *shape) {
    return t->ndim == n && memcmp(t->dims, shape, (size_t)n * sizeof *shape) == 0;
}

/* The tensor in that shape: the input of a Reshape that computes it if that has the shape, else a new Reshape. */
static int reshaped(struct attention *a, int id, int n, const int64_t *shape) {
    const struct node *reshape;
    while ((reshape = made_by(a->recognition->builder.graph, id, OP_Reshape))) {
        id = reshape->inputs[0];
        if (has_shape(attention_tensor(a, id), n, shape)) return id;
    }
    return build_reshape(&a->recognition->builder, id, n, shape);
}

/* The tensor reshaped to leading dimensions a->lead, if its own leading dimensions group the same elements
 * differently; else the tensor. */
static int bring(struct attention *a, int id) {
    const struct tensor *t = attention_tensor(a, id);
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
            if (!has_shape(attention_tensor(a, id), attention_tensor(a, other)->ndim, attention_tensor(a, other)->dims))
                continue;
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
    int n = attention_tensor(a, id)->ndim;
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
    if (attention_tensor(a, id)->ndim != n) return id;
    if (expand)
        return repeats(attention_tensor(a, expand->inputs[0]), attention_tensor(a, id), heads) ? expand->inputs[0] : id;
    if (!reshape || !(expand = made_by(graph, reshape->inputs[0], OP_Expand))) return id;
    const struct tensor *wide = attention_tensor(a, reshape->inputs[0]), *from = attention_tensor(a, expand->inputs[0]);
    if (wide->ndim != n + 1 || !repeats(from, wide, heads + 1)) return id;
    int64_t shape[RT_MAX_NDIM];
    for (int d = 0, e = 0; d < n; d++, e++) {
        int64_t extent = wide->dims[e];
        if (d == heads) extent *= wide->dims[++e];
        if (extent != attention_tensor(a, id)->dims[d]) return id;
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
    if (!exchange || !op_exchanges_last(exchange)) return -1;
    const struct tensor *x = attention_tensor(a, exchange->inputs[0]), *y = attention_tensor(a, id);
    const int n = x->ndim;
    int64_t shape[RT_MAX_NDIM];
    if (y->ndim < 2 || x->dims[n - 1] != y->dims[y->ndim - 2] || x->dims[n - 2] != y->dims[y->ndim - 1]) return -1;
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

/* The extent of a mask in dimension `dim` of scores of n dimensions, to which it is broadcast. */
static int64_t mask_extent(const struct tensor *t, int n, int dim) {
    int own = dim - (n - t->ndim);
    return own < 0 ? 1 : t->dims[own];
}

/* The mask reshaped to leading dimensions a->lead. A group of dimensions that becomes another group of the same extent
 * must be either there in full or broadcast as a whole; -1 if it is neither. */
static int mask_tensor(struct attention *a, const struct mask *mask) {
    const struct tensor *t = attention_tensor(a, mask->tensor);
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

/* If every row has a visible key, a low enough finite mask gives hidden keys weight 0, as -inf does. The mask then
 * becomes -inf, so that the kernel can skip the keys before a window. */
static void hide_completely(struct attention *a) {
    bool alone = a->keep.tensor < 0 && a->nbias == 0 && !a->clamp;
    if (a->causal && a->window && a->sees && alone && attention_fill_hides(a, a->fill)) a->fill = -INFINITY;
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
    const struct tensor *q = attention_tensor(a, recognition->inputs[0]),
                        *k = attention_tensor(a, recognition->inputs[1]),
                        *v = attention_tensor(a, recognition->inputs[2]);
    int64_t kv = k->ndim == a->lead.n + 2 ? k->dims[a->lead.n - 1] : 0;
    recognition->ninputs = 3;
    return kv > 0 && heads % kv == 0 && fits(a, q, heads) && fits(a, k, kv) && fits(a, v, kv);
}

/* Note [Flash attention]
 * If the user asks for FlashAttention and the target has it, attention becomes FlashAttention. That has a gradient, so
 * training uses it as well. It supports f32 and 16-bit floats, heads of up to RT_FLASH_HEAD elements, and masks that
 * need no gradient. Any other attention is compiled as if FlashAttention had not been asked for. */

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
        const struct node *node = graph_producer(graph, left[n]);
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
    const struct tensor *q = attention_tensor(a, recognition->inputs[0]),
                        *v = attention_tensor(a, recognition->inputs[2]);
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
    if (half && a->context->attention != ATTENTION_PRODUCTS && !rewrite_takes_halves(a->context, &ops[OP_Attention]))
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
    const enum op_id op = operator_of(a);
    if (op == OP_NONE) return false;
    if (op == OP_FlashAttention) add_flag(a, "library", library_of(a->context->attention));
    if (recognition_result(recognition)->ndim == a->lead.n + 2 && op == OP_Attention) {
        recognition_replace(recognition, &ops[op]);
        return true;
    }
    const int attention = make_attention(a, op);
    if (attention < 0) return false;
    recognition_reshape(recognition, attention);
    recognition_replace(recognition, &ops[OP_Reshape]);
    return true;
}

/* Makes a constant causal mask that is the only bias the attribute `causal`, even if its value is not as low as
 * replaces() requires: every row sees some key, so hidden keys get weight 0 unless scores are as large as the mask. */
static void see_causal(struct attention *a, const struct tensor *weights) {
    if (a->nbias != 1 || a->masked || a->clamp) return;
    struct known_mask known =
        known_mask(a->recognition->builder.graph, &a->patterns->known, a->bias[0].tensor, weights, 0);
    if (known.kind != MASK_CAUSAL || !known.sees || !attention_fill_hides(a, known.fill)) return;
    a->nbias = 0;
    attention_causal(a, &known, known.fill);
}

/* A score of each row that is equal for all queries of a head: `sink`, or `line` without the dimension of the keys. */
static bool take_sink(struct attention *a, const struct match *match) {
    int sink = match_tensor(match, "sink"), line = match_tensor(match, "line");
    if (line >= 0) {
        const struct tensor *t = attention_tensor(a, line);
        int64_t shape[RT_MAX_NDIM + 1] = {0};
        if (t->ndim + 1 > RT_MAX_NDIM) return false;
        memcpy(shape, t->dims, (size_t)t->ndim * sizeof *shape);
        shape[t->ndim] = 1;
        sink = build_reshape(&a->recognition->builder, line, t->ndim + 1, shape);
    }
    if (sink < 0) return line < 0;
    a->sink = (struct mask){unrepeated_mask(a, sink), lead_of(attention_tensor(a, match_tensor(match, "score")))};
    const struct tensor *t = attention_tensor(a, a->sink.tensor);
    int rows = t->ndim - 2;
    if (rows < 0 || t->dims[rows + 1] != 1) return false;
    if (t->dims[rows] == 1) return true;
    if (!known_repeats(a->recognition->builder.graph, a->sink.tensor, rows)) return false;
    a->sink.tensor = build_piece(&a->recognition->builder, a->sink.tensor, rows, 0, 1, 1);
    return a->sink.tensor >= 0;
}

/* The model sets the weights of hidden keys to 0 after the softmax. They are 0 already, except in rows without a
 * visible key. With hidden scores of -inf, such rows give NaN, and nan_to_zero makes them 0. */
static bool take_zeros(struct attention *a, const struct match *match) {
    const bool drop = match_has(match, "hidden");
    int mask = match_tensor(match, drop ? "hidden" : "shown");
    const struct tensor *score = attention_tensor(a, match_tensor(match, "score"));
    if (attention_tensor(a, mask)->dtype != RT_BOOL) mask = attention_bools(a, mask);
    if (mask < 0 || !a->masked || a->fill > -1e4 || !attention_hides(a, mask, score, drop))
        return refuses(a, "weights are replaced by 0 where scores were not hidden");
    a->fill = -INFINITY;
    a->nan_to_zero = RT_NAN_TO_ZERO;
    return true;
}

static bool take_nan_to_zero(struct attention *a, const struct match *match) {
    (void)match;
    a->nan_to_zero = RT_NAN_TO_ZERO; /* PyTorch 2.15 */
    return true;
}

/* The product times sigmoid(logsumexp(scores) - sink) is the attention whose softmax has the sink as one more score. */
static bool take_gate(struct attention *a, const struct match *match) {
    const struct tensor *gate = attention_tensor(a, match_tensor(match, "gate")),
                        *row = attention_tensor(a, match_tensor(match, "m"));
    return has_shape(gate, row->ndim, row->dims);
}

/* From scores to the result; p: the product with v. */
static const struct {
    const char *text;
    bool (*take)(struct attention *a, const struct match *match); /* after the scores; may be NULL */
} roots[] = {
    {"p:MatMul(regrouped(Softmax[last](score)), v)", NULL},
    {"p:MatMul(regrouped(Where(IsNaN(w), 0, w:Softmax[last](score))), v)", take_nan_to_zero},
    {"p:MatMul(regrouped(Slice[but_last](Softmax[last](Sub(c, ReduceMax(c:Concat[last](score, sink)))))), v)", NULL},
    {"p:MatMul(regrouped(Slice[but_last](Softmax[last](Concat[last](score, sink)))), v)", NULL},
    {"p:MatMul(regrouped(Where(hidden, 0, Softmax[last](score))), v)", take_zeros},
    {"p:MatMul(regrouped({Where(shown, Softmax[last](score), 0) | Mul(Softmax[last](score), shown)}), v)", take_zeros},
    {"Mul(p:MatMul(Softmax[last](score), v), gate:{Sigmoid(Sub(logsumexp(score), sink))"
     "| Reshape[column](Sigmoid(Sub(Reshape(logsumexp(score)), line)))})",
     take_gate},
};
_Static_assert(sizeof roots / sizeof *roots == ATTENTION_ROOTS, "a pattern per root");

/* Replaces the root by attention on operands before heads were repeated, if that fits, else on those after it. False:
 * the root is not changed. */
static bool make(struct attention *a) {
    struct attention found = *a;
    a->depth = MAX_STEPS;
    if (!make_operands(a, true) && (*a = found, a->depth = MAX_STEPS, !make_operands(a, false)))
        return refuses(a, "q '%s', k '%s' and v '%s' have no heads that fit", attention_tensor(a, a->q)->name,
                       attention_tensor(a, a->k)->name, attention_tensor(a, a->v)->name);
    if (!make_masks(a)) return refuses(a, "a mask cannot be broadcast to the scores");
    return replace(a) || refuses(a, "the target has no kernel for it in this type, or in training");
}

struct way_in {
    const struct attention *a; /* as before anything was found */
    int root;                  /* row of `roots` */
};

static bool accept_root(void *env, const struct match *match) {
    const struct way_in *way = env;
    struct attention found = *way->a, *a = &found;
    a->recognition->nattrs = 0;
    const struct node *product = made_by(match->matcher->graph, match_tensor(match, "p"), OP_MatMul);
    const struct tensor *weights = attention_tensor(a, product->inputs[0]);
    int score = match_tensor(match, "score");
    if (attr_int(product, "trans_a", 0) || attr_int(product, "trans_b", 0) || weights->ndim < 3) return false;
    if (!alike(weights, attention_tensor(a, score), true) || !encloses(a, match, score)) return false;
    a->v = match_tensor(match, "v");
    a->lead = lead_of(weights);
    if (!take_sink(a, match)) return false;
    if (!follow(a, match->matcher, score) || (a->masked && a->before && a->nbias > a->before)) return false;
    see_causal(a, weights);
    if (roots[way->root].take && !roots[way->root].take(a, match)) return false;
    return make(a);
}

/* The description of a node Attention, as ONNX's operator is imported. Its masks are examined here. */
static bool describe_node(struct attention *a, const struct node *node) {
    const int *in = node->inputs;
    const struct tensor *q = attention_tensor(a, in[0]), *k = attention_tensor(a, in[1]);
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
    if (node->ninputs > 3 && in[3] >= 0 && !attention_mask(a, in[3], &score, fill, false)) return false;
    return node->ninputs < 5 || in[4] < 0 || attention_bias(a, in[4], &score);
}

/* True if a softmax stands at most `steps` nodes before the tensor. */
static bool from_softmax(const struct graph *graph, int tensor, int steps) {
    const struct node *node = graph_producer(graph, tensor);
    bool found = node && node->op->id == OP_Softmax && graph->tensors.at[tensor].ndim > 2;
    for (int i = 0; node && i < node->ninputs && steps > 1 && !found; i++)
        found = from_softmax(graph, node->inputs[i], steps - 1);
    return found;
}

/* True for a product with the result of a softmax: a remark says why it is no attention. */
static bool reads_weights(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_MatMul && from_softmax(graph, node->inputs[0], 3);
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
    struct near_miss miss = {0};
    patterns->why = NULL;
    for (int i = 0; i < ATTENTION_ROOTS; i++) {
        struct way_in way = {&a, i};
        if (matcher_find(matcher, patterns->root[i], result, accept_root, &way, &miss)) return true;
    }
    if (!patterns->why && patterns->context->verbose && miss.nodes > 1 && reads_weights(builder->graph, root))
        patterns->why = near_miss_text(builder->graph, &miss);
    if (patterns->why) diag_remark(patterns->context->diags, root->name, "nearly Attention: %s", patterns->why);
    return false;
}

void recognise_attention(struct graph *graph, const struct pass_context *context) {
    struct patterns patterns = {.context = context}, *shared = &patterns;
    for (int i = 0; i < ATTENTION_ROOTS; i++) patterns.root[i] = pattern_parse(graph->arena, roots[i].text);
    for (int i = 0; i < ATTENTION_STEPS; i++) patterns.step[i] = pattern_parse(graph->arena, attention_steps[i].text);
    recognise_each(graph, context, find, &shared);
}
