/* Activations that the backward phase computes again instead of keeping (--recompute). */
#ifndef PASSES_RECOMPUTE_H
#define PASSES_RECOMPUTE_H

#include "ir/ir.h"

enum recompute_kind {
    RECOMPUTE_NONE,
    RECOMPUTE_FULL,      /* of each layer, all but what it takes from the one before */
    RECOMPUTE_SELECTIVE, /* all but results of products, convolutions and attention */
    RECOMPUTE_FIRST,     /* full, of the first `count` layers */
    RECOMPUTE_NAMES,     /* results of nodes whose names match */
    RECOMPUTE_BUDGET     /* full, of as few layers from the first as keep the rest within `count` bytes */
};

struct recompute {
    const char *text; /* as it was given; NULL: none */
    enum recompute_kind kind;
    int64_t count;
    const char *pattern;
};

/* Reads "none", "full", "selective", "first:N", "names:GLOB" or "budget:BYTES" (NULL: none): 0, or -1 after a diagnostic. */
int recompute_parse(struct recompute *recompute, const char *text, struct diags *diags);

#endif
