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

/* The elements of a bin of MaxRoiPool along one dimension. */
struct bin {
    int64_t first, end;
};

static int64_t clipped(int64_t at, int64_t size) {
    return at < 0 ? 0 : at > size ? size : at;
}

static struct bin bin_of(double from, double to, double scale, int64_t bin, int64_t bins, int64_t size) {
    const double most = 1e15; /* any coordinate beyond is as far outside */
    const double start = round(fmax(-most, fmin(most, from * scale))), end = round(fmax(-most, fmin(most, to * scale)));
    const double extent = fmax(end - start + 1, 1) / (double)bins;
    return (struct bin){clipped((int64_t)(floor((double)bin * extent) + start), size),
                        clipped((int64_t)(ceil((double)(bin + 1) * extent) + start), size)};
}

#define T     TYPE(SUFFIX)
#define PART  "sampling.inc"
#define TYPES FLOATS
#include "each.inc"
