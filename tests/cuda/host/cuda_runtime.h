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
#include <functional>
#include <vector>

#include "streams.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static thread_local

using std::isinf;
using std::isnan;

struct uint4 {
    uint32_t x, y, z, w;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorNotReady,
    cudaErrorStreamCaptureInvalidated
};
inline const char *cudaGetErrorString(cudaError_t error) {
    static const char *const texts[] = {"no error", "invalid value", "out of memory", "not ready",
                                        "capture not permitted"};
    return texts[error];
}
inline cudaError_t cudaGetLastError() {
    return cudaSuccess;
}

/* --- Blocks --- */

namespace host {

enum { STACK = 64 << 10, MOST_THREADS = 1024, WARP = 32 };

/* 16 bytes that a thread has begun to copy; from nowhere: zeros. */
struct copy {
    void *to;
    const void *from;
    unsigned group;
};

/* The block under way on this thread of the process. */
struct block {
    ucontext_t scheduler, thread[MOST_THREADS];
    bool done[MOST_THREADS];
    char *stacks = nullptr;
    unsigned current = 0, threads = 0;
    unsigned alive, waiting, barriers;      /* of the barrier under way; barriers before it */
    unsigned met[MOST_THREADS / WARP];      /* how often threads of a warp came to meet */
    uint32_t lent[MOST_THREADS][6];         /* what a thread shows to its warp */
    bool any = false;                       /* thread of the block has voted yes */
    std::vector<copy> copies[MOST_THREADS]; /* that a thread has begun */
    unsigned groups[MOST_THREADS];          /* of copies that it has closed */
    const std::function<void()> *body = nullptr;
    ~block() { free(stacks); }
};
inline thread_local block at;

/* The barrier opens when all threads wait at it that have not ended. */
inline void open_barrier() {
    if (at.waiting < at.alive) return;
    at.waiting = 0;
    at.barriers++;
}

inline void run_thread() {
    (*at.body)();
    at.done[at.current] = true;
    at.alive--;
    open_barrier();
}

/* Lets the other threads run. */
inline void yield() {
    swapcontext(&at.thread[at.current], &at.scheduler);
}

/* All threads of the warp come here before one goes on. */
inline void meet_warp() {
    const unsigned warp = at.current / WARP, left = at.threads - warp * WARP,
                   lanes = left < WARP ? left : (unsigned)WARP;
    const unsigned enough = (at.met[warp]++ / lanes + 1) * lanes;
    while (at.met[warp] < enough) yield();
}

/* mma.sync.m16n8k16, whose fragments are pairs of 16-bit floats: sum += a b, each sum in order. */
inline void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float (*wide)(uint16_t)) {
    const unsigned lane = at.current % WARP, warp = at.current - lane;
    memcpy(at.lent[at.current], a, sizeof a);
    memcpy(at.lent[at.current] + 4, b, sizeof b);
    meet_warp();
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4, column = lane % 4 * 2 + i % 2;
        for (unsigned p = 0; p < 16; p++) {
            const unsigned pair = p % 8 / 2, shift = p % 2 * 16;
            const uint32_t left = at.lent[warp + row * 4 + pair][i / 2 + p / 8 * 2],
                           right = at.lent[warp + column * 4 + pair][4 + p / 8];
            sum[i] += wide((uint16_t)(left >> shift)) * wide((uint16_t)(right >> shift));
        }
    }
    meet_warp();
}

[[noreturn]] inline void refuse(const char *what) {
    fprintf(stderr, "stand-in of a GPU: %s\n", what);
    abort();
}

/* ldmatrix.x4: the thread's pairs of four matrices of 8 by 8 elements of 16 bits, each of whose lines one thread
 * names. */
inline void load_matrices(uint32_t (&to)[4], const void *line, bool transposed) {
    const unsigned lane = at.current % WARP, warp = at.current - lane, group = lane / 4, pair = lane % 4 * 2;
    if ((uintptr_t)line % 16) refuse("ldmatrix of a line that is not at a multiple of 16 bytes");
    memcpy(at.lent[at.current], &line, sizeof line);
    meet_warp();
    for (unsigned m = 0; m < 4; m++) {
        uint16_t both[2];
        for (unsigned i = 0; i < 2; i++) {
            const uint16_t *from;
            memcpy(&from, at.lent[warp + m * 8 + (transposed ? pair + i : group)], sizeof from);
            both[i] = from[transposed ? group : pair + i];
        }
        to[m] = both[0] | (uint32_t)both[1] << 16;
    }
    meet_warp();
}

/* cp.async: done as late as it may be, when it is waited for. */
inline void copy_begin(void *to, const void *from, bool there) {
    if (((uintptr_t)to | (uintptr_t)from) % 16) refuse("cp.async that is not at a multiple of 16 bytes");
    at.copies[at.current].push_back({to, there ? from : nullptr, at.groups[at.current]});
}
inline void copies_group() {
    at.groups[at.current]++;
}
inline void copies_wait(unsigned left) {
    std::vector<copy> still;
    for (const copy &c : at.copies[at.current])
        if (c.group + left >= at.groups[at.current])
            still.push_back(c);
        else if (c.from)
            memcpy(c.to, c.from, 16);
        else
            memset(c.to, 0, 16);
    at.copies[at.current].swap(still);
}

inline void switch_to(unsigned thread) {
    at.current = thread;
    threadIdx = dim3(thread);
    swapcontext(&at.scheduler, &at.thread[thread]);
}

inline void start(unsigned thread) {
    ucontext_t *context = &at.thread[thread];
    getcontext(context);
    context->uc_stack.ss_sp = at.stacks + (size_t)thread * STACK;
    context->uc_stack.ss_size = STACK;
    context->uc_link = &at.scheduler;
    makecontext(context, run_thread, 0);
    at.done[thread] = false;
}

/* Every thread up to its next barrier or its end, until all have ended. A thread alone has no barrier to wait at. */
inline void run_block(unsigned threads, const std::function<void()> &body) {
    threadIdx = dim3(0);
    if (threads == 1) return body();
    if (!at.stacks) at.stacks = (char *)malloc((size_t)MOST_THREADS * STACK);
    at.body = &body;
    at.threads = at.alive = threads;
    at.waiting = 0;
    memset(at.met, 0, sizeof at.met);
    at.any = false;
    for (unsigned t = 0; t < threads; t++) start(t);
    bool left = true;
    for (bool forwards = true; left; forwards = !forwards) {
        left = false;
        for (unsigned i = 0; i < threads; i++) {
            const unsigned t = forwards ? i : threads - 1 - i;
            if (!at.done[t]) switch_to(t);
            left = left || !at.done[t];
        }
    }
}

inline void run_grid(dim3 grid, dim3 threads, const std::function<void()> &body) {
    gridDim = grid;
    blockDim = threads;
    for (unsigned b = 0; b < grid.x; b++) {
        blockIdx = dim3(b);
        run_block(threads.x, body);
    }
}

inline cudaError_t submit(stream *to, std::function<void()> work) {
    to->submit([work] { return work(), true; });
    return cudaSuccess;
}

} /* namespace host */

inline void __syncthreads() {
    const unsigned before = host::at.barriers;
    host::at.waiting++;
    host::open_barrier();
    do host::yield();
    while (host::at.barriers == before);
}

inline int __syncthreads_or(int mine) {
    if (mine) host::at.any = true;
    __syncthreads();
    const bool any = host::at.any;
    __syncthreads();
    host::at.any = false;
    __syncthreads();
    return any;
}

inline void __syncwarp(unsigned = ~0u) {
    host::meet_warp();
}

template <class T> T __shfl_xor_sync(unsigned, T value, int far) {
    static_assert(sizeof value <= sizeof host::at.lent[0], "small enough to be lent");
    memcpy(host::at.lent[host::at.current], &value, sizeof value);
    host::meet_warp();
    memcpy(&value, host::at.lent[host::at.current ^ (unsigned)far], sizeof value);
    host::meet_warp();
    return value;
}

template <class T> T __shfl_sync(unsigned, T value, int from) {
    static_assert(sizeof value <= sizeof host::at.lent[0], "small enough to be lent");
    memcpy(host::at.lent[host::at.current], &value, sizeof value);
    host::meet_warp();
    memcpy(&value, host::at.lent[host::at.current / host::WARP * host::WARP + (unsigned)from % host::WARP],
           sizeof value);
    host::meet_warp();
    return value;
}

inline unsigned atomicMax(unsigned *at, unsigned value) {
    unsigned before = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (before < value &&
           !__atomic_compare_exchange_n(at, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return before;
}
inline int atomicCAS(int *at, int expected, int value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

typedef host::stream *cudaStream_t;
typedef host::event *cudaEvent_t;
typedef host::graph *cudaGraph_t;
typedef host::graph *cudaGraphExec_t;

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
};

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A... arguments) {
    const dim3 grid = config->gridDim, threads = config->blockDim;
    if (grid.x < 1 || threads.x < 1 || threads.x > host::MOST_THREADS) return cudaErrorInvalidValue;
    return host::submit(config->stream, [=] { host::run_grid(grid, threads, [&] { kernel(arguments...); }); });
}

/* --- Memory --- */

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaHostAllocDefault, cudaHostAllocMapped, cudaStreamNonBlocking, cudaEventDisableTiming };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };

inline cudaError_t cudaGetDeviceCount(int *count) {
    const char *said = getenv("HOST_GPUS");
    *count = said ? atoi(said) : 1;
    return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
/* Of a GPU of compute capability 9.0, or of what HOST_CAPABILITY says, such as 80. */
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    const char *text = getenv("HOST_CAPABILITY");
    const int capability = text ? atoi(text) : 90;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) {
    return cudaSuccess;
}
/* What is not written has no value that would do; what is written behind the end ends the program when it is freed. */
enum { GUARD = 4096, BEFORE = 256 };
inline cudaError_t cudaMalloc(void **out, size_t bytes) {
    char *memory = (char *)aligned_alloc(256, (BEFORE + bytes + GUARD + 255) / 256 * 256);
    if (!memory) return cudaErrorMemoryAllocation;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + BEFORE, 0xA5, bytes);
    memset(memory + BEFORE + bytes, 0x5A, GUARD);
    *out = memory + BEFORE;
    return cudaSuccess;
}
inline cudaError_t cudaFree(void *memory) {
    size_t bytes;
    if (!memory) return cudaSuccess;
    host::run_all(); /* it waits for the device */
    memcpy(&bytes, (char *)memory - BEFORE, sizeof bytes);
    for (size_t i = 0; i < GUARD; i++)
        if (((char *)memory)[bytes + i] != 0x5A) {
            fprintf(stderr, "%zu bytes behind an allocation of %zu were written to\n", i, bytes);
            abort();
        }
    free((char *)memory - BEFORE);
    return cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
    return cudaMalloc(out, bytes);
}
inline cudaError_t cudaFreeHost(void *memory) {
    return cudaFree(memory);
}
/* What is copied to the device is read at once, as the toolkit does with memory that is not pinned; the other way
 * late. */
inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (kind != cudaMemcpyHostToDevice) return host::submit(stream, [=] { memcpy(dst, src, bytes); });
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    const auto kept = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
    return host::submit(stream, [=] { memcpy(dst, kept->data(), bytes); });
}
inline cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    return host::submit(stream, [=] { memset(memory, value, bytes); });
}

/* --- Streams --- */

inline cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int priority) {
    *out = new host::stream(priority < 0);
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    host::run_all();
    delete stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    if (host::idle(stream)) return cudaSuccess;
    sched_yield(); /* to the processes that it may need */
    return cudaErrorNotReady;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    while (!host::idle(stream)) sched_yield();
    return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned) {
    *out = new host::event;
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    host::record(event, stream);
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return host::wait(stream, event) ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    host::begin_capture(stream);
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    *out = stream->captured ? host::end_capture(stream) : nullptr;
    return *out ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    *out = graph ? new host::graph(*graph) : nullptr;
    return graph ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete graph;
    return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    host::launch(*graph, stream);
    return cudaSuccess;
}

#endif
