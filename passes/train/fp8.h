/* Linear layers in 8-bit floats with delayed scaling (--fp8): as NVIDIA's TransformerEngine has it (recipe
 * DelayedScaling, its margin and amax_history_len, algorithm max), where a step of the optimizer is its interval.
 *
 * Note [Delayed scaling]
 * Of each tensor that is quantised - a layer's x and w, and dy, the gradient of its result - the largest magnitude of
 * every step is kept in a history. What it is multiplied with before it is rounded is largest number of the format /
 * (2^margin * largest magnitude in the history), and changes after a step; until something was seen it is 1, or 1 / the
 * first loss scale where that is in dy. So all micro-batches of a step, of all units, and all ranks have one scale. A
 * magnitude that is not finite is left out of the history. */
#ifndef PASSES_TRAIN_FP8_H
#define PASSES_TRAIN_FP8_H

#include "passes/train/training.h"

/* Reads "hybrid:include=GLOB,exclude=GLOB,history=16": 0, or -1 after a diagnostic. NULL gives no 8-bit floats. */
int fp8_parse(struct fp8 *fp8, const char *text, struct arena *arena, struct diags *diags);

/* Some include matches the name of the layer. */
bool fp8_includes(const struct fp8 *fp8, const char *layer);

/* Extents of a product must be multiples of this, on each rank: rows of codes are 16 bytes or several times that. */
enum { FP8_MULTIPLE = 16 };

#endif
