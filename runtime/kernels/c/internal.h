/* Shared by the kernels; not for programs. */
#ifndef RT_KERNELS_C_INTERNAL_H
#define RT_KERNELS_C_INTERNAL_H

#include "../../base/clones.h"
#include "team.h"

#include <omp.h>
#include <stdint.h>

/* Elements (or multiply-adds) below which starting threads does not pay. */
#define PARALLEL_WORK 32768

#define COLUMNS 64 /* neighbouring columns that are worked on together, where a reduced dimension is not the last */

/* Files included once per type define T and SUFFIX; NAME(rt_matmul) is then rt_matmul_f32. */
#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define NAME(stem)   PASTE(stem, SUFFIX)

static inline int64_t index_at(const void *index, int is_64, int64_t position) {
    return is_64 ? ((const int64_t *)index)[position] : ((const int32_t *)index)[position];
}

/* Prefetches what a kernel reads next, where that is in another page: hardware prefetchers stop at the end of a page. A
 * prefetch never faults, so the range may exceed the tensor. */
static inline void prefetch(const void *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)i), 0, 2);
}

struct rt;

/* Index p, at that position, is one into a dimension of totals[p % period]. RT_OK, or RT_ERROR_INPUT at the first
 * position whose index is outside of [-total, total). index.c */
int rt_check_indices(struct rt *rt, const void *index, int is_64, int64_t count, const int64_t *totals, int64_t period);

static inline int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
/* The iterations of two collapsed loops. */
static inline int64_t grid_of(int64_t outer, int64_t inner) {
    return outer * inner;
}
/* How many parts of `each` elements n elements are, the last of which may be shorter. */
static inline int64_t parts_of(int64_t n, int64_t each) {
    return (n + each - 1) / each;
}

#endif
