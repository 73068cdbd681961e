/* A process beside a rank that another launcher has started.
 *
 * Note [Watching]
 * mpirun and srun notice a rank that dies, not one that hangs, and a rank that is stopped cannot notice itself. So each
 * rank starts a process of its own that observes the rank's progress in the shared memory of its host (Note
 * [Standstill]) and ends with the rank. It is forked before the rank calls MPI or starts threads. Ranks that wait for
 * each other without end are not found: a rank's own process does not see whether the others wait too. */
#include "launch/launch_private.h"

#include "base/exit_code.h"
#include "base/io/progress.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRACE_MS = 500 };

/* What the rank tells its process once it has joined. */
struct position {
    int segment, place, rank; /* see rt_watch_begin */
};

/* Keeps stderr and `end`. */
static void leave_descriptors(int end) {
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 2 && null >= 0; fd++) dup2(null, fd);
    for (long fd = 3, most = sysconf(_SC_OPEN_MAX); fd < most && fd < 65536; fd++)
        if (fd != end) close((int)fd);
}

/* Maps the rank's memory, through the rank's descriptor. */
static int map_segment(struct launch *job, pid_t rank, int segment) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)rank, segment);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &status) == 0) {
        job->segment_bytes = (size_t)status.st_size;
        job->segment = mmap(NULL, job->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    return job->segment && job->segment != MAP_FAILED ? 0 : -1;
}

/* True if the rank has ended, after at most `ms`. */
static bool has_ended(int end, int64_t ms) {
    struct pollfd poll_end = {.fd = end, .events = POLLIN};
    return poll(&poll_end, 1, (int)ms) > 0;
}

static bool is_stuck(struct launch *job) {
    struct verdict verdict;
    if (!stall_check(job, &verdict) || (verdict.conduct != STOPPED && verdict.conduct != BUSY)) return false;
    report_stuck(job, verdict);
    return true;
}

/* Ends the waits of the ranks of this host, and then the rank; its launcher ends the other hosts'. The first signal
 * ends it with an exit code. */
static void end_job(struct launch *job, int end, pid_t rank) {
    atomic_store(&rt_shared_header(job->segment)->aborted, 1);
    if (has_ended(end, GRACE_MS)) return;
    kill(rank, SIGUSR2);
    kill(rank, SIGCONT);
    if (!has_ended(end, GRACE_MS)) kill(rank, SIGKILL);
}

static void end_rank(int number) {
    (void)number;
    _exit(EXIT_RANK);
}

static void observe(const struct rt_launch *what, const struct position *at, int end, pid_t rank) {
    struct rt_launch local = *what;
    struct launch job = {.what = &local, .number = &at->rank, .drawn = rt_progress_is_shown()};
    if (map_segment(&job, rank, at->segment)) return;
    local.ranks = (int)atomic_load(&rt_shared_header(job.segment)->size);
    if (at->place < 0 || at->place >= local.ranks) return;
    job.child = calloc((size_t)local.ranks, sizeof *job.child);
    if (!job.child || stall_open(&job) < 0) return;
    job.child[at->place] = (struct child){.pid = rank, .alive = true};
    while (!has_ended(end, stall_wait_ms(&job)))
        if (is_stuck(&job)) {
            end_job(&job, end, rank);
            return;
        }
}

int rt_watch_open(const struct rt_launch *what) {
    int ends[2];
    const pid_t rank = getpid();
    if (!what || pipe2(ends, O_CLOEXEC) != 0) return -1;
    const pid_t made = fork();
    if (made == 0) {
        struct position at;
        const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP};
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
        leave_descriptors(ends[0]);
        if (read(ends[0], &at, sizeof at) == sizeof at) observe(what, &at, ends[0], rank);
        _exit(0);
    }
    close(ends[0]);
    if (made > 0) signal(SIGUSR2, end_rank);
    if (made > 0) return ends[1];
    close(ends[1]);
    return -1;
}

void rt_watch_begin(int watch, int segment, int place, int rank) {
    const struct position at = {segment, place, rank};
    if (watch >= 0 && write(watch, &at, sizeof at) < 0) return; /* a rank without such a process runs all the same */
}
