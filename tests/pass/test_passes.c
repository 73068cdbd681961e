/* Passes by example: graphs in, graphs out, as text.
 *
 *     test_passes [--bless] [ROOT]
 *
 * tests/pass/<pass>.txt has cases of one pass (tests/ir/golden.h). A case is the statements of a graph of the pass'
 * level, without the first two; its result is the statements after the pass, or the diagnostics of the pass or of the
 * verifier after it. What is printed must be read back as the same text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "passes/train/training.h"
#include "passes/pipeline.h"
#include "tests/ir/golden.h"

static struct golden golden;
static const struct pass *pass;
static bool library, rows; /* products are one's; there are programs over rows */
static enum attention_kind attention;

static struct graph *parse(struct arena *arena, struct diags *diags, const char *text) {
    struct graph *graph;
    return text_parse(arena, diags, "case", text, strlen(text), &graph) < 0 ? NULL : graph;
}

/* The text behind the two statements that open it. */
static const char *body(const char *text) {
    return strchr(strchr(text, '\n') + 1, '\n') + 1;
}

static const char *apply(struct arena *arena, const char *statements) {
    struct diags diags;
    const struct training training = {.amp = {.text = "bf16", .dtype = RT_BF16}};
    struct pass_context context = {.diags = &diags,
                                   .library_products = library,
                                   .block_epilogues = true,
                                   .attention = attention,
                                   .row_programs = rows,
                                   .training = strcmp(pass->name, "amp") == 0 ? &training : NULL};
    diags_init(&diags, arena);
    struct graph *graph =
        parse(arena, &diags,
              arena_printf(arena, "rankc-ir 1\ngraph \"case\" level=%s%s\n%s", level_names[pass->from],
                           strcmp(pass->name, "roles") == 0 ? " train" : "", statements));
    if (!graph || pass->run(graph, &context) < 0) return golden_diags(arena, &diags);
    graph->level = pass->to;
    if (verify_graph(graph, &diags) < 0) return golden_diags(arena, &diags);
    const char *text = text_print(arena, graph);
    struct graph *again = parse(arena, &diags, text);
    if (!again) return golden_diags(arena, &diags);
    assert_string_equal(text_print(arena, again), text);
    return body(text);
}

static void run_file(const char *name, const char *file) {
    pass = pass_find(name);
    assert_non_null(pass);
    struct arena arena;
    arena_init(&arena, 0, NULL);
    assert_int_equal(golden_run(&golden, arena_printf(&arena, "tests/pass/%s.txt", file), apply), 0);
    arena_free(&arena);
}

#define PASS_TEST(name)                                                                                                \
    static void test_##name(void **state) {                                                                            \
        (void)state;                                                                                                   \
        run_file(#name, #name);                                                                                        \
    }
PASS_TEST(roles)
PASS_TEST(fold)
PASS_TEST(cse)
PASS_TEST(fuse)
PASS_TEST(sink)
PASS_TEST(recognise)
PASS_TEST(dce)
PASS_TEST(repeat)
PASS_TEST(partition)
PASS_TEST(redist)
PASS_TEST(stage)
PASS_TEST(amp)
PASS_TEST(widen)
PASS_TEST(casts)
PASS_TEST(fuse_elementwise)
PASS_TEST(pack)
PASS_TEST(overlap)
PASS_TEST(fuse_epilogue)

static void test_recognise_attention(void **state) {
    (void)state;
    run_file("recognise", "recognise_attention");
}

static void test_recognise_flash(void **state) {
    (void)state;
    attention = ATTENTION_FLASH;
    run_file("recognise", "recognise_flash");
    attention = ATTENTION_LIBRARY;
    run_file("recognise", "recognise_cudnn");
    attention = ATTENTION_PRODUCTS;
}

static void test_library_epilogue(void **state) {
    (void)state;
    library = true;
    run_file("fuse_epilogue", "library_epilogue");
    library = false;
}

static void test_fuse_rows(void **state) {
    (void)state;
    rows = true;
    run_file("fuse_rows", "fuse_rows");
    rows = false;
}

static void test_library_sums(void **state) {
    (void)state;
    library = true;
    run_file("fuse_sums", "library_sums");
    library = false;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_cse),
        cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_sink),
        cmocka_unit_test(test_recognise),
        cmocka_unit_test(test_recognise_attention),
        cmocka_unit_test(test_recognise_flash),
        cmocka_unit_test(test_dce),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_partition),
        cmocka_unit_test(test_redist),
        cmocka_unit_test(test_amp),
        cmocka_unit_test(test_widen),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_fuse_elementwise),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_fuse_epilogue),
        cmocka_unit_test(test_library_epilogue),
        cmocka_unit_test(test_fuse_rows),
        cmocka_unit_test(test_library_sums),
    };
    golden = golden_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
