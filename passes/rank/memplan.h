/* What rankplan_make is made of: classes of ranks, and memory planning, which assigns to every tensor of a class an
 * arena and an offset (rankplan.h). Tensors whose lifetimes do not overlap share addresses. */
#ifndef PASSES_RANK_MEMPLAN_H
#define PASSES_RANK_MEMPLAN_H

#include "passes/rank/rankplan.h"

/* Sets plan->sets, plan->class_of, plan->nclasses, and plan->classes with their first shard, coordinate, chunks, dims,
 * schedule and segments (Note [Classes by coordinate] in classes.c). */
void classes_find(struct rankplan *plan);

/* Sets places, sizes of arenas and peak_live of every class. Classes, views, roots and shared are set before. */
void memplan_make(struct rankplan *plan);

/* Bytes of workspace of a node: what the target's kernel asks for; of an exchange of parts, all that is sent and
 * received; of other collectives, the larger of operand and result. bound: the class with the extents of the largest
 * sizes. */
int64_t memplan_scratch(const struct rankplan *plan, const struct rank_class *class, const struct rank_class *bound,
                        const struct node *node);

/* Slots (slots.c) */

/* Lists the values in a slot of the class and sets the size of a slot: class->kept and slot_bytes. With several slots
 * it also sets their places, relative to the region of slots. class->place is -1 for values that have no place yet. */
void slots_find(const struct rankplan *plan, struct rank_class *class);
/* Puts the region of slots behind the values that were placed in each arena. */
void slots_place(const struct rankplan *plan, struct rank_class *class);
/* Checks that each kept value lies in its slot, and no other value in the region of slots: 0, or -1 after a
 * diagnostic. */
int slots_verify(const struct rankplan *plan, const struct rank_class *class, struct diags *diags);

#endif
