/* What the configuration files beside a decoder say about generating with it: generation_config.json and config.json of
 * Hugging Face's transformers, and genai_config.json of onnxruntime-genai. The files are untrusted. */
#ifndef FRONTEND_CONFIG_GENERATION_H
#define FRONTEND_CONFIG_GENERATION_H

#include "ir/ir.h"
#include "ir/base/diag.h"
#include "runtime/base/roles.h"
#include "runtime/base/text/json.h"

struct id_list {
    VEC(int64_t) all;
};

struct generation {
    struct id_list end, suppress, suppress_first;
    struct id_list start;    /* of an encoder-decoder: the decoder's first tokens, with those that are forced */
    int64_t pad;             /* -1: none */
    int64_t context;         /* tokens that the model was made for; 0: not known */
    int64_t head_size;       /* of keys and values; 0: not known */
    const char *tokenizer;   /* tokenizer.json beside the model, an absolute path; NULL: there is none */
    const char *state_names; /* names of caches, as --state takes them; NULL: none */
};

/* What is known where no file says anything. */
#define GENERATION_NONE ((struct generation){.pad = -1})

/* Reads the files beside `model`, or one level above a directory onnx/. Without files everything is empty. 0, or -1
 * after E0395: a file that is no JSON or too large, a key of another type, an id that is none. */
int generation_read(struct arena *arena, struct diags *diags, const char *model, struct generation *out);

/* The role that an input has by its name (role_names.def). decoder_ids: an input beside it is named decoder_input_ids,
 * so that names without "decoder" are the encoder's. */
enum rt_role generation_role(const char *name, bool decoder_ids);

/* True if the output of an encoder, or of a decoder without caches, is by its name the value of a decoder's input
 * (carried_names.def). */
bool generation_carries(const char *output, const char *input);

/* Writes what the files say: members of the object that is open. */
void generation_put(struct rt_json_writer *writer, const struct generation *generation);

/* Writes the roles of the graph's inputs by their names (role_names.def), and the output with the logits. */
void generation_put_roles(struct rt_json_writer *writer, const struct graph *graph);

/* Makes the output with the logits, if it is (batch, tokens, vocabulary), that of the last token alone, (batch, 1,
 * vocabulary); level IMPORTED. 0, or -1 after a diagnostic. */
int generation_keep_last(struct graph *graph, struct diags *diags);

#endif
