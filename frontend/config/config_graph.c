/* A configuration as a graph of core operators: the ones that the exporters' decompositions are recognised as. */
#include <math.h>

#include "frontend/config/config.h"
#include "frontend/lower/lower_loss.h"
#include "ir/build.h"
#include "runtime/base/contract.h"

struct model {
    struct build builder;
    const struct model_config *config;
    struct arena *arena;
    int64_t batch;
    enum rt_dtype dtype;
    int cosines, sines; /* of the rotary embeddings, (1, 1, sequence, head_dim) */
};

/* The node and its weights are named "<prefix>.<name>"; the prefix of a layer is "layers.N". */
static void name_node(struct model *model, const char *prefix, const char *name) {
    model->builder.node = arena_printf(model->arena, "%s%s%s", prefix, *prefix ? "." : "", name);
}

/* A weight of the node that is being built. */
static int weight(const struct model *model, const char *suffix, int ndim, const int64_t *dims) {
    struct graph *graph = model->builder.graph;
    const char *name = arena_printf(model->arena, "%s.%s", model->builder.node, suffix);
    const int id = graph_add_tensor(graph, TENSOR_WEIGHT, name, model->dtype, ndim, dims);
    graph->tensors.at[id].stored = (struct stored){.file = -1, .dtype = model->dtype};
    return id;
}

/* x W^T, and + b: x (.., inputs), W (outputs, inputs), b (outputs). */
static int linear(struct model *model, const char *prefix, const char *name, int x, int64_t inputs, int64_t outputs,
                  bool bias) {
    const struct attr transposed = attr_of_int("trans_b", 1);
    name_node(model, prefix, name);
    int w = weight(model, "weight", 2, (int64_t[]){outputs, inputs});
    int y = build(&model->builder, OP_MatMul, 2, (int[]){x, w}, 1, &transposed);
    return bias ? build2(&model->builder, OP_Add, y, weight(model, "bias", 1, &outputs)) : y;
}

/* The last dimension, of that size, is normalized. */
static int norm(struct model *model, const char *prefix, const char *name, int x, int64_t size) {
    const struct model_family *family = model->config->family;
    const bool bias = family->norm == OP_LayerNorm;
    const struct attr epsilon = attr_of_float("epsilon", 1e-5);
    name_node(model, prefix, name);
    int inputs[] = {x, weight(model, "weight", 1, &size), -1};
    if (bias) inputs[2] = weight(model, "bias", 1, &size);
    return build(&model->builder, (enum op_id)family->norm, bias ? 3 : 2, inputs, 1, &epsilon);
}

/* (batch, sequence, heads x head_dim) to (batch, heads, sequence, head_dim). */
static int heads(struct model *model, const char *prefix, int x, int64_t count) {
    const struct model_config *config = model->config;
    const int64_t shape[] = {model->batch, config->sequence, count, config->head_dim}, perm[] = {0, 2, 1, 3};
    name_node(model, prefix, "attention");
    return build_transpose(&model->builder, build_reshape(&model->builder, x, 4, shape), perm);
}

/* The heads of q or k, normalized and with positions if the family has these. */
static int positioned(struct model *model, const char *prefix, const char *norm_name, int x, int64_t count) {
    const struct model_family *family = model->config->family;
    x = heads(model, prefix, x, count);
    if (family->qk_norm) x = norm(model, prefix, norm_name, x, model->config->head_dim);
    name_node(model, prefix, "attention");
    return family->rotary ? build(&model->builder, OP_Rope, 3, (int[]){x, model->cosines, model->sines}, 0, NULL) : x;
}

/* The cache with the rows of these tokens behind those of the past (Note [State] in passes/rewrite/state.c). */
static int cached(struct model *model, const char *prefix, const char *name, int rows) {
    struct graph *graph = model->builder.graph;
    const struct model_config *config = model->config;
    const struct attr attrs[] = {attr_of_int("axis", 2), attr_of_int("at", config->past)};
    const int64_t dims[] = {model->batch, config->kv_heads, config->past + config->sequence, config->head_dim};
    if (!config->past || rows < 0) return rows;
    const char *path = arena_printf(model->arena, "%s.attention.%s", prefix, name);
    const int cache = graph_add_tensor(graph, TENSOR_STATE, path, model->dtype, 4, dims);
    const int all = build(&model->builder, OP_Append, 2, (int[]){cache, rows}, 2, attrs);
    if (all >= 0) graph_add_update(graph, cache, all);
    return all;
}

/* Causal attention of a layer, with the product of its result. */
static int attention(struct model *model, const char *prefix, int x) {
    const struct model_config *config = model->config;
    const int64_t all = config->heads * config->head_dim, grouped = config->kv_heads * config->head_dim;
    const struct attr attrs[] = {attr_of_float("scale", 1 / sqrt((double)config->head_dim)), attr_of_int("causal", 1),
                                 attr_of_float("fill", -INFINITY), attr_of_int("offset", config->past)};
    const int64_t shape[] = {model->batch, config->sequence, all}, perm[] = {0, 2, 1, 3};
    int q = linear(model, prefix, "q_proj", x, config->hidden, all, config->qkv_bias);
    int k = linear(model, prefix, "k_proj", x, config->hidden, grouped, config->qkv_bias);
    int v = linear(model, prefix, "v_proj", x, config->hidden, grouped, config->qkv_bias);
    q = positioned(model, prefix, "q_norm", q, config->heads);
    k = positioned(model, prefix, "k_norm", k, config->kv_heads);
    v = heads(model, prefix, v, config->kv_heads);
    const int inputs[] = {q, cached(model, prefix, "keys", k), cached(model, prefix, "values", v)};
    if (inputs[1] < 0 || inputs[2] < 0) return -1;
    int y = build(&model->builder, OP_Attention, 3, inputs, sizeof attrs / sizeof *attrs, attrs);
    y = build_reshape(&model->builder, build_transpose(&model->builder, y, perm), 3, shape);
    return linear(model, prefix, "o_proj", y, all, config->hidden, config->out_bias);
}

static int mlp(struct model *model, const char *prefix, int x) {
    const struct model_config *config = model->config;
    const bool gated = config->family->gated, bias = config->mlp_bias;
    int up = linear(model, prefix, "up_proj", x, config->hidden, config->ffn, bias);
    int y = gated ? linear(model, prefix, "gate_proj", x, config->hidden, config->ffn, bias) : up;
    y = build1(&model->builder, (enum op_id)config->activation, y);
    if (gated) y = build2(&model->builder, OP_Mul, y, up);
    return linear(model, prefix, "down_proj", y, config->ffn, config->hidden, bias);
}

/* Rows of x (tokens x experts_per_token, inputs) times the weights of their experts. */
static int expert_linear(struct model *model, const char *prefix, const char *name, int x, int chosen, int64_t inputs,
                         int64_t outputs) {
    const struct attr transposed = attr_of_int("trans_b", 1);
    name_node(model, prefix, name);
    int w = weight(model, "weight", 3, (int64_t[]){model->config->experts, outputs, inputs});
    return build(&model->builder, OP_ExpertMatMul, 3, (int[]){x, w, chosen}, 1, &transposed);
}

/* A mixture of experts (arXiv 2401.04088, section 2.1): softmax over the scores of the experts that a token chose. */
static int experts(struct model *model, const char *prefix, int x) {
    const struct model_config *config = model->config;
    struct build *builder = &model->builder;
    const int64_t tokens = model->batch * config->sequence, k = config->experts_per_token, rows = tokens * k;
    const struct attr axis = attr_of_int("axis", 1),
                      sums[] = {attr_of_ints("axes", 1, (int64_t[]){1}), attr_of_int("keepdims", 0)};
    const struct attr choice[] = {axis, attr_of_int("k", k), attr_of_int("largest", 1)};
    x = build_reshape(builder, x, 2, (int64_t[]){tokens, config->hidden});
    int scores = linear(model, prefix, "router", x, config->hidden, config->experts, false);
    int chosen = build(builder, OP_TopK, 1, &scores, 3, choice);
    int shares = build(builder, OP_GatherElements, 2, (int[]){scores, chosen}, 1, &axis);
    shares = build_reshape(builder, build(builder, OP_Softmax, 1, &shares, 1, &axis), 2, (int64_t[]){rows, 1});
    chosen = build_reshape(builder, chosen, 1, &rows);
    x = build_expand(builder, build_reshape(builder, x, 3, (int64_t[]){tokens, 1, config->hidden}), 3,
                     (int64_t[]){tokens, k, config->hidden});
    x = build_reshape(builder, x, 2, (int64_t[]){rows, config->hidden});
    int up = expert_linear(model, prefix, "experts.up_proj", x, chosen, config->hidden, config->ffn);
    int y = expert_linear(model, prefix, "experts.gate_proj", x, chosen, config->hidden, config->ffn);
    y = build2(builder, OP_Mul, build1(builder, (enum op_id)config->activation, y), up);
    y = expert_linear(model, prefix, "experts.down_proj", y, chosen, config->ffn, config->hidden);
    y = build_reshape(builder, build2(builder, OP_Mul, y, shares), 3, (int64_t[]){tokens, k, config->hidden});
    y = build(builder, OP_ReduceSum, 1, &y, 2, sums);
    return build_reshape(builder, y, 3, (int64_t[]){model->batch, config->sequence, config->hidden});
}

static int layer(struct model *model, const char *prefix, int x) {
    const int64_t hidden = model->config->hidden;
    x = build2(&model->builder, OP_Add, x, attention(model, prefix, norm(model, prefix, "input_norm", x, hidden)));
    int normed = norm(model, prefix, "post_attention_norm", x, hidden);
    return build2(&model->builder, OP_Add, x,
                  model->config->experts ? experts(model, prefix, normed) : mlp(model, prefix, normed));
}

/* Tables that are computed before training and not trained. */
static int table(struct model *model, const char *name) {
    const int64_t dims[] = {1, 1, model->config->sequence, model->config->head_dim};
    int id = weight(model, name, 4, dims);
    model->builder.graph->tensors.at[id].mark = MARK_BUFFER;
    return id;
}

/* The embeddings of positions, (sequence, hidden): rows of a learned table. */
static int embed_positions(struct model *model) {
    const struct model_config *config = model->config;
    const int64_t unread = config->family->unread_positions + config->past, sequence = config->sequence;
    const int64_t known = config->family->unread_positions + config->positions, read = unread + sequence;
    const int64_t rows = known > read ? known : read;
    int x = weight(model, "weight", 2, (int64_t[]){rows, config->hidden});
    return rows == sequence ? x : build_piece(&model->builder, x, 0, unread, 1, sequence);
}

/* The sum of the embeddings of tokens, and of positions if they are learned. *embeddings: the weights. */
static int embed(struct model *model, int ids, int *embeddings) {
    const struct model_config *config = model->config;
    const struct attr axis = attr_of_int("axis", 0);
    name_node(model, "", "embed_tokens");
    *embeddings = weight(model, "weight", 2, (int64_t[]){config->vocab, config->hidden});
    int x = build(&model->builder, OP_Gather, 2, (int[]){*embeddings, ids}, 1, &axis);
    if (x < 0) return -1;
    if (config->family->rotary) {
        name_node(model, "", "rotary");
        model->cosines = table(model, "cos");
        model->sines = table(model, "sin");
        return x;
    }
    name_node(model, "", "embed_positions");
    return build2(&model->builder, OP_Add, x, embed_positions(model));
}

static int head(struct model *model, int x, int embeddings) {
    const struct model_config *config = model->config;
    const struct attr transposed = attr_of_int("trans_b", 1);
    x = norm(model, "", "norm", x, config->hidden);
    name_node(model, "", "lm_head");
    int w = config->tied ? embeddings : weight(model, "weight", 2, (int64_t[]){config->vocab, config->hidden});
    return build(&model->builder, OP_MatMul, 2, (int[]){x, w}, 1, &transposed);
}

int model_config_graph(struct arena *arena, struct diags *diags, const struct model_config *config, enum rt_dtype dtype,
                       int64_t batch, bool train, struct graph **out) {
    struct graph *graph = *out = ARENA_NEW(arena, struct graph);
    const int64_t shape[] = {batch, config->sequence};
    int embeddings;
    if (train && config->head_dim > RT_FLASH_HEAD) {
        diag_error(diags, 395, EXIT_UNSUPPORTED, config->name,
                   "head_dim is %lld, and flash attention has heads of up to %d elements", (long long)config->head_dim,
                   RT_FLASH_HEAD);
        return diag_help(diags, "training is planned with flash attention; --inference plans without it");
    }
    graph_init(graph, arena, config->name);
    graph->train = train;
    struct model model = {.builder = {graph, diags, ""},
                          .config = config,
                          .arena = arena,
                          .batch = batch,
                          .dtype = dtype == RT_DTYPE_NONE ? RT_F32 : dtype,
                          .cosines = -1,
                          .sines = -1};
    int ids = graph_add_tensor(graph, TENSOR_INPUT, "input_ids", RT_I64, 2, shape);
    VEC_PUSH(arena, &graph->inputs, ids);
    int x = embed(&model, ids, &embeddings);
    for (int64_t i = 0; i < config->layers && x >= 0; i++)
        x = layer(&model, arena_printf(arena, "layers.%d", (int)i), x);
    int result = x < 0 ? -1 : head(&model, x, embeddings);
    if (result >= 0 && train) {
        int labels = graph_add_tensor(graph, TENSOR_INPUT, "labels", RT_I64, 2, shape);
        VEC_PUSH(arena, &graph->inputs, labels);
        name_node(&model, "", "loss");
        const struct class_loss loss = {
            .scores = result, .logits = true, .axis = 2, .target = labels, .weights = -1, .reduction = LOSS_MEAN};
        result = loss_of_classes(&model.builder, &loss);
    }
    if (result < 0) return -1;
    VEC_PUSH(arena, &graph->outputs, result);
    VEC_PUSH(arena, &graph->output_names, train ? "loss" : "logits");
    return 0;
}
