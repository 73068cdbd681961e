/* Teams of threads: Note [Teams] in c/team.h. */
#define _GNU_SOURCE 1

#include "c/team.h"

#ifdef RT_HAS_TEAMS

#include "base/thread/cores.h"
#include "base/thread/wait.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE       64   /* bytes of a cache line */
#define MAX_SHARES 1023 /* of a region */

/* Word `next` of a team: the number of its region, the region's shares, and the share that is handed out next. That a
 * thread takes a share, and that the region is still the one whose function it has read, is one comparison. */
#define SHARE_BITS 10
static uint64_t next_word(uint64_t region, int shares) {
    return region << 2 * SHARE_BITS | (uint64_t)shares << SHARE_BITS | 1; /* the caller has share 0 */
}
static int shares_of(uint64_t word) {
    return (int)(word >> SHARE_BITS & MAX_SHARES);
}
static int share_of(uint64_t word) {
    return (int)(word & MAX_SHARES);
}

typedef void run_fn(void *data);

struct team {
    _Alignas(LINE) _Atomic uint64_t next;
    run_fn *_Atomic run; /* of the region that is being handed out */
    void *_Atomic data;
    _Atomic int core; /* that the caller was on */
    _Atomic bool ends;
    struct rt_bell begun;
    _Alignas(LINE) _Atomic int finished; /* shares of the region */
    struct rt_bell done;
    _Alignas(LINE) _Atomic uint32_t arrived, passed; /* of the barrier: threads that wait, and times it was passed */
    struct rt_bell barrier;
    _Alignas(LINE) _Atomic long position; /* of the loop: the first iteration that is not handed out */
    long end, step, chunk;
    _Atomic enum { LOOP_NONE, LOOP_BEGINS, LOOP_GOES } loop; /* a region's first thread there describes it */
    uint64_t region;
    int size, wanted; /* threads, with the caller: those that run, and those that were to be started */
    pthread_t *threads;
    struct team *after; /* in `teams` */
};

/* The share that a thread executes; all zeros outside of regions. */
struct place {
    struct team *team;
    int share, shares;
};

static _Thread_local struct {
    int threads;      /* rt_team_set_threads; 0: not set */
    struct team *own; /* whose regions the thread begins */
    struct place place;
} self;

int rt_team_share(void) {
    return self.place.share;
}

int rt_team_shares(void) {
    return self.place.shares ? self.place.shares : 1;
}

static int cores(void) {
    static _Atomic int known;
    if (!known) known = rt_cores();
    return known;
}

int rt_team_max_threads(void) {
    return self.threads ? self.threads : cores();
}

void rt_team_set_threads(int threads) {
    self.threads = threads;
}

bool rt_team_single(void) {
    return self.place.share == 0;
}

void rt_team_refuse(void) {
    fputs("rankc: error: a kernel uses an OpenMP construct that kernels cannot use: docs/user-operators.md\n", stderr);
    abort();
}

/* Regions */

static void execute(run_fn *run, void *data, struct place place) {
    const struct place outer = self.place;
    self.place = place;
    run(data);
    self.place = outer;
}

/* Takes a share of the region that is handed out and executes it; false if there is none. */
static bool take_share(struct team *team) {
    uint64_t word = atomic_load_explicit(&team->next, memory_order_acquire);
    run_fn *run;
    void *data;
    do {
        if (share_of(word) >= shares_of(word)) return false;
        run = atomic_load_explicit(&team->run, memory_order_relaxed);
        data = atomic_load_explicit(&team->data, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&team->next, &word, word + 1));
    execute(run, data, (struct place){team, share_of(word), shares_of(word)});
    if (atomic_fetch_add(&team->finished, 1) + 1 == shares_of(word)) rt_bell_ring(&team->done);
    return true;
}

static void begin_region(struct team *team, run_fn *run, void *data, int shares) {
    atomic_store_explicit(&team->run, run, memory_order_relaxed);
    atomic_store_explicit(&team->data, data, memory_order_relaxed);
    atomic_store_explicit(&team->loop, LOOP_NONE, memory_order_relaxed);
    atomic_store_explicit(&team->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&team->core, sched_getcpu(), memory_order_relaxed);
    atomic_store_explicit(&team->next, next_word(++team->region, shares), memory_order_release);
    rt_bell_ring(&team->begun);
}

static void end_region(struct team *team, int shares) {
    struct rt_wait wait;
    while (take_share(team)) {
    }
    for (rt_wait_begin(&wait, &team->done); atomic_load(&team->finished) < shares; rt_wait_turn(&wait, 0)) {
    }
    rt_wait_end(&wait);
}

/* Threads */

static void *work(void *argument) {
    struct team *team = argument;
    while (!team->ends) {
        struct rt_wait wait;
        for (rt_wait_begin(&wait, &team->begun); !team->ends && !take_share(team);
             rt_wait_apart(atomic_load_explicit(&team->core, memory_order_relaxed)))
            rt_wait_turn(&wait, 0);
        rt_wait_end(&wait);
    }
    return NULL;
}

static struct team *teams; /* of all threads, for unloading; guarded by `lock` */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key; /* its destructor ends the team of a thread that ends */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void stop(struct team *team) {
    team->ends = true;
    rt_bell_ring(&team->begun);
    while (team->size > 1) pthread_join(team->threads[--team->size], NULL);
}

static void end_team(void *of) {
    struct team *team = of, **at = &teams;
    pthread_mutex_lock(&lock);
    while (*at && *at != team) at = &(*at)->after;
    if (*at) *at = team->after;
    pthread_mutex_unlock(&lock);
    stop(team);
    free(team->threads);
    free(team);
}

/* In the child of a fork only the calling thread exists. */
static void forget_teams(void) {
    teams = NULL;
    self.own = NULL;
    pthread_setspecific(key, NULL);
}

static void make_key(void) {
    pthread_key_create(&key, end_team);
    pthread_atfork(NULL, NULL, forget_teams);
}

__attribute__((destructor)) static void stop_all(void) {
    for (struct team *team = teams; team; team = team->after) stop(team);
    if (teams) pthread_key_delete(key);
    teams = NULL;
}

/* A team of fewer threads than `size` if not all could be started; NULL without memory. */
static struct team *new_team(int size) {
    struct team *team = aligned_alloc(LINE, sizeof *team);
    pthread_t *threads = calloc((size_t)size, sizeof *threads);
    if (!team || !threads) {
        free(team);
        free(threads);
        return NULL;
    }
    memset(team, 0, sizeof *team);
    team->threads = threads;
    team->wanted = size;
    team->begun = team->done = team->barrier = rt_bell_own();
    for (team->size = 1; team->size < size; team->size++)
        if (pthread_create(&threads[team->size], NULL, work, team)) break;
    pthread_mutex_lock(&lock);
    team->after = teams;
    teams = team;
    pthread_mutex_unlock(&lock);
    return team;
}

/* The calling thread's team, of at least `size` threads where that many can be started. */
static struct team *team_of(int size) {
    if (self.own && self.own->wanted >= size) return self.own;
    pthread_once(&key_once, make_key);
    if (self.own) end_team(self.own);
    self.own = new_team(size);
    pthread_setspecific(key, self.own);
    return self.own;
}

void rt_team_parallel(void (*run)(void *data), void *data, unsigned shares, unsigned flags) {
    (void)flags;
    const int most = cores() < MAX_SHARES ? cores() : MAX_SHARES;
    int count = shares ? (int)shares : rt_team_max_threads();
    if (count > most) count = most;
    struct team *team = self.place.team || count == 1 ? NULL : team_of(count);
    if (team && team->size < count) count = team->size;
    if (!team || count == 1) {
        execute(run, data, (struct place){self.place.team, 0, 1});
        return;
    }
    begin_region(team, run, data, count);
    execute(run, data, (struct place){team, 0, count});
    atomic_fetch_add(&team->finished, 1);
    end_region(team, count);
}

/* What a region contains */

void rt_team_barrier(void) {
    struct team *team = self.place.team;
    if (self.place.shares <= 1) return;
    const uint32_t passed = atomic_load(&team->passed);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == (uint32_t)self.place.shares) {
        atomic_store(&team->arrived, 0);
        atomic_store(&team->passed, passed + 1);
        rt_bell_ring(&team->barrier);
        return;
    }
    struct rt_wait wait;
    for (rt_wait_begin(&wait, &team->barrier); atomic_load(&team->passed) == passed; rt_wait_turn(&wait, 0)) {
    }
    rt_wait_end(&wait);
}

static void describe_loop(struct team *team, long start, long end, long step, long chunk) {
    int state = LOOP_NONE;
    if (atomic_compare_exchange_strong(&team->loop, &state, LOOP_BEGINS)) {
        atomic_store(&team->position, start);
        team->end = end, team->step = step, team->chunk = chunk;
        atomic_store(&team->loop, LOOP_GOES);
    }
    while (atomic_load(&team->loop) != LOOP_GOES) {
    }
}

bool rt_team_loop_start(long start, long end, long step, long chunk, long *from, long *to) {
    struct team *team = self.place.team;
    if (self.place.shares > 1) {
        describe_loop(team, start, end, step, chunk);
        return rt_team_loop_next(from, to);
    }
    *from = start, *to = end;
    return step > 0 ? start < end : start > end;
}

bool rt_team_loop_next(long *from, long *to) {
    struct team *team = self.place.team;
    if (self.place.shares <= 1) return false;
    const long piece = team->step * team->chunk, first = atomic_fetch_add(&team->position, piece), end = team->end;
    const long left = (end - first) * (team->step > 0 ? 1 : -1);
    if (left <= 0) return false;
    *from = first;
    *to = left > labs(piece) ? first + piece : end;
    return true;
}

void rt_team_loop_end(void) {}

#endif
