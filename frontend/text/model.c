#include "frontend/text/model.h"

#include <string.h>

/* As many words as the package keeps, and as long ones. */
enum { MOST_CACHED = 10000, MOST_CACHED_BYTES = 256 };

static const struct model_row rows[] = {
    {"BPE", bpe_read, bpe_encode},
    {"WordPiece", wordpiece_read, wordpiece_encode},
    {"WordLevel", wordlevel_read, wordlevel_encode},
    {"Unigram", unigram_read, unigram_encode},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* The type of a model of an old file, which does not name it: it has members of its own. */
static const char *type_of(const struct rt_json *object) {
    const struct rt_json *vocabulary = rt_json_member(object, "vocab");
    if (rt_json_member(object, "merges")) return "BPE";
    if (rt_json_member(object, "max_input_chars_per_word")) return "WordPiece";
    return vocabulary && vocabulary->kind == RT_JSON_ARRAY ? "Unigram" : "WordLevel";
}

int model_read(struct reader *reader, const struct place *place, const struct rt_json *value, struct model *model) {
    if (!value || value->kind != RT_JSON_OBJECT) return read_malformed(reader, place, "an object is needed");
    const struct place type_place = {place, "type", 0};
    const struct rt_json *member = rt_json_member(value, "type");
    const char *type = member ? rt_json_text(member) : type_of(value);
    if (!type) return read_malformed(reader, &type_place, "a string is needed");
    model->arena = reader->arena;
    vocabulary_init(&model->vocabulary, reader->arena);
    map_init(&model->cache.words, reader->arena);
    for (int i = 0; i < ROWS; i++)
        if (strcmp(type, rows[i].type) == 0) model->row = &rows[i];
    if (!model->row)
        return read_unsupported(reader, &type_place, "model %s is not known", diag_quote(reader->diags, type));
    return model->row->read(reader, place, value, model);
}

/* Appends the ids of a word that is kept; false: it is not. */
static bool find_cached(struct model *model, struct work *work, struct span word, struct token_ids *ids) {
    const int at = map_get(&model->cache.words, word.at, word.bytes);
    if (at < 0) return false;
    const int32_t *kept = &model->cache.ids.at[at];
    for (int32_t i = 1; i <= kept[0]; i++) VEC_PUSH(work->arena, ids, kept[i]);
    return true;
}

static void keep(struct model *model, struct span word, const int32_t *ids, int n) {
    if (model->cache.words.n >= MOST_CACHED || word.bytes >= MOST_CACHED_BYTES) return;
    map_put(&model->cache.words, word.at, word.bytes, model->cache.ids.n);
    VEC_PUSH(model->arena, &model->cache.ids, n);
    for (int i = 0; i < n; i++) VEC_PUSH(model->arena, &model->cache.ids, ids[i]);
}

int model_encode(struct model *model, struct work *work, struct span word, struct token_ids *ids) {
    const int first = ids->n;
    if (find_cached(model, work, word, ids)) return 0;
    if (model->row->encode(model, work, word, ids)) return -1;
    keep(model, word, ids->at + first, ids->n - first);
    return 0;
}
