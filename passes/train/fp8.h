/* Linear layers in 8-bit floats with delayed scaling (--fp8), as in NVIDIA's TransformerEngine: recipe DelayedScaling
 * with its margin and amax_history_len, algorithm max, updated after every step of the optimizer.
 *
 * Note [Delayed scaling]
 * Three tensors of a layer are quantised: x, w, and dy, the gradient of its result. For each of them a history keeps
 * the largest magnitude of every step. A tensor is multiplied by its scale before it is rounded to 8 bits:
 *
 *   scale = largest number of the format / (2^margin * largest magnitude in the history)
 *
 * The scale changes only after a step, so that all micro-batches and all ranks use the same. Before the first
 * magnitude is known it is 1; that of dy is 1 / the first loss scale, by which gradients are multiplied. Magnitudes
 * that are not finite are left out. */
#ifndef PASSES_TRAIN_FP8_H
#define PASSES_TRAIN_FP8_H

#include "passes/train/training.h"

/* Parses "hybrid:include=GLOB,exclude=GLOB,history=16": 0, or -1 after a diagnostic. NULL: no 8-bit floats. */
int fp8_parse(struct fp8 *fp8, const char *text, struct arena *arena, struct diags *diags);

/* True if the name of the layer matches an include rule. */
bool fp8_includes(const struct fp8 *fp8, const char *layer);

/* Libraries need rows of a multiple of 16 bytes: the extents of each rank's product must be multiples of this. */
enum { FP8_MULTIPLE = 16 };

#endif
