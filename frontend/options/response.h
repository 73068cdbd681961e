/* Response files: an argument @file is replaced by the arguments in that file.
 *
 * Arguments are separated by white space. '...' and "..." quote; a backslash quotes the next byte, except inside '...'.
 * A # where an argument could begin is a comment up to the end of the line; '#x' and \#x are arguments. A file may name
 * further files. Depth, number of files, bytes and arguments are bounded, since a file may come from
 * anywhere. "@" alone and arguments after "--" are not replaced; write ./@x for a file called @x.
 */
#ifndef FRONTEND_OPTIONS_RESPONSE_H
#define FRONTEND_OPTIONS_RESPONSE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"

struct arguments {
    VEC(const char *) all;
};

enum {
    RESPONSE_DEPTH = 8,
    RESPONSE_FILES = 64,
    RESPONSE_BYTES = 1 << 20, /* of one file */
    RESPONSE_ARGUMENTS = 1 << 16
};

/* Appends argv with every @file replaced: 0, or -1 after E0206 with file, line and column, or E0601. */
int response_expand(struct arguments *out, int argc, char **argv, struct arena *arena, struct diags *diags);

#endif
