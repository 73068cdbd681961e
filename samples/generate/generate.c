/* A C program that writes tokens with a compiled writer.onnx, with any number of ranks. Each rank is a thread.
 *
 *     generate DIR COUNT ID...
 *
 * DIR is the output directory of `rankc compile --state auto --dim batch=1`. Prints the COUNT tokens that follow the
 * prompt's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum {
    ROWS = writer_COUNT_input_ids, /* at most so many tokens in a step */
    VOCABULARY = writer_COUNT_logits / ROWS
};

struct job {
    int64_t *prompt;
    int64_t given, total; /* tokens of the prompt, and with those that are to be written */
};

static int64_t greatest(const float *logits) {
    int64_t best = 0;
    for (int64_t v = 1; v < VOCABULARY; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

/* Appends n tokens to those in the caches; logits (n, VOCABULARY). */
static int step(struct rt *rt, const int64_t *tokens, int64_t n, float *logits) {
    int64_t mask[writer_COUNT_attention_mask], positions[ROWS];
    const int64_t past = writer_state_length(rt);
    for (int64_t i = 0; i < past + n; i++) mask[i] = 1;
    for (int64_t i = 0; i < n; i++) positions[i] = past + i;
    return writer_infer(rt, &(struct writer_tensors){{.sequence = n}, tokens, mask, positions, logits});
}

/* What each rank does. All get the same logits, and so write the same tokens. */
static int run_rank(struct rt *rt, void *context) {
    const struct job *job = context;
    int64_t *tokens = calloc((size_t)job->total, sizeof *tokens);
    float *logits = calloc(writer_COUNT_logits, sizeof *logits);
    int status = tokens && logits ? RT_OK : RT_ERROR_SYSTEM;
    if (!status) memcpy(tokens, job->prompt, (size_t)job->given * sizeof *tokens);
    for (int64_t done = 0, known = job->given, n; known < job->total && !status; done += n) {
        n = known - done < ROWS ? known - done : ROWS; /* a long prompt takes several steps */
        status = step(rt, tokens + done, n, logits);
        if (status || done + n < known) continue;
        tokens[known++] = greatest(logits + (n - 1) * VOCABULARY);
        if (rt_rank(rt) == 0) printf("%" PRId64 "\n", tokens[known - 1]);
    }
    free(tokens);
    free(logits);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: generate DIR COUNT ID...\n");
        return 2;
    }
    struct job job = {calloc((size_t)argc, sizeof *job.prompt), argc - 3, argc - 3 + atoi(argv[2])};
    if (!job.prompt) return 1;
    for (int i = 3; i < argc; i++) job.prompt[i - 3] = atoll(argv[i]);
    const int failed = writer_run_threads(argv[1], 0, run_rank, &job);
    if (failed) fprintf(stderr, "generate: %s\n", rt_error(NULL));
    free(job.prompt);
    return failed != 0;
}
