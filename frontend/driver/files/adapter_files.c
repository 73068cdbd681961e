#include "frontend/driver/files/adapter_files.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "frontend/driver/files/weight_files.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/safetensors.h"

/* A value of --adapter. */
struct adapter_source {
    const char *directory, *name; /* name: given, or that of the directory */
    bool merged;
};

struct reader {
    struct adapter_files *files;
    struct arena *arena;
    struct diags *diags;
    const char *config, *weights; /* paths */
    const struct rt_json *root;   /* of the configuration */
    struct adapter_source source;
    struct rt_safetensors tensors;
    const struct training *stacks; /* rules of stacks; NULL: not read yet */
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
    static const char *const foreign[] = {"bias",       "modules_to_save",        "use_dora",
                                          "lora_bias",  "megatron_config",        "trainable_token_indices",
                                          "use_qalora", "alora_invocation_tokens"};
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

static bool names(const char *end, const char *module) {
    const size_t n = strlen(module), m = strlen(end);
    return strcmp(module, end) == 0 || (n > m && module[n - m - 1] == '.' && strcmp(module + n - m, end) == 0);
}

/* The members of a list or an object in the configuration. */
static const struct rt_json *first_of(const struct reader *r, const char *key) {
    const struct rt_json *value = rt_json_member(r->root, key);
    return value && (value->kind == RT_JSON_OBJECT || value->kind == RT_JSON_ARRAY) ? value->first : NULL;
}

/* r or alpha of the module: that of the first entry of the pattern that names it, or the end of its name, as in peft.
 * Keys are regular expressions there. */
static int find_pattern(const struct reader *r, const char *pattern, const char *module, double *value) {
    for (const struct rt_json *p = first_of(r, pattern); p; p = p->next) {
        if (!is_plain(p->key))
            return bad(r, r->config, arena_printf(r->arena, "expressions in %s are not supported:", pattern), p->key);
        if (!names(p->key, module)) continue;
        if (rt_json_real(p, value)) return 0;
        return bad(r, r->config, arena_printf(r->arena, "%s has no number for", pattern), p->key);
    }
    return 0;
}

/* Options that may be left out. */
static int read_options(const struct reader *r, double *alpha, double *dropout, bool *rslora) {
    const struct rt_json *scaled = rt_json_member(r->root, "lora_alpha"),
                         *dropped = rt_json_member(r->root, "lora_dropout"),
                         *by_root = rt_json_member(r->root, "use_rslora");
    if (scaled && !rt_json_real(scaled, alpha)) return bad(r, r->config, "a number is needed:", "lora_alpha");
    if (dropped && !rt_json_real(dropped, dropout)) return bad(r, r->config, "a number is needed:", "lora_dropout");
    if (by_root && !rt_json_bool(by_root, rslora)) return bad(r, r->config, "true or false is needed:", "use_rslora");
    return 0;
}

/* The parameters that are stacks, as globs; NULL after a diagnostic. */
static const char *parameters_of(const struct reader *r) {
    const char *globs = "";
    for (const struct rt_json *p = first_of(r, "target_parameters"); p; p = p->next) {
        const char *name = rt_json_text(p);
        if (!name || !is_plain(name)) return bad(r, r->config, "not the name of a parameter:", name ? name : ""), NULL;
        globs = arena_printf(r->arena, "%s%s%s", globs, *globs ? "," : "", name);
    }
    return globs;
}

/* True if the module's adapter is of a parameter of it, and not of the module: target_modules, which may also be an
 * expression, does not list it, and target_parameters does. */
static bool is_of_parameter(const struct reader *r, const char *module) {
    for (const struct rt_json *p = first_of(r, "target_modules"); p; p = p->next)
        if (rt_json_text(p) && names(rt_json_text(p), module)) return false;
    for (const struct rt_json *p = first_of(r, "target_parameters"); p; p = p->next) {
        const char *name = rt_json_text(p), *dot = name ? strrchr(name, '.') : NULL;
        if (!dot || names(arena_copy(r->arena, name, (size_t)(dot - name)), module)) return true;
    }
    return false;
}

/* Adds the rule of the modules; module: one of these; NULL: it has no alpha of its own. */
static int add_rule(const struct reader *r, struct training *rules, const char *globs, double rank,
                    const char *module) {
    double alpha = 8, dropout = 0;
    bool rslora = false;
    if (read_options(r, &alpha, &dropout, &rslora) < 0) return -1;
    if (module && find_pattern(r, "alpha_pattern", module, &alpha) < 0) return -1;
    const char *text = arena_printf(r->arena, "%s:r=%.17g,alpha=%.17g,dropout=%.17g%s", globs, rank, alpha, dropout,
                                    rslora ? ",rslora" : "");
    return lora_rule_add(rules, text, r->arena, r->diags);
}

static bool is_rank(double value) {
    return value >= 1 && value < 1 << 20 && value == floor(value);
}

static bool is_of_stacks(const struct reader *r, const char *key) {
    for (const struct rt_json *p = first_of(r, "target_parameters"); p; p = p->next)
        if (names(key, rt_json_text(p)) || names(rt_json_text(p), key)) return true;
    return false;
}

/* The rule of all stacks, and those of parameters with an r or alpha of their own. As the last rule that matches
 * applies, longer names come last. */
static const struct training *read_stacks(const struct reader *r) {
    static const char *const patterns[] = {"rank_pattern", "alpha_pattern"};
    const struct rt_json *const said = rt_json_member(r->root, "r");
    struct training *rules = ARENA_NEW(r->arena, struct training);
    double rank = 8, own;
    VEC(const char *) keys = {0};
    *rules = (struct training){0};
    const char *globs = parameters_of(r);
    if (said && (!rt_json_real(said, &rank) || !is_rank(rank)))
        return bad(r, r->config, "a whole number is needed:", "r"), NULL;
    if (!globs || add_rule(r, rules, globs, rank, NULL) < 0) return NULL;
    for (int i = 0; i < 2; i++) {
        if (find_pattern(r, patterns[i], "", &own) < 0) return NULL; /* expressions */
        for (const struct rt_json *p = first_of(r, patterns[i]); p; p = p->next) {
            if (!is_of_stacks(r, p->key)) continue;
            VEC_PUSH(r->arena, &keys, p->key);
            for (int k = keys.n - 1; k > 0 && strlen(keys.at[k - 1]) > strlen(keys.at[k]); k--) {
                const char *shorter = keys.at[k];
                keys.at[k] = keys.at[k - 1], keys.at[k - 1] = shorter;
            }
        }
    }
    for (int k = 0; k < keys.n; k++) {
        own = rank;
        if (find_pattern(r, patterns[0], keys.at[k], &own) < 0) return NULL;
        if (!is_rank(own)) return bad(r, r->config, "rank_pattern has no number of rows for", keys.at[k]), NULL;
        if (add_rule(r, rules, keys.at[k], own, keys.at[k]) < 0) return NULL;
    }
    return rules;
}

/* Of an adapter whose A has so many rows. */
static int make_rule(struct reader *r, const char *module, int64_t rows, struct lora_given *adapter) {
    struct training made = {0};
    double given = (double)rows;
    adapter->count = 1;
    if (adapter->kind == LORA_STACK) {
        if (!r->stacks && !(r->stacks = read_stacks(r))) return -1;
        adapter->rules = r->stacks, adapter->rule = r->stacks->loras.at[0];
        adapter->count = rows; /* until lora_name_stacks has found r */
        return 0;
    }
    const struct rt_json *const said = rt_json_member(r->root, "r"); /* rank_pattern has expressions of modules */
    if (said && is_unset(rt_json_member(r->root, "rank_pattern")) &&
        (!rt_json_real(said, &given) || given != (double)rows))
        return bad(r, r->config, "r is not that of the matrices of", module);
    if (add_rule(r, &made, module, (double)rows, module) < 0) return -1;
    adapter->rule = made.loras.at[0];
    return 0;
}

static struct stored place_of(const struct rt_safetensor *tensor) {
    return (struct stored){.file = 0, .offset = (uint64_t)tensor->offset, .dtype = tensor->dtype};
}

static bool is_matrix(const struct rt_safetensor *tensor) {
    return tensor && tensor->ndim == 2 && rt_dtype_is_float(tensor->dtype);
}

/* The module without the names of wrappers, the number of which is *wraps. */
static const char *without_wrappers(struct arena *arena, const char *module, int *wraps) {
    static const char end[] = ADAPTER_WRAPPED;
    for (*wraps = 0; rt_has_suffix(module, end); ++*wraps)
        module = arena_copy(arena, module, strlen(module) - (sizeof end - 1));
    return module;
}

static int add_adapter(struct reader *r, const struct rt_safetensor *a) {
    static const char prefix[] = ADAPTER_PREFIX;
    const struct lora_matrix matrix = lora_matrix_of_name(r->arena, a->name);
    if (matrix.letter == 'B') return 0; /* found with A */
    if (!matrix.letter || matrix.kind == LORA_STACK) {
        if (!rt_has_suffix(a->name, ADAPTER_WRAPPED ".weight"))
            return bad(r, r->weights, "a tensor is no matrix of an adapter:", a->name);
        /* peft saves that of lm_head, which stays as it is */
        diag_remark(r->diags, r->weights, "the model's own weight is left out: %s", diag_quote(r->diags, a->name));
        return 0;
    }
    const char *b_name = lora_name_of_matrix(r->arena, &matrix, 'B'), *whole = matrix.module;
    const struct rt_safetensor *b = rt_safetensors_find(&r->tensors, b_name);
    struct lora_given given = {
        .kind = matrix.kind, .set = r->files->names.n ? r->files->names.n - 1 : 0, .merged = r->source.merged};
    if (strncmp(whole, prefix, sizeof prefix - 1) == 0) whole += sizeof prefix - 1;
    given.name = without_wrappers(r->arena, whole, &given.wraps);
    if (!is_plain(given.name)) return bad(r, r->weights, "not the name of a module:", whole);
    if (!is_matrix(a) || !is_matrix(b) || a->dims[0] != b->dims[1] || a->dims[0] < 1)
        return bad(r, r->weights, "A and B do not fit each other:", whole);
    if (matrix.kind == LORA_LINEAR && is_of_parameter(r, given.name)) given.kind = LORA_STACK;
    given.inputs = a->dims[1], given.outputs = b->dims[0];
    given.a = place_of(a), given.b = place_of(b);
    given.a_bytes = a->data, given.b_bytes = b->data;
    if (make_rule(r, given.name, a->dims[0], &given) < 0) return -1;
    VEC_PUSH(r->arena, &r->files->all, given);
    return 0;
}

/* Orders adapters from `first` on by the length of their names. The last rule that matches applies, and a name matches
 * also where it is the end of another. */
static void sort_by_length(struct adapter_files *files, int first) {
    struct lora_given *all = files->all.at;
    for (int i = first + 1; i < files->all.n; i++)
        for (int at = i; at > first && strlen(all[at - 1].name) > strlen(all[at].name); at--) {
            const struct lora_given shorter = all[at];
            all[at] = all[at - 1], all[at - 1] = shorter;
        }
}

/* Modules from `first` on with equal options share a line. Names of stacks may also match modules, whose lines, with
 * whole names, come after them. */
static const char *join_rules(const struct adapter_files *files, int first, struct arena *arena) {
    const struct training *stacks = NULL;
    struct strbuf lines;
    const char *last = "";
    strbuf_init(&lines, arena);
    for (int i = first; i < files->all.n; i++)
        if (files->all.at[i].rules) stacks = files->all.at[i].rules; /* the same for all */
    for (int i = 0; stacks && i < stacks->loras.n; i++) strbuf_printf(&lines, "%s\n", stacks->loras.at[i].text);
    for (int i = first; i < files->all.n; i++) {
        const struct lora_given *given = &files->all.at[i];
        const char *options = strchr(given->rule.text, ':');
        const bool same = strcmp(options, last) == 0;
        if (given->rules) continue;
        if (*last && !same) strbuf_printf(&lines, "%s\n", last);
        strbuf_printf(&lines, "%s%s", same ? "," : "", given->rule.globs);
        last = options;
    }
    strbuf_puts(&lines, last);
    return strbuf_text(&lines);
}

static void free_safetensors(void *file) {
    rt_safetensors_free(file);
}

/* DIR, DIR:merge or DIR:name=N. */
static struct adapter_source parse_source(const char *text, struct arena *arena) {
    static const char merge[] = ":merge", name[] = ":name=";
    const char *colon = strrchr(text, ':');
    struct adapter_source source = {.directory = text};
    source.merged = colon && strcmp(colon, merge) == 0;
    if (colon && strncmp(colon, name, sizeof name - 1) == 0) source.name = colon + sizeof name - 1;
    size_t length = source.merged || source.name ? (size_t)(colon - text) : strlen(text);
    while (length > 1 && text[length - 1] == '/') length--;
    source.directory = arena_copy(arena, text, length);
    if (!source.name) source.name = options_file_name(rt_path_name(source.directory), arena);
    return source;
}

/* A directory may have a colon in its name; if there is none of that name, the option behind the colon is wrong. */
static int check_source(const struct adapter_source *source, struct diags *diags) {
    const char *colon = strrchr(source->directory, ':');
    if (!colon || access(source->directory, F_OK) == 0) return 0;
    diag_error(diags, 205, EXIT_USAGE, "--adapter", "an adapter has no option %s", diag_quote(diags, colon + 1));
    return diag_note(diags, "its options are name=N and merge");
}

static int add_name(struct adapter_files *files, const char *name, struct arena *arena, struct diags *diags) {
    const char *quoted = diag_quote(diags, name);
    if (!is_plain(name) || strcmp(name, LORA_NO_SET) == 0)
        return diag_error(diags, 205, EXIT_USAGE, "--adapter", "%s is no name of an adapter", quoted);
    for (int i = 0; i < files->names.n; i++) {
        if (strcmp(files->names.at[i], name) != 0) continue;
        diag_error(diags, 205, EXIT_USAGE, "--adapter", "two adapters have the name %s", quoted);
        return diag_help(diags, "DIR:name=N gives an adapter another name than its directory's"), -1;
    }
    VEC_PUSH(arena, &files->names, name);
    return 0;
}

/* Reads one directory; *hash is that of its matrices and rules. */
static int read_source(struct adapter_files *files, struct adapter_source source, struct rt_hash *hash,
                       struct arena *arena, struct diags *diags) {
    struct reader *r = ARENA_NEW(arena, struct reader);
    struct rt_reason why;
    struct weight_file mapped;
    const int before = files->all.n;
    *r = (struct reader){.files = files, .arena = arena, .diags = diags, .source = source};
    r->config = arena_printf(arena, "%s/" ADAPTER_CONFIG, source.directory);
    r->weights = arena_printf(arena, "%s/" ADAPTER_WEIGHTS, source.directory);
    struct rt_json_document *document = own_json(arena, r->config, &why);
    if (!document) return refuse(r, r->config, &why);
    r->root = rt_json_root(document);
    if (check_config(r) < 0 || weight_file_map(arena, diags, r->weights, &mapped) < 0) return -1;
    if (!rt_safetensors_parse(&r->tensors, mapped.bytes, (size_t)mapped.count, &why))
        return refuse(r, r->weights, &why);
    arena_own(arena, &r->tensors, free_safetensors);
    for (int64_t i = 0; i < r->tensors.n; i++)
        if (add_adapter(r, &r->tensors.at[i]) < 0) return -1;
    sort_by_length(files, before);
    rt_hash_start(hash);
    rt_hash_text(hash, join_rules(files, before, arena));
    rt_hash_field(hash, mapped.bytes, (size_t)mapped.count);
    if (!files->names.n) files->weights = r->weights;
    return files->all.n > before ? 0 : bad(r, r->weights, "there is no adapter in", r->weights);
}

int adapter_files_read(struct adapter_files *files, const struct options *options, struct arena *arena,
                       struct diags *diags) {
    const struct option_texts *given = &options->adapters;
    struct strbuf rules;
    strbuf_init(&rules, arena);
    for (int i = 0; i < given->all.n; i++) {
        const struct adapter_source source = parse_source(given->all.at[i], arena);
        const bool alone = source.merged || options->train;
        char hex[RT_HASH_HEX];
        struct rt_hash hash;
        if (alone && given->all.n > 1)
            return diag_error(diags, 201, EXIT_USAGE, "--adapter", "one adapter at a time is %s",
                              source.merged ? "merged" : "trained");
        if (check_source(&source, diags) < 0) return -1;
        if (!alone && add_name(files, source.name, arena, diags) < 0) return -1;
        if (read_source(files, source, &hash, arena, diags) < 0) return -1;
        rt_hash_hex(&hash, hex);
        if (alone)
            strbuf_printf(&rules, "%s%s", source.merged ? "merge\n" : "", join_rules(files, 0, arena));
        else
            strbuf_printf(&rules, "%s%s %s", i ? ", " : "", source.name, hex);
    }
    files->rules = given->all.n ? strbuf_text(&rules) : NULL;
    return 0;
}
