/* Memory of the values that a rank keeps from forward to backward: what lies in a slot (Note [Slots] in
 * runtime/base/schedule.h), and where.
 *
 * Note [Slots in memory]
 * A slot contains the values that the backward segment reads and the forward segment of the same micro-batch leaves.
 * A schedule with several slots keeps several such sets: in each arena, ACTIVATIONS and COMMUNICATION, the slots of
 * a chunk are of equal size and lie one after the other behind all other values, and a value of slot s is at base +
 * s x size + its offset in the slot. A schedule with one chunk and one slot needs no such region: the values share
 * addresses with temporaries before they are computed and after they are last read, as all other values do. Values
 * that go from rank to rank lie in the region in any case, because transfers access them while other segments are
 * executed.
 *
 * Chunks of a rank read each other's slots. A value that several chunks access lies in a slot of the first of them,
 * which begins its forward segment first and ends its backward segment last.
 *
 * In training a value that one chunk accesses lies in the set of slots of its own lifetime (Note [Slots]). What no
 * weight segment accesses is free after the backward segment. Under a zero-bubble schedule, what no forward segment
 * accesses is taken by the backward segment; there, values that go from rank to rank have slots of whole
 * micro-batches, since the wait for the end of a send knows those alone. Under other schedules, gradients that are sent
 * or received have slots of their own (schedule_end_set in ir/schedule.h). */
#ifndef PASSES_RANK_SLOTS_H
#define PASSES_RANK_SLOTS_H

#include "passes/rank/rankplan.h"

/* Lists the values in a slot of the class and sets the size of a slot: class->kept and slot_bytes. With several slots
 * it also sets their places, relative to the region of slots. class->place is -1 for values that have no place yet. */
void slots_find(const struct rankplan *plan, struct rank_class *class);
/* Puts the region of slots behind the values that were placed in each arena. */
void slots_place(const struct rankplan *plan, struct rank_class *class);
/* Checks that each kept value lies in its slot, and no other value in the region of slots: 0, or -1 after a
 * diagnostic. */
int slots_verify(const struct rankplan *plan, const struct rank_class *class, struct diags *diags);

#endif
