/* Reads the input of a compile: an ONNX model, text IR, or the graph of an earlier compile. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/config/config.h"
#include "frontend/driver/annotations/annotations.h"
#include "frontend/driver/files/adapter_sets.h"
#include "frontend/driver/files/sliced_weights.h"
#include "frontend/driver/files/user_ops.h"
#include "frontend/driver/files/weight_files.h"
#include "frontend/driver/job/job.h"
#include "frontend/import/import.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/text.h"
#include "runtime/base/io/file.h"
#include "runtime/base/number/checked.h"

/* Text IR as the input of a compile: written by hand, or the graph.rir of a compiled model, whose manifest.json and
 * location.json tell where its weights are. */

/* The directory that contains the text. */
static const char *job_text_directory(const struct job *job) {
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
    return diag_help(job->diags, "location.json says that the weights are in this file: restore it");
}

static int list_located_files(struct job *job, const char *directory) {
    struct rt_reason why;
    struct rt_json_document *document = own_json_below(job->arena, directory, "location.json", &why);
    if (!document) return diag_refusal(job->diags, 803, EXIT_MALFORMED, job->options->operand, &why);
    const struct rt_json *files = rt_json_member(rt_json_root(document), "files");
    int status = 0;
    for (const struct rt_json *f = rt_json_first(files); f && !status; f = f->next)
        status = add_located(job, f, directory);
    arena_release(job->arena, document);
    VEC_PUSH(job->arena, &job->files, job->options->operand); /* last: no weight is in it */
    return status;
}

static void remove_file(void *path) {
    unlink(path);
}

/* True of a weight that refers to the model, while weights are slices of a compiled one. */
static bool job_is_lost(const struct job *job, const struct tensor *tensor) {
    return job->copied && tensor->kind == TENSOR_WEIGHT && tensor->stored.file >= 0 &&
           tensor->stored.file < job->copied->model;
}

static int not_copied(const struct job *job, const struct tensor *tensor) {
    diag_error(job->diags, 345, EXIT_MALFORMED, arena_printf(job->arena, "%s/manifest.json", job->copied->directory),
               "weight %s is not among the copied weights", diag_quote(job->diags, tensor->name));
    return diag_help(job->diags, "of weights that --weight-dtype made smaller only that is copied: compile the model");
}

/* Sets the place of a weight of the graph. A graph for one rank may lack some until --weight-dtype is applied to it. */
static int take_copied(struct job *job, int id) {
    struct tensor *tensor = &job->graph->tensors.at[id];
    if (!sliced_files_take(job->copied, tensor, job->arena) && !job->whole) return not_copied(job, tensor);
    if (job->twin) job->twin->tensors.at[id].stored = tensor->stored; /* the same tensors (specimens_agree) */
    return 0;
}

int job_take_smaller(struct job *job) {
    for (int i = 0; job->copied && i < job->plan.weights.n; i++) {
        struct tensor *tensor = &job->graph->tensors.at[job->plan.weights.at[i]];
        if (job_is_lost(job, tensor) && !sliced_files_take(job->copied, tensor, job->arena))
            return not_copied(job, tensor);
    }
    return 0;
}

/* Lists the files of weights that were copied in slices. Weights of several slices are assembled in a file: below the
 * output directory for a whole-graph compile, whose programs read it, else in $TMPDIR until the compile ends. */
static int list_copied_files(struct job *job, const char *directory, const struct rt_json *manifest) {
    const char *base = getenv("TMPDIR");
    struct sliced_files *files = job->copied = ARENA_NEW(job->arena, struct sliced_files);
    char *scratch =
        job->whole ? arena_printf(job->arena, "%s/%s.weights", job->options->output,
                                  options_instance(job->options, job->arena))
                   : arena_printf(job->arena, "%s/rankc-weights-%ld", base && *base ? base : "/tmp", (long)getpid());
    if (!job->whole) arena_own(job->arena, scratch, remove_file);
    if (sliced_weights_locate(files, directory, manifest, job->options->operand, scratch, job->diags) < 0) return -1;
    for (int t = 0; t < job->graph->tensors.n; t++)
        if (job->graph->tensors.at[t].kind == TENSOR_WEIGHT && take_copied(job, t) < 0) return -1;
    for (int i = 0; i < files->all.n; i++) VEC_PUSH(job->arena, &job->files, files->all.at[i]);
    if (!files->assembled || job->whole || job->options->weights == OPT_WEIGHTS_COPY) return 0;
    diag_error(job->diags, 201, EXIT_USAGE, job->options->operand,
               "the graph needs weights that are stored only as slices of them");
    return diag_help(job->diags, "--weights copy joins the slices");
}

/* True if the text is the graph.rir of a compiled model: a manifest.json lies beside it. */
static bool job_text_is_compiled(const struct job *job) {
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
    VEC_EACH_VALUE(&job->graph->files, i, const char *name) {
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
    return diag_help(job->diags,
                     "edit graph.rir in a copy of the directory that 'compile' wrote: the files beside it say where "
                     "the weights are");
}

int job_check_text_weights(const struct job *job) {
    VEC_EACH(&job->graph->tensors, t, const struct tensor *tensor) {
        int64_t bytes, end;
        if (tensor->kind != TENSOR_WEIGHT || job_is_lost(job, tensor)) continue;
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
    for (int i = job->copied ? job->copied->model : 0; i < job->files.n; i++)
        if (weight_file_map(job->arena, job->diags, job->files.at[i], &files[i]) < 0) return -1;
    if (job->twin && weight_files_attach(job->twin, job->files.n, files, job->diags) < 0) return -1;
    return weight_files_attach(job->graph, job->files.n, files, job->diags);
}

/* Parses text IR into job->graph: the specimen that job->specimen says. */
static int job_read_text(struct job *job, const char *path) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(job->arena, path, (size_t)1 << 30, &bytes, &count, &why))
        return diag_refusal(job->diags, 302, EXIT_MALFORMED, NULL, &why);
    int (*const parse)(struct arena *, struct diags *, const char *, const char *, size_t, struct graph **) =
        job->specimen % 2 ? text_parse_twin : text_parse;
    int status = parse(job->arena, job->diags, path, bytes, count, &job->graph);
    arena_release(job->arena, bytes);
    if (!status && job->adapter) adapter_sets_choose(job->graph, job->adapter);
    return status;
}

/* E0201 for options that text IR already determines (--dim, --bind, --loss), E0412 for --train of one that is not
 * trained. */
static int job_check_text_options(const struct job *job) {
    static const struct {
        enum option_id id;
        const char *name;
    } own[] = {{OPT_DIM, "--dim"},
               {OPT_SHAPE, "--shape"},
               {OPT_OPS, "--ops"},
               {OPT_WEIGHTS_FROM, "--weights-from"},
               {OPT_ADAPTER, "--adapter"},
               {OPT_BIND, "--bind"},
               {OPT_LOSS, "--loss"},
               {OPT_SHARED, "--shared"},
               {OPT_SYNC_BATCH_NORM, "--sync-batch-norm"}};
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

/* The type of --dtype; RT_DTYPE_NONE: not given. */
static enum rt_dtype job_dtype(const struct job *job) {
    const enum choice dtype = job->options->dtype;
    return dtype == CHOICE_NONE ? RT_DTYPE_NONE : rt_dtype_by_name(choice_word(dtype));
}

/* --pas annotated: the mesh is that of the model's annotations. */
static int read_annotations(struct job *job) {
    const struct options *options = job->options;
    job->side.annotations = ARENA_NEW(job->arena, struct annotations);
    if (annotations_read(job->side.annotations, job->model, options->decisions.configuration, job->diags) < 0)
        return -1;
    job->side.decisions.mesh = job->side.annotations->mesh;
    job->side.own_mesh = true;
    return side_files_check_mesh(&job->side, options, job->diags);
}

static int open_onnx(struct job *job) {
    const struct options *options = job->options;
    const char *from = options->weights_from;
    struct onnx_weights_from weights = from ? onnx_weights_from(job->arena, from) : (struct onnx_weights_from){0};
    if (onnx_open_with(job->arena, job->diags, options->operand, options->allow_links, from ? &weights : NULL,
                       &job->model) < 0)
        return -1;
    for (int i = 0; i < job->model->files.n; i++) VEC_PUSH(job->arena, &job->files, job->model->files.at[i].path);
    if (job->side.adapters.weights) VEC_PUSH(job->arena, &job->files, job->side.adapters.weights);
    return options->pas.word == OPT_POLICY_ANNOTATED && !options->load_plan ? read_annotations(job) : 0;
}

/* --sync-batch-norm is refused where the model has nothing for it. */
static int check_sync(struct job *job) {
    bool any = !job->options->sync_batch_norm;
    for (int t = 0; t < job->graph->tensors.n; t++) any = any || job->graph->tensors.at[t].joined;
    if (any) return 0;
    diag_error(job->diags, 205, EXIT_USAGE, "--sync-batch-norm",
               "the model has no batch normalization that uses the statistics of the batch");
    return diag_help(job->diags, "export the module in training mode; in evaluation mode it uses running statistics"),
           -1;
}

/* --shared: the inputs that it names, and no others. */
static int take_shared(struct job *job) {
    const struct option_texts *given = &job->options->shared;
    struct graph *graph = job->graph;
    const bool none = given->all.n == 1 && strcmp(given->all.at[0], "none") == 0;
    for (int i = 0; i < graph->inputs.n; i++) {
        struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        input->shared = !input->ndim;
    }
    for (int k = 0; k < given->all.n && !none; k++) {
        int i = 0;
        while (i < graph->inputs.n && strcmp(graph->tensors.at[graph->inputs.at[i]].name, given->all.at[k]) != 0) i++;
        if (i == graph->inputs.n)
            return diag_error(job->diags, 205, EXIT_USAGE, "--shared", "the model has no input %s",
                              diag_quote(job->diags, given->all.at[k]));
        graph->tensors.at[graph->inputs.at[i]].shared = true;
    }
    return 0;
}

/* Decides which inputs are the same for all samples, and tells it where a program reads several micro-batches. */
static int find_shared(struct job *job) {
    const struct graph *graph = job->graph;
    if (job->options->given[OPT_SHARED]) return take_shared(job);
    samples_find_shared(job->graph);
    struct strbuf names = {.arena = job->arena};
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        if (input->shared)
            strbuf_printf(&names, "%s%s %s", names.length ? ", " : "", diag_quote(job->diags, input->name),
                          tensor_type(job->arena, input));
    }
    if (!names.length || !(job->options->train || job->options->decisions.micro_batches > 1)) return 0;
    diag_remark(job->diags, graph->name, "inputs that are the same for all samples: %s", strbuf_text(&names));
    diag_help(job->diags, "--shared INPUT, or --shared none, says otherwise");
    return 0;
}

/* With --state, a decoder whose outer If is on an input takes the branch with caches, which begin empty: a bind. */
static void bind_branch(struct job *job, struct import_options *import) {
    const Onnx__GraphProto *graph = job->model->proto->graph;
    const char *state = job->options->state;
    bool has = false;
    if (!state || strcmp(state, "none") == 0) return;
    for (size_t i = 0; i < graph->n_input; i++)
        has = has || strcmp(onnx_text(graph->input[i]->name), IMPORT_BRANCH) == 0;
    for (int i = 0; i < import->nbinds; i++) has = has && strcmp(import->binds[i].input, IMPORT_BRANCH) != 0;
    if (!has) return;
    struct import_bind *binds = ARENA_ARRAY(job->arena, struct import_bind, import->nbinds + 1);
    for (int i = 0; i < import->nbinds; i++) binds[i] = import->binds[i];
    binds[import->nbinds++] = (struct import_bind){.input = IMPORT_BRANCH, .numbers = "true"};
    import->binds = binds;
    diag_remark(job->diags, job->model->place,
                "input '" IMPORT_BRANCH "' is true: the decoder has caches, which are empty at first");
}

/* --adapter: the file of the matrices follows those of the model; that of sets is the file of constants. */
static int attach_adapters(struct job *job) {
    struct adapter_files *adapters = &job->side.adapters;
    for (int i = 0; i < adapters->all.n; i++)
        adapters->all.at[i].a.file = adapters->all.at[i].b.file = job->model->files.n;
    if (!adapters->all.n) return 0;
    if (job->options->train && adapters->all.at[0].merged)
        return diag_error(job->diags, 201, EXIT_USAGE, "--adapter", "adapters are merged for inference only");
    if (lora_name_stacks(job->graph, adapters->all.at, adapters->all.n, job->diags) < 0) return -1;
    return adapters->names.n ? adapter_sets_attach(job->graph, adapters, job->model->files.n, job->diags)
                             : lora_attach(job->graph, adapters->all.at, adapters->all.n, job->diags);
}

static bool has_dim(const struct import_options *import, const char *name) {
    for (int i = 0; i < import->ndims; i++)
        if (strcmp(import->dims[i].name, name) == 0) return true;
    return false;
}

/* The sizes of --dim, and of caches (rows, heads, tokens, size), as state, the size of a head that the configuration
 * beside the model says. */
static void give_sizes(const struct job *job, struct import_options *import) {
    const struct options *options = job->options;
    const int64_t head_size = job->side.generation.head_size;
    struct import_open_dims open = {0};
    const bool heads = head_size && options->state && strcmp(options->state, "none") != 0 && !options->shapes.all.n;
    if (heads) import_open_dims(job->arena, job->model, &open);
    struct import_dim *dims = ARENA_ARRAY(job->arena, struct import_dim, options->dims.all.n + open.all.n + 1);
    for (int i = 0; i < options->dims.all.n; i++)
        dims[i] = (struct import_dim){options->dims.all.at[i].name, options->dims.all.at[i].range};
    import->dims = dims;
    import->ndims = options->dims.all.n;
    VEC_EACH(&open.all, i, const struct import_open_dim *dim) {
        if (dim->ndim == 4 && dim->dim == 3 && !generation_role(dim->input, false) && !has_dim(import, dim->name))
            dims[import->ndims++] = (struct import_dim){dim->name, open_fixed(head_size)};
    }
}

static int import_onnx(struct job *job) {
    const struct options *options = job->options;
    struct import_options import = {.dtype = job_dtype(job)};
    give_sizes(job, &import);
    import.nshapes = options->shapes.all.n;
    struct import_shape *shapes = ARENA_ARRAY(job->arena, struct import_shape, import.nshapes + 1);
    EACH(options->shapes.all.at, import.nshapes, i, const struct option_shape *given)
        shapes[i] = (struct import_shape){given->name, given->ndim, given->sizes};
    import.shapes = shapes;
    import.specimen = job->specimen;
    import.operators = job->side.operators;
    import.command = options->command;
    import.train = options->train;
    import.keeps = job->side.adapters.all.n || options->loras.all.n;
    import.sync_batch_norm = options->sync_batch_norm;
    import.loss = options->loss;
    import.loss_weights = job->side.loss_weights;
    import.state = options->state;
    import.state_names = job->side.generation.state_names;
    import.nbinds = job->side.nbinds;
    import.binds = job->side.binds;
    bind_branch(job, &import);
    if (import_model(job->arena, job->diags, job->model, &import, &job->graph) < 0) return -1;
    if (options->logits == OPT_LOGITS_LAST && generation_keep_last(job->graph, job->diags) < 0) return -1;
    if (job->diags->errors || check_sync(job) < 0 || attach_adapters(job) < 0) return -1;
    job->graph->keeps = job->options->loras.all.n;
    return find_shared(job);
}

/* Sets the graph's mesh from the options, unless text IR has one. */
static void set_mesh(struct job *job) {
    if (job->graph->mesh.naxes)
        job->side.own_mesh = true;
    else
        job->graph->mesh = job->side.decisions.mesh;
}

/* The sizes that --dim gives a configuration: *batch and the sequence length, and with --decode those in the caches. */
static int take_dims(const struct job *job, struct model_config *config, int64_t *batch) {
    const bool decodes = job->options->decode;
    if (decodes) config->past = config->sequence > 1 ? config->sequence - 1 : 1, config->sequence = 1;
    VEC_EACH(&job->options->dims.all, i, const struct option_size *given) {
        int64_t *size = strcmp(given->name, "batch") == 0             ? batch
                        : strcmp(given->name, "seq") == 0             ? &config->sequence
                        : decodes && strcmp(given->name, "past") == 0 ? &config->past
                                                                      : NULL;
        if (!size)
            return diag_error(job->diags, 201, EXIT_USAGE, "--dim",
                              "a configuration has the dimensions batch and seq, and past with --decode, not %s",
                              diag_quote(job->diags, given->name));
        if (open_is_range(&given->range))
            return diag_error(job->diags, 201, EXIT_USAGE, "--dim", "the sizes of a configuration are fixed");
        if (!given->range.most)
            return diag_error(job->diags, 201, EXIT_USAGE, "--dim", "%s must be at least 1 for a configuration",
                              given->name);
        *size = given->range.most;
    }
    return 0;
}

static int read_configuration(struct job *job) {
    struct model_config config;
    int64_t batch = 1;
    if (model_config_read(job->arena, job->diags, job->options->model_config, &config) < 0 ||
        take_dims(job, &config, &batch) < 0 ||
        model_config_graph(job->arena, job->diags, &config, job_dtype(job), batch, job->options->train, &job->graph) <
            0)
        return -1;
    set_mesh(job);
    return 0;
}

static int open_text_ir(struct job *job) {
    if (job_read_text(job, job->options->operand) < 0 ||
        user_ops_attach(job->graph, job_text_directory(job), job->side.ops_hash, job->diags) < 0 ||
        job_check_text_options(job) < 0)
        return -1;
    if (job_dtype(job) != RT_DTYPE_NONE && graph_retype(job->graph, job_dtype(job), job->diags) < 0) return -1;
    if (job->whole && job->graph->level >= PLACED)
        return diag_error(job->diags, 416, EXIT_UNSUPPORTED, job->options->operand,
                          "the text is a graph with a plan; --numeric and verify need the one-device graph");
    if (job->whole)
        job->graph->mesh.naxes = 0;
    else if (job->graph->level < PLACED) {
        if (job_text_is_compiled(job)) job->graph->mesh.naxes = 0; /* of the plan that was compiled */
        set_mesh(job);
    } else
        job->side.own_mesh = true; /* the text's partitions refer to it */
    return 0;
}

int job_open(struct job *job) {
    if (side_files_read(&job->side, job->options, job->arena, job->diags) < 0) return -1;
    if (job->options->model_config) return read_configuration(job);
    if (!rt_has_suffix(job->options->operand, ".rir")) return open_onnx(job);
    return job_import_pair(job, open_text_ir, 0);
}

static int read_kept(struct job *job) {
    const char *path = job->kept;
    int nfiles = job->model->files.n;
    struct weight_file *files = ARENA_ARRAY(job->arena, struct weight_file, nfiles + 2);
    for (int i = 0; i < nfiles; i++)
        files[i] = (struct weight_file){job->model->files.at[i].data, job->model->files.at[i].bytes};
    if (job->side.adapters.weights &&
        weight_file_map(job->arena, job->diags, job->side.adapters.weights, &files[nfiles++]) < 0)
        return -1;
    if (job_read_text(job, path) < 0) return -1;
    const char *directory = arena_copy(job->arena, path, strlen(path) - strlen(rt_path_name(path)));
    if (user_ops_attach(job->graph, directory, job->side.ops_hash, job->diags) < 0) return -1;
    return weight_files_attach(job->graph, nfiles, files, job->diags);
}

int job_import(struct job *job, const char *kept) {
    if (!job->model) return 0;
    const bool open = job_has_open_sizes(job);
    job->kept = kept;
    int status = kept   ? job_import_pair(job, read_kept, 0)
                 : open ? job_import_open(job, import_onnx)
                        : import_onnx(job);
    if (status < 0 || job->diags->errors) return -1;
    job->graph->mesh.naxes = 0;
    set_mesh(job);
    if (job->twin) job->twin->mesh = job->graph->mesh;
    return 0;
}

int job_read(struct job *job) {
    return job_open(job) < 0 || job_import(job, NULL) < 0 ? -1 : 0;
}

int job_take(struct job *job, const struct job *read, struct graph *graph) {
    if (side_files_read(&job->side, job->options, job->arena, job->diags) < 0) return -1;
    if (job->side.constraints) job->side.constraints->checked = true; /* with the graph of `read` */
    job->model = read->model;
    job->files.at = read->files.at, job->files.n = read->files.n;
    job->graph = graph;
    job->roles = read->roles;
    graph->mesh.naxes = 0;
    set_mesh(job);
    return 0;
}
