#include "frontend/driver/files/side_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/driver/files/user_ops.h"
#include "frontend/read/onnx_weights.h"
#include "ir/base/own.h"
#include "passes/plan/file/plan_text.h"
#include "passes/plan/schedule/schedules.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/tensor_pb.h"

enum { MAX_TEXT = 64 << 20 };

struct reader {
    struct side_files *files;
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
};

static int refuse(const struct reader *reader, int code, const char *path, const struct rt_reason *why) {
    return diag_refusal(reader->diags, code, EXIT_MALFORMED, diag_quote(reader->diags, path), why);
}

/* The mesh of rules, which may have none. */
static void take_mesh(struct side_files *files, const struct mesh *mesh) {
    files->own_mesh = mesh->naxes > 0;
    if (files->own_mesh) files->decisions.mesh = *mesh;
}

/* The bytes of a text file; NULL after an error of that code. */
static const char *read_text(const struct reader *reader, int code, const char *path, size_t *count) {
    struct rt_reason why;
    void *bytes;
    if (own_file(reader->arena, path, MAX_TEXT, &bytes, count, &why)) return bytes;
    return refuse(reader, code, path, &why), NULL;
}

/* The hash of what was read and is written as text again; NULL: memory ran out. */
static int hash_text(const struct reader *reader, const char *text, char *hash) {
    if (!text) return diag_error(reader->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    rt_hash_bytes(text, strlen(text), hash);
    return 0;
}

static void hash_tensor(struct rt_hash *hash, const struct rt_tensor *tensor) {
    rt_hash_int(hash, tensor->dtype);
    rt_hash_field(hash, tensor->dims, (size_t)tensor->ndim * sizeof *tensor->dims);
    rt_hash_field(hash, tensor->data, (size_t)tensor->count * rt_dtype_bytes(tensor->dtype));
}

static int read_rules(struct reader *reader, const char *path) {
    struct side_files *files = reader->files;
    size_t count;
    const char *text = read_text(reader, 424, path, &count);
    if (!text || rules_parse(reader->arena, reader->diags, path, text, count, &files->rules) < 0) return -1;
    rt_hash_bytes(text, count, files->plan_hash);
    take_mesh(files, &files->rules->mesh);
    return 0;
}

/* --pas plugin:FILE: a policy manual whose rules a library gives. */
static int read_plugin(struct reader *reader, const char *path) {
    struct side_files *files = reader->files;
    struct rt_reason why;
    if (!rt_hash_file(path, files->plan_hash, &why)) return refuse(reader, 428, path, &why);
    files->policy = "manual";
    if (policy_plugin_open(reader->arena, reader->diags, path, (int)reader->options->plan_ngpus, &files->plugin,
                           &files->rules) < 0)
        return -1;
    take_mesh(files, &files->rules->mesh);
    return 0;
}

/* Reads a plan, and the hash of its file. partial: plan_parse. */
static int read_plan(struct reader *reader, const char *path, bool partial, struct plan **plan, char *hash) {
    struct rt_reason why;
    struct rt_json_document *document = own_json(reader->arena, path, &why);
    if (!document || !rt_hash_file(path, hash, &why)) return refuse(reader, 424, path, &why);
    *plan = ARENA_NEW(reader->arena, struct plan);
    const int status = plan_parse(*plan, partial, reader->arena, reader->diags, path, rt_json_root(document));
    arena_release(reader->arena, document);
    return status;
}

/* --load-plan. */
static int read_whole(struct reader *reader, const char *path) {
    struct side_files *files = reader->files;
    if (read_plan(reader, path, false, &files->plan, files->plan_hash) < 0) return -1;
    files->decisions.mesh = files->plan->decisions.mesh;
    files->own_mesh = true;
    return 0;
}

/* True if --schedule names a file: no row has the name, and it looks like a path. */
static bool names_file(const char *schedule) {
    return schedule && !schedule_is_known(schedule) && strpbrk(schedule, "./");
}

static int read_schedule(struct reader *reader, const char *path) {
    struct grid grid;
    size_t count;
    const char *text = read_text(reader, 427, path, &count);
    if (!text || grid_parse(&grid, text, count, path, reader->arena, reader->diags) < 0) return -1;
    reader->files->decisions.schedule = grid_text(&grid, reader->arena);
    return 0;
}

/* The words of --require or --forbid that name nodes; the others are of the search. */
static int read_words(struct reader *reader, const char *option, const char *list, bool forbids) {
    for (size_t n; list && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        const char *word = arena_copy(reader->arena, list, n);
        if (constraint_is_of_nodes(word) &&
            constraints_parse_word(reader->files->constraints, reader->arena, reader->diags, option, word, forbids) < 0)
            return -1;
    }
    return 0;
}

/* --refine. */
static int read_refined(struct reader *reader, const char *path) {
    const enum choice policy = reader->options->pas.word;
    struct side_files *files = reader->files;
    if (policy == OPT_POLICY_MANUAL || policy == OPT_POLICY_PLUGIN)
        return diag_error(reader->diags, 200, EXIT_USAGE, NULL,
                          "--refine leaves decisions to a policy, and --pas %s has rules for them",
                          choice_word(policy));
    const int status = read_plan(reader, path, true, &files->refine, files->refine_hash);
    files->constraints->refine = files->refine;
    return status;
}

/* --constraints, --refine, --require and --forbid. */
static int read_constraints(struct reader *reader) {
    const struct options *options = reader->options;
    struct side_files *files = reader->files;
    const char *path = options->constraints, *text = NULL;
    struct rt_hash hash;
    size_t count = 0;
    files->constraints = ARENA_NEW(reader->arena, struct constraints);
    if (options->refine && read_refined(reader, options->refine) < 0) return -1;
    if (path && (!(text = read_text(reader, 437, path, &count)) ||
                 constraints_parse_file(files->constraints, reader->arena, reader->diags, path, text, count) < 0))
        return -1;
    if (read_words(reader, "require", options->require, false) < 0 ||
        read_words(reader, "forbid", options->forbid, true) < 0)
        return -1;
    rt_hash_start(&hash);
    rt_hash_field(&hash, text, count);
    if (options->refine) rt_hash_text(&hash, files->refine_hash);
    for (int i = 0; i < files->constraints->all.n; i++) rt_hash_text(&hash, files->constraints->all.at[i].place);
    if (!files->constraints->all.n && !files->refine) files->constraints = NULL;
    if (files->constraints) rt_hash_hex(&hash, files->constraints_hash);
    return 0;
}

static int read_machine(struct reader *reader) {
    struct machine *machine = &reader->files->machine;
    if (machine_read(reader->arena, reader->diags, reader->options->machine, machine) < 0) return -1;
    return hash_text(reader, machine_text(reader->arena, machine), reader->files->machine_hash);
}

int side_files_check_mesh(const struct side_files *files, const struct options *options, struct diags *diags) {
    const int unit = mesh_size(&files->decisions.mesh);
    if (!options->given[OPT_PLAN_NGPUS] || options->plan_ngpus == unit) return 0;
    return diag_error(diags, 204, EXIT_USAGE, NULL, "the mesh in the file has %d device(s), but --plan-ngpus is %lld",
                      unit, (long long)options->plan_ngpus);
}

/* The map file of --weights-from is part of the graph key; the weights themselves are files of the model. */
static int hash_names(const struct reader *reader) {
    const struct onnx_weights_from from = onnx_weights_from(reader->arena, reader->options->weights_from);
    struct rt_reason why;
    if (!from.map || rt_hash_file(from.map, reader->files->names_hash, &why)) return 0;
    return refuse(reader, 394, from.map, &why);
}

static void free_tensor(void *tensor) {
    rt_tensor_free(tensor);
}

static int read_bind(struct reader *reader, struct import_bind *bind, const char *path) {
    struct rt_reason why;
    if (import_is_numbers(path) && access(path, F_OK) < 0) {
        bind->numbers = path;
        return 0;
    }
    bool pb = rt_has_suffix(path, ".pb");
    if (!(pb ? rt_tensor_pb_read(&bind->tensor, path, &why) : rt_npy_read(&bind->tensor, path, &why)))
        return refuse(reader, 915, path, &why);
    arena_own(reader->arena, &bind->tensor, free_tensor);
    return 0;
}

/* weight=FILE.npy of --loss: weights of classes. */
static int read_loss(struct reader *reader) {
    struct rt_reason why;
    struct rt_hash hash;
    const char *path = import_loss_file(reader->options->loss, reader->arena);
    if (!path) return 0;
    struct rt_tensor *weights = reader->files->loss_weights = ARENA_NEW(reader->arena, struct rt_tensor);
    if (!rt_npy_read(weights, path, &why)) return refuse(reader, 915, path, &why);
    arena_own(reader->arena, weights, free_tensor);
    rt_hash_start(&hash);
    hash_tensor(&hash, weights);
    rt_hash_hex(&hash, reader->files->loss_hash);
    return 0;
}

static int read_binds(struct reader *reader) {
    const struct option_files *given = &reader->options->binds;
    struct rt_hash hash;
    if (!given->all.n) return 0;
    reader->files->binds = ARENA_ARRAY(reader->arena, struct import_bind, given->all.n);
    rt_hash_start(&hash);
    EACH(reader->files->binds, given->all.n, i, struct import_bind *const bind) {
        if (read_bind(reader, bind, given->all.at[i].path) < 0) return -1;
        bind->input = given->all.at[i].name;
        reader->files->nbinds++;
        rt_hash_text(&hash, bind->input);
        rt_hash_text(&hash, bind->numbers ? bind->numbers : "");
        hash_tensor(&hash, &bind->tensor);
    }
    rt_hash_hex(&hash, reader->files->binds_hash);
    return 0;
}

/* The hash is that of what was read, not of the files: other keys of theirs change nothing. */
static int read_generation(struct reader *reader) {
    struct side_files *files = reader->files;
    const char *state = reader->options->state;
    files->generation = GENERATION_NONE;
    if (!state || strcmp(state, "none") == 0) return 0;
    if (generation_read(reader->arena, reader->diags, reader->options->operand, &files->generation) < 0) return -1;
    struct rt_json_writer *writer = own_json_writer(reader->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    generation_put(writer, &files->generation);
    rt_json_close(writer, '}');
    const char *text = own_json_end(reader->arena, writer), *names = files->generation.state_names;
    if (text && names) text = arena_printf(reader->arena, "%s%s", text, names);
    return hash_text(reader, text, files->generation_hash);
}

int side_files_read(struct side_files *files, const struct options *options, struct arena *arena, struct diags *diags) {
    struct reader reader = {files, options, arena, diags};
    bool manual = options->pas.word == OPT_POLICY_MANUAL;
    *files = (struct side_files){.policy = choice_word(options->pas.word), .decisions = options->decisions};
    if (options->load_plan && options->given[OPT_PAS])
        return diag_error(diags, 200, EXIT_USAGE, NULL, "--load-plan and --pas contradict each other");
    if (options->load_plan && (options->constraints || options->refine))
        return diag_error(diags, 200, EXIT_USAGE, NULL, "--load-plan and --%s contradict each other",
                          options->refine ? "refine" : "constraints");
    if (options->load_plan && read_whole(&reader, options->load_plan) < 0) return -1;
    if (!options->load_plan && manual && read_rules(&reader, options->pas.file) < 0) return -1;
    if (options->pas.word == OPT_POLICY_PLUGIN && read_plugin(&reader, options->pas.file) < 0) return -1;
    if (names_file(options->decisions.schedule) && read_schedule(&reader, options->decisions.schedule) < 0) return -1;
    if (options->machine && read_machine(&reader) < 0) return -1;
    if (read_constraints(&reader) < 0) return -1;
    if (!files->own_mesh && files->rules) /* without a mesh: one axis of all devices */
        mesh_add_axis(&files->decisions.mesh, axis_rows[AXIS_TENSOR].name,
                      &(struct rt_mesh_axis){.size = (int)options->plan_ngpus});
    if (files->own_mesh && side_files_check_mesh(files, options, diags) < 0) return -1;
    if (options->ops && user_ops_read(arena, diags, options->ops, &files->operators, files->ops_hash) < 0) return -1;
    if (options->weights_from && hash_names(&reader) < 0) return -1;
    if (adapter_files_read(&files->adapters, options, arena, diags) < 0) return -1;
    if (small_weights_parse(&files->small_weights, options->weight_dtype, arena, diags) < 0) return -1;
    if (read_generation(&reader) < 0) return -1;
    return read_binds(&reader) < 0 ? -1 : read_loss(&reader);
}
