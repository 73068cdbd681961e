#include "ir/op.h"

static bool is_float_type(enum rt_dtype dtype) {
    return dtype != RT_DTYPE_NONE && rt_dtype_is_float(dtype);
}

/* The bytes of a WEIGHT are not converted here but when the weight is loaded. */
static void retype_tensor(struct graph *graph, struct tensor *tensor, enum rt_dtype dtype) {
    const int64_t count = tensor_elements(tensor);
    if (tensor->kind == TENSOR_CONST) {
        void *values = arena_alloc(graph->arena, (size_t)count + 1, rt_dtype_bytes(dtype));
        if (count) rt_retype(values, dtype, tensor->data, tensor->dtype, (size_t)count);
        tensor->data = values;
    }
    tensor->dtype = dtype;
}

int graph_retype(struct graph *graph, enum rt_dtype dtype, struct diags *diags) {
    VEC_EACH(&graph->tensors, t, struct tensor *const tensor)
        if (tensor->kind != TENSOR_VALUE && is_float_type(tensor->dtype)) retype_tensor(graph, tensor, dtype);
    GRAPH_EACH(graph, i, struct node *const node) {
        const char *to = attr_text(node, "to", NULL);
        if (to && is_float_type(rt_dtype_by_name(to))) attr_set(graph, node, attr_of_text("to", rt_dtypes[dtype].name));
        if (op_infer(graph, graph->order.at[i], diags) < 0) return -1;
    }
    return 0;
}
