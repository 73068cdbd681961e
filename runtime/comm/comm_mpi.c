#include "comm/comm_mpi_private.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MPI_BLOCK ((size_t)1 << 20)
#define PUBLISHED 1000  /* turns after which a wait is published: Note [Standstill] in launch/launch_stall.c */
#define NAP_NS    50000 /* longest sleep: MPI rings no bell */

int mpi_fail(struct mpi_comm *comm, int status, const char *format, ...) {
    RT_PRINT_TO(comm->base.why, format);
    return status;
}

unsigned char *mpi_scratch(struct mpi_comm *comm, size_t bytes) {
    struct rt_mpi_job *job = comm->job;
    if (bytes <= job->room) return job->scratch;
    free(job->scratch);
    job->scratch = malloc(bytes);
    job->room = job->scratch ? bytes : 0;
    if (!job->scratch) mpi_fail(comm, RT_ERROR_SYSTEM, "out of memory: a collective needs %zu bytes", bytes);
    return job->scratch;
}

static int mpi_error(struct mpi_comm *comm, int error) {
    char text[1024] = "";
    int length = 0;
    comm->job->mpi.Error_string(error, text, &length);
    return mpi_fail(comm, RT_ERROR_SYSTEM, "MPI: %.140s", text);
}

struct part {
    unsigned char *data;
    int count;
    rt_mpi_handle type;
};

static int start_part(struct rt_mpi_job *job, const struct rt_request *request, struct part part, int tag,
                      rt_mpi_handle *out) {
    *out = 0;
    if (request->sends) return job->mpi.Isend(part.data, part.count, part.type, request->peer, tag, job->comm, out);
    return job->mpi.Irecv(part.data, part.count, part.type, request->peer, tag, job->comm, out);
}

/* Room for one more transfer. */
static bool grow_transfers(struct rt_mpi_job *job) {
    if (job->ntransfers < job->most_transfers) return true;
    const int most = job->most_transfers ? 2 * job->most_transfers : 64;
    struct mpi_transfer *grown = realloc(job->transfers, (size_t)most * sizeof *grown);
    if (!grown) return false;
    job->transfers = grown;
    job->most_transfers = most;
    return true;
}

/* request->peer is a rank of the job. A message of more bytes than an int counts is two: its blocks, and the rest.
 * Returns MPI's error, or 0. */
static int start(struct mpi_comm *comm, struct rt_request *request, int tag) {
    struct rt_mpi_job *job = comm->job;
    const size_t blocks = request->bytes > INT_MAX ? request->bytes / MPI_BLOCK : 0, whole = blocks * MPI_BLOCK;
    const struct part first = {request->data, (int)blocks, job->block},
                      rest = {(unsigned char *)request->data + whole, (int)(request->bytes - whole), job->mpi.byte};
    if (!grow_transfers(job)) return mpi_fail(comm, RT_ERROR_SYSTEM, "out of memory");
    struct mpi_transfer *transfer = &job->transfers[job->ntransfers];
    *transfer = (struct mpi_transfer){.request = request, .sends = request->sends};
    int error = blocks ? start_part(job, request, first, tag, &transfer->part[0]) : 0;
    if (!error) error = start_part(job, request, rest, tag, &transfer->part[1]);
    request->number = (uint64_t)job->ntransfers++;
    return error ? mpi_error(comm, error) : RT_OK;
}

static int test(struct rt_mpi_job *job, rt_mpi_handle *handle) {
    int done = 0;
    const int error = *handle ? job->mpi.Test(handle, &done, job->mpi.status_ignore) : 0;
    if (done) *handle = 0;
    return error;
}

/* Completes the request of transfer i if MPI has; the last transfer then takes its number. Returns MPI's error, or
 * 0. */
static int advance(struct rt_mpi_job *job, int i) {
    struct mpi_transfer *transfer = &job->transfers[i];
    int error = test(job, &transfer->part[0]);
    if (!error) error = test(job, &transfer->part[1]);
    if (error || transfer->part[0] || transfer->part[1]) return error;
    transfer->request->complete = true;
    *transfer = job->transfers[--job->ntransfers];
    if (i < job->ntransfers) transfer->request->number = (uint64_t)i;
    return 0;
}

static int advance_all(struct rt_mpi_job *job) {
    int error = 0;
    for (int i = job->ntransfers - 1; i >= 0 && !error; i--) error = advance(job, i);
    return error;
}

/* Ends one part of a transfer of a job that failed: true if MPI does not access its memory any more. A receive that no
 * message has reached is cancelled at once; what is under way may have a partner that does not exist any more. */
static bool end_part(struct rt_mpi_job *job, rt_mpi_handle *part, bool sends) {
    const struct timespec moment = {0, 1000000};
    if (*part && !sends) job->mpi.Cancel(part);
    for (int i = 0; i < 20 && *part && !test(job, part); i++)
        if (*part) nanosleep(&moment, NULL);
    if (!*part) return true;
    job->mpi.Request_free(part);
    return false;
}

/* After a failure no request is accessed again: callers may have given them up. Where MPI is not the caller's, the
 * process is about to end, and its exit code is that of the job if it is the first: nothing is waited for. */
static void give_up(struct rt_mpi_job *job) {
    for (int i = 0; i < job->ntransfers; i++)
        for (int p = 0; p < 2; p++)
            if (!job->callers || !end_part(job, &job->transfers[i].part[p], job->transfers[i].sends))
                job->accessed = true;
    job->ntransfers = 0;
}

/* Aborts. A rank that fails marks the memory of its host and sends a word to the ranks of other hosts. */

static void tell_others(struct rt_mpi_job *job) {
    const struct timespec moment = {0, 1000000};
    int done;
    if (job->told || !pthread_equal(job->thread, pthread_self())) return;
    job->told = true;
    for (int r = 0; r < job->size; r++) {
        rt_mpi_handle request = 0;
        if (job->host[r] == job->host[job->rank]) continue;
        job->mpi.Isend(&job->farewell, 1, job->mpi.byte, r, MPI_TAG_ABORT, job->comm, &request);
        job->mpi.Test(&request, &done, job->mpi.status_ignore);
    }
    nanosleep(&moment, NULL);
}

static bool inside_aborted(const struct rt_mpi_job *job) {
    return job->inside && job->inside->driver->alive(job->inside) != RT_OK;
}

/* Looks for news of a failed rank without waiting, and passes them on. */
static int look_for_aborts(struct rt_mpi_job *job) {
    int come = 0;
    if (!job->aborted && job->news) job->mpi.Test(&job->news, &come, job->mpi.status_ignore);
    if (come) job->news = 0;
    if (come && job->inside) job->inside->driver->abort(job->inside);
    job->aborted = job->aborted || come || inside_aborted(job);
    if (!job->aborted) return RT_OK;
    tell_others(job);
    give_up(job);
    return RT_ERROR_PEER;
}

/* All that goes on while a rank waits: its posted transfers by MPI and in shared memory, and aborts. */
static int look_around(struct mpi_comm *comm) {
    struct shared *inside = shared_of(comm->job->inside);
    RT_TRY(look_for_aborts(comm->job));
    const int error = advance_all(comm->job);
    if (error) return mpi_error(comm, error);
    return inside->transfers->outstanding > 0 ? shared_advance(inside) : RT_OK;
}

/* Waits until the request is complete. */
static int await(struct mpi_comm *comm, const struct rt_request *request) {
    struct shared *inside = shared_of(comm->job->inside);
    struct rt_wait wait;
    bool published = false;
    int status = look_around(comm);
    for (rt_wait_begin(&wait, &inside->progress->bell); !request->complete && !status; status = look_around(comm)) {
        if (!published && (wait.sleeps || wait.turns == PUBLISHED)) shared_wait_elsewhere(inside, published = true);
        rt_wait_turn(&wait, NAP_NS);
    }
    rt_wait_end(&wait);
    if (published) shared_wait_elsewhere(inside, false);
    return status;
}

static int begin(struct mpi_comm *comm, bool sends, void *data, size_t bytes, int peer) {
    struct rt_request *request = &comm->work[comm->nwork++];
    *request = (struct rt_request){.data = data, .bytes = bytes, .peer = comm->world[peer], .sends = sends};
    return start(comm, request, MPI_TAG_COLLECTIVE);
}

int mpi_begin_send(struct mpi_comm *comm, const void *src, size_t bytes, int to) {
    return bytes > 0 ? begin(comm, true, (void *)(uintptr_t)src, bytes, to) : RT_OK;
}

int mpi_begin_receive(struct mpi_comm *comm, void *dst, size_t bytes, int from) {
    return bytes > 0 ? begin(comm, false, dst, bytes, from) : RT_OK;
}

int mpi_settle(struct mpi_comm *comm) {
    int status = RT_OK;
    for (int i = 0; i < comm->nwork && !status; i++) status = await(comm, &comm->work[i]);
    comm->nwork = 0;
    if (status) give_up(comm->job);
    return status;
}

static int post(struct mpi_comm *comm, struct rt_request *request, bool sends, void *data, size_t bytes, int peer) {
    if (peer < 0 || peer >= comm->base.size || peer == comm->base.rank)
        return mpi_fail(comm, RT_ERROR_USAGE, "invalid peer: rank %d of %d by rank %d", peer, comm->base.size,
                        comm->base.rank);
    RT_TRY(look_for_aborts(comm->job));
    *request = (struct rt_request){.data = data, .bytes = bytes, .peer = comm->world[peer], .sends = sends};
    return start(comm, request, MPI_TAG_MESSAGE);
}

static int mpi_post_send(struct rt_comm *comm, const void *src, size_t bytes, int to, struct rt_request *request) {
    return post(mpi_of(comm), request, true, (void *)(uintptr_t)src, bytes, to);
}

static int mpi_post_receive(struct rt_comm *comm, void *dst, size_t bytes, int from, struct rt_request *request) {
    return post(mpi_of(comm), request, false, dst, bytes, from);
}

static int mpi_wait(struct rt_comm *comm, struct rt_request *request) {
    const int status = await(mpi_of(comm), request);
    if (status) give_up(mpi_of(comm)->job);
    return request->complete ? RT_OK : status;
}

static int mpi_send(struct rt_comm *comm, const void *src, size_t bytes, int to) {
    struct rt_request request;
    const int status = mpi_post_send(comm, src, bytes, to, &request);
    return status ? status : mpi_wait(comm, &request);
}

static int mpi_receive(struct rt_comm *comm, void *dst, size_t bytes, int from) {
    struct rt_request request;
    const int status = mpi_post_receive(comm, dst, bytes, from, &request);
    return status ? status : mpi_wait(comm, &request);
}

static const struct rt_comm_driver mpi_driver;

static void free_comm(struct mpi_comm *comm) {
    free(comm->world);
    free(comm->calls);
    free(comm->work);
    free(comm->view);
    free(comm->counts);
    free(comm);
}

static struct mpi_comm *new_comm(struct rt_mpi_job *job, int size) {
    struct mpi_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return NULL;
    comm->base.driver = &mpi_driver;
    comm->base.size = size;
    comm->job = job;
    comm->world = calloc((size_t)size, sizeof *comm->world);
    comm->calls = calloc((size_t)size, sizeof *comm->calls);
    comm->work = calloc(4 * (size_t)size, sizeof *comm->work);
    comm->view = calloc((size_t)size + 1, sizeof(*comm->view));
    comm->counts = calloc((size_t)size, sizeof *comm->counts);
    if (comm->world && comm->calls && comm->work && comm->view && comm->counts) return comm;
    free_comm(comm);
    return NULL;
}

/* Number of hosts if members are numbered host by host and each host has `each` of them, else 0. */
static int even_hosts(const struct mpi_comm *comm, int each) {
    const int *host = comm->job->host;
    if (comm->base.size % each) return 0;
    for (int m = 0; m < comm->base.size; m++) {
        if (host[comm->world[m]] != host[comm->world[m - m % each]]) return 0;
        if (m > 0 && m % each == 0 && host[comm->world[m]] == host[comm->world[m - 1]]) return 0;
    }
    return comm->base.size / each;
}

/* Adopts the members that comm->world lists. */
static void adopt(struct mpi_comm *comm, struct rt_comm *inside) {
    for (int m = 0; m < comm->base.size; m++)
        if (comm->world[m] == comm->job->rank) comm->base.rank = m;
    comm->inside = inside;
    comm->hosts = even_hosts(comm, inside->size);
}

static int mpi_split(struct rt_comm *base, int color, struct rt_comm **out) {
    struct mpi_comm *comm = mpi_of(base), *part;
    struct rt_comm *inside;
    int n = 0;
    int status = mpi_enter(comm, RT_SPLIT, 0, 0, color, NULL);
    if (status) return status;
    for (int m = 0; m < base->size; m++) n += comm->calls[m].detail == color;
    status = comm->inside->driver->split(comm->inside, color, &inside);
    if (status) return mpi_fail(comm, status, "%s", comm->inside->why);
    *out = inside;
    if (inside->size == n) return RT_OK;
    part = new_comm(comm->job, n);
    if (!part) {
        inside->driver->close(inside);
        return mpi_fail(comm, RT_ERROR_SYSTEM, "out of memory");
    }
    for (int m = 0, member = 0; m < base->size; m++)
        if (comm->calls[m].detail == color) part->world[member++] = comm->world[m];
    adopt(part, inside);
    *out = &part->base;
    return RT_OK;
}

static void mpi_abort(struct rt_comm *comm) {
    struct rt_mpi_job *job = mpi_of(comm)->job;
    job->inside->driver->abort(job->inside);
    tell_others(job);
}

static int mpi_alive(struct rt_comm *comm) {
    return look_for_aborts(mpi_of(comm)->job);
}

static void mpi_close(struct rt_comm *comm) {
    struct rt_comm *inside = mpi_of(comm)->inside;
    inside->driver->close(inside);
    free_comm(mpi_of(comm));
}

static void *mpi_segment(struct rt_comm *comm, size_t *bytes) {
    return mpi_of(comm)->inside->driver->segment(mpi_of(comm)->inside, bytes);
}

static void mpi_report(struct rt_comm *comm, int64_t step, int instruction) {
    mpi_of(comm)->inside->driver->report(mpi_of(comm)->inside, step, instruction);
}

static const struct rt_comm_driver mpi_driver = {
    .name = "mpi",
    .barrier = mpi_barrier,
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .sums_onto = true,
    .all_to_all = mpi_all_to_all,
    .broadcast = mpi_broadcast,
    .send = mpi_send,
    .receive = mpi_receive,
    .post_send = mpi_post_send,
    .post_receive = mpi_post_receive,
    .wait = mpi_wait,
    .split = mpi_split,
    .abort = mpi_abort,
    .alive = mpi_alive,
    .close = mpi_close,
    .segment = mpi_segment,
    .report = mpi_report,
};

/* `of`: the communicator to duplicate. */
static int connect_ranks(struct rt_mpi_job *job, rt_mpi_handle of) {
    const struct rt_mpi *mpi = &job->mpi;
    const int errors = mpi->Comm_dup(of, &job->comm) || mpi->Comm_rank(job->comm, &job->rank) ||
                       mpi->Comm_size(job->comm, &job->size) ||
                       mpi->Comm_set_errhandler(job->comm, mpi->errors_return) ||
                       mpi->Type_contiguous((int)MPI_BLOCK, mpi->byte, &job->block) || mpi->Type_commit(&job->block);
    return errors ? RT_ERROR_SYSTEM : RT_OK;
}

int rt_mpi_job_open(struct rt_mpi_job **out, const void *callers, char *why, size_t room) {
    struct rt_mpi_job *job = calloc(1, sizeof *job);
    rt_mpi_handle of = 0;
    snprintf(why, room, "out of memory");
    if (!job) return RT_ERROR_SYSTEM;
    int status =
        callers ? rt_mpi_adopt(&job->mpi, callers, &of, why, room) : rt_mpi_open(&job->mpi, RT_MPI_CONNECTS, why, room);
    if (!status && (status = connect_ranks(job, callers ? of : job->mpi.world))) {
        snprintf(why, room, "MPI cannot connect the ranks");
        rt_mpi_close(true);
    }
    if (status) {
        free(job);
        return status;
    }
    job->thread = pthread_self();
    job->callers = callers != NULL;
    *out = job;
    return RT_OK;
}

int rt_mpi_job_rank(const struct rt_mpi_job *job) {
    return job->rank;
}

int rt_mpi_job_size(const struct rt_mpi_job *job) {
    return job->size;
}

bool rt_mpi_job_single(const struct rt_mpi_job *job) {
    return job->mpi.single;
}

int rt_mpi_job_gather(struct rt_mpi_job *job, void *all, const void *mine, int bytes) {
    return job->mpi.Allgather(mine, bytes, job->mpi.byte, all, bytes, job->mpi.byte, job->comm) ? RT_ERROR_SYSTEM
                                                                                                : RT_OK;
}

/* Called by a rank that waits in shared memory. */
static int advance_beside(void *context) {
    struct rt_mpi_job *job = context;
    RT_TRY(look_for_aborts(job));
    return advance_all(job) ? RT_ERROR_SYSTEM : RT_OK;
}

int rt_mpi_job_connect(struct rt_mpi_job *job, const int *host, struct rt_comm *inside, struct rt_comm **out) {
    *out = inside;
    job->inside = inside;
    if (inside->size == job->size) return RT_OK;
    struct mpi_comm *comm = new_comm(job, job->size);
    job->host = malloc((size_t)job->size * sizeof *job->host);
    if (!comm || !job->host) {
        if (comm) free_comm(comm);
        return RT_ERROR_SYSTEM;
    }
    memcpy(job->host, host, (size_t)job->size * sizeof *job->host);
    for (int r = 0; r < job->size; r++) comm->world[r] = r;
    adopt(comm, inside);
    shared_of(inside)->transfers->beside = advance_beside;
    shared_of(inside)->transfers->context = job;
    *out = &comm->base;
    return job->mpi.Irecv(&job->word, 1, job->mpi.byte, job->mpi.any_source, MPI_TAG_ABORT, job->comm, &job->news)
               ? RT_ERROR_SYSTEM
               : RT_OK;
}

bool rt_mpi_job_accesses(struct rt_mpi_job *job) {
    give_up(job);
    return job->accessed;
}

void rt_mpi_job_close(struct rt_mpi_job *job, bool failed) {
    int finalized = 0;
    if (!job) return;
    job->mpi.Finalized(&finalized);
    if (failed && !finalized) give_up(job);
    if (!finalized && job->news && (!failed || job->callers)) end_part(job, &job->news, false);
    if (job->news) job->accessed = true;
    if (!failed && !finalized) {
        job->mpi.Type_free(&job->block);
        job->mpi.Comm_free(&job->comm);
    }
    rt_mpi_close(failed);
    free(job->transfers);
    free(job->host);
    if (job->accessed) return;
    free(job->scratch);
    free(job);
}
