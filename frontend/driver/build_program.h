/* Building a generated program: make, started without a shell. */
#ifndef FRONTEND_DRIVER_BUILD_PROGRAM_H
#define FRONTEND_DRIVER_BUILD_PROGRAM_H

#include <stdbool.h>

#include "ir/base/diag.h"

/* The runtime that belongs to this rankc: the installed one, found relative to the executable, or that of its build
 * tree. */
struct build_runtime {
    const char *include, *library; /* directory; archive; NULL: none beside the executable */
};

struct build_runtime build_runtime(struct arena *arena);

/* How a Makefile names that runtime, through links in build/runtime: flags for compiling, what is linked. */
extern const char build_cflags[], build_libs[];

/* Makes those links in `directory`, so that `make -C directory` finds the runtime (Note [Paths and make]); E0611.
 * Without a runtime it makes none, and the Makefile asks pkg-config. */
int build_link_runtime(struct arena *arena, struct diags *diags, const char *directory);

/* Makes the links and runs make in `directory`. E0621 with the first lines of what failed. */
int build_program(struct arena *arena, struct diags *diags, const char *directory);

/* The programs in `directory`, build/train among them if it trains, were built by build_program from the same runtime,
 * with the same flags, for this processor: build/stamp says so. The sources are not looked at. */
bool build_is_current(struct arena *arena, const char *directory, bool trains);

#endif
