/* Linear attention: what the C and the CUDA kernel of operator LinearAttention share. */
#ifndef RT_BASE_LINEAR_ATTENTION_H
#define RT_BASE_LINEAR_ATTENTION_H

#include "../inline.h"

#include <stdint.h>

struct rt_linear_attention {
    int64_t b, t, h, g; /* sequences, steps, heads of keys and values, and heads of q for each of them */
    int64_t k, v;       /* elements of a head of q and keys, and of values */
    int64_t decays;     /* of a head and step: 1 or k */
    double scale;       /* of the results */
};

/* The gradient works on so many heads at a time, each with a part of the workspace. It keeps the state before every run
 * of about sqrt(t) steps, and computes the states within a run again. */
enum { RT_LINEAR_ATTENTION_SLOTS = 16 };

RT_INLINE int64_t rt_linear_attention_run(int64_t t) {
    int64_t run = 1;
    while (run * run < t) run++;
    return run;
}

/* Elements of workspace for a head: those states, and three rows of v elements. */
RT_INLINE int64_t rt_linear_attention_workspace(int64_t t, int64_t k, int64_t v) {
    const int64_t run = rt_linear_attention_run(t);
    return ((t + run - 1) / run + run) * k * v + 3 * v;
}

#endif
