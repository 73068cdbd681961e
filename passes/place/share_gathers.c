/* Gathers a value once for operators of a phase that read it in different shapes. A linear layer's gradient is the
 * case: the product that gives the gradient of its input reads (batch, positions, features), that of its weight reads
 * the same values as (rows, features). With --sequence-parallel both need all positions, and redistribution inserts a
 * gather for either. Here the second one becomes the reshape of what the first one gathers.
 *
 * Zero-bubble schedules compute the gradient of the weight later. What was gathered would be kept until then, in place
 * of this rank's part of it, so it is gathered again. */
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/training.h"

struct sharing {
    struct graph *graph;
    int *position; /* per node: in the order */
    int *readers;  /* per tensor */
    struct uses uses;
};

/* The reshape whose result the node gathers and nothing else reads; -1: it is no such gather. */
static int gathered_reshape(const struct sharing *s, const struct node *gather) {
    if (gather->op->id != OP_AllGather) return -1;
    const bool reshape = made_by(s->graph, gather->inputs[0], OP_Reshape) && s->readers[gather->inputs[0]] == 1;
    return reshape ? s->graph->tensors.at[gather->inputs[0]].producer : -1;
}

/* True if the reshape leaves the gathered layout when it reads `whole`, which is gathered along the axis. */
static bool gives_layout(const struct graph *graph, const struct node *reshape, int whole, int axis,
                         const struct layout *wanted) {
    struct node after = *reshape;
    struct dims dims;
    after.inputs = &whole;
    after.split[axis] = (struct node_split){.factor = SPLIT_NONE};
    if (dims_bind(graph->arena, graph, &after, &dims, NULL) < 0) return false;
    const struct layout layout = dims_layout_given(graph, &dims, &after, 0);
    return layout_equal(&layout, wanted);
}

/* What an earlier node of the same phase and stage gathers from `tensor` along the axis; -1: there is none. */
static int gathered_before(const struct sharing *s, const struct node *gather, int position, int tensor) {
    const struct graph *graph = s->graph;
    const int64_t axis = attr_int(gather, "mesh", -1);
    for (int u = s->uses.first[tensor]; u < s->uses.first[tensor + 1]; u++) {
        const struct node *other = &graph->nodes.at[s->uses.users[u]];
        if (other->op->id == OP_AllGather && attr_int(other, "mesh", -1) == axis && other->phase == gather->phase &&
            other->stage == gather->stage && s->position[s->uses.users[u]] < position)
            return other->outputs[0];
    }
    return -1;
}

/* If the operand of the node's reshape was gathered before, lets the reshape read that result. Returns the reshape; -1:
 * it was not. */
static int share(const struct sharing *s, int id) {
    struct graph *graph = s->graph;
    const struct node *gather = &graph->nodes.at[id];
    const int reshape = gathered_reshape(s, gather), axis = (int)attr_int(gather, "mesh", -1);
    if (reshape < 0) return -1;
    struct node *node = &graph->nodes.at[reshape];
    const struct layout *wanted = &graph->tensors.at[gather->outputs[0]].layout;
    const int whole = gathered_before(s, gather, s->position[id], node->inputs[0]);
    if (whole < 0 || !gives_layout(graph, node, whole, axis, wanted)) return -1;
    node->inputs[0] = whole;
    node->split[axis] = (struct node_split){.factor = SPLIT_NONE};
    graph->tensors.at[node->outputs[0]].layout = *wanted;
    return reshape;
}

/* Puts the reshapes in the places of the gathers. by: per gather 1 + its reshape, 0: none. moved: per node. */
static void replace_gathers(struct graph *graph, const int *by, const bool *moved) {
    struct rewrite rewrite;
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        const int id = rewrite_next(&rewrite, i), reshape = by[id] - 1;
        if (moved[id]) continue;
        rewrite_keep(&rewrite, reshape < 0 ? id : reshape);
        if (reshape >= 0)
            rewrite_replace(&rewrite, graph->nodes.at[id].outputs[0], graph->nodes.at[reshape].outputs[0]);
    }
    rewrite_end(&rewrite);
}

static void share_gathers(struct graph *graph) {
    struct arena *arena = graph->arena;
    struct sharing s = {.graph = graph, .readers = graph_readers(graph, arena)};
    int *by = ARENA_ARRAY(arena, int, graph->nodes.n + 1);
    bool *moved = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    s.position = graph_positions(graph, arena);
    s.uses = graph_uses(graph, arena);
    for (int i = 0; i < graph->order.n; i++) {
        const int reshape = share(&s, graph->order.at[i]);
        if (reshape < 0) continue;
        by[graph->order.at[i]] = reshape + 1;
        moved[reshape] = true;
    }
    replace_gathers(graph, by, moved);
}

int pass_share_gathers(struct graph *graph, const struct pass_context *context) {
    struct schedule_choice choice = {0};
    const bool staged = context->training && schedule_coordinates(graph) > 1;
    if (staged && schedule_choose(&choice, context->decisions.schedule, context->diags) < 0) return -1;
    if (!staged || !schedule_splits(&choice)) share_gathers(graph);
    return 0;
}
