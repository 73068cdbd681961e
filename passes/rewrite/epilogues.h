/* Elementwise nodes that the matrix product before them may compute as its epilogue: pass fuse_epilogue makes them so,
 * and the passes before it leave to the product what it does better than they. */
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

/* True if one of at most `most` elementwise nodes that read each other's results, of which this is the last, reads that
 * of such a product. */
bool epilogue_follows(const struct graph *graph, const struct pass_context *context, const struct node *node, int most);

#endif
