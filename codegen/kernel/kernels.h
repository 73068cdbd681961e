/* The functions that a generated source defines for its nodes. Nodes whose functions have equal text share one. */
#ifndef CODEGEN_KERNELS_H
#define CODEGEN_KERNELS_H

#include "codegen/text/sizes.h"
#include "codegen/target/target.h"
#include "ir/base/map.h"

struct tmpl_env;

struct kernels {
    struct arena *arena;
    const struct target *target;
    struct map by_body;             /* text without the function's name -> index of the function */
    VEC(const char *) names, texts; /* in order of first use */
    const struct sizes *sizes;
    struct size_names size_names; /* those that the source uses */
};

struct kernels *kernels_new(struct arena *arena, const struct target *target, const struct sizes *sizes);

/* Fills `template` with the bindings in `env` and returns the name of the function: that of an earlier one with equal
 * text, else `stem` in lower case and a number. Binds "name" in `env`. */
const char *kernels_share(struct kernels *kernels, struct tmpl_env *env, const char *template, const char *stem);

/* The text of all functions, in order of first use; names of sizes are marked (sizes_shown). */
const char *kernels_text(const struct kernels *kernels);

#endif
