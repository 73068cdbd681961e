/* A column of a schedule: the segments of one pipeline coordinate (passes/plan/schedule/schedules.h). */
#ifndef PASSES_PLAN_COLUMN_H
#define PASSES_PLAN_COLUMN_H

#include "ir/base/vec.h"
#include "passes/plan/schedule/schedule_grid.h"

/* What a coordinate computes in a step, in order. For each micro-batch beyond those listed, cells [repeat_first,
 * repeat_end) are repeated, as rows are in Note [Repeated rows] in ir/step_table.h. */
struct column {
    struct arena *arena;
    int coordinate, coordinates, micro_batches;
    struct chunks chunks;
    VEC(struct cell) cells;
    int repeat_first, repeat_end;
};

#endif
