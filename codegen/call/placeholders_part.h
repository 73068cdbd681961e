/* Placeholders that say where the rank's part lies in the whole, and those of redistributions. Each function writes the
 * placeholder of its name (placeholders.h). */
#ifndef CODEGEN_PLACEHOLDERS_PART_H
#define CODEGEN_PLACEHOLDERS_PART_H

#include "codegen/call/local.h"

/* argument: a factor's name */
void put_start(struct local *local, const char *argument);
void put_extent(struct local *local, const char *argument);
void put_gap(struct local *local, const char *argument);
void put_jump(struct local *local, const char *argument);
/* an operand */
void put_starts(struct local *local, const char *argument);
/* the attribute that has the padding of the whole: $before, $behind */
void put_padding(struct local *local, const char *argument);

void put_around(struct local *local);
void put_groups(struct local *local); /* $run_groups */
void put_complete(struct local *local);
void put_placement(struct local *local, int tensor); /* $held, $wanted */
void put_distance(struct local *local);
void put_ring(struct local *local);
void put_flat(struct local *local);

#endif
