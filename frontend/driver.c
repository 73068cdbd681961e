#include "frontend/driver.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/manifest.h"
#include "codegen/output.h"
#include "frontend/build_program.h"
#include "frontend/import.h"
#include "frontend/cli/reuse.h"
#include "frontend/cli/side_files.h"
#include "ir/base/str.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
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
    const char *location;     /* location.json of a compiled model whose graph.rir is the input, else NULL */
    struct graph *graph;
    struct side_files side;
    VEC(const char *) files; /* that stored tensors lie in, by stored.file */
    struct rankplan plan;
    struct sources sources;
    struct training training;
    struct program_info info;
    struct reuse_keys keys;
};

/* Reading ---------------------------------------------------------------------------------------------------------
 */

static bool has_suffix(const char *text, const char *suffix) {
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

/* The files that a compiled model's weights lie in. */
static int list_located_files(struct job *job) {
    struct rt_reason why;
    struct rt_json_document *document = rt_json_read(job->location, &why);
    if (!document) return diag_error(job->diags, 803, EXIT_MALFORMED, job->location, "%s", why.text);
    const struct rt_json *files = rt_json_member(rt_json_root(document), "files");
    for (const struct rt_json *f = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; f; f = f->next) {
        const char *path = rt_json_text(rt_json_member(f, "path"));
        if (path && path[0] == '/') VEC_PUSH(job->arena, &job->files, arena_strdup(job->arena, path));
    }
    rt_json_free(document);
    return 0;
}

/* Files that IR text names lie beside it; the text itself comes first, as a model does. */
static int list_text_files(struct job *job) {
    if (job->location) return list_located_files(job);
    const char *text = job->options->operand, *slash = strrchr(text, '/');
    VEC_PUSH(job->arena, &job->files, text);
    for (int i = 0; i < job->graph->files.n; i++) {
        const char *name = job->graph->files.at[i];
        const char *path = arena_printf(job->arena, "%.*s%s", slash ? (int)(slash - text) + 1 : 0, text, name);
        struct stat info;
        if (lstat(path, &info) < 0)
            return diag_error(job->diags, 601, EXIT_SYSTEM, text, "cannot open %s: %s",
                              diag_quote(job->diags, path), strerror(errno));
        if (S_ISLNK(info.st_mode) && !job->options->allow_links)
            return diag_error(job->diags, 362, EXIT_MALFORMED, text, "%s is a symbolic link",
                              diag_quote(job->diags, name));
        VEC_PUSH(job->arena, &job->files, path);
    }
    return 0;
}

/* The bytes of every weight are in a file that the text names. Text that was printed from a model has them in the model,
 * which it does not name: it can be planned, not compiled. */
static int check_text_weights(const struct job *job) {
    for (int t = 0; t < job->graph->tensors.n; t++) {
        const struct tensor *tensor = &job->graph->tensors.at[t];
        int64_t bytes, end;
        if (tensor->kind != TENSOR_WEIGHT) continue;
        if (tensor->stored.file < 1 || tensor->stored.file > job->graph->files.n)
            return diag_error(job->diags, 345, EXIT_MALFORMED, job->options->operand,
                              "weight %s lies in no file that the text names",
                              diag_quote(job->diags, tensor->name));
        int64_t has = job->keys.files.at[tensor->stored.file].bytes,
                size = (int64_t)rt_dtype_bytes(tensor->stored.dtype);
        if (tensor->stored.offset > INT64_MAX || !rt_mul(tensor_elements(tensor), size, &bytes) ||
            !rt_add((int64_t)tensor->stored.offset, bytes, &end) || end > has)
            return diag_error(job->diags, 353, EXIT_MALFORMED, job->options->operand,
                              "weight %s lies outside of %s", diag_quote(job->diags, tensor->name),
                              diag_quote(job->diags, job->graph->files.at[tensor->stored.file - 1]));
    }
    return 0;
}

/* Text IR is taken as a model too: for tests, and for graphs written by hand or edited. */
static int read_text(struct job *job) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!rt_file_read(job->options->operand, (size_t)1 << 30, &bytes, &count, &why))
        return diag_error(job->diags, 601, EXIT_SYSTEM, NULL, "%s", why.text);
    int status = text_parse(job->arena, job->diags, job->options->operand, bytes, count, &job->graph);
    free(bytes);
    return status;
}

static enum rt_dtype wanted_dtype(const struct options *options) {
    return options->dtype == CHOICE_NONE ? RT_DTYPE_NONE : rt_dtype_by_name(choice_word(options->dtype));
}

static int read_onnx(struct job *job) {
    const struct options *options = job->options;
    struct import_options import = {.ndims = options->dims.all.n, .dtype = wanted_dtype(options)};
    struct import_dim *dims = ARENA_ARRAY(job->arena, struct import_dim, import.ndims + 1);
    for (int i = 0; i < import.ndims; i++)
        dims[i] = (struct import_dim){options->dims.all.at[i].name, options->dims.all.at[i].size};
    import.dims = dims;
    import.train = options->train;
    import.nbinds = job->side.nbinds;
    import.binds = job->side.binds;
    if (onnx_open(job->arena, job->diags, options->operand, options->allow_links, &job->model) < 0) return -1;
    if (import_model(job->arena, job->diags, job->model, &import, &job->graph) < 0) return -1;
    for (int i = 0; i < job->model->files.n; i++) VEC_PUSH(job->arena, &job->files, job->model->files.at[i].path);
    return 0;
}

/* The mesh of the options; text that brings its own keeps it. */
static void set_mesh(struct job *job) {
    if (job->graph->mesh.naxes)
        job->side.own_mesh = true;
    else
        job->graph->mesh = job->side.mesh;
}

static int job_read(struct job *job) {
    int before = job->diags->errors;
    if (side_files_read(&job->side, job->options, job->arena, job->diags) < 0) return -1;
    int status = has_suffix(job->options->operand, ".rir") ? read_text(job) : read_onnx(job);
    if (status < 0 || job->diags->errors > before) return -1;
    if (job->location)
        job->graph->mesh.naxes = 0; /* the whole model on one rank */
    else if (job->graph->level < PLACED)
        set_mesh(job);
    return 0;
}

static void job_close(struct job *job) {
    onnx_close(job->model);
    side_files_free(&job->side);
}

static const struct target *target_of(const struct job *job) {
    return target_find(choice_word(job->options->target));
}

static int job_ranks(const struct job *job, int *ranks) {
    const struct options *options = job->options;
    int unit = mesh_size(&job->graph->mesh);
    *ranks = options->given[OPT_RUNTIME_NGPUS] || !job->side.own_mesh ? (int)options->runtime_ngpus : unit;
    if (*ranks % unit == 0) return 0;
    return diag_error(job->diags, 204, EXIT_USAGE, NULL,
                      "the mesh of %s has %d devices, --runtime-ngpus %d is no multiple",
                      diag_quote(job->diags, options->operand), unit, *ranks);
}

/* How the graph is trained, where it is. */
static int read_training(struct job *job) {
    const struct options *options = job->options;
    int ranks;
    char *end = "";
    if (!job->graph->train) return 0;
    if (job_ranks(job, &ranks) < 0 ||
        optimizer_parse(&job->training.optimizer, options->optimizer, job->arena, job->diags) < 0)
        return -1;
    job->training.accumulate = (int)options->accumulate;
    job->training.units = ranks / mesh_size(&job->graph->mesh);
    if (options->clip_grad_norm) job->training.clip_grad_norm = strtod(options->clip_grad_norm, &end);
    if (*end || (options->clip_grad_norm && !(job->training.clip_grad_norm > 0)))
        return diag_error(job->diags, 205, EXIT_USAGE, "--clip-grad-norm", "%s is no number above 0",
                          diag_quote(job->diags, options->clip_grad_norm));
    return 0;
}

static struct pass_context pass_context(const struct job *job) {
    return (struct pass_context){.policy = job->side.policy,
                                 .rules = job->side.rules,
                                 .plan = job->side.plan ? rt_json_root(job->side.plan) : NULL,
                                 .plan_file = job->options->load_plan,
                                 .training = job->graph->train ? &job->training : NULL,
                                 .diags = job->diags};
}

/* Planning --------------------------------------------------------------------------------------------------------
 */

static int job_plan(struct job *job) {
    struct pass_context context = pass_context(job);
    if (read_training(job) < 0 || pipeline_run(job->graph, &context, NULL) < 0) return -1;
    rankplan_make(&job->plan, job->graph);
    if (rankplan_verify(&job->plan, job->diags) < 0) return -1;
    sources_find(&job->sources, &job->plan, target_of(job));
    return 0;
}

/* How many ranks there are in all: as the options say, in units of the mesh's size where text IR brought the mesh. */
/* What the plan came from, for titles; file names stay out of what is written. */
static const char *pas_text(const struct job *job) {
    if (job->side.plan) return "plan";
    return job->side.rules ? job->side.policy : options_text(job->options, OPT_PAS, job->arena);
}

static int job_describe(struct job *job) {
    const struct options *options = job->options;
    int ranks;
    if (job_ranks(job, &ranks) < 0 || (!job->model && list_text_files(job) < 0)) return -1;
    job->info = (struct program_info){.model = options_model(options, job->arena),
                                      .instance = options_instance(options, job->arena),
                                      .version = RANKC_VERSION,
                                      .pas = pas_text(job),
                                      .runtime_ngpus = ranks,
                                      .training = job->graph->train ? &job->training : NULL,
                                      .nfiles = job->files.n};
    if (reuse_make_keys(&job->keys, options, &job->side, job->files.n, job->files.at, job->arena, job->diags) < 0)
        return -1;
    job->info.key = job->keys.plan.hex;
    return 0;
}

static struct manifest manifest_of(const struct job *job, const struct program *program) {
    return (struct manifest){.plan = &job->plan,
                             .sources = &job->sources,
                             .info = &job->info,
                             .target = target_of(job),
                             .graph_key = &job->keys.graph,
                             .plan_key = &job->keys.plan,
                             .program = program};
}

int driver_plan(const struct options *options, struct arena *arena, struct diags *diags,
                const char **manifest_json) {
    struct job job = {.options = options, .arena = arena, .diags = diags};
    int status = job_read(&job);
    if (!status) status = job_plan(&job);
    if (!status) status = job_describe(&job);
    if (!status) {
        struct manifest manifest = manifest_of(&job, NULL);
        *manifest_json = manifest_text(&manifest);
        if (!*manifest_json) status = diag_error(diags, 500, EXIT_LIMIT, NULL, "out of memory");
    }
    job_close(&job);
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
    job_close(&job);
    return status;
}

/* Writing
 * ---------------------------------------------------------------------------------------------------------- */

/* The model's files and, after them, the constants; paths are absolute but for our own. */
static const char *location_text(struct job *job, const struct program *program) {
    struct rt_json_writer w;
    struct rt_reason why;
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_LINES);
    rt_json_key(&w, "format"), rt_json_put_int(&w, 1);
    rt_json_key(&w, "files");
    rt_json_open(&w, '[', RT_JSON_LINES);
    for (int i = 0; i < job->keys.files.n; i++) reuse_put_file(&w, &job->keys.files.at[i]);
    for (int i = 0; i < program->files.n; i++) {
        const struct program_file *file = &program->files.at[i];
        if (strcmp(file->path, "weights/constants.bin") != 0) continue;
        struct reuse_file own = {.path = file->path, .bytes = (int64_t)file->count};
        rt_hash_bytes(file->bytes, file->count, own.hash);
        reuse_put_file(&w, &own);
    }
    rt_json_close(&w, ']');
    rt_json_close(&w, '}');
    const char *text = rt_json_end(&w, &why) ? arena_copy(job->arena, w.text, w.bytes) : NULL;
    rt_json_discard(&w);
    return text;
}

static void add_text(struct job *job, struct program *program, const char *path, const char *text) {
    VEC_PUSH(job->arena, &program->files, (struct program_file){path, text, strlen(text)});
}

static int write_all(struct job *job, struct output *output, const struct program *program) {
    struct manifest manifest = manifest_of(job, program);
    const char *texts[] = {manifest_text(&manifest), location_text(job, program)};
    static const char *const names[] = {"manifest.json", "location.json"};
    if (output_begin(output) < 0) return -1;
    for (int i = 0; i < program->files.n; i++)
        if (output_write(output, program->files.at[i].path, program->files.at[i].bytes,
                         program->files.at[i].count) < 0)
            return -1;
    for (int i = 0; i < 2; i++) {
        if (!texts[i]) return diag_error(job->diags, 500, EXIT_LIMIT, NULL, "out of memory");
        if (output_write(output, names[i], texts[i], strlen(texts[i])) < 0) return -1;
    }
    return output_commit(output);
}

static int save_plan(const struct job *job, const char *plan) {
    struct rt_reason why;
    struct rt_piece piece = {plan, strlen(plan)};
    if (!job->options->save_plan || rt_file_write(job->options->save_plan, &piece, 1, &why)) return 0;
    return diag_error(job->diags, 611, EXIT_SYSTEM, NULL, "%s", why.text);
}

static int generate(struct job *job, struct output *output, const char *imported) {
    struct program program;
    if (program_make(&program, &job->plan, &job->sources, target_of(job), &job->info, job->diags) < 0) return -1;
    const char *plan = manifest_plan_text(&job->plan, &job->info);
    if (!plan) return diag_error(job->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (save_plan(job, plan) < 0) return -1;
    add_text(job, &program, "graph.rir", imported);
    add_text(job, &program, "plan.json", plan);
    return write_all(job, output, &program);
}

/* Reads, plans and writes; or finds that what is there can stay. */
static int compile(struct job *job, struct output *output) {
    if (job_read(job) < 0 || job_describe(job) < 0 ||
        (!job->model && !job->location && check_text_weights(job) < 0))
        return -1;
    if (output_open(output, job->arena, job->diags, job->options->output, job->info.model, job->info.instance,
                    (long)job->options->lock_timeout) < 0)
        return -1;
    int stays = reuse_decide(output->directory, job->options, &job->keys, job->arena, job->diags);
    if (stays < 0) return -1;
    if (stays) return reuse_relocate(output, &job->keys, job->arena);
    const char *imported = text_print(job->arena, job->graph);
    if (job_plan(job) < 0) return -1;
    return generate(job, output, imported);
}

int driver_compile(const struct options *options, struct arena *arena, struct diags *diags) {
    struct job job = {.options = options, .arena = arena, .diags = diags};
    struct output output = {.lock = -1};
    int status = compile(&job, &output);
    if (!status && !options->no_build) status = build_program(arena, diags, output.directory);
    output_close(&output);
    job_close(&job);
    return status;
}

int driver_compile_whole(const char *dir, const char *out, struct arena *arena, struct diags *diags) {
    char *words[] = {"compile", arena_printf(arena, "%s/graph.rir", dir), "-o", arena_strdup(arena, out), "-q"};
    struct options options;
    struct output output = {.lock = -1};
    if (options_parse(&options, 5, words, arena, diags) < 0) return -1;
    struct job job = {.options = &options,
                      .arena = arena,
                      .diags = diags,
                      .location = arena_printf(arena, "%s/location.json", dir)};
    int status = compile(&job, &output);
    if (!status) status = build_program(arena, diags, output.directory);
    output_close(&output);
    job_close(&job);
    return status;
}
