#include "kernels.h"

#include "internal.h"
#include "math.h"

#include <math.h>
#include <string.h>

#define CHUNK 512 /* exponentials computed before they are summed; a multiple of LANES */

static inline double lanes_sum(const double *part) {
    return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

#define T      float
#define SUFFIX f32
#include "normalize.inc"

#define T      double
#define SUFFIX f64
#include "normalize.inc"
