/* What the verifier says of segments and schedules: tests/ir/schedules.txt. A case lists segments and a schedule of the
 * graph below; a case that begins with a schedule is given the graph's own segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "tests/ir/golden.h"

static struct golden golden;

static const char graph_text[] = "rankc-ir 1\n"
                                 "graph \"g\" level=SCHEDULED train\n"
                                 "input %0 \"x\" f32[4]\n"
                                 "control %1 \"lr\" f64[]\n"
                                 "weight %2 \"w\" f32[4]\n"
                                 "%3 \"y\" f32[4] = Mul(%0, %2)\n"
                                 "%4 \"dw\" f32[4] = Mul(%0, %3) phase=backward\n"
                                 "%5 \"w.new\" f32[4] = Sub(%2, %4) phase=update\n"
                                 "output %3 \"y\"\n"
                                 "update %2 <- %5\n";
static const char segments_text[] = "segment forward 0 order=0..1 in=[] out=[%3]\n"
                                    "segment backward 0 order=1..2 in=[%3] out=[%4]\n"
                                    "segment reduce 0 order=2..2 in=[] out=[]\n"
                                    "segment update 0 order=2..3 in=[%4] out=[]\n";

static const char *verdict(struct arena *arena, const char *input) {
    const bool updates = strncmp(input, "update", 6) == 0; /* a further statement of the graph, then a schedule */
    const char *rest = updates ? strchr(input, '\n') + 1 : input;
    const char *segments = strncmp(rest, "schedule", 8) == 0 ? segments_text : "";
    const char *text = arena_printf(arena, "%s%.*s%s%s", graph_text, (int)(rest - input), input, segments, rest);
    struct diags diags;
    struct graph *graph;
    diags_init(&diags, arena);
    if (text_parse(arena, &diags, "case", text, strlen(text), &graph) < 0 || verify_graph(graph, &diags) < 0)
        return golden_diags(arena, &diags);
    assert_string_equal(text_print(arena, graph), text);
    return "accepted\n";
}

static void test_verdicts(void **state) {
    (void)state;
    assert_int_equal(golden_run(&golden, "tests/ir/schedules.txt", verdict), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verdicts)};
    golden = golden_options(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
