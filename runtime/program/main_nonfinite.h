/* Where a training step first had a value that is not finite: said with E0914. */
#ifndef RT_MAIN_NONFINITE_H
#define RT_MAIN_NONFINITE_H

#include "program/main.h"

/* The first such value: one of `parameter` (index into "tensors" of manifest.json), `input` and `instruction` (into
 * "instructions"), the others are -1. */
struct nonfinite {
    bool found;
    int rank; /* the first that had it */
    int parameter, input, instruction;
};

/* Finds it by repeating the gradients of a step. Collective over the job's ranks; parameters stay as they are. RT_OK,
 * or a status that is recorded in `rt` or `self`. */
int nonfinite_find(struct rank *self, struct rt *rt, const struct rt_attempt *attempt, struct nonfinite *found);

/* The failure's place becomes that. */
void nonfinite_place(const struct nonfinite *found, const struct manifest *manifest, struct failure *failure);

#endif
