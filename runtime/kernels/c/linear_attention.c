#include "linear_attention.h"

#include "internal.h"
#include "math.h"
#include "types.h"

#include <string.h>

enum { WIDEST = 64 }; /* columns of a task */

#define EXP     PASTE(EXP, SUFFIX)
#define EXP_f32 expf
#define EXP_f64 exp

#define T     TYPE(SUFFIX)
#define PART  "linear_attention.inc"
#define TYPES FLOATS
#include "each.inc"
