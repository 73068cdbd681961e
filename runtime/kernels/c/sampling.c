#include "sampling.h"

#include "../../generated.h"
#include "internal.h"
#include "taps.h"
#include "types.h"

#include <math.h>
#include <string.h>

/* The taps of a point are found once and serve all channels. */

#define MOST_TAPS 64 /* four in each of three dimensions */

static int check_batch(struct rt *rt, const int64_t *batch, const struct rt_roi *roi) {
    for (int64_t r = 0; r < roi->r; r++)
        if (batch[r] < 0 || batch[r] >= roi->n)
            return rt_fail(rt, RT_ERROR_INPUT, "image %lld of region %lld is outside [0, %lld)", (long long)batch[r],
                           (long long)r, (long long)roi->n);
    return RT_OK;
}

#define T     TYPE(SUFFIX)
#define PART  "sampling.inc"
#define TYPES FLOATS
#include "each.inc"
