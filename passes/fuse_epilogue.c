/* Takes an elementwise node into the packed product that it follows: what it does to the result is done block by block,
 * while the block is in the cache. The product gets the node's other operands as inputs, its expression as attribute
 * expr, and in attribute `result` the place, among the letters of the expression, of the product itself. */
#include <string.h>

#include "ir/op.h"
#include "passes/pipeline.h"

struct joiner {
    struct graph *graph;
    struct uses uses;
    bool *kept; /* per tensor: an output */
};

static bool same_part(const struct tensor *a, const struct tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim && layout_equal(&a->layout, &b->layout) &&
           memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0;
}

/* The packed product that makes the tensor and may be joined by `node`, its only reader; else -1. */
static int product_before(const struct joiner *j, const struct node *node, int tensor) {
    const struct tensor *t = &j->graph->tensors.at[tensor];
    if (t->producer < 0 || j->kept[tensor] || j->uses.first[tensor + 1] - j->uses.first[tensor] != 1) return -1;
    const struct node *product = &j->graph->nodes.at[t->producer];
    bool plain =
        strcmp(product->op->name, "MatMul") == 0 && attr_int(product, "packed", 0) && product->ninputs == 2;
    bool whole = plain && product->stage == node->stage && product->phase == node->phase &&
                 same_part(t, &j->graph->tensors.at[node->outputs[0]]);
    for (int a = 0; a < MAX_AXES; a++) whole = whole && product->split[a].factor != SPLIT_PARTIAL;
    return whole ? t->producer : -1;
}

/* Makes the node's operand `result` and the node one; the new node, or -1 where dims_matmul refuses an operand. */
static int join(struct joiner *j, int id, int result, int product) {
    struct graph *graph = j->graph;
    const struct node node = graph->nodes.at[id], from = graph->nodes.at[product];
    int *inputs = ARENA_ARRAY(graph->arena, int, node.ninputs + 1), n = 0;
    inputs[n++] = from.inputs[0];
    inputs[n++] = from.inputs[1];
    for (int k = 0; k < node.ninputs; k++)
        if (k != result) inputs[n++] = node.inputs[k];
    struct node joined = from;
    struct dims dims;
    const char *why;
    joined.inputs = inputs, joined.ninputs = n, joined.outputs = node.outputs;
    attr_set(graph, &joined, attr_of_text("expr", attr_text(&node, "expr", "")));
    attr_set(graph, &joined, attr_of_int("result", result));
    if (dims_bind(graph->arena, graph, &joined, &dims, &why) < 0) return -1;
    int made = graph_add_node(graph, from.op, from.name, n, inputs, 1, node.outputs, joined.nattrs, joined.attrs);
    memcpy(graph->nodes.at[made].split, from.split, sizeof from.split);
    graph->nodes.at[made].stage = from.stage;
    graph->nodes.at[made].phase = from.phase;
    graph->order.n--; /* it takes the node's place */
    return made;
}

int pass_fuse_epilogue(struct graph *graph, const struct pass_context *context) {
    struct joiner j = {.graph = graph};
    bool *gone = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    int live = 0, before = graph->nodes.n;
    (void)context;
    graph_uses(graph, graph->arena, &j.uses);
    j.kept = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->outputs.n; i++) j.kept[graph->outputs.at[i]] = true;
    for (int i = 0; i < graph->updates.n; i++) j.kept[graph->updates.at[i].value] = true;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i], made = -1;
        for (int k = 0; k < graph->nodes.at[id].ninputs && made < 0; k++) {
            const struct node *node = &graph->nodes.at[id];
            int product = strcmp(node->op->name, "Fused") == 0 ? product_before(&j, node, node->inputs[k]) : -1;
            if (product < 0) continue;
            made = join(&j, id, k, product);
            if (made >= 0) gone[product] = true;
        }
        if (made >= 0) graph->order.at[i] = made;
    }
    for (int i = 0; i < graph->order.n; i++)
        if (graph->order.at[i] >= before || !gone[graph->order.at[i]]) graph->order.at[live++] = graph->order.at[i];
    graph->order.n = live;
    return 0;
}
