/* The best elements of a column: a heap of their positions, which lies in the result. */
#include "kernels.h"

#include "internal.h"

enum { COUNTED = 256 }; /* values that are counted instead of compared */

#define T          float
#define SUFFIX     f32
#define IS_NAN(x)  ((x) != (x))
#define IS_INTEGER 0
#include "topk.inc"

#define T          double
#define SUFFIX     f64
#define IS_NAN(x)  ((x) != (x))
#define IS_INTEGER 0
#include "topk.inc"

#define T          int64_t
#define SUFFIX     i64
#define IS_NAN(x)  0
#define IS_INTEGER 1
#include "topk.inc"

#define T          int32_t
#define SUFFIX     i32
#define IS_NAN(x)  0
#define IS_INTEGER 1
#include "topk.inc"
