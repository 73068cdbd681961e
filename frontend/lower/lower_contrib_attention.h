/* Attention as the operators of ONNX Runtime have it (lower_contrib_attention.c, lower_contrib_gqa.c): heads, masks,
 * caches of keys and values, and the composition of core operators that computes it. */
#ifndef FRONTEND_LOWER_LOWER_CONTRIB_ATTENTION_H
#define FRONTEND_LOWER_LOWER_CONTRIB_ATTENTION_H

#include "frontend/lower/onnx_lower.h"

/* softmax(cap(scale q k^T) + bias, where keep) v. Tensor ids; -1: not there. */
struct heads {
    int q, k, v;        /* (batch, heads, t, d), (batch, kv, s, d), (batch, kv, s, e); kv divides heads */
    double scale, cap;  /* cap > 0: scores x become cap tanh(x / cap) */
    int bias, keep;     /* broadcast to (batch, heads, t, s); keep: bool, hides a score where it is false */
    int sink;           /* (heads): the score of a further key, whose value is 0 */
    int scores, shares; /* results: the scores before, and after the softmax */
};

/* An empty description: no tensor, scale as attribute `scale` says, else 1 / sqrt(d) of q. Call it with q set. */
void heads_init(struct lower *lower, struct heads *heads);
/* The result (batch, t, heads x e), -1 after a diagnostic. */
int emit_heads(struct lower *lower, struct heads *heads);

/* (batch, length, heads x size) as (batch, heads, length, size); E378 if it does not divide. */
int heads_apart(struct lower *lower, int x, int64_t heads);

/* Writes the keys or values `fresh` (batch, heads, t, d) into a copy of `past` (batch, heads, p, d) from the position
 * `at` on, i64 (batch). The result has `length` >= p positions. */
int write_cache(struct lower *lower, int past, int fresh, int at, int64_t length);

/* Attention of q, k and v that are one tensor, (batch, steps, widths of q, k and v). Tensor ids of the mask, of past
 * keys and values (2, batch, heads, length, size) and of a bias of scores; -1: left out. Lowers the rest of the node,
 * as its attributes say. */
struct merged {
    int projected;
    int64_t widths[3];
    int mask, past, scores_bias;
};
int emit_merged_attention(struct lower *lower, const struct merged *merged);

#endif
