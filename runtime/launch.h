/* Starts all ranks of a program on this machine, and sees to it that they end.
 *
 * The ranks are processes of the program with `--rank R --world N --comm shm` behind the caller's arguments, joined
 * by a memfd that they inherit (RT_SHM_FD_VARIABLE). A rank that dies, or ends before it has finished, is noticed
 * at once: the others' waits end, and what is left after a grace period is killed. No rank outlives the call, nor
 * the calling process. */
#ifndef RT_LAUNCH_H
#define RT_LAUNCH_H

struct rt_launch {
    const char *program;          /* path of the executable; no shell, no search */
    const char *const *arguments; /* behind the program's name, ends with NULL; NULL: none */
    int ranks;
    int grace_ms; /* between the first failure and SIGKILL; 0: 500 */
};

/* Runs the job to its end. Blocks SIGINT, SIGTERM and SIGHUP in the calling thread meanwhile: they are passed on to
 * the ranks. Prints a diagnostic to stderr for what no rank can report itself, such as its own death. Returns an
 * exit code of rankc: 0; the first failing rank's own, if it is one; 9 for a rank that a signal killed or whose end
 * nothing explains; 130 after a signal; 6 where ranks cannot be started. */
int rt_launch(const struct rt_launch *what);

#endif
