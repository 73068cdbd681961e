#define _GNU_SOURCE 1

#include "state/load_slices.h"

#include "base/number/hash.h"
#include "base/io/sealed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASHED_AT_ONCE ((int64_t)1 << 20) /* bytes */

struct slice_path {
    char text[64];
};

static struct slice_path path_of(int64_t shard) {
    struct slice_path path;
    snprintf(path.text, sizeof path.text, "weights/slices-%lld.safetensors", (long long)shard);
    return path;
}

/* A file below the program's directory whose content is not as rankc wrote it. */
static const struct rt_report modified = {RT_CODE_SOURCE_CHANGED, EXIT_MISMATCH};

static int fail_manifest(struct rt *rt) {
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT, "manifest.json belongs to another program than '%s'",
                        rt->program->name);
}

/* Two programs may be linked whose functions have the same names: those of one are then called for the directory of the
 * other. */
static int check_program(struct rt *rt, const struct rt_json *manifest) {
    const struct rt_json *plan = rt_json_member(rt_json_member(manifest, "keys"), "plan");
    const char *key = rt_json_text(rt_json_member(plan, "key"));
    return key && strcmp(key, rt->program->key) == 0 ? RT_OK : fail_manifest(rt);
}

static int fail_slice(struct rt *rt, int64_t shard, const char *name) {
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                        "weight '%s' in '%s' was modified after it was written", rt_quote_text(name).text,
                        path_of(shard).text);
}

int rt_manifest_read(struct rt *rt, struct rt_json_document **manifest) {
    struct rt_reason why;
    bool intact;
    int64_t format;
    *manifest = rt_sealed_read(rt->internal->directory, "manifest.json", &intact, &why);
    if (!*manifest) return rt_fail_reason(rt, NULL, modified, &why);
    if (!rt_json_int(rt_json_member(rt_json_root(*manifest), "format"), &format) || format != RT_MANIFEST_FORMAT)
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT, "the format of manifest.json is not %d",
                            RT_MANIFEST_FORMAT);
    if (intact) return check_program(rt, rt_json_root(*manifest));
    rt_sealed_refuse("manifest.json", &why);
    return rt_fail_reason(rt, NULL, modified, &why);
}

/* Opening -------------------------------------------------------------------------------------------------------- */

static const struct rt_json *list_of(const struct rt_json *root, const char *key) {
    const struct rt_json *list = rt_json_member(root, key);
    return list && list->kind == RT_JSON_ARRAY ? list : NULL;
}

/* Entries of "tensors" correspond to the program's weights, in order; "weight" of each is an index into "weights". */
static int find_entries(struct load_slices *slices, const struct rt_json *tensors, const struct rt_json **entries,
                        int64_t n) {
    int w = 0;
    int64_t at;
    for (const struct rt_json *tensor = tensors->first; tensor; tensor = tensor->next, w++) {
        if (!rt_json_int(rt_json_member(tensor, "weight"), &at) || at < 0 || at >= n) return fail_manifest(slices->rt);
        slices->of_weight[w] = entries[at];
    }
    return RT_OK;
}

static int list_entries(struct load_slices *slices, const struct rt_json *root) {
    const struct rt_json *tensors = list_of(root, "tensors"), *weights = list_of(root, "weights");
    if (!tensors || !weights || tensors->count != slices->rt->program->nweights) return fail_manifest(slices->rt);
    const struct rt_json **entries = calloc((size_t)weights->count + 1, sizeof *entries);
    int64_t n = 0;
    if (!entries) return rt_fail_memory(slices->rt);
    for (const struct rt_json *entry = weights->first; entry; entry = entry->next) entries[n++] = entry;
    int status = find_entries(slices, tensors, entries, n);
    free(entries);
    return status;
}

int load_slices_open(struct load_slices *slices, struct rt *rt) {
    *slices = (struct load_slices){.rt = rt};
    RT_TRY(rt_manifest_read(rt, &slices->manifest));
    slices->of_weight = calloc((size_t)rt->program->nweights + 1, sizeof *slices->of_weight);
    slices->file = calloc((size_t)rt->program->plan_ngpus, sizeof *slices->file);
    slices->piece = malloc((size_t)HASHED_AT_ONCE);
    if (!slices->of_weight || !slices->file || !slices->piece) return rt_fail_memory(rt);
    return list_entries(slices, rt_json_root(slices->manifest));
}

void load_slices_close(struct load_slices *slices) {
    for (int s = 0; slices->file && s < slices->rt->program->plan_ngpus; s++) {
        struct slice_file *file = &slices->file[s];
        rt_safetensors_free(&file->tensors);
        rt_reader_close(&file->file);
    }
    free(slices->piece);
    free(slices->file);
    free(slices->of_weight);
    rt_json_free(slices->manifest);
}

/* Files ---------------------------------------------------------------------------------------------------------- */

static int fail_file(struct rt *rt, int64_t shard, const struct rt_reason *why) {
    char what[sizeof(struct slice_path) + 40];
    snprintf(what, sizeof what, "'%s' was modified after it was written", path_of(shard).text);
    return rt_fail_reason(rt, what, modified, why);
}

static int open_file(struct load_slices *slices, int64_t shard) {
    struct slice_file *file = &slices->file[shard];
    struct rt_reason why;
    if (file->file.path) return RT_OK;
    if (rt_reader_open_below(&file->file, slices->rt->internal->directory, path_of(shard).text, &why) &&
        rt_safetensors_read(&file->tensors, &file->file, &why))
        return RT_OK;
    return fail_file(slices->rt, shard, &why);
}

/* Next tensor of that name, searched cyclically from the last one found. */
static const struct rt_safetensor *find_tensor(struct slice_file *file, const char *name) {
    for (int64_t i = 0; i < file->tensors.n; i++) {
        const int64_t at = (file->next + i) % file->tensors.n;
        if (strcmp(file->tensors.at[at].name, name) != 0) continue;
        file->next = at + 1;
        return &file->tensors.at[at];
    }
    return NULL;
}

/* Slices --------------------------------------------------------------------------------------------------------- */

/* Shape of the rank's slice, as an uncut tensor; *index: its place among the tensor's slices, the first cut varying
 * fastest. */
static void shape_part(const struct rt *rt, const struct rt_weight *weight, struct rt_weight *part, int *index) {
    int stride = 1;
    *part = *weight;
    part->nsplits = 0;
    *index = 0;
    for (int s = 0; s < weight->nsplits; s++) {
        const struct rt_split *split = &weight->split[s];
        const struct rt_cut cut = rt_cut_along(rt, split->axis, part->dims[split->dim], split->blocks, split->grain);
        part->dims[split->dim] = rt_cut_extent(&cut, rt->coordinate[split->axis]);
        *index += rt->coordinate[split->axis] * stride;
        stride *= cut.ways;
    }
}

static bool has_shape(const struct rt_safetensor *tensor, const struct rt_weight *part) {
    return tensor->dtype == part->stored && tensor->ndim == part->ndim &&
           (part->ndim == 0 || memcmp(tensor->dims, part->dims, (size_t)part->ndim * sizeof *part->dims) == 0);
}

/* Hash of `bytes` bytes at `offset` of the file. */
static bool hash_slice(const struct load_slices *slices, const struct rt_reader *file, int64_t offset, int64_t bytes,
                       char hex[RT_HASH_HEX], struct rt_reason *why) {
    struct rt_hash hash;
    rt_hash_start(&hash);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < HASHED_AT_ONCE ? bytes - at : HASHED_AT_ONCE;
        if (!rt_reader_get(file, offset + at, slices->piece, (size_t)n, why)) return false;
        rt_hash_add(&hash, slices->piece, (size_t)n);
        rt_at(slices->rt, -1); /* large slices take long: counts as progress */
    }
    rt_hash_hex(&hash, hex);
    return true;
}

static const struct rt_json *element(const struct rt_json *list, int index) {
    const struct rt_json *at = list && list->kind == RT_JSON_ARRAY ? list->first : NULL;
    while (at && index-- > 0) at = at->next;
    return at;
}

int load_slices_check(struct load_slices *slices) {
    struct rt_reason why;
    for (int s = 0; s < slices->rt->program->plan_ngpus; s++)
        if (slices->file[s].file.path && !rt_reader_check(&slices->file[s].file, true, &why))
            return fail_file(slices->rt, s, &why);
    return RT_OK;
}

int load_slice(struct load_slices *slices, int w, struct rt_weight *part, const struct rt_reader **file) {
    struct rt *rt = slices->rt;
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    const struct rt_json *entry = slices->of_weight[w];
    const char *name = rt_json_text(rt_json_member(entry, "name"));
    int index;
    int64_t shard;
    shape_part(rt, &rt->program->weights[w], part, &index);
    const struct rt_json *slice = element(rt_json_member(entry, "slices"), index);
    const char *hash = rt_json_text(rt_json_member(slice, "hash"));
    if (!name || !hash || !rt_json_int(rt_json_member(slice, "shard"), &shard) || shard < 0 ||
        shard >= rt->program->plan_ngpus)
        return fail_manifest(rt);
    RT_TRY(open_file(slices, shard));
    struct slice_file *from = &slices->file[shard];
    const struct rt_safetensor *tensor = find_tensor(from, name);
    if (!tensor || !has_shape(tensor, part)) return fail_slice(rt, shard, name);
    part->offset = (uint64_t)tensor->offset;
    if (!hash_slice(slices, &from->file, (int64_t)part->offset, tensor->bytes, hex, &why))
        return fail_file(rt, shard, &why);
    *file = &from->file;
    return strcmp(hex, hash) == 0 ? RT_OK : fail_slice(rt, shard, name);
}
