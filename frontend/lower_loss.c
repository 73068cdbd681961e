/* Losses. The class of each element is picked by comparing with all classes and summing: elementwise and a reduction, so
 * that gradients and cuts of the class dimension need nothing of their own. */
#include "frontend/onnx_lower.h"

/* (n, d..) -> (n, 1, d..) */
static int beside_classes(struct lower *l, int x) {
    return emit_unsqueeze(l, x, 1);
}

/* True where a class, (1, c, 1..), is the target's, (n, 1, d..). */
static int is_class(struct lower *l, int target, int64_t classes, int ndim) {
    int64_t shape[MAX_NDIM], *places = ARENA_ARRAY(l->b.graph->arena, int64_t, classes + 1);
    for (int64_t i = 0; i < classes; i++) places[i] = i;
    for (int d = 0; d < ndim; d++) shape[d] = d == 1 ? classes : 1;
    return emit2(l, "Equal", beside_classes(l, target), emit_ints(l, (int)classes, places, ndim, shape));
}

/* Sum over the classes of x where the class is the target's. */
static int pick(struct lower *l, int hot, int x) {
    bool axes[MAX_NDIM] = {false, true};
    return emit_reduce(l, "ReduceSum", emit3(l, "Where", hot, x, emit_like(l, x, 0)), axes, false);
}

static int sum_all(struct lower *l, int x) {
    bool axes[MAX_NDIM];
    for (int d = 0; d < MAX_NDIM; d++) axes[d] = true;
    return emit_reduce(l, "ReduceSum", x, axes, false);
}

/* Weight of each element: its class', zero where it is ignored. *weights = -1 if all are one. */
static int element_weights(struct lower *l, int target, int hot, const struct tensor *x, int *weights) {
    *weights = -1;
    if (lower_has(l, 2) && (*weights = pick(l, hot, emit_per_channel(l, l->inputs[2], x->ndim))) < 0) return -1;
    if (!lower_given(l, "ignore_index")) return 0;
    int ignored = emit_with(l, "Equal", target, (double)lower_int(l, "ignore_index"));
    int zero = build_scalar(&l->b, x->dtype, 0), kept = *weights < 0 ? build_scalar(&l->b, x->dtype, 1) : *weights;
    *weights = emit3(l, "Where", ignored, zero, kept);
    return *weights < 0 ? -1 : 0;
}

static int check_shapes(struct lower *l, const struct tensor *x) {
    struct tensor target = lower_input(l, 1);
    bool fits = x->ndim >= 2 && target.ndim == x->ndim - 1;
    for (int d = 0; fits && d < target.ndim; d++) fits = target.dims[d] == x->dims[d ? d + 1 : 0];
    if (!fits) return lower_misfit(l, l->inputs[0], l->inputs[1]);
    if (x->dims[1] > 1 << 28) return lower_error(l, 505, EXIT_LIMIT, "too many classes");
    if (rt_dtype_is_float(target.dtype))
        return lower_error(l, 379, EXIT_MALFORMED, "targets have type %s", rt_dtypes[target.dtype].name);
    if (!lower_has(l, 2)) return 0;
    struct tensor weights = lower_input(l, 2);
    return weights.ndim == 1 && weights.dims[0] == x->dims[1] ? 0 : lower_misfit(l, l->inputs[0], l->inputs[2]);
}

/* ONNX NegativeLogLikelihoodLoss-13 of the logarithms of probabilities. */
static int emit_nll(struct lower *l, int log_probability) {
    if (log_probability < 0) return -1;
    struct tensor x = lower_tensor(l, log_probability);
    const char *reduction = lower_text(l, "reduction");
    bool mean = strcmp(reduction, "mean") == 0, none = strcmp(reduction, "none") == 0;
    if (!mean && !none && strcmp(reduction, "sum") != 0)
        return lower_error(l, 335, EXIT_MALFORMED, "no reduction of that name");
    if (check_shapes(l, &x) < 0) return -1;
    int target = emit_cast(l, l->inputs[1], RT_I64), hot = is_class(l, target, x.dims[1], x.ndim);
    int weights, loss = emit1(l, "Neg", pick(l, hot, log_probability));
    if (loss < 0 || element_weights(l, target, hot, &x, &weights) < 0) return -1;
    struct tensor elements = lower_tensor(l, loss);
    if (weights >= 0) loss = emit2(l, "Mul", loss, weights);
    if (none) return loss;
    int sum = sum_all(l, loss);
    if (!mean) return sum;
    if (weights >= 0)
        return emit2(l, "Div", sum, sum_all(l, emit_expand(l, weights, elements.ndim, elements.dims)));
    return emit_with(l, "Mul", sum, 1 / (double)tensor_elements(&elements));
}

int lower_nll_loss(struct lower *l) {
    return lower_result(l, emit_nll(l, l->inputs[0]));
}

int lower_cross_entropy(struct lower *l) {
    if (lower_ndim(l, l->inputs[0]) < 2) return lower_misfit(l, l->inputs[0], l->inputs[1]);
    int log_probability = emit_softmax(l, "LogSoftmax", l->inputs[0], 1);
    if (lower_wants(l, 1)) l->outputs[1] = log_probability;
    return lower_result(l, emit_nll(l, log_probability));
}
