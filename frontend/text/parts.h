/* The parts of a tokenizer.json: normalizers, pre-tokenizers, decoders. Each kind has a table of types, in which a row
 * says which members an object of the type has, and what the part does. A Sequence is the parts in it, one after the
 * other. */
#ifndef FRONTEND_TEXT_PARTS_H
#define FRONTEND_TEXT_PARTS_H

#include "frontend/text/pattern.h"
#include "ir/base/vec.h"
#include "runtime/base/text/json.h"

/* Where a value is in the file: the members and elements that lead to it. */
struct place {
    const struct place *above; /* NULL: of the whole file */
    const char *key;           /* NULL: an element */
    int64_t index;
};

struct reader {
    struct arena *arena;
    struct diags *diags;
    const char *path;
};

/* E0397 and E0440 at a place of the file; -1. */
int read_malformed(struct reader *reader, const struct place *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int read_unsupported(struct reader *reader, const struct place *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A string that is UTF-8, in the arena. */
int read_text(struct reader *reader, const struct place *place, const struct rt_json *value, struct span *text);

/* Members of objects. */
enum field_kind {
    FIELD_IGNORED,   /* has no bearing on ids and texts */
    FIELD_BOOL,      /* bool */
    FIELD_SWITCH,    /* enum: 0 for false, 1 for true */
    FIELD_CHOICE,    /* enum: the index of the word in `words` */
    FIELD_COUNT,     /* int64_t, 0 or more */
    FIELD_TEXT,      /* struct span */
    FIELD_CHARACTER, /* struct span */
    FIELD_PATTERN,   /* struct pattern *: {"Regex": ..} or {"String": ..} */
    FIELD_PARTS,     /* the parts of a Sequence */
};
enum { MOST_FIELDS = 7, MOST_WORDS = 6 }; /* with a zero at the end of each */
struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;
    bool optional; /* may be missing or null: `otherwise`, or what the struct has, counts */
    int otherwise; /* of FIELD_BOOL, FIELD_SWITCH, FIELD_CHOICE, FIELD_COUNT */
    const char *words[MOST_WORDS];
};

/* Fills the struct at `base` with the members of `object`, and refuses others; "type" may be there. A field of
 * FIELD_PARTS is left to the caller. */
int read_fields(struct reader *reader, const struct place *place, const struct rt_json *object,
                const struct field *fields, void *base);

struct text;
struct piece;
struct pieces;
struct texts;
struct part;

/* A text that is normalized. `origin`: how many bytes at its front stand for the first character of the text that is
 * encoded; 0 if that was removed, or is in another piece. */
struct text {
    struct span span;
    size_t origin;
};

/* A piece of a text, and the added token that it is, -1: none. */
struct piece {
    struct text text;
    int32_t id;
};
struct pieces {
    struct piece *at;
    int n, capacity;
};

/* The texts of tokens that are decoded. */
struct texts {
    struct span *at;
    int n, capacity;
};

/* What a part does: changes the text; appends the pieces of a text, of which empty ones are left out later; changes the
 * texts. -1 after a diagnostic. */
typedef int normalize_fn(const struct part *part, struct work *work, struct text *text);
typedef int split_fn(const struct part *part, struct work *work, const struct text *text, struct pieces *pieces);
typedef int decode_fn(const struct part *part, struct work *work, struct texts *texts);

/* What the members of a part must be together: -1 after a diagnostic. May fill in what follows from them. */
typedef int check_fn(struct reader *reader, const struct place *place, struct part *part);

struct part_row {
    const char *type;
    union {
        normalize_fn *normalize;
        split_fn *split;
        decode_fn *decode;
    };
    const char *expression; /* what `pattern` is compiled from, in a type that has a fixed one */
    struct field fields[MOST_FIELDS];
    check_fn *check; /* NULL: nothing to do */
};

enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };
enum accents { ACCENTS_KEPT, ACCENTS_STRIPPED, ACCENTS_BY_CASE };

/* One part with its members; those of its type count. */
struct part {
    const struct part_row *row;
    struct span text;  /* content, prefix, suffix, replacement, pad_token .. */
    struct span other; /* word_delimiter_token */
    struct pattern *pattern;
    struct charsmap *charsmap;
    enum behaviour behaviour;
    enum scheme scheme;
    enum accents accents;
    int64_t count, stop;
    bool left, right;                 /* strip_left, strip_right */
    bool clean, spaced, lowercase;    /* BertNormalizer */
    bool prefixed, split, individual; /* add_prefix_space; use_regex, split; individual_digits */
    bool invert, cleanup;
};
struct parts {
    struct part *at;
    int n, capacity;
};

/* Appends the part that `value` describes, or those of a Sequence; nothing if it is NULL or null. `of` says in
 * diagnostics what they are: "normalizer". */
int read_parts(struct reader *reader, const struct place *place, const struct rt_json *value,
               const struct part_row *rows, int nrows, const char *of, struct parts *parts);

/* Reads each kind. */
int read_normalizers(struct reader *reader, const struct place *place, const struct rt_json *value,
                     struct parts *parts);
int read_pretokenizers(struct reader *reader, const struct place *place, const struct rt_json *value,
                       struct parts *parts);
int read_decoders(struct reader *reader, const struct place *place, const struct rt_json *value, struct parts *parts);

/* The members of Metaspace, which is a pre-tokenizer and a decoder, and their check. */
#define METASPACE_FIELDS                                                                                               \
    {"replacement", FIELD_CHARACTER, offsetof(struct part, text)},                                                     \
        {"add_prefix_space", FIELD_BOOL, offsetof(struct part, prefixed), .optional = true, .otherwise = true},        \
        {"prepend_scheme",                                                                                             \
         FIELD_CHOICE,                                                                                                 \
         offsetof(struct part, scheme),                                                                                \
         .optional = true,                                                                                             \
         .otherwise = SCHEME_ALWAYS,                                                                                   \
         .words = {"always", "first", "never"}},                                                                       \
        {"split", FIELD_BOOL, offsetof(struct part, split), .optional = true, .otherwise = true}, {                    \
        "str_rep", FIELD_IGNORED, .optional = true                                                                     \
    }
int check_metaspace(struct reader *reader, const struct place *place, struct part *part);

/* Runs all of them. pretokenize: on the pieces that are no tokens. decode: *text is what they leave, in one. */
int normalize(const struct parts *parts, struct work *work, struct text *text);
int pretokenize(const struct parts *parts, struct work *work, struct pieces *pieces);
int decode(const struct parts *parts, struct work *work, struct texts *texts, struct span *text);

/* The text with something before it, which counts as a part of its first character. */
struct text text_with_prefix(struct work *work, const struct text *text, struct span prefix);
/* The text in the characters that stand for its bytes. */
struct text text_in_bytes(struct work *work, const struct text *text);

/* The map of Precompiled, from base64: NULL after E0397. charsmap_find gives what
 * replaces a text that begins with one of its keys; false: none. */
struct charsmap;
struct charsmap *charsmap_read(struct reader *reader, const struct place *place, struct span text);
bool charsmap_find(const struct charsmap *map, struct span text, struct span *replacement);

/* The character that stands for each byte in the texts of ByteLevel, as UTF-8 of one or two bytes, and back: -1 for
 * other characters. */
int byte_to_character(unsigned char byte, char to[2]);
int character_to_byte(int32_t code);

#endif
