/* ONNX Runtime's mixture of experts, MoE of domain com.microsoft. What its documentation leaves open is done as in its
 * kernel for CPUs: the weights are Softmax over all experts, divided by the sum of the chosen ones if they are
 * normalised, and GELU is the approximation by tanh. */
#include <string.h>

#include "frontend/lower/lower_contrib.h"

enum { X, SCORES, UP, UP_BIAS, DOWN, DOWN_BIAS, LINEAR, LINEAR_BIAS };

struct mixture {
    int64_t tokens, experts, hidden, inner, chosen;
    int index;  /* (tokens, chosen) */
    bool gated; /* swiglu */
    int fusion;
};

/* Weights (experts, rows, columns) and their bias (experts, rows), which may be left out. */
static int check_weights(struct lower *lower, const struct mixture *m, int input, int64_t rows, int64_t columns) {
    const struct tensor w = lower_input(lower, input);
    if (w.ndim != 3 || w.dims[0] != m->experts || w.dims[1] != rows || w.dims[2] != columns)
        return lower_misfit(lower, lower->inputs[X], lower->inputs[input]);
    if (!lower_has(lower, input + 1)) return 0;
    const struct tensor bias = lower_input(lower, input + 1);
    if (bias.ndim == 2 && bias.dims[0] == m->experts && bias.dims[1] == rows) return 0;
    return lower_misfit(lower, lower->inputs[input], lower->inputs[input + 1]);
}

static int read_attributes(struct lower *lower, struct mixture *m) {
    m->gated = strcmp(lower_text(lower, "activation_type"), "swiglu") == 0;
    m->fusion = (int)lower_int(lower, "swiglu_fusion");
    m->chosen = lower_int(lower, "k");
    if (lower_int(lower, "use_sparse_mixer")) return lower_unsupported(lower, "use_sparse_mixer");
    if (m->gated && (m->fusion < 0 || m->fusion > 2))
        return lower_error(lower, 335, "swiglu_fusion is none of 0, 1 and 2");
    if (!m->gated && lower_has(lower, LINEAR))
        return lower_unsupported(lower, "fc3_experts_weights with another activation than swiglu");
    if (m->gated && lower_has(lower, LINEAR) != (m->fusion == 0))
        return lower_error(lower, 385, "swiglu_fusion %d needs %s fc3_experts_weights", m->fusion,
                           m->fusion ? "no" : "input");
    return 0;
}

static int read_shapes(struct lower *lower, struct mixture *m) {
    const struct tensor x = lower_input(lower, X), scores = lower_input(lower, SCORES), down = lower_input(lower, DOWN);
    if (x.ndim < 2 || x.ndim > 3 || scores.ndim != 2 || down.ndim != 3)
        return lower_misfit(lower, lower->inputs[X], lower->inputs[SCORES]);
    m->hidden = x.dims[x.ndim - 1];
    m->tokens = x.ndim == 3 ? x.dims[0] * x.dims[1] : x.dims[0];
    m->experts = scores.dims[1];
    m->inner = down.dims[2];
    if (!lower_meet(lower, scores.dims[0], m->tokens))
        return lower_misfit(lower, lower->inputs[X], lower->inputs[SCORES]);
    if (m->chosen < 1 || m->chosen > m->experts)
        return lower_error(lower, 335, "k is %lld, but there are %lld expert(s)", (long long)m->chosen,
                           (long long)m->experts);
    if (check_weights(lower, m, UP, m->gated && m->fusion ? 2 * m->inner : m->inner, m->hidden) < 0 ||
        check_weights(lower, m, DOWN, m->hidden, m->inner) < 0)
        return -1;
    return lower_has(lower, LINEAR) ? check_weights(lower, m, LINEAR, m->inner, m->hidden) : 0;
}

/* The weights of the chosen experts, (tokens, chosen); their numbers become m->index. */
static int choose_experts(struct lower *lower, struct mixture *m) {
    const int all = emit_softmax(lower, OP_Softmax, lower->inputs[SCORES], 1);
    m->index = emit_top(lower, all, 1, m->chosen, true);
    const int weights = emit_gather_elements(lower, all, m->index, 1);
    if (!lower_int(lower, "normalize_routing_weights")) return weights;
    return emit2(lower, OP_Div, weights, emit_reduce_along(lower, OP_ReduceSum, weights, 1, true));
}

/* Rows (tokens, chosen, columns) by the weights of their experts, plus the bias. */
static int product(struct lower *lower, const struct mixture *m, int rows, int input) {
    const struct attr trans_b = attr_of_int("trans_b", 1);
    const int result = emit(lower, OP_ExpertMatMul, 3, (int[]){rows, lower->inputs[input], m->index}, 1, &trans_b);
    if (!lower_has(lower, input + 1)) return result;
    return emit2(lower, OP_Add, result, emit_gather(lower, lower->inputs[input + 1], m->index, 0));
}

/* g sigmoid(alpha g) (l + beta), g and l being limited by swiglu_limit. */
static int swiglu(struct lower *lower, int gate, int linear) {
    const struct attr alpha = attr_of_float("alpha", lower_float(lower, "activation_alpha"));
    if (lower_given(lower, "swiglu_limit")) {
        const double limit = lower_float(lower, "swiglu_limit");
        gate = emit_with(lower, OP_Min, gate, limit);
        linear = emit_with(lower, OP_Min, emit_with(lower, OP_Max, linear, -limit), limit);
    }
    const int swish = emit(lower, OP_Swish, 1, &gate, 1, &alpha);
    return emit2(lower, OP_Mul, swish, emit_with(lower, OP_Add, linear, lower_float(lower, "activation_beta")));
}

/* The hidden rows, (tokens, chosen, inner). */
static int activated(struct lower *lower, const struct mixture *m, int rows) {
    static const struct {
        const char *name;
        enum op_id op;
    } activations[] = {{"relu", OP_Relu}, {"gelu", OP_GeluTanh}, {"silu", OP_Silu}};
    const char *name = lower_text(lower, "activation_type");
    const int up = product(lower, m, rows, UP);
    if (m->gated && m->fusion == 0) return swiglu(lower, up, product(lower, m, rows, LINEAR));
    if (m->gated) {
        const int64_t step = m->fusion == 1 ? 2 : 1, second = m->fusion == 1 ? 1 : m->inner;
        return swiglu(lower, emit_piece(lower, up, 2, 0, step, m->inner),
                      emit_piece(lower, up, 2, second, step, m->inner));
    }
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(name, activations[i].name) == 0) return emit1(lower, activations[i].op, up);
    if (strcmp(name, "identity") == 0) return up;
    return lower_unknown(lower, "activation_type", name);
}

int lower_mixture_of_experts(struct lower *lower) {
    struct mixture m = {.index = -1};
    if (contrib_requires(lower, 1, (int[]){DOWN}) < 0 || read_attributes(lower, &m) < 0 || read_shapes(lower, &m) < 0)
        return -1;
    const struct tensor x = lower_input(lower, X);
    const int weights = choose_experts(lower, &m);
    const int rows = emit_expand(lower, emit_reshape(lower, lower->inputs[X], 3, (int64_t[]){m.tokens, 1, m.hidden}), 3,
                                 (int64_t[]){m.tokens, m.chosen, m.hidden});
    const int result = product(lower, &m, activated(lower, &m, rows), DOWN);
    const int weighed = emit2(lower, OP_Mul, result, emit_unsqueeze(lower, weights, 2));
    const int sum = emit_reduce_along(lower, OP_ReduceSum, weighed, 1, false);
    return lower_result(lower, emit_reshape(lower, sum, x.ndim, x.dims));
}
