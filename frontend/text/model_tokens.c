/* What models share. */
#include "frontend/text/model.h"

#include <stdio.h>

int model_read_vocabulary(struct reader *reader, const struct place *place, const struct rt_json *object,
                          struct model *model) {
    const struct place below = {place, "vocab", 0};
    const struct rt_json *list = rt_json_member(object, "vocab");
    if (!list || list->kind != RT_JSON_OBJECT) return read_malformed(reader, &below, "an object is needed");
    for (const struct rt_json *token = list->first; token; token = token->next) {
        const struct place at = {&below, token->key, 0};
        const struct span text = {token->key, token->key_bytes};
        int64_t id;
        if (!utf8_is_valid(text)) return read_malformed(reader, &at, "the token is not UTF-8");
        if (text.bytes > MOST_TOKEN_BYTES)
            return read_unsupported(reader, &at, "a token longer than %d bytes", MOST_TOKEN_BYTES);
        if (!rt_json_int(token, &id) || id < 0) return read_malformed(reader, &at, "an id is needed");
        if (id >= MOST_IDS) return read_unsupported(reader, &at, "an id of %d or more", MOST_IDS);
        if (vocabulary_text(&model->vocabulary, (int32_t)id))
            return read_malformed(reader, &at, "id %d is given twice", (int)id);
        vocabulary_add(&model->vocabulary, text, (int32_t)id);
    }
    model->size = model->vocabulary.ids.n;
    return 0;
}

bool model_put_bytes(const struct model *model, struct work *work, struct span text, struct token_ids *ids) {
    const int first = ids->n;
    for (size_t i = 0; i < text.bytes; i++) {
        char name[8];
        const int length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)(unsigned char)text.at[i]);
        const int32_t id = vocabulary_id(&model->vocabulary, (struct span){name, (size_t)length});
        if (id < 0) return ids->n = first, false;
        VEC_PUSH(work->arena, ids, id);
    }
    return true;
}

int model_refuse(struct work *work, struct span text) {
    return diag_error(work->diags, 397, EXIT_MALFORMED, work->path,
                      "the model has no token for '%s', and no unknown token",
                      str_escape(work->arena, text.at, text.bytes, 80));
}
