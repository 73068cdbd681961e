/* The IR as text, printed and read back: `--dump-after`, graph.rir of an instance, and the form pass tests are
 * written in. One statement a line; "#" starts a comment.
 *
 *   rankc-ir 1
 *   graph "gpt2" level=TYPED train                         train: weights may change
 *   mesh tensor=2 data=3                                   first axis fastest; none: one device
 *   file "gpt2.bin"                                        beside the text: has the weights @1; the next file @2
 *   input %0 "ids" i64[2,8]
 *   weight %1 "wte.weight" f32[101,32] @0+1234 as f32 {tensor:part(0,1,1)}
 *   weight %3 "val_7" f32[32,96] @0+5678 as f32 folded "h.0.attn.weight"   or: moved "..", parameter, buffer, fixed
 *   weight %4 "mask" f32[8,8] @0+9012 as f32 buffer constant               constant: not trained
 *   const %2 "shape" i64[3] = [2, 8*2]                     8*2: two eights
 *   %7 "x" f32[2,8,32] {tensor:partial(sum)} = Gather(%1, %0) axis=0 node="h.0/gather" split(tensor:v/1/1) stage=1
 *   %9 "y" = LayerNorm(%7, %1, _) epsilon=1e-05            _: left out
 *   output %9 "logits"
 *   update %1 <- %8
 *
 * The first two statements come first, then the mesh; a tensor is defined before it is used. Tensor ids are those
 * of the text: printing numbers tensors densely in order of appearance, so print(parse(print(g))) is print(g) byte
 * for byte. What no live node, output or update uses is not printed. A weight's "@file+offset as dtype" (ir.h,
 * struct stored) is left out where its bytes lie nowhere (stored.file < 0); the bytes themselves are not part of
 * the text.
 *
 *   attribute  key=7 | key=[1, -2] | key=0.5 | key="text"     a float has one of . e nan inf
 *   layout     {axis:part(dim,blocks,unit), axis:partial(sum|max|min)}   whole on the axes not named
 *   split      split(axis:factor/blocks/unit)      factors by their names in the node's bound annotation
 *              split(axis:partial)                 of partial values a partial value (linear operators)
 *   text       printable ASCII; \xNN for any other byte, quotes and backslashes
 *   numbers    the shortest text that reads back as the same bits; nan:0x7fc00001: a NaN by its bits
 *
 * `node`, `stage`: the node's name and pipeline stage where not "" and 0. The type of a computed tensor may be left
 * out: it is inferred, as op_infer does. A type that is given must agree with inference. */
#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/ir.h"

/* The text, in `arena`. The graph's shapes must be inferred. */
const char *text_print(struct arena *arena, const struct graph *graph);

/* Reads a graph into memory of `arena`. The bytes may be hostile. 0, or -1 after at most 20 diagnostics (E0345 with
 * the place as "file:line:column"; those of op_infer for a node). Legality beyond structure is verify.h's matter.
 */
int text_parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
               struct graph **out);

#endif
