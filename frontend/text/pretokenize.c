#include "frontend/text/parts.h"

#include <string.h>

#define COUNT(rows) ((int)(sizeof(rows) / sizeof *(rows)))

/* Appends a part of a text as a piece. */
static void put_piece(struct work *work, const struct text *text, size_t from, size_t to, struct pieces *pieces) {
    const size_t origin = text->origin > from ? text->origin - from : 0;
    const struct text part = {{text->span.at + from, to - from}, origin < to - from ? origin : to - from};
    VEC_PUSH(work->arena, pieces, (struct piece){part, -1});
}

static void put_ranges(struct work *work, const struct text *text, struct ranges *ranges, enum behaviour behaviour,
                       struct pieces *pieces) {
    ranges_join(ranges, behaviour);
    for (int i = 0; i < ranges->n; i++)
        if (!ranges->at[i].match) put_piece(work, text, ranges->at[i].from, ranges->at[i].to, pieces);
}

/* Each character of a kind is a match. */
static void find_characters(struct work *work, struct span text, bool (*is)(int32_t code), struct ranges *ranges) {
    size_t before = 0;
    for (size_t i = 0; i < text.bytes;) {
        int32_t code;
        const size_t at = i;
        i += (size_t)utf8_get(text.at + i, &code);
        if (!is(code)) continue;
        if (before < at) VEC_PUSH(work->arena, ranges, (struct range){before, at, false});
        VEC_PUSH(work->arena, ranges, (struct range){at, i, true});
        before = i;
    }
    if (before < text.bytes) VEC_PUSH(work->arena, ranges, (struct range){before, text.bytes, false});
}

static int split_at(struct work *work, const struct text *text, bool (*is)(int32_t code), enum behaviour behaviour,
                    struct pieces *pieces) {
    struct ranges ranges = {0};
    find_characters(work, text->span, is, &ranges);
    put_ranges(work, text, &ranges, behaviour, pieces);
    return 0;
}

static int split_whitespace_split(const struct part *part, struct work *work, const struct text *text,
                                  struct pieces *pieces) {
    (void)part;
    return split_at(work, text, unicode_is_space, BEHAVIOUR_REMOVED, pieces);
}

static int split_punctuation(const struct part *part, struct work *work, const struct text *text,
                             struct pieces *pieces) {
    return split_at(work, text, unicode_is_punctuation, part->behaviour, pieces);
}

static int split_digits(const struct part *part, struct work *work, const struct text *text, struct pieces *pieces) {
    const enum behaviour behaviour = part->individual ? BEHAVIOUR_ISOLATED : BEHAVIOUR_CONTIGUOUS;
    return split_at(work, text, unicode_is_numeric, behaviour, pieces);
}

static int split_bert(const struct part *part, struct work *work, const struct text *text, struct pieces *pieces) {
    struct pieces words = {0};
    split_whitespace_split(part, work, text, &words);
    for (int i = 0; i < words.n; i++)
        split_at(work, &words.at[i].text, unicode_is_punctuation, BEHAVIOUR_ISOLATED, pieces);
    return 0;
}

/* \w+|[^\w\s]+ */
static int split_whitespace(const struct part *part, struct work *work, const struct text *text,
                            struct pieces *pieces) {
    enum { SPACE, WORD, OTHER } kind, before = SPACE;
    size_t from = 0;
    (void)part;
    for (size_t i = 0; i < text->span.bytes;) {
        int32_t code;
        const size_t at = i;
        i += (size_t)utf8_get(text->span.at + i, &code);
        kind = unicode_is_space(code) ? SPACE : unicode_is_word(code) ? WORD : OTHER;
        if (kind == before) continue;
        if (before != SPACE) put_piece(work, text, from, at, pieces);
        before = kind, from = at;
    }
    if (before != SPACE) put_piece(work, text, from, text->span.bytes, pieces);
    return 0;
}

static int split_pattern(const struct part *part, struct work *work, const struct text *text, struct pieces *pieces) {
    struct ranges ranges = {0};
    if (pattern_find(part->pattern, work, text->span, &ranges)) return -1;
    for (int i = 0; part->invert && i < ranges.n; i++) ranges.at[i].match = !ranges.at[i].match;
    put_ranges(work, text, &ranges, part->behaviour, pieces);
    return 0;
}

/* The character of a delimiter is a match each time it occurs. */
static int split_delimiter(const struct part *part, struct work *work, const struct text *text, struct pieces *pieces) {
    struct ranges ranges = {0};
    const struct pattern *pattern = pattern_of_text(work->arena, part->text);
    if (pattern_find(pattern, work, text->span, &ranges)) return -1;
    put_ranges(work, text, &ranges, part->behaviour, pieces);
    return 0;
}

static int split_fixed_length(const struct part *part, struct work *work, const struct text *text,
                              struct pieces *pieces) {
    size_t from = 0;
    int64_t count = 0;
    for (size_t i = 0; i < text->span.bytes;) {
        int32_t code;
        i += (size_t)utf8_get(text->span.at + i, &code);
        if (++count < part->count && i < text->span.bytes) continue;
        put_piece(work, text, from, i, pieces);
        from = i, count = 0;
    }
    return 0;
}

static bool begins_with(struct span text, struct span prefix) {
    return text.bytes >= prefix.bytes && memcmp(text.at, prefix.at, prefix.bytes) == 0;
}

static int split_byte_level(const struct part *part, struct work *work, const struct text *text,
                            struct pieces *pieces) {
    static const struct span space = {" ", 1};
    const int first = pieces->n;
    struct text whole = *text;
    struct ranges ranges = {0};
    if (part->prefixed && !begins_with(text->span, space)) whole = text_with_prefix(work, text, space);
    if (!part->split) {
        put_piece(work, &whole, 0, whole.span.bytes, pieces);
    } else {
        if (pattern_find(part->pattern, work, whole.span, &ranges)) return -1;
        put_ranges(work, &whole, &ranges, BEHAVIOUR_ISOLATED, pieces);
    }
    for (int i = first; i < pieces->n; i++) pieces->at[i].text = text_in_bytes(work, &pieces->at[i].text);
    return 0;
}

/* The text with its spaces replaced. */
static struct text without_spaces(struct work *work, const struct text *text, struct span replacement) {
    struct text made = {.origin = 0};
    struct strbuf out = {.arena = work->arena};
    for (size_t i = 0; i < text->span.bytes; i++) {
        if (text->span.at[i] == ' ')
            strbuf_add(&out, replacement.at, replacement.bytes);
        else
            strbuf_putc(&out, text->span.at[i]);
        if (i < text->origin) made.origin = out.length;
    }
    made.span = (struct span){strbuf_text(&out), out.length};
    return made;
}

static int split_metaspace(const struct part *part, struct work *work, const struct text *text, struct pieces *pieces) {
    struct text whole = without_spaces(work, text, part->text);
    const bool prefixed = part->scheme == SCHEME_ALWAYS || (part->scheme == SCHEME_FIRST && text->origin);
    if (prefixed && !begins_with(whole.span, part->text)) whole = text_with_prefix(work, &whole, part->text);
    if (part->split) return split_delimiter(part, work, &whole, pieces);
    put_piece(work, &whole, 0, whole.span.bytes, pieces);
    return 0;
}

int check_metaspace(struct reader *reader, const struct place *place, struct part *part) {
    part->behaviour = BEHAVIOUR_NEXT;
    if (part->prefixed || part->scheme == SCHEME_NEVER) return 0;
    return read_malformed(reader, place, "add_prefix_space and prepend_scheme contradict each other");
}

static int check_length(struct reader *reader, const struct place *place, struct part *part) {
    return part->count > 0 ? 0 : read_malformed(reader, place, "a length of 0");
}

#define MEMBER(name) offsetof(struct part, name)
#define BEHAVIOURS   .words = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}
static const struct part_row rows[] = {
    {"BertPreTokenizer", {.split = split_bert}},
    {"ByteLevel",
     {.split = split_byte_level},
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {{"add_prefix_space", FIELD_BOOL, MEMBER(prefixed)},
      {"use_regex", FIELD_BOOL, MEMBER(split), .optional = true, .otherwise = true},
      {"trim_offsets", FIELD_IGNORED, .optional = true}}},
    {"CharDelimiterSplit", {.split = split_delimiter}, NULL, {{"delimiter", FIELD_CHARACTER, MEMBER(text)}}},
    {"Digits", {.split = split_digits}, NULL, {{"individual_digits", FIELD_BOOL, MEMBER(individual)}}},
    {"FixedLength",
     {.split = split_fixed_length},
     NULL,
     {{"length", FIELD_COUNT, MEMBER(count), .optional = true, .otherwise = 5}},
     check_length},
    {"Metaspace", {.split = split_metaspace}, NULL, {METASPACE_FIELDS}, check_metaspace},
    {"Punctuation",
     {.split = split_punctuation},
     NULL,
     {{"behavior", FIELD_CHOICE, MEMBER(behaviour), .optional = true, .otherwise = BEHAVIOUR_ISOLATED, BEHAVIOURS}}},
    {"Sequence", {NULL}, NULL, {{"pretokenizers", FIELD_PARTS}}},
    {"Split",
     {.split = split_pattern},
     NULL,
     {{"pattern", FIELD_PATTERN, MEMBER(pattern)},
      {"behavior", FIELD_CHOICE, MEMBER(behaviour), BEHAVIOURS},
      {"invert", FIELD_BOOL, MEMBER(invert)}}},
    {"Whitespace", {.split = split_whitespace}},
    {"WhitespaceSplit", {.split = split_whitespace_split}},
};

int read_pretokenizers(struct reader *reader, const struct place *place, const struct rt_json *value,
                       struct parts *parts) {
    return read_parts(reader, place, value, rows, COUNT(rows), "pre-tokenizer", parts);
}

int pretokenize(const struct parts *parts, struct work *work, struct pieces *pieces) {
    for (int i = 0; i < parts->n; i++) {
        struct pieces made = {0};
        size_t bytes = 0;
        VEC_EACH(pieces, p, const struct piece *piece) {
            const int first = made.n;
            int kept = first;
            if (piece->id >= 0)
                VEC_PUSH(work->arena, &made, *piece);
            else if (parts->at[i].row->split(&parts->at[i], work, &piece->text, &made))
                return -1;
            for (int j = first; j < made.n; j++)
                if (made.at[j].text.span.bytes) made.at[kept++] = made.at[j], bytes += made.at[j].text.span.bytes;
            made.n = kept;
            if (work_too_long(work, bytes)) return -1;
        }
        *pieces = made;
    }
    return 0;
}
