/* Operators of ONNX Runtime (domain com.microsoft) over images: convolutions with a neighbour fused into them or with
 * channels last, and group normalisation. Source: ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/lower_contrib.h"

int emit_channels_second(struct lower *lower, int x) {
    int64_t perm[RT_MAX_NDIM];
    if (x < 0) return -1;
    const int n = lower_ndim(lower, x);
    for (int d = 0; d < n; d++) perm[d] = d == 0 ? 0 : d == 1 ? n - 1 : d - 1;
    return n < 3 ? x : emit_transpose(lower, x, perm);
}

int emit_channels_last(struct lower *lower, int x) {
    int64_t perm[RT_MAX_NDIM];
    if (x < 0) return -1;
    const int n = lower_ndim(lower, x);
    for (int d = 0; d < n; d++) perm[d] = d == 0 ? 0 : d == n - 1 ? 1 : d + 1;
    return n < 3 ? x : emit_transpose(lower, x, perm);
}

/* Adds input 3, if given, to the convolution in output 0, and applies the activation. */
static int finish_conv(struct lower *lower) {
    int n, y = lower->outputs[0];
    const float *given = lower_floats(lower, "activation_params", &n);
    double values[4];
    if (n > 4) return lower_error(lower, 335, "%d activation_params", n);
    for (int i = 0; i < n; i++) values[i] = (double)given[i];
    if (lower_has(lower, 3)) y = emit2(lower, OP_Add, y, lower->inputs[3]);
    return lower_result(lower, emit_activation(lower, y, n, values));
}

/* Conv + input 3, then the activation. */
int lower_fused_conv(struct lower *lower) {
    return lower_conv(lower) < 0 ? -1 : finish_conv(lower);
}

/* Lowers the node as the convolution of its input with channels second. */
static int conv_of_channels_last(struct lower *lower) {
    lower->inputs[0] = emit_channels_second(lower, lower->inputs[0]);
    return lower->inputs[0] < 0 ? -1 : lower_conv(lower);
}

/* Channels are the last dimension of the input, of the weights (m, window.., c / group) and of the result. */
int lower_nhwc_conv(struct lower *lower) {
    lower->inputs[1] = emit_channels_second(lower, lower->inputs[1]);
    if (lower->inputs[1] < 0 || conv_of_channels_last(lower) < 0) return -1;
    return lower_result(lower, emit_channels_last(lower, lower->outputs[0]));
}

/* Channels are the last dimension of the input, of input 3 and of the result; the weights are as in Conv. */
int lower_nhwc_fused_conv(struct lower *lower) {
    if (lower_has(lower, 3)) lower->inputs[3] = emit_channels_second(lower, lower->inputs[3]);
    if (conv_of_channels_last(lower) < 0 || finish_conv(lower) < 0) return -1;
    return lower_result(lower, emit_channels_last(lower, lower->outputs[0]));
}

/* x normalised over each group of channels, times gamma, plus beta; then x sigmoid(x) if attribute activation is 1. x
 * is (n, c, ..), or (n, .., c) with channels_last. */
static int group_norm(struct lower *lower, int x) {
    bool last = lower_int(lower, "channels_last") != 0;
    int64_t activation = lower_int(lower, "activation");
    if (activation < 0 || activation > 1) return lower_unsupported(lower, "activation %lld", (long long)activation);
    int given = x < 0 ? -1 : last ? emit_channels_second(lower, x) : x;
    int y = emit_group_norm(lower, given, lower_int(lower, "groups"), true);
    if (activation) y = emit1(lower, OP_Silu, y);
    return last ? emit_channels_last(lower, y) : y;
}

int lower_contrib_group_norm(struct lower *lower) {
    return lower_result(lower, group_norm(lower, lower->inputs[0]));
}

/* Normalises the sum of input, skip (input 3; of one image position if it has two dimensions) and bias (input 4). The
 * sum is output 1. */
int lower_skip_group_norm(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), skip = lower_input(lower, 3);
    if (!lower_int(lower, "channels_last")) return lower_unsupported(lower, "channels_last=0");
    int more = lower->inputs[3];
    if (skip.ndim == 2 && x.ndim == 4)
        more = emit_reshape(lower, more, 4, (int64_t[]){skip.dims[0], 1, 1, skip.dims[1]});
    int sum = emit2(lower, OP_Add, lower->inputs[0], more);
    if (lower_has(lower, 4)) sum = emit2(lower, OP_Add, sum, lower->inputs[4]);
    if (lower_wants(lower, 1)) lower->outputs[1] = sum;
    return lower_result(lower, group_norm(lower, sum));
}
