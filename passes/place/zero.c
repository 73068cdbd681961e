#include "passes/place/zero.h"

#include <string.h>

#include "ir/base/map.h"
#include "ir/op.h"
#include "passes/plan/stages.h"
#include "passes/train/training.h"
#include "runtime/base/number/moments.h"

/* Note [Families]
 * A parameter, its gradient, its states and all values of their shape that the phases reduce and update compute form a
 * family: elementwise nodes connect them. A family is cut as a whole. Values of one element, such as the learning rate,
 * are not part of it. A family ends at OP_Whole, where an optimizer gathers a matrix that it needs whole, or has
 * computed one: ranks take their slices of that. Codes of moments in 8 bits belong to their parameter's family; their
 * scales are a family of their own, which is cut if that is. */

struct zero {
    struct graph *graph;
    const struct training *training;
    const struct decisions *decisions;
    unsigned axes; /* along which families are cut: bit a for axis a */
    int *family;   /* per tensor: another of its family, or itself for the family's representative */
    bool *cut;     /* per representative */
    int *grain;    /* per representative: of slices of whole blocks of moments, or of their scales; else 0 */
    /* per representative: axes not to be used: they divide the family already, or a stage that has it lacks them */
    unsigned *parts;
};

static const struct tensor *tensor_at(const struct zero *z, int id) {
    return &z->graph->tensors.at[id];
}

static bool is_single(const struct zero *z, int tensor) {
    return tensor < 0 || tensor_elements(tensor_at(z, tensor)) == 1;
}

static int representative(const struct zero *z, int tensor) {
    while (z->family[tensor] != tensor) tensor = z->family[tensor] = z->family[z->family[tensor]];
    return tensor;
}

static void join(const struct zero *z, int a, int b) {
    z->family[representative(z, a)] = representative(z, b);
}

/* True for nodes whose operands and results of more than one element are of one family. */
static bool connects(const struct node *node) {
    const bool updates = node->phase >= PHASE_REDUCE || node->op->id == OP_Accumulate;
    return updates && node->op->kind == OP_ELEMENTWISE;
}

/* Joins each state with its parameter, whose name its own begins with: no elementwise node connects them where the
 * optimizer computes with whole matrices in between. */
static void join_states(const struct zero *z) {
    struct arena *arena = z->graph->arena;
    struct map weights = {.arena = arena};
    for (int i = 0; i < z->graph->updates.n; i++) {
        const int id = z->graph->updates.at[i].weight;
        if (tensor_at(z, id)->kind == TENSOR_WEIGHT) map_set(&weights, tensor_at(z, id)->name, id);
    }
    for (int i = 0; i < z->graph->updates.n; i++) {
        const int id = z->graph->updates.at[i].weight;
        const char *name = tensor_at(z, id)->name, *dot = strrchr(name, '.');
        const int weight =
            tensor_at(z, id)->kind == TENSOR_STATE && dot ? map_get(&weights, name, (size_t)(dot - name)) : -1;
        if (weight >= 0 && tensor_same_shape(tensor_at(z, id), tensor_at(z, weight))) join(z, id, weight);
    }
}

/* Joins codes of moments with the moments. */
static void join_codes(const struct zero *z, const struct node *node) {
    join(z, node->inputs[0], node->outputs[0]);
    if (node->op->id == OP_QuantizeBlocks) join(z, node->inputs[0], node->inputs[2]);
}

static void find_families(const struct zero *z) {
    for (int t = 0; t < z->graph->tensors.n; t++) z->family[t] = t;
    GRAPH_EACH(z->graph, i, const struct node *node) {
        if (op_has_blocks(node->op)) join_codes(z, node);
        for (int k = 0; k < node->ninputs && connects(node); k++)
            if (!is_single(z, node->inputs[k]) && !is_single(z, node->outputs[0]))
                join(z, node->inputs[k], node->outputs[0]);
    }
    VEC_EACH(&z->graph->updates, i, const struct update *update)
        if (!is_single(z, update->value)) join(z, update->weight, update->value);
    join_states(z);
}

static bool may_cut(const struct zero *z, int weight) {
    const struct tensor *tensor = tensor_at(z, weight);
    const struct parameter_rule *rule = parameter_rule_of(z->training, tensor);
    return tensor->kind == TENSOR_WEIGHT && rt_dtype_is_float(tensor->dtype) &&
           tensor_elements(tensor) >= ZERO_THRESHOLD && !(rule && rule->whole);
}

/* Chooses the families of parameters, but not of running statistics, which the phases of micro-batches update: each
 * scale unit has its own. Then leaves out those with a node in the phases reduce or update that cannot work on a slice,
 * or with values of several shapes. */
static void choose_families(const struct zero *z) {
    for (int i = 0; i < z->graph->updates.n; i++) {
        const int weight = z->graph->updates.at[i].weight;
        const bool trained = graph_phase_of(z->graph, z->graph->updates.at[i].value) >= PHASE_REDUCE;
        if (trained && may_cut(z, weight)) z->cut[representative(z, weight)] = true;
    }
    for (int t = 0; t < z->graph->tensors.n; t++)
        if (!tensor_same_shape(tensor_at(z, t), tensor_at(z, representative(z, t))))
            z->cut[representative(z, t)] = false;
    GRAPH_EACH(z->graph, i, const struct node *node) {
        if (node->phase < PHASE_REDUCE || connects(node) || op_has_blocks(node->op) || node->op->id == OP_SumSquares ||
            node->op->id == OP_Whole)
            continue;
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) z->cut[representative(z, node->inputs[k])] = false;
    }
}

/* Cuts scales as their codes. */
static void choose_scales(const struct zero *z) {
    GRAPH_EACH(z->graph, i, const struct node *node) {
        if (!op_has_blocks(node->op)) continue;
        const int codes = representative(z, node->inputs[0]), scales = representative(z, node->inputs[1]);
        z->grain[codes] = RT_MOMENT_BLOCK;
        z->grain[scales] = 1;
        z->cut[scales] = z->cut[codes];
        z->parts[scales] = z->parts[codes];
    }
}

static bool is_cut(const struct zero *z, int tensor) {
    return tensor >= 0 && z->cut[representative(z, tensor)];
}

/* The axes along which the family of the tensor is cut. */
static unsigned axes_of(const struct zero *z, int tensor) {
    return z->axes & ~z->parts[representative(z, tensor)];
}

/* Finds the axes along which nodes of the phases reduce and update are split, as updates of experts' weights are. */
static void find_parts(const struct zero *z) {
    GRAPH_EACH(z->graph, i, const struct node *node) {
        for (int axis = 0; axis < z->graph->mesh.naxes && connects(node); axis++)
            if (node->split[axis].factor >= 0 && !is_single(z, node->outputs[0]))
                z->parts[representative(z, node->outputs[0])] |= 1u << axis;
    }
}

/* Finds the axes that stages lack which compute or read a tensor of the family. */
static void find_lacking(const struct zero *z) {
    const struct graph *graph = z->graph;
    struct draft draft;
    draft_init(&draft, graph);
    const unsigned *lacking = stages_lacking(&draft);
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        for (int k = 0; k < node->ninputs + node->noutputs; k++)
            if (node_tensor(node, k) >= 0) z->parts[representative(z, node_tensor(node, k))] |= lacking[id];
    }
}

static void place_flat(const struct zero *z, int tensor) {
    for (int axis = 0; axis < mesh_layout_axes(&z->graph->mesh); axis++)
        if (axes_of(z, tensor) >> axis & 1u)
            layout_place(z->graph->arena, &z->graph->tensors.at[tensor].layout, axis,
                         (struct placement){.kind = PLACED_FLAT, .grain = z->grain[representative(z, tensor)]});
}

/* Cuts the node as the family of the tensor. */
static void split_flat(const struct zero *z, struct node *node, int tensor) {
    for (int axis = 0; axis < mesh_layout_axes(&z->graph->mesh); axis++)
        if (axes_of(z, tensor) >> axis & 1u)
            node->split[axis] =
                (struct node_split){.factor = SPLIT_FLAT,
                                    .blocks = 1,
                                    .grain = z->grain[representative(z, tensor)] > 1 ? RT_MOMENT_BLOCK : 1};
}

/* The reduction of each micro-batch leaves out dummies itself, since a rank knows only whether its own micro-batch is
 * one. */
static void add_always(const struct zero *z, struct node *accumulate) {
    const enum rt_dtype dtype = tensor_at(z, accumulate->inputs[2])->dtype;
    const double one = 1;
    unsigned char bytes[sizeof one];
    rt_convert(bytes, dtype, &one, RT_F64, 1);
    accumulate->inputs[2] = graph_add_const(z->graph, "one", dtype, 0, NULL, bytes);
}

/* True for sums of gradients of scale units, which ZeRO 1 reduces when they are complete. */
static bool adds_gradients(const struct node *node) {
    return node->op->id == OP_Accumulate || (node->op->id == OP_Add && node->phase == PHASE_REDUCE);
}

/* Cuts the nodes of the families that are cut. */
static void cut_nodes(const struct zero *z) {
    GRAPH_EACH_ID(z->graph, id, struct node *const node) {
        const bool sums = node->op->id == OP_SumSquares && is_cut(z, node->inputs[0]);
        if (adds_gradients(node) && z->decisions->zero < ZERO_SUMS) continue;
        const bool reduced =
            decisions_zero_groups(z->decisions) == 1 || is_cut(z, node->outputs[0]); /* in each micro-batch */
        if (node->op->id == OP_Accumulate && reduced) add_always(z, node);
        if (!sums && !((connects(node) || op_has_blocks(node->op)) && is_cut(z, node->outputs[0]))) continue;
        split_flat(z, &z->graph->nodes.at[id], sums ? node->inputs[0] : node->outputs[0]);
    }
}

/* Places states, and parameters in stage 3. */
static void place_families(const struct zero *z) {
    const int n = z->graph->tensors.n;
    for (int t = 0; t < n; t++) {
        const struct tensor *tensor = tensor_at(z, t);
        const bool state = tensor->kind == TENSOR_STATE && (!tensor->gradient || z->decisions->zero >= ZERO_SUMS);
        if ((state || (tensor->kind == TENSOR_WEIGHT && z->decisions->zero >= ZERO_PARAMETERS)) && is_cut(z, t))
            place_flat(z, t);
    }
}

/* Codes of matrices or a table, or scales of matrices. */
static bool is_quantised(const struct zero *z, const struct node *node, int k) {
    const struct tensor *tensor = tensor_at(z, node->inputs[k]);
    return tensor_is_stored(tensor) && tensor_elements(tensor) >= ZERO_THRESHOLD &&
           (node->op->id == OP_DequantMatMul || node->op->id == OP_DequantExpertMatMul
                ? k > 0
                : node->op->id == OP_Gather && k == 0 && rt_dtype_bytes(tensor->dtype) == 1);
}

/* Stage 3: weights that are not trained are cut too, and have no states. */
static void place_frozen(const struct zero *z) {
    if (z->decisions->zero < ZERO_PARAMETERS) return;
    bool *cut = ARENA_ARRAY(z->graph->arena, bool, z->graph->tensors.n + 1);
    for (int t = 0; t < z->graph->tensors.n; t++)
        cut[t] = may_cut(z, t) && z->family[t] == t && !tensor_at(z, t)->constant;
    GRAPH_EACH(z->graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && is_quantised(z, node, k)) cut[node->inputs[k]] = true;
    }
    for (int t = 0; t < z->graph->tensors.n; t++)
        if (cut[t]) place_flat(z, t);
}

static bool is_cast_of_slice(const struct zero *z, const struct node *node) {
    return node->op->id == OP_Cast && node->phase < PHASE_REDUCE &&
           tensor_at(z, node->inputs[0])->kind == TENSOR_WEIGHT &&
           layout_flat_axes(&tensor_at(z, node->inputs[0])->layout);
}

/* The result of a copy of the node in the backward phase. */
static int copy_backward(const struct zero *z, int id) {
    struct node node = z->graph->nodes.at[id];
    int out = graph_add_like(z->graph, node.outputs[0], ".backward");
    node.outputs = &out;
    node.phase = PHASE_BACKWARD;
    const int copy = graph_add_copy(z->graph, &node);
    split_flat(z, &z->graph->nodes.at[copy], node.inputs[0]);
    return out;
}

/* Stage 3 with --amp: slices are cast before they are gathered, in each phase that reads the result; a value kept from
 * forward to backward would hold the parameter whole. */
static void cast_slices(const struct zero *z) {
    struct graph *graph = z->graph;
    int *again = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1), n; /* per cast: its copy's result; 0: none */
    const int *order = graph_take_order(graph, &n);
    for (int i = 0; i < n; i++) {
        struct node *node = &graph->nodes.at[order[i]];
        for (int k = 0; k < node->ninputs && node->phase == PHASE_BACKWARD; k++) {
            const int tensor = node->inputs[k], producer = tensor < 0 ? -1 : tensor_at(z, tensor)->producer;
            if (producer < 0 || graph->nodes.at[producer].phase == PHASE_BACKWARD ||
                !is_cast_of_slice(z, &graph->nodes.at[producer]))
                continue;
            if (!again[tensor]) again[tensor] = copy_backward(z, producer);
            node = &graph->nodes.at[order[i]]; /* nodes may have moved */
            node->inputs[k] = again[tensor];
        }
        VEC_PUSH(graph->arena, &graph->order, order[i]);
        node = &graph->nodes.at[order[i]];
        if (is_cast_of_slice(z, node)) split_flat(z, node, node->inputs[0]);
    }
}

/* The axes along which ranks have different samples or positions, so that gradients are partial; and the replicas. */
static unsigned axes_to_cut(const struct mesh *mesh) {
    unsigned axes = 1u << mesh->naxes;
    for (int role = 0; role < AXIS_ROLES; role++) {
        const int axis = mesh_axis(mesh, (enum axis_role)role);
        if (axis >= 0 && axis_rows[role].samples) axes |= 1u << axis;
    }
    return axes;
}

struct zero_moves zero_moves(int64_t zero, int64_t micro_batches) {
    return (struct zero_moves){.sum = zero ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE,
                               .sums = zero >= ZERO_SUMS ? micro_batches : 1,
                               .gathers = zero >= ZERO_PARAMETERS ? 2 * micro_batches
                                          : zero                  ? 1
                                                                  : 0};
}

void zero_cut(struct graph *graph, const struct pass_context *context) {
    if (!context->decisions.zero) return;
    const struct zero z = {.graph = graph,
                           .training = context->training,
                           .decisions = &context->decisions,
                           .axes = axes_to_cut(&graph->mesh),
                           .family = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1),
                           .cut = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1),
                           .grain = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1),
                           .parts = ARENA_ARRAY(graph->arena, unsigned, graph->tensors.n + 1)};
    find_families(&z);
    find_parts(&z);
    if (!mesh_is_even(&graph->mesh)) find_lacking(&z);
    choose_families(&z);
    choose_scales(&z);
    place_families(&z);
    place_frozen(&z);
    cut_nodes(&z);
    if (context->decisions.zero >= ZERO_PARAMETERS) cast_slices(&z);
}
