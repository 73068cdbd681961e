/* Text IR as the input of a compile: written by hand, or the graph.rir of a compiled model, whose manifest.json and
 * location.json tell where its weights are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/driver/job/job.h"
#include "frontend/driver/files/sliced_weights.h"
#include "frontend/driver/files/weight_files.h"
#include "ir/base/own.h"
#include "ir/text.h"
#include "runtime/base/number/checked.h"

const char *job_text_directory(const struct job *job) {
    const char *text = job->options->operand, *slash = strrchr(text, '/');
    if (!slash) return ".";
    return slash == text ? "/" : arena_printf(job->arena, "%.*s", (int)(slash - text), text);
}

/* Adds a file that location.json lists, with the hash that it had when the model was compiled. */
static int add_located(struct job *job, const struct rt_json *entry, const char *directory) {
    const char *path = rt_json_text(rt_json_member(entry, "path")), *hash = rt_json_text(rt_json_member(entry, "hash"));
    struct stat info;
    if (!path || !hash)
        return diag_error(job->diags, 803, EXIT_MALFORMED, directory, "location.json: a file has no path or no hash");
    path = path[0] == '/' ? arena_strdup(job->arena, path) : arena_printf(job->arena, "%s/%s", directory, path);
    VEC_PUSH(job->arena, &job->files, path);
    VEC_PUSH(job->arena, &job->hashes, arena_strdup(job->arena, hash));
    if (stat(path, &info) == 0) return 0;
    diag_errno(job->diags, 608, job->options->operand, "open", path);
    diag_help(job->diags, "location.json says that the weights are in this file: restore it");
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

/* Lists the files of weights that were copied in slices. Weights of several slices are assembled in a file: below the
 * output directory for a whole-graph compile, whose programs read it, else in $TMPDIR until the compile ends. */
static int list_copied_files(struct job *job, const char *directory, const struct rt_json *manifest) {
    const char *base = getenv("TMPDIR");
    struct sliced_files files;
    char *scratch =
        job->whole ? arena_printf(job->arena, "%s/%s.weights", job->options->output,
                                  options_instance(job->options, job->arena))
                   : arena_printf(job->arena, "%s/rankc-weights-%ld", base && *base ? base : "/tmp", (long)getpid());
    if (!job->whole) arena_own(job->arena, scratch, remove_file);
    if (sliced_weights_locate(&files, directory, manifest, job->graph, job->options->operand, scratch, job->diags) < 0)
        return -1;
    for (int i = 0; i < files.all.n; i++) VEC_PUSH(job->arena, &job->files, files.all.at[i]);
    if (!files.assembled || job->whole || job->options->weights == OPT_WEIGHTS_COPY) return 0;
    diag_error(job->diags, 201, EXIT_USAGE, job->options->operand,
               "the graph needs weights that are stored only as slices of them");
    diag_help(job->diags, "--weights copy joins the slices");
    return -1;
}

bool job_text_is_compiled(const struct job *job) {
    struct stat info;
    return lstat(arena_printf(job->arena, "%s/manifest.json", job_text_directory(job)), &info) == 0;
}

/* Lists the files of a compiled model's weights: 1; 0 if the text is not its graph; -1 after a diagnostic. */
static int list_compiled_files(struct job *job) {
    const char *directory = job_text_directory(job);
    struct rt_reason why;
    bool intact;
    if (!job_text_is_compiled(job)) return 0;
    struct rt_json_document *manifest = own_sealed(job->arena, directory, "manifest.json", &intact, &why);
    if (!manifest) return diag_refusal(job->diags, 803, EXIT_MALFORMED, job->options->operand, &why);
    if (!intact)
        return diag_error(job->diags, 802, EXIT_MISMATCH, job->options->operand,
                          "manifest.json beside it was modified after it was generated");
    const struct rt_json *root = rt_json_root(manifest);
    int status =
        sliced_weights_present(root) ? list_copied_files(job, directory, root) : list_located_files(job, directory);
    arena_release(job->arena, manifest);
    return status < 0 ? -1 : 1;
}

/* Files named by the text are relative to its directory. File 0 is the text itself, as it is the model for a model. */
int job_list_text_files(struct job *job) {
    const char *text = job->options->operand, *slash = strrchr(text, '/');
    int compiled = list_compiled_files(job);
    if (compiled) return compiled < 0 ? -1 : 0;
    job->named = true;
    VEC_PUSH(job->arena, &job->files, text);
    for (int i = 0; i < job->graph->files.n; i++) {
        const char *name = job->graph->files.at[i];
        const char *path = arena_printf(job->arena, "%.*s%s", slash ? (int)(slash - text) + 1 : 0, text, name);
        struct stat info;
        if (lstat(path, &info) < 0) return diag_errno(job->diags, 601, text, "open", path);
        if (S_ISLNK(info.st_mode) && !job->options->allow_links)
            return diag_error(job->diags, 362, EXIT_MALFORMED, text, "%s is a symbolic link",
                              diag_quote(job->diags, name));
        VEC_PUSH(job->arena, &job->files, path);
    }
    return 0;
}

int job_check_located(const struct job *job) {
    for (int i = 0; i < job->hashes.n; i++)
        if (strcmp(job->hashes.at[i], job->keys.files.at[i].hash) != 0)
            return diag_error(job->diags, 802, EXIT_MISMATCH, job->options->operand,
                              "%s has changed since the graph was generated", diag_quote(job->diags, job->files.at[i]));
    return 0;
}

/* Text IR printed from an ONNX model does not name the model's files. Without manifest.json beside it, it can be
 * planned but not compiled. */
static int no_file_named(const struct job *job, const struct tensor *tensor) {
    diag_error(job->diags, 345, EXIT_MALFORMED, job->options->operand,
               "weight %s is in none of the files that the text names", diag_quote(job->diags, tensor->name));
    diag_help(job->diags,
              "edit graph.rir in a copy of the directory that 'compile' wrote: the files beside it say where "
              "the weights are");
    return -1;
}

int job_check_text_weights(const struct job *job) {
    for (int t = 0; t < job->graph->tensors.n; t++) {
        const struct tensor *tensor = &job->graph->tensors.at[t];
        int64_t bytes, end;
        if (tensor->kind != TENSOR_WEIGHT) continue;
        if (tensor->stored.file < job->named || tensor->stored.file >= job->files.n) return no_file_named(job, tensor);
        int64_t has = job->keys.files.at[tensor->stored.file].bytes,
                size = (int64_t)rt_dtype_bytes(tensor->stored.dtype);
        if (tensor->stored.offset > INT64_MAX || !rt_mul(tensor_elements(tensor), size, &bytes) ||
            !rt_add((int64_t)tensor->stored.offset, bytes, &end) || end > has)
            return diag_error(job->diags, 353, EXIT_MALFORMED, job->options->operand, "weight %s is outside of %s",
                              diag_quote(job->diags, tensor->name),
                              diag_quote(job->diags, job->files.at[tensor->stored.file]));
    }
    return 0;
}

int job_attach_text_weights(struct job *job) {
    struct weight_file *files = ARENA_ARRAY(job->arena, struct weight_file, job->files.n + 1);
    for (int i = 0; i < job->files.n; i++)
        if (weight_file_map(job->arena, job->diags, job->files.at[i], &files[i]) < 0) return -1;
    return weight_files_attach(job->graph, job->files.n, files, job->diags);
}

int job_read_text(struct job *job, const char *path) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why))
        return diag_refusal(job->diags, 302, EXIT_MALFORMED, NULL, &why);
    int status = text_parse(job->arena, job->diags, path, bytes, count, &job->graph);
    arena_release(job->arena, bytes);
    return status;
}

int job_check_text_options(const struct job *job) {
    static const struct {
        enum option_id id;
        const char *name;
    } own[] = {{OPT_DIM, "--dim"},       {OPT_SHAPE, "--shape"},
               {OPT_OPS, "--ops"},       {OPT_WEIGHTS_FROM, "--weights-from"},
               {OPT_BIND, "--bind"},     {OPT_LOSS, "--loss"},
               {OPT_SHARED, "--shared"}, {OPT_SYNC_BATCH_NORM, "--sync-batch-norm"}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (job->options->given[own[i].id])
            return diag_error(job->diags, 201, EXIT_USAGE, job->options->operand,
                              "%s does not apply to text IR, which contains sizes, constants, operators and loss",
                              own[i].name);
    if (job->options->train && !job->graph->train)
        return diag_error(job->diags, 412, EXIT_USAGE, job->options->operand,
                          "--train: the text is not a training graph");
    return 0;
}
