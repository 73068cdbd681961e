/* Scratch memory of convolutions of channels last whose weights are not packed when they are loaded, as in training
 * (runtime/kernels/c/conv_last.c), in elements of f32. */
#ifndef RT_BASE_CONV_ROOM_H
#define RT_BASE_CONV_ROOM_H

#include "panel.h"

/* Pixels that the gradient of the weights sums at a time, and the distance of rows of so many. */
enum { RT_CONV_PIXELS = 384, RT_CONV_ROW = RT_CONV_PIXELS + 16 };

/* Elements of a window, at most. */
enum { RT_CONV_MOST_TAPS = 4096 };

/* Weights with `terms` elements for each of `outputs` output channels, in panels. */
static inline int64_t rt_conv_room(int64_t terms, int64_t outputs) {
    return rt_panel_elements(terms, outputs);
}

/* Gradient of x: weights of `taps` window elements as panels, and `results` elements of a phase of the gradient, none
 * without strides. */
static inline int64_t rt_conv_transpose_room(int64_t taps, int64_t c, int64_t m, int64_t results) {
    return rt_panel_elements(taps * m, c) + results;
}

/* Gradient of the weights: the gradient of y, a row per channel in blocks of RT_CONV_PIXELS, and the result in the
 * order (m, taps, c). */
static inline int64_t rt_conv_weight_grad_room(int64_t pixels, int64_t m, int64_t depth) {
    return (pixels + RT_CONV_PIXELS - 1) / RT_CONV_PIXELS * m * RT_CONV_ROW + m * depth;
}

#endif
