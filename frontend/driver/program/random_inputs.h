/* Files of random values for the inputs of a compiled program. */
#ifndef FRONTEND_DRIVER_RANDOM_INPUTS_H
#define FRONTEND_DRIVER_RANDOM_INPUTS_H

#include "frontend/options/options.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "runtime/base/dtype.h"
#include "runtime/base/text/json.h"

struct random_inputs {
    VEC(const char *) all;            /* "NAME=FILE.npy", as --input and --data take them */
    const int64_t *sizes;             /* of the inputs, by the manifest's "sizes"; NULL: the typical ones */
    const struct option_files *given; /* files of inputs that are not made; NULL: all are */
    double moved;                     /* floats are larger and smaller by this part of them, `turn` of them at a time */
    int turn;
};

/* Writes <prefix>.input<i>.npy for each entry of the manifest's "inputs" that is not given: the samples of a step of
 * one scale unit, the same values in every run. Floats lie in [-1, 1); integers lie below the manifest's "below" of the
 * input, else are 0 or 1. floats: the type of the files of floats; RT_DTYPE_NONE: that of each input. 0, or -1 after a
 * diagnostic. The list is in `arena`. */
int random_inputs_write(struct random_inputs *out, const struct rt_json *manifest, const char *prefix,
                        enum rt_dtype floats, struct arena *arena, struct diags *diags);

/* Micro-batches of a step of inference: dimension 0 of every input is that many times as large as the manifest says. */
int64_t random_inputs_micro_batches(const struct rt_json *manifest);

#endif
