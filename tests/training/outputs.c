/* Outputs of a training step through the typed struct of model.h: tests/training/gpt2 with the logits and values of its
 * first layer as further outputs.
 *
 *     outputs DIR RANKS INPUT_IDS.npy LABELS.npy
 *
 * The outputs of all micro-batches are those of inference with the parameters before the step. A rank that is given
 * none of an output keeps its memory as it was; each output is given to at least one rank. After the step rt_output is
 * that of the last micro-batch, and rt_loss its loss. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rankc/base/npy.h>

#include "model.h"

enum { EACH = gpt2_COUNT_input_ids, N = gpt2_MICRO_BATCHES, UNTOUCHED = 12345 };

struct job {
    const int64_t *tokens, *labels;
    _Atomic int given[gpt2_OUTPUTS];
    _Atomic int wrong;
};

struct values {
    float loss[N], output[N * gpt2_COUNT_output], output_2[N * gpt2_COUNT_output_2];
};

static int infer(struct rt *rt, const struct job *job, struct values *to) {
    for (int j = 0; j < N; j++)
        RT_TRY(gpt2_infer(rt, &(struct gpt2_tensors){.input_ids = job->tokens + j * EACH,
                                                     .labels = job->labels + j * EACH,
                                                     .loss = to->loss + j,
                                                     .output = to->output + j * gpt2_COUNT_output,
                                                     .output_2 = to->output_2 + j * gpt2_COUNT_output_2}));
    return RT_OK;
}

/* Counts the rank among those that are given the output. */
static void compare(struct job *job, int port, const float *found, const float *expected, size_t count) {
    bool untouched = true;
    for (size_t i = 0; i < count; i++) untouched = untouched && found[i] == UNTOUCHED;
    if (!untouched) job->given[port]++;
    if (!untouched && memcmp(found, expected, count * sizeof *found) != 0) job->wrong++;
}

/* All micro-batches are N times as many elements as the last one, which is what rt_output has. */
static void compare_last(struct job *job, const struct rt *rt, int port, const float *expected, size_t count) {
    const float *last = rt_output(rt, port);
    const size_t each = count / N;
    if (last && memcmp(last, expected + count - each, each * sizeof *last) != 0) job->wrong++;
}

static int run(struct rt *rt, void *context) {
    struct job *job = context;
    struct values *expected = malloc(sizeof *expected), *found = malloc(sizeof *found);
    for (size_t i = 0; i < sizeof *found / sizeof(float); i++) ((float *)found)[i] = UNTOUCHED;
    int status = infer(rt, job, expected);
    if (!status)
        status = gpt2_train(rt,
                            &(struct gpt2_batch){.input_ids = job->tokens,
                                                 .labels = job->labels,
                                                 .loss = found->loss,
                                                 .output = found->output,
                                                 .output_2 = found->output_2},
                            NULL);
    compare(job, gpt2_OUTPUT_loss, found->loss, expected->loss, N);
    compare(job, gpt2_OUTPUT_output, found->output, expected->output, N * gpt2_COUNT_output);
    compare(job, gpt2_OUTPUT_output_2, found->output_2, expected->output_2, N * gpt2_COUNT_output_2);
    compare_last(job, rt, gpt2_OUTPUT_loss, expected->loss, N);
    compare_last(job, rt, gpt2_OUTPUT_output, expected->output, N * gpt2_COUNT_output);
    compare_last(job, rt, gpt2_OUTPUT_output_2, expected->output_2, N * gpt2_COUNT_output_2);
    if (rt_loss(rt) != expected->loss[N - 1]) job->wrong++;
    free(expected);
    free(found);
    return status;
}

int main(int argc, char **argv) {
    struct rt_tensor tokens, labels;
    struct rt_reason why;
    if (argc != 5 || !rt_npy_read(&tokens, argv[3], &why) || !rt_npy_read(&labels, argv[4], &why)) return 2;
    struct job job = {.tokens = tokens.data, .labels = labels.data};
    const int ranks = atoi(argv[2]), failed = gpt2_run_threads(argv[1], ranks, run, &job) != RT_OK;
    if (failed) fprintf(stderr, "%s\n", rt_error(NULL));
    for (int i = 0; i < gpt2_OUTPUTS; i++) printf("%d ", job.given[i]);
    printf("of %d ranks, %d wrong\n", ranks, job.wrong);
    rt_tensor_free(&tokens);
    rt_tensor_free(&labels);
    return failed;
}
