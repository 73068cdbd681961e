#include "frontend/driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/manifest.h"
#include "codegen/slices.h"
#include "frontend/driver/attach.h"
#include "frontend/driver/build_program.h"
#include "frontend/driver/copied.h"
#include "frontend/driver/keys.h"
#include "frontend/driver/location.h"
#include "frontend/driver/names.h"
#include "frontend/driver/output.h"
#include "frontend/driver/reuse.h"
#include "frontend/driver/side_files.h"
#include "frontend/driver/slices_write.h"
#include "frontend/import/import.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "passes/train/amp.h"
#include "passes/train/fp8.h"
#include "passes/train/recompute.h"
#include "passes/train/roles.h"
#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"

/* One model on its way through the compiler. */
struct job {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model; /* NULL where the input is text IR */
    bool whole;               /* the graph of a compiled model, on one rank */
    bool named;               /* the text names the files that its weights lie in */
    struct graph *graph;
    struct side_files side;
    struct names names;       /* of the directories that the result goes to */
    VEC(const char *) files;  /* that stored tensors lie in, by stored.file */
    VEC(const char *) hashes; /* what they were when the graph was compiled; empty: it was not */
    struct rankplan plan;
    struct sources sources;
    struct training training;
    struct decisions decisions; /* which weights are no parameters */
    struct program_info info;
    struct keys keys;
    struct stored_weights stored; /* what `--weights copy` has to keep */
    struct slices slices;         /* of the plan; empty unless weights are copied */
};

/* Reading ---------------------------------------------------------------------------------------------------------
 */

static bool has_suffix(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* The directory of text IR. */
static const char *text_directory(const struct job *job) {
    const char *text = job->options->operand, *slash = strrchr(text, '/');
    if (!slash) return ".";
    return slash == text ? "/" : arena_printf(job->arena, "%.*s", (int)(slash - text), text);
}

/* A file that the weights of a compiled model lie in, as its location.json says; `hash` is what it was then. */
static int add_located(struct job *job, const struct rt_json *entry, const char *directory) {
    const char *path = rt_json_text(rt_json_member(entry, "path")), *hash = rt_json_text(rt_json_member(entry, "hash"));
    struct stat info;
    if (!path || !hash)
        return diag_error(job->diags, 803, EXIT_MALFORMED, directory, "location.json: a file has no path or no hash");
    path = path[0] == '/' ? arena_strdup(job->arena, path) : arena_printf(job->arena, "%s/%s", directory, path);
    VEC_PUSH(job->arena, &job->files, path);
    VEC_PUSH(job->arena, &job->hashes, arena_strdup(job->arena, hash));
    if (stat(path, &info) == 0) return 0;
    diag_error(job->diags, 608, EXIT_SYSTEM, job->options->operand, "cannot open %s: %s", diag_quote(job->diags, path),
               strerror(errno));
    diag_help(job->diags, "the weights lie there, as location.json says: put the file back");
    return -1;
}

static int list_located_files(struct job *job, const char *directory) {
    struct rt_reason why;
    struct rt_json_document *document = own_json_below(job->arena, directory, "location.json", &why);
    if (!document) return diag_refusal(job->diags, 803, EXIT_MALFORMED, job->options->operand, &why);
    const struct rt_json *files = rt_json_member(rt_json_root(document), "files");
    int status = 0;
    for (const struct rt_json *f = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; f && !status;
         f = f->next)
        status = add_located(job, f, directory);
    arena_release(job->arena, document);
    VEC_PUSH(job->arena, &job->files, job->options->operand); /* last: no weight is in it */
    return status;
}

static void remove_file(void *path) {
    unlink(path);
}

/* Weights that were copied in slices. Slices of a weight that is cut are put together in a file, which lasts as long as
 * the compile does, or in the directory that is written. */
static int list_copied_files(struct job *job, const char *directory, const struct rt_json *manifest) {
    const char *base = getenv("TMPDIR");
    struct copied_files files;
    char *scratch =
        job->whole ? arena_printf(job->arena, "%s/%s.weights", job->options->output,
                                  options_instance(job->options, job->arena))
                   : arena_printf(job->arena, "%s/rankc-weights-%ld", base && *base ? base : "/tmp", (long)getpid());
    if (!job->whole) arena_own(job->arena, scratch, remove_file);
    if (copied_locate(&files, directory, manifest, job->graph, job->options->operand, scratch, job->diags) < 0)
        return -1;
    for (int i = 0; i < files.all.n; i++) VEC_PUSH(job->arena, &job->files, files.all.at[i]);
    if (!files.assembled || job->whole || job->options->weights == OPT_WEIGHTS_COPY) return 0;
    diag_error(job->diags, 201, EXIT_USAGE, job->options->operand,
               "no file has the weights as the graph wants them: they were copied in slices");
    diag_help(job->diags, "--weights copy puts them together");
    return -1;
}

/* Text beside a manifest.json is the graph of a compiled model: that says where the weights are. 1: it is, 0: not,
 * -1. */
static int list_compiled_files(struct job *job) {
    const char *directory = text_directory(job);
    struct rt_reason why;
    struct stat info;
    bool intact;
    if (lstat(arena_printf(job->arena, "%s/manifest.json", directory), &info) < 0) return 0;
    struct rt_json_document *manifest = own_sealed(job->arena, directory, "manifest.json", &intact, &why);
    if (!manifest) return diag_refusal(job->diags, 803, EXIT_MALFORMED, job->options->operand, &why);
    if (!intact)
        return diag_error(job->diags, 802, EXIT_MISMATCH, job->options->operand,
                          "manifest.json beside it is not as it was generated");
    const struct rt_json *root = rt_json_root(manifest);
    int status = copied_is(root) ? list_copied_files(job, directory, root) : list_located_files(job, directory);
    arena_release(job->arena, manifest);
    return status < 0 ? -1 : 1;
}

/* Files that IR text names lie beside it; the text itself comes first, as a model does. */
static int list_text_files(struct job *job) {
    const char *text = job->options->operand, *slash = strrchr(text, '/');
    int compiled = list_compiled_files(job);
    if (compiled) return compiled < 0 ? -1 : 0;
    job->named = true;
    VEC_PUSH(job->arena, &job->files, text);
    for (int i = 0; i < job->graph->files.n; i++) {
        const char *name = job->graph->files.at[i];
        const char *path = arena_printf(job->arena, "%.*s%s", slash ? (int)(slash - text) + 1 : 0, text, name);
        struct stat info;
        if (lstat(path, &info) < 0)
            return diag_error(job->diags, 601, EXIT_SYSTEM, text, "cannot open %s: %s", diag_quote(job->diags, path),
                              strerror(errno));
        if (S_ISLNK(info.st_mode) && !job->options->allow_links)
            return diag_error(job->diags, 362, EXIT_MALFORMED, text, "%s is a symbolic link",
                              diag_quote(job->diags, name));
        VEC_PUSH(job->arena, &job->files, path);
    }
    return 0;
}

/* Files that location.json names are what they were. */
static int check_located(const struct job *job) {
    for (int i = 0; i < job->hashes.n; i++)
        if (strcmp(job->hashes.at[i], job->keys.files.at[i].hash) != 0)
            return diag_error(job->diags, 802, EXIT_MISMATCH, job->options->operand,
                              "%s has changed since the graph was generated", diag_quote(job->diags, job->files.at[i]));
    return 0;
}

/* Text that was printed from a model has its weights in the model, which it does not name: alone, it can be planned and
 * not compiled. */
static int no_file_named(const struct job *job, const struct tensor *tensor) {
    diag_error(job->diags, 345, EXIT_MALFORMED, job->options->operand, "weight %s lies in no file that the text names",
               diag_quote(job->diags, tensor->name));
    diag_help(job->diags,
              "edit graph.rir in a copy of the directory that 'compile' wrote: the files beside it say where "
              "the weights are");
    return -1;
}

/* The bytes of every weight are in a file that is known. */
static int check_text_weights(const struct job *job) {
    for (int t = 0; t < job->graph->tensors.n; t++) {
        const struct tensor *tensor = &job->graph->tensors.at[t];
        int64_t bytes, end;
        if (tensor->kind != TENSOR_WEIGHT) continue;
        if (tensor->stored.file < job->named || tensor->stored.file >= job->files.n) return no_file_named(job, tensor);
        int64_t has = job->keys.files.at[tensor->stored.file].bytes,
                size = (int64_t)rt_dtype_bytes(tensor->stored.dtype);
        if (tensor->stored.offset > INT64_MAX || !rt_mul(tensor_elements(tensor), size, &bytes) ||
            !rt_add((int64_t)tensor->stored.offset, bytes, &end) || end > has)
            return diag_error(job->diags, 353, EXIT_MALFORMED, job->options->operand, "weight %s lies outside of %s",
                              diag_quote(job->diags, tensor->name),
                              diag_quote(job->diags, job->files.at[tensor->stored.file]));
    }
    return 0;
}

/* Passes may look at what weights are, as they do of a model's. */
static int attach_text_weights(struct job *job) {
    struct attach_file *files = ARENA_ARRAY(job->arena, struct attach_file, job->files.n + 1);
    for (int i = 0; i < job->files.n; i++)
        if (attach_map(job->arena, job->diags, job->files.at[i], &files[i]) < 0) return -1;
    return attach_weights(job->graph, job->files.n, files, job->diags);
}

/* Text IR is taken as a model too: for tests, and for graphs written by hand or edited. */
static int read_text(struct job *job, const char *path) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why))
        return diag_refusal(job->diags, 302, EXIT_MALFORMED, NULL, &why);
    int status = text_parse(job->arena, job->diags, path, bytes, count, &job->graph);
    arena_release(job->arena, bytes);
    return status;
}

static enum rt_dtype wanted_dtype(const struct options *options) {
    return options->dtype == CHOICE_NONE ? RT_DTYPE_NONE : rt_dtype_by_name(choice_word(options->dtype));
}

static int open_onnx(struct job *job) {
    const struct options *options = job->options;
    if (onnx_open(job->arena, job->diags, options->operand, options->allow_links, &job->model) < 0) return -1;
    for (int i = 0; i < job->model->files.n; i++) VEC_PUSH(job->arena, &job->files, job->model->files.at[i].path);
    return 0;
}

static int import_onnx(struct job *job) {
    const struct options *options = job->options;
    struct import_options import = {.ndims = options->dims.all.n, .dtype = wanted_dtype(options)};
    struct import_dim *dims = ARENA_ARRAY(job->arena, struct import_dim, import.ndims + 1);
    for (int i = 0; i < import.ndims; i++)
        dims[i] = (struct import_dim){options->dims.all.at[i].name, options->dims.all.at[i].size};
    import.dims = dims;
    import.train = options->train;
    import.loss = options->loss;
    import.nbinds = job->side.nbinds;
    import.binds = job->side.binds;
    return import_model(job->arena, job->diags, job->model, &import, &job->graph);
}

/* Options that text answers for itself. */
static int check_text_options(const struct job *job) {
    static const struct {
        enum option_id id;
        const char *name;
    } own[] = {{OPT_DIM, "--dim"}, {OPT_BIND, "--bind"}, {OPT_LOSS, "--loss"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (job->options->given[own[i].id])
            return diag_error(job->diags, 201, EXIT_USAGE, job->options->operand,
                              "%s: sizes, constants and loss of text IR are as it says", own[i].name);
    if (job->options->train && !job->graph->train)
        return diag_error(job->diags, 412, EXIT_USAGE, job->options->operand,
                          "--train: the text's graph does not train");
    return 0;
}

/* The mesh of the options; text that brings its own keeps it. */
static void set_mesh(struct job *job) {
    if (job->graph->mesh.naxes)
        job->side.own_mesh = true;
    else
        job->graph->mesh = job->side.mesh;
}

/* Opens the model, with all that is reported of it before its operators are looked at. Text is read at once. */
static int job_open(struct job *job) {
    if (side_files_read(&job->side, job->options, job->arena, job->diags) < 0) return -1;
    if (!has_suffix(job->options->operand, ".rir")) return open_onnx(job);
    if (read_text(job, job->options->operand) < 0 || check_text_options(job) < 0) return -1;
    if (wanted_dtype(job->options) != RT_DTYPE_NONE &&
        graph_retype(job->graph, wanted_dtype(job->options), job->diags) < 0)
        return -1;
    if (job->whole && job->graph->level >= PLACED)
        return diag_error(job->diags, 416, EXIT_UNSUPPORTED, job->options->operand,
                          "the graph was planned before it was compiled: none of it runs on one device");
    if (job->whole)
        job->graph->mesh.naxes = 0;
    else if (job->graph->level < PLACED)
        set_mesh(job);
    else
        job->side.own_mesh = true; /* its nodes are cut along it */
    return 0;
}

static int read_kept(struct job *job, const char *path) {
    int nfiles = job->model->files.n;
    struct attach_file *files = ARENA_ARRAY(job->arena, struct attach_file, nfiles + 1);
    for (int i = 0; i < nfiles; i++)
        files[i] = (struct attach_file){job->model->files.at[i].data, job->model->files.at[i].bytes};
    return read_text(job, path) < 0 ? -1 : attach_weights(job->graph, nfiles, files, job->diags);
}

/* The graph of an ONNX model; `kept`: that of an earlier compile, as graph.rir. */
static int job_import(struct job *job, const char *kept) {
    if (!job->model) return 0;
    int status = kept ? read_kept(job, kept) : import_onnx(job);
    if (status < 0 || job->diags->errors) return -1;
    job->graph->mesh.naxes = 0;
    set_mesh(job);
    return 0;
}

static int job_read(struct job *job) {
    return job_open(job) < 0 || job_import(job, NULL) < 0 ? -1 : 0;
}

static const struct target *target_of(const struct job *job) {
    return target_find(choice_word(job->options->target));
}

/* How many ranks there are in all: as the options say, in units of the mesh's size where text IR brought the mesh. */
static int job_ranks(const struct job *job, int *ranks) {
    const struct options *options = job->options;
    int unit = mesh_size(job->graph ? &job->graph->mesh : &job->side.mesh);
    *ranks = options->given[OPT_RUNTIME_NGPUS] || !job->side.own_mesh ? (int)options->runtime_ngpus : unit;
    if (*ranks % unit == 0) return 0;
    return diag_error(job->diags, 204, EXIT_USAGE, NULL,
                      "the mesh of %s has %d devices, --runtime-ngpus %d is no multiple",
                      diag_quote(job->diags, options->operand), unit, *ranks);
}

/* A number above 0; NULL keeps what *value is. */
static int read_positive(struct job *job, const char *option, const char *text, double *value) {
    char *end = "";
    if (text) *value = strtod(text, &end);
    if (!text || (end != text && !*end && *value > 0)) return 0;
    return diag_error(job->diags, 205, EXIT_USAGE, NULL, "%s takes a number greater than 0, not %s", option,
                      diag_quote(job->diags, text));
}

static int read_clip(struct job *job) {
    return read_positive(job, "--clip-grad-norm", job->options->clip_grad_norm, &job->training.clip_grad_norm);
}

/* nnScaler's use_async_reducer and reducer_bucket_cap_mb. */
static int read_buckets(struct job *job) {
    double mb = 0;
    if (read_positive(job, "--reducer-bucket-cap-mb", job->options->reducer_bucket_cap_mb, &mb) < 0) return -1;
    const double bytes = fmin(ceil(mb * 0x1p20), 0x1p60);
    job->training.bucket_bytes = job->options->use_async_reducer ? (int64_t)bytes : 0;
    return 0;
}

/* Nothing that is said of training is dropped. */
static int refuse_training(const struct job *job) {
    static const enum option_id of_training[] = {OPT_OPTIMIZER,
                                                 OPT_LR_SCHEDULE,
                                                 OPT_PARAM,
                                                 OPT_INIT,
                                                 OPT_CLIP_GRAD_NORM,
                                                 OPT_ACCUMULATE,
                                                 OPT_LOSS,
                                                 OPT_AMP,
                                                 OPT_FP8,
                                                 OPT_USE_ASYNC_REDUCER,
                                                 OPT_REDUCER_BUCKET_CAP_MB};
    for (size_t i = 0; i < sizeof of_training / sizeof *of_training; i++)
        if (job->options->given[of_training[i]])
            return diag_error(job->diags, 200, EXIT_USAGE, NULL, "--%s needs --train",
                              option_rows[of_training[i]].name);
    return 0;
}

/* --optimizer, else what the model says, else the default. */
static int read_optimizer(struct job *job, bool *of_model) {
    const char *text = NULL;
    if (!job->options->given[OPT_OPTIMIZER] && job->model &&
        import_optimizer(job->arena, job->diags, job->model, &text) < 0)
        return -1;
    if (text) diag_remark(job->diags, job->model->place, "training_info: --optimizer %s", text);
    *of_model = text != NULL;
    return optimizer_parse(&job->training.optimizer, text ? text : job->options->optimizer, job->arena, job->diags);
}

/* How the graph is trained, where it is. */
static int read_training(struct job *job) {
    const struct options *options = job->options;
    struct training *training = &job->training;
    bool of_model;
    int ranks;
    if (!job->graph->train) return refuse_training(job);
    if (job_ranks(job, &ranks) < 0) return -1;
    if (mesh_pipeline_axis(&job->graph->mesh) >= 0)
        return diag_error(job->diags, 415, EXIT_UNSUPPORTED, job->graph->name,
                          "training in stages is not supported yet: the mesh has a pipeline axis");
    *training = (struct training){.accumulate = options->accumulate ? (int)options->accumulate : 1,
                                  .units = ranks / mesh_size(&job->graph->mesh),
                                  .lr_schedule = options->lr_schedule};
    if (read_optimizer(job, &of_model) < 0 ||
        schedule_parse(&training->schedule, options->lr_schedule, job->arena, job->diags) < 0 || read_clip(job) < 0 ||
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

/* NULL where the graph is not trained, or not imported yet. */
static const struct training *training_of(const struct job *job) {
    return job->graph && job->graph->train ? &job->training : NULL;
}

static bool has_flash(const struct job *job) {
    return !op_is_listed(op_named("FlashAttention"), target_of(job)->missing);
}

static enum attention_kind attention_of(const struct job *job) {
    return attention_kind_of(choice_word(job->options->attention));
}

static struct pass_context pass_context(struct job *job) {
    struct pass_context context = target_pass_context(target_of(job));
    context.policy = job->side.policy;
    context.rules = job->side.rules;
    context.plan = job->side.plan ? rt_json_root(job->side.plan) : NULL;
    context.plan_file = job->options->load_plan;
    context.attention = has_flash(job) ? attention_of(job) : ATTENTION_PRODUCTS;
    context.training = training_of(job);
    context.decisions = &job->decisions;
    context.verbose = job->options->verbose;
    context.diags = job->diags;
    return context;
}

/* Planning --------------------------------------------------------------------------------------------------------
 */

static int job_plan(struct job *job) {
    struct pass_context context = pass_context(job);
    if (read_training(job) < 0 || pipeline_run(job->graph, &context, NULL) < 0) return -1;
    rankplan_make(&job->plan, job->graph, &target_of(job)->kernels);
    if (rankplan_verify(&job->plan, job->diags) < 0) return -1;
    sources_find(&job->sources, &job->plan, target_of(job));
    return job->model ? onnx_check_files(job->model) : 0;
}

/* What the plan came from, for titles; file names stay out of what is written. */
static const char *pas_text(const struct job *job) {
    if (job->side.plan) return "plan";
    return job->side.rules ? job->side.policy : options_text(job->options, OPT_PAS, job->arena);
}

/* What was hashed is what was opened. */
static int check_opened(const struct job *job) {
    for (int i = 0; i < job->model->files.n; i++) {
        const struct onnx_file *opened = &job->model->files.at[i];
        const struct keys_file *hashed = &job->keys.files.at[i];
        if (opened->bytes != hashed->bytes || opened->mtime_ns != hashed->mtime_ns)
            return onnx_file_refuse(job->model, opened);
    }
    return 0;
}

/* Words of letters, digits and "_": they go into a build file. */
static int check_attention(const struct job *job) {
    if (attention_of(job) == ATTENTION_PRODUCTS || has_flash(job)) return 0;
    return diag_error(job->diags, 201, EXIT_USAGE, "--attention", "only --target cuda has %s",
                      attention_of(job) == ATTENTION_FLASH ? "flash attention" : "attention by cuDNN");
}

static int check_arch(const struct job *job) {
    const char *arch = job->options->arch;
    if (!arch) return 0; /* a verb that writes no build file */
    if (job->options->given[OPT_ARCH] && job->options->target != OPT_TARGET_CUDA)
        return diag_error(job->diags, 201, EXIT_USAGE, "--arch", "only --target cuda is for GPUs");
    if (*arch && !arch[strspn(arch, "abcdefghijklmnopqrstuvwxyz0123456789_,")]) return 0;
    return diag_error(job->diags, 201, EXIT_USAGE, "--arch", "%s is no list of GPUs: sm_80,sm_90a",
                      diag_quote(job->diags, arch));
}

static int job_describe(struct job *job) {
    const struct options *options = job->options;
    int ranks;
    if (check_arch(job) < 0 || check_attention(job) < 0) return -1;
    if (job_ranks(job, &ranks) < 0 || (!job->model && !job->files.n && list_text_files(job) < 0)) return -1;
    job->info = (struct program_info){.model = job->names.model,
                                      .instance = job->names.instance,
                                      .version = RANKC_VERSION,
                                      .attention = choice_word(options->attention),
                                      .pas = pas_text(job),
                                      .runtime_cflags = build_cflags,
                                      .runtime_libs = build_libs,
                                      .arch = options->arch,
                                      .runtime_ngpus = ranks,
                                      .training = training_of(job),
                                      .decisions = &job->decisions,
                                      .nfiles = job->files.n,
                                      .copies = job->options->weights == OPT_WEIGHTS_COPY};
    if (keys_make(&job->keys, options, &job->names, &job->side, job->files.n, job->files.at, job->arena, job->diags) <
        0)
        return -1;
    job->info.key = job->keys.plan.hex;
    job->info.work = job->keys.work;
    return job->model ? check_opened(job) : 0;
}

static struct manifest manifest_of(const struct job *job, const struct program *program) {
    return (struct manifest){.plan = &job->plan,
                             .sources = &job->sources,
                             .info = &job->info,
                             .target = target_of(job),
                             .graph_key = &job->keys.graph,
                             .plan_key = &job->keys.plan,
                             .program = program,
                             .slices = program && job->info.copies ? &job->slices : NULL};
}

/* --save-plan. */
static int save_plan(const struct job *job, const char *plan, size_t bytes) {
    struct rt_reason why;
    struct rt_piece piece = {plan, bytes};
    if (!job->options->save_plan || rt_file_write(job->options->save_plan, &piece, 1, &why)) return 0;
    return diag_refusal(job->diags, 611, EXIT_SYSTEM, NULL, &why);
}

static int out_of_memory(const struct job *job) {
    return diag_error(job->diags, 500, EXIT_LIMIT, NULL, "out of memory");
}

/* plan.json, saved where the user wants a copy; NULL after a diagnostic. */
static const char *make_plan_text(const struct job *job) {
    const char *plan = manifest_plan_text(&job->plan, &job->info);
    if (!plan) out_of_memory(job);
    return plan && save_plan(job, plan, strlen(plan)) == 0 ? plan : NULL;
}

int driver_plan(const struct options *options, struct arena *arena, struct diags *diags, const char **manifest_json) {
    struct job job = {.options = options, .arena = arena, .diags = diags};
    int status = job_read(&job);
    if (!status) status = job_plan(&job);
    job.names = (struct names){options_model(options, arena), options_instance(options, arena)};
    if (!status) status = job_describe(&job);
    if (!status) {
        struct manifest manifest = manifest_of(&job, NULL);
        *manifest_json = manifest_text(&manifest);
        if (!*manifest_json) status = out_of_memory(&job);
    }
    if (!status && !make_plan_text(&job)) status = -1;
    return status;
}

int driver_dump(const struct options *options, struct arena *arena, struct diags *diags, const char **text) {
    struct job job = {.options = options, .arena = arena, .diags = diags};
    const struct pass *last = pass_find(options->dump_after);
    if (!last) {
        const char **names = ARENA_ARRAY(arena, const char *, npasses + 1);
        for (int i = 0; i < npasses; i++) names[i] = passes[i].name;
        const char *near = str_nearest(options->dump_after, names);
        diag_error(diags, 206, EXIT_USAGE, NULL, "no pass %s", diag_quote(diags, options->dump_after));
        if (near) diag_help(diags, "did you mean '%s'?", near);
        return -1;
    }
    int status = job_read(&job);
    if (!status) status = read_training(&job);
    struct pass_context context = pass_context(&job);
    if (!status) status = pipeline_run(job.graph, &context, last);
    if (!status) *text = text_print(arena, job.graph);
    return status;
}

/* Writing
 * ---------------------------------------------------------------------------------------------------------- */

static const char *location_of(const struct job *job, const struct program *program) {
    struct keys_file constants = {.path = CONSTANTS_FILE};
    for (int i = 0; i < program->files.n; i++) {
        const struct program_file *file = &program->files.at[i];
        if (strcmp(file->path, CONSTANTS_FILE) != 0) continue;
        constants.bytes = (int64_t)file->count;
        rt_hash_bytes(file->bytes, file->count, constants.hash);
        return location_text(&job->keys, &constants, job->arena);
    }
    return location_text(&job->keys, NULL, job->arena);
}

static void add_text(struct job *job, struct program *program, const char *path, const char *text) {
    VEC_PUSH(job->arena, &program->files, (struct program_file){path, text, strlen(text), NULL});
}

/* Weights that are copied */

/* The files that stored tensors lie in, open as long as the arena lives, and their sizes when they were hashed. */
static int open_sources(struct job *job, struct slices_source *sources, int64_t *bytes) {
    for (int i = 0; i < job->keys.files.n; i++) {
        const struct keys_file *file = &job->keys.files.at[i];
        sources[i] = (struct slices_source){file->path, file->given, open(file->path, O_RDONLY | O_CLOEXEC)};
        bytes[i] = file->bytes;
        if (sources[i].fd < 0)
            return diag_error(job->diags, 601, EXIT_SYSTEM, NULL, "cannot open %s: %s",
                              diag_quote(job->diags, file->path), strerror(errno));
        arena_own_fd(job->arena, sources[i].fd);
    }
    return 0;
}

static int copy_weights(struct job *job, struct output *output, struct program *program) {
    const int nfiles = job->keys.files.n;
    struct slices_source *sources = ARENA_ARRAY(job->arena, struct slices_source, nfiles + 1);
    int64_t *bytes = ARENA_ARRAY(job->arena, int64_t, nfiles + 1);
    slices_find(&job->slices, &job->plan, &job->stored);
    if (open_sources(job, sources, bytes) < 0 || attach_check(&job->slices, nfiles, bytes, job->diags) < 0) return -1;
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
    return text ? output_write(output, name, text, strlen(text)) : out_of_memory(job);
}

/* Everything into the staging directory. The manifest is last: it has the hashes of all that was written. */
static int stage_all(struct job *job, struct output *output, struct program *program) {
    if (output_begin(output) < 0) return -1;
    for (int i = 0; i < program->files.n; i++)
        if (output_write(output, program->files.at[i].path, program->files.at[i].bytes, program->files.at[i].count) < 0)
            return -1;
    if (job->info.copies ? copy_weights(job, output, program) < 0
                         : stage_text(job, output, "location.json", location_of(job, program)) < 0)
        return -1;
    struct manifest manifest = manifest_of(job, program);
    return stage_text(job, output, "manifest.json", manifest_text(&manifest));
}

/* Programs are built before the exchange, so that what was there runs until what is new can. */
static int build_staged(struct job *job, struct output *output) {
    if (job->options->no_build) return build_link_runtime(job->arena, job->diags, output->staging);
    if (build_program(job->arena, job->diags, output->staging) == 0) return 0;
    output->staged = false;
    diag_help(job->diags, "the sources stay in %s until the next compile; --no-build writes them and stops",
              diag_quote(job->diags, output->staging));
    return -1;
}

static int generate(struct job *job, struct output *output) {
    struct program program;
    const char *imported = text_print(job->arena, job->graph);
    job->info.training = training_of(job);
    if (job->info.copies) slices_stored(&job->stored, job->graph);
    if (job_plan(job) < 0 ||
        program_make(&program, &job->plan, &job->sources, target_of(job), &job->info, job->diags) < 0)
        return -1;
    const char *plan = make_plan_text(job);
    if (!plan) return -1;
    add_text(job, &program, "graph.rir", imported);
    add_text(job, &program, "plan.json", plan);
    if (stage_all(job, output, &program) < 0 || build_staged(job, output) < 0 ||
        keys_check_files(&job->keys, job->diags) < 0)
        return -1;
    return output_commit(output);
}

/* Reuse
 * ----------------------------------------------------------------------------------------------------------- */

/* Errors of the command itself are reported before a mismatch: sizes that are missing, inputs that do not exist,
 * options of training. -1 after a diagnostic. */
static int check_command(void *context) {
    struct job *job = context;
    return (!job->graph && job_import(job, NULL) < 0) || read_training(job) < 0 ? -1 : 0;
}

static enum reuse_action decide(struct job *job, const struct output *output) {
    const struct reuse_check check = {check_command, job};
    return reuse_decide(output->directory, job->options, &job->keys, &check, job->arena, job->diags);
}

/* What location.json of the result there is must become; NULL: it is so. The model may lie elsewhere now, or nothing is
 * read of it any more. */
static int new_location(const struct job *job, const struct output *output, const char **text) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    *text = NULL;
    if (job->info.copies) return 0;
    *text = reuse_location(output->directory, &job->keys, job->diags);
    if (!*text) return -1;
    const char *path = arena_printf(job->arena, "%s/location.json", output->directory);
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why)) return 0;
    if (count == strlen(*text) && memcmp(bytes, *text, count) == 0) *text = NULL;
    arena_release(job->arena, bytes);
    return 0;
}

/* The graph of a model is not there yet; text says for itself that it trains. */
static bool is_built(const struct job *job, const struct output *output) {
    bool trains = job->options->train || training_of(job);
    return job->options->no_build || build_is_current(job->arena, output->directory, trains);
}

/* --save-plan of a result that stays. */
static int copy_plan(const struct job *job, const struct output *output) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!job->options->save_plan) return 0;
    const char *path = arena_printf(job->arena, "%s/plan.json", output->directory);
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why))
        return diag_refusal(job->diags, 803, EXIT_MALFORMED, NULL, &why);
    int status = save_plan(job, bytes, count);
    arena_release(job->arena, bytes);
    return status;
}

/* Brings up to date what is outside of the keys. With the lock for writing. */
static int refresh(const struct job *job, struct output *output) {
    const char *location;
    if (new_location(job, output, &location) < 0) return -1;
    if (location && output_replace(output, "location.json", location, strlen(location)) < 0) return -1;
    return is_built(job, output) ? 0 : build_program(job->arena, job->diags, output->directory);
}

/* The result that is there stays as it is: nothing to write, so that others may read it meanwhile, and nothing need be
 * writable. 1: it does, 0: not, -1: refused. */
static int stays(struct job *job, const struct output *output) {
    const char *location;
    enum reuse_action action = decide(job, output);
    if (action == REUSE_REFUSE) return -1;
    if (action != REUSE_ALL) return 0;
    if (new_location(job, output, &location) < 0) return -1;
    return !location && is_built(job, output);
}

/* With the lock for writing, which another compile may have had first. */
static int write_or_refresh(struct job *job, struct output *output, enum driver_made *made) {
    static const enum driver_made mades[] = {
        [REUSE_NOTHING] = MADE_ALL, [REUSE_GRAPH] = MADE_CODE, [REUSE_ALL] = MADE_NOTHING};
    enum reuse_action action = decide(job, output);
    if (action == REUSE_REFUSE) return -1;
    *made = mades[action];
    if (action == REUSE_ALL) return refresh(job, output);
    const char *kept = arena_printf(job->arena, "%s/graph.rir", output->directory);
    if (job_import(job, action == REUSE_GRAPH ? kept : NULL) < 0) return -1;
    return generate(job, output);
}

/* Nothing in the path of the directory that the target's compiler runs in is for it to interpret. */
static int check_build_path(const struct job *job, const struct output *output) {
    char path[PATH_MAX];
    const char *unsafe = target_of(job)->unsafe_in_paths;
    if (job->options->no_build || !unsafe || !realpath(output->parent, path)) return 0;
    const char *found = strpbrk(path, unsafe);
    if (!found) return 0;
    diag_error(job->diags, 621, EXIT_SYSTEM, NULL, "the compiler of target %s would interpret the '%c' in the path %s",
               target_of(job)->name, *found, diag_quote(job->diags, path));
    diag_help(job->diags, "choose another directory with -o, or write the sources only, with --no-build");
    return -1;
}

/* Meanwhile another compile has taken the directory for a name that is written alike. */
enum { TAKEN = 1 };

static bool is_ours(const struct job *job, const struct output *output) {
    return names_own(job->options, output->directory, job->arena);
}

static int compile_into(struct job *job, struct output *output, enum driver_made *made) {
    if (names_find(&job->names, job->options, job->arena, job->diags) < 0 || job_describe(job) < 0) return -1;
    if (!job->model && (check_located(job) < 0 || check_text_weights(job) < 0 || attach_text_weights(job) < 0))
        return -1;
    if (output_open(output, job->arena, job->diags, job->options->output, job->info.model, job->info.instance,
                    (long)job->options->lock_timeout) < 0 ||
        check_build_path(job, output) < 0)
        return -1;
    if (!is_ours(job, output)) return TAKEN;
    int as_it_is = stays(job, output);
    if (as_it_is < 0) return -1;
    *made = MADE_NOTHING;
    if (!as_it_is && output_own(output) < 0) return -1;
    if (!as_it_is && !is_ours(job, output)) return TAKEN;
    if (!as_it_is && write_or_refresh(job, output, made) < 0) return -1;
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

int driver_compile(const struct options *options, struct arena *arena, struct diags *diags,
                   struct driver_result *result) {
    struct job job = {.options = options, .arena = arena, .diags = diags};
    return compile_job(&job, result);
}

int driver_compile_whole(const char *dir, const char *out, const char *instance, const char *dtype, struct arena *arena,
                         struct diags *diags) {
    char *words[] = {"compile",
                     arena_printf(arena, "%s/graph.rir", dir),
                     "-q",
                     "-o",
                     arena_strdup(arena, out),
                     "--instance-name",
                     arena_strdup(arena, instance),
                     "--dtype",
                     arena_strdup(arena, dtype ? dtype : "")};
    const int count = sizeof words / sizeof *words;
    struct options options;
    struct driver_result result;
    if (options_parse(&options, dtype ? count : count - 2, words, arena, diags) < 0) return -1;
    struct job job = {.options = &options, .arena = arena, .diags = diags, .whole = true};
    return compile_job(&job, &result);
}
