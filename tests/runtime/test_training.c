/* Random numbers, the order of samples, and files of tensors. */
#include "base/philox.h"
#include "base/safetensors.h"
#include "base/schedule.h"
#include "sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Philox */

/* kat_vectors of Random123 1.14. */
static void philox_gives_the_known_answers(void **state) {
    (void)state;
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

static void open_interval_has_no_ends(void **state) {
    (void)state;
    assert_true(rt_philox_open(0, 0) > 0);
    assert_true(rt_philox_open(0xffffffff, 0xffffffff) < 1);
    assert_true(rt_philox_open(0, 0x80000000) > 0.5 && rt_philox_open(0xffffffff, 0x7fffffff) < 0.5);
}

/* Samples */

static void an_epoch_has_every_sample_once(void **state) {
    (void)state;
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

static void without_shuffling_samples_are_in_order(void **state) {
    (void)state;
    const struct rt_sampler sampler = {7, false, 0};
    for (int64_t i = 0; i < 30; i++) assert_int_equal(rt_sampler_at(&sampler, i), i % 7);
}

/* All orders of four samples come as often: chi-square with 23 degrees of freedom stays below 49.7 in 99.9% of cases. */
static void all_orders_are_alike(void **state) {
    (void)state;
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

static void huge_data_needs_no_memory(void **state) {
    (void)state;
    const struct rt_sampler sampler = {INT64_C(1) << 60, true, 1};
    int64_t before = -1;
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t sample = rt_sampler_at(&sampler, (INT64_C(1) << 60) - 500 + i);
        assert_true(sample >= 0 && sample < sampler.samples && sample != before);
        before = sample;
    }
}

/* Schedules */

static void schedules_end_where_they_say(void **state) {
    (void)state;
    const struct rt_schedule cosine = {RT_SCHEDULE_COSINE, 10, 100, 0.1}, linear = {RT_SCHEDULE_LINEAR, 0, 4, 0},
                             constant = {RT_SCHEDULE_CONSTANT, 2, 0, 0};
    assert_true(rt_schedule_factor(&cosine, 1) == 0 && rt_schedule_factor(&cosine, 6) == 0.5);
    assert_true(rt_schedule_factor(&cosine, 11) == 1 && rt_schedule_factor(&cosine, 101) == 0.1);
    assert_true(rt_schedule_factor(&cosine, 1000) == 0.1);
    assert_true(rt_schedule_factor(&linear, 1) == 1 && rt_schedule_factor(&linear, 3) == 0.5);
    assert_true(rt_schedule_factor(&linear, 5) == 0 && rt_schedule_factor(&linear, 6) == 0);
    assert_true(rt_schedule_factor(&constant, 2) == 0.5 && rt_schedule_factor(&constant, 3) == 1);
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

static void bad_files_are_refused(void **state) {
    (void)state;
    struct rt_safetensors file;
    struct rt_reason why;
    assert_false(rt_safetensors_parse(&file, "\xff\xff\xff\xff\0\0\0\0{}", 10, &why));
    assert_false(rt_safetensors_parse(&file, "\2\0\0", 3, &why));
    refuse("[]", 0, "no object");
    refuse("{", 0, "line 1");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no type");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "bad dimension");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "no shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "not as many");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}}", 4,
           "not as many");
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

static void what_is_written_reads_back(void **state) {
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers), cmocka_unit_test(open_interval_has_no_ends),
        cmocka_unit_test(an_epoch_has_every_sample_once), cmocka_unit_test(without_shuffling_samples_are_in_order),
        cmocka_unit_test(all_orders_are_alike),           cmocka_unit_test(huge_data_needs_no_memory),
        cmocka_unit_test(schedules_end_where_they_say),   cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(what_is_written_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
