/* One training step by the C interface, whatever comes of it: `rankc train` publishes no checkpoint of a step that is
 * not finite.
 *
 *     step DIR CHECKPOINTS INPUT.npy...
 *
 * DIR is what rankc wrote, for one rank; the parameters after the step are in CHECKPOINTS/step-1. */
#include <stdio.h>
#include <stdlib.h>

#include <rankc/base/npy.h>

#include "model.h"

enum { MOST_INPUTS = 8 };

static int fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

int main(int argc, char **argv) {
    const struct rt_options options = {.directory = argv[1], .comm = "self"};
    const struct rt_position position = {.step = 1, .micro_batches = 1, .seed = -1};
    struct rt_tensor inputs[MOST_INPUTS];
    const void *sample[MOST_INPUTS];
    struct rt_reason why;
    struct rt *rt;
    if (argc < 3 || argc - 3 > MOST_INPUTS) return fail("usage: step DIR CHECKPOINTS INPUT.npy...");
    for (int i = 3; i < argc; i++) {
        if (!rt_npy_read(&inputs[i - 3], argv[i], &why)) return fail(why.text);
        sample[i - 3] = inputs[i - 3].data;
    }
    if (model_open(&rt, &options)) return fail(rt_error(NULL));
    int status = model_train_step(rt, (const void *const *const[]){sample}, NULL, NULL, NULL);
    if (!status) status = model_save(rt, argv[2], &position);
    if (status) fail(rt_error(rt));
    model_close(rt);
    for (int i = 3; i < argc; i++) rt_tensor_free(&inputs[i - 3]);
    return status != RT_OK;
}
