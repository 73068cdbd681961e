#define _GNU_SOURCE 1

#include "base/text/json.h"
#include "../test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rt_json_document *parse(const char *text, struct rt_reason *why) {
    return rt_json_parse(text, strlen(text), why);
}

static void accept(const char *text) {
    struct rt_reason why;
    struct rt_json_document *document = parse(text, &why);
    if (!document) fail_msg("%s: %s", text, why.text);
    rt_json_free(document);
}

static void refuse(const char *text, const char *expected) {
    struct rt_reason why;
    struct rt_json_document *document = parse(text, &why);
    rt_json_free(document);
    assert_null(document);
    if (strcmp(why.text, expected) != 0) fail_msg("%s gives '%s', not '%s'", text, why.text, expected);
}

TEST(reads_values_in_order) {
    struct rt_reason why;
    struct rt_json_document *document =
        parse(" {\"a\": [1, -2, 3.5e1],\n  \"b\": {\"x\": null, \"y\": true}, \"\": \"t\\u00e9xt\"} ", &why);
    assert_non_null(document);
    const struct rt_json *root = rt_json_root(document), *a = rt_json_member(root, "a");
    assert_int_equal(root->count, 3);
    assert_int_equal(a->count, 3);
    int64_t integer;
    double real;
    bool truth = false;
    assert_true(rt_json_int(a->first->next, &integer) && integer == -2);
    assert_true(rt_json_real(a->first->next->next, &real) && real == 35);
    assert_true(rt_json_real(a->first, &real) && real == 1);
    assert_false(rt_json_int(a->first->next->next, &integer));
    const struct rt_json *y = rt_json_member(rt_json_member(root, "b"), "y");
    assert_true(rt_json_bool(y, &truth) && truth);
    assert_int_equal(y->line, 2);
    assert_int_equal(y->column, 25);
    assert_string_equal(rt_json_text(rt_json_member(root, "")), "t\xc3\xa9xt");
    assert_null(rt_json_member(root, "c"));
    assert_null(rt_json_member(a, "c"));
    assert_null(rt_json_text(a));
    rt_json_free(document);
}

TEST(integers_are_exact) {
    struct rt_reason why;
    struct rt_json_document *document = parse("[9223372036854775807, -9223372036854775808, 9007199254740993]", &why);
    const struct rt_json *v = rt_json_root(document)->first;
    assert_true(v->integer == INT64_MAX);
    assert_true(v->next->integer == INT64_MIN);
    assert_true(v->next->next->integer == 9007199254740993);
    rt_json_free(document);
    refuse("9223372036854775808", "line 1, column 1: integer does not fit in 64 bits");
    refuse("[1,\n -9223372036854775809]", "line 2, column 2: integer does not fit in 64 bits");
}

TEST(malformed_text_is_refused_with_its_place) {
    refuse("", "line 1, column 1: text ends where a value is expected");
    refuse("{\"a\":1,}", "line 1, column 8: key expected");
    refuse("[1,]", "line 1, column 4: value expected");
    refuse("[1 2]", "line 1, column 4: ',' or ']' expected");
    refuse("{\"a\" 1}", "line 1, column 6: ':' expected after a key");
    refuse("{a:1}", "line 1, column 2: key expected");
    refuse("01", "line 1, column 1: malformed number");
    refuse("1.", "line 1, column 1: malformed number");
    refuse("-", "line 1, column 1: malformed number");
    refuse("1e999", "line 1, column 1: number is out of range");
    refuse("nul", "line 1, column 1: value expected");
    refuse("[] []", "line 1, column 4: unexpected text after the value");
    refuse("\"a\nb\"", "line 1, column 3: control character in a string");
    refuse("\"\\x\"", "line 1, column 2: unknown escape");
    refuse("\"\\u12g4\"", "line 1, column 2: \\u needs four hexadecimal digits");
    refuse("\"\\ud800\"", "line 1, column 2: half of a surrogate pair");
    refuse("\"\xc0\xaf\"", "line 1, column 2: string is not UTF-8");
    refuse("\"\xed\xa0\x80\"", "line 1, column 2: string is not UTF-8");
    refuse("\"abc", "line 1, column 1: unterminated string");
    refuse("\xef\xbb\xbf{}", "line 1, column 1: value expected");
    refuse("{\"k\":1,\n\"j\":2,\"k\":3}", "line 2, column 11: key \"k\" is given twice");
}

TEST(numbers_of_python_are_null_where_they_may_be) {
    static const char text[] = "{\"limit\": [0.0, Infinity, -Infinity, NaN], \"least\": -1}", cut[] = "[-Infinit";
    struct rt_reason why;
    struct rt_json_document *document = rt_json_parse_python(text, sizeof text - 1, &why);
    assert_non_null(document);
    const struct rt_json *limit = rt_json_member(rt_json_root(document), "limit")->first;
    int64_t least;
    assert_true(limit->kind == RT_JSON_REAL && limit->next->kind == RT_JSON_NULL);
    assert_true(limit->next->next->kind == RT_JSON_NULL && limit->next->next->next->kind == RT_JSON_NULL);
    assert_true(rt_json_int(rt_json_member(rt_json_root(document), "least"), &least) && least == -1);
    rt_json_free(document);
    assert_null(rt_json_parse_python(cut, sizeof cut - 1, &why));
    refuse("[Infinity]", "line 1, column 2: value expected");
    refuse("[NaN]", "line 1, column 2: value expected");
}

TEST(duplicates_among_many_keys_are_found) {
    static char text[40000];
    size_t used = 1;
    text[0] = '{';
    for (int i = 0; i < 1000; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "\"key%d\":%d,", i * 7 % 1000, i);
    snprintf(text + used, sizeof text - used, "\"z\":0}");
    accept(text);
    snprintf(text + used, sizeof text - used, "\n\"key500\":0}");
    refuse(text, "line 2, column 10: key \"key500\" is given twice");
}

TEST(depth_is_limited) {
    char text[200000];
    memset(text, '[', 64), memset(text + 64, ']', 64), text[128] = 0;
    accept(text);
    memset(text, '[', 65), memset(text + 65, ']', 65), text[130] = 0;
    refuse(text, "line 1, column 65: nested too deeply");
    memset(text, '{', sizeof text - 1), text[sizeof text - 1] = 0;
    refuse(text, "line 1, column 2: key expected");
}

static const char sample[] =
    "{\"format\":1,\"a b\":[true,null,-1.5e-3,\"\\ud83d\\ude00\\u0000\\\"\",{}],\"n\":{\"m\":[]}}";

TEST(every_truncation_is_refused) {
    struct rt_reason why;
    accept(sample);
    for (size_t n = 0; n < sizeof sample - 1; n++) {
        char *copy = malloc(n ? n : 1); /* of exact size, so that sanitizers see a byte too much */
        memcpy(copy, sample, n);
        assert_null(rt_json_parse(copy, n, &why));
        free(copy);
    }
}

TEST(every_changed_byte_ends) {
    struct rt_reason why;
    char copy[sizeof sample];
    for (size_t i = 0; i < sizeof sample - 1; i++)
        for (int value = 0; value < 256; value++) {
            memcpy(copy, sample, sizeof sample);
            copy[i] = (char)value;
            rt_json_free(rt_json_parse(copy, sizeof sample - 1, &why));
        }
}

static void write_sample(struct rt_json_writer *w) {
    rt_json_start(w);
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key(w, "format"), rt_json_put_int(w, 1);
    rt_json_key(w, "empty"), rt_json_open(w, '[', RT_JSON_LINES), rt_json_close(w, ']');
    rt_json_key(w, "list"), rt_json_open(w, '[', RT_JSON_LINES);
    rt_json_put_dims(w, (int64_t[]){2, 8}, 2);
    rt_json_open(w, '{', RT_JSON_INLINE);
    rt_json_key(w, "x\"\n\x01"), rt_json_put_real(w, 0.1);
    rt_json_key(w, "y"), rt_json_put_bool(w, false);
    rt_json_close(w, '}');
    rt_json_close(w, ']');
    rt_json_key(w, "z"), rt_json_put_real(w, 3);
    rt_json_key(w, "nan"), rt_json_put_real(w, (double)NAN);
    rt_json_close(w, '}');
}

TEST(writes_lines_and_inline) {
    struct rt_json_writer w;
    struct rt_reason why;
    write_sample(&w);
    assert_true(rt_json_end(&w, &why));
    assert_string_equal(w.text,
                        "{\n  \"format\": 1,\n  \"empty\": [],\n  \"list\": [\n    [2, 8],\n"
                        "    {\"x\\\"\\n\\u0001\": 0.1, \"y\": false}\n  ],\n  \"z\": 3.0,\n  \"nan\": null\n}\n");
    rt_json_discard(&w);
}

/* Names of models are bytes: all of them come back, also those that are not UTF-8. */
TEST(strings_round_trip) {
    static const char *const strings[] = {"",
                                          "plain",
                                          "\x80\xff\xc3",
                                          "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                                          "\xed\xa0\x80 \xf4\x90\x80\x80 \xc0\x80",
                                          "\"\\/\b\f\n\r\t\x7f\x1b"};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        struct rt_json_writer w;
        struct rt_reason why;
        rt_json_start(&w);
        rt_json_put_text(&w, strings[i]);
        assert_true(rt_json_end(&w, &why));
        for (const char *c = w.text; *c; c++) assert_true((*c >= 0x20 && *c < 0x7f) || *c == '\n');
        struct rt_json_document *document = parse(w.text, &why);
        assert_non_null(document);
        assert_string_equal(rt_json_text(rt_json_root(document)), strings[i]);
        rt_json_free(document);
        rt_json_discard(&w);
    }
}

TEST(reals_round_trip) {
    static const double reals[] = {0.1, 1e300, 5e-324, 1.0 / 3, 123456789.123456789, -0.0, 1e22};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        struct rt_json_writer w;
        struct rt_reason why;
        double back;
        rt_json_start(&w);
        rt_json_put_real(&w, reals[i]);
        assert_true(rt_json_end(&w, &why));
        struct rt_json_document *document = parse(w.text, &why);
        assert_true(rt_json_real(rt_json_root(document), &back));
        assert_memory_equal(&back, &reals[i], sizeof back);
        rt_json_free(document);
        rt_json_discard(&w);
    }
}

TEST(misuse_is_an_error_at_the_end) {
    struct rt_reason why;
    struct rt_json_writer w;
    rt_json_start(&w); /* nothing */
    assert_false(rt_json_end(&w, &why));
    rt_json_discard(&w);
    rt_json_start(&w); /* a value without a key */
    rt_json_open(&w, '{', RT_JSON_LINES), rt_json_put_int(&w, 1), rt_json_close(&w, '}');
    assert_false(rt_json_end(&w, &why));
    rt_json_discard(&w);
    rt_json_start(&w); /* closed with the other bracket */
    rt_json_open(&w, '{', RT_JSON_LINES), rt_json_close(&w, ']');
    assert_false(rt_json_end(&w, &why));
    rt_json_discard(&w);
    rt_json_start(&w); /* too deep */
    for (int i = 0; i < 65; i++) rt_json_open(&w, '[', RT_JSON_INLINE);
    for (int i = 0; i < 65; i++) rt_json_close(&w, ']');
    assert_false(rt_json_end(&w, &why));
    rt_json_discard(&w);
    rt_json_start(&w); /* two values */
    rt_json_put_int(&w, 1), rt_json_put_int(&w, 2);
    assert_false(rt_json_end(&w, &why));
    rt_json_discard(&w);
}

TEST(files_are_read_only_if_regular) {
    struct rt_reason why;
    assert_null(rt_json_read("/dev/zero", &why));
    assert_int_equal(why.kind, RT_REASON_SYSTEM);
    assert_null(rt_json_read("/", &why));
    assert_null(rt_json_read("/no/such\nfile", &why));
    assert_string_equal(why.text, "cannot open '/no/such\\x0afile': No such file or directory");
}

int main(void) {
    return run_all_tests("json", NULL, NULL);
}
