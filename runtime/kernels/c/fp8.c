#include "kernels.h"

#include "../../base/number/fp8.h"
#include "../../generated.h"
#include "../gemm.h"
#include "internal.h"

/* Bits of magnitudes are ordered as magnitudes are, and those of a NaN are above all others: the maximum keeps it. */
#define DEFINE_ROW(T, s, to_f32, format)                                                                               \
    CLONES static uint32_t quantize_##format##_##s(uint8_t *q, const T *x, float factor, int64_t count) {              \
        uint32_t most = 0;                                                                                             \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const float value = to_f32(x[i]);                                                                          \
            const uint32_t magnitude = rt_f32_bits(value) & 0x7fffffff;                                                \
            most = magnitude > most ? magnitude : most;                                                                \
            q[i] = rt_f32_to_##format(rt_fp8_scaled(value, factor));                                                   \
        }                                                                                                              \
        return most;                                                                                                   \
    }

/* clang-format off */
#define DEFINE_QUANTIZE(T, s, to_f32)                                                                              \
    DEFINE_ROW(T, s, to_f32, e4m3)                                                                                 \
    DEFINE_ROW(T, s, to_f32, e5m2)                                                                                 \
    void rt_quantize_##s(uint8_t *q, float *most, const T *x, const float *scale, int64_t m, int64_t c,            \
                         enum rt_fp8 format) {                                                                     \
        uint32_t (*const row)(uint8_t *, const T *, float, int64_t) =                                              \
            format == RT_FP8_E4M3 ? quantize_e4m3_##s : quantize_e5m2_##s;                                             \
        const float factor = *scale;                                                                               \
        uint32_t all = 0;                                                                                          \
        _Pragma("omp parallel for schedule(static) reduction(max : all) if (m * c >= PARALLEL_WORK)")              \
        for (int64_t i = 0; i < m; i++) {                                                                          \
            const uint32_t of_row = row(q + i * c, x + i * c, factor, c);                                          \
            all = of_row > all ? of_row : all;                                                                     \
        }                                                                                                          \
        *most = rt_f32_of_bits(all);                                                                               \
    }
/* clang-format on */

DEFINE_QUANTIZE(float, f32, (float))
DEFINE_QUANTIZE(double, f64, (float))
DEFINE_QUANTIZE(uint16_t, bf16, rt_bf16_to_f32)
DEFINE_QUANTIZE(uint16_t, fp16, rt_f16_to_f32)
