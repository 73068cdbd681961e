/* Membership, waiting and memory of communicators in a shared segment (Note [Segment] in comm_shared.h). */
#define _GNU_SOURCE 1

#include "comm/comm_shared_private.h"

#include "base/checked.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE            4096
#define SPINS_ALONE     200   /* about 10 us; a yield with nobody else on the core costs little more than a look */
#define SPINS_CROWDED   10    /* the rank waited for may need this core */
#define YIELDS_TO_SLEEP 20000 /* then the wait is for a long computation: leave the core to it */
#define SLEEP_NS        50000

/* Where the parts of a segment begin. */
struct layout {
    size_t progress, control, mailbox, slot, symmetric;
};

static size_t aligned(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static struct layout layout_of(int size) {
    const size_t ranks = (size_t)size;
    struct layout at;
    at.progress = aligned(sizeof(struct rt_shared_header) + ranks * sizeof(uint32_t));
    at.control = at.progress + aligned(ranks * sizeof(struct rt_progress));
    at.mailbox = at.control + aligned(ranks * RT_SHARED_LEVELS * sizeof(struct control));
    at.slot = at.mailbox + aligned(ranks * ranks * sizeof(struct mailbox));
    at.symmetric = at.slot + ranks * 2 * RT_SHARED_STAGE;
    return at;
}

size_t rt_shared_control_bytes(int size) {
    return layout_of(size).symmetric;
}

size_t rt_comm_shared_bytes(int size, size_t symmetric) {
    return layout_of(size).symmetric + (size_t)size * aligned(symmetric);
}

struct rt_progress *rt_shared_progress(void *segment, int rank) {
    /* The header's size depends on the number of ranks, which a segment in use has. */
    int size = (int)atomic_load(&rt_shared_header(segment)->size);
    return (struct rt_progress *)(void *)((unsigned char *)segment + layout_of(size).progress) + rank;
}

bool rt_shared_claim_report(void *segment) {
    return atomic_exchange(&rt_shared_header(segment)->reported, 1) == 0;
}

/* Bit l is set while the rank is in a communicator of level l. */
static _Atomic uint32_t *levels_of(const struct shared *c, int world_rank) {
    return (_Atomic uint32_t *)(void *)(c->segment + sizeof(struct rt_shared_header)) + world_rank;
}

static struct control *control_of(const struct shared *c, int level, int world_rank) {
    struct control *first = (struct control *)(void *)(c->segment + layout_of(c->world_size).control);
    return first + (size_t)level * (size_t)c->world_size + world_rank;
}

struct mailbox *shared_mailbox(const struct shared *c, int from, int to) {
    struct mailbox *first = (struct mailbox *)(void *)(c->segment + layout_of(c->world_size).mailbox);
    return first + (size_t)c->world[from] * (size_t)c->world_size + c->world[to];
}

unsigned char *shared_slot(const struct shared *c, int member, uint64_t piece) {
    size_t half = (size_t)c->world[member] * 2 + (size_t)(piece & 1);
    return c->segment + layout_of(c->world_size).slot + half * RT_SHARED_STAGE;
}

static unsigned char *symmetric_of(const struct shared *c, int world_rank) {
    return c->segment + layout_of(c->world_size).symmetric + (size_t)world_rank * aligned(c->symmetric);
}

unsigned char *shared_symmetric(const struct shared *c, int member) {
    return symmetric_of(c, c->world[member]);
}

uint64_t shared_offset(const struct shared *c, const void *buffer, size_t bytes) {
    uintptr_t base = (uintptr_t)symmetric_of(c, c->world_rank), at = (uintptr_t)buffer;
    if (at < base || at - base > c->symmetric || bytes > c->symmetric - (at - base)) return NOT_SYMMETRIC;
    return at - base;
}

int shared_fail(struct shared *c, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->base.why, sizeof c->base.why, format, arguments);
    va_end(arguments);
    return status;
}

/* Waiting */

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool shared_aborted(const struct shared *c) {
    return atomic_load_explicit(&rt_shared_header(c->segment)->aborted, memory_order_relaxed) != 0;
}

/* Only this rank writes its progress. */
static void count_move(struct shared *c) {
    const int64_t moves = atomic_load_explicit(&c->progress->moves, memory_order_relaxed);
    atomic_store_explicit(&c->progress->moves, moves + 1, memory_order_relaxed);
}

/* A wait as others see it: level and kind, or the world rank waited for. */
#define WAIT_FOR_ALL (UINT32_C(1) << 31)
#define WAIT_FOR_ONE (UINT32_C(1) << 30)
#define WAIT_DETAIL  (WAIT_FOR_ONE - 1)

static void publish_wait(struct shared *c, const _Atomic uint64_t *word, uint64_t value, int whose) {
    const uint32_t wait =
        whose == SHARED_ALL ? WAIT_FOR_ALL | (uint32_t)c->level : WAIT_FOR_ONE | (uint32_t)c->world[whose];
    struct rt_progress *progress = c->progress;
    atomic_store_explicit(&progress->awaited, (uint64_t)((const unsigned char *)word - c->segment),
                          memory_order_relaxed);
    atomic_store_explicit(&progress->value, value, memory_order_relaxed);
    atomic_store_explicit(&progress->wait, wait, memory_order_release);
}

static int end_wait(struct shared *c, int status) {
    atomic_store_explicit(&c->progress->wait, 0, memory_order_relaxed);
    if (!status) count_move(c);
    return status;
}

int shared_wait(struct shared *c, const _Atomic uint64_t *word, uint64_t value, int whose) {
    for (int64_t turn = 0;; turn++) {
        if (atomic_load_explicit(word, memory_order_acquire) >= value) return end_wait(c, RT_OK);
        if (shared_aborted(c)) return end_wait(c, RT_ERROR_PEER);
        if (turn == c->spins) publish_wait(c, word, value, whose);
        if (turn < c->spins)
            relax();
        else if (turn < c->spins + YIELDS_TO_SLEEP)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
    }
}

int shared_barrier(struct shared *c) {
    struct control *first = c->control[0];
    const uint64_t generation = atomic_load_explicit(&first->generation, memory_order_relaxed);
    if (shared_aborted(c)) return RT_ERROR_PEER;
    const uint32_t before = atomic_fetch_add_explicit(&first->arrived, 1, memory_order_acq_rel);
    if (before + 1 < (uint32_t)c->base.size) return shared_wait(c, &first->generation, generation + 1, SHARED_ALL);
    count_move(c);
    atomic_store_explicit(&first->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&first->generation, generation + 1, memory_order_release);
    return RT_OK;
}

bool rt_shared_waits(void *segment, int rank) {
    const struct rt_progress *progress = rt_shared_progress(segment, rank);
    const int size = (int)atomic_load(&rt_shared_header(segment)->size);
    const uint64_t at = atomic_load(&progress->awaited);
    if (!atomic_load(&progress->wait) || at % sizeof(uint64_t) != 0 || at >= layout_of(size).slot) return false;
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)(void *)((unsigned char *)segment + at);
    return atomic_load(word) < atomic_load(&progress->value);
}

/* The communicator of that level that the rank is in. The lowest is everyone's, also of those who have not joined. */
static uint32_t group_of(unsigned char *segment, int size, uint32_t level, int rank) {
    const struct control *control = (const struct control *)(void *)(segment + layout_of(size).control);
    if (level == 0) return 1;
    return level < RT_SHARED_LEVELS ? atomic_load(&control[(size_t)level * (size_t)size + rank].first) : 0;
}

bool rt_shared_waits_for(void *segment, int waiter, int other) {
    const int size = (int)atomic_load(&rt_shared_header(segment)->size);
    const struct rt_progress *mine = rt_shared_progress(segment, waiter), *theirs = rt_shared_progress(segment, other);
    const uint32_t wait = atomic_load(&mine->wait), detail = wait & WAIT_DETAIL;
    if (waiter == other || !rt_shared_waits(segment, waiter)) return false;
    if (wait & WAIT_FOR_ONE) return detail == (uint32_t)other;
    const uint32_t group = group_of(segment, size, detail, waiter);
    if (!group || group_of(segment, size, detail, other) != group) return false;
    const bool arrived = rt_shared_waits(segment, other) &&
                         atomic_load(&theirs->awaited) == atomic_load(&mine->awaited) &&
                         atomic_load(&theirs->value) == atomic_load(&mine->value);
    return !arrived;
}

/* Membership */

static const struct rt_comm_driver shared_driver;

static int spins_for(int ranks) {
    cpu_set_t cores;
    int ncores = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return ranks <= ncores ? SPINS_ALONE : SPINS_CROWDED;
}

static void free_shared(struct shared *c) {
    free(c->control);
    free(c->world);
    free(c->view);
    free(c->target);
    free(c);
}

static struct shared *new_shared(void *segment, size_t symmetric, int world_size, int world_rank, int size) {
    struct shared *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->base.driver = &shared_driver;
    c->base.size = size;
    c->segment = segment;
    c->progress = rt_shared_progress(segment, world_rank);
    c->symmetric = symmetric;
    c->world_size = world_size;
    c->world_rank = world_rank;
    c->spins = spins_for(world_size);
    c->control = calloc((size_t)size, sizeof(*c->control));
    c->world = calloc((size_t)size, sizeof(*c->world));
    c->view = calloc((size_t)size, sizeof(*c->view));
    c->target = calloc((size_t)size, sizeof(*c->target));
    if (c->control && c->world && c->view && c->target) return c;
    free_shared(c);
    return NULL;
}

static void set_member(struct shared *c, int member, int world_rank) {
    c->world[member] = world_rank;
    c->control[member] = control_of(c, c->level, world_rank);
    if (world_rank == c->world_rank) c->base.rank = member;
}

/* Before any member can look: none is in a communicator of that level yet. */
static void forget_sums(const struct shared *c, int level) {
    struct control *mine = control_of(c, level, c->world_rank);
    atomic_store(&mine->begun, 0);
    atomic_store(&mine->added, 0);
}

static void use_level(struct shared *c, int level) {
    c->level = level;
    atomic_store(&control_of(c, level, c->world_rank)->first, (uint32_t)c->world[0] + 1);
    atomic_fetch_or(levels_of(c, c->world_rank), (uint32_t)1 << level);
}

/* The first rank says how large the job is; the others must agree. */
static bool agree_on_size(struct rt_shared_header *header, int size, size_t symmetric) {
    uint32_t ranks = 0;
    uint64_t bytes = 0;
    bool ok = atomic_compare_exchange_strong(&header->size, &ranks, (uint32_t)size) || ranks == (uint32_t)size;
    return ok && (atomic_compare_exchange_strong(&header->symmetric, &bytes, (uint64_t)symmetric + 1) ||
                  bytes == (uint64_t)symmetric + 1);
}

int rt_comm_open_shared(struct rt_comm **out, void *segment, int rank, int size, size_t symmetric) {
    if (size < 1 || size > RT_SHARED_MAX || rank < 0 || rank >= size) return RT_ERROR_USAGE;
    if (!agree_on_size(rt_shared_header(segment), size, symmetric)) return RT_ERROR_MISMATCH;
    struct shared *c = new_shared(segment, symmetric, size, rank, size);
    if (!c) return RT_ERROR_SYSTEM;
    for (int r = 0; r < size; r++) set_member(c, r, r);
    forget_sums(c, 0);
    use_level(c, 0);
    atomic_store(&c->progress->site, -1);
    count_move(c);
    *out = &c->base;
    return RT_OK;
}

/* Lowest level that no member uses: equal on all members, since no level changes while all are in the split. */
static int free_level(const struct shared *c) {
    uint32_t used = 0;
    for (int r = 0; r < c->base.size; r++) used |= atomic_load(levels_of(c, c->world[r]));
    return used == UINT32_MAX ? -1 : __builtin_ctz(~used);
}

static struct shared *new_part(struct shared *c, int color, int level) {
    int size = 0;
    for (int r = 0; r < c->base.size; r++) size += (int)c->control[r]->call.bytes == color;
    struct shared *part = new_shared(c->segment, c->symmetric, c->world_size, c->world_rank, size);
    if (!part) return NULL;
    part->level = level;
    forget_sums(part, level);
    for (int r = 0, member = 0; r < c->base.size; r++)
        if ((int)c->control[r]->call.bytes == color) set_member(part, member++, c->world[r]);
    return part;
}

static int shared_split(struct rt_comm *comm, int color, struct rt_comm **out) {
    struct shared *c = shared_of(comm), *part = NULL;
    int status = shared_enter_split(c, color);
    if (status) return status;
    const int level = free_level(c);
    if (level >= 0) part = new_part(c, color, level);
    /* All have looked at levels and colors before anyone changes them; a member marks its level before it can enter
     * another split, so nobody takes that level for free. */
    status = shared_barrier(c);
    if (status || !part) {
        if (part) free_shared(part);
        if (status) return status;
        return shared_fail(c, RT_ERROR_SYSTEM, level < 0 ? "a rank is in too many communicators" : "out of memory");
    }
    use_level(part, level);
    *out = &part->base;
    return RT_OK;
}

static void shared_abort(struct rt_comm *comm) {
    atomic_store(&rt_shared_header(shared_of(comm)->segment)->aborted, 1);
}

static int shared_alive(struct rt_comm *comm) {
    return shared_aborted(shared_of(comm)) ? RT_ERROR_PEER : RT_OK;
}

static void shared_close(struct rt_comm *comm) {
    struct shared *c = shared_of(comm);
    atomic_store(&control_of(c, c->level, c->world_rank)->first, 0);
    atomic_fetch_and(levels_of(c, c->world_rank), ~((uint32_t)1 << c->level));
    free_shared(c);
}

static void *shared_segment(struct rt_comm *comm, size_t *bytes) {
    struct shared *c = shared_of(comm);
    *bytes = c->symmetric;
    return symmetric_of(c, c->world_rank);
}

static void shared_report(struct rt_comm *comm, int64_t step, int site) {
    struct shared *c = shared_of(comm);
    atomic_store_explicit(&c->progress->step, step, memory_order_relaxed);
    atomic_store_explicit(&c->progress->site, site, memory_order_relaxed);
    count_move(c);
}

void shared_begin_call(struct shared *c, enum rt_operation operation) {
    const int64_t calls = atomic_load_explicit(&c->progress->calls, memory_order_relaxed);
    atomic_store_explicit(&c->progress->calls, calls + 1, memory_order_relaxed);
    atomic_store_explicit(&c->progress->operation, operation, memory_order_relaxed);
    count_move(c);
}

const char *rt_shared_operation_name(int operation) {
    static const char *const names[RT_OPERATIONS] = {"nothing",        "barrier",    "all-reduce",     "all-gather",
                                                     "reduce-scatter", "all-to-all", "broadcast",      "split",
                                                     "send",           "receive",    "begin of a sum", "end of sums"};
    return operation >= 0 && operation < RT_OPERATIONS ? names[operation] : "?";
}

static const struct rt_comm_driver shared_driver = {
    .name = "shared",
    .barrier = shared_barrier_call,
    .all_reduce = shared_all_reduce,
    .sum_begin = shared_sum_begin,
    .sum_progress = shared_sum_progress,
    .sum_finish = shared_sum_finish,
    .all_gather = shared_all_gather,
    .reduce_scatter = shared_reduce_scatter,
    .all_to_all = shared_all_to_all,
    .broadcast = shared_broadcast,
    .send = shared_send,
    .receive = shared_receive,
    .split = shared_split,
    .abort = shared_abort,
    .alive = shared_alive,
    .close = shared_close,
    .segment = shared_segment,
    .report = shared_report,
};
