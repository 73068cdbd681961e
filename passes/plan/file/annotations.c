#include "passes/plan/file/annotations.h"

#include "ir/dims.h"
#include "passes/plan/plan.h"

/* Inserts the cut behind those of the same and of lower dimensions; layouts list nested cuts the outermost first. */
static void add_cut(struct annotated_tensor *tensor, const struct cut *cut, int64_t extent) {
    const struct placement *part = &cut->placement;
    int at = tensor->ncuts++;
    while (at > 0 && tensor->cut[at - 1].dim > part->dim) tensor->cut[at] = tensor->cut[at - 1], at--;
    tensor->cut[at] =
        (struct annotated_cut){cut->axis, part->dim, part->blocks, extent / (part->blocks * part->grain), part->grain};
}

/* Adds the layout of an operand, unless the tensor is read through windows or its cut is mirrored. */
static void annotate(struct annotated_node *entry, const struct graph *graph, int id, const struct layout *layout,
                     struct arena *arena) {
    const struct tensor *tensor = &graph->tensors.at[id];
    struct annotated_tensor made = {.name = tensor->name}, *have = annotated_tensor(entry, tensor->name);
    EACH(layout->cuts, layout->ncuts, i, const struct cut *cut) {
        const struct placement *part = &cut->placement;
        if (part->kind == PLACED_WINDOW || (part->kind == PLACED_PART && part->blocks < 0)) return;
        if (part->kind == PLACED_PART && cut->axis < graph->mesh.naxes) add_cut(&made, cut, tensor->dims[part->dim]);
    }
    if (!have)
        VEC_PUSH(arena, &entry->tensors, made);
    else if (!have->ncuts)
        *have = made;
}

static void annotate_operands(struct annotated_node *entry, const struct graph *graph, const struct node *node,
                              struct arena *arena) {
    struct dims dims;
    dims_bind_checked(arena, graph, node, &dims);
    for (int o = 0; o < dims.ninputs + dims.noutputs; o++) {
        const int tensor = split_tensor(node, &dims, o);
        if (tensor < 0) continue;
        const struct layout layout = o < dims.ninputs ? dims_layout_wanted(graph, &dims, node, o)
                                                      : dims_layout_given(graph, &dims, node, o - dims.ninputs);
        annotate(entry, graph, tensor, &layout, arena);
    }
}

void annotations_of_graph(struct annotations *annotations, const struct graph *graph, struct arena *arena,
                          struct diags *diags) {
    GRAPH_EACH(graph, i, const struct node *node) {
        const int stage = node->stage;
        if (node->phase != PHASE_FORWARD) continue;
        struct annotated_node *entry = annotations_node(annotations, node->name, arena);
        if (entry->stage >= 0 && entry->stage != stage)
            diag_remark(diags, annotations->place,
                        "node %s begins in pipeline stage %d and ends in stage %d; it is annotated with %d",
                        diag_quote(diags, node->name), entry->stage, stage, stage);
        entry->stage = stage, entry->coordinate = graph->chunks.n ? graph->chunks.home[stage] : stage;
        annotate_operands(entry, graph, node, arena);
    }
}

struct annotated_node *annotations_find(const struct annotations *annotations, const char *name) {
    const int at = map_find(&annotations->index, name);
    return at < 0 ? NULL : &annotations->nodes.at[at];
}

struct annotated_tensor *annotated_tensor(const struct annotated_node *node, const char *name) {
    VEC_EACH(&node->tensors, t, struct annotated_tensor *const tensor)
        if (strcmp(tensor->name, name) == 0) return tensor;
    return NULL;
}

struct annotated_node *annotations_node(struct annotations *annotations, const char *name, struct arena *arena) {
    if (annotations_find(annotations, name)) return annotations_find(annotations, name);
    annotations->index.arena = arena;
    map_set(&annotations->index, name, annotations->nodes.n);
    VEC_PUSH(arena, &annotations->nodes,
             ((struct annotated_node){.name = name, .stage = ANNOTATED_NO_STAGE, .coordinate = ANNOTATED_NO_STAGE}));
    return &annotations->nodes.at[annotations->nodes.n - 1];
}
