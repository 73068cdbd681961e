/* Learning rates over the steps of a training run: the rows of schedules.def with their numbers. */
#ifndef RT_BASE_SCHEDULE_H
#define RT_BASE_SCHEDULE_H

#include <stdint.h>

enum rt_schedule_kind {
#define SCHEDULE(ID, ...) RT_SCHEDULE_##ID,
#include "schedules.def"
#undef SCHEDULE
    RT_SCHEDULES
};

struct rt_schedule_row {
    const char *id, *name, *options, *help;
};
#ifdef __cplusplus
extern "C" {
#endif

extern const struct rt_schedule_row rt_schedule_rows[RT_SCHEDULES];

struct rt_schedule {
    enum rt_schedule_kind kind;
    int64_t warmup, steps; /* the whole run's, warm-up included */
    double min;            /* of the factor */
};

/* What step `step` (1 for the first) multiplies learning rates with. */
double rt_schedule_factor(const struct rt_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
