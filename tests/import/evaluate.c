#include "tests/import/evaluate.h"

#include <math.h>
#include <string.h>

#include "ir/expr/eval.h"
#include "ir/op.h"
#include "tests/ir/reference.h"

/* Which nodes the outputs depend on, and which tensors those and the outputs read. */
static bool *find_live(const struct graph *graph, struct arena *arena, bool *read) {
    bool *live = ARENA_ARRAY(arena, bool, graph->nodes.n + 1);
    for (int i = 0; i < graph->outputs.n; i++) read[graph->outputs.at[i]] = true;
    for (int i = graph->order.n - 1; i >= 0; i--) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->noutputs; k++)
            if (node->outputs[k] >= 0 && read[node->outputs[k]]) live[graph->order.at[i]] = true;
        for (int k = 0; k < node->ninputs && live[graph->order.at[i]]; k++)
            if (node->inputs[k] >= 0) read[node->inputs[k]] = true;
    }
    return live;
}

int count_live(const struct graph *graph) {
    struct arena arena;
    arena_init(&arena, 0, NULL);
    const bool *live = find_live(graph, &arena, ARENA_ARRAY(&arena, bool, graph->tensors.n + 1));
    int count = 0;
    for (int i = 0; i < graph->order.n; i++) count += live[graph->order.at[i]];
    arena_free(&arena);
    return count;
}

/* Operators without an evaluator, and products, which deserve a faster one: on doubles ----------------------------- */

struct call {
    struct graph *graph;
    const struct node *node;
    const struct tensor *x, *y;
    const double *in[6]; /* NULL where left out */
    double *out;
};

static const double *as_doubles(struct graph *graph, const struct tensor *tensor) {
    int64_t n = tensor_elements(tensor);
    double *values = ARENA_ARRAY(graph->arena, double, n + 1);
    rt_convert(values, RT_F64, eval_bytes(graph, tensor), tensor->dtype, (size_t)n);
    return values;
}

static int64_t product(const struct tensor *tensor, int first, int end) {
    int64_t n = 1;
    for (int d = first; d < end; d++) n *= tensor->dims[d];
    return n;
}

static void run_matmul(struct call *call) {
    const struct tensor *a = call->x, *b = &call->graph->tensors.at[call->node->inputs[1]], *y = call->y;
    bool ta = attr_int(call->node, "trans_a", 0), tb = attr_int(call->node, "trans_b", 0);
    int64_t m = y->dims[y->ndim - 2], n = y->dims[y->ndim - 1], k = a->dims[a->ndim - (ta ? 2 : 1)];
    int64_t batch = product(y, 0, y->ndim - 2), b_stride = b->ndim > 2 ? k * n : 0;
    for (int64_t i = 0; i < batch; i++)
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++) {
                const double *pa = call->in[0] + i * m * k, *pb = call->in[1] + i * b_stride;
                double sum = 0;
                for (int64_t j = 0; j < k; j++) sum += pa[ta ? j * m + r : r * k + j] * pb[tb ? c * k + j : j * n + c];
                call->out[(i * m + r) * n + c] = sum;
            }
}

/* Softmax or its logarithm of n elements, `stride` apart. */
static void softmax_line(const double *x, double *y, int64_t n, int64_t stride, bool logarithm) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, x[i * stride]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i * stride] - most);
    for (int64_t i = 0; i < n; i++) {
        double shifted = x[i * stride] - most;
        y[i * stride] = logarithm ? shifted - log(sum) : exp(shifted) / sum;
    }
}

static void run_softmax(struct call *call) {
    int axis = (int)attr_int(call->node, "axis", 0);
    int64_t outer = product(call->x, 0, axis), n = call->x->dims[axis],
            inner = product(call->x, axis + 1, call->x->ndim);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t q = 0; q < inner; q++)
            softmax_line(call->in[0] + o * n * inner + q, call->out + o * n * inner + q, n, inner,
                         call->node->op->name[0] == 'L');
}

static void run_norm(struct call *call) {
    bool centre = call->node->op->name[0] == 'L';
    int64_t n = call->x->dims[call->x->ndim - 1], rows = product(call->x, 0, call->x->ndim - 1);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = call->in[0] + r * n;
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n && centre; i++) mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            call->out[r * n + i] =
                (x[i] - mean) / sqrt(square + attr_float(call->node, "epsilon", 0)) * call->in[1][i] +
                (call->in[2] ? call->in[2][i] : 0);
    }
}

static void run_arg(struct call *call) {
    int n;
    int axis = (int)attr_ints(call->node, "axes", &n)[0];
    bool last = attr_int(call->node, "select_last", 0), most = call->node->op->id == OP_ArgMax;
    int64_t outer = product(call->x, 0, axis), extent = call->x->dims[axis],
            inner = product(call->x, axis + 1, call->x->ndim);
    for (int64_t o = 0; o < outer * inner; o++) {
        const double *x = call->in[0] + o / inner * extent * inner + o % inner;
        int64_t at = 0;
        for (int64_t i = 1; i < extent; i++) {
            double better = (x[i * inner] - x[at * inner]) * (most ? 1 : -1);
            if (better > 0 || (last && better == 0)) at = i;
        }
        call->out[o] = (double)at;
    }
}

static void run_attention(struct call *call) {
    memcpy(call->out, reference_attention(call->graph, call->node), (size_t)tensor_elements(call->y) * sizeof(double));
}

static void run_rope(struct call *call) {
    memcpy(call->out, reference_rope(call->graph, call->node), (size_t)tensor_elements(call->y) * sizeof(double));
}

static const struct {
    enum op_id op;
    void (*run)(struct call *call);
} runs[] = {{OP_MatMul, run_matmul},  {OP_Softmax, run_softmax},     {OP_LogSoftmax, run_softmax},
            {OP_LayerNorm, run_norm}, {OP_RMSNorm, run_norm},        {OP_ArgMax, run_arg},
            {OP_ArgMin, run_arg},     {OP_Attention, run_attention}, {OP_Rope, run_rope}};

static const void *run_node(struct graph *graph, int id) {
    struct call call = {.graph = graph, .node = &graph->nodes.at[id]};
    call.x = &graph->tensors.at[call.node->inputs[0]];
    call.y = &graph->tensors.at[call.node->outputs[0]];
    size_t row = 0, rows = sizeof runs / sizeof *runs;
    while (row < rows && runs[row].op != call.node->op->id) row++;
    if (row == rows || (row == 0 && !rt_dtype_is_float(call.x->dtype))) return eval_node(graph, id);
    for (int i = 0; i < call.node->ninputs; i++)
        if (call.node->inputs[i] >= 0) call.in[i] = as_doubles(graph, &graph->tensors.at[call.node->inputs[i]]);
    int64_t n = tensor_elements(call.y);
    call.out = ARENA_ARRAY(graph->arena, double, n + 1);
    if (n) runs[row].run(&call);
    void *bytes = arena_alloc(graph->arena, (size_t)n + 1, rt_dtype_bytes(call.y->dtype));
    rt_convert(bytes, call.y->dtype, call.out, RT_F64, (size_t)n);
    return bytes;
}

/* Whole graphs ---------------------------------------------------------------------------------------------------- */

static const char *set_input(struct graph *graph, int id, int n, const struct given *given) {
    struct tensor *tensor = &graph->tensors.at[id];
    for (int i = 0; i < n; i++) {
        const struct rt_tensor *from = &given[i].tensor;
        if (strcmp(given[i].name, tensor->name) != 0) continue;
        if (from->count != tensor_elements(tensor))
            return arena_printf(graph->arena, "input %s has another size", tensor->name);
        void *bytes = arena_alloc(graph->arena, (size_t)from->count + 1, rt_dtype_bytes(tensor->dtype));
        if (from->count) rt_convert(bytes, tensor->dtype, from->data, from->dtype, (size_t)from->count);
        tensor->data = bytes;
        tensor->kind = TENSOR_CONST;
        return NULL;
    }
    return arena_printf(graph->arena, "input %s is not given", tensor->name);
}

const char *evaluate(struct graph *graph, int n, const struct given *given) {
    bool *read = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    const bool *live = find_live(graph, graph->arena, read);
    for (int i = 0; i < graph->inputs.n; i++) {
        if (!read[graph->inputs.at[i]]) continue;
        const char *why = set_input(graph, graph->inputs.at[i], n, given);
        if (why) return why;
    }
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        if (!live[id]) continue;
        const void *data = run_node(graph, id);
        if (!data) return arena_printf(graph->arena, "cannot evaluate %s", node_place(graph, id));
        struct tensor *out = &graph->tensors.at[graph->nodes.at[id].outputs[0]];
        out->kind = TENSOR_CONST;
        out->data = data;
    }
    return NULL;
}

/* Comparison ------------------------------------------------------------------------------------------------------ */

static bool close_to(double a, double b, double rtol, double atol) {
    if (isnan(b)) return isnan(a);
    return a == b || fabs(a - b) <= atol + rtol * fabs(b);
}

const char *compare(struct arena *arena, const struct tensor *tensor, const struct rt_tensor *expected, double rtol,
                    double atol) {
    bool floats = rt_dtype_is_float(tensor->dtype) && rt_dtype_is_float(expected->dtype);
    bool same = tensor->ndim == expected->ndim && (floats || tensor->dtype == expected->dtype);
    for (int d = 0; same && d < tensor->ndim; d++) same = tensor->dims[d] == expected->dims[d];
    if (!same)
        return arena_printf(arena, "%s is %s, expected %s of %lld elements", tensor->name, tensor_type(arena, tensor),
                            rt_dtypes[expected->dtype].name, (long long)expected->count);
    enum rt_dtype stored = tensor->kind == TENSOR_WEIGHT ? tensor->stored.dtype : tensor->dtype;
    for (int64_t i = 0; i < expected->count; i++) {
        double a, b;
        rt_convert(&a, RT_F64, (const char *)tensor->data + (size_t)i * rt_dtype_bytes(stored), stored, 1);
        rt_convert(&b, RT_F64, (const char *)expected->data + (size_t)i * rt_dtype_bytes(expected->dtype),
                   expected->dtype, 1);
        if (!close_to(a, b, rtol, atol))
            return arena_printf(arena, "%s: element %lld is %.9g, expected %.9g", tensor->name, (long long)i, a, b);
    }
    return NULL;
}
