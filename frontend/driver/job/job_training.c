/* Parses options of training and checks them against the graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/driver/job/job.h"
#include "frontend/import/import.h"
#include "passes/plan/recompute.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/train/lora.h"

/* If text IR has the mesh, the options do not know its size: --runtime-ngpus is checked against it here. */
int job_ranks(struct job *job) {
    const struct options *options = job->options;
    int unit = mesh_size(job->graph ? &job->graph->mesh : &job->side.decisions.mesh);
    const bool own = job->side.own_mesh && !options->given[OPT_RUNTIME_NGPUS];
    job->runtime_ngpus = own ? unit : (int)options->runtime_ngpus;
    if (job->runtime_ngpus % unit == 0) return 0;
    return diag_error(job->diags, 204, EXIT_USAGE, NULL,
                      "the mesh of %s has %d device(s), and --runtime-ngpus %d is not a multiple of it",
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

static int read_average(struct job *job) {
    double *decay = &job->training.ema;
    if (read_positive(job, "--ema", job->options->ema, decay) < 0) return -1;
    if (*decay < 1) return 0;
    return diag_error(job->diags, 205, EXIT_USAGE, NULL, "--ema takes a number less than 1, not %s",
                      diag_quote(job->diags, job->options->ema));
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
    static const enum option_id of_training[] = {
        /* of parameters and their update */
        OPT_OPTIMIZER, OPT_LR_SCHEDULE, OPT_PARAM, OPT_INIT, OPT_LORA, OPT_EMA, OPT_MOMENTS_DTYPE, OPT_GRAD_ACCUM_DTYPE,
        OPT_OFFLOAD, OPT_CLIP_GRAD_NORM, OPT_SKIP_NONFINITE,
        /* of the loss and what computes it */
        OPT_LOSS, OPT_SYNC_BATCH_NORM, OPT_AMP, OPT_FP8,
        /* of gradients between ranks */
        OPT_USE_ZERO, OPT_TIED_GRADIENTS, OPT_USE_ASYNC_REDUCER, OPT_REDUCER_BUCKET_CAP_MB};
    for (size_t i = 0; i < sizeof of_training / sizeof *of_training; i++)
        if (job->options->given[of_training[i]])
            return diag_error(job->diags, 200, EXIT_USAGE, NULL, "--%s needs --train",
                              option_rows[of_training[i]].name);
    const char *schedule = job->side.decisions.schedule;
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

int job_check_plan(const struct job *job, const struct plan *plan) {
    const struct decisions *asked = &job->options->decisions;
    for (const struct decision *row = decision_rows; row < decision_rows + DECISIONS; row++) {
        const int64_t value = decision_number(row, asked), of_plan = decision_number(row, &plan->decisions);
        const int option = options_of(row);
        if (row->file && of_plan && value != of_plan && option >= 0 && job->options->given[option])
            return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                              "--%s %lld contradicts the plan in %s, whose %s is %lld", row->name, (long long)value,
                              diag_quote(job->diags, plan->file), row->file, (long long)of_plan);
    }
    return 0;
}

/* What --load-plan or --refine decides for the whole program takes the place of what the options do. The plan of
 * --load-plan alone says which nodes are recomputed. */
static int read_plan(struct job *job) {
    const struct plan *plan = job->side.plan ? job->side.plan : job->side.refine;
    if (!plan) return 0;
    if (job->graph->train && job->options->decisions.recompute && job->side.plan)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--load-plan and --recompute contradict each other: the plan says what is recomputed");
    if (job_check_plan(job, plan) < 0) return -1;
    decisions_take(&job->decisions, &plan->decisions);
    return 0;
}

/* E0415 where a step of inference cannot have several micro-batches: it has memory for the state of one, or results
 * cannot be joined along dimension 0 of an output. */
static int check_micro_batches(const struct job *job) {
    const struct graph *graph = job->graph;
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor) {
        if (tensor->kind == TENSOR_STATE)
            return diag_error(job->diags, 415, EXIT_UNSUPPORTED, "--accumulate",
                              "a step that keeps state has one micro-batch, and %s is state",
                              diag_quote(job->diags, tensor->name));
    }
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

/* The number of micro-batches of inference is that of --load-plan, else of --accumulate, else of text IR. */
static int read_inference(struct job *job) {
    const int64_t given = job->options->decisions.micro_batches;
    struct decisions *decisions = &job->decisions;
    if (refuse_training(job) < 0) return -1;
    decisions->micro_batches = given > 1 ? given : given ? 0 : job->graph->micro_batches;
    if (read_plan(job) < 0) return -1;
    decisions->zero = 0, decisions->zero_groups = 1, decisions->schedule = NULL;
    job->graph->micro_batches = (int)decisions->micro_batches;
    return job->graph->micro_batches > 1 ? check_micro_batches(job) : 0;
}

/* --zero-ngroups divides the scale units into groups of equal size. A run with other units is checked when it
 * starts. */
static int check_groups(const struct job *job, int units) {
    const int groups = (int)job->decisions.zero_groups;
    if (groups > 1 && !job->decisions.zero)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "ZeRO groups (--zero-ngroups) need --use-zero or --pas fsdp");
    if (job->options->given[OPT_ZERO_PREFETCH] && job->decisions.zero < ZERO_PARAMETERS)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--zero-prefetch needs parameters that are divided: --use-zero 3 or --pas fsdp");
    if (units % groups == 0 || units < groups) return 0;
    return diag_error(job->diags, 503, EXIT_LIMIT, NULL,
                      "%d scale unit(s) cannot be divided into %d ZeRO groups of equal size", units, groups);
}

/* True if parameters are to lie elsewhere than where they are used, so that ZeRO 3 is the default. */
static bool gathers_parameters(const struct options *options) {
    return options->pas.word == OPT_POLICY_FSDP || options->offload == OPT_OFFLOAD_WEIGHTS;
}

static int read_offload(struct job *job) {
    static const enum offload offloads[] = {
        [OPT_OFFLOAD_OPTIMIZER] = OFFLOAD_OPTIMIZER, [OPT_OFFLOAD_WEIGHTS] = OFFLOAD_WEIGHTS};
    if (job->options->offload == CHOICE_NONE || job->options->offload == OPT_OFFLOAD_NONE) return 0;
    job->training.offload = offloads[job->options->offload];
    if (job->training.offload == OFFLOAD_WEIGHTS && job->decisions.zero < 3)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--offload weights needs parameters that are divided: --use-zero 3, its default");
    if (job->options->target == OPT_TARGET_CUDA) return 0;
    return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                      "--offload is for --target cuda: with target c all memory is the host's");
}

/* On GPUs no sum has the bits of one rank (DESIGN 8), so that nothing is lost. */
static bool sends_tied_once(const struct options *options) {
    if (options->tied_gradients == CHOICE_NONE) return options->target == OPT_TARGET_CUDA;
    return options->tied_gradients == OPT_TIED_STEP;
}

/* The rules of adapters that --adapter gives, for the names of the modules in this model. */
static void add_trained_rules(const struct job *job, struct training *training) {
    const struct lora_modules adapted = lora_modules_adapted(job->graph);
    for (int i = 0; i < job->side.adapters.all.n; i++) {
        const struct lora_given *given = &job->side.adapters.all.at[i];
        struct lora_rule rule = given->rule;
        rule.globs = lora_find(&adapted, given, job->arena);
        rule.text = arena_printf(job->arena, "%s%s", rule.globs, strchr(rule.text, ':'));
        VEC_PUSH(job->arena, &training->loras, rule);
    }
}

int job_read_training(struct job *job) {
    const struct options *options = job->options;
    struct training *training = &job->training;
    struct decisions *decisions = &job->decisions;
    struct schedule_choice schedule;
    struct recompute recompute;
    bool of_model;
    *decisions = job->side.decisions;
    if (!job->graph->train) return read_inference(job);
    if (job_ranks(job) < 0) return -1;
    *training = (struct training){.tied_once = sends_tied_once(options), .lr_schedule_text = options->lr_schedule};
    if (gathers_parameters(options) && !options->given[OPT_USE_ZERO]) decisions->zero = ZERO_PARAMETERS;
    if (schedule_choose(&schedule, decisions->schedule, job->diags) < 0) return -1;
    if (schedule.kind && schedule.kind->infers)
        return diag_error(job->diags, 200, EXIT_USAGE, NULL,
                          "--schedule %s has no backward segments, which training needs", schedule_of_inference);
    if (!decisions->micro_batches) decisions->micro_batches = schedule.grid ? schedule.grid->micro_batches : 1;
    if (read_plan(job) < 0 || check_groups(job, job->runtime_ngpus / mesh_size(&job->graph->mesh)) < 0 ||
        read_optimizer(job, &of_model) < 0 ||
        lr_schedule_parse(&training->lr_schedule, options->lr_schedule, job->diags) < 0 ||
        read_positive(job, "--clip-grad-norm", options->clip_grad_norm, &training->clip_grad_norm) < 0 ||
        read_average(job) < 0 || read_buckets(job) < 0 ||
        amp_parse(&training->amp, options->amp, job->arena, job->diags) < 0 ||
        fp8_parse(&training->fp8, options->fp8, job->arena, job->diags) < 0 ||
        recompute_parse(&recompute, decisions->recompute, job->diags) < 0)
        return -1;
    training->amp.skip = training->amp.skip || options->skip_nonfinite;
    for (int i = 0; i < options->params.all.n; i++)
        if (parameter_rule_add(training, options->params.all.at[i], job->arena, job->diags) < 0) return -1;
    for (int i = 0; i < options->inits.all.n; i++)
        if (init_rule_add(training, options->inits.all.at[i], job->arena, job->diags) < 0) return -1;
    for (int i = 0; i < options->loras.all.n; i++)
        if (lora_rule_add(training, options->loras.all.at[i], job->arena, job->diags) < 0) return -1;
    add_trained_rules(job, training);
    training->moments_int8 = options->moments_dtype == OPT_MOMENTS_INT8;
    training->gradients_bf16 = options->grad_accum_dtype == OPT_GRAD_ACCUM_BF16;
    if (moments_check(training, job->diags) < 0 || read_offload(job) < 0) return -1;
    return of_model ? 0 : optimizers_check(training, job->arena, job->diags);
}

int job_micro_batches(const struct job *job) {
    return job->decisions.micro_batches ? (int)job->decisions.micro_batches : 1;
}

const struct training *job_training(const struct job *job) {
    return job->graph && job->graph->train ? &job->training : NULL;
}
