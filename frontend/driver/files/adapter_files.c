#include "frontend/driver/files/adapter_files.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "frontend/driver/files/weight_files.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/safetensors.h"

struct reader {
    struct adapter_files *files;
    struct arena *arena;
    struct diags *diags;
    const char *config, *weights; /* paths */
    const struct rt_json *root;   /* of the configuration */
    struct rt_safetensors tensors;
};

static int refuse(const struct reader *r, const char *path, const struct rt_reason *why) {
    return diag_refusal(r->diags, 395, EXIT_MALFORMED, str_escape(r->arena, path, strlen(path), 120), why);
}

static int bad(const struct reader *r, const char *path, const char *text, const char *name) {
    return diag_error(r->diags, 395, EXIT_MALFORMED, str_escape(r->arena, path, strlen(path), 120), "%s %s", text,
                      diag_quote(r->diags, name));
}

/* True if the member is left out, null, false, empty or "none". */
static bool is_unset(const struct rt_json *value) {
    const char *text = rt_json_text(value);
    if (!value || value->kind == RT_JSON_NULL) return true;
    if (value->kind == RT_JSON_BOOL) return !value->boolean;
    if (value->kind == RT_JSON_ARRAY || value->kind == RT_JSON_OBJECT) return !value->first;
    return text && strcmp(text, "none") == 0;
}

/* What adds to the result something else than A and B do. */
static int check_config(const struct reader *r) {
    static const char *const foreign[] = {"bias",
                                          "modules_to_save",
                                          "use_dora",
                                          "lora_bias",
                                          "megatron_config",
                                          "target_parameters",
                                          "trainable_token_indices",
                                          "use_qalora",
                                          "alora_invocation_tokens"};
    const char *type = rt_json_text(rt_json_member(r->root, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0) return bad(r, r->config, "the adapter must be of peft_type", "LORA");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (!is_unset(rt_json_member(r->root, foreign[i])))
            return bad(r, r->config, "only adapters of A and B are supported, without", foreign[i]);
    return 0;
}

/* Names become globs over names of modules, and text of generated files. */
static bool is_plain(const char *name) {
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c)) return false;
    return *name;
}

/* alpha of the module: that of the last entry of alpha_pattern that names it, or the end of its name. */
static double alpha_of(const struct reader *r, const char *module, double alpha) {
    const struct rt_json *own = rt_json_member(r->root, "alpha_pattern");
    for (const struct rt_json *p = own && own->kind == RT_JSON_OBJECT ? own->first : NULL; p; p = p->next) {
        const size_t n = strlen(module), m = strlen(p->key);
        if (strcmp(module, p->key) == 0 || (n > m && module[n - m - 1] == '.' && strcmp(module + n - m, p->key) == 0))
            rt_json_real(p, &alpha);
    }
    return alpha;
}

static int make_rule(const struct reader *r, const char *module, int64_t rank, struct lora_rule *rule) {
    double alpha = 8, dropout = 0;
    bool rslora = false;
    struct training made = {0};
    rt_json_real(rt_json_member(r->root, "lora_alpha"), &alpha);
    rt_json_real(rt_json_member(r->root, "lora_dropout"), &dropout);
    rt_json_bool(rt_json_member(r->root, "use_rslora"), &rslora);
    const char *text = arena_printf(r->arena, "%s:r=%lld,alpha=%.17g,dropout=%.17g%s", module, (long long)rank,
                                    alpha_of(r, module, alpha), dropout, rslora ? ",rslora" : "");
    if (lora_rule_add(&made, text, r->arena, r->diags) < 0) return -1;
    *rule = made.loras.at[0];
    return 0;
}

static struct stored place_of(const struct rt_safetensor *tensor) {
    return (struct stored){.file = 0, .offset = (uint64_t)tensor->offset, .dtype = tensor->dtype};
}

static bool is_matrix(const struct rt_safetensor *tensor) {
    return tensor && tensor->ndim == 2 && rt_dtype_is_float(tensor->dtype);
}

static int add_adapter(struct reader *r, const struct rt_safetensor *a) {
    static const char down[] = ".lora_A.weight", prefix[] = ADAPTER_PREFIX;
    const size_t length = strlen(a->name);
    if (length < sizeof down || strcmp(a->name + length - (sizeof down - 1), down) != 0) {
        static const char up[] = ".lora_B.weight";
        const bool pair = length >= sizeof up && strcmp(a->name + length - (sizeof up - 1), up) == 0;
        return pair ? 0 : bad(r, r->weights, "a tensor is no matrix of an adapter:", a->name);
    }
    const char *whole = arena_copy(r->arena, a->name, length - (sizeof down - 1));
    const struct rt_safetensor *b = rt_safetensors_find(&r->tensors, arena_printf(r->arena, "%s.lora_B.weight", whole));
    const bool has = strncmp(whole, prefix, sizeof prefix - 1) == 0;
    struct lora_given given = {.name = arena_strdup(r->arena, has ? whole + sizeof prefix - 1 : whole)};
    if (!is_plain(given.name)) return bad(r, r->weights, "not the name of a module:", whole);
    if (!is_matrix(a) || !is_matrix(b) || a->dims[0] != b->dims[1] || a->dims[0] < 1)
        return bad(r, r->weights, "A and B do not fit each other:", whole);
    given.inputs = a->dims[1], given.outputs = b->dims[0];
    given.a = place_of(a), given.b = place_of(b);
    given.a_bytes = a->data, given.b_bytes = b->data;
    if (make_rule(r, given.name, a->dims[0], &given.rule) < 0) return -1;
    VEC_PUSH(r->arena, &r->files->all, given);
    return 0;
}

/* Modules with equal options share a line. */
static const char *join_rules(const struct adapter_files *files, struct arena *arena) {
    struct strbuf lines;
    const char *last = "";
    strbuf_init(&lines, arena);
    for (int i = 0; i < files->all.n; i++) {
        const char *options = strchr(files->all.at[i].rule.text, ':');
        const bool same = strcmp(options, last) == 0;
        if (i && !same) strbuf_printf(&lines, "%s\n", last);
        strbuf_printf(&lines, "%s%s", same ? "," : "", files->all.at[i].name);
        last = options;
    }
    strbuf_puts(&lines, last);
    return strbuf_text(&lines);
}

static void free_safetensors(void *file) {
    rt_safetensors_free(file);
}

int adapter_files_read(struct adapter_files *files, const char *text, struct arena *arena, struct diags *diags) {
    static const char merge[] = ":merge";
    const size_t length = strlen(text), end = sizeof merge - 1;
    const bool merged = length > end && strcmp(text + length - end, merge) == 0;
    const char *directory = merged ? arena_copy(arena, text, length - end) : text;
    struct reader *r = ARENA_NEW(arena, struct reader);
    struct rt_reason why;
    struct weight_file mapped;
    *r = (struct reader){.files = files, .arena = arena, .diags = diags};
    r->config = arena_printf(arena, "%s/" ADAPTER_CONFIG, directory);
    r->weights = files->weights = arena_printf(arena, "%s/" ADAPTER_WEIGHTS, directory);
    struct rt_json_document *document = own_json(arena, r->config, &why);
    if (!document) return refuse(r, r->config, &why);
    r->root = rt_json_root(document);
    if (check_config(r) < 0 || weight_file_map(arena, diags, r->weights, &mapped) < 0) return -1;
    if (!rt_safetensors_parse(&r->tensors, mapped.bytes, (size_t)mapped.count, &why))
        return refuse(r, r->weights, &why);
    arena_own(arena, &r->tensors, free_safetensors);
    for (int64_t i = 0; i < r->tensors.n; i++)
        if (add_adapter(r, &r->tensors.at[i]) < 0) return -1;
    for (int i = 0; i < files->all.n; i++) files->all.at[i].merged = merged;
    files->rules = arena_printf(arena, "%s%s", merged ? "merge\n" : "", join_rules(files, arena));
    return files->all.n ? 0 : bad(r, r->weights, "there is no adapter in", r->weights);
}
