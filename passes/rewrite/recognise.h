/* What the recognisers share. */
#ifndef PASSES_REWRITE_RECOGNISE_H
#define PASSES_REWRITE_RECOGNISE_H

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/match.h"

/* A match being turned into a node; `fit` fills in what the node gets. */
struct recognition {
    struct build b; /* its nodes come before the one that is replaced, and bear its name */
    int root;       /* node that is replaced */
    const struct match *match;
    int ninputs, inputs[5];
    int nattrs;
    struct attr attrs[10];
};

/* The result of the pattern. */
const struct tensor *recognition_result(const struct recognition *r);
void recognition_attr(struct recognition *r, struct attr attr);

/* The root becomes that operator, with the inputs and attributes found. */
void recognition_replace(struct recognition *r, enum op_id op);

/* Runs `find` for every node, inputs before readers; what it leaves unread is dropped at the end. */
void recognise_each(struct graph *graph, const struct pass_context *context,
                    bool (*find)(struct matcher *matcher, struct build *b, int node, const void *env), const void *env);

void recognise_attention(struct graph *graph, const struct pass_context *context);

#endif
