/* Several adapters in one program, of which one at a time takes part: Note [Sets of adapters] in adapter_sets.c. */
#ifndef FRONTEND_DRIVER_ADAPTER_SETS_H
#define FRONTEND_DRIVER_ADAPTER_SETS_H

#include "frontend/driver/files/adapter_files.h"

/* Puts adapters beside the products that one of the sets adapts. They are stored in file number `file`, as set 0 is.
 * 0, or -1 after a diagnostic. */
int adapter_sets_attach(struct graph *graph, const struct adapter_files *files, int file, struct diags *diags);

/* The sets of such a graph without their values; `names` are kept. */
struct lora_sets adapter_sets_of(const struct graph *graph, int n, const char *const *names);

/* Chooses an adapter of such a graph by number, -1: none, for a program that has that one alone. */
void adapter_sets_choose(struct graph *graph, int set);

/* The values of all sets, for the matrices that adapter_sets_attach has put into the graph, or into that whose text was
 * kept. They lie in the arena. */
struct lora_sets adapter_sets_fill(const struct graph *graph, const struct adapter_files *files, struct arena *arena);

#endif
