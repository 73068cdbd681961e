/* Attention and its gradient as cuDNN operation graphs, in the pattern that its engines recognise and compute in one
 * pass (developer guide, "Fused Flash Attention" forward and backward; Dao, "FlashAttention-2", 2023).
 *
 * Scores are f32; weights and their gradients are rounded to the type of q before they are multiplied, as in flash.cuh.
 * The statistics kept per row are those of flash.cuh: the largest score, and the sum of e^(score - that), so that
 * either implementation can compute the gradient of the other's forward pass.
 *
 * The gradient has two forms. In the one that the library documents as deterministic (cudnn-frontend, deterministic
 * algorithm) dq is the result of a product. In the other, `atomic`, the product is accumulated in an f32 tensor in
 * memory, to which engines add in any order, without being marked nondeterministic. */
#ifndef RT_CUDA_ATTEND_GRAPH_CUH
#define RT_CUDA_ATTEND_GRAPH_CUH

#include "cudnn_graph.cuh"

/* Tensors in memory and their numbers in the graphs. */
enum rt_attend_place {
    RT_ATTEND_Q, /* (batch,heads,t,d) */
    RT_ATTEND_K, /* (batch,kv,s,d) */
    RT_ATTEND_V, /* (batch,kv,s,e) */
    RT_ATTEND_Y, /* (batch,heads,t,e) */
    /* f32 (batch,heads,t), every second element: largest score; backward: log-sum-exp instead, dense */
    RT_ATTEND_MOST,
    RT_ATTEND_SUM,  /* likewise: sum of e^(score - largest); backward: sum of dy y, dense, a result */
    RT_ATTEND_BIAS, /* forward */
    RT_ATTEND_DY = RT_ATTEND_BIAS,
    RT_ATTEND_DQ,
    RT_ATTEND_DK,
    RT_ATTEND_DV,
    RT_ATTEND_DQ_SUM, /* atomic: f32 (batch,heads,t,d), dense */
    RT_ATTEND_PLACES
};

/* Key of a plan. */
struct rt_attend_shape {
    cudnnDataType_t type;
    int64_t batch, heads, kv, t, s, d, e;
    int64_t bias[4];                     /* (batch,heads,t,s), 1: broadcast; 0: no bias, as in the gradient */
    int64_t stride[RT_ATTEND_PLACES][3]; /* of 16-bit operands except the bias: of batch, heads and lines */
    int64_t diagonal;                    /* causal: row i sees keys up to i + diagonal */
    int32_t causal, backward;
    int32_t atomic; /* backward */
    float scale;
};

static inline rt_cudnn_extents rt_attend_scores(const rt_attend_shape &shape) {
    return {{shape.batch, shape.heads, shape.t, shape.s}};
}
static inline rt_cudnn_extents rt_attend_rows(const rt_attend_shape &shape) {
    return {{shape.batch, shape.heads, shape.t, 1}};
}

static inline rt_cudnn_extents rt_attend_stride(const rt_attend_shape &shape, rt_attend_place place) {
    const int64_t *stride = shape.stride[place];
    return {{stride[0], stride[1], stride[2], 1}};
}
static inline int rt_attend_operand(rt_cudnn_graph &graph, const rt_attend_shape &shape, rt_attend_place place,
                                    const rt_cudnn_extents &dims) {
    return graph.tensor(shape.type, dims, rt_attend_stride(shape, place), RT_CUDNN_MEMORY);
}
/* Transposed views of the same memory. */
static inline int rt_attend_turned(rt_cudnn_graph &graph, const rt_attend_shape &shape, rt_attend_place place,
                                   const rt_cudnn_extents &dims) {
    return graph.tensor(shape.type, rt_cudnn_turned(dims), rt_cudnn_turned(rt_attend_stride(shape, place)),
                        RT_CUDNN_MEMORY);
}

/* Value of hidden scores, as the library requires: finite, because -inf - -inf is NaN. */
static inline int rt_attend_hide(rt_cudnn_graph &graph, const rt_attend_shape &shape, int score) {
    const rt_cudnn_extents scores = rt_attend_scores(shape);
    int row = graph.index(2, graph.values(CUDNN_DATA_INT32, scores), score);
    const int column = graph.index(3, graph.values(CUDNN_DATA_INT32, scores), score);
    if (shape.diagonal)
        row = graph.pointwise(CUDNN_POINTWISE_ADD, graph.values(CUDNN_DATA_INT32, scores),
                              {row, graph.integer((int32_t)shape.diagonal)}, CUDNN_DATA_INT32);
    const int seen = graph.pointwise(CUDNN_POINTWISE_CMP_GE, graph.values(CUDNN_DATA_BOOLEAN, scores), {row, column},
                                     CUDNN_DATA_BOOLEAN);
    return graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, graph.values(CUDNN_DATA_FLOAT, scores),
                           {score, graph.number(-3.402823466e38f), seen});
}

/* scale q k^T */
static inline int rt_attend_score(rt_cudnn_graph &graph, const rt_attend_shape &shape, int factor) {
    const rt_cudnn_extents scores = rt_attend_scores(shape);
    const int product = graph.matmul(graph.values(CUDNN_DATA_FLOAT, scores), RT_ATTEND_Q, RT_ATTEND_K);
    return graph.pointwise(CUDNN_POINTWISE_MUL, graph.values(CUDNN_DATA_FLOAT, scores), {product, factor});
}

static inline int rt_attend_add(rt_cudnn_graph &graph, const rt_attend_shape &shape, int score, int bias) {
    return graph.pointwise(CUDNN_POINTWISE_ADD, graph.values(CUDNN_DATA_FLOAT, rt_attend_scores(shape)), {score, bias});
}

static inline void rt_attend_forward(rt_cudnn_graph &graph, const rt_attend_shape &shape) {
    const rt_cudnn_extents scores = rt_attend_scores(shape), rows = rt_attend_rows(shape);
    const rt_cudnn_extents second = {{shape.heads * shape.t * 2, shape.t * 2, 2, 1}};
    rt_attend_operand(graph, shape, RT_ATTEND_Q, {{shape.batch, shape.heads, shape.t, shape.d}});
    rt_attend_turned(graph, shape, RT_ATTEND_K, {{shape.batch, shape.kv, shape.s, shape.d}});
    rt_attend_operand(graph, shape, RT_ATTEND_V, {{shape.batch, shape.kv, shape.s, shape.e}});
    rt_attend_operand(graph, shape, RT_ATTEND_Y, {{shape.batch, shape.heads, shape.t, shape.e}});
    graph.tensor(CUDNN_DATA_FLOAT, rows, second, RT_CUDNN_MEMORY);
    graph.tensor(CUDNN_DATA_FLOAT, rows, second, RT_CUDNN_MEMORY);
    const int bias =
        shape.bias[0] ? graph.given(shape.type, {{shape.bias[0], shape.bias[1], shape.bias[2], shape.bias[3]}}) : -1;
    int score = rt_attend_score(graph, shape, graph.number(shape.scale));
    if (bias >= 0) score = rt_attend_add(graph, shape, score, bias);
    if (shape.causal) score = rt_attend_hide(graph, shape, score);
    graph.reduce(CUDNN_REDUCE_TENSOR_MAX, RT_ATTEND_MOST, score);
    const int below =
        graph.pointwise(CUDNN_POINTWISE_SUB, graph.values(CUDNN_DATA_FLOAT, scores), {score, RT_ATTEND_MOST});
    const int power = graph.pointwise(CUDNN_POINTWISE_EXP, graph.values(CUDNN_DATA_FLOAT, scores), {below});
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, RT_ATTEND_SUM, power);
    const int weight = graph.pointwise(CUDNN_POINTWISE_DIV, graph.values(shape.type, scores), {power, RT_ATTEND_SUM});
    graph.matmul(RT_ATTEND_Y, weight, RT_ATTEND_V);
}

/* Gradient of k or v, heads of `size` elements: gradient^T times `by` for each query head, summed over the heads that
 * share it. */
static inline void rt_attend_gather(rt_cudnn_graph &graph, const rt_attend_shape &shape, int dy, int change, int by,
                                    int64_t size) {
    const rt_cudnn_extents scores = rt_attend_scores(shape);
    const int turned = graph.reshape(
        graph.tensor(shape.type, rt_cudnn_turned(scores), rt_cudnn_turned(rt_cudnn_dense(scores)), RT_CUDNN_PASSING),
        change);
    if (shape.heads == shape.kv) {
        graph.matmul(dy, turned, by);
        return;
    }
    const int each = graph.matmul(graph.values(shape.type, {{shape.batch, shape.heads, shape.s, size}}), turned, by);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, dy, each);
}

/* weights = e^(score - log-sum-exp); dv = weights^T dy; gradient of scores = weights (dy v^T - sum of dy y) scale; dk =
 * that^T q; dq = that k. */
static inline void rt_attend_backward(rt_cudnn_graph &graph, const rt_attend_shape &shape) {
    const rt_cudnn_extents scores = rt_attend_scores(shape), rows = rt_attend_rows(shape);
    const rt_cudnn_extents q = {{shape.batch, shape.heads, shape.t, shape.d}},
                           k = {{shape.batch, shape.kv, shape.s, shape.d}},
                           v = {{shape.batch, shape.kv, shape.s, shape.e}},
                           y = {{shape.batch, shape.heads, shape.t, shape.e}};
    rt_attend_operand(graph, shape, RT_ATTEND_Q, q);
    rt_attend_turned(graph, shape, RT_ATTEND_K, k);
    rt_attend_turned(graph, shape, RT_ATTEND_V, v);
    rt_attend_operand(graph, shape, RT_ATTEND_Y, y);
    graph.given(CUDNN_DATA_FLOAT, rows);
    graph.given(CUDNN_DATA_FLOAT, rows);
    rt_attend_operand(graph, shape, RT_ATTEND_DY, y);
    rt_attend_operand(graph, shape, RT_ATTEND_DQ, q);
    rt_attend_operand(graph, shape, RT_ATTEND_DK, k);
    rt_attend_operand(graph, shape, RT_ATTEND_DV, v);
    if (shape.atomic) graph.given(CUDNN_DATA_FLOAT, q);
    const int factor = graph.number(shape.scale);
    const auto f32 = [&] { return graph.values(CUDNN_DATA_FLOAT, scores); };

    const int each =
        graph.pointwise(CUDNN_POINTWISE_MUL, graph.values(CUDNN_DATA_FLOAT, y), {RT_ATTEND_DY, RT_ATTEND_Y});
    const int sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, graph.values(CUDNN_DATA_FLOAT, rows), each);
    graph.pointwise(CUDNN_POINTWISE_MUL, RT_ATTEND_SUM, {sum, graph.number(1)});

    int below = graph.pointwise(CUDNN_POINTWISE_SUB, f32(), {rt_attend_score(graph, shape, factor), RT_ATTEND_MOST});
    if (shape.causal) below = rt_attend_hide(graph, shape, below);
    const int weight = graph.pointwise(CUDNN_POINTWISE_EXP, f32(), {below});
    rt_attend_gather(graph, shape, RT_ATTEND_DV, weight, RT_ATTEND_DY, shape.e);

    int change = graph.matmul(f32(), RT_ATTEND_DY, RT_ATTEND_V);
    change = graph.pointwise(CUDNN_POINTWISE_SUB, f32(), {change, RT_ATTEND_SUM});
    change = graph.pointwise(CUDNN_POINTWISE_MUL, f32(), {change, weight});
    change = graph.pointwise(CUDNN_POINTWISE_MUL, f32(), {change, factor});
    rt_attend_gather(graph, shape, RT_ATTEND_DK, change, RT_ATTEND_Q, shape.d);
    const int straight = graph.reshape(
        graph.tensor(CUDNN_DATA_FLOAT, k, rt_attend_stride(shape, RT_ATTEND_K), RT_CUDNN_PASSING), RT_ATTEND_K);
    graph.matmul(shape.atomic ? RT_ATTEND_DQ_SUM : RT_ATTEND_DQ, change, straight);
    if (shape.atomic) graph.pointwise(CUDNN_POINTWISE_IDENTITY, RT_ATTEND_DQ, {RT_ATTEND_DQ_SUM});
}

static inline void rt_attend_describe(rt_cudnn_graph &graph, const rt_attend_shape &shape) {
    (shape.backward ? rt_attend_backward : rt_attend_forward)(graph, shape);
}

#endif
