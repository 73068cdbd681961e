/* Writes the programs of the operator check: graphs of many one-node samples, whole and cut in every way.
 *
 *     generate DIR SET TARGET   writes DIR/whole.rir, cut2.rir, cut3.rir, nest4.rir, nest6.rir, stages.rir and
 *                               samples.json, which opcheck.py reads
 *
 * Samples are the rows of samples.def; an operator of ir/ops.def without one is an error. SET says what the letters for
 * types stand for: "full", or "halves", which leaves out samples without such a letter. From a sample's annotation
 * follow all its cuts: every factor that may be cut, in several units and blocks. The graphs are TYPED, so no pass
 * merges or drops what they hold. In a cut graph every cut is a node of its own on the same inputs, its result an
 * output. Where the cut gives a partial value two more outputs are made from it: one through a reader that wants a part
 * (which makes a ReduceScatter), and for sums one through an Add of partial values. Where it gives a part one more is
 * made, of a sample's first types, through a reader that wants another (which makes an AllToAll). Such readers have
 * nodes of their own: what is an output too would be made whole for both. Where the cut makes a node read windows more
 * are made, of inputs in parts (which make a HaloExchange). In nest4 and nest6 two axes, of 2 and of 2 or 3 ranks,
 * divide every factor, either inside the other; readers of the result want the inner cut in another dimension, or both
 * cuts in one. In the graph of stages every node is in the first of two,
 * and its result is read in the second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/text.h"

enum { MIN_WAYS = 2, MAX_WAYS = 3, OUTER_WAYS = 2, MAX_INPUTS = 8, MAX_VARIANTS = 4, MAX_BLOCKS = 3, MAX_GRAIN = 3 };

static const struct sample {
    const char *op, *inputs, *attributes;
    int nresults;
    bool on_cpus; /* of target c alone */
} samples[] = {
#define SAMPLE(op, inputs, attributes)            {#op, inputs, attributes, 1, false},
#define ON_CPUS(op, nresults, inputs, attributes) {#op, inputs, attributes, nresults, true},
#define RESULTS(op, nresults, inputs, attributes) {#op, inputs, attributes, nresults, false},
#include "tests/programs/opcheck/samples.def"
#undef SAMPLE
#undef ON_CPUS
#undef RESULTS
};
enum { NSAMPLES = sizeof samples / sizeof *samples };

enum { NLETTERS = 5 };
static const struct set {
    const char *name;
    int fixed; /* variants of a sample without a letter */
    struct {
        char letter;
        int n;
        const char *types[MAX_VARIANTS];
    } letters[NLETTERS];
} sets[] = {{"full",
             1,
             {{'F', 2, {"f32", "f64"}},
              {'W', 2, {"f32", "f64"}},
              {'I', 2, {"i32", "i64"}},
              {'N', 4, {"f32", "f64", "i32", "i64"}},
              {'A', 4, {"f32", "f64", "fp16", "bool"}}}},
            {"halves",
             0,
             {{'F', 2, {"bf16", "fp16"}},
              {'W', 2, {"f32", "f32"}},
              {'I', 1, {"i64"}},
              {'N', 2, {"bf16", "fp16"}},
              {'A', 1, {"bf16"}}}}};

/* A graph being written. Inputs are shared by all nodes that name them. */
struct text {
    struct strbuf out;
    struct map numbers; /* of sources */
    int next;           /* number of the next tensor */
};

struct generator {
    struct arena arena;
    const struct set *set;
    struct text whole, stages, cut[MAX_WAYS + 1], nest[MAX_WAYS + 1]; /* by ways; of a nest, of axis b */
    struct strbuf inputs, nodes, cuts;                                /* of samples.json */
    int nnodes, ncuts;
};

/* One sample with its types chosen. */
struct choice {
    const struct sample *sample;
    int id, variant, ninputs;
    const char *inputs[MAX_INPUTS]; /* as in samples.def, with types spelled out; "_" */
};

/* Samples ------------------------------------------------------------------------------------------------------- */

static int variants_of(const struct set *set, const char *inputs) {
    int n = set->fixed;
    for (int i = 0; i < NLETTERS; i++)
        if (strchr(inputs, set->letters[i].letter) && set->letters[i].n > n) n = set->letters[i].n;
    return n;
}

static const char *spelled(struct generator *g, const char *word, size_t length, int variant) {
    for (int i = 0; i < NLETTERS; i++)
        if (g->set->letters[i].letter == *word)
            return arena_printf(&g->arena, "%s%.*s", g->set->letters[i].types[variant % g->set->letters[i].n],
                                (int)length - 1, word + 1);
    return arena_printf(&g->arena, "%.*s", (int)length, word);
}

static void choose(struct choice *choice, struct generator *g, const struct sample *sample, int variant) {
    *choice = (struct choice){.sample = sample, .id = g->nnodes++, .variant = variant};
    for (const char *at = sample->inputs; *at;) {
        size_t length = strcspn(at, " ");
        if (choice->ninputs == MAX_INPUTS) BUG("%s: too many inputs", sample->op);
        choice->inputs[choice->ninputs++] = spelled(g, at, length, variant);
        at += length + strspn(at + length, " ");
    }
}

/* Text of graphs ------------------------------------------------------------------------------------------------ */

/* axes: such as "tensor=2"; "": one device. */
static void text_start(struct text *text, struct arena *arena, const char *axes) {
    strbuf_init(&text->out, arena);
    map_init(&text->numbers, arena);
    text->next = 0;
    strbuf_puts(&text->out, "rankc-ir 1\ngraph \"opcheck\" level=TYPED\n");
    if (*axes) strbuf_printf(&text->out, "mesh %s\n", axes);
}

/* The number of the source, defined at its first use. The same values may not stand for two operands, so the operand's
 * place is part of an input's name. */
static int text_source(struct text *text, struct generator *g, const char *input, int operand) {
    const char *name = arena_printf(&g->arena, "%s.%d", input, operand), *value = strchr(input, '=');
    int known = map_get(&text->numbers, name, strlen(name));
    if (known >= 0) return known;
    int number = text->next++, length = (int)strcspn(input, ":=");
    map_put(&text->numbers, arena_strdup(&g->arena, name), strlen(name), number);
    strbuf_printf(&text->out, "%s %%%d \"%s\" %.*s", value ? "const" : "input", number, name, length, input);
    if (value) strbuf_printf(&text->out, " = [%s]", value + 1);
    strbuf_putc(&text->out, '\n');
    if (text == &g->whole && !value) strbuf_printf(&g->inputs, "%s\"%s\"", g->inputs.length ? ", " : "", name);
    return number;
}

/* A node that copies the tensor; the number of its result. */
static int text_copy(struct text *text, const struct tensor *tensor, int number, const char *more) {
    strbuf_printf(&text->out, "%%%d \"copy\" = Transpose(%%%d) perm=[", text->next, number);
    for (int d = 0; d < tensor->ndim; d++) strbuf_printf(&text->out, "%s%d", d ? "," : "", d);
    strbuf_printf(&text->out, "]%s\n", more);
    return text->next++;
}

/* The sample's node, of tensor `first` as its first input; the number of its first result, which the others
 * follow. `split` is its text, or "". */
static int text_node_of(struct text *text, struct generator *g, const struct choice *choice, int first,
                        const char *split) {
    int numbers[MAX_INPUTS] = {first};
    for (int i = 1; i < choice->ninputs; i++)
        numbers[i] = *choice->inputs[i] == '_' ? -1 : text_source(text, g, choice->inputs[i], i);
    int number = text->next;
    text->next += choice->sample->nresults;
    for (int r = 0; r < choice->sample->nresults; r++)
        strbuf_printf(&text->out, "%s%%%d \"y\"", r ? ", " : "", number + r);
    strbuf_printf(&text->out, " = %s(", choice->sample->op);
    for (int i = 0; i < choice->ninputs; i++) {
        strbuf_puts(&text->out, i ? ", " : "");
        if (numbers[i] < 0)
            strbuf_putc(&text->out, '_');
        else
            strbuf_printf(&text->out, "%%%d", numbers[i]);
    }
    strbuf_printf(&text->out, ")%s%s%s\n", *choice->sample->attributes ? " " : "", choice->sample->attributes, split);
    return number;
}

static int text_node(struct text *text, struct generator *g, const struct choice *choice, const char *split) {
    return text_node_of(text, g, choice, text_source(text, g, choice->inputs[0], 0), split);
}

/* Cuts ---------------------------------------------------------------------------------------------------------- */

/* A cut of a node in the making. */
struct trial {
    const struct choice *choice;
    const struct node *node;
    const struct tensor *input, *result; /* the first input; the result that is looked at, and its number */
    int number;
    const struct dims *dims;
    struct node_split split;
    int ways;
};

static enum factor_kind kind_of(const struct trial *cut) {
    return cut->dims->factor[cut->split.factor].kind;
}

/* How the cut's result compares with the whole node's (DESIGN 8). "exact": bit for bit. "equal": the same values,
 * though a zero or NaN may have other bits: maxima, and sums in which all but one term are 0 (a row of Gather is in one
 * part). "bounded": other sums of floats. */
static const char *class_of(const struct trial *cut) {
    enum factor_kind kind = kind_of(cut);
    if (kind == FACTOR_PASS || !rt_dtype_is_float(cut->result->dtype)) return "exact";
    return kind != FACTOR_SUM || cut->node->op->id == OP_Gather ? "equal" : "bounded";
}

/* The output of the whole program that is result `result` of the sample's node. */
static const char *name_of(struct generator *g, const struct choice *choice, int result) {
    return arena_printf(&g->arena, result ? "s%d.%d" : "s%d", choice->id, result);
}

/* Lists output "c<n>" of a program, made from that output of the whole one. */
static void list_cut(struct generator *g, const char *of, const char *program, const char *cut, const char *class,
                     int times) {
    strbuf_printf(&g->cuts, "%s\n  {\"output\": \"c%d\", \"of\": \"%s\", \"program\": \"%s\", ", g->ncuts ? "," : "",
                  g->ncuts, of, program);
    strbuf_printf(&g->cuts, "\"cut\": \"%s\", \"class\": \"%s\", \"times\": %d}", cut, class, times);
    g->ncuts++;
}

static void write_cut(struct generator *g, const struct trial *cut, int number, int times) {
    const char *name = arena_printf(&g->arena, "%s/%lld/%lld", cut->dims->factor[cut->split.factor].name,
                                    (long long)cut->split.blocks, (long long)cut->split.grain);
    strbuf_printf(&g->cut[cut->ways].out, "output %%%d \"c%d\"\n", number, g->ncuts);
    list_cut(g, name_of(g, cut->choice, cut->number), arena_printf(&g->arena, "cut%d", cut->ways), name, class_of(cut),
             times);
}

/* A reader of the partial value, or part, that wants a part of another dimension. */
static void write_reader(struct generator *g, const struct trial *cut, const char *split) {
    struct text *text = &g->cut[cut->ways];
    const struct tensor *result = cut->result;
    struct placement given = dims_placement(cut->dims, cut->dims->ninputs, &cut->split);
    int along = result->ndim - 1;
    while (along >= 0 && (result->dims[along] < cut->ways || (given.kind == PLACED_PART && given.dim == along)))
        along--;
    if (along < 0) return;
    int y = text_node(text, g, cut->choice, split);
    const char *part = arena_printf(&g->arena, " split(tensor:d%d/1/1)", along);
    write_cut(g, cut, text_copy(text, result, y, part), 1);
}

/* An Add of partial values, which stays partial. Not of small floats: their own sum is rounded to less than they
 * hold. */
static void write_sum(struct generator *g, const struct trial *cut, int y) {
    struct text *text = &g->cut[cut->ways];
    enum rt_kind kind = rt_dtypes[cut->result->dtype].kind;
    if (kind_of(cut) != FACTOR_SUM || kind == RT_KIND_HALF) return;
    int number = text->next++;
    strbuf_printf(&text->out, "%%%d \"t\" = Add(%%%d, %%%d)\n", number, y, y);
    write_cut(g, cut, number, 2);
}

/* A node that reads windows, of a tensor that ranks have in parts: of the same dimension, and of others. */
static void write_sources(struct generator *g, const struct trial *cut, const char *split) {
    struct text *text = &g->cut[cut->ways];
    const struct tensor *x = cut->input;
    if (dims_placement(cut->dims, 0, &cut->split).kind != PLACED_WINDOW) return;
    for (int d = 0; d < x->ndim; d++) {
        if (x->dims[d] < cut->ways) continue;
        int source = text_source(text, g, cut->choice->inputs[0], 0);
        const char *part = arena_printf(&g->arena, " split(tensor:d%d/1/1)", d);
        write_cut(g, cut, text_node_of(text, g, cut->choice, text_copy(text, x, source, part), split), 1);
    }
}

/* False where no plan divides the factor: a whole sum so far cannot be made the partial one that the result is. */
static bool can_split(const struct trial *cut, const struct node_split *split) {
    return !cut->node->op->onto && op_can_split(cut->node->op, cut->dims, split);
}

static void try_cut(struct generator *g, const struct trial *cut) {
    const struct factor *factor = &cut->dims->factor[cut->split.factor];
    if (factor->extent % (cut->split.blocks * cut->split.grain) || !dims_can_split(cut->dims, &cut->split, cut->ways) ||
        !can_split(cut, &cut->split))
        return;
    const char *split = arena_printf(&g->arena, " split(tensor:%s/%lld/%lld)", factor->name,
                                     (long long)cut->split.blocks, (long long)cut->split.grain);
    int y = text_node(&g->cut[cut->ways], g, cut->choice, split);
    for (int r = 0; r < cut->choice->sample->nresults; r++) {
        struct trial of = *cut;
        of.result += r; /* results are adjacent */
        of.number = r;
        write_cut(g, &of, y + r, 1);
    }
    bool partial = factor->kind != FACTOR_PASS;
    bool plain = cut->choice->variant == 0 && cut->split.blocks * cut->split.grain == 1;
    if (partial || (plain && cut->node->op->kind == OP_KERNEL)) write_reader(g, cut, split);
    if (plain) write_sources(g, cut, split);
    if (partial) write_sum(g, cut, y);
}

/* Nests --------------------------------------------------------------------------------------------------------- */

/* The text of the splits of two axes in the order in which they nest: "a:m/1/1, b:m/1/1" for factor m. */
static const char *nest_text(struct generator *g, const char *axes, const char *outer, const char *inner) {
    return arena_printf(&g->arena, " split(%c:%s, %c:%s)", axes[0], outer, axes[1], inner);
}

static void write_nest(struct generator *g, const struct trial *cut, const char *name, int number) {
    strbuf_printf(&g->nest[cut->ways].out, "output %%%d \"c%d\"\n", number, g->ncuts);
    list_cut(g, name_of(g, cut->choice, 0), arena_printf(&g->arena, "nest%d", OUTER_WAYS * cut->ways), name,
             class_of(cut), 1);
}

/* The last dimension that both axes can divide and that the result is not divided in; -1: none. */
static int free_dim(const struct trial *cut, const struct placement *given) {
    int along = cut->result->ndim - 1;
    while (along >= 0 &&
           (cut->result->dims[along] < OUTER_WAYS * cut->ways || (given->kind == PLACED_PART && given->dim == along)))
        along--;
    return along;
}

/* Readers of a nested result in other layouts: with both cuts in another dimension, and with the inner one alone. */
static void write_nest_readers(struct generator *g, const struct trial *cut, const char *axes, const char *split) {
    struct text *text = &g->nest[cut->ways];
    const struct placement given = dims_placement(cut->dims, cut->dims->ninputs, &cut->split);
    const int along = free_dim(cut, &given);
    if (along < 0) return;
    const char *there = arena_printf(&g->arena, "d%d/1/1", along);
    const char *both = nest_text(g, axes, there, there);
    write_nest(g, cut, both, text_copy(text, cut->result, text_node(text, g, cut->choice, split), both));
    if (given.kind != PLACED_PART) return;
    const char *stays =
        arena_printf(&g->arena, "d%d/%lld/%lld", given.dim, (long long)given.blocks, (long long)given.grain);
    const char *one = nest_text(g, axes, stays, there);
    write_nest(g, cut, one, text_copy(text, cut->result, text_node(text, g, cut->choice, split), one));
}

/* Two axes divide the factor: the one named first in `axes` outside, in grains of grain * cut->split.grain. */
static void try_nest(struct generator *g, const struct trial *cut, const char *axes, int grain) {
    const struct mesh mesh = {.naxes = 2, .axis = {{"a", OUTER_WAYS}, {"b", cut->ways}}};
    const struct factor *factor = &cut->dims->factor[cut->split.factor];
    const int outer = axes[0] - 'a', inner = axes[1] - 'a';
    struct node_split splits[RT_MAX_AXES] = {{.factor = SPLIT_NONE}, {.factor = SPLIT_NONE}};
    splits[outer] = cut->split;
    splits[outer].grain *= grain;
    if (factor->extent % (splits[outer].blocks * splits[outer].grain) ||
        !dims_can_split(cut->dims, &splits[outer], mesh.axis[outer].size) || !can_split(cut, &splits[outer]) ||
        !dims_can_nest(cut->dims, &mesh, splits, inner, &cut->split))
        return;
    const char *parts[2]; /* by level */
    for (int level = 0; level < 2; level++)
        parts[level] = arena_printf(&g->arena, "%s/%lld/%lld", factor->name, (long long)cut->split.blocks,
                                    (long long)(level ? cut->split.grain : splits[outer].grain));
    const char *split = nest_text(g, axes, parts[0], parts[1]);
    write_nest(g, cut, split, text_node(&g->nest[cut->ways], g, cut->choice, split));
    if (cut->choice->variant == 0 && cut->split.blocks == 1 && grain == 1) write_nest_readers(g, cut, axes, split);
}

static void try_nests(struct generator *g, struct trial *cut) {
    for (cut->ways = MIN_WAYS; cut->ways <= MAX_WAYS; cut->ways++) {
        try_nest(g, cut, "ab", 1);
        try_nest(g, cut, "ab", 2);
        try_nest(g, cut, "ba", 1);
    }
}

static void write_stages(struct generator *g, const struct choice *choice, const struct graph *graph) {
    struct text *text = &g->stages;
    const struct tensor *result = &graph->tensors.at[graph->nodes.at[graph->nodes.n - 1].outputs[0]];
    int y = text_copy(text, result, text_node(text, g, choice, " stage=0"), " stage=1");
    strbuf_printf(&text->out, "output %%%d \"c%d\"\n", y, g->ncuts);
    list_cut(g, name_of(g, choice, 0), "stages", "into stages", "exact", 1);
}

static void try_cuts(struct generator *g, const struct choice *choice, const struct graph *graph) {
    const struct node *node = &graph->nodes.at[graph->nodes.n - 1];
    struct dims dims;
    const char *why;
    if (dims_bind(&g->arena, graph, node, &dims, &why) < 0) BUG("%s: %s", choice->sample->op, why);
    struct trial cut = {
        choice, node, &graph->tensors.at[node->inputs[0]], &graph->tensors.at[node->outputs[0]], 0, &dims, {0}, 0};
    for (int factor = 0; factor < dims.nfactors; factor++)
        for (int blocks = 1; blocks <= MAX_BLOCKS; blocks++) {
            cut.split = (struct node_split){.factor = (int16_t)factor, .blocks = blocks, .grain = 1};
            try_nests(g, &cut);
            for (int grain = 1; grain <= MAX_GRAIN; grain++)
                for (cut.ways = MIN_WAYS; cut.ways <= MAX_WAYS; cut.ways++) {
                    cut.split = (struct node_split){.factor = (int16_t)factor, .blocks = blocks, .grain = grain};
                    try_cut(g, &cut);
                }
        }
}

/* The sample as a graph of its own, for its types. */
static struct graph *parse_sample(struct generator *g, const struct choice *choice) {
    struct text text;
    struct diags diags;
    struct graph *graph;
    text_start(&text, &g->arena, "");
    text_node(&text, g, choice, "");
    diags_init(&diags, &g->arena);
    const char *bytes = strbuf_text(&text.out);
    if (text_parse(&g->arena, &diags, choice->sample->op, bytes, strlen(bytes), &graph) == 0) return graph;
    diags_print(&diags, stderr, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_ERROR);
    exit(1);
}

static void write_inputs(struct generator *g, const struct choice *choice) {
    for (int i = 0; i < choice->ninputs; i++) {
        strbuf_puts(&g->nodes, i ? ", " : "");
        if (*choice->inputs[i] == '_')
            strbuf_puts(&g->nodes, "null");
        else
            strbuf_printf(&g->nodes, "\"%s.%d\"", choice->inputs[i], i);
    }
}

static void write_choice(struct generator *g, const struct choice *choice) {
    const struct graph *graph = parse_sample(g, choice);
    int y = text_node(&g->whole, g, choice, "");
    for (int r = 0; r < choice->sample->nresults; r++) {
        const char *name = name_of(g, choice, r);
        strbuf_printf(&g->whole.out, "output %%%d \"%s\"\n", y + r, name);
        strbuf_printf(&g->nodes, "%s\n  {\"output\": \"%s\", \"result\": %d, \"op\": \"%s\", \"inputs\": [",
                      choice->id || r ? "," : "", name, r, choice->sample->op);
        write_inputs(g, choice);
        strbuf_puts(&g->nodes, "], \"attributes\": \"");
        for (const char *c = choice->sample->attributes; *c; c++)
            strbuf_printf(&g->nodes, *c == '"' ? "\\%c" : "%c", *c);
        strbuf_puts(&g->nodes, "\"}");
    }
    try_cuts(g, choice, graph);
    write_stages(g, choice, graph);
}

/* Every operator that has a form at run time has a sample; communication is made by the cuts. */
static int count_missing(void) {
    int missing = 0;
    for (int i = 0; i < NOPS; i++) {
        int k = 0;
        while (k < NSAMPLES && strcmp(samples[k].op, ops[i].name) != 0) k++;
        if (k < NSAMPLES || ops[i].kind == OP_COMM || ops[i].kind == OP_SOURCE) continue;
        /* tests/cuda/attention.py, tests/training/long_sequences.py */
        if (strncmp(ops[i].name, "FlashAttention", 14) == 0 || ops[i].ring) continue;
        if (ops[i].kind == OP_PROGRAM) continue;                /* nor these: tests/cuda/rows.py */
        if (!*ops[i].types || ops[i].types[0] == '-') continue; /* nor one without operands: tests/sizes */
        /* of two results: tests/kernels/test_fp8.c, tests/training/fp8.py */
        if (strcmp(ops[i].name, "Quantize") == 0) continue;
        fprintf(stderr, "operator %s has no sample in samples.def\n", ops[i].name);
        missing++;
    }
    return missing;
}

/* Names of the calls that move data between ranks, as JSON: the cuts must bring about all of them, but for what begins
 * early, or adds to a sum, in training (tests/training/zero.py). */
static const char *communication(struct arena *arena) {
    struct strbuf out;
    strbuf_init(&out, arena);
    for (int i = 0; i < NOPS; i++) {
        const bool starts = i == OP_AllGatherStart || i == OP_AllReduceStart || i == OP_ReduceScatterStart;
        if (ops[i].kind != OP_COMM || starts || op_arity(&ops[i]) > 1) continue;
        const char *stem = ops[i].call + (*ops[i].call == '!');
        strbuf_printf(&out, "%s\"%.*s\"", out.length ? ", " : "", (int)strcspn(stem, "("), stem);
    }
    return strbuf_text(&out);
}

/* Files --------------------------------------------------------------------------------------------------------- */

static void write_file(struct arena *arena, const char *dir, const char *name, const char *text) {
    const char *path = arena_printf(arena, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_files(struct generator *g, const char *dir) {
    write_file(&g->arena, dir, "whole.rir", strbuf_text(&g->whole.out));
    write_file(&g->arena, dir, "stages.rir", strbuf_text(&g->stages.out));
    for (int ways = MIN_WAYS; ways <= MAX_WAYS; ways++) {
        write_file(&g->arena, dir, arena_printf(&g->arena, "cut%d.rir", ways), strbuf_text(&g->cut[ways].out));
        write_file(&g->arena, dir, arena_printf(&g->arena, "nest%d.rir", OUTER_WAYS * ways),
                   strbuf_text(&g->nest[ways].out));
    }
    write_file(
        &g->arena, dir, "samples.json",
        arena_printf(&g->arena, "{\"inputs\": [%s],\n\"communication\": [%s],\n\"nodes\": [%s],\n\"cuts\": [%s]}\n",
                     strbuf_text(&g->inputs), communication(&g->arena), strbuf_text(&g->nodes), strbuf_text(&g->cuts)));
}

static const struct set *find_set(const char *name) {
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (strcmp(sets[i].name, name) == 0) return &sets[i];
    return NULL;
}

int main(int argc, char **argv) {
    struct generator g = {.set = argc == 4 ? find_set(argv[2]) : NULL};
    const bool on_cpus = g.set && strcmp(argv[3], "c") == 0;
    if (!g.set) return 2;
    if (count_missing()) return 1;
    arena_init(&g.arena, 0, NULL);
    text_start(&g.whole, &g.arena, "");
    text_start(&g.stages, &g.arena, "pipeline=2");
    for (int ways = MIN_WAYS; ways <= MAX_WAYS; ways++) {
        text_start(&g.cut[ways], &g.arena, arena_printf(&g.arena, "tensor=%d", ways));
        text_start(&g.nest[ways], &g.arena, arena_printf(&g.arena, "a=%d b=%d", OUTER_WAYS, ways));
    }
    strbuf_init(&g.inputs, &g.arena);
    strbuf_init(&g.nodes, &g.arena);
    strbuf_init(&g.cuts, &g.arena);
    for (int i = 0; i < NSAMPLES; i++)
        for (int variant = 0; variant < variants_of(g.set, samples[i].inputs); variant++) {
            struct choice choice;
            if (samples[i].on_cpus && !on_cpus) continue;
            choose(&choice, &g, &samples[i], variant);
            write_choice(&g, &choice);
        }
    write_files(&g, argv[1]);
    printf("%d nodes, %d cuts\n", g.nnodes, g.ncuts);
    arena_free(&g.arena);
    return 0;
}
