/* ONNX Attention-25 and RotaryEmbedding-23.
 *
 * Attention becomes the core operator of that name, with causal masks and windows as attributes. It becomes the
 * composition of the standard's function body where the core operator has no kernel (16-bit floats), no gradient (in
 * training), or no such result (scores). */
#include "frontend/lower/onnx_lower.h"

#include <math.h>

/* q, k and v have shape (batch, heads, length, size). */
struct attention {
    int q, k, v;
    bool flat; /* the inputs had 3 dimensions, and so has the result */
    bool core; /* it becomes the core operator, else a composition */
    int64_t q_length, kv_length, past;
    int keep, bias; /* keep: bool, only of the core operator; bias: added to the scores. -1: none */
    bool may_mask_rows;
    bool
        causal; /* of the core operator: keys up to `offset` after the query's number, with a window the last of them */
    int64_t offset, window;
};

/* Reshapes (batch, length, heads x size) to (batch, heads, length, size); other shapes are left as they are. */
static int split_heads(struct lower *lower, int x, const char *count) {
    struct tensor tensor = lower_tensor(lower, x);
    int64_t heads = lower_int(lower, count);
    if (tensor.ndim == 4) return x;
    if (tensor.ndim != 3 || heads < 1 || tensor.dims[2] % heads)
        return lower_error(lower, 378, "%s cannot be divided into %s = %lld head(s)", lower_type(lower, &tensor), count,
                           (long long)heads);
    int64_t shape[] = {tensor.dims[0], tensor.dims[1], heads, tensor.dims[2] / heads};
    return emit_transpose(lower, emit_reshape(lower, x, 4, shape), (int64_t[]){0, 2, 1, 3});
}

int emit_split_heads(struct lower *lower, int x, int64_t heads) {
    if (x < 0) return -1;
    const struct tensor tensor = lower_tensor(lower, x);
    if (tensor.ndim != 3 || heads < 1 || tensor.dims[2] % heads)
        return lower_error(lower, 378, "%s cannot be divided into %lld heads", lower_type(lower, &tensor),
                           (long long)heads);
    return emit_reshape(lower, x, 4, (int64_t[]){tensor.dims[0], tensor.dims[1], heads, tensor.dims[2] / heads});
}

int emit_joined_heads(struct lower *lower, int x) {
    if (x < 0) return -1;
    const struct tensor heads = lower_tensor(lower, x);
    const int64_t shape[] = {heads.dims[0], heads.dims[2], heads.dims[1] * heads.dims[3]};
    return emit_reshape(lower, emit_transpose(lower, x, (int64_t[]){0, 2, 1, 3}), 3, shape);
}

/* Prepends the keys or values of past steps. */
static int with_past(struct lower *lower, int input, int x) {
    if (!lower_has(lower, input) || x < 0) return x;
    if (lower_ndim(lower, lower->inputs[input]) != 4) return lower_misfit(lower, lower->inputs[input], x);
    return emit_concat(lower, 2, 2, (int[]){lower->inputs[input], x});
}

int emit_repeated_heads(struct lower *lower, int x, int64_t heads) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    const int64_t *d = tensor.dims;
    if (d[1] == heads) return x;
    x = emit_expand(lower, emit_unsqueeze(lower, x, 2), 5, (int64_t[]){d[0], d[1], heads / d[1], d[2], d[3]});
    return emit_reshape(lower, x, 4, (int64_t[]){d[0], heads, d[2], d[3]});
}

/* True if the core operator computes this. */
static bool is_core(const struct lower *lower, const struct tensor *q) {
    enum rt_dtype work = q->dtype;
    if (lower_given(lower, "softmax_precision"))
        work = lower_float_type(lower, rt_dtype_by_onnx((int)lower_int(lower, "softmax_precision")));
    return !lower->builder.graph->train && (q->dtype == RT_F32 || q->dtype == RT_F64) && work == q->dtype &&
           !lower_wants(lower, 3);
}

/* Splits the inputs into heads and checks their shapes against each other. */
static int read_inputs(struct lower *lower, struct attention *attention) {
    attention->flat = lower_ndim(lower, lower->inputs[0]) == 3;
    attention->q = split_heads(lower, lower->inputs[0], "q_num_heads");
    attention->k = split_heads(lower, lower->inputs[1], "kv_num_heads");
    attention->v = split_heads(lower, lower->inputs[2], "kv_num_heads");
    if (attention->q < 0 || attention->k < 0 || attention->v < 0) return -1;
    attention->past = lower_has(lower, 4) ? lower_input(lower, 4).dims[2] : 0;
    attention->k = with_past(lower, 4, attention->k);
    attention->v = with_past(lower, 5, attention->v);
    if (attention->k < 0 || attention->v < 0) return -1;
    const struct tensor q = lower_tensor(lower, attention->q), k = lower_tensor(lower, attention->k),
                        v = lower_tensor(lower, attention->v);
    bool fits = lower_meet(lower, q.dims[0], k.dims[0]) && q.dims[3] == k.dims[3] && k.dims[1] > 0 &&
                q.dims[1] % k.dims[1] == 0;
    if (!fits) return lower_misfit(lower, attention->q, attention->k);
    for (int d = 0; d < 3; d++)
        if (!lower_meet(lower, k.dims[d], v.dims[d])) return lower_misfit(lower, attention->k, attention->v);
    attention->core = is_core(lower, &q);
    attention->q_length = q.dims[2];
    attention->kv_length = k.dims[2];
    return 0;
}

/* A bias for the scores: 0 where `allowed` is true, else -inf. */
static int bias_of(struct lower *lower, const struct attention *attention, int allowed) {
    return emit3(lower, OP_Where, allowed, emit_like(lower, attention->q, 0),
                 emit_like(lower, attention->q, -INFINITY));
}

static void add_bias(struct lower *lower, struct attention *attention, int bias) {
    attention->bias = attention->bias < 0 ? bias : emit2(lower, OP_Add, attention->bias, bias);
}

/* Only where `allowed` is true do scores stay. */
static int add_condition(struct lower *lower, struct attention *attention, int allowed) {
    if (!attention->core)
        add_bias(lower, attention, bias_of(lower, attention, allowed));
    else
        attention->keep = attention->keep < 0 ? allowed : emit2(lower, OP_And, attention->keep, allowed);
    return attention->core ? attention->keep : attention->bias;
}

/* Input 3. It may be shorter than the keys; further keys are not allowed. */
static int add_mask(struct lower *lower, struct attention *attention) {
    struct tensor mask = lower_input(lower, 3);
    int id = lower->inputs[3], last = mask.ndim - 1;
    if (mask.ndim < 1 || mask.ndim > 4 || !lower_meets_keys(lower, mask.dims[last], attention->kv_length) ||
        mask.dims[last] > attention->kv_length)
        return lower_misfit(lower, attention->k, id);
    const int64_t more = attention->kv_length - mask.dims[last];
    if (more) id = emit_padded(lower, id, last, 0, more, mask.dtype == RT_BOOL ? 0 : -INFINITY);
    if (id < 0) return -1;
    if (mask.dtype == RT_BOOL) return add_condition(lower, attention, id);
    add_bias(lower, attention, emit_cast(lower, id, lower_dtype(lower, attention->q)));
    return attention->bias;
}

/* The position of each query among the keys: a constant of shape (length, 1); with an external cache (input 6, the
 * number of valid keys of each batch element) computed, with shape (batch, 1, length, 1). */
static int query_places(struct lower *lower, const struct attention *attention) {
    if (!lower_has(lower, 6)) return emit_places(lower, attention->past, attention->q_length, 2, 0);
    struct tensor valid = lower_input(lower, 6);
    int at = emit_places(lower, -attention->q_length, attention->q_length, 2, 0);
    return emit2(lower, OP_Add, emit_reshape(lower, lower->inputs[6], 4, (int64_t[]){valid.dims[0], 1, 1, 1}), at);
}

/* Allows keys from `before` positions before the query to `after` positions after it; negative: no limit. */
static void add_window(struct lower *lower, struct attention *attention, int64_t before, int64_t after) {
    if (attention->core && !lower_has(lower, 6)) {
        const int64_t ahead = after >= 0 ? after : attention->kv_length;
        attention->causal = true;
        attention->offset = attention->past + ahead;
        attention->window = before >= 0 ? before + 1 + ahead : 0;
        return;
    }
    int query = query_places(lower, attention), key = emit_places(lower, 0, attention->kv_length, 2, 1);
    int distance = emit2(lower, OP_Sub, key, query), allowed = -1;
    if (after >= 0) allowed = emit_with(lower, OP_LessOrEqual, distance, (double)after);
    if (before >= 0) {
        int near = emit_with(lower, OP_GreaterOrEqual, distance, -(double)before);
        allowed = after >= 0 ? emit2(lower, OP_And, allowed, near) : near;
    }
    add_condition(lower, attention, allowed);
}

static int build_masks(struct lower *lower, struct attention *attention) {
    bool windows = lower->op->since >= 25;
    int64_t before = windows ? lower_int(lower, "left_window_size") : -1;
    int64_t after = windows ? lower_int(lower, "right_window_size") : -1;
    attention->keep = attention->bias = -1;
    attention->causal = false;
    attention->offset = attention->window = 0;
    attention->may_mask_rows = lower_has(lower, 3) || lower_has(lower, 6) || before >= 0 || after >= 0;
    if (lower_has(lower, 6) && lower_ndim(lower, lower->inputs[6]) != 1)
        return lower_misfit(lower, attention->k, lower->inputs[6]);
    if (lower_has(lower, 3) && add_mask(lower, attention) < 0) return -1;
    if (lower_int(lower, "is_causal")) after = 0;
    if (before >= 0 || after >= 0) add_window(lower, attention, before, after);
    if (!lower_has(lower, 6)) return 0;
    int64_t n = lower_input(lower, 6).dims[0];
    int valid = emit_reshape(lower, lower->inputs[6], 4, (int64_t[]){n, 1, 1, 1});
    int key = emit_places(lower, 0, attention->kv_length, 2, 1);
    return add_condition(lower, attention, emit2(lower, OP_Less, key, valid)) < 0 ? -1 : 0;
}

/* Sets the weights of queries that may attend to no key to 0, where softmax would give NaN. */
static int clear_masked_rows(struct lower *lower, const struct attention *attention, int weights) {
    if (!attention->may_mask_rows || weights < 0 || attention->bias < 0) return weights;
    const int last = lower_ndim(lower, attention->bias) - 1;
    int most = emit_reduce_along(lower, OP_ReduceMax, attention->bias, last, true);
    int masked = emit_with(lower, OP_Equal, most, -INFINITY);
    return emit3(lower, OP_Where, masked, emit_like(lower, weights, 0), weights);
}

static int attention_weights(struct lower *lower, const struct attention *attention, int scores) {
    enum rt_dtype dtype = lower_dtype(lower, attention->q), work = dtype;
    if (lower_given(lower, "softmax_precision"))
        work = lower_float_type(lower, rt_dtype_by_onnx((int)lower_int(lower, "softmax_precision")));
    if (work == RT_DTYPE_NONE || !rt_dtype_is_float(work)) return lower_unsupported(lower, "this softmax_precision");
    int weights = emit_softmax(lower, OP_Softmax, emit_cast(lower, scores, work), 3);
    return emit_cast(lower, clear_masked_rows(lower, attention, weights), dtype);
}

/* Computes scores and attention weights. Output 3, if wanted, is the scores after the step that qk_matmul_output_mode
 * selects. */
static int scores_and_weights(struct lower *lower, struct attention *attention) {
    struct tensor q = lower_tensor(lower, attention->q);
    double scale = lower_given(lower, "scale") ? lower_float(lower, "scale") : 1 / sqrt((double)q.dims[3]);
    double cap = lower_float(lower, "softcap");
    int step[4], k = emit_repeated_heads(lower, attention->k, q.dims[1]);
    step[0] = emit_matmul(lower, emit_with(lower, OP_Mul, attention->q, scale), k, false, true);
    if (cap > 0) step[0] = emit_with(lower, OP_Mul, emit1(lower, OP_Tanh, emit_with(lower, OP_Div, step[0], cap)), cap);
    step[1] = step[0];
    step[2] = attention->bias < 0 ? step[1] : emit2(lower, OP_Add, step[1], attention->bias);
    step[3] = step[2] < 0 ? -1 : attention_weights(lower, attention, step[2]);
    int64_t mode = lower_int(lower, "qk_matmul_output_mode");
    if (mode < 0 || mode > 3) return lower_error(lower, 335, "unknown qk_matmul_output_mode %lld", (long long)mode);
    if (lower_wants(lower, 3)) lower->outputs[3] = step[mode];
    return step[3];
}

static int composition(struct lower *lower, struct attention *attention) {
    int weights = scores_and_weights(lower, attention);
    const int v = emit_repeated_heads(lower, attention->v, lower_tensor(lower, attention->q).dims[1]);
    return emit_matmul(lower, weights, v, false, false);
}

static int core_operator(struct lower *lower, const struct attention *attention) {
    struct attr attrs[7];
    int inputs[] = {attention->q, attention->k, attention->v, attention->keep, attention->bias}, n = 0;
    double size = (double)lower_tensor(lower, attention->q).dims[3];
    attrs[n++] = attr_of_float("scale", lower_given(lower, "scale") ? lower_float(lower, "scale") : 1 / sqrt(size));
    if (lower_float(lower, "softcap") > 0) attrs[n++] = attr_of_float("cap", lower_float(lower, "softcap"));
    if (attention->keep >= 0 || attention->causal) attrs[n++] = attr_of_float("fill", -INFINITY);
    if (attention->causal) attrs[n++] = attr_of_int("causal", 1);
    if (attention->offset) attrs[n++] = attr_of_int("offset", attention->offset);
    if (attention->window) attrs[n++] = attr_of_int("window", attention->window);
    if (attention->may_mask_rows) attrs[n++] = attr_of_int("nan_to_zero", RT_HIDDEN_ROWS_TO_ZERO);
    return emit(lower, OP_Attention, attention->bias >= 0 ? 5 : attention->keep >= 0 ? 4 : 3, inputs, n, attrs);
}

int lower_attention(struct lower *lower) {
    struct attention attention;
    if (lower_has(lower, 4) != lower_has(lower, 5))
        return lower_error(lower, 331, "past_key and past_value must be given together");
    if (lower_has(lower, 4) && lower_ndim(lower, lower->inputs[4]) != 4)
        return lower_misfit(lower, lower->inputs[1], lower->inputs[4]);
    if (read_inputs(lower, &attention) < 0 || build_masks(lower, &attention) < 0) return -1;
    if (lower_wants(lower, 2)) lower->outputs[2] = attention.v;
    if ((attention.v = emit_cast(lower, attention.v, lower_dtype(lower, attention.q))) < 0) return -1;
    int y = attention.core ? core_operator(lower, &attention) : composition(lower, &attention);
    if (lower_wants(lower, 1)) lower->outputs[1] = attention.k;
    return lower_result(lower, attention.flat ? emit_joined_heads(lower, y) : y);
}

/* The sine or cosine of each position's angles, with a dimension of extent 1 for the heads. */
static int rotary_table(struct lower *lower, int input, int heads_axis) {
    int table = lower->inputs[input];
    if (lower_has(lower, 3)) table = emit_gather(lower, table, lower->inputs[3], 0);
    if (table < 0 || lower_ndim(lower, table) != 3) return lower_misfit(lower, lower->inputs[0], lower->inputs[input]);
    return emit_unsqueeze(lower, table, heads_axis);
}

/* The table for whole heads: each angle belongs to two elements, which are neighbours or half a head apart. */
static int rotary_angles(struct lower *lower, int input, int heads_axis, bool interleaved) {
    int table = rotary_table(lower, input, heads_axis);
    if (!interleaved || table < 0) return emit_concat(lower, 3, 2, (int[]){table, table});
    struct tensor half = lower_tensor(lower, table);
    int both = emit_unsqueeze(lower, table, 4);
    both = emit_concat(lower, 4, 2, (int[]){both, both});
    half.dims[3] *= 2;
    return emit_reshape(lower, both, 4, half.dims);
}

int lower_rotary(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), apart = x;
    bool flat = x.ndim == 3, interleaved = lower_int(lower, "interleaved");
    struct tensor table = lower_input(lower, 1);
    int64_t heads = lower_int(lower, "num_heads"), angles = table.ndim ? table.dims[table.ndim - 1] : 0;
    if (flat && !heads && angles)
        heads = x.dims[2] / angles / 2; /* com.microsoft: the number of heads follows from the tables */
    if ((!flat && x.ndim != 4) || (flat && (heads < 1 || x.dims[2] % heads)))
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (flat) apart = (struct tensor){.ndim = 4, .dims = {x.dims[0], x.dims[1], heads, x.dims[2] / heads}};
    int64_t size = apart.dims[3], turned = lower_int(lower, "rotary_embedding_dim");
    if (turned == 0) turned = size;
    if (turned < 2 || turned > size || turned % 2) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    int cosine = rotary_angles(lower, 1, flat ? 2 : 1, interleaved),
        sine = rotary_angles(lower, 2, flat ? 2 : 1, interleaved);
    int input = emit_reshape(lower, lower->inputs[0], 4, apart.dims);
    int operands[] = {turned < size ? emit_piece(lower, input, 3, 0, 1, turned) : input, cosine, sine};
    if (operands[0] < 0 || cosine < 0 || sine < 0) return -1;
    struct tensor whole = lower_tensor(lower, cosine);
    if (whole.dims[3] != turned) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    struct attr attr = attr_of_int("interleaved", 1);
    int y = emit(lower, OP_Rope, 3, operands, interleaved, &attr);
    if (turned < size) y = emit_concat(lower, 3, 2, (int[]){y, emit_piece(lower, input, 3, turned, 1, size - turned)});
    return lower_result(lower, emit_reshape(lower, y, x.ndim, x.dims));
}
