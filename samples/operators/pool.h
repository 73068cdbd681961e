/* Kernels of samples/operators/pool.ops for target c. Tensors are dense and row-major. The functions are static, since
 * each source of the generated program includes this file. */
#include <stdint.h>

#define ACME_POOL(T, s)                                                                                                \
    static inline void acme_pool_##s(T *y /* (b,c) */, const T *p /* (b,t) */, const T *x /* (b,t,c) */, int64_t b,    \
                                     int64_t t, int64_t c) {                                                           \
        for (int64_t i = 0; i < b * c; i++) y[i] = 0;                                                                  \
        for (int64_t i = 0; i < b; i++)                                                                                \
            for (int64_t j = 0; j < t; j++)                                                                            \
                for (int64_t k = 0; k < c; k++) y[i * c + k] += p[i * t + j] * x[(i * t + j) * c + k];                 \
    }                                                                                                                  \
                                                                                                                       \
    static inline void acme_pool_weight_grad_##s(T *dp /* (b,t) */, const T *x /* (b,t,c) */, const T *dy /* (b,c) */, \
                                                 int64_t b, int64_t t, int64_t c) {                                    \
        for (int64_t i = 0; i < b * t; i++) {                                                                          \
            T sum = 0;                                                                                                 \
            for (int64_t k = 0; k < c; k++) sum += x[i * c + k] * dy[i / t * c + k];                                   \
            dp[i] = sum;                                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static inline void acme_pool_value_grad_##s(T *dx /* (b,t,c) */, const T *p /* (b,t) */, const T *dy /* (b,c) */,  \
                                                int64_t b, int64_t t, int64_t c) {                                     \
        for (int64_t i = 0; i < b * t; i++)                                                                            \
            for (int64_t k = 0; k < c; k++) dx[i * c + k] = p[i] * dy[i / t * c + k];                                  \
    }

ACME_POOL(float, f32)
ACME_POOL(double, f64)
