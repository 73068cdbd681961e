/* Sums gradients of tied weights on each pipeline stage over the micro-batches of a step (--tied-gradients step).
 *
 * Note [Tied gradients]
 * A parameter that several pipeline stages read, such as tied embeddings, has a contribution to its gradient on each.
 * By default a later stage sends its contribution for every micro-batch to the earlier one, which adds both and
 * accumulates the sum: additions then have the order, and the result the bits, of one rank. The message has the size of
 * the weight, however small the micro-batch is; between nodes it may take longer than computing the micro-batch.
 *
 * This pass gives each stage an accumulator of its own contribution. They are added in phase reduce, so that a step
 * sends one message, as Megatron-LM does (Narayanan et al., "Efficient Large-Scale Language Model Training on
 * GPU Clusters Using Megatron-LM", 2021: the all-reduce of embeddings). Sums are rounded in another order. */
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/training.h"

struct tied {
    struct graph *graph;
    struct rewrite rewrite;
    const int *readers;      /* graph_readers */
    bool *gone;              /* per node: a sum of contributions that accumulators replace */
    int divided;             /* the accumulator that is being divided */
    VEC(struct update) sums; /* the accumulators of contributions, and their values */
};

/* The pipeline coordinate that computes the tensor in the backward phase; -1: none does. */
static int home_of(const struct graph *graph, int tensor) {
    const int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    if (producer < 0 || graph->nodes.at[producer].phase != PHASE_BACKWARD) return -1;
    return schedule_home(graph, graph->nodes.at[producer].stage);
}

static bool same_type(const struct graph *graph, int a, int b) {
    const struct tensor *x = &graph->tensors.at[a], *y = &graph->tensors.at[b];
    bool same = x->dtype == y->dtype && x->ndim == y->ndim;
    for (int d = 0; d < x->ndim && same; d++) same = x->dims[d] == y->dims[d];
    return same;
}

/* True if the operand can be accumulated by itself: it is computed in the backward phase, has the type of the sum, and
 * nothing else reads it. */
static bool is_contribution(const struct tied *t, int sum, int operand) {
    return home_of(t->graph, operand) >= 0 && t->readers[operand] == 1 && same_type(t->graph, sum, operand);
}

/* If `gradient` is the sum of a contribution of its own coordinate and one of another: the number of the operand that
 * is the other's. Else -1. */
static int remote_operand(const struct tied *t, int gradient) {
    const struct graph *graph = t->graph;
    const int home = home_of(graph, gradient);
    if (home < 0 || t->readers[gradient] != 1) return -1;
    const struct node *sum = &graph->nodes.at[graph->tensors.at[gradient].producer];
    if (sum->op->id != OP_Add || !is_contribution(t, gradient, sum->inputs[0]) ||
        !is_contribution(t, gradient, sum->inputs[1]))
        return -1;
    const bool own[] = {home_of(graph, sum->inputs[0]) == home, home_of(graph, sum->inputs[1]) == home};
    return own[0] == own[1] ? -1 : own[0];
}

/* Marks the sums that divide_sum replaces, of the contributions that make up `gradient`. */
static void mark_sums(const struct tied *t, int gradient) {
    if (remote_operand(t, gradient) < 0) return;
    const int sum = t->graph->tensors.at[gradient].producer;
    t->gone[sum] = true;
    for (int k = 0; k < 2; k++) mark_sums(t, t->graph->nodes.at[sum].inputs[k]);
}

/* A tensor like one of the accumulator that is being divided, for a stage. */
static int add_like(const struct tied *t, enum tensor_kind kind, int like, const char *what, int stage) {
    const struct tensor of = t->graph->tensors.at[like];
    const char *name = arena_printf(t->graph->arena, "%s.%s%d", of.name, what, stage);
    const int added = graph_add_tensor(t->graph, kind, name, of.dtype, of.ndim, of.dims);
    t->graph->tensors.at[added].gradient = of.gradient;
    return added;
}

/* Splits along axes that the stage lacks are none there. */
static void drop_lacking(struct graph *graph, struct node *node) {
    for (int axis = 0; axis < graph->mesh.naxes; axis++)
        if (!mesh_has(&graph->mesh, axis, schedule_home(graph, node->stage)))
            node->split[axis] = (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
}

/* Adds an accumulator of `gradient` on its stage. Returns the node. */
static int add_accumulator(struct tied *t, int gradient) {
    struct graph *graph = t->graph;
    struct node node = graph->nodes.at[t->divided];
    node.stage = graph->nodes.at[graph->tensors.at[gradient].producer].stage;
    const int state = add_like(t, TENSOR_STATE, node.inputs[0], "stage", node.stage);
    int sum = add_like(t, TENSOR_VALUE, node.outputs[0], "stage", node.stage);
    node.inputs = (int[]){state, gradient, node.inputs[2]};
    node.outputs = &sum;
    drop_lacking(graph, &node);
    VEC_PUSH(graph->arena, &t->sums, ((struct update){state, sum}));
    return graph_add_copy(graph, &node);
}

/* Adds to `own`, what the accumulator `id` holds at the end of a step, in phase reduce, the sum `other` of later
 * coordinates. */
static int add_total(struct tied *t, int id, int own, int other) {
    struct graph *graph = t->graph;
    struct node node = graph->nodes.at[id];
    int total = add_like(t, TENSOR_VALUE, graph->nodes.at[t->divided].outputs[0], "total", node.stage);
    node.op = &ops[OP_Add], node.ninputs = 2;
    node.inputs = (int[]){own, other};
    node.outputs = &total;
    node.phase = PHASE_REDUCE;
    node.stage = schedule_first(graph, schedule_home(graph, node.stage));
    graph_add_copy(graph, &node);
    return total;
}

/* Divides what the accumulator `id` adds into the contributions of its own and of later coordinates. Returns the
 * tensor that has the sum of all at the end of a step. */
static int divide_sum(struct tied *t, int id) {
    struct graph *graph = t->graph;
    const int gradient = graph->nodes.at[id].inputs[1], k = remote_operand(t, gradient);
    if (k < 0) return graph->nodes.at[id].outputs[0];
    const int *operands = graph->nodes.at[graph->tensors.at[gradient].producer].inputs;
    const int local = operands[!k], remote = operands[k];
    graph->tensors.at[local].joined = graph->tensors.at[remote].joined = graph->tensors.at[gradient].joined;
    graph->nodes.at[id].inputs[1] = local;
    const int other = add_accumulator(t, remote);
    const int own = divide_sum(t, id);
    return add_total(t, id, own, divide_sum(t, other));
}

static bool accumulates(const struct node *node) {
    return node->op->id == OP_Accumulate && node->phase == PHASE_BACKWARD;
}

/* Replaces in later phases the value of each accumulator that was divided by the sum of all contributions. */
static void divide_sums(struct tied *t) {
    struct graph *graph = t->graph;
    rewrite_begin(&t->rewrite, graph);
    for (int i = 0; i < t->rewrite.order_n; i++) {
        const int id = rewrite_next(&t->rewrite, i);
        if (t->gone[id]) continue;
        rewrite_keep(&t->rewrite, id);
        if (!accumulates(&graph->nodes.at[id])) continue;
        t->divided = id;
        const int sum = graph->nodes.at[id].outputs[0], total = divide_sum(t, id);
        if (total == sum) continue;
        VEC_PUSH(graph->arena, &t->sums, ((struct update){graph->nodes.at[id].inputs[0], sum}));
        rewrite_replace(&t->rewrite, sum, total);
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
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (accumulates(node)) mark_sums(&t, node->inputs[1]);
    }
    divide_sums(&t);
    store_sums(&t);
    graph_sort_phases(graph);
    return 0;
}
