/* Loads checkpoints. They are untrusted: all bytes that are used are covered by a hash, and every size is checked. */
#define _GNU_SOURCE 1

#include "state/checkpoint.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The error of the newest checkpoint, if it was not loaded. */
struct fault {
    int status, code; /* status RT_OK: no error, or another rank reports it */
    char text[sizeof((struct rt_private *)0)->error];
};

struct loading {
    struct rt *rt;
    struct kept_list kept;
    struct checkpoint_directory directory;
    struct checkpoint_path path;
    int at; /* open directory of the checkpoint; -1: none */
    struct rt_json_document *json;
    bool latest;  /* "latest" was requested: an older checkpoint may be loaded instead */
    bool damaged; /* the recorded error is damage of the checkpoint: an older one may be intact */
    int faults;   /* damaged checkpoints so far */
    struct fault newest;
};

static int fail_damaged(struct loading *l, const char *path, const char *what) {
    l->damaged = true;
    return rt_fail_code(l->rt, RT_ERROR_MISMATCH, RT_CODE_CHECKPOINT, "checkpoint '%s' is damaged: %s",
                        rt_quote_text(path).text, what);
}

static bool is_absent(int directory, const char *name) {
    return faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static int refused(struct loading *l, const char *path, const struct rt_reason *why) {
    l->damaged = why->kind == RT_REASON_CONTENT || why->kind == RT_REASON_CHANGED ||
                 (why->kind == RT_REASON_SYSTEM && is_absent(l->at, strrchr(path, '/') + 1));
    return checkpoint_refused(l->rt, EXIT_MISMATCH, path, why);
}

/* Finding */

static int find_number(struct rt *rt, const char *which, int64_t *step) {
    char *end = NULL;
    const bool number = which[0] >= '0' && which[0] <= '9' && strlen(which) <= 18;
    *step = number ? strtoll(which, &end, 10) : -1;
    if (*step >= 0 && !*end) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_USAGE,
                        "a checkpoint must be 'latest' or the number of a step, not '%s'", rt_quote_text(which).text);
}

/* *step: the newest checkpoint of a step below `below`, as rank 0 sees it; -1: none. Collective. */
static int find_before(struct loading *l, int64_t below, int64_t *step) {
    struct rt *rt = l->rt;
    *step = rt->rank == 0 ? checkpoint_before(&l->directory, below) : 0;
    int status = rt->comm->driver->broadcast(rt->comm, step, sizeof *step, 0);
    return status ? rt_fail_comm(rt, rt->comm, status) : RT_OK;
}

static int choose(struct loading *l, const char *which, int64_t *step) {
    l->latest = strcmp(which, "latest") == 0;
    if (!l->latest) return find_number(l->rt, which, step);
    RT_TRY(find_before(l, INT64_MAX, step));
    if (*step >= 0) return RT_OK;
    return rt_fail_code(l->rt, RT_ERROR_SYSTEM, RT_CODE_OPEN, "'%s' contains no checkpoint",
                        rt_quote_text(l->directory.path).text);
}

static void leave(struct loading *l) {
    if (l->at >= 0) close(l->at);
    rt_json_free(l->json);
    l->at = -1;
    l->json = NULL;
}

static int enter(struct loading *l) {
    int status = checkpoint_enter(l->rt, &l->directory, &l->path, &l->at);
    l->damaged = status && is_absent(l->directory.fd, checkpoint_name(&l->path)); /* removed since it was found */
    return status;
}

/* checkpoint.json */

static bool is_intact(const char *text, size_t bytes) {
    const char *at = memmem(text, bytes, CHECKPOINT_HASH, strlen(CHECKPOINT_HASH));
    char hex[RT_HASH_HEX];
    if (!at || bytes - (size_t)(at - text) < strlen(CHECKPOINT_HASH) + RT_HASH_HEX) return false;
    rt_hash_bytes(text, (size_t)(at - text), hex);
    return memcmp(at + strlen(CHECKPOINT_HASH), hex, RT_HASH_HEX - 1) == 0;
}

static int read_json(struct loading *l) {
    struct checkpoint_path path;
    struct rt_reason why;
    void *text;
    size_t bytes;
    RT_TRY(checkpoint_json(l->rt, &path, &l->path));
    if (!rt_file_read_at(l->at, path.text, (size_t)1 << 30, &text, &bytes, &why)) return refused(l, path.text, &why);
    int status = is_intact(text, bytes) ? RT_OK : fail_damaged(l, path.text, "its hash differs");
    if (!status && !(l->json = rt_json_parse(text, bytes, &why))) status = refused(l, path.text, &why);
    free(text);
    return status;
}

static int check_program(struct loading *l, int64_t step, struct rt_position *position) {
    const struct rt_json *root = rt_json_root(l->json);
    const char *key = rt_json_text(rt_json_member(root, "program")), *name = rt_json_text(rt_json_member(root, "name"));
    int64_t format = 0;
    rt_json_int(rt_json_member(root, "format"), &format);
    position->per_step = 0;
    rt_json_int(rt_json_member(root, "micro_batches_per_step"), &position->per_step);
    if (format != CHECKPOINT_FORMAT || !key || !name ||
        !rt_json_int(rt_json_member(root, "micro_batches"), &position->micro_batches) ||
        !rt_json_int(rt_json_member(root, "seed"), &position->seed) ||
        !rt_json_int(rt_json_member(root, "step"), &position->step) || position->step != step ||
        position->micro_batches < 0 || position->per_step < 0)
        return fail_damaged(l, l->path.text, "checkpoint.json is incomplete, or of another step");
    if (strcmp(key, l->rt->program->work) == 0) return RT_OK;
    return rt_fail_code(
        l->rt, RT_ERROR_MISMATCH, RT_CODE_CHECKPOINT,
        "checkpoint '%s' belongs to another program, '%s', compiled from another model, plan or options",
        rt_quote_text(l->path.text).text, rt_quote_text(name).text);
}

/* Files of tensors */

/* Checks a file's length and hash against checkpoint.json. */
static int check_file(struct loading *l, const char *path, const struct rt_reader *from) {
    const char *name = strrchr(path, '/') + 1;
    const struct rt_json *files = rt_json_member(rt_json_root(l->json), "files");
    for (const struct rt_json *file = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; file;
         file = file->next) {
        const char *called = rt_json_text(rt_json_member(file, "path")),
                   *hash = rt_json_text(rt_json_member(file, "hash"));
        int64_t expected = -1;
        char found[RT_HASH_HEX];
        struct rt_reason why;
        if (!called || strcmp(called, name) != 0) continue;
        rt_json_int(rt_json_member(file, "bytes"), &expected);
        if (expected != from->info.bytes) return fail_damaged(l, path, "its size differs");
        if (!rt_hash_reader(from, found, &why)) return refused(l, path, &why);
        return hash && strcmp(hash, found) == 0 ? RT_OK : fail_damaged(l, path, "its hash differs");
    }
    return fail_damaged(l, path, "checkpoint.json does not list it");
}

static int read_tensor(struct loading *l, const struct checkpoint_path *path, const struct rt_reader *from,
                       const struct rt_safetensors *file, const struct kept *kept) {
    const struct rt_safetensor *tensor = rt_safetensors_find(file, kept_key(kept));
    struct rt_reason why;
    if (!tensor || tensor->dtype != kept->dtype || tensor->ndim != kept->ndim ||
        memcmp(tensor->dims, kept->part, (size_t)kept->ndim * sizeof *kept->part) != 0)
        return rt_fail_code(l->rt, RT_ERROR_MISMATCH, RT_CODE_CHECKPOINT,
                            "'%s' has no tensor '%s' of this rank's shape", rt_quote_text(path->text).text,
                            rt_quote_text(kept_key(kept)).text);
    const int64_t size = (int64_t)rt_dtype_bytes(kept->dtype);
    if (rt_reader_get(from, tensor->offset + kept->stored.start * size, kept->at, (size_t)(kept->stored.count * size),
                      &why))
        return RT_OK;
    return refused(l, path->text, &why);
}

static int read_tensors(struct loading *l, const struct checkpoint_path *path, const struct rt_reader *from,
                        enum kept_kind kind, int owner) {
    struct rt_safetensors file;
    struct rt_reason why;
    if (!rt_safetensors_read(&file, from, &why)) return refused(l, path->text, &why);
    int status = RT_OK;
    for (int i = 0; i < l->kept.n[kind] && !status; i++) {
        const struct kept *kept = &l->kept.at[kind][i];
        if (kept->at && kept->owner == owner) status = read_tensor(l, path, from, &file, kept);
    }
    rt_safetensors_free(&file);
    if (!status && !rt_reader_check(from, true, &why)) status = refused(l, path->text, &why);
    return status;
}

static int load_file(struct loading *l, enum kept_kind kind, int owner) {
    struct checkpoint_path path;
    struct rt_reader file;
    struct rt_reason why;
    RT_TRY(checkpoint_file(l->rt, &path, &l->path, kind, owner));
    if (!rt_reader_open_at(&file, l->at, path.text, &why)) return refused(l, path.text, &why);
    rt_at(l->rt, -1);
    int status = check_file(l, path.text, &file);
    if (!status) status = read_tensors(l, &path, &file, kind, owner);
    rt_reader_close(&file);
    return status;
}

static bool owns_mine(const struct loading *l, enum kept_kind kind, int shard) {
    for (int i = 0; i < l->kept.n[kind]; i++)
        if (l->kept.at[kind][i].at && l->kept.at[kind][i].owner == shard) return true;
    return false;
}

static int load_tensors(struct loading *l) {
    for (int k = 0; k < KEPT_KINDS; k++)
        for (int shard = 0; shard < l->rt->program->plan_ngpus; shard++)
            if (owns_mine(l, (enum kept_kind)k, shard)) RT_TRY(load_file(l, (enum kept_kind)k, shard));
    return RT_OK;
}

/* Passing over */

static int load_step(struct loading *l, int64_t step, struct rt_position *position) {
    leave(l);
    l->damaged = false;
    RT_TRY(checkpoint_path(l->rt, &l->path, l->directory.path, CHECKPOINT_DONE, step, 0));
    RT_TRY(enter(l));
    RT_TRY(read_json(l));
    RT_TRY(check_program(l, step, position));
    return load_tensors(l);
}

/* Collective. *first: the first rank that found the checkpoint damaged; the number of ranks, if all have loaded it.
 * `status` is this rank's result. Errors other than damage are returned and end the job. */
static int agree(struct loading *l, int status, int64_t *first) {
    struct rt *rt = l->rt;
    const int64_t mine = status ? rt->rank : rt->world;
    if (status && !(l->latest && l->damaged)) return status;
    status = rt->comm->driver->all_reduce(rt->comm, first, &mine, 1, RT_I64, RT_MIN);
    return status ? rt_fail_comm(rt, rt->comm, status) : RT_OK;
}

static void keep_fault(struct loading *l, int status) {
    const struct rt_private *private = l->rt->internal;
    l->newest = (struct fault){.status = status, .code = private->code};
    memcpy(l->newest.text, private->error, sizeof l->newest.text);
}

/* All checkpoints are damaged. The rank with the newest one's error returns it; the others wait until the job is
 * aborted. */
static int fail_newest(struct loading *l) {
    struct rt *rt = l->rt;
    if (l->newest.status) return rt_fail_code(rt, l->newest.status, l->newest.code, "%s", l->newest.text);
    return rt_fail_comm(rt, rt->comm, rt->comm->driver->barrier(rt->comm));
}

/* Goes from the damaged checkpoint *step to the one before. `status`: this rank's result; `reports`: this rank is the
 * first that found damage and prints the warning. */
static int step_back(struct loading *l, int status, bool reports, int64_t *step) {
    struct rt_private *private = l->rt->internal;
    const int64_t from = *step;
    if (l->faults++ == 0 && reports) keep_fault(l, status);
    RT_TRY(find_before(l, from, step));
    if (*step < 0) return fail_newest(l);
    if (reports)
        rt_warn(l->rt, private->code, "%s; loading 'step-%lld' instead of 'step-%lld'", private->error,
                (long long)*step, (long long)from);
    private->error[0] = 0;
    private->code = 0;
    return RT_OK;
}

/* Loads the checkpoint of `step`, or an older intact one if "latest" was requested. What this rank has loaded of a
 * checkpoint that another rank found damaged is overwritten by the next attempt. */
static int load_intact(struct loading *l, int64_t step, struct rt_position *position) {
    for (;;) {
        int64_t first;
        const int status = load_step(l, step, position);
        RT_TRY(agree(l, status, &first));
        if (first == l->rt->world) return RT_OK;
        RT_TRY(step_back(l, status, first == l->rt->rank, &step));
    }
}

static int load(struct loading *l, const char *directory, const char *which, struct rt_position *position) {
    struct rt *rt = l->rt;
    int64_t step;
    RT_TRY(kept_find(&l->kept, rt));
    RT_TRY(checkpoint_open(rt, &l->directory, directory, false));
    RT_TRY(choose(l, which, &step));
    RT_TRY(load_intact(l, step, position));
    RT_TRY(kept_give(&l->kept, rt));
    rt->internal->trained = position->step;
    rt->internal->micro_batches = position->micro_batches;
    int status = rt->comm->driver->barrier(rt->comm);
    return status ? rt_fail_comm(rt, rt->comm, status) : RT_OK;
}

int rt_load(struct rt *rt, const char *directory, const char *which, struct rt_position *position) {
    struct loading l = {.rt = rt, .directory = {.fd = -1, .lock = -1}, .at = -1};
    int status = load(&l, directory, which, position);
    leave(&l);
    checkpoint_close(&l.directory);
    kept_free(&l.kept);
    if (status) rt->comm->driver->abort(rt->comm); /* the others must not wait for this rank */
    return status;
}
