#include "kernels.h"

#include "../../base/number/fp8.h"
#include "../../generated.h"
#include "../gemm.h"
#include "dequantise.h"
#include "internal.h"
#include "types.h"

#include <string.h>

/* Note [Grouping by expert]
 * A task is the block of columns of one expert's product. It collects the rows that chose the expert, ROWS at a time
 * and in order, copies a part of them into a block of its own, multiplies it with the weights where they lie, and
 * stores the results at the places of the rows. So no memory depends on how rows are distributed among experts, and all
 * tokens may choose the same one. The sum over k runs in blocks of DEPTH whatever the rows are. */
enum {
    ROWS = 32,
    COLUMNS_OF_TASK = 256, /* the last task of an expert may have one more, so that none has a single column */
    WIDEST = COLUMNS_OF_TASK + 1,
    DEPTH = 64,
    GRAD_ROWS = 128 /* of the weights' gradient */
};

/* Which rows chose which expert. */
struct routing {
    const void *index;
    int is_64;
    int64_t count, start, total;
};

/* The expert of a row, counted from the first of the part. */
static inline int64_t expert_of(const struct routing *routing, int64_t row) {
    int64_t expert = index_at(routing->index, routing->is_64, row);
    return (expert < 0 ? expert + routing->total : expert) - routing->start;
}

/* Collects up to `most` rows of the expert from row *from on; *from is then the next row to look at. */
static int64_t next_rows(const struct routing *routing, int64_t expert, int64_t *from, int64_t most, int64_t *rows) {
    int64_t n = 0, row = *from;
    for (; row < routing->count && n < most; row++)
        if (expert_of(routing, row) == expert) rows[n++] = row;
    *from = row;
    return n;
}

enum { EXPERTS_MOST = 4096, CHOICES_MOST = 64 }; /* of buffers */

/* The places of the next rows of a group. */
struct places {
    struct routing routing; /* of the group */
    int64_t groups, group, capacity, experts;
    int64_t used[EXPERTS_MOST]; /* rows of each expert of the part so far */
};

static void places_begin(struct places *places, const void *index, int is_64, int64_t groups, int64_t group,
                         int64_t rows, int64_t capacity, int64_t experts, int64_t start, int64_t total) {
    const char *of_group = (const char *)index + group * rows * (is_64 ? 8 : 4);
    places->routing = (struct routing){of_group, is_64, rows, start, total};
    places->groups = groups;
    places->group = group;
    places->capacity = capacity;
    places->experts = experts;
    memset(places->used, 0, (size_t)experts * sizeof *places->used);
}

/* The place of the row in the buffers, in rows; -1: it has none. Rows are asked for in order. */
static int64_t next_place(struct places *places, int64_t row) {
    const int64_t expert = expert_of(&places->routing, row);
    if (expert < 0 || expert >= places->experts || places->used[expert] >= places->capacity) return -1;
    return (expert * places->groups + places->group) * places->capacity + places->used[expert]++;
}

static int64_t blocks_of_columns(int64_t n) {
    return max_i64((n - 2) / COLUMNS_OF_TASK + 1, 1);
}

/* The columns of block `block`: *column is the first; returns how many. */
static int64_t columns_of(int64_t n, int64_t block, int64_t *column) {
    *column = block * COLUMNS_OF_TASK;
    return block + 1 == blocks_of_columns(n) ? n - *column : COLUMNS_OF_TASK;
}

/* The weights of experts as they are stored: of each a matrix (k,n), or (n,k) with trans_b; or dequantised ones. */
struct stack {
    const void *at;
    int64_t k, n;
    int trans_b;
    const struct weights *dequantised; /* the first matrix */
};

/* b(depth,width) = rows [p, p + depth) and columns [column, column + width) of the expert's matrix, in the type of
 * sums. */
#define DEFINE_LOAD_FN(T, s)                                                                                           \
    typedef void load_fn_##s(T *b, const struct stack *w, int64_t expert, int64_t p, int64_t depth, int64_t column,    \
                             int64_t width);
RT_FLOATS(DEFINE_LOAD_FN)

#define T     TYPE(SUFFIX)
#define SUM   TYPE(WIDE)
#define PART  "expert.inc"
#define TYPES (FLOATS | HALVES)
#include "each.inc"

#define DEFINE_DEQUANT(T, s)                                                                                           \
    static void load_dequantised_##s(T *b, const struct stack *stack, int64_t expert, int64_t p, int64_t depth,        \
                                     int64_t column, int64_t width) {                                                  \
        const struct weights matrix = rt_weights_at(stack->dequantised, expert, sizeof(T));                            \
        T panel[DEPTH * RT_PANEL];                                                                                     \
        for (int64_t j = 0; j < width; j += RT_PANEL) {                                                                \
            const int64_t columns = min_i64(RT_PANEL, width - j);                                                      \
            rt_dequantise_##s(panel, &matrix, p, depth, column + j, columns);                                          \
            for (int64_t q = 0; q < depth; q++)                                                                        \
                memcpy(b + q * width + j, panel + q * RT_PANEL, (size_t)columns * sizeof *b);                          \
        }                                                                                                              \
    }                                                                                                                  \
    int rt_dequant_expert_matmul_##s(struct rt *rt, T *y, const T *x, const void *w, const T *scale,                   \
                                     const void *index, int index_is_64, int64_t count, int64_t experts, int64_t k,    \
                                     int64_t n, int64_t groups, enum rt_dtype type, enum rt_dtype codes,               \
                                     double offset, int turned, int across, int64_t start, int64_t total) {            \
        const struct routing routing = {index, index_is_64, count, start, total};                                      \
        const struct weights first = rt_weights_of((struct weights){.w = w,                                            \
                                                                    .scale = scale,                                    \
                                                                    .k = k,                                            \
                                                                    .n = n,                                            \
                                                                    .groups = groups,                                  \
                                                                    .offset = offset,                                  \
                                                                    .type = type,                                      \
                                                                    .codes = codes,                                    \
                                                                    .turned = turned,                                  \
                                                                    .across = across});                                \
        const struct stack stack = {.k = k, .n = n, .dequantised = &first};                                            \
        return products_##s(rt, y, x, &stack, load_dequantised_##s, &routing, experts);                                \
    }
RT_FLOATS(DEFINE_DEQUANT)
