/* The device mesh. */
#ifndef IR_MESH_H
#define IR_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/arena.h"
#include "runtime/base/contract.h"
#include "runtime/base/shape/mesh.h"

/* Roles of the axes of a mesh (axes.def). */
enum axis_role {
#define AXIS(id, ...) AXIS_##id,
#include "ir/base/axes.def"
#undef AXIS
    AXIS_ROLES /* an axis of another name */
};

extern const struct axis_row {
    const char *name;
    bool splits, samples;
} axis_rows[AXIS_ROLES];

/* The role of an axis of that name. */
enum axis_role axis_role_of(const char *name);

/* The device mesh: shards (numbered from 0) on named axes. The shard number is the coordinates in mixed radix; axis[0]
 * is the least significant digit. naxes = 0: one device. An axis may belong to some pipeline stages alone: Note
 * [Unequal stages] in runtime/base/shape/mesh.h.
 *
 * Replica axes follow the others in axis[], in training only (Note [Replicas]). Their size is known when a job starts,
 * here it is 0; shards are not numbered along them. */
struct mesh_axis {
    const char *name;
    int size;
    int first, end; /* as in struct rt_mesh_axis */
};
struct mesh {
    int naxes;
    struct mesh_axis axis[RT_LAYOUT_AXES];
    int nreplicas;
};

/* Number of axes along which tensors are placed: naxes and the replica axes. */
int mesh_layout_axes(const struct mesh *mesh);
/* Adds an axis behind the others; the mesh has room for it and no replica axes. */
void mesh_add_axis(struct mesh *mesh, const char *name, const struct rt_mesh_axis *axis);
/* The same of what a user gives, whose sizes are at most RT_MAX_RANKS. NULL, or why the mesh cannot have it. */
const char *mesh_take_axis(struct mesh *mesh, const char *name, const struct rt_mesh_axis *axis);
/* Gives the mesh its replica axes: "units", the scale units, and if there are several ZeRO groups "groups". */
void mesh_add_replicas(struct mesh *mesh, int groups);

/* What does not depend on names: for the functions of runtime/base/shape/mesh.h. */
struct rt_mesh mesh_positions(const struct mesh *mesh);
/* True if all pipeline stages have the same axes. */
bool mesh_is_even(const struct mesh *mesh);
/* True if the pipeline stage at that coordinate has the axis; all have replica axes. */
bool mesh_has(const struct mesh *mesh, int axis, int stage);
/* Number of shards: the product of the axes' sizes, if stages are equal. */
int mesh_size(const struct mesh *mesh);
/* The product of the axes' sizes: at most RT_MAX_RANKS in a mesh that is complete. */
int64_t mesh_product(const struct mesh *mesh);
/* The coordinate of the shard on each axis. */
void mesh_coordinate(const struct mesh *mesh, int shard, int coordinate[RT_MAX_AXES]);
/* The shard with these coordinates. */
int mesh_shard(const struct mesh *mesh, const int *coordinate);
/* The difference between the numbers of two shards of a stage that are neighbours along the axis: rt_mesh_stride. The
 * group of a shard along an axis, all shards with the same coordinates on the others, begins stride x coordinate before
 * it. */
int mesh_stride(const struct mesh *mesh, int axis, int stage);
/* An axis as users write it, such as "tensor=2", or "tensor=2@0-1" if stages 0 and 1 alone have it. */
const char *mesh_axis_text(const struct mesh *mesh, int axis, struct arena *arena);
/* rt_mesh_refused. */
const char *mesh_refused(const struct mesh *mesh);
/* The axis whose coordinate is the pipeline stage; -1 if the mesh has none. */
int mesh_pipeline_axis(const struct mesh *mesh);
/* The index of the axis of that name, replica axes included, or of that role; -1 if the mesh has none. */
int mesh_axis_by_name(const struct mesh *mesh, const char *name);
int mesh_axis(const struct mesh *mesh, enum axis_role role);

#endif
