/* Teams of threads: Note [Teams] in c/team.h. */
#include "c/team.h"

#ifdef RT_HAS_TEAMS

#include "base/thread/clock.h"
#include "base/thread/cores.h"
#include "base/thread/wait.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE       64   /* bytes of a cache line */
#define MAX_SHARES 1023 /* of a region */
#define PIECES     8    /* shares for each thread, where a region takes any number of them */

/* Packs into one word the shares of a lane that no thread has begun, [first, end), and the number of their region. So
 * one compare-and-swap both takes a share and confirms that the region is still the one whose function the thread has
 * read. */
#define SHARE_BITS 10
static uint64_t lane_word(uint64_t region, int first, int end) {
    return region << 2 * SHARE_BITS | (uint64_t)end << SHARE_BITS | (uint64_t)first;
}
static uint64_t region_of(uint64_t word) {
    return word >> 2 * SHARE_BITS;
}
static int end_of(uint64_t word) {
    return (int)(word >> SHARE_BITS & MAX_SHARES);
}
static int first_of(uint64_t word) {
    return (int)(word & MAX_SHARES);
}

typedef void run_fn(void *data);

/* A thread of a team, and the shares that it begins with. Lane 0 is the caller's. */
struct lane {
    _Alignas(LINE) _Atomic uint64_t shares;
    struct team *team;
    pthread_t thread;
    _Atomic pid_t id;     /* of the thread while it executes shares, else 0 */
    _Atomic bool lent;    /* it was moved to the caller's core: Note [Lending] */
    int64_t looked, used; /* when the caller last looked at it, and its processor time then, in ns */
};

struct team {
    _Alignas(LINE) run_fn *_Atomic run; /* of the region that is being handed out */
    void *_Atomic data;
    _Atomic int shares, lanes; /* of the region, and the threads that may take some */
    _Atomic int core;          /* that the caller was on */
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
    cpu_set_t cores;    /* that the threads may use: set where one is lent */
    int size, wanted;   /* threads, with the caller: those that run, and those that were to be started */
    struct team *after; /* in `teams` */
    struct lane lane[]; /* `wanted` */
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

static void execute(run_fn *run, void *data, struct place place) {
    const struct place outer = self.place;
    self.place = place;
    run(data);
    self.place = outer;
}

/* Takes a share of the current region and executes it: the first share of the thread's own lane, or the last one of
 * another lane. False if the lane has none. */
static bool take_share(struct team *team, int lane, bool own) {
    _Atomic uint64_t *shares = &team->lane[lane].shares;
    uint64_t word = atomic_load_explicit(shares, memory_order_acquire);
    struct place place = {.team = team};
    run_fn *run;
    void *data;
    do {
        if (first_of(word) >= end_of(word)) return false;
        run = atomic_load_explicit(&team->run, memory_order_relaxed);
        data = atomic_load_explicit(&team->data, memory_order_relaxed);
        place.shares = atomic_load_explicit(&team->shares, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(shares, &word, own ? word + 1 : word - (1 << SHARE_BITS)));
    place.share = own ? first_of(word) : end_of(word) - 1;
    execute(run, data, place);
    return true;
}

/* Takes shares until none is left; returns how many. Until they are counted in `finished` the region does not end. */
static int take_shares(struct team *team, int lane) {
    int taken = 0;
    while (take_share(team, lane, true)) taken++;
    const int lanes = atomic_load_explicit(&team->lanes, memory_order_relaxed);
    for (int other = lane + 1; lane < lanes && other < lane + lanes; other++)
        while (take_share(team, other % lanes, false)) taken++;
    return taken;
}

static void count_finished(struct team *team, int taken) {
    const int shares = atomic_load_explicit(&team->shares, memory_order_relaxed);
    if (atomic_fetch_add(&team->finished, taken) + taken == shares) rt_bell_ring(&team->done);
}

static void begin_region(struct team *team, run_fn *run, void *data, int shares, int lanes) {
    atomic_store_explicit(&team->run, run, memory_order_relaxed);
    atomic_store_explicit(&team->data, data, memory_order_relaxed);
    atomic_store_explicit(&team->shares, shares, memory_order_relaxed);
    atomic_store_explicit(&team->lanes, lanes, memory_order_relaxed);
    atomic_store_explicit(&team->loop, LOOP_NONE, memory_order_relaxed);
    atomic_store_explicit(&team->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&team->core, sched_getcpu(), memory_order_relaxed);
    team->region++;
    for (int lane = 0; lane < team->size; lane++) {
        const int first = lane < lanes ? shares * lane / lanes : shares, end = shares * (lane + 1) / lanes;
        atomic_store_explicit(&team->lane[lane].shares, lane_word(team->region, first, lane < lanes ? end : shares),
                              memory_order_release);
    }
    rt_bell_ring(&team->begun);
}

/* Note [Lending]
 * On a busy machine the kernel may suspend a thread within a share, to let another process use its core. The caller
 * then waits for it, and so does the caller's core: the thread is moved there and the caller sleeps. Otherwise both
 * would stand still for a time slice. A thread is suspended if its processor time stands still. */
#define LOOK_NS    40000 /* between two looks at a thread */
#define TURNS_LOOK 64    /* turns of a wait between two readings of the clock */

static int64_t processor_time(const struct lane *lane) {
    struct timespec used;
    clockid_t clock;
    if (pthread_getcpuclockid(lane->thread, &clock) || clock_gettime(clock, &used)) return -1;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* True if the thread executes a share and has stood still since the caller's last look at it. */
static bool stands_still(struct lane *lane, int64_t now, int64_t began) {
    const int64_t used = atomic_load(&lane->id) ? processor_time(lane) : -1, since = now - lane->looked;
    const bool still = used >= 0 && lane->looked >= began && used - lane->used < since / 4;
    lane->looked = now, lane->used = used;
    return still;
}

static bool lend(struct team *team, struct lane *lane) {
    cpu_set_t own;
    const pid_t id = atomic_load(&lane->id);
    CPU_ZERO(&own);
    CPU_SET((size_t)sched_getcpu(), &own);
    if (!id || sched_getaffinity(0, sizeof team->cores, &team->cores)) return false;
    atomic_store(&lane->lent, true);
    if (!sched_setaffinity(id, sizeof own, &own)) return true;
    atomic_store(&lane->lent, false);
    return false;
}

static bool lend_to_any(struct team *team, int64_t now, int64_t began) {
    for (int lane = 1; lane < team->lanes; lane++)
        if (stands_still(&team->lane[lane], now, began) && lend(team, &team->lane[lane])) return true;
    return false;
}

/* In a wait: true if a thread was lent the core, which sleeping leaves to it. */
static bool looks_around(struct team *team, const struct rt_wait *wait, int64_t *began, int64_t *next) {
    if (wait->sleeps || wait->turns % TURNS_LOOK != TURNS_LOOK - 1) return false;
    const int64_t now = rt_clock_ns();
    if (!*began) *began = now;
    if (now < *next) return false;
    *next = now + LOOK_NS;
    return lend_to_any(team, now, *began);
}

static void end_region(struct team *team, int shares) {
    struct rt_wait wait;
    int64_t began = 0, next = 0;
    rt_wait_begin(&wait, &team->done);
    while (atomic_load(&team->finished) < shares)
        if (looks_around(team, &wait, &began, &next))
            rt_wait_sleep(&wait);
        else
            rt_wait_turn(&wait, 0);
    rt_wait_end(&wait);
}

/* Leaves the caller's core to the caller, which has been woken. */
static void give_back(struct lane *lane, struct rt_wait *wait) {
    atomic_store(&lane->lent, false);
    sched_setaffinity(0, sizeof lane->team->cores, &lane->team->cores);
    rt_wait_sleep(wait);
}

static void *work(void *argument) {
    struct lane *lane = argument;
    struct team *team = lane->team;
    const pid_t id = gettid();
    for (uint64_t seen = 0; !team->ends;) {
        struct rt_wait wait;
        uint64_t region = seen;
        for (rt_wait_begin(&wait, &team->begun); !team->ends; rt_wait_turn(&wait, 0)) {
            if (atomic_load_explicit(&lane->lent, memory_order_relaxed)) give_back(lane, &wait);
            region = region_of(atomic_load_explicit(&lane->shares, memory_order_acquire));
            if (region != seen && !wait.sleeps) break;
            rt_wait_apart(atomic_load_explicit(&team->core, memory_order_relaxed));
            if (region != seen) break;
        }
        rt_wait_end(&wait);
        seen = region;
        atomic_store(&lane->id, id);
        const int taken = take_shares(team, (int)(lane - team->lane));
        atomic_store(&lane->id, 0);
        if (taken) count_finished(team, taken);
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
    while (team->size > 1) pthread_join(team->lane[--team->size].thread, NULL);
}

static void end_team(void *of) {
    struct team *team = of, **at = &teams;
    pthread_mutex_lock(&lock);
    while (*at && *at != team) at = &(*at)->after;
    if (*at) *at = team->after;
    pthread_mutex_unlock(&lock);
    stop(team);
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
    const size_t bytes = sizeof(struct team) + (size_t)size * sizeof(struct lane);
    struct team *team = aligned_alloc(LINE, bytes);
    if (!team) return NULL;
    memset(team, 0, bytes);
    team->wanted = size;
    team->begun = team->done = team->barrier = rt_bell_own();
    for (team->size = 1; team->size < size; team->size++) {
        struct lane *lane = &team->lane[team->size];
        lane->team = team;
        if (pthread_create(&lane->thread, NULL, work, lane)) break;
    }
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

/* How many threads execute a region of at most `asked` shares: fewer where not all could be started. */
static int threads_for(int asked) {
    const int most = cores() < MAX_SHARES ? cores() : MAX_SHARES, count = asked < most ? asked : most;
    if (self.place.team || count <= 1) return 1;
    const struct team *team = team_of(count);
    return !team ? 1 : team->size < count ? team->size : count;
}

void rt_team_parallel(void (*run)(void *data), void *data, unsigned asked, unsigned flags) {
    const int most = rt_team_max_threads(), pieces = asked & RT_TEAM_PIECES ? (int)(asked - RT_TEAM_PIECES) : 0;
    const int threads = threads_for(pieces ? (pieces < most ? pieces : most) : asked ? (int)asked : most);
    int shares = threads;
    (void)flags;
    if (threads == 1) {
        execute(run, data, (struct place){self.place.team, 0, 1});
        return;
    }
    if (pieces) shares = threads * (MAX_SHARES / threads < PIECES ? MAX_SHARES / threads : PIECES);
    if (pieces && pieces < shares) shares = pieces;
    begin_region(self.own, run, data, shares, threads);
    atomic_fetch_add(&self.own->finished, take_shares(self.own, 0));
    end_region(self.own, shares);
}

void rt_team_barrier(void) {
    struct team *team = self.place.team;
    if (self.place.shares <= 1) return;
    if (self.place.shares > atomic_load_explicit(&team->lanes, memory_order_relaxed)) rt_team_refuse();
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
