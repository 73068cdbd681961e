/* Control flow: subgraphs are inlined in place of the node.
 *
 * If takes the branch of a known condition; with a condition that is computed at run time, it computes both branches
 * and selects each result. If the two sizes of a result differ along one dimension it is counted (struct counted). A
 * branch that does not fit the shapes of its operands is left out, and a step that chooses it ends with an error. Loop,
 * Scan and SequenceMap are unrolled. A Loop whose condition is computed at run time runs to its trip count, and an
 * iteration after the condition became false leaves the carried values as they are; its scan outputs are counted. */
#include "frontend/lower/lower_counted.h"

#include <limits.h>
#include <string.h>

enum { MAX_TRIPS = 1 << 12 };

/* The value of a condition or trip count if it is known: 1, else 0. */
static bool known_int(struct lower *lower, int id, int64_t *value) {
    int n;
    const int64_t *known = lower_is_sequence(id) ? NULL : build_known_ints(lower->builder.graph, id, &n);
    if (!known || n != 1) return false;
    *value = known[0];
    return true;
}

/* A condition as a tensor without dimensions; E384 unless it is one bool. */
static int scalar_condition(struct lower *lower, int id) {
    struct tensor tensor = lower_is_sequence(id) ? (struct tensor){.dtype = RT_DTYPE_NONE} : lower_tensor(lower, id);
    if (tensor.dtype != RT_BOOL || tensor_elements(&tensor) != 1)
        return lower_error(lower, 384, "the condition is not one bool");
    return emit_reshape(lower, id, 0, NULL);
}

/* E405: what depends on a condition, a tensor, that is computed at run time. */
static int refuse_condition(struct lower *lower, int condition, const char *what) {
    lower_error(lower, 405, "control flow is not supported: depending on a condition that is computed at run time, %s",
                what);
    return lower_help_bind(lower, condition);
}

static int types_differ(struct lower *lower, int condition, const struct tensor *a, const struct tensor *b) {
    struct arena *arena = lower->arena;
    return refuse_condition(lower, condition,
                            arena_printf(arena, "a value is %s or %s", tensor_type(arena, a), tensor_type(arena, b)));
}

static int select_one(struct lower *lower, int condition, int yes, int no) {
    const struct tensor a = lower_tensor(lower, yes), b = lower_tensor(lower, no);
    return lower_can_choose(lower, yes, no) ? lower_choice(lower, condition, yes, no)
                                            : types_differ(lower, condition, &a, &b);
}

/* The value `yes` where the condition, a tensor, is true, else `no`. Of two sequences, item by item. */
static int select_value(struct lower *lower, int condition, int yes, int no) {
    int n = 0, m = 0;
    if (yes == no || (!lower_is_sequence(yes) && !lower_is_sequence(no))) return select_one(lower, condition, yes, no);
    const int *a = NULL, *b = NULL;
    bool both = lower_is_sequence(yes) && lower_is_sequence(no);
    if (both) a = lower_items(lower, yes, &n), b = lower_items(lower, no, &m);
    if (!both || n != m || lower_is_nothing(lower, yes) || lower_is_nothing(lower, no))
        return refuse_condition(lower, condition, "the length of a sequence differs");
    int *items = ARENA_ARRAY(lower->arena, int, n + 1);
    for (int i = 0; i < n; i++)
        if ((items[i] = select_one(lower, condition, a[i], b[i])) < 0) return -1;
    return lower_sequence(lower, n, items);
}

/* E405 if nodes since then, when the graph had so many updates, store values for the next step. */
static int refuse_updates(struct lower *lower, int updates) {
    if (lower->builder.graph->updates.n == updates) return 0;
    return lower_error(lower, 405,
                       "control flow is not supported: running statistics are updated under a condition that is "
                       "computed at run time");
}

/* An If whose condition is computed at run time. */
struct choice {
    const char *name;
    int condition, updates;
    const int *yes;         /* results of then_branch; NULL: it does not fit */
    struct failure failure; /* if it does not */
};

static int check_results(struct lower *lower, int n) {
    if (n >= lower->noutputs) return 0;
    return lower_error(lower, 331, "the branch has %d result(s), but %d are needed", n, lower->noutputs);
}

static int branch_done(struct lower *lower, void *state, int n, const int *values) {
    (void)state;
    if (check_results(lower, n) < 0) return -1;
    for (int i = 0; i < lower->noutputs; i++) lower->outputs[i] = values[i];
    return 0;
}

static int enter_branch(struct lower *lower, const char *branch, struct subgraph subgraph) {
    subgraph.graph = lower_attribute(lower, branch)->g;
    return lower_enter(lower, &subgraph);
}

/* Reports the errors of a branch, and whose it is. */
static void report_branch(struct lower *lower, const struct choice *choice, const char *branch,
                          const struct failure *failure) {
    struct diags *diags = lower->builder.diags;
    for (int i = 0; i < failure->diags.all.n; i++) {
        diags_add(diags, &failure->diags.all.at[i]);
        if (failure->diags.all.at[i].severity != RT_SEVERITY_ERROR) continue;
        diag_note(diags, "it is in %s of If %s, whose condition %s is computed at run time", branch,
                  diag_quote(diags, choice->name), diag_quote(diags, lower_input(lower, 0).name));
        lower_help_bind(lower, lower->inputs[0]);
    }
}

/* The value, of any shape, if `refused`, a bool without dimensions, is false; else the step ends with an error: the
 * index of a Gather along a dimension of extent 1 is 0 or, out of range, 1. */
static int unless(struct lower *lower, int refused, int value) {
    const struct counted *counted = lower_counted(lower, value), kept = counted ? *counted : (struct counted){0};
    const int row = emit_unsqueeze(lower, value, 0);
    if (row >= 0 && counted) lower_set_counted(lower, row, NULL);
    const int result = emit_gather(lower, row, emit_cast(lower, refused, RT_I64), 0);
    if (result >= 0 && counted) lower_set_counted(lower, result, &kept);
    return result;
}

static int unless_any(struct lower *lower, int refused, int value) {
    int n = 0;
    if (!lower_is_sequence(value)) return unless(lower, refused, value);
    if (lower_is_nothing(lower, value)) return value;
    const int *found = lower_items(lower, value, &n);
    int *items = ARENA_ARRAY(lower->arena, int, n + 1);
    for (int i = 0; i < n; i++)
        if ((items[i] = unless(lower, refused, found[i])) < 0) return -1;
    return lower_sequence(lower, n, items);
}

/* Takes the results `values` of one branch, since the other one, `misfit`, does not fit its operands. A step whose
 * condition chooses `misfit` ends with an error. */
static int take_other(struct lower *lower, const struct choice *choice, const char *misfit,
                      const struct failure *failure, const int *values) {
    struct diags *diags = lower->builder.diags;
    const bool chosen = strcmp(misfit, "then_branch") == 0; /* the value of the condition that chooses it */
    const char *condition = diag_quote(diags, lower_input(lower, 0).name);
    const struct diagnostic *first = failure->diags.all.at;
    while (first->severity != RT_SEVERITY_ERROR) first++;
    diag_warning(diags, first->code, lower_where(lower),
                 "%s does not fit its operands and is left out: a step in which condition %s is %s ends with an error",
                 misfit, condition, chosen ? "true" : "false");
    diag_note(diags, "%s: %s", first->where, first->text);
    lower_help_bind(lower, lower->inputs[0]);
    lower->builder.node = arena_printf(lower->arena, "%s: %s does not fit its operands", choice->name, misfit);
    const int refused = chosen ? choice->condition : emit1(lower, OP_Not, choice->condition);
    for (int i = 0; i < lower->noutputs; i++)
        if ((lower->outputs[i] = unless_any(lower, refused, values[i])) < 0) return -1;
    return 0;
}

static int else_done(struct lower *lower, void *state, int n, const int *values) {
    const struct choice *choice = state;
    lower->builder.node = choice->name;
    if (check_results(lower, n) < 0 || refuse_updates(lower, choice->updates) < 0) return -1;
    if (!choice->yes) return take_other(lower, choice, "then_branch", &choice->failure, values);
    for (int i = 0; i < lower->noutputs; i++) {
        lower->outputs[i] = select_value(lower, choice->condition, choice->yes[i], values[i]);
        if (lower->outputs[i] < 0) return -1;
    }
    return 0;
}

static int else_failed(struct lower *lower, void *state, const struct failure *failure) {
    const struct choice *choice = state;
    lower->builder.node = choice->name;
    lower->builder.graph->updates.n = choice->updates;
    if (choice->yes && failure->misfit) return take_other(lower, choice, "else_branch", failure, choice->yes);
    if (!choice->yes) report_branch(lower, choice, "then_branch", &choice->failure);
    report_branch(lower, choice, "else_branch", failure);
    return -1;
}

static int enter_else(struct lower *lower, struct choice *choice) {
    const struct taken taken = {choice->condition, false, NULL};
    lower->builder.node = arena_printf(lower->arena, "%s.else", choice->name);
    return enter_branch(lower, "else_branch",
                        (struct subgraph){.taken = &taken, .done = else_done, .failed = else_failed, .state = choice});
}

static int then_done(struct lower *lower, void *state, int n, const int *values) {
    struct choice *choice = state;
    if (check_results(lower, n) < 0 || refuse_updates(lower, choice->updates) < 0) return -1;
    choice->yes = arena_copy(lower->arena, values, (size_t)(n + 1) * sizeof *values);
    return enter_else(lower, choice);
}

static int then_failed(struct lower *lower, void *state, const struct failure *failure) {
    struct choice *choice = state;
    lower->builder.graph->updates.n = choice->updates;
    choice->failure = *failure;
    if (failure->misfit) return enter_else(lower, choice);
    report_branch(lower, choice, "then_branch", failure);
    return -1;
}

int lower_if(struct lower *lower) {
    int64_t known;
    if (lower_want(lower, 0, false) < 0) return -1;
    if (known_int(lower, lower->inputs[0], &known))
        return enter_branch(lower, known ? "then_branch" : "else_branch", (struct subgraph){.done = branch_done});
    struct arena *arena = lower->arena;
    struct choice *choice = ARENA_NEW(arena, struct choice);
    choice->name = lower->builder.node;
    choice->updates = lower->builder.graph->updates.n;
    if ((choice->condition = scalar_condition(lower, lower->inputs[0])) < 0) return -1;
    const struct taken taken = {choice->condition, true, NULL};
    lower->builder.node = arena_printf(arena, "%s.then", choice->name);
    return enter_branch(lower, "then_branch",
                        (struct subgraph){.taken = &taken, .done = then_done, .failed = then_failed, .state = choice});
}

/* Joins results of iterations along a new dimension `axis`, of the first iteration first or last. */
static int stack(struct lower *lower, int n, const int *values, int axis, bool reversed) {
    int *items = ARENA_ARRAY(lower->arena, int, n + 1);
    for (int t = 0; t < n; t++) {
        int value = values[reversed ? n - 1 - t : t];
        if (lower_is_sequence(value)) return lower_error(lower, 341, "a scan output is a sequence");
        items[t] = emit_unsqueeze(lower, value, axis);
    }
    return emit_concat(lower, axis, n, items);
}

/* The type and shape that a body declares for a result, as a tensor of no graph; false: it does not declare them. */
static bool declared_result(struct lower *lower, const Onnx__ValueInfoProto *info, struct tensor *tensor) {
    const bool is_tensor = info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    const Onnx__TypeProto__Tensor *type = is_tensor ? info->type->tensor_type : NULL;
    if (!type || !type->shape || type->shape->n_dim > RT_MAX_NDIM) return false;
    *tensor = (struct tensor){.dtype = rt_dtype_by_onnx(type->elem_type), .ndim = (int)type->shape->n_dim};
    EACH_VALUE(type->shape->dim, tensor->ndim, d, const Onnx__TensorShapeProto__Dimension *dim) {
        if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) return false;
        tensor->dims[d] = dim->dim_value;
    }
    tensor->dtype = lower_float_type(lower, tensor->dtype);
    return tensor->dtype != RT_DTYPE_NONE;
}

/* Note [No iterations]
 * A scan output of no iterations has no elements, but a type and a shape: those that an iteration would give. The body
 * is lowered once to find them, and nothing reads its nodes. Where that fails, as at an index into what is empty,
 * what the body declares is taken. */
struct nothing {
    const Onnx__GraphProto *body;
    const int *values;             /* the body's results; NULL: it failed */
    const struct failure *failure; /* why */
};

/* A scan output of no iterations, result number `result` of the body, stacked along dimension `at`. */
static int empty_stack(struct lower *lower, const struct nothing *nothing, int result, int64_t at) {
    struct tensor tensor;
    int axis;
    if (nothing->values && lower_is_sequence(nothing->values[result]))
        return lower_error(lower, 341, "a scan output is a sequence");
    if (nothing->values) {
        tensor = lower_tensor(lower, nothing->values[result]);
    } else if (!declared_result(lower, nothing->body->output[result], &tensor)) {
        diags_append(lower->builder.diags, &nothing->failure->diags);
        return diag_note(lower->builder.diags, "%s has no iterations, and its body no declared shape of result %d",
                         lower_quote(lower, lower->builder.node), result);
    }
    if (tensor.ndim == RT_MAX_NDIM)
        return lower_error(lower, 506, "a scan output of more than %d dimensions", RT_MAX_NDIM);
    if (lower_axis(lower, at, tensor.ndim + 1, &axis) < 0) return -1;
    memmove(tensor.dims + axis + 1, tensor.dims + axis, (size_t)(tensor.ndim - axis) * sizeof *tensor.dims);
    tensor.dims[axis] = 0;
    return graph_add_const(lower->builder.graph, lower->builder.node, tensor.dtype, tensor.ndim + 1, tensor.dims,
                           arena_alloc(lower->arena, 1, 1));
}

static int too_many_trips(struct lower *lower) {
    lower_error(lower, 405, "a loop of more than %d iterations is not supported", MAX_TRIPS);
    return diag_help(lower->builder.diags, "export the model without the loop, or with fewer iterations");
}

struct loop {
    const char *name;
    const Onnx__GraphProto *body;
    int64_t trip, trips; /* iterations so far; limit */
    int ncarried, nscans;
    int active;  /* bool: this iteration takes place; -1: it does in any case */
    int limit;   /* i64: the trip count, where it is known at run time; else -1 */
    int count;   /* i64: how many have taken place; only if `active` is there */
    int updates; /* of the graph before the loop */
    int *carried;
    int **scans; /* [output][trip] */
};

/* Enters the body for the next iteration. */
static int enter_iteration(struct lower *lower, struct loop *loop, struct subgraph subgraph) {
    int *inputs = ARENA_ARRAY(lower->arena, int, loop->ncarried + 2);
    inputs[0] = emit_ints(lower, 1, &loop->trip, 0, NULL);
    inputs[1] = build_scalar(&lower->builder, RT_BOOL, 1);
    for (int i = 0; i < loop->ncarried; i++) inputs[2 + i] = loop->carried[i];
    lower->builder.node = arena_printf(lower->arena, "%s.%lld", loop->name, (long long)loop->trip);
    const struct taken taken = {loop->active, true, NULL};
    subgraph.graph = loop->body;
    if (loop->active >= 0) subgraph.taken = &taken;
    subgraph.ninputs = loop->ncarried + 2;
    subgraph.inputs = inputs;
    subgraph.state = loop;
    return lower_enter(lower, &subgraph);
}

/* The scan outputs of a loop without iterations. */
static int loop_nothing(struct lower *lower, const struct loop *loop, const struct nothing *nothing) {
    const int first = 1 + loop->ncarried;
    lower->builder.node = loop->name;
    lower->builder.graph->updates.n = loop->updates;
    for (int k = 0; k < loop->nscans && loop->ncarried + k < lower->noutputs; k++) {
        if (!lower_wants(lower, loop->ncarried + k)) continue;
        const int empty = empty_stack(lower, nothing, first + k, 0);
        if ((lower->outputs[loop->ncarried + k] = empty) < 0) return -1;
    }
    return 0;
}

static int loop_nothing_done(struct lower *lower, void *state, int n, const int *values) {
    const struct loop *loop = state;
    (void)n;
    return loop_nothing(lower, loop, &(struct nothing){.body = loop->body, .values = values});
}

static int loop_nothing_failed(struct lower *lower, void *state, const struct failure *failure) {
    const struct loop *loop = state;
    return loop_nothing(lower, loop, &(struct nothing){.body = loop->body, .failure = failure});
}

static bool wants_scans(const struct lower *lower, const struct loop *loop) {
    for (int i = loop->ncarried; i < lower->noutputs; i++)
        if (lower_wants(lower, i)) return true;
    return false;
}

static int loop_finish(struct lower *lower, struct loop *loop) {
    lower->builder.node = loop->name;
    for (int i = 0; i < lower->noutputs && i < loop->ncarried; i++) lower->outputs[i] = loop->carried[i];
    if (loop->active >= 0 && refuse_updates(lower, loop->updates) < 0) return -1;
    if (!loop->trip && wants_scans(lower, loop))
        return enter_iteration(lower, loop,
                               (struct subgraph){.done = loop_nothing_done, .failed = loop_nothing_failed});
    for (int k = 0; k < loop->nscans && loop->ncarried + k < lower->noutputs; k++) {
        if (!lower_wants(lower, loop->ncarried + k)) continue;
        int stacked = stack(lower, (int)loop->trip, loop->scans[k], 0, false);
        if (stacked < 0) return -1;
        if (loop->active >= 0) {
            const struct amount count = lower_amount(lower, loop->count);
            stacked = lower_sized(lower, stacked, 0, &count);
        }
        lower->outputs[loop->ncarried + k] = stacked;
    }
    return 0;
}

static int loop_step(struct lower *lower, struct loop *loop, bool condition);

/* The condition computed by an iteration, at run time: later iterations take place while it is true. */
static int loop_while(struct lower *lower, struct loop *loop, int id) {
    int condition = scalar_condition(lower, id);
    if (loop->trips > MAX_TRIPS) {
        lower_error(lower, 405,
                    "control flow is not supported: the loop's condition is computed at run time, and no trip count of "
                    "at most %d bounds it",
                    MAX_TRIPS);
        diag_help(lower->builder.diags, "export the loop with its largest number of iterations as trip count");
        return lower_help_bind(lower, id);
    }
    if (loop->active < 0 && loop->nscans) loop->count = emit_ints(lower, 1, &loop->trip, 0, NULL);
    loop->active = loop->active < 0 ? condition : emit2(lower, OP_And, loop->active, condition);
    return loop->active < 0 ? -1 : 0;
}

/* A trip count that is known at run time is a condition: iterations take place while it is not reached. */
static int loop_until(struct lower *lower, struct loop *loop) {
    if (loop->limit < 0) return 0;
    return loop_while(lower, loop, emit2(lower, OP_Less, emit_ints(lower, 1, &loop->trip, 0, NULL), loop->limit));
}

/* struct subgraph.done of a loop body, whose outputs are the condition, the carried values and the scan outputs. */
static int loop_done(struct lower *lower, void *state, int n, const int *values) {
    struct loop *loop = state;
    int64_t condition = 1;
    lower->builder.node = loop->name;
    if (n != 1 + loop->ncarried + loop->nscans) return lower_error(lower, 331, "the body has %d result(s)", n);
    for (int i = 0; i < loop->ncarried; i++) {
        int carried = values[1 + i];
        if (loop->active >= 0) carried = select_value(lower, loop->active, carried, loop->carried[i]);
        if (carried < 0) return -1;
        loop->carried[i] = carried;
    }
    for (int k = 0; k < loop->nscans; k++) loop->scans[k][loop->trip] = values[1 + loop->ncarried + k];
    if (loop->active >= 0 && loop->nscans)
        loop->count = emit2(lower, OP_Add, loop->count, emit_cast(lower, loop->active, RT_I64));
    loop->trip++;
    if (!known_int(lower, values[0], &condition) && loop->trip < loop->trips && loop_while(lower, loop, values[0]) < 0)
        return -1;
    if (loop->trip < loop->trips && loop_until(lower, loop) < 0) return -1;
    return loop_step(lower, loop, condition != 0);
}

static int loop_step(struct lower *lower, struct loop *loop, bool condition) {
    if (!condition || loop->trip >= loop->trips) return loop_finish(lower, loop);
    if (loop->trip == MAX_TRIPS) return too_many_trips(lower);
    return enter_iteration(lower, loop, (struct subgraph){.done = loop_done});
}

static int refuse_trips(struct lower *lower) {
    lower_error(lower, 405,
                "control flow is not supported unless its trip count is a constant, or a size that depends on data and "
                "has a bound of at most %d",
                MAX_TRIPS);
    if (!lower_is_sequence(lower->inputs[0])) lower_help_bind(lower, lower->inputs[0]);
    return -1;
}

/* Reads the trip count, which must be known, and the first condition; *condition is 1 if it is computed at run time. */
static int loop_bounds(struct lower *lower, struct loop *loop, int64_t *condition) {
    if (lower_has(lower, 0) && !known_int(lower, lower->inputs[0], &loop->trips)) {
        const struct amount *trips = lower_is_sequence(lower->inputs[0]) || lower_ndim(lower, lower->inputs[0])
                                         ? NULL
                                         : amounts_of(lower->shared, lower->inputs[0]);
        if (!trips || trips->most > MAX_TRIPS) return refuse_trips(lower);
        loop->trips = trips->most > 0 ? trips->most : 0;
        loop->limit = emit_amount(lower, trips);
    }
    struct open_sizes *open = lower->builder.graph->open;
    if (open_is(open, loop->trips)) {
        if (wants_scans(lower, loop))
            return lower_varies(lower, loop->trips, "the number of iterations, each of which has a result,");
        loop->limit = emit_ints(lower, 1, &loop->trips, 0, NULL);
        loop->trips = open_most(open, loop->trips);
        if (loop->trips > MAX_TRIPS) return too_many_trips(lower);
    }
    const bool computed = lower_has(lower, 1) && !known_int(lower, lower->inputs[1], condition);
    if (computed && loop_while(lower, loop, lower->inputs[1]) < 0) return -1;
    return loop->trips ? loop_until(lower, loop) : 0;
}

int lower_loop(struct lower *lower) {
    struct arena *arena = lower->arena;
    struct loop *loop = ARENA_NEW(arena, struct loop);
    int64_t condition = 1;
    if (lower->ninputs < 2)
        return lower_error(lower, 331, "Loop takes at least 2 inputs, but %d given", lower->ninputs);
    *loop = (struct loop){.name = lower->builder.node,
                          .trips = INT64_MAX,
                          .ncarried = lower->ninputs - 2,
                          .active = -1,
                          .limit = -1,
                          .updates = lower->builder.graph->updates.n};
    loop->body = lower_attribute(lower, "body")->g;
    loop->nscans = (int)loop->body->n_output - 1 - loop->ncarried;
    if (loop->nscans < 0)
        return lower_error(lower, 331, "the body has %zu result(s) for %d carried value(s)", loop->body->n_output,
                           loop->ncarried);
    if (loop_bounds(lower, loop, &condition) < 0) return -1;
    loop->carried = arena_copy(arena, lower->inputs + 2, (size_t)loop->ncarried * sizeof(int));
    loop->scans = ARENA_ARRAY(arena, int *, loop->nscans + 1);
    for (int k = 0; k < loop->nscans; k++) loop->scans[k] = ARENA_ARRAY(arena, int, MAX_TRIPS);
    return loop_step(lower, loop, condition != 0);
}

/* A Scan, or in opset 8 one for each element of the batch, dimension 0 of all operands. Iteration t reads index t of
 * dimension `axis` of each scanned operand, or the t-th from the end. */
struct scan {
    const char *name;
    const Onnx__GraphProto *body;
    bool batched;
    int64_t element, elements; /* of the batch; 1 without */
    int64_t trip, trips;
    int nstates, nscanned, nscans, first;                           /* first: the operand that is the first state */
    int *states;                                                    /* of this element */
    int **results, **scans;                                         /* [output][element], [output][trip] */
    const int64_t *in_axis, *in_reversed, *out_axis, *out_reversed; /* one per scanned operand or output */
};

static int scan_step(struct lower *lower, struct scan *scan);

/* Results of one element of the batch: its states and its stacked scan outputs. */
static int scan_element(struct lower *lower, struct scan *scan) {
    for (int i = 0; i < scan->nstates; i++) scan->results[i][scan->element] = scan->states[i];
    for (int k = 0; k < scan->nscans; k++) {
        int axis = 0, joined = -1, ndim = lower_ndim(lower, scan->scans[k][0]) + 1;
        if (lower_axis(lower, scan->out_axis[k], ndim, &axis) < 0) return -1;
        joined = stack(lower, (int)scan->trips, scan->scans[k], axis, scan->out_reversed[k] != 0);
        if (joined < 0) return -1;
        scan->results[scan->nstates + k][scan->element] = joined;
    }
    scan->element++;
    scan->trip = 0;
    return 0;
}

/* The operand of this element of the batch. */
static int of_element(struct lower *lower, const struct scan *scan, int input) {
    int id = lower->inputs[input];
    return scan->batched ? emit_squeeze(lower, emit_piece(lower, id, 0, scan->element, 1, 1), 0) : id;
}

/* What this iteration reads of an operand of the element; of one without steps, zeros of that shape. */
static int of_iteration(struct lower *lower, const struct scan *scan, int whole, int k) {
    struct tensor tensor = lower_tensor(lower, whole);
    int axis;
    if (lower_axis(lower, scan->in_axis[k], tensor.ndim, &axis) < 0) return -1;
    const int64_t at = scan->in_reversed[k] ? scan->trips - 1 - scan->trip : scan->trip;
    tensor.dims[axis] = 1;
    const int piece = scan->trips ? emit_piece(lower, whole, axis, at, 1, 1)
                                  : emit_expand(lower, emit_like(lower, whole, 0), tensor.ndim, tensor.dims);
    return emit_squeeze(lower, piece, axis);
}

static int scan_finish(struct lower *lower, const struct scan *scan) {
    lower->builder.node = scan->name;
    for (int i = 0; i < lower->noutputs && i < scan->nstates + scan->nscans; i++) {
        const int *values = scan->results[i];
        lower->outputs[i] = scan->batched ? stack(lower, (int)scan->elements, values, 0, false) : values[0];
        if (lower->outputs[i] < 0) return -1;
    }
    return 0;
}

/* The results of a scan of no steps. */
static int scan_nothing(struct lower *lower, struct scan *scan, const struct nothing *nothing) {
    lower->builder.node = scan->name;
    for (scan->element = 0; scan->element < scan->elements; scan->element++) {
        for (int i = 0; i < scan->nstates; i++)
            scan->results[i][scan->element] = of_element(lower, scan, scan->first + i);
        for (int k = 0, i = scan->nstates; k < scan->nscans; k++, i++) {
            const int empty = empty_stack(lower, nothing, i, scan->out_axis[k]);
            if ((scan->results[i][scan->element] = empty) < 0) return -1;
        }
    }
    return scan_finish(lower, scan);
}

static int scan_nothing_failed(struct lower *lower, void *state, const struct failure *failure) {
    struct scan *scan = state;
    return scan_nothing(lower, scan, &(struct nothing){.body = scan->body, .failure = failure});
}

static int scan_done(struct lower *lower, void *state, int n, const int *values) {
    struct scan *scan = state;
    lower->builder.node = scan->name;
    if (!scan->trips) return scan_nothing(lower, scan, &(struct nothing){.body = scan->body, .values = values});
    if (n != scan->nstates + scan->nscans) return lower_error(lower, 331, "the body has %d result(s)", n);
    for (int i = 0; i < n; i++)
        if (lower_is_sequence(values[i])) return lower_error(lower, 341, "a result is a sequence");
    for (int i = 0; i < scan->nstates; i++) scan->states[i] = values[i];
    for (int k = 0; k < scan->nscans; k++) scan->scans[k][scan->trip] = values[scan->nstates + k];
    if (++scan->trip == scan->trips && scan_element(lower, scan) < 0) return -1;
    return scan->element == scan->elements ? scan_finish(lower, scan) : scan_step(lower, scan);
}

static int scan_step(struct lower *lower, struct scan *scan) {
    struct arena *arena = lower->arena;
    int *inputs = ARENA_ARRAY(arena, int, scan->nstates + scan->nscanned + 1);
    for (int i = 0; i < scan->nstates; i++) {
        if (!scan->trip) scan->states[i] = of_element(lower, scan, scan->first + i);
        inputs[i] = scan->states[i];
    }
    for (int k = 0; k < scan->nscanned; k++) {
        const int whole = of_element(lower, scan, scan->first + scan->nstates + k);
        inputs[scan->nstates + k] = whole < 0 ? -1 : of_iteration(lower, scan, whole, k);
    }
    for (int i = 0; i < scan->nstates + scan->nscanned; i++)
        if (inputs[i] < 0) return -1;
    int64_t number = scan->element * scan->trips + scan->trip;
    lower->builder.node = arena_printf(arena, "%s.%lld", scan->name, (long long)number);
    return lower_enter(lower, &(struct subgraph){.graph = scan->body,
                                                 .ninputs = scan->nstates + scan->nscanned,
                                                 .inputs = inputs,
                                                 .done = scan_done,
                                                 .failed = scan->trips ? NULL : scan_nothing_failed,
                                                 .state = scan});
}

/* A list attribute with a value per scanned operand or output; zeros if it is not given. */
static const int64_t *scan_list(struct lower *lower, const char *name, int count) {
    int n;
    const int64_t *list = lower_ints(lower, name, &n);
    if (!list) return ARENA_ARRAY(lower->arena, int64_t, count + 1);
    if (n == count) return list;
    lower_error(lower, 384, "%s has %d value(s), not %d", name, n, count);
    return NULL;
}

static int read_lists(struct lower *lower, struct scan *scan) {
    bool old = lower->op->since < 9;
    int in = scan->nscanned, out = scan->nscans;
    const int64_t *none = ARENA_ARRAY(lower->arena, int64_t, (in > out ? in : out) + 1);
    scan->in_axis = old ? none : scan_list(lower, "scan_input_axes", in);
    scan->in_reversed = scan_list(lower, old ? "directions" : "scan_input_directions", in);
    scan->out_axis = old ? none : scan_list(lower, "scan_output_axes", out);
    scan->out_reversed = old ? none : scan_list(lower, "scan_output_directions", out);
    return scan->in_axis && scan->in_reversed && scan->out_axis && scan->out_reversed ? 0 : -1;
}

/* The number of iterations: the common extent of the scanned dimensions; and of elements of the batch. */
static int read_extents(struct lower *lower, struct scan *scan) {
    for (int k = 0; k < scan->nscanned; k++) {
        struct tensor x = lower_input(lower, scan->first + scan->nstates + k);
        int axis, ndim = x.ndim - scan->batched;
        if (lower_axis(lower, scan->in_axis[k], ndim, &axis) < 0) return -1;
        int64_t trips = x.dims[axis + scan->batched], elements = scan->batched ? x.dims[0] : 1;
        if (k && (trips != scan->trips || elements != scan->elements))
            return lower_misfit(lower, lower->inputs[scan->first + scan->nstates],
                                lower->inputs[scan->first + scan->nstates + k]);
        scan->trips = trips;
        scan->elements = elements;
    }
    struct open_sizes *open = lower->builder.graph->open;
    if (open_is(open, scan->trips)) return lower_varies(lower, scan->trips, "the number of iterations");
    if (open_is(open, scan->elements)) return lower_varies(lower, scan->elements, "the number of sequences");
    if (scan->trips > MAX_TRIPS || scan->elements > MAX_TRIPS) return too_many_trips(lower);
    if (!scan->elements) return lower_unsupported(lower, "a batch of no elements");
    for (int i = 0; i < scan->nstates && scan->batched; i++) {
        struct tensor state = lower_input(lower, scan->first + i);
        if (state.ndim < 1 || state.dims[0] != scan->elements)
            return lower_misfit(lower, lower->inputs[scan->first + i], lower->inputs[lower->ninputs - 1]);
    }
    return 0;
}

int lower_scan(struct lower *lower) {
    struct arena *arena = lower->arena;
    struct scan *scan = ARENA_NEW(arena, struct scan);
    int64_t scanned = lower_int(lower, "num_scan_inputs");
    *scan = (struct scan){.name = lower->builder.node, .batched = lower->op->since < 9};
    scan->body = lower_attribute(lower, "body")->g;
    scan->first = scan->batched;
    if (scan->batched && lower_has(lower, 0)) return lower_unsupported(lower, "sequence_lens");
    int operands = lower->ninputs - scan->first;
    if (scanned < 1 || scanned > operands || (size_t)(operands - scanned) > scan->body->n_output)
        return lower_error(lower, 384, "num_scan_inputs %lld does not fit %d operand(s)", (long long)scanned, operands);
    for (int i = scan->first; i < lower->ninputs; i++) {
        if (!lower_has(lower, i)) return lower_error(lower, 331, "required input %d is omitted", i);
        if (lower_want(lower, i, false) < 0) return -1;
    }
    scan->nscanned = (int)scanned;
    scan->nstates = operands - scan->nscanned;
    scan->nscans = (int)scan->body->n_output - scan->nstates;
    if (read_lists(lower, scan) < 0 || read_extents(lower, scan) < 0) return -1;
    int nresults = scan->nstates + scan->nscans;
    scan->states = ARENA_ARRAY(arena, int, scan->nstates + 1);
    scan->results = ARENA_ARRAY(arena, int *, nresults + 1);
    scan->scans = ARENA_ARRAY(arena, int *, scan->nscans + 1);
    for (int i = 0; i < nresults; i++) scan->results[i] = ARENA_ARRAY(arena, int, scan->elements);
    for (int k = 0; k < scan->nscans; k++) scan->scans[k] = ARENA_ARRAY(arena, int, scan->trips);
    return scan_step(lower, scan);
}

/* The body takes an item of each operand that is a sequence, and other operands as they are. */
struct sequence_map {
    const char *name;
    const Onnx__GraphProto *body;
    int at, n;
    int **items; /* [output][item] */
};

static int map_step(struct lower *lower, struct sequence_map *map);

static int map_done(struct lower *lower, void *state, int n, const int *values) {
    struct sequence_map *map = state;
    lower->builder.node = map->name;
    if (n < lower->noutputs) return check_results(lower, n);
    for (int i = 0; i < lower->noutputs; i++) {
        if (lower_is_sequence(values[i])) return lower_error(lower, 341, "a result is a sequence");
        map->items[i][map->at] = values[i];
    }
    map->at++;
    return map_step(lower, map);
}

static int map_step(struct lower *lower, struct sequence_map *map) {
    if (map->at == map->n) {
        for (int i = 0; i < lower->noutputs; i++) lower->outputs[i] = lower_sequence(lower, map->n, map->items[i]);
        return 0;
    }
    struct arena *arena = lower->arena;
    int n, *inputs = ARENA_ARRAY(arena, int, lower->ninputs + 1);
    EACH_VALUE(lower->inputs, lower->ninputs, i, int id)
        inputs[i] = lower_is_sequence(id) ? lower_items(lower, id, &n)[map->at] : id;
    lower->builder.node = arena_printf(arena, "%s.%d", map->name, map->at);
    return lower_enter(
        lower, &(struct subgraph){
                   .graph = map->body, .ninputs = lower->ninputs, .inputs = inputs, .done = map_done, .state = map});
}

/* ONNX SequenceMap-17 */
int lower_sequence_map(struct lower *lower) {
    struct arena *arena = lower->arena;
    struct sequence_map *map = ARENA_NEW(arena, struct sequence_map);
    *map = (struct sequence_map){.name = lower->builder.node, .body = lower_attribute(lower, "body")->g};
    if (lower_want(lower, 0, true) < 0) return -1;
    lower_items(lower, lower->inputs[0], &map->n);
    for (int i = 0; i < lower->ninputs; i++) {
        int n = map->n;
        if (!lower_has(lower, i)) return lower_error(lower, 331, "required input %d is omitted", i);
        if (lower_is_nothing(lower, lower->inputs[i])) return lower_want(lower, i, true);
        if (lower_is_sequence(lower->inputs[i])) lower_items(lower, lower->inputs[i], &n);
        if (n != map->n) return lower_error(lower, 384, "the sequences have %d and %d tensors", map->n, n);
    }
    map->items = ARENA_ARRAY(arena, int *, lower->noutputs + 1);
    for (int i = 0; i < lower->noutputs; i++) map->items[i] = ARENA_ARRAY(arena, int, map->n + 1);
    return map_step(lower, map);
}
