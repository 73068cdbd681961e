/* The order in which samples are read.
 *
 * A run reads positions 0, 1, 2 ..; every `samples` of them are an epoch, which has each sample once: in order, or
 * shuffled anew. A position says which sample it is without anything before it, so a run goes on from any step, and
 * however many units share the positions of a step, together they see the same samples. */
#ifndef RT_SAMPLER_H
#define RT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct rt_sampler {
    int64_t samples; /* at least 1 */
    bool shuffle;
    uint64_t seed;
};

/* The sample at a position of the run. */
int64_t rt_sampler_at(const struct rt_sampler *sampler, int64_t position);

#endif
