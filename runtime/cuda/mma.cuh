/* Matrix products of small tiles by a warp: on tensor cores for 16-bit floats, by its threads for f32. Sums are in f32.
 *
 * A tile sum(16,8) is distributed over the warp like the accumulator of mma.sync.m16n8k16 (PTX ISA, "Matrix fragments
 * for mma.m16n8k16"): thread 4 r + c holds rows r and r + 8 of columns 2 c and 2 c + 1, in the order of rows. */
#ifndef RT_CUDA_MMA_CUH
#define RT_CUDA_MMA_CUH

#include "product.cuh"

enum { RT_TILE_ROWS = 16, RT_TILE_COLUMNS = 8, RT_TILE_DEPTH = 16 };
static constexpr unsigned RT_ALL_LANES = 0xFFFFFFFFu;

static inline __device__ int rt_lane() {
    return (int)threadIdx.x % RT_WARP;
}
/* Row and column, in a tile, of element `i` of the thread's four. */
static inline __device__ int rt_tile_row(int i) {
    return rt_lane() / 4 + i / 2 * 8;
}
static inline __device__ int rt_tile_column(int i) {
    return rt_lane() % 4 * 2 + i % 2;
}

/* Reduces over the four threads that share the rows of a tile. */
template <class T, class Op> static inline __device__ T rt_quad_fold(T value, Op op) {
    for (int far = 1; far < 4; far *= 2) value = op(value, (T)__shfl_xor_sync(RT_ALL_LANES, value, far));
    return value;
}

#ifdef __CUDACC__
/* GPUs before compute capability 8.0 have neither these instructions for bf16 nor asynchronous copies. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define RT_MMA(E, type)                                                                                                \
    static inline __device__ void rt_mma(E, float(&sum)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {         \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                            \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "                                                       \
                     "{%8, %9}, {%0, %1, %2, %3};"                                                                     \
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
RT_MMA(rt_bf16, "bf16")
RT_MMA(rt_fp16, "f16")

/* Packs two numbers as 16-bit floats, the first in the lower half. */
#define RT_PAIR(E, type)                                                                                               \
    static inline __device__ uint32_t rt_pair_of(E, float low, float high) {                                           \
        uint32_t pair;                                                                                                 \
        asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));                                   \
        return pair;                                                                                                   \
    }
RT_PAIR(rt_bf16, "bf16")
RT_PAIR(rt_fp16, "f16")
#else
/* In halves of the depth, by which fragments are divided. */
static inline __device__ void rt_mma(rt_fp16, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    for (int far = 0; far < 2; far++)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[2 * far]), "r"(a[2 * far + 1]), "r"(far ? b1 : b0));
}
/* Each thread asks those that hold the elements of its two rows and its two columns. */
static inline __device__ void rt_mma(rt_bf16, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const int row = rt_lane() / 4, column = rt_lane() % 4 * 2;
#pragma unroll 1
    for (int p = 0; p < RT_TILE_DEPTH; p++) {
        const int held = p % 8 / 2, shift = p % 2 * 16;
        const bool far = p >= RT_TILE_DEPTH / 2;
        const float low =
            rt_bf16_to_f32((uint16_t)(__shfl_sync(RT_ALL_LANES, far ? a[2] : a[0], row * 4 + held) >> shift));
        const float high =
            rt_bf16_to_f32((uint16_t)(__shfl_sync(RT_ALL_LANES, far ? a[3] : a[1], row * 4 + held) >> shift));
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const float b =
                rt_bf16_to_f32((uint16_t)(__shfl_sync(RT_ALL_LANES, far ? b1 : b0, (column + c) * 4 + held) >> shift));
            sum[c] += low * b;
            sum[2 + c] += high * b;
        }
    }
}
template <class E> static inline __device__ uint32_t rt_pair_of(E, float low, float high) {
    return (uint32_t)E::store(low) | (uint32_t)E::store(high) << 16;
}
#endif

/* ldmatrix: loads four 8 x 8 matrices of 16-bit elements from shared memory. Thread l passes the address of line l % 8
 * of matrix l / 8, aligned to 16 bytes, and receives elements 2 (l % 4) and the next of line l / 4 of each matrix. */
template <class T> static inline __device__ void rt_load_matrices(uint32_t (&to)[4], const T *line) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(line))
                 : "memory");
}
/* The same, transposed. */
template <class T> static inline __device__ void rt_load_transposed(uint32_t (&to)[4], const T *line) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(line))
                 : "memory");
}

/* cp.async: copies 16 bytes to shared memory asynchronously, zeros if the source is out of range. They have arrived
 * after rt_copies_wait and a barrier. Copies are awaited in groups, the oldest first, until at most `left` groups are
 * pending. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static inline __device__ void rt_copy_begin(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
static inline __device__ void rt_copies_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int left> static inline __device__ void rt_copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}
#else
static inline __device__ void rt_copy_begin(void *to, const void *from, bool there) {
    *(uint4 *)to = there ? *(const uint4 *)from : uint4{};
}
static inline __device__ void rt_copies_group() {}
template <int left> static inline __device__ void rt_copies_wait() {}
#endif
#else
template <class E> static inline void rt_mma(E, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    host::mma_m16n8k16(sum, a, {b0, b1}, E::load);
}
template <class E> static inline uint32_t rt_pair_of(E, float low, float high) {
    return (uint32_t)E::store(low) | (uint32_t)E::store(high) << 16;
}
template <class T> static inline void rt_load_matrices(uint32_t (&to)[4], const T *line) {
    host::load_matrices(to, line, false);
}
template <class T> static inline void rt_load_transposed(uint32_t (&to)[4], const T *line) {
    host::load_matrices(to, line, true);
}
static inline void rt_copy_begin(void *to, const void *from, bool there) {
    host::copy_begin(to, from, there);
}
static inline void rt_copies_group() {
    host::copies_group();
}
template <int left> static inline void rt_copies_wait() {
    host::copies_wait(left);
}
#endif

/* Operand in shared memory, p being the index summed over: element p of line i, lines contiguous ... */
template <class T> struct rt_lines_of_tile {
    const T *at;
    int pitch;
    __device__ T operator()(int i, int p) const { return at[i * pitch + p]; }
    /* Element p of the thread's two lines of the 16. */
    __device__ void column(T (&to)[2], int p) const {
        for (int r = 0; r < 2; r++) to[r] = at[rt_tile_row(2 * r) * pitch + p];
    }
    /* Lines 0 .. 15 from p on, as a left operand fragment. */
    __device__ void left(uint32_t (&to)[4], int p) const {
        const int l = rt_lane();
        rt_load_matrices(to, at + l % 16 * pitch + p + l / 16 * 8);
    }
    /* Lines i .. i + 15 from p on, as the right operand fragments of two tiles. */
    __device__ void right(uint32_t (&to)[4], int i, int p) const {
        const int l = rt_lane();
        rt_load_matrices(to, at + (i + l / 16 * 8 + l % 8) * pitch + p + l / 8 % 2 * 8);
    }
};
/* ... or elements p contiguous over lines. */
template <class T> struct rt_columns_of_tile {
    const T *at;
    int pitch;
    __device__ T operator()(int i, int p) const { return at[p * pitch + i]; }
    __device__ void right(uint32_t (&to)[4], int i, int p) const {
        const int l = rt_lane();
        rt_load_transposed(to, at + (p + l % 16) * pitch + i + l / 16 * 8);
    }
};

/* A left operand (16, 8 N) that is the result of a product, in the threads' registers. */
template <class E, int N> struct rt_result_of_tile {
    const float (&at)[N][4];
    __device__ void left(uint32_t (&to)[4], int p) const {
        const float(&low)[4] = at[p / 8], (&high)[4] = at[p / 8 + 1];
        to[0] = rt_pair_of(E(), low[0], low[1]);
        to[1] = rt_pair_of(E(), low[2], low[3]);
        to[2] = rt_pair_of(E(), high[0], high[1]);
        to[3] = rt_pair_of(E(), high[2], high[3]);
    }
    /* ... from the thread, of the four that share the row, that has them. */
    __device__ void column(float (&to)[2], int p) const {
        const int owner = rt_lane() / 4 * 4 + p % 8 / 2;
        for (int r = 0; r < 2; r++) to[r] = __shfl_sync(RT_ALL_LANES, at[p / 8][2 * r + p % 2], owner);
    }
};

/* sums(16,8 N) += a(16,depth) b(8 N,depth)^T, depth a multiple of 16, N of 2. */
template <class E, int N, class A, class B>
static inline __device__ void rt_tile_product(E, float (&sums)[N][4], const A &a, const B &b, int depth) {
#pragma unroll
    for (int p = 0; p < depth; p += RT_TILE_DEPTH) {
        uint32_t left[4], right[4];
        a.left(left, p);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            b.right(right, n * RT_TILE_COLUMNS, p);
            rt_mma(E(), sums[n], left, right[0], right[1]);
            rt_mma(E(), sums[n + 1], left, right[2], right[3]);
        }
    }
}

/* In f32, of any depth and N. */
template <int N, class A, class B>
static inline __device__ void rt_tile_product(rt_plain<float>, float (&sums)[N][4], const A &a, const B &b, int depth) {
#pragma unroll
    for (int p = 0; p < depth; p++) {
        float left[2];
        a.column(left, p);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[n][i] += left[i / 2] * b(n * RT_TILE_COLUMNS + rt_tile_column(i), p);
    }
}

#endif
