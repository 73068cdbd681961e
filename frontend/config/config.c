#include "frontend/config/config.h"

#include <stddef.h>
#include <string.h>

#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/op.h"

enum { LARGEST = 1 << 30 };

static const struct model_family families[] = {
#define FAMILY(...) {__VA_ARGS__},
#include "frontend/config/families.def"
#undef FAMILY
};
enum { FAMILIES = sizeof families / sizeof *families };

static const struct known_model {
    const char *name, *model_type;
    int64_t layers, hidden, heads, kv_heads, ffn, vocab, sequence, experts, experts_per_token;
} known_models[] = {
#define MODEL(...) {__VA_ARGS__},
#include "frontend/config/models.def"
#undef MODEL
};
enum { MODELS = sizeof known_models / sizeof *known_models };

/* The keys of a number in config.json, which differ between families. */
static const struct number_key {
    const char *keys[3];
    size_t field;
    bool needed;
} number_keys[] = {
    {{"num_hidden_layers", "n_layer"}, offsetof(struct model_config, layers), true},
    {{"hidden_size", "n_embd"}, offsetof(struct model_config, hidden), true},
    {{"num_attention_heads", "n_head"}, offsetof(struct model_config, heads), true},
    {{"num_key_value_heads"}, offsetof(struct model_config, kv_heads), false},
    {{"head_dim"}, offsetof(struct model_config, head_dim), false},
    {{"intermediate_size", "n_inner", "ffn_dim"}, offsetof(struct model_config, ffn), false},
    {{"vocab_size"}, offsetof(struct model_config, vocab), true},
    {{"max_position_embeddings", "n_positions"}, offsetof(struct model_config, sequence), true},
    {{"num_local_experts"}, offsetof(struct model_config, experts), false},
    {{"num_experts_per_tok"}, offsetof(struct model_config, experts_per_token), false},
};
enum { NUMBER_KEYS = sizeof number_keys / sizeof *number_keys };

static const struct model_family *find_family(const char *model_type) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}

/* Fills what a configuration leaves out, and checks that the sizes fit each other. */
static int complete(struct diags *diags, const char *where, struct model_config *config) {
    const bool divides = config->head_dim || config->hidden % config->heads == 0;
    if (!config->kv_heads) config->kv_heads = config->heads;
    if (!config->head_dim) config->head_dim = config->hidden / config->heads;
    if (!config->ffn) config->ffn = 4 * config->hidden;
    const struct {
        bool holds;
        const char *else_wrong;
    } rules[] = {
        {divides, "hidden_size is no multiple of num_attention_heads, and there is no head_dim"},
        {config->heads % config->kv_heads == 0, "num_attention_heads is no multiple of num_key_value_heads"},
        {!config->family->rotary || config->head_dim % 2 == 0, "head_dim is odd"},
        {config->experts_per_token <= config->experts, "num_experts_per_tok is greater than num_local_experts"},
        {!config->experts || config->experts_per_token, "num_experts_per_tok is missing"},
        {!config->experts || config->family->gated, "experts need a family with gated MLPs"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].holds) return diag_error(diags, 395, EXIT_MALFORMED, where, "%s", rules[i].else_wrong);
    return 0;
}

/* The number under the first key that is there. 1: no key is, -1: no positive number. */
static int read_number(const struct rt_json *root, const struct number_key *row, int64_t *value) {
    for (int i = 0; i < 3 && row->keys[i]; i++) {
        const struct rt_json *found = rt_json_member(root, row->keys[i]);
        if (found && found->kind != RT_JSON_NULL)
            return rt_json_int(found, value) && *value > 0 && *value < LARGEST ? 0 : -1;
    }
    return 1;
}

static int read_document(struct diags *diags, const char *where, const struct rt_json *root,
                         struct model_config *config) {
    const char *model_type = rt_json_text(rt_json_member(root, "model_type"));
    if (!model_type) return diag_error(diags, 395, EXIT_MALFORMED, where, "model_type is missing");
    config->family = find_family(model_type);
    if (!config->family) {
        diag_error(diags, 395, EXIT_UNSUPPORTED, where, "model_type %s", diag_quote(diags, model_type));
        for (int i = 0; i < FAMILIES; i++) diag_note(diags, "supported: %s", families[i].model_type);
        return -1;
    }
    for (int i = 0; i < NUMBER_KEYS; i++) {
        const struct number_key *row = &number_keys[i];
        const int status = read_number(root, row, (int64_t *)((char *)config + row->field));
        if (status < 0 || (status && row->needed))
            return diag_error(diags, 395, EXIT_MALFORMED, where, "%s %s", row->keys[0],
                              status < 0 ? "must be a whole number from 1 to 2^30 - 1" : "is missing");
    }
    config->tied = config->family->tied;
    rt_json_bool(rt_json_member(root, "tie_word_embeddings"), &config->tied);
    return complete(diags, where, config);
}

static int read_file(struct arena *arena, struct diags *diags, const char *path, struct model_config *config) {
    struct rt_reason why;
    struct rt_json_document *document = own_json(arena, path, &why);
    if (!document) return diag_refusal(diags, 395, EXIT_MALFORMED, diag_quote(diags, path), &why);
    const int status = read_document(diags, diag_quote(diags, path), rt_json_root(document), config);
    arena_release(arena, document);
    return status;
}

static int unknown_name(struct diags *diags, const char *name) {
    const char *names[MODELS + 1] = {NULL};
    for (int i = 0; i < MODELS; i++) names[i] = known_models[i].name;
    const char *near = str_nearest(name, names);
    diag_error(diags, 395, EXIT_USAGE, "--model-config", "%s is neither a known model nor a .json file",
               diag_quote(diags, name));
    if (near) diag_help(diags, "did you mean '%s'?", near);
    for (int i = 0; i < MODELS; i++) diag_note(diags, "known: %s", names[i]);
    return -1;
}

int model_config_read(struct arena *arena, struct diags *diags, const char *name_or_file, struct model_config *config) {
    const size_t length = strlen(name_or_file);
    *config = (struct model_config){.name = name_or_file};
    if (length > 5 && strcmp(name_or_file + length - 5, ".json") == 0)
        return read_file(arena, diags, name_or_file, config);
    for (int i = 0; i < MODELS; i++) {
        const struct known_model *known = &known_models[i];
        if (strcmp(known->name, name_or_file) != 0) continue;
        const struct model_family *family = find_family(known->model_type);
        *config = (struct model_config){
            known->name, family,     known->layers, known->hidden,   known->heads,   known->kv_heads,
            0,           known->ffn, known->vocab,  known->sequence, known->experts, known->experts_per_token,
            family->tied};
        return complete(diags, name_or_file, config);
    }
    return unknown_name(diags, name_or_file);
}
