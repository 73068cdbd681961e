/* ONNX Runtime's own operators (domain com.microsoft) that its optimiser and exporters write into models. Source:
 * ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/onnx_lower.h"

/* Gelu, BiasGelu: of the sum with a bias, if there is one. */
static int biased(struct lower *l) {
    return lower_has(l, 1) ? emit2(l, OP_Add, l->inputs[0], l->inputs[1]) : l->inputs[0];
}

int lower_bias_gelu(struct lower *l) {
    return lower_result(l, emit1(l, OP_Gelu, biased(l)));
}
int lower_fast_gelu(struct lower *l) {
    return lower_result(l, emit1(l, OP_GeluTanh, biased(l)));
}

int lower_quick_gelu(struct lower *l) {
    struct attr alpha = attr_of_float("alpha", lower_float(l, "alpha"));
    return lower_result(l, emit(l, OP_Swish, 1, l->inputs, 1, &alpha));
}

int lower_fused_matmul(struct lower *l) {
    int a = l->inputs[0], b = l->inputs[1];
    if (lower_int(l, "transBatchA") || lower_int(l, "transBatchB"))
        return lower_unsupported(l, "transBatchA, transBatchB");
    if (lower_ndim(l, a) < 2 || lower_ndim(l, b) < 2) return lower_misfit(l, a, b);
    int y = emit_matmul(l, a, b, lower_int(l, "transA") != 0, lower_int(l, "transB") != 0);
    double alpha = lower_float(l, "alpha");
    return lower_result(l, alpha == 1 ? y : emit_with(l, OP_Mul, y, alpha));
}

/* Of the sum of input, skip and bias, which is output 3; inputs scale, beta (only with a mean) and bias follow. */
static int skip_norm(struct lower *l, bool centred) {
    int sum = emit2(l, OP_Add, l->inputs[0], l->inputs[1]), bias = centred ? 4 : 3;
    if (lower_has(l, bias)) sum = emit2(l, OP_Add, sum, l->inputs[bias]);
    if (sum < 0) return -1;
    if (lower_wants(l, 3)) l->outputs[3] = sum;
    l->inputs[0] = sum;
    l->inputs[1] = l->inputs[2];
    l->inputs[2] = centred && lower_has(l, 3) ? l->inputs[3] : -1;
    l->ninputs = 3;
    return lower_result(l, emit_normalised(l, centred ? OP_LayerNorm : OP_RMSNorm, lower_ndim(l, sum) - 1));
}

int lower_skip_layer_norm(struct lower *l) {
    return skip_norm(l, true);
}
int lower_skip_rms_norm(struct lower *l) {
    return skip_norm(l, false);
}

/* RotaryEmbedding with its operands in another order; positions of all batch elements, or the first one's. */
int lower_contrib_rotary(struct lower *l) {
    struct tensor x = lower_input(l, 0), at = lower_input(l, 1);
    int positions = l->inputs[1], cosine = l->inputs[2], sine = l->inputs[3];
    if (lower_int(l, "is_packed_batching") || lower_float(l, "scale") != 1)
        return lower_unsupported(l, "packing or scale");
    if (at.ndim != 2) {
        int64_t length = x.ndim == 4 ? x.dims[2] : x.ndim == 3 ? x.dims[1] : 0;
        int64_t *places = ARENA_ARRAY(l->b.graph->arena, int64_t, length + 1);
        for (int64_t i = 0; i < length; i++) places[i] = i;
        int row = emit_ints(l, (int)length, places, 2, (int64_t[]){1, length});
        positions = emit2(l, OP_Add, emit_reshape(l, positions, 2, (int64_t[]){1, 1}), row);
        positions = emit_expand(l, positions, 2, (int64_t[]){x.dims[0], length});
    }
    if (positions < 0) return -1;
    l->inputs[1] = cosine;
    l->inputs[2] = sine;
    l->inputs[3] = positions;
    return lower_rotary(l);
}
