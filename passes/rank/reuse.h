/* How far back a rank last touched what a kernel reads and writes, by which caches have it or do not: the bytes that
 * were touched since (the reuse distance of Mattson et al., "Evaluation techniques for storage hierarchies", 1970, with
 * repetitions counted), at most all of the rank's memory. */
#ifndef PASSES_RANK_REUSE_H
#define PASSES_RANK_REUSE_H

#include "passes/rank/rankplan.h"

struct reuse {
    const struct rank_class *class;
    const int *slot; /* per tensor: a number that tensors at the same place in memory share */
    double *touched; /* per slot: `now` when it was touched last; negative: never */
    double now, all; /* bytes touched so far; of the rank's memory */
};

/* Nothing was touched. In `arena`. */
struct reuse reuse_begin(const struct graph *graph, const struct rank_class *class, struct arena *arena);

/* Bytes that were touched since the tensor's memory was touched; all of the rank's memory if it was not. */
double reuse_distance(const struct reuse *reuse, int tensor);

/* The node was executed: what it reads and writes has been touched. */
void reuse_touch(struct reuse *reuse, const struct graph *graph, const struct node *node);

#endif
