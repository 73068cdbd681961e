/* Gradients against finite differences, for every differentiable row.
 *
 * The nodes are those of tests/programs/opcheck/samples.def, in f64. With r random, the change of sum(y r) as an input
 * element moves by h is, by the central difference, what the gradient of that element must be for dy = r. Its own error
 * is about h^2 (the third derivative) plus eps / h (cancellation): with h = 1e-5 both are near 1e-10 of the values at
 * hand, and the bound is a thousand times that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/expr/eval.h"
#include "ir/gradient.h"
#include "ir/text.h"
#include "tests/ir/kernel_reference.h"
#include "tests/ir/random.h"
#include "tests/ir/reference.h"
#include "tests/test.h"

static const double step = 1e-5, bound = 1e-7;

struct sample {
    const char *op, *inputs, *attributes;
};

static const struct sample samples[] = {
#define SAMPLE(op, inputs, attributes)            {#op, inputs, attributes},
#define RESULTS(op, nresults, inputs, attributes) SAMPLE(op, inputs, attributes)
#define ON_CPUS                                   RESULTS
#include "tests/programs/opcheck/samples.def"
#undef SAMPLE
#undef ON_CPUS
#undef RESULTS
};
enum { NSAMPLES = sizeof samples / sizeof *samples, MAX_INPUTS = 8 };

/* The node on inputs that are constants of the test's own. */
struct trial {
    struct arena arena;
    struct graph *graph;
    struct diags diags;
    int node, output, ninputs, inputs[MAX_INPUTS];
};

/* The sample as IR text, floats as f64; false if a part of it is not for gradients. */
static bool write_text(struct strbuf *out, const struct sample *sample) {
    char arguments[128] = "";
    int n = 0;
    if (strstr(sample->inputs, ":special") || strcmp(sample->op, "Cast") == 0) return false;
    strbuf_puts(out, "rankc-ir 1\ngraph \"gradient\" level=TYPED\n");
    for (const char *at = sample->inputs; *at; n++) {
        size_t length = strcspn(at, " "), type = strcspn(at, "["), shape = strcspn(at, ":= ");
        bool index = strncmp(at, "i64", 3) == 0 || strncmp(at, "i32", 3) == 0 || *at == 'I',
             flag = strncmp(at, "bool", 4) == 0,
             code =
                 *at == 'u' || strncmp(at, "i8", 2) == 0 || strncmp(at, "bf16", 4) == 0 || strncmp(at, "fp16", 4) == 0;
        sprintf(arguments + strlen(arguments), *at == '_' ? "%s_" : "%s%%%d", n ? ", " : "", n);
        const char *dtype = code ? at : index ? "i64" : flag ? "bool" : "f64";
        if (*at != '_')
            strbuf_printf(out, "input %%%d \"%.*s\" %.*s%.*s\n", n, (int)length, at, (int)(code ? type : strlen(dtype)),
                          dtype, (int)(shape - type), at + type);
        at += length + strspn(at + length, " ");
    }
    strbuf_printf(out, "%%%d \"y\" = %s(%s) %s\noutput %%%d \"y\"\n", n, sample->op, arguments, sample->attributes, n);
    return true;
}

/* A value as the qualifier of the input ("F[3]:pos") wants it. */
static double value_for(const char *spec, struct random *random) {
    double u = (double)(random_bits(random) >> 11) / 9007199254740992.0; /* [0, 1) */
    const char *at = strstr(spec, ":at"), *equals = strchr(spec, '='), *classes = strstr(spec, ":classes");
    if (equals) return strtod(equals + 1, NULL);
    if (classes) return floor(u * atoi(classes + 8));
    if (at) return floor(u * 2 * atoi(at + 3)) - atoi(at + 3);
    if (strstr(spec, ":unit")) return 1.8 * u - 0.9;
    if (strstr(spec, ":pos")) return 0.1 + 3 * u;
    if (strstr(spec, ":ge1")) return 1.1 + 3 * u;
    if (strstr(spec, ":nonzero")) return (u < 0.5 ? -1 : 1) * (0.5 + u);
    if (strncmp(spec, "bool", 4) == 0) return u < 0.5;
    return 4 * u - 2;
}

/* Indices that differ: along both dimensions (":rows5", ":cols7"), or as rows into the first dimensions of a shape
 * (":tops3x5"). NULL if the input does not say so. */
static const char *differing(const char *spec) {
    const char *mark = strchr(spec, ':');
    bool differ = mark && (!strncmp(mark, ":rows", 5) || !strncmp(mark, ":cols", 5) || !strncmp(mark, ":tops", 5));
    return differ ? mark + 1 : NULL;
}

static int64_t differing_index(const char *how, int64_t row, int64_t column) {
    int64_t extent[RT_MAX_NDIM], total = 1, n = 0;
    for (const char *at = how + 4; *at; at += *at == 'x') {
        char *end;
        total *= extent[n++] = strtol(at, &end, 10);
        at = end;
    }
    if (*how != 't') return (row + column) % total;
    int64_t place = row * 7 % total; /* 7 divides none of the shapes */
    while (--n > column) place /= extent[n];
    return place % extent[n];
}

static void fill(struct tensor *tensor, struct arena *arena, struct random *random) {
    unsigned char *data = arena_alloc(arena, (size_t)tensor_bytes(tensor) + 1, 1);
    const char *how = differing(tensor->name);
    for (int64_t i = 0; i < tensor_elements(tensor); i++) {
        double value = how ? (double)differing_index(how, i / tensor->dims[1], i % tensor->dims[1])
                           : value_for(tensor->name, random);
        eval_store(data, tensor->dtype, i, (struct number){rt_dtype_is_float(tensor->dtype), value, (int64_t)value});
    }
    tensor->data = data;
    tensor->kind = TENSOR_CONST;
}

static bool open_trial(struct trial *t, const struct sample *sample, struct random *random) {
    struct strbuf text;
    arena_init(&t->arena, 0, NULL);
    diags_init(&t->diags, &t->arena);
    strbuf_init(&text, &t->arena);
    if (!write_text(&text, sample)) return false;
    if (text_parse(&t->arena, &t->diags, sample->op, strbuf_text(&text), text.length, &t->graph) < 0) {
        diags_print(&t->diags, stderr, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_ERROR);
        fail_msg("%s %s", sample->op, sample->inputs);
    }
    t->ninputs = t->graph->inputs.n;
    for (int i = 0; i < t->ninputs; i++) {
        t->inputs[i] = t->graph->inputs.at[i];
        fill(&t->graph->tensors.at[t->inputs[i]], &t->arena, random);
    }
    t->node = t->graph->order.at[0];
    t->output = t->graph->nodes.at[t->node].outputs[0];
    return rt_dtype_is_float(t->graph->tensors.at[t->output].dtype);
}

/* Bytes of a result of a node of constants. */
static const void *result_of(struct trial *t, int id, int tensor) {
    const struct node node = t->graph->nodes.at[id];
    int result = 0;
    if (kernel_reference_can(node.op)) {
        while (node.outputs[result] != tensor) result++;
        return kernel_reference(t->graph, &node, result);
    }
    return eval_can(node.op) ? eval_node(t->graph, id) : reference_eval(t->graph, &node);
}

/* Bytes of a tensor, its producers evaluated first. */
static const double *values_of(struct trial *t, int tensor) {
    int producer = t->graph->tensors.at[tensor].producer;
    if (t->graph->tensors.at[tensor].kind != TENSOR_VALUE) return t->graph->tensors.at[tensor].data;
    const struct node node = t->graph->nodes.at[producer];
    for (int k = 0; k < node.ninputs; k++) {
        if (node.inputs[k] < 0 || t->graph->tensors.at[node.inputs[k]].kind != TENSOR_VALUE) continue;
        const double *values = values_of(t, node.inputs[k]);
        t->graph->tensors.at[node.inputs[k]].data = values;
        t->graph->tensors.at[node.inputs[k]].kind = TENSOR_CONST;
    }
    const void *data = result_of(t, producer, tensor);
    assert_non_null(data);
    return data;
}

static double weighted_sum(struct trial *t, const double *weights) {
    const double *y = result_of(t, t->node, t->output);
    double sum = 0;
    assert_non_null(y);
    for (int64_t i = 0; i < tensor_elements(&t->graph->tensors.at[t->output]); i++) sum += y[i] * weights[i];
    return sum;
}

static void check_input(struct trial *t, const struct sample *sample, int input, const double *dx,
                        const double *weights) {
    struct tensor *x = &t->graph->tensors.at[input];
    double *data = (double *)(uintptr_t)x->data;
    for (int64_t i = 0; i < tensor_elements(x); i++) {
        const double old = data[i];
        data[i] = old + step;
        double more = weighted_sum(t, weights);
        data[i] = old - step;
        double difference = (more - weighted_sum(t, weights)) / (2 * step), gradient = dx ? dx[i] : 0;
        data[i] = old;
        if (fabs(difference - gradient) <= bound * (1 + fabs(difference))) continue;
        fail_msg("%s %s %s: element %lld of %s has gradient %.12g, differences give %.12g", sample->op, sample->inputs,
                 sample->attributes, (long long)i, x->name, gradient, difference);
    }
}

/* RoiPool has no gradient of its regions, as in torchvision, and quantised weights have none. */
static bool is_fixed(const struct node *node, int input) {
    return input > 0 &&
           (node->op->id == OP_RoiPool ? input == 1
                                       : node->op->id == OP_DequantMatMul || node->op->id == OP_DequantExpertMatMul);
}

static void check_sample(const struct sample *sample, struct random *random) {
    struct trial t = {0};
    if (!open_trial(&t, sample, random)) return arena_free(&t.arena);
    bool wanted[MAX_INPUTS] = {false};
    int dx[MAX_INPUTS];
    const struct node node = t.graph->nodes.at[t.node];
    struct tensor dy = t.graph->tensors.at[t.output];
    dy.name = "dy";
    fill(&dy, &t.arena, random);
    /* The forward result is a constant too, so that all of the gradient can be evaluated. */
    t.graph->tensors.at[t.output].data = values_of(&t, t.output);
    t.graph->tensors.at[t.output].kind = TENSOR_CONST;
    for (int k = 0; k < node.ninputs; k++)
        wanted[k] = node.inputs[k] >= 0 && t.graph->tensors.at[node.inputs[k]].dtype == RT_F64 &&
                    !strchr(t.graph->tensors.at[node.inputs[k]].name, '=') && !is_fixed(&node, k);
    struct gradient gradient = {.node = node, .wanted = wanted, .dx = dx, .builder = {t.graph, &t.diags, "gradient"}};
    gradient.dy = graph_add_const(t.graph, "dy", RT_F64, dy.ndim, dy.dims, dy.data);
    if (gradient_make(&gradient) < 0) {
        diags_print(&t.diags, stderr, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_ERROR);
        fail_msg("%s", sample->op);
    }
    for (int k = 0; k < node.ninputs; k++)
        if (wanted[k]) check_input(&t, sample, node.inputs[k], dx[k] < 0 ? NULL : values_of(&t, dx[k]), dy.data);
    arena_free(&t.arena);
}

static bool differentiates(const struct op *op) {
    return op->gradient || op->grad;
}

static int operands_of(const struct sample *sample) {
    int n = 1;
    for (const char *at = sample->inputs; (at = strchr(at, ' ')); at++) n++;
    return n;
}

/* Its result is its input, and yet no gradient flows; or it is a form that has none. */
static bool detaches(const struct op *op, const struct sample *sample) {
    if (op->id == OP_Recurrence && operands_of(sample) > 5) return true; /* quantised */
    return op->id == OP_Detach || op->id == OP_Whole ||
           (op->id == OP_RoiPool && !strstr(sample->attributes, "\"avg\""));
}

TEST(test_gradients_are_the_limits_of_differences) {
    struct random random = {7};
    for (int i = 0; i < NSAMPLES; i++) {
        const struct op *op = op_named(samples[i].op);
        if (differentiates(op) && !detaches(op, &samples[i])) check_sample(&samples[i], &random);
    }
}

TEST(test_every_differentiable_row_has_a_sample) {
    for (int i = 0; i < NOPS; i++) {
        int k = 0;
        while (k < NSAMPLES && strcmp(samples[k].op, ops[i].name) != 0) k++;
        if (strcmp(ops[i].name, "FlashAttention") == 0) continue; /* not in f64: tests/cuda/attention.py */
        if (differentiates(&ops[i]) && k == NSAMPLES) fail_msg("no sample of %s", ops[i].name);
    }
}

/* Rows without a gradient give no floats, or are made by passes that come after autodiff or with it. Bits have no
 * derivative; scatters that multiply or compare are not differentiated, and neither is linear attention. */
TEST(test_rows_are_differentiable) {
    static const char *const later[] = {
        /* of gradients */
        "ConvWeightGrad", "MaxPoolGrad", "GatherGrad", "ExpertWeightGrad", "FlashAttentionGrad", "RingAttentionGrad",
        "ClassTermsGrad", "CumProdGrad", "DetGrad", "SampleGrad", "SamplePointsGrad", "LinearAttentionGrad",
        "RoiPoolGrad", "RecurrenceGrad",
        /* made by passes */
        "Fused", "Attention", "SumSquares", "AddSquares", "ReducePair", "RingAttention", "Accumulate", "Append",
        "Quantize", "QuantizeBlocks", "DequantizeBlocks", "ScaledMatMul", "Rows", "Columns",
        /* of bits and integers */
        "BitCast", "Uniform", "Unpack", "IntMatMul", "IntConv", "IntMaxPool"};
    for (int i = 0; i < NOPS; i++) {
        size_t k = 0;
        const char *result = strstr(ops[i].types, "->") + 2;
        while (k < sizeof later / sizeof *later && strcmp(later[k], ops[i].name) != 0) k++;
        bool exempt = k < sizeof later / sizeof *later || *result == 'b' || *result == 'l' || *result == 'Z';
        if (ops[i].kind != OP_COMM && exempt == differentiates(&ops[i])) fail_msg("%s", ops[i].name);
    }
}

/* What sums to whole gradients where others saw it fail: relu at 0, equal operands of Max, repeated indices. */
static void check_value(const char *text, const double *x, int n, const double *expected) {
    struct trial t = {0};
    bool wanted[MAX_INPUTS] = {true, false};
    int dx[MAX_INPUTS];
    arena_init(&t.arena, 0, NULL);
    diags_init(&t.diags, &t.arena);
    assert_int_equal(text_parse(&t.arena, &t.diags, "value", text, strlen(text), &t.graph), 0);
    t.node = t.graph->order.at[0];
    const struct node node = t.graph->nodes.at[t.node];
    struct tensor *in = &t.graph->tensors.at[node.inputs[0]];
    in->kind = TENSOR_CONST;
    in->data = x;
    t.output = node.outputs[0];
    t.graph->tensors.at[t.output].data = values_of(&t, t.output);
    t.graph->tensors.at[t.output].kind = TENSOR_CONST;
    struct tensor y = t.graph->tensors.at[t.output];
    double *ones = ARENA_ARRAY(&t.arena, double, tensor_elements(&y));
    for (int64_t i = 0; i < tensor_elements(&y); i++) ones[i] = 1;
    struct gradient gradient = {.node = node, .wanted = wanted, .dx = dx, .builder = {t.graph, &t.diags, "gradient"}};
    gradient.dy = graph_add_const(t.graph, "dy", RT_F64, y.ndim, y.dims, ones);
    assert_int_equal(gradient_make(&gradient), 0);
    const double *got = values_of(&t, dx[0]);
    for (int i = 0; i < n; i++)
        if (got[i] != expected[i]) fail_msg("%s: element %d is %g, not %g", text, i, got[i], expected[i]);
    arena_free(&t.arena);
}

#define HEAD "rankc-ir 1\ngraph \"g\" level=TYPED\n"

/* PyTorch 1.13: relu(0)' = 0, abs(0)' = 0, maximum(x, x) halves, amax shares among equals, max_pool takes the first of
 * equals, a product without its only zero is that of the rest, rows of an embedding sum, and scatter_reduce shares
 * among equals and multiplies the others. */
TEST(test_kinks_are_those_of_pytorch) {
    check_value(HEAD "input %0 \"x\" f64[3]\n%1 \"y\" = Relu(%0)\noutput %1 \"y\"\n", (double[]){-1, 0, 2}, 3,
                (double[]){0, 0, 1});
    check_value(HEAD "input %0 \"x\" f64[3]\n%1 \"y\" = Abs(%0)\noutput %1 \"y\"\n", (double[]){-1, 0, 2}, 3,
                (double[]){-1, 0, 1});
    check_value(HEAD
                "input %0 \"x\" f64[3]\nconst %1 \"b\" f64[3] = [-1, 0, 3]\n%2 \"y\" = Max(%0, %1)\noutput %2 \"y\"\n",
                (double[]){-1, 2, 2}, 3, (double[]){0.5, 1, 0});
    check_value(HEAD "input %0 \"x\" f64[3]\n%1 \"y\" = ReduceMax(%0) axes=[0] keepdims=0\noutput %1 \"y\"\n",
                (double[]){4, 2, 4}, 3, (double[]){0.5, 0, 0.5});
    check_value(HEAD "input %0 \"x\" f64[3]\n%1 \"y\" = ReduceProd(%0) axes=[0] keepdims=0\noutput %1 \"y\"\n",
                (double[]){2, 0, 3}, 3, (double[]){0, 6, 0});
    check_value(HEAD "input %0 \"x\" f64[3]\n%1 \"y\" = ReduceProd(%0) axes=[0] keepdims=0\noutput %1 \"y\"\n",
                (double[]){0, 5, 0}, 3, (double[]){0, 0, 0});
    check_value(HEAD "input %0 \"x\" f64[1,1,5]\n%1 \"y\" = MaxPool(%0) window=[3] stride=[1] dilation=[1] begin=[0] "
                     "end=[0]\noutput %1 \"y\"\n",
                (double[]){2, 3, 3, 1, 3}, 5, (double[]){0, 2, 1, 0, 0});
    check_value(HEAD "input %0 \"x\" f64[2,1]\nconst %1 \"i\" i64[3] = [1, -1, 1]\n%2 \"y\" = Gather(%0, %1) axis=0\n"
                     "output %2 \"y\"\n",
                (double[]){5, 6}, 2, (double[]){0, 3});
    check_value(HEAD
                "input %0 \"x\" f64[3]\nconst %1 \"i\" i64[4] = [0, 0, 1, 1]\nconst %2 \"u\" f64[4] = [2, 2, 1, 5]\n"
                "%3 \"y\" = ScatterElementsMax(%0, %1, %2) axis=0\noutput %3 \"y\"\n",
                (double[]){2, 3, 4}, 3, (double[]){1.0 / 3, 0, 1});
    check_value(HEAD
                "input %0 \"x\" f64[3]\nconst %1 \"i\" i64[4] = [0, 0, 1, 1]\nconst %2 \"u\" f64[4] = [2, 3, 0, 5]\n"
                "%3 \"y\" = ScatterElementsMul(%0, %1, %2) axis=0\noutput %3 \"y\"\n",
                (double[]){0, 3, 4}, 3, (double[]){6, 0, 1});
}

int main(void) {
    return run_all_tests("gradient", NULL, NULL);
}
