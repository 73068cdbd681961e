/* A C program that trains a compiled samples/models/gpt2.onnx with the loss that was compiled in, one call per step.
 * Compile with --train --loss cross_entropy, for any number of ranks; each rank is a thread.
 *
 *     fit DIR STEPS INPUT_IDS.npy LABELS.npy [UNITS [CHECKPOINTS]]
 *
 * DIR is the output directory of `rankc compile`. Prints the loss of every step. UNITS is the number of scale units, 1
 * by default. With CHECKPOINTS it goes on after the newest checkpoint in that directory, and writes one at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rankc/base/npy.h>

#include "model.h"

enum { LENGTH = 11, SAMPLES = gpt2_MICRO_BATCHES * gpt2_COUNT_input_ids / LENGTH }; /* of a scale unit's step */

struct job {
    struct rt_tensor tokens, labels; /* (samples, LENGTH) */
    const char *checkpoints;         /* NULL: none */
    int steps;
};

/* Copies the samples from number `first` on, and from the start again where the data end. */
static void take(int64_t batch[SAMPLES][LENGTH], const struct rt_tensor *data, int64_t first) {
    const int64_t(*samples)[LENGTH] = data->data;
    for (int i = 0; i < SAMPLES; i++) memcpy(batch[i], samples[(first + i) % data->dims[0]], sizeof batch[i]);
}

/* What each rank does. All ranks of a scale unit take the same samples; each scale unit takes others. */
static int train(struct rt *rt, void *context) {
    const struct job *job = context;
    int64_t tokens[SAMPLES][LENGTH], labels[SAMPLES][LENGTH];
    const struct gpt2_batch batch = {.input_ids = tokens[0], .labels = labels[0]};
    struct rt_position position = {.seed = -1};
    struct rt_train_result result;
    if (job->checkpoints && rt_checkpoint_exists(job->checkpoints))
        RT_TRY(gpt2_load(rt, job->checkpoints, "latest", &position));
    while (position.step < job->steps) {
        const int64_t first = (position.step * rt_units(rt) + rt_scale_unit(rt)) * SAMPLES;
        take(tokens, &job->tokens, first);
        take(labels, &job->labels, first);
        RT_TRY(gpt2_train(rt, &batch, &result));
        if (rt_rank(rt) == 0)
            printf("step %lld: loss %.9g, gradient norm %.9g, learning rate %.9g\n", (long long)result.step,
                   result.loss, result.gradient_norm, result.learning_rate);
        position.step = result.step;
        position.micro_batches = result.micro_batches;
    }
    return job->checkpoints ? gpt2_save(rt, job->checkpoints, &position) : RT_OK;
}

static int read_data(struct rt_tensor *tensor, const char *path) {
    struct rt_reason why = {.text = "not int64 samples as long as the model's"};
    if (rt_npy_read(tensor, path, &why) && tensor->dtype == RT_I64 && tensor->ndim == 2 && tensor->dims[0] > 0 &&
        tensor->dims[1] == LENGTH && rt_program_input(&gpt2_program, gpt2_INPUT_input_ids)->dims[1] == LENGTH)
        return 0;
    fprintf(stderr, "fit: %s: %s\n", path, why.text);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: fit DIR STEPS INPUT_IDS.npy LABELS.npy [UNITS [CHECKPOINTS]]\n");
        return 2;
    }
    struct job job = {.steps = atoi(argv[2]), .checkpoints = argc > 6 ? argv[6] : NULL};
    const int units = argc > 5 ? atoi(argv[5]) : 1;
    int failed = read_data(&job.tokens, argv[3]) || read_data(&job.labels, argv[4]);
    if (!failed && gpt2_run_threads(argv[1], units * rt_program_ranks(&gpt2_program), train, &job)) {
        fprintf(stderr, "fit: %s\n", rt_error(NULL));
        failed = 1;
    }
    rt_tensor_free(&job.tokens);
    rt_tensor_free(&job.labels);
    return failed;
}
