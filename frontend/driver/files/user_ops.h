/* Files of operators that the user declares: --ops FILE, and the kernels that declarations name (ir/user.h).
 *
 * A compiled result has copies of the kernels in its folder "operators", and the declarations in its graph.rir name
 * them there. */
#ifndef FRONTEND_DRIVER_USER_OPS_H
#define FRONTEND_DRIVER_USER_OPS_H

#include "ir/ir.h"
#include "runtime/base/number/hash.h"

/* Reads the declarations in the file and their kernels. *declared is a graph that declares them; hash: of all contents.
 * 0, or -1 after diagnostics (E0345 at a line and column, E0601 for a file that cannot be read). */
int user_ops_read(struct arena *arena, struct diags *diags, const char *path, struct graph **declared,
                  char hash[RT_HASH_HEX]);

/* Reads the kernels of a graph that was read from text IR in `directory`. A file that does not exist is left out: such
 * a graph can be planned. `hash` stays as it is if the graph declares no operator. 0 or -1. */
int user_ops_attach(const struct graph *graph, const char *directory, char hash[RT_HASH_HEX], struct diags *diags);

#endif
