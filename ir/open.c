#include "ir/open.h"

#include <stdlib.h>

#include "ir/base/diag.h"
#include "runtime/base/number/checked.h"

enum {
    MOST_WEIGHT = 400,
    FACTORS = 5, /* of a product that are found in the best way */
    LINEAR_PARTS = 8,
    CORNERS = 5,
    TRIED = 96 /* sizes at which expressions are compared */,
    MOST_TRIED = 1 << 14, /* combinations of sizes, for exact bounds */
    SOON = 1 << 12,       /* numbers that are tried for one that stands apart */
    APART = 17            /* what operators add to sizes is mostly less */
};

/* What is so large stands for a bound without end, and for no product of sizes. */
static const int64_t without_end = (int64_t)1 << 61;

struct open_sizes *open_new(struct arena *arena, int specimen) {
    struct open_sizes *open = ARENA_NEW(arena, struct open_sizes);
    *open = (struct open_sizes){.arena = arena, .specimen = specimen};
    map_init(&open->known, arena);
    map_init(&open->products, arena);
    map_init(&open->noted, arena);
    return open;
}

static bool is_prime(int64_t n) {
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return n > 1;
}

/* Per specimen: `near`, about how large its sizes are; `first` and `apart`: primes that stand for numbers computed
 * from sizes begin at `first`, one in each `apart` numbers. Later specimens serve models whose tensors have many open
 * dimensions, or dimensions that are computed from sizes in many ways. No size is a prime below `least`. */
static const struct {
    int64_t near, least, first, apart;
} magnitudes[OPEN_SPECIMENS] = {
    {100000, 1009, 233333, 1009}, {131000, 1009, 305666, 1009}, {117000, 1009, 273000, 1009},
    {149000, 1009, 347666, 1009}, {9000, 1009, 21000, 1009},    {11000, 1009, 25666, 1009},
    {700, 211, 1633, 211},        {900, 211, 2100, 211},        {2500, 211, 5833, 37},
    {3100, 211, 7233, 37},        {1300, 211, 211, 23},         {1700, 211, 307, 23},
    {1500, 211, 409, 31},         {1900, 211, 503, 31},         {1150, 211, 307, 29},
    {1550, 211, 401, 29}};

static int64_t least_prime(const struct open_sizes *open) {
    return magnitudes[open->specimen].least;
}

static bool is_known(const struct open_sizes *open, int64_t value) {
    return map_get(&open->known, (const char *)&value, sizeof value) >= 0;
}

/* True if all its factors are small, as those of fixed numbers of models are. */
static bool is_smooth(int64_t value) {
    enum { MOST = 7 };
    for (int64_t d = 2; d <= MOST; d++)
        while (value && value % d == 0) value /= d;
    return value >= -1 && value <= 1;
}

/* True if one of the numbers that are less than `apart` from `value` is a multiple of `of`. */
static bool is_near_multiple(int64_t value, int64_t apart, int64_t of) {
    return llabs(value + apart - 1) % of <= 2 * (apart - 1);
}

/* True if the value can stand for a size or a result, since it is unlikely to come up by chance. The value and its
 * neighbours are no products of small primes, as fixed numbers are. No atom is a multiple of the value or near one;
 * the value is no multiple of a large atom, nor within less than `apart` of one. */
static bool stands_apart(const struct open_sizes *open, int64_t value, int64_t apart) {
    if (is_smooth(value - 1) || is_smooth(value) || is_smooth(value + 1)) return false;
    for (int i = 0; i < open->atoms.n; i++) {
        const struct open_term *t = &open->terms.at[open->atoms.at[i]];
        const int64_t own = t->kind == OPEN_SIZE || t->kind == OPEN_UNIT ? APART : 2;
        if (is_near_multiple(t->value, own, llabs(value))) return false;
        if (llabs(t->value) >= OPEN_LEAST_ATOM && is_near_multiple(value, apart, llabs(t->value))) return false;
    }
    return true;
}

/* True if the value can stand for something. At first the value must satisfy stands_apart(). After a long search
 * without success (`soon` is false) it is enough that the value is not known yet. */
static bool is_free(const struct open_sizes *open, int64_t value, int64_t apart, bool soon) {
    return soon ? stands_apart(open, value, apart) : !is_known(open, value);
}

/* True if the prime can be used in this specimen. In one specimen of a pair, primes leave at most half of the divisor
 * as remainder, in the other more. So no number is the same in both. */
static bool is_of_specimen(const struct open_sizes *open, int64_t prime, int64_t divisor) {
    return (prime % divisor > divisor / 2) == open->specimen % 2;
}

/* The value of the size in this specimen: its unit times a prime. The prime is not near that of another size of the
 * specimen, nor near that of the same size in another specimen. */
static int64_t specimen_of(const struct open_sizes *open, const struct open_range *size) {
    enum { BETWEEN_SIZES = 211, BETWEEN_SPECIMENS = 53 };
    const int64_t unit = open_range_unit(size),
                  near = magnitudes[open->specimen].near * (10 + 3 * open->all.n) / 10 / unit;
    const int64_t step = size->step / unit, least = size->least / unit;
    const int64_t away = BETWEEN_SIZES * open->all.n + BETWEEN_SPECIMENS * open->specimen;
    int64_t value = least_prime(open) + away * step;
    if (value < near) value = near;
    value += step + (least - value) % step;
    int64_t divisor = 5, far = value + SOON * step;
    while (step % divisor == 0) divisor += 2;
    while (!is_prime(value) || !is_of_specimen(open, value, divisor) || !is_free(open, value, APART, value < far) ||
           !is_free(open, value * unit, APART, value < far))
        value += step;
    return value * unit;
}

static int term_add(struct open_sizes *open, struct map *map, struct open_term term) {
    map_put(map, (const char *)&term.value, sizeof term.value, open->terms.n);
    VEC_PUSH(open->arena, &open->terms, term);
    return open->terms.n - 1;
}

static int atom_add(struct open_sizes *open, struct open_term term) {
    VEC_PUSH(open->arena, &open->atoms, open->terms.n);
    return term_add(open, &open->known, term);
}

/* How many sizes and numbers the term reads, counting each as often as it stands there. */
static int weight_of(const struct open_sizes *open, int term) {
    return open->terms.at[term].weight;
}

/* The term of a fixed number: it is not found by its value. */
static int number_term(struct open_sizes *open, int64_t number) {
    VEC_PUSH(open->arena, &open->terms, ((struct open_term){OPEN_NUMBER, -1, -1, number, number, 1}));
    return open->terms.n - 1;
}

int64_t open_add(struct open_sizes *open, const char *name, const struct open_range *range) {
    struct open_size size = {name, *range, 0};
    size.value = specimen_of(open, range);
    VEC_PUSH(open->arena, &open->all, size);
    const int s = open->all.n - 1;
    atom_add(open, (struct open_term){OPEN_SIZE, s, -1, 0, size.value, 1});
    if (open_range_unit(range) != 1)
        atom_add(open, (struct open_term){OPEN_UNIT, s, -1, 0, size.value / open_range_unit(range), 1});
    return size.value;
}

static int find(struct open_sizes *open, int64_t value, int depth);

static int product_of(struct open_sizes *open, int64_t value, int atom, int depth) {
    const int64_t rest = value / open->terms.at[atom].value;
    int other = find(open, rest, depth - 1);
    if (other < 0) other = number_term(open, rest);
    const int weight = weight_of(open, other) + weight_of(open, atom);
    const int before = map_get(&open->products, (const char *)&value, sizeof value);
    const int64_t bound = before < 0 ? 0 : open->terms.at[before].bound;
    return term_add(open, &open->products,
                    (struct open_term){OPEN_PRODUCT, other, atom, 0, value, weight, bound, open->atoms.n});
}

/* The fixed number that remains when the value is divided by atoms: the smallest one, over all ways of dividing. An
 * atom that is a sum may divide the value by chance, but what remains then is large. */
static int64_t fixed_factor(const struct open_sizes *open, int64_t value, int depth) {
    int64_t least = value < 0 ? -value : value;
    for (int i = 0; i < open->atoms.n && depth && least >= OPEN_LEAST_ATOM; i++) {
        const int64_t atom = open->terms.at[open->atoms.at[i]].value;
        const int64_t left = value % atom ? least : fixed_factor(open, value / atom, depth - 1);
        if (left < least) least = left;
    }
    return least;
}

/* If several atoms leave the same fixed number, the one noted last is taken: it was made of the others. A product
 * found before is looked for again if an atom has been noted since. */
static int find(struct open_sizes *open, int64_t value, int depth) {
    const int known = map_get(&open->known, (const char *)&value, sizeof value);
    if (known >= 0 || !depth || (value > -OPEN_LEAST_ATOM && value < OPEN_LEAST_ATOM)) return known;
    const int product = map_get(&open->products, (const char *)&value, sizeof value);
    if (product >= 0 && open->terms.at[product].atoms == open->atoms.n) return product;
    if (value <= -without_end || value >= without_end) return -1;
    int best = -1;
    int64_t least = INT64_MAX;
    for (int i = open->atoms.n - 1; i >= 0; i--) {
        const int64_t atom = open->terms.at[open->atoms.at[i]].value;
        if (value % atom) continue;
        const int64_t left = fixed_factor(open, value / atom, FACTORS);
        if (left < least) least = left, best = open->atoms.at[i];
    }
    return best < 0 ? -1 : product_of(open, value, best, depth);
}

int open_term(struct open_sizes *open, int64_t value) {
    return open ? find(open, value, OPEN_DEPTH) : -1;
}

bool open_is(struct open_sizes *open, int64_t value) {
    return open_term(open, value) >= 0;
}

static int term_or_number(struct open_sizes *open, int64_t value) {
    const int term = open_term(open, value);
    return term >= 0 ? term : number_term(open, value);
}

static int64_t floor_of(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static int64_t apply(enum open_kind kind, int64_t a, int64_t b) {
    switch (kind) {
    case OPEN_SUM: return a + b;
    case OPEN_PRODUCT: return a * b;
    case OPEN_QUOTIENT: return b ? floor_of(a, b) : 0;
    case OPEN_REST: return b ? a - floor_of(a, b) * b : a;
    case OPEN_LESSER: return a < b ? a : b;
    default: return a < b ? b : a;
    }
}

static int64_t evaluate(const struct open_sizes *open, int term, const int64_t *sizes) {
    const struct open_term *t = &open->terms.at[term];
    if (t->kind == OPEN_NUMBER) return t->number;
    if (t->kind == OPEN_SIZE) return sizes[t->a];
    if (t->kind == OPEN_UNIT) return sizes[t->a] / open_range_unit(&open->all.at[t->a].range);
    return apply(t->kind, evaluate(open, t->a, sizes), evaluate(open, t->b, sizes));
}

/* Sizes of the ranges: the least and the largest of each size in all combinations of the first few, then others. */
static void some_sizes(const struct open_sizes *open, int number, int64_t *sizes) {
    for (int i = 0; i < open->all.n; i++) {
        const struct open_range *range = &open->all.at[i].range;
        const int64_t steps = (range->most - range->least) / range->step;
        const uint64_t scattered = (uint64_t)(number * OPEN_SIZES + i) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
        const int64_t corner = number >> (i < CORNERS ? i : CORNERS - 1) & 1 ? steps : 0;
        const int64_t at = number < 1 << CORNERS ? corner : (int64_t)(scattered % (uint64_t)(steps + 1));
        sizes[i] = range->least + at * range->step;
    }
}

/* True if the term (or `number`, if term is -1) equals the result of the operation on a and b for all sizes that are
 * tried. This excludes terms that equal the result in one specimen by chance. */
static bool means(const struct open_sizes *open, int term, int64_t number, enum open_kind kind, int a, int b) {
    int64_t sizes[OPEN_SIZES];
    for (int i = 0; i < TRIED; i++) {
        some_sizes(open, i, sizes);
        const int64_t value = apply(kind, evaluate(open, a, sizes), evaluate(open, b, sizes));
        if (value != (term < 0 ? number : evaluate(open, term, sizes))) return false;
    }
    return true;
}

/* True if the term reads the lesser or the greater of two: its value says nothing about sizes. */
static bool reads_choice(const struct open_sizes *open, int term) {
    const struct open_term *t = &open->terms.at[term];
    if (t->kind == OPEN_LESSER || t->kind == OPEN_GREATER) return true;
    if (t->kind == OPEN_NUMBER || t->kind == OPEN_SIZE || t->kind == OPEN_UNIT) return false;
    return reads_choice(open, t->a) || reads_choice(open, t->b);
}

/* True for a sum that is negative in the specimen alone, because of such a value. */
static bool is_negative_by_choice(const struct open_sizes *open, enum open_kind kind, int a, int b, int64_t value) {
    int64_t sizes[OPEN_SIZES];
    if (kind != OPEN_SUM || value >= 0 || (!reads_choice(open, a) && !reads_choice(open, b))) return false;
    for (int i = 0; i < TRIED; i++) {
        some_sizes(open, i, sizes);
        if (evaluate(open, a, sizes) + evaluate(open, b, sizes) < 0) return false;
    }
    return true;
}

/* The value of a fixed number that the operation gives for all sizes; else `value`. */
static int64_t constant_of(const struct open_sizes *open, enum open_kind kind, int a, int b, int64_t value) {
    int64_t sizes[OPEN_SIZES];
    some_sizes(open, 0, sizes);
    const int64_t first = apply(kind, evaluate(open, a, sizes), evaluate(open, b, sizes));
    return means(open, -1, first, kind, a, b) ? first : value;
}

/* The first prime from `value` on that can stand for the quotient a / b and leaves a remainder a - b * prime that can
 * stand for something, too. b = 0: the prime stands for something other than a quotient. */
static int64_t free_prime(const struct open_sizes *open, int64_t value, int64_t a, int64_t b) {
    const int64_t far = value + SOON;
    while (!is_prime(value) || !is_of_specimen(open, value, 4) || !is_free(open, value, 2, value < far) ||
           (b && !is_free(open, a - b * value, 1, value < far)))
        value++;
    return value;
}

/* A prime that stands for an atom instead of its value, which could be taken for a fixed number. */
static int64_t stand_in(const struct open_sizes *open, int64_t a, int64_t b) {
    const int64_t apart = magnitudes[open->specimen].apart * (int64_t)open->atoms.n;
    return free_prime(open, magnitudes[open->specimen].first + apart, a, b);
}

/* The number that stands for the operation on a and b, which has `value` in this specimen. If the sizes cancel out, it
 * is a fixed number. If a known number means the same, it is that one. Otherwise it is a new atom, normally `value`
 * itself. A prime takes the place of `value` if that already stands for something else, is too small to be told from
 * fixed numbers, is the lesser or greater of two numbers, or is negative in this specimen alone. */
static int64_t find_or_add(struct open_sizes *open, enum open_kind kind, int64_t a, int64_t b, int64_t value) {
    const int left = term_or_number(open, a), right = term_or_number(open, b);
    const int weight = weight_of(open, left) + weight_of(open, right);
    const bool known = is_known(open, value);
    const int same = open_term(open, value);
    if (same >= 0 && means(open, same, value, kind, left, right)) return value;
    const int64_t constant = constant_of(open, kind, left, right, value);
    if (constant != value || means(open, -1, value, kind, left, right)) return constant;
    for (int i = 0; i < open->atoms.n; i++)
        if (means(open, open->atoms.at[i], 0, kind, left, right)) return open->terms.at[open->atoms.at[i]].value;
    if (weight > MOST_WEIGHT) return open->spoiled = true, value;
    const bool telling = kind == OPEN_SUM || kind == OPEN_QUOTIENT || kind == OPEN_REST;
    if (known || !telling || (value > -OPEN_LEAST_ATOM && value < OPEN_LEAST_ATOM) ||
        is_negative_by_choice(open, kind, left, right, value))
        value = stand_in(open, 0, 0);
    atom_add(open, (struct open_term){kind, left, right, 0, value, weight});
    return value;
}

/* The same; the result for the same operands is kept, since passes compute the same extents again and again. */
static int64_t note(struct open_sizes *open, enum open_kind kind, int64_t a, int64_t b, int64_t value) {
    const int64_t key[] = {(int64_t)kind, a, b};
    const int kept = map_get(&open->noted, (const char *)key, sizeof key);
    if (kept >= 0) return open->results.at[kept];
    const bool before = open->spoiled;
    open->spoiled = false;
    const int64_t result = find_or_add(open, kind, a, b, value);
    if (!open->spoiled) {
        map_put(&open->noted, (const char *)key, sizeof key, open->results.n);
        VEC_PUSH(open->arena, &open->results, result);
    }
    open->spoiled = open->spoiled || before;
    return result;
}

static bool either_is(struct open_sizes *open, int64_t a, int64_t b) {
    return open_is(open, a) || open_is(open, b);
}

int64_t open_sum(struct open_sizes *open, int64_t a, int64_t b) {
    return a && b && either_is(open, a, b) ? note(open, OPEN_SUM, a, b, a + b) : a + b;
}

/* A prime that stands for the quotient a / b. It is smaller than the actual quotient, by a fraction that differs from
 * one atom to the next. So neither the difference of two such primes nor a - a / b * b is a small number. */
static int64_t apart(const struct open_sizes *open, int64_t a, int64_t b) {
    enum { PARTS = 64, MOST_PARTS = 56, VARIED = 29, STRIDE = 5 };
    const int64_t value = a / b / PARTS * (MOST_PARTS - (int64_t)open->atoms.n * STRIDE % VARIED);
    return value < least_prime(open) ? stand_in(open, a, b) : free_prime(open, value, a, b);
}

/* A number as the sum of `number` and of factors times values that are no sums, nor rests, which are a - a / b * b. */
struct linear {
    int n;
    struct {
        int64_t factor, value;
    } part[LINEAR_PARTS];
    int64_t number;
};

static void add_part(struct linear *linear, int64_t factor, int64_t value) {
    int i = 0;
    while (i < linear->n && linear->part[i].value != value) i++;
    if (i == linear->n && i < LINEAR_PARTS) linear->part[linear->n++].value = value, linear->part[i].factor = 0;
    if (i < LINEAR_PARTS) linear->part[i].factor += factor;
}

static void add_linear(const struct open_sizes *open, struct linear *linear, int term, int64_t factor) {
    const struct open_term *t = &open->terms.at[term];
    int64_t fixed = 1;
    int other = -1, others = 0;
    if (t->kind == OPEN_NUMBER) {
        linear->number += factor * t->number;
        return;
    }
    if (t->kind == OPEN_SUM) {
        add_linear(open, linear, t->a, factor);
        add_linear(open, linear, t->b, factor);
        return;
    }
    if (t->kind == OPEN_REST) {
        const int64_t top = open->terms.at[t->a].value, b = open->terms.at[t->b].value;
        const int64_t whole = (top - t->value) / b;
        const int quotient = map_get(&open->known, (const char *)&whole, sizeof whole);
        if (whole * b + t->value == top && quotient >= 0 && open->terms.at[quotient].kind == OPEN_QUOTIENT) {
            add_linear(open, linear, t->a, factor);
            add_part(linear, -factor * b, whole);
            return;
        }
    }
    if (t->kind == OPEN_SIZE) fixed = open_range_unit(&open->all.at[t->a].range);
    for (int at = term; open->terms.at[at].kind == OPEN_PRODUCT; at = open->terms.at[at].a) {
        const struct open_term *product = &open->terms.at[at];
        const int ends[] = {product->b, open->terms.at[product->a].kind == OPEN_PRODUCT ? -1 : product->a};
        for (int i = 0; i < 2; i++) {
            if (ends[i] < 0) continue;
            if (open->terms.at[ends[i]].kind == OPEN_NUMBER)
                fixed *= open->terms.at[ends[i]].number;
            else
                other = ends[i], others++;
        }
    }
    if (others == 1)
        add_linear(open, linear, other, factor * fixed);
    else
        add_part(linear, factor * fixed, t->value / fixed);
}

static struct linear linear_of(struct open_sizes *open, int64_t value) {
    struct linear linear = {0};
    const int term = open_term(open, value);
    if (term < 0)
        linear.number = value;
    else
        add_linear(open, &linear, term, 1);
    return linear;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a < 0 ? -a : a;
}

/* Removes the parts whose factors are multiples of b. Returns their sum divided by b. */
static int64_t take_multiples(struct open_sizes *open, struct linear *linear, int64_t b) {
    int64_t whole = 0;
    int n = 0;
    for (int i = 0; i < linear->n; i++) {
        if (linear->part[i].factor % b == 0)
            whole = open_sum(open, whole, linear->part[i].factor / b * linear->part[i].value);
        else
            linear->part[n++] = linear->part[i];
    }
    linear->n = n;
    return whole;
}

static int64_t sum_of(struct open_sizes *open, const struct linear *linear, int64_t divisor) {
    int64_t sum = 0;
    for (int i = 0; i < linear->n; i++)
        sum = open_sum(open, sum, linear->part[i].factor / divisor * linear->part[i].value);
    return sum;
}

/* A quotient as an atom, and what it leaves. Generated code rounds towards zero: a must not be negative. */
static int64_t note_quotient(struct open_sizes *open, int64_t a, int64_t b) {
    if (open_least(open, a) < 0) open->spoiled = true;
    const int64_t part = note(open, OPEN_QUOTIENT, a, b, apart(open, a, b));
    note(open, OPEN_REST, a, b, a - b * part);
    return part;
}

/* a / b is whole + (rest of a) / b, of which common divisors are removed, and of quotients of quotients one is left: so
 * a quotient that is computed in several ways is one number. */
static int64_t quotient(struct open_sizes *open, int64_t a, int64_t b) {
    struct linear linear = linear_of(open, a);
    if (linear.n == LINEAR_PARTS) return note_quotient(open, a, b);
    int64_t divisor = b, number = linear.number - floor_of(linear.number, b) * b;
    const int64_t whole = open_sum(open, take_multiples(open, &linear, b), floor_of(linear.number, b));
    if (!linear.n) return whole;
    for (int i = 0; i < linear.n; i++) divisor = common_divisor(divisor, linear.part[i].factor);
    number /= divisor;
    const int64_t by = b / divisor;
    const bool negative = linear.part[0].factor < 0; /* -(-top / by), rounded up */
    const int64_t top = negative ? open_sum(open, sum_of(open, &linear, -divisor), by - 1 - number)
                                 : open_sum(open, sum_of(open, &linear, divisor), number);
    if (open_least(open, top) < 0) return note_quotient(open, a, b);
    if (negative) return open_sum(open, whole, -open_quotient(open, top, by));
    const int only = linear.n == 1 && linear.part[0].factor == divisor ? open_term(open, linear.part[0].value) : -1;
    const struct open_term inner = only >= 0 ? open->terms.at[only] : (struct open_term){0};
    if (inner.kind != OPEN_QUOTIENT || open->terms.at[inner.b].kind != OPEN_NUMBER)
        return open_sum(open, whole, note_quotient(open, top, by));
    const int64_t times = open->terms.at[inner.b].number;
    const int64_t over = open_sum(open, open->terms.at[inner.a].value, number * times);
    return open_sum(open, whole, open_quotient(open, over, by * times));
}

int64_t open_quotient(struct open_sizes *open, int64_t a, int64_t b) {
    if (b == 1 || !either_is(open, a, b)) return floor_of(a, b);
    if (!open_is(open, b)) return quotient(open, a, b);
    if (open_most(open, a) < 0) return open_sum(open, -1, -open_quotient(open, open_sum(open, -a, -1), b));
    if (open_least(open, a) < 0) open->spoiled = true; /* as in note_quotient */
    return a % b ? note(open, OPEN_QUOTIENT, a, b, a / b) : a / b;
}

/* Generated code's rest has the sign of the dividend, so that is made positive. */
int64_t open_rest(struct open_sizes *open, int64_t a, int64_t b) {
    if (a == 0) return 0;
    const int64_t least = open && either_is(open, a, b) ? open_least(open, a) : 0;
    if (least < 0 && !open_is(open, b)) return open_rest(open, open_sum(open, a, -floor_of(least, b) * b), b);
    if (least < 0 && open_most(open, a) < 0)
        return open_sum(open, open_sum(open, b, -1), -open_rest(open, open_sum(open, -a, -1), b));
    const int64_t rest = a - open_quotient(open, a, b) * b;
    return either_is(open, a, b) ? note(open, OPEN_REST, a, b, rest) : rest;
}

int64_t open_lesser(struct open_sizes *open, int64_t a, int64_t b) {
    const enum open_order order = open_order(open, a, b);
    if (order != OPEN_EITHER) return order <= OPEN_EQUAL ? a : b;
    return note(open, OPEN_LESSER, a, b, a < b ? a : b);
}

int64_t open_greater(struct open_sizes *open, int64_t a, int64_t b) {
    const enum open_order order = open_order(open, a, b);
    if (order != OPEN_EITHER) return order <= OPEN_EQUAL ? b : a;
    return note(open, OPEN_GREATER, a, b, a < b ? b : a);
}

/* True if value is the sum of `from` and a number that is small, also beside it. */
static bool is_near(int64_t value, int64_t from) {
    const int64_t apart = value > from ? value - from : from - value;
    return apart < OPEN_NEAR && apart < from / 8;
}

void open_note(struct open_sizes *open, int64_t value, int n, const int64_t *from) {
    int64_t sum = 0;
    if (!open || value < OPEN_LEAST_ATOM || open_is(open, value)) return;
    for (int i = 0; i < n; i++) sum += from[i];
    for (int i = 0; i < n; i++)
        if (open_is(open, from[i]) && is_near(value, from[i])) {
            open_sum(open, from[i], value - from[i]);
            return;
        }
    if (sum != value) return;
    sum = 0;
    for (int i = 0; i < n; i++) sum = open_sum(open, sum, from[i]);
}

int64_t open_at(struct open_sizes *open, int64_t value, const int64_t *sizes) {
    const int term = open_term(open, value);
    return term < 0 ? value : evaluate(open, term, sizes);
}

int64_t open_typical(struct open_sizes *open, int64_t value) {
    int64_t sizes[OPEN_SIZES];
    for (int i = 0; open && i < open->all.n; i++) sizes[i] = open->all.at[i].range.typical;
    open_fit(open, sizes);
    return open_at(open, value, sizes);
}

struct range {
    int64_t least, most;
};

static int64_t saturated(int64_t a, int64_t b, bool product) {
    int64_t result;
    if (product ? rt_mul(a, b, &result) : rt_add(a, b, &result)) return result;
    return product && (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

static struct range product_range(struct range a, struct range b) {
    const int64_t all[] = {saturated(a.least, b.least, true), saturated(a.least, b.most, true),
                           saturated(a.most, b.least, true), saturated(a.most, b.most, true)};
    struct range range = {all[0], all[0]};
    for (int i = 1; i < 4; i++) {
        if (all[i] < range.least) range.least = all[i];
        if (all[i] > range.most) range.most = all[i];
    }
    return range;
}

static struct range range_of(struct open_sizes *open, int term);

static struct range range_of_parts(struct open_sizes *open, int term) {
    const struct open_term t = open->terms.at[term];
    if (t.kind == OPEN_NUMBER) return (struct range){t.number, t.number};
    if (t.kind == OPEN_SIZE || t.kind == OPEN_UNIT) {
        const struct open_range *size = &open->all.at[t.a].range;
        const int64_t unit = t.kind == OPEN_UNIT ? open_range_unit(size) : 1;
        return (struct range){size->least / unit, size->most / unit};
    }
    const struct range a = range_of(open, t.a), b = range_of(open, t.b);
    switch (t.kind) {
    case OPEN_SUM: return (struct range){saturated(a.least, b.least, false), saturated(a.most, b.most, false)};
    case OPEN_PRODUCT: return product_range(a, b);
    case OPEN_QUOTIENT:
        if (b.least < 1) return (struct range){a.least < 0 ? a.least : 0, a.most > 0 ? a.most : 0};
        return (struct range){floor_of(a.least, a.least < 0 ? b.least : b.most),
                              floor_of(a.most, a.most < 0 ? b.most : b.least)};
    case OPEN_REST: return (struct range){0, b.most > 0 ? b.most - 1 : 0};
    case OPEN_LESSER: return (struct range){a.least < b.least ? a.least : b.least, a.most < b.most ? a.most : b.most};
    default: return (struct range){a.least > b.least ? a.least : b.least, a.most > b.most ? a.most : b.most};
    }
}

/* Counts how often the term reads each size. */
static void count_reads(const struct open_sizes *open, int term, int *reads) {
    const struct open_term *t = &open->terms.at[term];
    if (t->kind == OPEN_NUMBER) return;
    if (t->kind == OPEN_SIZE || t->kind == OPEN_UNIT) {
        reads[t->a]++;
        return;
    }
    count_reads(open, t->a, reads);
    count_reads(open, t->b, reads);
}

/* Sets sizes[] to the next combination of the sizes that are read. False: that was the last one. */
static bool next_sizes(const struct open_sizes *open, const int *reads, int64_t *sizes) {
    for (int s = 0; s < open->all.n; s++) {
        const struct open_range *range = &open->all.at[s].range;
        if (!reads[s]) continue;
        if ((sizes[s] += range->step) <= range->most) return true;
        sizes[s] = range->least;
    }
    return false;
}

/* The number of combinations of the sizes that are read. More than MOST_TRIED: too many to try. */
static int64_t combinations(const struct open_sizes *open, const int *reads) {
    int64_t n = 1;
    for (int s = 0; s < open->all.n && n <= MOST_TRIED; s++) {
        const struct open_range *range = &open->all.at[s].range;
        if (reads[s]) n = saturated(n, (range->most - range->least) / range->step + 1, true);
    }
    return n;
}

/* The range of a - b, found by trying all sizes that a and b read. */
static struct range try_all(struct open_sizes *open, int64_t a, int64_t b, const int *reads) {
    struct range range = {INT64_MAX, INT64_MIN};
    int64_t sizes[OPEN_SIZES];
    for (int s = 0; s < open->all.n; s++) sizes[s] = open->all.at[s].range.least;
    do {
        const int64_t value = open_at(open, a, sizes) - open_at(open, b, sizes);
        if (value < range.least) range.least = value;
        if (value > range.most) range.most = value;
    } while (next_sizes(open, reads, sizes));
    return range;
}

static struct range both(struct range a, struct range b) {
    return (struct range){a.least > b.least ? a.least : b.least, a.most < b.most ? a.most : b.most};
}

/* The range of a term that reads a size several times, found by trying all sizes. The ranges of its parts would not
 * tell it, since the parts are not independent. For any other term the range has no limits. */
static struct range tried_range(struct open_sizes *open, int term) {
    struct range range = {INT64_MIN, INT64_MAX};
    int reads[OPEN_SIZES] = {0};
    bool repeats = false;
    if (open->terms.at[term].tried) return (struct range){open->terms.at[term].least, open->terms.at[term].most};
    count_reads(open, term, reads);
    for (int s = 0; s < open->all.n; s++) repeats = repeats || reads[s] > 1;
    if (repeats && combinations(open, reads) <= MOST_TRIED) range = try_all(open, open->terms.at[term].value, 0, reads);
    open->terms.at[term].tried = true;
    open->terms.at[term].least = range.least, open->terms.at[term].most = range.most;
    return range;
}

static struct range range_of(struct open_sizes *open, int term) {
    const int64_t bound = open->terms.at[term].bound;
    struct range range = both(range_of_parts(open, term), tried_range(open, term));
    if (bound && range.most > bound) range.most = bound;
    return range;
}

static struct range range_of_value(struct open_sizes *open, int64_t value) {
    const int term = open_term(open, value);
    return term < 0 ? (struct range){value, value} : range_of(open, term);
}

void open_keep(struct open_sizes *open, int s, int64_t next) {
    const int term = open_term(open, next);
    if (term < 0) BUG("%lld depends on no size", (long long)next);
    open->all.at[s].next = next;
    open->terms.at[term].bound = open->all.at[s].range.most;
}

/* What is added to the least of another is at most the rest. */
static void bound_term(struct open_sizes *open, int term, int64_t most) {
    struct open_term *t = &open->terms.at[term];
    if (most < 1 || (t->bound && t->bound <= most)) return;
    t->bound = most;
    if (t->kind != OPEN_SUM) return;
    const int a = t->a, b = t->b;
    const int64_t least_a = range_of(open, a).least, least_b = range_of(open, b).least;
    if (least_b >= 0) bound_term(open, a, most - least_b);
    if (least_a >= 0) bound_term(open, b, most - least_a);
}

void open_limit(struct open_sizes *open, int64_t value, int64_t most) {
    const int term = open_term(open, value);
    if (term < 0) BUG("%lld depends on no size", (long long)value);
    bound_term(open, term, most);
    VEC_PUSH(open->arena, &open->limits, ((struct open_limit){value, most}));
}

/* Lowers sizes that the limited value reads, the first ones first, to the largest that keep the limit. */
static void keep_limit(struct open_sizes *open, const struct open_limit *limit, int64_t *sizes) {
    int reads[OPEN_SIZES] = {0};
    count_reads(open, open_term(open, limit->value), reads);
    for (int s = 0; s < open->all.n && open_at(open, limit->value, sizes) > limit->most; s++) {
        const struct open_range *range = &open->all.at[s].range;
        int64_t keeps = 0, exceeds = (sizes[s] - range->least) / range->step; /* steps above the least size */
        if (!reads[s]) continue;
        while (exceeds - keeps > 1) {
            const int64_t middle = keeps + (exceeds - keeps) / 2;
            sizes[s] = range->least + middle * range->step;
            *(open_at(open, limit->value, sizes) > limit->most ? &exceeds : &keeps) = middle;
        }
        sizes[s] = range->least + keeps * range->step;
    }
}

void open_fit(struct open_sizes *open, int64_t *sizes) {
    for (int i = 0; open && i < open->limits.n; i++) keep_limit(open, &open->limits.at[i], sizes);
    for (int s = 0; open && s < open->all.n; s++) {
        const struct open_size *size = &open->all.at[s];
        const int64_t beyond = size->next ? open_at(open, size->next, sizes) - size->range.most : 0;
        if (beyond > 0) sizes[s] = beyond < sizes[s] ? sizes[s] - beyond : 0;
    }
}

int64_t open_least(struct open_sizes *open, int64_t value) {
    return range_of_value(open, value).least;
}

int64_t open_most(struct open_sizes *open, int64_t value) {
    return range_of_value(open, value).most;
}

/* True if the term is the lesser, or the greater, of the number and another. */
static bool is_of(const struct open_sizes *open, int term, enum open_kind kind, int64_t value) {
    const struct open_term *t = term < 0 ? NULL : &open->terms.at[term];
    return t && t->kind == kind && (open->terms.at[t->a].value == value || open->terms.at[t->b].value == value);
}

static int64_t divisor_of(const struct open_sizes *open, int term) {
    const struct open_term *t = &open->terms.at[term];
    switch (t->kind) {
    case OPEN_NUMBER: return t->number < 0 ? -t->number : t->number;
    case OPEN_SIZE: return open_range_unit(&open->all.at[t->a].range);
    case OPEN_PRODUCT: return saturated(divisor_of(open, t->a), divisor_of(open, t->b), true);
    default: return 1;
    }
}

int64_t open_divisor(struct open_sizes *open, int64_t value) {
    const int term = open_term(open, value);
    return term < 0 ? value : divisor_of(open, term);
}

/* The range of a - b: parts that both have cancel out. */
static struct range difference(struct open_sizes *open, int64_t a, int64_t b) {
    const int left = open_term(open, a), right = open_term(open, b);
    if (left >= 0 && right >= 0) {
        const struct open_term x = open->terms.at[left], y = open->terms.at[right];
        for (int i = 0; x.kind == OPEN_SUM && i < 2; i++)
            if (open->terms.at[i ? x.b : x.a].value == b) return range_of(open, i ? x.a : x.b);
        for (int i = 0; y.kind == OPEN_SUM && i < 2; i++)
            if (open->terms.at[i ? y.b : y.a].value == a) {
                const struct range other = range_of(open, i ? y.a : y.b);
                return (struct range){-other.most, -other.least};
            }
    }
    const struct range x = range_of_value(open, a), y = range_of_value(open, b);
    struct range range = {saturated(x.least, -y.most, false), saturated(x.most, -y.least, false)};
    if ((is_of(open, left, OPEN_LESSER, b) || is_of(open, right, OPEN_GREATER, a)) && range.most > 0) range.most = 0;
    if ((is_of(open, left, OPEN_GREATER, b) || is_of(open, right, OPEN_LESSER, a)) && range.least < 0) range.least = 0;
    return range;
}

/* Narrows the range of a - b by trying all sizes, if these are not too many. */
static struct range narrowed(struct open_sizes *open, int64_t a, int64_t b, struct range range) {
    const int terms[] = {open_term(open, a), open_term(open, b)};
    int reads[OPEN_SIZES] = {0};
    for (int i = 0; i < 2; i++)
        if (terms[i] >= 0) count_reads(open, terms[i], reads);
    return combinations(open, reads) <= MOST_TRIED ? both(range, try_all(open, a, b, reads)) : range;
}

static enum open_order order_in(struct range range) {
    if (range.most < 0) return OPEN_LESS;
    if (range.least > 0) return OPEN_MORE;
    if (range.most == 0) return OPEN_LESS_OR_EQUAL;
    return range.least == 0 ? OPEN_GREATER_OR_EQUAL : OPEN_EITHER;
}

enum open_order open_order(struct open_sizes *open, int64_t a, int64_t b) {
    if (a == b) return OPEN_EQUAL;
    if (!open_is(open, a) && !open_is(open, b)) return a < b ? OPEN_LESS : OPEN_MORE;
    const struct range range = difference(open, a, b);
    return order_in(order_in(range) == OPEN_EITHER ? narrowed(open, a, b, range) : range);
}
