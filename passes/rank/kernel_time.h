/* The time of a node's kernel on a rank, by the machine (passes/plan/machine/machine.h). */
#ifndef PASSES_RANK_KERNEL_TIME_H
#define PASSES_RANK_KERNEL_TIME_H

#include "passes/plan/machine/machine.h"
#include "passes/rank/rankplan.h"
#include "passes/rank/reuse.h"

/* A node, as a rank of the class executes it. */
struct kernel_work {
    double flops, causal_flops; /* of a product, else 0 */
    enum machine_type type;     /* of its operands */
    double seconds;
};

/* The work of a node that computes; units: of a ZeRO group; reuse: what was touched before it, NULL: the machine has no
 * caches that matter; alone: while no other rank computes. */
struct kernel_work kernel_work(const struct graph *graph, const struct rank_class *class, const struct node *node,
                               const struct machine *machine, int units, const struct reuse *reuse, bool alone);

/* Seconds in which a processor reads a collective's operand from its caches or memory, and writes the result. What the
 * machine file says of links was measured with both in caches. */
double collective_moving(const struct graph *graph, const struct rank_class *class, const struct node *node,
                         const struct machine *machine, int units, const struct reuse *reuse);

/* Floating-point operations of a node on a rank of the class, and bytes of the parts that it reads and writes. Of a
 * collective: no operations, and the bytes of the larger of operand and result. */
struct kernel_size {
    double flops, bytes;
};
struct kernel_size kernel_size(const struct graph *graph, const struct rank_class *class, const struct node *node);

/* True if the kernel sums products: the annotation has a factor that is summed, the node has two operands, and there is
 * a multiplication and an addition for each point. */
bool kernel_is_product(const struct node *node, const struct dims *dims);

#endif
