/* `rankc verify DIR`: nothing of the compile that made DIR is trusted but its files. The imported graph is read
 * back from graph.rir and the plan from plan.json; the plan is applied, communication is worked out again, every
 * level is checked (ir/verify.h), and all that this gives - sources, tables, build file, plan.json, manifest.json - is
 * compared with what is in DIR, byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "codegen/manifest.h"
#include "codegen/slices.h"
#include "frontend/driver/attach.h"
#include "frontend/driver/build_program.h"
#include "frontend/driver/copied.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/keys.h"
#include "frontend/read/onnx_mapping.h"
#include "ir/base/own.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "passes/plan/plan_file.h"
#include "passes/train/amp.h"
#include "passes/train/fp8.h"
#include "passes/train/recompute.h"
#include "passes/train/roles.h"
#include "runtime/base/file_reader.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"

struct check {
    const struct target *target;
    const char *dir;
    struct arena *arena;
    struct diags *diags;
    struct rt_json_document *manifest, *plan;
    struct graph *graph;
    struct training training;    /* of a graph that trains */
    VEC(struct mapping *) files; /* of the model; NULL: not at hand */
    struct stored_weights stored;
    struct decisions decisions;
    struct keys keys;
};

static const char *path_in(const struct check *c, const char *name) {
    return arena_printf(c->arena, "%s/%s", c->dir, name);
}

static int unreadable(const struct check *c, const char *name, const struct rt_reason *why) {
    return diag_refusal(c->diags, 803, EXIT_MALFORMED, path_in(c, name), why);
}

static int check_files(const struct check *c) {
    const struct rt_json *files = rt_json_member(rt_json_root(c->manifest), "files");
    if (!files || files->kind != RT_JSON_ARRAY)
        return diag_error(c->diags, 803, EXIT_MALFORMED, c->dir, "manifest.json lists no files");
    for (const struct rt_json *file = files->first; file; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path")),
                   *hash = rt_json_text(rt_json_member(file, "hash"));
        char hex[RT_HASH_HEX];
        struct rt_reason why;
        if (!path || !hash || path[0] == '/' || strstr(path, ".."))
            return diag_error(c->diags, 803, EXIT_MALFORMED, c->dir, "manifest.json: bad entry in files");
        if (!rt_hash_file_below(c->dir, path, hex, &why)) return unreadable(c, path, &why);
        if (strcmp(hex, hash) != 0)
            diag_error(c->diags, 802, EXIT_MISMATCH, path_in(c, path), "the file is not as it was generated");
    }
    return c->diags->errors ? -1 : 0;
}

/* A file of location.json, *file staying NULL where it is gone: its weights stay without values. `made_of` is its hash
 * in the graph key, NULL for a file of the result's own. */
static int map_file(const struct check *c, const struct rt_json *entry, const char *made_of, struct mapping **file) {
    const char *path = rt_json_text(rt_json_member(entry, "path")), *hash = rt_json_text(rt_json_member(entry, "hash"));
    struct rt_reader reader;
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    *file = NULL;
    if (!path || !hash || (made_of && strcmp(hash, made_of) != 0))
        return diag_error(c->diags, 802, EXIT_MISMATCH, path_in(c, "location.json"),
                          "it names other files than the program was made of");
    if (path[0] != '/' || !rt_reader_open(&reader, path, &why)) return 0;
    const bool read = rt_hash_reader(&reader, hex, &why), same = read && strcmp(hex, hash) == 0;
    if (same) *file = mapping_open(reader.fd, reader.info.bytes);
    rt_reader_close(&reader);
    if (!read) return diag_refusal(c->diags, 601, EXIT_SYSTEM, NULL, &why);
    if (same) return 0;
    return diag_error(c->diags, 802, EXIT_MISMATCH, NULL, "%s has changed since the program was generated",
                      diag_quote(c->diags, path));
}

static int map_files(struct check *c, const struct rt_json *files) {
    const char *part = "model";
    for (const struct rt_json *f = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; f; f = f->next) {
        struct mapping *file;
        if (map_file(c, f, keys_part(&c->keys.graph, part), &file) < 0) return -1;
        VEC_PUSH(c->arena, &c->files, file);
        part = arena_printf(c->arena, "external data %d", c->files.n);
    }
    return 0;
}

/* Some passes look at small weights, such as masks. */
static int attach_model(struct check *c) {
    struct rt_reason why;
    if (copied_is(rt_json_root(c->manifest)))
        return copied_attach(c->dir, rt_json_root(c->manifest), c->graph, c->diags);
    struct rt_json_document *document = own_json_below(c->arena, c->dir, "location.json", &why);
    if (!document && why.kind != RT_REASON_SYSTEM) return unreadable(c, "location.json", &why);
    int status = document ? map_files(c, rt_json_member(rt_json_root(document), "files")) : 0;
    struct attach_file *attached = ARENA_ARRAY(c->arena, struct attach_file, c->files.n + 1);
    for (int i = 0; i < c->files.n; i++)
        if (c->files.at[i]) attached[i] = (struct attach_file){c->files.at[i]->bytes, c->files.at[i]->count};
    arena_release(c->arena, document);
    return status < 0 ? -1 : attach_weights(c->graph, c->files.n, attached, c->diags);
}

/* After everything that looks at weights: 0, or -1 where a file was cut or written to meanwhile. */
static int unmap_model(const struct check *c) {
    bool same = true;
    for (int i = 0; i < c->files.n; i++) {
        same = same && (!c->files.at[i] || mapping_check(c->files.at[i]));
        mapping_close(c->files.at[i]);
    }
    return same ? 0 : diag_error(c->diags, 604, EXIT_SYSTEM, c->dir, "a file of the model changed while reading");
}

static int read_graph(struct check *c) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file_below(c->arena, c->dir, "graph.rir", (size_t)1 << 32, &bytes, &count, &why))
        return unreadable(c, "graph.rir", &why);
    int status = text_parse(c->arena, c->diags, path_in(c, "graph.rir"), bytes, count, &c->graph);
    arena_release(c->arena, bytes);
    return status;
}

static int incomplete_manifest(const struct check *c) {
    return diag_error(c->diags, 803, EXIT_MALFORMED, c->dir, "manifest.json is incomplete");
}

static int read_target(struct check *c) {
    const char *target = rt_json_text(rt_json_member(rt_json_root(c->manifest), "target"));
    c->target = target ? target_find(target) : NULL;
    return c->target ? 0 : incomplete_manifest(c);
}

static int incomplete_training(const struct check *c) {
    return diag_error(c->diags, 803, EXIT_MALFORMED, c->dir, "manifest.json: training is incomplete");
}

typedef int add_rule(struct training *training, const char *text, struct arena *arena, struct diags *diags);

static int read_rules(struct check *c, const struct rt_json *rules, add_rule *add) {
    if (!rules || rules->kind != RT_JSON_ARRAY) return incomplete_training(c);
    for (const struct rt_json *rule = rules->first; rule; rule = rule->next) {
        const char *text = rt_json_text(rule);
        if (!text) return incomplete_training(c);
        if (add(&c->training, text, c->arena, c->diags) < 0) return -1;
    }
    return 0;
}

static int read_training(struct check *c) {
    const struct rt_json *training = rt_json_member(rt_json_root(c->manifest), "training");
    const char *optimizer = rt_json_text(rt_json_member(training, "optimizer")),
               *schedule = rt_json_text(rt_json_member(training, "lr_schedule")),
               *amp = rt_json_text(rt_json_member(training, "amp"));
    const struct rt_json *clip = rt_json_member(training, "clip_grad_norm");
    int64_t accumulate, units, bucket_bytes;
    if (!c->graph->train || !training) return 0;
    if (!optimizer || !schedule || !amp || !clip || !rt_json_int(rt_json_member(training, "accumulate"), &accumulate) ||
        !rt_json_int(rt_json_member(training, "units"), &units) || accumulate < 1 || units < 1 ||
        !rt_json_int(rt_json_member(training, "bucket_bytes"), &bucket_bytes) || bucket_bytes < 0 ||
        !rt_json_real(clip, &c->training.clip_grad_norm))
        return incomplete_training(c);
    c->training.accumulate = (int)accumulate;
    c->training.units = (int)units;
    c->training.bucket_bytes = bucket_bytes;
    c->training.lr_schedule = schedule;
    if (optimizer_parse(&c->training.optimizer, optimizer, c->arena, c->diags) < 0 ||
        schedule_parse(&c->training.schedule, schedule, c->arena, c->diags) < 0 ||
        amp_parse(&c->training.amp, *amp ? amp : NULL, c->arena, c->diags) < 0 ||
        fp8_parse(&c->training.fp8, rt_json_text(rt_json_member(training, "fp8")), c->arena, c->diags) < 0 ||
        recompute_parse(&c->training.recompute, rt_json_text(rt_json_member(training, "recompute")), c->diags) < 0)
        return -1;
    if (read_rules(c, rt_json_member(training, "params"), parameter_rule_add) < 0) return -1;
    return read_rules(c, rt_json_member(training, "inits"), init_rule_add);
}

static enum attention_kind attention_of(const struct check *c) {
    return attention_kind_of(rt_json_text(rt_json_member(rt_json_root(c->manifest), "attention")));
}

/* The passes that clean the graph; the plan in the place of a policy; the passes after it, each verified. IR text of a
 * planned level brings its plan: there is none to apply. */
static int check_plan(struct check *c, struct rankplan *plan) {
    struct pass_context context = target_pass_context(c->target);
    context.policy = "dp";
    context.attention = attention_of(c);
    context.training = c->training.optimizer.row ? &c->training : NULL;
    context.diags = c->diags;
    context.decisions = &c->decisions;
    const int said = c->diags->all.n; /* notes on weights were given when it was compiled */
    const bool planned = c->graph->level >= PLACED;
    if (!planned && pipeline_run(c->graph, &context, pass_find("policy")) < 0) return -1;
    if (!planned && plan_apply(c->graph, path_in(c, "plan.json"), rt_json_root(c->plan), c->diags) < 0) return -1;
    if (pipeline_run(c->graph, &context, NULL) < 0) return -1;
    if (!c->diags->errors) c->diags->all.n = said;
    rankplan_make(plan, c->graph, &c->target->kernels);
    return rankplan_verify(plan, c->diags);
}

static struct program_info info_of(const struct check *c, int nfiles) {
    const struct rt_json *root = rt_json_root(c->manifest);
    int64_t ranks = 1;
    struct program_info info = {.model = rt_json_text(rt_json_member(root, "model")),
                                .instance = rt_json_text(rt_json_member(root, "instance")),
                                .version = rt_json_text(rt_json_member(root, "rankc")),
                                .attention = rt_json_text(rt_json_member(root, "attention")),
                                .pas = rt_json_text(rt_json_member(root, "pas")),
                                .arch = keys_part(&c->keys.plan, "arch"),
                                .runtime_cflags = build_cflags,
                                .runtime_libs = build_libs,
                                .key = c->keys.plan.hex,
                                .work = c->keys.work,
                                .nfiles = nfiles,
                                .copies = copied_is(root)};
    rt_json_int(rt_json_member(root, "runtime_ngpus"), &ranks);
    info.runtime_ngpus = (int)ranks;
    info.training = c->training.optimizer.row ? &c->training : NULL;
    info.decisions = &c->decisions;
    return info;
}

/* The file in DIR is what is expected there, byte for byte. */
static int check_bytes(const struct check *c, const char *name, const void *expected, size_t length) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file_below(c->arena, c->dir, name, (size_t)1 << 32, &bytes, &count, &why))
        return unreadable(c, name, &why);
    if (count != length || memcmp(bytes, expected, count) != 0)
        diag_error(c->diags, 804, EXIT_MISMATCH, path_in(c, name), "the file is not what the verified plan gives");
    arena_release(c->arena, bytes);
    return 0;
}

/* Adds a file of DIR whose content is checked elsewhere. */
static int add_file(const struct check *c, struct program *program, const char *name) {
    struct rt_file_info info;
    struct rt_reason why;
    const void *bytes;
    char hex[RT_HASH_HEX];
    if (!rt_file_map_below(c->dir, name, &bytes, &info, &why)) return unreadable(c, name, &why);
    rt_hash_bytes(bytes, (size_t)info.bytes, hex);
    rt_file_unmap(bytes, info.bytes);
    VEC_PUSH(c->arena, &program->files,
             (struct program_file){name, NULL, (size_t)info.bytes, arena_strdup(c->arena, hex)});
    return 0;
}

/* A file of copied weights: its header is what the plan gives, so its slices lie one after the other; their hashes. */
static int read_slices(const struct check *c, struct slices *slices, int shard) {
    const char *name = slices_path(c->arena, shard);
    struct rt_file_info info;
    struct rt_reason why;
    const void *mapped;
    size_t at;
    const char *header = slices_header(slices, shard, c->arena, &at);
    if (!header) return diag_error(c->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (!rt_file_map_below(c->dir, name, &mapped, &info, &why)) return unreadable(c, name, &why);
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
    return diag_error(c->diags, 804, EXIT_MISMATCH, path_in(c, name), "the file is not what the verified plan gives");
}

static int check_slices(const struct check *c, const struct rankplan *plan, struct slices *slices,
                        struct program *program) {
    slices_find(slices, plan, &c->stored);
    for (int shard = 0; shard < slices->shards; shard++)
        if (slices->of_shard[shard].at.n &&
            (read_slices(c, slices, shard) < 0 || add_file(c, program, slices_path(c->arena, shard)) < 0))
            return -1;
    return 0;
}

/* All that was written from this plan is in DIR, byte for byte. */
static int check_result(const struct check *c, const struct rankplan *plan, int nfiles) {
    struct program_info info = info_of(c, nfiles);
    struct program program;
    struct sources sources;
    struct slices slices;
    if (!info.model || !info.instance || !info.version || !info.pas) return incomplete_manifest(c);
    sources_find(&sources, plan, c->target);
    if (program_make(&program, plan, &sources, c->target, &info, c->diags) < 0) return -1;
    const char *plan_text = manifest_plan_text(plan, &info);
    for (int i = 0; i < program.files.n; i++)
        if (check_bytes(c, program.files.at[i].path, program.files.at[i].bytes, program.files.at[i].count) < 0)
            return -1;
    if (add_file(c, &program, "graph.rir") < 0 || add_file(c, &program, "plan.json") < 0 ||
        (info.copies && check_slices(c, plan, &slices, &program) < 0))
        return -1;
    const struct manifest manifest = {.plan = plan,
                                      .sources = &sources,
                                      .info = &info,
                                      .target = c->target,
                                      .graph_key = &c->keys.graph,
                                      .plan_key = &c->keys.plan,
                                      .program = &program,
                                      .slices = info.copies ? &slices : NULL};
    const char *text = manifest_text(&manifest);
    if (!plan_text || !text) return diag_error(c->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    if (check_bytes(c, "plan.json", plan_text, strlen(plan_text)) < 0 ||
        check_bytes(c, "manifest.json", text, strlen(text)) < 0)
        return -1;
    return c->diags->errors ? -1 : 0;
}

/* Another rankc may write other text for the same plan: then a difference says nothing about DIR. */
static int check_build(const struct check *c) {
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    const char *build = keys_part(&c->keys.graph, "rankc");
    if (!rt_hash_file("/proc/self/exe", hex, &why)) return diag_refusal(c->diags, 601, EXIT_SYSTEM, NULL, &why);
    if (build && !strstr(build, hex))
        diag_help(c->diags, "another build of rankc made it (%s): verify with that one, or compile again", build);
    return -1;
}

static int read_manifest(struct check *c, int *nfiles) {
    struct rt_reason why;
    bool intact;
    c->manifest = own_sealed(c->arena, c->dir, "manifest.json", &intact, &why);
    if (!c->manifest) return unreadable(c, "manifest.json", &why);
    if (!intact || !keys_read(&c->keys, rt_json_member(rt_json_root(c->manifest), "keys"), nfiles, c->arena))
        return diag_error(c->diags, 802, EXIT_MISMATCH, path_in(c, "manifest.json"),
                          "the file is not as it was generated");
    return 0;
}

static int read_plan(struct check *c) {
    struct rt_reason why;
    c->plan = own_json_below(c->arena, c->dir, "plan.json", &why);
    return c->plan ? 0 : unreadable(c, "plan.json", &why);
}

int driver_verify(const char *dir, const struct options *options, struct arena *arena, struct diags *diags) {
    struct check c = {.dir = dir, .arena = arena, .diags = diags};
    struct rankplan plan;
    int nfiles;
    (void)options;
    int status = read_manifest(&c, &nfiles);
    if (!status) status = check_files(&c);
    if (!status) status = read_plan(&c);
    if (!status) status = read_graph(&c);
    if (!status) slices_stored(&c.stored, c.graph);
    if (!status) status = read_target(&c);
    if (!status) status = read_training(&c);
    if (!status) status = attach_model(&c);
    if (!status) status = check_plan(&c, &plan);
    if (!status && check_result(&c, &plan, nfiles) < 0) status = check_build(&c);
    return unmap_model(&c) < 0 ? -1 : status;
}
