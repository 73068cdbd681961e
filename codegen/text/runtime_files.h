/* The runtime's sources, as files of a program that is built without an installed runtime (compile --with-runtime). */
#ifndef CODEGEN_RUNTIME_FILES_H
#define CODEGEN_RUNTIME_FILES_H

#include <stdbool.h>

#include "codegen/files.h"

#define RUNTIME_FOLDER "rankc" /* of the sources, in the instance directory; generated code includes <rankc/rt.h> */

/* Adds the files; those of runtime/cuda if `cuda`. */
void runtime_files_add(struct program *program, struct arena *arena, bool cuda);

/* "base/dtype.c ..", the C sources in that folder. */
const char *runtime_sources(struct arena *arena);

#endif
