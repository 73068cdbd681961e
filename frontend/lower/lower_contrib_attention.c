/* ONNX Runtime's Attention, MultiHeadAttention and DecoderMaskedMultiHeadAttention (domain com.microsoft), as
 * compositions. Source: ContribOperators.md of ONNX Runtime. */
#include "frontend/lower/lower_contrib_attention.h"

#include <math.h>

void heads_init(struct lower *lower, struct heads *heads) {
    struct tensor q = lower_tensor(lower, heads->q);
    heads->scale = lower_given(lower, "scale") ? lower_float(lower, "scale") : 0;
    if (heads->scale == 0) heads->scale = 1 / sqrt((double)q.dims[3]);
    heads->cap = 0;
    heads->bias = heads->keep = heads->sink = heads->scores = heads->shares = -1;
}

int heads_apart(struct lower *lower, int x, int64_t heads) {
    return emit_transpose(lower, emit_split_heads(lower, x, heads), (int64_t[]){0, 2, 1, 3});
}

/* Pads the last dimension of x at the end to `extent`. */
static int padded_keys(struct lower *lower, int x, int64_t extent, double value) {
    if (x < 0) return -1;
    struct tensor tensor = lower_tensor(lower, x);
    int last = tensor.ndim - 1;
    if (last < 0 || !lower_meets_keys(lower, tensor.dims[last], extent) || tensor.dims[last] > extent)
        return lower_error(lower, 378, "%s is longer than the %lld key(s)", lower_type(lower, &tensor),
                           (long long)extent);
    if (tensor.dims[last] == extent || tensor.dims[last] == 1) return x;
    return emit_padded(lower, x, last, 0, extent - tensor.dims[last], value);
}

int write_cache(struct lower *lower, int past, int fresh, int at, int64_t length) {
    if (past < 0 || fresh < 0 || at < 0) return -1;
    struct tensor old = lower_tensor(lower, past), new = lower_tensor(lower, fresh);
    const int64_t batch = new.dims[0], heads = new.dims[1], steps = new.dims[2];
    if (old.ndim != 4 || !lower_meet(lower, old.dims[0], batch) || old.dims[1] != heads || old.dims[3] != new.dims[3])
        return lower_misfit(lower, past, fresh);
    if (length != old.dims[2])
        past = emit_padded(lower, past, 2, 0, open_sum(lower->builder.graph->open, length, -old.dims[2]), 0);
    int first = emit_reshape(lower, at, 4, (int64_t[]){batch, 1, 1, 1});
    int rows = emit2(lower, OP_Add, first, emit_places(lower, 0, steps, 4, 2));
    rows = emit_expand(lower, rows, 4, (int64_t[]){batch, heads, steps, 1});
    struct attr attrs[] = {attr_of_int("batch_dims", 2), attr_of_int("depth", 1)};
    return emit(lower, OP_ScatterND, 3, (int[]){past, rows, fresh}, 2, attrs);
}

/* Softmax over the keys and one more, whose score is the sink of the head and whose share is left out. */
static int softmax_with_sink(struct lower *lower, const struct heads *heads, int scores) {
    if (scores < 0) return -1;
    struct tensor all = lower_tensor(lower, scores);
    int64_t column[] = {all.dims[0], all.dims[1], all.dims[2], 1};
    int sink = emit_reshape(lower, heads->sink, 4, (int64_t[]){1, all.dims[1], 1, 1});
    sink = emit_expand(lower, emit_cast(lower, sink, all.dtype), 4, column);
    int shares = emit_softmax(lower, OP_Softmax, emit_concat(lower, 3, 2, (int[]){scores, sink}), 3);
    return emit_piece(lower, shares, 3, 0, 1, all.dims[3]);
}

static bool heads_fit(struct lower *lower, const struct heads *heads) {
    const struct tensor q = lower_tensor(lower, heads->q), k = lower_tensor(lower, heads->k),
                        v = lower_tensor(lower, heads->v);
    if (q.ndim != 4 || k.ndim != 4 || v.ndim != 4 || !lower_meet(lower, q.dims[0], k.dims[0]) || q.dims[3] != k.dims[3])
        return false;
    for (int d = 0; d < 3; d++)
        if (!lower_meet(lower, k.dims[d], v.dims[d])) return false;
    return k.dims[1] > 0 && q.dims[1] % k.dims[1] == 0;
}

int emit_heads(struct lower *lower, struct heads *heads) {
    if (heads->q < 0 || heads->k < 0 || heads->v < 0) return -1;
    if (!heads_fit(lower, heads)) return lower_misfit(lower, heads->q, heads->k);
    const struct tensor q = lower_tensor(lower, heads->q);
    int x = emit_matmul(lower, heads->q, emit_repeated_heads(lower, heads->k, q.dims[1]), false, true);
    x = emit_with(lower, OP_Mul, x, heads->scale);
    if (heads->cap > 0)
        x = emit_with(lower, OP_Mul, emit1(lower, OP_Tanh, emit_with(lower, OP_Div, x, heads->cap)), heads->cap);
    if (heads->bias >= 0) x = emit2(lower, OP_Add, x, heads->bias);
    if (heads->keep >= 0) x = emit3(lower, OP_Where, heads->keep, x, emit_like(lower, x, -INFINITY));
    heads->scores = x;
    heads->shares = heads->sink >= 0 ? softmax_with_sink(lower, heads, x) : emit_softmax(lower, OP_Softmax, x, 3);
    const int v = emit_repeated_heads(lower, heads->v, q.dims[1]);
    return emit_joined_heads(lower, emit_matmul(lower, heads->shares, v, false, false));
}

/* The bias that is added to scores: 0 where `allowed`, else attribute mask_filter_value. */
static int filter(struct lower *lower, int like, int allowed) {
    return emit3(lower, OP_Where, allowed, emit_like(lower, like, 0),
                 emit_like(lower, like, lower_float(lower, "mask_filter_value")));
}

/* Keys before the end, and from the start on, of each sequence: `mask` has `batch` ends, and then `batch` starts if it
 * has twice as many elements. */
static int allowed_range(struct lower *lower, int mask, int64_t batch, int64_t keys) {
    struct tensor tensor = lower_tensor(lower, mask);
    int at = emit_places(lower, 0, keys, 4, 3);
    int bounds = emit_cast(lower, mask, RT_I64);
    int end = emit_reshape(lower, emit_piece(lower, bounds, 0, 0, 1, batch), 4, (int64_t[]){batch, 1, 1, 1});
    int allowed = emit2(lower, OP_Less, at, end);
    if (tensor.dims[0] == batch) return allowed;
    int start = emit_reshape(lower, emit_piece(lower, bounds, 0, batch, 1, batch), 4, (int64_t[]){batch, 1, 1, 1});
    return emit2(lower, OP_And, allowed, emit2(lower, OP_GreaterOrEqual, at, start));
}

/* The mask as a bias of scores (batch, heads, steps, keys); `past` keys come before the steps' own. Masks have the
 * shape (batch), (2 batch), (batch, keys), (batch, steps, keys) or (batch, 1, most, most). */
static int mask_bias(struct lower *lower, int mask, int like, int64_t past, int64_t keys) {
    struct tensor tensor = lower_tensor(lower, mask), q = lower_tensor(lower, like);
    int64_t batch = q.dims[0], steps = q.dims[2], *d = tensor.dims;
    if (tensor.ndim == 1 && (d[0] == batch || d[0] == 2 * batch))
        return filter(lower, like, allowed_range(lower, mask, batch, keys));
    if (tensor.ndim == 1) return lower_unsupported(lower, "a mask of %lld cumulated lengths", (long long)d[0]);
    int seen = emit_with(lower, OP_Greater, mask, 0);
    if (tensor.ndim == 4) {
        seen = emit_piece(lower, emit_piece(lower, seen, 2, past, 1, steps), 3, 0, 1, keys);
    } else {
        int64_t shape[] = {d[0], 1, tensor.ndim == 3 ? d[1] : 1, d[tensor.ndim - 1]};
        seen = padded_keys(lower, emit_reshape(lower, seen, 4, shape), keys, 0);
    }
    return filter(lower, like, seen);
}

static void add_bias(struct lower *lower, struct heads *heads, int bias) {
    heads->bias = heads->bias < 0 ? bias : emit2(lower, OP_Add, heads->bias, bias);
}

/* Hides the keys after each query; `past` keys come before the queries' own. */
static void see_causal(struct lower *lower, struct heads *heads, int64_t past) {
    int64_t steps = lower_tensor(lower, heads->q).dims[2], keys = lower_tensor(lower, heads->k).dims[2];
    int query = emit_places(lower, past, steps, 2, 0);
    heads->keep = emit2(lower, OP_LessOrEqual, emit_places(lower, 0, keys, 2, 1), query);
}

/* The operands of MultiHeadAttention and DecoderMaskedMultiHeadAttention, which list them in different orders: tensor
 * ids, -1: left out. */
struct operands {
    int query, key, value, bias, mask, scores_bias, past[2], past_length, indirection;
    bool unidirectional;
};

/* Elements [first, first + size) of the bias of all projections. */
static int part_of_bias(struct lower *lower, const struct operands *in, int64_t first, int64_t size) {
    return in->bias < 0 ? -1 : emit_piece(lower, in->bias, 0, first, 1, size);
}

/* Piece `index` of a packed operand (batch, length, heads, pieces, size), as (batch, heads, length, size). */
static int unpacked(struct lower *lower, int x, int index, int pieces) {
    struct tensor tensor = lower_tensor(lower, x);
    if (tensor.dims[3] != pieces) return lower_misfit(lower, x, x);
    int piece = emit_squeeze(lower, emit_piece(lower, x, 3, index, 1, 1), 3);
    return emit_transpose(lower, piece, (int64_t[]){0, 2, 1, 3});
}

/* Adds a projection's bias (heads x size) to x (batch, heads, length, size). */
static int with_bias(struct lower *lower, int x, int bias) {
    if (x < 0 || bias < 0) return x;
    struct tensor tensor = lower_tensor(lower, x);
    int64_t shape[] = {tensor.dims[1], 1, tensor.dims[3]};
    return emit2(lower, OP_Add, x, emit_reshape(lower, bias, 3, shape));
}

/* The same for x (batch, length, heads x size), divided into heads afterwards. */
static int projected(struct lower *lower, int x, int bias, int64_t heads) {
    return heads_apart(lower, bias < 0 ? x : emit2(lower, OP_Add, x, bias), heads);
}

/* Query, key and value packed into one operand of five dimensions, or of three for DecoderMaskedMultiHeadAttention. */
static int read_packed(struct lower *lower, const struct operands *in, int64_t n, struct heads *heads) {
    struct tensor all = lower_tensor(lower, in->query);
    int *to[] = {&heads->q, &heads->k, &heads->v};
    int64_t hidden = all.ndim == 5 ? all.dims[2] * all.dims[4] : all.ndim == 3 ? all.dims[2] / 3 : 0;
    for (int i = 0; i < 3; i++) {
        int bias = part_of_bias(lower, in, i * hidden, hidden);
        *to[i] = all.ndim == 5 ? with_bias(lower, unpacked(lower, in->query, i, 3), bias)
                               : projected(lower, emit_piece(lower, in->query, 2, i * hidden, 1, hidden), bias, n);
        if (*to[i] < 0) return -1;
    }
    return 0;
}

/* Reads query, key and value as heads. Keys and values of four dimensions are those of another sequence (cross
 * attention), and have their biases already. */
static int read_heads(struct lower *lower, const struct operands *in, int64_t n, struct heads *heads) {
    if (in->key < 0) return read_packed(lower, in, n, heads);
    struct tensor q = lower_tensor(lower, in->query), k = lower_tensor(lower, in->key);
    if (q.ndim != 3 || k.ndim < 3 || k.ndim > 5 || (in->value < 0) != (k.ndim == 5))
        return lower_misfit(lower, in->query, in->key);
    int64_t hidden = q.dims[2];
    heads->q = projected(lower, in->query, part_of_bias(lower, in, 0, hidden), n);
    if (heads->q < 0) return -1;
    if (k.ndim == 5) {
        heads->k = with_bias(lower, unpacked(lower, in->key, 0, 2), part_of_bias(lower, in, hidden, hidden));
        heads->v = with_bias(lower, unpacked(lower, in->key, 1, 2), part_of_bias(lower, in, 2 * hidden, hidden));
    } else if (k.ndim == 4) {
        heads->k = in->key;
        heads->v = in->value;
    } else {
        struct tensor v = lower_tensor(lower, in->value);
        if (v.ndim != 3) return lower_misfit(lower, in->key, in->value);
        heads->k = projected(lower, in->key, part_of_bias(lower, in, hidden, hidden), n);
        if (heads->k < 0) return -1;
        heads->v = projected(lower, in->value, part_of_bias(lower, in, 2 * hidden, v.dims[2]), n);
    }
    return heads->k < 0 || heads->v < 0 ? -1 : 0;
}

/* A buffer for the most keys, of which past_sequence_length are valid: the new ones are written behind these. */
static int append_in_buffer(struct lower *lower, const struct operands *in, struct heads *heads) {
    struct tensor q = lower_tensor(lower, heads->q), buffer = lower_tensor(lower, in->past[0]);
    int64_t batch = q.dims[0], steps = q.dims[2], keys = buffer.ndim == 4 ? buffer.dims[2] : 0;
    int first = emit_reshape(lower, emit_cast(lower, in->past_length, RT_I64), 1, (int64_t[]){1});
    int at = emit_expand(lower, first, 1, &batch);
    heads->k = write_cache(lower, in->past[0], heads->k, at, keys);
    heads->v = write_cache(lower, in->past[1], heads->v, at, keys);
    int query =
        emit2(lower, OP_Add, emit_reshape(lower, first, 2, (int64_t[]){1, 1}), emit_places(lower, 0, steps, 2, 0));
    heads->keep = emit2(lower, OP_LessOrEqual, emit_places(lower, 0, keys, 2, 1), query);
    return heads->keep < 0 || heads->k < 0 || heads->v < 0 ? -1 : 0;
}

/* Prepends the keys and values of past steps; *past is their number. */
static int append(struct lower *lower, const struct operands *in, struct heads *heads, int64_t *past) {
    *past = 0;
    if (in->past[0] < 0 && in->past[1] < 0) return 0;
    if (in->past[0] < 0 || in->past[1] < 0)
        return lower_error(lower, 331, "past keys and values must be given together");
    if (in->past_length >= 0) return append_in_buffer(lower, in, heads);
    if (lower_ndim(lower, in->past[0]) != 4 || lower_ndim(lower, in->past[1]) != 4)
        return lower_misfit(lower, in->past[0], in->past[1]);
    *past = lower_tensor(lower, in->past[0]).dims[2];
    heads->k = emit_concat(lower, 2, 2, (int[]){in->past[0], heads->k});
    heads->v = emit_concat(lower, 2, 2, (int[]){in->past[1], heads->v});
    return heads->k < 0 || heads->v < 0 ? -1 : 0;
}

static int multi_head_attention(struct lower *lower, const struct operands *in) {
    struct heads heads = {-1, -1, -1, 0, 0, -1, -1, -1, -1, -1};
    int64_t past;
    if (in->indirection >= 0) return lower_unsupported(lower, "cache_indirection");
    if (in->bias >= 0 && lower_ndim(lower, in->bias) != 1) return lower_misfit(lower, in->query, in->bias);
    if (read_heads(lower, in, lower_int(lower, "num_heads"), &heads) < 0) return -1;
    heads_init(lower, &heads);
    if (append(lower, in, &heads, &past) < 0) return -1;
    int64_t keys = lower_tensor(lower, heads.k).dims[2];
    if (in->mask >= 0) add_bias(lower, &heads, mask_bias(lower, in->mask, heads.q, past, keys));
    if (in->scores_bias >= 0) add_bias(lower, &heads, padded_keys(lower, in->scores_bias, keys, 0));
    if ((in->mask >= 0 || in->scores_bias >= 0) && heads.bias < 0) return -1;
    if (in->unidirectional && heads.keep < 0) see_causal(lower, &heads, past);
    if (lower_wants(lower, 1)) lower->outputs[1] = heads.k;
    if (lower_wants(lower, 2)) lower->outputs[2] = heads.v;
    int y = emit_heads(lower, &heads);
    if (lower_wants(lower, 3)) lower->outputs[3] = heads.scores;
    return lower_result(lower, y);
}

int lower_multi_head_attention(struct lower *lower) {
    const struct operands in = {.query = lower_id(lower, 0),
                                .key = lower_id(lower, 1),
                                .value = lower_id(lower, 2),
                                .bias = lower_id(lower, 3),
                                .mask = lower_id(lower, 4),
                                .scores_bias = lower_id(lower, 5),
                                .past = {lower_id(lower, 6), lower_id(lower, 7)},
                                .past_length = lower_id(lower, 8),
                                .indirection = lower_id(lower, 9),
                                .unidirectional = lower_int(lower, "unidirectional") != 0};
    return multi_head_attention(lower, &in);
}

int lower_decoder_attention(struct lower *lower) {
    const struct operands in = {.query = lower_id(lower, 0),
                                .key = lower_id(lower, 1),
                                .value = lower_id(lower, 2),
                                .mask = lower_id(lower, 3),
                                .scores_bias = lower_id(lower, 4),
                                .past = {lower_id(lower, 5), lower_id(lower, 6)},
                                .past_length = lower_id(lower, 7),
                                .indirection = lower_id(lower, 9),
                                .bias = lower_id(lower, 10)};
    return multi_head_attention(lower, &in);
}

/* The widths of q, k and v in the product with the merged weights: attribute qkv_hidden_sizes, else thirds. */
static int read_widths(struct lower *lower, int64_t all, int64_t widths[3]) {
    int n;
    const int64_t *given = lower_ints(lower, "qkv_hidden_sizes", &n);
    for (int i = 0; i < 3; i++) widths[i] = given && n == 3 ? given[i] : all / 3;
    bool fit = (!given || n == 3) && widths[0] > 0 && widths[1] > 0 && widths[2] > 0;
    if (fit && widths[0] <= all && widths[1] <= all && widths[0] + widths[1] + widths[2] == all) return 0;
    return lower_error(lower, 384, "qkv_hidden_sizes do not add up to %lld", (long long)all);
}

/* past: (2, batch, heads, length, size), keys and values. Output 1 has the new ones appended. */
static int append_stacked(struct lower *lower, struct heads *heads, int past, int64_t *length) {
    int *to[] = {&heads->k, &heads->v}, apart[2];
    *length = 0;
    if (past >= 0) {
        struct tensor stacked = lower_tensor(lower, past);
        if (stacked.ndim != 5 || stacked.dims[0] != 2) return lower_misfit(lower, heads->k, past);
        *length = stacked.dims[3];
        for (int i = 0; i < 2; i++) {
            int old = emit_squeeze(lower, emit_piece(lower, past, 0, i, 1, 1), 0);
            *to[i] = emit_concat(lower, 2, 2, (int[]){old, *to[i]});
        }
    }
    if (heads->k < 0 || heads->v < 0) return -1;
    if (!lower_wants(lower, 1)) return 0;
    for (int i = 0; i < 2; i++) apart[i] = emit_unsqueeze(lower, *to[i], 0);
    return lower->outputs[1] = emit_concat(lower, 0, 2, apart);
}

int emit_merged_attention(struct lower *lower, const struct merged *merged) {
    struct heads heads = {-1, -1, -1, 0, 0, -1, -1, -1, -1, -1};
    int64_t start = 0, past, n = lower_int(lower, "num_heads");
    int *to[] = {&heads.q, &heads.k, &heads.v};
    if (lower_int(lower, "do_rotary")) return lower_unsupported(lower, "do_rotary");
    if (lower_int(lower, "past_present_share_buffer")) return lower_unsupported(lower, "past_present_share_buffer");
    for (int i = 0; i < 3; start += merged->widths[i++]) {
        *to[i] = heads_apart(lower, emit_piece(lower, merged->projected, 2, start, 1, merged->widths[i]), n);
        if (*to[i] < 0) return -1;
    }
    heads_init(lower, &heads);
    if (append_stacked(lower, &heads, merged->past, &past) < 0) return -1;
    int64_t keys = lower_tensor(lower, heads.k).dims[2];
    if (merged->mask >= 0) add_bias(lower, &heads, mask_bias(lower, merged->mask, heads.q, past, keys));
    if (merged->scores_bias >= 0) add_bias(lower, &heads, merged->scores_bias);
    if ((merged->mask >= 0 || merged->scores_bias >= 0) && heads.bias < 0) return -1;
    if (lower_int(lower, "unidirectional")) see_causal(lower, &heads, past);
    return lower_result(lower, emit_heads(lower, &heads));
}

/* Inputs: input (batch, steps, c), merged weights (c, widths of q, k and v), bias, mask, past, bias of scores. */
int lower_contrib_attention(struct lower *lower) {
    struct merged merged = {-1, {0}, lower_id(lower, 3), lower_id(lower, 4), lower_id(lower, 5)};
    if (lower_has(lower, 6)) return lower_unsupported(lower, "past_sequence_length");
    if (lower_ndim(lower, lower->inputs[0]) != 3 || lower_ndim(lower, lower->inputs[1]) != 2)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (read_widths(lower, lower_input(lower, 1).dims[1], merged.widths) < 0) return -1;
    merged.projected = emit_matmul(lower, lower->inputs[0], lower->inputs[1], false, false);
    if (lower_has(lower, 2)) merged.projected = emit2(lower, OP_Add, merged.projected, lower->inputs[2]);
    return emit_merged_attention(lower, &merged);
}

/* RotaryEmbedding with another order of operands than ONNX's. position_ids: of all elements, or the first position,
 * from which the others count. */
int lower_contrib_rotary(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), at = lower_input(lower, 1);
    int positions = lower->inputs[1], cosine = lower->inputs[2], sine = lower->inputs[3];
    if (lower_int(lower, "is_packed_batching") || lower_float(lower, "scale") != 1)
        return lower_unsupported(lower, "packing or scale");
    if (at.ndim != 2) {
        int64_t length = x.ndim == 4 ? x.dims[2] : x.ndim == 3 ? x.dims[1] : 0;
        int row = emit_places(lower, 0, length, 2, 1);
        positions = emit2(lower, OP_Add, emit_reshape(lower, positions, 2, (int64_t[]){1, 1}), row);
        positions = emit_expand(lower, positions, 2, (int64_t[]){x.dims[0], length});
    }
    if (positions < 0) return -1;
    lower->inputs[1] = cosine;
    lower->inputs[2] = sine;
    lower->inputs[3] = positions;
    return lower_rotary(lower);
}
