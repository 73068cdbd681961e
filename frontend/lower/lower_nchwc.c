/* ONNX Runtime's operators over images in blocks of channels (domain com.microsoft.nchwc): as plain operators on images
 * (n, c, ..), whose channels are filled up to whole blocks with zeros. Source: nchwc_transformer.cc and reorder.cpp of
 * ONNX Runtime. */
#include "frontend/lower/lower_contrib.h"

/* Reads weights (m, c, window..) that are stored in blocks of m and, if `both`, of c: in memory they are
 * (m / block, c, window.., block) or (m / block, c / block, window.., c block, m block). */
static int unblocked(struct lower *lower, int weights, int64_t block, bool both) {
    const struct tensor w = lower_tensor(lower, weights);
    int64_t stored[RT_MAX_NDIM], perm[RT_MAX_NDIM];
    const int window = w.ndim - 2;
    int at = 0;
    if (w.ndim < 3 || w.ndim + 2 > RT_MAX_NDIM || w.dims[0] % block || (both && w.dims[1] % block))
        return lower_error(lower, 378, EXIT_MALFORMED, "weights %s are not stored in blocks of %lld",
                           tensor_type(lower->builder.graph->arena, &w), (long long)block);
    stored[0] = w.dims[0] / block;
    stored[1] = both ? w.dims[1] / block : w.dims[1];
    for (int d = 0; d < window; d++) stored[2 + d] = w.dims[2 + d];
    for (int d = 0; d < 1 + both; d++) stored[2 + window + d] = block;
    perm[at++] = 0;
    perm[at++] = 2 + window + both;
    perm[at++] = 1;
    if (both) perm[at++] = 2 + window;
    for (int d = 0; d < window; d++) perm[at++] = 2 + d;
    const int x = emit_reshape(lower, weights, at, stored);
    return emit_reshape(lower, emit_transpose(lower, x, perm), w.ndim, w.dims);
}

/* Conv + input 3, then the activation. Where the group has fewer input channels than a block, they are not in blocks:
 * of depthwise convolutions, and of the first, which reads a plain image. */
int lower_nchwc_conv(struct lower *lower) {
    const struct tensor weights = lower_input(lower, 1);
    const int64_t block = lower_nchwc_block(lower);
    if (block < 0 || weights.ndim < 2) return block < 0 ? -1 : lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    lower->inputs[1] = unblocked(lower, lower->inputs[1], block, weights.dims[1] >= block);
    return lower->inputs[1] < 0 ? -1 : lower_fused_conv(lower);
}

/* An image (n, c, ..), or (n, .., c) with channels_last, with its channels filled up to whole blocks. */
int lower_reorder_input(struct lower *lower) {
    const int64_t block = lower_nchwc_block(lower);
    int x = lower->inputs[0];
    if (lower_ndim(lower, x) < 3) return lower_misfit(lower, x, x);
    if (lower_int(lower, "channels_last")) x = emit_channels_second(lower, x);
    if (x < 0 || block < 0) return -1;
    const struct tensor image = lower_tensor(lower, x);
    const int64_t begin[RT_MAX_NDIM] = {0}, end[RT_MAX_NDIM] = {0, (block - image.dims[1] % block) % block};
    const struct attr pads[] = {attr_of_ints("begin", image.ndim, begin), attr_of_ints("end", image.ndim, end)};
    if (!end[1]) return lower_result(lower, x);
    return lower_result(lower, emit(lower, OP_Pad, 2, (int[]){x, emit_like(lower, x, 0)}, 2, pads));
}

/* The first `channels` channels. */
int lower_reorder_output(struct lower *lower) {
    const struct tensor image = lower_input(lower, 0);
    const int64_t channels = lower_int(lower, "channels");
    if (image.ndim < 3 || channels < 1 || channels > image.dims[1])
        return lower_error(lower, 378, EXIT_MALFORMED, "%s does not have %lld channels",
                           tensor_type(lower->builder.graph->arena, &image), (long long)channels);
    const int y = emit_piece(lower, lower->inputs[0], 1, 0, 1, channels);
    return lower_result(lower, lower_int(lower, "channels_last") ? emit_channels_last(lower, y) : y);
}
