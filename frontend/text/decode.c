#include "frontend/text/parts.h"

#include <string.h>

#define COUNT(rows) ((int)(sizeof(rows) / sizeof *(rows)))

static const struct span replacement = {"\xef\xbf\xbd", 3}; /* U+FFFD */

/* The text with `from` replaced, as Rust's str::replace does: from left to right. `from` may be empty: then it stands
 * around each character. */
static struct span replace(struct arena *arena, struct span text, struct span from, struct span to) {
    size_t at = 0;
    int32_t code;
    struct strbuf out = {.arena = arena};
    while (at < text.bytes) {
        const char *found = memmem(text.at + at, text.bytes - at, from.at, from.bytes);
        if (!found) break;
        strbuf_add(&out, text.at + at, (size_t)(found - text.at) - at);
        strbuf_add(&out, to.at, to.bytes);
        at = (size_t)(found - text.at) + from.bytes;
        if (from.bytes) continue;
        const int length = utf8_get(text.at + at, &code);
        strbuf_add(&out, text.at + at, (size_t)length);
        at += (size_t)length;
    }
    if (!from.bytes) strbuf_add(&out, to.at, to.bytes);
    strbuf_add(&out, text.at + at, text.bytes - at);
    return (struct span){strbuf_text(&out), out.length};
}

static struct span span_of(const char *text) {
    return (struct span){text, strlen(text)};
}

/* Spaces that tokenization put into English text are taken out. */
static struct span clean(struct arena *arena, struct span text) {
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    if (!memchr(text.at, ' ', text.bytes)) return text;
    for (int i = 0; i < COUNT(pairs); i++) text = replace(arena, text, span_of(pairs[i][0]), span_of(pairs[i][1]));
    return text;
}

static int decode_bpe(const struct part *part, struct work *work, struct texts *texts) {
    static const struct span space = {" ", 1}, nothing = {"", 0};
    for (int i = 0; i < texts->n; i++)
        texts->at[i] = replace(work->arena, texts->at[i], part->text, i + 1 < texts->n ? space : nothing);
    return 0;
}

static struct span fuse(struct arena *arena, const struct texts *texts) {
    struct strbuf out = {.arena = arena};
    for (int i = 0; i < texts->n; i++) strbuf_add(&out, texts->at[i].at, texts->at[i].bytes);
    return (struct span){strbuf_text(&out), out.length};
}

static int decode_fuse(const struct part *part, struct work *work, struct texts *texts) {
    const struct span whole = fuse(work->arena, texts);
    (void)part;
    texts->n = 0;
    VEC_PUSH(work->arena, texts, whole);
    return 0;
}

/* Appends the bytes that a token's characters stand for, or the token itself if one stands for none. */
static void put_bytes(struct strbuf *out, struct span token) {
    const size_t before = out->length;
    for (size_t i = 0; i < token.bytes;) {
        int32_t code;
        i += (size_t)utf8_get(token.at + i, &code);
        const int byte = character_to_byte(code);
        if (byte < 0) {
            out->length = before;
            strbuf_add(out, token.at, token.bytes);
            return;
        }
        strbuf_putc(out, (char)byte);
    }
}

static int decode_byte_level(const struct part *part, struct work *work, struct texts *texts) {
    (void)part;
    struct strbuf out = {.arena = work->arena};
    for (int i = 0; i < texts->n; i++) put_bytes(&out, texts->at[i]);
    texts->n = 0;
    VEC_PUSH(work->arena, texts, utf8_repair(work->arena, (struct span){strbuf_text(&out), out.length}));
    return 0;
}

/* The byte that <0xNN> stands for; -1: it is something else. */
static int byte_of(struct span token) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (token.bytes != 6 || memcmp(token.at, "<0x", 3) != 0 || token.at[5] != '>') return -1;
    const char *high = token.at[3] ? strchr(digits, token.at[3]) : NULL;
    const char *low = token.at[4] ? strchr(digits, token.at[4]) : NULL;
    return high && low ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* Bytes that follow each other are a text if they are UTF-8; else each becomes U+FFFD. */
static void put_run(struct work *work, struct strbuf *run, struct texts *texts) {
    const struct span bytes = {strbuf_text(run), run->length};
    if (utf8_is_valid(bytes) && bytes.bytes)
        VEC_PUSH(work->arena, texts, bytes);
    else
        for (size_t i = 0; i < bytes.bytes; i++) VEC_PUSH(work->arena, texts, replacement);
    strbuf_init(run, work->arena);
}

static int decode_byte_fallback(const struct part *part, struct work *work, struct texts *texts) {
    struct texts made = {0};
    (void)part;
    struct strbuf run = {.arena = work->arena};
    for (int i = 0; i < texts->n; i++) {
        const int byte = byte_of(texts->at[i]);
        if (byte >= 0) {
            strbuf_putc(&run, (char)byte);
            continue;
        }
        put_run(work, &run, &made);
        VEC_PUSH(work->arena, &made, texts->at[i]);
    }
    put_run(work, &run, &made);
    *texts = made;
    return 0;
}

/* The first token loses its replacements, unless none is put before a text. */
static int decode_metaspace(const struct part *part, struct work *work, struct texts *texts) {
    static const struct span space = {" ", 1}, nothing = {"", 0};
    for (int i = 0; i < texts->n; i++) {
        const bool removed = i == 0 && part->scheme != SCHEME_NEVER;
        texts->at[i] = replace(work->arena, texts->at[i], part->text, removed ? nothing : space);
    }
    return 0;
}

static int decode_wordpiece(const struct part *part, struct work *work, struct texts *texts) {
    const struct span prefix = part->text;
    VEC_EACH(texts, i, struct span *const text) {
        const bool continues = text->bytes >= prefix.bytes && memcmp(text->at, prefix.at, prefix.bytes) == 0;
        if (i && continues) {
            *text = (struct span){text->at + prefix.bytes, text->bytes - prefix.bytes};
        } else if (i) {
            char *spaced = arena_alloc(work->arena, text->bytes + 1, 1);
            spaced[0] = ' ';
            memcpy(spaced + 1, text->at, text->bytes);
            *text = (struct span){spaced, text->bytes + 1};
        }
        if (part->cleanup) *text = clean(work->arena, *text);
    }
    return 0;
}

static bool same_text(struct span a, struct span b) {
    return a.bytes == b.bytes && memcmp(a.at, b.at, a.bytes) == 0;
}

static int decode_ctc(const struct part *part, struct work *work, struct texts *texts) {
    static const struct span space = {" ", 1}, nothing = {"", 0};
    struct texts made = {0};
    for (int i = 0; i < texts->n; i++) {
        if (i && same_text(texts->at[i - 1], texts->at[i])) continue;
        struct span text = replace(work->arena, texts->at[i], part->text, nothing);
        if (part->cleanup) text = replace(work->arena, clean(work->arena, text), part->other, space);
        if (text.bytes) VEC_PUSH(work->arena, &made, text);
    }
    *texts = made;
    return 0;
}

static int decode_replace(const struct part *part, struct work *work, struct texts *texts) {
    for (int i = 0; i < texts->n; i++) {
        struct ranges ranges = {0};
        if (pattern_find(part->pattern, work, texts->at[i], &ranges)) return -1;
        if (ranges.n == 1 && !ranges.at[0].match) continue;
        struct strbuf out = {.arena = work->arena};
        VEC_EACH(&ranges, r, const struct range *range) {
            if (range->match)
                strbuf_add(&out, part->text.at, part->text.bytes);
            else
                strbuf_add(&out, texts->at[i].at + range->from, range->to - range->from);
            if (work_too_long(work, out.length)) return -1;
        }
        texts->at[i] = (struct span){strbuf_text(&out), out.length};
    }
    return 0;
}

static bool ends_with(struct span text, struct span end) {
    return text.bytes >= end.bytes && memcmp(text.at + text.bytes - end.bytes, end.at, end.bytes) == 0;
}

/* Up to `count` characters are taken from the begin of each text, and `stop` from its end. */
static int decode_strip(const struct part *part, struct work *work, struct texts *texts) {
    const struct span content = part->text;
    (void)work;
    VEC_EACH(texts, i, struct span *const text) {
        for (int64_t n = 0; n < part->count && text->bytes >= content.bytes; n++) {
            if (memcmp(text->at, content.at, content.bytes) != 0) break;
            *text = (struct span){text->at + content.bytes, text->bytes - content.bytes};
        }
        for (int64_t n = 0; n < part->stop && ends_with(*text, content); n++) text->bytes -= content.bytes;
    }
    return 0;
}

#define MEMBER(name) offsetof(struct part, name)
static const struct part_row rows[] = {
    {"BPEDecoder", {.decode = decode_bpe}, NULL, {{"suffix", FIELD_TEXT, MEMBER(text)}}},
    {"ByteFallback", {.decode = decode_byte_fallback}},
    {"ByteLevel",
     {.decode = decode_byte_level},
     NULL,
     {{"add_prefix_space", FIELD_IGNORED, .optional = true},
      {"trim_offsets", FIELD_IGNORED, .optional = true},
      {"use_regex", FIELD_IGNORED, .optional = true}}},
    {"CTC",
     {.decode = decode_ctc},
     NULL,
     {{"pad_token", FIELD_TEXT, MEMBER(text)},
      {"word_delimiter_token", FIELD_TEXT, MEMBER(other)},
      {"cleanup", FIELD_BOOL, MEMBER(cleanup)}}},
    {"Fuse", {.decode = decode_fuse}},
    {"Metaspace", {.decode = decode_metaspace}, NULL, {METASPACE_FIELDS}, check_metaspace},
    {"Replace",
     {.decode = decode_replace},
     NULL,
     {{"pattern", FIELD_PATTERN, MEMBER(pattern)}, {"content", FIELD_TEXT, MEMBER(text)}}},
    {"Sequence", {NULL}, NULL, {{"decoders", FIELD_PARTS}}},
    {"Strip",
     {.decode = decode_strip},
     NULL,
     {{"content", FIELD_CHARACTER, MEMBER(text)},
      {"start", FIELD_COUNT, MEMBER(count)},
      {"stop", FIELD_COUNT, MEMBER(stop)}}},
    {"WordPiece",
     {.decode = decode_wordpiece},
     NULL,
     {{"prefix", FIELD_TEXT, MEMBER(text)}, {"cleanup", FIELD_BOOL, MEMBER(cleanup)}}},
};

int read_decoders(struct reader *reader, const struct place *place, const struct rt_json *value, struct parts *parts) {
    return read_parts(reader, place, value, rows, COUNT(rows), "decoder", parts);
}

int decode(const struct parts *parts, struct work *work, struct texts *texts, struct span *text) {
    for (int i = 0; i < parts->n; i++) {
        size_t bytes = 0;
        if (parts->at[i].row->decode(&parts->at[i], work, texts)) return -1;
        for (int t = 0; t < texts->n; t++) bytes += texts->at[t].bytes;
        if (work_too_long(work, bytes)) return -1;
    }
    *text = fuse(work->arena, texts);
    return 0;
}
