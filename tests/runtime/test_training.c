/* Random numbers, the order of samples, and files of tensors. */
#include "base/number/philox.h"
#include "base/io/safetensors.h"
#include "base/lr_schedule.h"
#include "state/load_part.h"
#include "program/feed.h"
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Philox */

/* kat_vectors of Random123 1.14. */
TEST(philox_gives_the_known_answers) {
    static const struct {
        struct rt_philox counter;
        uint32_t low, high;
        struct rt_philox answer;
    } known[] = {
        {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffff,
         0xffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0xa4093822,
         0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct rt_philox got = rt_philox(known[i].counter, (uint64_t)known[i].high << 32 | known[i].low);
        assert_memory_equal(&got, &known[i].answer, sizeof got);
    }
}

TEST(open_interval_has_no_ends) {
    assert_true(rt_philox_open(0, 0) > 0);
    assert_true(rt_philox_open(0xffffffff, 0xffffffff) < 1);
    assert_true(rt_philox_open(0, 0x80000000) > 0.5 && rt_philox_open(0xffffffff, 0x7fffffff) < 0.5);
}

/* Initial values */

/* Of key 0, elements 0 and 1 come from the known answer above: u = 0.8805202..., v = 0.6054818...; Box and Muller. */
TEST(initial_values_are_those_of_the_formula) {
    const struct rt_init uniform = {RT_INIT_UNIFORM, 0, 1, 0}, normal = {RT_INIT_NORMAL, 0, 1, 0},
                         constant = {RT_INIT_CONSTANT, 0.25, 0, 0};
    double got[2];
    float single[3];
    rt_init_fill(&uniform, 0, 2, got, RT_F64);
    assert_true(fabs(got[0] - 0.8805201978886142) < 1e-15 && fabs(got[1] - 0.6054818538799213) < 1e-15);
    rt_init_fill(&normal, 0, 2, got, RT_F64);
    assert_true(fabs(got[0] - -0.3976675384441824) < 1e-14 && fabs(got[1] - -0.3103954788017382) < 1e-14);
    rt_init_fill(&constant, 5, 3, single, RT_F32);
    assert_true(single[0] == 0.25f && single[2] == 0.25f);
}

TEST(an_element_is_the_same_whoever_asks) {
    const struct rt_init normal = {RT_INIT_NORMAL, 1, 2, 77};
    double all[1000], part[1000];
    rt_init_fill(&normal, 0, 1000, all, RT_F64);
    for (int first = 0; first < 999; first += 7)
        for (int count = 1; count < 1000 - first; count += 331) {
            rt_init_fill(&normal, first, count, part, RT_F64);
            assert_memory_equal(part, all + first, (size_t)count * sizeof *part);
        }
}

/* Mean and variance of a million elements: within five standard errors. */
TEST(initial_values_have_their_moments) {
    enum { N = 1000000 };
    const struct rt_init inits[] = {{RT_INIT_NORMAL, 3, 0.5, 1}, {RT_INIT_UNIFORM, -1, 2, 2}};
    const double mean[] = {3, 0.5}, variance[] = {0.25, 0.75}, fourth[] = {2, 0.8}; /* fourth: of (x^2 - 1), scaled */
    double *values = malloc(N * sizeof *values);
    for (int k = 0; k < 2; k++) {
        double sum = 0, squares = 0;
        rt_init_fill(&inits[k], 0, N, values, RT_F64);
        for (int i = 0; i < N; i++) sum += values[i], squares += (values[i] - mean[k]) * (values[i] - mean[k]);
        assert_true(fabs(sum / N - mean[k]) < 5 * sqrt(variance[k] / N));
        assert_true(fabs(squares / N / variance[k] - 1) < 5 * sqrt(fourth[k] / N));
    }
    free(values);
}

/* Samples */

TEST(an_epoch_has_every_sample_once) {
    bool seen[300];
    for (int64_t samples = 1; samples <= 300; samples++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            const struct rt_sampler sampler = {samples, true, (uint64_t)samples};
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < samples; i++) {
                const int64_t sample = rt_sampler_at(&sampler, epoch * samples + i);
                assert_in_range(sample, 0, samples - 1);
                assert_false(seen[sample]);
                seen[sample] = true;
            }
        }
}

TEST(without_shuffling_samples_are_in_order) {
    const struct rt_sampler sampler = {7, false, 0};
    for (int64_t i = 0; i < 30; i++) assert_int_equal(rt_sampler_at(&sampler, i), i % 7);
}

/* All orders of four samples come as often: chi-square with 23 degrees of freedom stays below 49.7 in 99.9% of
 * cases. */
TEST(all_orders_are_alike) {
    const int epochs = 24000;
    int count[256] = {0}, orders = 0;
    double chi = 0;
    const struct rt_sampler sampler = {4, true, 42};
    for (int64_t e = 0; e < epochs; e++) {
        int order = 0;
        for (int64_t i = 0; i < 4; i++) order = order * 4 + (int)rt_sampler_at(&sampler, e * 4 + i);
        count[order]++;
    }
    for (int o = 0; o < 256; o++) {
        const double difference = count[o] - epochs / 24.0;
        if (!count[o]) continue;
        orders++;
        chi += difference * difference / (epochs / 24.0);
    }
    assert_int_equal(orders, 24);
    assert_true(chi < 49.7);
}

TEST(huge_data_needs_no_memory) {
    const struct rt_sampler sampler = {INT64_C(1) << 60, true, 1};
    int64_t before = -1;
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t sample = rt_sampler_at(&sampler, (INT64_C(1) << 60) - 500 + i);
        assert_true(sample >= 0 && sample < sampler.samples && sample != before);
        before = sample;
    }
}

/* Schedules */

TEST(schedules_end_where_they_say) {
    const struct rt_lr_schedule cosine = {RT_LR_SCHEDULE_COSINE, 10, 100, 0.1},
                                linear = {RT_LR_SCHEDULE_LINEAR, 0, 4, 0},
                                constant = {RT_LR_SCHEDULE_CONSTANT, 2, 0, 0};
    assert_true(rt_lr_factor(&cosine, 1) == 0 && rt_lr_factor(&cosine, 6) == 0.5);
    assert_true(rt_lr_factor(&cosine, 11) == 1 && rt_lr_factor(&cosine, 101) == 0.1);
    assert_true(rt_lr_factor(&cosine, 1000) == 0.1);
    assert_true(rt_lr_factor(&linear, 1) == 1 && rt_lr_factor(&linear, 3) == 0.5);
    assert_true(rt_lr_factor(&linear, 5) == 0 && rt_lr_factor(&linear, 6) == 0);
    assert_true(rt_lr_factor(&constant, 2) == 0.5 && rt_lr_factor(&constant, 3) == 1);
}

/* Files of tensors */

static void refuse(const char *header, size_t data, const char *expected) {
    struct rt_safetensors file;
    struct rt_reason why;
    const size_t length = strlen(header), bytes = 8 + length + data;
    char *text = calloc(1, bytes);
    for (int i = 0; i < 8; i++) text[i] = (char)(length >> 8 * i);
    memcpy(text + 8, header, length);
    if (rt_safetensors_parse(&file, text, bytes, &why)) fail_msg("%s is accepted", header);
    if (!strstr(why.text, expected)) fail_msg("%s gives '%s', not '%s'", header, why.text, expected);
    free(text);
}

TEST(bad_files_are_refused) {
    struct rt_safetensors file;
    struct rt_reason why;
    assert_false(rt_safetensors_parse(&file, "\xff\xff\xff\xff\0\0\0\0{}", 10, &why));
    assert_false(rt_safetensors_parse(&file, "\2\0\0", 3, &why));
    refuse("[]", 0, "not a JSON object");
    refuse("{", 0, "line 1");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown data type");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "invalid dimension");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "must have a shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "match its shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}}", 4, "its shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "tensors have 4 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "overlap");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9007199254740992,9007199254740996]}}", 4,
           "overlap");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
           4, "overlap");
}

static void put_note(struct rt_json_writer *w, const void *context) {
    rt_json_key(w, "note");
    rt_json_put_text(w, context);
}

TEST(what_is_written_reads_back) {
    const struct rt_safetensor tensors[] = {
        {.name = "w\"\xc3\xa9", .dtype = RT_F32, .ndim = 2, .dims = {2, 3}, .bytes = 24},
        {.name = "none", .dtype = RT_F16, .ndim = 1, .dims = {0}, .bytes = 0},
        {.name = "s", .dtype = RT_BF16, .ndim = 0, .bytes = 2}};
    const struct rt_safetensors_metadata metadata = {put_note, "hello"};
    struct rt_safetensors file;
    struct rt_reason why;
    size_t bytes;
    char *header = rt_safetensors_header(tensors, 3, &metadata, &bytes, &why), *text = calloc(1, bytes + 26);
    assert_int_equal(bytes % 8, 0);
    memcpy(text, header, bytes);
    assert_true(rt_safetensors_parse(&file, text, bytes + 26, &why));
    assert_int_equal(file.n, 3);
    assert_string_equal(rt_json_text(rt_json_member(file.metadata, "note")), "hello");
    const struct rt_safetensor *found = rt_safetensors_find(&file, "s");
    assert_true(found->dtype == RT_BF16 && found->ndim == 0 && (const char *)found->data == text + bytes + 24);
    assert_int_equal(rt_safetensors_find(&file, "w\"\xc3\xa9")->dims[1], 3);
    assert_null(rt_safetensors_find(&file, "w"));
    rt_safetensors_free(&file);
    free(header);
    free(text);
}

int main(void) {
    return run_all_tests("training", NULL, NULL);
}
