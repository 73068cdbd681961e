#include "base/thread/wait.h"

#include "base/thread/clock.h"
#include "base/thread/cores.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUIET_NS   4000000  /* spin on a quiet machine */
#define BUSY_NS    200000   /* and for some time after a jump of the clock */
#define JUMP_NS    500000   /* interrupts and short daemons take less */
#define ALERT_NS   50000000 /* how long one jump keeps waits short, doubled by each that follows within twice that */
#define ALERTS     6        /* doublings */
#define TURNS_READ 16       /* turns between two readings of the clock */
#define TURNS_FEW  4        /* turns of a job with more threads than cores: for what is almost there */

/* Of the process: Note [Spinning]. */
static _Atomic int64_t alert_end; /* clock until which waits are short */
static _Atomic int alerts;        /* doublings of the last alert */
static _Atomic int beside = 1;    /* threads */
static _Atomic int crowded;       /* they are more than the cores */

void rt_wait_beside(int threads) {
    if (atomic_exchange(&beside, threads) != threads) atomic_store(&crowded, threads > rt_cores());
}

void rt_wait_apart(int core) {
    cpu_set_t all, others;
    if (core < 0 || sched_getcpu() != core || atomic_load_explicit(&crowded, memory_order_relaxed)) return;
    if (sched_getaffinity(0, sizeof all, &all)) return;
    others = all;
    CPU_CLR((size_t)core, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others)) return;
    sched_setaffinity(0, sizeof all, &all);
}

static void sleep_on(struct rt_bell *bell, uint32_t rings, int64_t longest) {
    const struct timespec limit = {longest / 1000000000, longest % 1000000000};
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT | bell->own, rings, longest ? &limit : NULL, NULL, 0);
}

struct rt_bell rt_bell_own(void) {
    return (struct rt_bell){.own = FUTEX_PRIVATE_FLAG};
}

/* The fence orders the caller's store before the load: a thread that goes to sleep counts itself first, and then looks
 * at what was stored once more. */
void rt_bell_ring(struct rt_bell *bell) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleepers, memory_order_relaxed) == 0) return;
    atomic_fetch_add(&bell->rings, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE | bell->own, INT_MAX, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void alert(int64_t now) {
    const int64_t end = atomic_load_explicit(&alert_end, memory_order_relaxed);
    int times = atomic_load_explicit(&alerts, memory_order_relaxed);
    if (now < end) return; /* another thread's jump of about the same time */
    times = now - end > (int64_t)ALERT_NS << times ? 0 : times < ALERTS ? times + 1 : times;
    atomic_store_explicit(&alerts, times, memory_order_relaxed);
    atomic_store_explicit(&alert_end, now + ((int64_t)ALERT_NS << times), memory_order_relaxed);
}

/* True if the wait goes on spinning. */
static bool spins(struct rt_wait *wait) {
    if (atomic_load_explicit(&crowded, memory_order_relaxed)) return wait->turns < TURNS_FEW;
    if (wait->turns % TURNS_READ != 0) return true;
    const int64_t now = rt_clock_ns(), before = wait->seen;
    if (!wait->began) wait->began = now;
    wait->seen = now;
    if (before && now - before > JUMP_NS) alert(now);
    const bool busy = now < atomic_load_explicit(&alert_end, memory_order_relaxed);
    return now - wait->began < (busy ? BUSY_NS : QUIET_NS);
}

void rt_wait_begin(struct rt_wait *wait, struct rt_bell *bell) {
    *wait = (struct rt_wait){.bell = bell};
}

/* Before its first sleep the caller looks at its condition once more, after it has been counted. */
void rt_wait_sleep(struct rt_wait *wait) {
    if (wait->sleeps) return;
    wait->sleeps = true;
    wait->rings = atomic_load(&wait->bell->rings);
    atomic_fetch_add(&wait->bell->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

void rt_wait_turn(struct rt_wait *wait, int64_t longest) {
    wait->turns++;
    if (wait->sleeps) {
        sleep_on(wait->bell, wait->rings, longest);
        wait->rings = atomic_load(&wait->bell->rings);
    } else if (spins(wait)) {
        relax();
    } else {
        rt_wait_sleep(wait);
    }
}

void rt_wait_end(struct rt_wait *wait) {
    if (wait->sleeps) atomic_fetch_sub(&wait->bell->sleepers, 1);
}
