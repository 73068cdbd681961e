/* Schedules: when each pipeline coordinate computes the segments of a step's micro-batches.
 *
 * A schedule is a row of schedules.def. Its function lists the segments of one coordinate in order. All else is derived
 * from the lists (passes/place/schedule.c), so that nothing else depends on which schedule it is. Programs without
 * pipeline stages compute forward and backward of one micro-batch after the other, whatever the schedule.
 *
 * A coordinate has one chunk (pipeline stage) or several. The schedule says how many, and so how many stages a policy
 * divides the layers into, and at which coordinate each chunk is. */
#ifndef PASSES_PLAN_SCHEDULES_H
#define PASSES_PLAN_SCHEDULES_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "passes/plan/schedule/schedule_grid.h"

/* A column of a schedule: what a coordinate computes in a step, in order. For each micro-batch beyond those listed,
 * cells [repeat_first, repeat_end) are repeated, as rows are in Note [Repeated rows] in ir/step_table.h. */
struct column {
    struct arena *arena;
    int coordinate, coordinates, micro_batches;
    struct chunks chunks;
    VEC(struct cell) cells;
    int repeat_first, repeat_end;
};

enum { SCHEDULE_PROPOSED = 5 };

/* A row of schedules.def. */
struct schedule_kind {
    const char *name;
    void (*fill)(struct column *column);
    const char *help;
    const char *options;
    bool splits, is_v, infers;
    double kept; /* 0: 1.2 */
    const char *proposed[SCHEDULE_PROPOSED];
};

/* A schedule as the user names it: a row, and the number of chunks of each coordinate; or a grid (schedule_grid.h). */
struct schedule_choice {
    const struct schedule_kind *kind;
    int chunks;
    const struct grid *grid; /* NULL: none; `kind` is NULL otherwise */
};

/* The schedule of programs with pipeline stages that do not choose one. */
extern const char *const schedule_default;
/* The only schedule of programs that are not trained. */
extern const char *const schedule_of_inference;

/* The schedules that a search proposes beside the default, as the user names them: number `i`; NULL after the last. */
const char *schedule_proposed(int i);

/* True if a row has the name, which options may follow. */
bool schedule_is_known(const char *text);

/* Reads the name of a schedule with its options, such as "interleaved:v=2"; NULL: the default. A text of several
 * lines is a grid. 0, or -1 after a diagnostic: E0202 for an unknown name, E0205 for an option, E0427 for a grid. */
int schedule_choose(struct schedule_choice *choice, const char *text, struct diags *diags);

/* The chunks of the schedule at that many coordinates. */
struct chunks schedule_chunks_of(const struct schedule_choice *choice, int coordinates, struct arena *arena);

/* Number `i` of a coordinate's chunks, in the order of stages; not of a grid. */
int schedule_chunk(const struct schedule_choice *choice, int coordinates, int coordinate, int i);

/* True if the schedule says when gradients of weights are computed. */
bool schedule_splits(const struct schedule_choice *choice);

/* E0205 if the schedule cannot have that many coordinates or micro-batches. */
int schedule_check_sizes(const struct schedule_choice *choice, int coordinates, int micro_batches, struct diags *diags);

/* Sets the cells of a column whose coordinates, micro-batches and chunks are set. */
void schedule_fill(const struct schedule_choice *choice, struct column *column);

/* A step of the schedule with segments of equal length: forward takes a unit of time, backward two, or one and the
 * weight segment one. For predictions; what it says of 2 x coordinates micro-batches holds for more. */
struct schedule_outline {
    double waiting;     /* that the step takes longer than a rank's own segments, in those of a micro-batch */
    double slots, last; /* micro-batches whose activations a rank keeps: the one with most; the last one */
};
struct schedule_outline schedule_outline(const struct schedule_choice *choice, int coordinates, int micro_batches,
                                         struct arena *arena);

/* Bytes of a slot, as a multiple of what a micro-batch keeps in a program without stages, where more shares memory. */
double schedule_kept(const struct schedule_choice *choice);

/* Number of micro-batches in the columns of a step of `micro_batches`: fewer where cells are repeated for the rest. */
int schedule_listed(const struct schedule_choice *choice, int coordinates, int micro_batches);

#endif
