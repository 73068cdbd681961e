/* Recomputation of activations (rematerialisation, activation checkpointing): --recompute, or marks of nodes in a plan,
 * choose activations that the backward phase computes again instead of keeping them. */
#ifndef PASSES_PLAN_RECOMPUTE_H
#define PASSES_PLAN_RECOMPUTE_H

#include "ir/base/diag.h"

enum recompute_kind {
    RECOMPUTE_NONE,
    RECOMPUTE_FULL,      /* every layer keeps only its input */
    RECOMPUTE_SELECTIVE, /* recomputes all but the results of products, convolutions and attention */
    RECOMPUTE_FIRST,     /* RECOMPUTE_FULL in the first `count` layers */
    RECOMPUTE_NAMES,     /* recomputes the results of nodes whose names match `pattern` */
    RECOMPUTE_BUDGET     /* RECOMPUTE_FULL in the fewest first layers with which activations fit in `count` bytes */
};

struct recompute {
    enum recompute_kind kind;
    int64_t count;
    const char *pattern; /* what stands behind the word */
};

/* Parses "none", "full", "selective", "first:N", "names:GLOB" or "budget:BYTES" (NULL: none): 0, or -1 after a
 * diagnostic. */
int recompute_parse(struct recompute *recompute, const char *text, struct diags *diags);

#endif
