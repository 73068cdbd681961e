/* manifest.json: the description of a compiled model for people, tools, the runtime and later compiles. */
#ifndef CODEGEN_MANIFEST_H
#define CODEGEN_MANIFEST_H

#include "codegen/program.h"
#include "codegen/slices.h"
#include "passes/plan/plan.h"
#include "passes/rank/estimate.h"
#include "runtime/base/io/sealed.h"

/* A reuse key (frontend/driver/reuse/reuse_keys.h) and the parts that it hashes. */
struct key_part {
    const char *name, *value;
};
struct key {
    const char *hex;
    VEC(struct key_part) parts;
};

struct manifest {
    const struct estimate *estimate; /* NULL: no machine was named */
    const struct machine *machine;
    const struct rankplan *plan;
    const struct plan *decided; /* how the nodes of the model are split */
    const struct sources *sources;
    const struct program_info *info;
    const struct target *target;
    const struct key *graph_key, *plan_key, *work_key;
    const struct program *program; /* NULL: nothing was generated */
    const struct slices *slices;   /* NULL: weights are read where the model has them */
    const int64_t *sizes;          /* at which "touched" says what a call touches, by open->all; NULL: it does not */
    /* Puts further members: what the search that chose the plan has to say. NULL: there was none. */
    void (*put_search)(struct rt_json_writer *writer, const void *search);
    const void *search;
    /* Puts how the program generates tokens; NULL: it keeps no state, or is trained. */
    void (*put_generation)(struct rt_json_writer *writer, const void *generation);
    const void *generation;
};

/* The text, in the graph's arena; NULL when memory ran out. */
const char *manifest_text(const struct manifest *manifest);

#endif
