/* Learning-rate schedules: the rows of lr_schedules.def and their parameters. */
#ifndef RT_BASE_LR_SCHEDULE_H
#define RT_BASE_LR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum rt_lr_schedule_kind {
#define SCHEDULE(ID, ...) RT_LR_SCHEDULE_##ID,
#include "lr_schedules.def"
#undef SCHEDULE
    RT_LR_SCHEDULES
};

struct rt_lr_schedule_row {
    const char *id, *name, *options, *help;
};

struct rt_lr_schedule {
    enum rt_lr_schedule_kind kind;
    int64_t warmup, steps; /* steps: of the whole run, including warm-up */
    double min;            /* least factor */
    int64_t decay;         /* last steps, in which the rate falls; 0: of no schedule that has them */
};

struct rt_reason;
#ifdef __cplusplus
extern "C" {
#endif

extern const struct rt_lr_schedule_row rt_lr_schedule_rows[RT_LR_SCHEDULES];

/* Parses "cosine:warmup=100,steps=1000,min=0.1": a row's name, then any of its options. False, with the reason, if a
 * name is unknown, a number is missing or out of range, or warm-up and decay take more than all steps. */
bool rt_lr_schedule_parse(struct rt_lr_schedule *schedule, const char *text, struct rt_reason *why);

/* The factor applied to learning rates at step `step` (1 for the first). */
double rt_lr_factor(const struct rt_lr_schedule *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
