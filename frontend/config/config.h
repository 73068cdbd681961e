/* Models that are described by a configuration instead of an ONNX file: --model-config. Their weights have shapes and
 * no values, so they can be planned and not compiled.
 *
 * A configuration is a name (models.def) or a JSON file with the keys of config.json of Hugging Face's transformers;
 * keys that do not change the graph's shapes are ignored, and those that change them in ways that are not supported are
 * refused. */
#ifndef FRONTEND_CONFIG_CONFIG_H
#define FRONTEND_CONFIG_CONFIG_H

#include "ir/ir.h"

/* What a model_type says of the graph; a row of families.def. */
struct model_family {
    const char *model_type;
    int norm, activation; /* enum op_id */
    bool gated, mixture, bias, qkv_bias, qk_norm, rotary;
    int unread_positions;
    bool tied;
};

struct model_config {
    const char *name;
    const struct model_family *family;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int64_t sequence;  /* tokens of a sample */
    int64_t past;      /* tokens before them, whose keys and values are in caches; 0: there are no caches */
    int64_t positions; /* max_position_embeddings */
    int64_t experts;   /* of each layer, 0: one dense MLP */
    int64_t experts_per_token;
    int activation;                    /* enum op_id, of the MLP */
    bool qkv_bias, out_bias, mlp_bias; /* linear layers have biases: of q, k and v; after attention; of the MLP */
    bool tied;                         /* the head's weights are the token embeddings */
};

/* Reads a name or a file: 0, or -1 after E0395: an unknown name, a file that cannot be read, a key that is missing,
 * out of range or not supported, a model_type that is no family. */
int model_config_read(struct arena *arena, struct diags *diags, const char *name_or_file, struct model_config *config);

/* The configuration as a graph of level IMPORTED. Input "input_ids", i64 (batch, sequence), and the output "logits",
 * (batch, sequence, vocab). With `train` also the input "labels", i64 (batch, sequence), and the output is "loss":
 * the mean cross entropy of the logits. With `past` a step of a decoder: caches of past + sequence tokens are states,
 * to which it adds its own. Weights have no values; they and what is computed from them are of type `dtype`,
 * RT_DTYPE_NONE: f32. 0 and *out, in the arena, or -1 after a diagnostic. */
int model_config_graph(struct arena *arena, struct diags *diags, const struct model_config *config, enum rt_dtype dtype,
                       int64_t batch, bool train, struct graph **out);

#endif
