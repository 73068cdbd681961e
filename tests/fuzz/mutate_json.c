/* Mutations that mostly keep a JSON text well formed: a value (a string, a number, a word, a list or an object) is
 * replaced by another one of the text or by an odd one, a key by another key. One mutation in eight is of bytes. Every
 * second one is near the begin, so that a long list at the end is not all that changes. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { MOST_VALUES = 1 << 15, NEAR = 200, MOST_COPIED = 4096 };

struct value {
    size_t begin, end;
    bool key;
};

size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t size, size_t most, unsigned seed);

static unsigned pick(unsigned *seed, size_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)((*seed >> 8) % n);
}

/* Behind the string, number or word at `at`. */
static size_t scalar_end(const unsigned char *data, size_t size, size_t at) {
    if (data[at] == '"') {
        for (at++; at < size && data[at] != '"'; at++) at += data[at] == '\\';
        return at < size ? at + 1 : size;
    }
    while (at < size && !memchr(",:[]{}\" \n", data[at], 9)) at++;
    return at;
}

/* All values, from the text's bytes alone: what is not well formed gives some too. */
static size_t find_values(const unsigned char *data, size_t size, struct value *values) {
    size_t open[64], depth = 0, n = 0;
    for (size_t at = 0; at < size && n < MOST_VALUES;) {
        const unsigned char c = data[at];
        if (memchr(",: \n", c, 4)) {
            at++;
        } else if (c == '[' || c == '{') {
            if (depth < 64) open[depth++] = n;
            values[n++] = (struct value){at, at + 1, false}, at++;
        } else if (c == ']' || c == '}') {
            at++;
            if (depth) values[open[--depth]].end = at;
        } else {
            const size_t end = scalar_end(data, size, at);
            values[n++] = (struct value){at, end > at ? end : at + 1, end < size && data[end] == ':'};
            at = values[n - 1].end;
        }
    }
    return n;
}

static size_t replace(unsigned char *data, size_t size, size_t most, struct value value, const void *with, size_t n) {
    const size_t old = value.end - value.begin;
    if (size - old + n > most) return size;
    memmove(data + value.begin + n, data + value.end, size - value.end);
    memcpy(data + value.begin, with, n);
    return size - old + n;
}

size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t size, size_t most, unsigned seed) {
    static const char *const odd[] = {/* numbers */
                                      "0", "-1", "1e308", "2147483648", "9223372036854775807",
                                      /* texts */
                                      "\"\"", "\"\\u0000\"", "\"\\udc80\"", "\"a\"", "\"\\ud83d\\ude00\"",
                                      /* words and empty values */
                                      "true", "false", "null", "[]", "{}",
                                      /* patterns */
                                      "\"(a*)*b\"", "\"\\\\s+$\"", "\"(?i:x|[^\\\\p{L}]{2,}+)\""};
    if (!size || pick(&seed, 8) == 0) return LLVMFuzzerMutate(data, size, most);
    struct value *values = malloc(MOST_VALUES * sizeof *values);
    const size_t n = values ? find_values(data, size, values) : 0;
    if (!n) return free(values), LLVMFuzzerMutate(data, size, most);
    const struct value to = values[pick(&seed, pick(&seed, 2) && n > NEAR ? NEAR : n)], from = values[pick(&seed, n)];
    const size_t length = from.end - from.begin;
    free(values);
    if (!to.key && pick(&seed, 2)) {
        const char *text = odd[pick(&seed, sizeof odd / sizeof *odd)];
        return replace(data, size, most, to, text, strlen(text));
    }
    unsigned char copy[MOST_COPIED];
    if (to.key != from.key || length > sizeof copy) return size;
    memcpy(copy, data + from.begin, length);
    return replace(data, size, most, to, copy, length);
}
