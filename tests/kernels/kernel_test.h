/* What the kernel tests share: a rank to call kernels with, numbers to call them on, and odometer loops to define
 * what they should give. */
#ifndef TESTS_KERNEL_TEST_H
#define TESTS_KERNEL_TEST_H

#include "../../runtime/kernels/c/kernels.h"
#include "../../runtime/generated.h"
#include "../test.h"

#define WALK_NDIM 16 /* of a walk */

/* An open rank without a model, with kernels "auto" or "reference". test_close ends it. */
struct rt *test_open(const char *kernels);
void test_close(struct rt *rt);

/* A buffer of `count` elements of `size` bytes that the sanitizers guard, filled with a pattern; never NULL. Freed
 * by test_free_all, which every test ends with. */
void *test_new(int64_t count, size_t size);
void test_free_all(void);

/* Numbers in [0, bound) from a fixed sequence. */
uint64_t test_random(uint64_t bound);

/* Fills with random bytes; with random values between -1 and 1; with whole numbers of small magnitude. */
void test_bytes(void *to, int64_t count, size_t size);
void test_f32(float *to, int64_t count);
void test_f64(double *to, int64_t count);
void test_i64(int64_t *to, int64_t count);
void test_i32(int32_t *to, int64_t count);

/* Odometer: index of `ndim` dimensions; false after the last index. */
int test_next(int64_t *index, const int64_t *dims, int ndim);
int64_t test_offset(const int64_t *index, const int64_t *dims, int ndim);
int64_t test_count(const int64_t *dims, int ndim);

/* Fails, naming the first element, unless both hold the same bits (any NaN equals any NaN in the float versions).
 */
void test_same_bytes(const void *got, const void *expected, int64_t count, size_t size, const char *what);
void test_same_f32(const float *got, const float *expected, int64_t count, const char *what);
void test_same_f64(const double *got, const double *expected, int64_t count, const char *what);

/* Fails unless |got - expected| <= bound for every element; NaN where NaN, infinities equal. */
void test_near(double got, double expected, double bound, const char *what, int64_t at);

#endif
