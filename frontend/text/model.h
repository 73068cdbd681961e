/* Models: words, as pre-tokenizers leave them, to ids. */
#ifndef FRONTEND_TEXT_MODEL_H
#define FRONTEND_TEXT_MODEL_H

#include "frontend/text/parts.h"
#include "frontend/text/token_ids.h"
#include "frontend/text/vocabulary.h"

struct model;

/* Reads the members of a model; fills model->vocabulary and its own. -1 after a diagnostic. */
typedef int model_read_fn(struct reader *reader, const struct place *place, const struct rt_json *object,
                          struct model *model);
/* Appends the ids of a word, which is not empty, in work's arena. -1 after E0397. */
typedef int model_encode_fn(const struct model *model, struct work *work, struct span word, struct token_ids *ids);

struct model_row {
    const char *type;
    model_read_fn *read;
    model_encode_fn *encode;
};

struct model {
    const struct model_row *row;
    struct arena *arena;
    struct vocabulary vocabulary;
    union {
        struct bpe *bpe;
        struct wordpiece *wordpiece;
        struct unigram *unigram;
    };
    int size; /* tokens, as the package counts them */
    struct {
        struct map words; /* to where their ids begin in `ids`; there stands their number first */
        struct token_ids ids;
    } cache;
};

model_read_fn bpe_read, wordpiece_read, wordlevel_read, unigram_read;
model_encode_fn bpe_encode, wordpiece_encode, wordlevel_encode, unigram_encode;

/* Reads member "model". */
int model_read(struct reader *reader, const struct place *place, const struct rt_json *value, struct model *model);
/* Appends the ids of a word, which it may know from before. -1 after E0397. */
int model_encode(struct model *model, struct work *work, struct span word, struct token_ids *ids);

/* What models share: model_tokens.c. */

/* Member "vocab": an object of ids. */
int model_read_vocabulary(struct reader *reader, const struct place *place, const struct rt_json *object,
                          struct model *model);
/* Appends <0xNN> for each byte; false if the vocabulary lacks one. */
bool model_put_bytes(const struct model *model, struct work *work, struct span text, struct token_ids *ids);
/* E0397: the model has no token for the text; -1. */
int model_refuse(struct work *work, struct span text);

#endif
