#include "recurrence.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "../gemm.h"
#include "cells.h"
#include "internal.h"
#include "types.h"

#include <string.h>

/* Note [Recurrence]
 * A team of threads runs all steps. Each thread has a part of the sequences or, if there are fewer sequences than
 * threads, of the hidden units. In every step it computes the recurrent product of its part and then the gates from it.
 * With parts of units, each step needs the complete state of the last one, so the threads wait for each other after
 * every step.
 *
 * The weights are packed before the first step, so that the products of all steps read them in order. The gates of a
 * row of units are computed in one short loop after the other, with at most one activation function in each: compilers
 * make vectors of these, but not of a loop that chooses between functions or calls them.
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

/* The first unit of a thread: the beginning of a panel. */
static int64_t unit_of(int64_t h, int64_t thread, int64_t threads) {
    return min_i64(rt_panels(h) * thread / threads * RT_PANEL, h);
}

static struct share share_of(const struct rt_recurrence *shape, int64_t thread, int64_t threads) {
    const int64_t b = shape->b, h = shape->h;
    if (b >= threads) {
        const int64_t row = b * thread / threads;
        return (struct share){row, b * (thread + 1) / threads - row, 0, h, 0};
    }
    const int64_t unit = unit_of(h, thread, threads);
    return (struct share){0, b, unit, unit_of(h, thread + 1, threads) - unit, 1};
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

/* A panel of weights: to[p * RT_PANEL + c] = from[c * from_row + p] for c < width, else 0. */
static void rt_turn_f32(float *to, const float *from, int64_t from_row, int64_t depth, int64_t width) {
    rt_gemm_turn(to, from, from_row, depth, width);
}

static void rt_turn_f64(double *to, const double *from, int64_t from_row, int64_t depth, int64_t width) {
    for (int64_t p = 0; p < depth; p++)
        for (int64_t c = 0; c < RT_PANEL; c++) to[p * RT_PANEL + c] = c < width ? from[c * from_row + p] : 0;
}

/* A block of y(b,h) = state(b,h) times packed weights (h,h), each sum in order of h. */
static void rt_panels_f32(float *y, const float *state, const float *weights, int64_t h, struct rt_block block,
                          int reference) {
    const struct rt_packed_product product = {y, state, weights, block.row + block.rows, h, h, NULL};
    rt_gemm_packed_choose(reference)->multiply(&product, block);
}

static void rt_panels_f64(double *y, const double *state, const double *weights, int64_t h, struct rt_block block,
                          int reference) {
    (void)reference;
    for (int64_t unit = block.column; unit < block.column + block.columns; unit += RT_PANEL)
        rt_gemm_reference_f64(y + block.row * h + unit, h, state + block.row * h, h, 0,
                              weights + rt_panel_place(h, 0, unit), RT_PANEL, 0, block.rows, h,
                              min_i64(block.column + block.columns - unit, RT_PANEL));
}

/* The same with the transpose of weights that are not packed: those of a single step, which would be packed for no
 * other. Parts of them are packed in the cache. */
static void rt_turned_f32(float *y, const float *state, const float *weights, int64_t h, struct rt_block block,
                          int reference) {
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(reference);
    const float *a = state + block.row * h, *b = weights + block.column * h;
    y += block.row * h + block.column;
    if (set->multiply_turned)
        set->multiply_turned(&(struct rt_turned_product){y, a, b, h, h, h, block.rows, h, block.columns});
    else
        rt_gemm_reference_f32(y, h, a, h, 0, b, h, 1, block.rows, h, block.columns);
}

static void rt_turned_f64(double *y, const double *state, const double *weights, int64_t h, struct rt_block block,
                          int reference) {
    (void)reference;
    rt_gemm_reference_f64(y + block.row * h + block.column, h, state + block.row * h, h, 0, weights + block.column * h,
                          h, 1, block.rows, h, block.columns);
}

/* The function of cells.h or of this file for the type. */
#define F(name) NAME(rt_##name)

#define T     TYPE(SUFFIX)
#define PART  "recurrence.inc"
#define TYPES FLOATS
#include "each.inc"
