/* The reason why a function refused its input: one line of text.
 *
 * Functions of base/ that can refuse their input take a `struct rt_reason *` (never NULL), return false (or NULL) and
 * leave the text there; the caller prints it. Text from a file is always quoted first: rt_quote(). */
#ifndef RT_BASE_REASON_H
#define RT_BASE_REASON_H

#include "../exit_code.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum rt_reason_kind {
    RT_REASON_CONTENT, /* malformed content */
    RT_REASON_SYSTEM,  /* error of the file or operating system */
    RT_REASON_MISSING, /* one of several files that belong together is missing; reported like RT_REASON_SYSTEM */
    RT_REASON_MEMORY,
    RT_REASON_CHANGED,  /* the file was truncated or written to while it was read */
    RT_REASON_LINK,     /* a link where links are not followed */
    RT_REASON_MISMATCH, /* the file is not as rankc wrote it: E0802, exit 8 */
};

struct rt_reason {
    enum rt_reason_kind kind;
    char text[320];
};

/* What messages call after formatting: "(s)" and "(es)" behind a word become the ending that the number before it
 * needs, in place, so that "1 node(s)" is "1 node" and "3 batch(es)" is "3 batches". Quoted names stay as they are.
 * Returns the text. */
char *rt_plurals(char *text);

/* In a function (.., const char *format, ...): writes the text of a message to an array of characters. */
#define RT_PRINT_TO(array, format)                                                                                     \
    do {                                                                                                               \
        va_list rt_arguments;                                                                                          \
        va_start(rt_arguments, format);                                                                                \
        vsnprintf(array, sizeof(array), format, rt_arguments);                                                         \
        rt_plurals(array);                                                                                             \
        va_end(rt_arguments);                                                                                          \
    } while (0)

/* Formats the text; returns false, so that a function can end with `return rt_refuse(...)`. */
bool rt_refuse(struct rt_reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, of another kind. */
bool rt_refuse_kind(struct rt_reason *why, enum rt_reason_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, of kind RT_REASON_CHANGED: the file `path` changed while it was read. */
bool rt_refuse_changed(struct rt_reason *why, const char *path);

/* The same, of kind RT_REASON_SYSTEM, with ": " and strerror(error) appended. */
bool rt_refuse_errno(struct rt_reason *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same, of kind RT_REASON_MEMORY: an allocation of `bytes` bytes failed. */
bool rt_refuse_memory(struct rt_reason *why, size_t bytes);

/* How an error is reported: the number of its E code, and the exit code of the command. */
struct rt_report {
    int code;
    enum exit_code exit;
};

/* The report of a refusal: E0601 for RT_REASON_SYSTEM, E0500 for RT_REASON_MEMORY, E0604 for RT_REASON_CHANGED, E0362
 * for RT_REASON_LINK, E0802 for RT_REASON_MISMATCH, and `content`, which the caller chooses, for RT_REASON_CONTENT. If
 * the caller reports malformed content with EXIT_SYSTEM too, its code serves RT_REASON_SYSTEM as well. */
struct rt_report rt_reason_report(const struct rt_reason *why, struct rt_report content);

#define RT_QUOTE_BYTES 128

/* Untrusted bytes as printable ASCII: other bytes become \xNN; cut at 120 characters. */
struct rt_quoted {
    char text[RT_QUOTE_BYTES];
};
struct rt_quoted rt_quote(const char *bytes, size_t length);
struct rt_quoted rt_quote_text(const char *text);

#endif
