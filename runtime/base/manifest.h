/* Numbers that the compiler writes into "values" of manifest.json and that a program reads there. */
#ifndef RT_BASE_MANIFEST_H
#define RT_BASE_MANIFEST_H

#include "contract.h"

/* A tensor in "values" is [arena, offset, dtype, elements, stride, axes, chunk]; zeros at the end are left out.
 * elements: of the rank's part. stride: bytes from one slot of `chunk` to the next (Note [Slots] in schedule.h). axes:
 * those of a flat cut (flat.h), as a bit set; the rank has a slice then, which lies in its place within the part. A
 * stored tensor that is cut flat has arena MANIFEST_FLAT, and as offset its index in the class' flats. */
enum { MANIFEST_FLAT = RT_CALLER + 1 };

/* Bits: which non-finite values a tensor contains. */
enum { HAS_INFINITY = 1, HAS_NAN = 2 };

/* "dump": {"tensors": [..], "places": [[..] per class]}. A tensor has "name", "dtype", its complete "shape", "cuts":
 * [axis, dimension, blocks, grain] of each (part.h), as bit sets of axes "sum", "max", "min" (it is partial), "own" and
 * "flat"; "window": 1 if ranks have rows of others too. A place is [tensor, instruction, before, arena, offset, stride,
 * set, packing, extents of the part.., steps in elements if the part is a strided view..]: the value may be read after
 * the instruction, or where `before` is 1 before it. */
enum { RT_DUMP_FIELDS = 8 };

#endif
