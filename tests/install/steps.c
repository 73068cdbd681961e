/* The C interface of a model with a loss, tests/training/mlp with --accumulate 3, on one rank: dummies, scaled losses,
 * and a step taken in pieces.
 *
 *     steps DIR */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "steps.c:%d: %s: %s\n", __LINE__, #condition, rt_error(rt));                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static float x[2][39], target[2][15];
static const void *const first[] = {x[0], target[0]}, *const second[] = {x[1], target[1]};

static double factor(void *context, int micro_batch, double loss) {
    (void)micro_batch;
    return loss > 0 ? *(double *)context : 1;
}

static double norm_of(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy, double by,
                      double *losses) {
    const struct rt_scale scale = {factor, &by};
    double norm;
    CHECK(steps_gradients(rt, samples, is_dummy, by == 1 ? NULL : &scale, losses) == RT_OK);
    CHECK(steps_clip_gnorm(rt, INFINITY, &norm) == RT_OK);
    return norm;
}

static bool about(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

int main(int argc, char **argv) {
    const struct rt_options options = {.directory = argc > 1 ? argv[1] : ".", .comm = "self", .threads = 1};
    const void *const *const same[] = {first, first, first}, *const *const mixed[] = {first, second, first};
    const unsigned char middle[] = {0, 1, 0}, all[] = {1, 1, 1};
    double losses[3], whole[3];
    struct rt *rt = NULL;
    CHECK(steps_open(&rt, &options) == RT_OK);
    for (int i = 0; i < 78; i++) x[i / 39][i % 39] = (float)sin(i + 1);
    for (int i = 0; i < 30; i++) target[i / 15][i % 15] = (float)cos(5 * i);
    const double norm = norm_of(rt, same, NULL, 1, whole);
    CHECK(whole[0] > 0 && whole[1] == whole[0]);
    CHECK(!about(norm_of(rt, mixed, NULL, 1, losses), norm) && !about(losses[1], whole[0]));
    CHECK(about(norm_of(rt, mixed, middle, 1, losses), norm)); /* the mean over those that are none */
    CHECK(losses[0] == whole[0] && losses[1] == 0 && losses[2] == whole[0]);
    CHECK(norm_of(rt, mixed, all, 1, losses) == 0);
    CHECK(about(norm_of(rt, same, NULL, 3, losses), 3 * norm) && losses[0] == whole[0]);
    CHECK(steps_step(rt) == RT_OK && about(rt_gradient_norm(rt), 3 * norm));
    norm_of(rt, same, NULL, 1, losses);
    CHECK(losses[0] < whole[0]);
    CHECK(steps_train_step(rt, same, NULL, NULL, whole) == RT_OK && whole[0] == losses[0]);
    CHECK(rt_forward(rt, first, NULL) == RT_ERROR_USAGE);
    steps_close(rt);
    puts("steps: ok");
    return 0;
}
