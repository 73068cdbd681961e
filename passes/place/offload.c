/* --offload optimizer: states of the optimizer lie in pinned memory of the host. An update reads and writes each
 * element of them once, so its kernels access them there: copies to the device and back would move the same bytes.
 * Small states stay on the device, since all threads of a kernel read the same scale of a loss, and messages cost more
 * than the others save.
 *
 * --offload weights: so do the slices of parameters that ZeRO 3 gathers where operators need them, on a single rank
 * too: its gather is a copy to the device (rt_start). */
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/place/zero.h"
#include "passes/train/training.h"

static bool is_offloaded(const struct tensor *tensor, enum offload offload) {
    if (tensor->kind == TENSOR_WEIGHT) return offload == OFFLOAD_WEIGHTS && layout_flat_axes(&tensor->layout);
    return tensor->kind == TENSOR_STATE && !tensor->gradient && tensor_elements(tensor) >= ZERO_THRESHOLD;
}

int pass_offload(struct graph *graph, const struct pass_context *context) {
    if (!context->training || !context->training->offload) return 0;
    for (int t = 0; t < graph->tensors.n; t++)
        graph->tensors.at[t].host = is_offloaded(&graph->tensors.at[t], context->training->offload);
    return 0;
}
