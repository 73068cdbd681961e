/* A program: everything that is written for a plan, as named texts. */
#ifndef CODEGEN_PROGRAM_H
#define CODEGEN_PROGRAM_H

#include "codegen/source.h"
#include "passes/train/training.h"

/* What the program is called and made with; for titles, identifiers and the manifest. */
struct program_info {
    const char *model, *instance; /* safe as file names */
    const char *version, *attention, *pas, *key, *work;
    const char *runtime_cflags, *runtime_libs; /* for the build file: how the runtime is compiled with and linked */
    const char *arch;                          /* of GPUs, for the build file; NULL: none */
    int runtime_ngpus;
    const struct training *training;   /* NULL: inference */
    const struct decisions *decisions; /* which weights are no parameters (passes/train/roles.h); NULL: not kept */
    int nfiles;                        /* of the model; the file of constants comes after them */
    bool copies; /* --weights copy: what programs load lies in slices (slices.h), not in these files */
};

struct program_file {
    const char *path;  /* below the instance directory */
    const void *bytes; /* NULL: it is written already, and `hash` is that of its bytes */
    size_t count;
    const char *hash;
};

struct program {
    VEC(struct program_file) files;
};

/* The sources of all rank classes, the tables, the build file, and weights/constants.bin if there are constants. */
int program_make(struct program *program, const struct rankplan *plan, const struct sources *sources,
                 const struct target *target, const struct program_info *info, struct diags *diags);

enum { CONSTANTS_ALIGNMENT = 64 };

#endif
