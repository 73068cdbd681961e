/* The IR as text: printed by `--dump-after` and in graph.rir of an instance, read by tests of passes. One statement per
 * line; "#" starts a comment.
 *
 *   rankc-ir 1
 *   graph "gpt2" level=TYPED train                         train: weights may change; in inference of several
 *                                                          micro-batches micro_batches=8; train elements=22:
 *                                                          loss_elements of struct graph
 *   model "pytorch 2.15.0" opset=20                        what wrote the model (provenance.h)
 *   mesh tensor=2 data=3                                   the first axis varies fastest; no mesh line: one device
 *   mesh tensor=2@0-1 pipeline=4                           stages 0 and 1 alone have axis tensor
 *   chunks 0 1 0 1                                         pipeline coordinate of each chunk (struct chunks)
 *   file "gpt2.bin"                                        relative to the text's folder: file @1; the next file is @2
 *   operator "acme::Gate" types="ff->f" dims="*, * -> *" call=..   an operator that the user declares (ir/user.h)
 *   size "seq" 1..512@128                                  an open size (ir/open.h): LEAST..MOST[:STEP][@TYPICAL]
 *   extent "past" + "seq"                                  a number that no product of sizes makes; in the order in
 *                                                          which the graph learned of them
 *   input %0 "ids" i64[2,"seq"]                            any number may depend on sizes: [2,12 * "seq"], key=("seq")
 *   weight %1 "wte.weight" f32[101,32] @0+1234 as f32 {tensor:part(0,1,1)}
 *   weight %3 "val_7" f32[32,96] @0+5678 as f32 folded "h.0.attn.weight"   or: moved "..", parameter, buffer, fixed
 *   weight %4 "mask" f32[8,8] @0+9012 as f32 buffer constant               constant: not trained
 *   weight %5 "w.int4" u8[96,16] @0+5678 as f32 codes bits=4 group=32 turned constant   or: scales .., rounded; how
 *                                                          it is made of what is stored (struct rt_coding)
 *   const %2 "shape" i64[3] = [2, 8*2]                     8*2: the value 8 twice
 *   %7 "x" f32[2,"seq",32] {tensor:partial(sum)} = Gather(%1, %0) axis=0 node="h.0/gather" split(tensor:v/1/1) stage=1
 *   from "h.0/gather" scope="h.0" word="gather" line="gpt.py:7 in forward" code="x = x[i]"   of the nodes of that
 *                                                          name (provenance.h); before the first of them
 *   %9 "y" = LayerNorm(%7, %1, _) epsilon=1e-05            _: omitted input
 *   output %9 "logits"
 *   update %1 <- %8
 *   segment forward 0 order=0..2 in=[] out=[%9]            of chunk 0: nodes 0 and 1, counted from 0 in this text
 *   schedule 0 micro_batches=1 slots=1 repeat=0..1         of pipeline coordinate 0; its rows follow; slots=4,3: those
 *                                                          of each of its chunks
 *   run forward 0 micro=0                                  a row: the segment of phase and chunk
 *   post send %7 micro=0                                   a row: begins to send what Transfer %7 moves; or receive
 *   wait send %7 micro=0                                   a row: waits for the end of that
 *
 * A backslash at the end of a line continues the statement on the next line.
 *
 * The first two statements come first, then the mesh. An operator is declared before it is used. A tensor is defined
 * before it is used. Printing renumbers the tensors densely in order of appearance, so that print(parse(print(g)))
 * equals print(g) byte for byte. Tensors that no live node, output or update uses are not printed. A weight without
 * stored bytes (stored.file < 0) has no "@file+offset as dtype" (ir.h, struct stored). The bytes of weights are not
 * part of the text. Segments and schedules (ir/schedule.h) come last.
 *
 *   attribute  key=7 | key=[1, -2] | key=0.5 | key="text"     a float contains one of . e nan inf
 *   layout     {axis:part(dim,blocks,grain), axis:partial(sum|max|min)}   placements (layout.h, struct placement); the
 *              tensor is whole on axes that are not named. Also window(dim,grain,positions,stride,before,span). Of
 *              several cuts of one dimension the outermost comes first. blocks < 0: mirrored
 *              (runtime/base/shape/part.h)
 *   split      split(axis:factor/blocks/grain)      the factor by its name in the node's bound annotation (ir/dims.h);
 *              of several axes that split one factor, that of the outermost cut comes first
 *              split(axis:partial)                 SPLIT_PARTIAL (ir.h, struct node_split)
 *   text       printable ASCII; \xNN for any other byte, quotes and backslashes
 *   numbers    the shortest text that reads back as the same bits; nan:0x7fc00001 is a NaN by its bits
 *
 *   expression of sizes: names in quotes, numbers, + - * / (rounded down) % ( ), lesser(a, b), greater(a, b)
 *
 * A graph with open sizes is read as a specimen: in `specimens=1` of the statement graph those of pair 1, else pair 0.
 * `node` and `stage` are omitted if they are "" and 0. `origin` of a node of the backward phase is a result of the node
 * whose gradient it computes; it is printed if the mesh has pipeline stages. The type of a computed tensor may be
 * omitted: op_infer infers it. A type that is given must be equal to the inferred one. */
#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/ir.h"

/* Prints the graph, whose shapes must be inferred; the text is in `arena`. text_print_blocks appends comments that list
 * the graph's blocks (blocks.h): the nodes of the first repetition, and where their inputs come from. An input that is
 * carried over is that of the second repetition.
 *
 *   # block kind=0 order=1..10 nodes=3 times=3     places 1 to 9 of the order: 3 nodes, 3 times
 *   #   %7 = MatMul(carried %12, own %8)
 *   #   %9 = Mul(%7, shared %1) */
const char *text_print(struct arena *arena, const struct graph *graph);
const char *text_print_blocks(struct arena *arena, const struct graph *graph);

/* Parses `length` bytes, which may be hostile, into a graph in `arena`. 0, or -1 after at most 20 diagnostics: E0345 at
 * "file:line:column", and those of op_infer at a node. Call verify_graph afterwards: only the structure is checked
 * here. */
int text_parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
               struct graph **out);

/* The same, and of a text with open sizes the second specimen of the pair. */
int text_parse_twin(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                    struct graph **out);

/* Parses a number of the graph: digits, or an expression of its open sizes. False: the text is none. */
bool text_parse_number(const struct graph *graph, const char *text, int64_t *value);

/* The same for a file of declarations (--ops): "rankc-operators 1", then statements `operator`. *out is a graph that
 * declares them. Kernels are not read. */
int text_parse_operators(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                         struct graph **out);

#endif
