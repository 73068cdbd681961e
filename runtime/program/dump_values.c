/* Values of one tensor and their place: Note [Dumps] in dump.h. */
#include "program/dump.h"

#include "base/number/checked.h"
#include "base/manifest.h"
#include "base/shape/panel.h"

#include <stdlib.h>
#include <string.h>

/* Copying ---------------------------------------------------------------------------------------------------------- */

static enum rt_dtype numpy_type(enum rt_dtype dtype) {
    if (dtype == RT_BF16 || rt_dtypes[dtype].kind == RT_KIND_CODE_FLOAT) return RT_F32;
    if (rt_dtypes[dtype].kind == RT_KIND_CODE_INT) return RT_I8;
    return rt_dtypes[dtype].kind == RT_KIND_CODE_UINT ? RT_U8 : dtype;
}

/* Where an element of a packed matrix is, in elements. */
static int64_t packed_index(const struct dump_tensor *tensor, const struct dump_place *place, int64_t row,
                            int64_t column) {
    const bool rows = place->packing == RT_PACK_ROWS;
    const int64_t k = rows ? place->dims[0] : place->dims[1];
    const int64_t p = rows ? row : column, j = rows ? column : row;
    return tensor->dtype == RT_F32 ? rt_panel_place(k, p, j) : rt_pair_place(k, p, j);
}

static int64_t element_index(const struct dump_tensor *tensor, const struct dump_place *place, const int64_t *at) {
    int64_t index = 0;
    if (place->packing != RT_PLAIN) return packed_index(tensor, place, at[0], at[1]);
    for (int d = 0; d < tensor->ndim; d++) index += at[d] * place->step[d];
    return index;
}

static bool is_dense(const struct dump_place *place) {
    return !place->strided && place->packing == RT_PLAIN;
}

/* Elements of memory that the part takes; -1: more than there can be. */
static int64_t span_of(const struct dump_tensor *tensor, const struct dump_place *place, int64_t count) {
    if (is_dense(place) || !count) return count;
    if (place->packing != RT_PLAIN) {
        const bool rows = place->packing == RT_PACK_ROWS;
        const int64_t k = place->dims[rows ? 0 : 1], n = place->dims[rows ? 1 : 0];
        return tensor->dtype == RT_F32 ? rt_panel_elements(k, n) : rt_pair_elements(k, n);
    }
    int64_t last = 0, step;
    for (int d = 0; d < tensor->ndim; d++)
        if (!rt_mul(place->dims[d] - 1, place->step[d], &step) || !rt_add(last, step, &last)) return -1;
    return last + 1;
}

/* Elements in order: the last dimension is the fastest. */
static void gather(unsigned char *dst, const unsigned char *src, const struct dump_tensor *tensor,
                   const struct dump_place *place, int64_t count) {
    const size_t size = rt_dtype_bytes(tensor->dtype);
    int64_t at[RT_MAX_NDIM] = {0};
    for (int64_t i = 0; i < count; i++) {
        memcpy(dst + (size_t)i * size, src + (size_t)element_index(tensor, place, at) * size, size);
        for (int d = tensor->ndim - 1; d >= 0 && ++at[d] == place->dims[d]; d--) at[d] = 0;
    }
}

static bool fetch(struct rt *rt, void *dst, const void *src, size_t bytes) {
    if (rt->program->device->remote)
        return !rt->program->device->get(rt, dst, src, bytes) && !rt->program->device->finish(rt);
    memcpy(dst, src, bytes);
    return true;
}

void *dump_copy(struct rt *rt, const struct dump_tensor *tensor, const struct dump_place *place, enum rt_dtype *dtype,
                int64_t *count) {
    const size_t size = rt_dtype_bytes(tensor->dtype);
    int64_t elements = 0, bytes, start = 0;
    *dtype = numpy_type(tensor->dtype);
    *count = -1;
    if (!rt_product(place->dims, tensor->ndim, &elements)) return NULL;
    const int64_t some = tensor->flat ? rt_flat_count(rt, tensor->flat, elements) : elements;
    if (tensor->flat && place->at.arena != MANIFEST_FLAT) start = rt_flat_start(rt, tensor->flat, elements);
    const int64_t span = span_of(tensor, place, some);
    if (span < 0 || !rt_mul(span, (int64_t)size, &bytes) || !rt_mul(start, (int64_t)size, &start)) return NULL;
    const unsigned char *at = rt_value_at(rt, &place->at, start, bytes);
    if (!at && span) return NULL;
    *count = at ? some : 0;
    if (!at) return NULL;
    unsigned char *raw = malloc((size_t)bytes + 1), *out = NULL;
    bool ok = raw && (!span || fetch(rt, raw, at, (size_t)bytes));
    if (ok && is_dense(place) && *dtype == tensor->dtype) return raw;
    unsigned char *dense = ok ? malloc((size_t)*count * size + 1) : NULL;
    out = dense ? malloc((size_t)*count * rt_dtype_bytes(*dtype) + 1) : NULL;
    if (out) {
        if (is_dense(place))
            memcpy(dense, raw, (size_t)*count * size);
        else
            gather(dense, raw, tensor, place, *count);
        rt_convert(out, *dtype, dense, tensor->dtype, (size_t)*count);
    }
    free(dense);
    free(raw);
    return out;
}

/* Regions ---------------------------------------------------------------------------------------------------------- */

/* A dimension's share of each block (Note [Nested cuts] in base/shape/part.h). */
struct share {
    int64_t blocks, block, start, turned, length;
};

static void cut_share(struct share *share, const struct rt *rt, const struct dump_cut *cut) {
    const struct rt_cut along = rt_cut_along(rt, cut->axis, share->blocks * share->length, cut->blocks, cut->grain);
    if (!rt_cut_is_sound(&along)) return;
    const int64_t whole = share->blocks * share->block;
    share->blocks = rt_blocks(along.blocks);
    share->block = whole / share->blocks;
    share->start += rt_cut_start_in(&along, rt->coordinate[cut->axis], 0);
    share->turned += rt_cut_start_in(&along, rt->coordinate[cut->axis], 1);
    share->length = rt_cut_length(&along, rt->coordinate[cut->axis]);
}

static struct share share_of(const struct rt *rt, const struct dump_tensor *tensor, int dim) {
    struct share share = {1, tensor->dims[dim], 0, 0, tensor->dims[dim]};
    for (int c = 0; c < tensor->ncuts; c++)
        if (tensor->cuts[c].dim == dim) cut_share(&share, rt, &tensor->cuts[c]);
    return share;
}

bool dump_fits(const struct rt *rt, const struct dump_tensor *tensor, const struct dump_place *place) {
    for (int d = 0; d < tensor->ndim; d++) {
        const struct share share = share_of(rt, tensor, d);
        if (tensor->window ? place->dims[d] > tensor->dims[d] : place->dims[d] != share.blocks * share.length)
            return false;
    }
    return true;
}

static void put_ranges(struct rt_json_writer *writer, const struct rt *rt, const struct dump_tensor *tensor, int dim) {
    const struct share share = share_of(rt, tensor, dim);
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int64_t b = 0; b < share.blocks; b++) {
        const int64_t start = b * share.block + (b % 2 ? share.turned : share.start);
        rt_json_put_dims(writer, (int64_t[]){start, start + share.length}, 2);
    }
    rt_json_close(writer, ']');
}

static unsigned cut_axes(const struct dump_tensor *tensor) {
    unsigned axes = tensor->flat;
    for (int c = 0; c < tensor->ncuts; c++) axes |= 1u << tensor->cuts[c].axis;
    return axes;
}

/* Another rank has the same value: along an axis where all have it, this one is not the first. Stages of a pipeline
 * have different tensors. In inference, scale units compute the same. */
static bool is_replica(const struct rt *rt, const struct dump_tensor *tensor) {
    const struct rt_program *program = rt->program;
    unsigned divided = cut_axes(tensor) | (program->training ? tensor->own : 0);
    for (int r = 0; r < RT_REDUCES; r++) divided |= tensor->partial[r];
    for (int a = 0; a < rt_layout_axes(rt); a++)
        if (a != program->stages - 1 && !(divided >> a & 1) && rt->coordinate[a] > 0) return true;
    return !program->training && rt->unit > 0;
}

void dump_put_region(struct rt_json_writer *writer, const struct rt *rt, const struct dump_tensor *tensor,
                     const struct dump_place *place) {
    static const char *const names[RT_REDUCES] = {"sum", "max", "min"};
    int64_t elements = 0;
    rt_json_key(writer, "ranges");
    if (tensor->window) rt_json_put_null(writer);
    if (!tensor->window) {
        rt_json_open(writer, '[', RT_JSON_INLINE);
        for (int d = 0; d < tensor->ndim; d++) put_ranges(writer, rt, tensor, d);
        rt_json_close(writer, ']');
    }
    if (tensor->flat && rt_product(place->dims, tensor->ndim, &elements)) {
        rt_json_key_dims(
            writer, "slice",
            (int64_t[]){rt_flat_start(rt, tensor->flat, elements), rt_flat_count(rt, tensor->flat, elements)}, 2);
    }
    for (int r = 0; r < RT_REDUCES; r++)
        if (tensor->partial[r]) rt_json_key_text(writer, "partial", names[r]);
    rt_json_key_bool(writer, "replica", is_replica(rt, tensor));
}
