/* Makes the plan of the ranks' programs: classes, views, stored tensors, then addresses. */

#include "ir/schedule.h"
#include "passes/rank/memplan.h"
#include "passes/rank/views.h"

/* Note [On the operand]
 * The result of an operator that can work in place (op->in_place) lies in its operand's memory, unless the operand
 * is read afterwards, is an output, or is sent to another chunk by a backward segment: the weight segment of the
 * micro-batch does not wait for the end of that send. Its kernel takes operand and result at one address or at two; at
 * two it copies. */

/* Note [Sums in place]
 * The sum of a step's gradients so far is written over the state that has it, which is cleared before the next step. So
 * the reduction of the sums, too, happens in the state's memory. */

/* True for the update of a state to which an elementwise node, or a reduce-scatter onto it, adds a gradient, as the
 * last to read the state. */
static bool sums_in_place(const struct graph *graph, const struct update *update, const int *position,
                          const int *last_read) {
    const struct tensor *state = &graph->tensors.at[update->weight];
    const int producer = graph->tensors.at[update->value].producer;
    if (state->kind != TENSOR_STATE || !state->gradient || producer < 0) return false;
    const struct node *node = &graph->nodes.at[producer];
    const bool adds =
        node->op->kind == OP_ELEMENTWISE || node->op->id == OP_ReduceScatterOnto || node->op->id == OP_AllReduceOnto;
    for (int k = 0; k < node->ninputs && adds; k++)
        if (node->inputs[k] == update->weight) return last_read[update->weight] <= position[producer];
    return false;
}

/* True if a view of the state is read in its memory. */
static bool is_viewed(const struct rankplan *plan, int state) {
    const struct graph *graph = plan->graph;
    GRAPH_EACH(graph, i, const struct node *node)
        if (node_reads(node, state) && plan->view[node->outputs[0]].kind == VIEW_OF_OPERAND) return true;
    return false;
}

/* True if the node that computes a state's new value can change the state in place: it is the last to read the state.
 * The node either appends rows to a cache, which leaves the rows that views show unchanged, or replaces rows of a
 * state that has no views. */
static bool changes_in_place(const struct rankplan *plan, const struct update *update, const int *position,
                             const int *last_read) {
    const struct graph *graph = plan->graph;
    const int producer = graph->tensors.at[update->value].producer;
    const struct node *node = producer < 0 ? NULL : &graph->nodes.at[producer];
    return node && graph->tensors.at[update->weight].kind == TENSOR_STATE && node->op->in_place &&
           node->inputs[0] == update->weight && last_read[update->weight] <= position[producer] &&
           (node->op->id == OP_Append || !is_viewed(plan, update->weight));
}

/* Keeps what the backward phase sends from being overwritten: weight segments do not wait for the ends of sends. */
static void keep_sent(const struct graph *graph, int *last) {
    const bool splits = schedule_last_phase(graph) == PHASE_WEIGHT;
    for (int i = 0; i < graph->order.n && splits; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (node->phase == PHASE_BACKWARD && schedule_posts(graph, node)) last[node->inputs[0]] = graph->order.n;
    }
}

/* Per tensor: the last position of the order at which a node reads it; -1 if nothing reads it; the order's length for
 * outputs, new values of updates, and values that are sent before weight segments. */
static int *last_reads(const struct graph *graph) {
    int *last = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) last[t] = -1;
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) last[node->inputs[k]] = i;
    }
    keep_sent(graph, last);
    for (int i = 0; i < graph->outputs.n; i++) last[graph->outputs.at[i]] = graph->order.n;
    return last;
}

/* Puts the tensor into the memory of `root`, which is then live while either is. */
static void join_root(struct rankplan *plan, int *last_read, int tensor, int root) {
    plan->root[tensor] = root;
    if (last_read[tensor] > last_read[root]) last_read[root] = last_read[tensor];
}

/* Puts the new values of gradient sums, and of caches, into the states' memory. Other new values are read at the
 * end of their phase. */
static void place_sums(struct rankplan *plan, int *last_read) {
    const struct graph *graph = plan->graph;
    const int *position = graph_positions(graph, graph->arena);
    VEC_EACH(&graph->updates, i, const struct update *update) {
        if (sums_in_place(graph, update, position, last_read) || changes_in_place(plan, update, position, last_read))
            join_root(plan, last_read, update->value, update->weight);
        else
            last_read[update->value] = graph->order.n;
    }
}

/* True if another operand lies in the memory of the first. */
static bool reads_twice(const struct rankplan *plan, const struct node *node) {
    for (int k = 1; k < node->ninputs; k++)
        if (node->inputs[k] >= 0 && plan->root[node->inputs[k]] == plan->root[node->inputs[0]]) return true;
    return false;
}

/* True if the node at that position can work in place and is the last to read its operand's memory. The memory of a sum
 * that is a slice has no room for the rest of the tensor. */
static bool works_in_place(const struct rankplan *plan, const int *last_read, int position) {
    const struct graph *graph = plan->graph;
    const struct node *node = &graph->nodes.at[graph->order.at[position]];
    if (!node->op->in_place && !rankplan_moves_slices(graph, node)) return false;
    const int root = plan->root[node->inputs[0]];
    const bool is_sum = graph->tensors.at[root].gradient && root != node->inputs[0] &&
                        !rankplan_is_gathered(graph, root, node->outputs[0]);
    return (graph->tensors.at[root].kind == TENSOR_VALUE || is_sum) && last_read[root] <= position &&
           !reads_twice(plan, node);
}

/* Finds the root of every tensor: for views, the tensor that they lie in. */
static void find_roots(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    int *last_read = last_reads(graph);
    plan->root = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) plan->root[t] = t;
    place_sums(plan, last_read);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs && plan->moves_nothing[graph->order.at[i]]; k++)
            if (plan->view[node->inputs[k]].kind == VIEW_IN_RESULT &&
                plan->view[node->inputs[k]].node == graph->order.at[i])
                join_root(plan, last_read, node->inputs[k], plan->root[node->outputs[0]]);
    }
    GRAPH_EACH(graph, i, const struct node *node) {
        const bool slices = node->op->id == OP_Chunk && rankplan_moves_slices(graph, node);
        if (slices) plan->moves_nothing[graph->order.at[i]] = true;
        if (slices || plan->view[node->outputs[0]].kind == VIEW_OF_OPERAND || works_in_place(plan, last_read, i))
            join_root(plan, last_read, node->outputs[0], plan->root[node->inputs[0]]);
    }
}

static void load_weight(struct rankplan *plan, bool *listed, int tensor) {
    enum tensor_kind kind = plan->graph->tensors.at[tensor].kind;
    if (listed[tensor] || (kind != TENSOR_WEIGHT && kind != TENSOR_CONST)) return;
    listed[tensor] = true;
    VEC_PUSH(plan->graph->arena, &plan->weights, tensor);
}

static void keep_state(struct rankplan *plan, bool *listed, int tensor) {
    const struct tensor *state = &plan->graph->tensors.at[tensor];
    if (listed[tensor] || state->kind != TENSOR_STATE || state->gradient) return;
    listed[tensor] = true;
    VEC_PUSH(plan->graph->arena, &plan->states, tensor);
}

static void list_stored(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    bool *listed = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] < 0 || rankplan_is_literal(graph, node, k)) continue;
            load_weight(plan, listed, node->inputs[k]);
            keep_state(plan, listed, node->inputs[k]);
        }
    }
    for (int i = 0; i < graph->outputs.n; i++) load_weight(plan, listed, graph->outputs.at[i]);
    for (int i = 0; i < graph->updates.n; i++) load_weight(plan, listed, graph->updates.at[i].value);
}

static void find_packed(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    plan->packing = ARENA_ARRAY(graph->arena, enum rt_packing, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++) {
            enum rt_packing packing = node->inputs[k] < 0 ? RT_PLAIN : packing_of(graph, node, k);
            if (packing != RT_PLAIN) plan->packing[node->inputs[k]] = packing;
        }
    }
}

/* Marks the values that peers read or write: operands and results of communication. Inputs and stored tensors keep
 * their own arena. */
static void mark_shared(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    plan->shared = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        if (!op_communicates(node->op) || node->op->ring) continue; /* a ring has memory of its own */
        for (int k = 0; k < node->ninputs; k++) plan->shared[plan->root[node->inputs[k]]] = true;
        plan->shared[plan->root[node->outputs[0]]] = true;
    }
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].kind != TENSOR_VALUE) plan->shared[t] = false;
}

void rankplan_make(struct rankplan *plan, struct graph *graph, const struct plan_kernels *kernels) {
    *plan = (struct rankplan){.graph = graph};
    if (kernels) plan->kernels = *kernels;
    classes_find(plan);
    views_find(plan);
    find_roots(plan);
    list_stored(plan);
    find_packed(plan);
    mark_shared(plan);
    plan->ends = schedule_ends(graph);
    memplan_make(plan);
    graph->level = PLANNED;
}
