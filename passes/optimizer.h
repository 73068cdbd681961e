/* How parameters are updated: optimizers.def, chosen and given numbers by --optimizer and the options around it. */
#ifndef PASSES_OPTIMIZER_H
#define PASSES_OPTIMIZER_H

#include "ir/ir.h"

struct optimizer {
    const char *name, *when, *options, *states, *scalars, *decay, *update, *help;
};

extern const struct optimizer optimizers[];
extern const int noptimizers;

enum { OPTIMIZER_OPTIONS = 8 };

/* An optimizer with its numbers, in the order of its row's options. */
struct optimizer_choice {
    const char *text; /* as it was given */
    const struct optimizer *row;
    int n;
    struct {
        const char *name;
        double value;
    } option[OPTIMIZER_OPTIONS];
};

/* Reads "adamw:lr=0.0003,weight_decay=0.1" (name, then any of its options): 0, or -1 after a diagnostic. */
int optimizer_parse(struct optimizer_choice *choice, const char *text, struct arena *arena, struct diags *diags);

/* The value of an option, `fallback` if the optimizer has none of that name. */
double optimizer_option(const struct optimizer_choice *choice, const char *name, double fallback);

struct training {
    struct optimizer_choice optimizer;
    double clip_grad_norm; /* 0: none; torch.nn.utils.clip_grad_norm_ */
    int accumulate;        /* micro-batches of a unit in a step */
    int units;             /* data parallel copies of the plan */
};

/* Numbers that the runtime gives to each step, in this order: enum rt_control of runtime/rt.h. */
#define TRAINING_CONTROLS(C)                                                                                       \
    C(lr)    /* learning rate */                                                                                   \
    C(step)  /* 1 for the first */                                                                                 \
    C(share) /* 1 / number of real micro-batches of the step, of all units */                                      \
    C(real)  /* 1, or 0 while a micro-batch is a dummy: it takes part and counts for nothing */

#endif
