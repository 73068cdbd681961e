/* What a manifest says of the schedule of pipeline stages in training. */
#ifndef CODEGEN_MANIFEST_SCHEDULE_H
#define CODEGEN_MANIFEST_SCHEDULE_H

#include "passes/train/training.h"
#include "runtime/base/text/json.h"

/* Writes "schedule": its name, the micro-batches of a step, the slots of each stage, the part of the time in which
 * stages wait by the cost model, for zero-bubble schedules also the part if steps overlapped
 * (timeline_bubble_overlapped), and the timeline with the times of timeline_simulate. Of many micro-batches that
 * are alike the timeline has the first ones. */
void manifest_put_schedule(struct rt_json_writer *writer, const struct graph *graph, const struct training *training);

#endif
