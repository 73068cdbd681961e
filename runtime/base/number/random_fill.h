/* Random values for the inputs of a program, for trying and measuring it. */
#ifndef RT_BASE_RANDOM_FILL_H
#define RT_BASE_RANDOM_FILL_H

#include <stdint.h>

#include "../dtype.h"

/* The next number of splitmix64. */
uint64_t rt_random_next(uint64_t *state);

/* Fills `data` with `count` elements, the same for the same arguments (splitmix64). Floats are uniform in [-1, 1);
 * integers are uniform in [0, below), where below <= 0 stands for 2, as for booleans. */
void rt_random_fill(void *data, enum rt_dtype dtype, int64_t count, uint64_t seed, int64_t below);

#endif
