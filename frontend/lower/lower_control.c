/* Control flow that is decided at compile time (If, Loop), and sequences, which exist at compile time only. */
#include "frontend/lower/onnx_lower.h"

#include <limits.h>

enum { MAX_TRIPS = 1 << 12 };

static int want(struct lower *lower, int input, bool sequence) {
    if (!lower_has(lower, input) || lower_is_sequence(lower->inputs[input]) == sequence) return 0;
    return lower_error(lower, 341, EXIT_MALFORMED, "input %d is %s", input, sequence ? "not a sequence" : "a sequence");
}

/* If -------------------------------------------------------------------------------------------------------------- */

static int if_done(struct lower *lower, void *state, int n, const int *values) {
    (void)state;
    if (n < lower->noutputs)
        return lower_error(lower, 331, EXIT_MALFORMED, "the branch has %d results, but %d are needed", n,
                           lower->noutputs);
    for (int i = 0; i < lower->noutputs; i++) lower->outputs[i] = values[i];
    return 0;
}

int lower_if(struct lower *lower) {
    int n;
    if (want(lower, 0, false) < 0) return -1;
    const int64_t *condition = build_known_ints(lower->builder.graph, lower->inputs[0], &n);
    if (!condition || n != 1)
        return lower_error(lower, 405, EXIT_UNSUPPORTED,
                           "control flow is not supported unless its condition is a constant");
    const char *branch = condition[0] ? "then_branch" : "else_branch";
    return lower_enter(lower, &(struct subgraph){.graph = lower_attribute(lower, branch)->g, .done = if_done});
}

/* Loop ------------------------------------------------------------------------------------------------------------ */

struct loop {
    const char *name;
    const Onnx__GraphProto *body;
    int64_t trip, trips; /* iterations so far; limit */
    int ncarried, nscans;
    int *carried;
    int **scans; /* [trip][output] */
};

static int loop_finish(struct lower *lower, const struct loop *loop) {
    lower->builder.node = loop->name;
    for (int i = 0; i < lower->noutputs && i < loop->ncarried; i++) lower->outputs[i] = loop->carried[i];
    for (int k = 0; k < loop->nscans && loop->ncarried + k < lower->noutputs; k++) {
        if (!lower_wants(lower, loop->ncarried + k)) continue;
        if (!loop->trip) return lower_unsupported(lower, "a scan output of no iterations");
        int *items = ARENA_ARRAY(lower->builder.graph->arena, int, loop->trip);
        for (int64_t t = 0; t < loop->trip; t++) {
            if (lower_is_sequence(loop->scans[t][k]))
                return lower_error(lower, 341, EXIT_MALFORMED, "a scan output is a sequence");
            items[t] = emit_unsqueeze(lower, loop->scans[t][k], 0);
        }
        lower->outputs[loop->ncarried + k] = emit_concat(lower, 0, (int)loop->trip, items);
        if (lower->outputs[loop->ncarried + k] < 0) return -1;
    }
    return 0;
}

static int loop_step(struct lower *lower, struct loop *loop, bool condition);

/* struct subgraph.done of a loop body, whose outputs are the condition, the carried values and the scan outputs. */
static int loop_done(struct lower *lower, void *state, int n, const int *values) {
    struct loop *loop = state;
    int count;
    lower->builder.node = loop->name;
    if (n != 1 + loop->ncarried + loop->nscans)
        return lower_error(lower, 331, EXIT_MALFORMED, "the body has %d results", n);
    const int64_t *condition =
        lower_is_sequence(values[0]) ? NULL : build_known_ints(lower->builder.graph, values[0], &count);
    if (!condition || count != 1)
        return lower_error(lower, 405, EXIT_UNSUPPORTED,
                           "control flow is not supported: the loop's condition is computed at run time");
    for (int i = 0; i < loop->ncarried; i++) loop->carried[i] = values[1 + i];
    loop->scans[loop->trip++] =
        arena_copy(lower->builder.graph->arena, values + 1 + loop->ncarried, (size_t)loop->nscans * sizeof *values);
    return loop_step(lower, loop, condition[0] != 0);
}

static int loop_step(struct lower *lower, struct loop *loop, bool condition) {
    if (!condition || loop->trip >= loop->trips) return loop_finish(lower, loop);
    if (loop->trip == MAX_TRIPS)
        return lower_error(lower, 405, EXIT_UNSUPPORTED, "a loop of more than %d iterations is not supported",
                           MAX_TRIPS);
    int *inputs = ARENA_ARRAY(lower->builder.graph->arena, int, loop->ncarried + 2);
    inputs[0] = emit_ints(lower, 1, &loop->trip, 0, NULL);
    inputs[1] = build_scalar(&lower->builder, RT_BOOL, 1);
    for (int i = 0; i < loop->ncarried; i++) inputs[2 + i] = loop->carried[i];
    lower->builder.node = arena_printf(lower->builder.graph->arena, "%s.%lld", loop->name, (long long)loop->trip);
    return lower_enter(
        lower,
        &(struct subgraph){
            .graph = loop->body, .ninputs = loop->ncarried + 2, .inputs = inputs, .done = loop_done, .state = loop});
}

/* Reads the trip count or the first condition, which must be known; if it is left out, *value keeps its default. */
static int loop_bound(struct lower *lower, int input, int64_t *value) {
    int n;
    if (!lower_has(lower, input)) return 0;
    const int64_t *known = lower_is_sequence(lower->inputs[input])
                               ? NULL
                               : build_known_ints(lower->builder.graph, lower->inputs[input], &n);
    if (!known || n != 1)
        return lower_error(lower, 405, EXIT_UNSUPPORTED,
                           "control flow is not supported unless its trip count is a constant");
    *value = known[0];
    return 0;
}

int lower_loop(struct lower *lower) {
    struct arena *arena = lower->builder.graph->arena;
    struct loop *loop = ARENA_NEW(arena, struct loop);
    int64_t condition = 1;
    if (lower->ninputs < 2)
        return lower_error(lower, 331, EXIT_MALFORMED, "Loop takes at least 2 inputs, but %d given", lower->ninputs);
    *loop = (struct loop){.name = lower->builder.node, .trips = INT64_MAX, .ncarried = lower->ninputs - 2};
    loop->body = lower_attribute(lower, "body")->g;
    loop->nscans = (int)loop->body->n_output - 1 - loop->ncarried;
    if (loop->nscans < 0)
        return lower_error(lower, 331, EXIT_MALFORMED, "the body has %zu results for %d carried values",
                           loop->body->n_output, loop->ncarried);
    if (loop_bound(lower, 0, &loop->trips) < 0 || loop_bound(lower, 1, &condition) < 0) return -1;
    loop->carried = arena_copy(arena, lower->inputs + 2, (size_t)loop->ncarried * sizeof(int));
    loop->scans = ARENA_ARRAY(arena, int *, MAX_TRIPS);
    return loop_step(lower, loop, condition != 0);
}

/* Sequences ------------------------------------------------------------------------------------------------------- */

int lower_sequence_empty(struct lower *lower) {
    return lower_result(lower, lower_sequence(lower, 0, NULL));
}

int lower_sequence_construct(struct lower *lower) {
    for (int i = 0; i < lower->ninputs; i++) {
        if (!lower_has(lower, i)) return lower_error(lower, 331, EXIT_MALFORMED, "required input %d is omitted", i);
        if (want(lower, i, false) < 0) return -1;
    }
    return lower_result(lower, lower_sequence(lower, lower->ninputs, lower->inputs));
}

/* A copy of the items of input 0, a sequence, with room for one more; NULL after a diagnostic. */
static int *copy_items(struct lower *lower, int *n) {
    if (want(lower, 0, true) < 0) return NULL;
    const int *items = lower_items(lower, lower->inputs[0], n);
    int *copy = ARENA_ARRAY(lower->builder.graph->arena, int, *n + 1);
    memcpy(copy, items, (size_t)*n * sizeof *copy);
    return copy;
}

/* Reads a position in a sequence of n items, which must be known; `fallback` if it is left out. */
static int position(struct lower *lower, int input, int n, int fallback, int *at) {
    int64_t value = fallback;
    if (want(lower, input, false) < 0) return -1;
    if (lower_has(lower, input) && lower_known_int(lower, input, "position", &value) < 0) return -1;
    if (value < -n || value >= n)
        return lower_error(lower, 382, EXIT_MALFORMED, "position %lld is outside of a sequence of %d tensors",
                           (long long)value, n);
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
    if (!items || want(lower, 1, false) < 0) return -1;
    int64_t value = n;
    if (lower_has(lower, 2) && (want(lower, 2, false) < 0 || lower_known_int(lower, 2, "position", &value) < 0))
        return -1;
    if (value < -n || value > n)
        return lower_error(lower, 382, EXIT_MALFORMED, "position %lld is outside of a sequence of %d tensors",
                           (long long)value, n);
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
    if (!n) return lower_error(lower, 384, EXIT_MALFORMED, "the sequence is empty");
    if (lower_axis(lower, lower_int(lower, "axis"), lower_ndim(lower, items[0]) + stack, &axis) < 0) return -1;
    for (int i = 0; i < n && stack; i++) items[i] = emit_unsqueeze(lower, items[i], axis);
    return lower_result(lower, emit_concat(lower, axis, n, items));
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
        return lower_error(lower, 381, EXIT_MALFORMED, "cannot split into %lld parts", (long long)count);
    *sizes = ARENA_ARRAY(lower->builder.graph->arena, int64_t, count + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t size = each ? given[0] : given[i], rest = extent - total;
        if (each && size > rest) size = rest;
        if (size < 0 || size > rest)
            return lower_error(lower, 381, EXIT_MALFORMED, "the sizes do not add up to %lld", (long long)extent);
        total += (*sizes)[i] = size;
    }
    if (total == extent) return (int)count;
    return lower_error(lower, 381, EXIT_MALFORMED, "the sizes add up to %lld, but the dimension has %lld elements",
                       (long long)total, (long long)extent);
}

/* ONNX SplitToSequence-11 */
int lower_split_to_sequence(struct lower *lower) {
    int axis;
    int64_t *sizes = NULL, start = 0;
    if (want(lower, 0, false) < 0 || want(lower, 1, false) < 0) return -1;
    struct tensor x = lower_input(lower, 0);
    if (lower_axis(lower, lower_int(lower, "axis"), x.ndim, &axis) < 0) return -1;
    int n = piece_sizes(lower, x.dims[axis], &sizes);
    if (n < 0) return -1;
    int *items = ARENA_ARRAY(lower->builder.graph->arena, int, n + 1);
    for (int i = 0; i < n; start += sizes[i++]) {
        items[i] = emit_piece(lower, lower->inputs[0], axis, sizes[i] ? start : 0, 1, sizes[i]);
        if (!lower_has(lower, 1) && !lower_int(lower, "keepdims")) items[i] = emit_squeeze(lower, items[i], axis);
        if (items[i] < 0) return -1;
    }
    return lower_result(lower, lower_sequence(lower, n, items));
}
