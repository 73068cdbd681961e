/* `rankc verify DIR` checks a compiled model by its files alone. It parses the imported graph from graph.rir, applies
 * plan.json to it, derives the communication again, verifies every level (ir/verify.h), and compares all files that
 * follow from this - sources, tables, build file, plan.json, manifest.json - with those in DIR, byte for byte. Where
 * sizes are open it does so with two specimens (ir/open.h), whose files are the same. */
#include <stdlib.h>
#include <string.h>

#include "codegen/manifest/manifest.h"
#include "codegen/slices.h"
#include "frontend/driver/files/adapter_sets.h"
#include "frontend/driver/files/user_ops.h"
#include "frontend/driver/program/build_program.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/output/location.h"
#include "frontend/driver/reuse/reuse_keys.h"
#include "frontend/driver/sizes_at.h"
#include "frontend/driver/files/sliced_weights.h"
#include "frontend/driver/files/weight_files.h"
#include "frontend/read/onnx_mapping.h"
#include "ir/base/own.h"
#include "ir/text.h"
#include "passes/train/small_weights.h"
#include "passes/pipeline.h"
#include "passes/plan/file/plan_text.h"
#include "passes/plan/recompute.h"
#include "passes/train/lora.h"
#include "passes/train/roles.h"
#include "runtime/base/io/file_reader.h"
#include "runtime/base/number/hash.h"
#include "runtime/base/text/json.h"

struct check {
    const struct target *target;
    const char *dir;
    bool silent; /* no progress is shown */
    struct arena *arena;
    struct diags *diags;
    struct rt_json_document *manifest;
    struct plan given, decided; /* read from plan.json; as the graph has it */
    struct graph *graph;
    struct training training;    /* set if the graph is trained */
    VEC(struct mapping *) files; /* of the model; NULL: missing */
    struct stored_weights stored;
    struct decisions decisions;
    struct weight_roles roles;
    struct small_weights small_weights;
    struct reuse_keys keys;
    struct lora_sets adapters;
};

static const char *path_in(const struct check *check, const char *name) {
    return arena_printf(check->arena, "%s/%s", check->dir, name);
}

static int unreadable(const struct check *check, const char *name, const struct rt_reason *why) {
    return diag_refusal(check->diags, 803, EXIT_MALFORMED, path_in(check, name), why);
}

static int check_files(const struct check *check) {
    const struct rt_json *files = rt_json_member(rt_json_root(check->manifest), "files");
    if (!files || files->kind != RT_JSON_ARRAY)
        return diag_error(check->diags, 803, EXIT_MALFORMED, check->dir, "manifest.json lists no files");
    for (const struct rt_json *file = files->first; file; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path")),
                   *hash = rt_json_text(rt_json_member(file, "hash"));
        char hex[RT_HASH_HEX];
        struct rt_reason why;
        if (!path || !hash || path[0] == '/' || strstr(path, ".."))
            return diag_error(check->diags, 803, EXIT_MALFORMED, check->dir, "manifest.json: bad entry in files");
        const bool read = rt_hash_file_below(check->dir, path, hex, &why);
        if (!read && why.kind != RT_REASON_SYSTEM) return unreadable(check, path, &why);
        if (!read)
            diag_error(check->diags, 802, EXIT_MISMATCH, check->dir, "%s", why.text);
        else if (strcmp(hex, hash) != 0)
            diag_error(check->diags, 802, EXIT_MISMATCH, path_in(check, path),
                       "the file was modified after it was generated");
    }
    if (!check->diags->errors) return 0;
    return diag_help(check->diags,
                     "only programs as they were generated can be verified; `rankc compile --reuse override` "
                     "generates this one again");
}

/* Maps a file that location.json lists. *file stays NULL if it is missing; its weights then have no values. `made_of`:
 * the file's hash in the graph key, NULL for a file of the result itself. */
static int map_file(const struct check *check, const struct rt_json *entry, const char *made_of,
                    struct mapping **file) {
    const char *path = rt_json_text(rt_json_member(entry, "path")), *hash = rt_json_text(rt_json_member(entry, "hash"));
    struct rt_reader reader;
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    *file = NULL;
    if (!path || !hash || (made_of && strcmp(hash, made_of) != 0))
        return diag_error(check->diags, 802, EXIT_MISMATCH, path_in(check, "location.json"),
                          "it lists other files than the program was compiled from");
    if (path[0] != '/' || !rt_reader_open(&reader, path, &why)) return 0;
    const bool read = rt_hash_reader_shown(&reader, path, check->silent, hex, &why),
               same = read && strcmp(hex, hash) == 0;
    if (same) *file = mapping_open(reader.fd, reader.info.bytes);
    rt_reader_close(&reader);
    if (!read) return diag_refusal(check->diags, 601, EXIT_SYSTEM, NULL, &why);
    if (same) return 0;
    diag_error(check->diags, 802, EXIT_MISMATCH, NULL, "%s has changed since the program was generated",
               diag_quote(check->diags, path));
    return diag_help(check->diags, "restore the file, or compile it again");
}

static int map_files(struct check *check, const struct rt_json *files) {
    const char *part = "model";
    for (const struct rt_json *f = rt_json_first(files); f; f = f->next) {
        struct mapping *file;
        if (map_file(check, f, reuse_keys_part(&check->keys.graph, part), &file) < 0) return -1;
        VEC_PUSH(check->arena, &check->files, file);
        part = arena_printf(check->arena, "external data %d", check->files.n);
    }
    return 0;
}

/* Maps the model's files, since some passes read the values of small weights, such as masks. */
static int attach_model(struct check *check) {
    struct rt_reason why;
    if (sliced_weights_present(rt_json_root(check->manifest)))
        return sliced_weights_attach(check->dir, rt_json_root(check->manifest), check->graph, check->diags);
    struct rt_json_document *document = own_json_below(check->arena, check->dir, "location.json", &why);
    if (!document && why.kind != RT_REASON_SYSTEM) return unreadable(check, "location.json", &why);
    int status = document ? map_files(check, rt_json_member(rt_json_root(document), "files")) : 0;
    struct weight_file *attached = ARENA_ARRAY(check->arena, struct weight_file, check->files.n + 1);
    for (int i = 0; i < check->files.n; i++)
        if (check->files.at[i])
            attached[i] = (struct weight_file){check->files.at[i]->bytes, check->files.at[i]->count};
    arena_release(check->arena, document);
    return status < 0 ? -1 : weight_files_attach(check->graph, check->files.n, attached, check->diags);
}

/* Unmaps the model's files: 0, or -1 if one was truncated or written to while it was mapped. */
static int unmap_model(const struct check *check) {
    bool same = true;
    for (int i = 0; i < check->files.n; i++) {
        same = same && (!check->files.at[i] || mapping_check(check->files.at[i]));
        mapping_close(check->files.at[i]);
    }
    return same ? 0
                : diag_error(check->diags, 604, EXIT_SYSTEM, check->dir, "a file of the model changed while reading");
}

static int read_graph(struct check *check, bool second) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file_below(check->arena, check->dir, "graph.rir", (size_t)1 << 32, &bytes, &count, &why))
        return unreadable(check, "graph.rir", &why);
    int (*const parse)(struct arena *, struct diags *, const char *, const char *, size_t, struct graph **) =
        second ? text_parse_twin : text_parse;
    int status = parse(check->arena, check->diags, path_in(check, "graph.rir"), bytes, count, &check->graph);
    arena_release(check->arena, bytes);
    char hash[RT_HASH_HEX];
    return status < 0 ? -1 : user_ops_attach(check->graph, check->dir, hash, check->diags);
}

static int incomplete_manifest(const struct check *check) {
    return diag_error(check->diags, 803, EXIT_MALFORMED, check->dir, "manifest.json is incomplete");
}

static int read_target(struct check *check) {
    const char *target = rt_json_text(rt_json_member(rt_json_root(check->manifest), "target"));
    check->target = target ? target_find(target) : NULL;
    return check->target ? 0 : incomplete_manifest(check);
}

static int incomplete_training(const struct check *check) {
    return diag_error(check->diags, 803, EXIT_MALFORMED, check->dir, "manifest.json: training is incomplete");
}

typedef int add_rule(struct training *training, const char *text, struct arena *arena, struct diags *diags);

static int read_rules(struct check *check, const struct rt_json *rules, add_rule *add) {
    if (!rules || rules->kind != RT_JSON_ARRAY) return incomplete_training(check);
    for (const struct rt_json *rule = rules->first; rule; rule = rule->next) {
        const char *text = rt_json_text(rule);
        if (!text) return incomplete_training(check);
        if (add(&check->training, text, check->arena, check->diags) < 0) return -1;
    }
    return 0;
}

static int read_training(struct check *check) {
    const struct rt_json *training = rt_json_member(rt_json_root(check->manifest), "training");
    const char *optimizer = rt_json_text(rt_json_member(training, "optimizer")),
               *schedule = rt_json_text(rt_json_member(training, "lr_schedule")),
               *amp = rt_json_text(rt_json_member(training, "amp"));
    const struct rt_json *clip = rt_json_member(training, "clip_grad_norm");
    int64_t bucket_bytes, zero_prefetch;
    if (!check->graph->train || !training) return 0;
    if (!optimizer || !schedule || !amp || !clip ||
        !rt_json_int(rt_json_member(training, "bucket_bytes"), &bucket_bytes) || bucket_bytes < 0 ||
        !rt_json_int(rt_json_member(training, "zero_prefetch"), &zero_prefetch) || zero_prefetch < 0 ||
        zero_prefetch > INT32_MAX || !rt_json_real(clip, &check->training.clip_grad_norm))
        return incomplete_training(check);
    check->training.bucket_bytes = bucket_bytes;
    check->decisions.micro_batches = check->decisions.zero_groups = 1;
    check->decisions.zero_prefetch = zero_prefetch;
    check->decisions.recompute = rt_json_text(rt_json_member(training, "recompute"));
    rt_json_bool(rt_json_member(training, "tied_once"), &check->training.tied_once);
    rt_json_real(rt_json_member(training, "ema"), &check->training.ema);
    rt_json_bool(rt_json_member(training, "moments_int8"), &check->training.moments_int8);
    rt_json_bool(rt_json_member(training, "gradients_bf16"), &check->training.gradients_bf16);
    check->training.offload = offload_by_name(rt_json_text(rt_json_member(training, "offload")));
    check->training.lr_schedule_text = schedule;
    if (optimizer_parse(&check->training.optimizer, optimizer, check->arena, check->diags) < 0 ||
        lr_schedule_parse(&check->training.lr_schedule, schedule, check->diags) < 0 ||
        amp_parse(&check->training.amp, *amp ? amp : NULL, check->arena, check->diags) < 0 ||
        fp8_parse(&check->training.fp8, rt_json_text(rt_json_member(training, "fp8")), check->arena, check->diags) < 0)
        return -1;
    rt_json_bool(rt_json_member(training, "skip_nonfinite"), &check->training.amp.skip);
    if (read_rules(check, rt_json_member(training, "params"), parameter_rule_add) < 0) return -1;
    if (read_rules(check, rt_json_member(training, "inits"), init_rule_add) < 0) return -1;
    const struct rt_json *loras = rt_json_member(training, "loras");
    return loras ? read_rules(check, loras, lora_rule_add) : 0;
}

/* Runs all passes, with plan.json instead of a policy, and verifies the graph after each. A graph.rir that is already
 * partitioned contains its plan, so none is applied. */
static int check_plan(struct check *check, struct rankplan *plan) {
    struct pass_context context = target_pass_context(check->target);
    const int64_t runs = rt_json_number(rt_json_root(check->manifest), "product_runs", 0);
    context.attention = attention_kind_of(rt_json_text(rt_json_member(rt_json_root(check->manifest), "attention")));
    const char *weights = rt_json_text(rt_json_member(rt_json_root(check->manifest), "weight_dtype"));
    if (small_weights_parse(&check->small_weights, weights, check->arena, check->diags) < 0) return -1;
    context.small_weights = &check->small_weights;
    context.cache_dtype = rt_json_text(rt_json_member(rt_json_root(check->manifest), "cache_dtype"));
    check->decisions.product_runs = runs < 0 || runs > INT32_MAX ? 0 : runs;
    decisions_take(&check->decisions, &check->given.decisions);
    check->decisions.mesh = check->given.decisions.mesh;
    context.decisions = check->decisions;
    context.training = check->training.optimizer.row ? &check->training : NULL;
    context.diags = check->diags;
    context.roles = &check->roles;
    if (!check->graph->train) check->graph->micro_batches = (int)check->decisions.micro_batches;
    const int said = check->diags->all.n; /* notes on weights were printed by the compile and are dropped here */
    context.given = &check->given;
    if (check->graph->level < PLACED) {
        struct draft applied;
        if (pipeline_run(check->graph, &context, pass_find("policy")) < 0) return -1;
        draft_init(&applied, check->graph);
        plan_of_draft(&check->decided, &applied);
    } else {
        check->decided.chunks = check->graph->chunks;
    }
    check->decided.decisions = check->decisions;
    check->decided.decisions.mesh = check->graph->mesh;
    if (pipeline_run(check->graph, &context, NULL) < 0) return -1;
    if (!check->diags->errors) check->diags->all.n = said;
    rankplan_make(plan, check->graph, &check->target->kernels);
    return rankplan_verify(plan, check->diags);
}

/* The values of adapters are those of DIR, whose hash was checked. */
static int read_adapters(struct check *check) {
    const struct rt_json *list = rt_json_items(rt_json_root(check->manifest), "adapters");
    VEC(const char *) names = {0};
    struct rt_reason why;
    size_t count;
    void *bytes;
    for (const struct rt_json *name = list; name; name = name->next)
        VEC_PUSH(check->arena, &names, rt_json_text(name) ? rt_json_text(name) : "");
    check->adapters = adapter_sets_of(check->graph, names.n, names.at);
    if (!names.n || sliced_weights_present(rt_json_root(check->manifest))) return 0;
    if (!own_file_below(check->arena, check->dir, CONSTANTS_FILE, (size_t)1 << 40, &bytes, &count, &why))
        return unreadable(check, CONSTANTS_FILE, &why);
    check->adapters.bytes = bytes;
    return (int64_t)count / check->adapters.n >= check->adapters.stride ? 0 : incomplete_manifest(check);
}

static struct program_info info_of(const struct check *check, int nfiles) {
    const struct rt_json *root = rt_json_root(check->manifest);
    struct program_info info = {.model = rt_json_text(rt_json_member(root, "model")),
                                .instance = rt_json_text(rt_json_member(root, "instance")),
                                .version = rt_json_text(rt_json_member(root, "rankc")),
                                .attention = rt_json_text(rt_json_member(root, "attention")),
                                .weight_dtype = rt_json_text(rt_json_member(root, "weight_dtype")),
                                .cache_dtype = rt_json_text(rt_json_member(root, "cache_dtype")),
                                .pas = rt_json_text(rt_json_member(root, "pas")),
                                .arch = reuse_keys_part(&check->keys.plan, "arch"),
                                .runtime_cflags = build_cflags,
                                .runtime_libs = build_libs,
                                .key = check->keys.plan.hex,
                                .work = check->keys.work.hex,
                                .nfiles = nfiles,
                                .copies = sliced_weights_present(root)};
    const char *with_runtime = reuse_keys_part(&check->keys.plan, "with-runtime");
    info.with_runtime = with_runtime && *with_runtime;
    info.model_hash = reuse_keys_part(&check->keys.graph, "model");
    info.training = check->training.optimizer.row ? &check->training : NULL;
    info.decisions = &check->decisions;
    info.adapters = check->adapters;
    info.roles = &check->roles;
    return info;
}

/* Compares a file in DIR with its expected bytes and reports a difference. -1 if it cannot be read. */
static int check_bytes(const struct check *check, const char *name, const void *expected, size_t length) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file_below(check->arena, check->dir, name, (size_t)1 << 32, &bytes, &count, &why))
        return unreadable(check, name, &why);
    if (count != length || memcmp(bytes, expected, count) != 0)
        diag_error(check->diags, 804, EXIT_MISMATCH, path_in(check, name),
                   "the file differs from the one that the verified plan generates");
    arena_release(check->arena, bytes);
    return 0;
}

/* Adds a file of DIR with its hash; its content is checked elsewhere. */
static int add_file(const struct check *check, struct program *program, const char *name) {
    struct rt_file_info info;
    struct rt_reason why;
    const void *bytes;
    char hex[RT_HASH_HEX];
    if (!rt_file_map_below(check->dir, name, &bytes, &info, &why)) return unreadable(check, name, &why);
    rt_hash_bytes(bytes, (size_t)info.bytes, hex);
    rt_file_unmap(bytes, info.bytes);
    VEC_PUSH(check->arena, &program->files,
             (struct program_file){name, NULL, (size_t)info.bytes, arena_strdup(check->arena, hex)});
    return 0;
}

/* Checks the header of a file of slices against the plan and hashes the slices, which follow each other in the file. */
static int read_slices(const struct check *check, struct slices *slices, int shard) {
    const char *name = slices_path(check->arena, shard);
    struct rt_file_info info;
    struct rt_reason why;
    const void *mapped;
    size_t at;
    const char *header = slices_header(slices, shard, check->arena, &at);
    if (!header) return diag_error(check->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (!rt_file_map_below(check->dir, name, &mapped, &info, &why)) return unreadable(check, name, &why);
    const unsigned char *bytes = mapped;
    bool same = (size_t)info.bytes >= at && memcmp(bytes, header, at) == 0;
    const struct slice_list *list = &slices->of_shard[shard];
    for (int i = 0; i < list->at.n && same; i++) {
        struct slice *slice = &slices->at.at[list->at.at[i].tensor].slices[list->at.at[i].index];
        same = slice->bytes <= info.bytes - (int64_t)at;
        if (same) rt_hash_bytes(bytes + at, (size_t)slice->bytes, slice->hash);
        at += (size_t)slice->bytes;
    }
    rt_file_unmap(mapped, info.bytes);
    if (same && at == (size_t)info.bytes) return 0;
    return diag_error(check->diags, 804, EXIT_MISMATCH, path_in(check, name),
                      "the file differs from the one that the verified plan generates");
}

static int check_slices(const struct check *check, const struct rankplan *plan, struct slices *slices,
                        struct program *program) {
    slices_find(slices, plan, &check->stored, &check->adapters);
    for (int shard = 0; shard < slices->shards; shard++)
        if (slices->of_shard[shard].at.n &&
            (read_slices(check, slices, shard) < 0 || add_file(check, program, slices_path(check->arena, shard)) < 0))
            return -1;
    return 0;
}

/* "generation" follows from files beside the model (frontend/config/generation.h), which are not read again: it is put
 * as the manifest has it. */
static void put_as_it_is(struct rt_json_writer *writer, const struct rt_json *value) {
    const bool list = value->kind == RT_JSON_ARRAY;
    int64_t number = 0;
    if (value->key) rt_json_key(writer, value->key);
    if (value->kind == RT_JSON_STRING) rt_json_put_text(writer, rt_json_text(value));
    if (rt_json_int(value, &number)) rt_json_put_int(writer, number);
    if (!list && value->kind != RT_JSON_OBJECT) return;
    rt_json_open(writer, list ? '[' : '{', list ? RT_JSON_INLINE : RT_JSON_LINES);
    for (const struct rt_json *inner = value->first; inner; inner = inner->next) put_as_it_is(writer, inner);
    rt_json_close(writer, list ? ']' : '}');
}

static void put_generation(struct rt_json_writer *writer, const void *generation) {
    put_as_it_is(writer, generation);
}

/* Adds the tokenizer where it is a file of the program. */
static int add_tokenizer(const struct check *check, struct program *program) {
    const struct rt_json *files = rt_json_member(rt_json_root(check->manifest), "files");
    for (const struct rt_json *file = files->first; file; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path"));
        if (path && strcmp(path, "tokenizer.json") == 0) return add_file(check, program, "tokenizer.json");
    }
    return 0;
}

/* Generates all files of the plan again and compares them with those in DIR. */
static int check_result(const struct check *check, const struct rankplan *plan, int nfiles) {
    struct program_info info = info_of(check, nfiles);
    struct program program;
    struct sources sources;
    struct slices slices;
    if (!info.model || !info.instance || !info.version || !info.pas || !info.model_hash)
        return incomplete_manifest(check);
    if (sources_find(&sources, plan, check->target, check->diags) < 0) return -1;
    program_make(&program, plan, &sources, check->target, &info);
    const char *plan_text = plan_print(check->arena, &check->decided, info.pas);
    for (int i = 0; i < program.files.n; i++)
        if (check_bytes(check, program.files.at[i].path, program.files.at[i].bytes, program.files.at[i].count) < 0)
            return -1;
    if (add_file(check, &program, "graph.rir") < 0 || add_file(check, &program, "plan.json") < 0 ||
        add_tokenizer(check, &program) < 0 || (info.copies && check_slices(check, plan, &slices, &program) < 0))
        return -1;
    const struct rt_json *generation = rt_json_member(rt_json_root(check->manifest), "generation");
    const struct manifest manifest = {.plan = plan,
                                      .put_generation = generation ? put_generation : NULL,
                                      .generation = generation,
                                      .decided = &check->decided,
                                      .sources = &sources,
                                      .info = &info,
                                      .target = check->target,
                                      .graph_key = &check->keys.graph,
                                      .plan_key = &check->keys.plan,
                                      .work_key = &check->keys.work,
                                      .program = &program,
                                      .slices = info.copies ? &slices : NULL};
    const char *text = manifest_text(&manifest);
    if (!plan_text || !text) return diag_error(check->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (check_bytes(check, "plan.json", plan_text, strlen(plan_text)) < 0 ||
        check_bytes(check, "manifest.json", text, strlen(text)) < 0)
        return -1;
    return check->diags->errors ? -1 : 0;
}

/* Called when files differ: adds a help if another build of rankc has generated DIR, since its text for the same plan
 * may differ. Returns -1. */
static int check_build(const struct check *check) {
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    const char *build = reuse_keys_part(&check->keys.graph, "rankc");
    if (!rt_hash_file("/proc/self/exe", hex, &why)) return diag_refusal(check->diags, 601, EXIT_SYSTEM, NULL, &why);
    if (build && !strstr(build, hex))
        diag_help(check->diags,
                  "it was written by another build of rankc (%s): verify with that build, or compile again", build);
    return -1;
}

static int read_manifest(struct check *check, int *nfiles) {
    struct rt_reason why;
    bool intact;
    check->manifest = own_sealed(check->arena, check->dir, "manifest.json", &intact, &why);
    if (!check->manifest) return unreadable(check, "manifest.json", &why);
    if (!intact ||
        !reuse_keys_read(&check->keys, rt_json_member(rt_json_root(check->manifest), "keys"), nfiles, check->arena))
        return diag_error(check->diags, 802, EXIT_MISMATCH, path_in(check, "manifest.json"),
                          "the file was modified after it was generated");
    return 0;
}

static int read_plan(struct check *check) {
    struct rt_reason why;
    struct rt_json_document *document = own_json_below(check->arena, check->dir, "plan.json", &why);
    if (!document) return unreadable(check, "plan.json", &why);
    const int status = plan_parse(&check->given, false, check->arena, check->diags, path_in(check, "plan.json"),
                                  rt_json_root(document));
    arena_release(check->arena, document);
    return status;
}

/* Proves the plan of a specimen of the graph: its files must be those in DIR. */
static int check_specimen(struct check *check, bool second, int nfiles) {
    struct rankplan plan;
    int status = read_graph(check, second);
    if (!status) slices_stored(&check->stored, check->graph);
    if (!status) status = read_target(check);
    if (!status) status = read_training(check);
    if (!status) status = read_adapters(check);
    if (!status) status = attach_model(check);
    if (!status) status = check_plan(check, &plan);
    if (!status && check_result(check, &plan, nfiles) < 0) status = check_build(check);
    return unmap_model(check) < 0 ? -1 : status;
}

int driver_show_at(const char *dir, const struct options *options, struct arena *arena, struct diags *diags,
                   const char **manifest_json) {
    struct check check = {.dir = dir, .silent = true, .arena = arena, .diags = diags};
    struct rankplan plan;
    struct sources sources;
    int64_t sizes[OPEN_SIZES];
    int nfiles, status = read_manifest(&check, &nfiles);
    if (!status) status = read_plan(&check);
    if (!status) status = read_graph(&check, false);
    struct open_sizes *open = status ? NULL : check.graph->open;
    for (int i = 0; open && i < open->all.n; i++) sizes[i] = open->all.at[i].range.most;
    if (!status) status = sizes_at(open, options->dims.all.at, options->dims.all.n, diags, sizes);
    if (!status) status = sizes_at(open, options->dims.more.at, options->dims.more.n, diags, sizes);
    if (!status) status = read_target(&check);
    if (!status) status = attach_model(&check);
    if (!status) status = check_plan(&check, &plan);
    if (!status) status = sources_find(&sources, &plan, check.target, diags);
    if (!status) {
        const struct program_info info = info_of(&check, nfiles);
        const struct manifest manifest = {.plan = &plan,
                                          .decided = &check.decided,
                                          .sources = &sources,
                                          .info = &info,
                                          .target = check.target,
                                          .graph_key = &check.keys.graph,
                                          .plan_key = &check.keys.plan,
                                          .work_key = &check.keys.work,
                                          .sizes = sizes};
        *manifest_json = manifest_text(&manifest);
        if (!*manifest_json) status = diag_error(diags, 500, EXIT_LIMIT, NULL, "out of memory");
    }
    return unmap_model(&check) < 0 ? -1 : status;
}

int driver_verify(const char *dir, const struct options *options, struct arena *arena, struct diags *diags) {
    struct check check = {.dir = dir, .silent = options->quiet || options->json, .arena = arena, .diags = diags};
    int nfiles;
    int status = read_manifest(&check, &nfiles);
    if (!status) status = check_files(&check);
    if (!status) status = read_plan(&check);
    struct check twin = check;
    if (!status) status = check_specimen(&check, false, nfiles);
    return !status && check.graph->open ? check_specimen(&twin, true, nfiles) : status;
}
