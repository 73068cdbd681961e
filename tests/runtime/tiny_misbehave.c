#define _GNU_SOURCE 1

#include "tiny.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void get_signal(struct rt *rt, int number) {
    (void)rt;
    signal(number, SIG_DFL); /* sanitizers catch some */
    raise(number);
}

static void leave(struct rt *rt, int code) {
    (void)rt;
    _exit(code);
}

static void spin(struct rt *rt, int unused) {
    (void)rt, (void)unused;
    for (volatile int turn = 0;; turn ^= 1) continue;
}

static void pause_ms(struct rt *rt, int ms) {
    (void)rt;
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void make_another_call(struct rt *rt, int bytes) {
    char data[64] = {0};
    rt->axis[0]->driver->broadcast(rt->axis[0], data, (size_t)bytes, 0);
    rt->axis[0]->driver->barrier(rt->axis[0]); /* until the others have seen it */
}

/* The others are in a call of their axis, which is another communicator. */
static void meet_elsewhere(struct rt *rt, int unused) {
    (void)unused;
    rt->comm->driver->barrier(rt->comm);
}

static void print(struct rt *rt, int unused) {
    (void)unused;
    printf("to stdout from %d\n", rt->rank);
    fflush(stdout);
    fprintf(stderr, "to stderr from %d\nwithout an end", rt->rank);
}

static const struct {
    const char *what;
    void (*function)(struct rt *rt, int argument);
    int argument;
} rows[] = {
    {"kill", get_signal, SIGKILL},
    {"stop", get_signal, SIGSTOP},
    {"abort", get_signal, SIGABRT},
    {"segv", get_signal, SIGSEGV},
    {"exit0", leave, 0},
    {"exit1", leave, 1},
    {"spin", spin, 0},
    {"pause", pause_ms, 600},
    {"sleep", pause_ms, 60000},
    {"print", print, 0},
    {"call", make_another_call, 64},
    {"elsewhere", meet_elsewhere, 0},
};

void tiny_misbehave(int rank, int64_t step, struct rt *rt) {
    const char *text = getenv("TINY_DO");
    char what[16];
    int who;
    int64_t when;
    if (!text || sscanf(text, "%d:%15[^@]@%" SCNd64, &who, what, &when) != 3) return;
    if (who != rank || when != step) return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].what, what) == 0) rows[i].function(rt, rows[i].argument);
}
