#include "random_fill.h"

uint64_t rt_random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void rt_random_fill(void *data, enum rt_dtype dtype, int64_t count, uint64_t seed, int64_t below) {
    const size_t bytes = rt_dtype_bytes(dtype);
    const double values = below > 0 ? (double)below : 2;
    unsigned char *at = data;
    for (int64_t i = 0; i < count; i++, at += bytes) {
        const double uniform = (double)(rt_random_next(&seed) >> 11) * 0x1p-53;
        const double value = rt_dtype_is_float(dtype) ? 2 * uniform - 1 : (double)(int64_t)(uniform * values);
        rt_convert(at, dtype, &value, RT_F64, 1);
    }
}
