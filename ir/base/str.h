/* String buffers that grow in an arena, and helpers for text. A buffer is NUL-terminated after every append. */
#ifndef IR_BASE_STR_H
#define IR_BASE_STR_H

#include <stdbool.h>

#include "ir/base/arena.h"

struct strbuf {
    struct arena *arena;
    char *text; /* NULL until the first append */
    size_t length, capacity;
};

/* An empty buffer; the others append to it. */
void strbuf_init(struct strbuf *buffer, struct arena *arena);
void strbuf_add(struct strbuf *buffer, const char *bytes, size_t length);
void strbuf_puts(struct strbuf *buffer, const char *text);
void strbuf_putc(struct strbuf *buffer, char c);
void strbuf_printf(struct strbuf *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends the decimal digits of the value, for texts of which there are too many for strbuf_printf. */
void strbuf_put_int(struct strbuf *buffer, int64_t value);
/* Appends the word as a shell reads it: in single quotes unless all its characters are plain. */
void strbuf_shell(struct strbuf *buffer, const char *word);
/* Appends the text in quotes: quotes, backslashes and what is not printable become \xNN. */
void strbuf_quote(struct strbuf *buffer, const char *text);
/* The text so far, "" when empty. Valid until the next append. */
const char *strbuf_text(const struct strbuf *buffer);

/* `bytes` as printable ASCII: other bytes and backslashes become \xNN. At most `limit` characters (0: no limit). Use it
 * for any text from a model that is printed. */
char *str_escape(struct arena *arena, const char *bytes, size_t length, size_t limit);
/* The same for a name, which is shortened as diag_quote does. */
char *str_name(struct arena *arena, const char *name);

/* `bytes` as part of a file name: everything outside [A-Za-z0-9_.-] becomes '_'. */
char *str_filename(struct arena *arena, const char *bytes, size_t length);

/* True if every byte is in [A-Za-z0-9_./:-], and is thus safe in a comment of generated code. */
bool str_is_plain(const char *text);

/* The member of `names` (NULL-terminated) nearest to `word` in edit distance; NULL if all differ too much to suggest
 * one. */
const char *str_nearest(const char *word, const char *const *names);

#endif
