/* What is the same for all steps in which a device writes tokens by itself, one in each row of the batch (`decode` of
 * struct rt_device), and the values of a decoder's inputs by their roles. */
#ifndef RT_DECODING_H
#define RT_DECODING_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/contract.h"
#include "../base/inline.h"
#include "../base/roles.h"
#include "sample.h"

/* The columns of a batch that a step computes (Note [Generation] in program/generate.h), [first, first + count), and
 * those of the longest prompt. */
struct rt_columns {
    int64_t first, count, width;
    bool pads_right;
};

/* The token in the column is one of its row's, whose prompt has `length`: no padding. */
RT_INLINE bool rt_is_token(const struct rt_columns *columns, int64_t length, int64_t column) {
    if (column >= columns->width) return true;
    return columns->pads_right ? column < length : column >= columns->width - length;
}

/* How many tokens of the row come before the column. */
RT_INLINE int64_t rt_tokens_before(const struct rt_columns *columns, int64_t length, int64_t column) {
    const int64_t padding = columns->width - length;
    if (columns->pads_right && column < columns->width) return column;
    return column > padding ? column - padding : 0;
}

/* Tokens of the row so far, with those of the step. */
RT_INLINE int64_t rt_tokens_with(const struct rt_columns *columns, int64_t length) {
    const int64_t most = columns->first + columns->count;
    if (columns->pads_right && most <= columns->width) return most < length ? most : length;
    return rt_tokens_before(columns, length, most);
}

/* The value of an input with the role for a row whose prompt has `length`, token t of the step, which is `id`, and
 * column k. A mask of tokens has k alone, and its t is the last. */
RT_INLINE int64_t rt_role_value(enum rt_role role, const struct rt_columns *columns, int64_t length, int64_t id,
                                int64_t t, int64_t k) {
    const int64_t first = columns->first;
    switch (role) {
    case RT_ROLE_IDS: return id;
    case RT_ROLE_MASK: return k <= first + t && rt_is_token(columns, length, k);
    case RT_ROLE_POSITIONS: return rt_tokens_before(columns, length, first + t);
    case RT_ROLE_CACHE_POSITIONS: return first + t;
    case RT_ROLE_LENGTHS: return rt_tokens_with(columns, length) - 1;
    case RT_ROLE_TOTAL: return first + columns->count;
    case RT_ROLE_PAST: return first;
    case RT_ROLE_WRITE_INDICES: return columns->pads_right ? rt_tokens_before(columns, length, first) : first;
    case RT_ROLE_KV_LENGTHS: return rt_tokens_with(columns, length);
    case RT_ROLE_BRANCH: return first > 0;
    default: return 0;
    }
}

/* An input with a role: a letter for each dimension (base/roles.def). */
struct rt_fed {
    enum rt_role role;
    char shape[RT_MAX_NDIM + 1];
};

/* The dimension with the letter; -1: none. */
static inline int rt_dimension_of(const char *shape, int ndim, char letter) {
    for (int d = 0; d < ndim; d++)
        if (shape[d] == letter) return d;
    return -1;
}

/* The tokens that a device writes: in each step that of the column that is as many as the caches have rows. */
struct rt_decoding {
    struct rt_sampling sampling;
    int64_t rows, vocabulary;
    int64_t width; /* columns of the longest prompt, behind which the steps begin */
    bool pads_right;
    int logits;                /* the output */
    const struct rt_fed *fed;  /* of each input */
    const int64_t *lengths;    /* of the prompts, by row */
    const int64_t *next;       /* the tokens of the first step */
    const uint64_t *seen;      /* per row: rt_seen_words */
    const int64_t *suppressed; /* tokens that are not chosen; of the vocabulary */
    int64_t nsuppressed;
};

/* Steps that the host may be ahead of the tokens that it has taken. */
enum { RT_AHEAD = 2 };

#endif
