/* Repetitions in a sequence of symbols (ir/base/repeats.h). A sequence is written as text, a symbol per letter, and its
 * stretches as text: "(abc)3 d (e)2" is three times a b c, d, and two times e. */
#include <string.h>
#include <time.h>

#include "ir/base/repeats.h"
#include "ir/base/str.h"
#include "tests/ir/random.h"
#include "tests/ir/pool.h"

static int *symbols_of(struct arena *arena, const char *text) {
    int *symbols = ARENA_ARRAY(arena, int, strlen(text) + 1);
    for (size_t i = 0; text[i]; i++) symbols[i] = text[i];
    return symbols;
}

static const char *found(struct arena *arena, const char *text, int least) {
    struct stretches stretches;
    struct strbuf out;
    repeats_find(arena, symbols_of(arena, text), (int)strlen(text), least, &stretches);
    strbuf_init(&out, arena);
    for (int s = 0; s < stretches.all.n; s++) {
        const struct stretch *stretch = &stretches.all.at[s];
        const bool single = stretch->times == 1;
        if (out.length && !(single && out.text[out.length - 1] != ' ' && stretches.all.at[s - 1].times == 1))
            strbuf_putc(&out, ' ');
        if (single)
            strbuf_putc(&out, text[stretch->first]);
        else
            strbuf_printf(&out, "(%.*s)%d", stretch->period, text + stretch->first, stretch->times);
    }
    return strbuf_text(&out);
}

static void check(const char *text, const char *expected) {
    assert_string_equal(found(&pool, text, 1), expected);
}

TEST(test_sequences_without_repetitions) {
    check("", "");
    check("a", "a");
    check("abcdef", "abcdef");
    check("abcab", "abcab");
}

TEST(test_period_one) {
    check("aa", "(a)2");
    check("aaaaaaa", "(a)7");
    check("xaaay", "x (a)3 y");
    check("aabb", "(a)2 (b)2");
}

TEST(test_longer_periods) {
    check("abab", "(ab)2");
    check("embabcdabcdabcdhead", "emb (abcd)3 head");
    check("abcabcab", "(abc)2 ab");
}

TEST(test_alternating_kinds_are_one_period) {
    /* layers of local (abl) and global (abg) attention in turn */
    check("ablabgablabgablabg", "(ablabg)3");
}

TEST(test_a_layer_that_differs_is_left_out) {
    check("abcXabcdabcdabcd", "abcX (abcd)3");
    check("abXdabcdabcdabcd", "abX (dabc)3 d"); /* a repetition begins as early as it can */
    check("abcdabcdabcdabX", "(abcd)3 abX");
    check("abcdabcdabcdabcXabcdabcd", "(abcd)3 abcX (abcd)2");
}

TEST(test_kinds_one_after_the_other) {
    check("abcabcabcdefgdefg", "(abc)3 (defg)2"); /* encoder, decoder */
}

TEST(test_layers_come_before_repetitions_within_a_layer) {
    check("aaabaaabaaab", "(aaab)3");
    check("aaaaaaaabaaaaaaaab", "(aaaaaaaab)2");
    check("ababcababc", "(ababc)2");
    check("xyxyababcababcababc", "(xy)2 (ababc)3");
}

TEST(test_what_larger_repetitions_leave_is_divided_again) {
    check("abababcabababcd", "(abababc)2 d");
    check("aaaaabaaaab", "a (aaaab)2"); /* the run of five a is cut by the repetition that saves more */
}

TEST(test_least_period) {
    assert_string_equal(found(&pool, "ababababababx", 4), "(abab)3 x");
    assert_string_equal(found(&pool, "ababx", 4), "ababx"); /* abab occurs once */
    assert_string_equal(found(&pool, "abcdeabcde", 4), "(abcde)2");
}

/* Random sequences, against the definition ------------------------------------------------------------------------- */

static bool repeats_at(const int *symbols, const struct stretch *stretch) {
    for (int i = stretch->period; i < stretch->period * stretch->times; i++)
        if (symbols[stretch->first + i] != symbols[stretch->first + i - stretch->period]) return false;
    return true;
}

/* The most that one repetition within [first, end) saves. */
static int most_saved(const int *symbols, int first, int end) {
    int most = 0;
    for (int from = first; from < end; from++)
        for (int period = 1; from + 2 * period <= end; period++) {
            struct stretch stretch = {from, period, 2};
            for (; from + period * stretch.times <= end && repeats_at(symbols, &stretch); stretch.times++)
                if (period * (stretch.times - 1) > most) most = period * (stretch.times - 1);
        }
    return most;
}

static void check_random(struct arena *arena, int *symbols, int n) {
    struct stretches stretches;
    int end = 0, most = 0, free_from = 0;
    repeats_find(arena, symbols, n, 1, &stretches);
    for (int s = 0; s < stretches.all.n; s++) {
        const struct stretch *stretch = &stretches.all.at[s];
        assert_int_equal(stretch->first, end);
        assert_true(repeats_at(symbols, stretch));
        end += stretch->period * stretch->times;
        if (stretch->times == 1) continue;
        if (stretch->period * (stretch->times - 1) > most) most = stretch->period * (stretch->times - 1);
        assert_int_equal(most_saved(symbols, free_from, stretch->first), 0); /* nothing is left between */
        free_from = end;
    }
    assert_int_equal(end, n);
    assert_int_equal(most_saved(symbols, free_from, n), 0);
    assert_int_equal(most, most_saved(symbols, 0, n));
}

TEST(test_random_sequences) {
    struct random random = {12345};
    for (int round = 0; round < 2000; round++) {
        struct arena arena;
        arena_init(&arena, 0, NULL);
        const int n = (int)random_below(&random, 40), letters = 1 + (int)random_below(&random, 4);
        int *symbols = ARENA_ARRAY(&arena, int, n + 1);
        for (int i = 0; i < n; i++) symbols[i] = (int)random_below(&random, letters);
        /* copies of a range make long periods */
        for (int copy = (int)random_below(&random, 3); copy > 0 && n > 8; copy--) {
            const int length = 1 + (int)random_below(&random, n / 3), from = (int)random_below(&random, n - 2 * length);
            for (int i = 0; i < length; i++) symbols[from + length + i] = symbols[from + i];
        }
        check_random(&arena, symbols, n);
        arena_free(&arena);
    }
}

TEST(test_ten_thousand_layers_take_little_time) {
    enum { LAYERS = 10000, NODES = 40, N = LAYERS * NODES + 20 };
    struct stretches stretches;
    int *symbols = ARENA_ARRAY(&pool, int, N);
    for (int i = 0; i < 10; i++) symbols[i] = 100 + i, symbols[N - 1 - i] = 200 + i;
    for (int i = 0; i < LAYERS * NODES; i++) symbols[10 + i] = i % NODES / 3; /* each layer has repetitions within */
    const clock_t begin = clock();
    repeats_find(&pool, symbols, N, 1, &stretches);
    assert_true(clock() - begin < 10 * CLOCKS_PER_SEC); /* about a second; a quadratic search would take hours */
    assert_int_equal(stretches.all.n, 21);
    assert_int_equal(stretches.all.at[10].first, 10);
    assert_int_equal(stretches.all.at[10].period, NODES);
    assert_int_equal(stretches.all.at[10].times, LAYERS);
}

int main(void) {
    return run_all_tests("repeats", open_pool, close_pool);
}
