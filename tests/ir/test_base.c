/* ir/base: arenas, vectors, maps, text, diagnostics. */
#include <string.h>

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/base/vec.h"
#include "tests/ir/golden.h"
#include "tests/ir/pool.h"

/* Arenas ------------------------------------------------------------------------------------------------------- */

TEST(test_objects_are_zero_aligned_and_apart) {
    struct arena arena;
    unsigned char *before = NULL;
    arena_init(&arena, 0, NULL);
    for (size_t size = 1; size < 3000; size += 7) {
        unsigned char *object = arena_alloc(&arena, size, 1);
        assert_int_equal((uintptr_t)object % 16, 0);
        for (size_t i = 0; i < size; i++) assert_int_equal(object[i], 0);
        memset(object, 0xff, size);
        assert_ptr_not_equal(object, before);
        before = object;
    }
    arena_free(&arena);
    assert_int_equal(arena.used, 0);
}

TEST(test_budget_jumps) {
    struct arena arena;
    jmp_buf failed;
    volatile int objects = 0;
    arena_init(&arena, 1 << 20, &failed);
    if (setjmp(failed) == 0) {
        for (; objects < 1000; objects++) arena_alloc(&arena, 100, 100);
        fail_msg("the budget was exceeded");
    }
    assert_int_equal(objects, (1 << 20) / 10000);
    assert_in_range(arena.used, 1, 1 << 20);
    arena_free(&arena);
}

static bool allocation_jumps(size_t count, size_t size) {
    struct arena arena;
    jmp_buf failed;
    arena_init(&arena, 0, &failed);
    if (setjmp(failed)) return true;
    arena_alloc(&arena, count, size);
    arena_free(&arena);
    return false;
}

TEST(test_sizes_that_overflow_jump) {
    assert_true(allocation_jumps(SIZE_MAX, 2));
    assert_true(allocation_jumps(SIZE_MAX / 2, 3));
    assert_true(allocation_jumps(SIZE_MAX, 1));
    assert_true(allocation_jumps(SIZE_MAX / 2 + 1, 1));
    assert_false(allocation_jumps(0, SIZE_MAX));
}

#ifdef __SANITIZE_ADDRESS__
int __asan_address_is_poisoned(const volatile void *address);

TEST(test_only_objects_may_be_touched) {
    for (size_t size = 0; size < 100; size++) {
        const char *object = arena_alloc(&pool, size, 1);
        assert_true(__asan_address_is_poisoned(object + size));
        assert_true(__asan_address_is_poisoned(object - 1));
        for (size_t i = 0; i < size; i++) assert_false(__asan_address_is_poisoned(object + i));
    }
}
#endif

TEST(test_copies_end_with_a_zero) {
    const char *copy = arena_copy(&pool, "ab\0cd", 4);
    assert_memory_equal(copy, "ab\0c", 5);
    assert_string_equal(arena_strdup(&pool, ""), "");
    assert_string_equal(arena_printf(&pool, "%s %d", "word", 7), "word 7");
}

TEST(test_vec_grows) {
    VEC(int) vec = {0};
    for (int i = 0; i < 10000; i++) VEC_PUSH(&pool, &vec, i * i);
    assert_int_equal(vec.n, 10000);
    for (int i = 0; i < 10000; i++) assert_int_equal(vec.at[i], i * i);
}

/* Maps --------------------------------------------------------------------------------------------------------- */

TEST(test_map_finds_all_in_order) {
    struct map map;
    char key[16];
    map_init(&map, &pool);
    assert_int_equal(map_get(&map, "none", 4), -1);
    for (int i = 0; i < 5000; i++) {
        int length = snprintf(key, sizeof key, "key%d", i * 7);
        assert_true(map_put(&map, key, (size_t)length, i));
        assert_false(map_put(&map, key, (size_t)length, i + 1));
    }
    assert_int_equal(map.n, 5000);
    for (int i = 0; i < 5000; i++) {
        int length = snprintf(key, sizeof key, "key%d", i * 7);
        assert_int_equal(map_get(&map, key, (size_t)length), i + 1);
        assert_string_equal(map.entries[i].key, key);
    }
    assert_int_equal(map_get(&map, "key1", 4), -1);
}

TEST(test_map_keys_are_bytes) {
    struct map map;
    map_init(&map, &pool);
    map_put(&map, "a\0b", 3, 1);
    map_put(&map, "a\0c", 3, 2);
    map_put(&map, "", 0, 3);
    map_put(&map, "a", 1, 4);
    assert_int_equal(map_get(&map, "a\0b", 3), 1);
    assert_int_equal(map_get(&map, "a\0c", 3), 2);
    assert_int_equal(map_get(&map, "", 0), 3);
    assert_int_equal(map_get(&map, "a", 1), 4);
    assert_int_equal(map_get(&map, "a\0", 2), -1);
}

/* Text --------------------------------------------------------------------------------------------------------- */

TEST(test_strbuf) {
    struct strbuf buffer;
    strbuf_init(&buffer, &pool);
    assert_string_equal(strbuf_text(&buffer), "");
    strbuf_puts(&buffer, "one");
    strbuf_putc(&buffer, ',');
    strbuf_printf(&buffer, "%0*d", 500, 7);
    strbuf_add(&buffer, "xyz", 2);
    assert_int_equal(buffer.length, 4 + 500 + 2);
    assert_memory_equal(strbuf_text(&buffer), "one,000", 7);
    assert_string_equal(strbuf_text(&buffer) + 502, "07xy");
}

TEST(test_names_made_harmless) {
    assert_string_equal(str_escape(&pool, "a\033[1m\\\n\xc3", 8, 0), "a\\x1b[1m\\x5c\\x0a\\xc3");
    assert_string_equal(str_escape(&pool, "abcdef", 6, 3), "abc...");
    assert_string_equal(str_escape(&pool, "ab\n", 3, 3), "ab...");
    assert_string_equal(str_filename(&pool, "a/b..\\c d-1_", 12), "a_b.._c_d-1_");
    assert_true(str_is_plain("h.0/attn:q_1-x"));
    assert_false(str_is_plain("a*/b"));
    assert_false(str_is_plain("a\\"));
    assert_false(str_is_plain("a\x80"));
}

TEST(test_nearest_word) {
    static const char *const words[] = {"--threads", "--target", "--train", NULL};
    assert_string_equal(str_nearest("--thread", words), "--threads");
    assert_string_equal(str_nearest("--tarqet", words), "--target");
    assert_null(str_nearest("--output", words));
    assert_null(str_nearest("", words));
}

/* Diagnostics -------------------------------------------------------------------------------------------------- */

TEST(test_diagnostics_as_printed) {
    struct diags diags;
    diags_init(&diags, &pool);
    assert_int_equal(diags_exit(&diags), EXIT_OK);
    diag_warning(&diags, 12, NULL, "one %s", "thing");
    assert_int_equal(diags_exit(&diags), EXIT_OK);
    assert_int_equal(diag_error(&diags, 331, EXIT_UNSUPPORTED, "m.onnx: node 1", "no %d", 7), -1);
    diag_note(&diags, "because %s", "so");
    diag_help(&diags, "try %s", diag_quote(&diags, "a\nb"));
    diag_error(&diags, 1, EXIT_LIMIT, NULL, "later");
    diag_remark(&diags, "here", "a remark");
    assert_int_equal(diags_exit(&diags), EXIT_UNSUPPORTED);
    assert_int_equal(diags.errors, 2);
    assert_string_equal(golden_diags(&pool, &diags), "rankc: warning[E0012]: one thing\n"
                                                     "rankc: error[E0331]: no 7\n"
                                                     "  --> m.onnx: node 1\n"
                                                     "  note: because so\n"
                                                     "  help: try 'a\\x0ab'\n"
                                                     "rankc: error[E0001]: later\n"
                                                     "rankc: note: a remark\n"
                                                     "  --> here\n");
}

TEST(test_plurals) {
    static const char *const said[][2] = {
        {"1 node(s) of 1 file(s)", "1 node of 1 file"},
        {"10 match(es), 1 batch(es), 21 rank(s)", "10 matches, 1 batch, 21 ranks"},
        {"node(s)", "nodes"},
        {"the plan's 1 file(s), '1 name(s)' of 1 node(s)", "the plan's 1 file, '1 name(s)' of 1 node"},
        {"'1 (s)", "'1 (s)"}};
    struct diags diags;
    diags_init(&diags, &pool);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        assert_string_equal(rt_plurals(arena_strdup(&pool, said[i][0])), said[i][1]);
    diag_error(&diags, 1, EXIT_LIMIT, NULL, "%d node(s)", 1);
    diag_help(&diags, "%d node(s)", 2);
    assert_string_equal(golden_diags(&pool, &diags), "rankc: error[E0001]: 1 node\n  help: 2 nodes\n");
}

TEST(test_diagnostics_as_json) {
    struct diags diags;
    char text[512] = "";
    diags_init(&diags, &pool);
    diag_error(&diags, 7, EXIT_MALFORMED, "a\x1b", "\"quoted\"\n"); /* forgotten to be quoted */
    diag_help(&diags, "\xe2h");
    diag_remark(&diags, NULL, "not printed");
    FILE *out = fmemopen(text, sizeof text, "w");
    diags_print(&diags, out, RT_DIAGNOSTIC_JSON, RT_SEVERITY_WARNING);
    fclose(out);
    assert_string_equal(
        text, "{\"format\": 1, \"severity\": \"error\", \"code\": \"E0007\", \"text\": \"\\\"quoted\\\"\\\\x0a\", "
              "\"where\": \"a\\\\x1b\", \"notes\": [\"help: \\\\xe2h\"]}\n");
}

int main(void) {
    return run_all_tests("base", open_pool, close_pool);
}
