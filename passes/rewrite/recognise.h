/* What the passes that replace decompositions by one operator have in common (recognise.c, recognise_attention.c). */
#ifndef PASSES_REWRITE_RECOGNISE_H
#define PASSES_REWRITE_RECOGNISE_H

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/matcher.h"

/* A match and the node that is to replace it: the recogniser adds inputs and attributes. */
struct recognition {
    struct build builder; /* nodes built with it are inserted before the root, under its name */
    int root;             /* node that is replaced */
    const struct match *match;
    int ninputs, inputs[8];
    int nattrs;
    struct attr attrs[16];
};

/* The tensor that the root computes. */
const struct tensor *recognition_result(const struct recognition *recognition);
void recognition_attr(struct recognition *recognition, struct attr attr);

/* Makes the inputs and attributes those of a Reshape of the tensor to the shape of the root's result. */
void recognition_reshape(struct recognition *recognition, int tensor);

/* Turns the root into a node of operator `op` with the inputs and attributes of the recognition. */
void recognition_replace(struct recognition *recognition, const struct op *op);

/* Calls find(matcher, builder, node, env) for every node with one result, in topological order; find returns whether it
 * replaced the node. Nodes that become unused are removed at the end. */
void recognise_each(struct graph *graph, const struct pass_context *context,
                    bool (*find)(struct matcher *matcher, struct build *builder, int node, const void *env),
                    const void *env);

struct user_op;

/* Fit of recognise.def (recognise_experts.c): the product, to be reshaped, is the new node's input. */
bool fit_experts(struct recognition *recognition);

/* Replaces the sum over all experts of a mixture by one over those that a token chose (recognise_dense_experts.c). */
void recognise_dense_experts(struct graph *graph, const struct pass_context *context);

/* Replaces softmax(q k) v by Attention or FlashAttention where the target has a kernel for it. */
void recognise_attention(struct graph *graph, const struct pass_context *context);

#endif
