/* The best elements of a column: a heap of their positions, which lies in the result. */
#include "kernels.h"

#include "internal.h"
#include "types.h"

enum { COUNTED = 256 }; /* values that are counted instead of compared */

#define T     TYPE(SUFFIX)
#define PART  "topk.inc"
#define TYPES NUMBERS
#include "each.inc"
