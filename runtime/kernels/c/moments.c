#include "../../base/number/moments.h"
#include "../../generated.h"
#include "internal.h"
#include "kernels.h"

#include <string.h>

static void fill_table(float *table, int has_sign) {
    for (int code = 0; code < 256; code++) table[code] = rt_moment_value(code, has_sign);
}

void rt_dequantize_blocks(void *y, const uint8_t *codes, const float *scales, enum rt_dtype dtype, int64_t count,
                          int has_sign) {
    float table[256];
    fill_table(table, has_sign);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_WORK)
    for (int64_t block = 0; block < count / RT_MOMENT_BLOCK; block++)
        for (int64_t i = block * RT_MOMENT_BLOCK; i < (block + 1) * RT_MOMENT_BLOCK; i++)
            if (dtype == RT_F64)
                ((double *)y)[i] = (double)table[codes[i]] * (double)scales[block];
            else
                ((float *)y)[i] = table[codes[i]] * scales[block];
}

/* A block without magnitude is divided by the least scale. */
#define DEFINE_BLOCK(T, s)                                                                                             \
    CLONES static float quantize_block_##s(uint8_t *codes, const T *x, const float *table) {                           \
        T most = (T)1e-12;                                                                                             \
        for (int i = 0; i < RT_MOMENT_BLOCK; i++) {                                                                    \
            const T magnitude = x[i] < 0 ? -x[i] : x[i];                                                               \
            most = magnitude > most || magnitude != magnitude ? magnitude : most;                                      \
        }                                                                                                              \
        for (int i = 0; i < RT_MOMENT_BLOCK; i++) codes[i] = rt_moment_code_##s(x[i] / most, table);                   \
        return (float)most;                                                                                            \
    }
DEFINE_BLOCK(float, f32)
DEFINE_BLOCK(double, f64)

void rt_quantize_blocks(uint8_t *codes, float *scales, const uint8_t *old_codes, const float *old_scales, const void *x,
                        enum rt_dtype dtype, const uint8_t *keep, int64_t count, int has_sign) {
    const int64_t blocks = count / RT_MOMENT_BLOCK;
    float table[256];
    if (keep && !*keep) {
        memmove(codes, old_codes, (size_t)count);
        memmove(scales, old_scales, (size_t)blocks * sizeof *scales);
        return;
    }
    fill_table(table, has_sign);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_WORK)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t at = block * RT_MOMENT_BLOCK;
        scales[block] = dtype == RT_F64 ? quantize_block_f64(codes + at, (const double *)x + at, table)
                                        : quantize_block_f32(codes + at, (const float *)x + at, table);
    }
}
