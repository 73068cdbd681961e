/* Quantised tensors; the manual is kernels/c/kernels.h. One thread per element of the result: weights are dequantised
 * where they are read. */
#ifndef RT_CUDA_QUANTISED_CUH
#define RT_CUDA_QUANTISED_CUH

#include <limits.h>

#include <type_traits>

#include "index.cuh"
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

/* Weights of kernels.h, rt_dequant_matmul: element (j, q) is that of column j of w(k,n), the first of a stack. */
template <class S> struct rt_stored_weights {
    const uint8_t *codes, *zeros;
    const S *scales;
    int64_t k, n, groups, block; /* block: indices with one scale */
    enum rt_dtype type;
    int bits;
    S offset;
    int turned, across;
    __device__ S operator()(int64_t j, int64_t q) const {
        const int64_t group = (across ? j : q) / block, other = across ? q : j;
        const int64_t at = turned == across ? group * (across ? k : n) + other : other * groups + group;
        const S shift = zeros ? (S)rt_code_value_of(zeros[at], type) : offset;
        const S code = (S)rt_stored_weight(codes, turned ? j * k + q : q * n + j, bits, type) - shift;
        return scales ? code * scales[at] : code;
    }
    /* Matrix `i` of the stack. */
    __device__ rt_stored_weights matrix(int64_t i) const {
        rt_stored_weights of = *this;
        const int64_t all = i * groups * (across ? k : n);
        of.codes += i * k * n * bits / 8;
        if (zeros) of.zeros += all;
        if (scales) of.scales += all;
        return of;
    }
};

template <class S>
static inline rt_stored_weights<S> rt_stored_of(const void *weights, const S *scales, const void *zeros, int64_t k,
                                                int64_t n, int64_t groups, enum rt_dtype type, enum rt_dtype codes,
                                                double offset, int turned, int across) {
    const int bits = type == codes && rt_dtype_bits(codes) < 8 ? 8 : rt_dtype_bits(codes);
    const int64_t all = groups ? groups : 1, block = (across ? n : k) / all;
    return {(const uint8_t *)weights,
            (const uint8_t *)zeros,
            scales,
            k,
            n,
            all,
            block,
            codes,
            bits,
            (S)offset,
            turned,
            across};
}

/* `count` products of m rows of x, one after the other: product i with matrix of(i) of a stack of `matrices`. Its
 * result is zeros if of(i) is `matrices`. */
template <class E, class Of> struct rt_stored_products {
    typename E::type *y;
    const typename E::type *x;
    rt_stored_weights<typename E::sum> w;
    int64_t count, m, matrices;
    Of of;
};
struct rt_each_matrix {
    __device__ int64_t operator()(int64_t i) const { return i; }
};

/* Each element of y by a thread, in order of k. */
template <class E, class Of> static inline int rt_stored_points(struct rt *rt, const rt_stored_products<E, Of> &call) {
    return rt_points(rt, call.count * call.m * call.w.n, [=] __device__(int64_t p) {
        const int64_t row = p / call.w.n, j = p % call.w.n, i = call.of(row / call.m);
        const auto w = call.w.matrix(i);
        typename E::sum sum = 0;
        for (int64_t q = 0; i < call.matrices && q < w.k; q++) sum += E::load(call.x[row * w.k + q]) * w(j, q);
        call.y[p] = E::store(sum);
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
 * and its threads read weights and x side by side. Weights are turned, and not across. Sums are in an order that
 * depends on k alone. */
template <int BITS, int ROWS, class E, class Of>
static __global__ void rt_few_rows_kernel(rt_stored_products<E, Of> call) {
    using codes = rt_word_of_codes<BITS>;
    using T = typename E::type;
    constexpr int columns = RT_FEW_COLUMNS;
    const int m = (int)call.m, k = (int)call.w.k, n = (int)call.w.n, block = (int)call.w.block;
    const int sign = call.w.type == RT_I4 ? 8 : call.w.type == RT_I8 ? 128 : 0; /* the bit of the sign of codes */
    const int across = (n + columns - 1) / columns, down = (m + ROWS - 1) / ROWS;
    const int warps = (int)(blockDim.x / RT_WARP);
    for (int tile = (int)blockIdx.x * warps + (int)threadIdx.x / RT_WARP; tile < across * down * (int)call.count;
         tile += (int)gridDim.x * warps) {
        const int product = tile / (across * down), row = tile / across % down * ROWS, column = tile % across * columns;
        const int64_t matrix = call.of(product), first = (int64_t)product * m;
        const rt_stored_weights<float> w = call.w.matrix(matrix);
        float sum[ROWS][columns] = {};
#pragma unroll 2
        for (int q = rt_lane() * codes::count; q < (matrix < call.matrices ? k : 0); q += RT_WARP * codes::count) {
            const int group = q / block;
            rt_vector<T, codes::count> x[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int64_t line = first + (row + r < m ? row + r : row);
                x[r] = rt_get_vector<codes::count>(call.x + line * k + q);
            }
#pragma unroll
            for (int c = 0; c < columns; c++) {
                const int j = column + c < n ? column + c : column;
                const int64_t at = j * w.groups + group;
                const codes word = {rt_get_vector<codes::count * BITS / 32>(
                    (const uint32_t *)(w.codes + ((int64_t)j * k + q) * BITS / 8))};
                const float shift = w.zeros ? rt_code_value_of(w.zeros[at], w.type) : w.offset;
                float part[ROWS] = {};
#pragma unroll
                for (int i = 0; i < codes::count; i++) {
                    const float value = word.value(i, sign, w.type == RT_F16) - shift;
#pragma unroll
                    for (int r = 0; r < ROWS; r++) part[r] += E::load(x[r].at[i]) * value;
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) sum[r][c] += w.scales ? part[r] * w.scales[at] : part[r];
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < columns; c++) {
                const float all = rt_row_fold<RT_WARP>(sum[r][c], rt_sum_of());
                if (rt_lane() == 0 && row + r < m && column + c < n)
                    call.y[(first + row + r) * n + column + c] = E::store(all);
            }
    }
}

template <int BITS, class E, class Of>
static inline int rt_multiply_few_rows(struct rt *rt, const rt_stored_products<E, Of> &call) {
    constexpr int warps = 8; /* of a block */
    const int64_t rows = call.m == 1 ? 1 : 4, tiles = rt_few_columns(call.w.n) * ((call.m + rows - 1) / rows);
    void (*kernel)(rt_stored_products<E, Of>) =
        call.m == 1 ? rt_few_rows_kernel<BITS, 1, E, Of> : rt_few_rows_kernel<BITS, 4, E, Of>;
    return rt_launch(rt, kernel, (call.count * tiles + warps - 1) / warps, warps * RT_WARP, call);
}

/* Many rows: a thread block computes a tile of y from tiles of x and of weights that it has dequantised, in the type of
 * x. */
template <int ROWS, int COLUMNS, int DEPTH, class E, class Of>
static __global__ void rt_stored_tiles_kernel(rt_stored_products<E, Of> call) {
    using T = typename E::type;
    constexpr int pitch = DEPTH + (sizeof(T) == sizeof(float) ? 1 : 8); /* lines of 16 bits are aligned to 16 bytes */
    alignas(16) __shared__ T left[ROWS * pitch], right[COLUMNS * pitch];
    const int64_t m = call.m, n = call.w.n, k = call.w.k;
    const int64_t across = (n + COLUMNS - 1) / COLUMNS, down = (m + ROWS - 1) / ROWS;
    const int first = (int)threadIdx.x / RT_WARP * RT_TILE_ROWS; /* of the warp's rows */
    for (int64_t tile = blockIdx.x; tile < across * down * call.count; tile += gridDim.x) {
        const int64_t row = tile / across % down * ROWS, column = tile % across * COLUMNS;
        const int64_t product = tile / (across * down);
        const auto w = call.w.matrix(call.of(product));
        const T *x = call.x + product * m * k;
        float sums[COLUMNS / RT_TILE_COLUMNS][4] = {};
        for (int64_t q = 0; q < k; q += DEPTH) {
            __syncthreads(); /* the last tiles have been read */
            for (int at = (int)threadIdx.x; at < ROWS * DEPTH; at += (int)blockDim.x) {
                const int i = at / DEPTH, p = at % DEPTH;
                left[i * pitch + p] = row + i < m && q + p < k ? x[(row + i) * k + q + p] : E::store(0);
            }
            for (int at = (int)threadIdx.x; at < COLUMNS * DEPTH; at += (int)blockDim.x) {
                const int j = w.turned ? at / DEPTH : at % COLUMNS, p = w.turned ? at % DEPTH : at / COLUMNS;
                right[j * pitch + p] = E::store(column + j < n && q + p < k ? w(column + j, q + p) : 0);
            }
            __syncthreads();
            rt_tile_product(E(), sums, rt_lines_of_tile<T>{left + first * pitch, pitch},
                            rt_lines_of_tile<T>{right, pitch}, DEPTH);
        }
        for (int c = 0; c < COLUMNS / RT_TILE_COLUMNS; c++)
            for (int i = 0; i < 4; i++) {
                const int64_t r = row + first + rt_tile_row(i), j = column + c * RT_TILE_COLUMNS + rt_tile_column(i);
                if (r < m && j < n) call.y[(product * m + r) * n + j] = E::store(sums[c][i]);
            }
    }
}

template <class E, class Of> static inline int rt_stored_tiles(struct rt *rt, const rt_stored_products<E, Of> &call) {
    constexpr int rows = 64, columns = 64;
    return rt_launch(rt, rt_stored_tiles_kernel<rows, columns, 32, E, Of>,
                     call.count * ((call.m + rows - 1) / rows) * ((call.w.n + columns - 1) / columns),
                     rows / RT_TILE_ROWS * RT_WARP, call);
}

template <class E, class Of>
static inline int rt_multiply_stored(struct rt *rt, const rt_stored_products<E, Of> &call) {
    if constexpr (std::is_same_v<typename E::sum, float>) {
        const auto &w = call.w;
        const int at_once = w.bits == 4 ? 8 : 4;
        const bool few = call.m <= RT_FEW_ROWS && w.turned && !w.across && w.k % at_once == 0 &&
                         w.block % at_once == 0 && w.k < INT_MAX / 2 &&
                         rt_few_columns(w.n) * call.m * call.count < INT_MAX / 2 &&
                         (uintptr_t)call.x % RT_VECTOR_BYTES == 0 && (uintptr_t)w.codes % 8 == 0;
        if (few && (w.type == RT_I4 || w.type == RT_U4) && w.bits == 4) return rt_multiply_few_rows<4>(rt, call);
        if (few && (w.type == RT_I8 || w.type == RT_U8)) return rt_multiply_few_rows<8>(rt, call);
        if (few && (w.type == RT_BF16 || w.type == RT_F16)) return rt_multiply_few_rows<16>(rt, call);
        if constexpr (std::is_same_v<Of, rt_each_matrix>) return rt_stored_tiles(rt, call);
    }
    return rt_stored_points(rt, call);
}

template <class E, class T = typename E::type, class S = typename E::sum>
RT_FAMILY int rt_dequant_matmul(struct rt *rt, T *y, const T *x, const void *weights, const S *scales,
                                const void *zeros, int64_t batch, int64_t m, int64_t k, int64_t n, int64_t groups,
                                enum rt_dtype type, enum rt_dtype codes, double offset, int turned, int across) {
    return rt_multiply_stored(rt,
                              rt_stored_products<E, rt_each_matrix>{y,
                                                                    x,
                                                                    rt_stored_of(weights, scales, zeros, k, n, groups,
                                                                                 type, codes, offset, turned, across),
                                                                    batch,
                                                                    m,
                                                                    batch,
                                                                    {}});
}

/* Of many rows each reads its expert's weights anew: no tiles, and no tensor cores yet. */
template <class E, class T = typename E::type, class S = typename E::sum>
RT_FAMILY int rt_dequant_expert_matmul(struct rt *rt, T *y, const T *x, const void *weights, const S *scales,
                                       const void *indices, int is_64, int64_t count, int64_t experts, int64_t k,
                                       int64_t n, int64_t groups, enum rt_dtype type, enum rt_dtype codes,
                                       double offset, int turned, int across, int64_t start, int64_t total) {
    return rt_multiply_stored(
        rt, rt_stored_products<E, rt_row_of>{
                y,
                x,
                rt_stored_of<S>(weights, scales, NULL, k, n, groups, type, codes, offset, turned, across),
                count,
                1,
                experts,
                {rt_index_of(rt, indices, is_64), experts, start, total}});
}

#define RT_CUDA_DEQUANT(T, s)                                                                                          \
    RT_NAME(rt_dequant_matmul_##s, rt_dequant_matmul<rt_##s>)                                                          \
    RT_NAME(rt_dequant_expert_matmul_##s, rt_dequant_expert_matmul<rt_##s>)
RT_FLOATS(RT_CUDA_DEQUANT)
RT_HALVES(RT_CUDA_DEQUANT)

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
