#include "ir/step_table.h"

bool schedule_next(const struct schedule *schedule, int micro_batches, struct schedule_walk *walk) {
    const int further = micro_batches - schedule->shape.micro_batches;
    if (walk->next == schedule->repeat_end && walk->next > 0 && walk->shift < further) {
        walk->next = schedule->repeat_first;
        walk->shift++;
    }
    if (walk->next == schedule->nops) return false;
    walk->op = schedule->ops[walk->next++];
    walk->op.micro += walk->shift;
    return true;
}
