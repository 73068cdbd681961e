/* ONNX Runtime's GroupQueryAttention (domain com.microsoft), as a composition: it rotates queries and keys, appends
 * keys and values to a cache, and attends causally. Source: ContribOperators.md of ONNX Runtime.
 *
 * Each sequence of the batch has a number of keys of its own, seqlens_k + 1 (operand 5), of which the last t belong to
 * the queries of this call. total_sequence_length (operand 6) is the largest number, known or an open size. If it is t,
 * the call is a prompt: nothing of the cache is valid. */
#include "frontend/lower/lower_contrib.h"
#include "frontend/lower/lower_contrib_attention.h"

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    LENGTHS,
    TOTAL,
    COSINE,
    SINE,
    POSITIONS,
    BIAS,
    SINK,
    K_SCALE,
    V_SCALE,
    Q_NORM,
    K_NORM
};

struct group_query {
    struct heads heads;
    int64_t batch, steps, past, total; /* past: positions of the cache that is given */
    bool prompt;
    int at; /* i64 (batch): keys before those of this call; prompt: not there */
};

/* Refuses, by name, the forms that are not supported. */
static int check_form(struct lower *lower) {
    if (contrib_requires(lower, 2, (int[]){LENGTHS, TOTAL}) < 0) return -1;
    if (strcmp(lower_text(lower, "k_quant_type"), "NONE") != 0 ||
        strcmp(lower_text(lower, "v_quant_type"), "NONE") != 0 || lower_has(lower, K_SCALE) ||
        lower_has(lower, V_SCALE))
        return lower_unsupported(lower, "a quantised cache (k_quant_type, v_quant_type)");
    if (lower_wants(lower, 3)) return lower_unsupported(lower, "output_qk");
    if (lower_has(lower, KEY) != lower_has(lower, VALUE) || lower_has(lower, PAST_KEY) != lower_has(lower, PAST_VALUE))
        return lower_error(lower, 331, "keys and values must be given together");
    return 0;
}

/* Queries, keys and values as heads; packed: all in the first operand. */
static int read_operands(struct lower *lower, struct group_query *call) {
    struct heads *heads = &call->heads;
    struct tensor all = lower_input(lower, QUERY);
    int64_t n = lower_int(lower, "num_heads"), kv = lower_int(lower, "kv_num_heads"), first = 0;
    const int64_t count[] = {n, kv, kv};
    int *to[] = {&heads->q, &heads->k, &heads->v};
    bool packed = !lower_has(lower, KEY);
    if (n < 1 || kv < 1 || n % kv || all.ndim != 3 || (packed && all.dims[2] % (n + 2 * kv)))
        return lower_error(lower, 378, "%s does not fit %lld query head(s) and %lld key head(s)",
                           lower_type(lower, &all), (long long)n, (long long)kv);
    for (int i = 0; i < 3; i++) {
        int64_t width = packed ? all.dims[2] / (n + 2 * kv) * count[i] : 0;
        int x = packed ? emit_piece(lower, lower->inputs[QUERY], 2, first, 1, width) : lower->inputs[QUERY + i];
        first += width;
        if ((*to[i] = heads_apart(lower, x, count[i])) < 0) return -1;
    }
    call->batch = all.dims[0];
    call->steps = all.dims[1];
    return 0;
}

/* RMS norm of each head of queries and keys. */
static int norm_heads(struct lower *lower, int x, int weight) {
    struct attr epsilon = attr_of_float("epsilon", lower_float(lower, "qk_norm_epsilon"));
    if (!lower_has(lower, weight)) return x;
    return emit(lower, OP_RMSNorm, 2, (int[]){x, lower->inputs[weight]}, 1, &epsilon);
}

/* True if the cache has a fixed size with room for all keys. */
static bool has_room(struct open_sizes *open, const struct group_query *call) {
    return !open_is(open, call->past) && open_at_most(open, call->total, call->past);
}

/* True if each step writes into such a cache: a shared buffer. */
static bool is_buffer(struct open_sizes *open, const struct group_query *call) {
    return open_is(open, call->total) && has_room(open, call);
}

static int refuse_window(struct lower *lower) {
    lower_unsupported(lower, "sliding_window_cache with fewer places than tokens");
    return diag_help(lower->builder.diags, "give the caches room for all N tokens: --dim PAST=N for their sizes, and "
                                           "--dim total_sequence_length=1..N");
}

static bool is_between(struct open_sizes *open, int64_t value, int64_t least, int64_t most) {
    const enum open_order above = open_order(open, value, least), below = open_order(open, value, most);
    return (above == OPEN_EQUAL || above == OPEN_GREATER_OR_EQUAL || above == OPEN_MORE) && below <= OPEN_EQUAL;
}

/* The number of keys before those of this call, for each sequence. */
static int read_lengths(struct lower *lower, struct group_query *call) {
    struct tensor lengths = lower_input(lower, LENGTHS);
    int64_t n = tensor_elements(&lengths);
    if (lower_known_int(lower, TOTAL, "total_sequence_length", &call->total) < 0) return -1;
    call->past = 0;
    if (lower_has(lower, PAST_KEY)) {
        struct tensor past = lower_input(lower, PAST_KEY);
        if (past.ndim != 4) return lower_misfit(lower, call->heads.k, lower->inputs[PAST_KEY]);
        call->past = past.dims[2];
    }
    struct open_sizes *open = lower->builder.graph->open;
    const int64_t most = open_sum(open, call->past, call->steps);
    call->prompt = call->total == call->steps;
    call->at = -1;
    /* a window-sized cache is one of all tokens, as long as no token has to leave it */
    if (lower_int(lower, "sliding_window_cache") && !has_room(open, call)) return refuse_window(lower);
    const bool fits = call->prompt || is_buffer(open, call) || is_between(open, call->total, call->steps, most);
    if (!lower_meet(lower, n, call->batch) || (!fits && !lower_meet(lower, call->total, most)))
        return lower_error(lower, 384,
                           "total_sequence_length %lld and %lld length(s) do not fit %lld queries after %lld key(s)",
                           (long long)call->total, (long long)n, (long long)call->steps, (long long)call->past);
    if (call->prompt) return 0;
    int all = emit_reshape(lower, emit_cast(lower, lower->inputs[LENGTHS], RT_I64), 1, &call->batch);
    call->at = emit_with(lower, OP_Add, all, (double)open_sum(open, 1, -call->steps));
    if (is_buffer(open, call) || (open_is(open, call->past) && !open_least(open, call->past))) /* or a prompt, from 0 */
        call->at = emit_with(lower, OP_Max, call->at, 0);
    return call->at < 0 ? -1 : 0;
}

/* The position of each query, (1 or batch, steps). In a prompt, they count from 0 or from the first given position. */
static int query_positions(struct lower *lower, const struct group_query *call) {
    const int counted = emit_places(lower, 0, call->steps, 2, 1);
    if (lower_has(lower, POSITIONS) && lower_ndim(lower, lower->inputs[POSITIONS]) != 2)
        return lower_misfit(lower, lower->inputs[QUERY], lower->inputs[POSITIONS]);
    if (!lower_has(lower, POSITIONS) && call->prompt) return counted;
    if (!lower_has(lower, POSITIONS))
        return emit2(lower, OP_Add, emit_reshape(lower, call->at, 2, (int64_t[]){call->batch, 1}), counted);
    if (!call->prompt) return lower->inputs[POSITIONS];
    int first = emit_piece(lower, emit_piece(lower, lower->inputs[POSITIONS], 0, 0, 1, 1), 1, 0, 1, 1);
    return emit2(lower, OP_Add, first, counted);
}

/* The cosines or sines of the positions, (1 or batch, 1, steps, size), each twice: for both elements of a pair. */
static int angles(struct lower *lower, int input, int positions, bool interleaved) {
    int half = emit_gather(lower, lower->inputs[input], positions, 0);
    if (half < 0 || lower_ndim(lower, half) != 3) return lower_misfit(lower, lower->inputs[QUERY], positions);
    struct tensor table = lower_tensor(lower, half);
    int64_t *d = table.dims;
    int twice = interleaved ? emit_expand(lower, emit_unsqueeze(lower, half, 3), 4, (int64_t[]){d[0], d[1], d[2], 2})
                            : emit_concat(lower, 2, 2, (int[]){half, half});
    return emit_reshape(lower, twice, 4, (int64_t[]){d[0], 1, d[1], 2 * d[2]});
}

/* Rotates the first elements of each head, as many as the tables have angles for. */
static int rotated(struct lower *lower, int x, int cosine, int sine, bool interleaved) {
    if (x < 0 || cosine < 0 || sine < 0) return -1;
    int64_t size = lower_tensor(lower, x).dims[3], turned = lower_tensor(lower, cosine).dims[3];
    struct attr attr = attr_of_int("interleaved", interleaved);
    if (turned > size) return lower_misfit(lower, x, cosine);
    int y = emit(lower, OP_Rope, 3, (int[]){emit_piece(lower, x, 3, 0, 1, turned), cosine, sine}, 1, &attr);
    if (turned == size) return y;
    return emit_concat(lower, 3, 2, (int[]){y, emit_piece(lower, x, 3, turned, 1, size - turned)});
}

static int rotate(struct lower *lower, struct group_query *call) {
    bool interleaved = lower_int(lower, "rotary_interleaved") != 0;
    if (!lower_int(lower, "do_rotary")) return 0;
    if (!lower_has(lower, COSINE) || !lower_has(lower, SINE))
        return lower_error(lower, 331, "do_rotary needs cos_cache and sin_cache");
    int positions = query_positions(lower, call);
    if (positions < 0) return -1;
    int cosine = angles(lower, COSINE, positions, interleaved), sine = angles(lower, SINE, positions, interleaved);
    call->heads.q = rotated(lower, call->heads.q, cosine, sine, interleaved);
    call->heads.k = rotated(lower, call->heads.k, cosine, sine, interleaved);
    return call->heads.q < 0 || call->heads.k < 0 ? -1 : 0;
}

/* The cache with the keys or values of this call, of max(total, past) positions. In a prompt they are its first
 * ones. */
static int cached(struct lower *lower, const struct group_query *call, int input, int fresh) {
    struct open_sizes *open = lower->builder.graph->open;
    const int64_t length = open_greater(open, call->total, call->past);
    if (!call->prompt) return write_cache(lower, lower->inputs[input], fresh, call->at, length);
    if (length == call->steps) return fresh;
    int rest = emit_piece(lower, lower->inputs[input], 2, call->steps, 1, open_sum(open, length, -call->steps));
    return emit_concat(lower, 2, 2, (int[]){fresh, rest});
}

/* The keys that each query sees: up to its own, or all of the sequence if attribute causal is 0, and with
 * local_window_size at most so many. (1 or batch, 1, steps or 1, keys). */
static int visible(struct lower *lower, const struct group_query *call) {
    int64_t window = lower_int(lower, "local_window_size");
    int key = emit_places(lower, 0, call->total, 4, 3);
    if (!lower_int(lower, "causal")) {
        int last =
            emit_reshape(lower, emit_cast(lower, lower->inputs[LENGTHS], RT_I64), 4, (int64_t[]){call->batch, 1, 1, 1});
        return emit2(lower, OP_LessOrEqual, key, last);
    }
    int query = emit_places(lower, 0, call->steps, 4, 2);
    if (!call->prompt)
        query = emit2(lower, OP_Add, emit_reshape(lower, call->at, 4, (int64_t[]){call->batch, 1, 1, 1}), query);
    int seen = emit2(lower, OP_LessOrEqual, key, query);
    if (window < 1) return seen;
    int near = emit2(lower, OP_Greater, key, emit_with(lower, OP_Sub, query, (double)window));
    return emit2(lower, OP_And, seen, near);
}

/* The scores of attention sinks: operand head_sink, or 0 for all heads if attribute smooth_softmax is 1. */
static int sinks(struct lower *lower) {
    int64_t n = lower_int(lower, "num_heads");
    if (lower_has(lower, SINK)) return emit_reshape(lower, lower->inputs[SINK], 1, &n);
    if (lower_int(lower, "smooth_softmax") <= 0) return -1;
    return emit_expand(lower, emit_like(lower, lower->inputs[QUERY], 0), 1, &n);
}

int lower_group_query_attention(struct lower *lower) {
    struct group_query call;
    struct heads *heads = &call.heads;
    if (check_form(lower) < 0 || read_operands(lower, &call) < 0 || read_lengths(lower, &call) < 0) return -1;
    heads_init(lower, heads);
    heads->q = norm_heads(lower, heads->q, Q_NORM);
    heads->k = norm_heads(lower, heads->k, K_NORM);
    if (rotate(lower, &call) < 0) return -1;
    heads->k = cached(lower, &call, PAST_KEY, heads->k);
    heads->v = cached(lower, &call, PAST_VALUE, heads->v);
    if (lower_wants(lower, 1)) lower->outputs[1] = heads->k;
    if (lower_wants(lower, 2)) lower->outputs[2] = heads->v;
    heads->k = emit_piece(lower, heads->k, 2, 0, 1, call.total);
    heads->v = emit_piece(lower, heads->v, 2, 0, 1, call.total);
    heads->cap = lower_float(lower, "softcap");
    heads->bias = lower_id(lower, BIAS);
    if ((heads->keep = visible(lower, &call)) < 0) return -1;
    heads->sink = sinks(lower);
    return lower_result(lower, emit_heads(lower, heads));
}
