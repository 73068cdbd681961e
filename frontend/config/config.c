#include "frontend/config/config.h"

#include <stddef.h>
#include <string.h>

#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/op.h"

enum { LARGEST = (1 << 30) - 1, MOST_LAYERS = 1024 };

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
    int64_t most;
} number_keys[] = {
    {{"num_hidden_layers", "n_layer"}, offsetof(struct model_config, layers), true, MOST_LAYERS},
    {{"hidden_size", "n_embd"}, offsetof(struct model_config, hidden), true, LARGEST},
    {{"num_attention_heads", "n_head"}, offsetof(struct model_config, heads), true, LARGEST},
    {{"num_key_value_heads"}, offsetof(struct model_config, kv_heads), false, LARGEST},
    {{"head_dim"}, offsetof(struct model_config, head_dim), false, LARGEST},
    {{"intermediate_size", "n_inner", "ffn_dim"}, offsetof(struct model_config, ffn), false, LARGEST},
    {{"vocab_size"}, offsetof(struct model_config, vocab), true, LARGEST},
    {{"max_position_embeddings", "n_positions"}, offsetof(struct model_config, sequence), true, LARGEST},
    {{"num_local_experts"}, offsetof(struct model_config, experts), false, LARGEST},
    {{"num_experts_per_tok"}, offsetof(struct model_config, experts_per_token), false, LARGEST},
};
enum { NUMBER_KEYS = sizeof number_keys / sizeof *number_keys };

/* The keys of what is true or false, in the order in which they are read. */
static const struct flag_key {
    const char *key;
    size_t field;
} flag_keys[] = {
    {"tie_word_embeddings", offsetof(struct model_config, tied)},
    {"attention_bias", offsetof(struct model_config, qkv_bias)},
    {"attention_bias", offsetof(struct model_config, out_bias)},
    {"attention_out_bias", offsetof(struct model_config, out_bias)},
    {"mlp_bias", offsetof(struct model_config, mlp_bias)},
    {"enable_bias", offsetof(struct model_config, qkv_bias)},
    {"enable_bias", offsetof(struct model_config, out_bias)},
    {"enable_bias", offsetof(struct model_config, mlp_bias)},
    {"use_bias", offsetof(struct model_config, qkv_bias)},
    {"use_bias", offsetof(struct model_config, out_bias)},
    {"use_bias", offsetof(struct model_config, mlp_bias)},
};
enum { FLAG_KEYS = sizeof flag_keys / sizeof *flag_keys };

/* Keys that change the graph, of which it has one value: the other is refused. */
static const struct fixed_key {
    const char *key;
    bool value;
} fixed_keys[] = {
    {"do_layer_norm_before", true},
    {"layer_norm_elementwise_affine", true},
    {"_remove_final_layer_norm", false},
    {"add_cross_attention", false},
};
enum { FIXED_KEYS = sizeof fixed_keys / sizeof *fixed_keys };

/* Activations, as transformers calls them. */
static const struct activation_name {
    const char *name;
    enum op_id op;
} activation_names[] = {
    {"silu", OP_Silu},          {"swish", OP_Silu},        {"relu", OP_Relu},
    {"gelu", OP_Gelu},          {"gelu_new", OP_GeluTanh}, {"gelu_pytorch_tanh", OP_GeluTanh},
    {"gelu_fast", OP_GeluTanh},
};
enum { ACTIVATIONS = sizeof activation_names / sizeof *activation_names };
static const char *const activation_keys[] = {"hidden_act", "activation_function", "hidden_activation"};

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
    if (!config->ffn && !config->family->gated) config->ffn = 4 * config->hidden;
    config->positions = config->sequence;
    const struct {
        bool holds;
        const char *else_wrong;
    } rules[] = {
        {divides, "hidden_size is no multiple of num_attention_heads, and there is no head_dim"},
        {config->heads % config->kv_heads == 0, "num_attention_heads is no multiple of num_key_value_heads"},
        {!config->family->rotary || config->head_dim % 2 == 0, "head_dim is odd"},
        {config->ffn, "intermediate_size is missing"},
        {!config->family->mixture || config->experts, "num_local_experts is missing"},
        {config->family->mixture || !config->experts, "num_local_experts is for model_type mixtral"},
        {config->experts_per_token <= config->experts, "num_experts_per_tok is greater than num_local_experts"},
        {!config->experts || config->experts_per_token, "num_experts_per_tok is missing"},
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
            return rt_json_int(found, value) && *value > 0 && *value <= row->most ? 0 : -1;
    }
    return 1;
}

/* What the family says of the graph unless the configuration says otherwise. */
static void take_family(struct model_config *config) {
    const struct model_family *family = config->family;
    config->activation = family->activation, config->tied = family->tied;
    config->qkv_bias = family->qkv_bias, config->out_bias = config->mlp_bias = family->bias;
}

/* *value if the key is there. */
static int read_flag(struct diags *diags, const char *where, const struct rt_json *root, const char *key, bool *value) {
    const struct rt_json *found = rt_json_member(root, key);
    if (!found || found->kind == RT_JSON_NULL || rt_json_bool(found, value)) return 0;
    return diag_error(diags, 395, EXIT_MALFORMED, where, "%s must be true or false", key);
}

static int read_flags(struct diags *diags, const char *where, const struct rt_json *root, struct model_config *config) {
    for (int i = 0; i < FLAG_KEYS; i++)
        if (read_flag(diags, where, root, flag_keys[i].key, (bool *)((char *)config + flag_keys[i].field)) < 0)
            return -1;
    for (int i = 0; i < FIXED_KEYS; i++) {
        bool value = fixed_keys[i].value;
        if (read_flag(diags, where, root, fixed_keys[i].key, &value) < 0) return -1;
        if (value != fixed_keys[i].value)
            return diag_error(diags, 395, EXIT_UNSUPPORTED, where, "%s: %s is not supported", fixed_keys[i].key,
                              value ? "true" : "false");
    }
    return 0;
}

static int read_activation(struct diags *diags, const char *where, const struct rt_json *root,
                           struct model_config *config) {
    for (size_t k = 0; k < sizeof activation_keys / sizeof *activation_keys; k++) {
        const struct rt_json *found = rt_json_member(root, activation_keys[k]);
        if (!found || found->kind == RT_JSON_NULL) continue;
        const char *name = rt_json_text(found);
        int i = 0;
        if (!name) return diag_error(diags, 395, EXIT_MALFORMED, where, "%s is no text", activation_keys[k]);
        while (i < ACTIVATIONS && strcmp(activation_names[i].name, name) != 0) i++;
        if (i == ACTIVATIONS)
            return diag_error(diags, 395, EXIT_UNSUPPORTED, where, "%s %s is not supported", activation_keys[k],
                              diag_quote(diags, name));
        config->activation = (int)activation_names[i].op;
    }
    return 0;
}

/* OPT's smallest embeddings are narrower than its layers. */
static int check_embeddings(struct diags *diags, const char *where, const struct rt_json *root,
                            const struct model_config *config) {
    int64_t width = config->hidden;
    rt_json_int(rt_json_member(root, "word_embed_proj_dim"), &width);
    if (width == config->hidden) return 0;
    return diag_error(diags, 395, EXIT_UNSUPPORTED, where,
                      "word_embed_proj_dim %lld is not supported: it is not hidden_size", (long long)width);
}

static int read_numbers(struct diags *diags, const char *where, const struct rt_json *root,
                        struct model_config *config) {
    EACH(number_keys, NUMBER_KEYS, i, const struct number_key *row) {
        const int status = read_number(root, row, (int64_t *)((char *)config + row->field));
        if (status < 0)
            return diag_error(diags, 395, EXIT_MALFORMED, where, "%s must be a whole number from 1 to %lld",
                              row->keys[0], (long long)row->most);
        if (status && row->needed) return diag_error(diags, 395, EXIT_MALFORMED, where, "%s is missing", row->keys[0]);
    }
    return 0;
}

static int read_document(struct diags *diags, const char *where, const struct rt_json *root,
                         struct model_config *config) {
    const char *model_type = rt_json_text(rt_json_member(root, "model_type"));
    if (!model_type) return diag_error(diags, 395, EXIT_MALFORMED, where, "model_type is missing, or no text");
    config->family = find_family(model_type);
    if (!config->family) {
        diag_error(diags, 395, EXIT_UNSUPPORTED, where, "model_type %s is not supported",
                   diag_quote(diags, model_type));
        for (int i = 0; i < FAMILIES; i++) diag_note(diags, "supported: %s", families[i].model_type);
        return -1;
    }
    take_family(config);
    if (read_numbers(diags, where, root, config) < 0 || read_flags(diags, where, root, config) < 0 ||
        read_activation(diags, where, root, config) < 0 || check_embeddings(diags, where, root, config) < 0)
        return -1;
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
    EACH(known_models, MODELS, i, const struct known_model *known) {
        if (strcmp(known->name, name_or_file) != 0) continue;
        *config = (struct model_config){.name = known->name,
                                        .family = find_family(known->model_type),
                                        .layers = known->layers,
                                        .hidden = known->hidden,
                                        .heads = known->heads,
                                        .kv_heads = known->kv_heads,
                                        .ffn = known->ffn,
                                        .vocab = known->vocab,
                                        .sequence = known->sequence,
                                        .experts = known->experts,
                                        .experts_per_token = known->experts_per_token};
        take_family(config);
        return complete(diags, name_or_file, config);
    }
    return unknown_name(diags, name_or_file);
}
