/* The output directory: written aside, then exchanged in one step, under a lock.
 *
 *   <output>/<model>/<instance>/            what readers see: the old result or the new one, complete
 *   <output>/<model>/.<instance>.new        being written; left over by a killed compile, cleared by the next
 *   <output>/<model>/.<instance>.old        the old result for a moment, where the file system cannot exchange
 *   <output>/.lock-<model>-<instance>       frontend/driver/lock.h
 *
 * Where the directory cannot be written, what is there can still be looked at. <output> may be a symbolic link; nothing
 * below it is followed. */
#ifndef FRONTEND_DRIVER_OUTPUT_H
#define FRONTEND_DRIVER_OUTPUT_H

#include <stdbool.h>

#include "frontend/driver/lock.h"
#include "ir/base/diag.h"

struct output {
    struct arena *arena;
    struct diags *diags;
    const char *parent, *directory, *staging, *old, *lock_path;
    long timeout;
    enum lock_mode mode;
    int lock;       /* -1: there is none, and none can be made */
    int unwritable; /* errno of why the lock file cannot be written; 0: it can */
    bool staged;    /* the staging directory is ours and unfinished */
};

/* Makes `output`, which must live as long as the arena: that closes it where an allocation fails. Makes the directories
 * above and takes the lock for reading, waiting at most `timeout` seconds (E0701, EXIT_BUSY). E0613: a symbolic link is
 * in the way. */
int output_open(struct output *output, struct arena *arena, struct diags *diags, const char *root, const char *model,
                const char *instance, long timeout);

/* Takes the lock for writing. What was seen before may be gone. */
int output_own(struct output *output);

/* An empty staging directory; needs output_own. */
int output_begin(struct output *output);
/* Writes a file below the staging directory; directories in `path` are made. */
int output_write(struct output *output, const char *path, const void *bytes, size_t count);
/* The same, piece by piece: an error is kept, and told once by output_stream_close. */
struct output_stream *output_stream_open(struct output *output, const char *path);
void output_put(struct output_stream *stream, const void *bytes, size_t count);
int output_stream_close(struct output_stream *stream);
/* Makes what was written the result. */
int output_commit(struct output *output);
/* Replaces one file of the result, whole or not at all; needs output_own. */
int output_replace(struct output *output, const char *path, const void *bytes, size_t count);
/* Gives up the lock, and removes what was staged and not committed. */
void output_close(struct output *output);

#endif
