/* Why something was refused: one line of text, made where the cause is known and printed where the user is.
 *
 * Functions of base/ that can refuse their input take a `struct rt_reason *` (never NULL), return false (or NULL)
 * and leave the text there. Text from a file never reaches it unquoted: see rt_quote(). */
#ifndef RT_BASE_REASON_H
#define RT_BASE_REASON_H

#include <stdbool.h>
#include <stddef.h>

enum rt_reason_kind {
    RT_REASON_CONTENT, /* the bytes are wrong */
    RT_REASON_SYSTEM,  /* the file or the operating system */
    RT_REASON_MEMORY,
    RT_REASON_CHANGED,  /* the file was cut or written to while it was read */
    RT_REASON_LINK,     /* a link where none is followed */
    RT_REASON_MISMATCH, /* the file is not as rankc wrote it: E0802, exit 8 */
};

struct rt_reason {
    enum rt_reason_kind kind;
    char text[320];
};

/* Formats the text; always false, so that a function can end with `return rt_refuse(...)`. */
bool rt_refuse(struct rt_reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Same, of kind RT_REASON_SYSTEM, with ": " and strerror(error) added. */
bool rt_refuse_errno(struct rt_reason *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Same, for memory that could not be had. */
bool rt_refuse_memory(struct rt_reason *why, size_t bytes);

#define RT_QUOTE_BYTES 128

/* Bytes of unknown origin as printable ASCII: others become \xNN, and what is longer than 120 characters is cut. */
struct rt_quoted {
    char text[RT_QUOTE_BYTES];
};
struct rt_quoted rt_quote(const char *bytes, size_t length);
struct rt_quoted rt_quote_text(const char *text);

#endif
