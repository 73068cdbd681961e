/* The table that says when a rank executes each part of its program. The compiler fills it (ir/schedule.h), generated
 * programs contain it, and one loop of the runtime walks it (core/walk.c).
 *
 * A chunk is a part of the layers: the nodes of one pipeline stage. Without pipeline stages it is the whole program. A
 * pipeline coordinate (the ranks at that position of the pipeline axis) has one chunk or several, and numbers its own
 * from 0. A segment is what the ranks of one chunk execute of one phase, one function of the generated code. A row of a
 * schedule executes a segment for a micro-batch, or begins or ends the transfer of a value between chunks.
 *
 * Note [Slots]
 * What the forward segment of a chunk computes and its backward segments read is kept in a slot of the chunk. A
 * micro-batch takes a slot when its forward segment begins and frees it when its last backward segment ends. A chunk
 * needs about as many slots as there are micro-batches between the two at the same time; micro-batch m has slot m
 * modulo their number. Without backward segments there is nothing to keep: all micro-batches have slot 0.
 *
 * Under a zero-bubble schedule other micro-batches come between the two parts of a backward phase. A chunk then has
 * three sets of slots, each with a number of its own: for what is kept from the forward to the weight segment, for what
 * no weight segment reads, which is kept up to the end of the backward segment, and for what the backward segment
 * computes for the weight segment.
 *
 * Note [Repeated rows]
 * The number of micro-batches of a step is an option of a run (`rankc train --accumulate`), so a table cannot list all
 * of them. Its rows are those of `micro_batches` micro-batches. For each further one, rows [repeat_first, repeat_end)
 * are executed once more. In each repetition, and in all rows after the last one, micro-batches are one higher than
 * before. Forward and backward in turn is thus a table of two repeated rows;
 * 1F1B is warm-up rows, two repeated rows, and the rows that drain the pipeline. A table without repeated rows fixes
 * the number of micro-batches. */
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

/* Note [Transfers between chunks]
 * A value that another chunk reads is sent when the segment that computes it has been executed, and received before the
 * segment that reads it. Neither waits: a row posts the send or the receive, and a later row waits for its end. Both
 * ends lie in the slot of their micro-batch. A received value is waited for before its segment; a sent one of the
 * forward segment before the backward segment of the same slot, and all before the slot is used again. The messages
 * of a pair of ranks match in the order of posting. */
enum rt_step_kind { RT_RUN, RT_POST_SEND, RT_POST_RECEIVE, RT_WAIT };

enum { RT_MAX_CHUNKS = 16 }; /* of a rank */

/* The sets of slots of a chunk (Note [Slots]): a micro-batch has a slot from its forward to its last backward segment;
 * from FORWARD to BACKWARD; from BACKWARD to WEIGHT. Sets of all chunks are numbered by rt_slot_set. */
enum rt_slot_kind { RT_SLOT_WHOLE, RT_SLOT_TO_BACKWARD, RT_SLOT_TO_WEIGHT, RT_SLOT_KINDS };
enum { RT_SLOT_SETS = (int)RT_SLOT_KINDS * (int)RT_MAX_CHUNKS };
static inline int rt_slot_set(enum rt_slot_kind kind, int chunk) {
    return (int)kind * RT_MAX_CHUNKS + chunk;
}

/* A row. `chunk`: the segment's, of a transfer the one in whose slot the value lies, by the rank's own numbers.
 * micro is 0 for segments of the whole step. `transfer`: which of the rank's ends of transfers is posted or waited
 * for (struct rt_transfer in rt.h); `segment` then is the one that computes or reads the value. */
struct rt_step_op {
    int segment, chunk, micro;
    enum rt_step_kind kind;
    int transfer;
};

struct rt_schedule {
    int nops;
    const struct rt_step_op *ops;
    int micro_batches, repeat_first, repeat_end; /* Note [Repeated rows] */
    int nchunks, slots[RT_SLOT_SETS];            /* of the rank; slots of each set, 0 where there is no such set */
};

/* True if segments of the phase of a micro-batch may access slots of the kind. */
bool rt_slot_is_used(enum rt_slot_kind kind, enum phase phase);

/* The slot of the row's micro-batch among those that its chunk has for the whole micro-batch. */
int rt_schedule_slot(const struct rt_schedule *schedule, const struct rt_step_op *op);
/* The largest number of slots of a chunk; no set has more than its chunk has for whole micro-batches. */
int rt_schedule_most_slots(const struct rt_schedule *schedule);

/* True if a step may have that many micro-batches. */
bool rt_schedule_allows(const struct rt_schedule *schedule, int micro_batches);

/* A position in the walk of a table; zero-initialised at the start. */
struct rt_schedule_walk {
    int next, shift;      /* the next row; repetitions before it */
    struct rt_step_op op; /* the current row, its micro-batch as it is in this repetition */
};

/* Moves to the next row of a step with that many micro-batches; false after the last one. With fewer micro-batches than
 * the table has, its rows are walked once, and the caller skips those of micro-batches that do not exist. */
bool rt_schedule_next(const struct rt_schedule *schedule, int micro_batches, struct rt_schedule_walk *walk);

#ifdef __cplusplus
}
#endif

#endif
