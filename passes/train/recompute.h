/* Activations that the backward phase computes again instead of keeping (--recompute). */
#ifndef PASSES_TRAIN_RECOMPUTE_H
#define PASSES_TRAIN_RECOMPUTE_H

#include "passes/train/training.h"

/* Reads "none", "full", "selective", "first:N", "names:GLOB" or "budget:BYTES" (NULL: none): 0, or -1 after a
 * diagnostic. */
int recompute_parse(struct recompute *recompute, const char *text, struct diags *diags);

#endif
