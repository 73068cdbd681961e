/* Writing checkpoints. */
#define _GNU_SOURCE 1

#include "checkpoint.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that a rank has written; bytes 0: none. */
struct saved {
    int64_t bytes;
    char hash[RT_HASH_HEX];
};

struct saving {
    struct rt *rt;
    const struct rt_position *position;
    struct kept_list kept;
    struct checkpoint_path writing, done;
    struct saved own[KEPT_KINDS], *all; /* all: [rank][kind] */
};

static int fail_path(struct rt *rt, const char *what, const char *path) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_WRITE, "cannot %s '%s': %s", what, rt_quote_text(path).text,
                        strerror(errno));
}

/* Files of tensors */

static void put_text(struct rt_json_writer *w, const char *key, const char *text) {
    rt_json_key(w, key);
    rt_json_put_text(w, text);
}

static void put_int(struct rt_json_writer *w, const char *key, int64_t value) {
    rt_json_key(w, key);
    rt_json_put_int(w, value);
}

/* {dim, blocks, unit} of each cut, with the mesh axis or the part's number among how many. */
static void put_slices(struct rt_json_writer *w, const struct rt *rt, const struct kept *kept, bool part) {
    rt_json_key(w, "slices");
    rt_json_open(w, '[', RT_JSON_INLINE);
    for (int s = 0; s < kept->nsplits; s++) {
        const struct rt_split *split = &kept->split[s];
        rt_json_open(w, '{', RT_JSON_INLINE);
        put_int(w, "dim", split->dim);
        put_int(w, "blocks", split->blocks);
        put_int(w, "unit", split->unit);
        if (!part) put_int(w, "axis", split->axis);
        if (part) put_int(w, "part", rt->coordinate[split->axis]);
        if (part) put_int(w, "parts", rt->program->mesh[split->axis]);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

/* The complete shape and the place of the part, as text: metadata has no other values. */
static void put_part(struct rt_json_writer *w, const struct rt *rt, const struct kept *kept) {
    struct rt_json_writer text;
    struct rt_reason why;
    rt_json_start(&text);
    rt_json_open(&text, '{', RT_JSON_INLINE);
    rt_json_key(&text, "shape"), rt_json_put_dims(&text, kept->dims, kept->ndim);
    put_slices(&text, rt, kept, true);
    if (kept->copy) put_text(&text, "copy_of", kept->name);
    rt_json_close(&text, '}');
    rt_json_key(w, kept_key(kept));
    if (rt_json_end(&text, &why))
        rt_json_put_bytes(w, text.text, text.bytes - 1);
    else
        w->failed = w->out_of_memory = true;
    rt_json_discard(&text);
}

/* What one file gets. */
struct content {
    const struct saving *saving;
    enum kept_kind kind;
};

static bool is_mine(const struct rt *rt, const struct kept *kept) {
    return kept->at && kept->owner == rt->shard;
}

static void put_metadata(struct rt_json_writer *w, const void *context) {
    const struct content *content = context;
    const struct kept_list *list = &content->saving->kept;
    for (int i = 0; i < list->n[content->kind]; i++)
        if (is_mine(content->saving->rt, &list->at[content->kind][i]))
            put_part(w, content->saving->rt, &list->at[content->kind][i]);
}

static int write_file(struct saving *s, const char *path, const struct rt_piece *pieces, int64_t n,
                      struct saved *saved) {
    struct rt_hash hash;
    struct rt_reason why;
    rt_hash_start(&hash);
    for (int64_t i = 0; i < n; i++) {
        rt_hash_add(&hash, pieces[i].bytes, pieces[i].count);
        saved->bytes += (int64_t)pieces[i].count;
    }
    rt_hash_hex(&hash, saved->hash);
    rt_at(s->rt, -1); /* a large file may take long, and each is progress */
    return rt_file_create(path, pieces, n, &why) ? RT_OK : checkpoint_refused(s->rt, RT_ERROR_INPUT, path, &why);
}

/* The tensors of one kind that this rank owns; no file where there are none. */
static int write_kind(struct saving *s, enum kept_kind kind, struct rt_safetensor *tensors,
                      struct rt_piece *pieces) {
    const struct content content = {s, kind};
    const struct rt_safetensors_metadata metadata = {put_metadata, &content};
    struct checkpoint_path path;
    struct rt_reason why;
    int64_t n = 0;
    for (int i = 0; i < s->kept.n[kind]; i++) {
        const struct kept *kept = &s->kept.at[kind][i];
        if (!is_mine(s->rt, kept)) continue;
        tensors[n] = (struct rt_safetensor){
            .name = kept_key(kept), .dtype = kept->dtype, .ndim = kept->ndim, .bytes = kept->bytes};
        memcpy(tensors[n].dims, kept->part, sizeof tensors[n].dims);
        pieces[++n] = (struct rt_piece){kept->at, (size_t)kept->bytes};
    }
    if (!n) return RT_OK;
    RT_TRY(checkpoint_file(s->rt, &path, &s->writing, kind, s->rt->shard));
    char *header = rt_safetensors_header(tensors, n, &metadata, &pieces[0].count, &why);
    if (!header) return checkpoint_refused(s->rt, RT_ERROR_INPUT, path.text, &why);
    pieces[0].bytes = header;
    int status = write_file(s, path.text, pieces, n + 1, &s->own[kind]);
    free(header);
    return status;
}

static int write_tensors(struct saving *s) {
    int status = RT_OK;
    for (int k = 0; k < KEPT_KINDS && !status; k++) {
        struct rt_safetensor *tensors = calloc((size_t)s->kept.n[k] + 1, sizeof *tensors);
        struct rt_piece *pieces = calloc((size_t)s->kept.n[k] + 1, sizeof *pieces);
        status = tensors && pieces ? write_kind(s, (enum kept_kind)k, tensors, pieces)
                                   : rt_fail_code(s->rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
        free(tensors);
        free(pieces);
    }
    return status;
}

/* checkpoint.json */

static void put_tensors(struct rt_json_writer *w, const struct saving *s, enum kept_kind kind) {
    rt_json_key(w, kept_stems[kind]);
    rt_json_open(w, '[', RT_JSON_LINES);
    for (int i = 0; i < s->kept.n[kind]; i++) {
        const struct kept *kept = &s->kept.at[kind][i];
        rt_json_open(w, '{', RT_JSON_INLINE);
        put_text(w, "name", kept_key(kept));
        if (kept->copy) put_text(w, "copy_of", kept->name);
        put_text(w, "dtype", rt_dtypes[kept->dtype].name);
        rt_json_key(w, "shape"), rt_json_put_dims(w, kept->dims, kept->ndim);
        put_slices(w, s->rt, kept, false);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

static void put_files(struct rt_json_writer *w, const struct saving *s) {
    char path[64];
    rt_json_key(w, "files");
    rt_json_open(w, '[', RT_JSON_LINES);
    for (int i = 0; i < s->rt->program->plan_ngpus * KEPT_KINDS; i++) {
        if (!s->all[i].bytes) continue;
        snprintf(path, sizeof path, "%s-%d.safetensors", kept_stems[i % KEPT_KINDS], i / KEPT_KINDS);
        rt_json_open(w, '{', RT_JSON_INLINE);
        put_text(w, "path", path);
        put_int(w, "bytes", s->all[i].bytes);
        put_text(w, "hash", s->all[i].hash);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

static void put_checkpoint(struct rt_json_writer *w, const struct saving *s) {
    const struct rt_program *program = s->rt->program;
    int64_t mesh[RT_MAX_AXES];
    for (int a = 0; a < program->naxes; a++) mesh[a] = program->mesh[a];
    rt_json_open(w, '{', RT_JSON_LINES);
    put_int(w, "format", CHECKPOINT_FORMAT);
    put_text(w, "name", program->name);
    put_text(w, "program", program->work);
    put_int(w, "step", s->position->step);
    put_int(w, "micro_batches", s->position->micro_batches);
    put_int(w, "seed", s->position->seed);
    rt_json_key(w, "mesh"), rt_json_put_dims(w, mesh, program->naxes);
    for (int k = 0; k < KEPT_KINDS; k++) put_tensors(w, s, (enum kept_kind)k);
    put_files(w, s);
}

static int write_json(struct saving *s) {
    struct checkpoint_path path;
    struct rt_json_writer w;
    struct rt_reason why;
    char hash[RT_HASH_HEX];
    rt_json_start(&w);
    put_checkpoint(&w, s);
    rt_hash_bytes(w.text, w.bytes, hash);
    put_text(&w, "hash_above", hash);
    rt_json_close(&w, '}');
    int status = checkpoint_json(s->rt, &path, &s->writing);
    if (!status) {
        bool ok = rt_json_end(&w, &why);
        const struct rt_piece piece = {w.text, w.bytes};
        ok = ok && rt_file_create(path.text, &piece, 1, &why) && rt_file_sync_directory(s->writing.text, &why);
        if (!ok) status = checkpoint_refused(s->rt, RT_ERROR_INPUT, path.text, &why);
    }
    rt_json_discard(&w);
    return status;
}

/* Directories */

/* A directory of files, with what is in it. */
static void remove_directory(const char *path) {
    char file[PATH_MAX];
    DIR *directory = opendir(path);
    for (const struct dirent *entry; directory && (entry = readdir(directory));)
        if (snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < PATH_MAX) unlink(file);
    if (directory) closedir(directory);
    rmdir(path);
}

/* What runs that were killed left. */
static void remove_unfinished(const char *path) {
    char left[PATH_MAX];
    DIR *directory = opendir(path);
    for (const struct dirent *entry; directory && (entry = readdir(directory));)
        if (strncmp(entry->d_name, CHECKPOINT_WRITING, strlen(CHECKPOINT_WRITING)) == 0 &&
            snprintf(left, sizeof left, "%s/%s", path, entry->d_name) < PATH_MAX)
            remove_directory(left);
    if (directory) closedir(directory);
}

static int make_directories(struct saving *s, const char *directory) {
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) return fail_path(s->rt, "create", directory);
    remove_unfinished(directory);
    return mkdir(s->writing.text, 0777) == 0 ? RT_OK : fail_path(s->rt, "create", s->writing.text);
}

/* The checkpoint gets its name; one that had it before, of a run that was resumed before it, goes. */
static int publish(struct saving *s, const char *directory) {
    struct rt_reason why;
    bool replaced = renameat2(AT_FDCWD, s->writing.text, AT_FDCWD, s->done.text, RENAME_EXCHANGE) == 0;
    if (!replaced && errno != ENOENT) remove_directory(s->done.text); /* a file system that cannot exchange */
    if (!replaced && rename(s->writing.text, s->done.text) != 0) return fail_path(s->rt, "write", s->done.text);
    if (replaced) remove_directory(s->writing.text);
    if (rt_file_sync_directory(directory, &why)) return RT_OK;
    return checkpoint_refused(s->rt, RT_ERROR_INPUT, directory, &why);
}

/* All ranks */

static int meet(struct rt *rt) {
    int status = rt->comm->driver->barrier(rt->comm);
    return status ? rt_fail_comm(rt, rt->comm, status) : RT_OK;
}

static int gather_files(struct saving *s) {
    struct rt *rt = s->rt;
    s->all = calloc((size_t)rt->world, sizeof s->own);
    if (!s->all) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MEMORY, "out of memory");
    for (int r = 0; r < rt->world; r++) rt->internal->counts[r] = sizeof s->own;
    int status = rt->comm->driver->all_gather(rt->comm, s->all, s->own, rt->internal->counts);
    return status ? rt_fail_comm(rt, rt->comm, status) : RT_OK;
}

static int save(struct saving *s, const char *directory) {
    struct rt *rt = s->rt;
    RT_TRY(kept_find(&s->kept, rt));
    RT_TRY(checkpoint_path(rt, &s->writing, directory, CHECKPOINT_WRITING, s->position->step));
    RT_TRY(checkpoint_path(rt, &s->done, directory, CHECKPOINT_DONE, s->position->step));
    if (rt->rank == 0) RT_TRY(make_directories(s, directory));
    RT_TRY(meet(rt));
    if (rt->unit == 0) RT_TRY(write_tensors(s));
    RT_TRY(gather_files(s));
    if (rt->rank == 0) RT_TRY(write_json(s));
    if (rt->rank == 0) RT_TRY(publish(s, directory));
    return meet(rt);
}

int rt_save(struct rt *rt, const char *directory, const struct rt_position *position) {
    struct saving s = {.rt = rt, .position = position};
    int status = save(&s, directory);
    kept_free(&s.kept);
    free(s.all);
    if (status) rt->comm->driver->abort(rt->comm); /* the others must not wait for this rank */
    return status;
}
