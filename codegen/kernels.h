/* The functions that a generated source defines for its own nodes: each template filled in once, equal texts shared. */
#ifndef CODEGEN_KERNELS_H
#define CODEGEN_KERNELS_H

#include "codegen/target/target.h"
#include "ir/base/map.h"

struct tmpl_env;

struct kernels {
    struct arena *arena;
    const struct target *target;
    struct map by_body;             /* text without the function's name -> index of the function */
    VEC(const char *) names, texts; /* in order of first use */
};

struct kernels *kernels_new(struct arena *arena, const struct target *target);

/* The name of the function that `template` makes of the bindings in `env`: a new one, or that of an earlier function
 * with the same body. Binds "name" in `env`: `stem` in lower case and a number. */
const char *kernels_share(struct kernels *kernels, struct tmpl_env *env, const char *template, const char *stem);

/* The text of all functions, in order of first use. */
const char *kernels_text(const struct kernels *kernels);

#endif
