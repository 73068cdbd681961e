/* How a thread waits for another: it spins briefly, then sleeps until the other rings a bell.
 *
 * Note [Spinning]
 * Waking a thread that sleeps takes 5 to 50 us, so on a quiet machine a thread spins for longer than most gaps between
 * two pieces of parallel work. On a busy machine a thread that spins takes the core of one that works, often of the one
 * that it waits for, so it must sleep at once. Threads find out by spinning: one that the kernel suspended meanwhile
 * reads a clock that has jumped. From then on all threads of the process hardly spin for a time, which doubles with
 * every further jump. Where a job has more threads than the machine has cores none spins at all. */
#ifndef RT_BASE_WAIT_H
#define RT_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What waiting threads sleep on. All zeros is a bell between processes, in memory that they share. */
struct rt_bell {
    _Atomic uint32_t rings, sleepers;
    int own; /* FUTEX_PRIVATE_FLAG if the bell is of threads of one process: rt_bell_own */
};

struct rt_bell rt_bell_own(void);

/* Wakes those that sleep, after a store that ends their wait. Costs a fence and a load where nobody sleeps. */
void rt_bell_ring(struct rt_bell *bell);

/* A wait in progress:
 *
 *   for (rt_wait_begin(&wait, bell); !CONDITION; rt_wait_turn(&wait, limit)) ..
 *   rt_wait_end(&wait);
 *
 * CONDITION may have effects, such as advancing a transfer. Whoever makes it true rings the bell afterwards. */
struct rt_wait {
    struct rt_bell *bell;
    int64_t began, seen; /* ns; began: 0 until the clock was first read */
    uint32_t rings;
    int turns;
    bool sleeps; /* the next turn sleeps */
};

void rt_wait_begin(struct rt_wait *wait, struct rt_bell *bell);
/* Waits a little. longest: nanoseconds after which a sleep ends without a ring; 0: none. */
void rt_wait_turn(struct rt_wait *wait, int64_t longest);
void rt_wait_end(struct rt_wait *wait);
/* The wait sleeps from its next turn on, so that another thread has this core. The caller looks at its condition once
 * more before that turn. */
void rt_wait_sleep(struct rt_wait *wait);

/* Moves the calling thread to another core if it is on this one, that of the thread that it works with. A scheduler
 * that finds all cores busy may wake both on one, where one gets its turn when the other has used up its own; and
 * threads that sleep soon are not seen by what balances cores. */
void rt_wait_apart(int core);

/* Declares how many threads of the job this machine runs at a time. */
void rt_wait_beside(int threads);

#endif
