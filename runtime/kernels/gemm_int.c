#include "gemm.h"

#include "../base/clones.h"
#include "c/internal.h"

#include <string.h>

#ifdef RT_HAVE_ONEDNN
#include <dnnl.h>
#include <omp.h>
#endif

/* Blocks of DEPTH indices of k and WIDTH columns. */
#define DEPTH 512
#define WIDTH 64

/* to[i] = from[i * step] - zero. */
CLONES static void widen(int16_t *to, const void *from, int64_t step, int is_signed, int32_t zero, int64_t n) {
    const int8_t *signs = from;
    const uint8_t *bytes = from;
    if (is_signed)
        for (int64_t i = 0; i < n; i++) to[i] = (int16_t)(signs[i * step] - zero);
    else
        for (int64_t i = 0; i < n; i++) to[i] = (int16_t)(bytes[i * step] - zero);
}

CLONES static int32_t dot(const int16_t *a, const int16_t *b, int64_t n) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (uint32_t)((int32_t)a[i] * (int32_t)b[i]);
    return (int32_t)sum;
}

/* Both operands are widened to 16 bits a block at a time: processors have dot products of these. */
static void plain(const struct rt_int_product *t) {
    int16_t left[DEPTH], right[WIDTH][DEPTH];
    const unsigned char *x = t->x, *w = t->w;
    for (int64_t i = 0; i < t->m; i++) memset(t->y + i * t->y_row, 0, (size_t)t->n * sizeof *t->y);
    for (int64_t j = 0; j < t->n; j += WIDTH)
        for (int64_t p = 0; p < t->k; p += DEPTH) {
            const int64_t depth = min_i64(t->k - p, DEPTH), width = min_i64(t->n - j, WIDTH);
            for (int64_t c = 0; c < width; c++)
                widen(right[c], t->turned ? w + (j + c) * t->w_row + p : w + p * t->w_row + j + c,
                      t->turned ? 1 : t->w_row, t->w_signed, t->w_zero, depth);
            for (int64_t i = 0; i < t->m; i++) {
                uint32_t *y = (uint32_t *)t->y + i * t->y_row + j;
                widen(left, x + i * t->x_row + p, 1, t->x_signed, t->x_zero, depth);
                for (int64_t c = 0; c < width; c++) y[c] += (uint32_t)dot(left, right[c], depth);
            }
        }
}

#if defined(RT_HAVE_ONEDNN) && defined(__x86_64__)
/* Without VNNI instructions, which ONEDNN_MAX_CPU_ISA can forbid it, oneDNN adds pairs of products in 16 bits, which
 * may overflow. */
static int is_exact(void) {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_vnni) == dnnl_cpu_isa_avx512_core_vnni;
}

static int multiply(const struct rt_int_product *t, const int8_t *w, int64_t w_row, int32_t w_zero, int64_t p,
                    int64_t depth, int64_t j, int64_t width) {
    const int32_t none = 0;
    const uint8_t *x = (const uint8_t *)t->x + p;
    const char turned = t->turned ? 'T' : 'N';
    const float add = p ? 1 : 0;
    int32_t *y = t->y + j;
    if (t->x_signed)
        return dnnl_gemm_s8s8s32('N', turned, 'F', t->m, width, depth, 1, (const int8_t *)x, t->x_row,
                                 (int8_t)t->x_zero, w, w_row, (int8_t)w_zero, add, y, t->y_row, &none);
    return dnnl_gemm_u8s8s32('N', turned, 'F', t->m, width, depth, 1, x, t->x_row, (uint8_t)t->x_zero, w, w_row,
                             (int8_t)w_zero, add, y, t->y_row, &none);
}

/* oneDNN takes signed w only: unsigned is copied less 128 in blocks. */
static int by_library(const struct rt_int_product *t) {
    uint8_t block[2 * DEPTH * WIDTH];
    const uint8_t *w = t->w;
    if (t->w_signed) return multiply(t, t->w, t->w_row, t->w_zero, 0, t->k, 0, t->n);
    for (int64_t j = 0; j < t->n; j += WIDTH)
        for (int64_t p = 0; p < t->k; p += 2 * DEPTH) {
            const int64_t depth = min_i64(t->k - p, 2 * DEPTH), width = min_i64(t->n - j, WIDTH);
            const int64_t rows = t->turned ? width : depth, row = t->turned ? depth : width;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < row; c++)
                    block[r * row + c] = w[t->turned ? (j + r) * t->w_row + p + c : (p + r) * t->w_row + j + c] ^ 0x80;
            if (multiply(t, (const int8_t *)block, row, t->w_zero - 128, p, depth, j, width)) return -1;
        }
    return 0;
}

void rt_gemm_int(const struct rt_int_product *product, int library) {
    int status = -1;
    if (library && is_exact() && product->k > 0) {
        const int threads = omp_get_max_threads();
        omp_set_num_threads(1);
        status = by_library(product);
        omp_set_num_threads(threads);
    }
    if (status) plain(product);
}
#else
void rt_gemm_int(const struct rt_int_product *product, int library) {
    (void)library;
    plain(product);
}
#endif
