#include "frontend/text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "ir/base/diag.h"

/* Writes the bytes of the character, which is not a surrogate; returns how many. */
static int utf8_put(char to[UTF8_MOST], int32_t code) {
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    const int extra = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    to[0] = (char)(first[extra] | code >> (6 * extra));
    for (int i = 1; i <= extra; i++) to[i] = (char)(0x80 | (code >> (6 * (extra - i)) & 0x3f));
    return extra + 1;
}

size_t utf8_last(struct span text) {
    size_t at = text.bytes - 1;
    while (at > 0 && (text.at[at] & 0xc0) == 0x80) at--;
    return at;
}

int64_t utf8_count(struct span text) {
    int64_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) count += (text.at[i] & 0xc0) != 0x80;
    return count;
}

/* The bytes of the character that the text begins with, or minus those of the part of one that is there instead. */
static int well_formed(const unsigned char *at, size_t left) {
    if (at[0] < 0x80) return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4) return -1;
    const int length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    for (int i = 1; i < length; i++) {
        const bool first = i == 1;
        const unsigned char least = first && at[0] == 0xe0 ? 0xa0 : first && at[0] == 0xf0 ? 0x90 : 0x80;
        const unsigned char most = first && at[0] == 0xed ? 0x9f : first && at[0] == 0xf4 ? 0x8f : 0xbf;
        if ((size_t)i >= left || at[i] < least || at[i] > most) return -i;
    }
    return length;
}

bool utf8_is_valid(struct span text) {
    for (size_t i = 0; i < text.bytes;) {
        const int length = well_formed((const unsigned char *)text.at + i, text.bytes - i);
        if (length < 0) return false;
        i += (size_t)length;
    }
    return true;
}

struct span utf8_repair(struct arena *arena, struct span text) {
    if (utf8_is_valid(text)) return text;
    struct strbuf buffer = {.arena = arena};
    for (size_t i = 0; i < text.bytes;) {
        const int length = well_formed((const unsigned char *)text.at + i, text.bytes - i);
        if (length < 0)
            strbuf_put_code(&buffer, UNICODE_REPLACEMENT);
        else
            strbuf_add(&buffer, text.at + i, (size_t)length);
        i += (size_t)(length < 0 ? -length : length);
    }
    return (struct span){buffer.text, buffer.length};
}

void strbuf_put_code(struct strbuf *buffer, int32_t code) {
    char bytes[UTF8_MOST];
    strbuf_add(buffer, bytes, (size_t)utf8_put(bytes, code));
}

/* Characters of which `tokenizers` says something else than Unicode. */
enum differing { DIFFERING_PUNCTUATION, DIFFERING_MARK, DIFFERING_NONSPACING, DIFFERING_OTHER, DIFFERING_COMPATIBLE };
static const struct differing_row {
    enum differing kind;
    int32_t first, last;
    bool answer;
} differing_rows[] = {
#define DIFFERING(kind, first, last, answer) {DIFFERING_##kind, first, last, answer},
#include "frontend/text/differing.def"
#undef DIFFERING
};

/* The row of the character, which is not before the first of them; NULL: none. */
static const struct differing_row *find_differing(enum differing kind, int32_t code) {
    int from = 0, to = sizeof differing_rows / sizeof *differing_rows;
    while (from < to) {
        const int middle = from + (to - from) / 2;
        const struct differing_row *row = &differing_rows[middle];
        if (row->kind == kind && code >= row->first && code <= row->last) return row;
        if (row->kind < kind || (row->kind == kind && row->last < code))
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

static bool says(enum differing kind, int32_t code, bool standard) {
    const struct differing_row *row = code < 0x300 ? NULL : find_differing(kind, code);
    return row ? row->answer : standard;
}

/* A set of general categories. */
#define IN(category) (1u << UTF8PROC_CATEGORY_##category)
static bool is_in(int32_t code, unsigned categories) {
    return categories >> utf8proc_category(code) & 1;
}

bool unicode_is_space(int32_t code) {
    return code < 0x80 ? code == ' ' || (code >= '\t' && code <= '\r')
                       : code == 0x85 || is_in(code, IN(ZS) | IN(ZL) | IN(ZP));
}

bool unicode_is_numeric(int32_t code) {
    return code < 0x80 ? code >= '0' && code <= '9' : is_in(code, IN(ND) | IN(NL) | IN(NO));
}

bool unicode_is_punctuation(int32_t code) {
    if (code > 0 && code < 0x80 && strchr("$+<=>^`|~", code)) return true;
    return says(DIFFERING_PUNCTUATION, code, is_in(code, IN(PC) | IN(PD) | IN(PS) | IN(PE) | IN(PI) | IN(PF) | IN(PO)));
}

bool unicode_is_mark(int32_t code) {
    return says(DIFFERING_MARK, code, is_in(code, IN(MN) | IN(MC) | IN(ME)));
}

bool unicode_is_nonspacing(int32_t code) {
    return says(DIFFERING_NONSPACING, code, is_in(code, IN(MN)));
}

bool unicode_is_other(int32_t code) {
    return says(DIFFERING_OTHER, code, is_in(code, IN(CC) | IN(CF) | IN(CO)));
}

/* Alphabetic has, beside letters, letter numbers and marks, only the letters in circles and squares. */
bool unicode_is_word(int32_t code) {
    return is_in(code,
                 IN(LU) | IN(LL) | IN(LT) | IN(LM) | IN(LO) | IN(NL) | IN(MN) | IN(MC) | IN(ME) | IN(ND) | IN(PC)) ||
           code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}

void unicode_lower(struct strbuf *buffer, int32_t code) {
    if (code == 0x130) { /* the only letter with two in lower case (SpecialCasing.txt) */
        strbuf_puts(buffer, "i\xcc\x87");
        return;
    }
    strbuf_put_code(buffer, utf8proc_tolower(code));
}

bool unicode_folds_to_several(int32_t code) {
    int32_t folded[4];
    int last = UTF8PROC_BOUNDCLASS_START;
    return utf8proc_decompose_char(code, folded, 4, UTF8PROC_CASEFOLD, &last) > 1;
}

static struct span normal(struct arena *arena, struct span text, bool compose, bool compatible) {
    const utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
                                                          (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text.at;
    const utf8proc_ssize_t length = (utf8proc_ssize_t)text.bytes;
    const utf8proc_ssize_t count = utf8proc_decompose(bytes, length, NULL, 0, options);
    if (count < 0) BUG("utf8proc: %s", utf8proc_errmsg(count)); /* the text is valid UTF-8 */
    int32_t *codes = ARENA_ARRAY(arena, int32_t, count + 1);    /* utf8proc ends the text with a NUL */
    utf8proc_decompose(bytes, length, codes, count, options);
    const utf8proc_ssize_t made = utf8proc_reencode(codes, count, options);
    if (made < 0) BUG("utf8proc: %s", utf8proc_errmsg(made));
    return (struct span){(const char *)codes, (size_t)made};
}

/* The bytes before the next character that is not decomposed although Unicode says so: such a character begins
 * something new for normalization. */
static size_t before_differing(struct span text) {
    for (size_t i = 0; i < text.bytes;) {
        int32_t code;
        const size_t at = i;
        i += (size_t)utf8_get(text.at + i, &code);
        if (!says(DIFFERING_COMPATIBLE, code, true)) return at;
    }
    return text.bytes;
}

struct span unicode_normal(struct arena *arena, struct span text, bool compose, bool compatible) {
    size_t ascii = 0;
    int32_t code;
    while (ascii < text.bytes && (text.at[ascii] & 0x80) == 0) ascii++;
    if (ascii == text.bytes) return text;
    size_t before = compatible ? before_differing(text) : text.bytes;
    if (before == text.bytes) return normal(arena, text, compose, compatible);
    struct strbuf out = {.arena = arena};
    for (; text.bytes; before = before_differing(text)) {
        const struct span made = normal(arena, (struct span){text.at, before}, compose, compatible);
        strbuf_add(&out, made.at, made.bytes);
        text = (struct span){text.at + before, text.bytes - before};
        const size_t kept = text.bytes ? (size_t)utf8_get(text.at, &code) : 0;
        strbuf_add(&out, text.at, kept);
        text = (struct span){text.at + kept, text.bytes - kept};
    }
    return (struct span){out.text, out.length};
}

size_t unicode_cluster(struct span text) {
    int32_t before, code, state = 0;
    size_t at = (size_t)utf8_get(text.at, &before);
    while (at < text.bytes) {
        const int length = utf8_get(text.at + at, &code);
        if (utf8proc_grapheme_break_stateful(before, code, &state)) break;
        at += (size_t)length;
        before = code;
    }
    return at;
}
