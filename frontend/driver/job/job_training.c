/* Parses options of training and checks them against the graph. */
#include <math.h>
#include <stdlib.h>

#include "frontend/driver/job/job.h"
#include "frontend/import/import.h"
#include "passes/train/amp.h"
#include "passes/train/fp8.h"
#include "passes/plan/recompute.h"
#include "passes/plan/schedule/schedules.h"

/* If text IR has the mesh, the options do not know its size: --runtime-ngpus is checked against it here. */
int job_ranks(struct job *job) {
    const struct options *options = job->options;
    int unit = mesh_size(job->graph ? &job->graph->mesh : &job->side.mesh);
    const bool own = job->side.own_mesh && !options->given[OPT_RUNTIME_NGPUS];
    job->runtime_ngpus = own ? unit * job->side.pipelines : (int)options->runtime_ngpus;
    if (job->runtime_ngpus % unit == 0) return 0;
    return diag_error(job->diags, 204, EXIT_USAGE, NULL,
                      "the mesh of %s has %d devices, and --runtime-ngpus %d is not a multiple of it",
                      diag_quote(job->diags, options->operand), unit, job->runtime_ngpus);
}

/* Parses a number above 0; if `text` is NULL, *value keeps its default. */
static int read_positive(struct job *job, const char *option, const char *text, double *value) {
    char *end = "";
    if (text) *value = strtod(text, &end);
    if (!text || (end != text && !*end && *value > 0)) return 0;
    return diag_error(job->diags, 205, EXIT_USAGE, NULL, "%s takes a number greater than 0, not %s", option,
                      diag_quote(job->diags, text));
}

/* nnScaler's use_async_reducer and reducer_bucket_cap_mb. */
static int read_buckets(struct job *job) {
    double mb = 0;
    if (read_positive(job, "--reducer-bucket-cap-mb", job->options->reducer_bucket_cap_mb, &mb) < 0) return -1;
    const double bytes = fmin(ceil(mb * 0x1p20), 0x1p60);
    job->training.bucket_bytes = job->options->use_async_reducer ? (int64_t)bytes : 0;
    return 0;
}

/* E0200 for any option of training alone: none is ignored silently. */
static int refuse_training(const struct job *job) {
    static const enum option_id of_training[] = {OPT_OPTIMIZER,
                                                 OPT_LR_SCHEDULE,
                                                 OPT_PARAM,
                                                 OPT_INIT,
                                                 OPT_CLIP_GRAD_NORM,
                                                 OPT_LOSS,
                                                 OPT_SYNC_BATCH_NORM,
                                                 OPT_AMP,
                                                 OPT_FP8,
                                                 OPT_USE_ZERO,
                                                 OPT_TIED_GRADIENTS,
                                                 OPT_USE_ASYNC_REDUCER,
                                                 OPT_REDUCER_BUCKET_CAP_MB};
    for (size_t i = 0; i < sizeof of_training / sizeof *of_training; i++)
        if (job->options->given[of_training[i]])
            return diag_error(job->diags, 200, EXIT_USAGE, NULL, "--%s needs --train",
                              option_rows[of_training[i]].name);
    const char *schedule = job->side.schedule ? job->side.schedule : job->options->schedule;
    if (!schedule || strcmp(schedule, schedule_of_inference) == 0) return 0;
    return diag_error(job->diags, 200, EXIT_USAGE, NULL, "--schedule needs --train");
}

/* The optimizer: of --optimizer, else of the model's training_info, else the default. */
static int read_optimizer(struct job *job, bool *of_model) {
    const char *text = NULL;
    if (!job->options->given[OPT_OPTIMIZER] && job->model &&
        import_optimizer(job->arena, job->diags, job->model, &text) < 0)
        return -1;
    if (text) diag_remark(job->diags, job->model->place, "training_info: --optimizer %s", text);
    *of_model = text != NULL;
    return optimizer_parse(&job->training.optimizer, text ? text : job->options->optimizer, job->arena, job->diags);
}

/* --pas fsdp is stage 3 unless --use-zero is given. */
static int zero_stage(const struct options *options) {
    const bool fsdp = options->pas.word == OPT_POLICY_FSDP;
    return options->given[OPT_USE_ZERO] || !fsdp ? (int)options->use_zero : 3;
}

/* E0200 if an option of the whole program is given and the plan of --load-plan says otherwise; `of_plan` 0: it does not
 * say. */
static int check_option(const struct job *job, const struct plan *plan, enum option_id option, int64_t value,
                        const char *field, int64_t of_plan) {
    if (!job->options->given[option] || !of_plan || value == of_plan) return 0;
    return diag_error(job->diags, 200, EXIT_USAGE, NULL, "--%s %lld contradicts the plan in %s, whose %s is %lld",
                      option_rows[option].name, (long long)value, diag_quote(job->diags, plan->file), field,
                      (long long)of_plan);
}

int job_check_plan(const struct job *job, const struct plan *plan) {
    const struct options *options = job->options;
    const int pipelines = schedule_pipelines(plan->schedule ? plan->schedule : options->schedule);
    const int64_t micro_batches = options->accumulate / pipelines;
    return check_option(job, plan, OPT_ACCUMULATE, micro_batches, "micro_batches", plan->micro_batches) < 0 ||
                   check_option(job, plan, OPT_USE_ZERO, options->use_zero, "zero_level", plan->zero_level) < 0 ||
                   check_option(job, plan, OPT_ZERO_NGROUPS, options->zero_ngroups, "zero_ngroups",
                                plan->zero_ngroups) < 0
               ? -1
               : 0;
}

/* What --load-plan or --refine decides for the whole program takes the place of the options' defaults. The plan of
 * --load-plan alone says which nodes are recomputed. */
static int read_plan(struct job *job) {
    const struct options *options = job->options;
    const struct plan *plan = job->side.plan ? job->side.plan : job->side.refine;
    if (!plan) return 0;
    if (options->recompute && job->side.plan)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--load-plan and --recompute contradict each other: the plan says what is recomputed");
    if (job_check_plan(job, plan) < 0) return -1;
    plan_apply_training(&job->training, plan);
    return 0;
}

/* E0415 for an output of inference along whose dimension 0 the results of micro-batches cannot be joined. */
static int check_outputs(const struct job *job) {
    const struct graph *graph = job->graph;
    for (int i = 0; i < graph->outputs.n; i++) {
        const bool counted = graph_counted(graph, i);
        if (!counted && graph->tensors.at[graph->outputs.at[i]].ndim) continue;
        return diag_error(job->diags, 415, EXIT_UNSUPPORTED, "--accumulate",
                          "the outputs of micro-batches are joined along dimension 0, but output %s has %s",
                          diag_quote(job->diags, graph->output_names.at[i]),
                          counted ? "a size that depends on its values" : "no dimensions");
    }
    return 0;
}

/* Sets the number of micro-batches of inference: that of --load-plan, else of --accumulate, else of text IR. */
static int read_inference(struct job *job) {
    const struct plan *plan = job->side.plan ? job->side.plan : job->side.refine;
    const int64_t given = job->options->accumulate, of_plan = plan ? plan->micro_batches : 0;
    if (refuse_training(job) < 0 || check_option(job, plan, OPT_ACCUMULATE, given, "micro_batches", of_plan) < 0)
        return -1;
    if (of_plan || given) job->graph->micro_batches = (int)(of_plan ? of_plan : given > 1 ? given : 0);
    return job->graph->micro_batches ? check_outputs(job) : 0;
}

/* --zero-ngroups divides the scale units into groups of equal size. A run with other units is checked when it
 * starts. */
static int check_groups(const struct job *job, int units) {
    const int groups = job->training.zero_groups;
    if (groups > 1 && !job->training.zero)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "ZeRO groups (--zero-ngroups) need --use-zero or --pas fsdp");
    if (job->options->given[OPT_ZERO_PREFETCH] && job->training.zero < 3)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--zero-prefetch needs parameters that are divided: --use-zero 3 or --pas fsdp");
    if (units % groups == 0 || units < groups) return 0;
    return diag_error(job->diags, 503, EXIT_LIMIT, NULL,
                      "%d scale units cannot be divided into %d ZeRO groups of equal size", units, groups);
}

/* Micro-batches of a scale unit: those that the user asks for, divided among the pipelines of the schedule. */
static int read_accumulate(struct job *job) {
    const int64_t given = job->options->accumulate ? job->options->accumulate : 1;
    const int pipelines = job->side.pipelines;
    job->training.accumulate = (int)(given / pipelines);
    if (given % pipelines == 0 || (job->side.plan && !job->options->given[OPT_ACCUMULATE])) return 0;
    return diag_error(
        job->diags, 205, EXIT_USAGE, "--accumulate", "%s divides the micro-batches among %d pipelines; there %s %lld",
        diag_quote(job->diags, job->options->schedule), pipelines, given == 1 ? "is" : "are", (long long)given);
}

/* On GPUs no sum has the bits of one rank (DESIGN 8), so that nothing is lost. */
static bool sends_tied_once(const struct options *options) {
    if (options->tied_gradients == CHOICE_NONE) return options->target == OPT_TARGET_CUDA;
    return options->tied_gradients == OPT_TIED_STEP;
}

int job_read_training(struct job *job) {
    const struct options *options = job->options;
    struct training *training = &job->training;
    struct schedule_choice schedule;
    bool of_model;
    if (!job->graph->train) return read_inference(job);
    if (job_ranks(job) < 0) return -1;
    *training = (struct training){.zero = zero_stage(options),
                                  .zero_groups = (int)options->zero_ngroups,
                                  .zero_prefetch = (int)options->zero_prefetch,
                                  .tied_once = sends_tied_once(options),
                                  .schedule = job->side.schedule ? job->side.schedule : options->schedule,
                                  .lr_schedule_text = options->lr_schedule};
    if (schedule_choose(&schedule, training->schedule, job->diags) < 0) return -1;
    if (schedule.kind && schedule.kind->infers)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--schedule %s has no backward segments, which training needs", schedule_of_inference);
    if (read_accumulate(job) < 0) return -1;
    if (schedule.grid && !options->accumulate) training->accumulate = schedule.grid->micro_batches;
    if (read_plan(job) < 0 || check_groups(job, job->runtime_ngpus / mesh_size(&job->graph->mesh)) < 0 ||
        read_optimizer(job, &of_model) < 0 ||
        lr_schedule_parse(&training->lr_schedule, options->lr_schedule, job->arena, job->diags) < 0 ||
        read_positive(job, "--clip-grad-norm", options->clip_grad_norm, &training->clip_grad_norm) < 0 ||
        read_buckets(job) < 0 || amp_parse(&training->amp, options->amp, job->arena, job->diags) < 0 ||
        fp8_parse(&training->fp8, options->fp8, job->arena, job->diags) < 0 ||
        recompute_parse(&training->recompute, options->recompute, job->diags) < 0)
        return -1;
    for (int i = 0; i < options->params.all.n; i++)
        if (parameter_rule_add(training, options->params.all.at[i], job->arena, job->diags) < 0) return -1;
    for (int i = 0; i < options->inits.all.n; i++)
        if (init_rule_add(training, options->inits.all.at[i], job->arena, job->diags) < 0) return -1;
    return of_model ? 0 : optimizers_check(training, job->arena, job->diags);
}

int job_micro_batches(const struct job *job) {
    if (job->graph->train) return job->training.accumulate;
    return job->graph->micro_batches ? job->graph->micro_batches : 1;
}

const struct training *job_training(const struct job *job) {
    return job->graph && job->graph->train ? &job->training : NULL;
}
