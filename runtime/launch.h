/* Starts all ranks of a program on this machine, and sees to it that they end.
 *
 * The ranks are processes of the program with `--rank R --world N --comm shm` behind the caller's arguments, joined
 * by a memfd that they inherit (RT_SHM_FD_VARIABLE). A rank that dies, or ends before it has finished, is noticed
 * at once, one that gets nothing done by that: the others' waits end, and what is left after a grace period is killed.
 * No rank outlives the call, nor the calling thread.
 *
 * Where there are several ranks, stdout is the first one's; all else that ranks print comes line by line on stderr,
 * behind "[RANK] " unless it is a diagnostic of the runtime, which speaks for the job. */
#ifndef RT_LAUNCH_H
#define RT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

struct rt_launch {
    const char *program;          /* path of the executable; no shell, no search */
    const char *const *arguments; /* behind the program's name, ends with NULL; NULL: none */
    int ranks;
    int grace_ms;     /* between the first failure and SIGKILL; 0: 500 */
    int64_t stall_ms; /* how long a rank may get nothing done though it waits for none; 0: for ever */
    /* For reports: what instruction `site` of the program is, "node 'layer0/fc' (MatMul)"; NULL if that is not known.
     * The text is good until the next call. May be NULL. */
    const char *(*instruction)(void *context, int site);
    void *context;
    bool json; /* diagnostics are objects (base/diagnostic.h), the ranks' too: the caller gives them --json */
    /* The first SIGINT or SIGTERM is passed on, and ranks end when they have finished what they do; a second one ends
     * the job at once, as otherwise the first does. */
    bool ranks_stop;
    bool no_results; /* what the first rank prints on stdout is not wanted */
};

/* Runs the job to its end. Blocks SIGINT, SIGTERM and SIGHUP in the calling thread meanwhile: they are passed on to
 * the ranks. Prints a diagnostic to stderr for what no rank can report itself, such as its own death. Returns an
 * exit code of rankc: 0; the first failing rank's own, if it is one; 9 for a rank that a signal killed, that is stuck,
 * or whose end nothing explains; 130 after a signal, unless what ranks did then failed; 6 where ranks cannot be
 * started. */
int rt_launch(const struct rt_launch *what);

#endif
