/* Reads micro-batches: one file of samples per input of the program, all in the order of one sampler. */
#ifndef RT_FEED_H
#define RT_FEED_H

#include "program/main.h"

/* The order in which samples are read.
 *
 * A run reads positions 0, 1, 2 ..; every `samples` positions are an epoch, which has each sample once: in order, or in
 * a new random order. The sample at a position does not depend on earlier positions, so a run can be resumed at any
 * step. Scale units share the positions of a step, so together they see the same samples, however many units there
 * are. */
struct rt_sampler {
    int64_t samples; /* at least 1 */
    bool shuffle;
    uint64_t seed;
};

/* Index of the sample at a position of the run. */
int64_t rt_sampler_at(const struct rt_sampler *sampler, int64_t position);

/* The file of an input. */
struct rt_data {
    const struct rt_port *port;
    int64_t batch; /* samples per micro-batch */
    bool shared;   /* the one tensor in the file is that of all samples */
    bool tokens;   /* a file of tokens, which may have more samples than the other inputs */
    struct rt_reader file;
    int64_t first;               /* offset of sample 0 in the file */
    enum rt_dtype dtype;         /* in the file */
    int64_t samples, per_sample; /* per_sample: elements. shared: copies of the tensor, and its elements */
};

struct feed {
    const struct rt_program *program;
    struct rt_data *data; /* per input */
    struct rt_sampler sampler;
    int64_t batch;               /* samples of a micro-batch */
    bool pads;                   /* the last micro-batch of a pass may have fewer, whose further labels do not count */
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

/* Micro-batches in one pass over the data: complete ones, and with `pads` one of the rest; the samples that count in
 * one. feed_can_pad: the labels have a number that does not count. */
int64_t feed_micro_batches(const struct feed *feed);
int64_t feed_samples(const struct feed *feed, int64_t index);
bool feed_can_pad(const struct feed *feed, const struct rank *self);

#endif
