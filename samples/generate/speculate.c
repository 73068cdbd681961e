/* The same as generate.c with fewer steps of the model: a small one, the draft, guesses the next tokens, and the model
 * reads all guesses in one step. It keeps those that it would have written itself, so the result is generate.c's.
 *
 *     speculate DIR COUNT ID...
 *
 * DIR is what `rankc compile --state auto --dim batch=1 -o DIR` wrote of writer.onnx, with any number of ranks, and of
 * draft.onnx, with one: each rank has a draft of its own. Prints tokens; on stderr, how many steps that took. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft/_/model.h"
#include "writer/_/model.h"

enum {
    ROWS = writer_COUNT_input_ids, /* at most so many tokens in a step, of both */
    VOCABULARY = writer_COUNT_logits / ROWS,
    GUESSES = 4
};

struct job {
    const char *draft; /* directory */
    int64_t *prompt;
    int64_t given, total; /* tokens of the prompt, and with those that are to be written */
};

/* What a rank has. */
struct writing {
    struct rt *model, *draft;
    int64_t *tokens, known; /* the first `known` of them are; behind them is room for guesses */
    float *logits;          /* (ROWS, VOCABULARY) */
    int steps;
};

static int64_t greatest(const float *logits) {
    int64_t best = 0;
    for (int64_t v = 1; v < VOCABULARY; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

/* Completes the caches of either model to those of tokens[0..end). *last: the logits behind the last token; in front of
 * them are those of the step's other tokens. */
static int read_tokens(struct writing *writing, struct rt *rt, int64_t end, const float **last) {
    int64_t mask[writer_COUNT_attention_mask], positions[ROWS];
    for (int64_t past, n; (past = rt_state_length(rt)) < end; *last = writing->logits + (n - 1) * VOCABULARY) {
        n = end - past < ROWS ? end - past : ROWS;
        for (int64_t i = 0; i < past + n; i++) mask[i] = 1;
        for (int64_t i = 0; i < n; i++) positions[i] = past + i;
        RT_TRY(rt_set_sizes(rt, (int64_t[]){n, 0}));
        RT_TRY(
            rt_infer_step(rt, (const void *[]){writing->tokens + past, mask, positions}, (void *[]){writing->logits}));
    }
    return RT_OK;
}

/* Appends the guesses that the model agrees with, and the token that it writes behind them. */
static int write_some(struct writing *writing, int64_t guesses) {
    int64_t *next = writing->tokens + writing->known, right = 0;
    const float *last = NULL;
    for (int64_t i = 0; i < guesses; i++) {
        RT_TRY(read_tokens(writing, writing->draft, writing->known + i, &last));
        next[i] = greatest(last);
    }
    RT_TRY(read_tokens(writing, writing->model, writing->known + guesses, &last));
    writing->steps++;
    last -= guesses * VOCABULARY; /* of the last token that is known */
    while (right < guesses && greatest(last + right * VOCABULARY) == next[right]) right++;
    next[right] = greatest(last + right * VOCABULARY);
    writing->known += right + 1;
    RT_TRY(rt_state_truncate(writing->model, writing->known - 1));
    return rt_state_length(writing->draft) < writing->known ? RT_OK
                                                            : rt_state_truncate(writing->draft, writing->known - 1);
}

static int write_all(struct writing *writing, const struct job *job) {
    const float *last;
    memcpy(writing->tokens, job->prompt, (size_t)job->given * sizeof *writing->tokens);
    writing->known = job->given;
    RT_TRY(read_tokens(writing, writing->model, job->given - 1, &last));
    while (writing->known < job->total) {
        const int64_t left = job->total - writing->known - 1;
        RT_TRY(write_some(writing, left < GUESSES ? left : GUESSES));
    }
    for (int64_t i = job->given; i < job->total && rt_rank(writing->model) == 0; i++)
        printf("%" PRId64 "\n", writing->tokens[i]);
    if (rt_rank(writing->model) == 0) fprintf(stderr, "%d steps\n", writing->steps);
    return RT_OK;
}

/* What each rank does. All get the same logits, and so write the same tokens. */
static int run_rank(struct rt *rt, void *context) {
    const struct job *job = context;
    struct writing writing = {.model = rt,
                              .tokens = calloc((size_t)job->total + GUESSES, sizeof *writing.tokens),
                              .logits = calloc(writer_COUNT_logits, sizeof *writing.logits)};
    int status = writing.tokens && writing.logits ? RT_OK : RT_ERROR_SYSTEM;
    if (!status) status = draft_open(&writing.draft, &(struct rt_options){.directory = job->draft, .world = 1});
    if (!status) status = write_all(&writing, job);
    draft_close(writing.draft);
    free(writing.tokens);
    free(writing.logits);
    return status;
}

int main(int argc, char **argv) {
    char draft[4096], model[4096];
    if (argc < 4) {
        fprintf(stderr, "usage: speculate DIR COUNT ID...\n");
        return 2;
    }
    snprintf(draft, sizeof draft, "%s/draft/_", argv[1]);
    snprintf(model, sizeof model, "%s/writer/_", argv[1]);
    struct job job = {draft, calloc((size_t)argc, sizeof *job.prompt), argc - 3, argc - 3 + atoi(argv[2])};
    if (!job.prompt) return 1;
    for (int i = 3; i < argc; i++) job.prompt[i - 3] = atoll(argv[i]);
    const int failed = writer_run_threads(model, 0, run_rank, &job);
    if (failed) fprintf(stderr, "speculate: %s\n", rt_error(NULL));
    free(job.prompt);
    return failed != 0;
}
