/* JSON: untrusted text is parsed into a tree; text is written through a writer with a sticky error.
 *
 * Reading is strict RFC 8259: UTF-8, no duplicate keys, nesting to RT_JSON_DEPTH, nothing after the value. A number
 * without fraction and exponent must fit int64_t and is exact; any other must be a finite double.
 *
 * Written text is ASCII: other characters become \uXXXX. Strings are bytes, because names in models are: a byte that is
 * not part of valid UTF-8 is written as the lone surrogate \udcXX (Python's surrogateescape), which the reader turns
 * back into that byte. */
#ifndef RT_BASE_JSON_H
#define RT_BASE_JSON_H

#include "reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RT_JSON_DEPTH 64

enum rt_json_kind {
    RT_JSON_NULL,
    RT_JSON_BOOL,
    RT_JSON_INT,
    RT_JSON_REAL,
    RT_JSON_STRING,
    RT_JSON_ARRAY,
    RT_JSON_OBJECT
};

/* A value. Walk the members of an object or the elements of an array in order with
 *     for (const struct rt_json *v = value->first; v; v = v->next)
 * `text` and `key` end with a NUL that their lengths do not count, and may contain others. */
struct rt_json {
    enum rt_json_kind kind;
    int line, column; /* of its first byte, counted from 1 */
    int64_t count;    /* of an object's members, an array's elements, or bytes of `text` */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *text;
        const struct rt_json *first;
    };
    const char *key; /* in an object, else NULL */
    size_t key_bytes;
    const struct rt_json *next;
};

/* Owns the tree of one text. */
struct rt_json_document;

/* Parses `text`, which may be freed afterwards; NULL on error, and the reason begins with "line L, column C: ". */
struct rt_json_document *rt_json_parse(const char *text, size_t bytes, struct rt_reason *why);

/* The same of text that Python's json may have written, as the configurations of transformers: NaN, Infinity and
 * -Infinity are read as null. */
struct rt_json_document *rt_json_parse_python(const char *text, size_t bytes, struct rt_reason *why);

/* Parses a regular file of at most 1 GiB. */
struct rt_json_document *rt_json_read(const char *path, struct rt_reason *why);

const struct rt_json *rt_json_root(const struct rt_json_document *document);
void rt_json_free(struct rt_json_document *document);

/* The member with that key; NULL if there is none, or if `object` is NULL or of another kind. */
const struct rt_json *rt_json_member(const struct rt_json *object, const char *key);
/* The first element of the list; NULL if there is none, or if `list` is NULL or of another kind. rt_json_items: of the
 * list that the member with that key is; rt_json_item: element number `index` of it, NULL below 0. */
const struct rt_json *rt_json_first(const struct rt_json *list);
const struct rt_json *rt_json_items(const struct rt_json *object, const char *key);
const struct rt_json *rt_json_item(const struct rt_json *object, const char *key, int64_t index);

/* Typed access. false, and *out is unchanged, if value is NULL or of another kind; rt_json_real accepts integers.
 * rt_json_text: NULL likewise, and for a string that contains a NUL. */
bool rt_json_bool(const struct rt_json *value, bool *out);
bool rt_json_int(const struct rt_json *value, int64_t *out);
bool rt_json_real(const struct rt_json *value, double *out);
const char *rt_json_text(const struct rt_json *value);
/* The integer that the member with that key is; `otherwise` if there is none, or of another kind. */
int64_t rt_json_number(const struct rt_json *object, const char *key, int64_t otherwise);

/* Writing:
 *     struct rt_json_writer writer;
 *     rt_json_start(&writer);
 *     rt_json_open(&writer, '{', RT_JSON_LINES);
 *     rt_json_key_int(&writer, "format", 1);
 *     rt_json_close(&writer, '}');
 *     if (!rt_json_end(&writer, &why)) ...             memory, or values that do not nest
 *     ... writer.text, writer.bytes ...
 *     rt_json_discard(&writer);
 */
enum rt_json_layout {
    RT_JSON_LINES,  /* one member or element per line, indented by two */
    RT_JSON_INLINE, /* all on one line, including nested values */
};

struct rt_json_writer {
    char *text; /* NUL-terminated after rt_json_end */
    size_t bytes, capacity;
    int depth;
    bool failed, out_of_memory, after_key, done;
    struct rt_json_level {
        char close;
        bool filled;
        enum rt_json_layout layout;
    } level[RT_JSON_DEPTH + 1];
};

void rt_json_start(struct rt_json_writer *writer);
void rt_json_open(struct rt_json_writer *writer, char bracket, enum rt_json_layout layout); /* '{' or '[' */
void rt_json_close(struct rt_json_writer *writer, char bracket);                            /* '}' or ']' */
void rt_json_key(struct rt_json_writer *writer, const char *key);
void rt_json_key_bytes(struct rt_json_writer *writer, const char *key, size_t bytes);
void rt_json_put_null(struct rt_json_writer *writer);
void rt_json_put_bool(struct rt_json_writer *writer, bool value);
void rt_json_put_int(struct rt_json_writer *writer, int64_t value);
/* shortest decimal that parses to the same double; null if not finite */
void rt_json_put_real(struct rt_json_writer *writer, double value);
void rt_json_put_text(struct rt_json_writer *writer, const char *text); /* NULL is null */
void rt_json_put_bytes(struct rt_json_writer *writer, const char *text, size_t bytes);
void rt_json_put_dims(struct rt_json_writer *writer, const int64_t *dims, int ndim); /* an inline array of integers */

/* A member of an object: its key, and a value as above or a bracket. */
void rt_json_key_open(struct rt_json_writer *writer, const char *key, char bracket, enum rt_json_layout layout);
void rt_json_key_bool(struct rt_json_writer *writer, const char *key, bool value);
void rt_json_key_int(struct rt_json_writer *writer, const char *key, int64_t value);
void rt_json_key_real(struct rt_json_writer *writer, const char *key, double value);
void rt_json_key_text(struct rt_json_writer *writer, const char *key, const char *text);
void rt_json_key_dims(struct rt_json_writer *writer, const char *key, const int64_t *dims, int ndim);

/* Ends the text with a newline; false if anything went wrong since rt_json_start. */
bool rt_json_end(struct rt_json_writer *writer, struct rt_reason *why);
/* The same; writes the text to `out`, and discards the writer. False also if it cannot be written. */
bool rt_json_end_to(struct rt_json_writer *writer, FILE *out);
void rt_json_discard(struct rt_json_writer *writer);

#endif
