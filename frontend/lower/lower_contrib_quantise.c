/* Quantised operators of ONNX Runtime (domain com.microsoft) over images with channels last, tables and attention.
 * Source: ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/lower_contrib.h"
#include "frontend/lower/lower_contrib_attention.h"
#include "frontend/lower/lower_quantise.h"

/* Lowers the node by `plain`, the lowering for images with channels second; those of input 0 and of the result are
 * last. */
static int with_channels_last(struct lower *lower, int (*plain)(struct lower *lower)) {
    lower->inputs[0] = emit_channels_second(lower, lower->inputs[0]);
    if (lower->inputs[0] < 0 || plain(lower) < 0) return -1;
    return lower_result(lower, emit_channels_last(lower, lower->outputs[0]));
}

int lower_contrib_qlinear_conv(struct lower *lower) {
    return lower_int(lower, "channels_last") ? with_channels_last(lower, lower_qlinear_conv)
                                             : lower_qlinear_conv(lower);
}

int lower_nhwc_max_pool(struct lower *lower) {
    return with_channels_last(lower, lower_max_pool);
}

/* Attention whose projections multiply integers. */
int lower_qattention(struct lower *lower) {
    enum { INPUT, WEIGHT, BIAS, INPUT_SCALE, WEIGHT_SCALE, MASK, INPUT_ZERO, WEIGHT_ZERO, PAST };
    const int *in = lower->inputs;
    if (contrib_requires(lower, 5, (int[]){INPUT, WEIGHT, BIAS, INPUT_SCALE, WEIGHT_SCALE}) < 0) return -1;
    if (lower_ndim(lower, in[INPUT]) != 3 || lower_ndim(lower, in[WEIGHT]) != 2)
        return lower_misfit(lower, in[INPUT], in[WEIGHT]);
    const int sums =
        emit_int_matmul(lower, in[INPUT], lower_id(lower, INPUT_ZERO), in[WEIGHT], lower_id(lower, WEIGHT_ZERO), false);
    const int scale = emit2(lower, OP_Mul, emit_scalar(lower, in[INPUT_SCALE]), emit_scalar(lower, in[WEIGHT_SCALE]));
    if (sums < 0 || scale < 0) return -1;
    const int product = emit2(lower, OP_Mul, emit_cast(lower, sums, lower_dtype(lower, scale)), scale);
    const int64_t width = lower_input(lower, WEIGHT).dims[1] / 3;
    const struct merged merged = {.projected = emit2(lower, OP_Add, product, in[BIAS]),
                                  .widths = {width, width, width},
                                  .mask = lower_id(lower, MASK),
                                  .past = lower_id(lower, PAST),
                                  .scores_bias = -1};
    if (lower_input(lower, WEIGHT).dims[1] % 3) return lower_misfit(lower, in[INPUT], in[WEIGHT]);
    return emit_merged_attention(lower, &merged);
}

/* The rows that `indices` choose of x (rows, ..). */
static int rows_of(struct lower *lower, int x, int indices) {
    return x < 0 ? -1 : emit_gather(lower, x, indices, 0);
}

/* Unpacks codes of less than 8 bits, which lie in bytes along the last dimension, and keeps the first `last` of them.
 * Other tensors are returned unchanged. */
static int codes_of(struct lower *lower, int x, int64_t bits, int64_t last) {
    if (x < 0 || lower_dtype(lower, x) != RT_U8 || bits == 8) return x;
    const struct attr to = attr_of_text("to", rt_dtypes[bits == 4 ? RT_U4 : RT_U2].name);
    x = emit(lower, OP_Unpack, 1, &x, 1, &to);
    return x < 0 ? -1 : emit_piece(lower, x, lower_ndim(lower, x) - 1, 0, 1, last);
}

/* Gather of a table that is quantised in blocks along another dimension than the first: codes, scales and zero points
 * of the rows are gathered, then dequantised. Without zero points, that of codes in bytes is half their range. */
int lower_gather_block_quantised(struct lower *lower) {
    const struct tensor data = lower_input(lower, 0), scales = lower_input(lower, 2), index = lower_input(lower, 1);
    const int64_t bits = lower_int(lower, "bits");
    const bool bytes = data.dtype == RT_U8;
    int gathered, along;
    if (lower_axis(lower, lower_int(lower, "gather_axis"), data.ndim, &gathered) < 0 ||
        lower_axis(lower, lower_int(lower, "quantize_axis"), data.ndim, &along) < 0)
        return -1;
    if (gathered != 0 || along == 0) return lower_unsupported(lower, "gather_axis %d", gathered);
    if (bytes && bits != 2 && bits != 4 && bits != 8) return lower_unsupported(lower, "%lld bit(s)", (long long)bits);
    if (scales.ndim != data.ndim || lower_int(lower, "block_size") < 1)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[2]);
    const int64_t last = data.dims[data.ndim - 1] * (bytes ? 8 / bits : 1);
    const int codes = codes_of(lower, rows_of(lower, lower->inputs[0], lower->inputs[1]), bits, last);
    struct quantised how = {.scale = rows_of(lower, lower->inputs[2], lower->inputs[1]),
                            .zero = -1,
                            .axis = along + index.ndim - 1,
                            .block = lower_int(lower, "block_size")};
    if (lower_has(lower, 3))
        how.zero =
            codes_of(lower, rows_of(lower, lower->inputs[3], lower->inputs[1]), bits, scales.dims[data.ndim - 1]);
    else if (bytes)
        how.zero = emit_expand(lower, build_scalar(&lower->builder, RT_U8, (double)(1 << (bits - 1))),
                               lower_ndim(lower, how.scale), lower_tensor(lower, how.scale).dims);
    if (codes < 0 || how.scale < 0) return -1;
    return lower_result(lower, emit_dequantised(lower, codes, &how, scales.dtype));
}
