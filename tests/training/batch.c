/* What every rank is given by a training step through the typed struct of model.h: tests/training/gpt2, four
 * micro-batches of two scale units, pipeline stages.
 *
 *     batch DIR INPUT_IDS.npy LABELS.npy
 *
 * All ranks get the same numbers, also those that do not compute the loss. They are those of the other training call,
 * for which the micro-batches lie apart, and with other numbers of micro-batches too. */
#include <stdio.h>
#include <stdlib.h>

#include <rankc/base/npy.h>

#include "model.h"

enum { RANKS = 8, UNITS = 2, STEPS = 6, EACH = gpt2_COUNT_input_ids, MOST = gpt2_MICRO_BATCHES + 1 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "batch.c:%d: %s: rank %d: %s\n", __LINE__, #condition, rt_rank(rt), rt_error(rt));         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

struct job {
    const int64_t *tokens, *labels;
    bool apart;                                   /* through the other call */
    struct rt_train_result results[RANKS][STEPS]; /* apart: without the loss */
    double losses[RANKS][STEPS][MOST];            /* apart: of the micro-batches of the rank's unit */
};

static int micro_batches_of(int step) {
    return step % 2 ? MOST : gpt2_MICRO_BATCHES;
}

static void run_step(struct rt *rt, struct job *job, int step, struct rt_train_result *result) {
    const int n = micro_batches_of(step), first = step % 2 + rt_scale_unit(rt);
    const int64_t *tokens = job->tokens + first * EACH, *labels = job->labels + first * EACH;
    CHECK(rt_set_accumulate(rt, n) == RT_OK);
    if (!job->apart) {
        CHECK(gpt2_train(rt, &(struct gpt2_batch){.input_ids = tokens, .labels = labels}, result) == RT_OK);
        return;
    }
    const void *inputs[MOST][2], *const *samples[MOST];
    for (int j = 0; j < n; j++) {
        inputs[j][0] = tokens + j * EACH;
        inputs[j][1] = labels + j * EACH;
        samples[j] = inputs[j];
    }
    CHECK(gpt2_train_step(rt, samples, NULL, NULL, job->losses[rt_rank(rt)][step]) == RT_OK);
    result->gradient_norm = rt_gradient_norm(rt);
    result->learning_rate = rt_learning_rate(rt);
}

static int run(struct rt *rt, void *context) {
    struct job *job = context;
    int64_t micro_batches = 0;
    CHECK(rt_world(rt) == RANKS && rt_units(rt) == UNITS && rt_scale_unit(rt) == rt_rank(rt) / (RANKS / UNITS));
    for (int s = 0; s < STEPS; s++) {
        struct rt_train_result *result = &job->results[rt_rank(rt)][s];
        run_step(rt, job, s, result);
        micro_batches += UNITS * micro_batches_of(s);
        if (job->apart) continue;
        CHECK(result->step == s + 1 && result->micro_batches == micro_batches && !result->skipped);
        CHECK(result->loss_scale != result->loss_scale);
    }
    return RT_OK;
}

/* A step without one of its inputs. The ranks that do not read it fail because of the others. */
static int run_without(struct rt *rt, void *context) {
    const struct job *job = context;
    return gpt2_train(rt, &(struct gpt2_batch){.input_ids = job->tokens}, NULL);
}

/* The mean over both units, which any rank of a unit can tell. */
static double mean_of(const struct job *apart, int step) {
    const int n = micro_batches_of(step);
    double sums[UNITS] = {0};
    for (int u = 0; u < UNITS; u++)
        for (int j = 0; j < n; j++) sums[u] += apart->losses[u * (RANKS / UNITS)][step][j];
    return (sums[0] + sums[1]) / (n * UNITS);
}

static bool is_same(const struct rt_train_result *a, const struct rt_train_result *b) {
    return a->loss == b->loss && a->gradient_norm == b->gradient_norm && a->learning_rate == b->learning_rate;
}

int main(int argc, char **argv) {
    static struct job together, apart;
    struct rt_tensor tokens, labels;
    struct rt_reason why;
    if (argc != 4 || !rt_npy_read(&tokens, argv[2], &why) || !rt_npy_read(&labels, argv[3], &why)) return 2;
    together.tokens = apart.tokens = tokens.data;
    together.labels = apart.labels = labels.data;
    apart.apart = true;
    if (gpt2_run_threads(argv[1], RANKS, run, &together) || gpt2_run_threads(argv[1], RANKS, run, &apart)) {
        fprintf(stderr, "%s\n", rt_error(NULL));
        return 1;
    }
    if (gpt2_run_threads(argv[1], RANKS, run_without, &together) != RT_ERROR_USAGE) {
        fprintf(stderr, "labels were not missed: %s\n", rt_error(NULL));
        return 1;
    }
    for (int r = 0; r < RANKS; r++)
        for (int s = 0; s < STEPS; s++) {
            const struct rt_train_result *result = &together.results[r][s];
            apart.results[r][s].loss = mean_of(&apart, s);
            if (is_same(result, &together.results[0][s]) && is_same(result, &apart.results[r][s])) continue;
            fprintf(stderr, "step %d, rank %d: loss %.17g, norm %.17g; rank 0: %.17g, %.17g; apart: %.17g, %.17g\n",
                    s + 1, r, result->loss, result->gradient_norm, together.results[0][s].loss,
                    together.results[0][s].gradient_norm, apart.results[r][s].loss, apart.results[r][s].gradient_norm);
            return 1;
        }
    puts("all the same");
    rt_tensor_free(&tokens);
    rt_tensor_free(&labels);
    return 0;
}
