#include "frontend/driver/driver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/annotations/annotations.h"
#include "frontend/driver/job/job.h"
#include "frontend/driver/program/build_program.h"
#include "frontend/driver/output/location.h"
#include "frontend/driver/reuse/reuse.h"
#include "frontend/driver/search/search.h"
#include "frontend/driver/sizes_at.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/text.h"

/* The search of --pas autodist, with the job that has its plan: 0, or -1 after a diagnostic. */
static int search(const struct options *options, struct arena *arena, struct diags *diags, struct search *search) {
    if (search_plan(options, arena, diags, search) < 0) return -1;
    search_explain(search, options, arena, diags);
    return 0;
}

/* Reads and plans the model. The result is in `arena`. *found: the search that chose the plan, if there was one. */
static int plan(const struct options *options, struct arena *arena, struct diags *diags, struct job **planned,
                struct search *found) {
    if (search_is_wanted(options)) {
        if (search(options, arena, diags, found) < 0) return -1;
        *planned = found->job;
        diags_append(diags, (*planned)->diags);
        (*planned)->diags = diags;
        return job_number_sources(*planned);
    }
    struct job *job = *planned = ARENA_NEW(arena, struct job);
    *job = (struct job){.options = options, .arena = arena, .diags = diags};
    return job_read(job) < 0 || job_plan_ranks(job) < 0 ? -1 : job_number_sources(job);
}

/* The sizes at which memory is shown: those that are given beside the bounds. */
static int take_sizes(const struct job *job, const struct option_sizes *dims, const int64_t **out) {
    struct open_sizes *open = job->graph->open;
    int64_t *sizes = ARENA_ARRAY(job->arena, int64_t, OPEN_SIZES);
    for (int i = 0; open && i < open->all.n; i++) sizes[i] = open->all.at[i].range.most;
    *out = sizes;
    return sizes_at(open, dims->more.at, dims->more.n, job->diags, sizes);
}

int driver_plan(const struct options *options, struct arena *arena, struct diags *diags, const char **manifest_json,
                int *ranks) {
    struct job *job;
    struct search found = {0};
    if (batch_take(&options, arena, diags) < 0) return -1;
    int status = plan(options, arena, diags, &job, &found);
    if (!status) {
        job->names = (struct directory_names){options_model(options, arena), options_instance(options, arena)};
        status = job_describe(job);
    }
    if (!status) {
        struct manifest manifest = job_manifest(job, NULL);
        const struct option_sizes *dims = &job->options->dims;
        if (dims->more.n && (status = take_sizes(job, dims, &manifest.sizes)) < 0) return status;
        manifest.search = &found, manifest.put_search = found.job ? search_put : NULL;
        *manifest_json = manifest_text(&manifest);
        *ranks = job->runtime_ngpus;
        if (!*manifest_json) status = job_out_of_memory(job);
    }
    if (!status && options->save_plan && !job_plan_text(job)) status = -1;
    if (!status && options->onnx_out) status = annotations_write_plan(job->options, arena, diags);
    return status;
}

int driver_dump(const struct options *options, struct arena *arena, struct diags *diags, const char **text) {
    if (batch_take(&options, arena, diags) < 0) return -1;
    struct job job = {.options = options, .arena = arena, .diags = diags};
    const struct pass *last = pass_find(options->dump_after);
    if (!last) {
        const char **names = ARENA_ARRAY(arena, const char *, npasses + 1);
        for (int i = 0; i < npasses; i++) names[i] = passes[i].name;
        const char *near = str_nearest(options->dump_after, names);
        diag_error(diags, 206, EXIT_USAGE, NULL, "unknown pass %s", diag_quote(diags, options->dump_after));
        const char *known = "";
        for (int i = 0; i < npasses; i++) known = arena_printf(arena, "%s%s%s", known, i ? ", " : "", names[i]);
        diag_note(diags, "passes, in order: %s", known);
        if (near) diag_help(diags, "did you mean '%s'?", near);
        return -1;
    }
    int status = job_read(&job);
    if (!status) status = job_read_training(&job);
    struct pass_context context = job_pass_context(&job);
    if (!status) status = pipeline_run(job.graph, &context, last);
    if (!status) *text = text_print_blocks(arena, job.graph);
    return status;
}

int driver_adaptable(const struct options *options, struct arena *arena, struct diags *diags, struct graph **graph) {
    struct job job = {.options = options, .arena = arena, .diags = diags};
    if (batch_take(&job.options, arena, diags) < 0 || job_read(&job) < 0) return -1;
    const struct pass_context context = job_pass_context(&job);
    *graph = job.graph;
    return pipeline_run(job.graph, &context, pass_find("fuse"));
}

/* struct reuse_check: errors of the command line, such as missing sizes, unknown inputs or invalid training options,
 * take precedence over a mismatch with the earlier result. 0, or -1 after a diagnostic. */
static int check_command(void *context) {
    struct job *job = context;
    return (!job->graph && job_import(job, NULL) < 0) || job_read_training(job) < 0 ? -1 : 0;
}

static enum reuse_action decide(struct job *job, const struct output *output) {
    const struct reuse_check check = {check_command, job};
    return reuse_decide(output->directory, job->options, &job->keys, &check, job->arena, job->diags);
}

/* The text that location.json of a reused result must have, NULL if it already has it. It changes if the model was
 * moved, if programs no longer read any file of it, or with --runtime-ngpus. */
static int new_location(const struct job *job, const struct output *output, const char **text) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    *text = NULL;
    const struct location location = job_location(job);
    *text = reuse_location(output->directory, &location, job->diags);
    if (!*text) return -1;
    const char *path = arena_printf(job->arena, "%s/location.json", output->directory);
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why)) return 0;
    if (count == strlen(*text) && memcmp(bytes, *text, count) == 0) *text = NULL;
    arena_release(job->arena, bytes);
    return 0;
}

/* True if the programs of the result are up to date. The graph of an ONNX model is not imported yet at this point, so
 * --train tells whether it is trained; text IR is parsed and tells itself. */
static bool is_built(const struct job *job, const struct output *output) {
    bool trains = job->options->train || job_training(job);
    return job->options->no_build || build_is_current(job->arena, output->directory, trains);
}

/* --save-plan for a result that is reused: copies its plan.json. */
static int copy_plan(const struct job *job, const struct output *output) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!job->options->save_plan) return 0;
    const char *path = arena_printf(job->arena, "%s/plan.json", output->directory);
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why))
        return diag_refusal(job->diags, 803, EXIT_MALFORMED, NULL, &why);
    int status = job_save_plan(job, bytes, count);
    arena_release(job->arena, bytes);
    return status;
}

/* Updates the parts of a reused result that its keys do not cover: location.json and the built programs. Needs the lock
 * for writing. */
static int refresh(const struct job *job, struct output *output) {
    const char *location;
    if (new_location(job, output, &location) < 0) return -1;
    if (location && output_replace(output, "location.json", location, strlen(location)) < 0) return -1;
    if (is_built(job, output)) return 0;
    return build_program(job->arena, job->diags, output->directory, job->options->quiet || job->options->json);
}

/* 1 if the result can be reused without writing anything, 0 if not, -1 if --reuse=match refuses it. Needs only the lock
 * for reading, so that other processes may read it and a read-only result can be reused. */
static int can_reuse_unchanged(struct job *job, const struct output *output) {
    const char *location;
    enum reuse_action action = decide(job, output);
    if (action == REUSE_REFUSE) return -1;
    if (action != REUSE_ALL) return 0;
    if (new_location(job, output, &location) < 0) return -1;
    return !location && is_built(job, output);
}

/* Called with the lock for writing. Decides again, since another compile may have written the result in between. */
static int write_or_refresh(struct job *job, struct output *output, enum driver_made *made) {
    static const enum driver_made mades[] = {
        [REUSE_NOTHING] = MADE_ALL, [REUSE_GRAPH] = MADE_CODE, [REUSE_ALL] = MADE_NOTHING};
    enum reuse_action action = decide(job, output);
    if (action == REUSE_REFUSE) return -1;
    *made = mades[action];
    if (action == REUSE_ALL) return refresh(job, output);
    const char *kept = arena_printf(job->arena, "%s/graph.rir", output->directory);
    if (job_import(job, action == REUSE_GRAPH ? kept : NULL) < 0) return -1;
    return job_generate(job, output);
}

/* Refuses an output path with a character that the target's compiler would interpret, since it runs in that
 * directory. */
static int check_build_path(const struct job *job, const struct output *output) {
    char path[PATH_MAX];
    const char *unsafe = job_target(job)->unsafe_in_paths;
    if (job->options->no_build || !unsafe || !realpath(output->parent, path)) return 0;
    const char *found = strpbrk(path, unsafe);
    if (!found) return 0;
    diag_error(job->diags, 621, EXIT_SYSTEM, NULL,
               "the compiler of target %s would interpret the character '%c' in the path %s", job_target(job)->name,
               *found, diag_quote(job->diags, path));
    return diag_help(job->diags, "choose another directory with -o, or generate only the sources with --no-build");
}

/* Another compile has in the meantime taken the directory for a model or instance whose name maps to the same one. */
enum { TAKEN = 1 };

static int compile_into(struct job *job, struct output *output, enum driver_made *made) {
    if (directory_names_find(&job->names, job->options, job->arena, job->diags) < 0 || job_describe(job) < 0) return -1;
    if (!job->model &&
        (job_check_located(job) < 0 || job_check_text_weights(job) < 0 || job_attach_text_weights(job) < 0))
        return -1;
    if (output_open(output, job->arena, job->diags, job->options->output, job->info.model, job->info.instance,
                    (long)job->options->lock_timeout) < 0 ||
        check_build_path(job, output) < 0)
        return -1;
    if (!directory_names_own(job->options, output->directory, job->arena)) return TAKEN;
    int unchanged = can_reuse_unchanged(job, output);
    if (unchanged < 0) return -1;
    *made = MADE_NOTHING;
    if (!unchanged && output_own(output) < 0) return -1;
    if (!unchanged && !directory_names_own(job->options, output->directory, job->arena)) return TAKEN;
    if (!unchanged && write_or_refresh(job, output, made) < 0) return -1;
    return *made == MADE_NOTHING ? copy_plan(job, output) : 0;
}

static int compile_job(struct job *job, struct driver_result *result) {
    int status = TAKEN;
    if (job_open(job) < 0) return -1;
    if (job->diags->errors) return job_import(job, NULL); /* reports what else is wrong */
    while (status == TAKEN) {
        struct output *output = ARENA_NEW(job->arena, struct output);
        output->lock = -1;
        status = compile_into(job, output, &result->made);
        result->directory = output->directory;
        output_close(output);
    }
    result->key = job->keys.plan.hex;
    return status;
}

/* --mem-limit is in no key: a result that is reused is planned again, as it was. */
static int check_reused_memory(const struct options *options, struct arena *arena, struct diags *diags) {
    struct diags found = {.arena = arena};
    struct job job = {.options = options, .arena = arena, .diags = &found};
    const int status = job_read(&job) < 0 || job_plan_ranks(&job) < 0 ? -1 : 0;
    if (status) diags_append(diags, &found);
    return status;
}

int driver_compile(const struct options *options, struct arena *arena, struct diags *diags,
                   struct driver_result *result) {
    struct search found;
    if (batch_take(&options, arena, diags) < 0) return -1;
    struct job job = {.options = options, .arena = arena, .diags = diags};
    if (search_is_wanted(options)) {
        if (search(options, arena, diags, &found) < 0) return -1;
        job.options = found.job->options;
    }
    if (compile_job(&job, result) < 0) return -1;
    if (result->made == MADE_NOTHING && options->mem_limit && check_reused_memory(job.options, arena, diags) < 0)
        return -1;
    return options->onnx_out ? annotations_write_plan(job.options, arena, diags) : 0;
}

int driver_compile_whole(const char *dir, const char *out, const char *instance, enum choice dtype,
                         const char *weight_dtype, enum choice cache_dtype, int micro_batches, int adapter, bool silent,
                         struct arena *arena, struct diags *diags) {
    struct options options;
    struct driver_result result;
    options_start(&options, VERB_COMPILE, arena_printf(arena, "%s/graph.rir", dir), arena, diags);
    options.output = out;
    options.instance_name = instance;
    options.dtype = dtype;
    options.weight_dtype = weight_dtype;
    options.cache_dtype = cache_dtype;
    options.decisions.micro_batches = micro_batches;
    if (options_finish(&options, arena, diags) < 0) return -1;
    options.quiet = silent;
    struct job job = {.options = &options, .arena = arena, .diags = diags, .whole = true, .adapter = adapter};
    return compile_job(&job, &result);
}
