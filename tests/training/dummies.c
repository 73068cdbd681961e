/* Training steps some of whose micro-batches are dummies, by the C interface. The ranks of all scale units are threads.
 *
 *     dummies DIR UNITS STEPS INPUT.npy...
 *
 * STEPS has a letter for each micro-batch of all units, and a comma between steps: "rdrr,rrrr" is two steps, and the
 * first has a dummy. Micro-batch j of a step is the j / UNITS-th of unit j % UNITS. Each 'r' is the next micro-batch of
 * the inputs, 'd' is the last one of the inputs marked as a dummy, and 'x' is that one not marked. Prints a line per
 * step: the gradient's norm, and the losses of the micro-batches in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rankc/base/npy.h>
#include <rankc/generated.h>

#include "model.h"

enum { MOST_INPUTS = 4, MOST_STEPS = 16, MOST_PER_STEP = 16 };

struct job {
    const char *directory, *steps;
    int units, ninputs;
    struct rt_tensor inputs[MOST_INPUTS];
    double norm[MOST_STEPS], loss[MOST_STEPS][MOST_PER_STEP];
};

static size_t bytes_of(const struct rt_port *port) {
    size_t bytes = rt_dtype_bytes(port->dtype);
    for (int d = 0; d < port->ndim; d++) bytes *= (size_t)port->dims[d];
    return bytes;
}

/* The inputs' micro-batch of that number; -1: the last one. */
static void take(const struct job *job, int number, const void **ports) {
    for (int i = 0; i < job->ninputs; i++) {
        const size_t bytes = bytes_of(&model_program.inputs[i]),
                     all = (size_t)job->inputs[i].count * rt_dtype_bytes(job->inputs[i].dtype);
        const size_t at = number < 0 ? all / bytes - 1 : (size_t)number;
        ports[i] = (const unsigned char *)job->inputs[i].data + at * bytes;
    }
}

/* One step of the rank; `letters` are those of all micro-batches of the step, `real` were taken before it. */
static int step(struct rt *rt, struct job *job, int number, const char *letters, int count, int real) {
    const void *ports[MOST_PER_STEP][MOST_INPUTS], *const *samples[MOST_PER_STEP];
    unsigned char is_dummy[MOST_PER_STEP];
    double losses[MOST_PER_STEP];
    int mine = 0;
    for (int j = 0; j < count; j++) {
        const int next = letters[j] == 'r' ? real++ : -1;
        if (j % job->units != rt->unit) continue;
        take(job, next, ports[mine]);
        is_dummy[mine] = letters[j] == 'd';
        samples[mine] = ports[mine];
        mine++;
    }
    RT_TRY(rt_set_accumulate(rt, mine));
    RT_TRY(model_train_step(rt, samples, is_dummy, NULL, losses));
    if (rt->rank % model_program.plan_ngpus) return RT_OK; /* all ranks of a unit have its losses */
    for (int j = 0; j < mine; j++) job->loss[number][j * job->units + rt->unit] = losses[j];
    if (rt->rank == 0) job->norm[number] = rt_gradient_norm(rt);
    return RT_OK;
}

static int all_steps(struct rt *rt, void *context) {
    struct job *job = context;
    int real = 0, number = 0;
    for (const char *letters = job->steps; *letters; letters += *letters == ',') {
        const int count = (int)strcspn(letters, ",");
        RT_TRY(step(rt, job, number++, letters, count, real));
        for (; *letters && *letters != ','; letters++) real += *letters == 'r';
    }
    return RT_OK;
}

static void print(const struct job *job) {
    const char *letters = job->steps;
    for (int number = 0; *letters; number++, letters += *letters == ',') {
        printf("%.17g", job->norm[number]);
        for (int j = 0; *letters && *letters != ','; j++, letters++) printf(" %.17g", job->loss[number][j]);
        puts("");
    }
}

int main(int argc, char **argv) {
    static struct job job;
    struct rt_reason why;
    if (argc < 5 || argc - 4 > MOST_INPUTS) return 2;
    job.directory = argv[1];
    job.units = atoi(argv[2]);
    job.steps = argv[3];
    for (job.ninputs = 0; job.ninputs < argc - 4; job.ninputs++)
        if (!rt_npy_read(&job.inputs[job.ninputs], argv[4 + job.ninputs], &why)) {
            fprintf(stderr, "%s\n", why.text);
            return 1;
        }
    const struct rt_options options = {
        .directory = job.directory, .world = job.units * model_program.plan_ngpus, .threads = 1};
    const int status = rt_run_threads(&model_program, &options, all_steps, &job);
    if (status) fprintf(stderr, "%s\n", rt_error(NULL));
    if (!status) print(&job);
    for (int i = 0; i < job.ninputs; i++) rt_tensor_free(&job.inputs[i]);
    return status;
}
