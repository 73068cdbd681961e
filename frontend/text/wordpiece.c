/* WordPiece (BERT) takes the longest token that a word begins with, again and again; WordLevel takes whole words. */
#include "frontend/text/model.h"

struct wordpiece {
    struct span unknown, prefix; /* unk_token, continuing_subword_prefix */
    int64_t most_characters;     /* max_input_chars_per_word: longer words are unknown */
};

int wordpiece_read(struct reader *reader, const struct place *place, const struct rt_json *object,
                   struct model *model) {
    static const struct field fields[] = {
        {"unk_token", FIELD_TEXT, offsetof(struct wordpiece, unknown)},
        {"continuing_subword_prefix", FIELD_TEXT, offsetof(struct wordpiece, prefix)},
        {"max_input_chars_per_word", FIELD_COUNT, offsetof(struct wordpiece, most_characters)},
        {"vocab", FIELD_IGNORED},
        {NULL},
    };
    model->wordpiece = ARENA_NEW(reader->arena, struct wordpiece);
    if (read_fields(reader, place, object, fields, model->wordpiece)) return -1;
    return model_read_vocabulary(reader, place, object, model);
}

int wordlevel_read(struct reader *reader, const struct place *place, const struct rt_json *object,
                   struct model *model) {
    static const struct field fields[] = {
        {"unk_token", FIELD_TEXT, offsetof(struct wordpiece, unknown)},
        {"vocab", FIELD_IGNORED},
        {NULL},
    };
    model->wordpiece = ARENA_NEW(reader->arena, struct wordpiece);
    if (read_fields(reader, place, object, fields, model->wordpiece)) return -1;
    return model_read_vocabulary(reader, place, object, model);
}

static int put_unknown(const struct model *model, struct work *work, struct span word, struct token_ids *ids) {
    const int32_t id = vocabulary_id(&model->vocabulary, model->wordpiece->unknown);
    if (id < 0) return model_refuse(work, word);
    VEC_PUSH(work->arena, ids, id);
    return 0;
}

/* The longest token that the rest of a word begins with, behind the prefix, and how many bytes of the word it takes;
 * -1: none. `rest` is preceded by the prefix in memory. */
static int32_t longest(const struct model *model, struct span rest, size_t prefix, size_t *bytes) {
    const size_t most = model->vocabulary.longest > prefix ? model->vocabulary.longest - prefix : 0;
    if (rest.bytes > most) { /* no longer token is there; the cut is at a character */
        rest.bytes = most;
        while (rest.bytes && (rest.at[rest.bytes] & 0xc0) == 0x80) rest.bytes--;
    }
    for (; rest.bytes; rest.bytes = utf8_last(rest)) {
        const int32_t id = vocabulary_id(&model->vocabulary, (struct span){rest.at - prefix, prefix + rest.bytes});
        if (id >= 0) return *bytes = rest.bytes, id;
    }
    return -1;
}

int wordpiece_encode(const struct model *model, struct work *work, struct span word, struct token_ids *ids) {
    const struct wordpiece *wordpiece = model->wordpiece;
    const size_t prefix = wordpiece->prefix.bytes;
    const int first = ids->n;
    if (utf8_count(word) > wordpiece->most_characters) return put_unknown(model, work, word, ids);
    /* the prefix overwrites what was read of the copy of the word */
    char *copy = arena_alloc(work->arena, prefix + word.bytes + 1, 1);
    memcpy(copy + prefix, word.at, word.bytes);
    for (size_t at = 0, bytes; at < word.bytes; at += bytes) {
        const size_t before = at ? prefix : 0;
        if (before) memcpy(copy + at, wordpiece->prefix.at, prefix);
        const int32_t id = longest(model, (struct span){copy + prefix + at, word.bytes - at}, before, &bytes);
        if (id < 0) {
            ids->n = first;
            return put_unknown(model, work, word, ids);
        }
        VEC_PUSH(work->arena, ids, id);
    }
    return 0;
}

int wordlevel_encode(const struct model *model, struct work *work, struct span word, struct token_ids *ids) {
    const int32_t id = vocabulary_id(&model->vocabulary, word);
    if (id < 0) return put_unknown(model, work, word, ids);
    VEC_PUSH(work->arena, ids, id);
    return 0;
}
