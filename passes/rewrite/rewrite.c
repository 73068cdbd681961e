#include "passes/rewrite/rewrite.h"

#include "ir/op.h"
#include "passes/pipeline.h"

static void cover(struct rewrite *rewrite, int tensors) {
    if (tensors <= rewrite->capacity) return;
    int capacity = tensors * 2;
    int *become = ARENA_ARRAY(rewrite->graph->arena, int, capacity);
    for (int t = 0; t < capacity; t++) become[t] = t < rewrite->capacity ? rewrite->become[t] : t;
    rewrite->become = become;
    rewrite->capacity = capacity;
}

void rewrite_begin(struct rewrite *rewrite, struct graph *graph) {
    *rewrite = (struct rewrite){.graph = graph};
    rewrite->order = graph_take_order(graph, &rewrite->order_n);
    cover(rewrite, graph->tensors.n + 1);
}

/* The replacement of the tensor; itself if it was not replaced. */
static int replacement(const struct rewrite *rewrite, int tensor) {
    return tensor >= 0 && tensor < rewrite->capacity ? rewrite->become[tensor] : tensor;
}

int rewrite_next(struct rewrite *rewrite, int i) {
    struct node *node = &rewrite->graph->nodes.at[rewrite->order[i]];
    for (int k = 0; k < node->ninputs; k++) node->inputs[k] = replacement(rewrite, node->inputs[k]);
    return rewrite->order[i];
}

void rewrite_keep(struct rewrite *rewrite, int node) {
    VEC_PUSH(rewrite->graph->arena, &rewrite->graph->order, node);
}

void rewrite_replace(struct rewrite *rewrite, int tensor, int by) {
    cover(rewrite, rewrite->graph->tensors.n);
    rewrite->become[tensor] = by;
    struct tensor *tensors = rewrite->graph->tensors.at;
    if (!tensors[tensor].joined) return;
    tensors[by].joined = tensors[tensor].joined;
    tensors[tensor].joined = JOINED_NOT;
}

void rewrite_end(struct rewrite *rewrite) {
    struct graph *graph = rewrite->graph;
    for (int i = 0; i < graph->outputs.n; i++) graph->outputs.at[i] = replacement(rewrite, graph->outputs.at[i]);
    for (int i = 0; i < graph->updates.n; i++)
        graph->updates.at[i].value = replacement(rewrite, graph->updates.at[i].value);
    for (int i = 0; i < graph->parameters.n; i++)
        graph->parameters.at[i].gradient = replacement(rewrite, graph->parameters.at[i].gradient);
}

int rewrite_each(struct graph *graph, int (*become)(void *env, int node), void *env) {
    struct rewrite rewrite;
    rewrite_begin(&rewrite, graph);
    for (int i = 0; i < rewrite.order_n; i++) {
        const int id = rewrite_next(&rewrite, i), result = become(env, id);
        if (result == -1) return -1;
        if (result == REWRITE_KEPT)
            rewrite_keep(&rewrite, id);
        else
            rewrite_replace(&rewrite, graph->nodes.at[id].outputs[0], result);
    }
    rewrite_end(&rewrite);
    return 0;
}

bool rewrite_takes_halves(const struct pass_context *context, const struct op *op) {
    return context->kernels && context->kernels[op->id].halves;
}
