/* Membership, waiting and memory of communicators in a shared segment (Note [Segment] in comm_shared.h). */
#include "comm/comm_shared_private.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE      4096
#define PUBLISHED 200      /* turns after which a wait is published, if the rank does not sleep before */
#define SLEEP_NS  20000000 /* longest sleep: whoever ends a rank marks the segment without ringing */
#define NAP_NS    50000    /* the same while another transport must be looked at */
#define LOOKS     1024     /* turns between looks for ranks that have left */

/* Offsets of the parts of a segment. */
struct layout {
    size_t progress, control, mailbox, slot, mail, symmetric;
};

static size_t aligned(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static struct layout layout_of(int size) {
    const size_t ranks = (size_t)size;
    struct layout at;
    at.progress = aligned(sizeof(struct rt_shared_header) + ranks * sizeof(uint32_t));
    at.control = at.progress + aligned(ranks * sizeof(struct rt_activity));
    at.mailbox = at.control + aligned(ranks * RT_SHARED_LEVELS * sizeof(struct control));
    at.slot = at.mailbox + aligned(ranks * ranks * sizeof(struct mailbox));
    at.mail = at.slot + ranks * 2 * RT_SHARED_STAGE;
    at.symmetric = at.mail + ranks * ranks * 2 * RT_SHARED_MAIL;
    return at;
}

size_t rt_shared_control_bytes(int size) {
    return layout_of(size).symmetric;
}

size_t rt_comm_shared_bytes(int size, size_t symmetric) {
    return layout_of(size).symmetric + (size_t)size * aligned(symmetric);
}

struct rt_activity *rt_shared_progress(void *segment, int rank) {
    /* The layout depends on the number of ranks, which is set before a segment is used. */
    int size = (int)atomic_load(&rt_shared_header(segment)->size);
    return (struct rt_activity *)(void *)((unsigned char *)segment + layout_of(size).progress) + rank;
}

bool rt_shared_claim_report(void *segment) {
    return atomic_exchange(&rt_shared_header(segment)->reported, 1) == 0;
}

/* Bit set of the levels at which the rank has a communicator. */
static _Atomic uint32_t *levels_of(const struct shared *shared, int world_rank) {
    return (_Atomic uint32_t *)(void *)(shared->segment + sizeof(struct rt_shared_header)) + world_rank;
}

static struct control *control_of(const struct shared *shared, int level, int world_rank) {
    struct control *first = (struct control *)(void *)(shared->segment + layout_of(shared->world_size).control);
    return first + (size_t)level * (size_t)shared->world_size + world_rank;
}

static size_t pair_of(const struct shared *shared, int from, int to) {
    return (size_t)shared->world[from] * (size_t)shared->world_size + (size_t)shared->world[to];
}

struct mailbox *shared_mailbox(const struct shared *shared, int from, int to) {
    struct mailbox *first = (struct mailbox *)(void *)(shared->segment + layout_of(shared->world_size).mailbox);
    return first + pair_of(shared, from, to);
}

unsigned char *shared_mail(const struct shared *shared, int from, int to) {
    return shared->segment + layout_of(shared->world_size).mail + pair_of(shared, from, to) * 2 * RT_SHARED_MAIL;
}

unsigned char *shared_slot(const struct shared *shared, int member, uint64_t piece) {
    size_t half = (size_t)shared->world[member] * 2 + (size_t)(piece & 1);
    return shared->segment + layout_of(shared->world_size).slot + half * RT_SHARED_STAGE;
}

static unsigned char *symmetric_of(const struct shared *shared, int world_rank) {
    return shared->segment + layout_of(shared->world_size).symmetric + (size_t)world_rank * aligned(shared->symmetric);
}

unsigned char *shared_symmetric(const struct shared *shared, int member) {
    return symmetric_of(shared, shared->world[member]);
}

uint64_t shared_offset(const struct shared *shared, const void *buffer, size_t bytes) {
    uintptr_t base = (uintptr_t)symmetric_of(shared, shared->world_rank), at = (uintptr_t)buffer;
    if (at < base || at - base > shared->symmetric || bytes > shared->symmetric - (at - base)) return NOT_SYMMETRIC;
    return at - base;
}

int shared_fail(struct shared *shared, int status, const char *format, ...) {
    RT_PRINT_TO(shared->base.why, format);
    return status;
}

bool shared_aborted(const struct shared *shared) {
    return atomic_load_explicit(&rt_shared_header(shared->segment)->aborted, memory_order_acquire) != 0;
}

/* Only this rank writes its progress. */
void shared_count_move(struct shared *shared) {
    const int64_t moves = atomic_load_explicit(&shared->progress->moves, memory_order_relaxed);
    atomic_store_explicit(&shared->progress->moves, moves + 1, memory_order_relaxed);
}

/* Encoding of rt_activity.wait: the communicator's level, or the world rank that is waited for. */
#define WAIT_FOR_ALL (UINT32_C(1) << 31)
#define WAIT_FOR_ONE (UINT32_C(1) << 30)
#define WAIT_DETAIL  (WAIT_FOR_ONE - 1)

/* No rank has the number WAIT_DETAIL, and no word of the header reaches the value. */
void shared_wait_elsewhere(struct shared *shared, bool begins) {
    struct rt_activity *progress = shared->progress;
    atomic_store_explicit(&progress->awaited, 0, memory_order_relaxed);
    atomic_store_explicit(&progress->value, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&progress->wait, begins ? WAIT_FOR_ONE | WAIT_DETAIL : 0, memory_order_release);
    shared_count_move(shared);
}

static void publish_wait(struct shared *shared, const _Atomic uint64_t *word, uint64_t value, int whose) {
    const uint32_t wait =
        whose == SHARED_ALL ? WAIT_FOR_ALL | (uint32_t)shared->level : WAIT_FOR_ONE | (uint32_t)shared->world[whose];
    struct rt_activity *progress = shared->progress;
    atomic_store_explicit(&progress->awaited, (uint64_t)((const unsigned char *)word - shared->segment),
                          memory_order_relaxed);
    atomic_store_explicit(&progress->value, value, memory_order_relaxed);
    atomic_store_explicit(&progress->wait, wait, memory_order_release);
}

static int end_wait(struct shared *shared, int status) {
    atomic_store_explicit(&shared->progress->wait, 0, memory_order_relaxed);
    if (!status) shared_count_move(shared);
    return status;
}

static bool is_reached(const _Atomic uint64_t *word, uint64_t value) {
    return atomic_load_explicit(word, memory_order_acquire) >= value;
}

/* Once, before the rank sleeps or when it has waited for some time. */
static void publish_once(struct shared *shared, const struct rt_wait *wait, const _Atomic uint64_t *word,
                         uint64_t value, int whose) {
    if (wait->turns == PUBLISHED || (wait->sleeps && atomic_load(&shared->progress->wait) == 0))
        publish_wait(shared, word, value, whose);
}

/* What goes on during a wait: other transfers, and those of another transport. */
static int look_around(struct shared *shared) {
    struct transfers *transfers = shared->transfers;
    if (shared_aborted(shared)) return RT_ERROR_PEER;
    return transfers->outstanding > 0 ? shared_advance(shared) : RT_OK;
}

/* Leaves the core to a rank that it waits for. */
static void keep_apart(const struct shared *shared, int whose) {
    for (int r = 0; r < shared->base.size; r++)
        if (r != shared->base.rank && (whose == SHARED_ALL || whose == r))
            rt_wait_apart(atomic_load(&rt_shared_progress(shared->segment, shared->world[r])->core));
}

/* A member that is waited for and has closed the communicator of all ranks; -1: none. */
static int find_left(const struct shared *shared, int whose) {
    const int first = whose == SHARED_ALL ? 0 : whose, end = whose == SHARED_ALL ? shared->base.size : whose + 1;
    for (int m = first; m < end; m++)
        if (atomic_load(&rt_shared_progress(shared->segment, shared->world[m])->closed) >= shared->opening) return m;
    return -1;
}

/* The numbers of ranks are those of the job unless another transport connects this host with others. */
static int fail_left(struct shared *shared, int member) {
    if (shared->transfers->beside)
        return shared_fail(shared, RT_ERROR_SYSTEM, "a rank of this host has left the job, and this rank waits for it");
    return shared_fail(shared, RT_ERROR_SYSTEM, "rank %d has left the job, and rank %d waits for it (E0905)",
                       shared->world[member], shared->world_rank);
}

/* Looks now and then whether a rank that is waited for has left. What it wrote before counts. */
static int look_for_left(struct shared *shared, const struct rt_wait *wait, const _Atomic uint64_t *word,
                         uint64_t value, int whose) {
    const int left = wait->sleeps || wait->turns % LOOKS == LOOKS - 1 ? find_left(shared, whose) : -1;
    return left < 0 || is_reached(word, value) ? RT_OK : fail_left(shared, left);
}

/* A word that was written before the job was aborted counts. */
int shared_wait(struct shared *shared, const _Atomic uint64_t *word, uint64_t value, int whose) {
    const struct transfers *transfers = shared->transfers;
    struct rt_wait wait;
    int status = RT_OK;
    rt_wait_begin(&wait, &shared->progress->bell);
    atomic_store_explicit(&shared->progress->core, sched_getcpu(), memory_order_relaxed);
    while (!is_reached(word, value)) {
        status = look_around(shared);
        if (!status && transfers->beside && wait.turns >= PUBLISHED) status = transfers->beside(transfers->context);
        if (!status) status = look_for_left(shared, &wait, word, value, whose);
        if (status) break;
        publish_once(shared, &wait, word, value, whose);
        if (wait.sleeps) keep_apart(shared, whose);
        rt_wait_turn(&wait, transfers->beside ? NAP_NS : SLEEP_NS);
    }
    rt_wait_end(&wait);
    return end_wait(shared, status == RT_ERROR_PEER && is_reached(word, value) ? RT_OK : status);
}

struct rt_bell *shared_bell(const struct shared *shared, int member) {
    return &rt_shared_progress(shared->segment, shared->world[member])->bell;
}

void shared_ring_all(const struct shared *shared) {
    for (int r = 0; r < shared->base.size; r++)
        if (r != shared->base.rank) rt_bell_ring(shared_bell(shared, r));
}

int shared_barrier(struct shared *shared) {
    struct control *first = shared->control[0];
    const uint64_t generation = atomic_load_explicit(&first->generation, memory_order_relaxed);
    if (shared_aborted(shared)) return RT_ERROR_PEER;
    const uint32_t before = atomic_fetch_add_explicit(&first->arrived, 1, memory_order_acq_rel);
    if (before + 1 < (uint32_t)shared->base.size)
        return shared_wait(shared, &first->generation, generation + 1, SHARED_ALL);
    shared_count_move(shared);
    atomic_store_explicit(&first->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&first->generation, generation + 1, memory_order_release);
    shared_ring_all(shared);
    return RT_OK;
}

bool rt_shared_waits(void *segment, int rank) {
    const struct rt_activity *progress = rt_shared_progress(segment, rank);
    const int size = (int)atomic_load(&rt_shared_header(segment)->size);
    const uint64_t at = atomic_load(&progress->awaited);
    if (!atomic_load(&progress->wait) || at % sizeof(uint64_t) != 0 || at >= layout_of(size).slot) return false;
    const _Atomic uint64_t *word = (const _Atomic uint64_t *)(void *)((unsigned char *)segment + at);
    return atomic_load(word) < atomic_load(&progress->value);
}

/* Identifies the communicator of a level that the rank is in (control.first); 0: none. Level 0 is the communicator of
 * all ranks, including those that have not joined yet. */
static uint32_t group_of(unsigned char *segment, int size, uint32_t level, int rank) {
    const struct control *control = (const struct control *)(void *)(segment + layout_of(size).control);
    if (level == 0) return 1;
    return level < RT_SHARED_LEVELS ? atomic_load(&control[(size_t)level * (size_t)size + rank].first) : 0;
}

bool rt_shared_waits_for(void *segment, int waiter, int other) {
    const int size = (int)atomic_load(&rt_shared_header(segment)->size);
    const struct rt_activity *mine = rt_shared_progress(segment, waiter), *theirs = rt_shared_progress(segment, other);
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

static const struct rt_comm_driver shared_driver;

static void free_shared(struct shared *shared) {
    free(shared->control);
    free(shared->world);
    free(shared->view);
    free(shared->addends);
    free(shared->target);
    shared_leave_transfers(shared->transfers);
    free(shared);
}

/* transfers: those of the communicator that is split, NULL if there is none. */
static struct shared *new_shared(void *segment, size_t symmetric, int world_size, int world_rank, int size,
                                 struct transfers *transfers) {
    struct shared *shared = calloc(1, sizeof *shared);
    if (!shared) return NULL;
    shared->transfers = transfers ? transfers : shared_new_transfers(world_size);
    if (shared->transfers) shared->transfers->users++;
    shared->base.driver = &shared_driver;
    shared->base.size = size;
    shared->segment = segment;
    shared->progress = rt_shared_progress(segment, world_rank);
    shared->symmetric = symmetric;
    shared->world_size = world_size;
    shared->world_rank = world_rank;
    shared->control = calloc((size_t)size, sizeof(*shared->control));
    shared->world = calloc((size_t)size, sizeof(*shared->world));
    shared->view = calloc((size_t)size, sizeof(*shared->view));
    shared->addends = calloc((size_t)size + 1, sizeof(*shared->addends));
    shared->target = calloc((size_t)size, sizeof(*shared->target));
    if (shared->control && shared->world && shared->view && shared->addends && shared->target && shared->transfers)
        return shared;
    free_shared(shared);
    return NULL;
}

static void set_member(struct shared *shared, int member, int world_rank) {
    shared->world[member] = world_rank;
    shared->control[member] = control_of(shared, shared->level, world_rank);
    if (world_rank == shared->world_rank) shared->base.rank = member;
}

/* Resets the counters of background collectives. No member of a communicator of this level can read them yet. */
static void forget_background(const struct shared *shared, int level) {
    struct control *mine = control_of(shared, level, shared->world_rank);
    atomic_store(&mine->begun, 0);
    atomic_store(&mine->done, 0);
}

static void use_level(struct shared *shared, int level) {
    shared->level = level;
    atomic_store(&control_of(shared, level, shared->world_rank)->first, (uint32_t)shared->world[0] + 1);
    atomic_fetch_or(levels_of(shared, shared->world_rank), (uint32_t)1 << level);
}

/* The first rank to join sets the job's size; the others must agree. */
static bool agree_on_size(struct rt_shared_header *header, int size, size_t symmetric) {
    uint32_t ranks = 0;
    uint64_t bytes = 0;
    bool ok = atomic_compare_exchange_strong(&header->size, &ranks, (uint32_t)size) || ranks == (uint32_t)size;
    return ok && (atomic_compare_exchange_strong(&header->symmetric, &bytes, (uint64_t)symmetric + 1) ||
                  bytes == (uint64_t)symmetric + 1);
}

int rt_comm_open_shared(struct rt_comm **out, void *segment, int rank, int size, size_t symmetric) {
    if (size < 1 || size > RT_MAX_RANKS || rank < 0 || rank >= size) return RT_ERROR_USAGE;
    if (!agree_on_size(rt_shared_header(segment), size, symmetric)) return RT_ERROR_MISMATCH;
    rt_wait_beside(size);
    struct shared *shared = new_shared(segment, symmetric, size, rank, size, NULL);
    if (!shared) return RT_ERROR_SYSTEM;
    for (int r = 0; r < size; r++) set_member(shared, r, r);
    forget_background(shared, 0);
    use_level(shared, 0);
    shared->opening = atomic_fetch_add(&shared->progress->opened, 1) + 1;
    atomic_store(&shared->progress->instruction, -1);
    atomic_store(&shared->progress->core, -1);
    shared_count_move(shared);
    *out = &shared->base;
    return RT_OK;
}

/* Lowest level that no member uses; -1: none. Equal on all members, since no levels change while all are in the
 * split. */
static int free_level(const struct shared *shared) {
    uint32_t used = 0;
    for (int r = 0; r < shared->base.size; r++) used |= atomic_load(levels_of(shared, shared->world[r]));
    return used == UINT32_MAX ? -1 : __builtin_ctz(~used);
}

static struct shared *new_part(struct shared *shared, int color, int level) {
    int size = 0;
    for (int r = 0; r < shared->base.size; r++) size += (int)shared->control[r]->call.bytes == color;
    struct shared *part =
        new_shared(shared->segment, shared->symmetric, shared->world_size, shared->world_rank, size, shared->transfers);
    if (!part) return NULL;
    part->level = level;
    part->opening = shared->opening;
    forget_background(part, level);
    for (int r = 0, member = 0; r < shared->base.size; r++)
        if ((int)shared->control[r]->call.bytes == color) set_member(part, member++, shared->world[r]);
    return part;
}

static int shared_split(struct rt_comm *comm, int color, struct rt_comm **out) {
    struct shared *shared = shared_of(comm), *part = NULL;
    int status = shared_enter_split(shared, color);
    if (status) return status;
    const int level = free_level(shared);
    if (level >= 0) part = new_part(shared, color, level);
    /* This barrier comes before any member changes levels or colors that others still read. A member marks its new
     * level before it can enter another split, so no other split takes the same level. */
    status = shared_barrier(shared);
    if (status || !part) {
        if (part) free_shared(part);
        if (status) return status;
        return shared_fail(shared, RT_ERROR_SYSTEM,
                           level < 0 ? "a rank is in too many communicators" : "out of memory");
    }
    use_level(part, level);
    *out = &part->base;
    return RT_OK;
}

static void shared_abort(struct rt_comm *comm) {
    const struct shared *shared = shared_of(comm);
    atomic_store(&rt_shared_header(shared->segment)->aborted, 1);
    for (int r = 0; r < shared->world_size; r++) rt_bell_ring(&rt_shared_progress(shared->segment, r)->bell);
}

static int shared_alive(struct rt_comm *comm) {
    return shared_aborted(shared_of(comm)) ? RT_ERROR_PEER : RT_OK;
}

static void shared_close(struct rt_comm *comm) {
    struct shared *shared = shared_of(comm);
    atomic_store(&control_of(shared, shared->level, shared->world_rank)->first, 0);
    atomic_fetch_and(levels_of(shared, shared->world_rank), ~((uint32_t)1 << shared->level));
    if (shared->level == 0) atomic_store(&shared->progress->closed, shared->opening);
    free_shared(shared);
}

static void *shared_segment(struct rt_comm *comm, size_t *bytes) {
    struct shared *shared = shared_of(comm);
    *bytes = shared->symmetric;
    return symmetric_of(shared, shared->world_rank);
}

static void shared_report(struct rt_comm *comm, int64_t step, int instruction) {
    struct shared *shared = shared_of(comm);
    atomic_store_explicit(&shared->progress->step, step, memory_order_relaxed);
    atomic_store_explicit(&shared->progress->instruction, instruction, memory_order_relaxed);
    shared_count_move(shared);
}

void shared_begin_call(struct shared *shared, enum rt_operation operation) {
    const int64_t calls = atomic_load_explicit(&shared->progress->calls, memory_order_relaxed);
    atomic_store_explicit(&shared->progress->calls, calls + 1, memory_order_relaxed);
    atomic_store_explicit(&shared->progress->operation, operation, memory_order_relaxed);
    shared_count_move(shared);
}

const char *rt_shared_operation_name(int operation) {
    static const char *const names[RT_OPERATIONS] = {
        "nothing", "barrier", "all-reduce", "all-gather",     "reduce-scatter", "all-to-all",        "broadcast",
        "split",   "send",    "receive",    "begin of a sum", "end of sums",    "begin of a gather", "end of a gather"};
    return operation >= 0 && operation < RT_OPERATIONS ? names[operation] : "?";
}

static const struct rt_comm_driver shared_driver = {
    .name = "shared",
    .barrier = shared_barrier_call,
    .all_reduce = shared_all_reduce,
    .all_gather = shared_all_gather,
    .reduce_scatter = shared_reduce_scatter,
    .sums_onto = true,
    .begin = shared_begin,
    .progress = shared_progress,
    .finish = shared_finish,
    .all_to_all = shared_all_to_all,
    .broadcast = shared_broadcast,
    .send = shared_send,
    .receive = shared_receive,
    .post_send = shared_post_send,
    .post_receive = shared_post_receive,
    .wait = shared_wait_request,
    .split = shared_split,
    .abort = shared_abort,
    .alive = shared_alive,
    .close = shared_close,
    .segment = shared_segment,
    .report = shared_report,
};
