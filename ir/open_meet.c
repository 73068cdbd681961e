/* Extents that must be equal and are written as different expressions of sizes (ir/open.h). */
#include "ir/open.h"

bool open_meet(struct open_sizes *open, int64_t a, int64_t b) {
    if (a != b && open && !open->clash.met && (open_is(open, a) || open_is(open, b)))
        open->clash = (struct open_clash){true, a, b};
    return a == b;
}

/* The term of the number; NULL: it is fixed. */
static const struct open_term *term_of(struct open_sizes *open, int64_t value) {
    const int at = open_term(open, value);
    return at < 0 ? NULL : &open->terms.at[at];
}

/* The number if the term is the lesser or the greater of it and `other`, else `value`. */
static int64_t without_choice(struct open_sizes *open, int64_t value, int64_t other) {
    const struct open_term *t = term_of(open, value);
    if (!t || (t->kind != OPEN_LESSER && t->kind != OPEN_GREATER)) return value;
    const int64_t a = open->terms.at[t->a].value, b = open->terms.at[t->b].value;
    return a == other ? b : b == other ? a : value;
}

static bool reads(const struct open_sizes *open, const struct open_term *t, int size) {
    if (t->kind == OPEN_NUMBER) return false;
    if (t->kind == OPEN_SIZE || t->kind == OPEN_UNIT) return t->a == size;
    return reads(open, &open->terms.at[t->a], size) || reads(open, &open->terms.at[t->b], size);
}

/* number + the sum of factor[s] units of each size (of its step, where that divides it). */
struct linear {
    int64_t number, factor[OPEN_SIZES];
};

/* Adds `scale` times the term; false if it is not linear. */
static bool add_term(const struct open_sizes *open, const struct open_term *t, int64_t scale, struct linear *sum) {
    const struct open_term *a = &open->terms.at[t->a < 0 ? 0 : t->a], *b = &open->terms.at[t->b < 0 ? 0 : t->b];
    switch (t->kind) {
    case OPEN_NUMBER: sum->number += scale * t->number; return true;
    case OPEN_SIZE: sum->factor[t->a] += scale * open_range_unit(&open->all.at[t->a].range); return true;
    case OPEN_UNIT: sum->factor[t->a] += scale; return true;
    case OPEN_SUM: return add_term(open, a, scale, sum) && add_term(open, b, scale, sum);
    case OPEN_PRODUCT:
        if (a->kind == OPEN_NUMBER) return add_term(open, b, scale * a->number, sum);
        return b->kind == OPEN_NUMBER && add_term(open, a, scale * b->number, sum);
    default: return false;
    }
}

static bool add_value(struct open_sizes *open, int64_t value, int64_t scale, struct linear *sum) {
    const struct open_term *t = term_of(open, value);
    if (t) return add_term(open, t, scale, sum);
    sum->number += scale * value;
    return true;
}

/* The value of size s at which the sum is 0; false if it is no whole number for every value of the others. */
static bool isolate(struct open_sizes *open, const struct linear *sum, int s, int64_t *value) {
    const int64_t unit = open_range_unit(&open->all.at[s].range), times = -sum->factor[s] / unit;
    if (!times || sum->factor[s] % unit || sum->number % times) return false;
    *value = 0;
    for (int i = 0; i < open->all.n; i++) {
        const int64_t step = open_range_unit(&open->all.at[i].range);
        if (i == s || !sum->factor[i]) continue;
        if (sum->factor[i] % step || sum->factor[i] / step % times) return false;
        *value = open_sum(open, *value, sum->factor[i] / step / times * open->all.at[i].value);
    }
    *value = open_sum(open, *value, sum->number / times);
    return true;
}

int open_solve(struct open_sizes *open, int64_t *value) {
    if (!open->clash.met) return -1;
    const int64_t left = without_choice(open, open->clash.a, open->clash.b);
    const int64_t right = without_choice(open, open->clash.b, left);
    struct linear sum = {0};
    const bool linear = add_value(open, left, 1, &sum) && add_value(open, right, -1, &sum);
    for (int s = open->all.n - 1; s >= 0; s--) {
        const int64_t own = open->all.at[s].value, other = own == left ? right : left;
        const struct open_term *t = term_of(open, other);
        if ((own != left && own != right) || !t || reads(open, t, s)) continue;
        *value = other;
        return s;
    }
    for (int s = open->all.n - 1; s >= 0 && linear; s--) {
        if (sum.factor[s] && isolate(open, &sum, s, value) && open_is(open, *value)) return s;
    }
    return -1;
}

/* If the term is the lesser of the fixed number and another term, the index of that other term; else -1. */
static int other_than(const struct open_sizes *open, const struct open_term *t, int64_t number) {
    if (t->kind != OPEN_LESSER) return -1;
    const struct open_term *a = &open->terms.at[t->a], *b = &open->terms.at[t->b];
    return a->kind == OPEN_NUMBER && a->number == number   ? t->b
           : b->kind == OPEN_NUMBER && b->number == number ? t->a
                                                           : -1;
}

/* Evaluates the term in `to`, for the given sizes. Where it takes the lesser of `limit` and another number, the result
 * is that other number. limit = 0: no limit. */
static int64_t again(struct open_sizes *to, const struct open_sizes *from, int term, const int64_t *sizes,
                     int64_t limit) {
    const struct open_term t = from->terms.at[term]; /* the terms may move */
    if (t.kind == OPEN_NUMBER) return t.number;
    if (t.kind == OPEN_SIZE) return sizes[t.a];
    if (t.kind == OPEN_UNIT) return open_quotient(to, sizes[t.a], open_range_unit(&from->all.at[t.a].range));
    const int other = limit ? other_than(from, &t, limit) : -1;
    if (other >= 0) return again(to, from, other, sizes, limit);
    const int64_t a = again(to, from, t.a, sizes, limit), b = again(to, from, t.b, sizes, limit);
    switch (t.kind) {
    case OPEN_SUM: return open_sum(to, a, b);
    case OPEN_PRODUCT: return a * b;
    case OPEN_QUOTIENT: return b ? open_quotient(to, a, b) : 0;
    case OPEN_REST: return b ? open_rest(to, a, b) : a;
    case OPEN_LESSER: return open_lesser(to, a, b);
    default: return open_greater(to, a, b);
    }
}

int64_t open_again(struct open_sizes *to, struct open_sizes *from, int64_t value, const int64_t *sizes) {
    const struct open_term *t = term_of(from, value);
    return t ? again(to, from, (int)(t - from->terms.at), sizes, 0) : value;
}

/* The number if others do not exceed the limit. */
static int64_t unlimited(struct open_sizes *open, int64_t value, int64_t limit) {
    const int term = open_term(open, value);
    int64_t sizes[OPEN_SIZES];
    for (int i = 0; i < open->all.n; i++) sizes[i] = open->all.at[i].value;
    return term < 0 ? value : again(open, open, term, sizes, limit);
}

/* Of the lesser of a fixed number and one of several sizes. */
static bool limit_of(const struct open_sizes *open, const struct open_term *t, struct open_limit *limit) {
    if (t->kind != OPEN_LESSER) return false;
    const struct open_term *a = &open->terms.at[t->a], *b = &open->terms.at[t->b];
    const struct open_term *fixed = a->kind == OPEN_NUMBER ? a : b, *other = fixed == a ? b : a;
    int sizes = 0;
    for (int s = 0; s < open->all.n; s++) sizes += reads(open, other, s);
    *limit = (struct open_limit){other->value, fixed->number};
    return fixed->kind == OPEN_NUMBER && fixed->number > 0 && sizes > 1;
}

bool open_exceeds(struct open_sizes *open, struct open_limit *limit) {
    const int natoms = open->atoms.n; /* before further ones are made */
    for (int i = 0; i < natoms && open->clash.met; i++)
        if (limit_of(open, &open->terms.at[open->atoms.at[i]], limit) &&
            unlimited(open, open->clash.a, limit->most) == unlimited(open, open->clash.b, limit->most))
            return true;
    return false;
}

bool open_reads(struct open_sizes *open, int64_t value, int size) {
    const struct open_term *t = term_of(open, value);
    return t && reads(open, t, size);
}
