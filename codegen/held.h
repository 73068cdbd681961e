/* Which launches of a segment are held: kernels that update parameters, and sums of squares, which take a table of
 * arguments (Note [Held launches] in runtime/cuda/held.cuh).
 *
 * Held launches come after all others of their group, and in any order. So the memory that they write is not touched
 * by another instruction of the group, and what they read is not written. */
#ifndef CODEGEN_HELD_H
#define CODEGEN_HELD_H

#include "codegen/source.h"
#include "ir/base/repeats.h"

enum { HELD_NONE = 0, HELD_ANY = -1 };

/* For each stretch of a segment's instructions: the group, from 1 on, in which its launches are held; HELD_NONE: they
 * are launched at once; HELD_ANY: it has none that can be held, and may be in any group. */
const int *held_find(const struct rankplan *plan, const struct source *source, const struct stretches *stretches);

#endif
