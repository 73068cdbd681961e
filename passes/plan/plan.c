#include "passes/plan/plan_file.h"

#include <string.h>

#include "ir/base/map.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "passes/plan/propagation.h"

struct reader {
    struct graph *graph;
    struct diags *diags;
    const char *file;
};

static int malformed(const struct reader *r, const struct rt_json *at, const char *what) {
    const char *where = arena_printf(r->diags->arena, "%s:%d:%d", r->file, at ? at->line : 1, at ? at->column : 1);
    return diag_error(r->diags, 424, EXIT_MALFORMED, where, "plan: %s", what);
}

/* The operand of the node with that tensor name and that dimension; -1 if there is none. */
static int operand_named(const struct graph *graph, const struct node *node, const struct dims *dims,
                         const char *name) {
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++) {
        int k = o < dims->ninputs ? o : o - dims->ninputs;
        if (o < dims->ninputs ? k >= node->ninputs : k >= node->noutputs) continue;
        int tensor = o < dims->ninputs ? node->inputs[k] : node->outputs[k];
        if (tensor >= 0 && strcmp(graph->tensors.at[tensor].name, name) == 0) return o;
    }
    return -1;
}

struct cut_entry {
    const char *tensor, *axis;
    int64_t dim, ways, blocks, grain;
};

static int read_cut(const struct reader *r, const struct rt_json *entry, struct cut_entry *cut) {
    *cut = (struct cut_entry){.dim = -1, .blocks = 1, .grain = 1};
    cut->tensor = rt_json_text(rt_json_member(entry, "tensor"));
    cut->axis = rt_json_text(rt_json_member(entry, "axis"));
    rt_json_int(rt_json_member(entry, "dim"), &cut->dim);
    rt_json_int(rt_json_member(entry, "ways"), &cut->ways);
    rt_json_int(rt_json_member(entry, "blocks"), &cut->blocks);
    rt_json_int(rt_json_member(entry, "unit"), &cut->grain);
    if (!cut->tensor || !cut->axis) return malformed(r, entry, "a split needs tensor, dim and axis");
    if (cut->blocks < 1 || cut->grain < 1) return malformed(r, entry, "blocks and unit are at least 1");
    return 0;
}

/* Splits the node as the entry says, or refuses with node and dimension. */
static int apply_cut(const struct reader *r, int id, const struct rt_json *entry) {
    struct graph *graph = r->graph;
    struct node *node = &graph->nodes.at[id];
    struct cut_entry cut;
    struct dims dims;
    const char *why;
    if (read_cut(r, entry, &cut) < 0) return -1;
    int axis = mesh_axis_by_name(&graph->mesh, cut.axis);
    if (axis < 0) return malformed(r, entry, "the mesh has no such axis");
    if (axis == mesh_pipeline_axis(&graph->mesh))
        return malformed(r, entry,
                         arena_printf(graph->arena, "%s cannot be split along '%s', the axis of the pipeline stages",
                                      node_place(graph, id), cut.axis));
    if (cut.ways != graph->mesh.axis[axis].size) return malformed(r, entry, "ways must be the size of the mesh axis");
    if (dims_bind(graph->arena, graph, node, &dims, &why) < 0) BUG("%s", why);
    int operand = operand_named(graph, node, &dims, cut.tensor);
    if (operand < 0 || cut.dim < 0 || cut.dim >= dims.operand[operand].ndim)
        return malformed(r, entry, "the node has no such tensor or dimension");
    struct cut_option options[RT_MAX_NDIM];
    int n = dims_cut_options(&dims, operand, (int)cut.dim, cut.blocks, cut.grain, options);
    for (int i = 0; i < n; i++) {
        if (options[i].more_blocks != 1 || options[i].more_grain != 1) continue;
        if (!dims_can_split(&dims, &options[i].split, (int)cut.ways) ||
            !op_can_split(node->op, &dims, &options[i].split))
            continue;
        const int other = propagation_other_axis(node, &dims, axis, &options[i].split);
        if (other >= 0)
            return diag_error(r->diags, 420, EXIT_LIMIT, node_place(graph, id),
                              "dimension %lld of %s cannot be split along %s: it is already split along %s",
                              (long long)cut.dim, diag_quote(r->diags, cut.tensor), cut.axis,
                              graph->mesh.axis[other].name);
        node->split[axis] = options[i].split;
        return 0;
    }
    return diag_error(r->diags, 420, EXIT_LIMIT, node_place(graph, id), "dimension %lld of %s cannot be split in %lld",
                      (long long)cut.dim, diag_quote(r->diags, cut.tensor), (long long)cut.ways);
}

static int stages(const struct graph *graph) {
    int axis = mesh_pipeline_axis(&graph->mesh);
    return axis < 0 ? 1 : graph->mesh.axis[axis].size;
}

static int apply_partition(const struct reader *r, int id, const struct rt_json *entry) {
    const struct rt_json *partition = rt_json_member(entry, "partition");
    const char *text = rt_json_text(partition);
    int64_t stage = 0;
    if (rt_json_member(entry, "stage") && !rt_json_int(rt_json_member(entry, "stage"), &stage))
        return malformed(r, entry, "stage must be a number");
    if (stage < 0 || stage >= stages(r->graph)) return malformed(r, entry, "the pipeline axis has no such stage");
    r->graph->nodes.at[id].stage = (int)stage;
    if (text && strcmp(text, "replicate") == 0) return 0;
    if (!partition || partition->kind != RT_JSON_ARRAY)
        return malformed(r, entry, "partition must be \"replicate\" or a list");
    for (const struct rt_json *cut = partition->first; cut; cut = cut->next)
        if (apply_cut(r, id, cut) < 0) return -1;
    return 0;
}

static const char *entry_key(struct arena *arena, const char *name, const char *op, int nth) {
    return arena_printf(arena, "%s\n%s\n%d", op, name, nth);
}

/* Finds nodes by name, op and their number among nodes with the same name and op. */
static void index_nodes(struct graph *graph, struct map *nodes) {
    struct map counts;
    map_init(&counts, graph->arena);
    map_init(nodes, graph->arena);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const char *plain = entry_key(graph->arena, node->name, node->op->name, -1);
        int nth = map_get(&counts, plain, strlen(plain)) + 1;
        const char *key = entry_key(graph->arena, node->name, node->op->name, nth);
        map_put(&counts, plain, strlen(plain), nth);
        map_put(nodes, key, strlen(key), graph->order.at[i]);
    }
}

int plan_apply(struct graph *graph, const char *file, const struct rt_json *plan, struct diags *diags) {
    struct reader r = {graph, diags, file};
    struct map nodes, counts;
    int before = diags->errors, applied = 0;
    const struct rt_json *list = rt_json_member(plan, "nodes");
    if (!list || list->kind != RT_JSON_ARRAY) return malformed(&r, plan, "\"nodes\" must be a list");
    index_nodes(graph, &nodes);
    map_init(&counts, graph->arena);
    for (const struct rt_json *entry = list->first; entry; entry = entry->next) {
        const char *name = rt_json_text(rt_json_member(entry, "name")), *op = rt_json_text(rt_json_member(entry, "op"));
        if (!name || !op) return malformed(&r, entry, "an entry needs name and op");
        const char *plain = entry_key(graph->arena, name, op, -1);
        int nth = map_get(&counts, plain, strlen(plain)) + 1;
        map_put(&counts, plain, strlen(plain), nth);
        const char *key = entry_key(graph->arena, name, op, nth);
        int id = map_get(&nodes, key, strlen(key));
        if (id < 0)
            return malformed(&r, entry,
                             arena_printf(graph->arena, "the model has no node %s (%s)", diag_quote(diags, name),
                                          diag_quote(diags, op)));
        apply_partition(&r, id, entry);
        applied++;
    }
    if (applied != graph->order.n) return malformed(&r, list, "not every node of the model has an entry");
    return diags->errors == before ? 0 : -1;
}
