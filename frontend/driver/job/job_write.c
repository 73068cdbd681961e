/* Generates sources, weights and manifest into the staging directory, builds the programs there, and commits. */
#include <fcntl.h>
#include <string.h>

#include "frontend/driver/program/build_program.h"
#include "frontend/driver/output/output.h"
#include "frontend/driver/job/job.h"
#include "frontend/driver/output/location.h"
#include "frontend/driver/files/adapter_sets.h"
#include "frontend/driver/files/sliced_weights.h"
#include "frontend/driver/files/weight_files.h"
#include "ir/base/own.h"
#include "ir/text.h"
#include "runtime/base/number/hash.h"

struct location job_location(const struct job *job) {
    return (struct location){.runtime_ngpus = job->runtime_ngpus,
                             .keys = job->info.copies ? NULL : &job->keys,
                             .tokenizer = job->info.copies ? NULL : job->side.generation.tokenizer};
}

static const char *location_of(const struct job *job, const struct program *program) {
    struct location location = job_location(job);
    struct hashed_file constants = {.path = CONSTANTS_FILE};
    VEC_EACH(&program->files, i, const struct program_file *file) {
        if (strcmp(file->path, CONSTANTS_FILE) != 0) continue;
        constants.bytes = (int64_t)file->count;
        rt_hash_bytes(file->bytes, file->count, constants.hash);
        location.constants = &constants;
    }
    return location_text(&location, job->arena);
}

static void add_text(struct job *job, struct program *program, const char *path, const char *text) {
    VEC_PUSH(job->arena, &program->files, (struct program_file){path, text, strlen(text), NULL});
}

/* Opens the files of the model, until the arena is freed, and lists their sizes at the time they were hashed. */
static int open_sources(struct job *job, struct slices_source *sources, int64_t *bytes) {
    VEC_EACH(&job->keys.files, i, const struct hashed_file *file) {
        sources[i] = (struct slices_source){file->path, file->given, open(file->path, O_RDONLY | O_CLOEXEC)};
        bytes[i] = file->bytes;
        if (sources[i].fd < 0) return diag_errno(job->diags, 601, NULL, "open", file->path);
        arena_own_fd(job->arena, sources[i].fd);
    }
    return 0;
}

static int copy_weights(struct job *job, struct output *output, struct program *program) {
    const int nfiles = job->keys.files.n;
    struct slices_source *sources = ARENA_ARRAY(job->arena, struct slices_source, nfiles + 1);
    int64_t *bytes = ARENA_ARRAY(job->arena, int64_t, nfiles + 1);
    slices_find(&job->slices, &job->plan, &job->stored, &job->info.adapters);
    if (open_sources(job, sources, bytes) < 0 || weight_files_check(&job->slices, nfiles, bytes, job->diags) < 0)
        return -1;
    for (int shard = 0; shard < job->slices.shards; shard++) {
        struct slices_file file;
        if (!job->slices.of_shard[shard].at.n) continue;
        if (slices_write(&job->slices, shard, sources, output, &file) < 0) return -1;
        VEC_PUSH(job->arena, &program->files,
                 (struct program_file){file.path, NULL, (size_t)file.bytes, arena_strdup(job->arena, file.hash)});
    }
    return 0;
}

static int stage_text(struct job *job, struct output *output, const char *name, const char *text) {
    return text ? output_write(output, name, text, strlen(text)) : job_out_of_memory(job);
}

/* --weights copy: the tokenizer is a file of the result too. */
static int copy_tokenizer(struct job *job, struct program *program) {
    enum { MOST_BYTES = 1 << 30 };
    const char *path = job->side.generation.tokenizer;
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!path || !job->info.copies) return 0;
    if (!own_file(job->arena, path, MOST_BYTES, &bytes, &count, &why))
        return diag_refusal(job->diags, 601, EXIT_SYSTEM, diag_quote(job->diags, path), &why);
    VEC_PUSH(job->arena, &program->files, (struct program_file){"tokenizer.json", bytes, count, NULL});
    return 0;
}

/* Writes everything into the staging directory. The manifest is last, since it lists the hashes of all other files. */
static int stage_all(struct job *job, struct output *output, struct program *program) {
    if (output_begin(output) < 0) return -1;
    for (int i = 0; i < program->files.n; i++)
        if (output_write(output, program->files.at[i].path, program->files.at[i].bytes, program->files.at[i].count) < 0)
            return -1;
    if ((job->info.copies && copy_weights(job, output, program) < 0) ||
        stage_text(job, output, "location.json", location_of(job, program)) < 0)
        return -1;
    struct manifest manifest = job_manifest(job, program);
    return stage_text(job, output, "manifest.json", manifest_text(&manifest));
}

/* Programs are built before the commit, so that the earlier result stays usable until the new one is. */
static int build_staged(struct job *job, struct output *output) {
    if (job->options->no_build) return build_link_runtime(job->arena, job->diags, output->staging);
    const bool silent = job->options->quiet || job->options->json;
    if (build_program(job->arena, job->diags, output->staging, silent) == 0) return 0;
    output->staged = false;
    return diag_help(job->diags, "the sources stay in %s until the next compile; --no-build writes them and stops",
                     diag_quote(job->diags, output->staging));
}

/* Plans the graph and makes its sources; *imported: its text before that. */
static int make_program(struct job *job, struct program *program, const char **imported) {
    *imported = text_print(job->arena, job->graph);
    job->info.training = job_training(job);
    job->info.adapters = adapter_sets_fill(job->graph, &job->side.adapters, job->arena);
    if (job->info.copies) slices_stored(&job->stored, job->graph);
    if (job_plan(job) < 0) return -1;
    program_make(program, &job->plan, &job->sources, job_target(job), &job->info);
    return job_check_twin(job, program);
}

/* The same with the first pair of specimens of open sizes that gives a program; the errors are those of the last. */
static int make_open_program(struct job *job, struct program *program, const char **imported) {
    struct diags *diags = job->diags, tried;
    int status;
    do {
        diags_init(&tried, job->arena);
        job->diags = &tried;
        status = make_program(job, program, imported);
        job->diags = diags;
    } while (status < 0 && job_other_specimens(job, &tried) == 0);
    return diags_append(diags, &tried), status;
}

int job_generate(struct job *job, struct output *output) {
    struct program program;
    const char *imported;
    if ((job->twin ? make_open_program : make_program)(job, &program, &imported) < 0) return -1;
    const char *plan = job_plan_text(job);
    if (!plan) return -1;
    add_text(job, &program, "graph.rir", imported);
    add_text(job, &program, "plan.json", plan);
    if (copy_tokenizer(job, &program) < 0) return -1;
    if (stage_all(job, output, &program) < 0 || build_staged(job, output) < 0 ||
        reuse_keys_check_files(&job->keys, job->diags) < 0)
        return -1;
    if (edited_keep(output) < 0) return -1;
    return output_commit(output);
}
