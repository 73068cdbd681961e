/* Mixtures of experts in their dense form: every expert computes all tokens, and a sum over the E experts scales their
 * results with weights that are zero for all but the K experts of a token. The sum over E experts becomes a sum over
 * the K chosen ones, whose products are ExpertMatMul.
 *
 * Note [Dense experts]
 * A tensor of the dense form has E experts, T tokens and C channels, in an order that follows from its dimensions and
 * its producer (struct order). *Choosing* a tensor replaces its E experts by the K experts of each token: the chosen
 * tensor, (T, K, C), has at (t, k) the value of expert index[t, k]. Operators that treat experts and tokens separately
 * are applied to chosen operands; a batched product with the experts' weights becomes ExpertMatMul.
 * The *rest* of a tensor is its value at experts that the token did not choose, if it is one known number.
 * ScatterElements of K values into zeros has rest 0, and so has its product with a finite tensor. If the rest is 0, the
 * sum over all experts equals the sum over the chosen ones. TopK chooses K different experts. */
#include <string.h>

#include "passes/rewrite/choose_experts.h"

/* A sum over experts: of one tensor, or of the product of two tensors. */
struct sum {
    int n, factor[2];
    struct order order[2];
};

/* The order of a tensor whose dimension `axis` counts experts. */
static bool order_around(const struct routing *routing, const struct tensor *t, int axis, struct order *order) {
    static const enum kind before[][KINDS] = {
        {EXPERT, TOKEN, CHANNEL}, {TOKEN, EXPERT, CHANNEL}, {TOKEN, CHANNEL, EXPERT}};
    int64_t outer = 1;
    if (t->dims[axis] != routing->experts) return false;
    for (int d = 0; d < axis; d++) outer *= t->dims[d];
    order->extent[EXPERT] = routing->experts;
    order->extent[TOKEN] = routing->tokens;
    if (!order_fits(routing, t, order)) return false;
    const int i = outer == 1 ? 0 : outer == routing->tokens ? 1 : 2;
    memcpy(order->at, before[i], sizeof order->at);
    return i < 2 || outer == routing->tokens * order->extent[CHANNEL];
}

/* A product (.., C, E) by (.., E, 1), or (.., 1, E) by (.., E, C), sums over experts; so does ReduceSum. */
static bool is_sum(const struct routing *routing, const struct node *root, struct sum *sum) {
    const struct tensor *x = tensor_of(routing, root->inputs[0]);
    int n;
    if (root->op->id == OP_ReduceSum) {
        const int64_t *axes = attr_ints(root, "axes", &n);
        *sum = (struct sum){.n = 1, .factor = {root->inputs[0]}};
        return n == 1 && order_around(routing, x, (int)axes[0], &sum->order[0]);
    }
    if (root->op->id != OP_MatMul || root->ninputs != 2 || root->noutputs != 1) return false;
    const struct tensor *w = tensor_of(routing, root->inputs[1]), *of[] = {x, w};
    if (x->ndim < 2 || w->ndim < 2 || !tensor_elements(x) || !tensor_elements(w)) return false;
    const int axis[] = {x->ndim - (attr_int(root, "trans_a", 0) ? 2 : 1),
                        w->ndim - (attr_int(root, "trans_b", 0) ? 1 : 2)};
    *sum = (struct sum){.n = 2, .factor = {root->inputs[0], root->inputs[1]}};
    if (routing->tokens > 1 && (w->ndim < 3 || w->ndim != x->ndim)) return false;
    for (int k = 0; k < 2; k++) {
        const int64_t batch = tensor_elements(of[k]) / (of[k]->dims[of[k]->ndim - 1] * of[k]->dims[of[k]->ndim - 2]);
        if (batch != routing->tokens || !order_around(routing, of[k], axis[k], &sum->order[k])) return false;
    }
    return sum->order[0].extent[CHANNEL] == 1 || sum->order[1].extent[CHANNEL] == 1;
}

/* The sum over the chosen experts, (T, C); -1 if there is none. */
static int sum_of_chosen(struct routing *routing, const struct sum *sum) {
    struct chosen chosen[2];
    bool zero = false;
    int64_t channels = 1;
    for (int i = 0; i < sum->n; i++) {
        chosen[i] = choose(routing, sum->factor[i], &sum->order[i]);
        if (chosen[i].tensor < 0) return -1;
        zero = zero || chosen[i].rest == 0;
        if (sum->order[i].extent[CHANNEL] != 1) channels = sum->order[i].extent[CHANNEL];
    }
    if (!zero || routing->products == 0) return -1;
    if (sum->n == 2) chosen[0].tensor = build2(builder_of(routing), OP_Mul, chosen[0].tensor, chosen[1].tensor);
    const struct attr attrs[] = {attr_of_ints("axes", 1, (int64_t[]){1}), attr_of_int("keepdims", 0)};
    return build(builder_of(routing), OP_ReduceSum, 1, (int[]){expanded(routing, &chosen[0], channels)}, 2, attrs);
}

/* The routing that node TopK, or ArgMax, tells; false if it does not choose among the last dimension. */
static bool routing_of(struct routing *routing, int topk) {
    const struct node *node = producer_of(routing, topk);
    const struct tensor *scores = tensor_of(routing, node->inputs[0]), *index = tensor_of(routing, topk);
    const bool first = node->op->id == OP_ArgMax;
    const int64_t axis = first ? *attr_ints(node, "axes", NULL) : attr_int(node, "axis", 0);
    if (scores->ndim < 1 || axis != scores->ndim - 1 || tensor_elements(index) < 1) return false;
    routing->topk = topk;
    routing->choices = first ? 1 : index->dims[axis];
    routing->tokens = tensor_elements(index) / routing->choices;
    routing->experts = scores->dims[axis];
    return routing->experts > routing->choices;
}

static bool try_routing(struct recognition *recognition, int topk) {
    struct graph *graph = recognition->builder.graph;
    const struct node root = graph->nodes.at[recognition->root];
    struct routing routing = {.recognition = recognition};
    struct sum sum;
    if (!routing_of(&routing, topk) || !is_sum(&routing, &root, &sum)) return false;
    routing.index = build_reshape(&recognition->builder, topk, 2, (int64_t[]){routing.tokens, routing.choices});
    const int result = sum_of_chosen(&routing, &sum);
    if (result < 0) return false;
    recognition_reshape(recognition, result);
    recognition_replace(recognition, &ops[OP_Reshape]);
    return true;
}

struct candidates {
    VEC(int) topk; /* results of nodes TopK and ArgMax */
};

static bool find(struct matcher *matcher, struct build *builder, int node, const void *env) {
    const struct candidates *candidates = env;
    const struct node *root = &builder->graph->nodes.at[node];
    struct recognition recognition = {.builder = *builder, .root = node};
    (void)matcher;
    if (root->op->id != OP_ReduceSum && root->op->id != OP_MatMul) return false;
    if (!rt_dtype_is_float(recognition_result(&recognition)->dtype)) return false;
    for (int i = candidates->topk.n - 1; i >= 0; i--)
        if (try_routing(&recognition, candidates->topk.at[i])) return true;
    return false;
}

void recognise_dense_experts(struct graph *graph, const struct pass_context *context) {
    struct candidates candidates = {0};
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->op->id == OP_TopK || node->op->id == OP_ArgMax)
            VEC_PUSH(graph->arena, &candidates.topk, node->outputs[0]);
    }
    if (!candidates.topk.n) return;
    recognise_each(graph, context, find, &candidates);
    pass_dce(graph, context); /* what was built for sums that stay */
}
