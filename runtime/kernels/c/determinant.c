#include "determinant.h"

#include "internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define T        float
#define SUFFIX   f32
#define ABS      fabsf
#define ROUNDING FLT_EPSILON
#include "determinant.inc"

#define T        double
#define SUFFIX   f64
#define ABS      fabs
#define ROUNDING DBL_EPSILON
#include "determinant.inc"
