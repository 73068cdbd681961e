/* Micro-batches for steps: one file of samples per input of the program, read in the order of one sampler. */
#ifndef RT_FEED_H
#define RT_FEED_H

#include "program/data.h"
#include "program/main.h"

struct feed {
    const struct rt_program *program;
    struct rt_data *data; /* per input */
    struct rt_sampler sampler;
    int64_t batch;               /* samples of a micro-batch */
    void **buffers;              /* [slot][input] */
    const void *const **samples; /* [slot] */
    int slots;
};

/* What was given of an option, as NAME=FILE. */
struct feed_options {
    const char *name; /* "--data" */
    const char *const *specs;
    int n;
};

/* Opens a file for every input of the program, in the order of the samples: RT_OK, or a status that is recorded in
 * `self`; feed_close is due in both cases. Room for `slots` micro-batches at once. Files of arrays have equally many
 * samples; of a file of tokens, what the others have no samples for is not read. */
int feed_open(struct feed *feed, struct rank *self, const struct feed_options *options, int slots);
void feed_close(struct feed *feed);

/* Reads micro-batch `index` of the run, of all units, into a slot: samples [index * batch, (index + 1) * batch). RT_OK,
 * or a status that is recorded in `self`: a file has been cut. */
int feed_read(struct feed *feed, struct rank *self, int slot, int64_t index);

/* Micro-batches that the data has without going on from its start. */
int64_t feed_micro_batches(const struct feed *feed);

#endif
