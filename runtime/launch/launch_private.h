/* What the launcher's parts share: launch.c (starting, watching, ending), launch_output.c (what ranks print),
 * launch_stall.c (ranks that get nothing done) and launch_report.c (what is said about ranks). */
#ifndef RT_LAUNCH_PRIVATE_H
#define RT_LAUNCH_PRIVATE_H

#include "launch.h"

#include "base/diagnostic.h"
#include "comm/comm_shared.h"

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#define LINE_BYTES 4096 /* longer lines are passed on in pieces */

/* What a rank prints, on its way to our stderr. */
struct relay {
    int fd; /* -1: none, or at its end */
    char line[LINE_BYTES];
    size_t used;
    bool json;       /* diagnostics are objects */
    bool continues;  /* the line's beginning was passed on */
    bool diagnostic; /* the last line was of a diagnostic of ours, which is the job's rather than the rank's */
};

struct child {
    pid_t pid;
    int pidfd; /* -1: none */
    bool alive;
    struct relay relay;
};

/* Since when a rank got nothing done; Note [Standstill]. */
struct standstill {
    int64_t moves;  /* at the last look */
    int64_t still;  /* ms that count against it */
    int64_t waited; /* ms that count only if all wait */
    bool begun;     /* cpu is known */
    int64_t cpu;    /* ms of CPU time at the last look */
    int64_t used;   /* of it, since the standstill began */
};

struct stall {
    int64_t limit, interval; /* ms; limit 0: nobody looks */
    int64_t looked;          /* when, ms */
    struct standstill *rank;
};

/* What a rank does that has reached the limit, most to blame first; MOVING: it has not. */
enum conduct { STOPPED, BUSY, MOVING, WAITING, ENDED };

struct verdict {
    int rank;
    enum conduct conduct;
};

struct launch {
    const struct rt_launch *what;
    struct child *child;
    struct pollfd *poll; /* the children's ends, the signals, the children's output */
    void *segment;
    size_t segment_bytes;
    int memfd, signals;
    sigset_t mask_before;
    struct sigaction child_before, pipe_before;
    char **environment;
    char variable[48];
    int alive;
    int exit;          /* of the job so far */
    bool exit_is_weak; /* it says only that another rank failed */
    bool interrupted;  /* by a signal: exit code 130 if there is no other */
    int64_t deadline;  /* ms; 0: none is set */
    struct stall stall;
};

/* To stderr, as the caller wants it. */
void launch_print(const struct launch *job, const struct rt_diagnostic *item);

/* Output. A rank alone keeps our own stdout and stderr. Of several, the first keeps stdout, which is for results;
 * all else comes line by line on stderr, behind "[RANK] ". */
int relay_open(struct relay *relay, int ends[2], bool json);    /* ends[1] is for the rank; 0, or -1 with errno */
void relay_become(const struct launch *job, int rank, int end); /* in the rank's process */
void relay_read(struct relay *relay, int rank);                 /* what is there */
void relay_close(struct relay *relay, int rank);                /* the rank has ended: what is left, and no more */

/* Standstill. */
int stall_open(struct launch *job);                           /* 0, or -1 without memory */
int64_t stall_wait_ms(const struct launch *job);              /* until the next look; -1: for ever */
bool stall_look(struct launch *job, struct verdict *verdict); /* true: a rank is stuck */

/* Reports; each is the job's one error, or nothing where another was printed before. */
void report_dead(struct launch *job, int rank, const char *how);
void report_stuck(struct launch *job, struct verdict verdict);

/* State of a process as in proc(5), 'R' where any of its threads is runnable, and the CPU time that it has used; 0: it
 * cannot be read. */
char process_state(pid_t pid, int64_t *cpu_ms);

#endif
