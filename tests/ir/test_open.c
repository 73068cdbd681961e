/* Open sizes: numbers of a specimen are the expressions that they were computed by.
 *
 * Random expressions over sizes are computed in a specimen as compilers compute them, by int64_t arithmetic and the
 * functions of ir/open.h, and apart from it for given sizes. */
#include <string.h>

#include "ir/open.h"
#include "runtime/base/number/formula.h"
#include "tests/ir/random.h"
#include "tests/ir/pool.h"

enum { TREES = 4000, ASSIGNMENTS = 6, DEPTH = 3 };

static const struct open_range ranges[] = {{1, 8, 1, 4}, {0, 4096, 1, 512}, {32, 640, 32, 224}, {205, 1005, 10, 405}};
enum { SIZES = sizeof ranges / sizeof *ranges };
static const char *const names[SIZES] = {"batch", "seq", "image width", "frames"};

static struct open_sizes *make(struct arena *arena, int specimen) {
    struct open_sizes *open = open_new(arena, specimen);
    for (int s = 0; s < SIZES; s++) open_add(open, names[s], &ranges[s]);
    return open;
}

/* A random expression, computed twice: as a number of the specimen, and for the sizes. */
struct both {
    int64_t number, real;
};

static struct both random_tree(struct open_sizes *open, struct random *random, const int64_t *sizes, int depth);

static struct both random_leaf(struct open_sizes *open, struct random *random, const int64_t *sizes) {
    const int s = (int)random_below(random, SIZES + 1);
    const int64_t number = 1 + (int64_t)random_below(random, 70);
    if (s == SIZES) return (struct both){number, number};
    return (struct both){open->all.at[s].value, sizes[s]};
}

static struct both random_tree(struct open_sizes *open, struct random *random, const int64_t *sizes, int depth) {
    if (!depth) return random_leaf(open, random, sizes);
    const struct both a = random_tree(open, random, sizes, depth - 1), b = random_leaf(open, random, sizes);
    const int64_t by = 2 + (int64_t)random_below(random, 9);
    switch (random_below(random, 6)) {
    case 0: return (struct both){open_sum(open, a.number, b.number), a.real + b.real};
    case 1: {
        int64_t number;
        const bool fits =
            !__builtin_mul_overflow(a.number, b.number, &number) && number >> 60 <= 0 && number >> 60 >= -1;
        return fits ? (struct both){number, a.real * b.real} : a; /* no tensor has so many elements */
    }
    case 2: return (struct both){open_quotient(open, a.number, by), a.real / by};
    case 3: return (struct both){open_lesser(open, a.number, b.number), a.real < b.real ? a.real : b.real};
    case 4: return (struct both){open_greater(open, a.number, b.number), a.real < b.real ? b.real : a.real};
    default: return (struct both){open_sum(open, a.number, by), a.real + by};
    }
}

static void random_sizes(struct random *random, int64_t *sizes) {
    for (int s = 0; s < SIZES; s++) {
        const int64_t steps = (ranges[s].most - ranges[s].least) / ranges[s].step;
        sizes[s] = ranges[s].least + ranges[s].step * (int64_t)random_below(random, (uint64_t)steps + 1);
    }
}

static bool size_of_name(void *context, const char *name, size_t length, int64_t *out) {
    for (int s = 0; s < SIZES; s++)
        if (strlen(names[s]) == length && memcmp(names[s], name, length) == 0) {
            *out = ((const int64_t *)context)[s];
            return true;
        }
    return false;
}

static int64_t value_of(const char *text, int64_t *sizes) {
    const struct rt_formula formula = {size_of_name, NULL, sizes};
    int64_t value = -1;
    assert_int_equal(rt_formula_read(&formula, text, &value, NULL, NULL), RT_FORMULA_OK);
    return value;
}

/* The text of a number, read by the runtime's reader, has the value for the sizes, also where it divides. */
static void assert_text(struct open_sizes *open, struct arena *arena, int64_t number, int64_t *sizes) {
    const int64_t value = open_at(open, number, sizes), dividend = 1000000007;
    const char *loose = open_text(open, arena, number, NULL, true);
    assert_int_equal(value_of(open_text(open, arena, number, NULL, false), sizes), value);
    if (value > 0) assert_int_equal(value_of(arena_printf(arena, "1000000007 / %s", loose), sizes), dividend / value);
}

TEST(numbers_are_expressions) {
    struct random random = {.state = 1};
    int spoiled = 0;
    for (int t = 0; t < TREES; t++) {
        struct arena arena;
        arena_init(&arena, 0, NULL);
        int64_t sizes[SIZES], others[SIZES];
        struct open_sizes *open = make(&arena, t % 2);
        random_sizes(&random, sizes);
        const struct both both = random_tree(open, &random, sizes, 1 + (int)random_below(&random, DEPTH));
        spoiled += open->spoiled;
        if (!open->spoiled) assert_int_equal(open_at(open, both.number, sizes), both.real);
        for (int i = 0; i < ASSIGNMENTS && !open->spoiled; i++) {
            random_sizes(&random, others);
            const int64_t value = open_at(open, both.number, others);
            assert_true(value >= open_least(open, both.number) && value <= open_most(open, both.number));
            assert_text(open, &arena, both.number, others);
            const int64_t divisor = open_divisor(open, both.number);
            assert_true(divisor ? value % divisor == 0 : value == 0);
        }
        arena_free(&arena);
    }
    assert_true(spoiled < TREES / 20); /* quotients of quotients, which become too small */
}

/* Two specimens agree on the texts of expressions, by which programs are compared. */
TEST(specimens_agree_on_texts) {
    for (uint64_t seed = 1; seed <= TREES / 4; seed++) {
        struct random first = {.state = seed}, second = {.state = seed};
        struct arena arena;
        arena_init(&arena, 0, NULL);
        const int64_t sizes[SIZES] = {3, 17, 96, 305};
        struct open_sizes *a = make(&arena, 0), *b = make(&arena, 1);
        const int64_t x = random_tree(a, &first, sizes, DEPTH).number, y = random_tree(b, &second, sizes, DEPTH).number;
        const char *left = open_text(a, &arena, x, NULL, false), *right = open_text(b, &arena, y, NULL, false);
        if (!a->spoiled && !b->spoiled) assert_string_equal(left, right);
        arena_free(&arena);
    }
}

/* Expressions of one specimen, and what products of them are. `asked`: each product is looked at as soon as there is
 * one, and those that no program has, too. */
static const char *texts_of(struct arena *arena, uint64_t seed, bool asked) {
    enum { NUMBERS = 8 };
    const int64_t sizes[SIZES] = {3, 17, 96, 305};
    struct open_sizes *open = make(arena, (int)(seed % OPEN_SPECIMENS));
    struct random random = {.state = seed};
    int64_t numbers[NUMBERS];
    const char *texts = "";
    for (int i = 0; i < NUMBERS; i++) {
        numbers[i] = random_tree(open, &random, sizes, 1 + i % DEPTH).number;
        const bool fits = numbers[i] > 0 && numbers[i] < INT32_MAX / 64;
        for (int k = 1; k <= 64 && asked && fits; k++) open_is(open, numbers[i] * k * open->all.at[k % SIZES].value);
        if (fits) numbers[i] *= 2 * open->all.at[i % SIZES].value;
    }
    for (int i = 0; i < NUMBERS; i++)
        texts = arena_printf(arena, "%s%s\n", texts, open_text(open, arena, numbers[i], NULL, false));
    return texts;
}

/* verify reads the text of a graph that was made with more questions. */
TEST(numbers_are_the_same_whatever_was_asked) {
    for (uint64_t seed = 1; seed <= TREES / 4; seed++) {
        struct arena arena;
        arena_init(&arena, 0, NULL);
        assert_string_equal(texts_of(&arena, seed, true), texts_of(&arena, seed, false));
        arena_free(&arena);
    }
}

TEST(orders_hold_for_all_sizes) {
    struct open_sizes *open = make(&pool, 0);
    const int64_t batch = open->all.at[0].value, seq = open->all.at[1].value;
    assert_int_equal(open_order(open, seq, 4096), OPEN_LESS_OR_EQUAL);
    assert_int_equal(open_order(open, seq, 4097), OPEN_LESS);
    assert_int_equal(open_order(open, seq, 100), OPEN_EITHER);
    assert_int_equal(open_order(open, batch, 0), OPEN_MORE);
    assert_int_equal(open_order(open, seq, open_sum(open, batch, seq)), OPEN_LESS);
    assert_int_equal(open_order(open, open_sum(open, seq, -1), seq), OPEN_LESS);
    assert_int_equal(open_order(open, batch, batch), OPEN_EQUAL);
    assert_int_equal(open_sum(open, open_sum(open, seq, 5), -seq), 5);
    assert_false(open->spoiled);
    const int64_t odd = open_sum(open, open_quotient(open, open_sum(open, seq, 1), 2), -open_quotient(open, seq, 2));
    assert_int_equal(open_at(open, odd, (int64_t[]){1, 7, 32, 205}), 1);
    assert_int_equal(open_at(open, odd, (int64_t[]){1, 8, 32, 205}), 0);
    assert_int_equal(open_rest(open, seq, 2), odd); /* another way to say it */
    const int64_t least = open_lesser(open, seq, 512);
    assert_int_equal(open_at(open, least, (int64_t[]){1, 7, 32, 205}), 7);
    assert_int_equal(open_at(open, least, (int64_t[]){1, 700, 32, 205}), 512);
    assert_int_equal(open_order(open, least, seq), OPEN_LESS_OR_EQUAL);
    assert_int_equal(open_order(open, least, 512), OPEN_LESS_OR_EQUAL);
    assert_false(open_is(open, 512));
    assert_false(open->spoiled);
    assert_int_equal(open_lesser(open, seq, 1 << 20), seq);
    assert_int_equal(open_greater(open, batch, 1), batch);
    assert_false(open_is(open, 4096));
    assert_false(open_is(NULL, seq));
    assert_int_equal(open_most(NULL, 7), 7);
}

/* A number is a multiple of what it is at all sizes, whatever its value in the specimen. */
TEST(divisors_hold_for_all_sizes) {
    struct open_sizes *open = make(&pool, 0);
    const int64_t batch = open->all.at[0].value, seq = open->all.at[1].value, width = open->all.at[2].value;
    assert_int_equal(open_sum(open, seq, 1) % 2, 0);
    assert_int_equal(open_divisor(open, open_sum(open, seq, 1)), 1);
    assert_int_equal(open_divisor(open, 12 * batch * seq), 12);
    assert_int_equal(open_divisor(open, 3 * batch * width), 96);
    assert_int_equal(open_divisor(open, 48), 48);
    assert_int_equal(open_divisor(NULL, 48), 48);
    assert_true(open_is(open, 3 * batch * width / 96));
}

/* Dimensions as exporters write them. */
TEST(formulas_of_exporters) {
    int64_t sizes[SIZES] = {3, 17, 96, 305}, value;
    const struct rt_formula formula = {size_of_name, NULL, sizes};
    static const struct {
        const char *text;
        enum rt_formula_status status;
        int64_t value;
    } cases[] = {{"batch", RT_FORMULA_OK, 3},
                 {"2*batch", RT_FORMULA_OK, 6},
                 {"batch + seq", RT_FORMULA_OK, 20},
                 {"seq - 1", RT_FORMULA_OK, 16},
                 {"(seq - 1)//2 + 1", RT_FORMULA_OK, 9},
                 {"floor((frames + 3)/4)", RT_FORMULA_OK, 77},
                 {"-1 + 2 * seq", RT_FORMULA_OK, 33},
                 {"Max(0, batch - 5)", RT_FORMULA_OK, 0},
                 {"Min(seq, 12)", RT_FORMULA_OK, 12},
                 {"\"image width\" / 32", RT_FORMULA_OK, 3},
                 {"((((((((((1))))))))))", RT_FORMULA_OK, 1},
                 {"seq % 4", RT_FORMULA_OK, 1},
                 {"past + seq", RT_FORMULA_UNKNOWN, 0},
                 {"batch +", RT_FORMULA_BROKEN, 0},
                 {"batch seq", RT_FORMULA_BROKEN, 0},
                 {"(batch", RT_FORMULA_BROKEN, 0},
                 {"seq / 0", RT_FORMULA_BROKEN, 0},
                 {"9223372036854775807 * 2", RT_FORMULA_BROKEN, 0},
                 {"", RT_FORMULA_BROKEN, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(rt_formula_read(&formula, cases[i].text, &value, NULL, NULL), cases[i].status);
        if (cases[i].status == RT_FORMULA_OK) assert_int_equal(value, cases[i].value);
    }
}

/* Shapes of images: whatever way a number is computed, it is one. */
static int64_t padding(struct open_sizes *open, int64_t a, int64_t b) { /* (b - a % b) % b */
    return open_rest(open, open_sum(open, b, -open_rest(open, a, b)), b);
}

static int64_t rounded_up(struct open_sizes *open, int64_t a, int64_t b) {
    return open_quotient(open, open_sum(open, a, b - 1), b);
}

TEST(extents_of_windows_are_one_number) {
    static const struct open_range range = {1, 90, 1, 90};
    for (int specimen = 0; specimen < OPEN_SPECIMENS; specimen++) {
        struct arena arena;
        arena_init(&arena, 0, NULL);
        struct open_sizes *open = open_new(&arena, specimen);
        const int64_t h = open_add(open, "h", &range), half = open_quotient(open, h, 2), up = rounded_up(open, h, 2);
        const int64_t quarter = open_quotient(open, h, 4), padded = open_sum(open, quarter, padding(open, quarter, 4));
        assert_int_not_equal(half, up);
        assert_int_equal(up, open_sum(open, open_quotient(open, open_sum(open, h, -1), 2), 1));
        assert_int_equal(rounded_up(open, up, 2), rounded_up(open, h, 4));
        assert_int_equal(open_quotient(open, half, 2), quarter);
        assert_int_equal(open_sum(open, h, -2 * half), open_rest(open, h, 2));
        assert_int_equal(4 * open_quotient(open, padded, 4), padded);
        for (int64_t size = 1; size <= 90; size++) {
            assert_int_equal(open_at(open, half, &size), size / 2);
            assert_int_equal(open_at(open, up, &size), (size + 1) / 2);
            assert_int_equal(open_at(open, padded, &size), (size / 4 + 3) / 4 * 4);
        }
        arena_free(&arena);
    }
}

/* The last of three equal parts is not negative from 2 on, whose bounds are not those of independent parts. */
TEST(bounds_are_exact_for_few_sizes) {
    static const struct open_range range = {2, 90, 1, 90};
    struct open_sizes *open = open_new(&pool, 0);
    const int64_t n = open_add(open, "n", &range), part = rounded_up(open, n, 3), rest = open_sum(open, n, -2 * part);
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t size = 2; size <= 90; size++) {
        const int64_t is = size - 2 * ((size + 2) / 3);
        if (is < least) least = is;
        if (is > most) most = is;
        assert_int_equal(open_at(open, rest, &size), is);
    }
    assert_int_equal(open_least(open, rest), least);
    assert_int_equal(open_most(open, rest), most);
    assert_int_equal(open_order(open, rest, part), OPEN_LESS_OR_EQUAL);
}

/* -2^62, a bound without end, is no product of an expression that is 256 in the specimen. */
TEST(bounds_without_end_are_fixed) {
    struct open_sizes *open = make(&pool, 0);
    const int64_t size = open->all.at[0].value, sum = open_sum(open, size, 256 - size);
    assert_true(open_is(open, sum));
    assert_true(open_is(open, 7 * sum));
    assert_false(open_is(open, -((int64_t)1 << 62)));
}

int main(void) {
    return run_all_tests("open", open_pool, close_pool);
}
