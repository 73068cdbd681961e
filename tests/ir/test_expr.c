/* Expressions of elementwise operators, against C's own arithmetic. */
#include <math.h>

#include "ir/expr/expr.h"
#include "ir/op.h"
#include "tests/ir/pool.h"

static struct number real(double f) {
    return (struct number){true, f, 0};
}
static struct number whole(int64_t i) {
    return (struct number){false, 0, i};
}

struct names {
    struct number a, b, c;
};

static struct number look_up(const void *env, const char *name) {
    const struct names *names = env;
    return *name == 'a' || *name == 'x' ? names->a : *name == 'b' ? names->b : names->c;
}

static struct number value_of(const char *text, struct number a, struct number b, struct number c) {
    struct names names = {a, b, c};
    struct number value = expr_eval(expr_parse(&pool, text), look_up, &names);
    return value;
}

static const double samples[] = {0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 1e-9, 700, -700, 3, INFINITY, -INFINITY, NAN};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void assert_same(const char *text, double got, double expected) {
    if (got == expected && signbit(got) == signbit(expected)) return;
    if (isnan(got) && isnan(expected)) return;
    fail_msg("%s: %.17g instead of %.17g", text, got, expected);
}

static double sign(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}

TEST(test_functions_of_one) {
    static const struct {
        const char *text;
        double (*f)(double);
    } rows[] = {{"abs(x)", fabs},   {"ceil(x)", ceil},   {"cos(x)", cos},    {"erf(x)", erf},     {"exp(x)", exp},
                {"log(x)", log},    {"floor(x)", floor}, {"round(x)", rint}, {"sin(x)", sin},     {"sqrt(x)", sqrt},
                {"tan(x)", tan},    {"tanh(x)", tanh},   {"atan(x)", atan},  {"acos(x)", acos},   {"asin(x)", asin},
                {"sinh(x)", sinh},  {"cosh(x)", cosh},   {"sign(x)", sign},  {"acosh(x)", acosh}, {"asinh(x)", asinh},
                {"atanh(x)", atanh}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int i = 0; i < SAMPLES; i++)
            assert_same(rows[r].text, value_of(rows[r].text, real(samples[i]), real(0), real(0)).f,
                        rows[r].f(samples[i]));
}

static double quotient(double a, double b) {
    return a / b;
}
static double sum(double a, double b) {
    return a + b;
}
static double difference(double a, double b) {
    return a - b;
}
static double product(double a, double b) {
    return a * b;
}

TEST(test_functions_of_two) {
    static const struct {
        const char *text;
        double (*f)(double, double);
    } rows[] = {{"a + b", sum},      {"a - b", difference}, {"a * b", product},
                {"a / b", quotient}, {"pow(a, b)", pow},    {"fmod(a, b)", fmod}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int i = 0; i < SAMPLES * SAMPLES; i++) {
            double a = samples[i / SAMPLES], b = samples[i % SAMPLES];
            assert_same(rows[r].text, value_of(rows[r].text, real(a), real(b), real(0)).f, rows[r].f(a, b));
        }
}

/* A product that is not rounded: in other steps it would be 0. */
TEST(test_functions_of_three) {
    const double next = nextafter(1, 2), past = nextafter(1, 0);
    for (int i = 0; i < SAMPLES * SAMPLES; i++) {
        double a = samples[i / SAMPLES], b = samples[i % SAMPLES];
        assert_same("fma", value_of("fma(a, b, c)", real(a), real(b), real(0.5)).f, fma(a, b, 0.5));
        assert_same("fma", value_of("fma(a, b, 1)", real(a), real(b), real(0)).f, fma(a, b, 1));
    }
    assert_true(value_of("fma(a, b, c)", real(next), real(past), real(-(next * past))).f != 0);
    assert_same("clamp", value_of("clamp(a, 0, 255)", real(300), real(0), real(0)).f, 255);
    assert_same("clamp", value_of("clamp(a, -128, 127)", real(-300), real(0), real(0)).f, -128);
    assert_same("clamp", value_of("clamp(a, -128, 127)", real(NAN), real(0), real(0)).f, 0);
    assert_same("clamp", value_of("clamp(a, b, c)", real(2.5), real(-1), real(3)).f, 2.5);
}

TEST(test_comparisons) {
    for (int i = 0; i < SAMPLES * SAMPLES; i++) {
        double a = samples[i / SAMPLES], b = samples[i % SAMPLES];
        const struct number x = real(a), y = real(b), none = real(0);
        assert_int_equal(value_of("a < b", x, y, none).i, a < b);
        assert_int_equal(value_of("a <= b", x, y, none).i, a <= b);
        assert_int_equal(value_of("a > b", x, y, none).i, a > b);
        assert_int_equal(value_of("a >= b", x, y, none).i, a >= b);
        assert_int_equal(value_of("a == b", x, y, none).i, a == b);
        assert_int_equal(value_of("a != b", x, y, none).i, a != b);
        assert_int_equal(value_of("a && b", x, y, none).i, a && b);
        assert_int_equal(value_of("a || b", x, y, none).i, a || b);
        assert_int_equal(value_of("!a", x, y, none).i, !a);
        assert_int_equal(value_of("isnan(a)", x, y, none).i, isnan(a) != 0);
        assert_int_equal(value_of("isinf(a)", x, y, none).i, isinf(a) != 0);
    }
}

/* ONNX Max and Min: NaN wins, whichever operand it is. */
TEST(test_extremes_keep_nan) {
    assert_same("max", value_of("max(a, b)", real(NAN), real(1), real(0)).f, NAN);
    assert_same("max", value_of("max(a, b)", real(1), real(NAN), real(0)).f, NAN);
    assert_same("min", value_of("min(a, b)", real(NAN), real(1), real(0)).f, NAN);
    assert_same("min", value_of("min(a, b)", real(1), real(NAN), real(0)).f, NAN);
    assert_same("max", value_of("max(a, b)", real(1), real(2), real(0)).f, 2);
    assert_same("min", value_of("min(a, b)", real(1), real(2), real(0)).f, 1);
}

/* Operators bind as in C, whatever the spaces. */
TEST(test_precedence) {
    const double a = 7, b = 2, c = 3;
    const struct {
        const char *text;
        double value;
    } rows[] = {{"a+b*c", a + b * c},
                {"(a + b) * c", (a + b) * c},
                {"a - b - c", a - b - c},
                {"a / b / c", a / b / c},
                {"a - -b", a - -b},
                {"-a * -b", -a * -b},
                {"a < b ? b : c", a < b ? b : c},
                {"a > b ? b > c ? 1 : 2 : 3", a > b ? b > c ? 1 : 2 : 3},
                {"a > b && b > c || c > b", (a > b && b > c) || c > b},
                {"a == 7 && b != 2 ? 1 : 0", a == 7 && b != 2 ? 1 : 0},
                {"1 - a >= b", 1 - a >= b},
                {"max(a, min(b, c)) + 1e-1", fmax(a, fmin(b, c)) + 1e-1},
                {"!(a < b) * 2", !(a < b) * 2},
                {"0.25*a", 0.25 * a},
                {"2.5e1 + 1", 26}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct number value = value_of(rows[i].text, real(a), real(b), real(c));
        assert_same(rows[i].text, value.is_float ? value.f : (double)value.i, rows[i].value);
    }
}

static int64_t whole_of(const char *text, int64_t a, int64_t b) {
    struct number value = value_of(text, whole(a), whole(b), whole(0));
    assert_false(value.is_float);
    return value.i;
}

/* Integers stay exact, wrap, and have a result for every operand. */
TEST(test_integers) {
    const int64_t big = INT64_MAX, small = INT64_MIN;
    assert_int_equal(whole_of("a + 1", 9007199254740993, 0), 9007199254740994);
    assert_int_equal(whole_of("a + b", big, 1), small);
    assert_int_equal(whole_of("a - b", small, 1), big);
    assert_int_equal(whole_of("a * b", big, 2), -2);
    assert_int_equal(whole_of("-a", small, 0), small);
    assert_int_equal(whole_of("abs(a)", small, 0), small);
    assert_int_equal(whole_of("a / b", 7, -2), -3);
    assert_int_equal(whole_of("a / b", 7, 0), 0);
    assert_int_equal(whole_of("a / b", small, -1), small);
    assert_int_equal(whole_of("mod(a, b)", -7, 3), 2);
    assert_int_equal(whole_of("mod(a, b)", 7, -3), -2);
    assert_int_equal(whole_of("mod(a, b)", 7, 0), 0);
    assert_int_equal(whole_of("mod(a, b)", small, -1), 0);
    assert_int_equal(whole_of("fmod(a, b)", -7, 3), -1);
    assert_int_equal(whole_of("bit_and(a, b)", -7, 12), 8);
    assert_int_equal(whole_of("bit_or(a, b)", 5, 12), 13);
    assert_int_equal(whole_of("bit_xor(a, b)", 5, -1), -6);
    assert_int_equal(whole_of("shift_left(a, b)", 3, 4), 48);
    assert_int_equal(whole_of("shift_left(a, b)", 3, 64), 0);
    assert_int_equal(whole_of("shift_right(a, b)", -8, 1), -4);
    assert_int_equal(whole_of("shift_right(a, b)", -8, -1), -1);
    assert_int_equal(whole_of("pow(a, b)", 3, 4), 81);
    assert_int_equal(whole_of("pow(a, b)", 2, 64), 0);
    assert_int_equal(whole_of("pow(a, b)", -1, -3), -1);
    assert_int_equal(whole_of("pow(a, b)", 2, -1), 0);
    assert_int_equal(whole_of("max(a, b)", -7, 3), 3);
    assert_int_equal(whole_of("sign(a)", -7, 0), -1);
    assert_int_equal(whole_of("a < b", 9007199254740992, 9007199254740993), 1);
}

/* A branch not taken is not computed, and a mixed operation is one of floats. */
TEST(test_mixed) {
    assert_same("mixed", value_of("a * b", whole(3), real(0.5), real(0)).f, 1.5);
    assert_same("mixed", value_of("0.5 * a", whole(3), real(0), real(0)).f, 1.5);
    assert_int_equal(value_of("a ? b : c", whole(0), whole(1), whole(2)).i, 2);
    assert_same("sigmoid", value_of("sigmoid(x)", real(-800), real(0), real(0)).f, 0);
    assert_same("sigmoid", value_of("sigmoid(x)", real(800), real(0), real(0)).f, 1);
    assert_same("softplus", value_of("softplus(x)", real(800), real(0), real(0)).f, 800);
    assert_same("softplus", value_of("softplus(x)", real(NAN), real(0), real(0)).f, NAN);
}

/* Codes of 8 bits are whole numbers in their range, whatever the inputs are. */
TEST(test_codes) {
    static const struct {
        const char *text, *letters;
        bool u8, i8;
    } rows[] = {{"min(max(round(a / b), 0), 255)", "", true, false},
                {"min(max(round(a) + 0.5, 0), 127)", "", false, false},
                {"min(max(round(a / b) + c, 0), 255)", "c", true, false},
                {"min(max(round(a / b) + c, 0), 255)", "ab", false, false},
                {"min(max(round(a) + c + 1, 0), 127)", "bc", true, true},
                {"min(max(a + round(b), 0), 127)", "", false, false},
                {"min(max(a, 0), 127)", "a", false, false},
                {"max(round(a), 0)", "", false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena arena = {0};
        const struct expr *expr = expr_parse(&arena, rows[i].text);
        assert_int_equal(expr_is_code(expr, RT_U8, rows[i].letters), rows[i].u8);
        assert_int_equal(expr_is_code(expr, RT_I8, rows[i].letters), rows[i].i8);
        arena_free(&arena);
    }
}

TEST(test_every_row_parses) {
    for (int i = 0; i < NOPS; i++)
        if (ops[i].expr) assert_non_null(expr_parse(&pool, ops[i].expr));
}

int main(void) {
    return run_all_tests("expr", open_pool, close_pool);
}
