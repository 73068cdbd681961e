/* Finds the first non-finite value of a training step, for E0914. */
#ifndef RT_MAIN_NONFINITE_H
#define RT_MAIN_NONFINITE_H

#include "program/main.h"

/* The first such value: one of `parameter` (index into "tensors" of manifest.json), `input` and `instruction` (index
 * into "instructions") is set, the others are -1. */
struct nonfinite {
    bool found;
    int rank; /* the first rank that had it */
    int parameter, input, instruction;
};

/* Finds it by computing the gradients of the step again. Collective over the job's ranks; parameters are unchanged.
 * RT_OK, or a status recorded in `rt` or `self`. */
int nonfinite_find(struct rank *self, struct rt *rt, const struct rt_attempt *attempt, struct nonfinite *found);

/* Sets the failure's place to the value that was found. */
void nonfinite_place(const struct nonfinite *found, const struct manifest *manifest, struct failure *failure);

#endif
