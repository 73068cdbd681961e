/* The choice of tokens: against recorded results of transformers' logits processors (record_sampling.py), and draws. */
#include "base/text/json.h"
#include "generate/sample.h"
#include "../test.h"

#include <math.h>
#include <string.h>

enum { MOST = 64 };

static struct rt_json_document *document;

static double real(const struct rt_json *value) {
    double out = -INFINITY;
    rt_json_real(value, &out);
    return out;
}

static int64_t read_scores(const struct rt_json *list, float *out) {
    int64_t n = 0;
    for (const struct rt_json *item = list->first; item; item = item->next) out[n++] = (float)real(item);
    return n;
}

static struct rt_sampling sampling_of(const struct rt_json *list) {
    const struct rt_json *item = list->first;
    struct rt_sampling sampling = {.seed = 7};
    sampling.temperature = real(item);
    sampling.top_k = (int64_t)real(item = item->next);
    sampling.top_p = real(item = item->next);
    sampling.min_p = real(item = item->next);
    sampling.repetition_penalty = real(item->next);
    return sampling;
}

/* What is kept, and the scores of it, are those of transformers. */
TEST(keeps_what_transformers_keeps) {
    const struct rt_json *records = rt_json_member(rt_json_root(document), "records");
    int n = 0;
    for (const struct rt_json *record = records->first; record; record = record->next, n++) {
        float scores[MOST], wanted[MOST], scratch[MOST];
        uint64_t seen[1] = {0};
        const int64_t count = read_scores(rt_json_member(record, "scores"), scores);
        const struct rt_sampling sampling = sampling_of(rt_json_member(record, "case"));
        read_scores(rt_json_member(record, "processed"), wanted);
        for (const struct rt_json *id = rt_json_member(record, "seen")->first; id; id = id->next)
            rt_seen_add(seen, (int64_t)real(id));
        rt_sample_penalise(scores, count, seen, sampling.repetition_penalty);
        const int64_t id = rt_sample(&sampling, scores, scratch, count, 0, (uint64_t)n);
        for (int64_t i = 0; i < count; i++)
            if (scores[i] != wanted[i]) fail_msg("record %d, token %d: %g, not %g", n, (int)i, scores[i], wanted[i]);
        assert_true(id >= 0 && wanted[id] > -INFINITY);
    }
    assert_true(n > 30);
}

/* The kept tokens come as often as their probabilities say: within 5 standard deviations. */
TEST(draws_by_probability) {
    enum { DRAWS = 200000, TOKENS = 6 };
    static const float given[TOKENS] = {1, -2, 0.5f, -INFINITY, 3, 0};
    const struct rt_sampling sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 3};
    int64_t counts[TOKENS] = {0};
    double sum = 0;
    for (int i = 0; i < TOKENS; i++) sum += exp(given[i]);
    for (int n = 0; n < DRAWS; n++) {
        float scores[TOKENS], scratch[TOKENS];
        memcpy(scores, given, sizeof scores);
        counts[rt_sample(&sampling, scores, scratch, TOKENS, 5, (uint64_t)n)]++;
    }
    for (int i = 0; i < TOKENS; i++) {
        const double p = exp(given[i]) / sum;
        assert_true(fabs((double)counts[i] - p * DRAWS) <= 5 * sqrt(p * (1 - p) * DRAWS));
    }
}

static int64_t drawn(uint64_t seed, uint64_t row, uint64_t position) {
    float scores[MOST] = {0}, scratch[MOST];
    const struct rt_sampling sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = seed};
    return rt_sample(&sampling, scores, scratch, MOST, row, position);
}

/* A draw depends on seed, row and position, and on all of them. */
TEST(draws_are_counted) {
    int seeds = 0, rows = 0, positions = 0;
    for (uint64_t i = 0; i < 64; i++) {
        assert_int_equal(drawn(i, 2 * i, 3 * i), drawn(i, 2 * i, 3 * i));
        seeds += drawn(i, 0, 0) != drawn(i + 1, 0, 0);
        rows += drawn(0, i, 0) != drawn(0, i + 1, 0);
        positions += drawn(0, 0, i) != drawn(0, 0, i + 1);
    }
    assert_true(seeds > 48 && rows > 48 && positions > 48);
}

/* Greedy: the greatest score, of equal ones the lowest id. */
TEST(greedy_takes_the_lowest_of_equals) {
    float scores[] = {-1, 4, 2, 4, -INFINITY}, scratch[5];
    assert_int_equal(rt_sample(&RT_SAMPLING_GREEDY, scores, scratch, 5, 0, 0), 1);
    float infinite[] = {0, INFINITY, INFINITY};
    const struct rt_sampling warm = {.temperature = 0.5, .top_p = 0.9, .repetition_penalty = 1};
    assert_int_equal(rt_sample(&warm, infinite, scratch, 3, 0, 0), 1);
}

/* Of equal scores at the edge of top-p the lowest ids stay. */
TEST(top_p_keeps_the_lowest_of_equals) {
    const struct rt_sampling sampling = {.temperature = 1, .top_p = 0.45, .repetition_penalty = 1};
    float scores[] = {1, 1, 1, 1}, scratch[4];
    rt_sample(&sampling, scores, scratch, 4, 0, 0);
    for (int i = 0; i < 4; i++) assert_int_equal(scores[i] > -INFINITY, i < 2);
}

TEST(numbers_that_are_none_are_refused) {
    float nan[] = {0, NAN, 1}, hidden[] = {-INFINITY, -INFINITY}, scratch[3];
    const struct rt_sampling warm = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    assert_int_equal(rt_sample(&RT_SAMPLING_GREEDY, nan, scratch, 3, 0, 0), -1);
    assert_int_equal(rt_sample(&warm, nan, scratch, 3, 0, 0), -1);
    assert_int_equal(rt_sample(&warm, hidden, scratch, 2, 0, 0), -1);
}

int main(int argc, char **argv) {
    struct rt_reason why;
    document = argc > 1 ? rt_json_read(argv[1], &why) : NULL;
    if (!document) return 1;
    const int failed = run_all_tests("sample", NULL, NULL);
    rt_json_free(document);
    return failed;
}
