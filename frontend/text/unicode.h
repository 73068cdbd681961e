/* UTF-8, and what Unicode says of characters. Data are utf8proc's, so their version is that of the library; where the
 * package `tokenizers` has older tables, its answers count (differing.def). */
#ifndef FRONTEND_TEXT_UNICODE_H
#define FRONTEND_TEXT_UNICODE_H

#include <stdbool.h>

#include "ir/base/str.h"

enum { UTF8_MOST = 4, UNICODE_REPLACEMENT = 0xfffd };

/* Some bytes, which are not terminated. */
struct span {
    const char *at;
    size_t bytes;
};

/* The character that valid UTF-8 begins with; returns its bytes. */
static inline int utf8_get(const char *at, int32_t *code) {
    const unsigned char *byte = (const unsigned char *)at;
    if (byte[0] < 0x80) return *code = byte[0], 1;
    if (byte[0] < 0xe0) return *code = (byte[0] & 0x1f) << 6 | (byte[1] & 0x3f), 2;
    if (byte[0] < 0xf0) return *code = (byte[0] & 0xf) << 12 | (byte[1] & 0x3f) << 6 | (byte[2] & 0x3f), 3;
    *code = (byte[0] & 7) << 18 | (byte[1] & 0x3f) << 12 | (byte[2] & 0x3f) << 6 | (byte[3] & 0x3f);
    return 4;
}

/* Where the last character of valid UTF-8 begins; the text is not empty. */
size_t utf8_last(struct span text);
int64_t utf8_count(struct span text);

bool utf8_is_valid(struct span text);
/* The text with U+FFFD for each maximal part of a character, or other byte, that is not UTF-8 (Unicode, 3.9,
 * table 3-8). The text itself if it is valid, else in the arena. */
struct span utf8_repair(struct arena *arena, struct span text);

void strbuf_put_code(struct strbuf *buffer, int32_t code);

/* White_Space; Nd, Nl and No; P and ASCII's punctuation; M; Mn; Cc, Cf and Co; what \w of the Rust crate regex is:
 * Alphabetic, M, Nd, Pc, Join_Control. */
bool unicode_is_space(int32_t code);
bool unicode_is_numeric(int32_t code);
bool unicode_is_punctuation(int32_t code);
bool unicode_is_mark(int32_t code);
bool unicode_is_nonspacing(int32_t code);
bool unicode_is_other(int32_t code);
bool unicode_is_word(int32_t code);

/* Appends the character in lower case, by itself: not as the last of a word. */
void unicode_lower(struct strbuf *buffer, int32_t code);

/* True if the character is several ones regardless of case, as \u00df is ss. */
bool unicode_folds_to_several(int32_t code);

/* NFD, with `compose` NFC, and with `compatible` NFKD and NFKC. In the arena. */
struct span unicode_normal(struct arena *arena, struct span text, bool compose, bool compatible);

/* The bytes of the extended grapheme cluster that the text, which is not empty, begins with. */
size_t unicode_cluster(struct span text);

#endif
