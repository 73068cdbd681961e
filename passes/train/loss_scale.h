/* Loss scaling of a training step: the scale that the loss is multiplied with, and how it changes. Semantics of
 * torch.cuda.amp.GradScaler (PyTorch 2). */
#ifndef PASSES_TRAIN_LOSS_SCALE_H
#define PASSES_TRAIN_LOSS_SCALE_H

#include "ir/build.h"
#include "passes/train/training.h"

/* What a training step keeps: scalars in f64, -1 where there is none. */
struct loss_scale {
    int exponent; /* STATE: the scale is loss_scale * 2^exponent */
    int scale;
    int good;    /* bool: the step's gradients are finite */
    int skipped; /* STATE: steps skipped so far */
};

/* Before differentiation: the scale, which the loss's gradient begins with; -1: none, or after a diagnostic. */
int loss_scale_begin(struct build *b, const struct amp *amp);
/* What loss_scale_begin left in the graph. */
struct loss_scale loss_scale_find(struct build *b, const struct amp *amp);
/* Whether gradients of that norm (f64) are finite; makes the metrics. 0, or -1 after a diagnostic. */
int loss_scale_judge(struct build *b, const struct amp *amp, struct loss_scale *scale, int norm);
/* The scale of the next step. */
int loss_scale_end(struct build *b, const struct amp *amp, const struct loss_scale *scale);

#endif
