/* Generates a program: all files for a plan. */
#ifndef CODEGEN_PROGRAM_H
#define CODEGEN_PROGRAM_H

#include "codegen/files.h"
#include "codegen/source.h"
#include "passes/train/lora.h"

/* Names and options for titles, identifiers, the build file and the manifest. */
struct program_info {
    const char *model, *instance; /* safe as file names */
    const char *version, *attention, *weight_dtype, *cache_dtype, *pas, *key, *work;
    const char *model_hash;                    /* of the model's file */
    const char *runtime_cflags, *runtime_libs; /* for the build file: how the runtime is compiled with and linked */
    const char *arch;                          /* of GPUs, for the build file; NULL: none */
    const struct training *training;           /* NULL: inference */
    const struct decisions *decisions;
    struct lora_sets adapters;        /* that are chosen at run time */
    const struct weight_roles *roles; /* weights that are not parameters (passes/train/roles.h); NULL: not recorded */
    int nfiles; /* files of the model; the file of constants, which begins with sets of adapters, is number nfiles */
    bool with_runtime; /* the runtime's sources are part of the program */
    bool copies;       /* --weights copy: weights are loaded from slices (slices.h), not these files */
};

/* Generates the sources of all rank classes, the tables, the build file, and weights/constants.bin if there are
 * constants or sets of adapters. The texts lie in the graph's arena. */
void program_make(struct program *program, const struct rankplan *plan, const struct sources *sources,
                  const struct target *target, const struct program_info *info);

enum { CONSTANTS_ALIGNMENT = 64 }; /* of tensors in weights/constants.bin, bytes */

#endif
