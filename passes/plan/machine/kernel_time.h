/* The time of a node's kernel on a rank, by the machine (machine.h). This is the one price of an operator: of a part
 * that the splits of a draft would give (plan_cost.h), and of the part that a rank's plan has (passes/rank/estimate.h).
 * No plan is correct or refused because of it. */
#ifndef PASSES_PLAN_KERNEL_TIME_H
#define PASSES_PLAN_KERNEL_TIME_H

#include "ir/dims.h"
#include "passes/plan/machine/machine.h"

struct rank_class; /* passes/rank/rankplan.h */
struct reuse;      /* passes/rank/reuse.h */

/* A node as a rank executes it, at fixed sizes. */
struct kernel {
    const struct graph *graph;
    const struct node *node;
    const struct node_split *split;     /* of the node, per mesh axis */
    int64_t (*extents)[RT_MAX_NDIM];    /* per tensor: of the rank's part, before ZeRO cuts it */
    int units;                          /* of a ZeRO group */
    const struct machine *machine;      /* kernel_size: NULL */
    bool alone;                         /* while no other rank computes */
    const struct kernel_memory *memory; /* NULL: it is not planned yet */
};

/* What the plan of a rank's memory adds. */
struct kernel_memory {
    const struct rank_class *class;
    const struct reuse *reuse; /* what was touched before; NULL: the machine has no caches that matter */
    /* True if the output replaces an operand. */
    bool (*overwrites)(const struct kernel *kernel, int output);
    /* Seconds for a byte of the tensor, with `reuse`, for a kernel that touches so many bytes; distant:
     * machine_byte_seconds. */
    double (*byte_seconds)(const struct kernel *kernel, int tensor, double touched, double distant);
};

/* What the seconds of kernels are for: matrix products and convolutions, attention, adding a micro-batch's gradients to
 * those of earlier ones, all else, and starting them. */
enum kernel_part { KERNEL_PRODUCT, KERNEL_ATTENTION, KERNEL_ADD, KERNEL_OTHER, KERNEL_LAUNCH, KERNEL_PARTS };

struct kernel_work {
    double flops, causal_flops; /* of a product, else 0 */
    enum machine_type type;     /* of its operands */
    enum kernel_part part;
    double seconds, launching; /* launching: of these, those of starting it */
};

/* The work of a node that computes. */
struct kernel_work kernel_work(const struct kernel *kernel);

/* Seconds in which a processor reads a collective's operand from its caches or memory, and writes the result. What the
 * machine file says of links was measured with both in caches. */
double collective_moving(const struct kernel *kernel);

/* Floating-point operations of a node on a rank, and bytes of the parts that it reads and writes. Of a collective: no
 * operations, and the bytes of the larger of operand and result. */
struct kernel_size {
    double flops, bytes;
};
struct kernel_size kernel_size(const struct kernel *kernel);

/* True if the kernel sums products: the annotation has a factor that is summed, the node has two operands, and there is
 * a multiplication and an addition for each point. */
bool kernel_is_product(const struct node *node, const struct dims *dims);

/* Bytes of the rank's part of an operand; 0 for one that is left out. */
double kernel_bytes(const struct kernel *kernel, int tensor);

#endif
