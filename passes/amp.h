/* Mixed precision (--amp): parameters, optimizer and what needs range stay f32, products are done in 16 bits. The operators'
 * classes are those of torch.autocast; loss scaling is that of torch.cuda.amp.GradScaler (PyTorch 2). */
#ifndef PASSES_AMP_H
#define PASSES_AMP_H

#include "ir/build.h"

/* ALLOW: in the half type. DENY: in f32. PROMOTE: in the half type if all computed operands have it, else in f32. */
enum amp_class { AMP_PROMOTE, AMP_ALLOW, AMP_DENY };

struct amp_rule {
    const char *pattern; /* a glob over node names */
    enum amp_class class;
};

struct amp {
    const char *text;    /* as it was given, NULL: no mixed precision */
    enum rt_dtype dtype; /* bf16 or fp16 */
    VEC(struct amp_rule) rules;
    bool *matched;          /* per rule */
    double loss_scale;      /* the first one if it changes; 0: gradients are not scaled */
    double growth_interval; /* good steps after which the scale is doubled; 0: it never changes */
    bool skip;              /* a step whose gradients are not finite changes nothing */
};

/* Reads "fp16:loss_scale=1024,deny=*head*": 0, or -1 after a diagnostic. NULL gives no mixed precision. */
int amp_parse(struct amp *amp, const char *text, struct arena *arena, struct diags *diags);

/* Loss scaling (loss_scale.c). What a training step keeps: scalars in f64, -1 where there is none. */
struct loss_scale {
    int exponent; /* STATE: the scale is loss_scale * 2^exponent */
    int scale;
    int good;     /* bool: the step's gradients are finite */
    int skipped;  /* STATE: steps skipped so far */
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
