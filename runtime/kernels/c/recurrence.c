#include "recurrence.h"

#include "../../generated.h"
#include "../gemm.h"
#include "cells.h"
#include "internal.h"

#include <string.h>

/* Note [Recurrence]
 * A team of threads runs all steps. Each thread has a part of the sequences or, if there are fewer sequences than
 * threads, of the hidden units. In every step it computes the recurrent product of its part and then the gates from it.
 * With parts of units, each step needs the complete state of the last one, so the threads wait for each other after
 * every step.
 *
 * The gradient computes the products of all steps at once, because the states are known, and then goes backward: the
 * gradients of a step's gates, and their product with the weights, which is the gradient of the state before. */

/* Multiply-adds of a step below which a part of its units is not worth waiting for. */
#define PARALLEL_STEP 262144
/* Multiply-adds of all steps below which starting threads does not pay. */
#define PARALLEL_STEPS 1048576

/* A thread's sequences and units. */
struct share {
    int64_t row, rows, unit, units;
    int waits; /* for the others, in every step */
};

static int threads_for(const struct rt_recurrence *shape) {
    double step = (double)shape->b * (double)shape->h * (double)shape->h * (double)rt_cell_gates(shape->cell);
    int64_t threads = omp_get_max_threads();
    if (step * (double)shape->t < PARALLEL_STEPS) return 1;
    if (shape->b < threads && step < (double)PARALLEL_STEP * (double)threads) threads = max_i64(shape->b, 1);
    return (int)threads;
}

static struct share share_of(const struct rt_recurrence *shape, int64_t thread, int64_t threads) {
    const int64_t b = shape->b, h = shape->h;
    if (b >= threads) {
        const int64_t row = b * thread / threads;
        return (struct share){row, b * (thread + 1) / threads - row, 0, h, 0};
    }
    const int64_t unit = h * thread / threads;
    return (struct share){0, b, unit, h * (thread + 1) / threads - unit, 1};
}

static void wait_for_others(const struct share *share) {
    if (share->waits) {
#pragma omp barrier
    }
}

/* The position of a step, counted in the order of execution. */
static int64_t step_at(const struct rt_recurrence *shape, int64_t step) {
    return shape->reverse ? shape->t - 1 - step : step;
}

static int is_beyond(const int64_t *lengths, int64_t row, int64_t at) {
    return lengths && at >= lengths[row];
}

/* The activation functions that almost every model has, for which there are vector loops. */
static int is_usual(const struct rt_recurrence *shape) {
    const int rnn = shape->cell == RT_CELL_RNN;
    if (shape->clip > 0 || shape->coupled) return 0;
    return shape->gate.function == (rnn ? RT_GATE_TANH : RT_GATE_SIGMOID) &&
           (rnn || shape->candidate.function == RT_GATE_TANH) &&
           (shape->cell != RT_CELL_LSTM || shape->output.function == RT_GATE_TANH);
}

#define T            float
#define SUFFIX       f32
#define GEMM_LIBRARY rt_gemm_library_f32
#define F(name)      rt_##name##_f32
#include "recurrence.inc"

#define T       double
#define SUFFIX  f64
#define F(name) rt_##name##_f64
#include "recurrence.inc"
