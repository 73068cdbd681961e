#include "schedule.h"

#include <math.h>

const struct rt_schedule_row rt_schedule_rows[RT_SCHEDULES] = {
#define SCHEDULE(ID, NAME, OPTIONS, FACTOR, HELP) {"RT_SCHEDULE_" #ID, #NAME, OPTIONS, HELP},
#include "schedules.def"
#undef SCHEDULE
};

static double factor_after(enum rt_schedule_kind kind, double progress, double min) {
    switch (kind) {
#define SCHEDULE(ID, NAME, OPTIONS, FACTOR, HELP)                                                                      \
    case RT_SCHEDULE_##ID:                                                                                             \
        return FACTOR;
#include "schedules.def"
#undef SCHEDULE
    case RT_SCHEDULES: break;
    }
    return 1;
}

double rt_schedule_factor(const struct rt_schedule *schedule, int64_t step) {
    const int64_t done = step - 1, falls = schedule->steps - schedule->warmup;
    if (done < schedule->warmup) return (double)done / (double)schedule->warmup;
    double progress = falls > 0 ? (double)(done - schedule->warmup) / (double)falls : 1;
    return factor_after(schedule->kind, progress < 1 ? progress : 1, schedule->min);
}
