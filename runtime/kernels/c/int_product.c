#include "int_product.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "internal.h"

/* Multiply-adds below which threads do not pay; rows, at least, of a thread's share. */
#define PARALLEL_PRODUCTS (1 << 20)
#define SHARE_ROWS        32

static int pays(int64_t batch, int64_t m, int64_t k, int64_t n) {
    return (double)batch * (double)m * (double)k * (double)n >= PARALLEL_PRODUCTS;
}

struct rt_shares rt_product_shares(int64_t m, int64_t k, int64_t columns) {
    const int64_t threads = pays(1, m, k, columns) ? omp_get_max_threads() : 1;
    const int by_rows = m >= columns && m >= SHARE_ROWS * threads;
    return (struct rt_shares){by_rows ? threads : min_i64(threads, rt_panels(columns)), by_rows};
}

struct rt_block rt_product_share(const struct rt_shares *shares, int64_t i, int64_t m, int64_t column,
                                 int64_t columns) {
    const int64_t panels = rt_panels(columns), row = m * i / shares->n, first = panels * i / shares->n * RT_PANEL;
    if (shares->by_rows) return (struct rt_block){row, m * (i + 1) / shares->n - row, column, columns};
    return (struct rt_block){0, m, column + first, min_i64(panels * (i + 1) / shares->n * RT_PANEL, columns) - first};
}

void rt_int_multiply(struct rt *rt, const struct rt_quad_product *product, int64_t column, int64_t columns) {
    const struct rt_gemm_quads *set = rt_gemm_quads_choose(rt->reference_kernels);
    const struct rt_shares shares = rt_product_shares(product->m, product->k, columns);
#pragma omp parallel for num_threads(rt_pieces(shares.n)) if (shares.n > 1)
    for (int64_t i = 0; i < shares.n; i++) {
        const struct rt_block block = rt_product_share(&shares, i, product->m, column, columns);
        if (block.rows > 0 && block.columns > 0) set->multiply(product, block);
    }
}

int rt_int_matmul_finished(struct rt *rt, void *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                           const int32_t *bias, enum rt_dtype x_type, enum rt_dtype w_type, int per_column,
                           int64_t batch, int64_t m, int64_t k, int64_t n, int turned, int packed,
                           const struct rt_epilogue_int *epilogue) {
    const struct rt_gemm_quads *set = rt_gemm_quads_choose(rt->reference_kernels);
    const int many = batch >= omp_get_max_threads() && batch > 1;
    if (m == 0 || n == 0) return RT_OK;
#pragma omp parallel for num_threads(rt_pieces(batch)) if (many && pays(batch, m, k, n))
    for (int64_t b = 0; b < batch; b++) {
        const struct rt_quad_product product = {.y = y,
                                                .m = m,
                                                .k = k,
                                                .n = n,
                                                .source = (const uint8_t *)x + b * m * k,
                                                .x_row = k,
                                                .x_signed = x_type == RT_I8,
                                                .x_zero = rt_int_zero(x_zero, x_type),
                                                .w = (const uint8_t *)w + (packed ? 0 : b * k * n),
                                                .packed = packed,
                                                .turned = turned,
                                                .w_signed = w_type == RT_I8,
                                                .w_row = turned ? k : n,
                                                .w_zero = w_zero,
                                                .per_column = per_column,
                                                .bias = bias,
                                                .first = b * m,
                                                .epilogue = epilogue};
        if (many)
            set->multiply(&product, (struct rt_block){0, m, 0, n});
        else
            rt_int_multiply(rt, &product, 0, n);
    }
    return RT_OK;
}

int rt_int_matmul(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero, const void *w_zero,
                  enum rt_dtype x_type, enum rt_dtype w_type, int per_column, int64_t batch, int64_t m, int64_t k,
                  int64_t n, int turned) {
    return rt_int_matmul_finished(rt, y, x, w, x_zero, w_zero, NULL, x_type, w_type, per_column, batch, m, k, n, turned,
                                  0, NULL);
}
