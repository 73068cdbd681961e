/* ONNX LinearAttention-27. */
#include "frontend/lower/onnx_lower.h"

#include <math.h>
#include <string.h>

/* The rate of the delta rule, (b, t, heads); the input may have one for all heads. */
static int rate_of(struct lower *lower, int64_t heads) {
    const struct tensor rate = lower_input(lower, 5);
    if (rate.ndim != 3 || (rate.dims[2] != heads && rate.dims[2] != 1))
        return lower_misfit(lower, lower->inputs[0], lower->inputs[5]);
    return emit_expand(lower, lower->inputs[5], 3, (int64_t[]){rate.dims[0], rate.dims[1], heads});
}

/* Sets operands 4 and 5, decay and rate; the rule says which there must be. */
static int read_rule(struct lower *lower, int64_t heads, int *operands) {
    const char *rule = lower_text(lower, "update_rule");
    const bool gated = strncmp(rule, "gated", 5) == 0, delta = strstr(rule, "delta") != NULL;
    static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
    size_t i = 0;
    while (i < sizeof rules / sizeof *rules && strcmp(rules[i], rule) != 0) i++;
    if (i == sizeof rules / sizeof *rules) return lower_unknown(lower, "update_rule", rule);
    if (gated != lower_has(lower, 4) || delta != lower_has(lower, 5))
        return lower_error(lower, 385, "update_rule %s needs %s decay and %s beta", rule, gated ? "a" : "no",
                           delta ? "a" : "no");
    if (gated && (operands[4] = emit_split_heads(lower, lower->inputs[4], heads)) < 0) return -1;
    if (delta && (operands[5] = rate_of(lower, heads)) < 0) return -1;
    return 0;
}

int lower_linear_attention(struct lower *lower) {
    const int64_t heads = lower_int(lower, "q_num_heads"), kv = lower_int(lower, "kv_num_heads");
    double scale = lower_float(lower, "scale");
    int in[] = {emit_split_heads(lower, lower->inputs[0], heads),
                emit_split_heads(lower, lower->inputs[1], kv),
                emit_split_heads(lower, lower->inputs[2], kv),
                -1,
                -1,
                -1};
    if (in[0] < 0 || in[1] < 0 || in[2] < 0) return -1;
    const struct tensor q = lower_tensor(lower, in[0]), k = lower_tensor(lower, in[1]), v = lower_tensor(lower, in[2]);
    const int64_t size = q.dims[3], state[] = {q.dims[0], kv, size, v.dims[3]};
    const int64_t packed[] = {q.dims[0], q.dims[1], heads * v.dims[3]};
    if (heads % kv || k.dims[3] != size || size < 1) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (read_rule(lower, kv, in) < 0) return -1;
    const enum rt_dtype of_state = lower_has(lower, 3) ? lower_input(lower, 3).dtype : q.dtype;
    in[3] = lower_has(lower, 3) ? emit_cast(lower, lower->inputs[3], q.dtype)
                                : emit_expand(lower, emit_like(lower, in[0], 0), 4, state);
    in[0] = emit_reshape(lower, in[0], 5, (int64_t[]){q.dims[0], q.dims[1], kv, heads / kv, size});
    if (in[0] < 0 || in[3] < 0) return -1;
    if (scale == 0) scale = 1 / sqrt((double)size);
    const struct attr attr = attr_of_float("scale", scale);
    int out[2];
    if (build_many(&lower->builder, OP_LinearAttention, 6, in, 2, out, 1, &attr) < 0) return -1;
    if (lower_wants(lower, 1) && (lower->outputs[1] = emit_cast(lower, out[1], of_state)) < 0) return -1;
    return lower_result(lower, emit_reshape(lower, out[0], 3, packed));
}
