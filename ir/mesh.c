#include <string.h>

#include "ir/mesh.h"

const struct axis_row axis_rows[AXIS_ROLES] = {
#define AXIS(id, ...) {__VA_ARGS__},
#include "ir/base/axes.def"
#undef AXIS
};

enum axis_role axis_role_of(const char *name) {
    int role = 0;
    while (role < AXIS_ROLES && strcmp(axis_rows[role].name, name) != 0) role++;
    return (enum axis_role)role;
}

struct rt_mesh mesh_positions(const struct mesh *mesh) {
    struct rt_mesh positions = {.naxes = mesh->naxes, .stages = mesh_pipeline_axis(mesh)};
    for (int a = 0; a < mesh->naxes; a++)
        positions.axis[a] = (struct rt_mesh_axis){mesh->axis[a].size, mesh->axis[a].first, mesh->axis[a].end};
    return positions;
}

bool mesh_is_even(const struct mesh *mesh) {
    const struct rt_mesh positions = mesh_positions(mesh);
    return rt_mesh_is_even(&positions);
}

bool mesh_has(const struct mesh *mesh, int axis, int stage) {
    return !mesh->axis[axis].end || (stage >= mesh->axis[axis].first && stage < mesh->axis[axis].end);
}

int mesh_size(const struct mesh *mesh) {
    const struct rt_mesh positions = mesh_positions(mesh);
    return rt_mesh_shards(&positions);
}

int64_t mesh_product(const struct mesh *mesh) {
    int64_t product = 1;
    for (int a = 0; a < mesh->naxes; a++) product *= mesh->axis[a].size;
    return product;
}

int mesh_layout_axes(const struct mesh *mesh) {
    return mesh->naxes + mesh->nreplicas;
}

void mesh_add_axis(struct mesh *mesh, const char *name, const struct rt_mesh_axis *axis) {
    const int a = mesh->naxes++;
    mesh->axis[a].name = name;
    mesh->axis[a].size = axis->size;
    mesh->axis[a].first = axis->first;
    mesh->axis[a].end = axis->end;
}

#define TEXT(number)    #number
#define TEXT_OF(number) TEXT(number)

const char *mesh_take_axis(struct mesh *mesh, const char *name, const struct rt_mesh_axis *axis) {
    if (mesh->naxes == RT_MAX_AXES) return "a mesh has at most " TEXT_OF(RT_MAX_AXES) " axes";
    if (mesh_product(mesh) * axis->size > RT_MAX_RANKS) return "a mesh has at most " TEXT_OF(RT_MAX_RANKS) " devices";
    if (mesh_axis_by_name(mesh, name) >= 0) return "the mesh already has this axis";
    mesh_add_axis(mesh, name, axis);
    return NULL;
}

void mesh_add_replicas(struct mesh *mesh, int groups) {
    static const char *const names[RT_MAX_REPLICAS] = {"units", "groups"};
    mesh->nreplicas = groups > 1 ? 2 : 1;
    for (int i = 0; i < mesh->nreplicas; i++) {
        mesh->axis[mesh->naxes + i].name = names[i];
        mesh->axis[mesh->naxes + i].size = 0;
    }
}

void mesh_coordinate(const struct mesh *mesh, int shard, int coordinate[RT_MAX_AXES]) {
    const struct rt_mesh positions = mesh_positions(mesh);
    rt_mesh_coordinates(&positions, shard, coordinate);
}

int mesh_shard(const struct mesh *mesh, const int *coordinate) {
    const struct rt_mesh positions = mesh_positions(mesh);
    return rt_mesh_shard(&positions, coordinate);
}

int mesh_stride(const struct mesh *mesh, int axis, int stage) {
    const struct rt_mesh positions = mesh_positions(mesh);
    return rt_mesh_stride(&positions, axis, stage);
}

int mesh_axis_by_name(const struct mesh *mesh, const char *name) {
    for (int a = 0; a < mesh_layout_axes(mesh); a++)
        if (strcmp(mesh->axis[a].name, name) == 0) return a;
    return -1;
}

int mesh_axis(const struct mesh *mesh, enum axis_role role) {
    return mesh_axis_by_name(mesh, axis_rows[role].name);
}

int mesh_pipeline_axis(const struct mesh *mesh) {
    return mesh_axis(mesh, AXIS_PIPELINE);
}

const char *mesh_axis_text(const struct mesh *mesh, int axis, struct arena *arena) {
    const int first = mesh->axis[axis].first, last = mesh->axis[axis].end - 1;
    const char *text = arena_printf(arena, "%s=%d", mesh->axis[axis].name, mesh->axis[axis].size);
    if (last < 0) return text;
    return last == first ? arena_printf(arena, "%s@%d", text, first)
                         : arena_printf(arena, "%s@%d-%d", text, first, last);
}

const char *mesh_refused(const struct mesh *mesh) {
    const struct rt_mesh positions = mesh_positions(mesh);
    return rt_mesh_refused(&positions);
}
