/* manifest.json and plan.json: what was compiled, for people, tools, the runtime and the next compile. */
#ifndef CODEGEN_MANIFEST_H
#define CODEGEN_MANIFEST_H

#include "codegen/program.h"

/* A reuse key (DESIGN: graph key, plan key) and what it was made of. */
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
};

/* The texts, in the graph's arena; NULL when memory ran out. */
const char *manifest_text(const struct manifest *manifest);
const char *manifest_plan_text(const struct rankplan *plan, const struct program_info *info);

#endif
