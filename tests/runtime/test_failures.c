/* What happens when ranks of a job end badly, or do not get anything done, or when the launcher is told to end. */
#define _GNU_SOURCE 1

#include "launched.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS "--repeat", "5"

/* A job of three ranks in which one does something in a step: see TINY_DO in tiny.h. A rank that gets nothing done is
 * given stall_ms; 0: for ever. */
static pid_t start_badly(const char *what, const char *stall_ms) {
    setenv("TINY_DO", what, 1);
    setenv("TINY_STALL_MS", stall_ms, 1);
    pid_t pid = start(LAUNCHED, 3, (const char *const[]){INPUTS, STEPS, NULL});
    unsetenv("TINY_DO"), unsetenv("TINY_STALL_MS");
    return pid;
}

static struct result run_badly(const char *what, const char *stall_ms) {
    struct result result;
    const double since = seconds();
    finish(&result, start_badly(what, stall_ms), since);
    return result;
}

static void assert_says(const struct result *result, const char *text) {
    if (!strstr(result->err, text)) fail_msg("no '%s' in:\n%s", text, result->err);
}

/* One line, an object that contains `text`. */
static void assert_json_line(const char *err, const char *text) {
    const char *end = strchr(err, '\n');
    if (err[0] != '{' || !end || end[1] || end[-1] != '}' || !strstr(err, text))
        fail_msg("no object with '%s':\n%s", text, err);
}

TEST(bad_data_on_one_rank_is_reported_once) {
    char bad[64];
    in_directory(bad, sizeof bad, "ids12.npy");
    char option[80];
    snprintf(option, sizeof option, "ids=%s", bad);
    struct result result = RUN(LAUNCHED, 3, "--input", x_option, "--input", option);
    assert_error(&result, 3, "index 12 is out of range");
    result = RUN(ALONE, 3, "--input", x_option, "--input", option, "--comm", "loopback");
    assert_error(&result, 3, "index 12 is out of range");
}

/* With --json all that is on stderr are objects, one a line: the launcher's and the ranks' own. */
TEST(diagnostics_are_objects_if_asked_for) {
    char bad[64], option[80];
    in_directory(bad, sizeof bad, "ids12.npy");
    snprintf(option, sizeof option, "ids=%s", bad);
    setenv("TINY_JSON", "1", 1);
    struct result own = RUN(LAUNCHED, 3, "--json", "--input", x_option, "--input", option);
    struct result dead = run_badly("1:kill@3", "0"), stuck = run_badly("1:spin@3", "300");
    unsetenv("TINY_JSON");
    assert_int_equal(own.exit, 3);
    assert_json_line(own.err, "\"code\": \"E0382\", \"text\": \"index 12 is out of range\"");
    assert_int_equal(dead.exit, 9);
    assert_json_line(dead.err, "\"notes\": [\"note: rank 1, step 3, call ");
    assert_int_equal(stuck.exit, 9);
    assert_json_line(stuck.err, "\"help: --stall-timeout sets");
}

/* Dead */

TEST(a_dead_rank_is_named_with_its_cause) {
    static const struct {
        const char *what, *headline, *note;
    } rows[] = {
        {"1:kill@3", "was killed by signal 9 (Killed)", "note: rank 1, step 3, call "},
        {"2:segv@3", "was killed by signal 11 (Segmentation fault)", "note: rank 2, step 3, call "},
        {"0:abort@1", "was killed by signal 6 (Aborted)", "note: rank 0, step 1, call "},
        {"2:exit1@2", "ended with exit code 1", "--> all-gather"},
        {"0:exit0@2", "ended before it had finished, with exit code 0", "last seen at all-gather"},
        {"1:kill@0", "was killed by signal 9", "note: rank 1: last seen before the first step"},
        {"0:exit0@0", "ended before it had finished", "before the first step"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char who[32];
        struct result result = run_badly(rows[i].what, "0");
        snprintf(who, sizeof who, "error[E0911]: rank %c (pid ", rows[i].what[0]);
        assert_error(&result, 9, who);
        assert_says(&result, rows[i].headline);
        assert_says(&result, rows[i].note);
        assert_true(result.seconds < 2);
    }
}

TEST(ranks_that_make_different_calls_are_named) {
    struct result result = run_badly("1:call@2", "0");
    assert_error(&result, 9, "error[E0913]: ranks call different collectives: rank 0 all-reduce of ");
    assert_says(&result, "rank 1 broadcast of 64");
}

/* Threads of one process die together; what they say they say alike. */
TEST(ranks_as_threads_fail_alike) {
    setenv("TINY_DO", "1:call@2", 1);
    struct result result = RUN(ALONE, 3, INPUTS, STEPS, "--comm", "loopback");
    assert_error(&result, 9, "error[E0913]: ranks call different collectives: rank 0 all-reduce of ");
    setenv("TINY_DO", "1:segv@2", 1);
    result = RUN(ALONE, 3, INPUTS, STEPS, "--comm", "loopback");
    unsetenv("TINY_DO");
    assert_int_equal(result.exit, 128 + SIGSEGV);
}

/* Stuck */

TEST(a_stopped_rank_is_found_within_the_limit) {
    struct result result = run_badly("1:stop@3", "1000");
    assert_error(&result, 9, "error[E0912]: rank 1 (pid ");
    assert_says(&result, "made no progress for 1.");
    assert_says(&result, " s: it is stopped (SIGCONT resumes it)\n  --> all-gather\n");
    assert_says(&result, "note: rank 0, step 3, call ");
    assert_says(&result, "(all-reduce): waits for rank 1 at all-reduce\n");
    assert_true(result.seconds > 1 && result.seconds < 2);
}

TEST(a_rank_that_loops_is_stuck_though_it_lives) {
    struct result result = run_badly("2:spin@2", "500");
    assert_error(&result, 9, "error[E0912]: rank 2 (pid ");
    assert_says(&result, "made no progress for 0.");
}

TEST(ranks_that_wait_for_each_other_are_named) {
    struct result result = run_badly("1:elsewhere@2", "500");
    assert_error(&result, 9, "error[E0912]: deadlock: all ranks wait for other ranks, and none made progress for 0.");
    assert_says(&result, "note: rank 0, step 2, call ");
    assert_says(&result, "(all-reduce): waits for rank 1 at all-reduce\n");
    assert_says(&result, "(barrier): waits for ranks 0, 2 at all-gather\n");
}

TEST(a_rank_that_never_joins_is_named) {
    struct result result = run_badly("0:sleep@0", "500");
    assert_error(&result, 9, "error[E0903]: rank 0 of 3 (pid ");
    assert_says(&result, "did not join for 0.");
    assert_says(&result, ": waits for rank 0 before the first step\n");
}

/* 0.6 s of work in one instruction, while the others wait. */
TEST(a_rank_that_needs_less_than_the_limit_is_not_stuck) {
    struct result result = run_badly("1:pause@2", "1000");
    assert_ok(&result);
    assert_true(result.seconds > 0.6);
}

TEST(without_a_limit_ranks_may_take_long) {
    struct result result = run_badly("1:pause@2", "0");
    assert_ok(&result);
}

/* As by Ctrl-Z and fg: the time between is nobody's. */
TEST(a_job_that_was_stopped_as_a_whole_goes_on) {
    struct result result;
    const double since = seconds();
    setenv("TINY_OWN_GROUP", "1", 1);
    pid_t pid = start_badly("1:pause@2", "1000");
    unsetenv("TINY_OWN_GROUP");
    usleep(300000);
    assert_int_equal(kill(-pid, SIGSTOP), 0);
    usleep(1500000);
    assert_int_equal(kill(-pid, SIGCONT), 0);
    finish(&result, pid, since);
    assert_ok(&result);
    assert_true(result.seconds > 1.8);
}

/* The end of the job */

/* Every rank holds the pipe's other end: it closes when none is left. */
static void wait_for_no_rank(int fd) {
    char byte;
    alarm(20);
    assert_int_equal(read(fd, &byte, 1), 0);
    alarm(0);
    close(fd);
}

/* With a rank that is stopped and so cannot leave by itself. */
static struct result interrupt_launcher(int number) {
    int ends[2];
    struct result result;
    const double since = seconds();
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    pid_t pid = start_badly("1:stop@0", "0");
    close(ends[1]);
    usleep(150000);
    kill(pid, number);
    finish(&result, pid, since);
    wait_for_no_rank(ends[0]);
    result.seconds = seconds() - since;
    return result;
}

TEST(no_rank_outlives_the_launcher) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct result result = interrupt_launcher(signals[i]);
        assert_int_equal(result.exit, 130);
        assert_string_equal(result.err, "");
        assert_true(result.seconds < 2);
    }
    struct result result = interrupt_launcher(SIGKILL);
    assert_int_equal(result.exit, 128 + SIGKILL);
    assert_true(result.seconds < 2);
}

/* As under a parent that never waits: ranks must be waited for all the same. */
TEST(ignored_child_signals_do_not_matter) {
    const double since = seconds();
    struct result result;
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = start(LAUNCHED, 2, (const char *const[]){INPUTS, NULL});
    signal(SIGCHLD, SIG_DFL);
    finish(&result, pid, since);
    assert_ok(&result);
}

TEST(a_program_that_is_not_there_is_an_error) {
    char *before = strdup(getenv("TINY_PROGRAM"));
    setenv("TINY_PROGRAM", "/no/such/program", 1);
    struct result result = RUN(LAUNCHED, 2, INPUTS);
    setenv("TINY_PROGRAM", before, 1);
    free(before);
    assert_error(&result, 6, "cannot run '/no/such/program'");
}

/* A variable that a job of another time left in the environment. */
TEST(another_jobs_memory_is_never_attached) {
    setenv("RANKC_SHM_FD", "1", 1);
    struct result result = RUN(LAUNCHED, 2, INPUTS);
    unsetenv("RANKC_SHM_FD");
    assert_ok(&result);
}

/* Output */

TEST(what_ranks_print_is_prefixed) {
    struct result result = run_badly("1:print@2", "0");
    assert_int_equal(result.exit, 0);
    assert_says(&result, "[1] to stdout from 1\n");
    assert_says(&result, "[1] to stderr from 1\n[1] without an end\n");
    assert_null(strstr(result.out, "to stdout"));
    result = run_badly("0:print@2", "0");
    assert_string_equal(result.err, "[0] to stderr from 0\n[0] without an end\n");
    assert_non_null(strstr(result.out, "to stdout from 0\n"));
}

/* stdout or stderr are pipes that nobody reads any more. */
static struct result run_into_closed_pipe(int fd, const char *what) {
    int ends[2];
    const int kept = dup(fd);
    struct result result;
    const double since = seconds();
    assert_true(kept >= 0 && pipe(ends) == 0);
    close(ends[0]);
    setenv(fd == STDOUT_FILENO ? "TINY_OUT" : "TINY_ERR", "inherit", 1);
    fflush(stdout);
    dup2(ends[1], fd);
    close(ends[1]);
    pid_t pid = start_badly(what, "0");
    dup2(kept, fd);
    close(kept);
    unsetenv("TINY_OUT"), unsetenv("TINY_ERR");
    finish(&result, pid, since);
    return result;
}

TEST(closed_pipes_kill_nobody) {
    struct result result = run_into_closed_pipe(STDOUT_FILENO, "0:none@0");
    assert_int_equal(result.exit, 0);
    assert_string_equal(result.err, "");
    result = run_into_closed_pipe(STDERR_FILENO, "1:print@2");
    assert_int_equal(result.exit, 0);
}

int main(void) {
    if (!getenv("TINY_PROGRAM")) return 77;
    return run_all_tests("failures", make_files, remove_files);
}
