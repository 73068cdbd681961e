/* The toolkit's header as far as programs of rankc use it, on a CPU: so their kernels run, and their numbers are
 * checked, where there is no GPU.
 *
 * The memory of the device is the process'. A launch runs its blocks one after the other; the threads of a block are
 * coroutines of the calling thread, which __syncthreads lets run on in turn, once forwards and once backwards: what
 * depends on an order that a GPU does not promise shows. What a warp does together (shuffles, products of tiles) its
 * threads meet for. Streams are in streams.h. */
#ifndef TESTS_CUDA_RUNTIME_H
#define TESTS_CUDA_RUNTIME_H

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/* Sources of ranks (rank_*.cu) declare these functions; device.cu, which every program has once, defines them
 * (device.h). The compiler takes longer for them than for the kernels of a rank. In other sources they are inline. */
#if defined STAND_IN_RANK || defined STAND_IN_DEVICE
#define STAND_IN
#else
#define STAND_IN inline
#endif

namespace host {
struct stream;
struct event;
struct graph;
} /* namespace host */

typedef host::stream *cudaStream_t;
typedef host::event *cudaEvent_t;
typedef host::graph *cudaGraph_t;
typedef host::graph *cudaGraphExec_t;

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static thread_local

using std::isinf;
using std::isnan;

struct uint4 {
    uint32_t x, y, z, w;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline thread_local constinit dim3 threadIdx, blockIdx, blockDim, gridDim;

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorNotReady,
    cudaErrorStreamCaptureInvalidated
};
STAND_IN const char *cudaGetErrorString(cudaError_t error);
STAND_IN cudaError_t cudaGetLastError();

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

/* --- Blocks --- */

namespace host {

enum { STACK = 64 << 10, MOST_THREADS = 1024, WARP = 32 };

/* A kernel with its arguments; every thread calls run_thread(). std::function would do, but makes the compiler generate
 * some twenty functions for every kernel. */
struct kernel_body {
    virtual void run_thread() const = 0;
    virtual ~kernel_body() = default;
};
template <class F> struct kernel_body_of final : kernel_body {
    F call;
    explicit kernel_body_of(F call) : call(call) {}
    void run_thread() const override { call(); }
};

/* Where a coroutine goes on that is not running: the top of its stack, or its registers. */
#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define SWITCHES_STACKS
typedef void *place;
#else
typedef ucontext_t place;
#endif

struct coroutine;

typedef float floats4 __attribute__((vector_size(16)));

/* What the threads of a warp do together. They meet for it, and what a thread shows to the others it writes to one of
 * two places in turn: at the next meeting others may still read what they were shown at this one. */
struct warp {
    unsigned here, met; /* threads that wait for the others; meetings that were */
    struct {
        uint32_t lent[WARP][2];
        float a[16][16]; /* of a product of tiles */
        floats4 b[16][2], sum[16][2];
    } shown[2];
};

/* The block that this thread of the process executes. It has no constructor and no destructor: with either, every
 * access would call a function that initializes it. */
struct block {
    place scheduler;
    coroutine *coroutines;
    bool done[MOST_THREADS];
    unsigned current, threads;
    unsigned alive, waiting, barriers; /* of the barrier under way; barriers before it */
    unsigned step;                     /* to the thread that runs next: 1, or -1 backwards */
    warp warps[MOST_THREADS / WARP];
    bool any;                      /* thread of the block has voted yes */
    unsigned groups[MOST_THREADS]; /* of copies that it has closed */
    const kernel_body *body;
};
inline thread_local constinit block at = {};

STAND_IN void meet_warp();
STAND_IN void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float (*wide)(uint16_t));
STAND_IN void load_matrices(uint32_t (&to)[4], const void *line, bool transposed);
STAND_IN void copy_begin(void *to, const void *from, bool there);
STAND_IN void copies_group();
STAND_IN void copies_wait(unsigned left);
STAND_IN cudaError_t launch(const cudaLaunchConfig_t *config, const kernel_body *body);

} /* namespace host */

STAND_IN void __syncthreads();
STAND_IN int __syncthreads_or(int mine);
STAND_IN void __syncwarp(unsigned = ~0u);

namespace host {

/* What the thread `lane` of the warp gives for its value. */
template <class T> T exchange(T value, unsigned lane) {
    warp &mine = at.warps[at.current / WARP];
    auto &lent = mine.shown[mine.met % 2].lent;
    static_assert(sizeof value <= sizeof lent[0], "small enough to be lent");
    memcpy(lent[at.current % WARP], &value, sizeof value);
    meet_warp();
    memcpy(&value, lent[lane % WARP], sizeof value);
    return value;
}

} /* namespace host */

template <class T> T __shfl_xor_sync(unsigned, T value, int far) {
    return host::exchange(value, host::at.current ^ (unsigned)far);
}

template <class T> T __shfl_sync(unsigned, T value, int from) {
    return host::exchange(value, (unsigned)from);
}

STAND_IN unsigned atomicMax(unsigned *at, unsigned value);
STAND_IN int atomicCAS(int *at, int expected, int value);

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A... arguments) {
    const auto call = [=] { kernel(arguments...); };
    return host::launch(config, new host::kernel_body_of<decltype(call)>(call));
}

/* --- Memory, streams, graphs: as far as the runtime uses them --- */

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
#define cudaStreamLegacy ((cudaStream_t)0x1)
enum { cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped };
enum { cudaStreamNonBlocking, cudaEventDisableTiming, cudaEventDefault };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };

STAND_IN cudaError_t cudaGetDeviceCount(int *count);
STAND_IN cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int);
STAND_IN cudaError_t cudaSetDevice(int);
STAND_IN cudaError_t cudaGetDevice(int *number);
STAND_IN cudaError_t cudaMalloc(void **out, size_t bytes);
STAND_IN cudaError_t cudaFree(void *memory);
STAND_IN cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned);
STAND_IN cudaError_t cudaFreeHost(void *memory);
STAND_IN cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                                     cudaStream_t stream);
STAND_IN cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
STAND_IN cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
STAND_IN cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int priority);
STAND_IN cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
STAND_IN cudaError_t cudaStreamDestroy(cudaStream_t stream);
STAND_IN cudaError_t cudaStreamQuery(cudaStream_t stream);
STAND_IN cudaError_t cudaStreamSynchronize(cudaStream_t stream);
STAND_IN cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned);
STAND_IN cudaError_t cudaEventDestroy(cudaEvent_t event);
STAND_IN cudaError_t cudaEventQuery(cudaEvent_t event);
STAND_IN cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
STAND_IN cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
STAND_IN cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned);
STAND_IN cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode);
STAND_IN cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
STAND_IN cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
STAND_IN cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long);
STAND_IN cudaError_t cudaGraphDestroy(cudaGraph_t graph);
STAND_IN cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
STAND_IN cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);

#ifndef STAND_IN_RANK
#include "device.h"
#endif

#endif
