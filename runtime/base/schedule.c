#include "base/schedule.h"

bool rt_schedule_allows(const struct rt_schedule *schedule, int micro_batches) {
    const bool repeats = schedule->repeat_first < schedule->repeat_end;
    return repeats ? micro_batches >= schedule->micro_batches : micro_batches == schedule->micro_batches;
}

bool rt_slot_is_used(enum rt_slot_kind kind, enum phase phase) {
    if (kind == RT_SLOT_TO_BACKWARD) return phase <= PHASE_BACKWARD;
    return kind == RT_SLOT_WHOLE || phase == PHASE_BACKWARD || phase == PHASE_WEIGHT;
}

int rt_schedule_slot(const struct rt_schedule *schedule, const struct rt_step_op *op) {
    return op->micro % schedule->slots[op->chunk];
}

int rt_schedule_most_slots(const struct rt_schedule *schedule) {
    int most = 1;
    for (int c = 0; c < schedule->nchunks; c++)
        if (schedule->slots[c] > most) most = schedule->slots[c];
    return most;
}

bool rt_schedule_next(const struct rt_schedule *schedule, int micro_batches, struct rt_schedule_walk *walk) {
    if (walk->next == schedule->repeat_end && walk->next > 0 && walk->shift < micro_batches - schedule->micro_batches) {
        walk->next = schedule->repeat_first;
        walk->shift++;
    }
    if (walk->next == schedule->nops) return false;
    walk->op = schedule->ops[walk->next++];
    walk->op.micro += walk->shift;
    return true;
}
