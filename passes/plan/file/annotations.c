#include "passes/plan/file/annotations.h"

#include "ir/dims.h"

/* Inserts the cut behind those of the same and of lower dimensions; layouts list nested cuts the outermost first. */
static void add_cut(struct annotated_tensor *tensor, const struct cut *cut, int64_t extent) {
    const struct placement *part = &cut->placement;
    int at = tensor->ncuts++;
    while (at > 0 && tensor->cut[at - 1].dim > part->dim) tensor->cut[at] = tensor->cut[at - 1], at--;
    tensor->cut[at] =
        (struct annotated_cut){cut->axis, part->dim, part->blocks, extent / (part->blocks * part->grain), part->grain};
}

/* False if the tensor is read through windows or its cut is mirrored. */
static bool annotate(struct annotated_tensor *out, const struct tensor *tensor, const struct layout *layout,
                     int naxes) {
    *out = (struct annotated_tensor){.name = tensor->name};
    for (int i = 0; i < layout->ncuts; i++) {
        const struct placement *part = &layout->cuts[i].placement;
        if (part->kind == PLACED_WINDOW || (part->kind == PLACED_PART && part->blocks < 0)) return false;
        if (part->kind == PLACED_PART && layout->cuts[i].axis < naxes)
            add_cut(out, &layout->cuts[i], tensor->dims[part->dim]);
    }
    return true;
}

static void annotate_operands(struct annotated_node *entry, const struct graph *graph, const struct node *node,
                              struct arena *arena) {
    struct annotated_tensor tensor;
    struct dims dims;
    dims_bind_checked(arena, graph, node, &dims);
    for (int k = 0; k < node->ninputs; k++) {
        if (node->inputs[k] < 0) continue;
        const struct layout layout = dims_layout_wanted(graph, &dims, node, k);
        if (annotate(&tensor, &graph->tensors.at[node->inputs[k]], &layout, graph->mesh.naxes))
            VEC_PUSH(arena, &entry->tensors, tensor);
    }
    for (int k = 0; k < node->noutputs; k++) {
        if (node->outputs[k] < 0) continue;
        const struct layout layout = dims_layout_given(graph, &dims, node, k);
        if (annotate(&tensor, &graph->tensors.at[node->outputs[k]], &layout, graph->mesh.naxes))
            VEC_PUSH(arena, &entry->tensors, tensor);
    }
}

void annotations_of_graph(struct annotations *annotations, const struct graph *graph, struct arena *arena) {
    *annotations = (struct annotations){.place = graph->name, .mesh = graph->mesh};
    GRAPH_EACH(graph, i, const struct node *node) {
        const int stage = node->stage;
        struct annotated_node entry = {
            .name = node->name, .stage = stage, .coordinate = graph->chunks.n ? graph->chunks.home[stage] : stage};
        if (node->phase != PHASE_FORWARD) continue;
        annotate_operands(&entry, graph, node, arena);
        VEC_PUSH(arena, &annotations->nodes, entry);
    }
}
