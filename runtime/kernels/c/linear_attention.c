#include "linear_attention.h"

#include "internal.h"
#include "math.h"

#include <string.h>

enum { WIDEST = 64 }; /* columns of a task */

#define T      float
#define SUFFIX f32
#define EXP    expf
#include "linear_attention.inc"

#define T      double
#define SUFFIX f64
#define EXP    exp
#include "linear_attention.inc"
