/* rt_cuda: arenas in a GPU's memory, phases as CUDA graphs. Compiled with every program, for its GPUs; the transports and the
 * library of products are part of it.
 *
 * Note [Graphs]
 * A phase is captured when it is executed for the first time, and replayed from then on: its launches are always the same, on
 * the same addresses. What differs from step to step is data: inputs and controls are copied to their places before it. Where
 * units train together, which gradients are summed differs too (runtime/sums.c): those phases are launched each time. */
#include "device.cuh"

#include "comm_loopback.cuh"
#include "comm_nccl.cuh"
#include "library.cuh"

static rt_cuda_private *own_of(struct rt *rt) {
    return rt_cuda_of(rt)->own;
}

/* Opening */

/* Ranks of one process share its memory. */
static int ask_threads(struct rt *rt, struct rt_comm *host, bool *threads) {
    int64_t least, most, mine = (int64_t)getpid();
    int status = host->driver->all_reduce(host, &least, &mine, 1, RT_I64, RT_MIN);
    if (!status) status = host->driver->all_reduce(host, &most, &mine, 1, RT_I64, RT_MAX);
    if (status) return rt_fail_comm(rt, host, status);
    *threads = least == most;
    return RT_OK;
}

/* Ranks that are threads share the first GPU; others have one each, by their number on the machine. */
static int choose_gpu(struct rt *rt, int count) {
    bool threads = false;
    RT_TRY(ask_threads(rt, rt->comm, &threads));
    own_of(rt)->number = threads ? 0 : rt_local_rank(rt);
    if (own_of(rt)->number >= 0 && own_of(rt)->number < count) return RT_OK;
    return rt_fail(rt, RT_ERROR_DEVICE, "rank %d needs a GPU of its own, and there are %d; --comm loopback shares one",
                   rt->rank, count);
}

static int open_gpu(struct rt *rt) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count < 1)
        return rt_fail(rt, RT_ERROR_DEVICE, "this program needs a GPU, and there is none: %s",
                       error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists no device");
    RT_TRY(choose_gpu(rt, count));
    RT_CUDA_TRY(rt, cudaSetDevice(own_of(rt)->number));
    RT_CUDA_TRY(rt, cudaStreamCreateWithFlags(&rt_cuda_of(rt)->stream, cudaStreamNonBlocking));
    RT_CUDA_TRY(rt, cudaHostAlloc((void **)&rt_cuda_of(rt)->fault, sizeof(rt_fault), cudaHostAllocMapped));
    RT_CUDA_TRY(rt, cudaHostAlloc((void **)&own_of(rt)->mailbox, RT_MAIL * sizeof(double), cudaHostAllocDefault));
    memset(rt_cuda_of(rt)->fault, 0, sizeof(rt_fault));
    return rt_cuda_open_library(rt);
}

static int open_device(struct rt *rt) {
    rt_cuda *cuda = (rt_cuda *)calloc(1, sizeof *cuda);
    if (cuda) cuda->own = (rt_cuda_private *)calloc(1, sizeof *cuda->own);
    rt->device = cuda;
    if (!cuda || !cuda->own) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    return open_gpu(rt);
}

static void close_device(struct rt *rt) {
    rt_cuda *cuda = rt_cuda_of(rt);
    if (cuda && cuda->own) {
        for (int i = 0; i < RT_PHASES; i++)
            if (cuda->own->graphs[i].exec) cudaGraphExecDestroy(cuda->own->graphs[i].exec);
        rt_cuda_close_nccl(rt);
        rt_cuda_close_library(rt);
        cudaFreeHost(cuda->own->mailbox);
        cudaFreeHost(cuda->fault);
        if (cuda->stream) cudaStreamDestroy(cuda->stream);
        free(cuda->own);
    }
    free(cuda);
    rt->device = NULL;
}

/* Memory */

static void *allocate(struct rt *rt, enum rt_arena, size_t bytes) {
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        cudaGetLastError(); /* is not of what follows */
        return NULL;
    }
    cudaMemsetAsync(memory, 0, bytes, rt_cuda_of(rt)->stream);
    return memory;
}

static void release(struct rt *, void *memory, size_t) {
    cudaFree(memory);
}

static int put(struct rt *rt, void *dst, const void *src, size_t bytes) {
    RT_CUDA_TRY(rt, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, rt_cuda_of(rt)->stream));
    return RT_OK;
}

/* The stream has done all it was given. */
static int drain(struct rt *rt) {
    rt_cuda_private *own = own_of(rt);
    RT_CUDA_TRY(rt, cudaStreamSynchronize(rt_cuda_of(rt)->stream));
    for (int i = 0; i < own->nmail; i++) memcpy(own->mail[i].to, &own->mailbox[i], own->mail[i].bytes);
    own->nmail = 0;
    return RT_OK;
}

static int get(struct rt *rt, void *dst, const void *src, size_t bytes) {
    rt_cuda_private *own = own_of(rt);
    void *to = dst;
    if (own->nmail == RT_MAIL) RT_TRY(drain(rt));
    if (bytes <= sizeof *own->mailbox) {
        to = &own->mailbox[own->nmail];
        own->mail[own->nmail++] = {dst, bytes};
    }
    RT_CUDA_TRY(rt, cudaMemcpyAsync(to, src, bytes, cudaMemcpyDeviceToHost, rt_cuda_of(rt)->stream));
    return RT_OK;
}

static int zero(struct rt *rt, void *memory, size_t bytes) {
    RT_CUDA_TRY(rt, cudaMemsetAsync(memory, 0, bytes, rt_cuda_of(rt)->stream));
    return RT_OK;
}

/* Rows in units of T, which divides all their numbers. */
template <class T> static int copy_units(struct rt *rt, const struct rt_copies &given) {
    const struct rt_copies rows = given;
    const int64_t units = (int64_t)(rows.bytes / sizeof(T));
    return rt_points(rt, rows.count[0] * rows.count[1] * rows.count[2] * units, [=] __device__(int64_t p) {
        int64_t row = p, to = 0, from = 0;
        const int64_t i = row % units;
        row /= units;
        for (int d = 2; d >= 0; d--) {
            to += row % rows.count[d] * rows.to_stride[d];
            from += row % rows.count[d] * rows.from_stride[d];
            row /= rows.count[d];
        }
        ((T *)((char *)rows.to + to))[i] = ((const T *)((const char *)rows.from + from))[i];
    });
}

static bool all_divide(const struct rt_copies *rows, int64_t unit) {
    uint64_t bits = (uint64_t)(uintptr_t)rows->to | (uint64_t)(uintptr_t)rows->from | rows->bytes;
    for (int d = 0; d < 3; d++)
        if (rows->count[d] > 1) bits |= (uint64_t)rows->to_stride[d] | (uint64_t)rows->from_stride[d];
    return bits % (uint64_t)unit == 0;
}

static int copy_rows(struct rt *rt, const struct rt_copies *rows) {
    if (rows->count[0] * rows->count[1] * rows->count[2] == 1)
        return rt_note(rt, cudaMemcpyAsync(rows->to, rows->from, rows->bytes, cudaMemcpyDeviceToDevice,
                                           rt_cuda_of(rt)->stream));
    if (all_divide(rows, sizeof(uint4))) return copy_units<uint4>(rt, *rows);
    if (all_divide(rows, sizeof(uint32_t))) return copy_units<uint32_t>(rt, *rows);
    return copy_units<unsigned char>(rt, *rows);
}

static int connect(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out) {
    bool threads = false;
    RT_TRY(ask_threads(rt, host, &threads));
    if (threads && host->size > 1) own_of(rt)->meets_host = true;
    return threads ? rt_cuda_open_loopback(rt, host, out) : rt_cuda_open_nccl(rt, host, color, out);
}

/* Phases */

/* Makes the launches of a phase. */
static int launch_phase(struct rt *rt, int (*phase)(struct rt *rt)) {
    rt_cuda *cuda = rt_cuda_of(rt);
    cuda->error = cudaSuccess;
    const int status = phase(rt);
    if (status || cuda->error == cudaSuccess) return status;
    return rt_fail_cuda(rt, cuda->error, "a kernel could not be launched");
}

static int capture(struct rt *rt, rt_cuda_graph *graph, int (*phase)(struct rt *rt)) {
    cudaStream_t stream = rt_cuda_of(rt)->stream;
    cudaGraph_t made = NULL;
    RT_CUDA_TRY(rt, cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    const int status = launch_phase(rt, phase);
    const cudaError_t error = cudaStreamEndCapture(stream, &made);
    if (status) return status;
    if (error != cudaSuccess) return rt_fail_cuda(rt, error, "a phase could not be captured");
    graph->phase = phase;
    const cudaError_t instantiated = cudaGraphInstantiate(&graph->exec, made, 0);
    cudaGraphDestroy(made);
    return instantiated == cudaSuccess ? RT_OK : rt_fail_cuda(rt, instantiated, "a phase's graph could not be made");
}

static int run(struct rt *rt, int (*phase)(struct rt *rt)) {
    rt_cuda_graph *graph = own_of(rt)->graphs;
    RT_CUDA_TRY(rt, cudaSetDevice(own_of(rt)->number));
    const bool varies = rt->program->training && rt->world > rt->program->plan_ngpus;
    if (own_of(rt)->meets_host || varies) return launch_phase(rt, phase);
    while (graph->exec && graph->phase != phase) graph++;
    if (!graph->exec) RT_TRY(capture(rt, graph, phase));
    RT_CUDA_TRY(rt, cudaGraphLaunch(graph->exec, rt_cuda_of(rt)->stream));
    return RT_OK;
}

static int report_fault(struct rt *rt) {
    rt_fault *at = rt_cuda_of(rt)->fault;
    const rt_fault fault = *at;
    if (fault.kind == RT_FAULT_NONE) return RT_OK;
    at->kind = RT_FAULT_NONE;
    rt->site = fault.site;
    if (fault.kind == RT_FAULT_CLASS)
        return rt_fail(rt, RT_ERROR_INPUT, "target %lld at position %lld is outside of the %lld classes", fault.value,
                       fault.position, fault.total);
    return rt_fail(rt, RT_ERROR_INPUT, "index %lld at position %lld is outside [-%lld, %lld)", fault.value,
                   fault.position, fault.total, fault.total);
}

static int finish(struct rt *rt) {
    RT_TRY(drain(rt));
    return report_fault(rt);
}

extern "C" const struct rt_device rt_cuda_device = {"cuda",
                                                    true,
                                                    open_device,
                                                    close_device,
                                                    allocate,
                                                    release,
                                                    put,
                                                    get,
                                                    zero,
                                                    copy_rows,
                                                    connect,
                                                    run,
                                                    finish};
