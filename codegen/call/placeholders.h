/* Placeholders: the language of the column `call` of ir/ops.def.
 *
 * A call is a template. Alternatives are separated by "|" in the order of the annotation's alternatives; the last is
 * for packed products (ir/packing.h). "!" marks a call that returns a status. Shapes and attributes are those of the
 * rank's part unless stated otherwise:
 *
 *   $y $y1 .. $x0 ..   pointers to outputs and inputs, NULL for an input left out
 *   $first_row(y) $first_row(x0) $run_rows   of a product: pointers to the first row, and how many rows there are; of
 *                      one that is computed in runs, those of the run
 *   $list(x)           array of pointers to all inputs
 *   $m $[p] $[*]       extent of factor m; product of the extents of all factors whose names begin with p; of all
 *   $start(v) $extent(v)   where the rank's part of factor v begins; the extent of v before splitting
 *   $gap(v)                indices between the two runs of the rank's part of v if its cut is mirrored, else 0
 *   $jump(v)               as member `jump` of a structure: ", .jump = " and the gap, or nothing
 *   $starts(y) $whole(y)   arrays: where the part begins in every dimension; the extents before splitting
 *   $k $epsilon $perm  an attribute (after split_attr): a number, or an array
 *   $before $behind    padding, for a dimension that a rank reads through windows the rank's own
 *   $shape(x0) $ndim(x0) $size(x0)   array of extents; number of dimensions; number of elements
 *   $aligned(x0)       array of extents, aligned to the output's for broadcasting
 *   $strided(x0)       pointer and strides, for kernels whose operands may be views (Note [Views] in views.h)
 *   $outer(axis) $runs(axis)   product of the extents before attribute axis; array of elements of each input per index
 *                      before it
 *   $ring              of ring attention: the mesh axis, and blocks and grain of the cut of positions
 *   $T $T0 $T1 $B      names of the output's, the first and the second input's type; bytes of an element, as b4
 *   $Tby               "_by_" and the second input's type, if that is not the output's; "_as_" if `rounded`
 *   $indexed(x0)       array of extents after the first batch_dims
 *   $struct(S)         opens a struct S as an argument, which "}" closes
 *   $count $count(x1) $depth $is64(x1) $dtype     number of inputs; others: see placeholders.c
 *   $type(x1) $type(codes)   the type of an operand, or the one that an attribute names
 *   $vector(x3)        1 if the operand is given and has a dimension, else 0
 *   $Thead             $T, and on GPUs the tile size of flash attention, _64 or _128
 *   $fp8(format)       the format of 8-bit floats that an attribute names
 *   $enum(cell)       a text attribute in upper case, the end of an enumerator's name; "none" if it is omitted
 *   $epilogue          for a packed product: the epilogue function with its operands, or NULL
 *   $finish            for other products: what a library may fuse, and a statement that does it otherwise
 *   $mesh $around $reduce $scratch $distance $complete $held $wanted   for communication: see placeholders_part.c
 */
#ifndef CODEGEN_PLACEHOLDERS_H
#define CODEGEN_PLACEHOLDERS_H

#include "codegen/call/local.h"

/* Writes the placeholder whose name begins at `s`, behind '$'. Returns the text behind it. */
const char *placeholder_write(struct local *local, const char *s);

#endif
