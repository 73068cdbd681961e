/* The policy of a model's multi-device annotations (passes/plan/file/annotations.h). Each annotation of a node that the
 * graph has is applied, or refused with node and tensor.
 *
 * Inputs that ranks divide determine the split of a node; if there are none, outputs do. An input without a cut decides
 * nothing: the node reads a slice of it. A node stays whole along an axis if that is not decided by inputs, and all its
 * outputs are annotated and not divided along it. Splits of annotated nodes propagate to all others, such as those of
 * the backward phase. */
#include "ir/base/map.h"
#include "passes/plan/file/annotations.h"
#include "passes/plan/policy/policy.h"
#include "passes/plan/stages.h"

/* A cut that a node cannot have. An ONNX node may have become several nodes: it is an error if none of them has it. */
struct refusal {
    int node;
    const struct annotated_tensor *tensor;
    const struct annotated_cut *cut;
    const char *why;
};

struct annotated {
    const struct graph *graph;
    const struct annotations *annotations;
    struct draft *draft;
    struct diags *diags;
    struct map applied; /* addresses of the cuts that some node has */
    VEC(struct refusal) refused;
};

static void report_refused(const struct annotated *a) {
    const struct mesh *mesh = &a->graph->mesh;
    VEC_EACH(&a->refused, i, const struct refusal *refusal) {
        const struct annotated_cut *cut = refusal->cut;
        if (map_get(&a->applied, (const char *)&cut, sizeof cut) >= 0) continue;
        diag_error(a->diags, 435, EXIT_LIMIT, node_place(a->graph, refusal->node),
                   "dimension %d of %s cannot be divided in %d along %s: %s", cut->dim,
                   diag_quote(a->diags, refusal->tensor->name), mesh->axis[cut->axis].size, mesh->axis[cut->axis].name,
                   refusal->why);
        diag_note(a->diags, "annotated in %s", a->annotations->place);
    }
}

/* The cut as a part of the tensor, whose shape the annotation may leave open. NULL, or why there is none. */
static const char *part_of(const struct tensor *tensor, const struct annotated_cut *cut, struct placement *part) {
    const int dim = cut->dim < 0 ? cut->dim + tensor->ndim : cut->dim;
    int64_t all;
    if (dim < 0 || dim >= tensor->ndim) return "the tensor has no such dimension";
    const int64_t extent = tensor->dims[dim], pieces = cut->pieces ? cut->pieces : extent;
    if (__builtin_mul_overflow(cut->blocks, pieces, &all) || !all || extent % all)
        return "its pieces do not make up the dimension";
    *part = (struct placement){.kind = PLACED_PART, .dim = dim, .blocks = cut->blocks, .grain = extent / all};
    return NULL;
}

/* Splits the node along the axis of the cut; NULL, or why it cannot be. */
static const char *apply_input(const struct annotated *a, int id, const struct dims *dims,
                               const struct annotated_cut *cut, const struct node_split *wanted) {
    struct node_split *splits = a->draft->split[id], *have = &splits[cut->axis];
    bool *fixed = &a->draft->fixed[id][cut->axis];
    if (*fixed)
        return have->factor == wanted->factor && have->blocks == wanted->blocks && have->grain == wanted->grain
                   ? NULL
                   : "another input of the node is divided in another way along that axis";
    const char *why = split_nest(a->graph, dims, splits, cut->axis, wanted);
    *fixed = !why;
    return why;
}

/* Applies a cut of an operand. Where inputs have decided, and where no split of the node gives an output its layout, a
 * collective after the node does. */
static void apply_cut(struct annotated *a, int id, const struct dims *dims, int operand,
                      const struct annotated_tensor *tensor, const struct annotated_cut *cut) {
    const struct node *node = &a->graph->nodes.at[id];
    const int ways = a->graph->mesh.axis[cut->axis].size;
    const bool output = operand >= dims->ninputs;
    struct placement part;
    struct node_split wanted;
    const char *why = part_of(&a->graph->tensors.at[split_tensor(node, dims, operand)], cut, &part);
    if (!why && output && a->draft->fixed[id][cut->axis]) return;
    if (!why && split_of_cut(node, dims, operand, part.dim, part.blocks, part.grain, ways, &wanted))
        why = apply_input(a, id, dims, cut, &wanted);
    else if (!why && output)
        return;
    else if (!why)
        why = "the operator needs it complete, or in other parts";
    if (why)
        VEC_PUSH(a->graph->arena, &a->refused, ((struct refusal){id, tensor, cut, why}));
    else
        map_put(&a->applied, (const char *)&cut, sizeof cut, 1);
}

static bool is_cut_along(const struct annotated_tensor *tensor, int axis) {
    for (int i = 0; i < tensor->ncuts; i++)
        if (tensor->cut[i].axis == axis) return true;
    return false;
}

/* Applies the annotations of the node's tensors: of inputs, then of outputs. */
static void apply_node(struct annotated *a, int id, const struct annotated_node *entry) {
    const struct node *node = &a->graph->nodes.at[id];
    struct dims dims;
    dims_bind_checked(a->graph->arena, a->graph, node, &dims);
    bool open[RT_MAX_AXES] = {false}; /* an output may be divided along the axis */
    for (int o = 0; o < dims.ninputs + dims.noutputs; o++) {
        const int tensor = split_tensor(node, &dims, o);
        if (tensor < 0) continue;
        const struct annotated_tensor *given = annotated_tensor(entry, a->graph->tensors.at[tensor].name);
        for (int i = 0; given && i < given->ncuts; i++) apply_cut(a, id, &dims, o, given, &given->cut[i]);
        for (int axis = 0; axis < a->graph->mesh.naxes && o >= dims.ninputs; axis++)
            open[axis] = open[axis] || !given || is_cut_along(given, axis);
    }
    for (int axis = 0; axis < a->graph->mesh.naxes; axis++)
        if (!open[axis]) a->draft->fixed[id][axis] = true;
}

/* The devices of the node's stage are those that the annotation lists. */
static int check_home(const struct annotated *a, int id, const struct annotated_node *entry) {
    const struct chunks *chunks = &a->draft->chunks;
    const int stage = a->draft->stage[id], home = chunks->n ? chunks->home[stage] : stage;
    if (entry->coordinate < 0 || entry->coordinate == home) return 0;
    return diag_error(
        a->diags, 435, EXIT_LIMIT, a->annotations->place,
        "%s is annotated with the devices of pipeline coordinate %d, but its stage %d is at coordinate %d",
        node_place(a->graph, id), entry->coordinate, stage, home);
}

/* Nodes without a stage belong to the last one that computes one of their inputs. */
static int apply_stages(struct annotated *a) {
    const struct graph *graph = a->graph;
    const int stages = draft_stages(a->draft);
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        const struct annotated_node *entry = annotations_find(a->annotations, node->name);
        int stage = entry ? entry->stage : ANNOTATED_NO_STAGE;
        for (int k = 0; k < node->ninputs && (!entry || entry->stage < 0); k++) {
            const int producer = node->inputs[k] < 0 ? -1 : graph->tensors.at[node->inputs[k]].producer;
            if (producer >= 0 && a->draft->stage[producer] > stage) stage = a->draft->stage[producer];
        }
        if (stage >= stages)
            return diag_error(a->diags, 435, EXIT_MALFORMED, a->annotations->place,
                              "%s is annotated with stage %d, but there are only %d stage(s)", node_place(graph, id),
                              stage, stages);
        a->draft->stage[id] = stage < 0 ? 0 : stage;
        if (entry && entry->stage >= 0) draft_give_stage(a->draft, id, stage);
        if (entry && check_home(a, id, entry) < 0) return -1;
    }
    stages_follow(a->draft);
    return 0;
}

int policy_annotated(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    struct annotated a = {.graph = graph, .annotations = context->annotations, .draft = draft, .diags = context->diags};
    const int before = a.diags->errors;
    if (!a.annotations)
        return diag_error(a.diags, 436, EXIT_MISMATCH, graph->name, "only an ONNX model can have annotations");
    map_init(&a.applied, graph->arena);
    if (apply_stages(&a) < 0) return -1;
    if (!draft->fixed) draft->fixed = arena_alloc(graph->arena, (size_t)graph->nodes.n + 1, sizeof *draft->fixed);
    for (int i = 0; i < graph->order.n && graph->mesh.naxes; i++) {
        const struct annotated_node *entry = annotations_find(a.annotations, graph->nodes.at[graph->order.at[i]].name);
        if (entry) apply_node(&a, graph->order.at[i], entry);
    }
    report_refused(&a);
    if (a.diags->errors != before) return -1;
    policy_propagate_fixed(draft);
    return 0;
}
