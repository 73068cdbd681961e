#include "determinant.h"

#include "internal.h"
#include "types.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROUNDING     PASTE(ROUNDING, SUFFIX)
#define ROUNDING_f32 FLT_EPSILON
#define ROUNDING_f64 DBL_EPSILON
#define ABS          PASTE(ABS, SUFFIX)
#define ABS_f32      fabsf
#define ABS_f64      fabs

#define T     TYPE(SUFFIX)
#define PART  "determinant.inc"
#define TYPES FLOATS
#include "each.inc"
