#include "codegen/remarks.h"

#include <string.h>

#include "ir/base/str.h"

const char *remarks_mesh(const struct graph *graph) {
    const struct mesh *mesh = &graph->mesh;
    struct strbuf out;
    strbuf_init(&out, graph->arena);
    for (int a = 0; a < mesh->naxes; a++)
        strbuf_printf(&out, "%s%s=%d", a ? " " : "", mesh->axis[a].name, mesh->axis[a].size);
    return mesh->naxes ? strbuf_text(&out) : "one rank";
}

const char *remarks_memory(const struct rankplan *plan, int nclasses, const int *classes) {
    struct strbuf out;
    strbuf_init(&out, plan->graph->arena);
    for (int a = 0; a < RT_ARENAS; a++) {
        int64_t least = plan->classes[classes[0]].bytes[a], most = least;
        for (int c = 1; c < nclasses; c++) {
            const int64_t bytes = plan->classes[classes[c]].bytes[a];
            if (bytes < least) least = bytes;
            if (bytes > most) most = bytes;
        }
        if (!most) continue;
        strbuf_printf(&out, "%s%s %lld", out.length ? ", " : "", plan_arena_names[a], (long long)least);
        if (most > least) strbuf_printf(&out, " to %lld", (long long)most);
    }
    return out.length ? strbuf_text(&out) : "none";
}

/* Reductions are of the kind of attribute `reduce`. */
static const struct {
    enum op_id op;
    const char *text;
} reasons[] = {{OP_AllGather, "gathers the parts of"},
               {OP_AllGatherStart, "begins to gather the parts of"},
               {OP_AllToAll, "cuts along another dimension"},
               {OP_Broadcast, "one stage's"},
               {OP_Chunk, "takes this rank's part of"},
               {OP_Crop, "takes this rank's part of"},
               {OP_HaloExchange, "rows beyond the borders of"},
               {OP_Transfer, "to another stage:"},
               {OP_NONE, NULL}};

static const struct {
    const char *reduce, *text;
} partials[] = {{"sum", "partial sums of"},
                {"max", "partial maxima of"},
                {"min", "partial minima of"},
                {NULL, "partial values of"}};

const char *remarks_reason(const struct node *node) {
    const char *reduce = attr_text(node, "reduce", "sum");
    int row = 0;
    for (; reasons[row].text && reasons[row].op != node->op->id;) row++;
    if (reasons[row].text) return reasons[row].text;
    for (row = 0; partials[row].reduce && strcmp(partials[row].reduce, reduce) != 0;) row++;
    return partials[row].text;
}

const char *remarks_group(const struct graph *graph, int axis) {
    const struct mesh *mesh = &graph->mesh;
    const int stride = axis < mesh->naxes ? mesh_stride(mesh, axis) : 0;
    if (!stride) return "all replicas";
    const char *ranks = arena_printf(graph->arena, "%d ranks", mesh->axis[axis].size);
    return stride == 1 ? ranks : arena_printf(graph->arena, "%s, %d apart", ranks, stride);
}

const struct node *remarks_origin(const struct graph *graph, const struct node *node) {
    const int producer = graph->tensors.at[op_moved_input(node)].producer;
    if (!attr_int(node, "begun", 0) || producer < 0) return node;
    const struct node *start = &graph->nodes.at[producer];
    return start->op->kind == OP_COMM ? start : node;
}
