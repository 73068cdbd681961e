#include "frontend/driver/copied.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/slices.h"
#include "ir/base/map.h"
#include "ir/base/str.h"
#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/base/safetensors.h"

enum { SMALL = 1 << 20, MAX_WAYS = 1 << 20, SCRATCH_ALIGNMENT = 64 };

struct copied_file {
    const void *bytes;
    int64_t count;
    struct rt_safetensors tensors;
};

struct copied {
    const char *directory;
    struct arena *arena;
    struct diags *diags;
    VEC(const struct rt_json *) entries;
    struct map places;                /* in the model: index into entries */
    VEC(struct copied_file *) files;  /* by shard; NULL: not opened */
    VEC(struct rt_safetensor) slices; /* of the tensor that was found last */
    VEC(int) shards;
};

static const struct rt_json *list_of(const struct rt_json *object, const char *key) {
    const struct rt_json *list = rt_json_member(object, key);
    return list && list->kind == RT_JSON_ARRAY ? list : NULL;
}

bool copied_is(const struct rt_json *manifest) {
    return list_of(manifest, "weights") != NULL;
}

static int strange(const struct copied *c) {
    return diag_error(c->diags, 804, EXIT_MALFORMED, arena_printf(c->arena, "%s/manifest.json", c->directory),
                      "\"weights\" makes no sense");
}

/* Entries -------------------------------------------------------------------------------------------------------- */

static const char *place_text(const struct copied *c, int64_t file, int64_t offset, const char *dtype, int64_t count) {
    return arena_printf(c->arena, "%lld+%lld %s %lld", (long long)file, (long long)offset, dtype, (long long)count);
}

/* Elements of an entry's tensor, -1 where the shape makes no sense. */
static int64_t count_of(const struct rt_json *entry) {
    const struct rt_json *shape = list_of(entry, "shape");
    int64_t count = 1, size;
    for (const struct rt_json *dim = shape ? shape->first : NULL; dim; dim = dim->next)
        if (!rt_json_int(dim, &size) || size < 0 || !rt_mul(count, size, &count)) return -1;
    return count;
}

static int open_copied(struct copied *c, const char *directory, const struct rt_json *manifest, struct diags *diags) {
    *c = (struct copied){.directory = directory, .arena = diags->arena, .diags = diags};
    map_init(&c->places, c->arena);
    for (const struct rt_json *entry = list_of(manifest, "weights")->first; entry; entry = entry->next) {
        const char *dtype = rt_json_text(rt_json_member(entry, "dtype"));
        int64_t file, offset;
        if (!dtype || !rt_json_int(rt_json_member(entry, "file"), &file) ||
            !rt_json_int(rt_json_member(entry, "offset"), &offset))
            return strange(c);
        const char *place = place_text(c, file, offset, dtype, count_of(entry));
        if (file >= 0) map_put(&c->places, place, strlen(place), c->entries.n);
        VEC_PUSH(c->arena, &c->entries, entry);
    }
    return 0;
}

static bool read_cut(const struct rt_json *entry, struct sliced *sliced) {
    struct slice_cut *cut = &sliced->cut[sliced->ncuts++];
    int64_t dim, ways, step;
    if (!rt_json_int(rt_json_member(entry, "dim"), &dim) || dim < 0 || dim >= sliced->ndim ||
        !rt_json_int(rt_json_member(entry, "ways"), &ways) || ways < 1 || ways > MAX_WAYS ||
        !rt_json_int(rt_json_member(entry, "blocks"), &cut->cut.blocks) || cut->cut.blocks < 1 ||
        !rt_json_int(rt_json_member(entry, "unit"), &cut->cut.unit) || cut->cut.unit < 1 ||
        !rt_mul(cut->cut.blocks, cut->cut.unit, &step) || sliced->dims[dim] % step)
        return false;
    cut->dim = (int)dim;
    cut->cut.ways = (int)ways;
    cut->cut.extent = sliced->dims[dim];
    sliced->nslices *= cut->cut.ways;
    return sliced->nslices <= MAX_WAYS;
}

/* The entry as it was written from a struct sliced. */
static bool read_entry(const struct rt_json *entry, struct sliced *sliced, struct arena *arena) {
    const char *dtype = rt_json_text(rt_json_member(entry, "dtype"));
    const struct rt_json *shape = list_of(entry, "shape"), *cuts = list_of(entry, "cuts"),
                         *slices = list_of(entry, "slices");
    int64_t count, bytes;
    *sliced = (struct sliced){.key = rt_json_text(rt_json_member(entry, "name")),
                              .dtype = dtype ? rt_dtype_by_name(dtype) : RT_DTYPE_NONE,
                              .nslices = 1};
    if (!sliced->key || sliced->dtype == RT_DTYPE_NONE || !shape || shape->count > MAX_NDIM || !cuts ||
        cuts->count > MAX_AXES || !slices)
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

/* Files ---------------------------------------------------------------------------------------------------------- */

static void close_file(void *opened) {
    struct copied_file *file = opened;
    rt_safetensors_free(&file->tensors);
    rt_file_unmap(file->bytes, file->count);
}

static int open_file(struct copied *c, int64_t shard) {
    const char *path = slices_path(c->arena, (int)shard);
    struct rt_file_info info;
    struct rt_reason why;
    while (c->files.n <= shard) VEC_PUSH(c->arena, &c->files, NULL);
    if (c->files.at[shard]) return 0;
    struct copied_file *file = ARENA_NEW(c->arena, struct copied_file);
    arena_own(c->arena, file, close_file);
    if (!rt_file_map_below(c->directory, path, &file->bytes, &info, &why))
        return diag_refusal(c->diags, 802, EXIT_MISMATCH, NULL, &why);
    file->count = info.bytes;
    if (!rt_safetensors_parse(&file->tensors, file->bytes, (size_t)info.bytes, &why))
        return diag_refusal(c->diags, 802, EXIT_MISMATCH, arena_printf(c->arena, "%s/%s", c->directory, path), &why);
    c->files.at[shard] = file;
    return 0;
}

static int differs(const struct copied *c, const char *name, int shard) {
    return diag_error(c->diags, 802, EXIT_MISMATCH,
                      arena_printf(c->arena, "%s/%s", c->directory, slices_path(c->arena, shard)),
                      "weight %s is not as it was written", diag_quote(c->diags, name));
}

static bool has_shape(const struct rt_safetensor *tensor, const struct sliced *sliced, const struct slice *slice) {
    return tensor->dtype == sliced->dtype && tensor->ndim == slice->ndim &&
           (tensor->ndim == 0 || memcmp(tensor->dims, slice->dims, (size_t)tensor->ndim * sizeof *tensor->dims) == 0);
}

/* The slices of a tensor, each as it was written, into c->slices. */
static int find_slices(struct copied *c, const struct sliced *sliced, const struct rt_json *entry) {
    int index = 0;
    c->slices.n = c->shards.n = 0;
    for (const struct rt_json *at = list_of(entry, "slices")->first; at; at = at->next, index++) {
        const char *hash = rt_json_text(rt_json_member(at, "hash"));
        char hex[RT_HASH_HEX];
        int64_t shard;
        if (!hash || !rt_json_int(rt_json_member(at, "shard"), &shard) || shard < 0 || shard >= MAX_WAYS)
            return strange(c);
        if (open_file(c, shard) < 0) return -1;
        const struct rt_safetensor *tensor = rt_safetensors_find(&c->files.at[shard]->tensors, sliced->key);
        if (!tensor || !has_shape(tensor, sliced, &sliced->slices[index])) return differs(c, sliced->key, (int)shard);
        rt_hash_bytes(tensor->data, (size_t)tensor->bytes, hex);
        if (strcmp(hex, hash) != 0) return differs(c, sliced->key, (int)shard);
        VEC_PUSH(c->arena, &c->slices, *tensor);
        VEC_PUSH(c->arena, &c->shards, (int)shard);
    }
    return 0;
}

/* The copy of a weight of the graph, and its slices: 1; 0 where it has none. */
static int find_copy(struct copied *c, const struct tensor *tensor, struct sliced *sliced) {
    const char *place = place_text(c, tensor->stored.file, (int64_t)tensor->stored.offset,
                                   rt_dtypes[tensor->stored.dtype].name, tensor_elements(tensor));
    const int index = map_get(&c->places, place, strlen(place));
    if (index < 0) return 0;
    if (!read_entry(c->entries.at[index], sliced, c->arena)) return strange(c);
    return find_slices(c, sliced, c->entries.at[index]) < 0 ? -1 : 1;
}

/* Putting together ----------------------------------------------------------------------------------------------- */

struct scatter {
    const unsigned char *from;
    unsigned char *to;
};

static void put_run(void *context, size_t offset, size_t bytes) {
    struct scatter *scatter = context;
    memcpy(scatter->to + offset, scatter->from, bytes);
    scatter->from += bytes;
}

static void assemble(const struct copied *c, const struct sliced *sliced, unsigned char *to) {
    for (int s = 0; s < sliced->nslices; s++)
        slice_walk(sliced, s, put_run, &(struct scatter){c->slices.at[s].data, to});
}

static int64_t stored_bytes(const struct tensor *tensor) {
    return tensor_elements(tensor) * (int64_t)rt_dtype_bytes(tensor->stored.dtype);
}

static int attach_one(struct copied *c, struct tensor *tensor) {
    struct sliced sliced;
    int found = find_copy(c, tensor, &sliced);
    if (found <= 0) return found;
    if (sliced.nslices == 1) {
        tensor->data = c->slices.at[0].data;
    } else if (stored_bytes(tensor) <= SMALL) {
        unsigned char *bytes = arena_alloc(c->arena, (size_t)stored_bytes(tensor) + 1, 1);
        assemble(c, &sliced, bytes);
        tensor->data = bytes;
    }
    return 0;
}

int copied_attach(const char *directory, const struct rt_json *manifest, struct graph *graph, struct diags *diags) {
    struct copied c;
    if (open_copied(&c, directory, manifest, diags) < 0) return -1;
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].kind == TENSOR_WEIGHT && attach_one(&c, &graph->tensors.at[t]) < 0) return -1;
    return 0;
}

/* As files ------------------------------------------------------------------------------------------------------- */

struct locating {
    struct copied *copied;
    struct copied_files *files;
    const char *scratch;
    VEC(int) file_of; /* by shard: its place in files, 0: none yet */
    VEC(int) cut;     /* tensors that are to be put together */
    int64_t bytes;    /* of the scratch file */
};

static int file_of_shard(struct locating *l, int shard) {
    struct arena *arena = l->copied->arena;
    while (l->file_of.n <= shard) VEC_PUSH(arena, &l->file_of, 0);
    if (l->file_of.at[shard]) return l->file_of.at[shard];
    VEC_PUSH(arena, &l->files->all, arena_printf(arena, "%s/%s", l->copied->directory, slices_path(arena, shard)));
    return l->file_of.at[shard] = l->files->all.n - 1;
}

/* Where the weight lies from now on; of one that is cut, once the scratch file is there. */
static int locate_one(struct locating *l, struct tensor *tensor, int id) {
    struct copied *c = l->copied;
    struct sliced sliced;
    int found = find_copy(c, tensor, &sliced);
    if (found < 0) return -1;
    if (!found)
        return diag_error(c->diags, 345, EXIT_MALFORMED, arena_printf(c->arena, "%s/manifest.json", c->directory),
                          "weight %s is not among those that were copied", diag_quote(c->diags, tensor->name));
    if (sliced.nslices > 1) {
        VEC_PUSH(c->arena, &l->cut, id);
        l->bytes = rt_align(l->bytes, SCRATCH_ALIGNMENT) + stored_bytes(tensor);
        return 0;
    }
    const int shard = c->shards.at[0];
    tensor->stored.file = file_of_shard(l, shard);
    tensor->stored.offset = (uint64_t)((const char *)c->slices.at[0].data - (const char *)c->files.at[shard]->bytes);
    return 0;
}

static int fail_scratch(const struct locating *l, int error) {
    return diag_error(l->copied->diags, 611, EXIT_SYSTEM, NULL, "cannot write %s: %s",
                      diag_quote(l->copied->diags, l->scratch), strerror(error));
}

static int fill_scratch(struct locating *l, struct graph *graph, unsigned char *bytes) {
    int64_t at = 0;
    for (int i = 0; i < l->cut.n; i++) {
        struct tensor *tensor = &graph->tensors.at[l->cut.at[i]];
        struct sliced sliced;
        at = rt_align(at, SCRATCH_ALIGNMENT);
        if (find_copy(l->copied, tensor, &sliced) <= 0) return -1;
        assemble(l->copied, &sliced, bytes + at);
        tensor->stored.file = l->files->all.n;
        tensor->stored.offset = (uint64_t)at;
        at += stored_bytes(tensor);
    }
    VEC_PUSH(l->copied->arena, &l->files->all, l->scratch);
    l->files->assembled = true;
    return 0;
}

/* The disk gives its room before anything is written: a full one is an error here, and no signal later. */
static int make_scratch(struct locating *l, struct graph *graph) {
    const size_t bytes = (size_t)l->bytes;
    if (!l->cut.n) return 0;
    int fd = open(l->scratch, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, l->bytes);
    void *mapped = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && mapped == MAP_FAILED) error = errno;
    if (fd >= 0) close(fd);
    if (error) return fail_scratch(l, error);
    int status = fill_scratch(l, graph, mapped);
    munmap(mapped, bytes);
    return status;
}

int copied_locate(struct copied_files *files, const char *directory, const struct rt_json *manifest,
                  struct graph *graph, const char *first, const char *scratch, struct diags *diags) {
    struct copied c;
    struct locating l = {.copied = &c, .files = files, .scratch = scratch};
    *files = (struct copied_files){0};
    if (open_copied(&c, directory, manifest, diags) < 0) return -1;
    VEC_PUSH(c.arena, &files->all, first);
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].kind == TENSOR_WEIGHT && locate_one(&l, &graph->tensors.at[t], t) < 0) return -1;
    return make_scratch(&l, graph);
}
