/* Quantised tensors; the manual is kernels/c/kernels.h. One thread per element of the result: weights are dequantised
 * where they are read. */
#ifndef RT_CUDA_QUANTISED_CUH
#define RT_CUDA_QUANTISED_CUH

#include <limits.h>

#include <type_traits>

#include "mma.cuh"
#include "rows.cuh"
#include "window.cuh"

/* Element `at` of codes of `bits` bits: of packed codes bits [at * bits, + bits). */
static inline __device__ uint8_t rt_packed_code(const uint8_t *x, int64_t at, int bits) {
    const int64_t first = at * bits;
    const int shift = (int)(first % 8);
    unsigned code = (unsigned)x[first / 8] >> shift;
    if (shift + bits > 8) code |= (unsigned)x[first / 8 + 1] << (8 - shift);
    return (uint8_t)(code & ((1u << bits) - 1));
}

/* The number that a code of that type stands for. */
static inline __device__ float rt_code_value_of(uint8_t code, enum rt_dtype dtype) {
    switch (dtype) {
    case RT_I8: return (float)(int8_t)code;
    case RT_I4: return (float)rt_code_i4(code);
    case RT_I2: return (float)rt_code_i2(code);
    case RT_E4M3FN: return rt_code_e4m3fn_to_f32(code);
    case RT_E4M3FNUZ: return rt_code_e4m3fnuz_to_f32(code);
    case RT_E5M2: return rt_code_e5m2_to_f32(code);
    case RT_E5M2FNUZ: return rt_code_e5m2fnuz_to_f32(code);
    case RT_E8M0: return rt_code_e8m0_to_f32(code);
    case RT_E3M2: return rt_code_e3m2_to_f32(code);
    case RT_E2M3: return rt_code_e2m3_to_f32(code);
    case RT_E2M1: return rt_code_e2m1_to_f32(code);
    default: return (float)code;
    }
}

/* Element `at` of stored weights: of 16-bit floats, or of codes, packed if they have fewer than 8 bits. */
static inline __device__ float rt_stored_weight(const uint8_t *x, int64_t at, int bits, enum rt_dtype codes) {
    if (codes == RT_BF16) return rt_bf16_to_f32(((const uint16_t *)x)[at]);
    if (codes == RT_F16) return rt_f16_to_f32(((const uint16_t *)x)[at]);
    return rt_code_value_of(rt_packed_code(x, at, bits), codes);
}

RT_ON_CALL int rt_unpack_codes(struct rt *rt, void *y, const uint8_t *x, enum rt_dtype dtype, int64_t count) {
    const int bits = rt_dtype_bits(dtype);
    uint8_t *codes = (uint8_t *)y;
    return rt_points(rt, count, [=] __device__(int64_t i) { codes[i] = rt_packed_code(x, i, bits); });
}

/* Weights of kernels.h, rt_dequant_matmul: element (j, q) is that of column j of w(k,n). */
template <class T> struct rt_stored_weights {
    const uint8_t *codes, *zeros;
    const T *scales;
    int64_t k, n, groups, block; /* block: indices with one scale */
    enum rt_dtype type;
    int bits;
    T offset;
    int turned, across;
    __device__ T operator()(int64_t j, int64_t q) const {
        const int64_t group = (across ? j : q) / block, other = across ? q : j;
        const int64_t at = turned == across ? group * (across ? k : n) + other : other * groups + group;
        const T shift = zeros ? (T)rt_code_value_of(zeros[at], type) : offset;
        return ((T)rt_stored_weight(codes, turned ? j * k + q : q * n + j, bits, type) - shift) * scales[at];
    }
};

/* Each element of y by a thread, in order of k. */
template <class T>
static inline int rt_stored_points(struct rt *rt, T *y, const T *x, int64_t m, const rt_stored_weights<T> &w) {
    return rt_points(rt, m * w.n, [=] __device__(int64_t p) {
        const int64_t i = p / w.n, j = p % w.n;
        T sum = 0;
        for (int64_t q = 0; q < w.k; q++) sum += x[i * w.k + q] * w(j, q);
        y[p] = sum;
    });
}

/* Codes that a thread reads at a time: 8 of 4 bits, 4 of 8 or 16. */
template <int BITS> struct rt_word_of_codes {
    static constexpr int count = BITS == 4 ? 8 : 4;
    rt_vector<uint32_t, count * BITS / 32> word;
    __device__ float value(int i, int sign, bool half) const {
        const uint32_t code = word.at[i * BITS / 32] >> i * BITS % 32 & ((1u << BITS) - 1);
        if constexpr (BITS == 16)
            return half ? rt_f16_to_f32((uint16_t)code) : rt_bf16_to_f32((uint16_t)code);
        else
            return (float)((int)(code ^ (uint32_t)sign) - sign);
    }
};

/* Up to so many rows are few; columns of a warp. */
enum { RT_FEW_ROWS = 16, RT_FEW_COLUMNS = 4 };
static inline int64_t rt_few_columns(int64_t n) {
    return (n + RT_FEW_COLUMNS - 1) / RT_FEW_COLUMNS;
}

/* Few rows of x, for which memory is read as fast as it can be: a warp computes RT_FEW_COLUMNS columns of ROWS rows,
 * and its threads read weights and x side by side. Sums are in an order that depends on k alone. */
struct rt_few_rows {
    float *y;
    const float *x;
    rt_stored_weights<float> w; /* turned, and not across */
    int m, k, n, groups, block;
    int sign; /* the bit of the sign of codes */
};

template <int BITS, int ROWS> static __global__ void rt_few_rows_kernel(rt_few_rows call) {
    using codes = rt_word_of_codes<BITS>;
    constexpr int columns = RT_FEW_COLUMNS;
    const int across = (call.n + columns - 1) / columns, tiles = across * ((call.m + ROWS - 1) / ROWS);
    const int warps = (int)(blockDim.x / RT_WARP);
    for (int tile = (int)blockIdx.x * warps + (int)threadIdx.x / RT_WARP; tile < tiles;
         tile += (int)gridDim.x * warps) {
        const int row = tile / across * ROWS, column = tile % across * columns;
        float sum[ROWS][columns] = {};
#pragma unroll 2
        for (int q = rt_lane() * codes::count; q < call.k; q += RT_WARP * codes::count) {
            const int group = q / call.block;
            rt_vector<float, codes::count> x[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int line = row + r < call.m ? row + r : row;
                x[r] = rt_get_vector<codes::count>(call.x + (int64_t)line * call.k + q);
            }
#pragma unroll
            for (int c = 0; c < columns; c++) {
                const int j = column + c < call.n ? column + c : column;
                const int64_t at = (int64_t)j * call.groups + group;
                const codes w = {rt_get_vector<codes::count * BITS / 32>(
                    (const uint32_t *)(call.w.codes + ((int64_t)j * call.k + q) * BITS / 8))};
                const float shift =
                    call.w.zeros ? rt_code_value_of(call.w.zeros[at], call.w.type) : (float)call.w.offset;
                float part[ROWS] = {};
#pragma unroll
                for (int i = 0; i < codes::count; i++) {
                    const float value = w.value(i, call.sign, call.w.type == RT_F16) - shift;
#pragma unroll
                    for (int r = 0; r < ROWS; r++) part[r] += x[r].at[i] * value;
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) sum[r][c] += part[r] * call.w.scales[at];
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < columns; c++) {
                const float all = rt_row_fold<RT_WARP>(sum[r][c], rt_sum_of());
                if (rt_lane() == 0 && row + r < call.m && column + c < call.n)
                    call.y[(int64_t)(row + r) * call.n + column + c] = all;
            }
    }
}

template <int BITS> static inline int rt_multiply_few_rows(struct rt *rt, const rt_few_rows &call) {
    constexpr int warps = 8; /* of a block */
    const int64_t rows = call.m == 1 ? 1 : 4, tiles = rt_few_columns(call.n) * ((call.m + rows - 1) / rows);
    void (*kernel)(rt_few_rows) = call.m == 1 ? rt_few_rows_kernel<BITS, 1> : rt_few_rows_kernel<BITS, 4>;
    return rt_launch(rt, kernel, (tiles + warps - 1) / warps, warps * RT_WARP, call);
}

/* Many rows: a thread block computes a tile of y from tiles of x and of weights that it has dequantised. */
template <int ROWS, int COLUMNS, int DEPTH>
static __global__ void rt_stored_tiles_kernel(float *y, const float *x, int64_t m, rt_stored_weights<float> w) {
    constexpr int pitch = DEPTH + 1;
    __shared__ float left[ROWS * pitch], right[COLUMNS * pitch];
    const int64_t across = (w.n + COLUMNS - 1) / COLUMNS, tiles = across * ((m + ROWS - 1) / ROWS);
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS; /* of the warp's rows */
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t row = tile / across * ROWS, column = tile % across * COLUMNS;
        float sums[COLUMNS / RT_TILE_COLUMNS][4] = {};
        for (int64_t q = 0; q < w.k; q += DEPTH) {
            __syncthreads(); /* the last tiles have been read */
            for (int at = (int)threadIdx.x; at < ROWS * DEPTH; at += (int)blockDim.x) {
                const int i = at / DEPTH, p = at % DEPTH;
                left[i * pitch + p] = row + i < m && q + p < w.k ? x[(row + i) * w.k + q + p] : 0;
            }
            for (int at = (int)threadIdx.x; at < COLUMNS * DEPTH; at += (int)blockDim.x) {
                const int j = w.turned ? at / DEPTH : at % COLUMNS, p = w.turned ? at % DEPTH : at / COLUMNS;
                right[j * pitch + p] = column + j < w.n && q + p < w.k ? w(column + j, q + p) : 0;
            }
            __syncthreads();
            rt_tile_product(rt_plain<float>(), sums, rt_lines_of_tile<float>{left + first * pitch, pitch},
                            rt_lines_of_tile<float>{right, pitch}, DEPTH);
        }
        for (int n = 0; n < COLUMNS / RT_TILE_COLUMNS; n++)
            for (int i = 0; i < 4; i++) {
                const int64_t r = row + first + rt_tile_row(i), c = column + n * RT_TILE_COLUMNS + rt_tile_column(i);
                if (r < m && c < w.n) y[r * w.n + c] = sums[n][i];
            }
    }
}

static inline int rt_stored_tiles(struct rt *rt, float *y, const float *x, int64_t m,
                                  const rt_stored_weights<float> &w) {
    constexpr int rows = 64, columns = 64;
    return rt_launch(rt, rt_stored_tiles_kernel<rows, columns, 32>,
                     (m + rows - 1) / rows * ((w.n + columns - 1) / columns), rows / RT_TILE_ROWS * RT_WARP, y, x, m,
                     w);
}

template <class T>
RT_FAMILY int rt_dequant_matmul(struct rt *rt, T *y, const T *x, const void *weights, const T *scale, const void *zeros,
                                int64_t m, int64_t k, int64_t n, int64_t groups, enum rt_dtype type,
                                enum rt_dtype codes, double offset, int turned, int across) {
    const int bits = type == codes && rt_dtype_bits(codes) < 8 ? 8 : rt_dtype_bits(codes);
    const int64_t all = groups ? groups : 1, block = (across ? n : k) / all;
    const rt_stored_weights<T> w = {(const uint8_t *)weights,
                                    (const uint8_t *)zeros,
                                    scale,
                                    k,
                                    n,
                                    all,
                                    block,
                                    codes,
                                    bits,
                                    (T)offset,
                                    turned,
                                    across};
    if constexpr (std::is_same_v<T, float>) {
        const int at_once = bits == 4 ? 8 : 4;
        const bool fits = turned && !across && k % at_once == 0 && block % at_once == 0 && k < INT_MAX / 2 &&
                          rt_few_columns(n) * m < INT_MAX / 2 && (uintptr_t)x % RT_VECTOR_BYTES == 0 &&
                          (uintptr_t)weights % 8 == 0;
        const rt_few_rows few = {
            y, x, w, (int)m, (int)k, (int)n, (int)all, (int)block, codes == RT_I4 ? 8 : codes == RT_I8 ? 128 : 0};
        if (fits && m <= RT_FEW_ROWS && (codes == RT_I4 || codes == RT_U4) && bits == 4)
            return rt_multiply_few_rows<4>(rt, few);
        if (fits && m <= RT_FEW_ROWS && (codes == RT_I8 || codes == RT_U8)) return rt_multiply_few_rows<8>(rt, few);
        if (fits && m <= RT_FEW_ROWS && (codes == RT_BF16 || codes == RT_F16)) return rt_multiply_few_rows<16>(rt, few);
        return rt_stored_tiles(rt, y, x, m, w);
    } else
        return rt_stored_points(rt, y, x, m, w);
}

#define RT_CUDA_DEQUANT(T, s) RT_NAME(rt_dequant_matmul_##s, rt_dequant_matmul<T>)
RT_FLOATS(RT_CUDA_DEQUANT)

/* Integers of 8 bits. */
struct rt_bytes {
    const uint8_t *at;
    bool is_signed;
    __device__ int32_t operator[](int64_t i) const { return is_signed ? (int32_t)(int8_t)at[i] : (int32_t)at[i]; }
    __device__ int32_t or_zero(int64_t i) const { return at ? (*this)[i] : 0; }
};

RT_ON_CALL int rt_int_matmul(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero,
                             const void *w_zero, enum rt_dtype x_type, enum rt_dtype w_type, int per_column,
                             int64_t batch, int64_t m, int64_t k, int64_t n, int turned) {
    const rt_bytes a = {(const uint8_t *)x, x_type == RT_I8}, b = {(const uint8_t *)w, w_type == RT_I8};
    const rt_bytes a_zero = {(const uint8_t *)x_zero, a.is_signed}, b_zero = {(const uint8_t *)w_zero, b.is_signed};
    return rt_points(rt, batch * m * n, [=] __device__(int64_t p) {
        const int64_t j = p % n, row = p / n, matrix = row / m;
        const int32_t left = a_zero.or_zero(0), right = b_zero.or_zero(per_column ? j : 0);
        uint32_t sum = 0;
        for (int64_t q = 0; q < k; q++) {
            const int32_t code = b[matrix * k * n + (turned ? j * k + q : q * n + j)];
            sum += (uint32_t)((a[row * k + q] - left) * (code - right));
        }
        y[p] = (int32_t)sum;
    });
}

RT_ON_CALL int rt_int_conv(struct rt *rt, int32_t *y, const void *x, const void *w, const void *x_zero,
                           const void *w_zero, enum rt_dtype x_type, enum rt_dtype w_type, int per_channel, int ndim,
                           const rt_dims &x_dims, const rt_dims &w_dims, const rt_dims &y_dims, int64_t group,
                           const rt_dims &stride, const rt_dims &dilation, const rt_dims &begin) {
    const rt_window window = rt_window_of(ndim, x_dims.at, w_dims.at + 2, y_dims.at, stride.at, dilation.at, begin.at);
    const rt_bytes a = {(const uint8_t *)x, x_type == RT_I8}, b = {(const uint8_t *)w, w_type == RT_I8};
    const rt_bytes a_zero = {(const uint8_t *)x_zero, a.is_signed}, b_zero = {(const uint8_t *)w_zero, b.is_signed};
    const int64_t c = w_dims[1], channels = x_dims[1], m = y_dims[1];
    return rt_points(rt, rt_count(y_dims, 0, ndim), [=] __device__(int64_t p) {
        int64_t sample = p;
        const rt_at3 o = rt_unravel3(rt_take(&sample, window.y_plane), window.y);
        const int64_t channel = rt_take(&sample, m), from = sample * channels + channel / (m / group) * c;
        const int32_t left = a_zero.or_zero(0), right = b_zero.or_zero(per_channel ? channel : 0);
        uint32_t sum = 0;
        for (int64_t i = 0; i < c; i++)
            for (int64_t tap = 0; tap < window.taps; tap++) {
                const int64_t place = rt_window_place(window, o, tap);
                if (place < 0) continue;
                const int32_t code = b[(channel * c + i) * window.taps + tap];
                sum += (uint32_t)((a[(from + i) * window.x_plane + place] - left) * (code - right));
            }
        y[p] = (int32_t)sum;
    });
}

#endif
