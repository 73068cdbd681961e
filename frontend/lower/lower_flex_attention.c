/* ONNX FlexAttention-1 of domain ai.onnx.preview: attention with subgraphs that change the scores before the softmax
 * and the weights behind it. */
#include "frontend/lower/onnx_lower.h"

#include <math.h>
#include <string.h>

struct flex {
    int v;
    int64_t heads;
    int given;           /* to the subgraph */
    enum rt_dtype dtype; /* of the inputs and the result */
    const char *name;
};

static int finish(struct lower *lower, const struct flex *flex, int weights) {
    const int v = emit_repeated_heads(lower, flex->v, flex->heads);
    return lower_result(lower, emit_matmul(lower, emit_cast(lower, weights, flex->dtype), v, false, false));
}

/* The subgraph must keep the shape and the type of its input. */
static int check_modified(struct lower *lower, const struct flex *flex, int n, const int *values) {
    const struct tensor x = lower_tensor(lower, flex->given);
    const struct tensor y = n == 1 ? lower_tensor(lower, values[0]) : (struct tensor){0};
    if (n == 1 && y.ndim == x.ndim && y.dtype == x.dtype && memcmp(x.dims, y.dims, 4 * sizeof *x.dims) == 0)
        return values[0];
    return lower_error(lower, 378, "a subgraph of FlexAttention has one output, like its input %s",
                       lower_type(lower, &x));
}

static int weights_done(struct lower *lower, void *state, int n, const int *values) {
    const struct flex *flex = state;
    lower->builder.node = flex->name;
    const int weights = check_modified(lower, flex, n, values);
    return weights < 0 ? -1 : finish(lower, flex, weights);
}

static int enter(struct lower *lower, const char *graph, int input, struct flex *flex,
                 int (*done)(struct lower *lower, void *state, int n, const int *values)) {
    int *inputs = ARENA_ARRAY(lower->arena, int, 1);
    inputs[0] = flex->given = input;
    lower->builder.node = arena_printf(lower->arena, "%s.%s", flex->name, graph);
    return lower_enter(
        lower,
        &(struct subgraph){
            .graph = lower_attribute(lower, graph)->g, .ninputs = 1, .inputs = inputs, .done = done, .state = flex});
}

static int weigh(struct lower *lower, struct flex *flex, int scores) {
    const int weights = emit_softmax(lower, OP_Softmax, scores, 3);
    if (weights < 0) return -1;
    if (lower_given(lower, "prob_mod")) return enter(lower, "prob_mod", weights, flex, weights_done);
    return finish(lower, flex, weights);
}

static int scores_done(struct lower *lower, void *state, int n, const int *values) {
    struct flex *flex = state;
    lower->builder.node = flex->name;
    const int scores = check_modified(lower, flex, n, values);
    return scores < 0 ? -1 : weigh(lower, flex, scores);
}

int lower_flex_attention(struct lower *lower) {
    const struct tensor q = lower_input(lower, 0), k = lower_input(lower, 1), v = lower_input(lower, 2);
    struct flex *flex = ARENA_NEW(lower->arena, struct flex);
    if (q.ndim != 4 || k.ndim != 4 || k.dims[1] < 1 || q.dims[1] % k.dims[1] || q.dims[3] != k.dims[3])
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (v.ndim != 4 || v.dims[1] != k.dims[1] || !lower_meet(lower, v.dims[2], k.dims[2]))
        return lower_misfit(lower, lower->inputs[1], lower->inputs[2]);
    *flex = (struct flex){.v = lower->inputs[2], .heads = q.dims[1], .dtype = q.dtype, .name = lower->builder.node};
    enum rt_dtype work = q.dtype == RT_F64 ? RT_F64 : lower_float_type(lower, RT_F32);
    if (lower_given(lower, "softmax_precision"))
        work = lower_float_type(lower, rt_dtype_by_onnx((int)lower_int(lower, "softmax_precision")));
    if (!rt_dtype_is_float(work)) return lower_unsupported(lower, "this softmax_precision");
    const double scale = lower_given(lower, "scale") ? lower_float(lower, "scale") : 1 / sqrt((double)q.dims[3]);
    int scores =
        emit_matmul(lower, lower->inputs[0], emit_repeated_heads(lower, lower->inputs[1], q.dims[1]), false, true);
    scores = emit_cast(lower, emit_with(lower, OP_Mul, scores, scale), work);
    if (scores < 0) return -1;
    if (lower_given(lower, "score_mod")) return enter(lower, "score_mod", scores, flex, scores_done);
    return weigh(lower, flex, scores);
}
