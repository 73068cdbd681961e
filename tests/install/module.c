/* The C interface of a module, tests/models/mlp with --dtype f64, on one rank: gradients of its inputs against
 * differences, sums of gradients, scaling, clipping and hooks.
 *
 *     module DIR */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "module.c:%d: %s: %s\n", __LINE__, #condition, rt_error(rt));                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { MOST = 4096 };
static double x[MOST], y[MOST], dx[MOST], weight[MOST];

static int64_t elements(const struct rt_port *port) {
    int64_t count = 1;
    for (int d = 0; d < port->ndim; d++) count *= port->dims[d];
    return count;
}

/* A loss of this file's: the outputs' weighted sum. */
static double loss(struct rt *rt) {
    double sum = 0;
    CHECK(mlp_forward(rt, (const void *[]){x}, (void *[]){y}) == RT_OK);
    for (int64_t i = 0; i < elements(rt_program_output(&mlp_program, mlp_OUTPUT_y)); i++) sum += weight[i] * y[i];
    return sum;
}

static void backward(struct rt *rt) {
    loss(rt);
    CHECK(mlp_backward(rt, (const void *[]){weight}, (void *[]){dx}) == RT_OK);
}

/* Central differences of f64: their error is of the order of step^2, their rounding of eps / step. */
static void check_input_gradients(struct rt *rt) {
    const double step = 1e-5;
    backward(rt);
    for (int64_t i = 0; i < elements(rt_program_input(&mlp_program, mlp_INPUT_x)); i++) {
        const double at = x[i];
        x[i] = at + step;
        double difference = loss(rt);
        x[i] = at - step;
        difference = (difference - loss(rt)) / (2 * step);
        x[i] = at;
        CHECK(fabs(difference - dx[i]) <= 1e-7 * (1 + fabs(difference)));
    }
}

static double norm_now(struct rt *rt) {
    double norm;
    CHECK(mlp_clip_gnorm(rt, INFINITY, &norm) == RT_OK);
    return norm;
}

static int count_call(void *context, struct rt *rt) {
    (void)rt;
    ++*(int *)context;
    return RT_OK;
}

static bool about(double a, double b) {
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* Two micro-batches alike have twice the gradient of one; scaled by half they have its norm. Gradients that were
 * reduced are not added to. */
static void check_sums(struct rt *rt) {
    int calls = 0;
    rt_set_reduce_hooks(rt, &(struct rt_reduce_hooks){count_call, count_call, &calls});
    CHECK(mlp_zero_grad(rt) == RT_OK);
    backward(rt);
    const double one = norm_now(rt);
    CHECK(one > 0 && calls == 2);
    CHECK(about(norm_now(rt), one) && calls == 2);
    loss(rt);
    CHECK(mlp_backward(rt, (const void *[]){weight}, (void *[]){dx}) == RT_ERROR_USAGE);
    CHECK(mlp_zero_grad(rt) == RT_OK);
    backward(rt);
    backward(rt);
    CHECK(about(norm_now(rt), 2 * one) && calls == 4);
    CHECK(mlp_scale_grads(rt, 0.5) == RT_OK && about(norm_now(rt), one));
    CHECK(mlp_zero_grad(rt) == RT_OK && norm_now(rt) == 0);
    rt_set_reduce_hooks(rt, &(struct rt_reduce_hooks){NULL, NULL, NULL});
}

/* SGD with rate 1, clipped to norm 0.001: the loss falls by that times the norm of the gradient, nearly. */
static void check_step(struct rt *rt) {
    double norm;
    const double before = loss(rt);
    CHECK(mlp_zero_grad(rt) == RT_OK);
    backward(rt);
    CHECK(mlp_clip_gnorm(rt, 0.001, &norm) == RT_OK && mlp_step(rt) == RT_OK);
    const double fallen = before - loss(rt);
    CHECK(fabs(fallen / (0.001 * norm) - 1) < 0.01);
    CHECK(rt_gradient_norm(rt) == norm);
}

int main(int argc, char **argv) {
    const struct rt_options options = {.directory = argc > 1 ? argv[1] : ".", .comm = "self", .threads = 1};
    struct rt *rt = NULL;
    CHECK(mlp_open(&rt, &options) == RT_OK);
    for (int i = 0; i < MOST; i++) x[i] = sin(i + 1), weight[i] = cos(3 * i);
    check_input_gradients(rt);
    check_sums(rt);
    check_step(rt);
    CHECK(rt_train_step(rt, NULL, NULL, NULL, NULL) == RT_ERROR_USAGE);
    CHECK(mlp_infer(rt, &(struct mlp_tensors){.y = y}) == RT_ERROR_USAGE);
    CHECK(strcmp(rt_error(rt), "input 0, 'x', is NULL") == 0);
    mlp_close(rt);
    puts("module: ok");
    return 0;
}
