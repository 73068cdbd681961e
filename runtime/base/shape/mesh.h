/* The mesh: where the ranks of a scale unit stand on several axes.
 *
 * Note [Unequal stages]
 * A shard is a rank's number in its scale unit. Its coordinates are the digits of that number in mixed radix; the first
 * axis is the least significant digit. An axis may belong to some pipeline stages alone: `tensor=2@0` gives stage 0 two
 * ranks along axis tensor, where the other stages have one. So stages may have different numbers of ranks, and each
 * divides its nodes along the axes that it has. The pipeline axis is then the last one, and shards are numbered stage
 * by stage.
 *
 * A value that passes between such stages is whole along each axis that one of them lacks. A rank that receives it
 * takes it from the rank with the same coordinates on the axes that both stages have; if there are several of those,
 * the receivers take turns. The ranks along the pipeline axis no longer form groups of one rank per stage: their group
 * is the scale unit, and a member's number is its shard. */
#ifndef RT_BASE_MESH_H
#define RT_BASE_MESH_H

#include "../contract.h"

#include <stdbool.h>

struct rt_mesh_axis {
    int size;
    int first, end; /* the pipeline stages, by coordinate, that have the axis: first .. end - 1; end 0: all */
};

struct rt_mesh {
    int naxes;
    int stages; /* the pipeline axis; -1: there is none */
    struct rt_mesh_axis axis[RT_MAX_AXES];
};

/* True if all stages have the same axes. */
static inline bool rt_mesh_is_even(const struct rt_mesh *mesh) {
    for (int a = 0; a < mesh->naxes && mesh->stages >= 0; a++)
        if (mesh->axis[a].end) return false;
    return true;
}

/* Ranks along the axis in the stage at that pipeline coordinate. */
static inline int rt_mesh_ways(const struct rt_mesh *mesh, int axis, int stage) {
    const struct rt_mesh_axis *at = &mesh->axis[axis];
    return at->end && (stage < at->first || stage >= at->end) ? 1 : at->size;
}

/* The difference between the numbers of two shards of the stage that are neighbours along the axis; along the pipeline
 * axis if the stages are equal, else the number of ranks of the stage. */
static inline int rt_mesh_stride(const struct rt_mesh *mesh, int axis, int stage) {
    int stride = 1;
    for (int a = 0; a < axis; a++) stride *= rt_mesh_ways(mesh, a, stage);
    return stride;
}

/* The number of shards before the stage at that coordinate, where stages are unequal: the first of its own. */
static inline int rt_mesh_before(const struct rt_mesh *mesh, int stage) {
    int shards = 0;
    for (int s = 0; s < stage; s++) shards += rt_mesh_stride(mesh, mesh->stages, s);
    return shards;
}

/* Number of shards. */
static inline int rt_mesh_shards(const struct rt_mesh *mesh) {
    return rt_mesh_is_even(mesh) ? rt_mesh_stride(mesh, mesh->naxes, 0)
                                 : rt_mesh_before(mesh, mesh->axis[mesh->stages].size);
}

/* The coordinates of a shard; on axes that the mesh or its stage does not have 0. */
static inline void rt_mesh_coordinates(const struct rt_mesh *mesh, int shard, int coordinate[RT_MAX_AXES]) {
    const bool even = rt_mesh_is_even(mesh);
    int stage = 0;
    if (!even)
        for (int ranks; shard >= (ranks = rt_mesh_stride(mesh, mesh->stages, stage)); stage++) shard -= ranks;
    for (int a = 0; a < RT_MAX_AXES; a++) {
        const int ways = a >= mesh->naxes || (!even && a == mesh->stages) ? 1 : rt_mesh_ways(mesh, a, stage);
        coordinate[a] = shard % ways;
        shard /= ways;
    }
    if (!even) coordinate[mesh->stages] = stage;
}

/* The shard with these coordinates; those on axes that its stage does not have count as 0. */
static inline int rt_mesh_shard(const struct rt_mesh *mesh, const int *coordinate) {
    const int stage = mesh->stages < 0 ? 0 : coordinate[mesh->stages];
    const bool even = rt_mesh_is_even(mesh);
    int shard = even ? 0 : rt_mesh_before(mesh, stage), stride = 1;
    for (int a = 0; a < mesh->naxes; a++) {
        const int ways = rt_mesh_ways(mesh, a, stage);
        if (!even && a == mesh->stages) continue;
        if (ways > 1) shard += coordinate[a] * stride;
        stride *= ways;
    }
    return shard;
}

/* The shard of stage `from` that sends to the one with coordinates `receiver` (Note [Unequal stages]). */
static inline int rt_mesh_sender(const struct rt_mesh *mesh, const int *receiver, int from) {
    const int to = receiver[mesh->stages];
    int coordinate[RT_MAX_AXES] = {0}, turn = 0, turns = 1;
    for (int a = 0; a < mesh->naxes; a++) {
        if (a == mesh->stages || rt_mesh_ways(mesh, a, from) > 1) continue;
        turn += receiver[a] * turns;
        turns *= rt_mesh_ways(mesh, a, to);
    }
    for (int a = 0; a < mesh->naxes; a++) {
        const int ways = rt_mesh_ways(mesh, a, from);
        const bool both = ways == rt_mesh_ways(mesh, a, to);
        coordinate[a] = both ? receiver[a] : turn % ways;
        if (!both) turn /= ways;
    }
    coordinate[mesh->stages] = from;
    return rt_mesh_shard(mesh, coordinate);
}

/* Reads the stages that have an axis, "@FIRST" or "@FIRST-LAST", up to the end of the text; nothing: all stages. */
bool rt_mesh_parse_stages(const char *text, int *first, int *end);

/* Why axes may not belong to the stages that they name, for a message; NULL: they may. */
const char *rt_mesh_refused(const struct rt_mesh *mesh);

#endif
