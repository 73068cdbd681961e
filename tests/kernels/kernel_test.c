#include "kernel_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rt *test_open(const char *kernels) {
    static const struct rt_rank_class class = {.row = 0}; /* executes nothing */
    static const int class_of_shard[] = {0};
    static const struct rt_program program = {.format = RT_FORMAT,
                                              .name = "test",
                                              .key = "test",
                                              .plan_ngpus = 1,
                                              .nclasses = 1,
                                              .classes = &class,
                                              .class_of_shard = class_of_shard,
                                              .device = &rt_host};
    const struct rt_options options = {.directory = ".", .comm = "self", .world = 1, .threads = 1, .kernels = kernels};
    struct rt *rt = NULL;
    if (rt_open(&rt, &program, &options)) fail_msg("rt_open: %s", rt_error(NULL));
    return rt;
}

void test_close(struct rt *rt) {
    rt_close(rt);
}

static void *buffers[4096];
static int nbuffers;

void *test_new(int64_t count, size_t size) {
    if (nbuffers == (int)(sizeof buffers / sizeof *buffers)) fail_msg("too many buffers");
    size_t bytes = (size_t)count * size;
    unsigned char *buffer = malloc(bytes ? bytes : 1);
    if (!buffer) fail_msg("out of memory");
    memset(buffer, 0xa5, bytes ? bytes : 1);
    buffers[nbuffers++] = buffer;
    return buffer;
}

void test_free_all(void) {
    while (nbuffers > 0) free(buffers[--nbuffers]);
}

/* splitmix64 */
uint64_t test_random(uint64_t bound) {
    static uint64_t state = 1;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % bound;
}

void test_bytes(void *to, int64_t count, size_t size) {
    for (size_t i = 0; i < (size_t)count * size; i++) ((unsigned char *)to)[i] = (unsigned char)test_random(256);
}

void test_f32(float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)test_random(1u << 25) * 0x1p-24f - 1;
}

void test_f64(double *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (double)test_random((uint64_t)1 << 53) * 0x1p-52 - 1;
}

void test_i64(int64_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int64_t)test_random(41) - 20;
}

void test_i32(int32_t *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (int32_t)test_random(41) - 20;
}

int test_next(int64_t *index, const int64_t *dims, int ndim) {
    for (int d = ndim - 1; d >= 0; d--) {
        if (++index[d] < dims[d]) return 1;
        index[d] = 0;
    }
    return 0;
}

int64_t test_offset(const int64_t *index, const int64_t *dims, int ndim) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; d++) offset = offset * dims[d] + index[d];
    return offset;
}

int64_t test_count(const int64_t *dims, int ndim) {
    int64_t count = 1;
    for (int d = 0; d < ndim; d++) count *= dims[d];
    return count;
}

void test_same_bytes(const void *got, const void *expected, int64_t count, size_t size, const char *what) {
    const unsigned char *a = got, *b = expected;
    for (int64_t i = 0; i < count; i++)
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) != 0)
            fail_msg("%s: element %lld of %lld differs", what, (long long)i, (long long)count);
}

void test_same_f32(const float *got, const float *expected, int64_t count, const char *what) {
    for (int64_t i = 0; i < count; i++)
        if (memcmp(got + i, expected + i, sizeof *got) != 0 && !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("%s: element %lld of %lld is %a, not %a", what, (long long)i, (long long)count, (double)got[i],
                     (double)expected[i]);
}

void test_same_f64(const double *got, const double *expected, int64_t count, const char *what) {
    for (int64_t i = 0; i < count; i++)
        if (memcmp(got + i, expected + i, sizeof *got) != 0 && !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("%s: element %lld of %lld is %a, not %a", what, (long long)i, (long long)count, got[i],
                     expected[i]);
}

void test_near(double got, double expected, double bound, const char *what, int64_t at) {
    int same = isnan(expected) ? isnan(got) : isinf(expected) ? got == expected : fabs(got - expected) <= bound;
    if (!same) fail_msg("%s: element %lld is %.9g, not %.9g +- %.3g", what, (long long)at, got, expected, bound);
}
