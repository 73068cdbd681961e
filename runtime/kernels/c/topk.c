/* The best elements of a column: few in a sorted list, many in a heap of their positions, which lies in the result. */
#include "kernels.h"

#include "internal.h"
#include "types.h"

enum { COUNTED = 256 }; /* values that are counted instead of compared */
enum { SORTED = 64 };   /* elements at most for which a list is less work than a heap */
enum { SKIPPED = 32 };  /* elements that are compared with the last of the list at a time */

#define T     TYPE(SUFFIX)
#define PART  "topk.inc"
#define TYPES NUMBERS
#include "each.inc"
