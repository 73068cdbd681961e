/* Building a generated program: make, started without a shell. */
#ifndef FRONTEND_DRIVER_BUILD_PROGRAM_H
#define FRONTEND_DRIVER_BUILD_PROGRAM_H

#include <stdbool.h>

#include "ir/base/diag.h"

/* Paths of the runtime that belongs to this rankc. */
struct build_runtime {
    const char *include, *library; /* directory; archive; NULL: none beside the executable */
};

/* The runtime of the installation or build tree that the running executable is part of. */
struct build_runtime build_runtime(struct arena *arena);

/* CFLAGS and libraries by which a Makefile uses that runtime, through links in build/runtime. */
extern const char build_cflags[], build_libs[];

/* Creates those links in `directory`, so that `make` there finds the runtime (Note [Paths and make]). 0, or -1 with
 * E0611. Creates none if no runtime is beside the executable; the Makefile then asks pkg-config. */
int build_link_runtime(struct arena *arena, struct diags *diags, const char *directory);

/* Creates the links and runs make in `directory`, with progress on a terminal unless `silent`. 0, or -1 with E0621 and
 * the first lines of make's output. */
int build_program(struct arena *arena, struct diags *diags, const char *directory, bool silent);

/* True if build/stamp in `directory` says that its programs (build/train too if `trains`) were built with the present
 * runtime and flags for this processor. Does not compare the sources. */
bool build_is_current(struct arena *arena, const char *directory, bool trains);

#endif
