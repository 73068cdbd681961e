/* Saves checkpoints. */
#define _GNU_SOURCE 1

#include "state/checkpoint.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file written by a rank; bytes 0: none. */
struct saved {
    int64_t bytes;
    char hash[RT_HASH_HEX];
};

/* Result of a rank's writing, gathered on all ranks. */
struct written {
    bool failed;
    struct saved kind[KEPT_KINDS];
};

struct saving {
    struct rt *rt;
    const struct rt_position *position;
    struct kept_list kept;
    const struct checkpoint_directory *directory; /* the one that the job holds, or `opened` */
    struct checkpoint_directory opened;
    struct checkpoint_path writing, done;
    uint32_t token;           /* of `writing` */
    int at;                   /* open directory `writing`; -1: none */
    bool created;             /* rank 0: `writing` exists */
    struct written own, *all; /* `all`: by rank */
    bool failed;              /* a rank failed to write; known to all ranks */
    unsigned char *part;      /* memory for a part that is gathered */
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

/* Writes dim, blocks and grain of each cut; if `part`, also the rank's part number and the number of parts, else the
 * mesh axis. */
static void put_slices(struct rt_json_writer *w, const struct rt *rt, const struct kept *kept, bool part) {
    rt_json_key(w, "slices");
    rt_json_open(w, '[', RT_JSON_INLINE);
    for (int s = 0; s < kept->nsplits; s++) {
        const struct rt_split *split = &kept->split[s];
        rt_json_open(w, '{', RT_JSON_INLINE);
        put_int(w, "dim", split->dim);
        put_int(w, "blocks", split->blocks);
        put_int(w, "unit", split->grain);
        if (!part) put_int(w, "axis", split->axis);
        if (part) put_int(w, "part", rt->coordinate[split->axis]);
        if (part) put_int(w, "parts", rt->program->mesh[split->axis]);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

/* Writes shape and cuts as JSON within a string, because safetensors metadata has string values only. */
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

/* Content of one file. */
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

/* A file that is written part by part; its length and hash are those of what was written so far. */
struct part_file {
    struct rt_new_file file;
    struct rt_hash hash;
    struct checkpoint_path path;
    struct saved *saved;
    bool open;
};

static void append(struct part_file *out, const void *bytes, size_t count) {
    rt_hash_add(&out->hash, bytes, count);
    rt_file_append(&out->file, bytes, count);
    out->saved->bytes += (int64_t)count;
}

static int end_file(struct saving *s, struct part_file *out) {
    struct rt_reason why;
    rt_hash_hex(&out->hash, out->saved->hash);
    return rt_file_end(&out->file, &why) ? RT_OK : checkpoint_unwritten(s->rt, &why);
}

/* Begins the file of the n tensors of one kind that this rank owns, and writes its header. */
static int begin_file(struct saving *s, struct part_file *out, enum kept_kind kind, const struct rt_safetensor *tensors,
                      int64_t n) {
    const struct content content = {s, kind};
    const struct rt_safetensors_metadata metadata = {put_metadata, &content};
    struct rt_reason why;
    size_t bytes;
    RT_TRY(checkpoint_file(s->rt, &out->path, &s->writing, kind, s->rt->shard));
    char *header = rt_safetensors_header(tensors, n, &metadata, &bytes, &why);
    if (!header) return checkpoint_refused(s->rt, EXIT_MALFORMED, out->path.text, &why);
    rt_hash_start(&out->hash);
    rt_file_begin_at(&out->file, s->at, out->path.text);
    append(out, header, bytes);
    free(header);
    out->open = true;
    return RT_OK;
}

/* Begins the file of the tensors of one kind that this rank owns; no file if there are none. */
static int begin_kind(struct saving *s, struct part_file *out, enum kept_kind kind) {
    struct rt_safetensor *tensors = calloc((size_t)s->kept.n[kind] + 1, sizeof *tensors);
    int64_t n = 0;
    if (!tensors) return rt_fail_memory(s->rt);
    for (int i = 0; i < s->kept.n[kind]; i++) {
        const struct kept *kept = &s->kept.at[kind][i];
        if (!is_mine(s->rt, kept)) continue;
        tensors[n] = (struct rt_safetensor){
            .name = kept_key(kept), .dtype = kept->dtype, .ndim = kept->ndim, .bytes = kept->bytes};
        memcpy(tensors[n++].dims, kept->part, sizeof tensors->dims);
    }
    int status = n ? begin_file(s, out, kind, tensors, n) : RT_OK;
    free(tensors);
    return status;
}

/* Gathers the slices of a part in s->part: collective over the ranks that have them. */
static int gather_part(struct saving *s, const struct kept *kept) {
    const size_t size = rt_dtype_bytes(kept->dtype);
    memcpy(s->part + (size_t)kept->stored.start * size, kept->at, (size_t)kept->stored.count * size);
    return rt_complete_part(s->rt, s->part, kept->dtype, kept->elements, kept->flat);
}

/* Writes the tensors of one kind that this rank owns, if `status` is RT_OK, and takes part in gathering all that it has
 * slices of. Returns `status`, or what failed. */
static int write_kind(struct saving *s, enum kept_kind kind, int status) {
    struct part_file out = {.saved = &s->own.kind[kind]};
    int lost = RT_OK;
    if (!status && s->rt->unit == 0) status = begin_kind(s, &out, kind);
    for (int i = 0; i < s->kept.n[kind] && !lost; i++) {
        const struct kept *kept = &s->kept.at[kind][i];
        if (!kept->at) continue;
        if (kept->flat) lost = gather_part(s, kept);
        if (out.open && !lost && is_mine(s->rt, kept))
            append(&out, kept->flat ? s->part : kept->at, (size_t)kept->bytes);
        rt_at(s->rt, -1); /* a large file may take long: counts as progress */
    }
    const int ended = out.open ? end_file(s, &out) : RT_OK;
    return lost ? lost : status ? status : ended;
}

/* Allocates memory for the largest part that is gathered. */
static int open_part(struct saving *s) {
    int64_t most = 0;
    for (int k = 0; k < KEPT_KINDS; k++)
        for (int i = 0; i < s->kept.n[k]; i++)
            if (s->kept.at[k][i].flat && s->kept.at[k][i].bytes > most) most = s->kept.at[k][i].bytes;
    s->part = malloc((size_t)most + 1);
    return s->part ? RT_OK : rt_fail_memory(s->rt);
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
        const struct saved *file = &s->all[i / KEPT_KINDS].kind[i % KEPT_KINDS];
        if (!file->bytes) continue;
        snprintf(path, sizeof path, "%s-%d.safetensors", kept_stems[i % KEPT_KINDS], i / KEPT_KINDS);
        rt_json_open(w, '{', RT_JSON_INLINE);
        put_text(w, "path", path);
        put_int(w, "bytes", file->bytes);
        put_text(w, "hash", file->hash);
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
    put_int(w, "micro_batches_per_step", (int64_t)s->rt->internal->accumulate * s->rt->units->size);
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
        ok = ok && rt_file_create_at(s->at, path.text, &piece, 1, &why) &&
             rt_file_sync_directory(s->at, s->writing.text, &why);
        if (!ok) status = checkpoint_unwritten(s->rt, &why);
    }
    rt_json_discard(&w);
    return status;
}

/* Directories */

/* Opens D. If the job does not hold it (rt_hold_checkpoints), rank 0 locks it for the duration of the save. */
static int open_directory(struct saving *s, const char *path) {
    const struct checkpoint_directory *held = s->rt->internal->checkpoints;
    const bool first = s->rt->rank == 0, is_held = held && strcmp(held->path, path) == 0;
    s->directory = is_held ? held : &s->opened;
    if (is_held) return RT_OK;
    RT_TRY(checkpoint_open(s->rt, &s->opened, path, first));
    return first ? checkpoint_lock(s->rt, &s->opened) : RT_OK;
}

static int name_writing(struct saving *s) {
    return checkpoint_path(s->rt, &s->writing, s->directory->path, CHECKPOINT_WRITING, s->position->step, s->token);
}

/* Rank 0: creates the directory .writing-K-TOKEN under a new name. */
static int create_writing(struct saving *s, const char *path) {
    enum { TRIES = 100 };
    RT_TRY(open_directory(s, path));
    RT_TRY(checkpoint_path(s->rt, &s->done, path, CHECKPOINT_DONE, s->position->step, 0));
    for (int tries = 0; tries < TRIES && !s->created; tries++) {
        s->token = checkpoint_token();
        RT_TRY(name_writing(s));
        s->created = mkdirat(s->directory->fd, checkpoint_name(&s->writing), 0777) == 0;
        if (!s->created && errno != EEXIST) break;
    }
    return s->created ? RT_OK : fail_path(s->rt, "create", s->writing.text);
}

static int open_writing(struct saving *s, const char *path) {
    if (s->rt->rank > 0) {
        RT_TRY(open_directory(s, path));
        RT_TRY(name_writing(s));
    }
    return checkpoint_enter(s->rt, s->directory, &s->writing, &s->at);
}

/* Writes the files of this rank's tensors, in scale unit 0. A rank that failed, and other units, still gather. */
static int write_own(struct saving *s, const char *path) {
    int status = s->rt->unit > 0 ? RT_OK : open_writing(s, path);
    for (int k = 0; k < KEPT_KINDS; k++) status = write_kind(s, (enum kept_kind)k, status);
    return status;
}

/* For file systems that cannot exchange two names: renames an existing checkpoint aside, and back if the new one cannot
 * be renamed into its place. */
static int replace(struct saving *s, const char *aside) {
    const int fd = s->directory->fd;
    const char *writing = checkpoint_name(&s->writing), *done = checkpoint_name(&s->done);
    const bool moved = renameat(fd, done, fd, aside) == 0;
    if (!moved && errno != ENOENT) return fail_path(s->rt, "replace", s->done.text);
    if (renameat(fd, writing, fd, done) == 0) return RT_OK;
    int status = fail_path(s->rt, "write", s->done.text);
    if (moved) renameat(fd, aside, fd, done);
    return status;
}

/* Renames the complete checkpoint to step-K and removes an existing one of that name, left by a run that was resumed
 * from an earlier step. */
static int publish(struct saving *s) {
    const int fd = s->directory->fd;
    const char *writing = checkpoint_name(&s->writing), *done = checkpoint_name(&s->done);
    struct checkpoint_path aside;
    struct rt_reason why;
    RT_TRY(checkpoint_path(s->rt, &aside, s->directory->path, CHECKPOINT_REMOVING, s->position->step, s->token));
    const bool exchanged = renameat2(fd, writing, fd, done, RENAME_EXCHANGE) == 0;
    if (!exchanged) RT_TRY(replace(s, checkpoint_name(&aside)));
    s->created = false;
    const bool durable = rt_file_sync_directory(fd, s->directory->path, &why);
    const bool removed = checkpoint_remove(s->directory, exchanged ? writing : checkpoint_name(&aside));
    if (!durable) return checkpoint_unwritten(s->rt, &why);
    return removed ? RT_OK : fail_path(s->rt, "remove the old content of", s->done.text);
}

/* All ranks */

/* Gathers all ranks' results. `status` is that of this rank's writing. A rank that failed takes part too, so that no
 * rank still writes when rank 0 removes the files. Returns `status`, or RT_ERROR_PEER if another rank failed. */
static int gather_files(struct saving *s, int status) {
    struct rt *rt = s->rt;
    s->own.failed = status != RT_OK;
    s->all = calloc((size_t)rt->world, sizeof *s->all);
    if (!s->all) return rt_fail_memory(rt);
    for (int r = 0; r < rt->world; r++) rt->internal->counts[r] = sizeof s->own;
    int lost = rt->comm->driver->all_gather(rt->comm, s->all, &s->own, rt->internal->counts);
    for (int r = 0; r < rt->world && !lost; r++) s->failed = s->failed || s->all[r].failed;
    if (status) return status;
    return lost || s->failed ? rt_fail_comm(rt, rt->comm, lost ? lost : RT_ERROR_PEER) : RT_OK;
}

static int save(struct saving *s, const char *directory) {
    struct rt *rt = s->rt;
    RT_TRY(kept_find(&s->kept, rt));
    RT_TRY(open_part(s));
    if (rt->rank == 0) RT_TRY(create_writing(s, directory));
    /* All ranks derive the name of the new directory from the token. */
    int status = rt->comm->driver->broadcast(rt->comm, &s->token, sizeof s->token, 0);
    if (status) return rt_fail_comm(rt, rt->comm, status);
    RT_TRY(gather_files(s, write_own(s, directory)));
    if (rt->rank == 0) RT_TRY(write_json(s));
    if (rt->rank == 0) RT_TRY(publish(s));
    status = rt->comm->driver->barrier(rt->comm);
    return status ? rt_fail_comm(rt, rt->comm, status) : RT_OK;
}

/* Releases everything; removes the files of a failed save. */
static void clean_up(struct saving *s) {
    struct rt_comm *comm = s->rt->comm;
    if (s->created) checkpoint_remove(s->directory, checkpoint_name(&s->writing));
    /* all ranks leave together: the launcher ends the job when one has left */
    if (s->failed) comm->driver->barrier(comm);
    if (s->at >= 0) close(s->at);
    checkpoint_close(&s->opened);
    kept_free(&s->kept);
    free(s->part);
    free(s->all);
}

int rt_save(struct rt *rt, const char *directory, const struct rt_position *position) {
    struct saving s = {.rt = rt, .position = position, .opened = {.fd = -1, .lock = -1}, .at = -1};
    int status = save(&s, directory);
    clean_up(&s);
    if (status) rt->comm->driver->abort(rt->comm); /* ends the other ranks' waits */
    return status;
}
