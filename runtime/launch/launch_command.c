/* Runs a command that starts the ranks, such as mpirun, and observes how they end. */
#include "launch/launch_private.h"

#include "base/exit_code.h"
#include "base/io/progress.h"
#include "base/text/reason.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_EXEC = 127, NO_PIDFD_MS = 5, SIGNAL_CODE = 128 /* what shells add to a signal's number */ };

struct command {
    const struct rt_launch_command *what;
    struct launch job; /* for its signals */
    struct relay relay;
    pid_t pid;
    int pidfd; /* -1: none */
};

static void print_error(struct command *command, int code, const char *text) {
    relay_clear(&command->job.drawn);
    const struct rt_diagnostic item = {.code = code, .text = text};
    rt_diagnostic_print(&item, stderr, command->what->json ? RT_DIAGNOSTIC_JSON : RT_DIAGNOSTIC_PLAIN);
}

/* In the child, between fork and exec: only async-signal-safe calls. The command gets a process group of its own, so
 * that it does not get a terminal's signals besides the forwarded ones; such a group cannot read from the terminal. */
static void become(struct command *command, int output, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(NO_EXEC); /* the parent died before PR_SET_PDEATHSIG took effect */
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(output, STDERR_FILENO);
    launch_restore_signals(&command->job);
    execvp(command->what->arguments[0], (char *const *)(uintptr_t)command->what->arguments);
    _exit(NO_EXEC);
}

static int start(struct command *command) {
    int ends[2];
    if (relay_open(&command->relay, ends, command->what->json) != 0) return -1;
    if (rt_progress_is_shown()) command->relay.drawn = &command->job.drawn;
    fflush(NULL); /* otherwise the child would print buffered output again */
    const pid_t parent = getpid();
    command->pid = fork();
    if (command->pid == 0) become(command, ends[1], parent);
    const int error = errno;
    close(ends[1]);
    errno = error;
    if (command->pid < 0) return -1;
    command->pidfd = (int)syscall(SYS_pidfd_open, command->pid, 0);
    return 0;
}

static void forward_signals(struct command *command) {
    struct signalfd_siginfo info;
    while (read(command->job.signals, &info, sizeof info) == (ssize_t)sizeof info) {
        command->job.interrupted = true;
        kill(command->pid, (int)info.ssi_signo); /* not reaped yet: the pid is not reused */
    }
}

/* Forwards output and signals until the command ends; returns its status as waitpid(). */
static int watch(struct command *command) {
    int status;
    for (;;) {
        struct pollfd at[] = {{.fd = command->relay.fd, .events = POLLIN},
                              {.fd = command->job.signals, .events = POLLIN},
                              {.fd = command->pidfd, .events = POLLIN}};
        poll(at, sizeof at / sizeof *at, command->pidfd < 0 ? NO_PIDFD_MS : -1);
        relay_read(&command->relay, RELAY_ALL);
        forward_signals(command);
        if (waitpid(command->pid, &status, WNOHANG) != command->pid) continue;
        relay_close(&command->relay, RELAY_ALL);
        return status;
    }
}

static int judge(struct command *command, int status) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : SIGNAL_CODE + WTERMSIG(status);
    const char *name = command->what->arguments[0];
    char text[256];
    if (command->job.interrupted || code == EXIT_INTERRUPTED) return EXIT_INTERRUPTED;
    if (code == NO_EXEC) {
        snprintf(text, sizeof text, "cannot start '%s'", rt_quote_text(name).text);
        print_error(command, 601, text);
        return EXIT_SYSTEM;
    }
    if (!code || command->relay.error) return code <= EXIT_RANK ? code : EXIT_RANK;
    snprintf(text, sizeof text, "a rank ended without an error message: '%s' has exit code %d",
             rt_quote_text(name).text, code);
    print_error(command, 911, text);
    if (command->what->lost) *command->what->lost = true;
    return EXIT_RANK;
}

int rt_launch_command(const struct rt_launch_command *what) {
    struct command command = {.what = what, .job = {.memfd = -1, .signals = -1}, .relay = {.fd = -1}, .pidfd = -1};
    int exit = EXIT_SYSTEM;
    if (!what || !what->arguments || !what->arguments[0]) return EXIT_USAGE;
    if (what->lost) *what->lost = false;
    launch_catch_signals(&command.job);
    if (start(&command) == 0)
        exit = judge(&command, watch(&command));
    else
        print_error(&command, 906, "cannot start a process");
    if (command.pidfd >= 0) close(command.pidfd);
    if (command.relay.fd >= 0) close(command.relay.fd);
    launch_release_signals(&command.job);
    return exit;
}
