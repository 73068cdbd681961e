/* Helpers of generated kernels over rows and columns (ir/expr/row_program.h, templates/cuda/rows.cu.in, columns.cu.in).
 *
 * A row is computed by `threads` threads: a warp, several of which form a block, or a whole block of several warps. A
 * thread has the same elements of the row in every pass, `width` adjacent ones at a time. Sums are computed by each
 * thread, then in each warp, then over warps in order: the order depends only on these numbers. */
#ifndef RT_CUDA_ROWS_CUH
#define RT_CUDA_ROWS_CUH

#include "reduce.cuh"

#define RT_EACH_ROW(row, rows, threads)                                                                                \
    for (int64_t row = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / (threads); row < (rows);                     \
         row += (int64_t)gridDim.x * blockDim.x / (threads))

/* Loop over the thread's `parts` vectors of elements, which stay in registers ... */
#define RT_EACH_HELD(part, i, parts, threads, width, columns)                                                          \
    _Pragma("unroll") for (int part = 0; part < (parts);                                                               \
                           part++) if (const int i = (part * (threads) + (int)(threadIdx.x % (threads))) * (width);    \
                                       i < (columns))
/* ... or are read again in every pass. */
#define RT_EACH_READ(part, i, parts, threads, width, columns)                                                          \
    for (int64_t i = threadIdx.x % (threads) * (width); i < (columns); i += (threads) * (width))

/* Reduces the values of all threads of the row with op; all get the result. */
template <int threads, class A, class Op> static __device__ inline A rt_row_fold(A value, Op op) {
    for (int far = RT_WARP / 2; far > 0; far /= 2) value = op(value, __shfl_xor_sync(~0u, value, far));
    if constexpr (threads > RT_WARP) {
        __shared__ A parts[threads / RT_WARP];
        __syncthreads(); /* the last result has been read */
        if (threadIdx.x % RT_WARP == 0) parts[threadIdx.x / RT_WARP] = value;
        __syncthreads();
        value = parts[0];
        for (int warp = 1; warp < threads / RT_WARP; warp++) value = op(value, parts[warp]);
    }
    return value;
}

/* Loop over the thread's rows of a chunk: the block processes as many rows at a time as it has threads per column group
 * of `across`. */
#define RT_EACH_ROW_OF_CHUNK(row, chunk, length, rows, across)                                                         \
    for (int64_t row = (chunk) * (length) + threadIdx.x / (across); row < (rows) && row < ((chunk) + 1) * (length);    \
         row += blockDim.x / (across))

/* Adds the column sums of all threads of the block; the first `across` threads get the result. */
template <int across, class A, int N> static __device__ inline void rt_column_fold(rt_vector<A, N> &sum) {
    __shared__ rt_vector<A, N> parts[RT_BLOCK];
    __syncthreads(); /* the last result has been read */
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int other = across + (int)threadIdx.x; other < RT_BLOCK && threadIdx.x < across; other += across)
        for (int lane = 0; lane < N; lane++) sum.at[lane] += parts[other].at[lane];
}

#endif
