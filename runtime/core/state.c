/* State that steps of inference keep for the next one (struct rt_size, struct rt_rows). */
#include "base/io/file.h"
#include "base/number/hash.h"
#include "core/private.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t rt_state_length(const struct rt *rt) {
    const int s = rt ? rt_growing_size(rt->program) : -1;
    return s < 0 ? -1 : rt->internal->sizes[s];
}

int64_t rt_state_capacity(const struct rt *rt) {
    const int s = rt ? rt_growing_size(rt->program) : -1;
    return s < 0 ? INT64_MAX : rt->program->sizes[s].most;
}

static void keep_rows(struct rt *rt, int64_t rows) {
    for (int s = 0; s < rt->program->nsizes; s++)
        if (rt->program->sizes[s].next) rt->internal->sizes[s] = rows;
}

int rt_state_reset(struct rt *rt) {
    RT_NEEDS(rt, rt);
    const size_t replaced = rt->rank_class->replaced;
    const bool changed = rt->internal->state_changed;
    keep_rows(rt, 0);
    rt->internal->state_changed = false;
    return replaced && changed ? rt->program->device->zero(rt, rt->arena[RT_STATE], replaced) : RT_OK;
}

int rt_state_truncate(struct rt *rt, int64_t length) {
    RT_NEEDS(rt, rt);
    const int64_t now = rt_state_length(rt);
    if (length < 0 || length > now)
        return rt_fail(rt, RT_ERROR_USAGE, "state of %" PRId64 " row(s) cannot be cut to %" PRId64, now, length);
    if (rt->rank_class->replaced && length != now)
        return rt_fail(rt, RT_ERROR_USAGE, "state that each step replaces cannot go back to %" PRId64 " rows", length);
    keep_rows(rt, length);
    return RT_OK;
}

/* Begins a rank's file: behind it are the replaced states, then the rows of each cache, block after block. */
struct header {
    char magic[16];
    char key[RT_HASH_HEX]; /* of the program */
    int32_t rank, world, adapter;
    int64_t sizes[RT_MAX_SIZES], bytes; /* bytes: behind the header */
};
#define MAGIC "rankc-state 002"

static int64_t number(const struct rt *rt, int64_t value) {
    const int extent = rt_open_extent(value);
    return extent < 0 ? value : rt->extents[extent];
}

/* Handles one contiguous run of the bytes in use. */
typedef int run_fn(struct rt *rt, void *in_arena, unsigned char *in_file, size_t bytes);

static int save_run(struct rt *rt, void *in_arena, unsigned char *in_file, size_t bytes) {
    return rt->program->device->get(rt, in_file, in_arena, bytes);
}
static int restore_run(struct rt *rt, void *in_arena, unsigned char *in_file, size_t bytes) {
    return rt->program->device->put(rt, in_arena, in_file, bytes);
}

/* Calls `run` for all bytes that are in use when the caches have that many rows, and sets *count to their number.
 * `file` has room for them; NULL: the bytes are only counted. */
static int visit(struct rt *rt, int64_t rows, unsigned char *file, run_fn *run, size_t *count) {
    const struct rt_rank_class *class = rt->rank_class;
    unsigned char *state = rt->arena[RT_STATE];
    *count = class->replaced;
    if (file && class->replaced) RT_TRY(run(rt, state, file, class->replaced));
    for (int i = 0; i < class->ngrowing; i++) {
        const struct rt_rows *of = &class->growing[i];
        const size_t block = (size_t)number(rt, of->block), used = (size_t)(number(rt, of->row) * rows);
        for (int64_t b = 0; b < number(rt, of->blocks); b++, *count += used)
            if (file && used) RT_TRY(run(rt, state + of->offset + (size_t)b * block, file + *count, used));
    }
    return RT_OK;
}

static int name_file(struct rt *rt, const char *directory, char *path) {
    if (snprintf(path, PATH_MAX, "%s/state-%d", directory, rt->rank) < PATH_MAX) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "the path of the directory is too long");
}

static void begin_header(const struct rt *rt, struct header *header) {
    *header = (struct header){.magic = MAGIC, .rank = rt->rank, .world = rt->world, .adapter = rt->internal->adapter};
    snprintf(header->key, sizeof header->key, "%s", rt->program->key);
}

int rt_state_save(struct rt *rt, const char *directory) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, directory);
    char path[PATH_MAX];
    struct header header;
    struct rt_reason why;
    size_t bytes;
    RT_TRY(name_file(rt, directory, path));
    const int64_t rows = rt_state_length(rt) < 0 ? 0 : rt_state_length(rt);
    RT_TRY(visit(rt, rows, NULL, NULL, &bytes));
    begin_header(rt, &header);
    memcpy(header.sizes, rt->internal->sizes, sizeof header.sizes);
    header.bytes = (int64_t)bytes;
    unsigned char *file = malloc(bytes + 1);
    if (!file) return rt_fail_memory(rt);
    int status = visit(rt, rows, file, save_run, &bytes);
    if (!status) status = rt->program->device->finish(rt);
    const struct rt_piece pieces[] = {{&header, sizeof header}, {file, bytes}};
    if (!status && !rt_file_write(path, pieces, 2, &why))
        status = rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_WRITE, "%s: %s", path, why.text);
    free(file);
    return status;
}

/* Takes the state of a mapped file. */
static int take_file(struct rt *rt, const char *path, const unsigned char *at, int64_t count) {
    struct header header, own;
    size_t bytes;
    const int s = rt_growing_size(rt->program);
    if (count < (int64_t)sizeof header)
        return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_FORMAT, "%s is no state of a program", path);
    memcpy(&header, at, sizeof header);
    begin_header(rt, &own);
    if (memcmp(header.magic, own.magic, sizeof own.magic) != 0 || memcmp(header.key, own.key, sizeof own.key) != 0 ||
        header.rank != own.rank || header.world != own.world)
        return rt_fail(rt, RT_ERROR_MISMATCH, "%s is the state of another program or rank", path);
    if (header.adapter != own.adapter)
        return rt_fail(rt, RT_ERROR_MISMATCH, "%s was computed with another adapter", path);
    const int64_t rows = s < 0 ? 0 : header.sizes[s];
    if (rows < 0 || rows > rt_state_capacity(rt))
        return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_FORMAT, "%s has %" PRId64 " row(s)", path, rows);
    for (int i = 0; i < rt->program->nsizes; i++)
        if (rt->program->sizes[i].next ? header.sizes[i] != rows
                                       : !rt_size_fits(&rt->program->sizes[i], header.sizes[i]))
            return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_FORMAT, "%s has sizes of no step", path);
    RT_TRY(rt_set_sizes(rt, header.sizes));
    RT_TRY(visit(rt, rows, NULL, NULL, &bytes));
    if (header.bytes != (int64_t)bytes || count != (int64_t)(sizeof header + bytes))
        return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_FORMAT, "%s is incomplete", path);
    keep_rows(rt, rows);
    rt->internal->state_changed = true;
    return visit(rt, rows, (unsigned char *)(uintptr_t)(at + sizeof header), restore_run, &bytes);
}

int rt_state_restore(struct rt *rt, const char *directory) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, directory);
    char path[PATH_MAX];
    const void *at = NULL;
    struct rt_file_info info;
    struct rt_reason why;
    RT_TRY(name_file(rt, directory, path));
    if (!rt_file_map(path, &at, &info, &why)) return rt_fail(rt, RT_ERROR_SYSTEM, "%s: %s", path, why.text);
    int status = take_file(rt, path, at, at ? info.bytes : 0);
    if (!status) status = rt->program->device->finish(rt);
    rt_file_unmap(at, info.bytes);
    return status;
}
