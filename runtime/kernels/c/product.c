#include "kernels.h"

#include "../../base/shape/panel.h"
#include "../../generated.h"
#include "../gemm.h"
#include "../gemm_pairs.h"
#include "internal.h"
#include "shares.h"
#include "types.h"

/* Note [Sharing out products]
 * Each thread computes complete blocks of y. If there are fewer products than threads, the longer side of y is divided
 * as well, at multiples of PIECE to avoid thin blocks. The division changes no bit: Note [Products and cuts] in
 * gemm.h.
 *
 * A product with panels is divided among threads so that the largest block has the least to multiply and to read: rows
 * of the left operand are copied once for CHUNK columns, panels are read once. Each thread's block is then divided into
 * pieces (Note [Teams] in team.h) along the same side, as long as they are so large that copies do not matter. */
#define PIECE          32
#define PARALLEL_FLOPS 1048576 /* multiply-adds below which threads do not pay */

struct shares {
    int64_t m, n;          /* of a block of y */
    int64_t rows, columns; /* blocks along m and n */
};

static int pays(int64_t batch, int64_t m, int64_t k, int64_t n) {
    return (double)batch * (double)m * (double)k * (double)n >= PARALLEL_FLOPS;
}

static struct shares share_out(int64_t batch, int64_t m, int64_t k, int64_t n) {
    struct shares whole = {m, n, 1, 1};
    int64_t threads = omp_get_max_threads();
    if (batch >= threads || !pays(batch, m, k, n)) return whole;
    int64_t ways = (threads + batch - 1) / batch, side = m > n ? m : n;
    int64_t block = max_i64(((side + ways - 1) / ways + PIECE - 1) / PIECE * PIECE, PIECE);
    if (m > n) return (struct shares){block, n, (m + block - 1) / block, 1};
    return (struct shares){m, block, 1, (n + block - 1) / block};
}

#define T     TYPE(SUFFIX)
#define PART  "product.inc"
#define TYPES (NUMBERS | HALVES)
#include "each.inc"

int rt_scaled_matmul(struct rt *rt, void *y, enum rt_dtype dtype, const uint8_t *a, const uint8_t *b,
                     const float *unscale_a, const float *unscale_b, int64_t m, int64_t k, int64_t n,
                     enum rt_fp8 format_a, enum rt_fp8 format_b, int fast) {
    if (m == 0 || n == 0) return RT_OK;
    const struct shares shares = share_out(1, m, k, n);
    const int64_t blocks = shares.rows * shares.columns;
    const int library = rt_gemm_library_present() && !rt->reference_kernels && k > 0;
    const float factor = *unscale_a * *unscale_b;
    (void)fast;
    int refused = 0;
#pragma omp parallel for num_threads(rt_pieces(blocks)) reduction(max : refused) if (blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t column = block % shares.columns * shares.n, row = block / shares.columns * shares.m;
        unsigned char *to = (unsigned char *)y + (row * n + column) * (int64_t)rt_dtype_bytes(dtype);
        const struct rt_fp8_product product = {to,     a + row * k, b + column * k, k,       n,
                                               factor, dtype,       format_a,       format_b};
        const int64_t height = min_i64(shares.m, m - row), width = min_i64(shares.n, n - column);
        refused = rt_gemm_fp8(&product, height, width, library) ? 1 : refused;
    }
    if (!refused) return RT_OK;
    return rt_fail(rt, RT_ERROR_SYSTEM, "no product (%lld,%lld) x (%lld,%lld) of 8-bit floats to %s", (long long)m,
                   (long long)k, (long long)k, (long long)n, rt_dtypes[dtype].name);
}

#define READ          8      /* multiply-adds in the time of reading an element */
#define CHUNK         256    /* columns */
#define PIECE_ROWS    56     /* of a piece, at least */
#define PIECE_COLUMNS 192    /* likewise */
#define PIECE_FLOPS   262144 /* likewise */
#define PIECES        8      /* of a thread, at most */

/* Divided by k. */
static int64_t cost_of_block(int64_t m, int64_t n) {
    return m * n + READ * (m * parts_of(n, CHUNK) + n);
}

struct rt_panel_shares rt_share_panels(int64_t m, int64_t k, int64_t n, int64_t threads) {
    struct rt_panel_shares best = {m, n, 1, 1};
    int64_t least = INT64_MAX, high = m, wide = n;
    for (int64_t rows = 1; rows <= min_i64(threads, m); rows++) {
        const int64_t columns = min_i64(threads / rows, rt_panels(n)), height = parts_of(m, rows),
                      width = min_i64(parts_of(rt_panels(n), columns) * RT_PANEL, n);
        if (cost_of_block(height, width) >= least) continue;
        least = cost_of_block(height, width), high = height, wide = width;
        best.rows = rows, best.columns = columns;
    }
    if (threads == 1) return best;
    const int64_t most = max_i64(1, min_i64(PIECES, high * wide * k / PIECE_FLOPS));
    if (best.columns == 1)
        best.rows *= max_i64(1, min_i64(most, high / PIECE_ROWS));
    else
        best.columns *= max_i64(1, min_i64(most, wide / PIECE_COLUMNS));
    return best;
}

struct rt_block rt_share_at(const struct rt_panel_shares *shares, int64_t block) {
    const int64_t row = block / shares->columns, column = block % shares->columns, panels = rt_panels(shares->n);
    const int64_t first = shares->m * row / shares->rows, from = panels * column / shares->columns * RT_PANEL;
    const int64_t end = min_i64(panels * (column + 1) / shares->columns * RT_PANEL, shares->n);
    return (struct rt_block){first, shares->m * (row + 1) / shares->rows - first, from, end - from};
}

static struct rt_panel_shares share_packed(int64_t m, int64_t k, int64_t n) {
    return rt_share_panels(m, k, n, pays(1, m, k, n) ? omp_get_max_threads() : 1);
}

int rt_matmul_packed_f32(struct rt *rt, float *y, const float *a, const float *b, int64_t m, int64_t k, int64_t n,
                         const struct rt_epilogue *epilogue) {
    if (m == 0 || n == 0) return RT_OK;
    const struct rt_packed_product product = {y, a, b, m, k, n, epilogue};
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const struct rt_panel_shares shares = share_packed(m, k, n);
    const int64_t blocks = shares.rows * shares.columns;
#pragma omp parallel for num_threads(rt_pieces(blocks)) if (blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const struct rt_block at = rt_share_at(&shares, block);
        if (at.rows > 0 && at.columns > 0) set->multiply(&product, at);
    }
    return RT_OK;
}

static int multiply_halves(struct rt *rt, const struct rt_packed_half *product) {
    const struct rt_gemm_packed *set = rt_gemm_packed_choose(rt->reference_kernels);
    const int pairs = product->dtype == RT_BF16 && (product->a || product->rounds) && !rt->reference_kernels &&
                      rt_processor_has_pairs();
    const int64_t m = product->m, n = product->n;
    if (m == 0 || n == 0) return RT_OK;
    const struct rt_panel_shares shares = share_packed(m, product->k, n);
    const int64_t blocks = shares.rows * shares.columns;
#pragma omp parallel for num_threads(rt_pieces(blocks)) if (blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const struct rt_block at = rt_share_at(&shares, block);
        if (at.rows > 0 && at.columns > 0) rt_gemm_half(product, at, set, pairs);
    }
    return RT_OK;
}

#define DEFINE_PACKED_HALF(s, of_dtype)                                                                                \
    int rt_matmul_packed_##s(struct rt *rt, uint16_t *y, const uint16_t *a, const uint16_t *b, int64_t m, int64_t k,   \
                             int64_t n, const struct rt_epilogue_half *epilogue) {                                     \
        return multiply_halves(                                                                                        \
            rt, &(struct rt_packed_half){                                                                              \
                    .y = y, .a = a, .b = b, .m = m, .k = k, .n = n, .dtype = of_dtype, .epilogue = epilogue});         \
    }
#define DEFINE_PACKED_BY_HALF(s, of_dtype, may_round)                                                                  \
    int rt_matmul_packed_f32_##s(struct rt *rt, float *y, const float *a, const uint16_t *b, int64_t m, int64_t k,     \
                                 int64_t n, const struct rt_epilogue *epilogue) {                                      \
        return multiply_halves(rt, &(struct rt_packed_half){.wide_y = y,                                               \
                                                            .wide_a = a,                                               \
                                                            .b = b,                                                    \
                                                            .m = m,                                                    \
                                                            .k = k,                                                    \
                                                            .n = n,                                                    \
                                                            .dtype = of_dtype,                                         \
                                                            .wide_epilogue = epilogue,                                 \
                                                            .rounds = may_round});                                     \
    }

DEFINE_PACKED_HALF(bf16, RT_BF16)
DEFINE_PACKED_HALF(fp16, RT_F16)
DEFINE_PACKED_BY_HALF(by_bf16, RT_BF16, 0)
DEFINE_PACKED_BY_HALF(by_fp16, RT_F16, 0)
DEFINE_PACKED_BY_HALF(as_bf16, RT_BF16, 1)
