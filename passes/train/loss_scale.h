/* Dynamic loss scaling: the factor by which the loss is multiplied, and its change after every step. Semantics of
 * torch.cuda.amp.GradScaler (PyTorch 2). */
#ifndef PASSES_TRAIN_LOSS_SCALE_H
#define PASSES_TRAIN_LOSS_SCALE_H

#include "ir/build.h"
#include "passes/train/training.h"

/* The tensors of loss scaling: scalars in f64 unless said otherwise; -1: none. */
struct loss_scale {
    int exponent; /* STATE: the scale is amp->loss_scale * 2^exponent */
    int scale;
    int good;    /* bool: all gradients of the step are finite */
    int skipped; /* STATE: number of steps skipped so far */
};

/* To be called before autodiff: adds the states and returns the scale, which is the gradient of the loss; -1: no loss
 * scaling, or after a diagnostic. */
int loss_scale_begin(struct build *builder, const struct amp *amp);
/* Finds the tensors that loss_scale_begin added to the graph. */
struct loss_scale loss_scale_find(struct build *builder, const struct amp *amp);
/* Sets scale->good and scale->skipped from the norm of all gradients (f64), and adds the metrics. 0, or -1 after a
 * diagnostic. */
int loss_scale_judge(struct build *builder, const struct amp *amp, struct loss_scale *scale, int norm);
/* Adds the updates of the states, which give the scale of the next step. 0, or -1 after a diagnostic. */
int loss_scale_end(struct build *builder, const struct amp *amp, const struct loss_scale *scale);

#endif
