/* To be preloaded: a time of day that jumps by an hour, back and forth, whenever it is read. The monotonic clock
 * stays. */
#define _GNU_SOURCE 1

#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void) {
    static atomic_int calls;
    return (atomic_fetch_add(&calls, 1) % 3 - 1) * 3600;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    const int status = (int)syscall(SYS_clock_gettime, clock, out);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += jump();
    return status;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    const int status = clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
