#include "ir/base/str.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/text/diagnostic.h"

void strbuf_init(struct strbuf *buffer, struct arena *arena) {
    *buffer = (struct strbuf){.arena = arena};
}

static void reserve(struct strbuf *buffer, size_t more) {
    size_t need = buffer->length + more + 1;
    if (need <= buffer->capacity) return;
    size_t capacity = buffer->capacity ? buffer->capacity * 2 : 128;
    if (capacity < need) capacity = need;
    char *text = arena_alloc(buffer->arena, capacity, 1);
    if (buffer->length) memcpy(text, buffer->text, buffer->length);
    buffer->text = text;
    buffer->capacity = capacity;
}

void strbuf_add(struct strbuf *buffer, const char *bytes, size_t length) {
    reserve(buffer, length);
    if (length) memcpy(buffer->text + buffer->length, bytes, length);
    buffer->length += length;
    buffer->text[buffer->length] = 0;
}

void strbuf_puts(struct strbuf *buffer, const char *text) {
    strbuf_add(buffer, text, strlen(text));
}
void strbuf_putc(struct strbuf *buffer, char c) {
    strbuf_add(buffer, &c, 1);
}

void strbuf_printf(struct strbuf *buffer, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    reserve(buffer, 0);
    const size_t room = buffer->capacity - buffer->length;
    const int length = vsnprintf(buffer->text + buffer->length, room, format, args);
    if (length > 0) {
        reserve(buffer, (size_t)length);
        if ((size_t)length >= room) vsnprintf(buffer->text + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

void strbuf_put_int(struct strbuf *buffer, int64_t value) {
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0) *--at = '-';
    strbuf_add(buffer, at, (size_t)(digits + sizeof digits - at));
}

void strbuf_quote(struct strbuf *buffer, const char *text) {
    strbuf_putc(buffer, '"');
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            strbuf_printf(buffer, "\\x%02x", c);
        else
            strbuf_putc(buffer, (char)c);
    }
    strbuf_putc(buffer, '"');
}

void strbuf_shell(struct strbuf *buffer, const char *word) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,+@%-";
    if (*word && !word[strspn(word, plain)]) {
        strbuf_puts(buffer, word);
        return;
    }
    strbuf_putc(buffer, '\'');
    for (; *word; word++)
        if (*word == '\'')
            strbuf_puts(buffer, "'\\''");
        else
            strbuf_putc(buffer, *word);
    strbuf_putc(buffer, '\'');
}

const char *strbuf_text(const struct strbuf *buffer) {
    return buffer->text ? buffer->text : "";
}

static bool is_printable(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '\\';
}

char *str_escape(struct arena *arena, const char *bytes, size_t length, size_t limit) {
    size_t printable = 0;
    while (printable < length && is_printable((unsigned char)bytes[printable])) printable++;
    if (printable == length && (!limit || length <= limit)) return arena_copy(arena, bytes, length);
    struct strbuf out = {.arena = arena};
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool plain = is_printable(c);
        if (limit && out.length + (plain ? 1 : 4) > limit) {
            strbuf_puts(&out, "...");
            break;
        }
        if (plain)
            strbuf_putc(&out, (char)c);
        else
            strbuf_printf(&out, "\\x%02x", c);
    }
    return arena_strdup(arena, strbuf_text(&out));
}

char *str_name(struct arena *arena, const char *name) {
    enum { SHOWN = 120 };
    return str_escape(arena, name, strlen(name), SHOWN);
}

static bool in_filename(unsigned char c) {
    return isalnum(c) || c == '_' || c == '.' || c == '-';
}

char *str_filename(struct arena *arena, const char *bytes, size_t length) {
    char *name = arena_copy(arena, bytes, length);
    for (size_t i = 0; i < length; i++)
        if (!in_filename((unsigned char)name[i])) name[i] = '_';
    return name;
}

bool str_is_plain(const char *text) {
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("_./:-", *text)) return false;
    return true;
}

const char *str_nearest(const char *word, const char *const *names) {
    int count = 0;
    while (names[count]) count++;
    return rt_nearest(word, names, count);
}
