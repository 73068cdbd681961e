/* Moves of a tensor between its placements along one mesh axis: which collectives, and their price.
 *
 * Along one axis a tensor is replicated (whole), sharded (a part or a window) or partial. The moves between these
 * states are collectives among the ranks of the axis. A change of placement is a cheapest path over them, as in
 * nnScaler's RVD, one mesh axis at a time. Policies price such a path, pass redist inserts it, and estimates price its
 * nodes. */
#ifndef PASSES_PLAN_MOVES_H
#define PASSES_PLAN_MOVES_H

#include "ir/ir.h"
#include "passes/plan/machine/machine.h"

struct move {
    enum placement_kind from, to;
    enum op_id op;
};

/* A change of placement among the ranks of a group. */
struct moving {
    const struct tensor *tensor;
    double bytes; /* of the part of the tensor that other axes leave */
    struct placement from, to;
    struct machine_group group;
    bool made_whole; /* another reader needs it whole, so that gathering it costs nothing more */
};

/* The first move of a cheapest path; NULL: there is none. *seconds, unless NULL: of the whole path. */
const struct move *moves_first(const struct moving *moving, double *seconds);

/* The placement after a move towards `wanted`. On the way to a window a partial sum is scattered in equal parts. */
struct placement moves_after(const struct move *move, const struct placement *wanted);

/* Seconds of a redistribution by the operator, with so many bytes of its operand and its result on a rank, in so many
 * runs; 0 if it is local. */
double moves_seconds(const struct machine_group *group, const struct op *op, double in, double out, double runs);

#endif
