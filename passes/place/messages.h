/* The order in which pipeline coordinates post their receives.
 *
 * Note [Order of messages]
 * Messages between two ranks match in the order of posting. Each rank sends a value when the segment that computes it
 * has been executed, so the order of sends follows from the columns of a schedule alone. A rank may need the values in
 * another order, if it has several chunks: a gradient of tied weights for its first chunk is sent before the gradients
 * that its second chunk waits for. So before it posts the receive that a segment needs, it posts those of all messages
 * that are sent before that one.
 *
 * A rank waits for the end of its sends before it takes a slot again, and so for the receives of the other side. These
 * must not come too late: a rank with several chunks also posts the receives of the messages that the same segment of
 * the sender sends, and, before each cell, those of the next messages as long as their memory is in a slot that their
 * micro-batch has. Gradients lie in a slot from the posting of their receive on: of each chunk, they are received ahead
 * for MESSAGES_AHEAD micro-batches. */
#ifndef PASSES_PLACE_MESSAGES_H
#define PASSES_PLACE_MESSAGES_H

#include "ir/schedule.h"
#include "passes/plan/schedule/schedules.h"

/* That one is received while another is used. */
enum { MESSAGES_AHEAD = 2 };

/* A receive that is posted before cell number `cell` of the coordinate's column. */
struct arrival {
    int cell, end, micro; /* end: number of the end of the transfer on the coordinate */
};
struct arrivals {
    VEC(struct arrival) all; /* in the order of posting */
};

/* The receives of the coordinate. columns, ends: of every coordinate. Memory is of graph->arena. */
struct arrivals messages_order(const struct graph *graph, const struct column *columns,
                               const struct transfer_ends *ends, int coordinate);

#endif
