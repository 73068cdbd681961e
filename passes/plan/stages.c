#include "passes/plan/stages.h"

#include "ir/dims.h"
#include "ir/op.h"

/* A node may be recomputed in each stage that reads it if none of its stored operands and results has more bytes than
 * the larger of these: CHEAP_BYTES, and a part 1 / CHEAP_PART of the largest weight, beside which they are few. It may
 * have CHEAP_FLOPS operations for each of these bytes. The largest weight is the same in a model of fewer layers, from
 * which the search predicts. */
enum { CHEAP_BYTES = 1 << 20, CHEAP_PART = 64, CHEAP_FLOPS = 4 };

static double cheap_bytes(const struct graph *graph) {
    double largest = 0;
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor) {
        const double bytes = tensor->kind == TENSOR_WEIGHT ? (double)tensor_bytes(tensor) : 0;
        if (bytes > largest) largest = bytes;
    }
    return largest > (double)CHEAP_BYTES * CHEAP_PART ? largest / CHEAP_PART : CHEAP_BYTES;
}

/* True if every stage has the operand, or can load or recompute it cheaply. */
static bool is_everywhere(const struct graph *graph, const bool *recomputed, int tensor, double most) {
    if (tensor < 0) return true;
    const struct tensor *t = &graph->tensors.at[tensor];
    if (t->kind == TENSOR_VALUE) return recomputed[t->producer];
    return t->kind == TENSOR_INPUT || (double)tensor_bytes(t) <= most;
}

/* True for cheap operators that neither sum (products, norms, reductions) nor communicate. */
static bool is_cheap(const struct graph *graph, const struct node *node, double most) {
    struct dims dims;
    if (op_communicates(node->op) || dims_bind(graph->arena, graph, node, &dims, NULL) < 0) return false;
    if (dims_flops(&dims, node->op->flops) > CHEAP_FLOPS * most) return false;
    for (int f = 0; f < dims.nfactors; f++)
        if (dims.factor[f].kind != FACTOR_PASS && dims.factor[f].kind != FACTOR_WHOLE) return false;
    for (int k = 0; k < node->noutputs; k++)
        if ((double)tensor_bytes(&graph->tensors.at[node->outputs[k]]) > most) return false;
    return true;
}

bool *stage_recomputed(const struct graph *whole) {
    const struct graph *graph = graph_typical(whole, whole->arena);
    const double most = cheap_bytes(graph);
    bool *recomputed = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        bool all = true;
        for (int k = 0; k < node->ninputs && all; k++) all = is_everywhere(graph, recomputed, node->inputs[k], most);
        recomputed[id] = all && is_cheap(graph, node, most);
    }
    return recomputed;
}

bool *stage_live(const struct graph *graph) {
    bool *live = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    for (int i = 0; i < graph->order.n; i++) live[graph->order.at[i]] = true;
    return live;
}

int stage_origin(const struct graph *graph, const bool *live, int id) {
    const int origin = graph->nodes.at[id].origin;
    return origin >= 0 && live[origin] ? origin : -1;
}

enum { NOWHERE = 1 << 30 }; /* no stage */

/* The first stage that computes an operand in the node's own phase; copies of forward nodes do not count, because their
 * originals are read instead (pass partition). */
static int first_operand_stage(const struct draft *draft, const struct node *node) {
    const struct graph *graph = draft->graph;
    int first = NOWHERE;
    for (int k = 0; k < node->ninputs; k++) {
        const int producer = node->inputs[k] < 0 ? -1 : graph->tensors.at[node->inputs[k]].producer;
        if (producer < 0 || graph->nodes.at[producer].phase != node->phase ||
            attr_int(&graph->nodes.at[producer], "again", 0))
            continue;
        if (draft->stage[producer] < first) first = draft->stage[producer];
    }
    return first;
}

/* True for the sum of the gradients that the readers of a value contribute, all of which a stage has. */
static bool is_sum_on(const struct draft *draft, const struct node *node, int stage) {
    const struct graph *graph = draft->graph;
    if (node->op->id != OP_Add) return false;
    for (int k = 0; k < node->ninputs; k++) {
        const int producer = graph->tensors.at[node->inputs[k]].producer;
        if (producer < 0 || graph->nodes.at[producer].phase != node->phase || draft->stage[producer] != stage)
            return false;
    }
    return true;
}

/* Backward nodes follow their origin, but are on no later stage than their operands; those without an origin (casts)
 * are where their operands are, and so are sums of gradients: the sum is sent to the earlier stage, not each of them.
 * Nodes that no operand places are left NOWHERE. */
static void place_backward(struct draft *draft, const bool *live) {
    const struct graph *graph = draft->graph;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        if (node->phase != PHASE_BACKWARD) continue;
        const int origin = stage_origin(graph, live, id), operands = first_operand_stage(draft, node);
        const bool follows = origin >= 0 && draft->stage[origin] < operands && !is_sum_on(draft, node, operands);
        draft->stage[id] = follows ? draft->stage[origin] : operands;
    }
}

/* Places the others on the first stage that reads their results, from the last node on. */
static void place_by_readers(struct draft *draft, int last_stage) {
    const struct graph *graph = draft->graph;
    int *first = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1); /* per tensor: the first stage that reads it */
    for (int t = 0; t < graph->tensors.n; t++) first[t] = last_stage;
    GRAPH_EACH_ID_BACK(graph, id, const struct node *node) {
        if (node->phase != PHASE_BACKWARD) continue;
        if (draft->stage[id] == NOWHERE) draft->stage[id] = first[node->outputs[0]];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && draft->stage[id] < first[node->inputs[k]])
                first[node->inputs[k]] = draft->stage[id];
    }
}

/* The forward node that computes a value. For a value computed by a copy that pass recompute has made, the node that
 * was copied. -1: there is none. */
static int forward_node(const struct graph *graph, int tensor) {
    int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    if (producer >= 0 && attr_int(&graph->nodes.at[producer], "again", 0)) producer = graph->nodes.at[producer].origin;
    return producer >= 0 && graph->nodes.at[producer].phase == PHASE_FORWARD ? producer : -1;
}

/* Moves a forward node to an earlier stage if a gradient's node on that stage reads its result (Note [Results that
 * gradients share]). Returns whether any node was moved: the nodes after it must then be placed again. */
static bool move_shared(struct draft *draft, const bool *recomputed) {
    const struct graph *graph = draft->graph;
    bool any = false;
    int *first = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1); /* per node: the first stage that needs it */
    for (int id = 0; id < graph->nodes.n; id++) first[id] = NOWHERE;
    GRAPH_EACH_ID_BACK(graph, id, const struct node *node) {
        const bool given = draft->given_stage && draft->given_stage[id] >= 0;
        const bool moves = node->phase == PHASE_FORWARD && first[id] < draft->stage[id] && !recomputed[id] && !given;
        if (moves) draft->stage[id] = first[id], any = true;
        for (int k = 0; k < node->ninputs && (moves || node->phase == PHASE_BACKWARD); k++) {
            const int operand = forward_node(graph, node->inputs[k]);
            if (operand >= 0 && draft->stage[id] < first[operand]) first[operand] = draft->stage[id];
        }
    }
    return any;
}

/* Places the nodes of the backward phase, and those of the forward phase that must be with them. Nodes only move to
 * earlier stages, so this ends. */
static void place_gradients(struct draft *draft, const bool *live, const bool *recomputed, int last_stage) {
    do {
        place_backward(draft, live);
        place_by_readers(draft, last_stage);
    } while (move_shared(draft, recomputed));
}

int *stage_positions(const struct graph *graph, const bool *recomputed) {
    struct draft draft = {.graph = graph, .stage = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1)};
    for (int i = 0; i < graph->order.n; i++) draft.stage[graph->order.at[i]] = i;
    if (graph->train) place_gradients(&draft, stage_live(graph), recomputed, graph->order.n - 1);
    return draft.stage;
}

/* The last stage that computes an operand in the phase of reductions. */
static int last_reduced_stage(const struct draft *draft, const struct node *node) {
    const struct graph *graph = draft->graph;
    int last = -1;
    for (int k = 0; k < node->ninputs; k++) {
        const int producer = node->inputs[k] < 0 ? -1 : graph->tensors.at[node->inputs[k]].producer;
        if (producer >= 0 && graph->nodes.at[producer].phase == PHASE_REDUCE && draft->stage[producer] > last)
            last = draft->stage[producer];
    }
    return last;
}

/* Reductions and updates are where the gradient is, on the first stage of that coordinate. `owner`, per tensor: the
 * stage of the parameter that a value belongs to; NOWHERE for values that no gradient places. The sum of all squares
 * is passed on from stage to stage, and other values without an owner are computed on the last one. Marks these in
 * `unowned`, per node. */
static void place_updates(struct draft *draft, int last_stage, bool *unowned) {
    const struct graph *graph = draft->graph;
    int *owner = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) owner[t] = NOWHERE;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        int own = node->phase == PHASE_BACKWARD ? draft_first(draft, draft->stage[id]) : NOWHERE;
        for (int k = 0; k < node->ninputs && node->phase >= PHASE_REDUCE; k++)
            if (node->inputs[k] >= 0 && own == NOWHERE) own = owner[node->inputs[k]];
        for (int k = 0; k < node->noutputs && node->phase != PHASE_REDUCE; k++)
            if (node->outputs[k] >= 0) owner[node->outputs[k]] = own;
        const int reduced = node->phase == PHASE_REDUCE ? last_reduced_stage(draft, node) : -1;
        if (node->phase >= PHASE_REDUCE) draft->stage[id] = own < NOWHERE ? own : reduced >= 0 ? reduced : last_stage;
        unowned[id] = node->phase == PHASE_UPDATE && own == NOWHERE;
    }
}

enum { SEVERAL = -1 }; /* stages */

/* Moves values without an owner to the stage of all their readers, from the last node on: what is left of a weight or a
 * moment before the gradient is added (weight decay, beta m) is computed where that is. Scalars that several stages
 * read stay on the last one. */
static void follow_readers(struct draft *draft, const bool *unowned) {
    const struct graph *graph = draft->graph;
    int *readers = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1); /* per tensor: the stage of its readers */
    for (int t = 0; t < graph->tensors.n; t++) readers[t] = NOWHERE;
    GRAPH_EACH_ID_BACK(graph, id, const struct node *node) {
        const int stage = unowned[id] && node->noutputs == 1 ? readers[node->outputs[0]] : NOWHERE;
        if (stage != NOWHERE && stage != SEVERAL) draft->stage[id] = stage;
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] < 0) continue;
            int *of = &readers[node->inputs[k]];
            *of = *of == NOWHERE || *of == draft->stage[id] ? draft->stage[id] : SEVERAL;
        }
    }
}

void stages_follow(struct draft *draft) {
    const struct graph *graph = draft->graph;
    const int last_stage = draft_stages(draft) - 1;
    if (!graph->train || last_stage == 0) return;
    const bool *live = stage_live(graph);
    place_gradients(draft, live, stage_recomputed(graph), last_stage);
    bool *unowned = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    place_updates(draft, draft_first(draft, last_stage), unowned);
    follow_readers(draft, unowned);
}

static unsigned axes_lacking(const struct mesh *mesh, int coordinate) {
    unsigned lacking = 0;
    for (int axis = 0; axis < mesh->naxes; axis++)
        if (!mesh_has(mesh, axis, coordinate)) lacking |= 1u << axis;
    return lacking;
}

/* Nodes that are recomputed also where they are split. One that follows from an input is not: a split takes a part of
 * the input, by a node that one stage alone has (pass redist). */
static bool *find_own(const struct graph *graph) {
    bool *own = stage_recomputed(graph);
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++) {
            const struct tensor *t = node->inputs[k] < 0 ? NULL : &graph->tensors.at[node->inputs[k]];
            if (t && (t->kind == TENSOR_INPUT || (t->kind == TENSOR_VALUE && !own[t->producer]))) own[id] = false;
        }
    }
    return own;
}

unsigned *stages_lacking(const struct draft *draft) {
    const struct graph *graph = draft->graph;
    const bool *recomputed = stage_recomputed(graph), *own = find_own(graph);
    unsigned *lacking = ARENA_ARRAY(graph->arena, unsigned, graph->nodes.n + 1);
    GRAPH_EACH_ID_BACK(graph, id, const struct node *node) {
        if (!own[id]) lacking[id] |= axes_lacking(&graph->mesh, draft_coordinate(draft, draft->stage[id]));
        for (int k = 0; k < node->ninputs; k++) {
            const int producer = node->inputs[k] < 0 ? -1 : graph->tensors.at[node->inputs[k]].producer;
            if (producer >= 0 && recomputed[producer]) lacking[producer] |= lacking[id];
        }
    }
    return lacking;
}

int stages_check_axes(const struct graph *graph, struct diags *diags) {
    struct draft draft;
    draft_init(&draft, graph);
    const unsigned *lacking = stages_lacking(&draft);
    VEC_EACH_VALUE(&graph->order, i, const int id) {
        for (int axis = 0; axis < graph->mesh.naxes; axis++)
            if (graph->nodes.at[id].split[axis].factor != SPLIT_NONE && lacking[id] >> axis & 1u)
                return diag_error(diags, 420, EXIT_LIMIT, node_place(graph, id),
                                  "it cannot be split along %s: a pipeline stage that computes it does not have that "
                                  "axis",
                                  graph->mesh.axis[axis].name);
    }
    return 0;
}
