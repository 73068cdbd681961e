#include "frontend/lower/lowering_state.h"

#include "frontend/read/onnx_data.h"
#include "runtime/base/number/checked.h"

void lowering_init(struct lowering *lowering) {
    map_init(&lowering->counts, lowering->arena);
    map_init(&lowering->amount_index, lowering->arena);
    map_init(&lowering->bounds, lowering->arena);
    map_init(&lowering->equal, lowering->arena);
}

enum rt_dtype lowering_type(const struct lowering *lowering, enum rt_dtype dtype) {
    const bool change = dtype != RT_DTYPE_NONE && rt_dtype_is_float(dtype) && lowering->float_dtype != RT_DTYPE_NONE;
    return change ? lowering->float_dtype : dtype;
}

int lowering_constant(struct lowering *lowering, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims,
                      const void *values, enum rt_dtype from) {
    const enum rt_dtype to = lowering_type(lowering, dtype);
    int64_t count;
    if (!rt_product(dims, ndim, &count)) return POISONED;
    void *bytes = arena_alloc(lowering->arena, (size_t)count + 1, rt_dtype_bytes(to));
    if (count) rt_retype(bytes, to, values, from, (size_t)count);
    return graph_add_const(lowering->graph, name, to, ndim, dims, bytes);
}

int lowering_tensor(struct lowering *lowering, const char *name, const struct onnx_tensor *tensor) {
    const bool packed = tensor->count && tensor->bits < 8;
    const enum rt_dtype dtype = packed ? tensor->dtype : tensor->declared;
    if (!packed && tensor->dtype == tensor->declared)
        return lowering_constant(lowering, name, dtype, tensor->ndim, tensor->dims, tensor->data, dtype);
    void *values = arena_alloc(lowering->arena, (size_t)tensor->count + 1, rt_dtype_bytes(dtype));
    if (packed)
        rt_unpack(values, tensor->data, tensor->dtype, 0, (size_t)tensor->count);
    else if (tensor->count)
        rt_retype(values, dtype, tensor->data, tensor->dtype, (size_t)tensor->count);
    return lowering_constant(lowering, name, dtype, tensor->ndim, tensor->dims, values, dtype);
}

int lowering_sequence(struct lowering *lowering, int n, const int *items, bool nothing) {
    const struct sequence sequence = {n, arena_copy(lowering->arena, n ? items : &n, (size_t)n * sizeof *items),
                                      nothing};
    VEC_PUSH(lowering->arena, &lowering->sequences, sequence);
    return SEQUENCES + lowering->sequences.n - 1;
}
