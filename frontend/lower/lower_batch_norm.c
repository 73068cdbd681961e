/* BatchNormalization: by running statistics, and in training by those of the batch. */
#include "frontend/lower/onnx_lower.h"

#include <string.h>

/* Operands as (C, 1, ..), so that they broadcast along dimension 1 of x. */
struct batch_norm {
    struct tensor x;
    enum rt_dtype dtype; /* of the statistics */
    int scale, bias, mean, variance;
};

static int read_operands(struct lower *l, struct batch_norm *n) {
    int *const operands[] = {&n->scale, &n->bias, &n->mean, &n->variance};
    n->x = lower_input(l, 0);
    n->dtype = lower_dtype(l, l->inputs[4]);
    for (int i = 0; i < 4; i++)
        if ((*operands[i] = emit_channels(l, i + 1, &n->x)) < 0) return -1;
    if (l->op->since < 9 && !lower_int(l, "spatial")) return lower_unsupported(l, "spatial = 0");
    return lower_epsilon(l);
}

/* ONNX BatchNormalization-15 for inference: x a + b with a = scale / sqrt(variance + epsilon), b = bias - mean a, known
 * at compile time where the parameters are. */
static int by_running(struct lower *l, const struct batch_norm *n) {
    int deviation = emit1(l, OP_Sqrt, emit_with(l, OP_Add, n->variance, lower_float(l, "epsilon")));
    int a = emit2(l, OP_Div, emit_cast(l, n->scale, n->dtype), deviation);
    int b = emit2(l, OP_Sub, emit_cast(l, n->bias, n->dtype), emit2(l, OP_Mul, n->mean, a));
    int y = emit2(l, OP_Mul, l->inputs[0], emit_cast(l, a, n->x.dtype));
    return emit2(l, OP_Add, y, emit_cast(l, b, n->x.dtype));
}

/* Training --------------------------------------------------------------------------------------------------------- */

/* Of the batch, over all dimensions but 1, which stay with extent 1. */
struct statistics {
    int mean, variance;
    double count;
};

static struct statistics of_batch(struct lower *l, const struct batch_norm *n) {
    bool axes[MAX_NDIM];
    struct statistics s = {.count = 1};
    for (int d = 0; d < MAX_NDIM; d++) axes[d] = d != 1;
    for (int d = 0; d < n->x.ndim; d++) s.count *= d == 1 ? 1 : (double)n->x.dims[d];
    s.mean = emit_mean(l, l->inputs[0], axes, true);
    int centred = emit2(l, OP_Sub, l->inputs[0], s.mean);
    s.variance = emit_mean(l, emit2(l, OP_Mul, centred, centred), axes, true);
    return s;
}

/* `batch` while the program trains, else `running`, to which no gradient flows. */
static int in_training(struct lower *l, int batch, int running) {
    if (!l->train) return batch;
    int training = emit_with(l, OP_Greater, graph_control(l->b.graph, CONTROL_training), 0);
    return emit3(l, OP_Where, training, batch, emit_cast(l, emit1(l, OP_Detach, running), lower_dtype(l, batch)));
}

static int normalised(struct lower *l, const struct batch_norm *n, int mean, int variance) {
    int deviation = emit1(l, OP_Sqrt, emit_with(l, OP_Add, variance, lower_float(l, "epsilon")));
    int z = emit2(l, OP_Mul, emit2(l, OP_Sub, l->inputs[0], mean), emit1(l, OP_Reciprocal, deviation));
    int y = emit2(l, OP_Mul, z, emit_cast(l, n->scale, n->x.dtype));
    return emit2(l, OP_Add, y, emit_cast(l, n->bias, n->x.dtype));
}

/* Note [Running variance]
 * ONNX's running variance takes in the variance of the batch. PyTorch's takes in the unbiased one, count / (count - 1)
 * times as large, and its exporter writes this operator for it all the same. A model that PyTorch made is trained as
 * PyTorch would train it. */
static double bias_of(const struct lower *l, double count) {
    return l->train && count > 1 && lower_made_by(l, "pytorch") ? count / (count - 1) : 1;
}

/* What a running statistic has become by now: a layer may be used twice. */
static struct update *find_update(struct lower *l, int weight) {
    for (int i = 0; i < l->b.graph->updates.n; i++)
        if (l->b.graph->updates.at[i].weight == weight) return &l->b.graph->updates.at[i];
    return NULL;
}

/* A dummy micro-batch changes nothing. */
static int keep(struct lower *l, int weight, int value) {
    struct graph *graph = l->b.graph;
    if (value < 0 || !l->train || lower_tensor(l, weight).kind != TENSOR_WEIGHT) return value;
    struct update *update = find_update(l, weight);
    int real = emit_with(l, OP_Greater, graph_control(graph, CONTROL_real), 0);
    value = emit3(l, OP_Where, real, value, update ? update->value : weight);
    if (value >= 0 && update) update->value = value;
    if (value >= 0 && !update) VEC_PUSH(graph->arena, &graph->updates, (struct update){weight, value});
    return value;
}

/* Input `input`, a running statistic, with that of the batch taken in. */
static int blended(struct lower *l, int input, int batch, double times) {
    const double momentum = lower_float(l, "momentum");
    struct tensor running = lower_input(l, input);
    struct update *update = find_update(l, l->inputs[input]);
    int old = emit_with(l, OP_Mul, update ? update->value : l->inputs[input], momentum);
    batch = emit_cast(l, emit_reshape(l, batch, 1, running.dims), running.dtype);
    return keep(l, l->inputs[input], emit2(l, OP_Add, old, emit_with(l, OP_Mul, batch, times * (1 - momentum))));
}

static bool is_state(const struct lower *l, int input) {
    return lower_input(l, input).kind == TENSOR_WEIGHT;
}

/* ONNX BatchNormalization-15 with training_mode: outputs 1 and 2 are the new running statistics, which are kept, and
 * used in evaluation, where they are initializers: else the layer has none (for PyTorch's track_running_stats=False its
 * exporter computes some), and goes by the batch always. Before opset 14 outputs 3 and 4 are those of the batch. Units
 * have batches, and statistics, of their own. */
static int by_batch(struct lower *l, const struct batch_norm *n) {
    bool kept = is_state(l, 3) && is_state(l, 4);
    struct statistics s = of_batch(l, n);
    int variance = kept ? in_training(l, s.variance, n->variance) : s.variance;
    int mean = kept ? in_training(l, s.mean, n->mean) : s.mean;
    int results[] = {normalised(l, n, mean, variance), blended(l, 3, s.mean, 1),
                     blended(l, 4, s.variance, bias_of(l, s.count)), emit_reshape(l, s.mean, 1, &n->x.dims[1]),
                     emit_reshape(l, s.variance, 1, &n->x.dims[1])};
    for (int i = 0; i < 5; i++) {
        if (results[i] < 0) return -1;
        if (i < l->noutputs) l->outputs[i] = results[i];
    }
    return 0;
}

/* Note [Training mode of torch.onnx]
 * PyTorch's exporter with dynamo (seen with 2.15) writes the batch norm of a module in training mode without
 * training_mode, as that of one in evaluation mode. Only the node's name still has the operator that it was, which
 * PyTorch gives to training alone: aten::_native_batch_norm_legit_functional, against
 * aten::_native_batch_norm_legit_no_training. */
static bool was_training(const struct lower *l) {
    return l->train && lower_made_by(l, "pytorch") &&
           strstr(onnx_text(l->node->name), "_native_batch_norm_legit_functional");
}

static bool trains(const struct lower *l) {
    bool said = l->op->since == 14 ? lower_int(l, "training_mode") != 0 : lower_wants(l, 1);
    return said || was_training(l);
}

/* Note [Merged statistics]
 * PyTorch's exporter stores initializers of equal values once. Of a model that was not trained yet these are scale and
 * running variance, which are ones, and bias and running mean, which are zeros. What is a parameter cannot be a
 * statistic: the statistic becomes a weight of the node's own. */
static void separate(struct lower *l, int statistic, int parameter, const char *name) {
    struct graph *graph = l->b.graph;
    if (!l->train || l->inputs[statistic] != l->inputs[parameter]) return;
    struct tensor shared = lower_input(l, parameter);
    if (shared.kind != TENSOR_WEIGHT) return;
    int own = graph_add_tensor(graph, TENSOR_WEIGHT, arena_printf(graph->arena, "%s.%s", l->b.node, name), shared.dtype,
                               shared.ndim, shared.dims);
    graph->tensors.at[own].data = shared.data;
    graph->tensors.at[own].stored = shared.stored;
    l->inputs[statistic] = own;
}

/* Running statistics are buffers in every framework; inference from them is differentiable, so gradients reach them. */
static void mark_statistics(const struct lower *l) {
    for (int i = 3; i < 5 && l->train; i++) {
        struct tensor *tensor = &l->b.graph->tensors.at[l->inputs[i]];
        if (tensor->kind == TENSOR_WEIGHT && !tensor->mark) tensor->mark = MARK_BUFFER;
    }
}

int lower_batch_norm(struct lower *l) {
    struct batch_norm n;
    separate(l, 3, 2, "running_mean");
    separate(l, 4, 1, "running_var");
    if (read_operands(l, &n) < 0) return -1;
    mark_statistics(l);
    return trains(l) ? by_batch(l, &n) : lower_result(l, by_running(l, &n));
}
