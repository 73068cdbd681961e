#define _GNU_SOURCE 1

#include "launched.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"

#define MOST_ARGUMENTS 32

char directory[] = "/tmp/rankc-launch-XXXXXX", x_option[64], ids_option[64], bad_option[64];

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void in_directory(char *path, size_t room, const char *name) {
    snprintf(path, room, "%s/%s", directory, name);
}

void read_text(const char *name, char *text, size_t room) {
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

/* As the tiny program's manifest names them. */
static const char *instruction_name(void *context, int number) {
    static const char *const names[] = {"node 'first' (MatMul)", "all-gather", "all-reduce"};
    return number >= 0 && number < 3 ? names[number] : NULL;
}

pid_t start(enum start how, int ranks, const char *const *arguments) {
    const char *program = getenv("TINY_PROGRAM"), *argv[MOST_ARGUMENTS] = {program, "--directory", directory};
    int n = 3;
    char shards[16];
    for (int i = 0; arguments[i]; i++) argv[n++] = arguments[i];
    snprintf(shards, sizeof shards, "%d", ranks);
    setenv("TINY_SHARDS", shards, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (getenv("TINY_OWN_GROUP")) setpgid(0, 0);
    if (!getenv("TINY_OUT")) redirect(1, "out");
    if (!getenv("TINY_ERR")) redirect(2, "err");
    const struct rt_launch launch = {.program = program,
                                     .arguments = argv + 1,
                                     .ranks = ranks,
                                     .stall_ms = getenv("TINY_STALL_MS") ? atoi(getenv("TINY_STALL_MS")) : 0,
                                     .instruction = instruction_name,
                                     .json = getenv("TINY_JSON") != NULL};
    if (how == LAUNCHED) _exit(rt_launch(&launch));
    execv(program, (char **)(uintptr_t)argv);
    _exit(98);
}

void finish(struct result *result, pid_t pid, double since) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result->exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result->seconds = seconds() - since;
    read_text("out", result->out, sizeof result->out);
    read_text("err", result->err, sizeof result->err);
}

struct result run_list(enum start how, int ranks, const char *const *arguments) {
    struct result result;
    const double since = seconds();
    finish(&result, start(how, ranks, arguments), since);
    return result;
}

static int count_of(const char *text, const char *what) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) count++;
    return count;
}

/* The job says one thing, once. */
void assert_error(const struct result *result, int exit, const char *text) {
    if (result->exit != exit || !strstr(result->err, text) || count_of(result->err, "error[") != 1)
        fail_msg("exit %d, expected %d with '%s':\n%s", result->exit, exit, text, result->err);
}

void assert_ok(const struct result *result) {
    if (result->exit != 0 || result->err[0]) fail_msg("exit %d: %s", result->exit, result->err);
}

static int write_inputs(const char *ids, const char *who) {
    setenv("TINY_WRITE", directory, 1);
    setenv("TINY_ID", ids, 1);
    setenv("TINY_ID_RANK", who, 1);
    struct result result = RUN(ALONE, 1, "--");
    unsetenv("TINY_WRITE");
    return result.exit;
}

int make_files(void **state) {
    char from[64], to[64];
    if (!getenv("TINY_PROGRAM") || !mkdtemp(directory)) return -1;
    in_directory(from, sizeof from, "ids.npy");
    in_directory(to, sizeof to, "ids12.npy");
    snprintf(x_option, sizeof x_option, "x=%s/x.npy", directory);
    snprintf(ids_option, sizeof ids_option, "ids=%s/ids.npy", directory);
    snprintf(bad_option, sizeof bad_option, "x=%s/ids.npy", directory);
    return write_inputs("12", "2") || rename(from, to) || write_inputs("7", "0");
}

int remove_files(void **state) {
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
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        in_directory(path, sizeof path, names[i]);
        remove(path);
    }
    return access(directory, F_OK) == 0;
}
