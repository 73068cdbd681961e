/* Finds repeated layers: sequences of instructions that occur several times in a row, so that each is generated once.
 *
 * Note [Layers]
 * Two instructions are alike if their calls have equal text and their tensors equal types, so that they differ in
 * addresses only. A sequence of `period` instructions that occurs `times` times in a row becomes a function that is
 * called `times` times. A pointer in this function stands for a tensor of each call (struct role in rank.c). If its
 * address is the same in all calls it is a constant of the function. Else the function reads from a table with a row
 * per call what differs: the offset; the arena too, such as where the first layer's input is a sum over ranks; or the
 * whole place, where one call's value lies in slots of micro-batches and another's does not. */
#ifndef CODEGEN_LAYERS_H
#define CODEGEN_LAYERS_H

#include "codegen/source.h"
#include "ir/base/repeats.h"

/* Divides instructions [first, end) of the source into stretches, in order; those that occur several times are
 * layers. */
void layers_find(const struct rankplan *plan, const struct source *source, int first, int end, struct stretches *out);

#endif
