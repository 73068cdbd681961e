/* Losses as core operators: for ONNX's loss operators and for --loss (import_loss.c).
 *
 * Cross entropy with logits is of ClassTerms (ir/ops.def): one pass over the logits, and one that makes their gradient
 * where they lie; log-probabilities that LogSoftmax made are taken back to logits. Of others the class of an element is
 * picked by comparing its target with all classes and summing. Classes may be cut. A target that is no class ends the
 * step. */
#ifndef FRONTEND_LOWER_LOWER_LOSS_H
#define FRONTEND_LOWER_LOWER_LOSS_H

#include "ir/build.h"

enum { LOSS_CLASSES = 1 << 28 }; /* at most */

enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN, LOSS_REDUCTIONS };
/* "none", "sum" or "mean"; LOSS_REDUCTIONS for another word. */
enum loss_reduction loss_reduction(const char *word);

/* Negative log likelihood of classes: ONNX NegativeLogLikelihoodLoss-13, with the label smoothing of PyTorch's
 * cross_entropy. The mean is weighted, and over elements that are not ignored. */
struct class_loss {
    /* log-probabilities, or with `logits` what softmax makes probabilities of; classes along dimension `axis` */
    int scores;
    bool logits;
    int axis;
    int target;  /* i32 or i64, of the other dimensions */
    int weights; /* one per class, to which no gradient flows; -1: all are 1 */
    bool ignores;
    int64_t ignored; /* a target that counts for nothing */
    double smoothing;
    enum loss_reduction reduction;
};

/* These return the loss' tensor, -1 after a diagnostic. */
int loss_of_classes(struct build *b, const struct class_loss *loss);
/* Of targets that are probabilities of the classes, shaped like the scores: the mean is over elements. */
int loss_of_probabilities(struct build *b, const struct class_loss *loss);
/* The sum or mean of all elements; an expression of the scope gives them. */
int loss_of_elements(struct build *b, struct build_scope *scope, const char *element, enum loss_reduction reduction);

/* The target's shape fits that of the prediction, without dimension `axis`. */
bool loss_target_fits(const struct tensor *prediction, int axis, const struct tensor *target);

#endif
