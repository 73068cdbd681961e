/* A program of its own that runs samples/models/gpt2.onnx, compiled for any number of ranks: each rank is a thread here.
 *
 *     embed DIR TOKENS.npy [EXPECTED.npy]
 *
 * DIR is what rankc wrote. Prints the first logits; with EXPECTED it compares all of them, and exits with 1 where they
 * differ by more than rounding. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rankc/base/npy.h>

#include "model.h"

struct job {
    const char *directory;
    const void *inputs[gpt2_INPUTS];
    float *logits; /* complete: rank 0's copy */
};

struct rank {
    struct job *job;
    struct rt_comm *comm;
    pthread_t thread;
    int status;
    char error[256];
};

/* Each rank is given all of the input and takes its part; only rank 0 asks for the output. */
static void *run_rank(void *argument) {
    struct rank *rank = argument;
    const struct rt_options options = {.directory = rank->job->directory, .joined = rank->comm, .threads = 1};
    void *outputs[gpt2_OUTPUTS] = {rank->comm->rank == 0 ? rank->job->logits : NULL};
    struct rt *rt = NULL;
    rank->status = gpt2_open(&rt, &options);
    if (!rank->status) rank->status = gpt2_infer_step(rt, rank->job->inputs, outputs);
    if (rank->status) snprintf(rank->error, sizeof rank->error, "%s", rt_error(rt));
    if (rank->status) rank->comm->driver->abort(rank->comm); /* or the others would wait for this rank */
    if (rt) gpt2_close(rt);
    return NULL;
}

/* The ranks communicate through one piece of memory, zero before they start. 0, or 1 after a message. */
static int run_ranks(struct job *job) {
    const int world = gpt2_program.runtime_ngpus;
    const size_t symmetric = rt_program_symmetric(&gpt2_program), bytes = rt_comm_shared_bytes(world, symmetric);
    void *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rank *ranks = calloc((size_t)world, sizeof *ranks);
    int failed = segment == MAP_FAILED || !ranks;
    for (int r = 0; !failed && r < world; r++) {
        ranks[r].job = job;
        failed = rt_comm_open_shared(&ranks[r].comm, segment, r, world, symmetric);
    }
    if (failed) {
        fprintf(stderr, "embed: no memory for %d ranks\n", world);
        return 1;
    }
    for (int r = 0; r < world; r++) pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
    for (int r = 0; r < world; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].status && ranks[r].status != RT_ERROR_PEER)
            fprintf(stderr, "embed: rank %d: %s\n", r, ranks[r].error);
        failed |= ranks[r].status;
        ranks[r].comm->driver->close(ranks[r].comm);
    }
    munmap(segment, bytes);
    free(ranks);
    return failed != 0;
}

static int64_t elements(const struct rt_port *port) {
    int64_t count = 1;
    for (int d = 0; d < port->ndim; d++) count *= port->dims[d];
    return count;
}

/* A file of the port's type and as many elements. */
static int read_tensor(struct rt_tensor *tensor, const char *path, const struct rt_port *port) {
    struct rt_reason why = {.text = "other type or shape than the model's"};
    if (rt_npy_read(tensor, path, &why) && tensor->dtype == port->dtype && tensor->count == elements(port))
        return 0;
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
    struct job job = {
        .directory = argv[1], .inputs = {tokens.data}, .logits = calloc((size_t)elements(output), sizeof(float))};
    int status = job.logits ? run_ranks(&job) : 1;
    if (!status)
        printf("%d ranks: %g %g %g ...\n", gpt2_program.runtime_ngpus, job.logits[0], job.logits[1], job.logits[2]);
    if (!status && argc > 3)
        status = read_tensor(&expected, argv[3], output) || compare(job.logits, expected.data, expected.count);
    rt_tensor_free(&tokens);
    rt_tensor_free(&expected);
    free(job.logits);
    return status;
}
