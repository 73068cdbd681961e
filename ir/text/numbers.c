/* Numbers: digits, or what depends on open sizes (ir/open.h). */
#include <string.h>

#include "ir/number.h"
#include "ir/text/reader.h"
#include "runtime/base/number/checked.h"

enum { MOST_ATOMS = 4096, MOST_DEPTH = 64, MOST_SIZE = 1 << 30 };

static bool read_digits(struct reader *r, const char *what, int64_t *value) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_word(r, "-", what, word)) return false;
    return number_parse(word, RT_I64, value) || fail_at(r, start, "%s must be an integer of 64 bits", what);
}

bool read_size(struct reader *r) {
    struct graph *graph = r->graph;
    const char *name, *rest, *start = place(r);
    char word[MAX_WORD];
    struct open_range range;
    if (graph->tensors.n || (graph->open && graph->open->all.n == OPEN_SIZES))
        return fail_at(r, start, "sizes come before tensors, and are at most %d", OPEN_SIZES);
    if (!read_string(r, &name)) return false;
    for (int i = 0; graph->open && i < graph->open->all.n; i++)
        if (strcmp(graph->open->all.at[i].name, name) == 0) return fail_at(r, start, "this size is given twice");
    const char *at = place(r);
    if (!read_word(r, ".:@", "a range", word)) return false;
    if (!open_range_parse(word, &range, &rest) || *rest || !open_is_range(&range) || range.most > MOST_SIZE)
        return fail_at(r, at, "a range is LEAST..MOST[:STEP][@TYPICAL], at most %d", MOST_SIZE);
    if (!graph->open) graph->open = open_new(r->arena, 2 * r->pair + r->second);
    open_add(graph->open, name, &range);
    return true;
}

bool read_extent(struct reader *r) {
    const char *start = place(r);
    int64_t value;
    if (!r->graph->open || r->graph->tensors.n)
        return fail_at(r, start, "extents come behind the sizes, before tensors");
    if (r->graph->open->atoms.n > MOST_ATOMS) return fail_at(r, start, "more than %d extents", MOST_ATOMS);
    return read_expression(r, &value);
}

bool read_next(struct reader *r) {
    struct open_sizes *open = r->graph->open;
    const char *name, *start = place(r);
    int64_t value;
    int s = 0;
    if (!open || r->graph->tensors.n) return fail_at(r, start, "what sizes become comes behind them, before tensors");
    if (!read_string(r, &name)) return false;
    while (s < open->all.n && strcmp(open->all.at[s].name, name) != 0) s++;
    if (s == open->all.n) return fail_at(r, start, "no size has this name");
    if (!read_expression(r, &value)) return false;
    if (!open_is(open, value)) return fail_at(r, start, "a size that is kept follows from sizes");
    open_keep(open, s, value);
    return true;
}

bool read_limit(struct reader *r) {
    const char *start = place(r);
    int64_t most, value;
    if (!r->graph->open || r->graph->tensors.n)
        return fail_at(r, start, "limits come behind the sizes, before tensors");
    if (!read_digits(r, "a limit", &most) || !read_expression(r, &value)) return false;
    if (!open_is(r->graph->open, value) || most < 1 || most > MOST_SIZE)
        return fail_at(r, start, "a limit is a positive number and what follows from sizes");
    open_limit(r->graph->open, value, most);
    return true;
}

static const struct {
    const char *name;
    int64_t (*of)(struct open_sizes *open, int64_t a, int64_t b);
} calls[] = {{"lesser(", open_lesser}, {"greater(", open_greater}};
enum { CALLS = sizeof calls / sizeof *calls };

bool starts_extent(struct reader *r) {
    skip_blanks(r);
    bool call = false;
    for (int i = 0; i < CALLS; i++) call = call || strncmp(r->at, calls[i].name, strlen(calls[i].name)) == 0;
    return r->graph->open && (peek(r) == '"' || peek(r) == '(' || call);
}

static bool read_named(struct reader *r, int64_t *value) {
    const char *name, *start = place(r);
    if (!read_string(r, &name)) return false;
    for (int i = 0; i < r->graph->open->all.n; i++)
        if (strcmp(r->graph->open->all.at[i].name, name) == 0) return *value = r->graph->open->all.at[i].value, true;
    return fail_at(r, start, "no size has this name");
}

static bool read_call(struct reader *r, int64_t *value) {
    int64_t a, b;
    for (int i = 0; i < CALLS; i++) {
        if (!take(r, calls[i].name)) continue;
        if (!read_expression(r, &a) || !expect(r, ",") || !read_expression(r, &b) || !expect(r, ")")) return false;
        return *value = calls[i].of(r->graph->open, a, b), true;
    }
    return fail_at(r, r->at, "a number or the name of a size expected");
}

bool read_factor(struct reader *r, int64_t *value) {
    skip_blanks(r);
    if (r->depth == MOST_DEPTH) return fail_at(r, r->at, "expressions are nested too deeply");
    r->depth++;
    const bool good = peek(r) == '"'     ? read_named(r, value)
                      : take(r, "(")     ? read_expression(r, value) && expect(r, ")")
                      : starts_extent(r) ? read_call(r, value)
                                         : read_digits(r, "a number", value);
    r->depth--;
    return good;
}

static bool read_product(struct reader *r, int64_t *value) {
    struct open_sizes *open = r->graph->open;
    int64_t other;
    if (!read_factor(r, value)) return false;
    for (;;) {
        const char *start = place(r);
        const int sign = take(r, "*") ? '*' : take(r, "/") ? '/' : take(r, "%") ? '%' : 0;
        if (!sign) return true;
        if (!read_factor(r, &other)) return false;
        if (sign != '*' && other < 1) return fail_at(r, start, "a divisor is at least 1");
        if (sign == '*' && !rt_mul(*value, other, value)) return fail_at(r, start, "the number is too large");
        if (sign == '/') *value = open_quotient(open, *value, other);
        if (sign == '%') *value = open_rest(open, *value, other);
    }
}

bool read_expression(struct reader *r, int64_t *value) {
    int64_t other, sum;
    if (!read_product(r, value)) return false;
    for (;;) {
        const char *start = place(r);
        const bool less = take(r, "-");
        if (!less && !take(r, "+")) return true;
        if (!read_product(r, &other)) return false;
        if (other == INT64_MIN || !rt_add(*value, less ? -other : other, &sum))
            return fail_at(r, start, "the number is too large");
        *value = open_sum(r->graph->open, *value, less ? -other : other);
    }
}

bool read_int(struct reader *r, int64_t least, int64_t most, const char *what, int64_t *value) {
    const char *start = place(r);
    if (!(starts_extent(r) ? read_factor(r, value) : read_digits(r, what, value))) return false;
    if (*value >= least && *value <= most) return true;
    if (most == INT64_MAX) return fail_at(r, start, "%s must be at least %lld", what, (long long)least);
    return fail_at(r, start, "%s must be from %lld to %lld", what, (long long)least, (long long)most);
}

bool read_ints(struct reader *r, int most, int64_t least, int *n, const int64_t **ints) {
    VEC(int64_t) list = {0};
    int64_t value;
    if (!expect(r, "[")) return false;
    for (bool more = !take(r, "]"); more; more = !take(r, "]")) {
        if (list.n == most) return fail_at(r, r->at, "more than %d numbers", most);
        if (list.n && !expect(r, ",")) return false;
        const char *start = place(r);
        if (!r->graph->open) {
            if (!read_int(r, least, INT64_MAX, "the number", &value)) return false;
        } else if (!read_expression(r, &value)) {
            return false;
        } else if (value < least) {
            return fail_at(r, start, "the number must be at least %lld", (long long)least);
        }
        VEC_PUSH(r->arena, &list, value);
    }
    *n = list.n;
    *ints = list.at;
    return true;
}
