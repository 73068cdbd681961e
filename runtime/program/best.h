/* D/best.json of --keep-best: the step whose evaluation had the lowest loss, and whose checkpoint stays in D. */
#ifndef RT_BEST_H
#define RT_BEST_H

#include "base/text/reason.h"

#include <stdbool.h>
#include <stdint.h>

struct best {
    int64_t step; /* 0: none */
    double loss;
};

/* False: the directory D has no such file, or one that says nothing. */
bool best_read(struct best *best, const char *directory);
bool best_write(const struct best *best, const char *directory, struct rt_reason *why);

#endif
