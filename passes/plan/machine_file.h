/* Machine files (passes/plan/machine.h). */
#ifndef PASSES_PLAN_MACHINE_FILE_H
#define PASSES_PLAN_MACHINE_FILE_H

#include "passes/plan/machine.h"

/* Reads a file: 0, or -1 after E0396. */
int machine_read_file(struct arena *arena, struct diags *diags, const char *path, struct machine *machine);

#endif
