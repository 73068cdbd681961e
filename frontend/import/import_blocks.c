/* Images in blocks of channels (NCHWc, domain com.microsoft.nchwc). ONNX Runtime's layout optimiser stores the channels
 * of images and weights in blocks of 8 or 16, as suits the processor that it runs on. The model does not say which. */
#include "frontend/import/import_state.h"

#include "frontend/lower/onnx_lower.h"

static const char domain[] = "com.microsoft.nchwc";

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
    return __builtin_cpu_supports("avx512f") ? LARGE : SMALL;
#else
    return LARGE;
#endif
}

int lower_nchwc_block(struct lower *lower) {
    struct import *import = lower->import;
    const Onnx__GraphProto *graph = import->model->proto->graph;
    const struct frame *root = import->frame;
    if (import->nchwc_block) return import->nchwc_block;
    while (root->up) root = root->up;
    bool shows[LARGE + 1] = {false};
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        if (strcmp(onnx_domain(node->domain), domain) != 0 || node->n_input < 2) continue;
        const int weights = scope_find(root->scope, node->input[1]);
        if (weights >= 0) shows[block_of_weights(&import->graph->tensors.at[weights])] = true;
    }
    if (shows[SMALL] && shows[LARGE]) {
        diag_error(import->diags, 417, EXIT_UNSUPPORTED, import->model->place,
                   "weights are stored in blocks of 8 and of 16 channels");
        diag_help(import->diags, "%s", help);
        return -1;
    }
    import->nchwc_block = shows[SMALL] ? SMALL : shows[LARGE] ? LARGE : block_of_processor();
    if (!shows[SMALL] && !shows[LARGE]) {
        diag_warning(import->diags, 417, import->model->place,
                     "images are taken to be stored in blocks of %d channels, as ONNX Runtime does on this processor",
                     import->nchwc_block);
        diag_note(import->diags, "the model does not say so; optimised on another processor, it gives wrong results");
        diag_help(import->diags, "%s", help);
    }
    return import->nchwc_block;
}
