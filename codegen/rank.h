/* The text of one generated source: its kernels, a function for each distinct layer, and the functions of the step. */
#ifndef CODEGEN_RANK_H
#define CODEGEN_RANK_H

#include "codegen/source.h"
#include "codegen/text/tmpl.h"

/* The text of source `number`. `program` has the bindings that all files of the program share. */
const char *rank_source(const struct rankplan *plan, const struct source *source, int number,
                        const struct target *target, const struct tmpl_env *program);

#endif
