/* Segments (struct segment) are the parts of the order that ranks execute as a unit. Schedules say when
 * (ir/step_table.h; runtime/base/schedule.h defines chunk, segment and slot). */
#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H

#include "ir/ir.h"

/* Bits for what the ranks of a stage (chunk) do of the node: read its operands (compute, send), have its results
 * (compute, receive). */
enum stage_part { STAGE_NONE = 0, STAGE_READS = 1, STAGE_WRITES = 2 };
int stage_part(const struct node *node, int stage);

/* Number of coordinates on the pipeline axis; 1 without one. */
int schedule_coordinates(const struct graph *graph);
/* Number of chunks: at least one for each coordinate. */
int schedule_chunks(const struct graph *graph);
/* The coordinate that has the chunk; its first chunk; the chunk's number among those of its coordinate. */
int schedule_home(const struct graph *graph, int chunk);
int schedule_first(const struct graph *graph, int coordinate);
int schedule_number(const struct graph *graph, int chunk);

/* True if every coordinate has at least one of the chunks and at most RT_MAX_CHUNKS, and no other has any. */
bool chunks_are_whole(const struct chunks *chunks, int coordinates);

/* True for a Transfer that schedules post and wait for (Note [Transfers between chunks] in ir/step_table.h):
 * those of the phases of micro-batches in training, and those of inference of several micro-batches. Others are
 * executed in their segments. */
bool schedule_posts(const struct graph *graph, const struct node *node);

/* An end of a posted transfer: `node` sends or receives in segments of `chunk`. `owner`: the chunk in whose slot the
 * value lies (schedule_owners). of_backward: only backward segments of that chunk, which are the last of a micro-batch,
 * access it and what may lie in its memory, and it is not both received and sent. */
struct transfer_end {
    int node, tensor, chunk, owner; /* tensor: the sent or received one */
    bool sends, of_backward;
};
struct transfer_ends {
    VEC(struct transfer_end) all;
};
/* Per tensor: the first chunk of the coordinate that computes or reads it in the phases of micro-batches, or another
 * that may lie in the same memory; the number of chunks if none does. The value lies in a slot of this chunk, which
 * is free last. In graph->arena. */
const int *schedule_owners(const struct graph *graph, int coordinate);

/* Of each coordinate the ends on its ranks, in the order of their nodes; rows refer to them by number. In
 * graph->arena. */
const struct transfer_ends *schedule_ends(const struct graph *graph);

/* The set of slots of the coordinate in one of which the value lies. */
int schedule_end_set(const struct graph *graph, const struct rt_schedule *shape, const struct transfer_end *end);

/* Number of phases with segments: all in a training program, else those up to the last node's. */
int schedule_phases(const struct graph *graph);

/* The last phase of a micro-batch: FORWARD in inference, WEIGHT if the graph has nodes of that phase, else BACKWARD. */
enum phase schedule_last_phase(const struct graph *graph);

/* The phases of a micro-batch whose segments access a slot of the kind (Note [Slots] in runtime/base/schedule.h): the
 * first takes it and the last frees it. last: that of schedule_last_phase. */
struct slot_span {
    enum phase first, last;
};
struct slot_span schedule_slot_span(enum rt_slot_kind kind, enum phase last);

/* The phase at whose end the new value of a weight is stored (struct update). A value from the forward phase of a
 * training program is stored after the backward phase, which may still read the old one. With pipeline stages it is
 * stored after the forward phase if the backward phase does not read the old one, because the forward segments of
 * further micro-batches come before that backward segment. */
enum phase schedule_update_phase(const struct graph *graph, const struct update *update);

/* True for the segment at whose end the new value is stored: that of schedule_update_phase for the chunk that computes
 * the value; of a value that no node computes, for the first chunk of each coordinate. */
bool schedule_stores(const struct graph *graph, const struct segment *segment, const struct update *update);

/* The index in graph->segments of the segment of the chunk and phase; -1 if there is none. */
int schedule_find(const struct graph *graph, int chunk, enum phase phase);

/* Checks segments and schedules: every node is in the segment of its phase for each chunk that takes part in it; the
 * values of `in` and `out` are those that cross; every schedule executes each segment of its coordinate for each
 * micro-batch once, a backward segment after its forward segment and in the same slot, a weight segment after its
 * backward segment, and no other micro-batch uses the slot in between; values that cross chunks arrive before they are
 * read. 0, or -1 after diagnostics. */
int schedule_verify(const struct graph *graph, struct diags *diags);

#endif
