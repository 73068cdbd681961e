/* The output directory: written aside, then exchanged in one step, under a lock.
 *
 *   <output>/<model>/<instance>/            what readers see: the old result or the new one, complete
 *   <output>/<model>/.<instance>.new        being written; left over by a killed compile, cleared by the next
 *   <output>/.lock-<model>-<instance>       flock: exclusive for a compile, shared for readers
 *
 * The lock is the kernel's, so that of a dead process is free at once. */
#ifndef CODEGEN_OUTPUT_H
#define CODEGEN_OUTPUT_H

#include <stdbool.h>

#include "ir/base/diag.h"

struct output {
    struct arena *arena;
    struct diags *diags;
    const char *directory, *staging;
    int lock;
};

/* Makes the directories above and takes the lock, waiting at most `timeout` seconds (E0701, EXIT_BUSY). */
int output_open(struct output *output, struct arena *arena, struct diags *diags, const char *root,
                const char *model, const char *instance, long timeout);

/* An empty staging directory. */
int output_begin(struct output *output);
/* Writes a file below the staging directory; directories in `path` are made. */
int output_write(struct output *output, const char *path, const void *bytes, size_t count);
/* Makes what was written the result. */
int output_commit(struct output *output);
/* Replaces one file of the result, whole or not at all. */
int output_replace(struct output *output, const char *path, const void *bytes, size_t count);
void output_close(struct output *output);

#endif
