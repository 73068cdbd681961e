/* Control flow that is known at compile time, and sequences, which exist at compile time only. */
#include "frontend/lower/onnx_lower.h"

#include <limits.h>

enum { MAX_TRIPS = 1 << 12 };

static int want(struct lower *l, int input, bool sequence) {
    if (!lower_has(l, input) || lower_is_sequence(l->inputs[input]) == sequence) return 0;
    return lower_error(l, 341, EXIT_MALFORMED, "input %d is %s", input, sequence ? "no sequence" : "a sequence");
}

/* If -------------------------------------------------------------------------------------------------------------- */

static int if_done(struct lower *l, void *state, int n, const int *values) {
    (void)state;
    if (n < l->noutputs)
        return lower_error(l, 331, EXIT_MALFORMED, "the branch has %d results, %d needed", n, l->noutputs);
    for (int i = 0; i < l->noutputs; i++) l->outputs[i] = values[i];
    return 0;
}

int lower_if(struct lower *l) {
    int n;
    if (want(l, 0, false) < 0) return -1;
    const int64_t *condition = build_known_ints(l->b.graph, l->inputs[0], &n);
    if (!condition || n != 1)
        return lower_error(l, 405, EXIT_UNSUPPORTED,
                           "control flow is not supported unless its condition is a constant");
    const char *branch = condition[0] ? "then_branch" : "else_branch";
    return lower_enter(l, &(struct subgraph){.graph = lower_attribute(l, branch)->g, .done = if_done});
}

/* Loop ------------------------------------------------------------------------------------------------------------ */

struct loop {
    const char *name;
    const Onnx__GraphProto *body;
    int64_t trip, trips; /* done so far, at most */
    int ncarried, nscans;
    int *carried;
    int **scans; /* [trip][output] */
};

static int loop_finish(struct lower *l, const struct loop *loop) {
    l->b.node = loop->name;
    for (int i = 0; i < l->noutputs && i < loop->ncarried; i++) l->outputs[i] = loop->carried[i];
    for (int k = 0; k < loop->nscans && loop->ncarried + k < l->noutputs; k++) {
        if (!lower_wants(l, loop->ncarried + k)) continue;
        if (!loop->trip) return lower_unsupported(l, "a scan output of no iterations");
        int *items = ARENA_ARRAY(l->b.graph->arena, int, loop->trip);
        for (int64_t t = 0; t < loop->trip; t++) {
            if (lower_is_sequence(loop->scans[t][k]))
                return lower_error(l, 341, EXIT_MALFORMED, "a scan output is a sequence");
            items[t] = emit_unsqueeze(l, loop->scans[t][k], 0);
        }
        l->outputs[loop->ncarried + k] = emit_concat(l, 0, (int)loop->trip, items);
        if (l->outputs[loop->ncarried + k] < 0) return -1;
    }
    return 0;
}

static int loop_step(struct lower *l, struct loop *loop, bool condition);

/* The next condition, the carried values, the scan outputs. */
static int loop_done(struct lower *l, void *state, int n, const int *values) {
    struct loop *loop = state;
    int count;
    l->b.node = loop->name;
    if (n != 1 + loop->ncarried + loop->nscans)
        return lower_error(l, 331, EXIT_MALFORMED, "the body has %d results", n);
    const int64_t *condition = lower_is_sequence(values[0]) ? NULL : build_known_ints(l->b.graph, values[0], &count);
    if (!condition || count != 1)
        return lower_error(l, 405, EXIT_UNSUPPORTED,
                           "control flow is not supported: the loop's condition is computed at run time");
    for (int i = 0; i < loop->ncarried; i++) loop->carried[i] = values[1 + i];
    loop->scans[loop->trip++] =
        arena_copy(l->b.graph->arena, values + 1 + loop->ncarried, (size_t)loop->nscans * sizeof *values);
    return loop_step(l, loop, condition[0] != 0);
}

static int loop_step(struct lower *l, struct loop *loop, bool condition) {
    if (!condition || loop->trip >= loop->trips) return loop_finish(l, loop);
    if (loop->trip == MAX_TRIPS)
        return lower_error(l, 405, EXIT_UNSUPPORTED, "a loop of more than %d iterations", MAX_TRIPS);
    int *inputs = ARENA_ARRAY(l->b.graph->arena, int, loop->ncarried + 2);
    inputs[0] = emit_ints(l, 1, &loop->trip, 0, NULL);
    inputs[1] = build_scalar(&l->b, RT_BOOL, 1);
    for (int i = 0; i < loop->ncarried; i++) inputs[2 + i] = loop->carried[i];
    l->b.node = arena_printf(l->b.graph->arena, "%s.%lld", loop->name, (long long)loop->trip);
    return lower_enter(
        l, &(struct subgraph){
               .graph = loop->body, .ninputs = loop->ncarried + 2, .inputs = inputs, .done = loop_done, .state = loop});
}

/* The trip count or the first condition: known, or left out with `value` as it is. */
static int loop_bound(struct lower *l, int input, int64_t *value) {
    int n;
    if (!lower_has(l, input)) return 0;
    const int64_t *known =
        lower_is_sequence(l->inputs[input]) ? NULL : build_known_ints(l->b.graph, l->inputs[input], &n);
    if (!known || n != 1)
        return lower_error(l, 405, EXIT_UNSUPPORTED,
                           "control flow is not supported unless its trip count is a constant");
    *value = known[0];
    return 0;
}

int lower_loop(struct lower *l) {
    struct arena *arena = l->b.graph->arena;
    struct loop *loop = ARENA_NEW(arena, struct loop);
    int64_t condition = 1;
    if (l->ninputs < 2)
        return lower_error(l, 331, EXIT_MALFORMED, "Loop takes at least 2 inputs, %d given", l->ninputs);
    *loop = (struct loop){.name = l->b.node, .trips = INT64_MAX, .ncarried = l->ninputs - 2};
    loop->body = lower_attribute(l, "body")->g;
    loop->nscans = (int)loop->body->n_output - 1 - loop->ncarried;
    if (loop->nscans < 0)
        return lower_error(l, 331, EXIT_MALFORMED, "the body has %zu results for %d carried values",
                           loop->body->n_output, loop->ncarried);
    if (loop_bound(l, 0, &loop->trips) < 0 || loop_bound(l, 1, &condition) < 0) return -1;
    loop->carried = arena_copy(arena, l->inputs + 2, (size_t)loop->ncarried * sizeof(int));
    loop->scans = ARENA_ARRAY(arena, int *, MAX_TRIPS);
    return loop_step(l, loop, condition != 0);
}

/* Sequences ------------------------------------------------------------------------------------------------------- */

int lower_sequence_empty(struct lower *l) {
    return lower_result(l, lower_sequence(l, 0, NULL));
}

int lower_sequence_construct(struct lower *l) {
    for (int i = 0; i < l->ninputs; i++) {
        if (!lower_has(l, i)) return lower_error(l, 331, EXIT_MALFORMED, "input %d is left out", i);
        if (want(l, i, false) < 0) return -1;
    }
    return lower_result(l, lower_sequence(l, l->ninputs, l->inputs));
}

/* The sequence that input 0 is, copied with room for one more; NULL after a diagnostic. */
static int *copy_items(struct lower *l, int *n) {
    if (want(l, 0, true) < 0) return NULL;
    const int *items = lower_items(l, l->inputs[0], n);
    int *copy = ARENA_ARRAY(l->b.graph->arena, int, *n + 1);
    memcpy(copy, items, (size_t)*n * sizeof *copy);
    return copy;
}

/* A known position in a sequence of n, `fallback` if it is left out. */
static int position(struct lower *l, int input, int n, int fallback, int *at) {
    int64_t value = fallback;
    if (want(l, input, false) < 0) return -1;
    if (lower_has(l, input) && lower_known_int(l, input, "position", &value) < 0) return -1;
    if (value < -n || value >= n)
        return lower_error(l, 382, EXIT_MALFORMED, "position %lld in a sequence of %d", (long long)value, n);
    *at = (int)(value < 0 ? value + n : value);
    return 0;
}

int lower_sequence_at(struct lower *l) {
    int n, at = 0;
    const int *items = copy_items(l, &n);
    if (!items || position(l, 1, n, 0, &at) < 0) return -1;
    return lower_result(l, items[at]);
}

int lower_sequence_insert(struct lower *l) {
    int n, at;
    int *items = copy_items(l, &n);
    if (!items || want(l, 1, false) < 0) return -1;
    int64_t value = n;
    if (lower_has(l, 2) && (want(l, 2, false) < 0 || lower_known_int(l, 2, "position", &value) < 0)) return -1;
    if (value < -n || value > n)
        return lower_error(l, 382, EXIT_MALFORMED, "position %lld in a sequence of %d", (long long)value, n);
    at = (int)(value < 0 ? value + n : value);
    memmove(items + at + 1, items + at, (size_t)(n - at) * sizeof *items);
    items[at] = l->inputs[1];
    return lower_result(l, lower_sequence(l, n + 1, items));
}

int lower_sequence_erase(struct lower *l) {
    int n, at = 0;
    int *items = copy_items(l, &n);
    if (!items || position(l, 1, n, -1, &at) < 0) return -1;
    memmove(items + at, items + at + 1, (size_t)(n - at - 1) * sizeof *items);
    return lower_result(l, lower_sequence(l, n - 1, items));
}

int lower_sequence_length(struct lower *l) {
    int n;
    if (!copy_items(l, &n)) return -1;
    int64_t length = n;
    return lower_result(l, emit_ints(l, 1, &length, 0, NULL));
}

/* ONNX ConcatFromSequence-11 */
int lower_concat_from_sequence(struct lower *l) {
    int n, axis;
    bool stack = lower_int(l, "new_axis");
    int *items = copy_items(l, &n);
    if (!items) return -1;
    if (!n) return lower_error(l, 384, EXIT_MALFORMED, "the sequence is empty");
    if (lower_axis(l, lower_int(l, "axis"), lower_ndim(l, items[0]) + stack, &axis) < 0) return -1;
    for (int i = 0; i < n && stack; i++) items[i] = emit_unsqueeze(l, items[i], axis);
    return lower_result(l, emit_concat(l, axis, n, items));
}

/* Sizes of the pieces: as listed, or all one scalar with a smaller rest, or ones. Their number, -1 after a
 * diagnostic. */
static int piece_sizes(struct lower *l, int64_t extent, int64_t **sizes) {
    const int64_t one = 1, *given = &one;
    int n = 1;
    int64_t total = 0;
    bool each = !lower_has(l, 1) || lower_ndim(l, l->inputs[1]) == 0;
    if (lower_has(l, 1) && !(given = lower_known(l, 1, "split", &n))) return -1;
    int64_t count = !each ? n : given[0] > 0 ? extent / given[0] + (extent % given[0] != 0) : -1;
    if (count < 0 || count > ONNX_NODES)
        return lower_error(l, 381, EXIT_MALFORMED, "a split into %lld pieces", (long long)count);
    *sizes = ARENA_ARRAY(l->b.graph->arena, int64_t, count + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t size = each ? given[0] : given[i], rest = extent - total;
        if (each && size > rest) size = rest;
        if (size < 0 || size > rest)
            return lower_error(l, 381, EXIT_MALFORMED, "the sizes do not sum up to %lld", (long long)extent);
        total += (*sizes)[i] = size;
    }
    if (total == extent) return (int)count;
    return lower_error(l, 381, EXIT_MALFORMED, "the sizes sum up to %lld, the dimension has %lld", (long long)total,
                       (long long)extent);
}

/* ONNX SplitToSequence-11 */
int lower_split_to_sequence(struct lower *l) {
    int axis;
    int64_t *sizes = NULL, start = 0;
    if (want(l, 0, false) < 0 || want(l, 1, false) < 0) return -1;
    struct tensor x = lower_input(l, 0);
    if (lower_axis(l, lower_int(l, "axis"), x.ndim, &axis) < 0) return -1;
    int n = piece_sizes(l, x.dims[axis], &sizes);
    if (n < 0) return -1;
    int *items = ARENA_ARRAY(l->b.graph->arena, int, n + 1);
    for (int i = 0; i < n; start += sizes[i++]) {
        items[i] = emit_piece(l, l->inputs[0], axis, sizes[i] ? start : 0, 1, sizes[i]);
        if (!lower_has(l, 1) && !lower_int(l, "keepdims")) items[i] = emit_squeeze(l, items[i], axis);
        if (items[i] < 0) return -1;
    }
    return lower_result(l, lower_sequence(l, n, items));
}
