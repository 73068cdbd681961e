/* Schedules: when each pipeline stage computes the segments of a step's micro-batches.
 *
 * A schedule is a row of schedules.def. Its function lists the segments of one stage in order. All else is derived from
 * the lists (passes/place/schedule.c), so that nothing else depends on which schedule it is. Programs without pipeline
 * stages compute forward and backward of one micro-batch after the other, whatever the schedule. */
#ifndef PASSES_PLAN_SCHEDULES_H
#define PASSES_PLAN_SCHEDULES_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "runtime/base/schedule.h"

/* A segment of the stage, for one micro-batch. */
struct cell {
    enum phase phase; /* PHASE_FORWARD or PHASE_BACKWARD */
    int micro;
};

/* What the stage computes in a step, in order. For each micro-batch beyond those listed, cells [repeat_first,
 * repeat_end) are repeated, as rows are in Note [Repeated rows] in runtime/base/schedule.h. */
struct column {
    struct arena *arena;
    int stage, stages, micro_batches;
    VEC(struct cell) cells;
    int repeat_first, repeat_end;
};

struct schedule_kind {
    const char *name;
    void (*fill)(struct column *column);
    const char *help;
};

/* The row of that name; NULL: there is none. */
const struct schedule_kind *schedule_kind_find(const char *name);

/* The schedule of programs with pipeline stages that do not choose one. */
extern const char *const schedule_default;

/* Number of micro-batches in the columns of a step of `micro_batches`: fewer where cells are repeated for the rest. */
int schedule_listed(const struct schedule_kind *kind, int stages, int micro_batches);

/* E0202 unless there is a schedule of that name. */
int schedule_check(const char *name, struct diags *diags);

#endif
