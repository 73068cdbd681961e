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

/* Pieces. An operand of -1 failed, and so does what is made of it. ------------------------------------------------- */

/* The expression of up to three tensors called a, b and c (0 where there is none), and a number n. */
static int of(struct build *b, const char *text, int x, int y, int z, double number) {
    struct build_scope scope = {.dtype = RT_F32};
    if (x < 0 || y < 0 || z < 0) return -1;
    scope.dtype = b->graph->tensors.at[z].dtype;
    build_scope_tensor(&scope, "a", x);
    build_scope_tensor(&scope, "b", y);
    build_scope_tensor(&scope, "c", z);
    build_scope_number(&scope, "n", number);
    return build_expr(b, &scope, text);
}

static int cast_to(struct build *b, int x, enum rt_dtype dtype) {
    return x < 0 ? -1 : build_cast(b, x, dtype);
}

static int sum_from(struct build *b, int x, int first, int end) {
    int64_t axes[MAX_NDIM];
    if (x < 0 || first == end) return x;
    for (int d = first; d < end; d++) axes[d - first] = d;
    struct attr attrs[] = {attr_of_ints("axes", end - first, axes), attr_of_int("keepdims", 0)};
    return build(b, OP_ReduceSum, 1, &x, 2, attrs);
}

static int sum_all(struct build *b, int x) {
    return x < 0 ? -1 : sum_from(b, x, 0, b->graph->tensors.at[x].ndim);
}

/* The values along dimension `axis` of a tensor of ndim dimensions: extent 1 elsewhere. */
static int along(struct build *b, int values, int axis, int ndim) {
    int64_t shape[MAX_NDIM];
    for (int d = 0; d < ndim; d++) shape[d] = d == axis ? tensor_elements(&b->graph->tensors.at[values]) : 1;
    return values < 0 ? -1 : build_reshape(b, values, ndim, shape);
}

/* Of class targets ------------------------------------------------------------------------------------------------- */

/* What the pieces are made of. */
struct classes {
    struct build *b;
    const struct class_loss *loss;
    struct tensor x; /* of the scores */
    int scores;
    bool logits;
    int most;    /* the largest logit of each element, beside the classes */
    int terms;   /* ClassTerms of logits; -1: not made */
    int norm;    /* per element: what logits less `most` are above log-probabilities; -1: nothing */
    int weights; /* one per class; -1: all are 1 */
    int target;  /* i64 */
    int hidden;  /* per element: it counts for nothing; -1: all count */
};

static int sum_classes(const struct classes *c, int x) {
    return sum_from(c->b, x, c->loss->axis, c->loss->axis + 1);
}

/* Log-probabilities made of logits are taken back to those. */
static void find_logits(struct classes *c) {
    const struct graph *graph = c->b->graph;
    const int producer = graph->tensors.at[c->scores].producer;
    const struct node *node = producer < 0 ? NULL : &graph->nodes.at[producer];
    if (c->logits || !node || node->op->id != OP_LogSoftmax) return;
    if (attr_int(node, "axis", -1) != c->loss->axis) return;
    c->scores = node->inputs[0];
    c->logits = true;
}

static int start(struct classes *c, struct build *b, const struct class_loss *loss) {
    *c = (struct classes){.b = b,
                          .loss = loss,
                          .scores = loss->scores,
                          .logits = loss->logits,
                          .most = -1,
                          .terms = -1,
                          .norm = -1,
                          .weights = -1,
                          .target = -1,
                          .hidden = -1};
    c->x = b->graph->tensors.at[loss->scores];
    find_logits(c);
    if (loss->weights >= 0 && (c->weights = build1(b, OP_Detach, loss->weights)) < 0) return -1;
    if (!c->logits) return 0;
    const int64_t axis = loss->axis;
    struct attr attrs[] = {attr_of_ints("axes", 1, &axis), attr_of_int("keepdims", 1)};
    c->most = build(b, OP_ReduceMax, 1, &c->scores, 2, attrs);
    if (c->most >= 0) c->most = build1(b, OP_Detach, c->most);
    return c->most;
}

/* All log-probabilities, for losses of more of them than the target's. */
static int log_probabilities(const struct classes *c) {
    struct tensor beside = c->x;
    if (!c->logits) return c->scores;
    const int scores = of(c->b, "a - b", c->scores, c->most, c->scores, 0);
    beside.dims[c->loss->axis] = 1;
    const int norm = c->norm < 0 ? -1 : build_reshape(c->b, c->norm, beside.ndim, beside.dims);
    return of(c->b, "a - b", scores, cast_to(c->b, norm, c->x.dtype), scores, 0);
}

/* The classes' terms, each times its weight. */
static int weighted(const struct classes *c, int terms) {
    if (c->weights < 0) return terms;
    const int weights = along(c->b, c->weights, c->loss->axis, c->x.ndim);
    return of(c->b, "a * b", terms, weights, terms, 0);
}

/* Checks the targets and marks those that are ignored. */
static int read_target(struct classes *c) {
    const struct class_loss *loss = c->loss;
    struct attr attrs[] = {attr_of_int("classes", c->x.dims[loss->axis]), attr_of_int("ignores", loss->ignores),
                           attr_of_int("ignored", loss->ignores ? loss->ignored : 0)};
    c->target = loss->target;
    if (c->b->graph->tensors.at[c->target].dtype != RT_I32) c->target = build_cast(c->b, c->target, RT_I64);
    if (c->target >= 0) c->target = build(c->b, OP_ClassIndex, 1, &c->target, 3, attrs);
    if (c->target < 0 || !loss->ignores) return c->target;
    const char *name = arena_printf(c->b->graph->arena, "%s.ignored", c->b->node);
    return c->hidden =
               build2(c->b, OP_Equal, c->target, graph_add_const(c->b->graph, name, RT_I64, 0, NULL, &loss->ignored));
}

/* 0 where an element is ignored. */
static int masked(const struct classes *c, int x) {
    return c->hidden < 0 ? x : of(c->b, "a ? 0 : b", c->hidden, x, x, 0);
}

/* The target's log-probability, by comparing it with all classes: gradients and cuts of these need nothing of their
 * own. */
static int pick_score(const struct classes *c) {
    struct arena *arena = c->b->graph->arena;
    const int axis = c->loss->axis;
    int64_t n = c->x.dims[axis], *places = ARENA_ARRAY(arena, int64_t, n + 1);
    struct tensor beside = c->x, list = {.ndim = c->x.ndim};
    for (int64_t i = 0; i < n; i++) places[i] = i;
    for (int d = 0; d < list.ndim; d++) list.dims[d] = d == axis ? n : 1;
    beside.dims[axis] = 1;
    const int target = build_reshape(c->b, c->target, beside.ndim, beside.dims);
    const char *name = arena_printf(arena, "%s.classes", c->b->node);
    if (target < 0) return -1;
    const int hot =
        build2(c->b, OP_Equal, target, graph_add_const(c->b->graph, name, RT_I64, list.ndim, list.dims, places));
    return sum_classes(c, of(c->b, "a ? b : 0", hot, c->scores, c->scores, 0));
}

/* Row `k` of the terms, shaped like the elements. */
static int term(const struct classes *c, int k) {
    if (c->terms < 0) return -1;
    const struct tensor terms = c->b->graph->tensors.at[c->terms];
    int64_t first[MAX_NDIM] = {k}, ones[MAX_NDIM], size[MAX_NDIM];
    for (int d = 0; d < terms.ndim; d++) ones[d] = 1, size[d] = d ? terms.dims[d] : 1;
    const int row = build_slice(c->b, c->terms, first, ones, size);
    return row < 0 ? -1 : build_reshape(c->b, row, terms.ndim - 1, terms.dims + 1);
}

/* -log(e^x / sum(e^x)) of the targets' logits, of all less the largest. That is a constant: its changes cancel. */
static int of_logits(struct classes *c) {
    struct attr axis = attr_of_int("axis", c->loss->axis);
    c->terms = build(c->b, OP_ClassTerms, 3, (int[]){c->scores, c->most, c->target}, 1, &axis);
    const int sum = term(c, 0), own = term(c, 1);
    c->norm = of(c->b, "log(a)", sum, sum, sum, 0);
    return of(c->b, "a - b", c->norm, own, c->norm, 0);
}

/* The weight of each element's class. */
static int pick_weight(const struct classes *c, enum rt_dtype dtype) {
    struct attr axis = attr_of_int("axis", 0);
    int target = c->target;
    if (c->hidden >= 0)
        target = build(c->b, OP_Where, 3, (int[]){c->hidden, build_scalar(c->b, RT_I64, 0), target}, 0, NULL);
    const int picked = target < 0 ? -1 : build(c->b, OP_Gather, 2, (int[]){c->weights, target}, 1, &axis);
    return cast_to(c->b, picked, dtype);
}

/* Per element: the sum over classes of weighted log-probabilities. */
static int sum_probabilities(const struct classes *c) {
    if (c->logits && c->weights < 0) {
        const int total = term(c, 2);
        return of(c->b, "a - b * n", total, c->norm, total, (double)c->x.dims[c->loss->axis]);
    }
    const int sum = sum_classes(c, weighted(c, log_probabilities(c)));
    return c->norm < 0 ? sum : cast_to(c->b, sum, c->b->graph->tensors.at[c->norm].dtype);
}

/* What smoothing makes of the elements: a part of them becomes the mean over classes of their weighted terms. */
static int smoothed(const struct classes *c, int elements) {
    const int uniform = sum_probabilities(c);
    double share = c->loss->smoothing / (double)c->x.dims[c->loss->axis];
    elements = of(c->b, "a * n", elements, elements, elements, 1 - c->loss->smoothing);
    return of(c->b, "a - b * n", elements, uniform, uniform, share);
}

static int reduce(struct build *b, int loss, int weights, enum loss_reduction reduction) {
    if (loss < 0 || reduction == LOSS_NONE) return loss;
    double elements = (double)tensor_elements(&b->graph->tensors.at[loss]);
    int sum = sum_all(b, loss);
    if (reduction == LOSS_SUM) return sum;
    int total = weights < 0 ? sum : sum_all(b, weights);
    return of(b, weights < 0 ? "a * n" : "a / b", sum, total, sum, 1 / elements);
}

int loss_of_classes(struct build *b, const struct class_loss *loss) {
    struct classes c;
    int weights = -1;
    if (start(&c, b, loss) < 0 || read_target(&c) < 0) return -1;
    int elements = c.logits ? of_logits(&c) : pick_score(&c);
    if (!c.logits) elements = of(b, "-a", elements, elements, elements, 0);
    if (elements < 0) return -1;
    const enum rt_dtype dtype = b->graph->tensors.at[elements].dtype;
    if (c.weights >= 0) {
        weights = pick_weight(&c, dtype);
        elements = of(b, "a * b", elements, weights, elements, 0);
    }
    if (loss->smoothing > 0) elements = smoothed(&c, elements);
    if (loss->ignores) weights = masked(&c, weights < 0 ? build_scalar(b, dtype, 1) : weights);
    return cast_to(b, reduce(b, masked(&c, elements), weights, loss->reduction), c.x.dtype);
}

/* Of other targets ------------------------------------------------------------------------------------------------- */

/* log(sum(exp)) of logits less the largest. Reductions, unlike LogSoftmax, can be cut along the classes. */
static int read_norm(struct classes *c) {
    const int scores = of(c->b, "a - b", c->scores, c->most, c->scores, 0);
    const int sum = sum_classes(c, of(c->b, "exp(a)", scores, scores, scores, 0));
    return c->norm = of(c->b, "log(a)", sum, sum, sum, 0);
}

int loss_of_probabilities(struct build *b, const struct class_loss *loss) {
    struct classes c;
    if (start(&c, b, loss) < 0 || (c.logits && read_norm(&c) < 0)) return -1;
    double smoothing = loss->smoothing, uniform = smoothing / (double)c.x.dims[loss->axis];
    int target = of(b, "a * n", loss->target, loss->target, loss->target, 1 - smoothing);
    target = weighted(&c, of(b, "a + n", target, target, target, uniform));
    int terms = of(b, "-a * b", target, log_probabilities(&c), target, 0);
    return reduce(b, sum_classes(&c, terms), -1, loss->reduction);
}

int loss_of_elements(struct build *b, struct build_scope *scope, const char *element, enum loss_reduction reduction) {
    return reduce(b, build_expr(b, scope, element), -1, reduction);
}

/* ONNX's operators ------------------------------------------------------------------------------------------------ */

static int check_shapes(struct lower *l, const struct tensor *x) {
    struct tensor target = lower_input(l, 1);
    if (x->ndim < 2 || !loss_target_fits(x, 1, &target)) return lower_misfit(l, l->inputs[0], l->inputs[1]);
    if (x->dims[1] > LOSS_CLASSES) return lower_error(l, 505, EXIT_LIMIT, "too many classes");
    if (rt_dtype_is_float(target.dtype))
        return lower_error(l, 379, EXIT_MALFORMED, "targets have type %s", rt_dtypes[target.dtype].name);
    if (!lower_has(l, 2)) return 0;
    struct tensor weights = lower_input(l, 2);
    return weights.ndim == 1 && weights.dims[0] == x->dims[1] ? 0 : lower_misfit(l, l->inputs[0], l->inputs[2]);
}

/* ONNX NegativeLogLikelihoodLoss-13; of logits SoftmaxCrossEntropyLoss-13. */
static int emit_class_loss(struct lower *l, bool logits) {
    struct tensor x = lower_input(l, 0);
    struct class_loss loss = {.scores = l->inputs[0],
                              .logits = logits,
                              .axis = 1,
                              .target = l->inputs[1],
                              .weights = lower_has(l, 2) ? l->inputs[2] : -1,
                              .ignores = lower_given(l, "ignore_index"),
                              .reduction = loss_reduction(lower_text(l, "reduction"))};
    if (loss.reduction == LOSS_REDUCTIONS) return lower_error(l, 335, EXIT_MALFORMED, "no reduction of that name");
    if (check_shapes(l, &x) < 0) return -1;
    if (loss.ignores) loss.ignored = lower_int(l, "ignore_index");
    return loss_of_classes(&l->b, &loss);
}

int lower_nll_loss(struct lower *l) {
    return lower_result(l, emit_class_loss(l, false));
}

int lower_cross_entropy(struct lower *l) {
    int loss = emit_class_loss(l, true);
    if (loss >= 0 && lower_wants(l, 1)) l->outputs[1] = emit_softmax(l, OP_LogSoftmax, l->inputs[0], 1);
    return lower_result(l, loss);
}
