/* Dimension annotations of attention and of rotary embeddings. */
#include "ir/ops/ops.h"

enum { NO_OPERAND = 99 };

/* The operands of attention, by number; those of masks and sinks may be left out. */
struct heads {
    int q, k, v, keep, bias, sink;
};

/* The shapes of q, k and v, and the attributes. */
static int check_heads(struct dims *dims, const struct graph *graph, const struct node *node, const struct heads *at,
                       const char **why) {
    const struct tensor *q = input(graph, node, at->q), *k = input(graph, node, at->k), *v = input(graph, node, at->v);
    int n = q->ndim;
    if (n < 3 || k->ndim != n || v->ndim != n)
        return refuse(dims, why, "q, k and v have %d, %d and %d dimensions, but need the same number, at least 3", n,
                      k->ndim, v->ndim);
    for (int d = 0; d < n - 3; d++)
        if (!open_meet(graph->open, k->dims[d], q->dims[d]) || !open_meet(graph->open, v->dims[d], q->dims[d]))
            return refuse(dims, why, "batches of q, k and v differ in dimension %d", d);
    if (v->dims[n - 3] != k->dims[n - 3] || !open_meet(graph->open, v->dims[n - 2], k->dims[n - 2]) ||
        q->dims[n - 1] != k->dims[n - 1])
        return refuse(dims, why, "q %s, k %s and v %s do not fit", tensor_type(dims->arena, q),
                      tensor_type(dims->arena, k), tensor_type(dims->arena, v));
    if (k->dims[n - 3] < 1 || q->dims[n - 3] % k->dims[n - 3])
        return refuse(dims, why, "%lld query head(s) cannot share %lld key head(s)", (long long)q->dims[n - 3],
                      (long long)k->dims[n - 3]);
    if (!attr_find(node, "scale")) return refuse(dims, why, "needs attribute 'scale'");
    if ((input(graph, node, at->keep) || attr_int(node, "causal", 0)) && !attr_find(node, "fill"))
        return refuse(dims, why, "needs attribute 'fill'");
    if (attr_int(node, "window", 0) && !attr_int(node, "causal", 0))
        return refuse(dims, why, "attribute 'window' is for causal attention");
    const struct tensor *sink = input(graph, node, at->sink);
    for (int d = 1; sink && d <= 2 && d <= sink->ndim; d++)
        if (sink->dims[sink->ndim - d] != 1)
            return refuse(dims, why, "sink %s must have extent 1 for queries and keys", tensor_type(dims->arena, sink));
    return 0;
}

/* ... and what the kernels of flash attention ask of them. */
static int check_flash(struct dims *dims, const struct graph *graph, const struct node *node, const struct heads *at,
                       const char **why) {
    const struct tensor *q = input(graph, node, at->q), *v = input(graph, node, at->v);
    if (q->dtype == RT_F64) return refuse(dims, why, "scores are summed in f32");
    if (check_heads(dims, graph, node, at, why) < 0) return -1;
    if (q->dims[q->ndim - 1] > RT_FLASH_HEAD || v->dims[q->ndim - 1] > RT_FLASH_HEAD)
        return refuse(dims, why, "heads have more than %d elements", RT_FLASH_HEAD);
    return 0;
}

/* Binds a mask, which is broadcast to the shape of the scores. */
static int bind_mask(struct dims *dims, struct open_sizes *open, const struct tensor *mask, struct operand *operand,
                     const struct operand *scores, const char **why) {
    operand->ndim = mask->ndim;
    if (mask->ndim > scores->ndim)
        return refuse(dims, why, "the mask has %d dimension(s), more than the scores", mask->ndim);
    for (int d = 0; d < mask->ndim; d++) {
        const struct dim_factors *to = &scores->dim[scores->ndim - mask->ndim + d];
        int64_t extent = 1;
        for (int i = 0; i < to->n; i++) extent *= dims->factor[to->factor[i]].extent;
        if (mask->dims[d] == 1) continue;
        if (!open_meet(open, mask->dims[d], extent))
            return refuse(dims, why, "mask %s has %lld in dimension %d, not %lld", tensor_type(dims->arena, mask),
                          (long long)mask->dims[d], d, (long long)extent);
        operand->dim[d] = *to;
    }
    return 0;
}

/* Factor kinds of the rows of q, of the heads that share one head of k and v, and of the elements of a row of v. */
struct head_kinds {
    enum factor_kind rows, group, elements;
};

/* q (b.., (kv g), t, d), k (b.., kv, s, d), v (b.., kv, s, e), masks (b.., (kv g), t, s); y (b.., (kv g), t, e) in
 * *out. */
static int bind_heads(struct dims *dims, const struct graph *graph, const struct node *node, const struct heads *at,
                      const struct head_kinds *kinds, struct operand *out, const char **why) {
    const struct tensor *q = input(graph, node, at->q), *k = input(graph, node, at->k), *v = input(graph, node, at->v);
    struct operand *o = dims->operand, scores = {0};
    int n = q->ndim;
    int64_t group = q->dims[n - 3] / k->dims[n - 3], batch = 1;
    for (int d = 0; d < n - 3; d++) {
        dims_set(&scores, d, dims_factor(dims, "b", d, q->dims[d], FACTOR_PASS));
        batch *= q->dims[d];
    }
    int kv = dims_factor(dims, "kv", -1, k->dims[n - 3], FACTOR_PASS);
    dims_set(&scores, n - 3, kv);
    if (group != 1)
        scores.dim[n - 3].factor[scores.dim[n - 3].n++] = (signed char)dims_factor(dims, "g", -1, group, kinds->group);
    dims_set(&scores, n - 2, dims_factor(dims, "t", -1, q->dims[n - 2], kinds->rows));
    dims_set(&scores, n - 1, dims_factor(dims, "s", -1, k->dims[n - 2], FACTOR_WHOLE));
    int size = dims_factor(dims, "d", -1, q->dims[n - 1], FACTOR_WHOLE);
    int e = dims_factor(dims, "e", -1, v->dims[n - 1], kinds->elements);
    scores.ndim = n;
    const int masks[] = {at->keep, at->bias, at->sink};
    for (int i = 0; i < 3; i++)
        if (input(graph, node, masks[i]) &&
            bind_mask(dims, graph->open, input(graph, node, masks[i]), &o[masks[i]], &scores, why) < 0)
            return -1;
    o[at->q] = o[at->k] = *out = scores;
    dims_set(&o[at->q], n - 1, size);
    dims_set(out, n - 1, e);
    dims_set(&o[at->k], n - 3, kv);
    o[at->k].dim[n - 2] = scores.dim[n - 1];
    o[at->v] = o[at->k];
    dims_set(&o[at->k], n - 1, size);
    dims_set(&o[at->v], n - 1, e);
    dims->points = (double)(batch * q->dims[n - 3]) * (double)(q->dims[n - 2] * k->dims[n - 2]) *
                   (double)(q->dims[n - 1] + v->dims[n - 1]);
    return 0;
}

static const struct heads attention_heads = {0, 1, 2, 3, 4, 5};

enum { KEY_SCALES = 6, VALUE_SCALES = 7 };

/* Scales of the rows of operand `of`, which has codes: (b.., kv, s, 1). */
static int bind_scales(struct dims *dims, const struct graph *graph, const struct node *node, int at, int of,
                       const char **why) {
    const struct tensor *codes = input(graph, node, of), *scales = input(graph, node, at);
    const int last = codes->ndim - 1;
    bool fit = scales && codes->dtype == RT_I8 && scales->ndim == codes->ndim && scales->dims[last] == 1;
    for (int d = 0; fit && d < last; d++) fit = open_meet(graph->open, scales->dims[d], codes->dims[d]);
    if (!fit) return refuse(dims, why, "keys and values of codes, and they alone, have a scale for each row");
    dims->operand[at] = dims->operand[of];
    dims->operand[at].dim[last] = (struct dim_factors){0};
    return 0;
}

DIMS_FN(dims_attention) {
    static const struct head_kinds kinds = {FACTOR_PASS, FACTOR_PASS, FACTOR_PASS};
    const struct tensor *k = input(graph, node, attention_heads.k), *v = input(graph, node, attention_heads.v);
    if (k->dtype != v->dtype) return refuse(dims, why, "keys and values have different types");
    if (check_heads(dims, graph, node, &attention_heads, why) < 0) return -1;
    if (bind_heads(dims, graph, node, &attention_heads, &kinds, &dims->operand[node->ninputs], why) < 0) return -1;
    dims->alternative = k->dtype == RT_I8;
    if (!dims->alternative && node->ninputs <= KEY_SCALES) return 0;
    return bind_scales(dims, graph, node, KEY_SCALES, attention_heads.k, why) < 0 ||
                   bind_scales(dims, graph, node, VALUE_SCALES, attention_heads.v, why) < 0
               ? -1
               : 0;
}

/* Binds the statistics: two numbers for each row of scores. */
static void bind_stats(struct dims *dims, const struct operand *y, struct operand *out) {
    *out = *y;
    dims_set(out, y->ndim - 1, dims_factor(dims, "stats", -1, 2, FACTOR_WHOLE));
}

DIMS_FN(dims_flash_attention) {
    static const struct head_kinds kinds = {FACTOR_PASS, FACTOR_PASS, FACTOR_WHOLE};
    struct operand *y = &dims->operand[node->ninputs];
    if (check_flash(dims, graph, node, &attention_heads, why) < 0) return -1;
    if (bind_heads(dims, graph, node, &attention_heads, &kinds, y, why) < 0) return -1;
    bind_stats(dims, y, y + 1);
    return 0;
}

/* dy, q, k, v, y, stats, masks -> dq, dk, dv. The gradient of a key is a sum over all query rows of all heads that
 * share it: of a rank's rows, it is a partial sum. */
DIMS_FN(dims_flash_attention_grad) {
    static const struct heads heads = {1, 2, 3, 6, 7, NO_OPERAND};
    static const struct head_kinds kinds = {FACTOR_SUM, FACTOR_WHOLE, FACTOR_WHOLE};
    struct operand *o = dims->operand, *out = o + node->ninputs;
    const struct tensor *q = input(graph, node, 1);
    if (check_flash(dims, graph, node, &heads, why) < 0) return -1;
    for (int i = 0; i < 6; i++)
        if (input(graph, node, i)->ndim != q->ndim) return refuse(dims, why, "input %d has other dimensions than q", i);
    if (bind_heads(dims, graph, node, &heads, &kinds, &o[0], why) < 0) return -1;
    o[4] = o[0];
    bind_stats(dims, &o[0], &o[5]);
    for (int i = 0; i < 6; i++)
        for (int d = 0; d < q->ndim; d++)
            if (input(graph, node, i)->dims[d] != dims_extent(dims, i, d))
                return refuse(dims, why, "input %d has %lld in dimension %d, not %lld", i,
                              (long long)input(graph, node, i)->dims[d], d, (long long)dims_extent(dims, i, d));
    for (int i = 0; i < 3; i++) out[i] = o[1 + i];
    return 0;
}

/* Makes the positions of keys (factor s) those of queries (t), except in masks, whose columns stay whole. */
static int join_positions(struct dims *dims, const struct graph *graph, const struct node *node, const int *keys,
                          const char **why) {
    const int rows = dims_find(dims, "t"), columns = dims_find(dims, "s");
    const int64_t axis = attr_int(node, "mesh", -1);
    if (axis < 0 || axis >= graph->mesh.naxes) return refuse(dims, why, "attribute 'mesh' is no axis");
    if (dims->factor[rows].extent != dims->factor[columns].extent)
        return refuse(dims, why, "there are %lld queries and %lld key(s)", (long long)dims->factor[rows].extent,
                      (long long)dims->factor[columns].extent);
    for (; *keys >= 0; keys++) dims_set(&dims->operand[*keys], dims->operand[*keys].ndim - 2, rows);
    dims->factor[rows].kind = FACTOR_PASS; /* keys' gradients are complete */
    return 0;
}

DIMS_FN(dims_ring_attention) {
    static const int keys[] = {1, 2, -1};
    return dims_flash_attention(dims, graph, node, why) < 0 ? -1 : join_positions(dims, graph, node, keys, why);
}

DIMS_FN(dims_ring_attention_grad) {
    const int keys[] = {2, 3, node->ninputs + 1, node->ninputs + 2, -1};
    return dims_flash_attention_grad(dims, graph, node, why) < 0 ? -1 : join_positions(dims, graph, node, keys, why);
}

/* x, cos and sin are broadcast to one shape, except for the last dimension, which is even. */
DIMS_FN(dims_rope) {
    const struct tensor *x = input(graph, node, 0), *cos = input(graph, node, 1), *sin = input(graph, node, 2);
    if (x->ndim < 1 || x->dims[x->ndim - 1] % 2) return refuse(dims, why, "the last dimension must be even");
    if (cos->dtype != sin->dtype || (cos->dtype != x->dtype && cos->dtype != op_summed_in(x->dtype)))
        return refuse(dims, why, "the tables must have the type of x, or the type in which it is summed");
    return dims_bind_text(dims, "* c^, * c, * c -> * c", graph, node, why);
}
