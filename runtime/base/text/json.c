#include "json.h"

#include "../io/file.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_VALUES 256
#define FILE_LIMIT   ((size_t)1 << 30)
#define FEW_MEMBERS  16
#define NUMBER_BYTES 64

/* Values are referenced by pointers and must not move: they are allocated from a linked list of blocks. */
struct block {
    struct block *next;
    struct rt_json values[BLOCK_VALUES];
};

struct rt_json_document {
    struct block *blocks;
    int used; /* entries used of the first block */
    char *strings;
    const struct rt_json *root;
};

struct parser {
    const char *at, *end, *line_start;
    int line, depth;
    bool python;   /* rt_json_parse_python */
    char *strings; /* next free byte for decoded strings, which are never longer than their source */
    struct rt_json_document *document;
    locale_t c_locale; /* strtod uses the locale's decimal point */
    struct rt_reason *why;
};

/* Columns count bytes and saturate at INT_MAX. */
static int column_of(const struct parser *p, const char *at) {
    ptrdiff_t column = at - p->line_start + 1;
    return column > INT_MAX ? INT_MAX : (int)column;
}

static bool fail_at(struct parser *p, const char *at, const char *text) {
    return rt_refuse(p->why, "line %d, column %d: %s", p->line, column_of(p, at), text);
}

static void skip_space(struct parser *p) {
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n') {
            if (p->line < INT_MAX) p->line++;
            p->line_start = p->at + 1;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r') {
            return;
        }
    }
}

static bool next_is(struct parser *p, char wanted) {
    skip_space(p);
    if (p->at == p->end || *p->at != wanted) return false;
    p->at++;
    return true;
}

static struct rt_json *new_value(struct parser *p) {
    struct rt_json_document *document = p->document;
    if (!document->blocks || document->used == BLOCK_VALUES) {
        struct block *block = malloc(sizeof *block);
        if (!block) {
            rt_refuse_memory(p->why, sizeof *block);
            return NULL;
        }
        block->next = document->blocks;
        document->blocks = block;
        document->used = 0;
    }
    struct rt_json *value = &document->blocks->values[document->used++];
    memset(value, 0, sizeof *value);
    value->line = p->line;
    value->column = column_of(p, p->at);
    return value;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The four digits of a \u escape; -1 if there are none. */
static int read_unit(struct parser *p) {
    if (p->end - p->at < 4) return -1;
    int unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p->at[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    p->at += 4;
    return unit;
}

static void put_utf8(struct parser *p, int code) {
    int extra = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int first[] = {0, 0xc0, 0xe0, 0xf0};
    *p->strings++ = (char)(first[extra] | code >> (6 * extra));
    while (extra-- > 0) *p->strings++ = (char)(0x80 | (code >> (6 * extra) & 0x3f));
}

static bool read_unicode(struct parser *p) {
    const char *start = p->at - 2;
    int code = read_unit(p);
    if (code < 0) return fail_at(p, start, "\\u needs four hexadecimal digits");
    if (code >= 0xdc80 && code <= 0xdcff) { /* a byte that is not UTF-8, as json.h says */
        *p->strings++ = (char)(code & 0xff);
        return true;
    }
    if (code >= 0xd800 && code <= 0xdbff) {
        int low = -1;
        if (p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u') {
            p->at += 2;
            low = read_unit(p);
        }
        if (low < 0xdc00 || low > 0xdfff) return fail_at(p, start, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        return fail_at(p, start, "half of a surrogate pair");
    }
    put_utf8(p, code);
    return true;
}

static bool read_escape(struct parser *p) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end) return fail_at(p, p->at, "unterminated string");
    char c = *p->at++;
    if (c == 'u') return read_unicode(p);
    const char *found = c ? strchr(names, c) : NULL;
    if (!found) return fail_at(p, p->at - 2, "unknown escape");
    *p->strings++ = meanings[found - names];
    return true;
}

/* Length of the valid UTF-8 sequence at `at`, 0 if there is none (overlong, surrogate, beyond U+10FFFF, cut). */
static int utf8_length(const unsigned char *at, size_t left) {
    if (at[0] < 0x80) return 1;
    int length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || left < (size_t)length) return 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (at[0] == 0xe0 && at[1] < 0xa0) return 0;
    if (at[0] == 0xed && at[1] > 0x9f) return 0;
    if (at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (at[0] == 0xf4 && at[1] > 0x8f) return 0;
    return length;
}

static bool read_string(struct parser *p, const char **text, size_t *bytes) {
    const char *open = p->at++;
    char *start = p->strings;
    for (;;) {
        if (p->at == p->end) return fail_at(p, open, "unterminated string");
        unsigned char c = (unsigned char)*p->at;
        if (c == '"') break;
        if (c < 0x20) return fail_at(p, p->at, "control character in a string");
        if (c == '\\') {
            p->at++;
            if (!read_escape(p)) return false;
            continue;
        }
        int length = utf8_length((const unsigned char *)p->at, (size_t)(p->end - p->at));
        if (length == 0) return fail_at(p, p->at, "string is not UTF-8");
        while (length-- > 0) *p->strings++ = *p->at++;
    }
    p->at++;
    *text = start;
    *bytes = (size_t)(p->strings - start);
    *p->strings++ = 0;
    return true;
}

static const char *skip_digits(const char *at, const char *end) {
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at;
}

/* End of the number at p->at by the grammar of RFC 8259; NULL: not a number. *whole: it has no fraction or exponent. */
static const char *number_end(const struct parser *p, bool *whole) {
    const char *at = p->at, *end = p->end;
    if (at < end && *at == '-') at++;
    const char *digits = at;
    at = skip_digits(at, end);
    if (at == digits || (*digits == '0' && at - digits > 1)) return NULL;
    *whole = true;
    if (at < end && *at == '.') {
        const char *fraction = ++at;
        at = skip_digits(at, end);
        if (at == fraction) return NULL;
        *whole = false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        const char *exponent = at;
        at = skip_digits(at, end);
        if (at == exponent) return NULL;
        *whole = false;
    }
    return at;
}

static bool read_integer(const char *at, const char *end, int64_t *out) {
    bool negative = *at == '-';
    int64_t value = 0;
    for (at += negative; at < end; at++) {
        int digit = *at - '0';
        if (__builtin_mul_overflow(value, 10, &value)) return false;
        if (__builtin_add_overflow(value, negative ? -digit : digit, &value)) return false;
    }
    *out = value;
    return true;
}

static bool read_number(struct parser *p, struct rt_json *value) {
    bool whole;
    char digits[NUMBER_BYTES];
    const char *end = number_end(p, &whole);
    if (!end) return fail_at(p, p->at, "malformed number");
    if (whole) {
        value->kind = RT_JSON_INT;
        if (!read_integer(p->at, end, &value->integer)) return fail_at(p, p->at, "integer does not fit in 64 bits");
    } else {
        size_t length = (size_t)(end - p->at);
        if (length >= sizeof digits) return fail_at(p, p->at, "number has too many digits");
        memcpy(digits, p->at, length);
        digits[length] = 0;
        value->kind = RT_JSON_REAL;
        value->real = strtod_l(digits, NULL, p->c_locale);
        if (!isfinite(value->real)) return fail_at(p, p->at, "number is out of range");
    }
    p->at = end;
    return true;
}

static bool parse_value(struct parser *p, struct rt_json **out);

static int compare_keys(const void *a, const void *b) {
    const struct rt_json *x = *(const struct rt_json *const *)a, *y = *(const struct rt_json *const *)b;
    if (x->key_bytes != y->key_bytes) return x->key_bytes < y->key_bytes ? -1 : 1;
    return memcmp(x->key, y->key, x->key_bytes);
}

static bool fail_duplicate(struct parser *p, const struct rt_json *a, const struct rt_json *b) {
    const struct rt_json *later = a->line > b->line || (a->line == b->line && a->column > b->column) ? a : b;
    return rt_refuse(p->why, "line %d, column %d: key \"%s\" is given twice", later->line, later->column,
                     rt_quote(later->key, later->key_bytes).text);
}

/* Finds duplicate keys. Few members are compared pairwise, many are sorted, so that the time does not grow
 * quadratically. */
static bool check_keys(struct parser *p, const struct rt_json *object) {
    if (object->count <= FEW_MEMBERS) {
        for (const struct rt_json *a = object->first; a; a = a->next)
            for (const struct rt_json *b = a->next; b; b = b->next)
                if (compare_keys(&a, &b) == 0) return fail_duplicate(p, a, b);
        return true;
    }
    size_t count = (size_t)object->count, i = 0;
    const struct rt_json **members = malloc(count * sizeof(*members));
    if (!members) return rt_refuse_memory(p->why, count * sizeof(*members));
    for (const struct rt_json *m = object->first; m; m = m->next) members[i++] = m;
    qsort(members, count, sizeof(*members), compare_keys);
    bool ok = true;
    for (i = 1; ok && i < count; i++)
        if (compare_keys(&members[i - 1], &members[i]) == 0) ok = fail_duplicate(p, members[i - 1], members[i]);
    free(members);
    return ok;
}

static bool parse_key(struct parser *p, const char **key, size_t *bytes) {
    skip_space(p);
    if (p->at == p->end || *p->at != '"') return fail_at(p, p->at, "key expected");
    if (!read_string(p, key, bytes)) return false;
    return next_is(p, ':') || fail_at(p, p->at, "':' expected after a key");
}

static bool parse_members(struct parser *p, struct rt_json *container, char close) {
    const struct rt_json **link = &container->first;
    if (next_is(p, close)) return true;
    for (;;) {
        const char *key = NULL;
        size_t key_bytes = 0;
        struct rt_json *value;
        if (close == '}' && !parse_key(p, &key, &key_bytes)) return false;
        if (!parse_value(p, &value)) return false;
        value->key = key;
        value->key_bytes = key_bytes;
        *link = value;
        link = &value->next;
        container->count++;
        if (next_is(p, ',')) continue;
        if (next_is(p, close)) return true;
        return fail_at(p, p->at, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
    }
}

static bool parse_container(struct parser *p, struct rt_json *value) {
    if (p->depth == RT_JSON_DEPTH) return fail_at(p, p->at, "nested too deeply");
    char close = *p->at++ == '{' ? '}' : ']';
    value->kind = close == '}' ? RT_JSON_OBJECT : RT_JSON_ARRAY;
    value->first = NULL;
    p->depth++;
    if (!parse_members(p, value, close)) return false;
    p->depth--;
    return close == ']' || check_keys(p, value);
}

static bool parse_word(struct parser *p, struct rt_json *value) {
    static const struct {
        const char *text;
        enum rt_json_kind kind;
        bool boolean;
    } words[] = {{"null", RT_JSON_NULL, false}, {"true", RT_JSON_BOOL, true}, {"false", RT_JSON_BOOL, false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].text);
        if ((size_t)(p->end - p->at) < length || memcmp(p->at, words[i].text, length) != 0) continue;
        p->at += length;
        value->kind = words[i].kind;
        value->boolean = words[i].boolean;
        return true;
    }
    return fail_at(p, p->at, p->at == p->end ? "text ends where a value is expected" : "value expected");
}

/* Numbers that RFC 8259 does not have, as null. */
static bool parse_no_number(struct parser *p, struct rt_json *value) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t length = strlen(words[i]);
        if ((size_t)(p->end - p->at) < length || memcmp(p->at, words[i], length) != 0) continue;
        p->at += length;
        value->kind = RT_JSON_NULL;
        return true;
    }
    return false;
}

static bool parse_value(struct parser *p, struct rt_json **out) {
    skip_space(p);
    struct rt_json *value = new_value(p);
    *out = value;
    if (!value) return false;
    char c = p->at < p->end ? *p->at : 0;
    if (p->python && parse_no_number(p, value)) return true;
    if (c == '{' || c == '[') return parse_container(p, value);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(p, value);
    if (c != '"') return parse_word(p, value);
    size_t bytes;
    value->kind = RT_JSON_STRING;
    if (!read_string(p, &value->text, &bytes)) return false;
    value->count = (int64_t)bytes;
    return true;
}

static bool parse_text(struct parser *p) {
    struct rt_json *root;
    if (!parse_value(p, &root)) return false;
    skip_space(p);
    if (p->at != p->end) return fail_at(p, p->at, "unexpected text after the value");
    p->document->root = root;
    return true;
}

static struct rt_json_document *parse(const char *text, size_t bytes, bool python, struct rt_reason *why) {
    struct rt_json_document *document = calloc(1, sizeof *document);
    char *strings = malloc(bytes + 1);
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!document || !strings || !c_locale) {
        rt_refuse_memory(why, bytes);
        free(document);
        free(strings);
        if (c_locale) freelocale(c_locale);
        return NULL;
    }
    document->strings = strings;
    struct parser p = {.at = text,
                       .end = text + bytes,
                       .line_start = text,
                       .line = 1,
                       .python = python,
                       .strings = strings,
                       .document = document,
                       .c_locale = c_locale,
                       .why = why};
    bool ok = parse_text(&p);
    freelocale(c_locale);
    if (ok) return document;
    rt_json_free(document);
    return NULL;
}

struct rt_json_document *rt_json_parse(const char *text, size_t bytes, struct rt_reason *why) {
    return parse(text, bytes, false, why);
}

struct rt_json_document *rt_json_parse_python(const char *text, size_t bytes, struct rt_reason *why) {
    return parse(text, bytes, true, why);
}

struct rt_json_document *rt_json_read(const char *path, struct rt_reason *why) {
    void *text;
    size_t bytes;
    if (!rt_file_read(path, FILE_LIMIT, &text, &bytes, why)) return NULL;
    struct rt_json_document *document = rt_json_parse(text, bytes, why);
    free(text);
    return document;
}

void rt_json_free(struct rt_json_document *document) {
    if (!document) return;
    for (struct block *next, *block = document->blocks; block; block = next) {
        next = block->next;
        free(block);
    }
    free(document->strings);
    free(document);
}

const struct rt_json *rt_json_root(const struct rt_json_document *document) {
    return document->root;
}

const struct rt_json *rt_json_member(const struct rt_json *object, const char *key) {
    if (!object || object->kind != RT_JSON_OBJECT) return NULL;
    size_t bytes = strlen(key);
    for (const struct rt_json *m = object->first; m; m = m->next)
        if (m->key_bytes == bytes && memcmp(m->key, key, bytes) == 0) return m;
    return NULL;
}

const struct rt_json *rt_json_first(const struct rt_json *list) {
    return list && list->kind == RT_JSON_ARRAY ? list->first : NULL;
}

const struct rt_json *rt_json_items(const struct rt_json *object, const char *key) {
    return rt_json_first(rt_json_member(object, key));
}

const struct rt_json *rt_json_item(const struct rt_json *object, const char *key, int64_t index) {
    const struct rt_json *item = index < 0 ? NULL : rt_json_items(object, key);
    while (item && index-- > 0) item = item->next;
    return item;
}

bool rt_json_bool(const struct rt_json *value, bool *out) {
    if (!value || value->kind != RT_JSON_BOOL) return false;
    *out = value->boolean;
    return true;
}

bool rt_json_int(const struct rt_json *value, int64_t *out) {
    if (!value || value->kind != RT_JSON_INT) return false;
    *out = value->integer;
    return true;
}

int64_t rt_json_number(const struct rt_json *object, const char *key, int64_t otherwise) {
    rt_json_int(rt_json_member(object, key), &otherwise);
    return otherwise;
}

bool rt_json_real(const struct rt_json *value, double *out) {
    if (!value || (value->kind != RT_JSON_REAL && value->kind != RT_JSON_INT)) return false;
    *out = value->kind == RT_JSON_REAL ? value->real : (double)value->integer;
    return true;
}

const char *rt_json_text(const struct rt_json *value) {
    if (!value || value->kind != RT_JSON_STRING || strlen(value->text) != (size_t)value->count) return NULL;
    return value->text;
}
