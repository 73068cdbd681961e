/* Losses composed of core operators, for ONNX's loss operators and for --loss (import_loss.c).
 *
 * Cross entropy of logits uses the core operator ClassTerms (ir/ops.def): one pass over the logits, and one that
 * computes their gradient in place. Log-probabilities that a LogSoftmax node computes are replaced by its input, the
 * logits. From other log-probabilities the target's is selected by a comparison with all class numbers and a sum over
 * the classes. All of these can be split along the classes. A target that is not a class number fails the step at run
 * time. */
#ifndef FRONTEND_LOWER_LOWER_LOSS_H
#define FRONTEND_LOWER_LOWER_LOSS_H

#include "ir/build.h"

enum { LOSS_CLASSES = 1 << 28 }; /* largest number of classes */

enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN, LOSS_REDUCTIONS };
/* Parses "none", "sum" or "mean"; LOSS_REDUCTIONS for any other word. */
enum loss_reduction loss_reduction(const char *word);

/* Negative log likelihood: ONNX NegativeLogLikelihoodLoss-13, with label_smoothing of PyTorch's cross_entropy.
 * LOSS_MEAN is the mean over elements that are not ignored, weighted by `weights`. Operands are tensor ids. */
struct class_loss {
    int scores;  /* floats of any shape with the classes along dimension `axis`: logits or log-probabilities */
    bool logits; /* scores are logits */
    int axis;
    int target;  /* class numbers, i32 or i64; the shape of the scores without dimension `axis` */
    int weights; /* one per class, constant for the gradient; -1: all are 1 */
    bool ignores;
    int64_t ignored; /* with `ignores`: elements with this target have no loss and no weight */
    double smoothing;
    enum loss_reduction reduction;
    /* Not NULL: the loss is the sum divided by the number of elements, and *counted becomes the tensor of the sum of
     * the weights of those that are not ignored. A mean over several such sums is the caller's. */
    int *counted;
};

/* All return the tensor of the loss, -1 after a diagnostic. */
int loss_of_classes(struct build *builder, const struct class_loss *loss);
/* The target is a tensor of class probabilities with the shape of the scores. The mean is over elements, not
 * weighted. */
int loss_of_probabilities(struct build *builder, const struct class_loss *loss);
/* The sum or mean of an elementwise loss: `element` is an expression over the names in `scope` (ir/build.h). */
int loss_of_elements(struct build *builder, struct build_scope *scope, const char *element,
                     enum loss_reduction reduction);

/* True if the target has the shape of the prediction without dimension `axis`. */
bool loss_target_fits(const struct tensor *prediction, int axis, const struct tensor *target);

#endif
