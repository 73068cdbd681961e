/* The source of one rank class: its elementwise functions, one function per distinct layer, and the step. */
#ifndef CODEGEN_RANK_H
#define CODEGEN_RANK_H

#include "codegen/kernel.h"
#include "codegen/tmpl.h"

/* Text of the class' source. `program` binds what all files know (codegen/program.h). */
const char *rank_source(const struct rankplan *plan, int class, const struct target *target,
                        const struct tmpl_env *program);

#endif
