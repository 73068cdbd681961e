/* Support vector machines (domain ai.onnx.ml), as libsvm computes them: the kernel of the samples and the support
 * vectors is a product, and so is what each pair of classes makes of it. */
#include "frontend/lower/lower_ml.h"

#include <string.h>

enum { MOST_CLASSES = 64, ROUNDS = 8 };

/* The kernel of samples (n, features) and support vectors (vectors, features): (n, vectors). */
static int kernel(struct lower *lower, int x, int vectors, const char *type) {
    int n;
    const float *given = lower_floats(lower, "kernel_params", &n);
    double gamma = 0, coef0 = 0, degree = 0;
    if (n != 0 && n != 3) return lower_error(lower, 385, "kernel_params are not gamma, coef0 and degree");
    if (n) gamma = (double)given[0], coef0 = (double)given[1], degree = (double)given[2];
    const int dot = emit_matmul(lower, x, vectors, false, true);
    if (strcmp(type, "LINEAR") == 0) return dot;
    if (strcmp(type, "RBF") == 0) { /* exp(-gamma |x - v|^2) */
        const int xx = emit_reduce_along(lower, OP_ReduceSum, emit2(lower, OP_Mul, x, x), 1, true);
        const int vv = emit_reduce_along(lower, OP_ReduceSum, emit2(lower, OP_Mul, vectors, vectors), 1, false);
        const int distance = emit2(lower, OP_Sub, emit2(lower, OP_Add, xx, vv), emit_with(lower, OP_Mul, dot, 2));
        return emit1(lower, OP_Exp, emit_with(lower, OP_Mul, emit_with(lower, OP_Max, distance, 0), -gamma));
    }
    const int y = emit_with(lower, OP_Add, emit_with(lower, OP_Mul, dot, gamma), coef0);
    if (strcmp(type, "POLY") == 0) return emit_with(lower, OP_Pow, y, degree);
    if (strcmp(type, "SIGMOID") == 0) return emit1(lower, OP_Tanh, y);
    return lower_error(lower, 385, "kernel_type is not LINEAR, POLY, RBF or SIGMOID");
}

static int64_t count(const struct lower *lower, const char *name, bool floats) {
    int n;
    if (floats)
        lower_floats(lower, name, &n);
    else
        lower_ints(lower, name, &n);
    return n;
}

/* Attribute rho, of which only the first value is read. */
static int first_rho(struct lower *lower) {
    int n;
    const float *rho = lower_floats(lower, "rho", &n);
    const double value = n ? (double)rho[0] : 0;
    return n ? ml_constant(lower, ml_score_type(lower), 0, NULL, &value)
             : lower_error(lower, 385, "attribute rho has no value");
}

int lower_svm_regressor(struct lower *lower) {
    const int x = ml_samples(lower, ml_score_type(lower)), rho = first_rho(lower);
    const int64_t n = lower_int(lower, "n_supports");
    if (x < 0 || rho < 0) return -1;
    if (n < 0 || n > INT32_MAX) return lower_error(lower, 385, "n_supports is %lld", (long long)n);
    const int64_t features = lower_tensor(lower, x).dims[1], vectors[] = {n, features}, row[] = {1, n ? n : features};
    int y = x;
    if (n) {
        const int support = ml_floats(lower, "support_vectors", 2, vectors);
        y = support < 0 ? -1 : kernel(lower, x, support, lower_text(lower, "kernel_type"));
    }
    const int weights = y < 0 ? -1 : ml_floats(lower, "coefficients", 2, row);
    if (weights < 0) return -1;
    y = emit2(lower, OP_Add, emit_matmul(lower, y, weights, false, true), rho);
    if (lower_int(lower, "one_class"))
        y = emit3(lower, OP_Where, emit_with(lower, OP_Greater, y, 0), emit_like(lower, y, 1), emit_like(lower, y, -1));
    return lower_result(lower, y);
}

/* Classes of a machine, and its pairs (i, j), i < j, in order. */
struct pairs {
    int64_t classes, n, vectors;
    int64_t first[MOST_CLASSES + 1]; /* support vector of each class */
};

/* The constant (rows, columns) of these values. */
static int table(struct lower *lower, int64_t rows, int64_t columns, const double *values) {
    return ml_constant(lower, ml_score_type(lower), 2, (int64_t[]){rows, columns}, values);
}

static double *zeros(struct lower *lower, int64_t n) {
    return ARENA_ARRAY(lower->arena, double, n + 1);
}

/* The weight of each support vector in the score of each pair: (vectors, pairs). */
static int weights_of_pairs(struct lower *lower, const struct pairs *pairs) {
    int n;
    const float *given = lower_floats(lower, "coefficients", &n);
    double *weights = zeros(lower, pairs->vectors * pairs->n);
    if (n != (pairs->classes - 1) * pairs->vectors)
        return lower_error(lower, 385, "%d coefficient(s) do not fit %lld support vector(s) of %lld classes", n,
                           (long long)pairs->vectors, (long long)pairs->classes);
    for (int64_t i = 0, pair = 0; i < pairs->classes; i++)
        for (int64_t j = i + 1; j < pairs->classes; j++, pair++) {
            for (int64_t v = pairs->first[i]; v < pairs->first[i + 1]; v++)
                weights[v * pairs->n + pair] = (double)given[(j - 1) * pairs->vectors + v];
            for (int64_t v = pairs->first[j]; v < pairs->first[j + 1]; v++)
                weights[v * pairs->n + pair] = (double)given[i * pairs->vectors + v];
        }
    return table(lower, pairs->vectors, pairs->n, weights);
}

/* The class with most votes: a pair votes for its first class if its score is positive. */
static int most_votes(struct lower *lower, const struct pairs *pairs, int scores) {
    double *first = zeros(lower, pairs->n * pairs->classes), *second = zeros(lower, pairs->n * pairs->classes);
    for (int64_t i = 0, pair = 0; i < pairs->classes; i++)
        for (int64_t j = i + 1; j < pairs->classes; j++, pair++)
            first[pair * pairs->classes + i] = second[pair * pairs->classes + j] = 1;
    const int won = emit_cast(lower, emit_with(lower, OP_Greater, scores, 0), ml_score_type(lower));
    const int lost = emit2(lower, OP_Sub, emit_like(lower, won, 1), won);
    const int a = table(lower, pairs->n, pairs->classes, first), b = table(lower, pairs->n, pairs->classes, second);
    return won < 0 || lost < 0 ? -1
                               : ml_best(lower, emit2(lower, OP_Add, emit_matmul(lower, won, a, false, false),
                                                      emit_matmul(lower, lost, b, false, false)));
}

/* Note [Probabilities of pairs]
 * From the probability of each class within each pair, Wu, Lin and Weng's second method (JMLR 5, 2004, algorithm 2)
 * finds those of all classes by iteration: at most 100 rounds in libsvm and ONNX Runtime, until the error is below
 * 0.005 / classes. In random trials with 2 to 10 classes none took more than 4; ROUNDS are written out, and a sample
 * keeps what it has once its error is small enough. */

/* Column i of (n, classes): (n, 1). */
static int column(struct lower *lower, int x, int64_t i) {
    return emit_piece(lower, x, 1, i, 1, 1);
}

struct rounds {
    int q, diagonal; /* (n, classes, classes), (n, classes) */
    int p, qp, pqp;  /* (n, classes), (n, classes), (n, 1) */
};

/* Improves the probability of class i. */
static void improve(struct lower *lower, struct rounds *r, int64_t i, int64_t classes) {
    double *unit = zeros(lower, classes);
    unit[i] = 1;
    const int qii = column(lower, r->diagonal, i), qpi = column(lower, r->qp, i);
    const int d = emit2(lower, OP_Div, emit2(lower, OP_Sub, r->pqp, qpi), qii), more = emit_with(lower, OP_Add, d, 1);
    const int step =
        emit2(lower, OP_Mul, d, emit2(lower, OP_Add, emit2(lower, OP_Mul, d, qii), emit_with(lower, OP_Mul, qpi, 2)));
    const int row = emit_squeeze(lower, emit_piece(lower, r->q, 1, i, 1, 1), 1);
    r->pqp = emit2(lower, OP_Div, emit2(lower, OP_Div, emit2(lower, OP_Add, r->pqp, step), more), more);
    r->qp = emit2(lower, OP_Div, emit2(lower, OP_Add, r->qp, emit2(lower, OP_Mul, d, row)), more);
    r->p =
        emit2(lower, OP_Div, emit2(lower, OP_Add, r->p, emit2(lower, OP_Mul, d, table(lower, 1, classes, unit))), more);
}

static void run_round(struct lower *lower, struct rounds *r, int64_t classes) {
    const int before = r->p;
    r->qp =
        emit_reduce_along(lower, OP_ReduceSum, emit2(lower, OP_Mul, r->q, emit_unsqueeze(lower, before, 1)), 2, false);
    r->pqp = emit_reduce_along(lower, OP_ReduceSum, emit2(lower, OP_Mul, before, r->qp), 1, true);
    const int differ = emit1(lower, OP_Abs, emit2(lower, OP_Sub, r->qp, r->pqp));
    const int error = emit_reduce_along(lower, OP_ReduceMax, differ, 1, true);
    const int ends = emit_with(lower, OP_Less, error, 0.005 / (double)classes);
    for (int64_t i = 0; i < classes; i++) improve(lower, r, i, classes);
    r->p = emit3(lower, OP_Where, ends, before, r->p);
}

/* The probabilities (n, classes) of the scores (n, pairs). */
static int probabilities(struct lower *lower, const struct pairs *pairs, int scores) {
    const int64_t k = pairs->classes, square = k * k;
    double *of_first = zeros(lower, pairs->n * square), *of_second = zeros(lower, pairs->n * square),
           *eye = zeros(lower, square);
    for (int64_t i = 0, pair = 0; i < k; i++) {
        eye[i * k + i] = 1;
        for (int64_t j = i + 1; j < k; j++, pair++)
            of_first[pair * square + i * k + j] = of_second[pair * square + j * k + i] = 1;
    }
    const int a = ml_floats(lower, "prob_a", 1, &pairs->n), b = a < 0 ? -1 : ml_floats(lower, "prob_b", 1, &pairs->n);
    int first =
        emit1(lower, OP_Sigmoid, emit1(lower, OP_Neg, emit2(lower, OP_Add, emit2(lower, OP_Mul, scores, a), b)));
    if (first < 0) return -1;
    first = emit_with(lower, OP_Min, emit_with(lower, OP_Max, first, 1e-7), 1 - 1e-7);
    const int second = emit2(lower, OP_Sub, emit_like(lower, first, 1), first);
    const int64_t n = lower_tensor(lower, scores).dims[0], shape[] = {n, k, k};
    const int r = emit_reshape(
        lower,
        emit2(lower, OP_Add, emit_matmul(lower, first, table(lower, pairs->n, square, of_first), false, false),
              emit_matmul(lower, second, table(lower, pairs->n, square, of_second), false, false)),
        3, shape);
    const int diagonal = emit_reduce_along(lower, OP_ReduceSum, emit2(lower, OP_Mul, r, r), 1, false);
    const int products = emit2(lower, OP_Mul, r, emit_transpose(lower, r, (int64_t[]){0, 2, 1}));
    const int q = emit2(lower, OP_Sub,
                        emit2(lower, OP_Mul, emit_unsqueeze(lower, diagonal, 1), table(lower, k, k, eye)), products);
    struct rounds rounds = {.q = q, .diagonal = diagonal};
    rounds.p = emit_expand(lower, emit_like(lower, scores, 1 / (double)k), 2, (int64_t[]){n, k});
    for (int i = 0; i < ROUNDS; i++) run_round(lower, &rounds, k);
    return rounds.p;
}

/* Outputs of a machine without support vectors: one product per class. */
static int linear_machine(struct lower *lower, int x, const char *ints, int64_t classes, int transform) {
    const int rho = first_rho(lower);
    const int w =
        rho < 0 ? -1 : ml_floats(lower, "coefficients", 2, (int64_t[]){classes, lower_tensor(lower, x).dims[1]});
    if (w < 0) return -1;
    const int scores = emit2(lower, OP_Add, emit_matmul(lower, x, w, false, true), rho);
    lower->outputs[1] = ml_transformed(lower, scores, transform);
    if (classes != 2) return ml_pick_labels(lower, ints, ml_best(lower, scores));
    /* of two classes the second, if the largest score is positive enough */
    int n;
    bool positive = true;
    const float *given = lower_floats(lower, "coefficients", &n);
    for (int i = 0; i < n; i++) positive = positive && given[i] >= 0;
    const bool wants_proba = count(lower, "prob_a", true) > 0;
    const int most = emit_reduce_along(lower, OP_ReduceMax, scores, 1, false), best = ml_best(lower, scores);
    if (wants_proba) return ml_pick_labels(lower, ints, best);
    const int is_second = emit_with(lower, positive ? OP_GreaterOrEqual : OP_Greater, most, positive ? 0.5 : 0);
    const int64_t one = 1;
    return ml_pick_labels(lower, ints, emit3(lower, OP_Where, is_second, emit_ints(lower, 1, &one, 0, NULL), best));
}

static int pairs_of(struct lower *lower, int64_t classes, struct pairs *pairs) {
    int n;
    const int64_t *per_class = lower_ints(lower, "vectors_per_class", &n);
    *pairs = (struct pairs){.classes = classes, .n = classes * (classes - 1) / 2};
    if (classes > MOST_CLASSES)
        return lower_error(lower, 505, "%lld classes, but at most %d are supported", (long long)classes, MOST_CLASSES);
    if (n != classes || classes < 2)
        return lower_error(lower, 385, "vectors_per_class has %d value(s) for %lld classes", n, (long long)classes);
    for (int i = 0; i < n; i++) {
        if (per_class[i] < 0 || per_class[i] > INT32_MAX)
            return lower_error(lower, 385, "vectors_per_class is out of range");
        pairs->first[i + 1] = pairs->first[i] + per_class[i];
    }
    pairs->vectors = pairs->first[n];
    return 0;
}

int lower_svm_classifier(struct lower *lower) {
    static const char ints[] = "classlabels_ints";
    const int transform = ml_transform(lower, lower_text(lower, "post_transform"));
    const int64_t classes = transform < 0 ? -1 : ml_labels(lower, ints);
    const int x = classes < 0 ? -1 : ml_samples(lower, ml_score_type(lower));
    struct pairs pairs;
    if (x < 0) return -1;
    if (count(lower, "vectors_per_class", false) == 0) return linear_machine(lower, x, ints, classes, transform);
    if (pairs_of(lower, classes, &pairs) < 0) return -1;
    const int support =
        ml_floats(lower, "support_vectors", 2, (int64_t[]){pairs.vectors, lower_tensor(lower, x).dims[1]});
    const int weights = support < 0 ? -1 : weights_of_pairs(lower, &pairs);
    const int k = weights < 0 ? -1 : kernel(lower, x, support, lower_text(lower, "kernel_type"));
    const int rho = k < 0 ? -1 : ml_floats(lower, "rho", 1, &pairs.n);
    if (rho < 0) return -1;
    const int scores = emit2(lower, OP_Add, emit_matmul(lower, k, weights, false, false), rho);
    int z = scores;
    if (count(lower, "prob_a", true))
        z = ml_transformed(lower, probabilities(lower, &pairs, scores), transform);
    else if (pairs.n == 1)
        z = ml_both(lower, transform == ML_LOGISTIC ? emit1(lower, OP_Sigmoid, z) : z, transform == ML_NONE);
    else
        z = ml_transformed(lower, z, transform);
    lower->outputs[1] = z;
    return z < 0 ? -1 : ml_pick_labels(lower, ints, most_votes(lower, &pairs, scores));
}
