/* What a run of smaller sizes touches of the memory that is planned for the largest (ir/open.h). */
#include <stdlib.h>
#include <string.h>

#include "passes/rank/memplan.h"

struct run {
    int64_t begin, end;
};
struct runs {
    VEC(struct run) all;
};

static int by_begin(const void *left, const void *right) {
    const struct run *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Bytes that lie in at least one of the runs. */
static int64_t bytes_of(struct runs *runs) {
    int64_t bytes = 0, end = 0;
    if (runs->all.n) qsort(runs->all.at, (size_t)runs->all.n, sizeof *runs->all.at, by_begin);
    VEC_EACH(&runs->all, i, const struct run *run) {
        if (run->end <= end) continue;
        bytes += run->end - (run->begin > end ? run->begin : end);
        end = run->end;
    }
    return bytes;
}

/* Adds the memory of a root, in each of its slots. */
static void add_root(struct runs *runs, const struct rankplan *plan, const struct rank_class *class, int root) {
    const struct plan_place *place = &class->place[root];
    const int64_t bytes = rankplan_memory(plan, class, root);
    const int slots = place->stride ? class->schedule->shape.slots[place->set] : 1;
    for (int slot = 0; slot < slots; slot++) {
        const int64_t begin = place->offset + slot * place->stride;
        VEC_PUSH(plan->graph->arena, &runs->all, ((struct run){begin, begin + bytes}));
    }
}

static int64_t most_scratch(const struct rankplan *plan, const struct rank_class *class) {
    int64_t most = 0;
    GRAPH_EACH(plan->graph, i, const struct node *node) {
        const int64_t bytes = rankplan_part(class, node) ? memplan_scratch(plan, class, class, node) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The node that adds rows to the state; NULL: steps replace it. */
static const struct node *append_of(const struct graph *graph, int state) {
    for (int u = 0; u < graph->updates.n; u++)
        if (graph->updates.at[u].weight == state) return made_by(graph, graph->updates.at[u].value, OP_Append);
    return NULL;
}

/* Bytes of the states that hold rows after the step. */
static int64_t state_bytes(const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    int64_t bytes = 0;
    for (int t = 0; t < graph->tensors.n; t++) {
        if (graph->tensors.at[t].kind != TENSOR_STATE || class->place[t].arena != RT_STATE ||
            class->place[t].offset < 0)
            continue;
        const struct node *append = append_of(graph, t);
        const int64_t axis = append ? attr_int(append, "axis", 0) : 0, all = append ? class->dims[t][axis] : 1;
        const int64_t rows = append ? attr_int(append, "at", 0) + class->dims[append->inputs[1]][axis] : 1;
        bytes += rankplan_bytes(class, graph, t) / (all ? all : 1) * rows;
    }
    return bytes;
}

static bool is_one_of(const enum op_id *ids, const struct node *node) {
    while (*ids != OP_NONE && *ids != node->op->id) ids++;
    return *ids != OP_NONE;
}

static const enum op_id moves[] = {OP_Slice, OP_Transpose, OP_Concat, OP_Expand, OP_Gather, OP_Cast, OP_Pad, OP_NONE};
static const enum op_id writers[] = {OP_Append, OP_ScatterElements, OP_ScatterND, OP_NONE};

/* True if a step writes rows into the state, which is then a cache, rather than replace all of it. */
static bool is_cache(const struct rankplan *plan, int state) {
    const struct graph *graph = plan->graph;
    for (int u = 0; u < graph->updates.n; u++) {
        if (graph->updates.at[u].weight != state) continue;
        const int producer = graph->tensors.at[graph->updates.at[u].value].producer;
        const struct node *node = producer < 0 ? NULL : &graph->nodes.at[producer];
        return node && is_one_of(writers, node) && plan->root[node->inputs[0]] == state;
    }
    return false;
}

void rankplan_state(const struct rankplan *planned, int c, int64_t *copied, int64_t *replaced) {
    const struct rankplan *plan = rankplan_typical(planned, planned->graph->arena);
    const struct graph *graph = plan->graph;
    const struct rank_class *class = &plan->classes[c];
    *copied = *replaced = 0;
    for (int u = 0; u < graph->updates.n; u++) {
        const int state = graph->updates.at[u].weight;
        if (graph->tensors.at[state].kind == TENSOR_STATE && class->place[state].offset >= 0 && !is_cache(plan, state))
            *replaced += rankplan_bytes(class, graph, state);
    }
    GRAPH_EACH(graph, i, const struct node *node) {
        const int root = node->ninputs && node->inputs[0] >= 0 ? plan->root[node->inputs[0]] : -1;
        if (root < 0 || graph->tensors.at[root].kind != TENSOR_STATE || !rankplan_part(class, node)) continue;
        const bool written = is_one_of(writers, node) && plan->root[node->outputs[0]] != root;
        const bool moved = is_one_of(moves, node) && !plan->moves_nothing[graph->order.at[i]];
        if (written || (moved && is_cache(plan, root))) *copied += rankplan_bytes(class, graph, node->outputs[0]);
    }
}

void rankplan_touched(const struct rankplan *planned, int c, const int64_t *sizes, int64_t bytes[RT_ARENAS]) {
    const struct rankplan *plan = rankplan_at(planned, sizes, planned->graph->arena);
    const struct rank_class *class = &plan->classes[c];
    struct runs runs[RT_ARENAS] = {0};
    EACH(class->place, plan->graph->tensors.n, t, const struct plan_place *place) {
        if (plan->root[t] == t && place->offset >= 0 &&
            (place->arena == RT_ACTIVATIONS || place->arena == RT_COMMUNICATION))
            add_root(&runs[place->arena], plan, class, t);
    }
    memcpy(bytes, class->bytes, sizeof class->bytes);
    for (int arena = 0; arena < RT_ARENAS; arena++)
        if (arena == RT_ACTIVATIONS || arena == RT_COMMUNICATION) bytes[arena] = bytes_of(&runs[arena]);
    bytes[RT_STATE] = state_bytes(plan, class);
    bytes[RT_SCRATCH] = most_scratch(plan, class);
}
