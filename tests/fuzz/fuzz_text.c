/* Fuzz target: the text IR, and what stands behind it.
 *
 * Any text must give diagnostics or a graph. A graph must print to a text that gives itself back, its nodes must
 * bind and be cut as their factors say, and nodes of small constants must evaluate. */
#include <string.h>

#include "ir/expr/eval.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_ELEMENTS = 4096, MOST_ERRORS = 20 };

/* A graph that was read must print to a text that gives itself back. */
static void check_round_trip(struct arena *arena, const struct graph *graph) {
    struct diags diags;
    struct graph *again;
    const char *once = text_print(arena, graph);
    diags_init(&diags, arena);
    fuzz_check(text_parse(arena, &diags, "again", once, strlen(once), &again) == 0);
    fuzz_check(strcmp(text_print(arena, again), once) == 0);
}

/* Extents of the parts of a legal cut add up to the whole. */
static void check_cut(const struct dims *dims, int operand, const struct node_split *split, int ways) {
    struct placement placement = dims_placement(dims, operand, split);
    if (placement.kind != PLACED_PART) return;
    struct rt_cut cut = {dims_extent(dims, operand, placement.dim), placement.blocks, placement.grain, ways};
    int64_t sum = 0;
    for (int i = 0; i < ways; i++) sum += rt_cut_extent(&cut, i);
    fuzz_check(sum == cut.extent);
}

static void check_cuts(struct arena *arena, const struct graph *graph, const struct node *node) {
    struct dims dims;
    struct cut_option options[RT_MAX_NDIM];
    const char *why;
    fuzz_check(dims_bind(arena, graph, node, &dims, &why) == 0);
    for (int f = 0; f < dims.nfactors; f++) {
        struct node_split split = {.factor = (int16_t)f, .blocks = 1, .grain = 1};
        if (!dims_can_split(&dims, &split, 2)) continue;
        for (int o = 0; o < dims.ninputs + dims.noutputs; o++) check_cut(&dims, o, &split, 2);
    }
    for (int o = 0; o < dims.ninputs + dims.noutputs; o++)
        for (int d = 0; d < dims.operand[o].ndim; d++) dims_cut_options(&dims, o, d, 1, 1, options);
}

static bool is_small(const struct graph *graph, int id) {
    return id < 0 || tensor_elements(&graph->tensors.at[id]) <= MOST_ELEMENTS;
}

static void evaluate(struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    for (int i = 0; i < node->ninputs; i++)
        if (!is_small(graph, node->inputs[i])) return;
    if (node->outputs[0] >= 0 && is_small(graph, node->outputs[0])) eval_node(graph, id);
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    const char *text = (const char *)data;
    struct diags diags;
    struct graph *graph;
    diags_init(&diags, arena);
    bool good = text_parse(arena, &diags, "fuzz", text, size, &graph) == 0;
    fuzz_check(good == (diags.errors == 0) && diags.errors <= MOST_ERRORS);
    if (!good) return;
    check_round_trip(arena, graph);
    for (int i = 0; i < graph->nodes.n; i++) {
        check_cuts(arena, graph, &graph->nodes.at[i]);
        evaluate(graph, i);
    }
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
