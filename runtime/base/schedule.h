/* The phases of a step, and what a runtime needs to know of its schedule: how many micro-batches a step may have, and
 * where they keep what they compute. A step itself is a function of the generated program (struct rt_rank_class in
 * generated.h), which the compiler prints from a table (ir/step_table.h).
 *
 * A chunk is a part of the layers: the nodes of one pipeline stage. Without pipeline stages it is the whole program. A
 * pipeline coordinate (the ranks at that position of the pipeline axis) has one chunk or several, and numbers its own
 * from 0. A segment is what the ranks of one chunk execute of one phase, one function of the generated code.
 *
 * Note [Slots]
 * What the forward segment of a chunk computes and its backward segments read is kept in a slot of the chunk. A
 * micro-batch takes a slot when its forward segment begins and frees it when its last backward segment ends. A chunk
 * needs about as many slots as there are micro-batches between the two at the same time; micro-batch m has slot m
 * modulo their number. Without backward segments there is nothing to keep: all micro-batches have slot 0.
 *
 * A chunk may have three sets of slots, each with a number of its own: for what is kept during the whole micro-batch,
 * for what is kept up to the end of the backward segment and is neither sent nor received, and for what begins with the
 * backward segment. Under a zero-bubble schedule other micro-batches come between the two parts of a backward phase;
 * the last set is then for what the backward segment computes for the weight segment. Else it is for the gradients that
 * are received and sent: a receive is posted when the slot is free, and the slot is free when its sends have ended. */
#ifndef RT_BASE_SCHEDULE_H
#define RT_BASE_SCHEDULE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The phases of a training step: forward and backward of each micro-batch; then, once, the reduction of gradients over
 * scale units, and the update of parameters. Inference is the forward phase alone. Under a zero-bubble schedule the
 * backward phase of a micro-batch has two parts: PHASE_BACKWARD computes the gradients that other chunks wait for,
 * PHASE_WEIGHT the rest, which is mostly gradients of weights. Other programs have no segment of PHASE_WEIGHT. */
enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_WEIGHT, PHASE_REDUCE, PHASE_UPDATE, PHASES };

enum { RT_MAX_CHUNKS = 16 }; /* of a rank */

/* The sets of slots of a chunk (Note [Slots]): a micro-batch has a slot from its forward to its last backward segment;
 * from FORWARD to BACKWARD; from BACKWARD to the last. Sets of all chunks are numbered by rt_slot_set. */
enum rt_slot_kind { RT_SLOT_WHOLE, RT_SLOT_TO_BACKWARD, RT_SLOT_FROM_BACKWARD, RT_SLOT_KINDS };
enum { RT_SLOT_SETS = (int)RT_SLOT_KINDS * (int)RT_MAX_CHUNKS };
static inline int rt_slot_set(enum rt_slot_kind kind, int chunk) {
    return (int)kind * RT_MAX_CHUNKS + chunk;
}

/* A device that records a segment for each combination of slots, as CUDA graphs do, records so many at most. */
enum { RT_MOST_COMBINATIONS = 32 };

/* The shape of a rank's schedule. A step has `micro_batches` micro-batches; if it `repeats`, that many or more. */
struct rt_schedule {
    int micro_batches;
    bool repeats;
    int nchunks, slots[RT_SLOT_SETS]; /* slots of each set, 0 where there is no such set */
};

/* True if segments of the phase of a micro-batch may access slots of the kind. */
bool rt_slot_is_used(enum rt_slot_kind kind, enum phase phase);

/* The slot of the micro-batch among those that the chunk has for the whole micro-batch. */
int rt_schedule_slot(const struct rt_schedule *schedule, int chunk, int micro);
/* The largest number of slots of a chunk; no set has more than its chunk has for whole micro-batches. */
int rt_schedule_most_slots(const struct rt_schedule *schedule);

/* True if a step may have that many micro-batches. */
bool rt_schedule_allows(const struct rt_schedule *schedule, int micro_batches);

#ifdef __cplusplus
}
#endif

#endif
