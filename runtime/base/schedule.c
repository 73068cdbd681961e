#include "base/schedule.h"

bool rt_schedule_allows(const struct rt_schedule *schedule, int micro_batches) {
    return schedule->repeats ? micro_batches >= schedule->micro_batches : micro_batches == schedule->micro_batches;
}

bool rt_slot_is_used(enum rt_slot_kind kind, enum phase phase) {
    if (kind == RT_SLOT_TO_BACKWARD) return phase <= PHASE_BACKWARD;
    return kind == RT_SLOT_WHOLE || phase == PHASE_BACKWARD || phase == PHASE_WEIGHT;
}

int rt_schedule_slot(const struct rt_schedule *schedule, int chunk, int micro) {
    return micro % schedule->slots[chunk];
}

int rt_schedule_most_slots(const struct rt_schedule *schedule) {
    int most = 1;
    for (int c = 0; c < schedule->nchunks; c++)
        if (schedule->slots[c] > most) most = schedule->slots[c];
    return most;
}
