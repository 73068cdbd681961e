/* Elementwise nodes that a matrix product can compute as its epilogue. Pass fuse_epilogue fuses them into the product.
 * Passes before it ask here which nodes they should leave to the product. */
#ifndef PASSES_REWRITE_EPILOGUES_H
#define PASSES_REWRITE_EPILOGUES_H

#include "ir/ir.h"
#include "passes/pipeline.h"

/* The product that computes the node's operand `tensor`, if the target can give it an epilogue and both have the same
 * stage, phase and shards; else NULL. */
const struct node *epilogue_product(const struct graph *graph, const struct pass_context *context,
                                    const struct node *node, int tensor);

/* The same, in whatever type the node computes. */
const struct node *epilogue_product_of(const struct graph *graph, const struct pass_context *context,
                                       const struct node *node, int tensor);

/* True if a chain of at most `most` elementwise nodes leads from the result of such a product to this node, which is
 * the last of the chain. */
bool epilogue_follows(const struct graph *graph, const struct pass_context *context, const struct node *node, int most);

#endif
