#include "base/number/formula.h"

#include "base/number/checked.h"

#include <string.h>
#include <strings.h>

enum { DEPTH = 64 };

struct reader {
    const struct rt_formula *formula;
    const char *at;
    int depth;
    bool broken;
    const char *unknown;
    size_t unknown_length;
};

bool rt_formula_apply(char op, int64_t a, int64_t b, int64_t *out) {
    switch (op) {
    case '+': return rt_add(a, b, out);
    case '*': return rt_mul(a, b, out);
    case '<': *out = a < b ? a : b; return true;
    case '>': *out = a < b ? b : a; return true;
    case '/': *out = b > 0 ? a / b - (a % b < 0) : 0; return b > 0;
    case '%': *out = b > 0 ? a % b + (a % b < 0 ? b : 0) : 0; return b > 0;
    default: return false;
    }
}

static int64_t read_sum(struct reader *reader);

static int64_t apply(struct reader *reader, char op, int64_t a, int64_t b) {
    const struct rt_formula *formula = reader->formula;
    int64_t out = 0;
    if (reader->broken || reader->unknown) return 0;
    if (!(formula->apply ? formula->apply(formula->context, op, a, b, &out) : rt_formula_apply(op, a, b, &out)))
        reader->broken = true;
    return out;
}

static bool take(struct reader *reader, const char *text) {
    reader->at += strspn(reader->at, " ");
    if (strncasecmp(reader->at, text, strlen(text)) != 0) return false;
    reader->at += strlen(text);
    return true;
}

static void need(struct reader *reader, const char *text) {
    if (!take(reader, text)) reader->broken = true;
}

static int64_t read_number(struct reader *reader) {
    int64_t value = 0;
    for (; *reader->at >= '0' && *reader->at <= '9'; reader->at++)
        if (!rt_mul(value, 10, &value) || !rt_add(value, *reader->at - '0', &value)) reader->broken = true;
    return value;
}

static int64_t read_name(struct reader *reader) {
    const bool quoted = take(reader, "\"");
    const char *name = reader->at;
    const size_t length = strcspn(name, quoted ? "\"" : " +-*/%(),\"");
    int64_t value = 0;
    reader->at += length;
    if (!length) reader->broken = true;
    if (quoted) need(reader, "\"");
    if (!reader->broken && !reader->formula->value(reader->formula->context, name, length, &value) && !reader->unknown)
        reader->unknown = name, reader->unknown_length = length;
    return value;
}

static int64_t read_pair(struct reader *reader, char op) {
    const int64_t a = read_sum(reader);
    need(reader, ",");
    const int64_t b = read_sum(reader);
    need(reader, ")");
    return apply(reader, op, a, b);
}

static int64_t read_factor(struct reader *reader) {
    static const struct {
        const char *open;
        char op;
    } pairs[] = {{"max(", '>'}, {"greater(", '>'}, {"min(", '<'}, {"lesser(", '<'}};
    int64_t value = 0;
    if (++reader->depth > DEPTH) reader->broken = true;
    if (reader->broken) return 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!take(reader, pairs[i].open)) continue;
        value = read_pair(reader, pairs[i].op);
        reader->depth--;
        return value;
    }
    if (take(reader, "floor(") || take(reader, "(")) {
        value = read_sum(reader);
        need(reader, ")");
    } else {
        value = *reader->at >= '0' && *reader->at <= '9' ? read_number(reader) : read_name(reader);
    }
    reader->depth--;
    return value;
}

static int64_t read_product(struct reader *reader) {
    int64_t value = read_factor(reader);
    while (!reader->broken) {
        const char op = take(reader, "//") || take(reader, "/") ? '/'
                        : take(reader, "*")                     ? '*'
                        : take(reader, "%")                     ? '%'
                                                                : 0;
        if (!op) break;
        value = apply(reader, op, value, read_factor(reader));
    }
    return value;
}

static int64_t read_sum(struct reader *reader) {
    int64_t value = take(reader, "-") ? -read_product(reader) : read_product(reader);
    while (!reader->broken) {
        const bool less = take(reader, "-");
        if (!less && !take(reader, "+")) break;
        const int64_t other = read_product(reader);
        value = apply(reader, '+', value, less ? -other : other);
    }
    return value;
}

enum rt_formula_status rt_formula_read(const struct rt_formula *formula, const char *text, int64_t *out,
                                       const char **unknown, size_t *length) {
    struct reader reader = {.formula = formula, .at = text};
    *out = read_sum(&reader);
    reader.at += strspn(reader.at, " ");
    if (reader.broken || *reader.at) return RT_FORMULA_BROKEN;
    if (reader.unknown && unknown) *unknown = reader.unknown, *length = reader.unknown_length;
    return reader.unknown ? RT_FORMULA_UNKNOWN : RT_FORMULA_OK;
}
