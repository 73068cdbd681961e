#include <ctype.h>
#include <string.h>

#include "ir/text/reader.h"
#include "ir/base/str.h"

bool fail_at(struct reader *r, const char *at, const char *format, ...) {
    char text[256];
    RT_PRINT_TO(text, format);
    const char *where = arena_printf(r->arena, "%s:%lld:%lld", r->file, r->line, (long long)(at - r->line_start) + 1);
    diag_error(r->diags, 345, EXIT_MALFORMED, where, "%s", text);
    return false;
}

int peek(const struct reader *r) {
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

/* A backslash at the end of a line continues the statement on the next line. */
static bool continues(const struct reader *r) {
    return peek(r) == '\\' && r->end - r->at > 1 && r->at[1] == '\n';
}

void skip_blanks(struct reader *r) {
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\r' || continues(r)) {
        if (*r->at++ != '\\') continue;
        r->line_start = ++r->at;
        r->line++;
    }
}

const char *place(struct reader *r) {
    skip_blanks(r);
    return r->at;
}

bool take(struct reader *r, const char *token) {
    skip_blanks(r);
    size_t length = strlen(token);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, token, length) != 0) return false;
    r->at += length;
    return true;
}

bool expect(struct reader *r, const char *token) {
    return take(r, token) || fail_at(r, r->at, "'%s' expected", token);
}

bool at_line_end(struct reader *r) {
    skip_blanks(r);
    return peek(r) < 0 || peek(r) == '\n' || peek(r) == '#';
}

bool expect_line_end(struct reader *r) {
    return at_line_end(r) || fail_at(r, r->at, "unexpected text at the end of the statement");
}

void next_line(struct reader *r) {
    while (peek(r) >= 0 && peek(r) != '\n') r->at++;
    if (peek(r) < 0) return;
    r->line_start = ++r->at;
    r->line++;
}

bool next_statement(struct reader *r) {
    while (at_line_end(r) && peek(r) >= 0) next_line(r);
    return peek(r) >= 0;
}

bool read_word(struct reader *r, const char *also, const char *what, char word[MAX_WORD]) {
    const char *start = place(r);
    while (peek(r) > 0 && (isalnum(peek(r)) || strchr(also, peek(r)))) r->at++;
    size_t length = (size_t)(r->at - start);
    if (length == 0 || length >= MAX_WORD) return fail_at(r, start, length ? "%s is too long" : "%s expected", what);
    memcpy(word, start, length);
    word[length] = 0;
    return true;
}

bool read_name(struct reader *r, const char *what, char word[MAX_WORD]) {
    return read_word(r, "_", what, word);
}

static int hex_digit(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The byte of an escape \xNN, from its "x" on; -1 if it is malformed. */
static int read_escape(struct reader *r) {
    if (r->end - r->at < 3 || r->at[0] != 'x') return -1;
    int high = hex_digit(r->at[1]), low = hex_digit(r->at[2]);
    r->at += 3;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool read_string(struct reader *r, const char **text) {
    if (!expect(r, "\"")) return false;
    const char *close = r->at;
    while (close < r->end && *close != '"' && *close != '\n') close++;
    if (close == r->end || *close != '"') return fail_at(r, r->at, "unclosed quote");
    char *to = arena_alloc(r->arena, (size_t)(close - r->at) + 1, 1);
    *text = to;
    while (r->at < close) {
        const char *start = r->at++;
        int c = (unsigned char)*start;
        if (c < 0x20 || c >= 0x7f) return fail_at(r, start, "write byte 0x%02x as \\x%02x", c, c);
        if (c == '\\' && (c = read_escape(r)) <= 0) return fail_at(r, start, "an escape is \\xNN, not \\x00");
        *to++ = (char)c;
    }
    r->at = close + 1;
    return true;
}
