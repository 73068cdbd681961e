/* What all modes of a generated program share: failures of a rank, times of steps. */
#include "program/main.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int exit_of(int status, int code) {
    if (code == RT_CODE_MEMORY || code == RT_CODE_GROUPS || code == RT_CODE_FULL) return EXIT_LIMIT;
    switch (status) {
    case RT_OK: return EXIT_OK;
    case RT_ERROR_USAGE: return code == RT_CODE_CALLS ? EXIT_RANK : EXIT_USAGE;
    case RT_ERROR_INPUT: return EXIT_MALFORMED;
    case RT_ERROR_SYSTEM:
    case RT_ERROR_DEVICE: return EXIT_SYSTEM;
    case RT_ERROR_MISMATCH: return EXIT_MISMATCH;
    case RT_ERROR_PEER: return EXIT_RANK;
    case RT_ERROR_BUSY: return EXIT_BUSY;
    default: return EXIT_INTERNAL;
    }
}

/* Help texts of some diagnostics. */
static const struct {
    int code;
    const char *help;
} helps[] = {{RT_CODE_MODEL,
              "the weights are in this file, as location.json says: restore it, or compile the model again at its new "
              "place; '--weights copy' makes a program that does not need the model"},
             {RT_CODE_SOURCE_CHANGED, "restore the file, or compile the model again"}};

int check_rank(struct rank *self, const struct rt *rt, int status) {
    if (!status) return RT_OK;
    const int code = rt_error_code(rt);
    self->status = status;
    failure_set(&self->failure, exit_of(status, code), code, "%s", rt_error_text(rt));
    for (size_t i = 0; i < sizeof helps / sizeof *helps; i++)
        if (helps[i].code == code) failure_help(&self->failure, "%s", helps[i].help);
    self->failure.told = rt_error_told(rt);
    self->failure.agreed = rt_error_agreed(rt);
    if (rt) manifest_place(&self->job->manifest, rt->instruction, &self->failure);
    return status;
}

int check_comm(struct rank *self, struct rt *rt, const struct rt_comm *comm, int status) {
    return check_rank(self, rt, rt_end_collective(rt, comm, status));
}

int fail_with(struct rank *self, int exit, int code, const char *format, ...) {
    char text[sizeof self->failure.text];
    RT_PRINT_TO(text, format);
    failure_set(&self->failure, exit, code, "%s", text);
    return self->status = rt_status_of_exit(exit);
}

/* Steps that are kept before memory is allocated for more, in which a step takes longer. */
enum { STEPS_AT_FIRST = 1 << 14 };

/* False: out of memory. */
static bool make_room(struct job *job, int steps) {
    double *ms = realloc(job->step_ms, (size_t)steps * sizeof *ms);
    if (ms) job->step_ms = ms;
    double *losses = ms ? realloc(job->losses, (size_t)steps * sizeof *losses) : NULL;
    if (!losses) return false;
    job->losses = losses, job->steps_room = steps;
    return true;
}

bool reserve_steps(struct job *job) {
    return make_room(job, STEPS_AT_FIRST);
}

int record_step(struct rank *self, double ms, double loss) {
    struct job *job = self->job;
    const int more = job->steps_room <= INT_MAX / 2 ? job->steps_room * 2 : INT_MAX;
    if (job->nsteps == job->steps_room && !make_room(job, more))
        return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    job->losses[job->nsteps] = loss;
    job->step_ms[job->nsteps++] = ms;
    return RT_OK;
}

int fail_reason(struct rank *self, int code, const struct rt_reason *why) {
    return self->status = rt_status_of_exit(failure_reason(&self->failure, code, why));
}

int ranks_agree(struct rank *self, struct rt *rt, const struct rt_terms *terms) {
    return check_rank(self, rt, strcmp(self->job->options.comm, "loopback") == 0 ? RT_OK : rt_agree(rt, terms));
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rounds to microseconds. */
static void put_rounded(struct rt_json_writer *w, double ms) {
    rt_json_put_real(w, (double)(int64_t)(ms * 1e3 + 0.5) / 1e3);
}

void put_ms(struct rt_json_writer *w, const char *key, double ms) {
    rt_json_key(w, key), put_rounded(w, ms);
}

bool find_times(const struct job *job, struct times *times) {
    const int count = job->nsteps;
    double *ms = calloc((size_t)count + 1, sizeof *ms);
    if (!ms) return false;
    memcpy(ms, job->step_ms, (size_t)count * sizeof *ms);
    qsort(ms, (size_t)count, sizeof *ms, compare_doubles);
    *times = (struct times){ms[0], count ? (ms[(count - 1) / 2] + ms[count / 2]) / 2 : 0, count ? ms[count - 1] : 0};
    free(ms);
    return true;
}

bool put_step_times(struct rt_json_writer *w, const struct job *job) {
    struct times ms;
    if (!find_times(job, &ms)) return false;
    rt_json_key_open(w, "step_ms", '{', RT_JSON_INLINE);
    put_ms(w, "min", ms.min);
    put_ms(w, "median", ms.median);
    put_ms(w, "max", ms.max);
    rt_json_key_open(w, "all", '[', RT_JSON_INLINE);
    for (int i = 0; i < job->nsteps; i++) put_rounded(w, job->step_ms[i]);
    rt_json_close(w, ']');
    rt_json_close(w, '}');
    return true;
}
