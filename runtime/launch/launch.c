#include "launch/launch_private.h"

#include "base/thread/clock.h"
#include "base/io/progress.h"
#include "base/text/reason.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS     500
#define EXIT_SYSTEM  6
#define EXIT_RANK    9
#define EXIT_SIGNAL  130
#define EXIT_NO_EXEC 127
#define NO_PIDFD_MS  5 /* poll interval where the kernel has no pidfd */

extern char **environ;

/* Entries of job->poll. */
static struct pollfd *poll_end(const struct launch *job, int rank) {
    return &job->poll[rank];
}
static struct pollfd *poll_output(const struct launch *job, int rank) {
    return &job->poll[job->what->ranks + rank];
}
static struct pollfd *poll_signals(const struct launch *job) {
    return &job->poll[2 * job->what->ranks];
}
static nfds_t poll_count(const struct launch *job) {
    return 2 * (nfds_t)job->what->ranks + 1;
}

void launch_print(const struct launch *job, const struct rt_diagnostic *item) {
    bool drawn = job->drawn;
    relay_clear(&drawn);
    rt_diagnostic_print(item, stderr, job->what->json ? RT_DIAGNOSTIC_JSON : RT_DIAGNOSTIC_PLAIN);
}

static void print_error(const struct launch *job, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void print_error(const struct launch *job, int code, const char *format, ...) {
    char text[512];
    const struct rt_diagnostic item = {.code = code, .text = text};
    RT_PRINT_TO(text, format);
    launch_print(job, &item);
}

static int report(struct launch *job, int code, const char *text, int error) {
    if (!job->segment || rt_shared_claim_report(job->segment))
        print_error(job, code, "%s%s%s", text, error ? ": " : "", error ? strerror(error) : "");
    return EXIT_SYSTEM;
}

/* Makes the segment without its symmetric part, which ranks add because they know its size. It is sealed against
 * shrinking, so that no mapping loses pages. */
static int make_segment(struct launch *job) {
    job->segment_bytes = rt_shared_control_bytes(job->what->ranks);
    job->memfd = memfd_create("rankc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (job->memfd < 0 || ftruncate(job->memfd, (off_t)job->segment_bytes) != 0 ||
        fcntl(job->memfd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        return report(job, 905, "cannot create shared memory", errno);
    void *segment = mmap(NULL, job->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, job->memfd, 0);
    if (segment == MAP_FAILED) return report(job, 905, "cannot map shared memory", errno);
    job->segment = segment;
    atomic_store(&rt_shared_header(segment)->size, (uint32_t)job->what->ranks);
    return 0;
}

/* The ranks' environment: the launcher's, the segment's descriptor, and whether progress is shown. */
static int make_environment(struct launch *job) {
    const size_t name = strlen(RT_SHM_FD_VARIABLE "=");
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    job->environment = calloc(count + 3, sizeof(*job->environment));
    if (!job->environment) return report(job, 500, "out of memory", 0);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], RT_SHM_FD_VARIABLE "=", name) != 0) job->environment[kept++] = environ[i];
    snprintf(job->variable, sizeof job->variable, RT_SHM_FD_VARIABLE "=%d", job->memfd);
    job->environment[kept++] = job->variable;
    job->shows_progress = rt_progress_is_shown();
    snprintf(job->progress, sizeof job->progress, RT_PROGRESS_VARIABLE "=%d", RT_PROGRESS_DELAY);
    if (job->shows_progress && !getenv(RT_PROGRESS_VARIABLE)) job->environment[kept] = job->progress;
    return 0;
}

void launch_catch_signals(struct launch *job) {
    sigset_t caught;
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    sigaddset(&caught, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &caught, &job->mask_before);
    /* If the parent left SIGCHLD ignored, waitpid would find no children. */
    const struct sigaction usual = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGCHLD, &usual, &job->child_before);
    sigaction(SIGPIPE, &ignored, &job->pipe_before); /* a closed output pipe must not end the job */
    job->signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
}

void launch_restore_signals(const struct launch *job) {
    sigaction(SIGPIPE, &job->pipe_before, NULL);
    pthread_sigmask(SIG_SETMASK, &job->mask_before, NULL);
}

/* Signals that arrived last belong to the job too. */
void launch_release_signals(struct launch *job) {
    struct signalfd_siginfo info;
    if (job->signals < 0) return;
    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info) job->interrupted = true;
    close(job->signals);
    sigaction(SIGCHLD, &job->child_before, NULL);
    launch_restore_signals(job);
}

/* In the child, between fork and exec: only async-signal-safe calls. */
static void become_rank(struct launch *job, int rank, int output, char *const *argv, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_NO_EXEC); /* the parent died before PR_SET_PDEATHSIG took effect */
    fcntl(job->memfd, F_SETFD, 0);
    relay_become(job, rank, output);
    launch_restore_signals(job);
    execve(job->what->program, argv, job->environment);
    _exit(EXIT_NO_EXEC);
}

static char **make_arguments(const struct rt_launch *what, char *rank_text, char *world_text) {
    static const char *const fixed[] = {"--comm", "shm"};
    size_t given = 0, n = 0;
    while (what->arguments && what->arguments[given]) given++;
    const char **argv = calloc(given + 8, sizeof(*argv));
    if (!argv) return NULL;
    argv[n++] = what->program;
    for (size_t i = 0; i < given; i++) argv[n++] = what->arguments[i];
    argv[n++] = "--rank", argv[n++] = rank_text;
    argv[n++] = "--world", argv[n++] = world_text;
    argv[n++] = fixed[0], argv[n++] = fixed[1];
    return (char **)(uintptr_t)argv;
}

/* Forks; the rank's output is forwarded by its relay unless there is only one rank. */
static pid_t fork_rank(struct launch *job, int rank, char *const *argv) {
    int ends[2] = {-1, -1};
    if (job->what->ranks > 1 && relay_open(&job->child[rank].relay, ends, job->what->json) != 0) return -1;
    if (job->shows_progress) job->child[rank].relay.drawn = &job->drawn;
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) become_rank(job, rank, ends[1], argv, parent);
    const int error = errno;
    if (ends[1] >= 0) close(ends[1]);
    errno = error;
    return pid;
}

static int start_rank(struct launch *job, int rank) {
    char rank_text[16], world_text[16];
    struct child *child = &job->child[rank];
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(world_text, sizeof world_text, "%d", job->what->ranks);
    char **argv = make_arguments(job->what, rank_text, world_text);
    if (!argv) return report(job, 500, "out of memory", 0);
    const pid_t pid = fork_rank(job, rank, argv);
    const int error = errno;
    free(argv);
    if (pid < 0) return report(job, 906, "cannot start a rank", error);
    child->pid = pid;
    child->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    child->alive = true;
    *poll_end(job, rank) = (struct pollfd){.fd = child->pidfd, .events = POLLIN};
    *poll_output(job, rank) = (struct pollfd){.fd = child->relay.fd, .events = POLLIN};
    job->alive++;
    return 0;
}

static int allocate(struct launch *job) {
    const size_t ranks = (size_t)job->what->ranks;
    job->child = calloc(ranks, sizeof *job->child);
    job->poll = calloc((size_t)poll_count(job), sizeof *job->poll);
    for (size_t r = 0; job->child && r < ranks; r++) job->child[r].pidfd = job->child[r].relay.fd = -1;
    for (nfds_t i = 0; job->poll && i < poll_count(job); i++) job->poll[i].fd = -1;
    if (!job->child || !job->poll || stall_open(job) < 0) return report(job, 500, "out of memory", 0);
    return 0;
}

static int start_all(struct launch *job) {
    if (access(job->what->program, X_OK) != 0) {
        print_error(job, 601, "cannot run '%s': %s", rt_quote_text(job->what->program).text, strerror(errno));
        return EXIT_SYSTEM;
    }
    int exit = allocate(job);
    if (!exit) exit = make_segment(job);
    if (!exit) exit = make_environment(job);
    if (exit) return exit;
    launch_catch_signals(job);
    *poll_signals(job) = (struct pollfd){.fd = job->signals, .events = POLLIN};
    fflush(NULL); /* otherwise children would print buffered output again */
    for (int r = 0; r < job->what->ranks && !exit; r++) exit = start_rank(job, r);
    return exit;
}

static void signal_all(struct launch *job, int number) {
    for (int r = 0; r < job->what->ranks; r++)
        if (job->child[r].alive) kill(job->child[r].pid, number); /* not reaped yet: the pid is not reused */
}

/* Ends the waits of the remaining ranks and starts their grace period. */
static void begin_end(struct launch *job, int exit, bool weak) {
    if (job->segment) atomic_store(&rt_shared_header(job->segment)->aborted, 1);
    if (!job->exit || (job->exit_is_weak && !weak)) {
        job->exit = exit;
        job->exit_is_weak = weak;
    }
    if (!job->deadline) job->deadline = rt_now_ms() + (job->what->grace_ms > 0 ? job->what->grace_ms : GRACE_MS);
}

/* Exit codes of a rank that has reported its error; see rt_main's table. */
static bool explains_itself(int code) {
    return (code >= 2 && code <= 9) || code == EXIT_SIGNAL;
}

static bool is_request(int number) {
    return number == SIGINT || number == SIGTERM || number == SIGHUP;
}

static void judge_rank(struct launch *job, int rank, int status) {
    const bool ending = job->deadline != 0;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    char how[96];
    if ((code == 0 || code == EXIT_SIGNAL) && atomic_load(&rt_shared_progress(job->segment, rank)->finished)) {
        job->interrupted = job->interrupted || code == EXIT_SIGNAL;
        return;
    }
    if (WIFSIGNALED(status) && job->interrupted && is_request(WTERMSIG(status))) {
        begin_end(job, EXIT_SIGNAL, false); /* it did not handle the forwarded signal yet */
    } else if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        snprintf(how, sizeof how, "was killed by signal %d (%s)", number, strsignal(number));
        if (!ending) report_dead(job, rank, how);
        job->lost = job->lost || !job->killed;
        begin_end(job, EXIT_RANK, ending); /* while the job ends, the launcher itself sends signals */
    } else if (explains_itself(code)) {
        begin_end(job, code, code == EXIT_RANK);
    } else {
        snprintf(how, sizeof how, "ended %swith exit code %d", code == 0 ? "before it had finished, " : "", code);
        job->lost = true;
        report_dead(job, rank, how);
        begin_end(job, EXIT_RANK, false);
    }
}

static void reap(struct launch *job) {
    for (int r = 0; r < job->what->ranks; r++) {
        struct child *child = &job->child[r];
        int status;
        if (!child->alive || waitpid(child->pid, &status, WNOHANG) != child->pid) continue;
        child->alive = false;
        if (child->pidfd >= 0) close(child->pidfd);
        poll_end(job, r)->fd = poll_output(job, r)->fd = -1;
        relay_close(&child->relay, r); /* the rank's output comes before a report about it */
        job->alive--;
        judge_rank(job, r, status);
    }
}

static void forward_signals(struct launch *job) {
    struct signalfd_siginfo info;
    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (job->interrupted || !job->what->ranks_stop || !is_request((int)info.ssi_signo)) {
            begin_end(job, EXIT_SIGNAL, false);
            job->exit = EXIT_SIGNAL;
        }
        job->interrupted = true;
        signal_all(job, (int)info.ssi_signo);
    }
}

enum { WATCH_MS = 100 };

static int poll_timeout_of(const struct launch *job) {
    for (int r = 0; r < job->what->ranks; r++)
        if (job->child[r].alive && job->child[r].pidfd < 0) return NO_PIDFD_MS;
    if (!job->deadline) return (int)stall_wait_ms(job);
    const int64_t left = job->deadline - rt_now_ms();
    return left > 0 ? (int)left : 0;
}

static int poll_timeout(const struct launch *job) {
    const int timeout = poll_timeout_of(job);
    return job->what->watch && (timeout < 0 || timeout > WATCH_MS) ? WATCH_MS : timeout;
}

static void pass_output(struct launch *job) {
    for (int r = 0; r < job->what->ranks; r++) {
        if (!poll_output(job, r)->revents) continue;
        relay_read(&job->child[r].relay, r);
        poll_output(job, r)->fd = job->child[r].relay.fd;
    }
}

static void check_progress(struct launch *job) {
    struct verdict verdict;
    if (job->alive == 0 || job->deadline || !stall_check(job, &verdict)) return;
    job->lost = true;
    report_stuck(job, verdict);
    begin_end(job, EXIT_RANK, false);
}

static void watch(struct launch *job) {
    while (job->alive > 0) {
        if (poll(job->poll, poll_count(job), poll_timeout(job)) > 0) pass_output(job);
        if (job->what->watch) job->what->watch(job->what->watched);
        forward_signals(job);
        reap(job);
        check_progress(job);
        if (!job->deadline || rt_now_ms() < job->deadline) continue;
        signal_all(job, SIGKILL);
        job->killed = true;
        job->deadline = rt_now_ms() + 100; /* time to reap them */
    }
    /* Ranks ended with "another rank failed", but no rank failed and none reported: report it here. */
    if (job->exit_is_weak && job->exit == EXIT_RANK && rt_shared_claim_report(job->segment))
        print_error(job, 911, "a rank failed without an error message");
}

static void clean_up(struct launch *job) {
    relay_clear(&job->drawn);
    launch_release_signals(job);
    if (job->segment) munmap(job->segment, job->segment_bytes);
    if (job->memfd >= 0) close(job->memfd);
    for (int r = 0; job->child && r < job->what->ranks; r++)
        if (job->child[r].relay.fd >= 0) close(job->child[r].relay.fd); /* of a rank that could not be started */
    free(job->stall.rank);
    free(job->environment);
    free(job->poll);
    free(job->child);
}

int rt_launch(const struct rt_launch *what) {
    static const struct rt_launch nothing;
    struct launch job = {.what = what ? what : &nothing, .memfd = -1, .signals = -1};
    if (!what || !what->program) {
        print_error(&job, 200, "no program to start");
        return 2;
    }
    if (what->ranks < 1 || what->ranks > RT_MAX_RANKS) {
        print_error(&job, 901, "cannot start %d ranks", what->ranks);
        return 2;
    }
    int exit = start_all(&job);
    if (exit) begin_end(&job, exit, false); /* some ranks may have been started */
    if (exit && job.child) signal_all(&job, SIGKILL);
    job.killed = exit != 0;
    watch(&job);
    exit = job.exit;
    clean_up(&job);
    if (!job.exit && job.interrupted) job.exit = EXIT_SIGNAL;
    if (what->lost) *what->lost = job.lost && !job.interrupted;
    return job.exit ? job.exit : exit;
}
