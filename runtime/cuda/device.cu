/* Device "cuda": arenas in a GPU's memory, segments as CUDA graphs. Compiled with every program for its GPUs, including
 * transports and library products.
 *
 * Note [Graphs]
 * A segment is captured at its first execution and replayed afterwards: its launches and addresses never change. What
 * differs from step to step is data: inputs and controls are copied to fixed addresses before it. Which sums
 * begin early (Note [Buckets] in runtime/core/sums.c) has a few variants; each is captured separately.
 *
 * If calls choose sizes (ir/open.h), launches are those of the sizes. A segment is launched when sizes occur for the
 * first time, since they may not occur again, and captured the second time. The graphs that were used last are kept.
 * A size that grows from step to step, as the rows of caches, counts as its bucket (Note [Growing sizes] in grow.cuh).
 *
 * If ranks are threads of one process, the host takes part in their communication. A segment is then several graphs,
 * divided at communication calls, which are recorded and repeated between the graphs at each replay. */
#define RT_GROWS 1 /* copies of the exchanges below are parts of segments */
#include "rank.cuh"

#include "comm_loopback.cuh"
#include "comm_nccl.cuh"
#include "cudnn.cuh"
#include "decode.cuh"
#include "held.cuh"
#include "library.cuh"
#include "marks.cuh"

#include <string.h>
#include <sys/random.h>

static rt_cuda_private *own_of(struct rt *rt) {
    return rt_cuda_of(rt)->own;
}

/* Identifies this process; ranks in containers may all have the same process number. */
static int64_t make_number(void) {
    int64_t number;
    return getrandom(&number, sizeof number, 0) == sizeof number ? number : (int64_t)getpid();
}

/* True if all ranks are threads of this process. */
static int ask_threads(struct rt *rt, struct rt_comm *host, bool *threads) {
    static const int64_t mine = make_number();
    int64_t least, most;
    int status = host->driver->all_reduce(host, &least, &mine, 1, RT_I64, RT_MIN);
    if (!status) status = host->driver->all_reduce(host, &most, &mine, 1, RT_I64, RT_MAX);
    if (status) return rt_fail_comm(rt, host, status);
    *threads = least == most;
    return RT_OK;
}

/* Selects the GPU: the current one of a caller who gives a stream or communicator. Otherwise ranks that are threads
 * share the first one, and others use the GPU with their number on the machine. */
static int choose_gpu(struct rt *rt, const struct rt_options *options, int count) {
    bool threads = false;
    RT_TRY(ask_threads(rt, rt->comm, &threads));
    if (options->nccl_comm || options->cuda_stream) {
        RT_CUDA_TRY(rt, cudaGetDevice(&own_of(rt)->number));
        return RT_OK;
    }
    own_of(rt)->number = threads ? 0 : rt_local_rank(rt);
    if (own_of(rt)->number >= 0 && own_of(rt)->number < count) return RT_OK;
    return rt_fail(rt, RT_ERROR_DEVICE,
                   "rank %d needs a GPU of its own, but there are only %d; with --comm loopback all ranks share one",
                   rt->rank, count);
}

/* The rank's main stream: the caller's, or one of its own. */
static int open_stream(struct rt *rt, const struct rt_options *options) {
    if (!options->cuda_stream) {
        RT_CUDA_TRY(rt, cudaStreamCreateWithFlags(&rt_cuda_of(rt)->stream, cudaStreamNonBlocking));
        return RT_OK;
    }
    const cudaStream_t given = *(const cudaStream_t *)options->cuda_stream;
    own_of(rt)->callers_stream = true;
    rt_cuda_of(rt)->stream = given;
    if (given && given != cudaStreamLegacy) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "the caller's stream is the legacy default stream, which cannot be captured");
}

static int open_gpu(struct rt *rt, const struct rt_options *options) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count < 1)
        return rt_fail(rt, RT_ERROR_DEVICE, "this program needs a GPU, but there is none: %s",
                       error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists no device");
    RT_TRY(choose_gpu(rt, options, count));
    RT_CUDA_TRY(rt, cudaSetDevice(own_of(rt)->number));
    RT_TRY(open_stream(rt, options));
    RT_CUDA_TRY(rt, cudaHostAlloc((void **)&rt_cuda_of(rt)->fault, sizeof(rt_fault), cudaHostAllocMapped));
    RT_CUDA_TRY(rt, cudaHostAlloc((void **)&own_of(rt)->mailbox, RT_MAIL * sizeof(double), cudaHostAllocDefault));
    memset(rt_cuda_of(rt)->fault, 0, sizeof(rt_fault));
    RT_TRY(rt_cuda_open_cudnn(rt));
    return rt_cuda_open_library(rt);
}

static int open_device(struct rt *rt, const struct rt_options *options) {
    rt_cuda *cuda = (rt_cuda *)calloc(1, sizeof *cuda);
    if (cuda) cuda->own = (rt_cuda_private *)calloc(1, sizeof *cuda->own);
    rt->device = cuda;
    if (!cuda || !cuda->own) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    cuda->own->callers_comm = options->nccl_comm;
    return open_gpu(rt, options);
}

static void free_pieces(rt_cuda_graph *graph) {
    for (rt_cuda_piece *piece = graph->first, *next; piece; piece = next) {
        next = piece->next;
        if (piece->exec) cudaGraphExecDestroy(piece->exec);
        free((void *)piece->call.send);
        free((void *)piece->call.receive);
        free(piece);
    }
    graph->first = NULL;
}

static void free_graph(rt_cuda_graph *graph) {
    free_pieces(graph);
    cudaFree(graph->block);
    free(graph);
}

void rt_cuda_forget_segments(struct rt *rt) {
    for (rt_cuda_graph *graph = own_of(rt)->graphs, *next; graph; graph = next) {
        next = graph->next;
        free_graph(graph);
    }
    own_of(rt)->graphs = NULL;
}

static void close_side(rt_cuda_private *own) {
    if (own->side) cudaStreamDestroy(own->side);
    if (own->forked) cudaEventDestroy(own->forked);
    if (own->joined) cudaEventDestroy(own->joined);
}

static void close_device(struct rt *rt) {
    rt_cuda *cuda = rt_cuda_of(rt);
    if (cuda && cuda->own) {
        close_decoding(rt);
        rt_cuda_forget_segments(rt);
        rt_cuda_close_nccl(rt);
        close_side(cuda->own);
        rt_cuda_close_marks(cuda->own);
        rt_cuda_close_cudnn(rt);
        rt_cuda_close_library(rt);
        cudaFree((void *)cuda->extents);
        cudaFreeHost(cuda->own->mailbox);
        cudaFreeHost(cuda->fault);
        if (cuda->stream && !cuda->own->callers_stream) cudaStreamDestroy(cuda->stream);
        free(cuda->own);
    }
    free(cuda);
    rt->device = NULL;
}

/* HOST is pinned memory of the process, which has the same address on the host and on all GPUs. Pinning takes time: an
 * empty arena, of one byte, is as the others. */
static void *allocate(struct rt *rt, enum rt_arena arena, size_t bytes) {
    void *memory = NULL;
    const bool pinned = arena == RT_HOST && bytes > 1;
    const cudaError_t error = pinned ? cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable)
                                     : cudaMalloc(&memory, bytes);
    if (error != cudaSuccess) {
        cudaGetLastError(); /* is not of what follows */
        return NULL;
    }
    if (pinned)
        memset(memory, 0, bytes);
    else
        cudaMemsetAsync(memory, 0, bytes, rt_cuda_of(rt)->stream);
    return memory;
}

static void release(struct rt *rt, void *memory, size_t bytes) {
    if (memory == rt->arena[RT_HOST] && bytes > 1)
        cudaFreeHost(memory);
    else
        cudaFree(memory);
}

static int put(struct rt *rt, void *dst, const void *src, size_t bytes) {
    RT_CUDA_TRY(rt, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, rt_cuda_of(rt)->stream));
    return RT_OK;
}

/* Polls what query() tells. */
template <class F> static int wait_watching(struct rt *rt, F query) {
    for (int turn = 0;; turn++) {
        const cudaError_t state = query();
        if (state == cudaSuccess) return RT_OK;
        if (state != cudaErrorNotReady) return rt_fail_cuda(rt, state, "the step failed");
        if (own_of(rt)->watch && turn % RT_LOOKS == RT_LOOKS - 1) RT_TRY(own_of(rt)->watch(rt));
        if (turn >= RT_SPINS) usleep(RT_NAP_US);
    }
}

int rt_cuda_wait(struct rt *rt, cudaStream_t stream) {
    if (own_of(rt)->watch) return wait_watching(rt, [=] { return cudaStreamQuery(stream); });
    RT_CUDA_TRY(rt, cudaStreamSynchronize(stream));
    return RT_OK;
}

int rt_cuda_wait_event(struct rt *rt, cudaEvent_t event) {
    return wait_watching(rt, [=] { return cudaEventQuery(event); });
}

/* Waits for the main stream. */
static int drain(struct rt *rt) {
    rt_cuda_private *own = own_of(rt);
    RT_TRY(rt_cuda_wait(rt, rt_cuda_of(rt)->stream));
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
    RT_CUDA_TRY(rt, cudaMemcpyAsync(to, src, bytes, cudaMemcpyDefault, rt_cuda_of(rt)->stream));
    return RT_OK;
}

static int zero(struct rt *rt, void *memory, size_t bytes) {
    RT_CUDA_TRY(rt, cudaMemsetAsync(memory, 0, bytes, rt_cuda_of(rt)->stream));
    return RT_OK;
}

template <class T>
static int copy_units_where(struct rt *rt, void *dst, const void *src, size_t bytes, const double *control) {
    T *const to = (T *)dst;
    const T *const from = (const T *)src;
    return rt_points(rt, (int64_t)(bytes / sizeof(T)),
                     [=] __device__(int64_t i) { to[i] = *control > 0 ? from[i] : (T)0; });
}

/* dst += src; elements are added in type S. */
template <class T, class S> static int add_as(struct rt *rt, void *dst, const void *src, int64_t count) {
    T *const to = (T *)dst;
    const T *const from = (const T *)src;
    return rt_points(rt, count, [=] __device__(int64_t i) { to[i] = (T)((S)to[i] + (S)from[i]); });
}

/* The control is read on the GPU, where controls are copied before the step. */
static int copy_where(struct rt *rt, void *dst, const void *src, size_t bytes, enum rt_control control) {
    const double *at = (const double *)(rt->arena[RT_ACTIVATIONS] + rt->rank_class->controls) + control;
    const bool words = ((uintptr_t)dst | (uintptr_t)src | bytes) % sizeof(uint32_t) == 0;
    return words ? copy_units_where<uint32_t>(rt, dst, src, bytes, at)
                 : copy_units_where<unsigned char>(rt, dst, src, bytes, at);
}

static int add(struct rt *rt, void *dst, const void *src, int64_t count, enum rt_dtype dtype) {
    if (dtype == RT_F64) return add_as<double, double>(rt, dst, src, count);
    if (dtype == RT_BF16) return add_as<rt_element_bf16, float>(rt, dst, src, count);
    if (dtype == RT_F16) return add_as<rt_element_fp16, float>(rt, dst, src, count);
    return add_as<float, float>(rt, dst, src, count);
}

/* Copies rows as elements T, whose size divides all sizes and strides. */
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

/* A graph of growing sizes has a kernel for one row too: its arguments can move, those of a cudaMemcpy cannot. */
static int copy_rows(struct rt *rt, const struct rt_copies *rows) {
    if (rows->count[0] * rows->count[1] * rows->count[2] == 1 && !rt_cuda_of(rt)->note)
        return rt_note(rt,
                       cudaMemcpyAsync(rows->to, rows->from, rows->bytes, cudaMemcpyDefault, rt_cuda_of(rt)->stream));
    if (all_divide(rows, sizeof(uint4))) return copy_units<uint4>(rt, *rows);
    if (all_divide(rows, sizeof(uint32_t))) return copy_units<uint32_t>(rt, *rows);
    return copy_units<unsigned char>(rt, *rows);
}

static int connect(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out) {
    bool threads = false;
    RT_TRY(ask_threads(rt, host, &threads));
    if (own_of(rt)->callers_comm) threads = false;
    return threads ? rt_cuda_open_loopback(rt, host, out) : rt_cuda_open_nccl(rt, host, color, out);
}

static int open_side(struct rt *rt) {
    rt_cuda_private *own = own_of(rt);
    int least = 0, greatest = 0;
    if (own->side) return RT_OK;
    RT_CUDA_TRY(rt, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    RT_CUDA_TRY(rt, cudaEventCreateWithFlags(&own->forked, cudaEventDisableTiming));
    RT_CUDA_TRY(rt, cudaEventCreateWithFlags(&own->joined, cudaEventDisableTiming));
    RT_CUDA_TRY(rt, cudaStreamCreateWithPriority(&own->side, cudaStreamNonBlocking, greatest));
    return RT_OK;
}

static int fork(struct rt *rt) {
    rt_cuda_private *own = own_of(rt);
    RT_TRY(open_side(rt));
    RT_CUDA_TRY(rt, cudaEventRecord(own->forked, rt_cuda_of(rt)->stream));
    RT_CUDA_TRY(rt, cudaStreamWaitEvent(own->side, own->forked, 0));
    own->begun_beside++;
    return RT_OK;
}

static int join(struct rt *rt) {
    rt_cuda_private *own = own_of(rt);
    if (own->ended_beside == own->begun_beside) return RT_OK;
    own->ended_beside = own->begun_beside;
    RT_CUDA_TRY(rt, cudaEventRecord(own->joined, own->side));
    RT_CUDA_TRY(rt, cudaStreamWaitEvent(rt_cuda_of(rt)->stream, own->joined, 0));
    return RT_OK;
}

int rt_cuda_begin(const rt_cuda_call *call, int (*const performs[])(const rt_cuda_call *call),
                  rt_cuda_gathers *gathers) {
    rt_cuda *cuda = rt_cuda_of(call->rt);
    const int at = (int)(gathers->begun % RT_GATHERS);
    const cudaStream_t stream = cuda->stream;
    RT_TRY(fork(call->rt));
    cuda->stream = cuda->own->side;
    const int status = performs[call->kind](call);
    cuda->stream = stream;
    if (status || call->kind != RT_GATHER) return status;
    if (!gathers->done[at]) RT_CUDA_TRY(call->rt, cudaEventCreateWithFlags(&gathers->done[at], cudaEventDisableTiming));
    RT_CUDA_TRY(call->rt, cudaEventRecord(gathers->done[at], cuda->own->side));
    gathers->place[at] = cuda->own->begun_beside;
    gathers->begun++;
    return RT_OK;
}

int rt_cuda_finish(struct rt *rt, enum rt_early kind, rt_cuda_gathers *gathers) {
    rt_cuda_private *own = own_of(rt);
    if (kind != RT_GATHER) return join(rt);
    const int at = (int)(gathers->finished++ % RT_GATHERS);
    if (own->ended_beside < gathers->place[at]) own->ended_beside = gathers->place[at];
    RT_CUDA_TRY(rt, cudaStreamWaitEvent(rt_cuda_of(rt)->stream, gathers->done[at], 0));
    return RT_OK;
}

void rt_cuda_close_gathers(rt_cuda_gathers *gathers) {
    for (cudaEvent_t event : gathers->done)
        if (event) cudaEventDestroy(event);
}

static int begin_piece(struct rt *rt) {
    rt_cuda_of(rt)->error = cudaSuccess;
    RT_CUDA_TRY(rt, cudaStreamBeginCapture(rt_cuda_of(rt)->stream, cudaStreamCaptureModeRelaxed));
    return RT_OK;
}

/* Ends the capture; its graph becomes a piece and is launched. */
static int launch_piece(struct rt *rt, rt_cuda_piece *piece, cudaGraph_t made) {
    const cudaError_t launched = rt_cuda_of(rt)->error, error = cudaGraphInstantiate(&piece->exec, made, 0);
    cudaGraphDestroy(made);
    if (launched != cudaSuccess) return rt_fail_cuda(rt, launched, "a kernel could not be launched");
    if (error != cudaSuccess) return rt_fail_cuda(rt, error, "a segment's graph could not be made");
    RT_CUDA_TRY(rt, cudaGraphLaunch(piece->exec, rt_cuda_of(rt)->stream));
    return RT_OK;
}

static int end_piece(struct rt *rt, rt_cuda_piece **out) {
    rt_cuda_piece *piece = *out = (rt_cuda_piece *)calloc(1, sizeof *piece);
    cudaGraph_t made = NULL;
    const cudaError_t error = cudaStreamEndCapture(rt_cuda_of(rt)->stream, &made);
    if (!piece) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    own_of(rt)->next = &piece->next;
    if (error != cudaSuccess) return rt_fail_cuda(rt, error, "a segment could not be captured");
    return launch_piece(rt, piece, made);
}

/* Ends the capture that a failed segment has begun, if it has; the error stays that of the segment. */
static void abandon_piece(struct rt *rt) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    cudaGraph_t made = NULL;
    if (cudaStreamIsCapturing(rt_cuda_of(rt)->stream, &state) != cudaSuccess) return;
    if (state != cudaStreamCaptureStatusNone) cudaStreamEndCapture(rt_cuda_of(rt)->stream, &made);
    if (made) cudaGraphDestroy(made);
    cudaGetLastError();
}

static int copy_sizes(struct rt *rt, const size_t **sizes, int n) {
    if (!*sizes) return RT_OK;
    size_t *copy = (size_t *)malloc((size_t)n * sizeof *copy);
    if (copy) memcpy(copy, *sizes, (size_t)n * sizeof *copy);
    *sizes = copy;
    return copy ? RT_OK : rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
}

/* True while a segment's launches and calls are noted, and nothing is executed. */
static bool is_measured(struct rt *rt) {
    return own_of(rt)->growth && own_of(rt)->growth->measure < RT_MEASURES;
}

int rt_cuda_meet(const rt_cuda_call *call) {
    struct rt *rt = call->rt;
    rt_cuda_piece **next = own_of(rt)->next;
    note_call(call);
    if (is_measured(rt)) return RT_OK;
    if (!next) return call->perform(call);
    RT_TRY(end_piece(rt, next));
    rt_cuda_call *kept = &(*next)->call;
    *kept = *call;
    RT_TRY(copy_sizes(rt, &kept->receive, call->comm->size));
    RT_TRY(copy_sizes(rt, &kept->send, call->comm->size));
    RT_TRY(rt_unnoted(rt, [=] { return call->perform(call); }));
    return begin_piece(rt);
}

/* Launches the segment, and around it what decodes. */
static int run_segment(struct rt *rt, const struct rt_segment *segment) {
    const rt_cuda_decoding *decoding = own_of(rt)->decoding;
    if (decoding) RT_TRY(rt_unnoted(rt, [=] { return feed_inputs(rt, decoding); }));
    rt_forget_held(rt); /* of a segment that failed */
    RT_TRY(segment->run(rt));
    RT_TRY(rt_end_sums(rt));
    return decoding ? rt_unnoted(rt, [=] { return choose_tokens(rt, decoding); }) : RT_OK;
}

/* Executes a segment and records its pieces. */
static int capture(struct rt *rt, rt_cuda_graph *graph) {
    own_of(rt)->next = &graph->first;
    int status = begin_piece(rt);
    const rt_growth *growth = own_of(rt)->growth;
    if (!status && growth) status = rt_unnoted(rt, [=] { return move_words(rt, growth); });
    if (!status) status = run_segment(rt, graph->segment);
    if (status)
        abandon_piece(rt);
    else
        status = end_piece(rt, own_of(rt)->next);
    own_of(rt)->next = NULL;
    if (status) free_pieces(graph);
    return status;
}

static int replay(struct rt *rt, const rt_cuda_graph *graph) {
    for (const rt_cuda_piece *piece = graph->first; piece; piece = piece->next) {
        RT_CUDA_TRY(rt, cudaGraphLaunch(piece->exec, rt_cuda_of(rt)->stream));
        if (piece->call.perform) RT_TRY(piece->call.perform(&piece->call));
    }
    return RT_OK;
}

/* Graphs of a segment, each for one combination of slots and sizes; for further combinations of slots its kernels are
 * launched. */
#ifndef RT_MOST_GRAPHS
#define RT_MOST_GRAPHS RT_MOST_COMBINATIONS
#endif

/* Size s as graphs have it. The sizes are the first extents. */
static int64_t size_of_graph(const struct rt *rt, int s) {
    return rt->program->sizes[s].next ? rt_bucket_of(rt, s).most : rt->extents[s];
}

static bool is_current(struct rt *rt, const rt_cuda_graph *graph) {
    bool same = !memcmp(graph->slot, rt->slot, sizeof graph->slot) && graph->sums == rt_sums_variant(rt) &&
                graph->decodes == (own_of(rt)->decoding != NULL);
    for (int s = 0; s < rt->program->nsizes; s++) same = same && graph->sizes[s] == size_of_graph(rt, s);
    return same;
}

/* Unlinks the graph of the segment for the current slots and sizes; NULL: there is none. *n: the others, *last: where
 * the last of them is linked. */
static rt_cuda_graph *take_graph(struct rt *rt, const struct rt_segment *segment, int *n, rt_cuda_graph ***last) {
    *n = 0;
    for (rt_cuda_graph **at = &own_of(rt)->graphs; *at; at = &(*at)->next) {
        rt_cuda_graph *graph = *at;
        if (graph->segment != segment) continue;
        if (is_current(rt, graph)) return *at = graph->next, graph;
        *last = at;
        ++*n;
    }
    return NULL;
}

static rt_cuda_graph *new_graph(struct rt *rt, const struct rt_segment *segment) {
    rt_cuda_graph *graph = (rt_cuda_graph *)calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->segment = segment;
    memcpy(graph->slot, rt->slot, sizeof graph->slot);
    graph->sums = rt_sums_variant(rt);
    graph->decodes = own_of(rt)->decoding != NULL;
    for (int s = 0; s < rt->program->nsizes; s++) graph->sizes[s] = size_of_graph(rt, s);
    return graph;
}

/* A graph that is executing is freed when it is complete. */
static void drop_graph(rt_cuda_graph **at) {
    rt_cuda_graph *graph = *at;
    *at = graph->next;
    free_graph(graph);
}

/* Notes what the segment launches and calls where caches have so many rows before the step. */
static int measure(struct rt *rt, const struct rt_segment *segment, int measure, int64_t rows) {
    const int64_t *const now = rt->extents;
    rt_growth *growth = own_of(rt)->growth;
    int64_t sizes[RT_MAX_SIZES];
    for (int s = 0; s < rt->program->nsizes; s++) sizes[s] = rt->program->sizes[s].next ? rows : now[s];
    rt->program->find_extents(sizes, growth->extents);
    growth->measure = measure;
    rt->extents = growth->extents;
    int status = begin_piece(rt);
    if (!status) status = segment->run(rt);
    rt->extents = now;
    abandon_piece(rt);
    return status;
}

/* Captures the graph for the bucket of the current step, which is executed, or finds that none holds (`varies`). */
static int capture_bucket(struct rt *rt, rt_cuda_graph *graph) {
    rt_growth *growth = own_of(rt)->growth;
    const int64_t *const now = rt->extents;
    const rt_bucket bucket = rt_bucket_of(rt, rt_growing_size(rt->program));
    /* Not the largest one, where a view of a full cache may be contiguous. */
    const int64_t most = bucket.most - (bucket.most > bucket.least), before = most - (most > bucket.least);
    growth->most = most;
    RT_TRY(measure(rt, graph->segment, 2, bucket.least));
    RT_TRY(measure(rt, graph->segment, 1, before));
    RT_TRY(measure(rt, graph->segment, 0, most));
    graph->varies = !place_arguments(growth, most - bucket.least);
    if (growth->failed) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    if (graph->varies) return RT_OK;
    RT_TRY(store_arguments(rt, growth));
    graph->block = growth->block;
    growth->measure = RT_MEASURES;
    rt->extents = growth->extents; /* of the largest length, which was measured last */
    const int status = capture(rt, graph);
    rt->extents = now;
    return status;
}

static int run_growing(struct rt *rt, rt_cuda_graph *graph) {
    rt_growth growth = {};
    growth.extents = (int64_t *)calloc((size_t)rt->program->nextents, sizeof *growth.extents);
    if (!growth.extents) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    own_of(rt)->growth = &growth;
    rt_cuda_of(rt)->note = note_launch;
    const int status = capture_bucket(rt, graph);
    rt_cuda_of(rt)->note = NULL;
    own_of(rt)->growth = NULL;
    free_growth(&growth);
    return graph->varies && !status ? run_segment(rt, graph->segment) : status;
}

/* Copies the extents of the step to where kernels read them. */
static int put_extents(struct rt *rt) {
    rt_cuda *cuda = rt_cuda_of(rt);
    const size_t bytes = (size_t)rt->program->nextents * sizeof *rt->extents;
    if (rt_growing_size(rt->program) < 0) return RT_OK;
    if (!cuda->extents) RT_CUDA_TRY(rt, cudaMalloc((void **)&cuda->extents, bytes));
    return put(rt, (void *)cuda->extents, rt->extents, bytes);
}

static int forget_plans(struct rt *rt) {
    rt_cuda_private *own = own_of(rt);
    if (own->nplans <= RT_MOST_PLANS || !rt->program->nsizes) return RT_OK;
    RT_TRY(rt_cuda_wait(rt, rt_cuda_of(rt)->stream));
    rt_cuda_forget_segments(rt);
    rt_cuda_forget_products(rt);
    rt_cuda_forget_cudnn(rt);
    own->nplans = 0;
    return RT_OK;
}

static int execute(struct rt *rt, const struct rt_segment *segment) {
    rt_cuda_private *own = own_of(rt);
    rt_cuda_graph **last = NULL;
    int others;
    RT_CUDA_TRY(rt, cudaSetDevice(own->number));
    RT_TRY(put_extents(rt));
    if (rt_is_watched(rt)) return run_segment(rt, segment);
    RT_TRY(forget_plans(rt));
    const bool open = rt->program->nsizes > 0;
    rt_cuda_graph *graph = take_graph(rt, segment, &others, &last);
    const bool known = graph != NULL;
    if (!known && others >= RT_MOST_GRAPHS && !open) return run_segment(rt, segment);
    if (!known && others >= RT_MOST_GRAPHS) drop_graph(last);
    if (!known) graph = new_graph(rt, segment);
    if (!graph) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    graph->next = own->graphs;
    own->graphs = graph;
    if (graph->first) return replay(rt, graph);
    if ((!known && open) || graph->varies) return run_segment(rt, segment);
    return rt_growing_size(rt->program) < 0 ? capture(rt, graph) : run_growing(rt, graph);
}

static int run(struct rt *rt, const struct rt_segment *segment) {
    RT_TRY(execute(rt, segment));
    return end_decoding_step(rt);
}

static int report_fault(struct rt *rt) {
    rt_fault *at = rt_cuda_of(rt)->fault;
    const rt_fault fault = *at;
    if (fault.kind == RT_FAULT_NONE) return RT_OK;
    at->kind = RT_FAULT_NONE;
    rt->instruction = fault.instruction;
    if (fault.kind == RT_FAULT_CLASS)
        return rt_fail(rt, RT_ERROR_INPUT, "label %lld at position %lld is outside of the %lld classes", fault.value,
                       fault.position, fault.total);
    if (fault.kind == RT_FAULT_DIVISOR)
        return rt_fail(rt, RT_ERROR_INPUT, "integer division by zero: the divisor at position %lld is 0",
                       fault.position);
    return rt_fail(rt, RT_ERROR_INPUT, "index %lld at position %lld is outside [-%lld, %lld)", fault.value,
                   fault.position, fault.total, fault.total);
}

static int finish(struct rt *rt) {
    RT_TRY(drain(rt));
    return report_fault(rt);
}

static int take_tokens(struct rt *rt, int64_t *ids) {
    rt_cuda_decoding *decoding = own_of(rt)->decoding;
    const uint64_t slot = decoding->taken % RT_AHEAD;
    RT_TRY(rt_cuda_wait_event(rt, decoding->done[slot]));
    RT_TRY(report_fault(rt));
    const int64_t place = (decoding->is.width + (int64_t)decoding->taken++) % RT_AHEAD;
    memcpy(ids, decoding->told + place * decoding->is.rows, (size_t)decoding->is.rows * sizeof *ids);
    return RT_OK;
}

extern "C" const struct rt_device rt_cuda_device = {.name = "cuda",
                                                    .remote = true,
                                                    .open = open_device,
                                                    .close = close_device,
                                                    .allocate = allocate,
                                                    .release = release,
                                                    .put = put,
                                                    .get = get,
                                                    .zero = zero,
                                                    .copy_where = copy_where,
                                                    .copy = copy_rows,
                                                    .add = add,
                                                    .connect = connect,
                                                    .run = run,
                                                    .finish = finish,
                                                    .open_decoding = open_decoding,
                                                    .take_tokens = take_tokens,
                                                    .close_decoding = close_decoding,
                                                    .mark = rt_cuda_mark,
                                                    .times = rt_cuda_times};
