#include "lr_schedule.h"

#include <math.h>

const struct rt_lr_schedule_row rt_lr_schedule_rows[RT_LR_SCHEDULES] = {
#define SCHEDULE(ID, NAME, OPTIONS, FACTOR, HELP) {"RT_LR_SCHEDULE_" #ID, #NAME, OPTIONS, HELP},
#include "lr_schedules.def"
#undef SCHEDULE
};

static double factor_after(enum rt_lr_schedule_kind kind, double progress, double min) {
    switch (kind) {
#define SCHEDULE(ID, NAME, OPTIONS, FACTOR, HELP)                                                                      \
    case RT_LR_SCHEDULE_##ID:                                                                                          \
        return FACTOR;
#include "lr_schedules.def"
#undef SCHEDULE
    case RT_LR_SCHEDULES: break;
    }
    return 1;
}

double rt_lr_factor(const struct rt_lr_schedule *schedule, int64_t step) {
    const int64_t done = step - 1, falls = schedule->steps - schedule->warmup;
    if (done < schedule->warmup) return (double)done / (double)schedule->warmup;
    double progress = falls > 0 ? (double)(done - schedule->warmup) / (double)falls : 1;
    return factor_after(schedule->kind, progress < 1 ? progress : 1, schedule->min);
}
