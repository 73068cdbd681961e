/* A dummy of one unit of two counts for nothing, whatever is in it: tests/training/mlp with --runtime-ngpus 2, its
 * ranks threads of this process, which take a step together.
 *
 *     dummy DIR */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <rankc/generated.h>

#include "model.h"

enum { UNITS = 2 };

static float x[3][39], target[3][15]; /* two samples, and one of NaN */
static const char *directory;
static void *segment;

/* A step: which sample each unit has, and whether that is a dummy. */
struct step {
    int sample[UNITS];
    unsigned char is_dummy[UNITS];
};
static const struct step steps[] = {{{0, 0}, {0, 0}}, {{0, 1}, {0, 0}}, {{0, 1}, {0, 1}}, {{0, 2}, {0, 1}},
                                    {{2, 0}, {1, 0}}, {{2, 2}, {1, 1}}, {{0, 2}, {0, 0}}};
enum { STEPS = sizeof steps / sizeof *steps };

struct unit {
    int rank;
    double norm[STEPS], loss[STEPS];
};

static void check(struct rt *rt, int status, const char *what) {
    if (status == RT_OK) return;
    fprintf(stderr, "%s: %s\n", what, rt ? rt_error(rt) : "no rank");
    exit(1);
}

static void *run(void *argument) {
    struct unit *unit = argument;
    struct rt_options options = {.directory = directory, .comm = "loopback", .threads = 1};
    struct rt *rt = NULL;
    check(rt, rt_comm_open_shared(&options.joined, segment, unit->rank, UNITS, rt_program_symmetric(&model_program)),
          "join");
    check(rt, model_open(&rt, &options), "open");
    for (int s = 0; s < STEPS; s++) {
        const int sample = steps[s].sample[unit->rank];
        const void *const ports[] = {x[sample], target[sample]}, *const *const samples[] = {ports};
        check(rt, model_gradients(rt, samples, &steps[s].is_dummy[unit->rank], NULL, &unit->loss[s]), "gradients");
        check(rt, model_sync_shard_grad(rt), "sync");
        check(rt, model_clip_gnorm(rt, INFINITY, &unit->norm[s]), "norm");
    }
    model_close(rt);
    options.joined->driver->close(options.joined);
    return NULL;
}

/* Equal but for the order of sums. */
static void expect(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "dummy: %s\n", what);
    exit(1);
}

static bool about(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

int main(int argc, char **argv) {
    struct unit units[UNITS] = {{.rank = 0}, {.rank = 1}};
    pthread_t threads[UNITS];
    directory = argc > 1 ? argv[1] : ".";
    segment = calloc(1, rt_comm_shared_bytes(UNITS, rt_program_symmetric(&model_program)));
    for (int i = 0; i < 3 * 39; i++) x[i / 39][i % 39] = i / 39 == 2 ? NAN : (float)sin(i + 1);
    for (int i = 0; i < 3 * 15; i++) target[i / 15][i % 15] = i / 15 == 2 ? NAN : (float)cos(5 * i);
    for (int r = 0; r < UNITS; r++) pthread_create(&threads[r], NULL, run, &units[r]);
    for (int r = 0; r < UNITS; r++) pthread_join(threads[r], NULL);
    const double *norm = units[0].norm;
    for (int s = 0; s < STEPS; s++)
        expect(units[1].norm[s] == norm[s] || (isnan(norm[s]) && isnan(units[1].norm[s])), "the units' norms differ");
    expect(norm[0] > 0 && !about(norm[1], norm[0]), "the samples do not differ");
    expect(about(norm[2], norm[0]) && units[1].loss[2] == 0, "a dummy counts");
    expect(about(norm[3], norm[0]) && about(norm[4], norm[0]), "a dummy's NaN counts");
    expect(norm[5] == 0, "dummies alone have a gradient");
    expect(isnan(norm[6]), "a NaN that is no dummy's is lost");
    puts("dummy: ok");
    return 0;
}
