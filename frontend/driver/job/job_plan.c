/* Plans the graph by running the passes, and describes the result for its manifest and reuse keys. */
#include <string.h>

#include "frontend/driver/program/build_program.h"
#include "frontend/driver/job/job.h"
#include "ir/verify.h"
#include "passes/plan/file/plan_text.h"
#include "runtime/base/io/file.h"

const struct target *job_target(const struct job *job) {
    return target_find(choice_word(job->options->target));
}

/* The word of --attention; a plan with ring attention has flash attention. */
static const char *attention_word(const struct job *job) {
    const struct plan *plan = job->side.plan ? job->side.plan : job->side.refine;
    const bool ring = plan && plan->decisions.attention == ATTENTION_RING;
    return choice_word(ring && job->options->attention == OPT_ATTENTION_PRODUCTS ? OPT_ATTENTION_FLASH
                                                                                 : job->options->attention);
}

static enum attention_kind attention_of(const struct job *job) {
    return attention_kind_of(attention_word(job));
}

/* NULL: caches have the model's type. */
static const char *cache_word(const struct job *job) {
    return job->options->cache_dtype == CHOICE_NONE ? NULL : choice_word(job->options->cache_dtype);
}

struct pass_context job_pass_context(struct job *job) {
    struct pass_context context = target_pass_context(job_target(job));
    context.policy = job->side.policy;
    context.decisions = job->decisions;
    context.machine = job->side.machine.name ? &job->side.machine : NULL;
    context.rules = job->side.rules;
    context.constraints = job->side.constraints;
    context.plugin = job->side.plugin;
    context.annotations = job->side.annotations;
    context.given = job->side.plan;
    context.plan = &job->decided;
    context.attention = attention_of(job);
    context.small_weights = &job->side.small_weights;
    context.cache_dtype = cache_word(job);
    context.training = job_training(job);
    context.roles = &job->roles;
    context.unverified = job->unverified;
    context.verbose = job->options->verbose;
    context.diags = job->diags;
    return context;
}

/* Sets job->estimate, of a plan for job->machine. */
static void job_estimate(struct job *job) {
    const int units = job->runtime_ngpus / mesh_size(&job->graph->mesh);
    const int groups = decisions_zero_groups(&job->decisions);
    job->estimate = estimate_step(&job->plan, &job->side.machine, units, groups, job_micro_batches(job));
    if (job->options->model_config)
        job->estimate.tokens =
            units * job_micro_batches(job) * tensor_elements(&job->graph->tensors.at[job->graph->inputs.at[0]]);
}

/* The largest activations among those that are live together, as notes of the last diagnostic. */
static void note_live(const struct job *job, const struct rank_class *class, struct diags *diags) {
    const struct graph *graph = job->graph;
    int64_t below = INT64_MAX;
    for (int n = 0; n < 3; n++) {
        int largest = -1;
        VEC_EACH_VALUE(&class->peak_live, i, const int tensor) {
            const int64_t bytes = rankplan_room(class, graph, tensor);
            if (bytes < below && (largest < 0 || bytes > rankplan_room(class, graph, largest))) largest = tensor;
        }
        if (largest < 0) return;
        below = rankplan_room(class, graph, largest);
        diag_note(diags, "live then: %s, %lld bytes", diag_quote(diags, graph->tensors.at[largest].name),
                  (long long)below);
    }
}

/* The ranks that need more memory than the others: *most bytes, of which `bytes` are those of each arena. */
static const struct rank_class *largest_class(const struct job *job, int64_t *most, int64_t bytes[RT_ARENAS]) {
    const int units = job->runtime_ngpus / mesh_size(&job->graph->mesh);
    const int groups = decisions_zero_groups(&job->decisions);
    const struct rank_class *largest = NULL;
    *most = 0;
    for (int c = 0; c < job->plan.nclasses; c++) {
        int64_t parts[RT_ARENAS];
        const int64_t all = rankplan_peak(&job->plan, &job->plan.classes[c], units, groups, parts);
        if (largest && all <= *most) continue;
        *most = all, largest = &job->plan.classes[c];
        memcpy(bytes, parts, sizeof parts);
    }
    return largest;
}

void job_note_memory(const struct job *job, struct diags *diags) {
    int64_t most, bytes[RT_ARENAS];
    const struct rank_class *largest = largest_class(job, &most, bytes);
    for (int a = 0; a < RT_ARENAS; a++)
        if (bytes[a]) diag_note(diags, "%s: %lld bytes", plan_arena_names[a], (long long)bytes[a]);
    note_live(job, largest, diags);
}

/* --mem-limit. */
static int check_memory(const struct job *job) {
    int64_t most, bytes[RT_ARENAS];
    const struct rank_class *largest = largest_class(job, &most, bytes);
    if (most <= job->options->mem_limit) return 0;
    diag_error(job->diags, 431, EXIT_LIMIT, "--mem-limit",
               "the plan needs %lld bytes of memory on rank %d, %lld more than the limit", (long long)most,
               largest->shard, (long long)(most - job->options->mem_limit));
    job_note_memory(job, job->diags);
    return -1;
}

int job_simplify(struct job *job) {
    if (job_read_training(job) < 0) return -1;
    const struct pass_context context = job_pass_context(job);
    return pipeline_run(job->graph, &context, pass_find("dce"));
}

static int plan_ranks(struct job *job) {
    if (job_ranks(job) < 0 || job_read_training(job) < 0) return -1;
    const struct pass_context context = job_pass_context(job);
    job->decided.decisions = job->decisions;
    job->decided.decisions.mesh = job->graph->mesh;
    if (pipeline_run(job->graph, &context, NULL) < 0) return -1;
    rankplan_make(&job->plan, job->graph, &job_target(job)->kernels);
    if (job_take_smaller(job) < 0) return -1;
    if (!job->unverified && rankplan_verify(&job->plan, job->diags) < 0) return -1;
    if (job->side.machine.name) job_estimate(job);
    return job->options->mem_limit ? check_memory(job) : 0;
}

int job_verify(struct job *job) {
    return verify_graph(job->graph, job->diags) < 0 ? -1 : rankplan_verify(&job->plan, job->diags);
}

int job_plan_ranks(struct job *job) {
    const int before = job->diags->all.n, status = plan_ranks(job);
    job_name_sizes(job, job->diags, before);
    return status;
}

/* Finds which ranks of the plan share a source file. Also checks that the model's files did not change. */
static int job_plan_sources(struct job *job) {
    if (sources_find(&job->sources, &job->plan, job_target(job), job->diags) < 0) return -1;
    return job->model ? onnx_check_files(job->model) : 0;
}

int job_number_sources(struct job *job) {
    if (sources_number(&job->sources, &job->plan, job_target(job), job->diags) < 0) return -1;
    return job->model ? onnx_check_files(job->model) : 0;
}

int job_plan(struct job *job) {
    return job_plan_ranks(job) < 0 ? -1 : job_plan_sources(job);
}

/* The policy for titles. File names do not appear in generated files, so that they can move. */
static const char *pas_text(const struct job *job) {
    if (job->side.plan) return "plan";
    return job->side.rules ? job->side.policy : options_text(job->options, OPT_PAS, job->arena);
}

/* E0604 if a file of the model was replaced between opening and hashing. */
static int check_opened(const struct job *job) {
    VEC_EACH(&job->model->files, i, const struct onnx_file *opened) {
        const struct hashed_file *hashed = &job->keys.files.at[i];
        if (opened->bytes != hashed->bytes || opened->mtime_ns != hashed->mtime_ns)
            return onnx_file_refuse(job->model, opened);
    }
    return 0;
}

static int check_attention(const struct job *job) {
    if (attention_of(job) < ATTENTION_LIBRARY || job_target(job)->library_products) return 0;
    return diag_error(job->diags, 201, EXIT_USAGE, "--attention", "only --target cuda has attention by cuDNN");
}

/* --arch is a list of names such as sm_90a. It is written into the Makefile, so no other characters are allowed. */
static int check_arch(const struct job *job) {
    const char *arch = job->options->arch;
    if (!arch) return 0; /* a verb that writes no build file */
    if (job->options->given[OPT_ARCH] && job->options->target != OPT_TARGET_CUDA)
        return diag_error(job->diags, 201, EXIT_USAGE, "--arch", "GPU architectures need --target cuda");
    if (*arch && !arch[strspn(arch, "abcdefghijklmnopqrstuvwxyz0123456789_,")]) return 0;
    return diag_error(job->diags, 201, EXIT_USAGE, "--arch",
                      "%s is not a list of GPU architectures such as sm_80,sm_90a", diag_quote(job->diags, arch));
}

int job_describe(struct job *job) {
    const struct options *options = job->options;
    if (check_arch(job) < 0 || check_attention(job) < 0) return -1;
    if (job_ranks(job) < 0 ||
        (!job->model && !job->files.n && !job->options->model_config && job_list_text_files(job) < 0))
        return -1;
    job->info = (struct program_info){.model = job->names.model,
                                      .instance = job->names.instance,
                                      .version = RANKC_VERSION,
                                      .attention = attention_word(job),
                                      .weight_dtype = options->weight_dtype,
                                      .cache_dtype = cache_word(job),
                                      .pas = pas_text(job),
                                      .runtime_cflags = build_cflags,
                                      .runtime_libs = build_libs,
                                      .arch = options->arch,
                                      .training = job_training(job),
                                      .decisions = &job->decisions,
                                      .roles = &job->roles,
                                      .nfiles = job->files.n,
                                      .with_runtime = job->options->with_runtime,
                                      .copies = job->options->weights == OPT_WEIGHTS_COPY};
    if (reuse_keys_make(&job->keys, options, &job->names, &job->side, job->files.n, job->files.at, job->arena,
                        job->diags) < 0)
        return -1;
    job->info.key = job->keys.plan.hex;
    job->info.work = job->keys.work.hex;
    job->info.model_hash = job->keys.files.n ? job->keys.files.at[0].hash : "none";
    return job->model ? check_opened(job) : 0;
}

struct manifest job_manifest(const struct job *job, const struct program *program) {
    /* the manifest of a program has no estimate */
    const bool known = job->side.machine.name != NULL;
    return (struct manifest){.estimate = known && !program ? &job->estimate : NULL,
                             .machine = known ? &job->side.machine : NULL,
                             .plan = &job->plan,
                             .decided = &job->decided,
                             .sources = &job->sources,
                             .info = &job->info,
                             .target = job_target(job),
                             .graph_key = &job->keys.graph,
                             .plan_key = &job->keys.plan,
                             .work_key = &job->keys.work,
                             .program = program,
                             .put_generation = job->plan.states.n && !job_training(job) ? job_put_generation : NULL,
                             .generation = job,
                             .slices = program && job->info.copies ? &job->slices : NULL};
}

/* --save-plan. */
int job_save_plan(const struct job *job, const char *plan, size_t bytes) {
    struct rt_reason why;
    struct rt_piece piece = {plan, bytes};
    if (!job->options->save_plan || rt_file_write(job->options->save_plan, &piece, 1, &why)) return 0;
    return diag_refusal(job->diags, 611, EXIT_SYSTEM, NULL, &why);
}

int job_out_of_memory(const struct job *job) {
    return diag_error(job->diags, 500, EXIT_LIMIT, NULL, "out of memory");
}

/* plan.json, saved where the user wants a copy; NULL after a diagnostic. */
const char *job_plan_text(const struct job *job) {
    const char *plan = plan_print(job->arena, &job->decided, job->info.pas);
    if (!plan) job_out_of_memory(job);
    return plan && job_save_plan(job, plan, strlen(plan)) == 0 ? plan : NULL;
}
