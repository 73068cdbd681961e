/* manifest.json and plan.json: what was compiled, for people, tools, the runtime and the next compile. */
#ifndef CODEGEN_MANIFEST_H
#define CODEGEN_MANIFEST_H

#include "codegen/program.h"

enum { MANIFEST_FORMAT = 1 };

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

/* True if the bytes of a manifest.json are as manifest_text gave them, as far as its own hash tells: all but the list of
 * files, whose entries are checked against the files. */
bool manifest_text_is_intact(const char *text, size_t bytes);

#endif
