/* Weights in fewer bits than the model stores (--weight-dtype). */
#ifndef PASSES_TRAIN_SMALL_WEIGHTS_H
#define PASSES_TRAIN_SMALL_WEIGHTS_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "runtime/base/dtype.h"

/* The type of the weights whose names, or the names of the nodes that read them, match; the last rule that does is
 * taken. */
struct small_weights_rule {
    const char *glob; /* NULL: all */
    const struct small_type *type;
    int64_t group; /* indices of k that share a scale */
    bool rounded;  /* kernels may round x to 8 bits, likewise in groups, as MatMulNBits does at accuracy level 4 */
};

struct small_weights {
    const char *text; /* of the option; NULL: weights stay as they are */
    VEC(struct small_weights_rule) rules;
};

/* Reads "[GLOB=]TYPE[:group=N][:activations=int8|bf16],..": types are rows of small_types in small_weights.c. NULL: no
 * rules. 0, or -1 after a diagnostic (E0202, E0205). */
int small_weights_parse(struct small_weights *weights, const char *text, struct arena *arena, struct diags *diags);

#endif
