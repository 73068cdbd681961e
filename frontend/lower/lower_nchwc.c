/* ONNX Runtime's operators over images in blocks of channels (domain com.microsoft.nchwc): as plain operators on images
 * (n, c, ..), whose channels are filled up to whole blocks with zeros. Its layout optimiser stores the channels of
 * images and weights in blocks of 8 or 16, as suits the processor that it runs on. The model does not say which.
 * Source: nchwc_transformer.cc and reorder.cpp of ONNX Runtime. */
#include "frontend/lower/lower_contrib.h"
#include "frontend/lower/lowering_state.h"
#include "runtime/base/processor.h"

enum { SMALL = 8, LARGE = 16 };

static const char help[] = "in ONNX Runtime, set graph_optimization_level to ORT_ENABLE_EXTENDED before it writes the "
                           "optimised model";

/* The block that the shape of a convolution's weights (m, c, ..) shows, 0 if both fit. Weights of all groups have whole
 * blocks of m. c is in blocks, too, unless it is less than a block: then the input is not in blocks. */
static int block_of_weights(const struct tensor *weights) {
    if (weights->ndim < 2) return 0;
    const int64_t m = weights->dims[0], c = weights->dims[1];
    if (m % LARGE || (c > LARGE && c % LARGE)) return SMALL;
    return c > SMALL && c < LARGE ? LARGE : 0;
}

/* What ONNX Runtime takes on this processor. */
static int block_of_processor(void) {
#if defined(__x86_64__)
    return rt_processor_has_avx512() ? LARGE : SMALL;
#else
    return LARGE;
#endif
}

/* Which blocks the weights of the model's convolutions show. */
static void find_blocks(const Onnx__GraphProto *proto, const struct graph *graph, bool shows[LARGE + 1]) {
    for (size_t i = 0; i < proto->n_node; i++) {
        const Onnx__NodeProto *node = proto->node[i];
        if (strcmp(onnx_domain(node->domain), "com.microsoft.nchwc") != 0 || node->n_input < 2) continue;
        for (int t = 0; t < graph->tensors.n; t++)
            if (strcmp(graph->tensors.at[t].name, node->input[1]) == 0)
                shows[block_of_weights(&graph->tensors.at[t])] = true;
    }
}

/* The channels of a block, SMALL or LARGE; -1 after a diagnostic. */
static int64_t block_of(struct lower *lower) {
    struct lowering *shared = lower->shared;
    bool shows[LARGE + 1] = {false};
    if (shared->nchwc_block) return shared->nchwc_block;
    find_blocks(shared->model->proto->graph, shared->graph, shows);
    if (shows[SMALL] && shows[LARGE]) {
        diag_error(shared->diags, 417, EXIT_UNSUPPORTED, shared->model->place,
                   "weights are stored in blocks of 8 and of 16 channels");
        return diag_help(shared->diags, "%s", help);
    }
    shared->nchwc_block = shows[SMALL] ? SMALL : shows[LARGE] ? LARGE : block_of_processor();
    if (!shows[SMALL] && !shows[LARGE]) {
        diag_warning(shared->diags, 417, shared->model->place,
                     "images are taken to be stored in blocks of %d channel(s), as ONNX Runtime does on this processor",
                     shared->nchwc_block);
        diag_note(shared->diags, "the model does not say so; optimised on another processor, it gives wrong results");
        diag_help(shared->diags, "%s", help);
    }
    return shared->nchwc_block;
}

/* Reads weights (m, c, window..) that are stored in blocks of m and, if `both`, of c: in memory they are
 * (m / block, c, window.., block) or (m / block, c / block, window.., c block, m block). */
static int unblocked(struct lower *lower, int weights, int64_t block, bool both) {
    const struct tensor w = lower_tensor(lower, weights);
    int64_t stored[RT_MAX_NDIM], perm[RT_MAX_NDIM];
    const int window = w.ndim - 2;
    int at = 0;
    if (w.ndim < 3 || w.ndim + 2 > RT_MAX_NDIM || w.dims[0] % block || (both && w.dims[1] % block))
        return lower_error(lower, 378, "weights %s are not stored in blocks of %lld", lower_type(lower, &w),
                           (long long)block);
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
    const int64_t block = block_of(lower);
    if (block < 0 || weights.ndim < 2) return block < 0 ? -1 : lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    lower->inputs[1] = unblocked(lower, lower->inputs[1], block, weights.dims[1] >= block);
    return lower->inputs[1] < 0 ? -1 : lower_fused_conv(lower);
}

/* An image (n, c, ..), or (n, .., c) with channels_last, with its channels filled up to whole blocks. */
int lower_reorder_input(struct lower *lower) {
    const int64_t block = block_of(lower);
    int x = lower->inputs[0];
    if (lower_ndim(lower, x) < 3) return lower_misfit(lower, x, x);
    if (lower_int(lower, "channels_last")) x = emit_channels_second(lower, x);
    if (x < 0 || block < 0) return -1;
    const struct tensor image = lower_tensor(lower, x);
    const int64_t more = (block - image.dims[1] % block) % block;
    return lower_result(lower, more ? emit_padded(lower, x, 1, 0, more, 0) : x);
}

/* The first `channels` channels. */
int lower_reorder_output(struct lower *lower) {
    const struct tensor image = lower_input(lower, 0);
    const int64_t channels = lower_int(lower, "channels");
    if (image.ndim < 3 || channels < 1 || channels > image.dims[1])
        return lower_error(lower, 378, "%s does not have %lld channel(s)", lower_type(lower, &image),
                           (long long)channels);
    const int y = emit_piece(lower, lower->inputs[0], 1, 0, 1, channels);
    return lower_result(lower, lower_int(lower, "channels_last") ? emit_channels_last(lower, y) : y);
}
