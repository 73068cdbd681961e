#include "frontend/lower/lower_ml.h"

#include <math.h>
#include <string.h>

enum rt_dtype ml_score_type(const struct lower *lower) {
    return lower_float_type(lower, RT_F32);
}

int ml_samples(struct lower *lower, enum rt_dtype dtype) {
    struct tensor x = lower_input(lower, 0);
    int samples = emit_cast(lower, lower->inputs[0], dtype);
    if (x.ndim == 1) return emit_unsqueeze(lower, samples, 0);
    return x.ndim == 2 ? samples : lower_error(lower, 378, "samples have %d dimension(s), not 1 or 2", x.ndim);
}

int ml_constant(struct lower *lower, enum rt_dtype dtype, int ndim, const int64_t *dims, const double *values) {
    struct graph *graph = lower->builder.graph;
    size_t n = 1;
    for (int d = 0; d < ndim; d++) n *= (size_t)dims[d];
    void *bytes = arena_alloc(graph->arena, n + 1, rt_dtype_bytes(dtype));
    rt_convert(bytes, dtype, values, RT_F64, n);
    return graph_add_const(graph, arena_printf(graph->arena, "%s.%d", lower->builder.node, graph->tensors.n), dtype,
                           ndim, dims, bytes);
}

/* The floats of an attribute as doubles, *n of them. */
static const double *floats_of(struct lower *lower, const char *name, int *n) {
    const float *given = lower_floats(lower, name, n);
    double *values = ARENA_ARRAY(lower->arena, double, *n + 1);
    for (int i = 0; i < *n; i++) values[i] = (double)given[i];
    return values;
}

static int wrong_number(struct lower *lower, const char *name, int n, int64_t wanted) {
    return lower_error(lower, 385, "attribute %s has %d value(s), but %lld are needed", name, n, (long long)wanted);
}

int ml_floats(struct lower *lower, const char *name, int ndim, const int64_t *dims) {
    int n;
    int64_t wanted = 1;
    const double *values = floats_of(lower, name, &n);
    for (int d = 0; d < ndim; d++) wanted *= dims[d];
    return n == wanted ? ml_constant(lower, ml_score_type(lower), ndim, dims, values)
                       : wrong_number(lower, name, n, wanted);
}

/* A float attribute with one value, or with one per feature; `fallback` if it is not given. */
static int per_feature(struct lower *lower, const char *name, int64_t features, double fallback) {
    int n;
    floats_of(lower, name, &n);
    if (n == 0) return ml_constant(lower, ml_score_type(lower), 0, NULL, &fallback);
    return ml_floats(lower, name, 1, n == 1 ? (int64_t[]){1} : (int64_t[]){features});
}

static int64_t last_extent(const struct tensor *x) {
    return x->ndim ? x->dims[x->ndim - 1] : 1;
}

/* The elements of the last dimension at the indices of input 1: (.., indices), or (1, indices) of one dimension. */
int lower_array_feature_extractor(struct lower *lower) {
    struct tensor x = lower_input(lower, 0), index = lower_input(lower, 1);
    const int64_t n = tensor_elements(&index);
    if (x.ndim < 1) return lower_error(lower, 378, "the input has no dimension");
    int y = emit_gather(lower, lower->inputs[0], emit_reshape(lower, lower->inputs[1], 1, &n), x.ndim - 1);
    return lower_result(lower, x.ndim == 1 ? emit_unsqueeze(lower, y, 0) : y);
}

int lower_binarizer(struct lower *lower) {
    const int x = lower->inputs[0], is_above = emit_with(lower, OP_Greater, x, lower_float(lower, "threshold"));
    return lower_result(lower, emit_cast(lower, is_above, lower_dtype(lower, x)));
}

/* Inputs side by side, each with as many features as attribute inputdimensions says: others are cut off, missing ones
 * are 0. */
int lower_feature_vectorizer(struct lower *lower) {
    int n, *parts = ARENA_ARRAY(lower->arena, int, lower->ninputs);
    const int64_t *wanted = lower_ints(lower, "inputdimensions", &n);
    if (n != lower->ninputs) return wrong_number(lower, "inputdimensions", n, lower->ninputs);
    for (int i = 0; i < n; i++) {
        struct tensor x = lower_input(lower, i);
        int part = emit_cast(lower, lower->inputs[i], ml_score_type(lower));
        if (x.ndim == 1) part = emit_unsqueeze(lower, part, 0);
        if (part < 0) return -1;
        x = lower_tensor(lower, part);
        if (x.ndim != 2 || wanted[i] < 0 || wanted[i] > INT32_MAX)
            return lower_error(lower, 378, "input %d is not (samples, features)", i);
        if (x.dims[1] > wanted[i]) part = emit_piece(lower, part, 1, 0, 1, wanted[i]);
        if (x.dims[1] < wanted[i]) {
            const int64_t shape[] = {x.dims[0], wanted[i] - x.dims[1]};
            part = emit_concat(lower, 1, 2, (int[]){part, emit_expand(lower, emit_like(lower, part, 0), 2, shape)});
        }
        parts[i] = part;
    }
    return lower_result(lower, emit_concat(lower, 1, n, parts));
}

/* Replaces one value, which may be NaN, by another, or by one per feature. */
int lower_imputer(struct lower *lower) {
    const int x = lower->inputs[0];
    struct tensor given = lower_input(lower, 0);
    const bool real = rt_dtype_is_float(given.dtype);
    const double replaced = real ? lower_float(lower, "replaced_value_float") : 0;
    int n, value, is_replaced;
    if (real) {
        value = per_feature(lower, "imputed_value_floats", last_extent(&given), 0);
        is_replaced = isnan(replaced) ? emit1(lower, OP_IsNaN, x) : emit_with(lower, OP_Equal, x, replaced);
    } else {
        const int64_t *values = lower_ints(lower, "imputed_value_int64s", &n);
        if (n != 1 && n != last_extent(&given))
            return wrong_number(lower, "imputed_value_int64s", n, last_extent(&given));
        value = emit_ints(lower, n, values, 1, (int64_t[]){n});
        const int64_t from = lower_int(lower, "replaced_value_int64");
        is_replaced = emit2(lower, OP_Equal, emit_cast(lower, x, RT_I64), emit_ints(lower, 1, &from, 0, NULL));
    }
    return lower_result(lower, emit3(lower, OP_Where, is_replaced, emit_cast(lower, value, given.dtype), x));
}

/* Each row divided by its largest value, by the sum of its magnitudes or by its length; a row of norm 0 stays. */
int lower_normalizer(struct lower *lower) {
    const char *norm = lower_text(lower, "norm");
    const int x = emit_cast(lower, lower->inputs[0], ml_score_type(lower)), ndim = lower_input(lower, 0).ndim;
    int size;
    if (ndim < 1 || ndim > 2) return lower_error(lower, 378, "samples have %d dimension(s)", ndim);
    if (strcmp(norm, "MAX") == 0)
        size = emit_reduce_along(lower, OP_ReduceMax, x, ndim - 1, true);
    else if (strcmp(norm, "L1") == 0)
        size = emit_reduce_along(lower, OP_ReduceSum, emit1(lower, OP_Abs, x), ndim - 1, true);
    else if (strcmp(norm, "L2") == 0)
        size = emit_root(lower, emit_reduce_along(lower, OP_ReduceSum, emit2(lower, OP_Mul, x, x), ndim - 1, true));
    else
        return lower_error(lower, 385, "norm is not MAX, L1 or L2");
    size = emit3(lower, OP_Where, emit_with(lower, OP_Equal, size, 0), emit_like(lower, size, 1), size);
    return lower_result(lower, emit2(lower, OP_Div, x, size));
}

int lower_scaler(struct lower *lower) {
    struct tensor x = lower_input(lower, 0);
    const int offset = per_feature(lower, "offset", last_extent(&x), 0);
    const int scale = offset < 0 ? -1 : per_feature(lower, "scale", last_extent(&x), 1);
    const int y = emit_cast(lower, lower->inputs[0], ml_score_type(lower));
    return lower_result(lower, emit2(lower, OP_Mul, emit2(lower, OP_Sub, y, offset), scale));
}

/* The first key that equals the element, as an index of x's shape; the number of keys where there is none. NaN equals
 * NaN. */
static int find_key(struct lower *lower, int x, int keys) {
    struct tensor key = lower_tensor(lower, keys);
    const int ndim = lower_ndim(lower, x);
    const int64_t n = key.dims[0];
    if (ndim == RT_MAX_NDIM) return lower_error(lower, 506, "more than %d dimensions", RT_MAX_NDIM - 1);
    const int one = emit_unsqueeze(lower, x, ndim);
    int same = emit2(lower, OP_Equal, one, keys);
    if (rt_dtype_is_float(key.dtype))
        same =
            emit2(lower, OP_Or, same, emit2(lower, OP_And, emit1(lower, OP_IsNaN, one), emit1(lower, OP_IsNaN, keys)));
    const int none = emit_ints(lower, 1, &n, 0, NULL);
    const int place = emit3(lower, OP_Where, same, emit_places(lower, 0, n, 1, 0), none);
    return emit_reduce_along(lower, OP_ReduceMin, place, ndim, false);
}

/* The list that one of the attributes PREFIX_int64s, PREFIX_floats and PREFIX_tensor gives, as a vector; -1 after a
 * diagnostic. */
static int list_of(struct lower *lower, const char *prefix) {
    struct arena *arena = lower->arena;
    const char *ints = arena_printf(arena, "%s_int64s", prefix), *floats = arena_printf(arena, "%s_floats", prefix),
               *tensor = arena_printf(arena, "%s_tensor", prefix);
    int n;
    if (lower_given(lower, ints)) {
        const int64_t *values = lower_ints(lower, ints, &n);
        return emit_ints(lower, n, values, 1, (int64_t[]){n});
    }
    if (lower_given(lower, floats)) {
        lower_floats(lower, floats, &n);
        return ml_floats(lower, floats, 1, (int64_t[]){n});
    }
    if (lower->version < 4 || !lower_given(lower, tensor))
        return lower_error(lower, 404, "%s are not given as numbers: strings are not supported", prefix);
    const int list = lower_proto(lower, lower_attribute(lower, tensor)->t);
    if (list >= 0 && lower_ndim(lower, list) != 1) return lower_error(lower, 385, "%s is no vector", tensor);
    return list;
}

/* What elements without a key become: one value of the type of `values`. */
static int default_of(struct lower *lower, int values) {
    if (lower->version >= 4 && lower_given(lower, "default_tensor")) {
        const int given = lower_proto(lower, lower_attribute(lower, "default_tensor")->t);
        return given < 0 ? -1
                         : emit_cast(lower, emit_reshape(lower, given, 1, (int64_t[]){1}), lower_dtype(lower, values));
    }
    if (!rt_dtype_is_float(lower_dtype(lower, values))) {
        const int64_t value = lower_int(lower, "default_int64");
        return emit_cast(lower, emit_ints(lower, 1, &value, 1, (int64_t[]){1}), lower_dtype(lower, values));
    }
    const double value = lower_given(lower, "default_float") ? lower_float(lower, "default_float") : -0.0;
    return ml_constant(lower, lower_dtype(lower, values), 1, (int64_t[]){1}, &value);
}

int lower_label_encoder(struct lower *lower) {
    const int keys = list_of(lower, "keys"), values = keys < 0 ? -1 : list_of(lower, "values");
    if (values < 0) return -1;
    struct tensor key = lower_tensor(lower, keys), value = lower_tensor(lower, values);
    if (key.dims[0] != value.dims[0]) return lower_misfit(lower, keys, values);
    const int index = find_key(lower, emit_cast(lower, lower->inputs[0], key.dtype), keys);
    const int table = emit_concat(lower, 0, 2, (int[]){values, default_of(lower, values)});
    return lower_result(lower, emit_gather(lower, table, index, 0));
}

/* 1 at the category of an element, else 0. Without attribute zeros, a step with an unknown category ends with an
 * error: the index is beyond the table. */
int lower_one_hot_encoder(struct lower *lower) {
    int n;
    const int64_t *categories = lower_ints(lower, "cats_int64s", &n);
    if (n == 0) return lower_error(lower, 404, "categories are not given as numbers: strings are not supported");
    if (n > 1 << 12) return lower_error(lower, 505, "%d categories, but at most %d are supported", n, 1 << 12);
    const int64_t rows = n + (lower_int(lower, "zeros") != 0), shape[] = {rows, n};
    double *table = ARENA_ARRAY(lower->arena, double, rows *n);
    for (int i = 0; i < n; i++) table[i * n + i] = 1;
    const int x = emit_cast(lower, lower->inputs[0], RT_I64);
    const int index = find_key(lower, x, emit_ints(lower, n, categories, 1, (int64_t[]){n}));
    return lower_result(lower, emit_gather(lower, ml_constant(lower, ml_score_type(lower), 2, shape, table), index, 0));
}

/* LabelEncoder-1 maps strings to numbers, or numbers to strings. */
int lower_label_encoder_1(struct lower *lower) {
    lower_error(lower, 404, "strings are not supported");
    return diag_help(lower->builder.diags, "map strings to numbers before the model");
}

int ml_transform(struct lower *lower, const char *text) {
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(text, names[i]) == 0) return i;
    return lower_error(lower, 385, "post_transform is not NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT");
}

/* Softmax of the scores that are not 0; the others become 0, or nearly so. */
static int softmax_without_zeros(struct lower *lower, int s) {
    const int most = emit_reduce_along(lower, OP_ReduceMax, s, 1, true);
    const int counts = emit_with(lower, OP_Greater, emit1(lower, OP_Abs, s), 1e-7);
    const int e = emit1(lower, OP_Exp, emit2(lower, OP_Sub, s, most));
    const int counted = emit3(lower, OP_Where, counts, e, emit_like(lower, e, 0));
    const int sum = emit_reduce_along(lower, OP_ReduceSum, counted, 1, true);
    const int rest = emit2(lower, OP_Mul, s, emit1(lower, OP_Exp, emit1(lower, OP_Neg, most)));
    return emit2(lower, OP_Div, emit3(lower, OP_Where, counts, e, rest), sum);
}

/* sqrt(2) erfinv(2 s - 1), with Winitzki's approximation of erfinv (a = 0.147) as ONNX Runtime has it. */
static int probit(struct lower *lower, int s) {
    const double a = 0.147, pi = 3.14159;
    if (s < 0) return -1;
    const int x = emit_with(lower, OP_Sub, emit_with(lower, OP_Mul, s, 2), 1);
    const int log =
        emit1(lower, OP_Log,
              emit2(lower, OP_Mul, emit2(lower, OP_Sub, emit_like(lower, s, 1), x), emit_with(lower, OP_Add, x, 1)));
    const int v = emit_with(lower, OP_Add, emit_with(lower, OP_Mul, log, 0.5), 2 / (pi * a));
    const int under = emit2(lower, OP_Sub, emit2(lower, OP_Mul, v, v), emit_with(lower, OP_Mul, log, 1 / a));
    const int root = emit1(lower, OP_Sqrt, emit2(lower, OP_Sub, emit1(lower, OP_Sqrt, under), v));
    const int sign =
        emit3(lower, OP_Where, emit_with(lower, OP_Less, x, 0), emit_like(lower, s, -1), emit_like(lower, s, 1));
    return emit_with(lower, OP_Mul, emit2(lower, OP_Mul, sign, root), sqrt(2));
}

int ml_transformed(struct lower *lower, int scores, int transform) {
    if (transform == ML_SOFTMAX) return emit_softmax(lower, OP_Softmax, scores, 1);
    if (transform == ML_LOGISTIC) return emit1(lower, OP_Sigmoid, scores);
    if (transform == ML_SOFTMAX_ZERO) return softmax_without_zeros(lower, scores);
    return transform == ML_PROBIT ? probit(lower, scores) : scores;
}

int64_t ml_labels(struct lower *lower, const char *ints) {
    const Onnx__AttributeProto *strings = lower_attribute(lower, "classlabels_strings");
    int n;
    lower_ints(lower, ints, &n);
    if (n > 0) return n;
    if (!strings || strings->n_strings == 0) return lower_error(lower, 385, "the node has no labels of classes");
    if (!lower_wants(lower, 0)) return (int64_t)strings->n_strings;
    lower_error(lower, 404, "labels that are strings are not supported");
    return diag_help(lower->builder.diags, "train the classifier on integer labels");
}

int ml_pick_labels(struct lower *lower, const char *ints, int index) {
    int n;
    if (!lower_wants(lower, 0)) return index < 0 ? -1 : 0;
    const int64_t *labels = lower_ints(lower, ints, &n);
    return lower_result(lower, emit_gather(lower, emit_ints(lower, n, labels, 1, (int64_t[]){n}), index, 0));
}

int ml_exceeds(struct lower *lower, int score, double limit) {
    return emit_cast(lower, emit_squeeze(lower, emit_with(lower, OP_Greater, score, limit), 1), RT_I64);
}

int ml_best(struct lower *lower, int scores) {
    return emit_arg_max(lower, scores, 1, false);
}

int ml_both(struct lower *lower, int score, bool signs) {
    const int other = signs ? emit1(lower, OP_Neg, score) : emit2(lower, OP_Sub, emit_like(lower, score, 1), score);
    return emit_concat(lower, 1, 2, (int[]){other, score});
}

/* x W + intercepts: (n, targets), where attribute coefficients is (targets, features). */
static int linear_scores(struct lower *lower, int64_t targets) {
    const int x = ml_samples(lower, ml_score_type(lower));
    int n;
    if (x < 0) return -1;
    const int64_t shape[] = {targets, lower_tensor(lower, x).dims[1]};
    const int w = ml_floats(lower, "coefficients", 2, shape), y = w < 0 ? -1 : emit_matmul(lower, x, w, false, true);
    lower_floats(lower, "intercepts", &n);
    return n == 0 ? y : emit2(lower, OP_Add, y, ml_floats(lower, "intercepts", 1, shape));
}

int lower_linear_regressor(struct lower *lower) {
    const int transform = ml_transform(lower, lower_text(lower, "post_transform"));
    const int64_t targets = lower_int(lower, "targets");
    if (targets < 1 || targets > INT32_MAX) return lower_error(lower, 385, "targets must be at least 1");
    const int scores = transform < 0 ? -1 : linear_scores(lower, targets);
    /* one score is left as it is, except by PROBIT */
    return lower_result(lower,
                        targets == 1 && transform != ML_PROBIT ? scores : ml_transformed(lower, scores, transform));
}

int lower_linear_classifier(struct lower *lower) {
    static const char ints[] = "classlabels_ints";
    const int transform = ml_transform(lower, lower_text(lower, "post_transform"));
    const int64_t labels = transform < 0 ? -1 : ml_labels(lower, ints);
    int classes;
    lower_floats(lower, "intercepts", &classes);
    if (labels < 0) return -1;
    if (classes < 1 || (classes != labels && (classes != 1 || labels != 2)))
        return wrong_number(lower, "intercepts", classes, labels);
    const int scores = linear_scores(lower, classes);
    int z = scores;
    if (classes == 1 && transform == ML_PROBIT)
        z = ml_transformed(lower, z, transform);
    else if (classes == 1 && labels == 2) /* the score of the second class */
        z = ml_both(lower, transform == ML_LOGISTIC ? emit1(lower, OP_Sigmoid, z) : z, false);
    else if (classes > 1)
        z = ml_transformed(lower, z, transform);
    lower->outputs[1] = z;
    return z < 0 ? -1
                 : ml_pick_labels(lower, ints, classes == 1 ? ml_exceeds(lower, scores, 0) : ml_best(lower, scores));
}
