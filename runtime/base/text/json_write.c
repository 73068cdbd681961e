#include "json.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT 2

void rt_json_start(struct rt_json_writer *writer) {
    memset(writer, 0, sizeof *writer);
}

void rt_json_discard(struct rt_json_writer *writer) {
    free(writer->text);
    memset(writer, 0, sizeof *writer);
}

static bool reserve(struct rt_json_writer *writer, size_t more) {
    if (writer->failed) return false;
    if (more < writer->capacity - writer->bytes) return true; /* one byte is reserved for the NUL */
    size_t capacity = writer->capacity * 2 + more + 256;
    char *text = capacity > writer->capacity ? realloc(writer->text, capacity) : NULL;
    if (!text) {
        writer->failed = writer->out_of_memory = true;
        return false;
    }
    writer->text = text;
    writer->capacity = capacity;
    return true;
}

static void append(struct rt_json_writer *writer, const char *bytes, size_t count) {
    if (!reserve(writer, count)) return;
    memcpy(writer->text + writer->bytes, bytes, count);
    writer->bytes += count;
}

static void append_text(struct rt_json_writer *writer, const char *text) {
    append(writer, text, strlen(text));
}

static void break_line(struct rt_json_writer *writer) {
    append_text(writer, "\n");
    for (int i = 0; i < writer->depth * INDENT; i++) append(writer, " ", 1);
}

/* Writes the comma and line break that separate a member or element from the one before. */
static void separate(struct rt_json_writer *writer) {
    struct rt_json_level *level = &writer->level[writer->depth];
    if (level->filled) append_text(writer, ",");
    if (level->layout == RT_JSON_LINES)
        break_line(writer);
    else if (level->filled)
        append_text(writer, " ");
    level->filled = true;
}

/* Called before each value: checks that it may stand here (after its key in an object, once at the top) and separates
 * it. */
static void begin_value(struct rt_json_writer *writer) {
    char around = writer->depth > 0 ? writer->level[writer->depth].close : 0;
    if ((around == '}' && !writer->after_key) || (around == 0 && writer->done)) writer->failed = true;
    if (around == ']') separate(writer);
    writer->after_key = false;
    if (writer->depth == 0) writer->done = true;
}

void rt_json_open(struct rt_json_writer *writer, char bracket, enum rt_json_layout layout) {
    begin_value(writer);
    if (writer->depth == RT_JSON_DEPTH) writer->failed = true;
    if (writer->failed) return;
    if (writer->depth > 0 && writer->level[writer->depth].layout == RT_JSON_INLINE) layout = RT_JSON_INLINE;
    append(writer, &bracket, 1);
    writer->level[++writer->depth] = (struct rt_json_level){bracket == '{' ? '}' : ']', false, layout};
}

void rt_json_close(struct rt_json_writer *writer, char bracket) {
    if (writer->depth == 0 || writer->level[writer->depth].close != bracket || writer->after_key) writer->failed = true;
    if (writer->failed) return;
    struct rt_json_level level = writer->level[writer->depth--];
    if (level.filled && level.layout == RT_JSON_LINES) break_line(writer);
    append(writer, &bracket, 1);
}

/* Decodes one character; *code is 0xdc80 + the low bits for a byte that is not part of valid UTF-8. */
static size_t decode(const unsigned char *at, size_t left, unsigned *code) {
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = at[0] < 0x80 ? 1 : at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : at[0] >= 0xc0 ? 2 : 0;
    unsigned value = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    bool valid = length > 0 && length <= left && at[0] < 0xf8;
    for (size_t i = 1; valid && i < length; i++) {
        valid = (at[i] & 0xc0) == 0x80;
        value = value << 6 | (at[i] & 0x3fu);
    }
    if (valid && value >= least[length] && value <= 0x10ffff && (value < 0xd800 || value > 0xdfff)) {
        *code = value;
        return length;
    }
    *code = 0xdc00u + at[0];
    return 1;
}

static void append_escaped(struct rt_json_writer *writer, unsigned code) {
    static const char names[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    char text[16];
    const char *special = code > 0 && code < 0x80 ? strchr(meanings, (int)code) : NULL;
    int length;
    if (special)
        length = snprintf(text, sizeof text, "\\%c", names[special - meanings]);
    else if (code >= 0x20 && code < 0x7f)
        length = snprintf(text, sizeof text, "%c", (int)code);
    else if (code < 0x10000)
        length = snprintf(text, sizeof text, "\\u%04x", code);
    else
        length = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                          0xdc00 + ((code - 0x10000) & 0x3ff));
    append(writer, text, (size_t)length);
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void append_string(struct rt_json_writer *writer, const char *text, size_t bytes) {
    const unsigned char *at = (const unsigned char *)text;
    append_text(writer, "\"");
    for (size_t i = 0; i < bytes && !writer->failed;) {
        size_t plain = i;
        while (plain < bytes && is_plain(at[plain])) plain++;
        append(writer, text + i, plain - i);
        i = plain;
        if (i == bytes) break;
        unsigned code;
        i += decode(at + i, bytes - i, &code);
        append_escaped(writer, code);
    }
    append_text(writer, "\"");
}

void rt_json_key_bytes(struct rt_json_writer *writer, const char *key, size_t bytes) {
    if (writer->depth == 0 || writer->level[writer->depth].close != '}' || writer->after_key) writer->failed = true;
    if (writer->failed) return;
    separate(writer);
    append_string(writer, key, bytes);
    append_text(writer, ": ");
    writer->after_key = true;
}

void rt_json_key(struct rt_json_writer *writer, const char *key) {
    rt_json_key_bytes(writer, key, strlen(key));
}

static void put_word(struct rt_json_writer *writer, const char *word) {
    begin_value(writer);
    append_text(writer, word);
}

void rt_json_put_null(struct rt_json_writer *writer) {
    put_word(writer, "null");
}
void rt_json_put_bool(struct rt_json_writer *writer, bool value) {
    put_word(writer, value ? "true" : "false");
}

void rt_json_put_int(struct rt_json_writer *writer, int64_t value) {
    char text[24], *at = text + sizeof text - 1;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    *at = 0;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *--at = '-';
    put_word(writer, at);
}

/* printf and strtod use the locale's decimal point; files have a point. */
static void format_real(char *text, size_t room, double value) {
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, room, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    if (!c_locale) return;
    uselocale(before);
    freelocale(c_locale);
}

void rt_json_put_real(struct rt_json_writer *writer, double value) {
    char text[40];
    if (!isfinite(value)) {
        rt_json_put_null(writer);
        return;
    }
    format_real(text, sizeof text - 2, value);
    if (!strpbrk(text, ".e")) strcat(text, ".0"); /* so that it parses as real, not as integer */
    put_word(writer, text);
}

void rt_json_put_bytes(struct rt_json_writer *writer, const char *text, size_t bytes) {
    begin_value(writer);
    append_string(writer, text, bytes);
}

void rt_json_put_text(struct rt_json_writer *writer, const char *text) {
    if (text)
        rt_json_put_bytes(writer, text, strlen(text));
    else
        rt_json_put_null(writer);
}

void rt_json_put_dims(struct rt_json_writer *writer, const int64_t *dims, int ndim) {
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int i = 0; i < ndim; i++) rt_json_put_int(writer, dims[i]);
    rt_json_close(writer, ']');
}

bool rt_json_end(struct rt_json_writer *writer, struct rt_reason *why) {
    if (writer->depth != 0 || !writer->done) writer->failed = true;
    append_text(writer, "\n");
    if (writer->failed && writer->out_of_memory) return rt_refuse_memory(why, writer->capacity);
    if (writer->failed) return rt_refuse(why, "JSON values are not nested correctly");
    writer->text[writer->bytes] = 0;
    return true;
}

bool rt_json_end_to(struct rt_json_writer *writer, FILE *out) {
    struct rt_reason why;
    const bool ok = rt_json_end(writer, &why) && fwrite(writer->text, 1, writer->bytes, out) == writer->bytes;
    rt_json_discard(writer);
    return ok;
}

void rt_json_key_open(struct rt_json_writer *writer, const char *key, char bracket, enum rt_json_layout layout) {
    rt_json_key(writer, key);
    rt_json_open(writer, bracket, layout);
}

void rt_json_key_bool(struct rt_json_writer *writer, const char *key, bool value) {
    rt_json_key(writer, key);
    rt_json_put_bool(writer, value);
}

void rt_json_key_int(struct rt_json_writer *writer, const char *key, int64_t value) {
    rt_json_key(writer, key);
    rt_json_put_int(writer, value);
}

void rt_json_key_real(struct rt_json_writer *writer, const char *key, double value) {
    rt_json_key(writer, key);
    rt_json_put_real(writer, value);
}

void rt_json_key_text(struct rt_json_writer *writer, const char *key, const char *text) {
    rt_json_key(writer, key);
    rt_json_put_text(writer, text);
}

void rt_json_key_dims(struct rt_json_writer *writer, const char *key, const int64_t *dims, int ndim) {
    rt_json_key(writer, key);
    rt_json_put_dims(writer, dims, ndim);
}
