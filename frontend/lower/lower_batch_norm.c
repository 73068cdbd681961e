/* BatchNormalization: with running statistics, and in training mode with those of the batch. */
#include "frontend/lower/lowering_state.h"

#include <string.h>

/* Operands of one value per channel, reshaped to (C, 1, ..) so that they broadcast along dimension 1 of x. */
struct batch_norm {
    struct tensor x;
    enum rt_dtype dtype; /* of the statistics, or of x if that is wider */
    int scale, bias, mean, variance;
};

static int read_operands(struct lower *lower, struct batch_norm *norm) {
    int *const operands[] = {&norm->scale, &norm->bias, &norm->mean, &norm->variance};
    norm->x = lower_input(lower, 0);
    const enum rt_dtype stored = lower_dtype(lower, lower->inputs[4]);
    norm->dtype = rt_dtype_bytes(stored) < rt_dtype_bytes(norm->x.dtype) ? norm->x.dtype : stored;
    for (int i = 0; i < 4; i++)
        if ((*operands[i] = emit_channels(lower, i + 1, &norm->x)) < 0) return -1;
    if (lower->op->since < 9 && !lower_int(lower, "spatial")) return lower_unsupported(lower, "spatial = 0");
    return lower_epsilon(lower);
}

/* ONNX BatchNormalization-15 for inference: x a + b with a = scale / sqrt(variance + epsilon), b = bias - mean a, known
 * at compile time where the parameters are. */
static int by_running(struct lower *lower, const struct batch_norm *norm) {
    int variance = emit_cast(lower, norm->variance, norm->dtype), mean = emit_cast(lower, norm->mean, norm->dtype);
    int deviation = emit1(lower, OP_Sqrt, emit_with(lower, OP_Add, variance, lower_float(lower, "epsilon")));
    int a = emit2(lower, OP_Div, emit_cast(lower, norm->scale, norm->dtype), deviation);
    int b = emit2(lower, OP_Sub, emit_cast(lower, norm->bias, norm->dtype), emit2(lower, OP_Mul, mean, a));
    int y = emit2(lower, OP_Mul, lower->inputs[0], emit_cast(lower, a, norm->x.dtype));
    return emit2(lower, OP_Add, y, emit_cast(lower, b, norm->x.dtype));
}

/* `batch` while the program trains, `running` in evaluation. No gradient flows to `running`. */
static int in_training(struct lower *lower, int batch, int running) {
    if (!lower->builder.graph->train) return batch;
    int training = emit_with(lower, OP_Greater, graph_control(lower->builder.graph, RT_TRAINING), 0);
    return emit3(lower, OP_Where, training, batch,
                 emit_cast(lower, emit1(lower, OP_Detach, running), lower_dtype(lower, batch)));
}

/* Statistics of the batch: over all dimensions except 1; reduced dimensions are kept with extent 1. With
 * --sync-batch-norm the batch is that of all scale units, and `total` is the number of its elements per channel, an f64
 * tensor: 0 if all micro-batches are dummies, and in evaluation. Else `total` is -1. */
struct statistics {
    int mean, variance, total;
    double count; /* of the scale unit's own batch */
};

/* Statistics of 16-bit floats are computed in f32. */
static enum rt_dtype wide(enum rt_dtype dtype) {
    return rt_dtypes[dtype].kind == RT_KIND_HALF ? RT_F32 : dtype;
}

/* The total as a divisor, in that type. */
static int divisor(struct lower *lower, const struct statistics *statistics, enum rt_dtype dtype) {
    return emit_cast(lower, emit_with(lower, OP_Max, statistics->total, 1), dtype);
}

/* The mean of x over the batch. Evaluation has the mean over the scale unit's own batch. */
static int mean_of(struct lower *lower, const struct statistics *statistics, int x) {
    bool axes[RT_MAX_NDIM];
    for (int d = 0; d < RT_MAX_NDIM; d++) axes[d] = d != 1;
    const int own = emit_mean(lower, x, axes, true);
    if (statistics->total < 0 || own < 0) return own;
    const int sum = build_unit_sum(&lower->builder, emit_reduce(lower, OP_ReduceSum, x, axes, true));
    return in_training(lower, emit2(lower, OP_Div, sum, divisor(lower, statistics, lower_dtype(lower, own))), own);
}

/* The variance's derivative by the mean is 0, being the sum of what deviates from it: no gradient flows there. */
static struct statistics of_batch(struct lower *lower, const struct batch_norm *norm) {
    const int x = emit_cast(lower, lower->inputs[0], wide(norm->x.dtype));
    struct statistics statistics = {.total = -1, .count = 1};
    for (int d = 0; d < norm->x.ndim; d++) statistics.count *= d == 1 ? 1 : (double)norm->x.dims[d];
    if (lower->shared->sync_batch_norm)
        statistics.total = build_unit_sum(&lower->builder, build_scalar(&lower->builder, RT_F64, statistics.count));
    statistics.mean = mean_of(lower, &statistics, x);
    int centred = emit2(lower, OP_Sub, x, emit1(lower, OP_Detach, statistics.mean));
    statistics.variance = mean_of(lower, &statistics, emit2(lower, OP_Mul, centred, centred));
    return statistics;
}

static int normalised(struct lower *lower, const struct batch_norm *norm, int mean, int variance) {
    const enum rt_dtype dtype = wide(norm->x.dtype);
    int x = emit_cast(lower, lower->inputs[0], dtype);
    int deviation = emit1(lower, OP_Sqrt, emit_with(lower, OP_Add, variance, lower_float(lower, "epsilon")));
    int z = emit2(lower, OP_Mul, emit2(lower, OP_Sub, x, mean), emit1(lower, OP_Reciprocal, deviation));
    int y = emit2(lower, OP_Mul, z, emit_cast(lower, norm->scale, dtype));
    return emit_cast(lower, emit2(lower, OP_Add, y, emit_cast(lower, norm->bias, dtype)), norm->x.dtype);
}

/* Note [Running variance]
 * ONNX updates the running variance with the biased variance of the batch. PyTorch uses the unbiased variance, which is
 * count / (count - 1) times as large, and its exporter writes ONNX's operator all the same. A model whose producer_name
 * is "pytorch" is trained with the unbiased variance, as PyTorch would train it. */
static double bias_of(const struct lower *lower, const struct statistics *statistics) {
    const double count = statistics->total < 0 ? statistics->count : 1;
    return lower->builder.graph->train && count > 1 && lower_made_by(lower, "pytorch") ? count / (count - 1) : 1;
}

/* The same for a number of elements that is known at run time. */
static int unbiased_total(struct lower *lower, const struct statistics *statistics) {
    if (statistics->total < 0 || statistics->variance < 0 || !lower_made_by(lower, "pytorch"))
        return statistics->variance;
    const enum rt_dtype dtype = lower_dtype(lower, statistics->variance);
    const int others = emit_with(lower, OP_Max, emit_with(lower, OP_Sub, divisor(lower, statistics, dtype), 1), 1);
    return emit2(lower, OP_Mul, statistics->variance, emit2(lower, OP_Div, divisor(lower, statistics, dtype), others));
}

/* The update of a running statistic so far; NULL: none. A layer that is used twice updates its statistics twice. */
static struct update *find_update(struct lower *lower, int weight) {
    for (int i = 0; i < lower->builder.graph->updates.n; i++)
        if (lower->builder.graph->updates.at[i].weight == weight) return &lower->builder.graph->updates.at[i];
    return NULL;
}

/* Stores `value` as the new value of a weight after the step, unless the batch has dummy micro-batches alone. */
static int keep(struct lower *lower, const struct statistics *statistics, int weight, int value) {
    struct graph *graph = lower->builder.graph;
    if (value < 0 || !lower->builder.graph->train || lower_tensor(lower, weight).kind != TENSOR_WEIGHT) return value;
    struct update *update = find_update(lower, weight);
    const int samples = statistics->total < 0 ? graph_control(graph, RT_REAL) : statistics->total;
    int real = emit_with(lower, OP_Greater, samples, 0);
    value = emit3(lower, OP_Where, real, value, update ? update->value : weight);
    if (value >= 0 && update) update->value = value;
    if (value >= 0 && !update) VEC_PUSH(graph->arena, &graph->updates, (struct update){weight, value});
    return value;
}

/* The new value of input `input`, a running statistic: momentum times the old one plus (1 - momentum) times that of the
 * batch. */
static int blended(struct lower *lower, const struct statistics *statistics, int input, int batch, double times) {
    const double momentum = lower_float(lower, "momentum");
    struct tensor running = lower_input(lower, input);
    struct update *update = find_update(lower, lower->inputs[input]);
    int old = emit_with(lower, OP_Mul, update ? update->value : lower->inputs[input], momentum);
    batch = emit_cast(lower, emit_reshape(lower, batch, 1, running.dims), running.dtype);
    return keep(lower, statistics, lower->inputs[input],
                emit2(lower, OP_Add, old, emit_with(lower, OP_Mul, batch, times * (1 - momentum))));
}

static bool is_state(const struct lower *lower, int input) {
    return lower_input(lower, input).kind == TENSOR_WEIGHT;
}

/* ONNX BatchNormalization-15 with training_mode. Outputs 1 and 2 are the new running statistics; before opset 14
 * outputs 3 and 4 are those of the batch. If inputs 3 and 4 are initializers, the new statistics are stored in them and
 * used in evaluation. Otherwise (PyTorch's track_running_stats=False, for which its exporter computes inputs 3 and 4)
 * the batch's statistics are used in evaluation, too. Each unit has its own batch and statistics, unless
 * --sync-batch-norm is given. */
static int by_batch(struct lower *lower, const struct batch_norm *norm) {
    bool kept = is_state(lower, 3) && is_state(lower, 4);
    struct statistics statistics = of_batch(lower, norm);
    int variance = kept ? in_training(lower, statistics.variance, norm->variance) : statistics.variance;
    int mean = kept ? in_training(lower, statistics.mean, norm->mean) : statistics.mean;
    int results[] = {normalised(lower, norm, mean, variance), blended(lower, &statistics, 3, statistics.mean, 1),
                     blended(lower, &statistics, 4, unbiased_total(lower, &statistics), bias_of(lower, &statistics)),
                     emit_reshape(lower, statistics.mean, 1, &norm->x.dims[1]),
                     emit_reshape(lower, statistics.variance, 1, &norm->x.dims[1])};
    for (int i = 0; i < 5; i++) {
        if (results[i] < 0) return -1;
        if (i < lower->noutputs) lower->outputs[i] = results[i];
    }
    return 0;
}

/* Note [Training mode of torch.onnx]
 * PyTorch's exporter with dynamo=True (seen with 2.15) omits training_mode for the batch norm of a module in training
 * mode. Only the node's name tells: it contains the ATen operator, _native_batch_norm_legit_functional in training mode
 * and _native_batch_norm_legit_no_training in evaluation mode. */
static bool was_training(const struct lower *lower) {
    return lower->builder.graph->train && lower_made_by(lower, "pytorch") &&
           strstr(onnx_text(lower->node->name), "_native_batch_norm_legit_functional");
}

static bool trains(const struct lower *lower) {
    bool said = lower->op->since == 14 ? lower_int(lower, "training_mode") != 0 : lower_wants(lower, 1);
    return said || was_training(lower);
}

/* Note [Merged statistics]
 * PyTorch's exporter stores initializers of equal values once. In a model that has not been trained, scale and running
 * variance are both ones, and bias and running mean are both zeros, so each pair is one initializer. A parameter cannot
 * be a running statistic as well: the statistic becomes a new weight of the node. */
static void separate(struct lower *lower, int statistic, int parameter, const char *name) {
    struct graph *graph = lower->builder.graph;
    if (!lower->builder.graph->train || lower->inputs[statistic] != lower->inputs[parameter]) return;
    struct tensor shared = lower_input(lower, parameter);
    if (shared.kind != TENSOR_WEIGHT) return;
    int own = graph_add_tensor(graph, TENSOR_WEIGHT, arena_printf(graph->arena, "%s.%s", lower->builder.node, name),
                               shared.dtype, shared.ndim, shared.dims);
    graph->tensors.at[own].data = shared.data;
    graph->tensors.at[own].stored = shared.stored;
    lower->inputs[statistic] = own;
}

/* Marks running statistics as buffers, which training does not update by gradients. In evaluation mode the output
 * depends on them, so without the mark they would be taken for parameters. */
static void mark_statistics(const struct lower *lower) {
    for (int i = 3; i < 5 && lower->builder.graph->train; i++) {
        struct tensor *tensor = &lower->builder.graph->tensors.at[lower->inputs[i]];
        if (tensor->kind == TENSOR_WEIGHT && !tensor->mark) tensor->mark = MARK_BUFFER;
    }
}

int lower_batch_norm(struct lower *lower) {
    struct batch_norm norm;
    separate(lower, 3, 2, "running_mean");
    separate(lower, 4, 1, "running_var");
    if (read_operands(lower, &norm) < 0) return -1;
    mark_statistics(lower);
    return trains(lower) ? by_batch(lower, &norm) : lower_result(lower, by_running(lower, &norm));
}
