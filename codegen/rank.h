/* The text of a source: its elementwise functions, one function per distinct layer, and the step. */
#ifndef CODEGEN_RANK_H
#define CODEGEN_RANK_H

#include "codegen/source.h"
#include "codegen/tmpl.h"

/* Text of source `number`. `program` binds what all files know (codegen/program.h). */
const char *rank_source(const struct rankplan *plan, const struct source *source, int number,
                        const struct target *target, const struct tmpl_env *program);

#endif
