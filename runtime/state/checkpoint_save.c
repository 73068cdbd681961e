/* Saves checkpoints.
 *
 * Note [Saving in the background]
 * rt_save writes files from where the tensors lie, while the job waits. rt_save_begin copies what this rank writes, and
 * a thread writes the files from the copy during the next steps. The thread does not communicate: results are gathered
 * and the checkpoint gets its name in rt_save_end, which all ranks call, after a step in which all have written. */
#include "state/checkpoint.h"

#include "base/io/file.h"
#include "base/io/progress.h"
#include "base/io/saved_write.h"
#include "base/thread/quiet.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file written by a rank, and the hash of its header; bytes 0: none. */
struct saved {
    int64_t bytes;
    char hash[RT_HASH_HEX];
};

/* Result of a rank's writing, gathered on all ranks. */
struct written {
    bool failed;
    struct saved kind[RT_SAVED_KINDS];
};

struct saving {
    struct rt *rt;
    struct rt_position position;
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
    /* in the background */
    const unsigned char *copy; /* of the tensors that this rank writes, one after the other in the order of the files */
    struct checkpoint_path path[RT_SAVED_KINDS];
    int status; /* of rt_save_begin; reported by rt_save_end, when all ranks know it */
    pthread_t writer;
    bool writes;         /* the thread was started */
    atomic_bool written; /* it has ended */
    bool unwritten;      /* it failed: why */
    struct rt_reason why;
};

static int fail_path(struct rt *rt, const char *what, const char *path) {
    return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_WRITE, "cannot %s '%s': %s", what, rt_quote_text(path).text,
                        strerror(errno));
}

static bool is_mine(const struct rt *rt, const struct kept *kept) {
    return kept->at && kept->owner == rt->shard;
}

/* The tensors of one kind, or those of them that this rank writes. NULL: out of memory. */
static struct rt_saved_entry *entries_of(const struct saving *s, enum rt_saved_kind kind, bool mine, int *n) {
    const struct kept_list *kept = &s->kept;
    struct rt_saved_entry *entries = calloc((size_t)kept->n[kind] + 1, sizeof *entries);
    *n = 0;
    for (int i = 0; i < kept->n[kind] && entries; i++)
        if (!mine || is_mine(s->rt, &kept->at[kind][i])) entries[(*n)++] = kept_entry(&kept->at[kind][i]);
    return entries;
}

/* A rank's file of one kind; no file if it writes none of these tensors. */
struct part_file {
    struct rt_saved_output output;
    struct rt_saved_entry *entries;
    struct checkpoint_path path;
    bool open;
};

static int begin_file(struct saving *s, struct part_file *out, enum rt_saved_kind kind) {
    struct rt_reason why;
    int n;
    if (!(out->entries = entries_of(s, kind, true, &n))) return rt_fail_memory(s->rt);
    if (!n) return RT_OK;
    RT_TRY(checkpoint_file(s->rt, &out->path, &s->writing, kind, s->rt->shard));
    out->open = rt_saved_output_begin(&out->output, s->at, out->path.text, out->entries, n, &why);
    return out->open ? RT_OK : checkpoint_refused(s->rt, EXIT_MALFORMED, out->path.text, &why);
}

static int end_file(struct saving *s, struct part_file *out, struct saved *saved) {
    struct rt_reason why;
    if (!out->open || rt_saved_output_end(&out->output, &saved->bytes, saved->hash, &why)) return RT_OK;
    saved->bytes = 0;
    return checkpoint_unwritten(s->rt, &why);
}

/* Gathers the slices of a part in s->part: collective over the ranks that have them. */
static int gather_part(struct saving *s, const struct kept *kept) {
    const size_t size = rt_dtype_bytes(kept->dtype);
    memcpy(s->part + (size_t)kept->stored.start * size, kept->at, (size_t)kept->stored.count * size);
    return rt_complete_part(s->rt, s->part, kept->dtype, kept->elements, kept->flat);
}

/* Writes the tensors of one kind that this rank owns, if `status` is RT_OK, and takes part in gathering all that it has
 * slices of. Returns `status`, or what failed. */
static int write_kind(struct saving *s, enum rt_saved_kind kind, int status) {
    struct part_file out = {.open = false};
    struct rt_progress progress;
    char what[80];
    int lost = RT_OK;
    snprintf(what, sizeof what, "saving %s: tensor", rt_saved_kinds[kind]);
    rt_progress_begin(&progress, 0, !s->rt->internal->progress);
    if (!status && s->rt->unit == 0) status = begin_file(s, &out, kind);
    for (int i = 0; i < s->kept.n[kind] && !lost; i++) {
        const struct kept *kept = &s->kept.at[kind][i];
        if (!kept->at) continue;
        if (kept->flat) lost = gather_part(s, kept);
        if (out.open && !lost && is_mine(s->rt, kept))
            rt_saved_output_append(&out.output, kept->flat ? s->part : kept->at, kept->bytes);
        rt_at(s->rt, -1); /* a large file may take long: counts as progress */
        rt_progress_show(&progress, what, i + 1, s->kept.n[kind], "");
    }
    const int ended = end_file(s, &out, &s->own.kind[kind]);
    rt_progress_end(&progress);
    free(out.entries);
    return lost ? lost : status ? status : ended;
}

/* Allocates memory for the largest part that is gathered. */
static int open_part(struct saving *s) {
    int64_t most = 0;
    for (int k = 0; k < RT_SAVED_KINDS; k++)
        for (int i = 0; i < s->kept.n[k]; i++)
            if (s->kept.at[k][i].flat && s->kept.at[k][i].bytes > most) most = s->kept.at[k][i].bytes;
    s->part = malloc((size_t)most + 1);
    return s->part ? RT_OK : rt_fail_memory(s->rt);
}

/* checkpoint.json */

/* The files of all ranks. NULL: out of memory. */
static struct rt_saved_written *written_files(const struct saving *s, int *n) {
    const int ranks = s->rt->program->plan_ngpus;
    struct rt_saved_written *files = calloc((size_t)ranks * RT_SAVED_KINDS, sizeof *files);
    *n = 0;
    for (int r = 0; r < ranks && files; r++)
        for (int k = 0; k < RT_SAVED_KINDS; k++) {
            const struct saved *saved = &s->all[r].kind[k];
            struct rt_saved_written *file = &files[*n];
            if (!saved->bytes) continue;
            rt_saved_file_name(&file->is, (enum rt_saved_kind)k, r);
            file->is.bytes = saved->bytes;
            memcpy(file->hash, saved->hash, sizeof file->hash);
            ++*n;
        }
    return files;
}

static int write_summary(struct saving *s, const struct rt_saved_summary *summary) {
    struct checkpoint_path path;
    struct rt_reason why;
    RT_TRY(checkpoint_json(s->rt, &path, &s->writing));
    if (rt_saved_summary_write(summary, s->at, path.text, &why) && rt_file_sync_directory(s->at, s->writing.text, &why))
        return RT_OK;
    return checkpoint_unwritten(s->rt, &why);
}

static int write_json(struct saving *s) {
    const struct rt_program *program = s->rt->program;
    int nfiles, n[RT_SAVED_KINDS];
    struct rt_saved_written *files = written_files(s, &nfiles);
    struct rt_saved_entry *tensors[RT_SAVED_KINDS];
    for (int k = 0; k < RT_SAVED_KINDS; k++) tensors[k] = entries_of(s, (enum rt_saved_kind)k, false, &n[k]);
    const struct rt_saved_summary summary = {
        .name = program->name,
        .program = program->work,
        .made_of = rt_saved_made_of(rt_json_root(s->kept.manifest)),
        .step = s->position.step,
        .micro_batches = s->position.micro_batches,
        .micro_batches_per_step = (int64_t)s->rt->internal->accumulate * s->rt->units->size,
        .seed = s->position.seed,
        .mesh = &program->mesh,
        .tensors = {tensors[RT_SAVED_PARAMETERS], tensors[RT_SAVED_OPTIMIZER]},
        .ntensors = {n[RT_SAVED_PARAMETERS], n[RT_SAVED_OPTIMIZER]},
        .files = files,
        .nfiles = nfiles,
    };
    const bool complete = files && tensors[RT_SAVED_PARAMETERS] && tensors[RT_SAVED_OPTIMIZER];
    const int status = complete ? write_summary(s, &summary) : rt_fail_memory(s->rt);
    for (int k = 0; k < RT_SAVED_KINDS; k++) free(tensors[k]);
    free(files);
    return status;
}

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
    return checkpoint_path(s->rt, &s->writing, s->directory->path, CHECKPOINT_WRITING, s->position.step, s->token);
}

/* Rank 0: creates the directory .writing-K-TOKEN under a new name. */
static int create_writing(struct saving *s, const char *path) {
    enum { TRIES = 100 };
    RT_TRY(open_directory(s, path));
    RT_TRY(checkpoint_path(s->rt, &s->done, path, CHECKPOINT_DONE, s->position.step, 0));
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
    for (int k = 0; k < RT_SAVED_KINDS; k++) status = write_kind(s, (enum rt_saved_kind)k, status);
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
    RT_TRY(checkpoint_path(s->rt, &aside, s->directory->path, CHECKPOINT_REMOVING, s->position.step, s->token));
    const bool exchanged = renameat2(fd, writing, fd, done, RENAME_EXCHANGE) == 0;
    if (!exchanged) RT_TRY(replace(s, checkpoint_name(&aside)));
    s->created = false;
    const bool durable = rt_file_sync_directory(fd, s->directory->path, &why);
    const bool removed = checkpoint_remove(s->directory, exchanged ? writing : checkpoint_name(&aside));
    if (!durable) return checkpoint_unwritten(s->rt, &why);
    return removed ? RT_OK : fail_path(s->rt, "remove the old content of", s->done.text);
}

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

static int begin(struct saving *s, const char *directory) {
    struct rt *rt = s->rt;
    RT_TRY(kept_find(&s->kept, rt));
    RT_TRY(open_part(s));
    if (rt->rank == 0) RT_TRY(create_writing(s, directory));
    /* All ranks derive the name of the new directory from the token. */
    return rt_end_collective(rt, rt->comm, rt->comm->driver->broadcast(rt->comm, &s->token, sizeof s->token, 0));
}

/* `status` is that of this rank's writing. */
static int end(struct saving *s, int status) {
    struct rt *rt = s->rt;
    RT_TRY(gather_files(s, status));
    if (rt->rank == 0) RT_TRY(write_json(s));
    if (rt->rank == 0) RT_TRY(publish(s));
    status = rt->comm->driver->barrier(rt->comm);
    return rt_end_collective(rt, rt->comm, status);
}

static int save(struct saving *s, const char *directory) {
    RT_TRY(begin(s, directory));
    return end(s, write_own(s, directory));
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

static int check_call(struct rt *rt, const char *directory, const struct rt_position *position) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, directory);
    RT_NEEDS(rt, position);
    if (position->step >= 0 && position->micro_batches >= 0 && position->seed >= -1) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "a checkpoint cannot have step %lld, %lld micro-batches and seed %lld",
                   (long long)position->step, (long long)position->micro_batches, (long long)position->seed);
}

int rt_save(struct rt *rt, const char *directory, const struct rt_position *position) {
    RT_TRY(check_call(rt, directory, position));
    if (rt->internal->saving) RT_TRY(rt_save_end(rt));
    struct saving s = {.rt = rt, .position = *position, .opened = {.fd = -1, .lock = -1}, .at = -1};
    int status = save(&s, directory);
    clean_up(&s);
    if (status) rt->comm->driver->abort(rt->comm); /* ends the other ranks' waits */
    return status;
}

static int64_t bytes_of_mine(const struct saving *s, enum rt_saved_kind kind) {
    int64_t bytes = 0;
    for (int i = 0; i < s->kept.n[kind]; i++)
        if (is_mine(s->rt, &s->kept.at[kind][i])) bytes += s->kept.at[kind][i].bytes;
    return bytes;
}

/* Memory for a copy, which is kept until rt_close: the pages of new memory would take longer than the copy. NULL: out
 * of memory. */
static unsigned char *room_of(struct rt *rt, size_t bytes) {
    struct rt_private *private = rt->internal;
    if (private->copy_bytes >= bytes) return private->copy;
    rt_free_copy(private);
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return NULL;
    private->copy = room;
    private->copy_bytes = bytes;
    return room;
}

void rt_free_copy(struct rt_private *private) {
    if (private->copy) munmap(private->copy, private->copy_bytes);
    private->copy = NULL;
    private->copy_bytes = 0;
}

/* Copies what this rank writes; it and other scale units take part in gathering. */
static int take_copy(struct saving *s, bool writes) {
    int64_t bytes = 0;
    for (int k = 0; k < RT_SAVED_KINDS; k++) bytes += bytes_of_mine(s, (enum rt_saved_kind)k);
    unsigned char *to = writes ? room_of(s->rt, (size_t)bytes + 1) : NULL;
    s->copy = to;
    for (int k = 0; k < RT_SAVED_KINDS; k++)
        for (int i = 0; i < s->kept.n[k]; i++) {
            const struct kept *kept = &s->kept.at[k][i];
            if (kept->at && kept->flat) RT_TRY(gather_part(s, kept));
            if (!to || !is_mine(s->rt, kept)) continue;
            memcpy(to, kept->flat ? s->part : kept->at, (size_t)kept->bytes);
            to += kept->bytes;
        }
    return writes && !s->copy ? rt_fail_memory(s->rt) : RT_OK;
}

/* The thread: writes the file of one kind from the copy at *from, and advances *from. */
static bool write_copied(struct saving *s, enum rt_saved_kind kind, const unsigned char **from) {
    struct rt_saved_output out;
    int n, at = 0;
    struct rt_saved_entry *entries = entries_of(s, kind, true, &n);
    bool done = entries || rt_refuse_memory(&s->why, (size_t)s->kept.n[kind] * sizeof *entries);
    if (done && n) done = rt_saved_output_begin(&out, s->at, s->path[kind].text, entries, n, &s->why);
    for (; done && at < s->kept.n[kind]; at++) {
        const struct kept *kept = &s->kept.at[kind][at];
        if (!is_mine(s->rt, kept)) continue;
        rt_saved_output_append(&out, *from, kept->bytes);
        *from += kept->bytes;
    }
    struct saved *saved = &s->own.kind[kind];
    if (done && n) done = rt_saved_output_end(&out, &saved->bytes, saved->hash, &s->why);
    free(entries);
    return done;
}

static void *write_files(void *saving) {
    struct saving *s = saving;
    const unsigned char *from = s->copy;
    for (int k = 0; k < RT_SAVED_KINDS && !s->unwritten; k++)
        s->unwritten = !write_copied(s, (enum rt_saved_kind)k, &from);
    atomic_store(&s->written, true);
    return NULL;
}

/* Starts the thread, which takes no signals. */
static int start_writer(struct saving *s) {
    for (int k = 0; k < RT_SAVED_KINDS; k++)
        RT_TRY(checkpoint_file(s->rt, &s->path[k], &s->writing, (enum rt_saved_kind)k, s->rt->shard));
    const int error = rt_thread_start_quiet(&s->writer, write_files, s);
    if (error) return rt_fail_code(s->rt, RT_ERROR_SYSTEM, RT_CODE_WRITE, "cannot start a thread: %s", strerror(error));
    s->writes = true;
    return RT_OK;
}

static int begin_in_background(struct saving *s, const char *directory) {
    const bool writes = s->rt->unit == 0;
    RT_TRY(begin(s, directory));
    s->status = writes ? open_writing(s, directory) : RT_OK;
    const int copied = take_copy(s, writes && !s->status);
    if (!s->status) s->status = copied;
    if (!s->status && writes) s->status = start_writer(s);
    if (!s->writes) atomic_store(&s->written, true);
    return RT_OK;
}

int rt_save_begin(struct rt *rt, const char *directory, const struct rt_position *position) {
    RT_TRY(check_call(rt, directory, position));
    if (rt->internal->saving) RT_TRY(rt_save_end(rt));
    struct saving *s = calloc(1, sizeof *s);
    if (!s) return rt_fail_memory(rt);
    *s = (struct saving){.rt = rt, .position = *position, .opened = {.fd = -1, .lock = -1}, .at = -1};
    const int status = begin_in_background(s, directory);
    if (!status) {
        rt->internal->saving = s;
        return RT_OK;
    }
    clean_up(s);
    free(s);
    rt->comm->driver->abort(rt->comm); /* ends the other ranks' waits */
    return status;
}

bool rt_save_is_written(const struct rt *rt) {
    return !rt || !rt->internal->saving || atomic_load(&rt->internal->saving->written);
}

int rt_save_end(struct rt *rt) {
    RT_NEEDS(rt, rt);
    struct saving *s = rt->internal->saving;
    if (!s) return RT_OK;
    rt->internal->saving = NULL;
    if (s->writes) pthread_join(s->writer, NULL);
    const int own = s->status ? s->status : s->unwritten ? checkpoint_unwritten(rt, &s->why) : RT_OK;
    const int status = end(s, own);
    clean_up(s);
    free(s);
    if (status) rt->comm->driver->abort(rt->comm);
    return status;
}

void rt_drop_save(struct rt *rt) {
    struct saving *s = rt->internal->saving;
    if (!s) return;
    rt->internal->saving = NULL;
    if (s->writes) pthread_join(s->writer, NULL);
    clean_up(s);
    free(s);
}
