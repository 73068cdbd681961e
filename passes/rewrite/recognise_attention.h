/* The description of an attention that recognise_attention.c finds, and the steps from the product of q and k to the
 * softmax that are added to it (recognise_attention_steps.c). */
#ifndef PASSES_REWRITE_RECOGNISE_ATTENTION_H
#define PASSES_REWRITE_RECOGNISE_ATTENTION_H

#include "passes/rewrite/known_mask.h"
#include "passes/rewrite/recognise.h"

enum { ATTENTION_ROOTS = 7, ATTENTION_STEPS = 19, MAX_MASKS = 4 };

/* The leading dimensions of a tensor: all but the last two. */
struct lead {
    int n;
    int64_t dims[RT_MAX_NDIM], count;
};

struct mask {
    int tensor;
    struct lead lead; /* of the scores that it is applied to */
};

struct attention {
    struct recognition *recognition;
    const struct pass_context *context;
    struct patterns *patterns;
    int depth; /* steps taken */
    int q, k, v;
    bool k_upright; /* k is (.., keys, head), not (.., head, keys) */
    struct lead lead;
    double scale;
    bool masked, causal, drop, clamp; /* masked: some scores are replaced by fill */
    bool shifted;                     /* a number was subtracted from each row, the same from all keys */
    int nan_to_zero;
    double fill, cap; /* cap 0: none */
    int64_t offset, window;
    bool sees; /* the causal mask leaves every row a key */
    /* tensor -1: none. keep: which scores stay; factor: multiplies scores, equal for all keys; sink: of each row */
    struct mask keep, factor, sink;
    int nbias, before; /* the first `before` of them are added before scores are replaced */
    struct mask bias[MAX_MASKS];
};

/* Data of a run of the pass. */
struct patterns {
    const struct pass_context *context;
    const struct pattern *root[ATTENTION_ROOTS], *step[ATTENTION_STEPS];
    struct known_masks known;
    const char *why; /* the last root is no attention, of the way that got furthest; NULL: it is nothing like it */
    int depth;       /* of that way */
};

/* A step from one tensor of scores to the next: a pattern in which `score` is the one before it. */
struct attention_step {
    const char *text;
    /* Adds the step to the description; false, with the description in any state, if the operator cannot compute it.
     * NULL: there is nothing to add. */
    bool (*take)(struct attention *a, const struct match *match, const struct attention_step *step);
    bool inverse;  /* it divides, subtracts, or replaces scores where the mask is true */
    bool reshapes; /* leading dimensions are merged or divided */
};
extern const struct attention_step attention_steps[ATTENTION_STEPS];

const struct tensor *attention_tensor(const struct attention *a, int id);
struct lead lead_of(const struct tensor *t);
bool lead_equal(const struct lead *a, const struct lead *b);

/* The mask before any Expand: the operator broadcasts masks. */
int unrepeated_mask(const struct attention *a, int mask);

/* Replaces scores by `fill` where the mask is false, or with `drop` where it is true. The mask may be a conjunction of
 * a constant one, which becomes attributes, and a computed one. Floats of 0 and 1 are masks too. */
bool attention_mask(struct attention *a, int mask, const struct tensor *score, double fill, bool drop);
/* The same for a constant mask that is known to be causal. */
bool attention_causal(struct attention *a, const struct known_mask *known, double fill);
/* True if the score `fill` hides a key: it is at most -1e9, which exporters write for hidden keys. In 16-bit floats the
 * limit is the nearest number: bf16 rounds -1e9 up, and fp16 ends at -65504. */
bool attention_fill_hides(const struct attention *a, double fill);
bool attention_bias(struct attention *a, int bias, const struct tensor *score);

/* True if all scores that the mask hides are hidden already. */
bool attention_hides(const struct attention *a, int mask, const struct tensor *score, bool drop);

/* The tensor of bools that the floats of 0 and 1 in `mask` were cast from; -1 if there is none. */
int attention_bools(const struct attention *a, int mask);

#endif
