/* The order in which samples are read.
 *
 * A run reads positions 0, 1, 2 ..; every `samples` positions are an epoch, which has each sample once: in order, or in
 * a new random order. The sample at a position does not depend on earlier positions, so a run can be resumed at any
 * step. Scale units share the positions of a step, so together they see the same samples, however many units there
 * are. */
#ifndef RT_SAMPLER_H
#define RT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct rt_sampler {
    int64_t samples; /* at least 1 */
    bool shuffle;
    uint64_t seed;
};

/* Index of the sample at a position of the run. */
int64_t rt_sampler_at(const struct rt_sampler *sampler, int64_t position);

#endif
