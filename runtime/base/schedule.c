#include "base/schedule.h"

bool rt_schedule_allows(const struct rt_schedule *schedule, int micro_batches) {
    const bool repeats = schedule->repeat_first < schedule->repeat_end;
    return repeats ? micro_batches >= schedule->micro_batches : micro_batches == schedule->micro_batches;
}

bool rt_schedule_next(const struct rt_schedule *schedule, int micro_batches, struct rt_schedule_walk *walk) {
    if (walk->next == schedule->repeat_end && walk->next > 0 && walk->shift < micro_batches - schedule->micro_batches) {
        walk->next = schedule->repeat_first;
        walk->shift++;
    }
    if (walk->next == schedule->nops) return false;
    walk->op = schedule->ops[walk->next++];
    walk->op.micro += walk->shift;
    walk->op.slot = (walk->op.slot + walk->shift) % schedule->slots;
    return true;
}
