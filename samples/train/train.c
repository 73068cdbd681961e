/* A C program that trains a compiled samples/models/gpt2.onnx with its own loss: the model computes logits, and this
 * program computes the loss and its gradient. Compile with --train, for any number of ranks; each rank is a thread.
 *
 *     train DIR TOKENS.npy STEPS [CHECKPOINTS [UNITS]]
 *
 * DIR is the output directory of `rankc compile`. Prints the loss of every step; with CHECKPOINTS it writes a
 * checkpoint to that directory at the end. UNITS is the number of scale units, 1 by default. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <rankc/base/npy.h>

#include "model.h"

struct job {
    const char *checkpoints;
    const int64_t *tokens; /* (batch, length) */
    int steps;
};

/* Mean cross entropy of predicting each next token, and its gradient. Logits and gradient are (batch, length,
 * vocabulary). */
static double loss_of(const int64_t *tokens, const float *logits, float *gradient, const int64_t *dims) {
    const int64_t length = dims[1], vocabulary = dims[2], terms = dims[0] * (length - 1);
    double loss = 0;
    for (int64_t row = 0; row < dims[0] * length; row++, logits += vocabulary, gradient += vocabulary) {
        const int last = row % length == length - 1; /* the last token has no next token */
        double most = logits[0], sum = 0;
        for (int64_t v = 0; v < vocabulary; v++) most = logits[v] > most ? logits[v] : most;
        for (int64_t v = 0; v < vocabulary; v++) sum += exp(logits[v] - most);
        for (int64_t v = 0; v < vocabulary; v++)
            gradient[v] = last ? 0 : (float)(exp(logits[v] - most) / sum / (double)terms);
        if (last) continue;
        gradient[tokens[row + 1]] -= (float)(1 / (double)terms);
        loss += (most + log(sum) - logits[tokens[row + 1]]) / (double)terms;
    }
    return loss;
}

/* Every rank passes complete tensors, under every plan. All scale units have the same tokens here, and their gradients
 * are averaged. */
static int step(struct rt *rt, const struct job *job, float *logits, float *gradient, double *loss, double *norm) {
    const int64_t *dims = rt_program_output(&gpt2_program, gpt2_OUTPUT_logits)->dims;
    RT_TRY(gpt2_zero_grad(rt));
    RT_TRY(gpt2_forward(rt, (const void *[]){job->tokens}, (void *[]){logits}));
    *loss = loss_of(job->tokens, logits, gradient, dims);
    RT_TRY(gpt2_backward(rt, (const void *[]){gradient}, NULL));
    RT_TRY(gpt2_scale_grads(rt, 1.0 / rt_units(rt)));
    RT_TRY(gpt2_clip_gnorm(rt, 1, norm));
    return gpt2_step(rt);
}

/* What each rank does. */
static int train(struct rt *rt, void *context) {
    const struct job *job = context;
    float *logits = calloc(gpt2_COUNT_logits, sizeof *logits), *gradient = calloc(gpt2_COUNT_logits, sizeof *gradient);
    int status = logits && gradient ? RT_OK : RT_ERROR_SYSTEM;
    for (int s = 1; s <= job->steps && !status; s++) {
        double loss, norm;
        status = step(rt, job, logits, gradient, &loss, &norm);
        if (!status && rt_rank(rt) == 0) printf("step %d: loss %.9g, gradient norm %.9g\n", s, loss, norm);
    }
    const struct rt_position position = {job->steps, job->steps, -1};
    if (!status && job->checkpoints) status = gpt2_save(rt, job->checkpoints, &position);
    free(logits);
    free(gradient);
    return status;
}

int main(int argc, char **argv) {
    struct rt_tensor tokens = {0};
    struct rt_reason why;
    if (argc < 4) {
        fprintf(stderr, "usage: train DIR TOKENS.npy STEPS [CHECKPOINTS [UNITS]]\n");
        return 2;
    }
    if (!rt_npy_read(&tokens, argv[2], &why)) {
        fprintf(stderr, "train: %s\n", why.text);
        return 1;
    }
    int status = tokens.dtype != RT_I64 || tokens.count != gpt2_COUNT_input_ids;
    if (status) fprintf(stderr, "train: %s has another data type or shape than the model's input\n", argv[2]);
    for (int64_t i = 0; i < tokens.count && !status; i++) {
        const int64_t token = ((const int64_t *)tokens.data)[i];
        status = token < 0 || token >= rt_program_output(&gpt2_program, gpt2_OUTPUT_logits)->dims[2];
        if (status) fprintf(stderr, "train: token %lld is not in the vocabulary\n", (long long)token);
    }
    struct job job = {argc > 4 ? argv[4] : NULL, tokens.data, atoi(argv[3])};
    const int units = argc > 5 ? atoi(argv[5]) : 1;
    if (!status) {
        status = gpt2_run_threads(argv[1], units * rt_program_ranks(&gpt2_program), train, &job);
        if (status) fprintf(stderr, "train: %s\n", rt_error(NULL));
    }
    rt_tensor_free(&tokens);
    return status != 0;
}
