/* Steps of one program at the sizes that are asked for, one after the other in one process.
 *
 *     sizes DIR RANKS <STEPS >RESULTS
 *
 * STEPS: int64 numbers: how many steps; of each its sizes, the bytes of each input, the bytes of each output, and then
 * the inputs. RESULTS: the outputs of each step. */
#include <stdio.h>
#include <stdlib.h>

#include <rankc/generated.h>

#include "model.h"

enum { PORTS = 16, STEPS = 64 };

struct step {
    int64_t sizes[RT_MAX_SIZES], bytes[2 * PORTS]; /* bytes: of inputs, then of outputs */
    void *data[2 * PORTS];
};
static struct step steps[STEPS];
static int64_t nsteps;

static void take(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) == bytes) return;
    fputs("sizes: the steps end early\n", stderr);
    exit(1);
}

static void take_step(struct step *step) {
    const int ninputs = model_program.ninputs, nports = ninputs + model_program.noutputs;
    take(step->sizes, (size_t)model_program.nsizes * sizeof *step->sizes);
    take(step->bytes, (size_t)nports * sizeof *step->bytes);
    for (int i = 0; i < nports; i++) step->data[i] = calloc(1, (size_t)step->bytes[i] + 1);
    for (int i = 0; i < ninputs; i++) take(step->data[i], (size_t)step->bytes[i]);
}

static int run(struct rt *rt, void *context) {
    void *nothing[PORTS] = {NULL};
    (void)context;
    for (int64_t s = 0; s < nsteps; s++) {
        const void *const *inputs = (const void *const *)steps[s].data;
        int status = rt_set_sizes(rt, steps[s].sizes);
        if (!status) status = rt_infer_step(rt, inputs, rt->rank ? nothing : steps[s].data + model_program.ninputs);
        if (status) return status;
    }
    return 0;
}

int main(int argc, char **argv) {
    const struct rt_options options = {.directory = argv[1], .world = argc > 2 ? atoi(argv[2]) : 1, .threads = 1};
    take(&nsteps, sizeof nsteps);
    for (int64_t s = 0; s < nsteps; s++) take_step(&steps[s]);
    if (rt_run_threads(&model_program, &options, run, NULL)) return fprintf(stderr, "sizes: %s\n", rt_error(NULL)), 1;
    for (int64_t s = 0; s < nsteps; s++)
        for (int i = 0; i < model_program.noutputs; i++) {
            const int port = model_program.ninputs + i;
            fwrite(steps[s].data[port], 1, (size_t)steps[s].bytes[port], stdout);
        }
    return 0;
}
