/* What the verifier says of segments and schedules: tests/ir/schedules.txt. A case lists segments and a schedule of the
 * graph below; a case that begins with a schedule is given the graph's own segments. */
#include <stdlib.h>
#include <string.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "tests/ir/golden.h"
#include "tests/test.h"

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

/* Two pipeline stages: %4 and its gradient %7 cross. */
static const char stages_text[] = "rankc-ir 1\n"
                                  "graph \"g\" level=SCHEDULED train\n"
                                  "mesh pipeline=2\n"
                                  "input %0 \"x\" f32[4]\n"
                                  "control %1 \"lr\" f64[]\n"
                                  "weight %2 \"w\" f32[4]\n"
                                  "%3 \"y\" f32[4] = Mul(%0, %2)\n"
                                  "%4 \"y.stage1\" f32[4] = Transfer(%3) mesh=0 from=0 to=1 stage=1\n"
                                  "%5 \"z\" f32[4] = Mul(%4, %4) stage=1\n"
                                  "%6 \"dy\" f32[4] = Mul(%4, %5) stage=1 phase=backward\n"
                                  "%7 \"dy.stage0\" f32[4] = Transfer(%6) mesh=0 from=1 to=0 phase=backward\n"
                                  "%8 \"dw\" f32[4] = Mul(%0, %7) phase=backward\n"
                                  "%9 \"w.new\" f32[4] = Sub(%2, %8) phase=update\n"
                                  "output %5 \"z\"\n"
                                  "update %2 <- %9\n"
                                  "segment forward 0 order=0..2 in=[] out=[]\n"
                                  "segment backward 0 order=4..6 in=[] out=[%8]\n"
                                  "segment reduce 0 order=6..6 in=[] out=[]\n"
                                  "segment update 0 order=6..7 in=[%8] out=[]\n"
                                  "segment forward 1 order=1..3 in=[] out=[%4, %5]\n"
                                  "segment backward 1 order=3..5 in=[%4, %5] out=[]\n"
                                  "segment reduce 1 order=6..6 in=[] out=[]\n"
                                  "segment update 1 order=6..6 in=[] out=[]\n";

/* The gradient of the weight is computed in a phase of its own. */
static const char weights_text[] = "rankc-ir 1\n"
                                   "graph \"g\" level=SCHEDULED train\n"
                                   "input %0 \"x\" f32[4]\n"
                                   "control %1 \"lr\" f64[]\n"
                                   "weight %2 \"w\" f32[4]\n"
                                   "%3 \"y\" f32[4] = Mul(%0, %2)\n"
                                   "%4 \"dy\" f32[4] = Mul(%3, %3) phase=backward\n"
                                   "%5 \"dw\" f32[4] = Mul(%0, %4) phase=weight\n"
                                   "%6 \"w.new\" f32[4] = Sub(%2, %5) phase=update\n"
                                   "output %3 \"y\"\n"
                                   "update %2 <- %6\n"
                                   "segment forward 0 order=0..1 in=[] out=[%3]\n"
                                   "segment backward 0 order=1..2 in=[%3] out=[%4]\n"
                                   "segment weight 0 order=2..3 in=[%4] out=[%5]\n"
                                   "segment reduce 0 order=3..3 in=[] out=[]\n"
                                   "segment update 0 order=3..4 in=[%5] out=[]\n";

/* The graph that the first line names; without a name, the first one. */
static const char *graph_of(const char **input) {
    static const struct {
        const char *name, *text;
    } graphs[] = {{"stages\n", stages_text}, {"weights\n", weights_text}};
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++) {
        const size_t length = strlen(graphs[g].name);
        if (strncmp(*input, graphs[g].name, length) != 0) continue;
        *input += length;
        return graphs[g].text;
    }
    return graph_text;
}

static const char *verdict(struct arena *arena, const char *input) {
    const char *graph_of_case = graph_of(&input);
    const bool updates = strncmp(input, "update", 6) == 0; /* a further statement of the graph, then a schedule */
    const char *rest = updates ? strchr(input, '\n') + 1 : input;
    const bool own = graph_of_case == graph_text && strncmp(rest, "schedule", 8) == 0;
    const char *segments = own ? segments_text : "";
    const char *text = arena_printf(arena, "%s%.*s%s%s", graph_of_case, (int)(rest - input), input, segments, rest);
    struct diags diags;
    struct graph *graph;
    diags_init(&diags, arena);
    if (text_parse(arena, &diags, "case", text, strlen(text), &graph) < 0 || verify_graph(graph, &diags) < 0)
        return golden_diags(arena, &diags);
    assert_string_equal(text_print(arena, graph), text);
    return "accepted\n";
}

TEST(test_verdicts) {
    assert_int_equal(golden_run(&golden, "tests/ir/schedules.txt", verdict), 0);
}

int main(int argc, char **argv) {
    golden = golden_options(argc, argv);
    return run_all_tests("schedule", NULL, NULL);
}
