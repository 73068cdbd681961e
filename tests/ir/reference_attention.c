/* Attention and Rope by their definitions, in f64; masks as ir/ops.def says. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/expr/eval.h"
#include "tests/ir/reference.h"

static const struct tensor *operand(const struct graph *graph, const struct node *node, int i) {
    return i < node->ninputs && node->inputs[i] >= 0 ? &graph->tensors.at[node->inputs[i]] : NULL;
}

/* The element of a tensor that broadcasts to index `at` of n dimensions. */
static double broadcast(const struct tensor *t, const int64_t *at, int n) {
    int64_t offset = 0;
    for (int d = 0; d < t->ndim; d++) offset = offset * t->dims[d] + (t->dims[d] == 1 ? 0 : at[n - t->ndim + d]);
    struct number value = eval_load(t->data, t->dtype, offset);
    return value.is_float ? value.f : (double)value.i;
}

struct scores {
    const struct tensor *q, *k, *v, *keep, *bias;
    const struct node *node;
    int n;
};

/* `at` names batch, head and query; at[n - 1] the key. */
static double score(const struct scores *s, int64_t *at) {
    const struct node *node = s->node;
    int n = s->n, d = (int)s->q->dims[n - 1];
    int64_t head = at[n - 3], key = at[n - 1], group = s->q->dims[n - 3] / s->k->dims[n - 3], from[RT_MAX_NDIM];
    double sum = 0;
    memcpy(from, at, sizeof from);
    from[n - 3] = head / group;
    from[n - 2] = key;
    for (int i = 0; i < d; i++) {
        int64_t a[RT_MAX_NDIM];
        memcpy(a, at, sizeof a);
        a[n - 1] = from[n - 1] = i;
        sum += broadcast(s->q, a, n) * broadcast(s->k, from, n);
    }
    sum *= attr_float(node, "scale", 0);
    double cap = attr_float(node, "cap", 0);
    if (cap > 0) sum = cap * tanh(sum / cap);
    double bias = s->bias ? broadcast(s->bias, at, n) : 0;
    bool masked = s->keep && (broadcast(s->keep, at, n) != 0) == attr_int(node, "drop", 0);
    int64_t last = at[n - 2] + attr_int(node, "offset", 0), window = attr_int(node, "window", 0);
    if (attr_int(node, "causal", 0)) masked = masked || key > last || (window && key <= last - window);
    bool first = attr_int(node, "bias_first", 0);
    sum = masked ? attr_float(node, "fill", 0) + (first ? 0 : bias) : sum + bias;
    return attr_int(node, "clamp", 0) ? fmax(sum, -(double)FLT_MAX) : sum;
}

const void *reference_attention(struct graph *graph, const struct node *node) {
    struct scores s = {operand(graph, node, 0),      operand(graph, node, 1), operand(graph, node, 2),
                       operand(graph, node, 3),      operand(graph, node, 4), node,
                       operand(graph, node, 0)->ndim};
    const struct tensor *y = &graph->tensors.at[node->outputs[0]], *sink = operand(graph, node, 5);
    int n = s.n;
    int64_t at[RT_MAX_NDIM] = {0}, i = 0, keys = s.k->dims[n - 2], group = s.q->dims[n - 3] / s.k->dims[n - 3];
    double *out = ARENA_ARRAY(graph->arena, double, tensor_elements(y) + 1);
    do {
        double high = -INFINITY, sum = 0, total = 0;
        int64_t query[RT_MAX_NDIM], from[RT_MAX_NDIM];
        memcpy(query, at, sizeof query);
        memcpy(from, at, sizeof from);
        from[n - 3] = at[n - 3] / group;
        double own = sink ? broadcast(sink, at, n) : -INFINITY;
        for (query[n - 1] = 0; query[n - 1] < keys; query[n - 1]++) high = fmax(high, score(&s, query));
        high = fmax(high, own);
        sum = sink ? exp(own - high) : 0;
        for (query[n - 1] = 0; query[n - 1] < keys; query[n - 1]++) {
            double weight = exp(score(&s, query) - high);
            from[n - 2] = query[n - 1];
            sum += weight;
            total += weight * broadcast(s.v, from, n);
        }
        int64_t to_zero = attr_int(node, "nan_to_zero", 0);
        bool hidden = isinf(high) && high < 0;
        out[i++] = to_zero == RT_HIDDEN_ROWS_TO_ZERO ? (hidden ? 0 : total / sum)
                   : to_zero && isnan(sum)           ? 0
                                                     : total / sum;
    } while (eval_next(at, y->dims, n));
    return out;
}

const void *reference_rope(struct graph *graph, const struct node *node) {
    const struct tensor *y = &graph->tensors.at[node->outputs[0]], *x = operand(graph, node, 0);
    bool pairs = attr_int(node, "interleaved", 0);
    int n = y->ndim;
    int64_t at[RT_MAX_NDIM] = {0}, i = 0, half = y->dims[n - 1] / 2;
    double *out = ARENA_ARRAY(graph->arena, double, tensor_elements(y) + 1);
    do {
        int64_t other[RT_MAX_NDIM];
        memcpy(other, at, sizeof other);
        bool first = pairs ? at[n - 1] % 2 == 0 : at[n - 1] < half;
        other[n - 1] += (pairs ? 1 : half) * (first ? 1 : -1);
        out[i++] = broadcast(x, at, n) * broadcast(operand(graph, node, 1), at, n) +
                   (first ? -1 : 1) * broadcast(x, other, n) * broadcast(operand(graph, node, 2), at, n);
    } while (eval_next(at, y->dims, n));
    return out;
}
