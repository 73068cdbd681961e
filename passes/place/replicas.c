/* Ends the distinction between a rank's own values and partial ones along replica axes: what was PARTIAL becomes OWN.
 * Redistribution has put the reductions where partial values are needed complete, and the verifier has checked it. From
 * here on fusion may treat gradients as on one rank. */
#include "passes/pipeline.h"

static void forget_partial(struct graph *graph, int axis) {
    for (int t = 0; t < graph->tensors.n; t++) {
        struct layout *layout = &graph->tensors.at[t].layout;
        if (layout_along(layout, axis).kind == PLACED_PARTIAL)
            layout_place(graph->arena, layout, axis, (struct placement){PLACED_OWN});
    }
    for (int n = 0; n < graph->nodes.n; n++)
        if (graph->nodes.at[n].split[axis].factor == SPLIT_PARTIAL) graph->nodes.at[n].split[axis].factor = SPLIT_NONE;
}

int pass_replicas(struct graph *graph, const struct pass_context *context) {
    (void)context;
    for (int axis = graph->mesh.naxes; axis < mesh_layout_axes(&graph->mesh); axis++) forget_partial(graph, axis);
    return 0;
}
