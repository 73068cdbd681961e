/* Inserts sends and receives between pipeline stages (Note [Stages] in passes/plan/stages.h). */
#include <string.h>

#include "ir/base/map.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/plan/stages.h"
#include "passes/rewrite/rewrite.h"

struct staging {
    struct graph *graph;
    struct rewrite rewrite;
    int axis, stages, nodes; /* nodes: as many as there were */
    const bool *recomputed;
    bool *needed;     /* [node * stages + stage]: the stage must recompute the node */
    bool *holds;      /* [update * stages + stage]: the stage holds the weight of the update */
    struct map there; /* "tensor stage" -> the tensor that has the value on that stage */
};

static const char *key_of(const struct staging *s, int tensor, int stage) {
    return arena_printf(s->graph->arena, "%d %d", tensor, stage);
}

/* The stage that has a node of the phase on the coordinate of `stage`: nodes of the whole step are on the coordinate's
 * first one. */
static int stage_in(const struct staging *s, enum phase phase, int stage) {
    return phase >= PHASE_REDUCE ? schedule_first(s->graph, schedule_home(s->graph, stage)) : stage;
}

/* If several stages at one coordinate hold the weight, the first of them computes its new value. */
static void keep_first_holders(struct staging *s, int update) {
    for (int stage = 0; stage < s->stages; stage++)
        for (int before = 0; before < stage; before++)
            if (s->holds[update * s->stages + before] &&
                schedule_home(s->graph, before) == schedule_home(s->graph, stage))
                s->holds[update * s->stages + stage] = false;
}

/* A stage holds a weight, and needs its new value, if it reads it. All stages hold a weight that is an output. */
static void find_holders(struct staging *s) {
    const struct graph *graph = s->graph;
    int *update = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1); /* per tensor: the update of it + 1 */
    s->holds = ARENA_ARRAY(graph->arena, bool, graph->updates.n * s->stages + 1);
    for (int i = 0; i < graph->updates.n; i++) update[graph->updates.at[i].weight] = i + 1;
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++) {
            const int u = node->inputs[k] < 0 ? -1 : update[node->inputs[k]] - 1;
            for (int stage = 0; stage < s->stages && u >= 0; stage++)
                if (s->recomputed[graph->order.at[i]] ? s->needed[graph->order.at[i] * s->stages + stage]
                                                      : node->stage == stage)
                    s->holds[u * s->stages + stage] = true;
        }
    }
    for (int i = 0; i < graph->outputs.n; i++) {
        const int u = update[graph->outputs.at[i]] - 1;
        for (int stage = 0; stage < s->stages && u >= 0; stage++) s->holds[u * s->stages + stage] = true;
    }
    for (int u = 0; u < graph->updates.n; u++) keep_first_holders(s, u);
}

static bool is_recomputed(const struct staging *s, int tensor) {
    const int producer = s->graph->tensors.at[tensor].producer;
    return producer >= 0 && s->recomputed[producer];
}

/* An output that is recomputed is needed on the stage of its node. */
static void mark_kept(struct staging *s, int tensor) {
    const int producer = s->graph->tensors.at[tensor].producer;
    if (!is_recomputed(s, tensor)) return;
    int stage = s->graph->nodes.at[producer].stage;
    if (stage >= 0) s->needed[producer * s->stages + stage] = true;
}

/* Marks recomputed nodes as needed on the stages of their readers; from the last node on, since readers may be
 * recomputed too. */
static void mark_read(struct staging *s) {
    GRAPH_EACH_ID_BACK(s->graph, id, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] < 0 || !is_recomputed(s, node->inputs[k])) continue;
            const int producer = s->graph->tensors.at[node->inputs[k]].producer;
            for (int stage = 0; stage < s->stages; stage++)
                if (s->recomputed[id] ? s->needed[id * s->stages + stage] : node->stage == stage)
                    s->needed[producer * s->stages + stage] = true;
        }
    }
}

/* Marks recomputed new values as needed on the stages that hold the weights. Returns whether that changed anything: the
 * nodes may read weights of other updates, which these stages then hold too. */
static bool mark_updates(struct staging *s) {
    bool more = false;
    find_holders(s);
    for (int i = 0; i < s->graph->updates.n; i++) {
        const int value = s->graph->updates.at[i].value;
        for (int stage = 0; stage < s->stages && is_recomputed(s, value); stage++) {
            const int producer = s->graph->tensors.at[value].producer;
            const int at = stage_in(s, s->graph->nodes.at[producer].phase, stage);
            bool *needed = &s->needed[producer * s->stages + at];
            more = more || (s->holds[i * s->stages + stage] && !*needed);
            *needed = *needed || s->holds[i * s->stages + stage];
        }
    }
    return more;
}

static void mark_needed(struct staging *s) {
    s->needed = ARENA_ARRAY(s->graph->arena, bool, s->nodes * s->stages + 1);
    for (int i = 0; i < s->graph->outputs.n; i++) mark_kept(s, s->graph->outputs.at[i]);
    do {
        mark_read(s);
    } while (mark_updates(s));
}

/* True if the value was cast from a narrower float type in the same phase. Then the narrow value is sent, which has
 * the same information. */
static bool is_widened(const struct graph *graph, int tensor) {
    const struct tensor *wide = &graph->tensors.at[tensor];
    const struct node *cast = &graph->nodes.at[wide->producer];
    if (cast->op->id != OP_Cast) return false;
    const struct tensor *narrow = &graph->tensors.at[cast->inputs[0]];
    return narrow->kind == TENSOR_VALUE && graph->nodes.at[narrow->producer].phase == cast->phase &&
           rt_dtype_is_float(wide->dtype) && rt_dtype_is_float(narrow->dtype) &&
           rt_dtype_bytes(narrow->dtype) < rt_dtype_bytes(wide->dtype);
}

/* The phase in which the value is sent: the phase of its node. A sum over micro-batches is complete only after the
 * last micro-batch, so it is sent in PHASE_REDUCE. */
static enum phase sent_in(const struct graph *graph, int tensor) {
    const struct node *producer = &graph->nodes.at[graph->tensors.at[tensor].producer];
    return producer->op->id == OP_Accumulate ? PHASE_REDUCE : producer->phase;
}

static void copy_node(struct staging *s, int id, int stage);

/* The tensor that has the value on `stage`; adds a Transfer if it is computed at another coordinate. Stages of one
 * coordinate read each other's values. */
static int bring(struct staging *s, int tensor, int stage, const char *name) {
    struct graph *graph = s->graph;
    const struct tensor *t = &graph->tensors.at[tensor];
    if (tensor < 0 || t->kind != TENSOR_VALUE) return tensor;
    const enum phase phase = sent_in(graph, tensor);
    int home = graph->nodes.at[t->producer].stage;
    if (home != STAGE_ALL) home = stage_in(s, phase, home);
    stage = stage_in(s, phase, stage);
    const char *key = key_of(s, tensor, stage);
    int there = map_find(&s->there, key);
    if (there >= 0) return there;
    if (home == stage || home == STAGE_ALL) return tensor;
    if (schedule_home(graph, home) == schedule_home(graph, stage)) return tensor;
    if (is_widened(graph, tensor)) {
        copy_node(s, t->producer, stage);
        return map_find(&s->there, key);
    }
    struct attr attrs[] = {attr_of_int("mesh", s->axis), attr_of_int("from", home), attr_of_int("to", stage)};
    int out = graph_add_like(graph, tensor, arena_printf(graph->arena, ".stage%d", stage));
    int id = graph_add_node(graph, &ops[OP_Transfer], name, 1, &tensor, 1, &out, 3, attrs);
    graph->nodes.at[id].stage = stage;
    graph->nodes.at[id].phase = phase;
    map_set(&s->there, key, out);
    return out;
}

/* Lets the node read its operands on the stage. */
static void bring_inputs(struct staging *s, const struct node *node, int stage) {
    for (int k = 0; k < node->ninputs; k++) node->inputs[k] = bring(s, node->inputs[k], stage, node->name);
}

/* The result of a copied node on another stage. */
static int copy_result(struct staging *s, int tensor, int stage) {
    struct graph *graph = s->graph;
    const char *key = key_of(s, tensor, stage);
    int out = graph_add_like(graph, tensor, arena_printf(graph->arena, ".stage%d", stage));
    graph->tensors.at[out].copy_of = tensor;
    map_set(&s->there, key, out);
    return out;
}

/* A copy of the node for another stage, with all of its results. */
static void copy_node(struct staging *s, int id, int stage) {
    struct graph *graph = s->graph;
    struct node node = graph->nodes.at[id];
    int *outputs = ARENA_ARRAY(graph->arena, int, node.noutputs + 1);
    node.inputs = arena_copy(graph->arena, node.inputs, (size_t)node.ninputs * sizeof *node.inputs);
    bring_inputs(s, &node, stage);
    for (int k = 0; k < node.noutputs; k++)
        outputs[k] = node.outputs[k] < 0 ? -1 : copy_result(s, node.outputs[k], stage);
    node.outputs = outputs;
    node.stage = stage;
    graph_add_copy(graph, &node);
}

/* Puts a recomputed node on the first stage that needs it, and copies on the others. */
static void place_recomputed(struct staging *s, int id) {
    bool placed = false;
    for (int stage = 0; stage < s->stages; stage++) {
        if (!s->needed[id * s->stages + stage]) continue;
        if (placed) {
            copy_node(s, id, stage);
            continue;
        }
        s->graph->nodes.at[id].stage = stage;
        const struct node node = s->graph->nodes.at[id];
        bring_inputs(s, &node, stage);
        rewrite_keep(&s->rewrite, id);
        placed = true;
    }
    if (!placed) rewrite_keep(&s->rewrite, id); /* nothing reads it */
}

static int broadcast(struct staging *s, int tensor, const char *name) {
    struct graph *graph = s->graph;
    const struct tensor *t = &graph->tensors.at[tensor];
    if (t->kind != TENSOR_VALUE || graph->nodes.at[t->producer].stage == STAGE_ALL) return tensor;
    struct attr attrs[] = {attr_of_int("mesh", s->axis), attr_of_int("from", graph->nodes.at[t->producer].stage)};
    int out = graph_add_like(graph, tensor, ".all");
    int id = graph_add_node(graph, &ops[OP_Broadcast], name, 1, &tensor, 1, &out, 2, attrs);
    graph->nodes.at[id].stage = STAGE_ALL;
    graph->nodes.at[id].phase = graph->nodes.at[t->producer].phase;
    return out;
}

/* Gives each stage that holds an updated weight the new value, computed there or sent. */
static void place_updates(struct staging *s) {
    struct graph *graph = s->graph;
    const struct update *updates = graph->updates.at;
    const int n = graph->updates.n;
    graph->updates.at = NULL;
    graph->updates.n = graph->updates.capacity = 0;
    for (int i = 0; i < n; i++)
        for (int stage = 0; stage < s->stages; stage++) {
            if (!s->holds[i * s->stages + stage]) continue;
            const struct update update = {updates[i].weight,
                                          bring(s, updates[i].value, stage, graph->tensors.at[updates[i].weight].name)};
            bool had = false; /* a node of all stages computes it */
            for (int u = graph->updates.n - 1; u >= 0 && graph->updates.at[u].weight == update.weight && !had; u--)
                had = graph->updates.at[u].value == update.value;
            if (!had) VEC_PUSH(graph->arena, &graph->updates, update);
        }
}

/* The value of a recomputed node, computed again once in a step, where all stages can be given it. */
static int compute_once(struct staging *s, int tensor) {
    struct graph *graph = s->graph;
    if (tensor < 0 || graph->tensors.at[tensor].kind != TENSOR_VALUE) return tensor;
    struct node node = graph->nodes.at[graph->tensors.at[tensor].producer];
    int *inputs = ARENA_ARRAY(graph->arena, int, node.ninputs + 1);
    for (int k = 0; k < node.ninputs; k++) inputs[k] = compute_once(s, node.inputs[k]);
    int out = graph_add_like(graph, tensor, ".once");
    node.inputs = inputs, node.outputs = &out;
    node.phase = PHASE_REDUCE;
    node.stage = stage_in(s, node.phase, node.stage);
    graph_add_copy(graph, &node);
    return out;
}

/* Metrics that share a node with the phases of micro-batches, as the loss scale does. */
static void give_metrics(struct staging *s) {
    struct graph *graph = s->graph;
    for (int i = graph->outputs.n - graph->nmetrics; i < graph->outputs.n; i++) {
        const int output = graph->outputs.at[i];
        if (graph_phase_of(graph, output) < PHASE_REDUCE && is_recomputed(s, output))
            graph->outputs.at[i] = compute_once(s, output);
    }
}

/* The outputs that every rank must have. The loss of a training program stays on its stage, since a broadcast of each
 * micro-batch would make the stages wait for each other; the runtime exchanges the losses of a step. So do the outputs
 * of inference of several micro-batches, which the runtime broadcasts at the end of the step. */
static void give_outputs(struct staging *s) {
    struct graph *graph = s->graph;
    VEC_EACH_VALUE(&graph->outputs, i, const int output) {
        if (graph_overlaps_stages(graph) && graph_phase_of(graph, output) < PHASE_REDUCE) continue;
        graph->outputs.at[i] = broadcast(s, output, graph->output_names.at[i]);
    }
}

/* The place of the node in the order of its phase: twice the turn of its stage, and for a Transfer 1 more, so that a
 * stage sends after it has computed. Nodes of phases of the whole step keep their order. */
static int turn_of(const struct staging *s, const struct node *node) {
    const bool transfer = node->op->id == OP_Transfer;
    const int stage = transfer ? (int)attr_int(node, "from", 0) : node->stage;
    if (node->phase >= PHASE_REDUCE || stage == STAGE_ALL) return 0;
    return 2 * (node->phase == PHASE_FORWARD ? stage : s->stages - 1 - stage) + transfer;
}

/* Sorts the forward and the backward phase by stage, so that stages can be executed one after the other (Note [Stages
 * in training] in passes/plan/stages.h). */
static void sort_by_stage(struct staging *s) {
    struct graph *graph = s->graph;
    const int n = graph->order.n, turns = 2 * s->stages;
    int *sorted = ARENA_ARRAY(graph->arena, int, n + 1), placed = 0;
    for (int phase = 0; phase < PHASES; phase++)
        for (int turn = 0; turn < (phase >= PHASE_REDUCE ? 1 : turns); turn++)
            for (int i = 0; i < n; i++) {
                const struct node *node = &graph->nodes.at[graph->order.at[i]];
                if ((int)node->phase == phase && turn_of(s, node) == turn) sorted[placed++] = graph->order.at[i];
            }
    memcpy(graph->order.at, sorted, (size_t)n * sizeof *sorted);
}

/* Checks the stages of a node and of the one that computes its operand: E0424 for a value that goes from a later to an
 * earlier stage in the forward phase, or the other way in the backward phase. Only rules and plan files place nodes
 * so. */
static int check_direction(const struct graph *graph, const struct node *node, int tensor, struct diags *diags) {
    const int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    if (producer < 0 || node->phase >= PHASE_REDUCE) return 0;
    const enum phase phase = graph_phase_of(graph, tensor);
    const int from = graph->nodes.at[producer].stage, to = node->stage;
    if (from == to || from == STAGE_ALL || (phase == PHASE_FORWARD ? from < to : from > to)) return 0;
    return diag_error(diags, 424, EXIT_MALFORMED, node_place(graph, producer),
                      "plan: the node is on stage %d, but node '%s' on stage %d reads its result: in %s, "
                      "values of the %s phase go to %s stages",
                      from, node->name, to, graph->train ? "training" : "inference of several micro-batches",
                      phase_names[phase], phase == PHASE_FORWARD ? "later" : "earlier");
}

static int check_directions(const struct staging *s, struct diags *diags) {
    const struct graph *graph = s->graph;
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (check_direction(graph, node, node->inputs[k], diags) < 0) return -1;
    }
    return 0;
}

static int order_stages(struct staging *s, const struct pass_context *context) {
    if (!graph_overlaps_stages(s->graph)) return 0;
    if (pass_dce(s->graph, context) < 0 || check_directions(s, context->diags) < 0) return -1;
    sort_by_stage(s);
    return 0;
}

int pass_stage(struct graph *graph, const struct pass_context *context) {
    struct staging s = {.graph = graph, .axis = mesh_pipeline_axis(&graph->mesh), .nodes = graph->nodes.n};
    if (s.axis < 0 || graph->mesh.axis[s.axis].size == 1) return 0;
    s.stages = schedule_chunks(graph);
    if (graph_gradient_inputs(graph)) {
        diag_error(context->diags, 415, EXIT_UNSUPPORTED, graph->name,
                   "a model without a loss cannot be trained in pipeline stages: the functions that a caller "
                   "composes have no schedule");
        return diag_help(context->diags, "--loss adds one, such as --loss cross_entropy:logits=VALUE,labels=INPUT");
    }
    GRAPH_EACH(graph, i, struct node *const node)
        if (node->stage != STAGE_ALL) node->stage = stage_in(&s, node->phase, node->stage);
    s.recomputed = stage_recomputed(graph);
    map_init(&s.there, graph->arena);
    mark_needed(&s);
    rewrite_begin(&s.rewrite, graph);
    for (int i = 0; i < s.rewrite.order_n; i++) {
        int id = rewrite_next(&s.rewrite, i);
        if (s.recomputed[id]) {
            place_recomputed(&s, id);
            continue;
        }
        const struct node node = graph->nodes.at[id];
        bring_inputs(&s, &node, node.stage);
        rewrite_keep(&s.rewrite, id);
    }
    rewrite_end(&s.rewrite);
    place_updates(&s);
    give_metrics(&s);
    give_outputs(&s);
    graph_sort_phases(graph);
    return order_stages(&s, context);
}
