/* The output directory, replaced atomically: a new result is written to a staging directory and exchanged with the old
 * one in one step, under a lock.
 *
 *   <output>/<model>/<instance>/            the result; readers see the old one or the new one, never a mixture
 *   <output>/<model>/.<instance>.new        the staging directory; if a compile was killed, the next clears it
 *   <output>/<model>/.<instance>.old        the old result for a moment, on file systems without RENAME_EXCHANGE
 *   <output>/.lock-<model>-<instance>       frontend/driver/output/lock.h
 *
 * A result in a read-only directory can still be read and reused. <output> may be a symbolic link; links below it are
 * not followed. */
#ifndef FRONTEND_DRIVER_OUTPUT_H
#define FRONTEND_DRIVER_OUTPUT_H

#include <stdbool.h>

#include "frontend/driver/output/lock.h"
#include "ir/base/diag.h"

struct output {
    struct arena *arena;
    struct diags *diags;
    const char *parent, *directory, *staging, *old, *lock_path;
    long timeout;
    enum lock_mode mode;
    int lock;       /* descriptor; -1: there is no lock file, and it cannot be created */
    int unwritable; /* errno of why the lock file cannot be written; 0: it can */
    bool staged;    /* the staging directory is ours and unfinished */
};

/* Initialises `output`, creates the parent directories, and takes the lock for reading, waiting at most `timeout`
 * seconds (E0701, EXIT_BUSY). E0613: a symbolic link is in the way. `output` must live as long as the arena, which
 * closes it if an allocation fails. 0, or -1 after a diagnostic, like all functions here. */
int output_open(struct output *output, struct arena *arena, struct diags *diags, const char *root, const char *model,
                const char *instance, long timeout);

/* Takes the lock for writing. The result may have been replaced before it is granted: check it again. */
int output_own(struct output *output);

/* Creates an empty staging directory; needs output_own. */
int output_begin(struct output *output);
/* Writes a file in the staging directory; creates the directories in `path`. */
int output_write(struct output *output, const char *path, const void *bytes, size_t count);
/* The same in pieces. Errors are kept and reported by output_stream_close. */
struct output_stream *output_stream_open(struct output *output, const char *path);
void output_put(struct output_stream *stream, const void *bytes, size_t count);
int output_stream_close(struct output_stream *stream);
/* Replaces the result by the staging directory. */
int output_commit(struct output *output);
/* Replaces one file of the result atomically; needs output_own. */
int output_replace(struct output *output, const char *path, const void *bytes, size_t count);
/* Releases the lock and removes a staging directory that was not committed. */
void output_close(struct output *output);

/* Copies into the staging directory what the result has of edited files: generated files outside of weights/ that
 * differ from their hash in the manifest, under the first free number and with a remark, and the copies that earlier
 * compiles have kept. A result without a readable manifest has none. 0, or -1 after a diagnostic. */
int edited_keep(struct output *output);

#endif
