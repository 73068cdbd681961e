#include "determinant.h"

#include "internal.h"
#include "types.h"

#include <float.h>
#include <math.h>

#define ROUNDING     PASTE(ROUNDING, SUFFIX)
#define ROUNDING_f32 FLT_EPSILON
#define ROUNDING_f64 DBL_EPSILON

#define LOCAL          static
#define EACH(i, count) for (int64_t i = 0; i < (count); i++)
#define JOIN()

#define T     TYPE(SUFFIX)
#define PART  "determinant.inc"
#define TYPES FLOATS
#include "each.inc"
