/* Simulation of schedules: the tables of all pipeline coordinates are walked together, as the runtime walks them. It
 * proves that every wait ends and that messages match, and says when each segment would be executed. */
#ifndef IR_TIMELINE_H
#define IR_TIMELINE_H

#include "ir/schedule.h"

/* A segment executed for a micro-batch. */
struct timeline_run {
    int coordinate, segment, micro;
    double begin, end;
};

struct timeline {
    VEC(struct timeline_run) runs; /* in the order of the simulation; of a coordinate, by time */
    int micro_batches;
    double end;           /* of the last segment of a micro-batch */
    double *first, *last; /* per coordinate: begin of its first segment of a micro-batch, end of its last */
    double *busy;         /* per coordinate: time in segments of micro-batches */
    double *moving;       /* per coordinate: time in which it waits for a message on its way */
    /* of tables that do not complete: the chunk in whose slot a value lies whose receive is waited for; -1: none */
    int stuck;
    /* the chunk in whose slots values lie that coordinates wait longest to have sent, before further segments; -1: none
     * are waited for */
    int delayed;
};

/* What a simulation takes as given. */
struct timeline_times {
    /* of each segment; NULL: a forward segment takes 1, a backward segment 2, or 1 if it has a weight segment, which
     * takes 1 */
    const double *seconds;
    const double *messages;           /* of each node: from when both ends of its message are posted; NULL: none */
    const struct transfer_ends *ends; /* schedule_ends; NULL: not known */
};

/* Simulates a step with that many micro-batches. Returns NULL, or what is wrong: a wait that never ends, a message that
 * does not match. Memory is of graph->arena. */
const char *timeline_simulate(const struct graph *graph, int micro_batches, const struct timeline_times *times,
                              struct timeline *timeline);

/* Checks the verified tables together: the table as it is, with a further micro-batch, and with as many as it takes to
 * come to the same slots again. 0, or -1 after a diagnostic. */
int timeline_verify(const struct graph *graph, struct diags *diags);

/* The part of the time in which coordinates wait for each other: 1 - sum of busy and moving / (coordinates x end). */
double timeline_bubble(const struct timeline *timeline, int coordinates);

/* The same if a coordinate began the next step without waiting for the others: a step then takes as long as the longest
 * time from the first segment of a coordinate to its last. */
double timeline_bubble_overlapped(const struct timeline *timeline, int coordinates);

/* The coordinate's line of the timeline of a simulation without `seconds`: "2" is the forward segment of micro-batch 2,
 * "2'" its backward segment, '2"' its weight segment; three columns are a unit of time. A coordinate with several
 * chunks has a further column, and "2b" is the forward segment of its second chunk; so do weight segments. */
const char *timeline_text(struct arena *arena, const struct graph *graph, const struct timeline *timeline,
                          int coordinate);

#endif
