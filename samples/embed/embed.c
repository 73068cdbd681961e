/* A C program that runs a compiled samples/models/gpt2.onnx, with any number of ranks. Each rank is a thread.
 *
 *     embed DIR TOKENS.npy [EXPECTED.npy]
 *
 * DIR is the output directory of `rankc compile`. Prints the first logits. With EXPECTED it compares all logits with
 * that file, and exits with 1 if they differ by more than rounding errors. */
#include <stdio.h>
#include <stdlib.h>

#include <rankc/base/npy.h>

#include "model.h"

struct job {
    const void *inputs[gpt2_INPUTS];
    float *logits; /* complete: rank 0's copy */
};

/* What each rank does: every rank gets the complete input and reads its shard; only rank 0 requests the output. */
static int run_rank(struct rt *rt, void *context) {
    struct job *job = context;
    void *outputs[gpt2_OUTPUTS] = {rt_rank(rt) == 0 ? job->logits : NULL};
    return gpt2_infer_step(rt, job->inputs, outputs);
}

static int64_t elements(const struct rt_port *port) {
    int64_t count = 1;
    for (int d = 0; d < port->ndim; d++) count *= port->dims[d];
    return count;
}

/* Reads a file with the port's data type and number of elements. */
static int read_tensor(struct rt_tensor *tensor, const char *path, const struct rt_port *port) {
    struct rt_reason why = {.text = "other type or shape than the model's"};
    if (rt_npy_read(tensor, path, &why) && tensor->dtype == port->dtype && tensor->count == elements(port)) return 0;
    fprintf(stderr, "embed: %s: %s\n", path, why.text);
    return 1;
}

static int compare(const float *logits, const float *expected, int64_t count) {
    float most = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        float difference = logits[i] > expected[i] ? logits[i] - expected[i] : expected[i] - logits[i];
        float size = expected[i] < 0 ? -expected[i] : expected[i];
        if (!(difference <= most)) most = difference;
        if (size > largest) largest = size;
    }
    printf("largest difference %.2g of %lld logits up to %.3g\n", most, (long long)count, largest);
    return !(most <= 1e-5f * largest);
}

int main(int argc, char **argv) {
    struct rt_tensor tokens = {0}, expected = {0};
    const struct rt_port *output = &gpt2_program.outputs[0];
    if (argc < 3) {
        fprintf(stderr, "usage: embed DIR TOKENS.npy [EXPECTED.npy]\n");
        return 2;
    }
    if (read_tensor(&tokens, argv[2], &gpt2_program.inputs[0])) return 1;
    struct job job = {.inputs = {tokens.data}, .logits = calloc((size_t)elements(output), sizeof(float))};
    int status = job.logits ? gpt2_run_threads(argv[1], 0, run_rank, &job) : RT_ERROR_SYSTEM;
    if (status) fprintf(stderr, "embed: %s\n", rt_error(NULL));
    if (!status)
        printf("%d ranks: %g %g %g ...\n", gpt2_program.plan_ngpus, job.logits[0], job.logits[1], job.logits[2]);
    if (!status && argc > 3)
        status = read_tensor(&expected, argv[3], output) || compare(job.logits, expected.data, expected.count);
    rt_tensor_free(&tokens);
    rt_tensor_free(&expected);
    free(job.logits);
    return status != 0;
}
