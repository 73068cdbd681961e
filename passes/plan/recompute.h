/* Recomputation of activations (rematerialisation, activation checkpointing): --recompute, or marks of nodes in a plan,
 * choose activations that the backward phase computes again instead of keeping them. */
#ifndef PASSES_PLAN_RECOMPUTE_H
#define PASSES_PLAN_RECOMPUTE_H

#include "passes/train/training.h"

/* Parses "none", "full", "selective", "first:N", "names:GLOB" or "budget:BYTES" (NULL: none): 0, or -1 after a
 * diagnostic. */
int recompute_parse(struct recompute *recompute, const char *text, struct diags *diags);

#endif
