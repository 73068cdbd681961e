/* Linear attention: what the C and the CUDA kernel of operator LinearAttention share. */
#ifndef RT_BASE_LINEAR_ATTENTION_H
#define RT_BASE_LINEAR_ATTENTION_H

#include <stdint.h>

struct rt_linear_attention {
    int64_t b, t, h, g; /* sequences, steps, heads of keys and values, and heads of q for each of them */
    int64_t k, v;       /* elements of a head of q and keys, and of values */
    int64_t decays;     /* of a head and step: 1 or k */
    double scale;       /* of the results */
};

#endif
