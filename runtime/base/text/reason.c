#include "reason.h"

#include <stdio.h>
#include <string.h>

char *rt_plurals(char *text) {
    char *to = text;
    bool one = false, quoted = false;
    for (const char *at = text, *next; *at; at = next) {
        const size_t digits = strspn(at, "0123456789");
        const size_t letters = strncmp(at, "(s)", 3) == 0 ? 1 : strncmp(at, "(es)", 4) == 0 ? 2 : 0;
        const bool ending = letters && !quoted;
        const size_t kept = ending ? (one ? 0 : letters) : digits ? digits : 1;
        if (*at == '\'' && (quoted || at == text || at[-1] == ' ')) quoted = !quoted;
        if (digits) one = digits == 1 && *at == '1';
        next = at + (ending ? letters + 2 : kept);
        memmove(to, at + ending, kept);
        to += kept;
    }
    *to = 0;
    return text;
}

bool rt_refuse(struct rt_reason *why, const char *format, ...) {
    RT_PRINT_TO(why->text, format);
    why->kind = RT_REASON_CONTENT;
    return false;
}

bool rt_refuse_kind(struct rt_reason *why, enum rt_reason_kind kind, const char *format, ...) {
    RT_PRINT_TO(why->text, format);
    why->kind = kind;
    return false;
}

bool rt_refuse_changed(struct rt_reason *why, const char *path) {
    return rt_refuse_kind(why, RT_REASON_CHANGED, "'%s' changed while it was read", rt_quote_text(path).text);
}

bool rt_refuse_errno(struct rt_reason *why, int error, const char *format, ...) {
    char cause[96];
    RT_PRINT_TO(why->text, format);
    /* the GNU variant may return a string outside the buffer */
    const char *text = strerror_r(error, cause, sizeof cause);
    size_t length = strlen(why->text);
    snprintf(why->text + length, sizeof why->text - length, ": %s", text);
    why->kind = RT_REASON_SYSTEM;
    return false;
}

bool rt_refuse_memory(struct rt_reason *why, size_t bytes) {
    return rt_refuse_kind(why, RT_REASON_MEMORY, "out of memory (%zu bytes wanted)", bytes);
}

struct rt_report rt_reason_report(const struct rt_reason *why, struct rt_report content) {
    static const struct rt_report reports[] = {
        [RT_REASON_SYSTEM] = {601, EXIT_SYSTEM},  [RT_REASON_MISSING] = {601, EXIT_SYSTEM},
        [RT_REASON_MEMORY] = {500, EXIT_LIMIT},   [RT_REASON_CHANGED] = {604, EXIT_SYSTEM},
        [RT_REASON_LINK] = {362, EXIT_MALFORMED}, [RT_REASON_MISMATCH] = {802, EXIT_MISMATCH},
    };
    if (why->kind == RT_REASON_CONTENT) return content;
    return why->kind == RT_REASON_SYSTEM && content.exit == EXIT_SYSTEM ? content : reports[why->kind];
}

struct rt_quoted rt_quote(const char *bytes, size_t length) {
    struct rt_quoted quoted;
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        bool plain = byte >= 0x20 && byte < 0x7f && byte != '\\';
        if (used + (plain ? 1 : 4) > 120) {
            memcpy(quoted.text + used, "...", 3);
            used += 3;
            break;
        }
        if (plain)
            quoted.text[used++] = (char)byte;
        else
            used += (size_t)snprintf(quoted.text + used, sizeof quoted.text - used, "\\x%02x", byte);
    }
    quoted.text[used] = 0;
    return quoted;
}

struct rt_quoted rt_quote_text(const char *text) {
    return rt_quote(text, strlen(text));
}
