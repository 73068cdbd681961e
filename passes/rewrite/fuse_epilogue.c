/* Makes an elementwise node the epilogue of the matrix product whose result it reads: the kernel applies it to each
 * block of the result while the block is in the cache. The product gets the node's other operands as further inputs,
 * its expression as attribute expr, and as attribute `result` which operand of the expression is the product itself.
 *
 * Packed products take any expression. Other products are calls of a library and take the forms that it has
 * (ir/expr/epilogue.h); an elementwise node of another form stays as it is.
 *
 * Note [Kept sums]
 * In training the backward phase reads the input of an activation, so the sum of product and bias has readers beside
 * the activation. The activation is fused all the same, and the product writes the sum as its second result. */

#include "ir/dims.h"
#include "ir/expr/epilogue.h"
#include "ir/expr/expr.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/epilogues.h"

struct joiner {
    struct graph *graph;
    const struct pass_context *context;
    const int *readers; /* graph_readers */
    bool *gone;         /* per node, with room for those that are added: fused into another */
};

/* Adds the node, outside of the order, and returns its id; -1 if no kernel takes its epilogue. */
static int add_joined(struct joiner *j, const struct node *joined) {
    struct graph *graph = j->graph;
    struct dims dims;
    struct epilogue epilogue;
    if (dims_bind(graph->arena, graph, joined, &dims, NULL) < 0) return -1;
    if (!attr_int(joined, "packed", 0) && !op_multiplies_integers(joined->op) &&
        !epilogue_read(graph->arena, graph, joined, &epilogue))
        return -1;
    int made = graph_add_copy(graph, joined);
    graph->order.n--; /* the caller puts it into the order */
    return made;
}

/* Fuses node `id` into the product that computes its operand number `result`. Returns the new node, or -1. */
static int join(struct joiner *j, int id, int result, const struct node *product) {
    struct graph *graph = j->graph;
    const struct node node = graph->nodes.at[id], from = *product;
    const int first = op_epilogue_first(product);
    int *inputs = ARENA_ARRAY(graph->arena, int, node.ninputs + first), n = 0;
    for (; n < first; n++) inputs[n] = n < from.ninputs ? from.inputs[n] : -1;
    for (int k = 0; k < node.ninputs; k++)
        if (k != result) inputs[n++] = node.inputs[k];
    struct node joined = from;
    joined.inputs = inputs, joined.ninputs = n, joined.outputs = node.outputs;
    attr_set(graph, &joined, attr_of_text("expr", attr_text(&node, "expr", "")));
    attr_set(graph, &joined, attr_of_int("result", result));
    if (op_multiplies_integers(joined.op))
        attr_set(graph, &joined, attr_of_text("to", rt_dtypes[graph->tensors.at[node.outputs[0]].dtype].name));
    return add_joined(j, &joined);
}

static int join_sole(struct joiner *j, int id) {
    for (int k = 0; k < j->graph->nodes.at[id].ninputs; k++) {
        const struct node *node = &j->graph->nodes.at[id];
        const struct node *product =
            j->readers[node->inputs[k]] == 1 ? epilogue_product(j->graph, j->context, node, node->inputs[k]) : NULL;
        int made = product && !attr_find(product, "expr") ? join(j, id, k, product) : -1;
        if (made < 0) continue;
        j->gone[j->graph->tensors.at[j->graph->nodes.at[id].inputs[k]].producer] = true;
        return made;
    }
    return -1;
}

/* "v0 = sum; activation of v0, v0". */
static const char *text_of_both(struct arena *arena, const struct expr_chain *sum,
                                const struct expr_chain *activation) {
    struct expr_chain both = *sum;
    struct expr_renaming renaming = {.n = 0};
    both.value[1] = expr_variable(arena, both.nnamed);
    expr_replace(&renaming, "a", both.value[1]);
    both.named[both.nnamed++] = sum->value[0];
    expr_chain_append(arena, &both, activation, &renaming);
    both.value[0] = expr_rename(arena, activation->value[0], &renaming);
    both.nvalues = 2;
    return expr_chain_format(arena, &both);
}

/* Fuses the activation, node `id`, into a product that has a bias; the new node has activation and sum as results. */
static int join_keeping(struct joiner *j, int id, const struct node *product) {
    struct graph *graph = j->graph;
    const struct node node = graph->nodes.at[id], from = *product;
    const struct expr_chain *activation = expr_parse_chain(graph->arena, attr_text(&node, "expr", ""), 1);
    const struct expr_chain *sum = expr_parse_chain(graph->arena, attr_text(&from, "expr", "a"), from.ninputs - 1);
    struct node joined = from;
    int outputs[] = {node.outputs[0], from.outputs[0]};
    if (!activation || !sum || sum->nnamed + 1 + activation->nnamed > EXPR_NAMED) return -1;
    joined.outputs = outputs, joined.noutputs = 2;
    attr_set(graph, &joined, attr_of_text("expr", text_of_both(graph->arena, sum, activation)));
    attr_set(graph, &joined, attr_of_int("result", attr_int(&from, "result", 0)));
    return add_joined(j, &joined);
}

/* The new node takes the place of the product in the order, because nodes between both may read the sum. */
static bool join_activation(struct joiner *j, int id, int place) {
    struct graph *graph = j->graph;
    const struct node *node = &graph->nodes.at[id];
    const struct node *product =
        node->ninputs == 1 ? epilogue_product(j->graph, j->context, node, node->inputs[0]) : NULL;
    if (!product || attr_int(product, "packed", 0) || op_multiplies_integers(product->op)) return false;
    int before = graph->tensors.at[node->inputs[0]].producer, made = join_keeping(j, id, product);
    if (made < 0) return false;
    while (graph->order.at[place] != before) place--;
    graph->order.at[place] = made;
    j->gone[id] = true;
    return true;
}

int pass_fuse_epilogue(struct graph *graph, const struct pass_context *context) {
    struct joiner j = {.graph = graph, .context = context};
    j.readers = graph_readers(graph, graph->arena);
    j.gone = ARENA_ARRAY(graph->arena, bool, 2 * graph->nodes.n + 1);
    VEC_EACH_VALUE(&graph->order, i, int id) {
        if (graph->nodes.at[id].op->id != OP_Fused || graph->nodes.at[id].noutputs > 1) continue;
        int made = join_sole(&j, id);
        if (made >= 0)
            graph->order.at[i] = made;
        else
            join_activation(&j, id, i);
    }
    graph_keep(graph, j.gone, false);
    return 0;
}
