/* Makes one node of Fused nodes that follow each other in the order, read the same tensor and do not read each other's
 * results: the tensor is read once. The two gradients of a gated activation, silu(a) * b, are an example: both read a
 * and the gradient of the product.
 *
 * Runs after fuse_epilogue, which takes nodes with one result only. Nodes that do not follow each other stay apart:
 * moving one would keep its operands or its result for longer. */
#include <string.h>

#include "ir/expr/expr.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/elementwise.h"

/* What a node with the work of both would be. The named values and inputs of the second come after the first's. */
struct pair {
    struct graph *graph;
    const struct node *first, *second;
    int ninputs, inputs[EXPR_INPUTS];
    int noutputs, outputs[EXPR_VALUES];
};

static bool same_results(const struct pair *pair) {
    const struct graph *graph = pair->graph;
    const struct tensor *t = &graph->tensors.at[pair->first->outputs[0]];
    for (int k = 0; k < pair->second->noutputs; k++) {
        const struct tensor *other = &graph->tensors.at[pair->second->outputs[k]];
        if (t->dtype != other->dtype || t->joined != other->joined || !layout_equal(&t->layout, &other->layout) ||
            !elementwise_same_shard(t, other))
            return false;
    }
    return true;
}

/* True if both read a tensor that has an element for each of theirs. */
static bool share_operand(const struct pair *pair) {
    const struct tensor *result = &pair->graph->tensors.at[pair->first->outputs[0]];
    EACH_VALUE(pair->second->inputs, pair->second->ninputs, k, const int tensor) {
        if (node_reads(pair->first, tensor) && elementwise_same_shard(&pair->graph->tensors.at[tensor], result))
            return true;
    }
    return false;
}

static bool is_independent(const struct pair *pair) {
    for (int k = 0; k < pair->first->noutputs; k++)
        if (node_reads(pair->second, pair->first->outputs[k])) return false;
    return true;
}

static bool is_alike(const struct pair *pair) {
    const struct node *a = pair->first, *b = pair->second;
    return a->op->id == OP_Fused && b->op->id == OP_Fused && a->stage == b->stage && a->phase == b->phase &&
           elementwise_compute_type(pair->graph, a) == elementwise_compute_type(pair->graph, b) &&
           memcmp(a->split, b->split, sizeof a->split) == 0 && same_results(pair);
}

/* False: too many operands or results. */
static bool join_operands(struct pair *pair) {
    const struct node *a = pair->first, *b = pair->second;
    if (a->noutputs + b->noutputs > EXPR_VALUES) return false;
    for (int k = 0; k < a->ninputs; k++) pair->inputs[pair->ninputs++] = a->inputs[k];
    for (int k = 0; k < b->ninputs; k++) {
        if (node_reads(a, b->inputs[k])) continue;
        if (pair->ninputs == EXPR_INPUTS) return false;
        pair->inputs[pair->ninputs++] = b->inputs[k];
    }
    for (int k = 0; k < a->noutputs; k++) pair->outputs[pair->noutputs++] = a->outputs[k];
    for (int k = 0; k < b->noutputs; k++) pair->outputs[pair->noutputs++] = b->outputs[k];
    return true;
}

static const struct expr_chain *chain_of(const struct pair *pair, const struct node *node) {
    return expr_texts_chain(pair->graph->texts, attr_text(node, "expr", ""), node->ninputs, false);
}

/* From the letters of a node's inputs to those of the pair's. */
static struct expr_renaming renaming_of(const struct pair *pair, const struct node *node) {
    struct arena *arena = pair->graph->arena;
    struct expr_renaming renaming = {.n = 0};
    for (int k = 0; k < node->ninputs; k++) {
        int at = 0;
        while (pair->inputs[at] != node->inputs[k]) at++;
        expr_replace(&renaming, expr_letter(arena, k)->name, expr_letter(arena, at));
    }
    return renaming;
}

/* NULL: too many named values. */
static const char *text_of(const struct pair *pair) {
    struct arena *arena = pair->graph->arena;
    const struct node *node[] = {pair->first, pair->second};
    const struct expr_chain *chain[] = {chain_of(pair, node[0]), chain_of(pair, node[1])};
    struct expr_chain both = {0};
    if (!chain[0] || !chain[1] || chain[0]->nnamed + chain[1]->nnamed > EXPR_NAMED) return NULL;
    for (int i = 0; i < 2; i++) {
        struct expr_renaming renaming = renaming_of(pair, node[i]);
        expr_chain_append(arena, &both, chain[i], &renaming);
        for (int v = 0; v < chain[i]->nvalues; v++)
            both.value[both.nvalues++] = expr_rename(arena, chain[i]->value[v], &renaming);
    }
    return expr_chain_format(arena, &both);
}

/* Adds the node outside of the order, and returns its id; -1: they stay two. */
static int join(struct graph *graph, int first, int second) {
    struct pair pair = {.graph = graph, .first = &graph->nodes.at[first], .second = &graph->nodes.at[second]};
    if (!is_alike(&pair) || !share_operand(&pair) || !is_independent(&pair) || !join_operands(&pair)) return -1;
    const char *text = text_of(&pair);
    if (!text) return -1;
    struct node joined = *pair.first;
    joined.inputs = pair.inputs, joined.ninputs = pair.ninputs;
    joined.outputs = pair.outputs, joined.noutputs = pair.noutputs;
    attr_set(graph, &joined, attr_of_text("expr", text));
    const int made = graph_add_copy(graph, &joined);
    graph->order.n--; /* it takes their place */
    return made;
}

/* The operators of which node `from` was made, itself if of one, are now members of node `to`. */
static void move_members(struct graph *graph, int from, int to) {
    int moved = 0;
    for (int i = 0; i < graph->members.n; i++)
        if (graph->members.at[i].node == from) graph->members.at[i].node = to, moved++;
    if (!moved) VEC_PUSH(graph->arena, &graph->members, (struct member){to, graph->nodes.at[from].name});
}

int pass_fuse_siblings(struct graph *graph, const struct pass_context *context) {
    (void)context;
    int live = 0;
    for (int i = 0; i < graph->order.n; i++) {
        const int second = graph->order.at[i], first = live ? graph->order.at[live - 1] : -1;
        const int made = first < 0 ? -1 : join(graph, first, second);
        if (made >= 0) {
            move_members(graph, first, made);
            move_members(graph, second, made);
            graph->order.at[live - 1] = made;
        } else {
            graph->order.at[live++] = second;
        }
    }
    graph->order.n = live;
    return 0;
}
