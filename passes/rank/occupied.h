/* Which addresses of an arena are taken at which times, by intervals of both: finds the lowest address at which a block
 * fits. */
#ifndef PASSES_RANK_OCCUPIED_H
#define PASSES_RANK_OCCUPIED_H

#include <stdint.h>

#include "ir/base/arena.h"

struct occupied;

/* Nothing is taken, at times 0 .. times - 1; lies in the arena. */
struct occupied *occupied_new(struct arena *arena, int times);

/* The lowest address from which `bytes` (at least 1) are free at all times first .. last. */
int64_t occupied_lowest(const struct occupied *occupied, int first, int last, int64_t bytes);

void occupied_take(struct occupied *occupied, int first, int last, int64_t address, int64_t bytes);

#endif
