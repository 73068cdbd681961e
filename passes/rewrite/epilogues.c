#include "passes/rewrite/epilogues.h"

#include "ir/op.h"
#include "passes/rewrite/elementwise.h"

/* The node that computes the operand, if both have the same stage, phase and shards; else NULL. */
static const struct node *node_before(const struct graph *graph, const struct node *node, int tensor) {
    const struct node *before = graph_producer(graph, tensor);
    const struct tensor *x = &graph->tensors.at[tensor], *y = &graph->tensors.at[node->outputs[0]];
    const bool same = before && (op_multiplies_integers(before->op) ? tensor_same_shape(x, y) : tensor_same_type(x, y));
    const bool joined =
        same && before->stage == node->stage && before->phase == node->phase && layout_equal(&x->layout, &y->layout);
    return joined ? before : NULL;
}

const struct node *epilogue_product_of(const struct graph *graph, const struct pass_context *context,
                                       const struct node *node, int tensor) {
    const struct node *product = node_before(graph, node, tensor);
    if (!product || product->noutputs > 1) return NULL;
    const bool packed = attr_int(product, "packed", 0) != 0, integers = op_multiplies_integers(product->op);
    if (!integers && product->op->id != OP_MatMul && product->op->id != OP_Conv) return NULL;
    if (!packed && (product->op->id == OP_Conv || product->op->id == OP_IntConv)) return NULL;
    if (!(packed || integers ? context->block_epilogues : context->library_products)) return NULL;
    for (int a = 0; a < RT_LAYOUT_AXES; a++)
        if (product->split[a].factor == SPLIT_PARTIAL) return NULL;
    return product;
}

const struct node *epilogue_product(const struct graph *graph, const struct pass_context *context,
                                    const struct node *node, int tensor) {
    const struct node *product = epilogue_product_of(graph, context, node, tensor);
    const bool other =
        product && op_multiplies_integers(product->op) && elementwise_compute_type(graph, node) != RT_F32;
    return other ? NULL : product;
}

bool epilogue_follows(const struct graph *graph, const struct pass_context *context, const struct node *node,
                      int most) {
    for (int k = 0; k < node->ninputs; k++) {
        const struct node *before = node_before(graph, node, node->inputs[k]);
        if (!before) continue;
        if (epilogue_product(graph, context, node, node->inputs[k])) return true;
        if (most > 1 && elementwise_joins_chain(graph, context, before) &&
            epilogue_follows(graph, context, before, most - 1))
            return true;
    }
    return false;
}
