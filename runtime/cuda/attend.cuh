/* Attention and its gradient by cuDNN, if it is available (cudnn_library.cuh) and the program requests it, with the
 * graphs of attend_graph.cuh. The plan for a shape is made at the first call with that shape; its kernels may be
 * compiled then. Shapes that cuDNN does not support are computed by flash.cuh, forward and backward independently: both
 * keep the same statistics per row. */
#ifndef RT_CUDA_ATTEND_CUH
#define RT_CUDA_ATTEND_CUH

#include "cudnn_library.cuh"

#if defined(RT_WITH_CUDNN) && CUDNN_VERSION >= 90800 /* the first that answers for a GPU's properties */
#include "attend_graph.cuh"

#include <new>

struct rt_attend_plan {
    rt_attend_shape shape;
    rt_cudnn_graph graph;
    bool taken;
    rt_attend_plan *next;
};

/* True if cuDNN may compute the call: it has neither sinks, windows nor soft caps, masked scores are hidden completely
 * (fill <= -1e9, beside which a score keeps no digit), causal rows are consecutive, and every row has a key. cuDNN does
 * not document results for rows without keys. The gradient takes the log-sum-exp of a row, in which the scores of a
 * completely hidden row are lost; a bias may hide a row, so the gradient with a bias is left to flash.cuh. In fp16 a
 * bias that hides may be -inf, and a row of nothing else has other results in cuDNN, so all biases are. */
static bool hides_whole(const rt_attention_call *call) {
    const rt_attention &shape = call->shape;
    const double hidden = -1e9;
    if (call->sink || shape.window || shape.cap > 0 || (call->bias && shape.nan_to_zero)) return false;
    if (call->keep || (call->bias && (shape.clamp || call->backward || call->dtype == RT_F16))) return false;
    return !shape.causal || (shape.fill <= hidden && !shape.jump && shape.start + shape.offset >= 0);
}

/* Masks are broadcast along all batch dimensions or along none. */
static bool describe_bias(const rt_attention_call *call, int64_t batch, int64_t bias[4]) {
    const rt_attention &shape = call->shape;
    const int lead = shape.ndim - 3;
    if (!call->bias) return true;
    bias[0] = rt_count(shape.bias, 0, lead);
    for (int d = 0; d < 3; d++) bias[1 + d] = shape.bias[lead + d];
    return bias[0] == 1 || bias[0] == batch;
}

/* false: the batch dimensions cannot be merged into one. */
static bool describe_stride(const rt_operand &x, const rt_attention &shape, int64_t heads, int64_t stride[3]) {
    const int lead = shape.ndim - 3;
    int64_t extent = 1;
    stride[1] = x.step[lead];
    stride[2] = x.step[lead + 1];
    stride[0] = lead ? x.step[lead - 1] : heads * stride[1];
    for (int d = lead - 1; d >= 0; extent *= shape.q[d], d--)
        if (shape.q[d] > 1 && x.step[d] != stride[0] * extent) return false;
    return true;
}

static bool describe_strides(const rt_attention_call *call, rt_attend_shape *out) {
    const struct {
        rt_attend_place place;
        const rt_operand *operand;
        int64_t heads;
        bool backward;
    } rows[] = {{RT_ATTEND_Q, &call->q, out->heads, false},  {RT_ATTEND_K, &call->k, out->kv, false},
                {RT_ATTEND_V, &call->v, out->kv, false},     {RT_ATTEND_Y, &call->y, out->heads, false},
                {RT_ATTEND_DY, &call->dy, out->heads, true}, {RT_ATTEND_DQ, &call->dq, out->heads, true},
                {RT_ATTEND_DK, &call->dk, out->kv, true},    {RT_ATTEND_DV, &call->dv, out->kv, true}};
    for (const auto &row : rows)
        if (row.backward <= call->backward &&
            !describe_stride(*row.operand, call->shape, row.heads, out->stride[row.place]))
            return false;
    return true;
}

static rt_attend_size size_of(const rt_attend_shape &shape) {
    return {shape.heads / shape.kv, shape.t, shape.s, shape.d, shape.e, shape.atomic != 0};
}

static bool describe_attention(const rt_attention_call *call, rt_attend_shape *out) {
    const rt_attention &shape = call->shape;
    const int ndim = shape.ndim;
    *out = {};
    out->type = call->dtype == RT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    out->batch = rt_count(shape.q, 0, ndim - 3);
    out->heads = shape.q[ndim - 3];
    out->kv = shape.kv;
    out->t = shape.q[ndim - 2];
    out->s = shape.s;
    out->d = shape.q[ndim - 1];
    out->e = shape.e;
    out->causal = shape.causal;
    out->diagonal = shape.causal ? shape.start + shape.offset : 0;
    out->backward = call->backward;
    out->scale = (float)shape.scale;
    out->atomic = out->backward && shape.library == RT_LIBRARY_ATOMIC;
    const rt_attend_size size = size_of(*out);
    if (out->backward && !rt_attend_is_small(&size)) return false;
    return rt_count(shape.q, 0, ndim) > 0 && out->s > 0 && out->e > 0 && out->diagonal < INT32_MAX &&
           (call->dtype == RT_BF16 || call->dtype == RT_F16) && hides_whole(call) &&
           describe_bias(call, out->batch, out->bias) && describe_strides(call, out);
}

/* Samples and key-value heads per call: for the gradient as many as the workspace has room for. */
static rt_attend_part part_of(const rt_attend_shape &shape) {
    const rt_attend_size size = size_of(shape);
    return shape.backward ? rt_attend_part_of(&size, shape.batch, shape.kv) : rt_attend_part{shape.batch, shape.kv};
}

/* Workspace of the library in a call. */
static int64_t room_for(const rt_attend_shape &shape) {
    const rt_attend_size size = size_of(shape);
    const int64_t heads = shape.batch * shape.kv;
    return shape.backward ? rt_attend_bytes(&size, heads) - rt_attend_sum_bytes(&size, heads) : RT_PRODUCT_WORKSPACE;
}

static int find_attention(struct rt *rt, const rt_attend_shape &shape, rt_attend_plan **out) {
    rt_cudnn *cudnn = cudnn_of(rt);
    for (*out = cudnn->attentions; *out; *out = (*out)->next)
        if (memcmp(&(*out)->shape, &shape, sizeof shape) == 0) return RT_OK;
    rt_attend_plan *plan =
        new (std::nothrow) rt_attend_plan{shape, rt_cudnn_graph(&cudnn->graph), false, cudnn->attentions};
    if (!plan) return rt_fail(rt, RT_ERROR_SYSTEM, "out of memory");
    *out = cudnn->attentions = plan;
    rt_cuda_of(rt)->own->nplans++;
    rt_attend_describe(plan->graph, shape);
    plan->taken = plan->graph.make_plan(plan->graph.gpu(rt_cuda_of(rt)->own->number), room_for(shape));
    return RT_OK;
}

static void forget_attentions(rt_cudnn *cudnn) {
    for (rt_attend_plan *plan = cudnn->attentions, *next; plan; plan = next) {
        next = plan->next;
        delete plan;
    }
}

/* Addresses of the operands of a call that begins at sample `batch` and key-value head `kv`. */
static void place_attention(const rt_attention_call *call, const rt_attend_shape &shape, int64_t batch, int64_t kv,
                            void *places[RT_ATTEND_PLACES]) {
    const int64_t group = shape.heads / shape.kv;
    const auto put = [&](rt_attend_place place, const rt_operand &x, int64_t head) {
        places[place] = (uint16_t *)x.at + batch * shape.stride[place][0] + head * shape.stride[place][1];
    };
    put(RT_ATTEND_Q, call->q, kv * group);
    put(RT_ATTEND_K, call->k, kv);
    put(RT_ATTEND_V, call->v, kv);
    put(RT_ATTEND_Y, call->y, kv * group);
    places[RT_ATTEND_MOST] = call->stats;
    places[RT_ATTEND_SUM] = call->stats + 1;
    places[RT_ATTEND_BIAS] = (void *)call->bias;
    if (!shape.backward) return;
    put(RT_ATTEND_DY, call->dy, kv * group);
    put(RT_ATTEND_DQ, call->dq, kv * group);
    put(RT_ATTEND_DK, call->dk, kv);
    put(RT_ATTEND_DV, call->dv, kv);
}

/* SCRATCH of the gradient: log-sum-exp and sum of dy y of each row, sums of dq, then the plan's workspace. In the
 * forward pass only the workspace. */
static int library_attend(struct rt *rt, const rt_attention_call *call) {
    const rt_cudnn *cudnn = cudnn_of(rt);
    rt_attend_shape whole, shape;
    rt_attend_plan *plan;
    if (!describe_attention(call, &whole)) return -1;
    const int64_t group = whole.heads / whole.kv, rows = whole.backward ? whole.batch * whole.heads * whole.t : 0;
    const rt_attend_part part = part_of(whole);
    const rt_attend_size size = size_of(whole);
    char *scratch = (char *)rt->arena[RT_SCRATCH],
         *sums_of_dq = scratch + rt_behind_scores(2 * rows * (int64_t)sizeof(float)),
         *room = sums_of_dq + (whole.backward ? rt_attend_sum_bytes(&size, part.batch * part.heads) : 0);
    float *logs = (float *)scratch, *sums = logs + rows;
    const float *stats = call->stats;
    shape = whole;
    shape.batch = part.batch;
    shape.kv = part.heads;
    shape.heads = part.heads * group;
    RT_TRY(find_attention(rt, shape, &plan));
    if (!plan->taken) return -1;
    RT_CUDNN_TRY(rt, "attend", cudnn->SetStream(cudnn->handle, rt_cuda_of(rt)->stream));
    rt_points(rt, rows, [=] __device__(int64_t row) { logs[row] = stats[2 * row] + logf(stats[2 * row + 1]); });
    for (int64_t batch = 0; batch < whole.batch; batch += part.batch)
        for (int64_t kv = 0; kv < whole.kv; kv += part.heads) {
            const int64_t row = (batch * whole.heads + kv * group) * whole.t;
            void *places[RT_ATTEND_PLACES];
            place_attention(call, whole, batch, kv, places);
            if (whole.backward) places[RT_ATTEND_MOST] = logs + row, places[RT_ATTEND_SUM] = sums + row;
            places[RT_ATTEND_DQ_SUM] = sums_of_dq;
            RT_CUDNN_TRY(rt, "attend", plan->graph.execute(cudnn->handle, places, room));
        }
    return RT_OK;
}

#elif defined(RT_WITH_CUDNN)

static int library_attend(struct rt *, const rt_attention_call *) {
    return -1;
}
static void forget_attentions(rt_cudnn *) {}

#endif

#endif
