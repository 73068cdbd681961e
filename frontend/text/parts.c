#include "frontend/text/parts.h"

#include <string.h>

#include "ir/base/str.h"

/* "post_processor.special_tokens.<s>.ids[0]" */
static void put_place(struct strbuf *buffer, const struct place *place) {
    if (!place) return;
    put_place(buffer, place->above);
    if (place->key)
        strbuf_printf(buffer, "%s%s", buffer->length ? "." : "", place->key);
    else
        strbuf_printf(buffer, "[%lld]", (long long)place->index);
}

static int report(struct reader *reader, int code, enum exit_code exit, const struct place *place, const char *text) {
    struct strbuf where = {.arena = reader->arena};
    put_place(&where, place);
    const char *at = str_escape(reader->arena, strbuf_text(&where), where.length, 200);
    const char *joined = *at ? arena_printf(reader->arena, "%s: %s", reader->path, at) : reader->path;
    return diag_error(reader->diags, code, exit, joined, "%s", text);
}

int read_malformed(struct reader *reader, const struct place *place, const char *format, ...) {
    const char *text;
    ARENA_PRINT_TO(text, reader->arena, format);
    return report(reader, 397, EXIT_MALFORMED, place, text);
}

int read_unsupported(struct reader *reader, const struct place *place, const char *format, ...) {
    const char *text;
    ARENA_PRINT_TO(text, reader->arena, format);
    return report(reader, 440, EXIT_UNSUPPORTED, place, text);
}

int read_text(struct reader *reader, const struct place *place, const struct rt_json *value, struct span *text) {
    if (!value || value->kind != RT_JSON_STRING) return read_malformed(reader, place, "a string is needed");
    const struct span bytes = {value->text, (size_t)value->count};
    if (!utf8_is_valid(bytes)) return read_malformed(reader, place, "the string is not UTF-8");
    *text = (struct span){arena_copy(reader->arena, bytes.at, bytes.bytes), bytes.bytes};
    return 0;
}

static int read_character(struct reader *reader, const struct place *place, const struct rt_json *value,
                          struct span *text) {
    if (read_text(reader, place, value, text)) return -1;
    return utf8_count(*text) == 1 ? 0 : read_malformed(reader, place, "one character is needed");
}

static int read_switch(struct reader *reader, const struct place *place, const struct rt_json *value, int *choice) {
    bool given;
    if (!rt_json_bool(value, &given)) return read_malformed(reader, place, "true or false is needed");
    *choice = given;
    return 0;
}

static int read_choice(struct reader *reader, const struct place *place, const struct rt_json *value,
                       const struct field *field, int *choice) {
    const char *word = rt_json_text(value);
    if (!word) return read_malformed(reader, place, "a string is needed");
    for (int i = 0; field->words[i]; i++)
        if (strcmp(word, field->words[i]) == 0) return *choice = i, 0;
    return read_unsupported(reader, place, "unknown word %s", diag_quote(reader->diags, word));
}

static int read_pattern(struct reader *reader, const struct place *place, const struct rt_json *value,
                        struct pattern **pattern) {
    const struct rt_json *member = value && value->kind == RT_JSON_OBJECT ? value->first : NULL;
    struct span text;
    const char *why = NULL;
    if (!member || member->next) return read_malformed(reader, place, "{\"Regex\": ..} or {\"String\": ..} is needed");
    const struct place below = {place, member->key, 0};
    const bool expression = strcmp(member->key, "Regex") == 0;
    if (!expression && strcmp(member->key, "String") != 0)
        return read_unsupported(reader, &below, "unknown kind of pattern");
    if (read_text(reader, &below, member, &text)) return -1;
    if (!text.bytes) return read_unsupported(reader, &below, "an empty pattern");
    *pattern = expression ? pattern_of_expression(reader->arena, text, &why) : pattern_of_text(reader->arena, text);
    return *pattern ? 0 : read_unsupported(reader, &below, "this regular expression: %s", why);
}

static int read_field(struct reader *reader, const struct place *place, const struct rt_json *value,
                      const struct field *field, void *base) {
    void *const to = (char *)base + field->offset;
    const bool missing = !value || value->kind == RT_JSON_NULL;
    switch (field->kind) {
    case FIELD_IGNORED:
    case FIELD_PARTS: return 0;
    case FIELD_BOOL:
        *(bool *)to = field->otherwise != 0;
        return missing || rt_json_bool(value, to) ? 0 : read_malformed(reader, place, "true or false is needed");
    case FIELD_SWITCH: return missing ? (*(int *)to = field->otherwise, 0) : read_switch(reader, place, value, to);
    case FIELD_CHOICE: *(int *)to = field->otherwise; return missing ? 0 : read_choice(reader, place, value, field, to);
    case FIELD_COUNT:
        *(int64_t *)to = field->otherwise;
        return missing || (rt_json_int(value, to) && *(int64_t *)to >= 0)
                   ? 0
                   : read_malformed(reader, place, "an integer of 0 or more is needed");
    case FIELD_TEXT: return missing ? 0 : read_text(reader, place, value, to);
    case FIELD_CHARACTER: return missing ? 0 : read_character(reader, place, value, to);
    case FIELD_PATTERN: return missing ? 0 : read_pattern(reader, place, value, to);
    }
    return 0;
}

static bool is_known(const struct field *fields, const struct rt_json *member) {
    if (strcmp(member->key, "type") == 0) return true;
    for (int i = 0; fields[i].key; i++)
        if (strcmp(fields[i].key, member->key) == 0) return true;
    return false;
}

int read_fields(struct reader *reader, const struct place *place, const struct rt_json *object,
                const struct field *fields, void *base) {
    for (const struct rt_json *member = object->first; member; member = member->next) {
        const struct place below = {place, member->key, 0};
        if (!is_known(fields, member)) return read_unsupported(reader, &below, "this member is not known");
    }
    for (int i = 0; fields[i].key; i++) {
        const struct place below = {place, fields[i].key, 0};
        const struct rt_json *value = rt_json_member(object, fields[i].key);
        if (!fields[i].optional && (!value || value->kind == RT_JSON_NULL))
            return read_malformed(reader, &below, "this member is missing");
        if (read_field(reader, &below, value, &fields[i], base)) return -1;
    }
    return 0;
}

static const struct part_row *find_row(const struct part_row *rows, int nrows, const char *type) {
    for (int i = 0; i < nrows; i++)
        if (strcmp(rows[i].type, type) == 0) return &rows[i];
    return NULL;
}

static int read_sequence(struct reader *reader, const struct place *place, const struct rt_json *list,
                         const struct part_row *rows, int nrows, const char *of, struct parts *parts) {
    int64_t index = 0;
    if (list->kind != RT_JSON_ARRAY) return read_malformed(reader, place, "a list is needed");
    for (const struct rt_json *element = list->first; element; element = element->next) {
        const struct place below = {place, NULL, index++};
        if (element->kind == RT_JSON_NULL) return read_malformed(reader, &below, "an object is needed");
        if (read_parts(reader, &below, element, rows, nrows, of, parts)) return -1;
    }
    return 0;
}

int read_parts(struct reader *reader, const struct place *place, const struct rt_json *value,
               const struct part_row *rows, int nrows, const char *of, struct parts *parts) {
    if (!value || value->kind == RT_JSON_NULL) return 0;
    if (value->kind != RT_JSON_OBJECT) return read_malformed(reader, place, "an object is needed");
    const struct place type_place = {place, "type", 0};
    const char *type = rt_json_text(rt_json_member(value, "type")), *why = NULL;
    if (!type) return read_malformed(reader, &type_place, "this member is missing, or no string");
    struct part part = {.row = find_row(rows, nrows, type)};
    if (!part.row)
        return read_unsupported(reader, &type_place, "%s %s is not known", of, diag_quote(reader->diags, type));
    if (read_fields(reader, place, value, part.row->fields, &part)) return -1;
    const struct field *field = &part.row->fields[0];
    if (field->kind == FIELD_PARTS && field->key) {
        const struct place below = {place, field->key, 0};
        return read_sequence(reader, &below, rt_json_member(value, field->key), rows, nrows, of, parts);
    }
    const char *expression = part.row->expression;
    if (expression) {
        part.pattern = pattern_of_expression(reader->arena, (struct span){expression, strlen(expression)}, &why);
        if (!part.pattern) return read_unsupported(reader, place, "its regular expression: %s", why);
    }
    if (part.row->check && part.row->check(reader, place, &part)) return -1;
    VEC_PUSH(reader->arena, parts, part);
    return 0;
}

/* Bytes as characters: those that print, and for the others, in order, those from U+0100 on (GPT-2's encoder.py,
 * bytes_to_unicode). */

static int32_t character_of(int byte) {
    if (byte <= ' ') return 0x100 + byte;
    if (byte >= 0x7f && byte <= 0xa0) return 0x121 + byte - 0x7f;
    return byte == 0xad ? 0x143 : byte;
}

int byte_to_character(unsigned char byte, char to[2]) {
    const int32_t code = character_of(byte);
    if (code < 0x80) return to[0] = (char)code, 1;
    to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

int character_to_byte(int32_t code) {
    const int32_t byte = code < 0x100    ? code
                         : code <= 0x120 ? code - 0x100
                         : code <= 0x142 ? code - 0x121 + 0x7f
                                         : 0xad;
    return byte < 0x100 && character_of(byte) == code ? byte : -1;
}
