/* Segments and schedules: which parts of the order a rank executes as a unit, and when.
 *
 * A chunk is the nodes of one pipeline stage; without pipeline stages the whole graph is chunk 0. A segment is the part
 * of one phase that the ranks of one chunk execute: in generated code, one function. A schedule lists the segments that
 * the ranks at one pipeline coordinate execute in a step, in order, each with its micro-batch.
 *
 * Note [Slots]
 * What the forward segment of a chunk computes and its backward segment reads is kept in a slot. A micro-batch takes a
 * slot when its forward segment begins and frees it when its backward segment ends. The number of slots is the largest
 * number of micro-batches that are between the two. Without backward segments every micro-batch uses slot 0.
 *
 * Note [Repeated rows]
 * The number of micro-batches of a step is an option of a run (`rankc train --accumulate`), so a table cannot list all
 * of them. Its rows are those of `micro_batches` micro-batches. For each further one, rows [repeat_first, repeat_end)
 * are executed once more. Micro-batches and slots of the repetition, and of all rows after it, are one higher than
 * before; slots are counted modulo their number. Forward and backward in turn is thus a table of two repeated rows, and
 * 1F1B is one of warm-up rows, two repeated rows, and rows that drain the pipeline. A table without repeated rows fixes
 * the number of micro-batches. */
#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H

#include "ir/base/vec.h"
#include "runtime/base/manifest.h"

struct graph;
struct node;

/* The nodes at positions [first, end) of the order that ranks of the chunk take part in; all are of the phase.
 *
 * `in` lists the VALUEs that the segment reads and another segment of the chunk computes, in order of their first use;
 * `out` those that it computes and that another segment of the chunk reads or that are outputs of the graph, in the
 * order in which they are computed. The new value of a weight is read by the segment at whose end it is stored
 * (schedule_update_phase). */
struct segment {
    enum phase phase;
    int chunk, first, end;
    VEC(int) in, out; /* tensor ids */
};

/* A row: execute a segment of the graph. micro and slot are those of forward and backward segments, else 0. */
struct step_op {
    int segment, micro, slot;
};

struct schedule {
    VEC(struct step_op) ops;
    int micro_batches, repeat_first, repeat_end; /* Note [Repeated rows] */
    int slots;                                   /* Note [Slots] */
};

/* Bits for what the ranks of a stage (chunk) do of the node: read its operands (compute, send), have its results
 * (compute, receive). */
enum stage_part { STAGE_NONE = 0, STAGE_READS = 1, STAGE_WRITES = 2 };
int stage_part(const struct node *node, int stage);

/* Number of chunks: the size of the pipeline axis, 1 without one. */
int schedule_chunks(const struct graph *graph);

/* Number of phases with segments: all in a training program, else those up to the last node's. */
int schedule_phases(const struct graph *graph);

/* The phase at whose end the new value of a weight is stored (struct update). A value from the forward phase of a
 * training program is stored after the backward phase, which may still read the old one. */
enum phase schedule_update_phase(const struct graph *graph, int value);

/* The index in graph->segments of the segment of the chunk and phase; -1 if there is none. */
int schedule_find(const struct graph *graph, int chunk, enum phase phase);

struct diags;

/* Checks segments and schedules: every node is in the segment of its phase for each chunk that takes part in it; the
 * values of `in` and `out` are those that cross; every schedule executes each segment of its coordinate for each
 * micro-batch once, a backward segment after its forward segment and in the same slot, which no other micro-batch uses
 * in between. 0, or -1 after diagnostics. */
int schedule_verify(const struct graph *graph, struct diags *diags);

#endif
