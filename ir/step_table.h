/* The table that says when the ranks of a pipeline coordinate execute each part of their program. Passes fill it
 * (passes/place/schedule.c), schedule_verify and the simulator walk it, and code generation prints it as the function
 * of a step (codegen/step.h). runtime/base/schedule.h defines chunk, segment and slot.
 *
 * A row executes a segment for a micro-batch, or begins or ends the transfer of a value between chunks.
 *
 * Note [Repeated rows]
 * The number of micro-batches of a step is an option of a run (`rankc train --accumulate`), so a table cannot list all
 * of them. Its rows are those of `shape.micro_batches` micro-batches. For each further one, rows [repeat_first,
 * repeat_end) are executed once more. In each repetition, and in all rows after the last one, micro-batches are one
 * higher than before. Forward and backward in turn is thus a table of two repeated rows; 1F1B is warm-up rows, two
 * repeated rows, and the rows that drain the pipeline. A table without repeated rows fixes the number of
 * micro-batches.
 *
 * Note [Transfers between chunks]
 * A value that another chunk reads is sent when the segment that computes it has been executed, and received before the
 * segment that reads it. Neither waits: a row posts the send or the receive, and a later row waits for its end. Both
 * ends lie in the slot of their micro-batch. A received value is waited for before its segment; a sent one of the
 * forward segment before the backward segment of the same slot, and all before the slot is used again. The messages
 * of a pair of ranks match in the order of posting. */
#ifndef IR_STEP_TABLE_H
#define IR_STEP_TABLE_H

#include "runtime/base/schedule.h"

enum step_kind { STEP_RUN, STEP_POST_SEND, STEP_POST_RECEIVE, STEP_WAIT };

/* A row. `chunk`: the segment's, of a transfer the one in whose slot the value lies, by the coordinate's own numbers.
 * micro is 0 for segments of the whole step. `transfer`: which of the coordinate's ends of transfers (schedule_ends in
 * ir/schedule.h) is posted or waited for; `segment` then is the one that computes or reads the value. */
struct step_op {
    int segment, chunk, micro;
    enum step_kind kind;
    int transfer;
};

struct schedule {
    struct rt_schedule shape; /* its `repeats` says whether there are repeated rows */
    int nops;
    const struct step_op *ops;
    int repeat_first, repeat_end; /* Note [Repeated rows] */
};

/* A position in the walk of a table; zero-initialised at the start. */
struct schedule_walk {
    int next, shift;   /* the next row; repetitions before it */
    struct step_op op; /* the current row, its micro-batch as it is in this repetition */
};

/* Moves to the next row of a step with that many micro-batches, which the schedule allows; false after the last one. */
bool schedule_next(const struct schedule *schedule, int micro_batches, struct schedule_walk *walk);

#endif
