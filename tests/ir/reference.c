#include "tests/ir/reference.h"

#include <math.h>
#include <string.h>

#include "ir/expr/eval.h"

/* One run of an operator along a dimension: n values at x, stride apart; results at y, alike. */
struct line {
    const double *x;
    double *y;
    const double *scale, *bias;
    int64_t n, stride;
    double epsilon;
};

static double at(const struct line *line, int64_t i) {
    return line->x[i * line->stride];
}

static double largest(const struct line *line) {
    double most = -INFINITY;
    for (int64_t i = 0; i < line->n; i++) most = fmax(most, at(line, i));
    return most;
}

static double sum_of_exponentials(const struct line *line) {
    double sum = 0;
    for (int64_t i = 0; i < line->n; i++) sum += exp(at(line, i) - largest(line));
    return sum;
}

static void softmax(const struct line *line) {
    for (int64_t i = 0; i < line->n; i++)
        line->y[i * line->stride] = exp(at(line, i) - largest(line)) / sum_of_exponentials(line);
}

static void log_softmax(const struct line *line) {
    for (int64_t i = 0; i < line->n; i++)
        line->y[i * line->stride] = at(line, i) - largest(line) - log(sum_of_exponentials(line));
}

static double mean_square(const struct line *line, double mean) {
    double sum = 0;
    for (int64_t i = 0; i < line->n; i++) sum += (at(line, i) - mean) * (at(line, i) - mean);
    return sum / (double)line->n;
}

static void normalize(const struct line *line, double mean) {
    double scale = 1 / sqrt(mean_square(line, mean) + line->epsilon);
    for (int64_t i = 0; i < line->n; i++)
        line->y[i * line->stride] = (at(line, i) - mean) * scale * line->scale[i] + (line->bias ? line->bias[i] : 0);
}

static void layer_norm(const struct line *line) {
    double sum = 0;
    for (int64_t i = 0; i < line->n; i++) sum += at(line, i);
    normalize(line, sum / (double)line->n);
}

static void rms_norm(const struct line *line) {
    normalize(line, 0);
}

static const struct {
    enum op_id op;
    void (*run)(const struct line *line);
} along[] = {{OP_Softmax, softmax}, {OP_LogSoftmax, log_softmax}, {OP_LayerNorm, layer_norm}, {OP_RMSNorm, rms_norm}};
enum { ALONG = sizeof along / sizeof *along };

static int row_of(const struct op *op) {
    for (int i = 0; i < ALONG; i++)
        if (along[i].op == op->id) return i;
    return -1;
}

static bool is_arg(const struct op *op) {
    return strncmp(op->name, "Arg", 3) == 0;
}

/* Which elements are dropped follows from their places in the whole, which parts are not told here: none are. */
static const void *reference_dropout(struct graph *graph, const struct node *node) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]];
    const double *from = x->data, scale = 1 / (1 - attr_float(node, "ratio", 0));
    double *y = ARENA_ARRAY(graph->arena, double, tensor_elements(x) + 1);
    for (int64_t i = 0; i < tensor_elements(x); i++) y[i] = from[i] * scale;
    return y;
}

/* The gradient of a score is of the sum over terms of term times dy. */
static const void *reference_class_terms(struct graph *graph, const struct node *node) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]], *class = &graph->tensors.at[node->inputs[2]];
    const double *from = x->data, *most = graph->tensors.at[node->inputs[1]].data;
    const double *dy = node->ninputs > 3 ? graph->tensors.at[node->inputs[3]].data : NULL;
    const int64_t n = x->dims[attr_int(node, "axis", 0)], plane = tensor_elements(class), all = tensor_elements(x);
    int64_t inner = 1;
    for (int d = (int)attr_int(node, "axis", 0) + 1; d < x->ndim; d++) inner *= x->dims[d];
    double *y = ARENA_ARRAY(graph->arena, double, 3 * plane + 1), *dx = ARENA_ARRAY(graph->arena, double, all + 1);
    for (int64_t i = 0; i < all; i++) {
        const int64_t line = i / (n * inner) * inner + i % inner;
        const bool own = eval_load(class->data, class->dtype, line).i == i / inner % n;
        const double distance = from[i] - most[line];
        y[line] += exp(distance);
        y[plane + line] += own ? distance : 0;
        y[2 * plane + line] += distance;
        dx[i] = dy ? exp(distance) * dy[line] + (own ? dy[plane + line] : 0) + dy[2 * plane + line] : 0;
    }
    return dy ? dx : y;
}

static const struct {
    enum op_id op;
    const void *(*eval)(struct graph *graph, const struct node *node);
} others[] = {{OP_Attention, reference_attention},
              {OP_Rope, reference_rope},
              {OP_Dropout, reference_dropout},
              {OP_ClassTerms, reference_class_terms},
              {OP_ClassTermsGrad, reference_class_terms}};
enum { OTHERS = sizeof others / sizeof *others };

static int other_of(const struct op *op) {
    for (int i = 0; i < OTHERS; i++)
        if (others[i].op == op->id) return i;
    return -1;
}

bool reference_can(const struct op *op) {
    return row_of(op) >= 0 || other_of(op) >= 0 || is_arg(op);
}

static const void *data_of(const struct graph *graph, const struct node *node, int i) {
    return i < node->ninputs && node->inputs[i] >= 0 ? graph->tensors.at[node->inputs[i]].data : NULL;
}

static const void *eval_along(struct graph *graph, const struct node *node, int row) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]];
    int axis = (int)attr_int(node, "axis", x->ndim - 1);
    int64_t outer = 1, inner = 1, n = x->dims[axis];
    double *y = ARENA_ARRAY(graph->arena, double, tensor_elements(x) + 1);
    for (int d = 0; d < axis; d++) outer *= x->dims[d];
    for (int d = axis + 1; d < x->ndim; d++) inner *= x->dims[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            along[row].run(&(struct line){.x = (const double *)x->data + o * n * inner + i,
                                          .y = y + o * n * inner + i,
                                          .scale = data_of(graph, node, 1),
                                          .bias = data_of(graph, node, 2),
                                          .n = n,
                                          .stride = inner,
                                          .epsilon = attr_float(node, "epsilon", 1e-5)});
    return y;
}

/* The place of the largest or smallest of n values, the first or the last of equals. */
static int64_t place_of_best(const struct tensor *x, int64_t first, int64_t n, int64_t stride, bool most, bool last) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        struct number a = eval_load(x->data, x->dtype, first + i * stride);
        struct number b = eval_load(x->data, x->dtype, first + best * stride);
        double difference = a.is_float ? a.f - b.f : (double)(a.i - b.i);
        if (most ? difference > 0 : difference < 0)
            best = i;
        else if (last && difference == 0)
            best = i;
    }
    return best;
}

/* Over one axis. */
static const void *eval_arg(struct graph *graph, const struct node *node) {
    const struct tensor *x = &graph->tensors.at[node->inputs[0]];
    int naxes;
    const int64_t *axes = attr_ints(node, "axes", &naxes);
    int64_t outer = 1, inner = 1, n = x->dims[axes[0]];
    bool most = node->op->id == OP_ArgMax, last = attr_int(node, "select_last", 0);
    for (int d = 0; d < axes[0]; d++) outer *= x->dims[d];
    for (int d = (int)axes[0] + 1; d < x->ndim; d++) inner *= x->dims[d];
    int64_t *y = ARENA_ARRAY(graph->arena, int64_t, outer * inner + 1);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            y[o * inner + i] = place_of_best(x, o * n * inner + i, n, inner, most, last);
    return y;
}

const void *reference_eval(struct graph *graph, const struct node *node) {
    if (other_of(node->op) >= 0) return others[other_of(node->op)].eval(graph, node);
    return is_arg(node->op) ? eval_arg(graph, node) : eval_along(graph, node, row_of(node->op));
}
