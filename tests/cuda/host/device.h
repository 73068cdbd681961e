/* The functions that cuda_runtime.h declares: blocks of threads that are coroutines, memory, and streams by
 * streams.h. */
#ifndef TESTS_CUDA_DEVICE_H
#define TESTS_CUDA_DEVICE_H

#include "cuda_runtime.h"
#include "streams.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

/* Tests compile programs with -O0; these functions run for every thread of every kernel. */
#pragma GCC push_options
#pragma GCC optimize("O1")

STAND_IN const char *cudaGetErrorString(cudaError_t error) {
    static const char *const texts[] = {"no error", "invalid value", "out of memory", "not ready",
                                        "capture not permitted"};
    return texts[error];
}
STAND_IN cudaError_t cudaGetLastError() {
    return cudaSuccess;
}

/* --- Blocks --- */

namespace host {

/* Adds a line to the file HOST_LOG: what tests count. */
inline void log(const char *what) {
    const char *path = getenv("HOST_LOG");
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (file) fprintf(file, "%s\n", what), fclose(file);
}

/* 16 bytes that a thread has begun to copy; from nowhere: zeros. */
struct copy {
    void *to;
    const void *from;
    unsigned group;
};

/* Switches between coroutines: swapcontext makes a system call each time, to set the signal mask, but sanitizers
 * understand nothing else. On x86-64 the registers that a call keeps are kept on the stack. */
#if defined SWITCHES_STACKS
__attribute__((naked, noinline)) inline void go(place &, place &) {
    asm("push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov (%rsi), %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret");
}
#else
inline void go(place &from, place &to) {
    swapcontext(&from, &to);
}
#endif

/* A thread of a block. The coroutine is started once and executes that thread of every block. */
struct coroutine {
    bool begun = false;
    place left_at;
    std::vector<copy> copies;
    alignas(16) char stack[STACK];
};

/* The barrier opens when all threads wait at it that have not ended. */
inline void open_barrier() {
    if (at.waiting < at.alive) return;
    at.waiting = 0;
    at.barriers++;
}

void run_thread();

/* Lets the coroutine begin with run_thread when it is switched to. */
inline void prepare(coroutine &to) {
    to.begun = true;
#if defined SWITCHES_STACKS
    uintptr_t *top = (uintptr_t *)(to.stack + STACK);
    *--top = 0; /* where run_thread would return to; its stack begins as after a call */
    *--top = (uintptr_t)run_thread;
    for (int kept = 0; kept < 6; kept++) *--top = 0;
    to.left_at = top;
#else
    getcontext(&to.left_at);
    to.left_at.uc_stack.ss_sp = to.stack;
    to.left_at.uc_stack.ss_size = STACK;
    to.left_at.uc_link = nullptr;
    makecontext(&to.left_at, run_thread, 0);
#endif
}

/* The next thread of this round that has not ended, or `threads`. */
inline unsigned next_thread(unsigned thread) {
    while (thread < at.threads && at.done[thread]) thread += at.step;
    return thread < at.threads ? thread : at.threads;
}

/* Lets the next thread run until it yields or has ended, or the scheduler where the round ends. */
inline void go_on(place &from, unsigned thread) {
    if (thread == at.threads) return go(from, at.scheduler);
    coroutine &to = at.coroutines[thread];
    at.current = thread;
    threadIdx.x = thread;
    if (!to.begun) prepare(to);
    go(from, to.left_at);
}

/* Lets the other threads run. */
inline void yield() {
    go_on(at.coroutines[at.current].left_at, next_thread(at.current + at.step));
}

/* The function of every coroutine: executes the body of one block after the other. */
inline void run_thread() {
    for (;;) {
        at.body->run_thread();
        at.done[at.current] = true;
        at.alive--;
        open_barrier();
        yield();
    }
}

/* The threads of a warp: the last one of a block may have fewer. */
inline unsigned lanes_of(unsigned number) {
    const unsigned left = at.threads - number * WARP;
    return left < WARP ? left : (unsigned)WARP;
}

/* All threads of the warp come here before one goes on. */
STAND_IN void meet_warp() {
    warp &mine = at.warps[at.current / WARP];
    const unsigned before = mine.met;
    if (++mine.here == lanes_of(at.current / WARP)) {
        mine.here = 0;
        mine.met++;
    }
    while (mine.met == before) yield();
}

/* mma.sync.m16n8k16, whose fragments are pairs of 16-bit floats: sum += a b, each sum in order. The last thread that
 * comes computes for all. */
STAND_IN void mma_m16n8k16(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float (*wide)(uint16_t)) {
    const unsigned lane = at.current % WARP, row = lane / 4, pair = lane % 4 * 2;
    warp &mine = at.warps[at.current / WARP];
    auto &tiles = mine.shown[mine.met % 2];
    float *const mine_of_sum[] = {(float *)tiles.sum[row] + pair, (float *)tiles.sum[row + 8] + pair};
    for (unsigned i = 0; i < 4; i++) {
        float *const at_a = tiles.a[row + i % 2 * 8] + pair + i / 2 * 8;
        at_a[0] = wide((uint16_t)a[i]), at_a[1] = wide((uint16_t)(a[i] >> 16));
        mine_of_sum[i / 2][i % 2] = sum[i];
    }
    for (unsigned i = 0; i < 2; i++) {
        float *const at_b = (float *)tiles.b[pair + i * 8] + row;
        at_b[0] = wide((uint16_t)b[i]), at_b[8] = wide((uint16_t)(b[i] >> 16));
    }
    if (mine.here + 1 == lanes_of(at.current / WARP))
        for (unsigned m = 0; m < 16; m++) {
            floats4 left = tiles.sum[m][0], right = tiles.sum[m][1];
            for (unsigned p = 0; p < 16; p++)
                left += tiles.a[m][p] * tiles.b[p][0], right += tiles.a[m][p] * tiles.b[p][1];
            tiles.sum[m][0] = left, tiles.sum[m][1] = right;
        }
    meet_warp();
    for (unsigned i = 0; i < 4; i++) sum[i] = mine_of_sum[i / 2][i % 2];
}

[[noreturn]] inline void refuse(const char *what) {
    fprintf(stderr, "stand-in of a GPU: %s\n", what);
    abort();
}

/* ldmatrix.x4: the thread's pairs of four matrices of 8 by 8 elements of 16 bits, each of whose lines one thread
 * names. */
STAND_IN void load_matrices(uint32_t (&to)[4], const void *line, bool transposed) {
    const unsigned lane = at.current % WARP, group = lane / 4, pair = lane % 4 * 2;
    warp &mine = at.warps[at.current / WARP];
    auto &lent = mine.shown[mine.met % 2].lent;
    if ((uintptr_t)line % 16) refuse("ldmatrix of a line that is not at a multiple of 16 bytes");
    memcpy(lent[lane], &line, sizeof line);
    meet_warp();
    for (unsigned m = 0; m < 4; m++) {
        uint16_t both[2];
        for (unsigned i = 0; i < 2; i++) {
            const uint16_t *from;
            memcpy(&from, lent[m * 8 + (transposed ? pair + i : group)], sizeof from);
            both[i] = from[transposed ? group : pair + i];
        }
        to[m] = both[0] | (uint32_t)both[1] << 16;
    }
}

/* cp.async: done as late as it may be, when it is waited for. */
STAND_IN void copy_begin(void *to, const void *from, bool there) {
    if (((uintptr_t)to | (uintptr_t)from) % 16) refuse("cp.async that is not at a multiple of 16 bytes");
    at.coroutines[at.current].copies.push_back({to, there ? from : nullptr, at.groups[at.current]});
}
STAND_IN void copies_group() {
    at.groups[at.current]++;
}
STAND_IN void copies_wait(unsigned left) {
    std::vector<copy> still;
    for (const copy &c : at.coroutines[at.current].copies)
        if (c.group + left >= at.groups[at.current])
            still.push_back(c);
        else if (c.from)
            memcpy(c.to, c.from, 16);
        else
            memset(c.to, 0, 16);
    at.coroutines[at.current].copies.swap(still);
}

/* Every thread up to its next barrier or its end, until all have ended. A thread alone has no barrier to wait at. */
inline void run_block(unsigned threads, const kernel_body &body) {
    threadIdx = dim3(0);
    if (threads == 1) return body.run_thread();
    if (!at.coroutines) {
        static thread_local std::unique_ptr<coroutine[]> owned(new coroutine[MOST_THREADS]);
        at.coroutines = owned.get();
    }
    at.body = &body;
    at.threads = at.alive = threads;
    at.waiting = 0;
    for (unsigned i = 0; i * WARP < threads; i++) at.warps[i].here = 0;
    at.any = false;
    memset(at.done, 0, threads * sizeof at.done[0]);
    for (at.step = 1; at.alive; at.step = 0 - at.step) go_on(at.scheduler, next_thread(at.step == 1 ? 0 : threads - 1));
}

inline void run_grid(dim3 grid, dim3 threads, const kernel_body &body) {
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

STAND_IN cudaError_t launch(const cudaLaunchConfig_t *config, const kernel_body *body) {
    const std::shared_ptr<const kernel_body> owned(body);
    const dim3 grid = config->gridDim, threads = config->blockDim;
    if (grid.x < 1 || threads.x < 1 || threads.x > MOST_THREADS) return cudaErrorInvalidValue;
    log("kernel");
    return submit(config->stream, [=] { run_grid(grid, threads, *owned); });
}

} /* namespace host */

STAND_IN void __syncthreads() {
    const unsigned before = host::at.barriers;
    host::at.waiting++;
    host::open_barrier();
    do host::yield();
    while (host::at.barriers == before);
}

STAND_IN int __syncthreads_or(int mine) {
    if (mine) host::at.any = true;
    __syncthreads();
    const bool any = host::at.any;
    __syncthreads();
    host::at.any = false;
    __syncthreads();
    return any;
}

STAND_IN void __syncwarp(unsigned) {
    host::meet_warp();
}

STAND_IN unsigned atomicMax(unsigned *at, unsigned value) {
    unsigned before = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (before < value &&
           !__atomic_compare_exchange_n(at, &before, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return before;
}
STAND_IN int atomicCAS(int *at, int expected, int value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

/* --- Memory --- */

STAND_IN cudaError_t cudaGetDeviceCount(int *count) {
    const char *said = getenv("HOST_GPUS");
    *count = said ? atoi(said) : 1;
    return cudaSuccess;
}
/* Of a GPU of compute capability 9.0, or of what HOST_CAPABILITY says, such as 80. */
STAND_IN cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    const char *text = getenv("HOST_CAPABILITY");
    const int capability = text ? atoi(text) : 90;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaSetDevice(int) {
    return cudaSuccess;
}
STAND_IN cudaError_t cudaGetDevice(int *number) {
    *number = 0;
    return cudaSuccess;
}
/* What is not written has no value that would do; what is written behind the end ends the program when it is freed. */
enum { GUARD = 4096, BEFORE = 256 };
namespace host {
struct allocations {
    std::mutex lock;
    std::map<const char *, size_t> bytes;
};
inline allocations &live() {
    static allocations *made = new allocations; /* used by threads until the program ends */
    return *made;
}
/* Bytes from `memory` to the end of its allocation, of the device's memory or pinned; -1: it is in none. */
inline int64_t bytes_behind(const void *memory) {
    const std::lock_guard<std::mutex> hold(live().lock);
    const auto after = live().bytes.upper_bound((const char *)memory);
    if (after == live().bytes.begin()) return -1;
    const auto &[start, size] = *std::prev(after);
    const int64_t left = start + size - (const char *)memory;
    return left > 0 ? left : -1;
}
/* False for memory that begins in an allocation and ends behind it. */
inline bool is_within(const void *memory, size_t bytes) {
    const int64_t left = bytes_behind(memory);
    return left < 0 || bytes <= (size_t)left;
}
/* Appends the bytes of an allocation to the file that ALLOCATIONS names. */
inline cudaError_t report(cudaError_t error, const char *kind, size_t bytes) {
    FILE *file = error == cudaSuccess && getenv("ALLOCATIONS") ? fopen(getenv("ALLOCATIONS"), "a") : NULL;
    if (!file) return error;
    fprintf(file, "%s %zu\n", kind, bytes);
    fclose(file);
    return error;
}
inline cudaError_t allocate(void **out, size_t bytes) {
    char *memory = (char *)aligned_alloc(256, (BEFORE + bytes + GUARD + 255) / 256 * 256);
    if (!memory) return cudaErrorMemoryAllocation;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + BEFORE, 0xA5, bytes);
    memset(memory + BEFORE + bytes, 0x5A, GUARD);
    *out = memory + BEFORE;
    const std::lock_guard<std::mutex> hold(host::live().lock);
    host::live().bytes[memory + BEFORE] = bytes;
    return cudaSuccess;
}
} // namespace host
STAND_IN cudaError_t cudaMalloc(void **out, size_t bytes) {
    return host::report(host::allocate(out, bytes), "device", bytes);
}
STAND_IN cudaError_t cudaFree(void *memory) {
    size_t bytes;
    if (!memory) return cudaSuccess;
    host::run_all(); /* it waits for the device */
    memcpy(&bytes, (char *)memory - BEFORE, sizeof bytes);
    for (size_t i = 0; i < GUARD; i++)
        if (((char *)memory)[bytes + i] != 0x5A) {
            fprintf(stderr, "%zu bytes behind an allocation of %zu were written to\n", i, bytes);
            abort();
        }
    {
        const std::lock_guard<std::mutex> hold(host::live().lock);
        host::live().bytes.erase((char *)memory);
    }
    free((char *)memory - BEFORE);
    return cudaSuccess;
}
STAND_IN cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned) {
    return host::report(host::allocate(out, bytes), "pinned", bytes);
}
STAND_IN cudaError_t cudaFreeHost(void *memory) {
    return cudaFree(memory);
}
/* What is copied to the device is read at once, as the toolkit does with memory that is not pinned; the other way
 * late. */
STAND_IN cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                                     cudaStream_t stream) {
    if (!host::is_within(dst, bytes) || !host::is_within(src, bytes)) return cudaErrorInvalidValue;
    if (kind != cudaMemcpyHostToDevice && (kind != cudaMemcpyDefault || host::bytes_behind(src) >= 0))
        return host::submit(stream, [=] { memcpy(dst, src, bytes); });
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    const auto kept = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
    return host::submit(stream, [=] { memcpy(dst, kept->data(), bytes); });
}
STAND_IN cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    if (!host::is_within(memory, bytes)) return cudaErrorInvalidValue;
    return host::submit(stream, [=] { memset(memory, value, bytes); });
}

/* --- Streams --- */

STAND_IN cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int priority) {
    *out = new host::stream(priority < 0);
    return cudaSuccess;
}
STAND_IN cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}
STAND_IN cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    host::run_all();
    delete stream;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    if (host::idle(stream)) return cudaSuccess;
    sched_yield(); /* to the processes that it may need */
    return cudaErrorNotReady;
}
STAND_IN cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    host::log("wait");
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    while (!host::idle(stream)) sched_yield();
    return cudaSuccess;
}
STAND_IN cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned) {
    *out = new host::event;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    host::record(event, stream);
    return cudaSuccess;
}
STAND_IN cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (event->last && !event->last->done) host::run_all();
    return !event->last || event->last->done ? cudaSuccess : (sched_yield(), cudaErrorNotReady);
}
STAND_IN cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->last || !to->last) return cudaErrorInvalidValue;
    if (!from->last->done || !to->last->done) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(to->last->time - from->last->time).count();
    return cudaSuccess;
}
STAND_IN cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return host::wait(stream, event) ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

STAND_IN cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    host::begin_capture(stream);
    return cudaSuccess;
}
STAND_IN cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    *out = stream->captured ? host::end_capture(stream) : nullptr;
    return *out ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}
STAND_IN cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    *status = stream->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    *out = graph ? new host::graph(*graph) : nullptr;
    host::log("graph");
    return graph ? cudaSuccess : cudaErrorInvalidValue;
}
STAND_IN cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete graph;
    return cudaSuccess;
}
STAND_IN cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    if (stream->captured) return cudaErrorStreamCaptureInvalidated;
    host::launch(*graph, stream);
    return cudaSuccess;
}

#pragma GCC pop_options

#endif
