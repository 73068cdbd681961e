#include "frontend/text/parts.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

#define COUNT(rows) ((int)(sizeof(rows) / sizeof *(rows)))

/* Puts what stands for a character into `out`. */
typedef void map_fn(const struct part *part, int32_t code, struct strbuf *out);

static void map_characters(const struct part *part, struct work *work, struct text *text, map_fn *map) {
    struct text made = {.origin = 0};
    struct strbuf out = {.arena = work->arena};
    for (size_t i = 0; i < text->span.bytes;) {
        int32_t code;
        const bool first = i < text->origin;
        i += (size_t)utf8_get(text->span.at + i, &code);
        map(part, code, &out);
        if (first) made.origin = out.length;
    }
    made.span = (struct span){strbuf_text(&out), out.length};
    *text = made;
}

/* The bytes of the first characters of a text, as many as there are in another. */
static size_t as_many(struct span text, struct span other) {
    size_t bytes = 0;
    for (int64_t count = utf8_count(other); count && bytes < text.bytes; count--) {
        int32_t code;
        bytes += (size_t)utf8_get(text.at + bytes, &code);
    }
    return bytes;
}

/* Marks of one base may change their order: the first of those that result stand for the first of those that were. */
static int take_normal(struct work *work, struct text *text, bool compose, bool compatible) {
    const struct span first =
        unicode_normal(work->arena, (struct span){text->span.at, text->origin}, compose, compatible);
    const struct span made = unicode_normal(work->arena, text->span, compose, compatible);
    *text = (struct text){made, as_many(made, first)};
    return 0;
}

static int normalize_nfc(const struct part *part, struct work *work, struct text *text) {
    return take_normal(work, text, true, false);
}

static int normalize_nfd(const struct part *part, struct work *work, struct text *text) {
    return take_normal(work, text, false, false);
}

static int normalize_nfkc(const struct part *part, struct work *work, struct text *text) {
    return take_normal(work, text, true, true);
}

static int normalize_nfkd(const struct part *part, struct work *work, struct text *text) {
    return take_normal(work, text, false, true);
}

static void put_lower(const struct part *part, int32_t code, struct strbuf *out) {
    unicode_lower(out, code);
}

static int normalize_lowercase(const struct part *part, struct work *work, struct text *text) {
    map_characters(part, work, text, put_lower);
    return 0;
}

static void put_unless_mark(const struct part *part, int32_t code, struct strbuf *out) {
    if (!unicode_is_mark(code)) strbuf_put_code(out, code);
}

static int normalize_strip_accents(const struct part *part, struct work *work, struct text *text) {
    map_characters(part, work, text, put_unless_mark);
    return 0;
}

/* SentencePiece's nmt_nfkc without NFKC: control characters go, and other white space becomes a space. */
static void put_nmt(const struct part *part, int32_t code, struct strbuf *out) {
    static const struct {
        int32_t first, last;
        char instead; /* 0: nothing */
    } rows[] = {
        {0x0001, 0x0008, 0},   {0x000b, 0x000b, 0},   {0x000e, 0x001f, 0},   {0x007f, 0x007f, 0},
        {0x008f, 0x008f, 0},   {0x009f, 0x009f, 0},   {0x0009, 0x000a, ' '}, {0x000c, 0x000d, ' '},
        {0x1680, 0x1680, ' '}, {0x200b, 0x200f, ' '}, {0x2028, 0x2029, ' '}, {0x2581, 0x2581, ' '},
        {0xfeff, 0xfeff, ' '}, {0xfffd, 0xfffd, ' '},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        if (code < rows[i].first || code > rows[i].last) continue;
        if (rows[i].instead) strbuf_putc(out, rows[i].instead);
        return;
    }
    strbuf_put_code(out, code);
}

static int normalize_nmt(const struct part *part, struct work *work, struct text *text) {
    map_characters(part, work, text, put_nmt);
    return 0;
}

static int normalize_strip(const struct part *part, struct work *work, struct text *text) {
    size_t from = 0, to = text->span.bytes;
    int32_t code;
    while (part->left && from < to) {
        const int length = utf8_get(text->span.at + from, &code);
        if (!unicode_is_space(code)) break;
        from += (size_t)length;
    }
    while (part->right && from < to) {
        const size_t last = from + utf8_last((struct span){text->span.at + from, to - from});
        utf8_get(text->span.at + last, &code);
        if (!unicode_is_space(code)) break;
        to = last;
    }
    text->span = (struct span){text->span.at + from, to - from};
    text->origin = text->origin > from ? text->origin - from : 0;
    if (text->origin > text->span.bytes) text->origin = text->span.bytes;
    return 0;
}

struct text text_with_prefix(struct work *work, const struct text *text, struct span prefix) {
    struct strbuf out = {.arena = work->arena};
    strbuf_add(&out, prefix.at, prefix.bytes);
    strbuf_add(&out, text->span.at, text->span.bytes);
    return (struct text){{strbuf_text(&out), out.length}, text->origin ? text->origin + prefix.bytes : 0};
}

static int normalize_prepend(const struct part *part, struct work *work, struct text *text) {
    if (text->span.bytes) *text = text_with_prefix(work, text, part->text);
    return 0;
}

/* What replaces a match belongs to the match's last character. */
static int normalize_replace(const struct part *part, struct work *work, struct text *text) {
    struct ranges ranges = {0};
    struct text made = {.origin = 0};
    if (pattern_find(part->pattern, work, text->span, &ranges)) return -1;
    struct strbuf out = {.arena = work->arena};
    VEC_EACH(&ranges, i, const struct range *range) {
        const size_t bytes = range->to - range->from;
        if (work_too_long(work, out.length + bytes + part->text.bytes)) return -1;
        if (range->match)
            strbuf_add(&out, part->text.at, part->text.bytes);
        else
            strbuf_add(&out, text->span.at + range->from, bytes);
        if (range->to <= text->origin)
            made.origin = out.length;
        else if (range->from < text->origin && !range->match)
            made.origin = out.length - bytes + text->origin - range->from;
    }
    made.span = (struct span){strbuf_text(&out), out.length};
    *text = made;
    return 0;
}

struct text text_in_bytes(struct work *work, const struct text *text) {
    char *out = arena_alloc(work->arena, text->span.bytes, 2);
    struct text made = {{out, 0}, 0};
    for (size_t i = 0; i < text->span.bytes; i++) {
        made.span.bytes += (size_t)byte_to_character((unsigned char)text->span.at[i], out + made.span.bytes);
        if (i < text->origin) made.origin = made.span.bytes;
    }
    return made;
}

static int normalize_byte_level(const struct part *part, struct work *work, struct text *text) {
    *text = text_in_bytes(work, text);
    return 0;
}

/* BertNormalizer: what BERT's tokenization.py does before it splits. */

static void put_clean(const struct part *part, int32_t code, struct strbuf *out) {
    const bool kept_control = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == UNICODE_REPLACEMENT || (!kept_control && unicode_is_other(code))) return;
    strbuf_put_code(out, kept_control || unicode_is_space(code) ? ' ' : code);
}

static bool is_ideograph(int32_t code) {
    static const struct {
        int32_t first, last;
    } blocks[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
                  {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (int i = 0; i < COUNT(blocks); i++)
        if (code >= blocks[i].first && code <= blocks[i].last) return true;
    return false;
}

static void put_spaced(const struct part *part, int32_t code, struct strbuf *out) {
    const bool spaced = is_ideograph(code);
    if (spaced) strbuf_putc(out, ' ');
    strbuf_put_code(out, code);
    if (spaced) strbuf_putc(out, ' ');
}

static void put_unless_nonspacing(const struct part *part, int32_t code, struct strbuf *out) {
    if (!unicode_is_nonspacing(code)) strbuf_put_code(out, code);
}

static int normalize_bert(const struct part *part, struct work *work, struct text *text) {
    const bool strip = part->accents == ACCENTS_BY_CASE ? part->lowercase : part->accents == ACCENTS_STRIPPED;
    if (part->clean) map_characters(part, work, text, put_clean);
    if (part->spaced) map_characters(part, work, text, put_spaced);
    if (strip) {
        normalize_nfd(part, work, text);
        map_characters(part, work, text, put_unless_nonspacing);
    }
    if (part->lowercase) map_characters(part, work, text, put_lower);
    return 0;
}

/* Precompiled: clusters of up to 5 bytes are looked up as a whole, others by character. A cluster that only begins with
 * a key is replaced as a whole too, as `tokenizers` does; and if nothing is left of the first one, the next one takes
 * its place. */
static int normalize_precompiled(const struct part *part, struct work *work, struct text *text) {
    struct span found, rest = text->span;
    struct text made = {.origin = 0};
    bool first = text->origin;
    struct strbuf out = {.arena = work->arena};
    while (rest.bytes) {
        const size_t cluster = unicode_cluster(rest);
        const bool whole = cluster < 6 && charsmap_find(part->charsmap, (struct span){rest.at, cluster}, &found);
        if (work_too_long(work, out.length + (whole ? found.bytes : 0))) return -1;
        if (whole) strbuf_add(&out, found.at, found.bytes);
        for (size_t i = 0; !whole && i < cluster;) {
            int32_t code;
            struct span character = {rest.at + i, (size_t)utf8_get(rest.at + i, &code)};
            i += character.bytes;
            if (charsmap_find(part->charsmap, character, &found)) character = found;
            strbuf_add(&out, character.at, character.bytes);
        }
        rest = (struct span){rest.at + cluster, rest.bytes - cluster};
        if (first) made.origin = out.length;
        first = first && !out.length;
    }
    made.span = (struct span){strbuf_text(&out), out.length};
    *text = made;
    return 0;
}

static int check_charsmap(struct reader *reader, const struct place *place, struct part *part) {
    const struct place below = {place, "precompiled_charsmap", 0};
    part->charsmap = charsmap_read(reader, &below, part->text);
    return part->charsmap ? 0 : -1;
}

#define MEMBER(name) offsetof(struct part, name)
static const struct part_row rows[] = {
    {"BertNormalizer",
     {.normalize = normalize_bert},
     NULL,
     {{"clean_text", FIELD_BOOL, MEMBER(clean)},
      {"handle_chinese_chars", FIELD_BOOL, MEMBER(spaced)},
      {"strip_accents", FIELD_SWITCH, MEMBER(accents), .optional = true, .otherwise = ACCENTS_BY_CASE},
      {"lowercase", FIELD_BOOL, MEMBER(lowercase)}}},
    {"ByteLevel", {.normalize = normalize_byte_level}},
    {"Lowercase", {.normalize = normalize_lowercase}},
    {"NFC", {.normalize = normalize_nfc}},
    {"NFD", {.normalize = normalize_nfd}},
    {"NFKC", {.normalize = normalize_nfkc}},
    {"NFKD", {.normalize = normalize_nfkd}},
    {"Nmt", {.normalize = normalize_nmt}},
    {"Precompiled",
     {.normalize = normalize_precompiled},
     NULL,
     {{"precompiled_charsmap", FIELD_TEXT, MEMBER(text)}},
     check_charsmap},
    {"Prepend", {.normalize = normalize_prepend}, NULL, {{"prepend", FIELD_TEXT, MEMBER(text)}}},
    {"Replace",
     {.normalize = normalize_replace},
     NULL,
     {{"pattern", FIELD_PATTERN, MEMBER(pattern)}, {"content", FIELD_TEXT, MEMBER(text)}}},
    {"Sequence", {NULL}, NULL, {{"normalizers", FIELD_PARTS}}},
    {"Strip",
     {.normalize = normalize_strip},
     NULL,
     {{"strip_left", FIELD_BOOL, MEMBER(left)}, {"strip_right", FIELD_BOOL, MEMBER(right)}}},
    {"StripAccents", {.normalize = normalize_strip_accents}},
};

int read_normalizers(struct reader *reader, const struct place *place, const struct rt_json *value,
                     struct parts *parts) {
    return read_parts(reader, place, value, rows, COUNT(rows), "normalizer", parts);
}

int normalize(const struct parts *parts, struct work *work, struct text *text) {
    for (int i = 0; i < parts->n; i++) {
        if (parts->at[i].row->normalize(&parts->at[i], work, text)) return -1;
        if (work_too_long(work, text->span.bytes)) return -1;
    }
    return 0;
}
