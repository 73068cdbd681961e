/* ONNX Attention-25 and RotaryEmbedding-23 as compositions, in the order of the operators' function bodies. */
#include "frontend/lower/onnx_lower.h"

#include <math.h>

/* Heads are dimension 1 of all three: (batch, heads, length, size). */
struct attention {
    int q, k, v;
    bool flat; /* the inputs had 3 dimensions, and so has the result */
    int64_t q_length, kv_length, past;
    int bias; /* added to the scores, -1: none */
    bool may_mask_rows;
};

/* (batch, length, heads size) as (batch, heads, length, size). */
static int split_heads(struct lower *l, int x, const char *count) {
    struct tensor tensor = lower_tensor(l, x);
    int64_t heads = lower_int(l, count);
    if (tensor.ndim == 4) return x;
    if (tensor.ndim != 3 || heads < 1 || tensor.dims[2] % heads)
        return lower_error(l, 378, EXIT_MALFORMED, "%s does not have %s = %lld heads",
                           tensor_type(l->b.graph->arena, &tensor), count, (long long)heads);
    int64_t shape[] = {tensor.dims[0], tensor.dims[1], heads, tensor.dims[2] / heads};
    return emit_transpose(l, emit_reshape(l, x, 4, shape), (int64_t[]){0, 2, 1, 3});
}

/* Keys or values of past steps, then this one's. */
static int with_past(struct lower *l, int input, int x) {
    if (!lower_has(l, input) || x < 0) return x;
    if (lower_ndim(l, l->inputs[input]) != 4) return lower_misfit(l, l->inputs[input], x);
    return emit_concat(l, 2, 2, (int[]){l->inputs[input], x});
}

/* Each head of keys or values serves a group of neighbouring query heads. */
static int repeat_heads(struct lower *l, int x, int64_t heads) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(l, x);
    const int64_t *d = tensor.dims;
    if (d[1] == heads) return x;
    x = emit_expand(l, emit_unsqueeze(l, x, 2), 5, (int64_t[]){d[0], d[1], heads / d[1], d[2], d[3]});
    return emit_reshape(l, x, 4, (int64_t[]){d[0], heads, d[2], d[3]});
}

/* Inputs with heads apart, checked against each other. */
static int read_inputs(struct lower *l, struct attention *a) {
    a->flat = lower_ndim(l, l->inputs[0]) == 3;
    a->q = split_heads(l, l->inputs[0], "q_num_heads");
    a->k = split_heads(l, l->inputs[1], "kv_num_heads");
    a->v = split_heads(l, l->inputs[2], "kv_num_heads");
    if (a->q < 0 || a->k < 0 || a->v < 0) return -1;
    a->past = lower_has(l, 4) ? lower_input(l, 4).dims[2] : 0;
    a->k = with_past(l, 4, a->k);
    a->v = with_past(l, 5, a->v);
    if (a->k < 0 || a->v < 0) return -1;
    const struct tensor q = lower_tensor(l, a->q), k = lower_tensor(l, a->k), v = lower_tensor(l, a->v);
    bool fits = q.dims[0] == k.dims[0] && q.dims[3] == k.dims[3] && k.dims[1] > 0 && q.dims[1] % k.dims[1] == 0;
    if (!fits) return lower_misfit(l, a->q, a->k);
    for (int d = 0; d < 3; d++)
        if (k.dims[d] != v.dims[d]) return lower_misfit(l, a->k, a->v);
    a->q_length = q.dims[2];
    a->kv_length = k.dims[2];
    return 0;
}

/* Bias ------------------------------------------------------------------------------------------------------------ */

/* 0 where allowed, else -inf. */
static int bias_of(struct lower *l, const struct attention *a, int allowed) {
    return emit3(l, OP_Where, allowed, emit_like(l, a->q, 0), emit_like(l, a->q, -INFINITY));
}

static void add_bias(struct lower *l, struct attention *a, int bias) {
    a->bias = a->bias < 0 ? bias : emit2(l, OP_Add, a->bias, bias);
}

static int places(struct lower *l, int64_t n, int64_t first, int ndim, const int64_t *dims) {
    int64_t *values = ARENA_ARRAY(l->b.graph->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) values[i] = first + i;
    return emit_ints(l, (int)n, values, ndim, dims);
}

/* The mask may be shorter than the keys: what it does not reach is not allowed. */
static int attention_mask(struct lower *l, const struct attention *a) {
    struct tensor mask = lower_input(l, 3);
    int id = l->inputs[3], last = mask.ndim - 1;
    int64_t begin[MAX_NDIM] = {0}, end[MAX_NDIM] = {0};
    if (mask.ndim < 1 || mask.ndim > 4 || mask.dims[last] > a->kv_length) return lower_misfit(l, a->k, id);
    end[last] = a->kv_length - mask.dims[last];
    struct attr attrs[] = {attr_of_ints("begin", mask.ndim, begin), attr_of_ints("end", mask.ndim, end)};
    if (end[last])
        id = emit(l, OP_Pad, 2, (int[]){id, emit_like(l, id, mask.dtype == RT_BOOL ? 0 : -INFINITY)}, 2, attrs);
    if (id < 0) return -1;
    return mask.dtype == RT_BOOL ? bias_of(l, a, id) : id;
}

/* Position of each query among the keys, (length, 1): known, or, where only the number of valid keys of each batch
 * element is (external cache), (batch, 1, length, 1). */
static int query_places(struct lower *l, const struct attention *a) {
    int64_t column[] = {a->q_length, 1};
    if (!lower_has(l, 6)) return places(l, a->q_length, a->past, 2, column);
    struct tensor valid = lower_input(l, 6);
    int at = places(l, a->q_length, -a->q_length, 2, column);
    return emit2(l, OP_Add, emit_reshape(l, l->inputs[6], 4, (int64_t[]){valid.dims[0], 1, 1, 1}), at);
}

/* A key may be at most `after` places after the query, and `before` before it; negative: any number. */
static void add_window(struct lower *l, struct attention *a, int64_t before, int64_t after) {
    int query = query_places(l, a), key = places(l, a->kv_length, 0, 2, (int64_t[]){1, a->kv_length});
    int distance = emit2(l, OP_Sub, key, query), allowed = -1;
    if (after >= 0) allowed = emit_with(l, OP_LessOrEqual, distance, (double)after);
    if (before >= 0) {
        int near = emit_with(l, OP_GreaterOrEqual, distance, -(double)before);
        allowed = after >= 0 ? emit2(l, OP_And, allowed, near) : near;
    }
    add_bias(l, a, bias_of(l, a, allowed));
}

static int build_bias(struct lower *l, struct attention *a) {
    bool windows = l->op->since >= 25;
    int64_t before = windows ? lower_int(l, "left_window_size") : -1;
    int64_t after = windows ? lower_int(l, "right_window_size") : -1;
    a->bias = -1;
    a->may_mask_rows = lower_has(l, 3) || lower_has(l, 6) || before >= 0 || after >= 0;
    if (lower_has(l, 6) && lower_ndim(l, l->inputs[6]) != 1) return lower_misfit(l, a->k, l->inputs[6]);
    if (lower_has(l, 3)) {
        int mask = attention_mask(l, a);
        if (mask < 0) return -1;
        add_bias(l, a, mask);
    }
    if (lower_int(l, "is_causal")) add_window(l, a, -1, 0);
    if (before >= 0 || after >= 0) add_window(l, a, before, after);
    if (!lower_has(l, 6)) return 0;
    int64_t n = lower_input(l, 6).dims[0];
    int valid = emit_reshape(l, l->inputs[6], 4, (int64_t[]){n, 1, 1, 1});
    int key = places(l, a->kv_length, 0, 2, (int64_t[]){1, a->kv_length});
    add_bias(l, a, bias_of(l, a, emit2(l, OP_Less, key, valid)));
    return a->bias < 0 ? -1 : 0;
}

/* Scores and result ----------------------------------------------------------------------------------------------- */

/* A row that may look at nothing has weights of zero. */
static int clear_masked_rows(struct lower *l, const struct attention *a, int weights) {
    bool axes[MAX_NDIM] = {false};
    if (!a->may_mask_rows || weights < 0 || a->bias < 0) return weights;
    axes[lower_ndim(l, a->bias) - 1] = true;
    int most = emit_reduce(l, OP_ReduceMax, a->bias, axes, true);
    int masked = emit_with(l, OP_Equal, most, -INFINITY);
    return emit3(l, OP_Where, masked, emit_like(l, weights, 0), weights);
}

static int attention_weights(struct lower *l, const struct attention *a, int scores) {
    enum rt_dtype dtype = lower_dtype(l, a->q), work = dtype;
    if (lower_given(l, "softmax_precision"))
        work = lower_float_type(l, rt_dtype_by_onnx((int)lower_int(l, "softmax_precision")));
    if (work == RT_DTYPE_NONE || !rt_dtype_is_float(work)) return lower_unsupported(l, "this softmax_precision");
    int weights = emit_softmax(l, OP_Softmax, emit_cast(l, scores, work), 3);
    return emit_cast(l, clear_masked_rows(l, a, weights), dtype);
}

/* The scores after each step, of which one may be asked for. */
static int scores_and_weights(struct lower *l, struct attention *a) {
    struct tensor q = lower_tensor(l, a->q);
    double scale = lower_given(l, "scale") ? lower_float(l, "scale") : 1 / sqrt((double)q.dims[3]);
    double cap = lower_float(l, "softcap");
    int step[4], k = repeat_heads(l, a->k, q.dims[1]);
    step[0] = emit_matmul(l, emit_with(l, OP_Mul, a->q, scale), k, false, true);
    if (cap > 0) step[0] = emit_with(l, OP_Mul, emit1(l, OP_Tanh, emit_with(l, OP_Div, step[0], cap)), cap);
    step[1] = step[0];
    step[2] = a->bias < 0 ? step[1] : emit2(l, OP_Add, step[1], a->bias);
    step[3] = step[2] < 0 ? -1 : attention_weights(l, a, step[2]);
    int64_t mode = lower_int(l, "qk_matmul_output_mode");
    if (mode < 0 || mode > 3) return lower_error(l, 335, EXIT_MALFORMED, "qk_matmul_output_mode %lld", (long long)mode);
    if (lower_wants(l, 3)) l->outputs[3] = step[mode];
    return step[3];
}

int lower_attention(struct lower *l) {
    struct attention a;
    if (lower_has(l, 4) != lower_has(l, 5)) return lower_error(l, 331, EXIT_MALFORMED, "past_key goes with past_value");
    if (lower_has(l, 4) && lower_ndim(l, l->inputs[4]) != 4) return lower_misfit(l, l->inputs[1], l->inputs[4]);
    if (read_inputs(l, &a) < 0 || build_bias(l, &a) < 0) return -1;
    int weights = scores_and_weights(l, &a);
    int y = emit_matmul(l, weights, repeat_heads(l, a.v, lower_tensor(l, a.q).dims[1]), false, false);
    if (lower_wants(l, 1)) l->outputs[1] = a.k;
    if (lower_wants(l, 2)) l->outputs[2] = a.v;
    if (!a.flat || y < 0) return lower_result(l, y);
    struct tensor heads = lower_tensor(l, y);
    int64_t shape[] = {heads.dims[0], heads.dims[2], heads.dims[1] * heads.dims[3]};
    return lower_result(l, emit_reshape(l, emit_transpose(l, y, (int64_t[]){0, 2, 1, 3}), 3, shape));
}

/* Rotary embedding ------------------------------------------------------------------------------------------------ */

/* The angles' functions for each place, with a dimension of 1 for the heads. */
static int rotary_table(struct lower *l, int input, int heads_axis) {
    int table = l->inputs[input];
    if (lower_has(l, 3)) table = emit_gather(l, table, l->inputs[3], 0);
    if (table < 0 || lower_ndim(l, table) != 3) return lower_misfit(l, l->inputs[0], l->inputs[input]);
    return emit_unsqueeze(l, table, heads_axis);
}

/* Both halves of the rotated elements put together: one after the other, or alternately. */
static int join(struct lower *l, int real, int imaginary, bool interleaved) {
    if (!interleaved) return emit_concat(l, 3, 2, (int[]){real, imaginary});
    if (real < 0) return -1;
    struct tensor half = lower_tensor(l, real);
    int both = emit_concat(l, 4, 2, (int[]){emit_unsqueeze(l, real, 4), emit_unsqueeze(l, imaginary, 4)});
    half.dims[3] *= 2;
    return emit_reshape(l, both, 4, half.dims);
}

int lower_rotary(struct lower *l) {
    struct tensor x = lower_input(l, 0), apart = x;
    bool flat = x.ndim == 3, interleaved = lower_int(l, "interleaved");
    struct tensor table = lower_input(l, 1);
    int64_t heads = lower_int(l, "num_heads"), angles = table.ndim ? table.dims[table.ndim - 1] : 0;
    if (flat && !heads && angles) heads = x.dims[2] / angles / 2; /* ONNX Runtime's: heads as the tables are for */
    if ((!flat && x.ndim != 4) || (flat && (heads < 1 || x.dims[2] % heads)))
        return lower_misfit(l, l->inputs[0], l->inputs[1]);
    if (flat) apart = (struct tensor){.ndim = 4, .dims = {x.dims[0], x.dims[1], heads, x.dims[2] / heads}};
    int64_t size = apart.dims[3], turned = lower_int(l, "rotary_embedding_dim");
    if (turned == 0) turned = size;
    if (turned < 2 || turned > size || turned % 2) return lower_misfit(l, l->inputs[0], l->inputs[1]);
    int64_t half = turned / 2, step = interleaved ? 2 : 1;
    int cosine = rotary_table(l, 1, flat ? 2 : 1), sine = rotary_table(l, 2, flat ? 2 : 1);
    int input = emit_reshape(l, l->inputs[0], 4, apart.dims);
    int a = emit_piece(l, input, 3, 0, step, half), b = emit_piece(l, input, 3, interleaved ? 1 : half, step, half);
    int real = emit2(l, OP_Sub, emit2(l, OP_Mul, cosine, a), emit2(l, OP_Mul, sine, b));
    int imaginary = emit2(l, OP_Add, emit2(l, OP_Mul, sine, a), emit2(l, OP_Mul, cosine, b));
    int y = join(l, real, imaginary, interleaved);
    if (turned < size) y = emit_concat(l, 3, 2, (int[]){y, emit_piece(l, input, 3, turned, 1, size - turned)});
    return lower_result(l, emit_reshape(l, y, x.ndim, x.dims));
}
