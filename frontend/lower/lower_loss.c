#include "frontend/lower/lower_loss.h"

#include "frontend/lower/onnx_lower.h"

enum loss_reduction loss_reduction(const char *word) {
    static const char *const words[LOSS_REDUCTIONS] = {"none", "sum", "mean"};
    int i = 0;
    while (i < LOSS_REDUCTIONS && strcmp(words[i], word) != 0) i++;
    return (enum loss_reduction)i;
}

bool loss_target_fits(const struct tensor *prediction, int axis, const struct tensor *target) {
    bool fits = target->ndim == prediction->ndim - 1;
    for (int d = 0; fits && d < target->ndim; d++) fits = target->dims[d] == prediction->dims[d + (d >= axis)];
    return fits;
}

/* Building blocks. Like the emit functions they return -1 if an operand is -1. */

/* Emits an expression over tensors a, b and c and a number n, in the type of c. x, y and z are always tensors: for one
 * that the expression does not read, callers pass another operand again. */
static int of(struct build *builder, const char *text, int x, int y, int z, double number) {
    struct build_scope scope = {.dtype = RT_F32};
    if (x < 0 || y < 0 || z < 0) return -1;
    scope.dtype = builder->graph->tensors.at[z].dtype;
    build_scope_tensor(&scope, "a", x);
    build_scope_tensor(&scope, "b", y);
    build_scope_tensor(&scope, "c", z);
    build_scope_number(&scope, "n", number);
    return build_expr(builder, &scope, text);
}

static int cast_to(struct build *builder, int x, enum rt_dtype dtype) {
    return x < 0 ? -1 : build_cast(builder, x, dtype);
}

static int sum_from(struct build *builder, int x, int first, int end) {
    int64_t axes[RT_MAX_NDIM];
    if (x < 0 || first == end) return x;
    for (int d = first; d < end; d++) axes[d - first] = d;
    struct attr attrs[] = {attr_of_ints("axes", end - first, axes), attr_of_int("keepdims", 0)};
    return build(builder, OP_ReduceSum, 1, &x, 2, attrs);
}

static int sum_all(struct build *builder, int x) {
    return x < 0 ? -1 : sum_from(builder, x, 0, builder->graph->tensors.at[x].ndim);
}

/* Reshapes a list to `ndim` dimensions of extent 1 except `axis`, so that it broadcasts along that dimension. */
static int along(struct build *builder, int values, int axis, int ndim) {
    int64_t shape[RT_MAX_NDIM];
    if (values < 0) return -1;
    for (int d = 0; d < ndim; d++) shape[d] = d == axis ? tensor_elements(&builder->graph->tensors.at[values]) : 1;
    return build_reshape(builder, values, ndim, shape);
}

/* The tensors of a loss over classes; an element is a position of the target. */
struct classes {
    struct build *builder;
    const struct class_loss *loss;
    struct tensor x; /* of the scores */
    int scores;
    bool logits;
    int most;  /* the largest logit of each element, with extent 1 along the classes */
    int terms; /* ClassTerms of logits; -1: not used */
    int norm; /* per element: log(sum(exp(logits - most))), so that log-probabilities are logits - most - norm; or -1 */
    int weights; /* one per class; -1: all are 1 */
    int target;  /* i64 */
    int hidden;  /* per element: true if it is ignored; -1: none is */
};

static int sum_classes(const struct classes *classes, int x) {
    return sum_from(classes->builder, x, classes->loss->axis, classes->loss->axis + 1);
}

/* If the scores are the result of a LogSoftmax along the classes, uses its input, the logits. */
static void find_logits(struct classes *classes) {
    const struct graph *graph = classes->builder->graph;
    const int producer = graph->tensors.at[classes->scores].producer;
    const struct node *node = producer < 0 ? NULL : &graph->nodes.at[producer];
    if (classes->logits || !node || node->op->id != OP_LogSoftmax) return;
    if (attr_int(node, "axis", -1) != classes->loss->axis) return;
    classes->scores = node->inputs[0];
    classes->logits = true;
}

static int start(struct classes *classes, struct build *builder, const struct class_loss *loss) {
    *classes = (struct classes){.builder = builder,
                                .loss = loss,
                                .scores = loss->scores,
                                .logits = loss->logits,
                                .most = -1,
                                .terms = -1,
                                .norm = -1,
                                .weights = -1,
                                .target = -1,
                                .hidden = -1};
    classes->x = builder->graph->tensors.at[loss->scores];
    find_logits(classes);
    if (loss->weights >= 0 && (classes->weights = build1(builder, OP_Detach, loss->weights)) < 0) return -1;
    if (!classes->logits) return 0;
    const int64_t axis = loss->axis;
    struct attr attrs[] = {attr_of_ints("axes", 1, &axis), attr_of_int("keepdims", 1)};
    classes->most = build(builder, OP_ReduceMax, 1, &classes->scores, 2, attrs);
    if (classes->most >= 0) classes->most = build1(builder, OP_Detach, classes->most);
    return classes->most;
}

/* The log-probabilities of all classes. */
static int log_probabilities(const struct classes *classes) {
    struct tensor beside = classes->x;
    if (!classes->logits) return classes->scores;
    const int scores = of(classes->builder, "a - b", classes->scores, classes->most, classes->scores, 0);
    beside.dims[classes->loss->axis] = 1;
    const int norm = classes->norm < 0 ? -1 : build_reshape(classes->builder, classes->norm, beside.ndim, beside.dims);
    return of(classes->builder, "a - b", scores, cast_to(classes->builder, norm, classes->x.dtype), scores, 0);
}

/* Multiplies a term for each class by the weight of the class. */
static int weighted(const struct classes *classes, int terms) {
    if (classes->weights < 0) return terms;
    const int weights = along(classes->builder, classes->weights, classes->loss->axis, classes->x.ndim);
    return of(classes->builder, "a * b", terms, weights, terms, 0);
}

/* Emits the check of the targets (ClassIndex) and finds ignored elements. */
static int read_target(struct classes *classes) {
    const struct class_loss *loss = classes->loss;
    struct attr attrs[] = {attr_of_int("classes", classes->x.dims[loss->axis]), attr_of_int("ignores", loss->ignores),
                           attr_of_int("ignored", loss->ignores ? loss->ignored : 0)};
    classes->target = loss->target;
    if (classes->builder->graph->tensors.at[classes->target].dtype != RT_I32)
        classes->target = build_cast(classes->builder, classes->target, RT_I64);
    if (classes->target >= 0) classes->target = build(classes->builder, OP_ClassIndex, 1, &classes->target, 3, attrs);
    if (classes->target < 0 || !loss->ignores) return classes->target;
    const char *name = arena_printf(classes->builder->graph->arena, "%s.ignored", classes->builder->node);
    return classes->hidden = build2(classes->builder, OP_Equal, classes->target,
                                    graph_add_const(classes->builder->graph, name, RT_I64, 0, NULL, &loss->ignored));
}

/* Sets x to 0 for ignored elements. */
static int masked(const struct classes *classes, int x) {
    return classes->hidden < 0 ? x : of(classes->builder, "a ? 0 : b", classes->hidden, x, x, 0);
}

/* The class numbers 0, 1, .. along the dimension of the classes; other dimensions have extent 1. */
static int class_numbers(const struct classes *classes) {
    struct build *const builder = classes->builder;
    const int axis = classes->loss->axis;
    const int64_t n = classes->x.dims[axis];
    const char *name = arena_printf(builder->graph->arena, "%s.classes", builder->node);
    struct tensor list = {.ndim = classes->x.ndim};
    for (int d = 0; d < list.ndim; d++) list.dims[d] = d == axis ? n : 1;
    if (open_is(builder->graph->open, n)) { /* how many ones are before each */
        const struct attr attrs[] = {attr_of_int("axis", axis), attr_of_int("exclusive", 1), attr_of_int("reverse", 0)};
        const int ones = build_expand(builder, build_scalar(builder, RT_I64, 1), list.ndim, list.dims);
        return ones < 0 ? -1 : build(builder, OP_CumSum, 1, &ones, 3, attrs);
    }
    int64_t *places = ARENA_ARRAY(builder->graph->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) places[i] = i;
    return graph_add_const(builder->graph, name, RT_I64, list.ndim, list.dims, places);
}

/* The log-probability of the target class, selected by a comparison with all class numbers and a sum, whose gradients
 * and splits exist already. */
static int pick_score(const struct classes *classes) {
    struct tensor beside = classes->x;
    beside.dims[classes->loss->axis] = 1;
    const int target = build_reshape(classes->builder, classes->target, beside.ndim, beside.dims);
    const int numbers = target < 0 ? -1 : class_numbers(classes);
    const int hot = numbers < 0 ? -1 : build2(classes->builder, OP_Equal, target, numbers);
    return sum_classes(classes, of(classes->builder, "a ? b : 0", hot, classes->scores, classes->scores, 0));
}

/* Row `k` of ClassTerms (ir/ops.def), with the shape of the elements. */
static int term(const struct classes *classes, int k) {
    if (classes->terms < 0) return -1;
    const struct tensor terms = classes->builder->graph->tensors.at[classes->terms];
    const int row = build_piece(classes->builder, classes->terms, 0, k, 1, 1);
    return row < 0 ? -1 : build_reshape(classes->builder, row, terms.ndim - 1, terms.dims + 1);
}

/* -log(exp(x) / sum(exp(x))) for the target's logit x, with the largest logit subtracted from all. The largest logit is
 * detached, since its gradient cancels out. */
static int of_logits(struct classes *classes) {
    struct attr axis = attr_of_int("axis", classes->loss->axis);
    classes->terms =
        build(classes->builder, OP_ClassTerms, 3, (int[]){classes->scores, classes->most, classes->target}, 1, &axis);
    const int sum = term(classes, 0), own = term(classes, 1);
    classes->norm = of(classes->builder, "log(a)", sum, sum, sum, 0);
    return of(classes->builder, "a - b", classes->norm, own, classes->norm, 0);
}

/* The weight of each element's class. */
static int pick_weight(const struct classes *classes, enum rt_dtype dtype) {
    struct attr axis = attr_of_int("axis", 0);
    int target = classes->target;
    if (classes->hidden >= 0)
        target = build(classes->builder, OP_Where, 3,
                       (int[]){classes->hidden, build_scalar(classes->builder, RT_I64, 0), target}, 0, NULL);
    const int picked =
        target < 0 ? -1 : build(classes->builder, OP_Gather, 2, (int[]){classes->weights, target}, 1, &axis);
    return cast_to(classes->builder, picked, dtype);
}

/* Per element: the sum over classes of weighted log-probabilities. */
static int sum_probabilities(const struct classes *classes) {
    if (classes->logits && classes->weights < 0) {
        const int total = term(classes, 2);
        return of(classes->builder, "a - b * n", total, classes->norm, total,
                  (double)classes->x.dims[classes->loss->axis]);
    }
    const int sum = sum_classes(classes, weighted(classes, log_probabilities(classes)));
    return classes->norm < 0 ? sum
                             : cast_to(classes->builder, sum, classes->builder->graph->tensors.at[classes->norm].dtype);
}

/* Label smoothing s: (1 - s) times the loss of the target plus s times the mean over classes of their weighted
 * losses. */
static int smoothed(const struct classes *classes, int elements) {
    const int uniform = sum_probabilities(classes);
    double share = classes->loss->smoothing / (double)classes->x.dims[classes->loss->axis];
    elements = of(classes->builder, "a * n", elements, elements, elements, 1 - classes->loss->smoothing);
    return of(classes->builder, "a - b * n", elements, uniform, uniform, share);
}

/* 1 / n as a scalar of type `dtype`, where n depends on open sizes. */
static int open_share(struct build *builder, enum rt_dtype dtype, int64_t n) {
    const char *name = arena_printf(builder->graph->arena, "%s.elements", builder->node);
    const int number = build_cast(builder, graph_add_const(builder->graph, name, RT_I64, 0, NULL, &n), RT_F64);
    const int share = number < 0 ? -1 : build2(builder, OP_Div, build_scalar(builder, RT_F64, 1), number);
    return cast_to(builder, share, dtype);
}

static int reduce(struct build *builder, int loss, int weights, enum loss_reduction reduction) {
    if (loss < 0 || reduction == LOSS_NONE) return loss;
    const struct tensor each = builder->graph->tensors.at[loss];
    const int64_t elements = tensor_elements(&each);
    const int sum = sum_all(builder, loss);
    if (reduction == LOSS_SUM) return sum;
    if (weights >= 0) return of(builder, "a / b", sum, sum_all(builder, weights), sum, 0);
    if (open_is(builder->graph->open, elements))
        return of(builder, "a * b", sum, open_share(builder, each.dtype, elements), sum, 0);
    return of(builder, "a * n", sum, sum, sum, 1 / (double)elements);
}

/* The sum of the weights of the elements, exact where all that count have the weight 1. */
static int sum_weights(const struct classes *classes, int weights) {
    struct build *const builder = classes->builder;
    const int one = build_scalar(builder, RT_I64, 1);
    if (classes->weights < 0) weights = of(builder, "a ? 0 : c", classes->hidden, one, one, 0);
    return sum_all(builder, weights);
}

int loss_of_classes(struct build *builder, const struct class_loss *loss) {
    struct classes classes;
    int weights = -1;
    if (start(&classes, builder, loss) < 0 || read_target(&classes) < 0) return -1;
    int elements = classes.logits ? of_logits(&classes) : pick_score(&classes);
    if (!classes.logits) elements = of(builder, "-a", elements, elements, elements, 0);
    if (elements < 0) return -1;
    const enum rt_dtype dtype = builder->graph->tensors.at[elements].dtype;
    if (classes.weights >= 0) {
        weights = pick_weight(&classes, dtype);
        elements = of(builder, "a * b", elements, weights, elements, 0);
    }
    if (loss->smoothing > 0) elements = smoothed(&classes, elements);
    if (loss->ignores) weights = masked(&classes, weights < 0 ? build_scalar(builder, dtype, 1) : weights);
    if (loss->counted && (*loss->counted = sum_weights(&classes, weights)) < 0) return -1;
    const int divisor = loss->counted ? -1 : weights;
    return cast_to(builder, reduce(builder, masked(&classes, elements), divisor, loss->reduction), classes.x.dtype);
}

/* log(sum(exp(logits - most))). Emitted as reductions, which unlike LogSoftmax can be split along the classes. */
static int read_norm(struct classes *classes) {
    const int scores = of(classes->builder, "a - b", classes->scores, classes->most, classes->scores, 0);
    const int sum = sum_classes(classes, of(classes->builder, "exp(a)", scores, scores, scores, 0));
    return classes->norm = of(classes->builder, "log(a)", sum, sum, sum, 0);
}

int loss_of_probabilities(struct build *builder, const struct class_loss *loss) {
    struct classes classes;
    if (start(&classes, builder, loss) < 0 || (classes.logits && read_norm(&classes) < 0)) return -1;
    double smoothing = loss->smoothing, uniform = smoothing / (double)classes.x.dims[loss->axis];
    int target = of(builder, "a * n", loss->target, loss->target, loss->target, 1 - smoothing);
    target = weighted(&classes, of(builder, "a + n", target, target, target, uniform));
    int terms = of(builder, "-a * b", target, log_probabilities(&classes), target, 0);
    return reduce(builder, sum_classes(&classes, terms), -1, loss->reduction);
}

int loss_of_elements(struct build *builder, struct build_scope *scope, const char *element,
                     enum loss_reduction reduction) {
    return reduce(builder, build_expr(builder, scope, element), -1, reduction);
}

static bool meets_target(const struct lower *lower, const struct tensor *x, const struct tensor *target) {
    if (target->ndim != x->ndim - 1) return false;
    for (int d = 0; d < target->ndim; d++)
        if (!lower_meet(lower, target->dims[d], x->dims[d + (d >= 1)])) return false;
    return true;
}

static int check_shapes(struct lower *lower, const struct tensor *x) {
    struct tensor target = lower_input(lower, 1);
    if (rt_dtype_is_float(target.dtype)) {
        lower_error(lower, 379, "targets must have an integer type, not %s", rt_dtypes[target.dtype].name);
        return diag_help(lower->builder.diags, "targets that are probabilities: export the loss as "
                                               "-(targets * log_softmax(logits, 1)).sum(1).mean()");
    }
    if (x->ndim < 2 || !meets_target(lower, x, &target)) return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    if (open_most(lower_open(lower), x->dims[1]) > LOSS_CLASSES) return lower_error(lower, 505, "too many classes");
    if (!lower_has(lower, 2)) return 0;
    struct tensor weights = lower_input(lower, 2);
    return weights.ndim == 1 && lower_meet(lower, weights.dims[0], x->dims[1])
               ? 0
               : lower_misfit(lower, lower->inputs[0], lower->inputs[2]);
}

/* ONNX NegativeLogLikelihoodLoss-13; with `logits` SoftmaxCrossEntropyLoss-13. */
static int emit_class_loss(struct lower *lower, bool logits) {
    struct tensor x = lower_input(lower, 0);
    struct class_loss loss = {.scores = lower->inputs[0],
                              .logits = logits,
                              .axis = 1,
                              .target = lower->inputs[1],
                              .weights = lower_id(lower, 2),
                              .ignores = lower_given(lower, "ignore_index"),
                              .reduction = loss_reduction(lower_text(lower, "reduction"))};
    if (loss.reduction == LOSS_REDUCTIONS) return lower_error(lower, 335, "unknown reduction");
    if (check_shapes(lower, &x) < 0) return -1;
    if (loss.ignores) loss.ignored = lower_int(lower, "ignore_index");
    return loss_of_classes(&lower->builder, &loss);
}

int lower_nll_loss(struct lower *lower) {
    return lower_result(lower, emit_class_loss(lower, false));
}

int lower_cross_entropy(struct lower *lower) {
    int loss = emit_class_loss(lower, true);
    if (loss >= 0 && lower_wants(lower, 1)) lower->outputs[1] = emit_softmax(lower, OP_LogSoftmax, lower->inputs[0], 1);
    return lower_result(lower, loss);
}
