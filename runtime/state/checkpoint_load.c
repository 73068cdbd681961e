/* Loads checkpoints that programs of this model and these options wrote, under any plan: each rank reads its own parts
 * (base/io/saved.h). */
#include "state/checkpoint.h"

#include "base/number/hash.h"
#include "base/io/progress.h"
#include "base/io/safetensors.h"
#include "core/handshake.h"

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
    struct rt_saved *saved;
    bool parameters_only;
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

static int refused(struct loading *l, const struct rt_reason *why) {
    l->damaged = why->kind == RT_REASON_CONTENT || why->kind == RT_REASON_CHANGED || why->kind == RT_REASON_MISSING;
    return checkpoint_refused(l->rt, EXIT_MISMATCH, l->path.text, why);
}

static int find_number(struct rt *rt, const char *which, int64_t *step) {
    char *end = NULL;
    const bool number = which[0] >= '0' && which[0] <= '9' && strlen(which) <= 18;
    *step = number ? strtoll(which, &end, 10) : -1;
    if (*step >= 0 && !*end) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "a checkpoint must be 'latest' or the number of a step, not '%s'",
                   rt_quote_text(which).text);
}

/* *step: the newest checkpoint of a step below `below`, as rank 0 sees it; -1: none. Collective. */
static int find_before(struct loading *l, int64_t below, int64_t *step) {
    struct rt *rt = l->rt;
    *step = rt->rank == 0 ? checkpoint_before(&l->directory, below) : 0;
    return rt_end_collective(rt, rt->comm, rt->comm->driver->broadcast(rt->comm, step, sizeof *step, 0));
}

static int choose(struct loading *l, const char *which, int64_t *step) {
    l->latest = strcmp(which, "latest") == 0;
    if (!l->latest) return find_number(l->rt, which, step);
    RT_TRY(find_before(l, INT64_MAX, step));
    if (*step >= 0) return RT_OK;
    return rt_fail(l->rt, RT_ERROR_SYSTEM, "'%s' contains no checkpoint", rt_quote_text(l->directory.path).text);
}

static void leave(struct loading *l) {
    if (l->at >= 0) close(l->at);
    rt_saved_close(l->saved);
    l->at = -1;
    l->saved = NULL;
}

static int enter(struct loading *l) {
    int status = checkpoint_enter(l->rt, &l->directory, &l->path, &l->at);
    l->damaged = status && is_absent(l->directory.fd, checkpoint_name(&l->path)); /* removed since it was found */
    return status;
}

static int check_program(struct loading *l, int64_t step, struct rt_position *position) {
    const struct rt_json *root = rt_saved_root(l->saved);
    const char *key = rt_json_text(rt_json_member(root, "program")), *name = rt_json_text(rt_json_member(root, "name"));
    position->per_step = 0;
    rt_json_int(rt_json_member(root, "micro_batches_per_step"), &position->per_step);
    if (!key || !name || !rt_json_int(rt_json_member(root, "micro_batches"), &position->micro_batches) ||
        !rt_json_int(rt_json_member(root, "seed"), &position->seed) ||
        !rt_json_int(rt_json_member(root, "step"), &position->step) || position->step != step ||
        position->micro_batches < 0 || position->per_step < 0)
        return fail_damaged(l, l->path.text, "checkpoint.json is incomplete, or of another step");
    /* format 1 has another key: names and shapes of the tensors decide */
    if (l->parameters_only || rt_saved_format(l->saved) == RT_SAVED_OLDEST || strcmp(key, l->rt->program->work) == 0)
        return RT_OK;
    struct rt_reason why;
    rt_saved_refuse(l->saved, rt_json_root(l->kept.manifest), &why);
    return rt_fail_code(l->rt, RT_ERROR_MISMATCH, RT_CODE_CHECKPOINT,
                        "checkpoint '%s' belongs to another program, '%s', %s", rt_quote_text(l->path.text).text,
                        rt_quote_text(name).text, why.text);
}

/* The tensor of the checkpoint that has the values; NULL, with an error, if none has, or it has another type or shape.
 * A tensor that this plan holds in two ways may be there once. */
static const struct rt_saved_tensor *find_tensor(struct loading *l, enum rt_saved_kind kind, const struct kept *kept) {
    const struct rt_saved_tensor *tensor = rt_saved_find(l->saved, kind, kept_key(kept));
    if (!tensor) tensor = rt_saved_find(l->saved, kind, kept->name);
    const bool fits = tensor && tensor->dtype == kept->dtype && tensor->ndim == kept->ndim &&
                      memcmp(tensor->dims, kept->dims, (size_t)kept->ndim * sizeof *kept->dims) == 0;
    if (fits) return tensor;
    rt_fail_code(l->rt, RT_ERROR_MISMATCH, RT_CODE_CHECKPOINT, "checkpoint '%s' has no %s '%s'%s",
                 rt_quote_text(l->path.text).text, kind == RT_SAVED_PARAMETERS ? "parameter" : "optimizer state",
                 rt_quote_text(kept->name).text, tensor ? " of this type and shape" : "");
    return NULL;
}

static int load_tensor(struct loading *l, enum rt_saved_kind kind, const struct kept *kept) {
    struct rt_reason why;
    const struct rt_saved_tensor *tensor = find_tensor(l, kind, kept);
    if (!tensor) return RT_ERROR_MISMATCH;
    if (!rt_saved_read(l->saved, tensor, &kept->region, kept->stored.start, kept->stored.count, kept->at, &why))
        return refused(l, &why);
    rt_at(l->rt, -1); /* a large tensor may take long: counts as progress */
    return RT_OK;
}

static int load_kind(struct loading *l, enum rt_saved_kind kind) {
    const int n = l->kept.n[kind];
    struct rt_progress progress;
    char what[80];
    int status = RT_OK;
    snprintf(what, sizeof what, "loading %s: tensor", rt_saved_kinds[kind]);
    rt_progress_begin(&progress, 0, !l->rt->internal->progress);
    for (int i = 0; i < n && !status; i++) {
        if (l->kept.at[kind][i].at) status = load_tensor(l, kind, &l->kept.at[kind][i]);
        rt_progress_show(&progress, what, i + 1, n, "");
    }
    rt_progress_end(&progress);
    return status;
}

/* What a new run sets when it starts is kept where only parameters are loaded. */
static int load_tensors(struct loading *l, struct rt_position *position) {
    RT_TRY(load_kind(l, RT_SAVED_PARAMETERS));
    if (!l->parameters_only) return load_kind(l, RT_SAVED_OPTIMIZER);
    position->step = position->micro_batches = position->per_step = 0;
    return RT_OK;
}

static int load_step(struct loading *l, int64_t step, struct rt_position *position) {
    leave(l);
    l->damaged = false;
    RT_TRY(checkpoint_path(l->rt, &l->path, l->directory.path, CHECKPOINT_DONE, step, 0));
    struct rt_reason why;
    RT_TRY(enter(l));
    if (!(l->saved = rt_saved_open(l->at, l->path.text, false, &why))) return refused(l, &why);
    RT_TRY(check_program(l, step, position));
    return load_tensors(l, position);
}

/* Collective. *first: the first rank that found the checkpoint damaged; the number of ranks, if all have loaded it.
 * `status` is this rank's result. Errors other than damage are returned and end the job. */
static int agree(struct loading *l, int status, int64_t *first) {
    struct rt *rt = l->rt;
    const int64_t mine = status ? rt->rank : rt->world;
    if (status && !(l->latest && l->damaged)) return status;
    status = rt->comm->driver->all_reduce(rt->comm, first, &mine, 1, RT_I64, RT_MIN);
    return rt_end_collective(rt, rt->comm, status);
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

/* Collective: refuses a checkpoint that is not the same on all ranks, which happens if hosts do not share the
 * directory. All ranks find the same error, and none leaves before: it would look like one that has failed. */
static int compare(struct loading *l, int64_t step) {
    char *all;
    RT_TRY(rt_gather_hashes(l->rt, rt_saved_hash(l->saved), &all));
    int other = 1;
    while (other < l->rt->world && memcmp(all, all + (size_t)other * RT_HASH_HEX, RT_HASH_HEX) == 0) other++;
    free(all);
    if (other == l->rt->world) return RT_OK;
    l->rt->comm->driver->barrier(l->rt->comm);
    return rt_fail_code(l->rt, RT_ERROR_MISMATCH, RT_CODE_CHECKPOINT,
                        "rank %d has another checkpoint of step %lld than rank 0: '%s' must be the same directory for "
                        "all ranks",
                        other, (long long)step, rt_quote_text(l->directory.path).text);
}

/* Loads the checkpoint of `step`, or an older intact one if "latest" was requested. What this rank has loaded of a
 * checkpoint that another rank found damaged is overwritten by the next attempt. */
static int load_intact(struct loading *l, int64_t step, struct rt_position *position) {
    for (;;) {
        int64_t first;
        const int status = load_step(l, step, position);
        RT_TRY(agree(l, status, &first));
        if (first == l->rt->world) return compare(l, step);
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
    return rt_end_collective(rt, rt->comm, rt->comm->driver->barrier(rt->comm));
}

static int load_with(struct loading *l, const char *directory, const char *which, struct rt_position *position) {
    struct rt *rt = l->rt;
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, directory);
    RT_NEEDS(rt, which);
    int status = load(l, directory, which, position);
    leave(l);
    checkpoint_close(&l->directory);
    kept_free(&l->kept);
    if (status) rt->comm->driver->abort(rt->comm); /* the others must not wait for this rank */
    return status;
}

int rt_load(struct rt *rt, const char *directory, const char *which, struct rt_position *position) {
    struct rt_position unread;
    struct loading l = {.rt = rt, .directory = {.fd = -1, .lock = -1}, .at = -1};
    return load_with(&l, directory, which, position ? position : &unread);
}

int rt_load_parameters(struct rt *rt, const char *directory, const char *which) {
    struct loading l = {.rt = rt, .directory = {.fd = -1, .lock = -1}, .at = -1, .parameters_only = true};
    struct rt_position start;
    return load_with(&l, directory, which, &start);
}
