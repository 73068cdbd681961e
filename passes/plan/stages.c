#include "passes/plan/stages.h"

#include <string.h>

#include "ir/dims.h"

/* The most that a node may cost, with all of its elements, to be recomputed in each stage that reads it. */
enum { CHEAP_FLOPS = 1 << 22, CHEAP_BYTES = 1 << 20 };

/* True if every stage has the operand, or can load or recompute it cheaply. */
static bool is_everywhere(const struct graph *graph, const bool *recomputed, int tensor) {
    if (tensor < 0) return true;
    const struct tensor *t = &graph->tensors.at[tensor];
    if (t->kind == TENSOR_VALUE) return recomputed[t->producer];
    return t->kind == TENSOR_INPUT || tensor_bytes(t) <= CHEAP_BYTES;
}

/* True for cheap operators that neither sum (products, norms, reductions) nor communicate. */
static bool is_cheap(const struct graph *graph, const struct node *node) {
    struct dims dims;
    const char *why;
    if (op_communicates(node->op) || dims_bind(graph->arena, graph, node, &dims, &why) < 0) return false;
    if (dims_flops(&dims, node->op->flops) > CHEAP_FLOPS) return false;
    for (int f = 0; f < dims.nfactors; f++)
        if (dims.factor[f].kind != FACTOR_PASS && dims.factor[f].kind != FACTOR_WHOLE) return false;
    for (int k = 0; k < node->noutputs; k++)
        if (tensor_bytes(&graph->tensors.at[node->outputs[k]]) > CHEAP_BYTES) return false;
    return true;
}

bool *stage_recomputed(const struct graph *graph) {
    bool *recomputed = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        const struct node *node = &graph->nodes.at[id];
        bool all = is_cheap(graph, node);
        for (int k = 0; k < node->ninputs && all; k++) all = is_everywhere(graph, recomputed, node->inputs[k]);
        recomputed[id] = all;
    }
    return recomputed;
}
