/* Linear attention; the manual is kernels/c/linear_attention.h. A thread per column of a state, which runs all steps:
 * columns do not depend on each other. */
#ifndef RT_CUDA_LINEAR_ATTENTION_CUH
#define RT_CUDA_LINEAR_ATTENTION_CUH

#include "../base/linear_attention.h"
#include "launch.cuh"

template <class T>
static inline int rt_attend_linearly(struct rt *rt, T *y, T *state, const T *q, const T *key, const T *value,
                                     const T *past, const T *decay, const T *rate, const rt_linear_attention &s) {
    return rt_points(rt, s.b * s.h * s.v, [=] __device__(int64_t p) {
        int64_t sequence = p;
        const int64_t j = rt_take(&sequence, s.v), head = rt_take(&sequence, s.h);
        const int64_t first = (sequence * s.h + head) * s.k * s.v + j;
        T *column = state + first; /* its elements are s.v apart */
        for (int64_t k = 0; k < s.k; k++) column[k * s.v] = past[first + k * s.v];
        for (int64_t t = 0; t < s.t; t++) {
            const int64_t at = (sequence * s.t + t) * s.h + head;
            const T *x = key + at * s.k;
            T u = 0, fade = decay ? exp(decay[at * s.decays]) : (T)1;
            for (int64_t k = 0; k < s.k && (decay || rate); k++) {
                if (decay && s.decays > 1) fade = exp(decay[at * s.decays + k]);
                const T element = column[k * s.v] * fade;
                column[k * s.v] = element;
                u += element * x[k];
            }
            u = rate ? rate[at] * (value[at * s.v + j] - u) : value[at * s.v + j];
            for (int64_t k = 0; k < s.k; k++) column[k * s.v] += x[k] * u;
            for (int64_t i = at * s.g; i < (at + 1) * s.g; i++) {
                T sum = 0;
                for (int64_t k = 0; k < s.k; k++) sum += q[i * s.k + k] * column[k * s.v];
                y[i * s.v + j] = (T)s.scale * sum;
            }
        }
    });
}

#define RT_CUDA_LINEAR_ATTENTION(T, s)                                                                                 \
    RT_ON_CALL int rt_linear_attention_##s(struct rt *rt, T *y, T *state, const T *q, const T *key, const T *value,    \
                                           const T *past, const T *decay, const T *rate,                               \
                                           const struct rt_linear_attention &shape) {                                  \
        return rt_attend_linearly(rt, y, state, q, key, value, past, decay, rate, shape);                              \
    }

RT_CUDA_LINEAR_ATTENTION(float, f32)
RT_CUDA_LINEAR_ATTENTION(double, f64)

#endif
