/* Shared by convolution and pooling kernels. Not for programs. */
#ifndef RT_KERNELS_C_CONV_SHAPE_H
#define RT_KERNELS_C_CONV_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "epilogue.h"
#include "lists.h"
#include "window.h"

struct rt;

struct rt_conv {
    struct rt_window window;
    int64_t batch, groups, c, m; /* c, m: channels per group */
    int64_t depth;               /* c * taps: terms per output element */
    int pointwise;               /* 1: the window is one element and reads every element of x, in order */
};

/* The window elements that read x, along each dimension. */
struct rt_inside {
    int64_t first[3], end[3];
};

/* Of the window at output index o in dimension d. */
static inline void rt_find_inside(struct rt_inside *inside, const struct rt_window *w, int d, int64_t o) {
    const int64_t at = rt_window_at(w, d, o, 0);
    int64_t first = 0, end = w->k[d];
    while (first < end && at + first * w->dilation[d] < 0) first++;
    while (end > first && at + (end - 1) * w->dilation[d] >= w->x[d]) end--;
    inside->first[d] = first, inside->end[d] = end;
}

/* Output indices [*first, *end) along the last dimension for which window element k is inside x. */
void rt_window_reach(const struct rt_window *window, int64_t k, int64_t *first, int64_t *end);

/* The window elements of a phase along one dimension, from the last one down (Note [Phases of a transposed convolution]
 * in conv.c). */
struct rt_phase_taps {
    int64_t last, step;
};

/* Along dimension d the phase of the elements of x whose index is `at` modulo the stride: sets its window, a
 * convolution of dy, along d, and its taps. 0 if no element of the window or of x belongs to it. */
int rt_conv_phase_along(struct rt_window *phase, struct rt_phase_taps *taps, const struct rt_window *w, int d,
                        int64_t at);

/* A convolution of channels last as a product with weights in panels (conv_packed.c). */
void rt_conv_panels(struct rt *rt, float *y, const float *x, const float *panels, const struct rt_conv *conv,
                    const struct rt_epilogue *epilogue);

/* A convolution of channels last by Winograd's algorithm (conv_winograd.c). */
void rt_conv_winograd(struct rt *rt, float *y, const float *x, const float *w, const struct rt_conv *conv,
                      const struct rt_epilogue *epilogue);

/* Direct convolution (conv_direct.c): layout of a band of x, for at most `most` rows of y; in elements. */
enum { RT_DIRECT_TAPS = 128, RT_DIRECT_CHANNELS = 8 /* input channels of a group, at most */ };
struct rt_direct {
    int64_t most;
    int64_t phases[2];              /* stride planes, by row and by column */
    int64_t below;                  /* rows of a plane beyond those of y */
    int64_t width;                  /* columns */
    int64_t plane, channel;         /* distance between planes, between channels */
    int64_t offset[RT_DIRECT_TAPS]; /* offset of each window element */
};

/* 0: rt_conv_direct does not apply. The answer does not depend on how the tensors are cut. */
int rt_conv_direct_plan(struct rt_direct *direct, const struct rt_conv *conv, size_t element);

/* The same for rt_conv_direct_weigh, the gradient of the weights: one input and one output channel in
 * each group. */
int rt_conv_direct_weighs(struct rt_direct *direct, const struct rt_conv *conv, size_t element);

/* Computes rows [first, first + rows) of all m output channels of one group; the weights' gradient of one
 * group, where samples are so many elements apart. */
#define RT_DECLARE_DIRECT(T, s)                                                                                        \
    void rt_conv_direct_##s(T *y, const T *x, const T *w, const struct rt_conv *conv, const struct rt_direct *direct,  \
                            int64_t first, int64_t rows);                                                              \
    void rt_conv_direct_weigh_##s(T *dw, const T *x, const T *dy, const struct rt_conv *conv,                          \
                                  const struct rt_direct *direct, int64_t x_sample, int64_t y_sample);

RT_FLOATS(RT_DECLARE_DIRECT)

#endif
