/* What an attention mask hides, where its values are known at compile time. */
#ifndef PASSES_REWRITE_KNOWN_MASK_H
#define PASSES_REWRITE_KNOWN_MASK_H

#include "ir/ir.h"

/* Nothing; or from row i all keys but the last `window` ones up to key i + offset (window 0: all up to that key).
 * `fill` is the value of the mask at hidden keys, NAN if it hides nothing. */
struct known_mask {
    enum { MASK_ANY, MASK_NOTHING, MASK_CAUSAL } kind;
    int64_t offset, window;
    double fill;
    bool sees; /* every row sees a key */
};

/* Results for masks that were examined before, because layers share masks. Begins as zeros. */
struct known_masks {
    VEC(struct examined_mask {
        int tensor;
        double seen;
        struct known_mask known;
    })
    all;
};

/* The effect of a mask, whose value is `seen` where a key is visible, on scores of shape (.., rows, keys). MASK_ANY if
 * its values are not known, or hide other keys; also for a causal mask that is broadcast over rows or keys. */
struct known_mask known_mask(struct graph *graph, struct known_masks *masks, int mask, const struct tensor *score,
                             double seen);

/* Note [Masks of open sizes]
 * Exporters write masks in many ways: comparisons of positions, triangles of ones, numbers of packed sequences. Where
 * all that a mask is computed from are open sizes (ir/open.h) and constants, it is computed here for some sizes, small
 * ones and the largest, and compared with what the attributes of attention can say.
 *
 * open_mask.c: as known_mask, of such a mask; MASK_ANY also if it depends on anything else. The offset is a number of
 * the specimen. */
struct known_mask open_mask(struct graph *graph, int mask, double seen);

/* True if `keep`, of known values, is 0 or 1, and `bias`, of the same shape, is 0 where keep is 1 and *fill, one
 * number, where it is 0; NAN if keep is 1 everywhere. */
bool known_gate(const struct graph *graph, int keep, int bias, double *fill);

/* True if the values of the tensor are known and equal along dimension `dim`. */
bool known_repeats(const struct graph *graph, int tensor, int dim);

/* True if the values of the tensor are known and all equal; then *value is set. */
bool known_uniform(const struct graph *graph, int tensor, double *value);

#endif
