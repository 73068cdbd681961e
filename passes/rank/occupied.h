/* The occupied addresses of an arena over time. Finds the lowest address at which a block of some bytes fits during an
 * interval of time. */
#ifndef PASSES_RANK_OCCUPIED_H
#define PASSES_RANK_OCCUPIED_H

#include <stdint.h>

#include "ir/base/arena.h"

struct occupied;

/* Everything is free at times 0 .. times - 1. Allocated in the arena. */
struct occupied *occupied_new(struct arena *arena, int times);

/* The lowest address from which `bytes` (at least 1) are free at all times first .. last. */
int64_t occupied_lowest(const struct occupied *occupied, int first, int last, int64_t bytes);

/* Occupies `bytes` from `address` on at times first .. last. */
void occupied_take(struct occupied *occupied, int first, int last, int64_t address, int64_t bytes);

#endif
