/* The schedule of one of Chimera's pipelines (Note [Opposite pipelines] in passes/plan/schedule/schedules.h). */
#ifndef PASSES_PLAN_SCHEDULE_CHIMERA_H
#define PASSES_PLAN_SCHEDULE_CHIMERA_H

struct column;

/* Lists the segments of a column whose coordinates have two chunks each, in the shape of a V. At most as many
 * micro-batches as there are coordinates are between their first forward and their last backward segment. */
void fill_chimera(struct column *column);

#endif
