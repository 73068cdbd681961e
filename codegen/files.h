/* The files of a generated program, in memory. */
#ifndef CODEGEN_FILES_H
#define CODEGEN_FILES_H

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

#endif
