/* Products of small tiles by a warp: on tensor cores for 16-bit floats, by its threads for f32. Sums are in f32.
 *
 * A tile sum(16,8) is spread over the warp as mma.sync.m16n8k16 has it (PTX ISA, "Matrix fragments for mma.m16n8k16"): thread
 * 4 r + c holds rows r and r + 8 of columns 2 c and 2 c + 1, in the order of rows. */
#ifndef RT_CUDA_MMA_CUH
#define RT_CUDA_MMA_CUH

#include "product.cuh"

enum { RT_WARP = 32, RT_TILE_ROWS = 16, RT_TILE_COLUMNS = 8, RT_TILE_DEPTH = 16 };
static constexpr unsigned RT_ALL_LANES = 0xFFFFFFFFu;

static inline __device__ int rt_lane() {
    return (int)threadIdx.x % RT_WARP;
}
/* Row of element `i` of the thread's four in a tile, and its column. */
static inline __device__ int rt_tile_row(int i) {
    return rt_lane() / 4 + i / 2 * 8;
}
static inline __device__ int rt_tile_column(int i) {
    return rt_lane() % 4 * 2 + i % 2;
}

/* op over the four threads that share rows of a tile. */
template <class T, class Op> static inline __device__ T rt_row_fold(T value, Op op) {
    for (int far = 1; far < 4; far *= 2) value = op(value, (T)__shfl_xor_sync(RT_ALL_LANES, value, far));
    return value;
}

/* An operand in shared memory: element p of line i, of those that are summed over. Lines lie one after the other ... */
template <class T> struct rt_lines_of_tile {
    const T *at;
    int pitch;
    __device__ T operator()(int i, int p) const { return at[i * pitch + p]; }
    /* Elements p and p + 1, of 16 bits. */
    __device__ uint32_t pair(int i, int p) const { return *(const uint32_t *)(at + i * pitch + p); }
};
/* ... or side by side. */
template <class T> struct rt_columns_of_tile {
    const T *at;
    int pitch;
    __device__ T operator()(int i, int p) const { return at[p * pitch + i]; }
    __device__ uint32_t pair(int i, int p) const {
        return (uint32_t)at[p * pitch + i] | (uint32_t)at[(p + 1) * pitch + i] << 16;
    }
};

#ifdef __CUDACC__
#define RT_MMA(E, type)                                                                                                \
    static inline __device__ void rt_mma(E, float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {         \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "    \
                     "{%8, %9}, {%0, %1, %2, %3};"                                                                     \
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                              \
    }
RT_MMA(rt_bf16, "bf16")
RT_MMA(rt_fp16, "f16")
#else
template <class E> static inline void rt_mma(E, float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    host::mma_m16n8k16(sum, a, b, E::load);
}
#endif

/* sum(16,8) += a(16,depth) b(8,depth)^T, depth being a multiple of 16. */
template <class E, class A, class B>
static inline __device__ void rt_tile_product(E, float (&sum)[4], const A &a, const B &b, int depth) {
    const int row = rt_tile_row(0), column = rt_lane() / 4, p0 = rt_tile_column(0);
#pragma unroll
    for (int p = p0; p < depth; p += RT_TILE_DEPTH) {
        const uint32_t left[4] = {a.pair(row, p), a.pair(row + 8, p), a.pair(row, p + 8), a.pair(row + 8, p + 8)};
        const uint32_t right[2] = {b.pair(column, p), b.pair(column, p + 8)};
        rt_mma(E(), sum, left, right);
    }
}

/* The same in f32, of any depth. */
template <class A, class B>
static inline __device__ void rt_tile_product(rt_plain<float>, float (&sum)[4], const A &a, const B &b, int depth) {
    for (int p = 0; p < depth; p++)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] += a(rt_tile_row(i), p) * b(rt_tile_column(i), p);
}

#endif
