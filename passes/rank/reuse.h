/* How far back a rank last touched what a kernel reads and writes, by which caches have it or do not: the bytes that
 * were touched since (the reuse distance of Mattson et al., "Evaluation techniques for storage hierarchies", 1970, with
 * repetitions counted), at most all of the rank's memory.
 *
 * Tensors that share addresses overlap in any way, so distances are kept per piece of memory. */
#ifndef PASSES_RANK_REUSE_H
#define PASSES_RANK_REUSE_H

#include "passes/plan/machine/kernel_time.h"
#include "passes/rank/rankplan.h"

/* The pieces of a rank's memory lie between the addresses at which tensors begin and end. */
struct pieces {
    const int *first, *end; /* per tensor: its pieces; equal: the class does not hold it */
    const double *bytes;    /* per piece */
    int n;
};

struct reuse {
    struct pieces pieces;
    double *touched; /* per piece: `now` when it was touched last; negative: never */
    double now, all; /* bytes touched so far; of the rank's memory */
};

/* In `arena`. */
struct pieces pieces_find(const struct graph *graph, const struct rank_class *class, struct arena *arena);

/* Nothing was touched. In `arena`. */
struct reuse reuse_begin(const struct graph *graph, const struct rank_class *class, struct arena *arena);

/* Bytes that were touched since the piece was touched; all of the rank's memory if it was not. */
double reuse_distance(const struct reuse *reuse, int piece);

/* Seconds for a byte of the tensor, which comes from the cache, or the memory, that keeps as many bytes as were touched
 * since it was: by what was executed before, and at least by the kernel itself, which touches so many bytes. As in
 * struct kernel_memory. */
double reuse_byte_seconds(const struct kernel *kernel, int tensor, double touched, double distant);

/* The node was executed: what it reads and writes has been touched. */
void reuse_touch(struct reuse *reuse, const struct node *node);

#endif
