/* Kernels that are written once for several types. PART is compiled for each type of TYPES by
 *
 *     #define PART  "pool.inc"
 *     #define TYPES FLOATS
 *     #include "each.inc"
 *
 * SUFFIX is the type, as in the names of functions; what else is said of it here are functions of SUFFIX.
 *
 * "sets.inc" compiles it for each instruction set, too, which is SET: TARGET is the attribute that allows its
 * instructions, BYTES the size of its vectors, OWN(stem) the name of a function, and BEST(stem) the function of the
 * best set that the processor has. */
#ifndef RT_KERNELS_C_TYPES_H
#define RT_KERNELS_C_TYPES_H

#include <math.h>
#include <stdint.h>

#include "../../base/number/half.h"
#include "../../base/processor.h"
#include "internal.h"
#include "lists.h"

#define OWN(stem) PASTE(NAME(stem), SET)
#ifdef __x86_64__
#define BEST(stem) (rt_processor_has_avx512() ? stem##_avx512 : rt_processor_has_avx2() ? stem##_avx2 : stem##_plain)
#else
#define BEST(stem) stem##_plain
#endif

#define IN_f64         1
#define IN_f32         2
#define IN_bf16        4
#define IN_fp16        8
#define IN_i64         16
#define IN_i32         32
#define IN_b1          64 /* elements by their bytes */
#define IN_b2          128
#define IN_b4          256
#define IN_b8          512
#define IN_f32_by_bf16 1024 /* of attention: keys and values of 16 bits */
#define IN_f32_by_fp16 2048
#define IN_f32_by_i8   4096 /* ... of codes with scales */
#define FLOATS         (IN_f64 | IN_f32)
#define NUMBERS        (FLOATS | IN_i64 | IN_i32)
#define HALVES         (IN_bf16 | IN_fp16)
#define SIZES          (IN_b1 | IN_b2 | IN_b4 | IN_b8)

#define TYPE(suffix) PASTE(TYPE, suffix)
#define TYPE_f64     double
#define TYPE_f32     float
#define TYPE_bf16    uint16_t
#define TYPE_fp16    uint16_t
#define TYPE_i64     int64_t
#define TYPE_i32     int32_t
#define TYPE_i8      int8_t
#define TYPE_b1      uint8_t
#define TYPE_b2      uint16_t
#define TYPE_b4      uint32_t
#define TYPE_b8      uint64_t

/* The type that an element is computed in, and conversions. */
#define WIDE             PASTE(WIDE, SUFFIX)
#define WIDE_f64         f64
#define WIDE_f32         f32
#define WIDE_bf16        f32
#define WIDE_fp16        f32
#define WIDE_f32_by_bf16 f32
#define WIDE_f32_by_fp16 f32
#define WIDE_f32_by_i8   f32
#define WIDE_i64         i64
#define WIDE_i32         i32
#define WIDEN(x)         PASTE(WIDEN, SUFFIX)(x)
#define WIDEN_f64(x)     (x)
#define WIDEN_f32(x)     (x)
#define WIDEN_bf16(x)    rt_bf16_to_f32(x)
#define WIDEN_fp16(x)    rt_f16_to_f32(x)
#define WIDEN_i64(x)     (x)
#define WIDEN_i32(x)     (x)
#define ROUND(x)         PASTE(ROUND, SUFFIX)(x)
#define ROUND_f64(x)     (x)
#define ROUND_f32(x)     (x)
#define ROUND_bf16(x)    rt_f32_to_bf16(x)
#define ROUND_fp16(x)    rt_f32_to_f16(x)
#define ROUND_i64(x)     (x)
#define ROUND_i32(x)     (x)

#define LEAST(suffix) PASTE(LEAST, suffix)
#define LEAST_f64     (-(double)INFINITY)
#define LEAST_f32     (-INFINITY)
#define LEAST_i64     INT64_MIN
#define LEAST_i32     INT32_MIN
#define MOST(suffix)  PASTE(MOST, suffix)
#define MOST_f64      (double)INFINITY
#define MOST_f32      INFINITY
#define MOST_i64      INT64_MAX
#define MOST_i32      INT32_MAX
#define IS_NAN(x)     PASTE(IS_NAN, SUFFIX)(x)
#define IS_NAN_f64(x) ((x) != (x))
#define IS_NAN_f32(x) ((x) != (x))
#define IS_NAN_i64(x) 0
#define IS_NAN_i32(x) 0

/* The products of a library (gemm.h); 0: it has none. The second says whether they can be called, the last adds to what
 * y has. */
#define HAS_LIBRARY          PASTE(HAS_LIBRARY, SUFFIX)
#define HAS_LIBRARY_f64      0
#define HAS_LIBRARY_f32      1
#define HAS_LIBRARY_bf16     1
#define HAS_LIBRARY_fp16     1
#define HAS_LIBRARY_i64      0
#define HAS_LIBRARY_i32      0
#define LIBRARY_PRESENT      PASTE(LIBRARY_PRESENT, SUFFIX)
#define LIBRARY_PRESENT_f64  rt_gemm_library_present
#define LIBRARY_PRESENT_f32  rt_gemm_library_present
#define LIBRARY_PRESENT_bf16 rt_gemm_has_best_bf16
#define LIBRARY_PRESENT_fp16 rt_gemm_library_present
#define LIBRARY_PRESENT_i64  rt_gemm_library_present
#define LIBRARY_PRESENT_i32  rt_gemm_library_present
#define LIBRARY              PASTE(LIBRARY, SUFFIX)
#define LIBRARY_f64(...)     (-1)
#define LIBRARY_f32          rt_gemm_library_f32
#define LIBRARY_bf16         rt_gemm_best_bf16
#define LIBRARY_fp16         rt_gemm_library_fp16
#define LIBRARY_i64(...)     (-1)
#define LIBRARY_i32(...)     (-1)
#define LIBRARY_ADD_f64(...) (-1)
#define LIBRARY_ADD_f32      rt_gemm_library_add_f32

#endif
