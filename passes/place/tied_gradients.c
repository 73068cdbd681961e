/* Sums gradients of tied weights on each pipeline stage over the micro-batches of a step (--tied-gradients step).
 *
 * Note [Tied gradients]
 * A parameter that several pipeline stages read, such as tied embeddings, has a contribution to its gradient on each.
 * By default a later stage sends its contribution for every micro-batch to the earlier one, which adds both and
 * accumulates the sum: additions then have the order, and the result the bits, of one rank. The message has the size of
 * the weight, however small the micro-batch is; between nodes it may take longer than computing the micro-batch.
 *
 * This pass gives each stage an accumulator of its own contributions. These are added in phase reduce, so that a step
 * sends one message, as Megatron-LM does (Narayanan et al., "Efficient Large-Scale Language Model Training on
 * GPU Clusters Using Megatron-LM", 2021: the all-reduce of embeddings). Sums are rounded in another order. */

#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/training.h"

/* What a stage contributes to a gradient: the sum of its contributions in a micro-batch. */
struct part {
    int stage, sum;
};

struct tied {
    struct graph *graph;
    struct rewrite rewrite;
    const int *readers;      /* graph_readers */
    bool *gone;              /* per node: a sum of contributions of several stages, that accumulators replace */
    VEC(struct update) sums; /* the accumulators of parts, and their values */
    VEC(struct part) parts;  /* of the gradient that is being divided, by stage */
};

/* The node that computes the tensor in the backward phase; NULL: none does. */
static const struct node *backward_node(const struct graph *graph, int tensor) {
    const struct node *node = graph_producer(graph, tensor);
    return node && node->phase == PHASE_BACKWARD ? node : NULL;
}

/* The node that computes the tensor as a sum of two contributions to a gradient; NULL: it is a contribution itself. */
static const struct node *sum_of(const struct graph *graph, int tensor) {
    const struct node *node = backward_node(graph, tensor);
    const struct tensor *all = graph->tensors.at;
    if (!node || node->op->id != OP_Add) return NULL;
    for (int k = 0; k < 2; k++)
        if (!backward_node(graph, node->inputs[k]) || !tensor_same_type(&all[tensor], &all[node->inputs[k]]))
            return NULL;
    return node;
}

/* True if a contribution comes from another coordinate of the pipeline axis. */
static bool has_remote(const struct graph *graph, int tensor, int coordinate) {
    const struct node *sum = sum_of(graph, tensor), *node = backward_node(graph, tensor);
    if (sum) return has_remote(graph, sum->inputs[0], coordinate) || has_remote(graph, sum->inputs[1], coordinate);
    return node && schedule_home(graph, node->stage) != coordinate;
}

/* True if every contribution can be accumulated by itself, since nothing else reads it, and the stage has one. */
static bool is_divisible(const struct tied *t, int tensor, int stage, bool *own) {
    const struct node *sum = sum_of(t->graph, tensor), *node = backward_node(t->graph, tensor);
    if (!node || t->readers[tensor] != 1) return false;
    if (sum) return is_divisible(t, sum->inputs[0], stage, own) && is_divisible(t, sum->inputs[1], stage, own);
    *own = *own || node->stage == stage;
    return true;
}

/* True for a node that accumulates contributions of several coordinates. */
static bool accumulates_tied(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_Accumulate && node->phase == PHASE_BACKWARD &&
           has_remote(graph, node->inputs[1], schedule_home(graph, node->stage));
}

static void mark_sums(const struct tied *t, int tensor) {
    const struct node *sum = sum_of(t->graph, tensor);
    if (!sum) return;
    t->gone[t->graph->tensors.at[tensor].producer] = true;
    for (int k = 0; k < 2; k++) mark_sums(t, sum->inputs[k]);
}

/* Removes the node's splits along axes that its stage lacks. */
static void drop_lacking(const struct graph *graph, struct node *node) {
    for (int axis = 0; axis < graph->mesh.naxes; axis++)
        if (!mesh_has(&graph->mesh, axis, schedule_home(graph, node->stage)))
            node->split[axis] = (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
}

/* Adds a tensor like another, for a stage. */
static int add_like(struct graph *graph, enum tensor_kind kind, int like, const char *what, int stage) {
    const struct tensor of = graph->tensors.at[like];
    const char *name = arena_printf(graph->arena, "%s.%s%d", of.name, what, stage);
    const int added = graph_add_tensor(graph, kind, name, of.dtype, of.ndim, of.dims);
    graph->tensors.at[added].gradient = of.gradient;
    return added;
}

/* Adds a node `a` + `b` for the part, with the splits of node `like`. Returns the sum. */
static int add_sum(struct graph *graph, const struct node *like, enum phase phase, const struct part *part, int a,
                   int b) {
    const bool totals = phase == PHASE_REDUCE;
    struct node node = *like;
    int sum = add_like(graph, TENSOR_VALUE, like->outputs[0], totals ? "total" : "part", part->stage);
    node.op = &ops[OP_Add], node.ninputs = 2, node.inputs = (int[]){a, b};
    node.outputs = &sum;
    node.phase = phase;
    node.stage = totals ? schedule_first(graph, schedule_home(graph, part->stage)) : part->stage;
    drop_lacking(graph, &node);
    graph_add_copy(graph, &node);
    return sum;
}

/* Adds the contribution `tensor`, or those whose sum it is, to the parts of their stages. */
static void take_parts(struct tied *t, const struct node *accumulate, int tensor) {
    const struct node *sum = sum_of(t->graph, tensor);
    if (sum) {
        const int operands[] = {sum->inputs[0], sum->inputs[1]};
        for (int k = 0; k < 2; k++) take_parts(t, accumulate, operands[k]);
        return;
    }
    const int stage = backward_node(t->graph, tensor)->stage;
    int at = 0;
    while (at < t->parts.n && t->parts.at[at].stage < stage) at++;
    if (at < t->parts.n && t->parts.at[at].stage == stage) {
        struct part *part = &t->parts.at[at];
        part->sum = add_sum(t->graph, accumulate, PHASE_BACKWARD, part, part->sum, tensor);
        return;
    }
    VEC_PUSH(t->graph->arena, &t->parts, ((struct part){stage, tensor}));
    for (int i = t->parts.n - 1; i > at; i--) t->parts.at[i] = t->parts.at[i - 1];
    t->parts.at[at] = (struct part){stage, tensor};
}

/* Adds an accumulator of the part like node `accumulate`, on the part's stage. Returns its value. */
static int add_accumulator(struct tied *t, const struct node *accumulate, const struct part *part) {
    struct graph *graph = t->graph;
    struct node node = *accumulate;
    node.stage = part->stage;
    const int state = add_like(graph, TENSOR_STATE, node.inputs[0], "stage", part->stage);
    int sum = add_like(graph, TENSOR_VALUE, node.outputs[0], "stage", part->stage);
    node.inputs = (int[]){state, part->sum, node.inputs[2]};
    node.outputs = &sum;
    drop_lacking(graph, &node);
    VEC_PUSH(graph->arena, &t->sums, ((struct update){state, sum}));
    graph_add_copy(graph, &node);
    return sum;
}

/* Divides what the node accumulates into the parts of its own and of other stages. Returns the sum of all at the
 * end of a step, which each stage adds its part to, from the last to the first. */
static int divide_sum(struct tied *t, int id) {
    struct graph *graph = t->graph;
    const struct node accumulate = graph->nodes.at[id];
    const enum joined joined = graph->tensors.at[accumulate.inputs[1]].joined;
    int total = -1;
    t->parts.n = 0;
    take_parts(t, &accumulate, accumulate.inputs[1]);
    for (int i = t->parts.n - 1; i >= 0; i--) {
        const struct part *part = &t->parts.at[i];
        const bool own = part->stage == accumulate.stage;
        graph->tensors.at[part->sum].joined = joined;
        if (own) graph->nodes.at[id].inputs[1] = part->sum;
        if (own) rewrite_keep(&t->rewrite, id);
        const int sum = own ? accumulate.outputs[0] : add_accumulator(t, &accumulate, part);
        total = total < 0 ? sum : add_sum(graph, &accumulate, PHASE_REDUCE, part, sum, total);
    }
    VEC_PUSH(graph->arena, &t->sums, ((struct update){accumulate.inputs[0], accumulate.outputs[0]}));
    return total;
}

/* Replaces in later phases the value of each accumulator that is divided by the sum of all parts. `divided`, per node:
 * it is one. */
static void divide_sums(struct tied *t, const bool *divided) {
    rewrite_begin(&t->rewrite, t->graph);
    for (int i = 0; i < t->rewrite.order_n; i++) {
        const int id = rewrite_next(&t->rewrite, i);
        if (t->gone[id]) continue;
        if (divided[id])
            rewrite_replace(&t->rewrite, t->graph->nodes.at[id].outputs[0], divide_sum(t, id));
        else
            rewrite_keep(&t->rewrite, id);
    }
    rewrite_end(&t->rewrite);
}

/* Accumulators keep their own sums, not the totals. */
static void store_sums(const struct tied *t) {
    struct graph *graph = t->graph;
    for (int i = 0; i < t->sums.n; i++) {
        bool known = false;
        for (int u = 0; u < graph->updates.n; u++)
            if (graph->updates.at[u].weight == t->sums.at[i].weight) graph->updates.at[u] = t->sums.at[i], known = true;
        if (!known) VEC_PUSH(graph->arena, &graph->updates, t->sums.at[i]);
    }
}

int pass_tied_gradients(struct graph *graph, const struct pass_context *context) {
    struct tied t = {.graph = graph};
    if (!context->training || !context->training->tied_once || schedule_coordinates(graph) == 1) return 0;
    t.readers = graph_readers(graph, graph->arena);
    t.gone = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    bool *divided = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1), any = false;
    GRAPH_EACH_ID(graph, id, const struct node *node) {
        bool own = false;
        if (!accumulates_tied(graph, node)) continue;
        divided[id] = is_divisible(&t, node->inputs[1], node->stage, &own) && own;
        any = any || divided[id];
        if (divided[id])
            mark_sums(&t, node->inputs[1]);
        else
            diag_remark(context->diags, node_place(graph, id),
                        "pipeline stages send their parts of this gradient for each micro-batch, since other nodes "
                        "read them too");
    }
    if (!any) return 0;
    divide_sums(&t, divided);
    store_sums(&t);
    graph_sort_phases(graph);
    return 0;
}
