/* `rankc verify DIR`: nothing of the compile that made DIR is trusted but its files. The imported graph is read
 * back from graph.rir and the plan from plan.json; the plan is applied, communication is worked out again, every
 * level is checked (ir/verify.h), and the sources this gives are compared with those in DIR. */
#include <stdlib.h>
#include <string.h>

#include "codegen/manifest.h"
#include "frontend/cli/attach.h"
#include "frontend/driver.h"
#include "frontend/onnx_mapping.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "passes/plan_file.h"
#include "ir/base/own.h"
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
    struct training training;      /* of a graph that trains */
    VEC(struct mapping *) files;   /* of the model; NULL: not at hand */
};

static const char *path_in(const struct check *c, const char *name) {
    return arena_printf(c->arena, "%s/%s", c->dir, name);
}

static int unreadable(const struct check *c, const struct rt_reason *why) {
    return diag_refusal(c->diags, 803, EXIT_MALFORMED, NULL, why);
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
        if (!rt_hash_file(path_in(c, path), hex, &why)) return unreadable(c, &why);
        if (strcmp(hex, hash) != 0)
            diag_error(c->diags, 802, EXIT_MISMATCH, path_in(c, path), "the file is not as it was generated");
    }
    return c->diags->errors ? -1 : 0;
}

/* A file of location.json; NULL: it is gone, or another now. */
static struct mapping *map_file(const struct rt_json *entry) {
    const char *path = rt_json_text(rt_json_member(entry, "path")),
               *hash = rt_json_text(rt_json_member(entry, "hash"));
    struct rt_reader reader;
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    if (!path || path[0] != '/' || !hash || !rt_reader_open(&reader, path, &why)) return NULL;
    const bool same = rt_hash_reader(&reader, hex, &why) && strcmp(hex, hash) == 0;
    struct mapping *file = same ? mapping_open(reader.fd, reader.info.bytes) : NULL;
    rt_reader_close(&reader);
    return file;
}

/* Some passes look at small weights, such as masks. */
static int attach_model(struct check *c) {
    struct rt_reason why;
    struct rt_json_document *document = own_json(c->arena, path_in(c, "location.json"), &why);
    const struct rt_json *files = document ? rt_json_member(rt_json_root(document), "files") : NULL;
    for (const struct rt_json *f = files && files->kind == RT_JSON_ARRAY ? files->first : NULL; f; f = f->next)
        VEC_PUSH(c->arena, &c->files, map_file(f));
    struct attach_file *attached = ARENA_ARRAY(c->arena, struct attach_file, c->files.n + 1);
    for (int i = 0; i < c->files.n; i++)
        if (c->files.at[i]) attached[i] = (struct attach_file){c->files.at[i]->bytes, c->files.at[i]->count};
    arena_release(c->arena, document);
    return attach_weights(c->graph, c->files.n, attached, c->diags);
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
    if (!own_file(c->arena, path_in(c, "graph.rir"), (size_t)1 << 32, &bytes, &count, &why))
        return unreadable(c, &why);
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
    if (!optimizer || !schedule || !amp || !clip ||
        !rt_json_int(rt_json_member(training, "accumulate"), &accumulate) ||
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

/* The passes that clean the graph; the plan in the place of a policy; the passes after it, each verified. */
static int check_plan(struct check *c, struct rankplan *plan) {
    struct pass_context context = target_pass_context(c->target);
    context.policy = "dp";
    context.attention = attention_of(c);
    context.training = c->training.optimizer.row ? &c->training : NULL;
    context.diags = c->diags;
    if (pipeline_run(c->graph, &context, pass_find("policy")) < 0) return -1;
    if (plan_apply(c->graph, path_in(c, "plan.json"), rt_json_root(c->plan), c->diags) < 0) return -1;
    if (pipeline_run(c->graph, &context, NULL) < 0) return -1;
    rankplan_make(plan, c->graph, &c->target->kernels);
    return rankplan_verify(plan, c->diags);
}

static struct program_info info_of(const struct check *c) {
    const struct rt_json *root = rt_json_root(c->manifest);
    int64_t ranks = 1;
    struct program_info info = {
        .model = rt_json_text(rt_json_member(root, "model")),
        .instance = rt_json_text(rt_json_member(root, "instance")),
        .version = rt_json_text(rt_json_member(root, "rankc")),
        .attention = rt_json_text(rt_json_member(root, "attention")),
        .pas = rt_json_text(rt_json_member(root, "pas")),
        .key = rt_json_text(rt_json_member(rt_json_member(rt_json_member(root, "keys"), "plan"), "key")),
        .work = "", /* of no rank's source */
        .nfiles = 1};
    rt_json_int(rt_json_member(root, "runtime_ngpus"), &ranks);
    info.runtime_ngpus = (int)ranks;
    info.training = c->training.optimizer.row ? &c->training : NULL;
    return info;
}

/* The rank sources this plan gives are those in DIR, byte for byte. */
static int check_sources(const struct check *c, const struct rankplan *plan) {
    struct program_info info = info_of(c);
    struct program program;
    struct sources sources;
    if (!info.model || !info.instance || !info.version || !info.pas || !info.key) return incomplete_manifest(c);
    sources_find(&sources, plan, c->target);
    if (program_make(&program, plan, &sources, c->target, &info, c->diags) < 0) return -1;
    for (int i = 0; i < program.files.n; i++) {
        const struct program_file *file = &program.files.at[i];
        void *bytes;
        size_t count;
        struct rt_reason why;
        if (strncmp(file->path, "rank_", 5) != 0) continue;
        if (!own_file(c->arena, path_in(c, file->path), (size_t)1 << 32, &bytes, &count, &why))
            return unreadable(c, &why);
        if (count != file->count || memcmp(bytes, file->bytes, count) != 0)
            diag_error(c->diags, 804, EXIT_MISMATCH, path_in(c, file->path),
                       "the source is not what the verified plan gives");
        arena_release(c->arena, bytes);
    }
    return c->diags->errors ? -1 : 0;
}

int driver_verify(const char *dir, const struct options *options, struct arena *arena, struct diags *diags) {
    struct check c = {.dir = dir, .arena = arena, .diags = diags};
    struct rt_reason why;
    struct rankplan plan;
    (void)options;
    c.manifest = own_json(arena, path_in(&c, "manifest.json"), &why);
    if (!c.manifest) return unreadable(&c, &why);
    c.plan = own_json(arena, path_in(&c, "plan.json"), &why);
    int status = c.plan ? 0 : unreadable(&c, &why);
    if (!status) status = check_files(&c);
    if (!status) status = read_graph(&c);
    if (!status) status = read_target(&c);
    if (!status) status = read_training(&c);
    if (!status) status = attach_model(&c);
    if (!status) status = check_plan(&c, &plan);
    if (!status) status = check_sources(&c, &plan);
    return unmap_model(&c) < 0 ? -1 : status;
}
