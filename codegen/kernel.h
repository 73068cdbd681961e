/* Instructions: the calls a rank makes, one for each node that is more than a view.
 *
 * The call column of ops.def is written in this language. Alternatives are separated by "|" in the order of the
 * annotation's alternatives, and the last is of nodes with attribute packed (ir/packing.h);
 * "!" marks a call that returns a status. Then, everything being the rank's own part:
 *
 *   $y $y1 .. $x0 ..   pointers to outputs and inputs (NULL for one left out)    $list(x)   array of all inputs
 *   $m $[p] $[*]       extent of factor m; product of those of all factors whose name begins with p
 *   $start(v) $extent(v)   where the rank's part of factor v begins, and the whole extent of v
 *   $starts(y) $whole(y)   where the part begins in every dimension, and the extents of the whole
 *   $k $epsilon $perm  an attribute (after split_attr): a number, or an array
 *   $before $behind    attributes begin and end of the part, in rows that a rank reads through windows its own
 *   $shape(x0) $ndim(x0) $size(x0) $aligned(x0)   extents, their number, elements, extents aligned to the output's
 *   $strided(x0)       pointer and strides, of a kernel that takes them: the tensor may lie in another (Note [Views] in
 *                      views.h)
 *   $outer(axis) $runs(axis)   extents before attribute axis; elements of each input per index before it
 *   $T $T0 $B          names of the output's and first input's type; bytes of an element, as b4
 *   $indexed(x0)       extents behind attribute batch_dims       $struct(S)   opens a struct S as an argument:
 *                      $struct(S)..}
 *   $count $count(x1) $depth $is64(x1) $dtype     number of inputs; ... see kernel.c
 *   $Thead             $T and _64 or _128: how much of a head the tiles of flash attention hold
 *   $fp8(format)       the format of 8-bit floats that an attribute names
 *   $epilogue          of a packed product: what finishes its result, or NULL
 *   $finish            of another: its form in a library, and the statement that does it where that does not
 *   $site $mesh $around $reduce $scratch $distance $complete $held $wanted   of communication: Note [Sites] in rank.c
 */
#ifndef CODEGEN_KERNEL_H
#define CODEGEN_KERNEL_H

#include "codegen/kernels.h"
#include "passes/rank/rankplan.h"

/* A call with holes: in `text`, byte 1 stands for the next of `tensors`, byte 2 for the instruction's site. Calls
 * of equal text are the same code on other addresses. */
struct instruction {
    int node, site;
    const char *text;
    VEC(int) tensors;
};

/* The instruction of `node` on ranks of `class`. False for views. -1 is not possible: what cannot be called is
 * refused by kernel_check before. */
bool kernel_instruction(const struct rankplan *plan, const struct plan_class *class, struct kernels *kernels, int node,
                        struct instruction *out);

/* A diagnostic for each node without a kernel for its types. */
int kernel_check(const struct graph *graph, const struct target *target, struct diags *diags);

#endif
