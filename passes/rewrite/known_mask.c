#include "passes/rewrite/known_mask.h"

#include <math.h>

#include "ir/expr/eval.h"
#include "runtime/base/shape/part.h"

struct values {
    const void *data;
    enum rt_dtype dtype;
};

/* The values of a constant, or of a weight that is not trained; data NULL for other tensors. */
static struct values values_of(const struct graph *graph, const struct tensor *t) {
    if (t->kind == TENSOR_CONST) return (struct values){t->data, t->dtype};
    if (t->kind != TENSOR_WEIGHT || (graph->train && !t->constant)) return (struct values){NULL, RT_DTYPE_NONE};
    return (struct values){t->data, t->stored.dtype};
}

static double value_at(const struct values *values, int64_t i) {
    struct number value = eval_load(values->data, values->dtype, i);
    return value.is_float ? value.f : (double)value.i;
}

/* The keys [first, behind) that a row sees; both 0 if it sees none. */
struct seen {
    int64_t first, behind;
};

/* False if the visible keys are not adjacent, or if hidden ones have several values. *hidden: the value of hidden keys,
 * NAN before one was met. */
static bool seen_of_row(const struct values *values, int64_t row, int64_t keys, double seen, double *hidden,
                        struct seen *of_row) {
    *of_row = (struct seen){0, 0};
    for (int64_t j = 0; j < keys; j++) {
        double value = value_at(values, row * keys + j);
        if (value == seen) {
            if (of_row->behind == 0) of_row->first = of_row->behind = j;
            if (of_row->behind++ != j) return false;
        } else {
            if (isnan(*hidden)) *hidden = value;
            if (value != *hidden) return false;
        }
    }
    return true;
}

/* Finds the offset in a row that does not see the last key. If there is none, no key is hidden behind others. */
static void find_offset(struct known_mask *known, const struct seen *rows, int64_t n, int64_t keys) {
    known->offset = keys - 1;
    for (int64_t i = n - 1; i >= 0; i--)
        if (rows[i].behind > 0 && rows[i].behind < keys) known->offset = rows[i].behind - 1 - i;
}

/* Finds the window in a row that does not see the first key. */
static void find_window(struct known_mask *known, const struct seen *rows, int64_t n) {
    for (int64_t i = n - 1; i >= 0; i--)
        if (rows[i].first > 0) known->window = known->offset + i + 1 - rows[i].first;
}

static bool agrees(const struct known_mask *known, const struct seen *row, int64_t i, int64_t keys) {
    int64_t behind = rt_clamp(known->offset + i + 1, 0, keys), first = 0;
    if (known->window) first = rt_clamp(known->offset + i + 1 - known->window, 0, behind);
    return row->behind == 0 ? first == behind : row->first == first && row->behind == behind;
}

static struct known_mask examine(struct arena *arena, const struct values *values, const struct tensor *t,
                                 double seen) {
    struct known_mask known = {.kind = MASK_CAUSAL, .fill = NAN, .sees = true}, any = {.fill = NAN};
    int64_t keys = t->dims[t->ndim - 1], n = tensor_elements(t) / keys;
    int64_t period = t->ndim < 2 ? 1 : t->dims[t->ndim - 2];
    struct seen *rows = ARENA_ARRAY(arena, struct seen, n);
    bool all = true;
    for (int64_t i = 0; i < n; i++)
        if (!seen_of_row(values, i, keys, seen, &known.fill, &rows[i])) return any;
    find_offset(&known, rows, period, keys);
    find_window(&known, rows, period);
    if (known.offset < 0 || known.window < 0) return any;
    for (int64_t i = 0; i < n; i++) {
        if (!agrees(&known, &rows[i], i % period, keys)) return any;
        all = all && rows[i].first == 0 && rows[i].behind == keys;
        known.sees = known.sees && rows[i].behind > 0;
    }
    if (all) known.kind = MASK_NOTHING;
    return known;
}

struct known_mask known_mask(struct graph *graph, struct known_masks *masks, int mask, const struct tensor *score,
                             double seen) {
    struct known_mask any = {.fill = NAN}, known;
    const struct tensor *t = &graph->tensors.at[mask];
    struct values values = values_of(graph, t);
    int i = 0;
    if ((!values.data && !graph->open) || !tensor_elements(t)) return any;
    if (!t->ndim) {
        const bool nothing = values.data && value_at(&values, 0) == seen;
        return nothing ? (struct known_mask){.kind = MASK_NOTHING, .fill = NAN, .sees = true} : any;
    }
    while (i < masks->all.n && (masks->all.at[i].tensor != mask || masks->all.at[i].seen != seen)) i++;
    if (i == masks->all.n)
        VEC_PUSH(graph->arena, &masks->all,
                 (struct examined_mask){
                     mask, seen, values.data ? examine(graph->arena, &values, t, seen) : open_mask(graph, mask, seen)});
    t = &graph->tensors.at[mask];
    known = masks->all.at[i].known;
    bool whole = t->ndim >= 2 && t->dims[t->ndim - 1] == score->dims[score->ndim - 1] &&
                 t->dims[t->ndim - 2] == score->dims[score->ndim - 2];
    return known.kind == MASK_CAUSAL && !whole ? any : known;
}

bool known_gate(const struct graph *graph, int keep, int bias, double *fill) {
    const struct tensor *gate = &graph->tensors.at[keep], *added = &graph->tensors.at[bias];
    const struct values gates = values_of(graph, gate), biases = values_of(graph, added);
    *fill = NAN;
    if (!gates.data || !biases.data || !tensor_same_shape(gate, added)) return false;
    for (int64_t i = 0, n = tensor_elements(gate); i < n; i++) {
        const double open = value_at(&gates, i), value = value_at(&biases, i);
        if (open == 0 && isnan(*fill)) *fill = value;
        if ((open != 0 && open != 1) || value != (open == 1 ? 0 : *fill)) return false;
    }
    return true;
}

bool known_repeats(const struct graph *graph, int tensor, int dim) {
    const struct tensor *t = &graph->tensors.at[tensor];
    const struct values values = values_of(graph, t);
    int64_t inner = 1, extent = t->dims[dim], n = tensor_elements(t);
    for (int d = dim + 1; d < t->ndim; d++) inner *= t->dims[d];
    if (!values.data) return false;
    for (int64_t i = 0; i < n; i++)
        if (i / inner % extent > 0 && value_at(&values, i) != value_at(&values, i - inner)) return false;
    return true;
}

bool known_uniform(const struct graph *graph, int tensor, double *value) {
    const struct tensor *t = &graph->tensors.at[tensor];
    const struct values values = values_of(graph, t);
    const int64_t n = tensor_elements(t);
    if (!values.data || n == 0) return false;
    *value = value_at(&values, 0);
    for (int64_t i = 1; i < n; i++)
        if (value_at(&values, i) != *value) return false;
    return true;
}
