/* The choice of the next token from a row of logits: what the logits processors and warpers of Hugging Face's
 * transformers do (generation/logits_process.py), in the order in which generate() applies them:
 *
 *   repetition penalty, suppressed tokens, temperature, top-k, top-p, min-p; then a draw, or the greatest score
 *
 * Draws are counter-based (base/number/philox.h): a token depends on seed, row and position, and not on the plan of the
 * program, the other rows of the batch or how many tokens a step computes. */
#ifndef RT_SAMPLE_H
#define RT_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/inline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rt_sampling {
    double temperature; /* scores are divided by it; 0: the greatest is taken, and the rest of this is not read */
    int64_t top_k;      /* keep scores that are not below the k-th greatest; 0: all */
    double top_p;       /* keep the most likely tokens whose sum of probabilities reaches it; 1: all */
    double min_p;       /* keep tokens of at least this share of the greatest probability; 0: all */
    double repetition_penalty; /* of tokens that the row has; 1: none. It also holds where the greatest is taken */
    uint64_t seed;
};

/* What greedy decoding without a penalty needs. */
#define RT_SAMPLING_GREEDY ((struct rt_sampling){.top_p = 1, .repetition_penalty = 1})

/* Tokens that a row has: a bit for each of the vocabulary, 0 at first. The caller allocates rt_seen_words(vocabulary)
 * words. */
RT_INLINE int64_t rt_seen_words(int64_t vocabulary) {
    return (vocabulary + 63) / 64;
}
static inline void rt_seen_add(uint64_t *seen, int64_t id) {
    seen[id / 64] |= UINT64_C(1) << id % 64;
}

/* Divides the scores of seen tokens by the penalty, or multiplies those below 0 with it. */
void rt_sample_penalise(float *scores, int64_t vocabulary, const uint64_t *seen, double penalty);

/* Chooses a token: its id, or -1 if a score is NaN or all are -INFINITY. `scores` is changed, `scratch` has room for as
 * many. Of equal scores the lowest id counts as the greatest. row, position: the number of the row in the batch, and
 * how many tokens it has, without padding. */
int64_t rt_sample(const struct rt_sampling *sampling, float *scores, float *scratch, int64_t vocabulary, uint64_t row,
                  uint64_t position);

#ifdef __cplusplus
}
#endif

#endif
