/* Text under construction. A strbuf grows in its arena and is always NUL-terminated. */
#ifndef IR_BASE_STR_H
#define IR_BASE_STR_H

#include <stdbool.h>

#include "ir/base/arena.h"

struct strbuf {
    struct arena *arena;
    char *text; /* NULL until the first append */
    size_t length, capacity;
};

void strbuf_init(struct strbuf *buffer, struct arena *arena);
void strbuf_add(struct strbuf *buffer, const char *bytes, size_t length);
void strbuf_puts(struct strbuf *buffer, const char *text);
void strbuf_putc(struct strbuf *buffer, char c);
void strbuf_printf(struct strbuf *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text so far, "" when empty. */
const char *strbuf_text(const struct strbuf *buffer);

/* `bytes` as printable ASCII, other bytes and backslashes as \xNN, at most `limit` characters (0: no limit). For
 * anything of a model that a person reads. */
char *str_escape(struct arena *arena, const char *bytes, size_t length, size_t limit);

/* `bytes` with everything outside [A-Za-z0-9_.-] turned into '_': for file names. */
char *str_filename(struct arena *arena, const char *bytes, size_t length);

/* True if every byte may stand in a comment of generated code: [A-Za-z0-9_./:-]. */
bool str_is_plain(const char *text);

/* The member of `names` (NULL-terminated) nearest to `word`, or NULL if none is near enough to suggest. */
const char *str_nearest(const char *word, const char *const *names);

#endif
