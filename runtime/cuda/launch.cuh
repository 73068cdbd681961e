/* How kernels are written and launched.
 *
 * A kernel works either on points, each computed by one thread, or on rows, each computed by one block of RT_BLOCK
 * threads that synchronise in rt_block_fold. Threads do not cooperate in other ways, so a program's kernels also run as
 * loops on a CPU, where tests/cuda/host replaces the toolkit's headers.
 *
 * Launches go to the rank's stream, return immediately and may be captured in a graph. The first launch error is kept
 * and ends the segment. Errors in data (an index out of range) are recorded as a fault, which is checked at the end of
 * the step. */
#ifndef RT_CUDA_LAUNCH_CUH
#define RT_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>
#include <type_traits>

#include "../base/number/fp8.h"
#include "../base/scratch.h"
#include "../kernels/c/math.h"
#include "../generated.h"

/* Sources of ranks define it as 1 where a size of the program grows from step to step (Note [Growing sizes] in
 * grow.cuh). */
#ifndef RT_GROWS
#define RT_GROWS 0
#endif

#ifndef RT_BLOCK
#define RT_BLOCK 256 /* threads that share a row; a power of two */
#endif
#ifndef RT_POINT_BLOCK
#define RT_POINT_BLOCK 256 /* threads of a block of points */
#endif
#ifndef RT_MOST_BLOCKS
#define RT_MOST_BLOCKS (1 << 16) /* per launch; with more work each block loops over several items */
#endif

enum { RT_WARP = 32 }; /* threads that go together */

/* An argument "{2, 3}": extents or strides. */
struct rt_dims {
    int64_t at[RT_MAX_NDIM];
    __host__ __device__ int64_t operator[](int d) const { return at[d]; }
    __host__ __device__ int64_t &operator[](int d) { return at[d]; }
};

static inline __host__ __device__ int64_t rt_count(const rt_dims &dims, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= dims[d];
    return count;
}

/* A fault of a kernel. Lies in mapped host memory, which the device writes to. */
enum rt_fault_kind { RT_FAULT_NONE, RT_FAULT_INDEX, RT_FAULT_CLASS, RT_FAULT_DIVISOR };
struct rt_fault {
    int kind, instruction;
    long long value, position, total;
};

/* Epilogue of a product with batch 1; pointers may be NULL.
 *
 *     RT_NO_ACTIVATION, RT_GELU: s = product + bias(n) + residual(m,n), stored to sum(m,n); y = s, or gelu(s) with tanh
 *     RT_GELU_GRAD: y = product * gelu'(sum(m,n))
 *
 * In addition, sums over k of an operand, a(m,k) or b(k,n). */
enum rt_summed { RT_NO_SUMS, RT_SUMS_OF_A, RT_SUMS_OF_B };
struct rt_finish {
    enum rt_activation activation;
    const void *bias, *residual, *sum;
    enum rt_summed summed;
    void *sums;
};

/* A product y(batch,m,n) = a(batch,m,k) b(batch,k,n); trans_a: a is stored as (k,m), trans_b: b as (n,k). */
struct rt_product {
    enum rt_dtype dtype;
    void *y;
    const void *a, *b;
    int64_t batch, m, k, n;
    int trans_a, trans_b;
    void *workspace; /* RT_PRODUCT_WORKSPACE bytes */
    rt_finish finish;
};

/* y(m,n) = *unscale_a * *unscale_b * a(m,k) b(k,n) for 8-bit floats, b stored as (n,k). fast: the accumulator may have
 * less precision than f32. */
struct rt_scaled_product {
    enum rt_dtype dtype; /* of y */
    void *y;
    const uint8_t *a, *b;
    const float *unscale_a, *unscale_b;
    int64_t m, k, n;
    enum rt_fp8 format_a, format_b;
    int fast;
    void *workspace; /* RT_PRODUCT_WORKSPACE bytes */
};

/* A convolution of an image (n,c,space) with a filter (m,c/group,window) to a result (n,m,space). It computes the
 * result from image a and filter b, the image's gradient from result a and filter b, or the filter's gradient from
 * image a and result b. */
enum rt_convolution_kind { RT_CONVOLVE, RT_CONVOLVE_BACK, RT_CONVOLVE_WEIGHTS };
struct rt_convolution {
    enum rt_convolution_kind kind;
    enum rt_dtype dtype;
    int ndim;
    void *y;
    const void *a, *b;
    rt_dims image, filter, result;
    int64_t group;
    rt_dims stride, dilation, begin;
    void *workspace; /* RT_PRODUCT_WORKSPACE bytes */
};

/* struct rt_attention of kernels.h, with extents instead of pointers. */
struct rt_attention {
    int ndim;
    rt_dims q, keep, bias, sink;
    int64_t kv, s, e, start, jump;
    int causal;
    int64_t offset, window;
    int drop, bias_first, clamp;
    int nan_to_zero; /* enum rt_nan_to_zero */
    int library;     /* enum rt_library */
    double scale, fill, cap;
    int more_before, more_behind; /* of calls with other keys */
    float *sums;                  /* between these: of y's elements (b..,heads,t,e), or of dq's (b..,heads,t,d) */
};

/* The last key that row `row` of a causal attention sees. */
static inline __device__ int64_t rt_last_key(const rt_attention &shape, int64_t row) {
    return shape.start + row + (row < shape.q[shape.ndim - 2] / 2 ? 0 : shape.jump) + shape.offset;
}

/* True if a row whose terms e^(score - largest) have this sum gives 0. */
static inline __device__ bool rt_has_no_weights(const rt_attention &shape, double sum) {
    return shape.nan_to_zero == RT_HIDDEN_ROWS_TO_ZERO ? sum == 0 : shape.nan_to_zero && !(sum > 0);
}

/* A tensor with these strides, 1 in the last dimension. */
template <class T> struct rt_strided {
    T *at;
    rt_dims step;
};

/* A tensor (b..,heads,lines,elements) with these strides; the elements of a line are contiguous. */
struct rt_operand {
    void *at;
    rt_dims step;
};

/* Attention, or its gradient (flash.cuh), which uses the last four members. */
struct rt_attention_call {
    enum rt_dtype dtype;
    bool backward;
    rt_operand q, k, v;
    const uint8_t *keep;
    const void *bias, *sink;
    rt_operand y;
    float *stats; /* (b..,heads,t,2) */
    rt_operand dy, dq, dk, dv;
    rt_attention shape;
};

/* Launches of one kernel that are held (held.cuh), as a table of their arguments. */
#ifndef RT_TABLE_BYTES
#define RT_TABLE_BYTES 32764 /* the most that parameters of a kernel may have */
#endif
enum { RT_MOST_HELD = 8 };
struct rt_held {
    const void *key; /* the kernel; of squares, the sum */
    const void *before;
    void (*kernels[2])(void);
    int (*launch)(struct rt *rt, const rt_held *held);
    alignas(16) unsigned char table[RT_TABLE_BYTES];
};
struct rt_holding {
    bool holds;
    int n;
    rt_held held[RT_MOST_HELD];
};

/* rt->device of a rank. */
struct rt_cuda {
    cudaStream_t stream;
    cudaError_t error; /* of the first launch that failed in this segment */
    rt_fault *fault;
    /* Products of a library: RT_OK, or -1 if it does not support the product or its epilogue. NULL: no library is
     * used. */
    int (*product)(struct rt *rt, const rt_product *product);
    int (*scaled_product)(struct rt *rt, const rt_scaled_product *product); /* all of them; NULL: none is used */
    int (*convolve)(struct rt *rt, const rt_convolution *convolution);      /* as product */
    int (*attend)(struct rt *rt, const rt_attention_call *call);            /* as product */
    const int64_t *extents; /* those of the current step in the GPU's memory, if a size of the program grows */
    /* Note [Growing sizes]; NULL: launches are not noted. Of the kernel or function `what`, that is launched or called
     * with these bytes. movable: the kernel can read them from the GPU's memory. Returns where it is to do so; NULL: it
     * takes them as parameters. */
    const void *(*note)(struct rt *rt, const void *what, bool movable, const void *bytes, size_t n);
    struct rt_cuda_private *own; /* device.cu's */
    rt_holding holding;
};

static inline rt_cuda *rt_cuda_of(struct rt *rt) {
    return (rt_cuda *)rt->device;
}

static inline int rt_note(struct rt *rt, cudaError_t error) {
    if (error != cudaSuccess && rt_cuda_of(rt)->error == cudaSuccess) rt_cuda_of(rt)->error = error;
    return RT_OK;
}

/* `note` of struct rt_cuda for what is launched or called with these arguments. */
template <class... A>
static inline const void *rt_take_note(struct rt *rt, const void *what, bool movable, const A &...arguments) {
    unsigned char bytes[(sizeof arguments + ...)];
    size_t n = 0;
    if (!rt_cuda_of(rt)->note) return NULL;
    ((memcpy(bytes + n, &arguments, sizeof arguments), n += sizeof arguments), ...);
    return rt_cuda_of(rt)->note(rt, what, movable, bytes, n);
}

/* An extent that grows from step to step, which a kernel reads from the GPU's memory. */
template <class T> struct rt_grown {
    const int64_t *at;
    rt_grown(const int64_t *at) : at(at) {}
    __device__ operator T() const { return (T)*at; }
};
static inline const int64_t *rt_extent_at(struct rt *rt, int extent) {
    return rt_cuda_of(rt)->extents + extent;
}

template <class... P, class... A>
static inline int rt_launch_noted(struct rt *rt, void (*kernel)(P...), int64_t blocks, int threads, A... arguments) {
    cudaLaunchConfig_t config = {};
    if (blocks <= 0) return RT_OK;
    config.gridDim = dim3((unsigned)(blocks < RT_MOST_BLOCKS ? blocks : RT_MOST_BLOCKS));
    config.blockDim = dim3((unsigned)threads);
    config.stream = rt_cuda_of(rt)->stream;
    return rt_note(rt, cudaLaunchKernelEx(&config, kernel, arguments...));
}

/* Launches at most RT_MOST_BLOCKS blocks. */
template <class... P, class... A>
static inline int rt_launch(struct rt *rt, void (*kernel)(P...), int64_t blocks, int threads, A... arguments) {
    if (blocks > 0) rt_take_note(rt, (const void *)kernel, false, arguments...);
    return rt_launch_noted(rt, kernel, blocks, threads, arguments...);
}

/* The same of a kernel with one argument; `moved` is the kernel that reads it from the GPU's memory. */
template <class A>
static inline int rt_launch_movable(struct rt *rt, void (*kernel)(A), void (*moved)(const A *), int64_t blocks,
                                    int threads, const A &argument) {
    const void *at = blocks > 0 ? rt_take_note(rt, (const void *)kernel, RT_GROWS, argument) : NULL;
    return at ? rt_launch_noted(rt, moved, blocks, threads, (const A *)at)
              : rt_launch_noted(rt, kernel, blocks, threads, argument);
}

/* Loop over the thread's points of [0, count). Counts below 2^31 use 32-bit indices, whose division is cheap. */
#define RT_POINTS_OF(type, point, count)                                                                               \
    for (type point = (type)blockIdx.x * (type)blockDim.x + (type)threadIdx.x; point < (type)(count);                  \
         point += (type)gridDim.x * (type)blockDim.x)
#define RT_POINTS(point, count)   RT_POINTS_OF(int64_t, point, count)
#define RT_POINTS32(point, count) RT_POINTS_OF(uint32_t, point, count)

template <class... P, class... A>
static inline int rt_launch_points(struct rt *rt, void (*kernel)(P...), int64_t count, A... arguments) {
    return rt_launch(rt, kernel, (count + RT_POINT_BLOCK - 1) / RT_POINT_BLOCK, RT_POINT_BLOCK, arguments...);
}

/* Work on `count` points or rows. */
template <class F> struct rt_work {
    int64_t count;
    F body;
};
template <class A> using rt_moved_kernel = void (*)(const A *);

template <class F> static __global__ void rt_points_kernel(rt_work<F> work) {
    RT_POINTS(point, work.count) work.body(point);
}
template <class F> static __global__ void rt_moved_points_kernel(const rt_work<F> *work) {
    RT_POINTS(point, work->count) work->body(point);
}

/* Calls body(point) for each of `count` points, in any order. */
template <class F> static inline int rt_points(struct rt *rt, int64_t count, F body) {
    rt_moved_kernel<rt_work<F>> moved = NULL;
    if constexpr (RT_GROWS) moved = rt_moved_points_kernel<F>;
    return rt_launch_movable(rt, rt_points_kernel<F>, moved, (count + RT_POINT_BLOCK - 1) / RT_POINT_BLOCK,
                             RT_POINT_BLOCK, rt_work<F>{count, body});
}

template <class F> static __global__ void rt_rows_kernel(rt_work<F> work) {
    for (int64_t row = blockIdx.x; row < work.count; row += gridDim.x) work.body(row);
}
template <class F> static __global__ void rt_moved_rows_kernel(const rt_work<F> *work) {
    for (int64_t row = blockIdx.x; row < work->count; row += gridDim.x) work->body(row);
}

/* Calls body(row) from all threads of a block, for each of `rows` rows. */
template <class F> static inline int rt_rows(struct rt *rt, int64_t rows, F body) {
    rt_moved_kernel<rt_work<F>> moved = NULL;
    if constexpr (RT_GROWS) moved = rt_moved_rows_kernel<F>;
    return rt_launch_movable(rt, rt_rows_kernel<F>, moved, rows, RT_BLOCK, rt_work<F>{rows, body});
}

/* Loop over the thread's share of a row. */
#define RT_EACH(i, count) for (int64_t i = threadIdx.x; i < (count); i += blockDim.x)

/* Reduces the values of all threads of the block with op; all get the result. The order depends only on RT_BLOCK. */
template <class T, class Op> static __device__ inline T rt_block_fold(T value, Op op) {
    __shared__ T part[RT_BLOCK];
    const int thread = (int)threadIdx.x;
    __syncthreads(); /* the last result has been read */
    part[thread] = value;
    for (int half = RT_BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) part[thread] = op(part[thread], part[thread + half]);
    }
    __syncthreads();
    return part[0];
}

struct rt_sum_of {
    template <class T> static T identity() { return 0; }
    template <class T> __host__ __device__ T operator()(T a, T b) const { return a + b; }
};
struct rt_product_of {
    template <class T> static T identity() { return 1; }
    template <class T> __host__ __device__ T operator()(T a, T b) const { return a * b; }
};

static constexpr size_t RT_VECTOR_BYTES = 16; /* of an access */

/* N adjacent elements, accessed 16 bytes at a time; aligned to 16 bytes, or to their size if that is less. */
template <class T, int N> struct alignas(N * sizeof(T) < RT_VECTOR_BYTES ? N * sizeof(T) : RT_VECTOR_BYTES) rt_vector {
    T at[N];
};

template <int N, class T> static inline __device__ rt_vector<T, N> rt_get_vector(const T *from) {
    return *(const rt_vector<T, N> *)from;
}

template <class T, int N> static inline __device__ void rt_put_vector(T *to, const rt_vector<T, N> &vector) {
    *(rt_vector<T, N> *)to = vector;
}

/* Loop over the thread's share of a row, N elements at a time. */
#define RT_EACH_VECTOR(i, count, N) for (int64_t i = threadIdx.x * (N); i < (count); i += blockDim.x * (N))

/* The aligned part of an unaligned row, which can be accessed N elements at a time. */
struct rt_wide_part {
    int64_t first, end;
};
template <int N, class T> static inline __device__ rt_wide_part rt_wide_part_of(const T *x, int64_t count) {
    const int64_t before = (int64_t)((uintptr_t)x % RT_VECTOR_BYTES / sizeof(T)), lead = before ? N - before : 0;
    const int64_t first = lead < count ? lead : count;
    return {first, first + (count - first) / N * N};
}

/* Calls body(i) for the thread's share of the elements outside that part. */
template <class F> static inline __device__ void rt_each_beside(const rt_wide_part &wide, int64_t count, F body) {
    for (int64_t i = threadIdx.x; i < wide.first; i += blockDim.x) body(i);
    for (int64_t i = wide.end + threadIdx.x; i < count; i += blockDim.x) body(i);
}

/* Calls body(i, x[i]) for the thread's share of a row of `count` elements. */
template <int N, class T, class F> static inline __device__ void rt_each(const T *x, int64_t count, F body) {
    const rt_wide_part wide = rt_wide_part_of<N>(x, count);
    rt_each_beside(wide, count, [&](int64_t i) { body(i, x[i]); });
    RT_EACH_VECTOR(i, wide.end - wide.first, N) {
        const rt_vector<T, N> vector = rt_get_vector<N>(x + wide.first + i);
#pragma unroll
        for (int lane = 0; lane < N; lane++) body(wide.first + i + lane, vector.at[lane]);
    }
}

#define RT_WIDTH(T) ((int)(RT_VECTOR_BYTES / sizeof(T))) /* elements in an access */

/* True if contiguous rows of `count` elements of T at these addresses can be accessed RT_WIDTH(T) elements at a
 * time. Not in a graph for a bucket of lengths, of which `count` may be one. */
template <class T>
static inline bool rt_is_wide(struct rt *rt, int64_t count, std::initializer_list<const void *> places) {
    bool wide = count % RT_WIDTH(T) == 0 && !rt_cuda_of(rt)->note;
    for (const void *place : places) wide = wide && (uintptr_t)place % RT_VECTOR_BYTES == 0;
    return wide;
}

/* Accumulation type of T. */
template <class T> struct rt_sum_type;
template <> struct rt_sum_type<float> { using type = float; };
template <> struct rt_sum_type<double> { using type = double; };
template <> struct rt_sum_type<int64_t> { using type = uint64_t; }; /* wraps */
template <> struct rt_sum_type<int32_t> { using type = uint32_t; };

static inline __device__ float rt_tanh_of(float x) {
    return rt_tanh_f32(x);
}
static inline __device__ double rt_tanh_of(double x) {
    return rt_tanh_f64(x);
}
static inline __device__ float rt_exp_of(float x) {
    return rt_exp_f32(x);
}
static inline __device__ double rt_exp_of(double x) {
    return rt_exp_f64(x);
}

/* A 16-bit float with conversions to and from f32. */
struct rt_element_bf16 {
    uint16_t bits;
    rt_element_bf16() = default;
    explicit __device__ rt_element_bf16(float x) : bits(rt_f32_to_bf16(x)) {}
    __device__ operator float() const { return rt_bf16_to_f32(bits); }
};
struct rt_element_fp16 {
    uint16_t bits;
    rt_element_fp16() = default;
    explicit __device__ rt_element_fp16(float x) : bits(rt_f32_to_f16(x)) {}
    __device__ operator float() const { return rt_f16_to_f32(bits); }
};
template <> struct rt_sum_type<rt_element_bf16> { using type = float; };
template <> struct rt_sum_type<rt_element_fp16> { using type = float; };

/* True for NaN; false for all integers. */
template <class T> static inline __host__ __device__ bool rt_is_nan(T x) {
    return x != x;
}

/* Element types, by suffix: `type` in generated programs, `element` the same bytes with conversions to numbers, `sum`
 * that of accumulation. */
template <class T>
inline constexpr rt_dtype rt_dtype_of = std::is_floating_point_v<T> ? (sizeof(T) == 8 ? RT_F64 : RT_F32)
                                                                    : (sizeof(T) == 8 ? RT_I64 : RT_I32);

template <class T> struct rt_plain {
    using type = T;
    using element = T;
    using sum = typename rt_sum_type<T>::type;
    static constexpr enum rt_dtype dtype = rt_dtype_of<T>;
    static __device__ sum load(T x) { return (sum)x; }
    static __device__ T store(sum x) { return (T)x; }
};
template <class T, rt_dtype id> struct rt_half {
    using type = uint16_t;
    using element = T;
    using sum = float;
    static constexpr enum rt_dtype dtype = id;
    static __device__ float load(uint16_t x) {
        T element;
        element.bits = x;
        return element;
    }
    static __device__ uint16_t store(float x) { return T(x).bits; }
};
using rt_f32 = rt_plain<float>;
using rt_f64 = rt_plain<double>;
using rt_i64 = rt_plain<int64_t>;
using rt_i32 = rt_plain<int32_t>;
struct rt_bf16 : rt_half<rt_element_bf16, RT_BF16> {};
struct rt_fp16 : rt_half<rt_element_fp16, RT_F16> {};

/* A function that is compiled only if it is called. */
#define RT_ON_CALL template <int used = 0> static inline

/* RT_NAME(rt_det_f32, rt_det<float>): a call of rt_det_f32 is one of that instance of an RT_FAMILY of functions, which
 * is compiled only then. */
#define RT_FAMILY [[maybe_unused]] static inline
template <class Instance> struct rt_name {
    using function = typename Instance::function;
    operator function() const { return Instance::template at<0>(); }
};
#define RT_NAME(name, ...)                                                                                             \
    struct name##_instance {                                                                                           \
        using function = decltype(&__VA_ARGS__);                                                                       \
        template <int used> static function at() { return __VA_ARGS__; }                                               \
    };                                                                                                                 \
    inline constexpr rt_name<name##_instance> name = {};

#endif
