#include "ir/pattern.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/expr/eval.h"

bool about(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

bool constant_number(const struct graph *graph, int id, double *value) {
    const struct tensor *tensor = &graph->tensors.at[id];
    if (tensor->kind != TENSOR_CONST || tensor_elements(tensor) != 1 || !rt_dtype_is_float(tensor->dtype)) return false;
    *value = eval_load(tensor->data, tensor->dtype, 0).f;
    return true;
}

bool is_constant_number(const struct graph *graph, int id, double number) {
    const enum rt_dtype dtype = graph->tensors.at[id].dtype;
    unsigned char bits[sizeof(double)];
    double value, rounded;
    if (!constant_number(graph, id, &value)) return false;
    rt_convert(bits, dtype, &number, RT_F64, 1);
    rt_convert(&rounded, RT_F64, bits, dtype, 1);
    return value == rounded || about(value, number);
}

static const struct tensor *input(const struct graph *graph, const struct node *node) {
    return &graph->tensors.at[node->inputs[0]];
}

static const struct tensor *output(const struct graph *graph, const struct node *node) {
    return &graph->tensors.at[node->outputs[0]];
}

/* A mean over the last dimension, of extent N, which stays as extent 1: the sum times 1/N, or divided by N. */
static bool test_mean(const struct graph *graph, const struct node *node) {
    bool divides = node->op->id == OP_Div;
    for (int i = 0; i < 2 - divides; i++) {
        const struct node *sum = made_by(graph, node->inputs[i], OP_ReduceSum);
        int naxes = 0;
        const int64_t *axes = sum ? attr_ints(sum, "axes", &naxes) : NULL;
        if (naxes != 1 || !attr_int(sum, "keepdims", 1)) continue;
        const struct tensor *x = input(graph, sum);
        const double extent = (double)x->dims[x->ndim - 1];
        if (axes[0] == x->ndim - 1 && is_constant_number(graph, node->inputs[1 - i], divides ? extent : 1 / extent))
            return true;
    }
    return false;
}

static bool test_last(const struct graph *graph, const struct node *node) {
    return attr_int(node, "axis", -1) == input(graph, node)->ndim - 1;
}

/* A Slice of half of the last dimension, from `start` (-1: from the middle) in steps of `step`. */
static bool takes_half(const struct graph *graph, const struct node *node, int64_t start, int64_t step) {
    const struct tensor *x = input(graph, node);
    int n, last = x->ndim - 1;
    const int64_t *starts = attr_ints(node, "start", &n), *steps = attr_ints(node, "step", &n);
    const int64_t *sizes = attr_ints(node, "size", &n);
    if (n < 1 || x->dims[last] % 2 || sizes[last] != x->dims[last] / 2) return false;
    for (int d = 0; d < last; d++)
        if (starts[d] != 0 || steps[d] != 1 || sizes[d] != x->dims[d]) return false;
    return starts[last] == (start < 0 ? sizes[last] : start) && steps[last] == step;
}

static bool test_front(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, 0, 1);
}
static bool test_back(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, -1, 1);
}
static bool test_even(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, 0, 2);
}
static bool test_odd(const struct graph *graph, const struct node *node) {
    return takes_half(graph, node, 1, 2);
}

/* A Slice of all but the last element of the last dimension. */
static bool test_but_last(const struct graph *graph, const struct node *node) {
    const struct tensor *x = input(graph, node);
    int n, last = x->ndim - 1;
    const int64_t *starts = attr_ints(node, "start", &n), *steps = attr_ints(node, "step", &n);
    const int64_t *sizes = attr_ints(node, "size", &n);
    if (n < 1) return false;
    for (int d = 0; d < n; d++)
        if (starts[d] != 0 || steps[d] != 1 || sizes[d] != x->dims[d] - (d == last)) return false;
    return true;
}

static bool begins_alike(const struct tensor *a, const struct tensor *b, int n) {
    return a->ndim >= n && b->ndim >= n && memcmp(a->dims, b->dims, (size_t)n * sizeof *a->dims) == 0;
}

/* A Reshape of (.., c) to (.., c, 1). */
static bool test_column(const struct graph *graph, const struct node *node) {
    const struct tensor *x = input(graph, node), *y = output(graph, node);
    return y->ndim == x->ndim + 1 && begins_alike(x, y, x->ndim);
}

/* A Reshape of (.., c, 2) to (.., 2c). */
static bool test_flat(const struct graph *graph, const struct node *node) {
    const struct tensor *x = input(graph, node), *y = output(graph, node);
    return y->ndim == x->ndim - 1 && begins_alike(x, y, y->ndim - 1);
}

/* A Gather of whole slices along the first dimension. */
static bool test_rows(const struct graph *graph, const struct node *node) {
    (void)graph;
    return attr_int(node, "axis", 0) == 0;
}

/* A reduction over the last dimension, which stays as extent 1. */
static bool test_row(const struct graph *graph, const struct node *node) {
    int n;
    const int64_t *axes = attr_ints(node, "axes", &n);
    return n == 1 && axes[0] == input(graph, node)->ndim - 1 && attr_int(node, "keepdims", 1);
}

static const struct {
    const char *name;
    bool (*test)(const struct graph *graph, const struct node *node);
} tests[] = {{"mean", test_mean},         {"last", test_last}, {"front", test_front},   {"back", test_back},
             {"even", test_even},         {"odd", test_odd},   {"column", test_column}, {"flat", test_flat},
             {"but_last", test_but_last}, {"rows", test_rows}, {"row", test_row}};

static const struct {
    const char *name, *text;
} macros[] = {
    {"regrouped", "{@ | Reshape(@)}"},
    {"mean", "{Mul[mean](ReduceSum(@), #) | Div[mean](ReduceSum(@), #)}"},
    {"square", "{Pow(@, 2) | Mul(@, @)}"},
    {"cube", "{Pow(@, 3) | Mul(square(@), @)}"},
    {"half", "{Mul(@, 0.5) | Div(@, 2)}"},
    /* without epsilon where an exporter left out the addition of a small one (1e-8 of Helium) */
    {"variance", "{Add(mean(square(@)), epsilon#) | mean(square(@))}"},
    {"normed", "{Div(@, Sqrt(variance(@)))"
               "|Mul(@, {Div(1, Sqrt(variance(@))) | Reciprocal(Sqrt(variance(@))) | Pow(variance(@), -0.5)})}"},
    /* as ReduceLogSumExp is lowered: largest, the largest of a row, is 0 for an infinite one */
    {"logsumexp", "Add(Log(ReduceSum[row](Exp(Sub(@, largest)))), largest:Where(IsInf(m), 0, m:ReduceMax[row](@)))"},
    /* x @ / 2, in any order of the factors */
    {"gate", "{half(Mul(x, @)) | Mul(x, half(@)) | Mul(half(x), @)}"},
};

struct reader {
    struct arena *arena;
    const char *text, *at;
    struct pattern_fault *fault;    /* the first */
    const struct pattern *argument; /* of the macro whose text this is */
    bool shared;
};

/* Notes what is wrong at a place, and leaves nothing to read. */
static void fail_at(struct reader *r, const char *at, const char *why) {
    if (!r->fault->why) *r->fault = (struct pattern_fault){why, (size_t)(at - r->text)};
    r->at += strlen(r->at);
}

static void fail(struct reader *r, const char *why) {
    fail_at(r, r->at, why);
}

static const struct pattern *read_pattern(struct reader *r);

static char next(struct reader *r) {
    while (*r->at == ' ') r->at++;
    return *r->at;
}

static void expect(struct reader *r, char c) {
    if (next(r) == c)
        r->at++;
    else
        fail(r, arena_printf(r->arena, "'%c' is missing", c));
}

static const char *read_name(struct reader *r) {
    size_t n = 0;
    while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_') n++;
    const char *name = arena_copy(r->arena, r->at, n);
    r->at += n;
    return name;
}

static void read_children(struct reader *r, struct pattern *p, char separator, char end) {
    do {
        if (p->n == PATTERN_CHILDREN) {
            fail(r, "there are more than 4 parts");
            return;
        }
        p->child[p->n++] = read_pattern(r);
    } while (next(r) == separator && r->at++);
    expect(r, end);
}

static void read_test(struct reader *r, struct pattern *p) {
    const char *start = r->at, *name = read_name(r);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0) p->test = tests[i].test;
    if (p->test)
        expect(r, ']');
    else
        fail_at(r, start, arena_printf(r->arena, "there is no test '%s'", name));
}

static void read_operator(struct reader *r, struct pattern *p) {
    const char *start = r->at, *name = read_name(r);
    p->kind = PATTERN_OP;
    p->op = op_find(name);
    if (!p->op || p->op->kind == OP_COMM) {
        fail_at(r, start,
                *name ? arena_printf(r->arena, "there is no core operator '%s'", name)
                      : "an operator, a name, a number or # is missing");
        return;
    }
    if (next(r) == '[') {
        r->at++;
        read_test(r, p);
    }
    expect(r, '(');
    read_children(r, p, ',', ')');
}

static const struct pattern *expand_macro(struct reader *r, const char *name) {
    const struct pattern *argument;
    size_t i = 0;
    while (i < sizeof macros / sizeof *macros && strcmp(macros[i].name, name) != 0) i++;
    if (i == sizeof macros / sizeof *macros) {
        fail(r, arena_printf(r->arena, "there is no macro '%s'", name));
        return ARENA_NEW(r->arena, struct pattern);
    }
    expect(r, '(');
    argument = read_pattern(r);
    expect(r, ')');
    return read_pattern(&(struct reader){r->arena, macros[i].text, macros[i].text, r->fault, argument, r->shared});
}

/* A term that begins with a small letter: a label, a macro, a tensor or a scalar. */
static const struct pattern *read_named(struct reader *r, struct pattern *p) {
    const char *name = read_name(r);
    if (next(r) == '(') return expand_macro(r, name);
    if (*r->at == ':') {
        r->at++;
        struct pattern *labelled = arena_copy(r->arena, read_pattern(r), sizeof *p);
        labelled->name = name;
        return labelled;
    }
    p->kind = *r->at == '#' ? PATTERN_SCALAR : PATTERN_TENSOR;
    p->name = name;
    r->at += *r->at == '#';
    return p;
}

static const struct pattern *read_shared(struct reader *r) {
    const bool before = r->shared;
    r->at++;
    r->shared = true;
    const struct pattern *p = read_pattern(r);
    r->shared = before;
    return p;
}

static const struct pattern *read_pattern(struct reader *r) {
    struct pattern *p = ARENA_NEW(r->arena, struct pattern);
    char c = next(r);
    p->shared = r->shared;
    if (c == '&') return read_shared(r);
    if (islower((unsigned char)c)) return read_named(r, p);
    if (c == '@' && r->argument) return r->at++, r->argument;
    if (c == '{') {
        r->at++;
        p->kind = PATTERN_EITHER;
        read_children(r, p, '|', '}');
    } else if (c == '#') {
        r->at++;
        p->kind = PATTERN_SCALAR;
    } else if (isdigit((unsigned char)c) || c == '-') {
        p->kind = PATTERN_NUMBER;
        p->number = strtod(r->at, (char **)&r->at);
    } else {
        read_operator(r, p);
    }
    return p;
}

const struct pattern *pattern_read(struct arena *arena, const char *text, struct pattern_fault *fault) {
    *fault = (struct pattern_fault){0};
    struct reader reader = {arena, text, text, fault, NULL, false};
    const struct pattern *pattern = read_pattern(&reader);
    if (next(&reader)) fail(&reader, "this is left over behind the pattern");
    return fault->why ? NULL : pattern;
}

const struct pattern *pattern_parse(struct arena *arena, const char *text) {
    struct pattern_fault fault;
    const struct pattern *pattern = pattern_read(arena, text, &fault);
    if (!pattern) BUG("pattern: %s at '%s'", fault.why, text + fault.at);
    return pattern;
}
