/* The classes of a plan's ranks: shards of the same pipeline coordinate whose parts of all tensors have the same
 * extents.
 *
 * Note [Classes by coordinate]
 * At most one mesh axis divides a dimension of a tensor, so a shard's coordinate on each axis determines the extents
 * along the dimensions that this axis divides. On each axis, the coordinates for which all these extents are equal form
 * a set; on the pipeline axis each coordinate is a set of its own. A class consists of one set per axis: of all shards
 * whose coordinates are in these sets. So the sets are found from the sizes of the axes, and nothing is computed or
 * stored for each shard. Sets are numbered by their first coordinate, classes by their first shard. A stage that lacks
 * an axis has the first set of that axis alone. */
#ifndef PASSES_RANK_CLASSES_H
#define PASSES_RANK_CLASSES_H

#include "passes/rank/rankplan.h"

/* Sets plan->sets, plan->class_of, plan->nclasses, and plan->classes with their first shard, coordinate, chunks, dims,
 * schedule and segments. */
void classes_find(struct rankplan *plan);

#endif
