/* Decoding by the GPU alone: inputs of a step from the tokens of the one before, and the choice of the next tokens, in
 * the graph of the step (device.cu). The host takes tokens up to RT_AHEAD steps later, from mapped memory. */
#ifndef RT_CUDA_DECODE_CUH
#define RT_CUDA_DECODE_CUH

#include "../base/number/philox.h"
#include "../generate/decoding.h"
#include "grow.cuh"

enum { RT_FEEDERS = 16 }; /* thread blocks that fill an input */

/* An input on the GPU. */
struct rt_cuda_fed {
    void *at;
    enum rt_dtype dtype;
    enum rt_role role;
    bool additive;             /* of a mask: added to scores */
    int ndim, of_b, of_k;      /* dimensions; -1: none */
    int64_t dims[RT_MAX_NDIM]; /* of the port */
};

struct rt_cuda_decoding {
    struct rt_decoding is; /* addresses are of the GPU's memory */
    void *memory;
    rt_cuda_fed *fed;
    int nfed;
    int64_t *next, *lengths, *suppressed;
    uint64_t *seen;
    float *scores; /* (rows, vocabulary) */
    int64_t *told; /* (RT_AHEAD, rows), mapped: tokens; -1 where there are none to choose from */
    cudaEvent_t done[RT_AHEAD];
    const void *logits;
    enum rt_dtype dtype;
    uint64_t queued, taken; /* steps */
};

/* Stores a value of an input. */
static __device__ void store_value(const rt_cuda_fed &to, int64_t i, int64_t value) {
    const double number = !to.additive ? (double)value : value ? 0 : to.dtype == RT_F16 ? -65504 : -0x1.fep127;
    switch (to.dtype) {
    case RT_I64: ((int64_t *)to.at)[i] = value; return;
    case RT_I32: ((int32_t *)to.at)[i] = (int32_t)value; return;
    case RT_F64: ((double *)to.at)[i] = number; return;
    case RT_F32: ((float *)to.at)[i] = (float)number; return;
    case RT_F16: ((uint16_t *)to.at)[i] = rt_f32_to_f16((float)number); return;
    case RT_BF16: ((uint16_t *)to.at)[i] = rt_f32_to_bf16((float)number); return;
    default: ((uint8_t *)to.at)[i] = (uint8_t)value; return; /* bool, and 8-bit integers */
    }
}

static __device__ void feed_input(const rt_cuda_fed &to, const rt_cuda_decoding &of, const int64_t *extents,
                                  int64_t column, int64_t from, int64_t step) {
    const rt_columns columns = {column, 1, of.is.width, of.is.pads_right};
    int64_t dims[RT_MAX_NDIM], count = 1;
    for (int d = 0; d < to.ndim; d++) {
        dims[d] = to.dims[d] < 0 ? extents[to.dims[d] - INT64_MIN] : to.dims[d];
        count *= dims[d];
    }
    for (int64_t i = from; i < count; i += step) {
        int64_t rest = i, b = 0, k = column;
        for (int d = to.ndim - 1; d >= 0; rest /= dims[d--]) {
            if (d == to.of_b) b = rest % dims[d];
            if (d == to.of_k) k = rest % dims[d];
        }
        store_value(to, i, k > column ? 0 : rt_role_value(to.role, &columns, of.lengths[b], of.next[b], 0, k));
    }
}

/* Fills the inputs of the step. */
static int feed_inputs(struct rt *rt, const rt_cuda_decoding *decoding) {
    const rt_cuda_decoding of = *decoding;
    const int64_t *const extents = rt_extent_at(rt, 0), *const rows = rt_extent_at(rt, rt_growing_size(rt->program));
    return rt_rows(rt, of.nfed * RT_FEEDERS, [=] __device__(int64_t row) {
        feed_input(of.fed[row / RT_FEEDERS], of, extents, *rows, row % RT_FEEDERS * blockDim.x + threadIdx.x,
                   RT_FEEDERS * blockDim.x);
    });
}

/* --- The choice, as rt_sample makes it (generate/sample.h); sums are added in another order. */

struct rt_best {
    float score;
    int64_t id; /* -1: none */
    bool nan;
};
struct rt_better_of {
    __device__ rt_best operator()(const rt_best &a, const rt_best &b) const {
        const bool second = a.id < 0 || (b.id >= 0 && (b.score > a.score || (b.score == a.score && b.id < a.id)));
        rt_best best = second ? b : a;
        best.nan = a.nan || b.nan;
        return best;
    }
};

static __device__ rt_best find_best(const float *scores, int64_t n) {
    rt_best best = {-INFINITY, -1, false};
    RT_EACH(i, n) {
        best.nan = best.nan || isnan(scores[i]);
        if (scores[i] > best.score) best.score = scores[i], best.id = i;
    }
    return rt_block_fold(best, rt_better_of());
}

/* Numbers in the order of floats, of which -0 is 0. */
static __device__ uint32_t key_of(float score) {
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The sum of weight(score) over scores of at least that key. */
template <class W> static __device__ double sum_from(const float *scores, int64_t n, uint32_t key, W weight) {
    double sum = 0;
    RT_EACH(i, n) {
        if (scores[i] > -INFINITY && key_of(scores[i]) >= key) sum += weight(scores[i]);
    }
    return rt_block_fold(sum, rt_sum_of());
}

/* The greatest key from which on the weights reach `enough`. */
template <class W> static __device__ uint32_t key_reaching(const float *scores, int64_t n, double enough, W weight) {
    uint32_t key = 0;
    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t higher = key | 1u << bit;
        if (sum_from(scores, n, higher, weight) >= enough) key = higher;
    }
    return key;
}

/* Hides scores below the key, and of those that equal it all but the first `equal`. */
static __device__ void keep_from(float *scores, int64_t n, uint32_t key, int64_t equal) {
    RT_EACH(i, n) {
        if (key_of(scores[i]) < key) scores[i] = -INFINITY;
    }
    __syncthreads();
    for (int64_t i = 0; i < n && threadIdx.x == 0 && equal != INT64_MAX; i++)
        if (key_of(scores[i]) == key && equal-- <= 0) scores[i] = -INFINITY;
    __syncthreads();
}

static __device__ void keep_most_likely(float *scores, int64_t n, double p, float most) {
    const auto weight = [=](float score) { return exp((double)score - most); };
    const double enough = p * sum_from(scores, n, 0, weight);
    const uint32_t key = key_reaching(scores, n, enough, weight);
    const double above = key == ~0u ? 0 : sum_from(scores, n, key + 1, weight);
    const double all = sum_from(scores, n, key, [](float) { return 1.0; }) -
                       (key == ~0u ? 0 : sum_from(scores, n, key + 1, [](float) { return 1.0; }));
    const uint32_t bits = key >> 31 ? key & 0x7FFFFFFFu : ~key;
    float last;
    memcpy(&last, &bits, sizeof last);
    int64_t equal = 1;
    while (equal < (int64_t)all && above + (double)equal * weight(last) < enough) equal++;
    keep_from(scores, n, key, equal < (int64_t)all ? equal : INT64_MAX);
}

/* The first token at which the sum of probabilities exceeds the number; each thread adds up a run of tokens. */
static __device__ int64_t draw_token(const float *scores, int64_t n, float most, double number) {
    __shared__ double sums[RT_BLOCK];
    __shared__ int64_t drawn;
    const int64_t run = (n + RT_BLOCK - 1) / RT_BLOCK, first = threadIdx.x * run,
                  end = first + run < n ? first + run : n;
    double sum = 0;
    for (int64_t i = first; i < end; i++)
        if (scores[i] > -INFINITY) sum += exp((double)scores[i] - most);
    __syncthreads();
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double all = 0, before = 0;
        int64_t thread = 0;
        for (int i = 0; i < RT_BLOCK; i++) all += sums[i];
        const double wanted = number * all;
        while (thread < RT_BLOCK - 1 && before + sums[thread] <= wanted) before += sums[thread++];
        drawn = -1;
        for (int64_t i = thread * run; i < n && before <= wanted; i++) {
            if (!(scores[i] > -INFINITY)) continue;
            before += exp((double)scores[i] - most);
            drawn = i;
        }
        for (int64_t i = n - 1; drawn < 0 && i >= 0; i--)
            if (scores[i] > -INFINITY) drawn = i;
    }
    __syncthreads();
    return drawn;
}

static __device__ int64_t choose_token(const rt_cuda_decoding &of, float *scores, uint64_t row, uint64_t position) {
    const rt_sampling &sampling = of.is.sampling;
    const int64_t n = of.is.vocabulary;
    const float temperature = (float)sampling.temperature;
    const rt_best best = find_best(scores, n);
    if (best.nan || best.id < 0) return -1;
    if (!(temperature > 0) || isinf(best.score)) return best.id;
    RT_EACH(i, n) scores[i] /= temperature;
    __syncthreads();
    const float most = best.score / temperature;
    if (isinf(most)) return best.id;
    if (sampling.top_k > 0 && sampling.top_k < n)
        keep_from(scores, n, key_reaching(scores, n, (double)sampling.top_k, [](float) { return 1.0; }), INT64_MAX);
    if (sampling.top_p < 1) keep_most_likely(scores, n, sampling.top_p, most);
    RT_EACH(i, n) {
        if (sampling.min_p > 0 && exp((double)scores[i] - most) < sampling.min_p) scores[i] = -INFINITY;
    }
    __syncthreads();
    const struct rt_philox bits = rt_philox_at(position, row, sampling.seed);
    return draw_token(scores, n, most, rt_philox_open(bits.word[0], bits.word[1]));
}

static __device__ float logit_of(const rt_cuda_decoding &of, int64_t i) {
    switch (of.dtype) {
    case RT_F64: return (float)((const double *)of.logits)[i];
    case RT_F16: return rt_f16_to_f32(((const uint16_t *)of.logits)[i]);
    case RT_BF16: return rt_bf16_to_f32(((const uint16_t *)of.logits)[i]);
    default: return ((const float *)of.logits)[i];
    }
}

/* Chooses the tokens behind the step, for the next one and for the host. */
static int choose_tokens(struct rt *rt, const rt_cuda_decoding *decoding) {
    const rt_cuda_decoding of = *decoding;
    const int64_t *const before = rt_extent_at(rt, rt_growing_size(rt->program));
    return rt_rows(rt, of.is.rows, [=] __device__(int64_t row) {
        const int64_t n = of.is.vocabulary, made = *before + 1 - of.is.width;
        const float penalty = (float)of.is.sampling.repetition_penalty;
        float *const scores = of.scores + row * n;
        uint64_t *const seen = of.seen + row * rt_seen_words(n);
        RT_EACH(i, n) {
            const float score = logit_of(of, row * n + i);
            const bool known = penalty != 1 && (seen[i / 64] >> i % 64 & 1);
            scores[i] = !known ? score : score < 0 ? score * penalty : score / penalty;
        }
        __syncthreads();
        RT_EACH(i, of.is.nsuppressed) scores[of.suppressed[i]] = -INFINITY;
        __syncthreads();
        const int64_t id = choose_token(of, scores, (uint64_t)row, (uint64_t)(of.lengths[row] + made));
        if (threadIdx.x > 0) return;
        of.next[row] = id < 0 ? 0 : id;
        of.told[*before % RT_AHEAD * of.is.rows + row] = id;
        if (id >= 0) seen[id / 64] |= UINT64_C(1) << id % 64;
    });
}

/* --- The host's side: `decode` of struct rt_device. */

static rt_cuda_fed describe_fed(const struct rt *rt, int input, const rt_fed *fed) {
    const rt_port *port = &rt->program->inputs[input];
    const rt_place *place = &rt->rank_class->inputs[input];
    rt_cuda_fed made = {rt->arena[place->arena] + place->offset, port->dtype, fed->role,
                        port->ndim == 4 && rt_dtype_is_float(port->dtype), port->ndim};
    made.of_b = rt_dimension_of(fed->shape, port->ndim, 'b');
    made.of_k = rt_dimension_of(fed->shape, port->ndim, 'k');
    memcpy(made.dims, port->dims, sizeof made.dims);
    return made;
}

/* Memory in the GPU's, with a copy of `from`, unless that is NULL. */
template <class T> static int place_in(struct rt *rt, unsigned char **at, T **out, const T *from, int64_t count) {
    *out = (T *)*at;
    *at += rt_behind_scores(count * (int64_t)sizeof(T));
    if (!from || !count) return RT_OK;
    RT_CUDA_TRY(rt,
                cudaMemcpyAsync(*out, from, (size_t)count * sizeof(T), cudaMemcpyHostToDevice, rt_cuda_of(rt)->stream));
    return RT_OK;
}

static int fill_decoding(struct rt *rt, rt_cuda_decoding *decoding, const rt_cuda_fed *fed) {
    const struct rt_decoding *is = &decoding->is;
    unsigned char *at = (unsigned char *)decoding->memory;
    RT_TRY(place_in(rt, &at, &decoding->fed, fed, decoding->nfed));
    RT_TRY(place_in(rt, &at, &decoding->next, is->next, is->rows));
    RT_TRY(place_in(rt, &at, &decoding->lengths, is->lengths, is->rows));
    RT_TRY(place_in(rt, &at, &decoding->suppressed, is->suppressed, is->nsuppressed));
    RT_TRY(place_in(rt, &at, &decoding->seen, is->seen, is->rows * rt_seen_words(is->vocabulary)));
    return place_in(rt, &at, &decoding->scores, (const float *)NULL, is->rows * is->vocabulary);
}

static int make_decoding(struct rt *rt, rt_cuda_decoding *decoding, const rt_cuda_fed *fed) {
    const struct rt_decoding *is = &decoding->is;
    const size_t parts = 6 * (size_t)rt_behind_scores(1), words = (size_t)rt_seen_words(is->vocabulary);
    const size_t bytes = (size_t)decoding->nfed * sizeof *fed + (size_t)is->nsuppressed * sizeof(int64_t) +
                         (size_t)is->rows * ((2 + words) * sizeof(int64_t) + (size_t)is->vocabulary * sizeof(float));
    RT_CUDA_TRY(rt, cudaMalloc(&decoding->memory, bytes + parts));
    RT_CUDA_TRY(rt, cudaHostAlloc((void **)&decoding->told, (size_t)is->rows * RT_AHEAD * sizeof *decoding->told,
                                  cudaHostAllocMapped));
    for (cudaEvent_t &event : decoding->done) RT_CUDA_TRY(rt, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return fill_decoding(rt, decoding, fed);
}

static void close_decoding(struct rt *rt) {
    rt_cuda_private *own = rt_cuda_of(rt)->own;
    rt_cuda_decoding *decoding = own->decoding;
    if (!decoding) return;
    rt_cuda_wait(rt, rt_cuda_of(rt)->stream);
    rt_cuda_forget_segments(rt); /* those that choose tokens */
    cudaFree(decoding->memory);
    cudaFreeHost(decoding->told);
    for (cudaEvent_t event : decoding->done)
        if (event) cudaEventDestroy(event);
    free(decoding);
    own->decoding = NULL;
}

static int open_decoding(struct rt *rt, const struct rt_decoding *is) {
    rt_cuda_decoding *decoding = (rt_cuda_decoding *)calloc(1, sizeof *decoding);
    rt_cuda_fed *fed = (rt_cuda_fed *)calloc((size_t)rt->program->ninputs + 1, sizeof *fed);
    if (decoding && fed) {
        decoding->is = *is;
        decoding->logits = rt_output(rt, is->logits);
        decoding->dtype = rt->program->outputs[is->logits].dtype;
        for (int i = 0; i < rt->program->ninputs; i++)
            if (rt->rank_class->inputs[i].offset != RT_ABSENT) fed[decoding->nfed++] = describe_fed(rt, i, &is->fed[i]);
    }
    rt_cuda_of(rt)->own->decoding = decoding;
    const int status =
        decoding && fed ? make_decoding(rt, decoding, fed) : rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    free(fed);
    if (status) close_decoding(rt);
    return status;
}

/* Behind the step's work. */
static int end_decoding_step(struct rt *rt) {
    rt_cuda_decoding *decoding = rt_cuda_of(rt)->own->decoding;
    if (!decoding) return RT_OK;
    RT_CUDA_TRY(rt, cudaEventRecord(decoding->done[decoding->queued++ % RT_AHEAD], rt_cuda_of(rt)->stream));
    return RT_OK;
}
#endif
