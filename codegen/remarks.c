#include "codegen/remarks.h"

#include <string.h>

#include "codegen/text/extents.h"
#include "ir/base/str.h"
#include "ir/provenance.h"

const char *remarks_mesh(const struct graph *graph) {
    const struct mesh *mesh = &graph->mesh;
    struct strbuf out = {.arena = graph->arena};
    for (int a = 0; a < mesh->naxes; a++)
        strbuf_printf(&out, "%s%s", a ? " " : "", mesh_axis_text(mesh, a, graph->arena));
    return mesh->naxes ? strbuf_text(&out) : "one rank";
}

const char *remarks_segment(const struct segment *segment) {
    static const char *const texts[] = {
        [PHASE_FORWARD] = "Forward pass of a micro-batch",
        [PHASE_BACKWARD] = "Backward pass of a micro-batch",
        [PHASE_WEIGHT] = "Backward pass of a micro-batch: what no other stage waits for",
        [PHASE_REDUCE] = "Gradients are summed over ranks, once in a step",
        [PHASE_UPDATE] = "The optimizer updates the parameters, once in a step",
    };
    return texts[segment->phase];
}

const char *remarks_memory(const struct rankplan *plan, int nclasses, const int *classes) {
    struct strbuf out = {.arena = plan->graph->arena};
    for (int a = 0; a < RT_ARENAS; a++) {
        int64_t least = plan->classes[classes[0]].bytes[a], most = least;
        for (int c = 1; c < nclasses; c++) {
            const int64_t bytes = plan->classes[classes[c]].bytes[a];
            if (bytes < least) least = bytes;
            if (bytes > most) most = bytes;
        }
        if (!most) continue;
        strbuf_printf(&out, "%s%s %s", out.length ? ", " : "", plan_arena_names[a], extents_fixed(plan->graph, least));
        if (most > least) strbuf_printf(&out, " to %s", extents_fixed(plan->graph, most));
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
    if (axis >= mesh->naxes) return "all replicas";
    if (axis == mesh_pipeline_axis(mesh) && !mesh_is_even(mesh)) return "all ranks of the scale unit";
    const int stride = mesh_stride(mesh, axis, mesh->axis[axis].first);
    const char *ranks = arena_printf(graph->arena, "%d ranks", mesh->axis[axis].size);
    return stride == 1 ? ranks : arena_printf(graph->arena, "%s, %d apart", ranks, stride);
}

const struct node *remarks_origin(const struct graph *graph, const struct node *node) {
    const int producer = graph->tensors.at[op_moved_input(node)].producer;
    if (!attr_int(node, "begun", 0) || producer < 0) return node;
    const struct node *start = &graph->nodes.at[producer];
    return start->op->kind == OP_COMM ? start : node;
}

const char *remarks_exporter(const struct graph *graph) {
    const bool named = graph->exporter && *graph->exporter;
    const char *exporter = named ? graph->exporter : "an unknown exporter";
    return graph->opset ? arena_printf(graph->arena, "%s, opset %d", exporter, graph->opset) : exporter;
}

static const char *joined(const struct graph *graph, const char *scope, const char *suffix, const char *word) {
    return arena_printf(graph->arena, "%s%s%s%s", scope, suffix, *word ? "/" : "", word);
}

const char *remarks_node_name(const struct graph *graph, const struct node *node) {
    const struct provenance *from = provenance_of(graph, node->name, NULL);
    if (!from || !*from->scope) return node->name;
    return joined(graph, from->scope, "", strstr(node->op->name, "Norm") ? "" : from->word);
}

/* The provenance of a value whose node was fused into another one. The exporter has named that node node_VALUE. */
static const struct provenance *fused_provenance(const struct graph *graph, const struct tensor *value,
                                                 const struct node *node) {
    const char *name = arena_printf(graph->arena, "node_%s", value->name);
    return strcmp(node->name, name) == 0 ? NULL : provenance_of(graph, name, NULL);
}

const char *remarks_value_name(const struct graph *graph, int tensor) {
    const struct tensor *t = &graph->tensors.at[tensor];
    const char *suffix;
    if (t->producer < 0 || graph_is_output(graph, tensor)) return t->name;
    const struct node *node = &graph->nodes.at[t->producer];
    const char *dot = strrchr(t->name, '.');                      /* of a value that a pass added */
    if (node->op->kind == OP_COMM && dot && graph->provenances.n) /* called after the value that it moves */
        return joined(graph, remarks_value_name(graph, op_moved_input(remarks_origin(graph, node))), "", dot + 1);
    const struct provenance *from = dot ? NULL : fused_provenance(graph, t, node);
    if (from && *from->scope) return joined(graph, from->scope, "", from->word);
    from = provenance_of(graph, node->name, &suffix);
    if (!from || (!*from->scope && !*from->word)) return t->name;
    if (!*suffix && !dot) return *from->scope ? remarks_node_name(graph, node) : from->word;
    return joined(graph, *from->scope ? from->scope : from->word, suffix, node->op->name);
}

/* "layers.*.attn" of "layers.0.attn" and "layers.3.attn"; the first if they differ in the number of components. */
static const char *pattern_of(struct arena *arena, const char *first, const char *last) {
    static const char separators[] = "./";
    struct strbuf out = {.arena = arena};
    const char *a = first, *b = last;
    while (*a && *b) {
        const size_t length = strcspn(a, separators), other = strcspn(b, separators);
        if (a[length] != b[other]) return first;
        if (length == other && memcmp(a, b, length) == 0)
            strbuf_add(&out, a, length);
        else
            strbuf_putc(&out, '*');
        a += length;
        b += other;
        if (*a) strbuf_putc(&out, *a), a++, b++;
    }
    return *a || *b ? first : strbuf_text(&out);
}

/* Of nodes whose last component differs, which may be a number for each, the first's. */
static const char *plain_names(struct arena *arena, const char *first, const char *last) {
    const char *pattern = pattern_of(arena, first, last);
    const size_t length = strlen(pattern);
    if (!str_is_plain(first)) return "";
    return !str_is_plain(last) || (length && pattern[length - 1] == '*') ? first : pattern;
}

const char *remarks_nodes(const struct graph *graph, const struct node *first, const struct node *last) {
    const char *suffix;
    const struct provenance *a = provenance_of(graph, first->name, &suffix);
    const struct provenance *b = provenance_of(graph, last->name, NULL);
    if (!a || !*a->scope) return plain_names(graph->arena, first->name, last->name);
    const char *scope = b ? pattern_of(graph->arena, a->scope, b->scope) : a->scope;
    return arena_printf(graph->arena, "%s%s", scope, str_is_plain(suffix) ? suffix : "");
}

const char *remarks_line(const struct graph *graph, const struct node *node, const char **said) {
    const struct provenance *from = provenance_of(graph, node->name, NULL);
    if (!from || !*from->line) return "";
    if (*said && strcmp(*said, from->line) == 0)
        return arena_printf(graph->arena, " (%.*s)", (int)strcspn(from->line, " "), from->line);
    *said = from->line;
    return arena_printf(graph->arena, " (%s%s%s)", from->line, *from->code ? ": " : "", from->code);
}
