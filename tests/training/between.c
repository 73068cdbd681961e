/* An inference step between the parts of a training step, by the C interface. The ranks of all scale units are threads.
 *
 *     between DIR UNITS INPUT.npy...
 *
 * Each unit computes the gradients of as many micro-batches as the program was compiled for, then infers, then reduces.
 * The last unit is late, so that it adds gradients while the others infer. Prints whether the inference steps give what
 * one gives before, and the gradient's norm; "lost" instead of the norm where they have overwritten the gradients. */
#define _DEFAULT_SOURCE 1

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rankc/base/npy.h>
#include <rankc/generated.h>

#include "model.h"

enum { MOST_INPUTS = 4, MOST_MICRO_BATCHES = 4, MOST_RANKS = 16, INFERENCES = 100, LATE_US = 3000 };

struct job {
    const char *directory;
    int ninputs;
    struct rt_tensor inputs[MOST_INPUTS];
    bool differs[MOST_RANKS], lost;
    double norm;
};

static size_t bytes_of(const struct rt_port *port) {
    size_t bytes = rt_dtype_bytes(port->dtype);
    for (int d = 0; d < port->ndim; d++) bytes *= (size_t)port->dims[d];
    return bytes;
}

static void take(const struct job *job, int number, const void **ports) {
    for (int i = 0; i < job->ninputs; i++)
        ports[i] = (const unsigned char *)job->inputs[i].data + (size_t)number * bytes_of(&model_program.inputs[i]);
}

static int infer(struct rt *rt, const struct job *job, void *loss) {
    const void *ports[MOST_INPUTS];
    void *outputs[64] = {loss};
    take(job, 0, ports);
    return rt_infer_step(rt, ports, outputs);
}

static int interrupted(struct rt *rt, void *context) {
    struct job *job = context;
    const void *ports[MOST_MICRO_BATCHES][MOST_INPUTS], *const *samples[MOST_MICRO_BATCHES];
    const int count = model_program.training->accumulate, units = rt->world / model_program.plan_ngpus;
    double before = 0, after = 0;
    for (int j = 0; j < count; j++) {
        take(job, j * units + rt->unit, ports[j]);
        samples[j] = ports[j];
    }
    RT_TRY(infer(rt, job, &before));
    if (rt->unit == units - 1) usleep(LATE_US);
    RT_TRY(rt_gradients(rt, samples, NULL, NULL, NULL));
    for (int i = 0; i < INFERENCES; i++) {
        RT_TRY(infer(rt, job, &after));
        if (memcmp(&before, &after, sizeof before)) job->differs[rt->rank] = true;
    }
    const int status = rt_sync_shard_grad(rt);
    if (rt->rank == 0) job->lost = status == RT_ERROR_USAGE;
    if (rt->rank == 0 && !status) job->norm = rt_metric(rt, RT_NORM);
    return status == RT_ERROR_USAGE ? RT_OK : status;
}

int main(int argc, char **argv) {
    static struct job job;
    struct rt_reason why;
    if (argc < 4 || argc - 3 > MOST_INPUTS) return 2;
    job.directory = argv[1];
    for (job.ninputs = 0; job.ninputs < argc - 3; job.ninputs++)
        if (!rt_npy_read(&job.inputs[job.ninputs], argv[3 + job.ninputs], &why)) {
            fprintf(stderr, "%s\n", why.text);
            return 1;
        }
    const struct rt_options options = {
        .directory = job.directory, .world = atoi(argv[2]) * model_program.plan_ngpus, .threads = 1};
    const int status = rt_run_threads(&model_program, &options, interrupted, &job);
    if (status) fprintf(stderr, "%s\n", rt_error(NULL));
    bool differs = false;
    for (int r = 0; r < MOST_RANKS; r++) differs = differs || job.differs[r];
    if (!status) printf("%s ", differs ? "differs" : "same");
    if (!status) job.lost ? puts("lost") : printf("%.17g\n", job.norm);
    for (int i = 0; i < job.ninputs; i++) rt_tensor_free(&job.inputs[i]);
    return status;
}
