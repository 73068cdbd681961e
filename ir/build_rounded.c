/* Integers that arithmetic of floats on an open size gives: exporters write half of h as Cast(Floor(0.5 * h)). */
#include <math.h>

#include "ir/build.h"
#include "ir/expr/eval.h"

enum { DEEPEST = 24, MOST_RESULTS = 8, MOST_VALUES = 1 << 14, MOST_DIVISOR = 1000 };

/* Evaluates elements for one value of the open number that they depend on. */
struct rounded {
    struct graph *graph;
    int64_t base, value; /* base: the open number; 0: none was met yet */
    bool fails;
};

static double element(struct rounded *rounded, int id, int64_t at, int depth);

static double constant(struct rounded *rounded, const struct tensor *tensor, int64_t at) {
    const void *bytes = eval_bytes(rounded->graph, tensor);
    if (!bytes) return rounded->fails = true, 0;
    if (rt_dtype_is_float(tensor->dtype)) return eval_load(bytes, tensor->dtype, at).f;
    const int64_t number = eval_load(bytes, tensor->dtype, at).i;
    struct open_sizes *open = rounded->graph->open;
    if (!open_is(open, number)) return (double)number;
    const int64_t base = open_least(open, number) < 0 ? -number : number;
    if (!rounded->base) rounded->base = base;
    if (rounded->base != base) rounded->fails = true;
    return (double)(base == number ? rounded->value : -rounded->value);
}

static double add(double a, double b) {
    return a + b;
}
static double subtract(double a, double b) {
    return a - b;
}
static double multiply(double a, double b) {
    return a * b;
}
static double divide(double a, double b) {
    return a / b;
}
static double same(double a, double b) {
    (void)b;
    return a;
}
static double round_down(double a, double b) {
    (void)b;
    return floor(a);
}
static double round_up(double a, double b) {
    (void)b;
    return ceil(a);
}
static double round_even(double a, double b) {
    (void)b;
    return rint(a);
}

static const struct {
    enum op_id op;
    double (*of)(double a, double b);
} arithmetic[] = {{OP_Add, add},          {OP_Sub, subtract},  {OP_Mul, multiply},
                  {OP_Div, divide},       {OP_Cast, same},     {OP_Reshape, same},
                  {OP_Floor, round_down}, {OP_Ceil, round_up}, {OP_Round, round_even}};

static double apply(struct rounded *rounded, enum op_id op, double a, double b) {
    for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++)
        if (arithmetic[i].op == op) return arithmetic[i].of(a, b);
    return rounded->fails = true, 0;
}

/* Of a list that several others are joined to. */
static double of_list(struct rounded *rounded, const struct node *node, int64_t at, int depth) {
    for (int k = 0; k < node->ninputs; k++) {
        const struct tensor *part = &rounded->graph->tensors.at[node->inputs[k]];
        if (part->ndim != 1) break;
        if (at < part->dims[0]) return element(rounded, node->inputs[k], at, depth);
        at -= part->dims[0];
    }
    return rounded->fails = true, 0;
}

static double element(struct rounded *rounded, int id, int64_t at, int depth) {
    const struct tensor tensor = rounded->graph->tensors.at[id];
    if (!depth || rounded->fails) return rounded->fails = true, 0;
    if (tensor.kind == TENSOR_CONST) return constant(rounded, &tensor, at);
    const struct node *node = graph_producer(rounded->graph, id);
    if (!node) return rounded->fails = true, 0;
    if (node->op->id == OP_Concat) return of_list(rounded, node, at, depth - 1);
    double in[2] = {0};
    if (node->ninputs > 2) return rounded->fails = true, 0;
    for (int k = 0; k < (node->op->id == OP_Reshape ? 1 : node->ninputs); k++) {
        const int64_t n = tensor_elements(&rounded->graph->tensors.at[node->inputs[k]]);
        if (n != 1 && n != tensor_elements(&tensor)) rounded->fails = true;
        in[k] = element(rounded, node->inputs[k], n == 1 ? 0 : at, depth - 1);
    }
    const double result = apply(rounded, node->op->id, in[0], in[1]);
    if (!rt_dtype_is_float(tensor.dtype)) return trunc(result);
    return tensor.dtype == RT_F32 ? (double)(float)result : result;
}

/* The results for every value of the open number from its least on; NULL: too many, or another kind of arithmetic. */
static int64_t *all_results(struct rounded *rounded, int id, int64_t at, int64_t *n) {
    struct open_sizes *open = rounded->graph->open;
    rounded->base = rounded->value = 0;
    element(rounded, id, at, DEEPEST);
    if (rounded->fails || !rounded->base) return NULL;
    const int64_t least = open_least(open, rounded->base);
    *n = open_most(open, rounded->base) - least + 1;
    if (least < 0 || *n > MOST_VALUES) return NULL;
    int64_t *results = ARENA_ARRAY(rounded->graph->arena, int64_t, *n + 1);
    for (int64_t i = 0; i < *n; i++) {
        rounded->value = least + i;
        const double result = element(rounded, id, at, DEEPEST);
        if (rounded->fails || !(result >= 0 && result < 1 << 30)) return NULL;
        results[i] = (int64_t)result;
    }
    return results;
}

static bool is_quotient(const int64_t *results, int64_t n, int64_t least, int64_t times, int64_t more, int64_t by) {
    for (int64_t i = 0; i < n; i++)
        if (((least + i) * times + more) / by != results[i]) return false;
    return true;
}

/* Divides the results by the largest number that divides all of them, and returns it. */
static int64_t take_factor(int64_t *results, int64_t n) {
    int64_t factor = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t rest = results[i]; rest;) {
            const int64_t next = factor % rest;
            factor = rest, rest = next;
        }
    if (!factor) factor = 1;
    for (int64_t i = 0; i < n; i++) results[i] /= factor;
    return factor;
}

/* The open number factor ((times base + more) / by) that has all these values. False: there is none with a small
 * divisor. */
static bool find_quotient(struct rounded *rounded, int64_t *results, int64_t n, int64_t *number) {
    struct open_sizes *open = rounded->graph->open;
    const int64_t factor = take_factor(results, n);
    const int64_t least = open_least(open, rounded->base);
    const double slope = n > 1 ? (double)(results[n - 1] - results[0]) / (double)(n - 1) : 0;
    for (int64_t by = 1; by <= MOST_DIVISOR; by++)
        for (int64_t times = (int64_t)(slope * (double)by) - 1; times <= slope * (double)by + 1.5; times++) {
            const int64_t more[] = {0, by / 2, by - 1};
            for (int i = 0; times >= 0 && i < 3; i++) {
                if (!is_quotient(results, n, least, times, more[i], by)) continue;
                *number = factor * open_quotient(open, open_sum(open, times * rounded->base, more[i]), by);
                return true;
            }
        }
    return false;
}

const void *build_fold_rounded(struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    if (!graph->open || node->op->id != OP_Cast) return NULL;
    const struct tensor in = graph->tensors.at[node->inputs[0]], out = graph->tensors.at[node->outputs[0]];
    const int64_t n = tensor_elements(&out);
    if (rt_dtype_is_float(out.dtype) || rt_dtype_bytes(out.dtype) < 4 || !rt_dtype_is_float(in.dtype) ||
        n > MOST_RESULTS || in.kind == TENSOR_CONST)
        return NULL;
    int64_t values[MOST_RESULTS], count;
    for (int64_t i = 0; i < n; i++) {
        struct rounded rounded = {.graph = graph};
        int64_t *const results = all_results(&rounded, node->inputs[0], i, &count);
        if (!results || !find_quotient(&rounded, results, count, &values[i])) return NULL;
    }
    void *bytes = arena_alloc(graph->arena, (size_t)n + 1, rt_dtype_bytes(out.dtype));
    rt_convert(bytes, out.dtype, values, RT_I64, (size_t)n);
    return bytes;
}
