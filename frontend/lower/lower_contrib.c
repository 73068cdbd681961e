/* Operators of ONNX Runtime (domain com.microsoft) that its optimiser and exporters write into models. Source:
 * ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/onnx_lower.h"

/* The input of Gelu and BiasGelu: input 0, plus the bias if there is one. */
static int biased(struct lower *lower) {
    return lower_has(lower, 1) ? emit2(lower, OP_Add, lower->inputs[0], lower->inputs[1]) : lower->inputs[0];
}

int lower_bias_gelu(struct lower *lower) {
    return lower_result(lower, emit1(lower, OP_Gelu, biased(lower)));
}
int lower_fast_gelu(struct lower *lower) {
    return lower_result(lower, emit1(lower, OP_GeluTanh, biased(lower)));
}

int lower_quick_gelu(struct lower *lower) {
    struct attr alpha = attr_of_float("alpha", lower_float(lower, "alpha"));
    return lower_result(lower, emit(lower, OP_Swish, 1, lower->inputs, 1, &alpha));
}

int lower_fused_matmul(struct lower *lower) {
    int a = lower->inputs[0], b = lower->inputs[1];
    if (lower_int(lower, "transBatchA") || lower_int(lower, "transBatchB"))
        return lower_unsupported(lower, "transBatchA, transBatchB");
    if (lower_ndim(lower, a) < 2 || lower_ndim(lower, b) < 2) return lower_misfit(lower, a, b);
    int y = emit_matmul(lower, a, b, lower_int(lower, "transA") != 0, lower_int(lower, "transB") != 0);
    double alpha = lower_float(lower, "alpha");
    return lower_result(lower, alpha == 1 ? y : emit_with(lower, OP_Mul, y, alpha));
}

/* SkipLayerNormalization, SkipSimplifiedLayerNormalization: normalises the sum of input, skip and bias, which is output
 * 3. The inputs are input, skip, scale, beta (only if `centred`: with a mean), bias. */
static int skip_norm(struct lower *lower, bool centred) {
    int sum = emit2(lower, OP_Add, lower->inputs[0], lower->inputs[1]), bias = centred ? 4 : 3;
    if (lower_has(lower, bias)) sum = emit2(lower, OP_Add, sum, lower->inputs[bias]);
    if (sum < 0) return -1;
    if (lower_wants(lower, 3)) lower->outputs[3] = sum;
    lower->inputs[0] = sum;
    lower->inputs[1] = lower->inputs[2];
    lower->inputs[2] = centred && lower_has(lower, 3) ? lower->inputs[3] : -1;
    lower->ninputs = 3;
    return lower_result(lower, emit_normalised(lower, centred ? OP_LayerNorm : OP_RMSNorm, lower_ndim(lower, sum) - 1));
}

int lower_skip_layer_norm(struct lower *lower) {
    return skip_norm(lower, true);
}
int lower_skip_rms_norm(struct lower *lower) {
    return skip_norm(lower, false);
}

/* RotaryEmbedding with another order of operands than ONNX's. position_ids: of all elements, or the first position,
 * from which the others count. */
int lower_contrib_rotary(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), at = lower_input(lower, 1);
    int positions = lower->inputs[1], cosine = lower->inputs[2], sine = lower->inputs[3];
    if (lower_int(lower, "is_packed_batching") || lower_float(lower, "scale") != 1)
        return lower_unsupported(lower, "packing or scale");
    if (at.ndim != 2) {
        int64_t length = x.ndim == 4 ? x.dims[2] : x.ndim == 3 ? x.dims[1] : 0;
        int64_t *places = ARENA_ARRAY(lower->builder.graph->arena, int64_t, length + 1);
        for (int64_t i = 0; i < length; i++) places[i] = i;
        int row = emit_ints(lower, (int)length, places, 2, (int64_t[]){1, length});
        positions = emit2(lower, OP_Add, emit_reshape(lower, positions, 2, (int64_t[]){1, 1}), row);
        positions = emit_expand(lower, positions, 2, (int64_t[]){x.dims[0], length});
    }
    if (positions < 0) return -1;
    lower->inputs[1] = cosine;
    lower->inputs[2] = sine;
    lower->inputs[3] = positions;
    return lower_rotary(lower);
}
