/* Kernels of samples/operators/pool.ops for target cuda. Target cuda passes the rank first; rt_points calls a function
 * of a point for each of `count` points on the rank's stream. The functions are static, since each source of the
 * generated program includes this file. */
#include <stdint.h>

template <class T>
static inline void acme_pool(struct rt *rt, T *y, const T *p, const T *x, int64_t b, int64_t t, int64_t c) {
    rt_points(rt, b * c, [=] __device__(int64_t i) {
        const int64_t row = i / c, column = i % c;
        T sum = 0;
        for (int64_t j = 0; j < t; j++) sum += p[row * t + j] * x[(row * t + j) * c + column];
        y[i] = sum;
    });
}

template <class T>
static inline void acme_pool_weight_grad(struct rt *rt, T *dp, const T *x, const T *dy, int64_t b, int64_t t,
                                         int64_t c) {
    rt_points(rt, b * t, [=] __device__(int64_t i) {
        T sum = 0;
        for (int64_t k = 0; k < c; k++) sum += x[i * c + k] * dy[i / t * c + k];
        dp[i] = sum;
    });
}

template <class T>
static inline void acme_pool_value_grad(struct rt *rt, T *dx, const T *p, const T *dy, int64_t b, int64_t t,
                                        int64_t c) {
    rt_points(rt, b * t * c, [=] __device__(int64_t i) { dx[i] = p[i / c] * dy[i / c / t * c + i % c]; });
}

#define ACME_POOL(T, s)                                                                                                \
    static inline void acme_pool_##s(struct rt *rt, void *y, const void *p, const void *x, int64_t b, int64_t t,       \
                                     int64_t c) {                                                                      \
        acme_pool(rt, (T *)y, (const T *)p, (const T *)x, b, t, c);                                                    \
    }                                                                                                                  \
    static inline void acme_pool_weight_grad_##s(struct rt *rt, void *dp, const void *x, const void *dy, int64_t b,    \
                                                 int64_t t, int64_t c) {                                               \
        acme_pool_weight_grad(rt, (T *)dp, (const T *)x, (const T *)dy, b, t, c);                                      \
    }                                                                                                                  \
    static inline void acme_pool_value_grad_##s(struct rt *rt, void *dx, const void *p, const void *dy, int64_t b,     \
                                                int64_t t, int64_t c) {                                                \
        acme_pool_value_grad(rt, (T *)dx, (const T *)p, (const T *)dy, b, t, c);                                       \
    }

ACME_POOL(float, f32)
ACME_POOL(double, f64)
