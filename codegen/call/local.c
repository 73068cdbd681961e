#include "codegen/call/local.h"

#include <stdlib.h>
#include <string.h>

int local_operand(const struct local *local, const char *operand) {
    int k = atoi(operand + 1);
    if (operand[0] == 'y') return k < local->node.noutputs ? local->node.outputs[k] : -1;
    if (operand[0] != 'x' || k >= local->node.ninputs) return -1;
    return local->node.inputs[k];
}

const int64_t *local_shape(const struct local *local, int tensor) {
    return local->class->dims[tensor];
}

const struct tensor *local_tensor(const struct local *local, int tensor) {
    return &local->graph->tensors.at[tensor];
}

void put_tensor(struct local *local, int tensor) {
    if (tensor < 0) {
        strbuf_puts(&local->out, "NULL");
        return;
    }
    strbuf_putc(&local->out, HOLE_TENSOR);
    VEC_PUSH(local->out.arena, &local->tensors, tensor);
}

void open_argument(struct local *local, const char *text, const char *name) {
    int before = (int)strcspn(text, "%");
    strbuf_printf(&local->out, "%.*s%s%s", before, text, text[before] ? name : "", text + before + !!text[before]);
}

void open_array(struct local *local, const char *type) {
    open_argument(local, local->kernels->target->arguments->array, type);
}

void put_no_array(struct local *local) {
    strbuf_puts(&local->out, local->kernels->target->arguments->no_array);
}

void put_array(struct local *local, const char *type, int n, const int64_t *values) {
    if (!n) return put_no_array(local);
    open_array(local, type);
    for (int i = 0; i < n; i++) strbuf_printf(&local->out, "%s%lld", i ? ", " : "", (long long)values[i]);
    strbuf_putc(&local->out, '}');
}

int64_t local_product(const struct local *local, int tensor, int from, int to) {
    int64_t p = 1;
    for (int i = from; i < to; i++) p *= local_shape(local, tensor)[i];
    return p;
}

void put_dim(struct local *local, int tensor, int dim) {
    strbuf_puts(&local->out,
                sizes_extent(local->kernels->sizes, &local->kernels->size_names, local->class, tensor, dim));
}

const char *local_dims_text(struct local *local, int tensor, int from, int to) {
    return sizes_product(local->kernels->sizes, &local->kernels->size_names, local->class, tensor, from, to);
}

const char *local_whole_text(struct local *local, int tensor, int dim) {
    return sizes_whole(local->kernels->sizes, &local->kernels->size_names, tensor, dim);
}

const char *local_factors_text(struct local *local, int n, const int *factors, bool whole) {
    int64_t extent = 1;
    for (int i = 0; i < n; i++) extent *= whole ? local->dims.factor[factors[i]].extent : local->extent[factors[i]];
    for (int o = 0; o < local->dims.ninputs + local->dims.noutputs; o++) {
        const bool output = o >= local->dims.ninputs;
        const int k = output ? o - local->dims.ninputs : o;
        const int tensor = output ? local->node.outputs[k] : k < local->node.ninputs ? local->node.inputs[k] : -1;
        for (int d = 0; tensor >= 0 && d < local->dims.operand[o].ndim; d++) {
            const struct dim_factors *of = &local->dims.operand[o].dim[d];
            const int64_t own = whole ? local_tensor(local, tensor)->dims[d] : local_shape(local, tensor)[d];
            bool same = of->n == n && own == extent;
            for (int i = 0; same && i < n; i++) same = of->factor[i] == factors[i];
            if (same) return whole ? local_whole_text(local, tensor, d) : local_dims_text(local, tensor, d, d + 1);
        }
    }
    return NULL;
}

const char *local_factor_text(struct local *local, int factor, bool whole) {
    const int64_t extent = whole ? local->dims.factor[factor].extent : local->extent[factor];
    const char *name = local_factors_text(local, 1, &factor, whole);
    return name ? name : arena_printf(local->out.arena, "%lld", (long long)extent);
}

void put_pointers(struct local *local, int first) {
    if (first == local->node.ninputs) return put_no_array(local);
    open_array(local, "void *const");
    for (int k = first; k < local->node.ninputs; k++) {
        strbuf_puts(&local->out, k > first ? ", " : "");
        put_tensor(local, local->node.inputs[k]);
    }
    strbuf_putc(&local->out, '}');
}

bool local_in_runs(const struct local *local) {
    return attr_int(&local->node, "runs", 1) > 1;
}

/* A run is the rows of an item, or of the parts of some ranks (Note [Runs of rows] in runtime/core/redist.c). If ranks
 * divide no dimension, runs are equally long, in whole tiles of kernels. */
struct runs local_runs(const struct local *local) {
    enum { TILE = 16 };
    const int result = local->node.outputs[0], ndim = local_tensor(local, result)->ndim;
    const int dim = (int)attr_int(&local->node, "run_dim", -1);
    struct runs runs = {.rows = local_product(local, result, 0, ndim - 1),
                        .items = dim < 0 ? 0 : local_product(local, result, 0, dim),
                        .sum_axis = (int)attr_int(&local->node, "sum_axis", -1),
                        .gather_axis = (int)attr_int(&local->node, "gather_axis", -1)};
    const int64_t number = runs.items > 1 ? runs.items : attr_int(&local->node, "runs", 1);
    runs.length = (runs.rows + number - 1) / number;
    if (!runs.items && runs.length > TILE) runs.length = (runs.length + TILE - 1) / TILE * TILE;
    return runs;
}

void put_row(struct local *local, int tensor) {
    put_tensor(local, tensor);
    if (!local_in_runs(local)) return;
    const int64_t elements = rankplan_elements(local->class, local->graph, tensor);
    strbuf_printf(&local->out, " + row * %lld", (long long)(elements / local_runs(local).rows));
}
