#define _GNU_SOURCE 1

#include "json.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT 2

void rt_json_start(struct rt_json_writer *w) {
    memset(w, 0, sizeof *w);
}

void rt_json_discard(struct rt_json_writer *w) {
    free(w->text);
    memset(w, 0, sizeof *w);
}

static bool reserve(struct rt_json_writer *w, size_t more) {
    if (w->failed) return false;
    if (more < w->capacity - w->bytes) return true; /* one byte stays for the NUL */
    size_t capacity = w->capacity * 2 + more + 256;
    char *text = capacity > w->capacity ? realloc(w->text, capacity) : NULL;
    if (!text) {
        w->failed = w->out_of_memory = true;
        return false;
    }
    w->text = text;
    w->capacity = capacity;
    return true;
}

static void append(struct rt_json_writer *w, const char *bytes, size_t count) {
    if (!reserve(w, count)) return;
    memcpy(w->text + w->bytes, bytes, count);
    w->bytes += count;
}

static void append_text(struct rt_json_writer *w, const char *text) {
    append(w, text, strlen(text));
}

static void break_line(struct rt_json_writer *w) {
    append_text(w, "\n");
    for (int i = 0; i < w->depth * INDENT; i++) append(w, " ", 1);
}

/* What goes before a member or element: the comma and the line break of the container around it. */
static void separate(struct rt_json_writer *w) {
    struct rt_json_level *level = &w->level[w->depth];
    if (level->filled) append_text(w, ",");
    if (level->layout == RT_JSON_LINES)
        break_line(w);
    else if (level->filled)
        append_text(w, " ");
    level->filled = true;
}

/* Every value goes through here: after its key in an object, separated in an array, once at the top. */
static void begin_value(struct rt_json_writer *w) {
    char around = w->depth > 0 ? w->level[w->depth].close : 0;
    if ((around == '}' && !w->after_key) || (around == 0 && w->done)) w->failed = true;
    if (around == ']') separate(w);
    w->after_key = false;
    if (w->depth == 0) w->done = true;
}

void rt_json_open(struct rt_json_writer *w, char bracket, enum rt_json_layout layout) {
    begin_value(w);
    if (w->depth == RT_JSON_DEPTH) w->failed = true;
    if (w->failed) return;
    if (w->depth > 0 && w->level[w->depth].layout == RT_JSON_INLINE) layout = RT_JSON_INLINE;
    append(w, &bracket, 1);
    w->level[++w->depth] = (struct rt_json_level){bracket == '{' ? '}' : ']', false, layout};
}

void rt_json_close(struct rt_json_writer *w, char bracket) {
    if (w->depth == 0 || w->level[w->depth].close != bracket || w->after_key) w->failed = true;
    if (w->failed) return;
    struct rt_json_level level = w->level[w->depth--];
    if (level.filled && level.layout == RT_JSON_LINES) break_line(w);
    append(w, &bracket, 1);
}

/* Strings */

/* Decodes one character; *code is it, or 0xdc80 + the byte's low bits for a byte that is not part of valid UTF-8.
 */
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

static void append_escaped(struct rt_json_writer *w, unsigned code) {
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
    append(w, text, (size_t)length);
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void append_string(struct rt_json_writer *w, const char *text, size_t bytes) {
    const unsigned char *at = (const unsigned char *)text;
    append_text(w, "\"");
    for (size_t i = 0; i < bytes && !w->failed;) {
        size_t plain = i;
        while (plain < bytes && is_plain(at[plain])) plain++;
        append(w, text + i, plain - i);
        i = plain;
        if (i == bytes) break;
        unsigned code;
        i += decode(at + i, bytes - i, &code);
        append_escaped(w, code);
    }
    append_text(w, "\"");
}

void rt_json_key_bytes(struct rt_json_writer *w, const char *key, size_t bytes) {
    if (w->depth == 0 || w->level[w->depth].close != '}' || w->after_key) w->failed = true;
    if (w->failed) return;
    separate(w);
    append_string(w, key, bytes);
    append_text(w, ": ");
    w->after_key = true;
}

void rt_json_key(struct rt_json_writer *w, const char *key) {
    rt_json_key_bytes(w, key, strlen(key));
}

/* Values */

static void put_word(struct rt_json_writer *w, const char *word) {
    begin_value(w);
    append_text(w, word);
}

void rt_json_put_null(struct rt_json_writer *w) {
    put_word(w, "null");
}
void rt_json_put_bool(struct rt_json_writer *w, bool value) {
    put_word(w, value ? "true" : "false");
}

void rt_json_put_int(struct rt_json_writer *w, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_word(w, text);
}

/* printf and strtod take the decimal point of the thread's locale; files have a point. */
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

void rt_json_put_real(struct rt_json_writer *w, double value) {
    char text[40];
    if (!isfinite(value)) {
        rt_json_put_null(w);
        return;
    }
    format_real(text, sizeof text - 2, value);
    if (!strpbrk(text, ".e")) strcat(text, ".0"); /* read back as real, not as integer */
    put_word(w, text);
}

void rt_json_put_bytes(struct rt_json_writer *w, const char *text, size_t bytes) {
    begin_value(w);
    append_string(w, text, bytes);
}

void rt_json_put_text(struct rt_json_writer *w, const char *text) {
    if (text)
        rt_json_put_bytes(w, text, strlen(text));
    else
        rt_json_put_null(w);
}

void rt_json_put_dims(struct rt_json_writer *w, const int64_t *dims, int ndim) {
    rt_json_open(w, '[', RT_JSON_INLINE);
    for (int i = 0; i < ndim; i++) rt_json_put_int(w, dims[i]);
    rt_json_close(w, ']');
}

bool rt_json_end(struct rt_json_writer *w, struct rt_reason *why) {
    if (w->depth != 0 || !w->done) w->failed = true;
    append_text(w, "\n");
    if (w->failed && w->out_of_memory) return rt_refuse_memory(why, w->capacity);
    if (w->failed) return rt_refuse(why, "JSON values written do not nest");
    w->text[w->bytes] = 0;
    return true;
}
