/* Machine files (passes/plan/machine/machine.h). */
#ifndef PASSES_PLAN_MACHINE_FILE_H
#define PASSES_PLAN_MACHINE_FILE_H

#include "passes/plan/machine/machine.h"

/* Reads the text of one, which is of the file `name`: 0, or -1 after E0396. */
int machine_read_text(struct arena *arena, struct diags *diags, const char *name, const char *text,
                      struct machine *machine);
/* Reads a file. */
int machine_read_file(struct arena *arena, struct diags *diags, const char *path, struct machine *machine);

#endif
