/* The ranks that parts of a manifest stand for. A manifest lists none: it names mesh axes, pipeline stages and classes
 * of shards. Rank r is shard r % plan_ngpus of scale unit r / plan_ngpus. */
#ifndef FRONTEND_CLI_RANKS_H
#define FRONTEND_CLI_RANKS_H

#include "frontend/cli/compiled_model.h"

/* Ranks, in ascending order. */
struct rank_list {
    VEC(int64_t) all;
};

/* As text: "0-3,8", "0,2..14". */
const char *rank_list_text(const struct rank_list *list, struct arena *arena);

/* The ranks of the pipeline stage; all ranks if the mesh has no pipeline axis. */
struct rank_list ranks_of_stage(const struct compiled_model *compiled, int64_t stage, struct arena *arena);

/* The entry of "classes" that each shard belongs to: plan_ngpus of them, NULL for a shard that no entry includes. */
const struct rt_json **ranks_classes(const struct compiled_model *compiled, struct arena *arena);

/* A group of ranks that communicate: first, first + stride .., `count` of them. */
struct rank_group {
    int64_t first, count, stride;
};
struct rank_groups {
    VEC(struct rank_group) all;
};

/* The groups of an entry of "communication": of the ranks along its mesh axis, or, if it names a class, of the ranks of
 * each shard of the class in all scale units: none if there is one unit. `classes`: ranks_classes. */
struct rank_groups ranks_groups(const struct compiled_model *compiled, const struct rt_json *entry,
                                const struct rt_json *const *classes, struct arena *arena);
struct rank_list ranks_of_group(const struct rank_group *group, struct arena *arena);

#endif
