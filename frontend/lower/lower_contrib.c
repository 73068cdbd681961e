/* Operators of ONNX Runtime (domain com.microsoft) that its optimiser and exporters write into models: activations,
 * products and normalisations with a neighbour fused into them. Source: ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/lower_contrib.h"

int contrib_requires(struct lower *lower, int n, const int *inputs) {
    for (int i = 0; i < n; i++)
        if (!lower_has(lower, inputs[i])) return lower_error(lower, 331, "required input %d is omitted", inputs[i]);
    return 0;
}

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

/* The first half of x + bias times GELU of the second. */
int lower_bias_split_gelu(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    int last = x.ndim - 1, sum = biased(lower);
    if (x.ndim < 1 || x.dims[last] % 2) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    int64_t half = x.dims[last] / 2;
    int left = emit_piece(lower, sum, last, 0, 1, half), right = emit_piece(lower, sum, last, half, 1, half);
    return lower_result(lower, emit2(lower, OP_Mul, left, emit1(lower, OP_Gelu, right)));
}

int lower_bias_add(struct lower *lower) {
    return lower_result(lower, emit2(lower, OP_Add, biased(lower), lower->inputs[2]));
}

/* Softmax of x + bias over all dimensions from `axis` on. */
int lower_bias_softmax(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), bias = lower_input(lower, 1);
    int axis;
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    if (lower_int(lower, "is_inner_broadcast") && bias.ndim != x.ndim)
        return lower_unsupported(lower, "a bias that is repeated between its own dimensions");
    int sum = emit2(lower, OP_Add, lower->inputs[0], lower->inputs[1]);
    if (axis == x.ndim - 1) return lower_result(lower, emit_softmax(lower, OP_Softmax, sum, axis));
    int64_t rows[] = {extent_between(&x, 0, axis), extent_between(&x, axis, x.ndim)};
    int y = emit_softmax(lower, OP_Softmax, emit_reshape(lower, sum, 2, rows), 1);
    return lower_result(lower, emit_reshape(lower, y, x.ndim, x.dims));
}

/* The activations that ONNX Runtime fuses into Conv and Gemm: core operators with the parameters in this order. */
static const struct activation {
    const char *name;
    enum op_id op;
    int n;
    const char *parameter[2];
    double fallback[2];
} activations[] = {
    {"Elu", OP_Elu, 1, {"alpha"}, {1}},
    {"HardSigmoid", OP_HardSigmoid, 2, {"alpha", "beta"}, {0.2, 0.5}},
    {"HardSwish", OP_HardSwish, 0, {NULL}, {0}},
    {"LeakyRelu", OP_LeakyRelu, 1, {"alpha"}, {0.01}},
    {"Relu", OP_Relu, 0, {NULL}, {0}},
    {"Selu", OP_Selu, 2, {"alpha", "gamma"}, {1.67326319217681884765625, 1.05070102214813232421875}},
    {"Sigmoid", OP_Sigmoid, 0, {NULL}, {0}},
    {"Softplus", OP_Softplus, 0, {NULL}, {0}},
    {"Softsign", OP_Softsign, 0, {NULL}, {0}},
    {"Tanh", OP_Tanh, 0, {NULL}, {0}},
    {"ThresholdedRelu", OP_ThresholdedRelu, 1, {"alpha"}, {1}},
};

int emit_activation(struct lower *lower, int x, int nvalues, const double *values) {
    const char *name = lower_text(lower, "activation");
    struct attr attrs[2];
    if (!*name || x < 0) return x;
    if (strcmp(name, "Clip") == 0 && nvalues == 2)
        return emit_with(lower, OP_Min, emit_with(lower, OP_Max, x, values[0]), values[1]);
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        const struct activation *row = &activations[i];
        if (strcmp(row->name, name) != 0) continue;
        for (int k = 0; k < row->n; k++)
            attrs[k] = attr_of_float(row->parameter[k], k < nvalues ? values[k] : row->fallback[k]);
        return emit(lower, row->op, 1, &x, row->n, attrs);
    }
    return lower_unsupported(lower, "activation %s", lower_quote(lower, name));
}

/* Moves dimension 0 behind the dimensions up to the last but one: transBatchA, transBatchB of FusedMatMul. */
static int rows_behind_batch(struct lower *lower, int x) {
    int64_t perm[RT_MAX_NDIM];
    int n = lower_ndim(lower, x);
    for (int d = 0; d < n - 2; d++) perm[d] = d + 1;
    perm[n - 2] = 0;
    perm[n - 1] = n - 1;
    return n < 3 ? x : emit_transpose(lower, x, perm);
}

int lower_fused_matmul(struct lower *lower) {
    int a = lower->inputs[0], b = lower->inputs[1];
    if (lower_ndim(lower, a) < 2 || lower_ndim(lower, b) < 2) return lower_misfit(lower, a, b);
    if (lower_int(lower, "transBatchA")) a = rows_behind_batch(lower, a);
    if (lower_int(lower, "transBatchB")) b = rows_behind_batch(lower, b);
    int y = emit_matmul(lower, a, b, lower_int(lower, "transA") != 0, lower_int(lower, "transB") != 0);
    double alpha = lower_float(lower, "alpha");
    return lower_result(lower, alpha == 1 ? y : emit_with(lower, OP_Mul, y, alpha));
}

int lower_fused_gemm(struct lower *lower) {
    static const char *const names[] = {"activation_alpha", "activation_beta", "activation_gamma"};
    double values[3];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (lower_given(lower, names[i])) values[n++] = lower_float(lower, names[i]);
    if (lower_gemm(lower) < 0) return -1;
    return lower_result(lower, emit_activation(lower, lower->outputs[0], n, values));
}

int lower_gemm_fast_gelu(struct lower *lower) {
    int y = emit_matmul(lower, lower->inputs[0], lower->inputs[1], false, false);
    if (lower_has(lower, 2)) y = emit2(lower, OP_Add, y, lower->inputs[2]);
    return lower_result(lower, emit1(lower, OP_GeluTanh, y));
}

/* Normalises `x` over its last dimension, with inputs `scale` and `bias` of the node (bias: only LayerNorm's). */
static int normalised(struct lower *lower, enum op_id op, int x, int scale, int bias) {
    if (x < 0) return -1;
    int given[] = {x, lower->inputs[scale], bias >= 0 ? lower_id(lower, bias) : -1};
    int *inputs = lower->inputs, ninputs = lower->ninputs;
    lower->inputs = given;
    lower->ninputs = 3;
    int y = emit_normalised(lower, op, lower_ndim(lower, x) - 1);
    lower->inputs = inputs;
    lower->ninputs = ninputs;
    return y;
}

/* SkipLayerNormalization, SkipSimplifiedLayerNormalization: normalises the sum of input, skip and bias, which is output
 * 3. The inputs are input, skip, scale, beta (only if `centred`: with a mean), bias. */
static int skip_norm(struct lower *lower, bool centred) {
    int sum = emit2(lower, OP_Add, lower->inputs[0], lower->inputs[1]), bias = centred ? 4 : 3;
    if (lower_has(lower, bias)) sum = emit2(lower, OP_Add, sum, lower->inputs[bias]);
    if (sum < 0) return -1;
    if (lower_wants(lower, 3)) lower->outputs[3] = sum;
    return lower_result(lower, normalised(lower, centred ? OP_LayerNorm : OP_RMSNorm, sum, 2, centred ? 3 : -1));
}

int lower_skip_layer_norm(struct lower *lower) {
    return skip_norm(lower, true);
}
int lower_skip_rms_norm(struct lower *lower) {
    return skip_norm(lower, false);
}

/* The rows of an embedding table that input `input` selects; of the first positions if it is left out. */
static int embedding(struct lower *lower, int table, int input) {
    if (lower_has(lower, input)) return emit_gather(lower, lower->inputs[table], lower->inputs[input], 0);
    int64_t length = lower_input(lower, 0).dims[1], extent = lower_input(lower, table).dims[0];
    if (open_most(lower->builder.graph->open, length) > extent)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[table]);
    return emit_piece(lower, lower->inputs[table], 0, 0, 1, length);
}

/* The number of ones in each row of the mask, as i32; 0 without a mask. */
static int mask_index(struct lower *lower) {
    int64_t batch = lower_input(lower, 0).dims[0];
    if (!lower_has(lower, 7)) return emit_expand(lower, build_scalar(&lower->builder, RT_I32, 0), 1, &batch);
    if (lower_ndim(lower, lower->inputs[7]) != 2) return lower_misfit(lower, lower->inputs[0], lower->inputs[7]);
    int ones = emit_cast(lower, emit_with(lower, OP_Equal, lower->inputs[7], 1), RT_I32);
    return emit_reduce_along(lower, OP_ReduceSum, ones, 1, false);
}

/* EmbedLayerNormalization: inputs word ids, segment ids, tables of words, positions and segments, scale, bias, mask,
 * positions. Output 2 is the sum of the embeddings. */
int lower_embed_layer_norm(struct lower *lower) {
    if (contrib_requires(lower, 4, (int[]){2, 3, 5, 6}) < 0) return -1;
    if (lower_ndim(lower, lower->inputs[0]) != 2 || lower_ndim(lower, lower->inputs[3]) != 2)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[3]);
    int sum = emit2(lower, OP_Add, embedding(lower, 2, 0), embedding(lower, 3, 8));
    if (lower_has(lower, 1) && lower_has(lower, 4)) sum = emit2(lower, OP_Add, sum, embedding(lower, 4, 1));
    if (lower_wants(lower, 1)) lower->outputs[1] = mask_index(lower);
    if (lower_wants(lower, 2)) lower->outputs[2] = sum;
    return lower_result(lower, normalised(lower, OP_LayerNorm, sum, 5, 6));
}

/* Refuses a window of states of several positions. Only the state of one position is supported. */
static int check_window(struct lower *lower) {
    return lower_int(lower, "state_window") ? lower_unsupported(lower, "state_window") : 0;
}

/* CausalConvWithState: that of ONNX, and more layouts and dimensions. */
int lower_contrib_causal_conv(struct lower *lower) {
    if (lower_int(lower, "ndim") != 1) return lower_unsupported(lower, "more than one dimension (ndim)");
    if (lower_int(lower, "channels_last")) return lower_unsupported(lower, "channels_last");
    if (lower_int(lower, "dilation") != 1) return lower_unsupported(lower, "dilation");
    return check_window(lower) < 0 ? -1 : lower_causal_conv(lower);
}

int lower_contrib_linear_attention(struct lower *lower) {
    return check_window(lower) < 0 ? -1 : lower_linear_attention(lower);
}
