/* Starts all ranks of a program on this machine and guarantees that they end.
 *
 * The ranks are processes of the program with `--rank R --world N --comm shm` appended to the caller's arguments; they
 * inherit a memfd, their shared memory (RT_SHM_FD_VARIABLE). A rank that dies or exits early is noticed at once, a rank
 * without progress after a time limit. In both cases the other ranks' waits are ended, and ranks that still run after a
 * grace period are killed. No rank outlives the call or the calling thread.
 *
 * With several ranks, stdout is that of rank 0. All other output of ranks goes to stderr line by line, prefixed with
 * "[RANK] ", except diagnostics of the runtime, which concern the whole job. */
#ifndef RT_LAUNCH_H
#define RT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

struct rt_launch {
    const char *program;          /* path of the executable; no shell, no search */
    const char *const *arguments; /* argv without the program's name, ends with NULL; NULL: none */
    int ranks;
    int grace_ms;     /* between the first failure and SIGKILL; 0: 500 */
    int64_t stall_ms; /* how long a rank may make no progress without waiting for another; 0: for ever */
    /* For reports: describes the instruction with this number, as "node 'layer0/fc' (MatMul)"; NULL: not known. The
     * text is valid until the next call. May be NULL. */
    const char *(*instruction)(void *context, int number);
    void *context;
    bool json; /* diagnostics are JSON (base/text/diagnostic.h); `arguments` must have --json for the ranks */
    /* The first SIGINT or SIGTERM is forwarded and the ranks finish their current step; a second one ends the job at
     * once. false: the first one does. */
    bool ranks_stop;
    bool no_results;              /* discard rank 0's stdout */
    void (*watch)(void *watched); /* called about ten times a second; may be NULL */
    void *watched;
    bool *lost; /* set to whether a rank was killed, hung or ended without explanation; NULL: not asked for */
};

/* Runs the job to its end. Meanwhile SIGINT, SIGTERM and SIGHUP are blocked in the calling thread and forwarded to the
 * ranks. Prints a diagnostic to stderr for failures that no rank can report, such as its own death. Returns an exit
 * code of rankc: 0; the exit code of the first rank that failed, if it is one of rankc; 9 if a rank was killed by a
 * signal, is stuck or ended without explanation; 130 after a signal, unless the ranks failed for another reason
 * afterwards; 6 if ranks cannot be started; 2 without a program. */
int rt_launch(const struct rt_launch *what);

struct rt_launch_command {
    const char *const *arguments; /* the command's name, looked up in PATH, and its arguments; ends with NULL */
    bool json;                    /* diagnostics are JSON */
    bool *lost; /* set to whether the ranks ended with an error that none of them has reported; may be NULL */
};

/* Runs a command that starts the ranks, such as mpirun, to its end, and forwards its stderr and the signals that
 * rt_launch forwards. Its stdin is empty. Returns an exit code of rankc: that of the command, if it is one; 9 if the
 * ranks were lost, or for other codes; 130 after a signal; 6 if it cannot be started; 2 without a command. */
int rt_launch_command(const struct rt_launch_command *what);

/* A rank that another launcher starts, such as mpirun: starts a process that ends the job if this one makes no progress
 * for what->stall_ms (Note [Watching] in launch/launch_watch.c). Call it before other threads are started. Of *what,
 * stall_ms, instruction, context and json are used, in the new process. Returns a descriptor; closing it ends the
 * observation. -1: there is no such process. rt_watch_begin: the rank has joined. segment: a descriptor of the shared
 * memory of its host, which stays open; place: its number there; rank: its number in the job. */
int rt_watch_open(const struct rt_launch *what);
void rt_watch_begin(int watch, int segment, int place, int rank);

#endif
