/* The files of a generated program, in memory. */
#ifndef CODEGEN_FILES_H
#define CODEGEN_FILES_H

#include <stdbool.h>

#include "ir/base/vec.h"

struct program_file {
    const char *path;  /* below the instance directory */
    const void *bytes; /* NULL: already on disk; then `hash` is set */
    size_t count;
    const char *hash; /* of its bytes; NULL: computed when the manifest is written */
};

struct program {
    VEC(struct program_file) files;
};

#define RUNTIME_FOLDER "rankc" /* of the sources, in the instance directory; generated code includes <rankc/rt.h> */

/* Adds the runtime's sources, for a program that is built without an installed runtime (compile --with-runtime); those
 * of runtime/cuda if `cuda`. */
void runtime_files_add(struct program *program, struct arena *arena, bool cuda);

/* "base/dtype.c ..", the C sources in that folder. */
const char *runtime_sources(struct arena *arena);

#endif
