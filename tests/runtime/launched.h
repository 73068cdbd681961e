/* Starts the tiny program (tiny.h) alone or by the launcher, and keeps what it says. TINY_PROGRAM in the environment is
 * its path, TINY_STALL_MS the launcher's limit; TINY_OUT and TINY_ERR leave it stdout and stderr as they are,
 * TINY_OWN_GROUP makes the job a process group. */
#ifndef LAUNCHED_H
#define LAUNCHED_H

#include "../test.h"

#include <stdio.h>
#include <sys/types.h>

struct result {
    int exit; /* 128 + signal */
    double seconds;
    char out[4096], err[4096];
};

/* How the program is started. */
enum start { ALONE, LAUNCHED };

/* The test's own directory, and options of good and of wrong inputs in it; by make_files. */
extern char directory[], x_option[64], ids_option[64], bad_option[64];

#define RUN(how, ranks, ...) run_list(how, ranks, (const char *const[]){__VA_ARGS__, NULL})
#define INPUTS               "--input", x_option, "--input", ids_option

struct result run_list(enum start how, int ranks, const char *const *arguments);

/* The two halves of run_list. */
pid_t start(enum start how, int ranks, const char *const *arguments);
void finish(struct result *result, pid_t pid, double since);

/* A job says one thing, once. */
void assert_error(const struct result *result, int exit, const char *text);
void assert_ok(const struct result *result);

double seconds(void);
void in_directory(char *path, size_t room, const char *name);
void read_text(const char *name, char *text, size_t room);

/* Group set-up and tear-down. */
int make_files(void **state);
int remove_files(void **state);

#endif
