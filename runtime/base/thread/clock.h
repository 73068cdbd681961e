/* Monotonic time, independent of changes to the system clock. */
#ifndef RT_BASE_CLOCK_H
#define RT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t rt_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t rt_now_ms(void) {
    return rt_clock_ns() / 1000000;
}

#endif
