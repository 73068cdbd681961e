/* manifest.json and plan.json: descriptions of a compiled model for people, tools, the runtime and later compiles. */
#ifndef CODEGEN_MANIFEST_H
#define CODEGEN_MANIFEST_H

#include "codegen/program.h"
#include "codegen/slices.h"
#include "runtime/base/sealed.h"

enum { PLAN_FORMAT = 1 };

/* A reuse key (frontend/driver/reuse_keys.h) and the parts that it hashes. */
struct key_part {
    const char *name, *value;
};
struct key {
    const char *hex;
    VEC(struct key_part) parts;
};

struct manifest {
    const struct rankplan *plan;
    const struct sources *sources;
    const struct program_info *info;
    const struct target *target;
    const struct key *graph_key, *plan_key;
    const struct program *program; /* NULL: nothing was generated */
    const struct slices *slices;   /* NULL: weights are read where the model has them */
};

/* The texts, in the graph's arena; NULL when memory ran out. */
const char *manifest_text(const struct manifest *manifest);
const char *manifest_plan_text(const struct rankplan *plan, const struct program_info *info);

#endif
