/* What annotations say: bound factors, what a cut of each does to the operands, and how a dimension can be cut.
 *
 * A case of tests/dims/ gives, for its last node:
 *
 *   k+ m, k n -> m n {..}          the bound annotation
 *   -> f32[4,8]                    the inferred types
 *   k: x0[0] x1[0] -> sum          cut of factor k: what each operand is then; operands not named stay whole
 *   o0: x0[2]~ -> y0[2]            x0 is a window of dimension 2
 *   x0[2]: 1/1 r2/1/1 | 2/1 ...    for dimensions of several factors: the options for cuts in blocks/grain */

#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "tests/ir/golden.h"
#include "tests/test.h"

static struct golden golden;

static const char *const files[] = {"tests/dims/elementwise.txt", "tests/dims/contract.txt", "tests/dims/attention.txt",
                                    "tests/dims/conv.txt",        "tests/dims/move.txt",     "tests/dims/recurrent.txt",
                                    "tests/dims/sample.txt"};
enum { FILES = sizeof files / sizeof *files };

static void print_place(struct strbuf *out, const struct dims *dims, int operand, int dim) {
    bool input = operand < dims->ninputs;
    strbuf_printf(out, " %s%d[%d]", input ? "x" : "y", input ? operand : operand - dims->ninputs, dim);
}

static void print_factor(struct strbuf *out, const struct dims *dims, int factor) {
    const struct node_split split = {.factor = (int16_t)factor, .blocks = 1, .grain = 1};
    strbuf_printf(out, "%s:", dims->factor[factor].name);
    if (!dims_can_split(dims, &split, 2)) {
        strbuf_puts(out, " no\n");
        return;
    }
    for (int i = 0; i < dims->ninputs + dims->noutputs; i++) {
        struct placement placement = dims_placement(dims, i, &split);
        if (i == dims->ninputs) strbuf_puts(out, " ->");
        if (placement.kind == PLACED_PARTIAL) strbuf_printf(out, " %s", reduce_names[placement.reduce]);
        if (!placement_divides(&placement)) continue;
        print_place(out, dims, i, placement.dim);
        if (placement.kind == PLACED_WINDOW) strbuf_putc(out, '~');
        if (placement.blocks != 1 || placement.grain != 1)
            strbuf_printf(out, "/%lld/%lld", (long long)placement.blocks, (long long)placement.grain);
    }
    strbuf_putc(out, '\n');
}

static void print_options(struct strbuf *out, const struct dims *dims, int operand, int dim) {
    static const int cuts[][2] = {{1, 1}, {2, 1}, {3, 1}, {1, 2}, {1, 3}, {1, 4}};
    struct cut_option options[RT_MAX_NDIM];
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        if (dims_extent(dims, operand, dim) % (cuts[i][0] * cuts[i][1])) continue;
        int n = dims_cut_options(dims, operand, dim, cuts[i][0], cuts[i][1], options);
        strbuf_printf(out, "%s%d/%d:", i ? "; " : " ", cuts[i][0], cuts[i][1]);
        for (int k = 0; k < n; k++) {
            const struct node_split *split = &options[k].split;
            strbuf_printf(out, " %s/%lld/%lld", dims->factor[split->factor].name, (long long)split->blocks,
                          (long long)split->grain);
            if (options[k].more_blocks != 1 || options[k].more_grain != 1)
                strbuf_printf(out, "(*%lld/%lld)", (long long)options[k].more_blocks, (long long)options[k].more_grain);
        }
    }
    strbuf_putc(out, '\n');
}

static const char *describe(struct arena *arena, const char *statements) {
    struct graph *graph = golden_graph(arena, statements);
    struct dims dims;
    struct strbuf out;
    const char *why;
    assert_non_null(graph);
    const struct node *node = &graph->nodes.at[graph->nodes.n - 1];
    assert_int_equal(dims_bind(arena, graph, node, &dims, &why), 0);
    strbuf_init(&out, arena);
    strbuf_printf(&out, "%s\n", dims_print(arena, &dims));
    strbuf_printf(&out, "-> %s\n", tensor_type(arena, &graph->tensors.at[node->outputs[0]]));
    for (int f = 0; f < dims.nfactors; f++) print_factor(&out, &dims, f);
    for (int i = 0; i < dims.ninputs + dims.noutputs; i++)
        for (int d = 0; d < dims.operand[i].ndim; d++) {
            if (dims.operand[i].dim[d].n < 2) continue;
            print_place(&out, &dims, i, d);
            print_options(&out, &dims, i, d);
        }
    return strbuf_text(&out);
}

TEST(test_annotations) {
    int differing = 0;
    for (int i = 0; i < FILES; i++) differing += golden_run(&golden, files[i], describe);
    assert_int_equal(differing, 0);
}

/* Every row must have a case, but for elementwise ones without an annotation: test_split makes those. */
static bool seen[256];

static void see(const char *name, const char *statements) {
    struct arena arena;
    arena_init(&arena, 0, NULL);
    const struct graph *graph = golden_graph(&arena, statements);
    assert_non_null(graph);
    for (int i = 0; i < graph->nodes.n; i++) seen[graph->nodes.at[i].op - ops] = true;
    arena_free(&arena);
}

TEST(test_every_row_has_a_case) {
    for (int i = 0; i < FILES; i++) golden_each(&golden, files[i], see);
    for (int i = 0; i < NOPS; i++) {
        if (seen[i] || (ops[i].kind == OP_ELEMENTWISE && !ops[i].dims)) continue;
        fprintf(stderr, "no case in tests/dims for %s\n", ops[i].name);
        fail();
    }
}

int main(int argc, char **argv) {
    golden = golden_options(argc, argv);
    return run_all_tests("dims", NULL, NULL);
}
