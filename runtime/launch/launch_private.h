/* Shared by the parts of the launcher: launch.c (starting, observing and ending ranks), launch_output.c (their output),
 * launch_stall.c (ranks without progress), launch_report.c (reports about ranks), launch_command.c and launch_watch.c
 * (ranks that another launcher starts). */
#ifndef RT_LAUNCH_PRIVATE_H
#define RT_LAUNCH_PRIVATE_H

#include "launch.h"

#include "base/text/diagnostic.h"
#include "comm/comm_shared.h"

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#define LINE_BYTES 4096 /* longer lines are forwarded in pieces */

/* Forwards the output of a rank to the launcher's stderr. */
struct relay {
    int fd; /* read end of the pipe; -1: none, or closed */
    char line[LINE_BYTES];
    size_t used;
    bool json;       /* diagnostics are JSON */
    bool continues;  /* the beginning of the current line was forwarded */
    bool diagnostic; /* the last line belongs to a diagnostic of the runtime: no "[RANK] " prefix */
    bool error;      /* an error was among them, other than that another rank failed (E0911) */
    /* Lines of progress (base/io/progress.h) are forwarded as they are, and *drawn says that one stands on the
     * terminal; NULL: there is none. */
    bool *drawn;
};

#define RELAY_ALL (-1) /* in place of a rank: output of all ranks, without prefix */

struct child {
    pid_t pid;
    int pidfd; /* -1: none */
    bool alive;
    struct relay relay;
};

/* A rank's time without progress; Note [Standstill] in launch_stall.c. */
struct standstill {
    int64_t moves;  /* at the last check */
    int64_t still;  /* ms in which it could have made progress */
    int64_t waited; /* ms in which it waited for another rank */
    bool begun;     /* `cpu` is valid */
    int64_t cpu;    /* CPU time of the process at the last check, ms */
    int64_t used;   /* CPU time used since the last progress, ms */
};

struct stall {
    int64_t limit, interval; /* ms; limit 0: no checks */
    int64_t checked;         /* time of the last check, ms */
    struct standstill *rank;
};

/* State of a rank at the time limit, the most likely culprit first; MOVING: below the limit. */
enum conduct { STOPPED, BUSY, MOVING, WAITING, ENDED };

struct verdict {
    int rank;
    enum conduct conduct;
};

struct launch {
    const struct rt_launch *what;
    struct child *child;
    /* pidfds of the ranks, their output, the signalfd: poll_end(), poll_output(), poll_signals() */
    struct pollfd *poll;
    void *segment;
    size_t segment_bytes;
    int memfd, signals;
    sigset_t mask_before;
    struct sigaction child_before, pipe_before;
    char **environment;
    char variable[48], progress[24]; /* two of them */
    bool shows_progress, drawn;      /* stderr is a terminal; a line of progress stands there */
    int alive;
    int exit;          /* exit code of the job so far */
    bool exit_is_weak; /* the exit code only says that another rank failed */
    bool killed;       /* the launcher has sent SIGKILL to what was left of the job */
    bool lost;         /* a rank was killed, hung or ended without explanation */
    bool interrupted;  /* by a signal: exit code 130 unless there is another */
    int64_t deadline;  /* time of SIGKILL, ms; 0: none */
    struct stall stall;
    const int *number; /* of the one rank that is observed, in the job; NULL: all are, and have their index */
};

/* Block SIGINT, SIGTERM and SIGHUP in this thread and open job->signals for them, and undo that. A child calls the
 * second before exec. */
void launch_catch_signals(struct launch *job);
void launch_restore_signals(const struct launch *job);
void launch_release_signals(struct launch *job);

/* Prints a diagnostic to stderr, as text or JSON. */
void launch_print(const struct launch *job, const struct rt_diagnostic *item);

/* Output. A single rank inherits the launcher's stdout and stderr. Of several ranks, rank 0 inherits stdout, which is
 * for results; all other output is forwarded line by line to stderr, prefixed with "[RANK] ". */
int relay_open(struct relay *relay, int ends[2], bool json);    /* ends[1] is the rank's; returns 0, or -1 with errno */
void relay_become(const struct launch *job, int rank, int end); /* called in the rank's process */
void relay_read(struct relay *relay, int rank);                 /* forwards available output */
void relay_close(struct relay *relay, int rank);                /* the rank has ended: forwards the rest */

/* Removes the line of progress from the terminal; `drawn` as in struct relay. */
void relay_clear(bool *drawn);

/* Ranks without progress. */
int stall_open(struct launch *job);                            /* 0, or -1: out of memory */
int64_t stall_wait_ms(const struct launch *job);               /* until the next check; -1: no checks */
bool stall_check(struct launch *job, struct verdict *verdict); /* true: a rank is stuck, *verdict names it */

/* Reports. Each prints the job's one error, or nothing if another process has printed it. */
void report_dead(struct launch *job, int rank, const char *how);
void report_stuck(struct launch *job, struct verdict verdict);

/* State of a process as in proc(5), 'R' if any of its threads is runnable, and the CPU time it has used; 0: it cannot
 * be read. */
char process_state(pid_t pid, int64_t *cpu_ms);

#endif
