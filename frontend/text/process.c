#include "frontend/text/process.h"

#include <string.h>

typedef int process_fn(struct reader *reader, const struct place *place, const struct rt_json *value,
                       struct frame *frame);

static int read_id(struct reader *reader, const struct place *place, const struct rt_json *value, int32_t *id) {
    int64_t read;
    if (!rt_json_int(value, &read) || read < 0 || read >= MOST_IDS)
        return read_malformed(reader, place, "an id is needed");
    *id = (int32_t)read;
    return 0;
}

static void put_item(struct reader *reader, bool text, int32_t id, struct frame *frame) {
    VEC_PUSH(reader->arena, frame, (struct frame_item){text, id});
}

/* Member `key` of a post-processor: a token and its id. */
static int put_pair(struct reader *reader, const struct place *place, const struct rt_json *object, const char *key,
                    struct frame *frame) {
    const struct place below = {place, key, 0};
    const struct rt_json *pair = rt_json_member(object, key);
    int32_t id = 0;
    if (!pair || pair->kind != RT_JSON_ARRAY || pair->count != 2)
        return read_malformed(reader, &below, "a token and its id are needed");
    if (read_id(reader, &below, pair->first->next, &id)) return -1;
    put_item(reader, false, id, frame);
    return 0;
}

static int read_bert(struct reader *reader, const struct place *place, const struct rt_json *value,
                     struct frame *frame) {
    if (put_pair(reader, place, value, "cls", frame)) return -1;
    put_item(reader, true, 0, frame);
    return put_pair(reader, place, value, "sep", frame);
}

/* The ids of a special token of a template. */
static int put_special(struct reader *reader, const struct place *place, const struct rt_json *value,
                       const struct rt_json *tokens, struct frame *frame) {
    const char *name = rt_json_text(rt_json_member(value, "id"));
    const struct rt_json *token = name ? rt_json_member(tokens, name) : NULL, *ids = rt_json_member(token, "ids");
    if (!ids || ids->kind != RT_JSON_ARRAY)
        return read_malformed(reader, place, "a token that special_tokens does not have");
    for (const struct rt_json *element = ids->first; element; element = element->next) {
        int32_t id = 0;
        if (read_id(reader, place, element, &id)) return -1;
        put_item(reader, false, id, frame);
    }
    return 0;
}

static int put_template_item(struct reader *reader, const struct place *place, const struct rt_json *item,
                             const struct rt_json *tokens, struct frame *frame) {
    const struct rt_json *member = item->kind == RT_JSON_OBJECT ? item->first : NULL;
    if (!member || member->next) return read_malformed(reader, place, "an object with one member is needed");
    const struct place below = {place, member->key, 0};
    if (strcmp(member->key, "SpecialToken") == 0) return put_special(reader, &below, member, tokens, frame);
    if (strcmp(member->key, "Sequence") != 0) return read_unsupported(reader, &below, "this member is not known");
    const char *id = rt_json_text(rt_json_member(member, "id"));
    if (!id || strcmp(id, "A") != 0) return read_malformed(reader, &below, "a text other than A");
    put_item(reader, true, 0, frame);
    return 0;
}

static int read_template(struct reader *reader, const struct place *place, const struct rt_json *value,
                         struct frame *frame) {
    const struct place single = {place, "single", 0};
    const struct rt_json *list = rt_json_member(value, "single"), *tokens = rt_json_member(value, "special_tokens");
    int64_t index = 0;
    if (!list || list->kind != RT_JSON_ARRAY || !list->first)
        return read_malformed(reader, &single, "a list is needed");
    for (const struct rt_json *item = list->first; item; item = item->next) {
        const struct place at = {&single, NULL, index++};
        if (put_template_item(reader, &at, item, tokens, frame)) return -1;
    }
    return 0;
}

/* ByteLevel changes offsets alone. */
static int read_byte_level(struct reader *reader, const struct place *place, const struct rt_json *value,
                           struct frame *frame) {
    (void)reader, (void)place, (void)value, (void)frame;
    return 0;
}

static const struct process_row {
    const char *type;
    process_fn *read;
    struct field fields[MOST_FIELDS];
} rows[] = {
    {"BertProcessing", read_bert, {{"sep", FIELD_IGNORED}, {"cls", FIELD_IGNORED}}},
    {"ByteLevel",
     read_byte_level,
     {{"add_prefix_space", FIELD_IGNORED, .optional = true},
      {"trim_offsets", FIELD_IGNORED, .optional = true},
      {"use_regex", FIELD_IGNORED, .optional = true}}},
    {"RobertaProcessing",
     read_bert,
     {{"sep", FIELD_IGNORED},
      {"cls", FIELD_IGNORED},
      {"trim_offsets", FIELD_IGNORED, .optional = true},
      {"add_prefix_space", FIELD_IGNORED, .optional = true}}},
    {"TemplateProcessing",
     read_template,
     {{"single", FIELD_IGNORED}, {"pair", FIELD_IGNORED, .optional = true}, {"special_tokens", FIELD_IGNORED}}},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int read_one(struct reader *reader, const struct place *place, const struct rt_json *value, const char *type,
                    struct frame *frame) {
    const struct place type_place = {place, "type", 0};
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].type, type) != 0) continue;
        if (read_fields(reader, place, value, rows[i].fields, NULL)) return -1;
        if (frame->n && rows[i].read != read_byte_level)
            return read_unsupported(reader, place, "a second post-processor with special tokens");
        return rows[i].read(reader, place, value, frame);
    }
    return read_unsupported(reader, &type_place, "post-processor %s is not known", diag_quote(reader->diags, type));
}

int frame_read(struct reader *reader, const struct place *place, const struct rt_json *value, struct frame *frame) {
    static const struct field sequence[] = {{"processors", FIELD_IGNORED}, {NULL}};
    const struct place list_place = {place, "processors", 0}, type_place = {place, "type", 0};
    int64_t index = 0;
    if (!value || value->kind == RT_JSON_NULL) return 0;
    if (value->kind != RT_JSON_OBJECT) return read_malformed(reader, place, "an object is needed");
    const char *type = rt_json_text(rt_json_member(value, "type"));
    if (!type) return read_malformed(reader, &type_place, "this member is missing, or no string");
    if (strcmp(type, "Sequence") != 0) return read_one(reader, place, value, type, frame);
    if (read_fields(reader, place, value, sequence, NULL)) return -1;
    const struct rt_json *list = rt_json_member(value, "processors");
    if (list->kind != RT_JSON_ARRAY) return read_malformed(reader, &list_place, "a list is needed");
    for (const struct rt_json *element = list->first; element; element = element->next) {
        const struct place at = {&list_place, NULL, index++};
        if (frame_read(reader, &at, element, frame)) return -1;
    }
    return 0;
}

static void put_ids(struct arena *arena, const struct token_ids *from, struct token_ids *ids) {
    for (int i = 0; i < from->n; i++) VEC_PUSH(arena, ids, from->at[i]);
}

void frame_put(const struct frame *frame, struct arena *arena, const struct token_ids *text, bool special,
               struct token_ids *ids) {
    if (!frame->n) put_ids(arena, text, ids);
    for (int i = 0; i < frame->n; i++) {
        if (frame->at[i].text)
            put_ids(arena, text, ids);
        else if (special)
            VEC_PUSH(arena, ids, frame->at[i].id);
    }
}
