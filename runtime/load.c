/* Weights: the rank's parts of tensors that lie in the model's files, converted while they are copied.
 *
 * The files are the model's own, named by location.json with what they looked like at compile time. They are
 * mapped, read once and dropped; nothing in them is aligned, so bytes are only copied or converted, never
 * dereferenced. */
#define _GNU_SOURCE 1

#include "private.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/panel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DROP_BYTES                                                                                                 \
    ((int64_t)4 << 20) /* source pages are dropped after so many bytes, so that they do not pile up */

struct source {
    const unsigned char *bytes;
    int64_t count;
    bool wanted;
};

struct loader {
    struct rt *rt;
    struct source *source;
    int nsources;
    int64_t since_drop;
};

static int fail_reason(struct rt *rt, const char *what, const struct rt_reason *why) {
    if (why->kind == RT_REASON_MEMORY) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "%s", why->text);
    if (why->kind == RT_REASON_SYSTEM) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_OPEN, "%s", why->text);
    return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_MANIFEST, "%s: %s", what, why->text);
}

/* `directory`/`name`, or `name` where that is absolute; the caller frees it. */
static char *join_path(const char *directory, const char *name) {
    const size_t room = strlen(directory) + strlen(name) + 2;
    char *path = malloc(room);
    if (path && name[0] == '/') snprintf(path, room, "%s", name);
    if (path && name[0] != '/') snprintf(path, room, "%s/%s", directory, name);
    return path;
}

/* Sources */

static int fail_changed(struct rt *rt, const char *path) {
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                        "'%s' has changed since the program was generated", rt_quote_text(path).text);
}

/* A touched file is still the same if its hash is. The change time (0: unknown) is what nobody can set back. */
static int check_source(struct rt *rt, const char *path, const struct rt_json *entry, const struct source *source,
                        const struct rt_file_info *info) {
    int64_t bytes, mtime, ctime = 0;
    const char *hash = rt_json_text(rt_json_member(entry, "hash"));
    char found[RT_HASH_HEX];
    if (!rt_json_int(rt_json_member(entry, "bytes"), &bytes) ||
        !rt_json_int(rt_json_member(entry, "mtime_ns"), &mtime) || !hash)
        return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_MANIFEST,
                            "location.json: bytes, mtime_ns or hash is missing");
    if (bytes != source->count) return fail_changed(rt, path);
    rt_json_int(rt_json_member(entry, "ctime_ns"), &ctime);
    if (mtime == info->mtime_ns && ctime == info->ctime_ns) return RT_OK;
    rt_hash_bytes(source->bytes, (size_t)source->count, found);
    return strcmp(found, hash) == 0 ? RT_OK : fail_changed(rt, path);
}

static int open_source(struct rt *rt, struct source *source, const struct rt_json *entry) {
    const char *name = rt_json_text(rt_json_member(entry, "path"));
    if (!name) return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_MANIFEST, "location.json: a file has no path");
    char *path = join_path(rt->private->directory, name);
    if (!path) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
    struct rt_reason why;
    struct rt_file_info info;
    const void *bytes;
    int status;
    if (rt_file_map(path, &bytes, &info, &why)) {
        source->bytes = bytes;
        source->count = info.bytes;
        status = check_source(rt, path, entry, source, &info);
    } else {
        status = fail_reason(rt, path, &why);
    }
    free(path);
    return status;
}

static int open_sources(struct loader *loader, const struct rt_json *root) {
    const struct rt_json *files = rt_json_member(root, "files");
    int64_t format;
    if (!rt_json_int(rt_json_member(root, "format"), &format) || format != 1 || !files ||
        files->kind != RT_JSON_ARRAY || files->count < loader->nsources)
        return rt_fail_code(loader->rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT,
                            "location.json is not of format 1 or lists fewer files than the program reads");
    int i = 0;
    for (const struct rt_json *entry = files->first; entry && i < loader->nsources; entry = entry->next, i++)
        if (loader->source[i].wanted) RT_TRY(open_source(loader->rt, &loader->source[i], entry));
    return RT_OK;
}

static void close_sources(struct loader *loader) {
    for (int i = 0; i < loader->nsources; i++) rt_file_unmap(loader->source[i].bytes, loader->source[i].count);
    free(loader->source);
}

static void drop_pages(struct loader *loader, const struct source *source, int64_t loaded) {
    loader->since_drop += loaded;
    if (loader->since_drop < DROP_BYTES) return;
    loader->since_drop = 0;
    madvise((void *)(uintptr_t)source->bytes, (size_t)source->count, MADV_DONTNEED);
}

/* Parts */

/* A walk over the part of a stored tensor that this rank holds. Indices of a dimension that is not cut are one
 * block of all of them. */
struct box {
    const struct rt_weight *weight;
    const unsigned char *src;
    unsigned char *dst;
    int depth;                   /* dimensions up to the last one that is cut; what is behind is contiguous */
    int64_t tail;                /* elements behind */
    int64_t rows, columns, done; /* of a packed part: extents, and elements that are in place */
    struct {
        int64_t extent, blocks, block, start, length;
    } dim[RT_MAX_NDIM];
};

/* Where an element of the part lies in its panels. */
static float *packed_place(const struct box *box, int64_t row, int64_t column) {
    float *panels = (float *)(void *)box->dst;
    if (box->weight->packing == RT_PACK_ROWS) return panels + rt_panel_place(box->rows, row, column);
    return panels + rt_panel_place(box->columns, column, row);
}

/* Packs the next `run` elements of the part, which do not leave its row. */
static void pack_run(struct box *box, const unsigned char *src, int64_t run) {
    const struct rt_weight *weight = box->weight;
    const int64_t row = box->done / box->columns, column = box->done % box->columns;
    const int64_t step = weight->packing == RT_PACK_ROWS ? 1 : RT_PANEL;
    float values[RT_PANEL];
    for (int64_t j = 0, n; j < run; j += n) {
        n = RT_PANEL - (column + j) % RT_PANEL;
        n = n < run - j ? n : run - j;
        rt_convert(values, RT_F32, src + (size_t)j * rt_dtype_bytes(weight->stored), weight->stored, (size_t)n);
        float *to = packed_place(box, row, column + j);
        for (int64_t i = 0; i < n; i++) to[i * step] = values[i];
    }
    box->done += run;
}

static void copy_run(struct box *box, int64_t first, int64_t length) {
    const struct rt_weight *weight = box->weight;
    const unsigned char *src = box->src + (size_t)(first * box->tail) * rt_dtype_bytes(weight->stored);
    const int64_t run = length * box->tail;
    if (weight->packing == RT_PLAIN) {
        rt_convert(box->dst, weight->dtype, src, weight->stored, (size_t)run);
        box->dst += (size_t)run * rt_dtype_bytes(weight->dtype);
        return;
    }
    for (int64_t j = 0, n; j < run; j += n) {
        n = box->columns - box->done % box->columns;
        n = n < run - j ? n : run - j;
        pack_run(box, src + (size_t)j * rt_dtype_bytes(weight->stored), n);
    }
}

/* Copies the part within dimensions d and up; `at` is the index of the dimensions before d, taken together. */
static void copy_box(struct box *box, int d, int64_t at) {
    for (int64_t b = 0; b < box->dim[d].blocks; b++) {
        const int64_t first = at * box->dim[d].extent + b * box->dim[d].block + box->dim[d].start;
        if (d == box->depth - 1)
            copy_run(box, first, box->dim[d].length);
        else
            for (int64_t i = 0; i < box->dim[d].length; i++) copy_box(box, d + 1, first + i);
    }
}

static bool cut_is_valid(const struct rt *rt, const struct rt_weight *weight, const struct rt_split *split) {
    int64_t step;
    return split->dim >= 0 && split->dim < weight->ndim && split->axis >= 0 && split->axis < rt->program->naxes &&
           split->blocks > 0 && split->unit > 0 && rt_mul(split->blocks, split->unit, &step) &&
           weight->dims[split->dim] % step == 0;
}

/* *elements becomes the size of the panels. */
static bool lay_out_panels(struct box *box, int64_t *elements) {
    const struct rt_weight *weight = box->weight;
    if (weight->ndim != 2 || weight->dtype != RT_F32) return false;
    box->rows = box->dim[0].blocks * box->dim[0].length;
    box->columns = box->dim[1].blocks * box->dim[1].length;
    const bool rows = weight->packing == RT_PACK_ROWS;
    *elements = rt_panel_elements(rows ? box->rows : box->columns, rows ? box->columns : box->rows);
    return true;
}

/* Describes the part; false where the table makes no sense. *elements is its size in memory. */
static bool lay_out_box(const struct rt *rt, struct box *box, const struct rt_weight *weight, int64_t *elements) {
    if (weight->ndim < 0 || weight->ndim > RT_MAX_NDIM || weight->nsplits > RT_MAX_AXES) return false;
    *box = (struct box){.weight = weight, .depth = 1};
    for (int d = 0; d < weight->ndim; d++) {
        const int64_t extent = weight->dims[d];
        box->dim[d].extent = box->dim[d].block = box->dim[d].length = extent;
        box->dim[d].blocks = 1;
    }
    for (int s = 0; s < weight->nsplits; s++) {
        const struct rt_split *split = &weight->split[s];
        if (!cut_is_valid(rt, weight, split)) return false;
        const struct rt_cut cut =
            rt_cut_along(rt, split->axis, weight->dims[split->dim], split->blocks, split->unit);
        box->dim[split->dim].blocks = cut.blocks;
        box->dim[split->dim].block = cut.extent / cut.blocks;
        box->dim[split->dim].start = rt_cut_start(&cut, rt->coordinate[split->axis]);
        box->dim[split->dim].length = rt_cut_length(&cut, rt->coordinate[split->axis]);
        if (split->dim + 1 > box->depth) box->depth = split->dim + 1;
    }
    if (weight->ndim == 0) box->dim[0].extent = box->dim[0].block = box->dim[0].length = box->dim[0].blocks = 1;
    *elements = 1;
    for (int d = 0; d < weight->ndim; d++) *elements *= box->dim[d].blocks * box->dim[d].length;
    if (weight->packing != RT_PLAIN && !lay_out_panels(box, elements)) return false;
    const int tail_dims = weight->ndim - box->depth;
    return rt_product(weight->dims + box->depth, tail_dims > 0 ? tail_dims : 0, &box->tail);
}

static int load_weight(struct loader *loader, int w, size_t offset) {
    struct rt *rt = loader->rt;
    const struct rt_weight *weight = &rt->program->weights[w];
    const struct source *source = &loader->source[weight->file];
    int64_t stored, bytes, part;
    struct box box;
    if (!rt_product(weight->dims, weight->ndim, &stored) ||
        !rt_mul(stored, (int64_t)rt_dtype_bytes(weight->stored), &bytes) || bytes > source->count ||
        weight->offset > (uint64_t)(source->count - bytes))
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                            "weight %d lies outside of file %d of location.json", w, weight->file);
    if (!lay_out_box(rt, &box, weight, &part) || offset > rt->class->bytes[RT_WEIGHTS] ||
        (uint64_t)part * rt_dtype_bytes(weight->dtype) > rt->class->bytes[RT_WEIGHTS] - offset)
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT, "weight %d of the program does not fit", w);
    if (part == 0) return RT_OK;
    rt_at(rt, -1); /* weights may take long, and each is progress */
    box.src = source->bytes + weight->offset;
    box.dst = rt->arena[RT_WEIGHTS] + offset;
    copy_box(&box, 0, 0);
    drop_pages(loader, source, bytes);
    return RT_OK;
}

static int load_all(struct loader *loader) {
    struct rt *rt = loader->rt;
    struct rt_reason why;
    char *path = join_path(rt->private->directory, "location.json");
    if (!path) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
    struct rt_json_document *location = rt_json_read(path, &why);
    int status = location ? open_sources(loader, rt_json_root(location)) : fail_reason(rt, "location.json", &why);
    rt_json_free(location);
    free(path);
    for (int w = 0; w < rt->program->nweights && !status; w++)
        if (rt->class->weights[w] != RT_ABSENT) status = load_weight(loader, w, rt->class->weights[w]);
    return status;
}

int rt_load_weights(struct rt *rt) {
    const struct rt_program *program = rt->program;
    struct loader loader = {.rt = rt};
    bool any = false;
    for (int w = 0; w < program->nweights; w++) {
        if (program->weights[w].file >= loader.nsources) loader.nsources = program->weights[w].file + 1;
        if (rt->class->weights[w] != RT_ABSENT) any = true;
    }
    if (!any) return RT_OK;
    loader.source = calloc((size_t)loader.nsources, sizeof(*loader.source));
    if (!loader.source) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
    for (int w = 0; w < program->nweights; w++)
        if (rt->class->weights[w] != RT_ABSENT) loader.source[program->weights[w].file].wanted = true;
    int status = load_all(&loader);
    close_sources(&loader);
    return status;
}
