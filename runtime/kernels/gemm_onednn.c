#include "gemm.h"

#ifdef RT_HAVE_ONEDNN

#include <dnnl.h>
#include <omp.h>
#include <string.h>

/* Note [Products and cuts] in gemm.h says why a product is done in these pieces. */
#define GEMM_K      RT_GEMM_DEPTH /* k block: that of oneDNN; partial sums are added in y */
#define GEMM_N      64            /* columns of a transposed b transposed at a time; the last block may have one more */
#define GEMM_NARROW 32            /* right operands of at most this many columns are copied as a whole */
#define GEMM_ROWS   256           /* rows of a narrow result at a time */
#define GEMM_VECTOR 1024          /* columns of a single row at a time */
/* rows of b at distances that are multiples of this many elements map to the same cache sets */
#define GEMM_APART  1024
#define GEMM_COPIED 256 /* columns of such a b that are copied at a time .. */
#define GEMM_WORTH  16  /* .. if at least this many rows of y use the copy; no gain if a is transposed */

int rt_gemm_library_present(void) {
    return 1;
}

/* The left operand, stored (rows,k), or (k,rows) if trans. */
struct left {
    const float *data;
    int64_t row;
    int trans;
};

static struct left left_at(struct left a, int64_t i, int64_t k) {
    a.data += a.trans ? k * a.row + i : i * a.row + k;
    return a;
}

static int multiply(float *y, int64_t y_row, struct left a, const float *b, int64_t b_row, int64_t m, int64_t k,
                    int64_t n, float beta) {
    return dnnl_sgemm(a.trans ? 'T' : 'N', 'N', m, n, k, 1.0f, a.data, a.row, b, b_row, beta, y, y_row);
}

/* y(1,n) += a(1,k) b(k,n). Separate because oneDNN would continue the sum from y here, while for more rows it adds a
 * sum that starts at 0. */
static int add_row(float *y, struct left a, const float *b, int64_t b_row, int64_t k, int64_t n) {
    float sum[GEMM_VECTOR];
    for (int64_t j0 = 0; j0 < n; j0 += GEMM_VECTOR) {
        int64_t width = n - j0 < GEMM_VECTOR ? n - j0 : GEMM_VECTOR;
        if (multiply(sum, width, a, b + j0, b_row, 1, k, width, 0.0f)) return -1;
        for (int64_t j = 0; j < width; j++) y[j0 + j] += sum[j];
    }
    return 0;
}

/* y(m,n) = a(m,k) b(k,n), added to y unless k0 is 0: one block of k. */
static int product(float *y, int64_t y_row, struct left a, const float *b, int64_t b_row, int64_t m, int64_t k,
                   int64_t n, int64_t k0) {
    if (m == 1 && k0 > 0) return add_row(y, a, b, b_row, k, n);
    return multiply(y, y_row, a, b, b_row, m, k, n, k0 == 0 ? 0.0f : 1.0f);
}

static int64_t depth_at(int64_t k0, int64_t k) {
    return k - k0 < GEMM_K ? k - k0 : GEMM_K;
}

/* The same with a copy of b whose rows do not map to the same cache sets. */
static int copied(float *y, int64_t y_row, struct left a, const float *b, int64_t b_row, int64_t m, int64_t k,
                  int64_t n) {
    float right[GEMM_K * (GEMM_COPIED + 17)];
    for (int64_t j = 0, width; j < n; j += width) {
        width = n - j <= GEMM_COPIED + 1 ? n - j : GEMM_COPIED; /* never a single column */
        for (int64_t k0 = 0; k0 < k; k0 += GEMM_K) {
            int64_t depth = depth_at(k0, k), row = width + 16;
            for (int64_t p = 0; p < depth; p++)
                memcpy(right + p * row, b + (k0 + p) * b_row + j, (size_t)width * sizeof *b);
            if (product(y + j, y_row, left_at(a, 0, k0), right, row, m, depth, width, k0)) return -1;
        }
    }
    return 0;
}

static int plain(float *y, int64_t y_row, struct left a, const float *b, int64_t b_row, int64_t m, int64_t k,
                 int64_t n) {
    if (b_row % GEMM_APART == 0 && m >= GEMM_WORTH && !a.trans) return copied(y, y_row, a, b, b_row, m, k, n);
    for (int64_t k0 = 0; k0 < k; k0 += GEMM_K)
        if (product(y, y_row, left_at(a, 0, k0), b + k0 * b_row, b_row, m, depth_at(k0, k), n, k0)) return -1;
    return 0;
}

/* to(depth,width) = element (p, j) at b[p * b_k + j * b_n]; a single column gets a zero column beside it. */
static int64_t copy_right(float *to, const float *b, int64_t b_k, int64_t b_n, int64_t depth, int64_t width) {
    int64_t row = width == 1 ? 2 : width;
    if (width == 1) memset(to, 0, (size_t)(depth * row) * sizeof *to);
    for (int64_t p0 = 0; p0 < depth; p0 += 16) {
        int64_t p1 = p0 + 16 < depth ? p0 + 16 : depth;
        for (int64_t j = 0; j < width; j++)
            for (int64_t p = p0; p < p1; p++) to[p * row + j] = b[p * b_k + j * b_n];
    }
    return row;
}

/* Element (i, j) of the product, at y[i * y_m + j * y_n], for n <= GEMM_NARROW and b of any strides. */
static int narrow(float *y, int64_t y_m, int64_t y_n, struct left a, const float *b, int64_t b_k, int64_t b_n,
                  int64_t m, int64_t k, int64_t n) {
    float right[GEMM_K * GEMM_NARROW], result[GEMM_ROWS * GEMM_NARROW];
    for (int64_t i0 = 0; i0 < m; i0 += GEMM_ROWS) {
        int64_t rows = m - i0 < GEMM_ROWS ? m - i0 : GEMM_ROWS, width = 0;
        for (int64_t k0 = 0; k0 < k; k0 += GEMM_K) {
            int64_t depth = depth_at(k0, k);
            width = copy_right(right, b + k0 * b_k, b_k, b_n, depth, n);
            if (product(result, width, left_at(a, i0, k0), right, width, rows, depth, width, k0)) return -1;
        }
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < n; j++) y[(i0 + i) * y_m + j * y_n] = result[i * width + j];
    }
    return 0;
}

/* b(n,k), transposed block by block. n >= 2. With panels, where the processor has instructions for these, the same sums
 * are made in much larger blocks; on other processors than those of Note [Products and cuts] they may differ in the
 * last bit. */
static int transposed(float *y, int64_t y_row, struct left a, const float *b, int64_t b_row, int64_t m, int64_t k,
                      int64_t n) {
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(0);
    const struct rt_turned_product turned = {y, a.data, b, y_row, a.row, b_row, m, k, n};
    if (!a.trans && set->multiply_turned) {
        set->multiply_turned(&turned);
        return 0;
    }
    float right[GEMM_K * (GEMM_N + 1)];
    for (int64_t j = 0, width; j < n; j += width) {
        width = n - j <= GEMM_N + 1 ? n - j : GEMM_N;
        for (int64_t k0 = 0; k0 < k; k0 += GEMM_K) {
            int64_t depth = depth_at(k0, k);
            copy_right(right, b + j * b_row + k0, 1, b_row, depth, width);
            if (product(y + j, y_row, left_at(a, 0, k0), right, width, m, depth, width, k0)) return -1;
        }
    }
    return 0;
}

/* If b is transposed and y has few rows, computes the transpose of y: b is then the left operand, not transposed. */
static int any(float *y, int64_t y_row, struct left a, const float *b, int64_t b_row, int trans_b, int64_t m, int64_t k,
               int64_t n) {
    if (trans_b && m <= GEMM_NARROW) {
        struct left left = {b, b_row, 0};
        return narrow(y, 1, y_row, left, a.data, a.trans ? a.row : 1, a.trans ? 1 : a.row, n, k, m);
    }
    if (n == 1) return narrow(y, y_row, 1, a, b, trans_b ? 1 : b_row, 1, m, k, 1);
    if (trans_b) return transposed(y, y_row, a, b, b_row, m, k, n);
    return plain(y, y_row, a, b, b_row, m, k, n);
}

int rt_gemm_library_f32(RT_GEMM_OPERANDS(float)) {
    struct left left = {a, a_row, trans_a};
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* else oneDNN would use all threads, and split k among them */
    int status = any(y, y_row, left, b, b_row, trans_b, m, k, n);
    omp_set_num_threads(threads);
    return status;
}

int rt_gemm_library_add_f32(float *y, int64_t y_row, const float *a, int64_t a_row, const float *b, int64_t b_row,
                            int64_t m, int64_t k, int64_t n, int first) {
    struct left left = {a, a_row, 0};
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    int status = product(y, y_row, left, b, b_row, m, k, n, !first);
    omp_set_num_threads(threads);
    return status;
}

#else

int rt_gemm_library_present(void) {
    return 0;
}

int rt_gemm_library_add_f32(float *y, int64_t y_row, const float *a, int64_t a_row, const float *b, int64_t b_row,
                            int64_t m, int64_t k, int64_t n, int first) {
    (void)y, (void)y_row, (void)a, (void)a_row, (void)b, (void)b_row, (void)m, (void)k, (void)n, (void)first;
    return -1;
}

int rt_gemm_library_f32(RT_GEMM_OPERANDS(float)) {
    (void)y, (void)y_row, (void)a, (void)a_row, (void)trans_a, (void)b, (void)b_row, (void)trans_b, (void)m, (void)k;
    (void)n;
    return -1;
}

#endif
