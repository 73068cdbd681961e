/* The tiny program as a command (rt_main), started alone, as threads, and by the launcher; and what happens when
 * ranks end badly. TINY_PROGRAM in the environment is its path. */
#define _GNU_SOURCE 1

#include "launch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_ARGUMENTS 32

static char directory[] = "/tmp/rankc-launch-XXXXXX";
static char x_option[64], ids_option[64], bad_option[64];

struct result {
    int exit;
    double seconds;
    char out[4096], err[4096];
};

/* How the program is started. */
enum start { ALONE, LAUNCHED };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void in_directory(char *path, size_t room, const char *name) {
    snprintf(path, room, "%s/%s", directory, name);
}

static void read_text(const char *name, char *text, size_t room) {
    char path[128];
    in_directory(path, sizeof path, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(text, 1, room - 1, file);
    text[count] = 0;
    fclose(file);
}

static void redirect(int fd, const char *name) {
    char path[128];
    in_directory(path, sizeof path, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || dup2(file, fd) < 0) _exit(99);
    close(file);
}

static pid_t start(enum start how, int ranks, const char *const *arguments) {
    const char *program = getenv("TINY_PROGRAM"), *argv[MOST_ARGUMENTS] = {program, "--directory", directory};
    int n = 3;
    char shards[16];
    for (int i = 0; arguments[i]; i++) argv[n++] = arguments[i];
    snprintf(shards, sizeof shards, "%d", ranks);
    setenv("TINY_SHARDS", shards, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    redirect(1, "out");
    redirect(2, "err");
    const struct rt_launch launch = {.program = program, .arguments = argv + 1, .ranks = ranks};
    if (how == LAUNCHED) _exit(rt_launch(&launch));
    execv(program, (char **)(uintptr_t)argv);
    _exit(98);
}

static void finish(struct result *result, pid_t pid, double since) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result->exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result->seconds = seconds() - since;
    read_text("out", result->out, sizeof result->out);
    read_text("err", result->err, sizeof result->err);
}

static struct result run_list(enum start how, int ranks, const char *const *arguments) {
    struct result result;
    const double since = seconds();
    finish(&result, start(how, ranks, arguments), since);
    return result;
}

#define RUN(how, ranks, ...) run_list(how, ranks, (const char *const[]){__VA_ARGS__, NULL})
#define INPUTS               "--input", x_option, "--input", ids_option

static int count_of(const char *text, const char *what) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) count++;
    return count;
}

/* The job says one thing, once. */
static void assert_error(const struct result *result, int exit, const char *text) {
    if (result->exit != exit || !strstr(result->err, text) || count_of(result->err, "error[") != 1)
        fail_msg("exit %d, expected %d with '%s':\n%s", result->exit, exit, text, result->err);
}

static void assert_ok(const struct result *result) {
    if (result->exit != 0 || result->err[0]) fail_msg("exit %d: %s", result->exit, result->err);
}

/* Results */

static void one_rank_prints_a_summary(void **state) {
    (void)state;
    struct result result = RUN(ALONE, 1, INPUTS);
    assert_ok(&result);
    assert_non_null(strstr(result.out, "y f32 [2, 5]: 6.56313 -0.562625 "));
    assert_non_null(strstr(result.out, "a/z f32 [2, 4]: "));
    assert_non_null(strstr(result.out, "a.z i64 []: 7 (mean 7)"));
}

static void threads_and_processes_print_the_same(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct result threads = RUN(ALONE, ranks, INPUTS, "--comm", "loopback");
        struct result processes = RUN(LAUNCHED, ranks, INPUTS);
        assert_ok(&threads);
        assert_ok(&processes);
        assert_string_equal(threads.out, processes.out);
    }
}

static void outputs_are_written_under_safe_names(void **state) {
    (void)state;
    char out[64], text[2048];
    in_directory(out, sizeof out, "new/outputs");
    struct result result = RUN(LAUNCHED, 2, INPUTS, "--output-dir", out);
    assert_ok(&result);
    assert_string_equal(result.out, "");
    read_text("new/outputs/outputs.json", text, sizeof text);
    assert_non_null(
        strstr(text, "{\"name\": \"a/z\", \"file\": \"a_z.npy\", \"dtype\": \"f32\", \"shape\": [2, 4]}"));
    read_text("new/outputs/a.z.npy", text, sizeof text);
    assert_non_null(strstr(text + 10, "'descr': '<i8'"));
}

static void json_reports_times_and_memory(void **state) {
    (void)state;
    struct result result = RUN(LAUNCHED, 2, INPUTS, "--json", "--repeat", "3", "--warmup=1", "--threads", "1");
    assert_ok(&result);
    assert_non_null(strstr(result.out, "{\"format\": 1, \"ranks\": 2, \"threads\": 1, \"step_ms\": {\"min\": "));
    assert_non_null(strstr(result.out, "\"peak_rss\": ["));
}

/* Usage and data */

static void options_are_checked(void **state) {
    (void)state;
    struct result result = RUN(ALONE, 1, "--help");
    assert_ok(&result);
    assert_non_null(strstr(result.out, "--output-dir"));
    for (int ranks = 1; ranks <= 2; ranks++) {
        const enum start how = ranks == 1 ? ALONE : LAUNCHED;
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--repaet", "3")}[0], 2,
                     "unknown option '--repaet'");
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--repeat", "0")}[0], 2, "--repeat needs");
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--threads")}[0], 2,
                     ranks == 1 ? "--threads needs" : "");
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--kernels", "x")}[0], 2, "no kernels 'x'");
    }
    result = RUN(ALONE, 1, INPUTS, "--repaet", "3");
    assert_non_null(strstr(result.err, "help: did you mean '--repeat'?"));
}

static void inputs_are_checked(void **state) {
    (void)state;
    struct result result = RUN(LAUNCHED, 2, "--input", x_option);
    assert_error(&result, 2, "needs --input ids=FILE (i64 [3])");
    result = RUN(LAUNCHED, 2, INPUTS, "--input", bad_option);
    assert_error(&result, 2, "input 'x' is given twice");
    result = RUN(ALONE, 1, "--input", bad_option);
    assert_error(&result, 3, "error[E0915]: input 'x' has shape [3], the model takes [2, 6]");
    result = RUN(ALONE, 1, "--input", "idz=nothing");
    assert_error(&result, 2, "the model has no input 'idz'");
    assert_non_null(strstr(result.err, "did you mean 'ids'?"));
    result = RUN(ALONE, 1, "--input", "x=/no/such/file.npy");
    assert_error(&result, 6, "cannot open '/no/such/file.npy'");
    result = RUN(ALONE, 1, "--input", "x=/dev/zero");
    assert_error(&result, 6, "not a regular file");
}

static void ranks_must_be_what_was_generated(void **state) {
    (void)state;
    struct result result = RUN(ALONE, 3, INPUTS);
    assert_error(&result, 8, "error[E0901]: 'tiny' was generated for 3 ranks, started with 1");
    result = RUN(ALONE, 3, INPUTS, "--rank", "1", "--world", "3");
    assert_error(&result, 2, "ranks are started by `rankc run`");
    setenv("OMPI_COMM_WORLD_RANK", "1", 1), setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    result = RUN(ALONE, 3, INPUTS);
    unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_error(&result, 8, "started with 4");
}

static void results_that_cannot_be_written_are_an_error(void **state) {
    (void)state;
    struct result result = RUN(LAUNCHED, 2, INPUTS, "--output-dir", "/dev/full/x");
    assert_error(&result, 6, "error[E0611]");
    char out[64];
    in_directory(out, sizeof out, "out"); /* a file */
    result = RUN(ALONE, 1, INPUTS, "--output-dir", out);
    assert_error(&result, 6, "error[E0611]");
}

/* Ranks that fail */

static void bad_data_on_one_rank_is_reported_once(void **state) {
    (void)state;
    char bad[64];
    in_directory(bad, sizeof bad, "ids12.npy");
    char option[80];
    snprintf(option, sizeof option, "ids=%s", bad);
    struct result result = RUN(LAUNCHED, 3, "--input", x_option, "--input", option);
    assert_error(&result, 3, "index 12 is out of range");
    result = RUN(ALONE, 3, "--input", x_option, "--input", option, "--comm", "loopback");
    assert_error(&result, 3, "index 12 is out of range");
}

static void dead_ranks_are_noticed(void **state) {
    static const struct {
        const char *how, *text;
    } rows[] = {{"1:kill", "killed by signal 9"},
                {"2:exit1", "ended with exit code 1"},
                {"0:exit0", "ended before it had finished"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char who[32];
        setenv("TINY_DIE", rows[i].how, 1);
        struct result result = RUN(LAUNCHED, 3, INPUTS);
        unsetenv("TINY_DIE");
        snprintf(who, sizeof who, "error[E0911]: rank %c (pid", rows[i].how[0]);
        assert_error(&result, 9, who);
        assert_non_null(strstr(result.err, rows[i].text));
        assert_true(result.seconds < 2);
    }
}

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
    setenv("TINY_DIE", "1:stop", 1);
    pid_t pid = start(LAUNCHED, 3, (const char *const[]){INPUTS, NULL});
    unsetenv("TINY_DIE");
    close(ends[1]);
    usleep(150000);
    kill(pid, number);
    finish(&result, pid, since);
    wait_for_no_rank(ends[0]);
    result.seconds = seconds() - since;
    return result;
}

static void no_rank_outlives_the_launcher(void **state) {
    (void)state;
    struct result result = interrupt_launcher(SIGTERM);
    assert_int_equal(result.exit, 130);
    assert_true(result.seconds < 2);
    result = interrupt_launcher(SIGINT);
    assert_int_equal(result.exit, 130);
    result = interrupt_launcher(SIGKILL);
    assert_int_equal(result.exit, 128 + SIGKILL);
    assert_true(result.seconds < 2);
}

/* As under a parent that never waits: ranks must be waited for all the same. */
static void ignored_child_signals_do_not_matter(void **state) {
    (void)state;
    const double since = seconds();
    struct result result;
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = start(LAUNCHED, 2, (const char *const[]){INPUTS, NULL});
    signal(SIGCHLD, SIG_DFL);
    finish(&result, pid, since);
    assert_ok(&result);
}

static void a_program_that_is_not_there_is_an_error(void **state) {
    (void)state;
    char *before = strdup(getenv("TINY_PROGRAM"));
    setenv("TINY_PROGRAM", "/no/such/program", 1);
    struct result result = RUN(LAUNCHED, 2, INPUTS);
    setenv("TINY_PROGRAM", before, 1);
    free(before);
    assert_error(&result, 6, "cannot run '/no/such/program'");
}

static int write_inputs(const char *ids, const char *who) {
    setenv("TINY_WRITE", directory, 1);
    setenv("TINY_ID", ids, 1);
    setenv("TINY_ID_RANK", who, 1);
    struct result result = RUN(ALONE, 1, "--");
    unsetenv("TINY_WRITE");
    return result.exit;
}

static int set_up(void **state) {
    (void)state;
    char from[64], to[64];
    if (!getenv("TINY_PROGRAM") || !mkdtemp(directory)) return -1;
    in_directory(from, sizeof from, "ids.npy");
    in_directory(to, sizeof to, "ids12.npy");
    snprintf(x_option, sizeof x_option, "x=%s/x.npy", directory);
    snprintf(ids_option, sizeof ids_option, "ids=%s/ids.npy", directory);
    snprintf(bad_option, sizeof bad_option, "x=%s/ids.npy", directory);
    return write_inputs("12", "2") || rename(from, to) || write_inputs("7", "0");
}

static int tear_down(void **state) {
    static const char *const names[] = {"out",
                                        "err",
                                        "x.npy",
                                        "ids.npy",
                                        "ids12.npy",
                                        "weights.bin",
                                        "manifest.json",
                                        "location.json",
                                        "new/outputs/y.npy",
                                        "new/outputs/a_z.npy",
                                        "new/outputs/a.z.npy",
                                        "new/outputs/outputs.json",
                                        "new/outputs",
                                        "new",
                                        ""};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        in_directory(path, sizeof path, names[i]);
        remove(path);
    }
    return access(directory, F_OK) == 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_prints_a_summary),
        cmocka_unit_test(threads_and_processes_print_the_same),
        cmocka_unit_test(outputs_are_written_under_safe_names),
        cmocka_unit_test(json_reports_times_and_memory),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(ranks_must_be_what_was_generated),
        cmocka_unit_test(results_that_cannot_be_written_are_an_error),
        cmocka_unit_test(bad_data_on_one_rank_is_reported_once),
        cmocka_unit_test(dead_ranks_are_noticed),
        cmocka_unit_test(no_rank_outlives_the_launcher),
        cmocka_unit_test(ignored_child_signals_do_not_matter),
        cmocka_unit_test(a_program_that_is_not_there_is_an_error),
    };
    if (!getenv("TINY_PROGRAM")) return 77;
    return cmocka_run_group_tests_name("launch", tests, set_up, tear_down);
}
