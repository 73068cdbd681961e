#include "state/init.h"

#include "base/number/philox.h"

#include <math.h>

enum { PIECE = 256 };

/* A block of Philox gives two elements: two uniform numbers in (0, 1), or two normal ones by the Box-Muller transform
 * (1958). */
static void draw(const struct rt_init *init, int64_t block, double pair[2]) {
    const struct rt_philox random = rt_philox_at((uint64_t)block, 0, init->key);
    const double u = rt_philox_open(random.word[0], random.word[1]), v = rt_philox_open(random.word[2], random.word[3]);
    if (init->kind == RT_INIT_UNIFORM) {
        pair[0] = init->a + (init->b - init->a) * u;
        pair[1] = init->a + (init->b - init->a) * v;
        return;
    }
    const double radius = init->b * sqrt(-2 * log(u)), angle = 2 * M_PI * v;
    pair[0] = init->a + radius * cos(angle);
    pair[1] = init->a + radius * sin(angle);
}

static void fill_piece(const struct rt_init *init, int64_t first, int64_t count, double *values) {
    double pair[2] = {init->a, init->a};
    for (int64_t i = 0; i < count; i++) {
        const int64_t index = first + i;
        if (init->kind != RT_INIT_CONSTANT && (i == 0 || index % 2 == 0)) draw(init, index / 2, pair);
        values[i] = pair[index % 2];
    }
}

void rt_init_fill(const struct rt_init *init, int64_t first, int64_t count, void *dst, enum rt_dtype dtype) {
    double values[PIECE];
    for (int64_t done = 0, n; done < count; done += n) {
        n = count - done < PIECE ? count - done : PIECE;
        fill_piece(init, first + done, n, values);
        rt_convert((unsigned char *)dst + (size_t)done * rt_dtype_bytes(dtype), dtype, values, RT_F64, (size_t)n);
    }
}
