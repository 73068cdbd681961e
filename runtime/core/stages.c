/* The group along the pipeline axis: which member is where (Note [Unequal stages] in base/shape/mesh.h). */
#include "private.h"

int rt_stage(const struct rt *rt) {
    return rt->program->mesh.stages < 0 ? 0 : rt->coordinate[rt->program->mesh.stages];
}

int rt_first_member(const struct rt *rt, int stage) {
    const struct rt_mesh *mesh = &rt->program->mesh;
    return rt_mesh_is_even(mesh) ? stage : rt_mesh_before(mesh, stage);
}

bool rt_speaks_for_stage(const struct rt *rt) {
    return rt_mesh_is_even(&rt->program->mesh) || rt->shard == rt_mesh_before(&rt->program->mesh, rt_stage(rt));
}

/* True if the shard takes from this rank what this rank's stage sends to its stage. */
static bool takes_from(const struct rt *rt, int shard) {
    int coordinate[RT_MAX_AXES];
    rt_mesh_coordinates(&rt->program->mesh, shard, coordinate);
    return rt_mesh_sender(&rt->program->mesh, coordinate, rt_stage(rt)) == rt->shard;
}

int rt_next_peer(const struct rt *rt, int stage, bool sends, int before) {
    const struct rt_mesh *mesh = &rt->program->mesh;
    if (rt_mesh_is_even(mesh)) return before < 0 ? stage : -1;
    if (!sends) return before < 0 ? rt_mesh_sender(mesh, rt->coordinate, stage) : -1;
    const int first = rt_mesh_before(mesh, stage), end = rt_mesh_before(mesh, stage + 1);
    for (int shard = before < 0 ? first : before + 1; shard < end; shard++)
        if (takes_from(rt, shard)) return shard;
    return -1;
}

int rt_most_peers(const struct rt *rt) {
    int most = 1;
    for (int t = 0; t < rt->rank_class->ntransfers; t++) {
        const struct rt_transfer *end = &rt->rank_class->transfers[t];
        int n = 0;
        for (int peer = -1; (peer = rt_next_peer(rt, end->peer, end->sends, peer)) >= 0;) n++;
        if (n > most) most = n;
    }
    return most;
}
