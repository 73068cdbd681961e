/* ONNX's sequences and optionals, which exist at compile time only. An optional that holds a value is that value; one
 * that holds none has an id of its own (lower_nothing). */
#include "frontend/lower/lower_counted.h"
#include "frontend/lower/lowering_state.h"

bool lower_is_sequence(int id) {
    return id >= SEQUENCES;
}

int lower_sequence(struct lower *lower, int n, const int *items) {
    return lowering_sequence(lower->shared, n, items, false);
}

/* An optional without a value; lower_is_sequence is true for it, too. */
static int lower_nothing(struct lower *lower) {
    return lowering_sequence(lower->shared, 0, NULL, true);
}

bool lower_is_nothing(const struct lower *lower, int id) {
    return lower_is_sequence(id) && lower->shared->sequences.at[id - SEQUENCES].nothing;
}

const int *lower_items(const struct lower *lower, int sequence, int *n) {
    const struct sequence *found = &lower->shared->sequences.at[sequence - SEQUENCES];
    *n = found->n;
    return found->items;
}

int lower_want(struct lower *lower, int input, bool sequence) {
    if (!lower_has(lower, input)) return 0;
    int id = lower->inputs[input];
    if (lower_is_nothing(lower, id)) return lower_error(lower, 341, "input %d is an optional without a value", input);
    if (lower_is_sequence(id) == sequence) return 0;
    return lower_error(lower, 341, "input %d is %s", input, sequence ? "not a sequence" : "a sequence");
}

/* ONNX Optional-15: holds the input, or nothing of the type in attribute `type`. */
int lower_optional(struct lower *lower) {
    return lower_result(lower, lower_has(lower, 0) ? lower->inputs[0] : lower_nothing(lower));
}

int lower_optional_get(struct lower *lower) {
    if (lower_is_nothing(lower, lower->inputs[0])) return lower_error(lower, 384, "the optional has no value");
    return lower_result(lower, lower->inputs[0]);
}

int lower_optional_has(struct lower *lower) {
    bool has = lower_has(lower, 0) && !lower_is_nothing(lower, lower->inputs[0]);
    return lower_result(lower, build_scalar(&lower->builder, RT_BOOL, has));
}

int lower_sequence_empty(struct lower *lower) {
    return lower_result(lower, lower_sequence(lower, 0, NULL));
}

int lower_sequence_construct(struct lower *lower) {
    for (int i = 0; i < lower->ninputs; i++) {
        if (!lower_has(lower, i)) return lower_error(lower, 331, "required input %d is omitted", i);
        if (lower_want(lower, i, false) < 0) return -1;
    }
    return lower_result(lower, lower_sequence(lower, lower->ninputs, lower->inputs));
}

/* A copy of the items of input 0, a sequence, with room for one more; NULL after a diagnostic. */
static int *copy_items(struct lower *lower, int *n) {
    if (lower_want(lower, 0, true) < 0) return NULL;
    const int *items = lower_items(lower, lower->inputs[0], n);
    int *copy = ARENA_ARRAY(lower->arena, int, *n + 1);
    memcpy(copy, items, (size_t)*n * sizeof *copy);
    return copy;
}

/* Reads a position in a sequence of n items, which must be known; `fallback` if it is left out. */
static int position(struct lower *lower, int input, int n, int fallback, int *at) {
    int64_t value = fallback;
    if (lower_want(lower, input, false) < 0) return -1;
    if (lower_has(lower, input) && lower_known_int(lower, input, "position", &value) < 0) return -1;
    if (value < -n || value >= n)
        return lower_error(lower, 382, "position %lld is outside of a sequence of %d tensor(s)", (long long)value, n);
    *at = (int)(value < 0 ? value + n : value);
    return 0;
}

int lower_sequence_at(struct lower *lower) {
    int n, at = 0;
    const int *items = copy_items(lower, &n);
    if (!items || position(lower, 1, n, 0, &at) < 0) return -1;
    return lower_result(lower, items[at]);
}

int lower_sequence_insert(struct lower *lower) {
    int n, at;
    int *items = copy_items(lower, &n);
    if (!items || lower_want(lower, 1, false) < 0) return -1;
    int64_t value = n;
    if (lower_has(lower, 2) && (lower_want(lower, 2, false) < 0 || lower_known_int(lower, 2, "position", &value) < 0))
        return -1;
    if (value < -n || value > n)
        return lower_error(lower, 382, "position %lld is outside of a sequence of %d tensor(s)", (long long)value, n);
    at = (int)(value < 0 ? value + n : value);
    memmove(items + at + 1, items + at, (size_t)(n - at) * sizeof *items);
    items[at] = lower->inputs[1];
    return lower_result(lower, lower_sequence(lower, n + 1, items));
}

int lower_sequence_erase(struct lower *lower) {
    int n, at = 0;
    int *items = copy_items(lower, &n);
    if (!items || position(lower, 1, n, -1, &at) < 0) return -1;
    memmove(items + at, items + at + 1, (size_t)(n - at - 1) * sizeof *items);
    return lower_result(lower, lower_sequence(lower, n - 1, items));
}

int lower_sequence_length(struct lower *lower) {
    int n;
    if (!copy_items(lower, &n)) return -1;
    int64_t length = n;
    return lower_result(lower, emit_ints(lower, 1, &length, 0, NULL));
}

/* ONNX ConcatFromSequence-11 */
int lower_concat_from_sequence(struct lower *lower) {
    int n, axis;
    bool stack = lower_int(lower, "new_axis");
    int *items = copy_items(lower, &n);
    if (!items) return -1;
    if (!n) return lower_error(lower, 384, "the sequence is empty");
    if (lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, items[0]) + stack, &axis) < 0) return -1;
    for (int i = 0; i < n && stack; i++) items[i] = emit_unsqueeze(lower, items[i], axis);
    return lower_result(lower, lower_join(lower, axis, n, items));
}

/* The sizes of the pieces: a list, or one size for all but a smaller last piece, by default 1. Returns their number, -1
 * after a diagnostic. */
static int piece_sizes(struct lower *lower, int64_t extent, int64_t **sizes) {
    const int64_t one = 1, *given = &one;
    int n = 1;
    int64_t total = 0;
    bool each = !lower_has(lower, 1) || lower_ndim(lower, lower->inputs[1]) == 0;
    if (lower_has(lower, 1) && !(given = lower_known(lower, 1, "split", &n))) return -1;
    int64_t count = !each ? n : given[0] > 0 ? extent / given[0] + (extent % given[0] != 0) : -1;
    if (count < 0 || count > ONNX_NODES)
        return lower_error(lower, 381, "cannot split into %lld parts", (long long)count);
    *sizes = ARENA_ARRAY(lower->arena, int64_t, count + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t size = each ? given[0] : given[i], rest = extent - total;
        if (each && size > rest) size = rest;
        if (size < 0 || size > rest)
            return lower_error(lower, 381, "the sizes do not add up to %lld", (long long)extent);
        total += (*sizes)[i] = size;
    }
    if (total == extent) return (int)count;
    return lower_error(lower, 381, "the sizes add up to %lld, but the dimension has %lld element(s)", (long long)total,
                       (long long)extent);
}

static int split_at_run_time(struct lower *lower, int axis) {
    const int n = (int)lower_input(lower, 1).dims[0];
    int *items = ARENA_ARRAY(lower->arena, int, n + 1);
    if (lower_split_at(lower, axis, n, items) < 0) return -1;
    return lower_result(lower, lower_sequence(lower, n, items));
}

/* ONNX SplitToSequence-11 */
int lower_split_to_sequence(struct lower *lower) {
    int axis;
    int64_t *sizes = NULL, start = 0;
    if (lower_want(lower, 0, false) < 0 || lower_want(lower, 1, false) < 0) return -1;
    struct tensor x = lower_input(lower, 0);
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    int n = 0;
    if (lower_has(lower, 1) && lower_ndim(lower, lower->inputs[1]) == 1 &&
        !build_known_ints(lower->builder.graph, lower->inputs[1], &n))
        return split_at_run_time(lower, axis);
    n = piece_sizes(lower, x.dims[axis], &sizes);
    if (n < 0) return -1;
    int *items = ARENA_ARRAY(lower->arena, int, n + 1);
    for (int i = 0; i < n; start += sizes[i++]) {
        items[i] = emit_piece(lower, lower->inputs[0], axis, sizes[i] ? start : 0, 1, sizes[i]);
        if (!lower_has(lower, 1) && !lower_int(lower, "keepdims")) items[i] = emit_squeeze(lower, items[i], axis);
        if (items[i] < 0) return -1;
    }
    return lower_result(lower, lower_sequence(lower, n, items));
}
