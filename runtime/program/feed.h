/* Reads micro-batches: one file of samples per input of the program, all in the order of one sampler. */
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

/* The arguments NAME=FILE of an option. */
struct feed_options {
    const char *name; /* "--data" */
    const char *const *specs;
    int n;
};

/* Opens a file for every input of the program. RT_OK, or a status recorded in `self`; call feed_close in both cases.
 * All .npy files must have the same number of samples; a file of tokens may have more. */
int feed_open(struct feed *feed, struct rank *self, const struct feed_options *options);
/* Adds the contents of the files to what all ranks must agree on. RT_OK, or a status recorded in `self`. */
int feed_add_terms(const struct feed *feed, struct rank *self, const struct feed_options *options,
                   struct rt_terms *terms);
/* Allocates `slots` micro-batches, once. RT_OK, or a status recorded in `self`. */
int feed_allocate(struct feed *feed, struct rank *self, int slots);
void feed_close(struct feed *feed);

/* Reads micro-batch `index` of the run, counted over all scale units, into a slot: positions [index * batch, (index +
 * 1) * batch). RT_OK, or a status recorded in `self`: a file was truncated. */
int feed_read(struct feed *feed, struct rank *self, int slot, int64_t index);

/* Complete micro-batches in one pass over the data. */
int64_t feed_micro_batches(const struct feed *feed);

#endif
