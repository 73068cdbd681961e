#include "frontend/driver/files/sliced_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/slices.h"
#include "ir/base/map.h"
#include "ir/base/str.h"
#include "runtime/base/number/checked.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/safetensors.h"

enum { TO_ASSEMBLE = -2, SMALL = 1 << 20, MAX_WAYS = 1 << 20, SCRATCH_ALIGNMENT = 64 };

struct sliced_file {
    const void *bytes;
    int64_t count;
    struct rt_safetensors tensors;
};

struct sliced_weights {
    const char *directory;
    struct arena *arena;
    struct diags *diags;
    VEC(const struct rt_json *) entries;
    VEC(bool) used;                   /* of each: a weight of the model, the first such entry */
    struct map places;                /* file and offset in the model, as text -> index into entries */
    VEC(struct sliced_file *) files;  /* by shard; NULL: not opened */
    VEC(struct rt_safetensor) slices; /* of the tensor that find_slices was last called for */
    VEC(int) shards;
};

static const struct rt_json *list_of(const struct rt_json *object, const char *key) {
    const struct rt_json *list = rt_json_member(object, key);
    return list && list->kind == RT_JSON_ARRAY ? list : NULL;
}

bool sliced_weights_present(const struct rt_json *manifest) {
    return list_of(manifest, "weights") != NULL;
}

static int strange(const struct sliced_weights *weights) {
    return diag_error(weights->diags, 804, EXIT_MALFORMED,
                      arena_printf(weights->arena, "%s/manifest.json", weights->directory), "\"weights\" is invalid");
}

/* The number of elements of an entry's tensor, -1 if its shape is invalid. */
static int64_t count_of(const struct rt_json *entry) {
    const struct rt_json *shape = list_of(entry, "shape");
    int64_t count = 1, size;
    for (const struct rt_json *dim = rt_json_first(shape); dim; dim = dim->next)
        if (!rt_json_int(dim, &size) || size < 0 || !rt_mul(count, size, &count)) return -1;
    return count;
}

static int open_copied(struct sliced_weights *weights, const char *directory, const struct rt_json *manifest,
                       struct diags *diags) {
    *weights = (struct sliced_weights){.directory = directory, .arena = diags->arena, .diags = diags};
    map_init(&weights->places, weights->arena);
    for (const struct rt_json *entry = list_of(manifest, "weights")->first; entry; entry = entry->next) {
        const char *made = rt_json_text(rt_json_member(entry, "made")),
                   *dtype = rt_json_text(rt_json_member(entry, made ? "of" : "dtype"));
        const enum rt_dtype stored = dtype ? rt_dtype_by_name(dtype) : RT_DTYPE_NONE;
        int64_t file, offset;
        if (stored == RT_DTYPE_NONE || !rt_json_int(rt_json_member(entry, "file"), &file) ||
            !rt_json_int(rt_json_member(entry, "offset"), &offset))
            return strange(weights);
        const char *place = slices_place(weights->arena, file, offset, stored, count_of(entry), made ? made : "");
        const bool used = file >= 0 && map_set(&weights->places, place, weights->entries.n);
        VEC_PUSH(weights->arena, &weights->used, used);
        VEC_PUSH(weights->arena, &weights->entries, entry);
    }
    return 0;
}

static bool read_cut(const struct rt_json *entry, struct sliced *sliced) {
    struct slice_cut *cut = &sliced->cut[sliced->ncuts++];
    int64_t dim, ways;
    if (!rt_json_int(rt_json_member(entry, "dim"), &dim) || dim < 0 || dim >= sliced->ndim ||
        !rt_json_int(rt_json_member(entry, "ways"), &ways) || ways < 1 || ways > MAX_WAYS ||
        !rt_json_int(rt_json_member(entry, "blocks"), &cut->blocks) || cut->blocks == INT64_MIN ||
        !rt_json_int(rt_json_member(entry, "unit"), &cut->grain) ||
        !rt_cut_is_sound(&(struct rt_cut){sliced->dims[dim], cut->blocks, cut->grain, (int)ways}))
        return false;
    cut->dim = (int)dim;
    cut->ways = (int)ways;
    sliced->nslices *= cut->ways;
    return sliced->nslices <= MAX_WAYS;
}

/* Parses an entry of "weights", which put_weights (codegen/manifest/manifest.c) has written. */
static bool read_entry(const struct rt_json *entry, struct sliced *sliced, struct arena *arena) {
    const char *dtype = rt_json_text(rt_json_member(entry, "dtype"));
    const struct rt_json *shape = list_of(entry, "shape"), *cuts = list_of(entry, "cuts"),
                         *slices = list_of(entry, "slices");
    int64_t count, bytes;
    *sliced = (struct sliced){.key = rt_json_text(rt_json_member(entry, "name")),
                              .dtype = dtype ? rt_dtype_by_name(dtype) : RT_DTYPE_NONE,
                              .nslices = 1};
    if (!sliced->key || sliced->dtype == RT_DTYPE_NONE || !shape || shape->count > RT_MAX_NDIM || !cuts ||
        cuts->count > RT_MAX_AXES || !slices)
        return false;
    for (const struct rt_json *dim = shape->first; dim; dim = dim->next)
        if (!rt_json_int(dim, &sliced->dims[sliced->ndim++]) || sliced->dims[sliced->ndim - 1] < 0) return false;
    if (!rt_product(sliced->dims, sliced->ndim, &count) ||
        !rt_mul(count, (int64_t)rt_dtype_bytes(sliced->dtype), &bytes))
        return false;
    for (const struct rt_json *cut = cuts->first; cut; cut = cut->next)
        if (!read_cut(cut, sliced)) return false;
    if (slices->count != sliced->nslices) return false;
    slices_shape(sliced, arena);
    return true;
}

static void close_file(void *opened) {
    struct sliced_file *file = opened;
    rt_safetensors_free(&file->tensors);
    rt_file_unmap(file->bytes, file->count);
}

static int open_file(struct sliced_weights *weights, int64_t shard) {
    const char *path = slices_path(weights->arena, (int)shard);
    struct rt_file_info info;
    struct rt_reason why;
    while (weights->files.n <= shard) VEC_PUSH(weights->arena, &weights->files, NULL);
    if (weights->files.at[shard]) return 0;
    struct sliced_file *file = ARENA_NEW(weights->arena, struct sliced_file);
    arena_own(weights->arena, file, close_file);
    if (!rt_file_map_below(weights->directory, path, &file->bytes, &info, &why))
        return diag_refusal(weights->diags, 802, EXIT_MISMATCH, NULL, &why);
    file->count = info.bytes;
    if (!rt_safetensors_parse(&file->tensors, file->bytes, (size_t)info.bytes, &why))
        return diag_refusal(weights->diags, 802, EXIT_MISMATCH,
                            arena_printf(weights->arena, "%s/%s", weights->directory, path), &why);
    weights->files.at[shard] = file;
    return 0;
}

static int differs(const struct sliced_weights *weights, const char *name, int shard) {
    return diag_error(weights->diags, 802, EXIT_MISMATCH,
                      arena_printf(weights->arena, "%s/%s", weights->directory, slices_path(weights->arena, shard)),
                      "weight %s was modified after it was written", diag_quote(weights->diags, name));
}

static bool has_shape(const struct rt_safetensor *tensor, const struct sliced *sliced, const struct slice *slice) {
    return tensor->dtype == sliced->dtype && tensor->ndim == slice->ndim &&
           (tensor->ndim == 0 || memcmp(tensor->dims, slice->dims, (size_t)tensor->ndim * sizeof *tensor->dims) == 0);
}

/* Finds the slices of a tensor in their files and checks their hashes; sets weights->slices and weights->shards. */
static int find_slices(struct sliced_weights *weights, const struct sliced *sliced, const struct rt_json *entry) {
    int index = 0;
    weights->slices.n = weights->shards.n = 0;
    for (const struct rt_json *at = list_of(entry, "slices")->first; at; at = at->next, index++) {
        const char *hash = rt_json_text(rt_json_member(at, "hash"));
        char hex[RT_HASH_HEX];
        int64_t shard;
        if (!hash || !rt_json_int(rt_json_member(at, "shard"), &shard) || shard < 0 || shard >= MAX_WAYS)
            return strange(weights);
        if (open_file(weights, shard) < 0) return -1;
        const struct rt_safetensor *tensor = rt_safetensors_find(&weights->files.at[shard]->tensors, sliced->key);
        if (!tensor || !has_shape(tensor, sliced, &sliced->slices[index]))
            return differs(weights, sliced->key, (int)shard);
        rt_hash_bytes(tensor->data, (size_t)tensor->bytes, hex);
        if (strcmp(hex, hash) != 0) return differs(weights, sliced->key, (int)shard);
        VEC_PUSH(weights->arena, &weights->slices, *tensor);
        VEC_PUSH(weights->arena, &weights->shards, (int)shard);
    }
    return 0;
}

/* Finds the entry and slices of a weight of the graph: 1, 0 if it was not copied, -1 after a diagnostic. */
static int find_copy(struct sliced_weights *weights, const struct tensor *tensor, struct sliced *sliced) {
    const char *place = slices_place_of(weights->arena, tensor);
    const int index = map_find(&weights->places, place);
    if (index < 0) return 0;
    if (!read_entry(weights->entries.at[index], sliced, weights->arena)) return strange(weights);
    return find_slices(weights, sliced, weights->entries.at[index]) < 0 ? -1 : 1;
}

struct scatter {
    const unsigned char *from;
    unsigned char *to;
};

static void put_run(void *context, size_t offset, size_t bytes) {
    struct scatter *scatter = context;
    memcpy(scatter->to + offset, scatter->from, bytes);
    scatter->from += bytes;
}

static void assemble(const struct sliced_weights *weights, const struct sliced *sliced, unsigned char *to) {
    for (int s = 0; s < sliced->nslices; s++)
        slice_walk(sliced, s, put_run, &(struct scatter){weights->slices.at[s].data, to});
}

static int64_t stored_bytes(const struct tensor *tensor) {
    return tensor_elements(tensor) * (int64_t)rt_dtype_bytes(tensor->stored.dtype);
}

static int attach_one(struct sliced_weights *weights, struct tensor *tensor) {
    struct sliced sliced;
    int found = find_copy(weights, tensor, &sliced);
    if (found <= 0) return found;
    if (sliced.nslices == 1) {
        tensor->data = weights->slices.at[0].data;
    } else if (stored_bytes(tensor) <= SMALL) {
        unsigned char *bytes = arena_alloc(weights->arena, (size_t)stored_bytes(tensor) + 1, 1);
        assemble(weights, &sliced, bytes);
        tensor->data = bytes;
    }
    return 0;
}

int sliced_weights_attach(const char *directory, const struct rt_json *manifest, struct graph *graph,
                          struct diags *diags) {
    struct sliced_weights weights;
    if (open_copied(&weights, directory, manifest, diags) < 0) return -1;
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].kind == TENSOR_WEIGHT && attach_one(&weights, &graph->tensors.at[t]) < 0) return -1;
    return 0;
}

struct locating {
    struct sliced_weights weights;
    struct sliced_files *files;
    const char *scratch;
    VEC(int) file_of; /* by shard: its index in files, 0: none yet */
    int64_t bytes;    /* of the scratch file */
};

static int file_of_shard(struct locating *locating, int shard) {
    struct arena *arena = locating->weights.arena;
    while (locating->file_of.n <= shard) VEC_PUSH(arena, &locating->file_of, 0);
    if (locating->file_of.at[shard]) return locating->file_of.at[shard];
    VEC_PUSH(arena, &locating->files->all,
             arena_printf(arena, "%s/%s", locating->weights.directory, slices_path(arena, shard)));
    return locating->file_of.at[shard] = locating->files->all.n - 1;
}

static int64_t bytes_of(const struct sliced *sliced) {
    int64_t bytes = (int64_t)rt_dtype_bytes(sliced->dtype);
    for (int d = 0; d < sliced->ndim; d++) bytes *= sliced->dims[d];
    return bytes;
}

/* Finds where an entry's tensor lies; one of several slices is to lie in the scratch file, whose number follows. */
static int locate_one(struct locating *locating, int index) {
    struct sliced_weights *weights = &locating->weights;
    const struct rt_json *entry = weights->entries.at[index];
    struct sliced sliced;
    struct stored stored = {.file = TO_ASSEMBLE};
    if (!read_entry(entry, &sliced, weights->arena)) return strange(weights);
    if (find_slices(weights, &sliced, entry) < 0) return -1;
    stored.dtype = sliced.dtype;
    if (sliced.nslices > 1) {
        stored.offset = (uint64_t)rt_align(locating->bytes, SCRATCH_ALIGNMENT);
        locating->bytes = (int64_t)stored.offset + bytes_of(&sliced);
    } else {
        const int shard = weights->shards.at[0];
        stored.file = file_of_shard(locating, shard);
        stored.offset =
            (uint64_t)((const char *)weights->slices.at[0].data - (const char *)weights->files.at[shard]->bytes);
    }
    locating->files->places.at[index] = stored;
    return 0;
}

static int fill_scratch(struct locating *locating, unsigned char *bytes) {
    struct sliced_weights *weights = &locating->weights;
    struct sliced_files *files = locating->files;
    for (int i = 0; i < files->places.n; i++) {
        struct sliced sliced;
        if (files->places.at[i].file != TO_ASSEMBLE) continue;
        if (!read_entry(weights->entries.at[i], &sliced, weights->arena) ||
            find_slices(weights, &sliced, weights->entries.at[i]) < 0)
            return -1;
        assemble(weights, &sliced, bytes + files->places.at[i].offset);
        files->places.at[i].file = files->all.n;
    }
    VEC_PUSH(weights->arena, &files->all, locating->scratch);
    files->assembled = true;
    return 0;
}

/* Writes the scratch file through a mapping. Its blocks are allocated first: a full disk is an error here instead of a
 * SIGBUS later. */
static int make_scratch(struct locating *locating) {
    const size_t bytes = (size_t)locating->bytes;
    if (!bytes) return 0;
    int fd = open(locating->scratch, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, locating->bytes);
    void *mapped = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && mapped == MAP_FAILED) error = errno;
    if (fd >= 0) close(fd);
    if (error) {
        errno = error;
        return diag_errno(locating->weights.diags, 611, NULL, "write", locating->scratch);
    }
    int status = fill_scratch(locating, mapped);
    munmap(mapped, bytes);
    return status;
}

int sliced_weights_locate(struct sliced_files *files, const char *directory, const struct rt_json *manifest,
                          const char *first, const char *scratch, struct diags *diags) {
    struct locating locating = {.files = files, .scratch = scratch};
    struct sliced_weights *weights = &locating.weights;
    int64_t file;
    *files = (struct sliced_files){.directory = directory};
    if (open_copied(weights, directory, manifest, diags) < 0) return -1;
    files->of_place = weights->places;
    for (int i = 0; i < weights->entries.n; i++)
        if (rt_json_int(rt_json_member(weights->entries.at[i], "file"), &file) && file >= files->model)
            files->model = (int)(file < INT16_MAX ? file : INT16_MAX) + 1;
    for (int i = 0; i < files->model || i < 1; i++) VEC_PUSH(weights->arena, &files->all, first);
    files->model = files->all.n;
    for (int i = 0; i < weights->entries.n; i++) {
        VEC_PUSH(weights->arena, &files->places, (struct stored){.file = -1});
        if (weights->used.at[i] && locate_one(&locating, i) < 0) return -1;
    }
    return make_scratch(&locating);
}

bool sliced_files_take(const struct sliced_files *files, struct tensor *tensor, struct arena *arena) {
    const char *place = slices_place_of(arena, tensor);
    const int at = map_find(&files->of_place, place);
    if (at >= 0) tensor->stored = files->places.at[at];
    return at >= 0;
}
