/* Layouts: how the ranks of a mesh hold a tensor. */
#ifndef IR_LAYOUT_H
#define IR_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/arena.h"
#include "runtime/base/contract.h"

/* The access pattern of a sliding window (convolution, pooling) along one dimension: output position p of `positions`
 * reads the indices p * stride - before to p * stride - before + span - 1. */
struct reach {
    int64_t positions, stride, before, span;
};

/* How a tensor is placed along one mesh axis (a placement of PyTorch's DTensor), one of:
 *
 *   WHOLE    every rank has the whole tensor (replicated)
 *   PART     every rank has a part of dimension `dim` (sharded; Note [Cuts] in runtime/base/shape/part.h)
 *   PARTIAL  every rank has a partial value: the tensor is their elementwise sum, maximum or minimum
 *   WINDOW   every rank has the indices of dimension `dim` that its part of an operator's output positions reads; the
 *            windows of neighbours overlap (Note [Windows in parts] there). Only redistribution makes windows.
 *   FLAT     every rank has a slice of the elements of its part, in row-major order (Note [Flat cuts] in
 *            runtime/base/shape/flat.h). Cuts along several axes nest in the order of the axes. Parameters, gradients
 *            and states of the optimizer are placed so (passes/place/zero.c)
 *   OWN      every rank has a value of its own, computed from its own samples: only along replica axes
 *
 * Note [Replicas]
 * In training, scale units are replicas of the plan: each computes the forward and backward phases for micro-batches of
 * its own. Along a replica axis, inputs and all that is computed from them are OWN. A tensor with `joined` set is
 * PARTIAL instead: the value of the step is the sum or maximum of the ranks' own. Gradients of parameters are so, as
 * they are along a data axis, and a node that needs one WHOLE or in PARTs makes redistribution reduce it. Parameters
 * are WHOLE: all units have the same. A weight that is updated by an OWN value, such as a running statistic, becomes
 * OWN. */
struct placement {
    enum placement_kind { PLACED_WHOLE, PLACED_PART, PLACED_PARTIAL, PLACED_WINDOW, PLACED_OWN, PLACED_FLAT } kind;
    int dim;               /* of a PART or WINDOW */
    int64_t blocks, grain; /* the cut of a PART; of a WINDOW, that of the output positions within a block. FLAT: the
                              grain is RT_MOMENT_BLOCK if slices are of whole blocks, 1 if of their scales, else 0 */
    enum rt_reduce reduce; /* of a PARTIAL */
    struct reach reach;    /* of a WINDOW */
};

/* The ranks along `axis` divide the tensor: a PART, WINDOW or FLAT. */
struct cut {
    int axis;
    struct placement placement;
};

/* A tensor's placement along all axes. Along an axis without a cut and in no bit set the tensor is WHOLE; {0} is WHOLE
 * along all axes.
 *
 * Several axes may divide one dimension (Note [Nested cuts] in runtime/base/shape/part.h). For the ranks along the
 * inner axis the part that the outer cuts leave them is the dimension: collectives along that axis need not know of the
 * outer cuts. They are possible along the axis of the innermost cut alone. A window is in no nest: no other axis
 * divides its dimension.
 *
 * Cuts are listed by axis, but a nested one follows the one whose parts it divides; FLAT ones come last. The list is
 * never changed in place, so layouts may share it. */
struct layout {
    uint16_t partial[RT_REDUCES], own; /* bit a: so along axis a */
    int16_t ncuts;
    const struct cut *cuts;
};

bool placement_equal(const struct placement *a, const struct placement *b);
/* True for PART and WINDOW, whose `dim` is set. */
bool placement_divides(const struct placement *placement);

/* The tensor's placement along one axis. */
struct placement layout_along(const struct layout *layout, int axis);
/* Sets it. A new cut becomes the innermost of its dimension; one that replaces a cut of the same dimension keeps that
 * one's place. The list of cuts is allocated in `arena`. */
void layout_place(struct arena *arena, struct layout *layout, int axis, struct placement placement);
bool layout_equal(const struct layout *a, const struct layout *b);
/* True if each rank has the same part under both: they are equal, but for WHOLE on one side and OWN on the other. */
bool layout_same_part(const struct layout *a, const struct layout *b);
/* The axis of the cut that divides what the cut along `axis` leaves of a dimension; -1 if there is none, or no cut
 * along that axis. */
int layout_inner_axis(const struct layout *layout, int axis);
/* Appends a text that is equal for equal layouts alone: a part of a key. */
struct strbuf;
void layout_put_key(struct strbuf *key, const struct layout *layout);
/* The axes along which the tensor is FLAT: bit a for axis a. */
unsigned layout_flat_axes(const struct layout *layout);
/* The same, and RT_FLAT_BLOCKS or RT_FLAT_SCALES: as rt_flat_slice takes it. */
unsigned layout_slices(const struct layout *layout);

#endif
