/* ONNX multi-device annotations (onnx.proto, IR version 11): a plan written to a model, and read as constraints.
 *
 * DeviceConfigurationProto CONFIGURATION names a device after its mesh coordinates, such as "tensor=1,pipeline=0";
 * device numbers are ranks of a scale unit. ShardingSpecProto lists, for each shard in row-major order of the sharded
 * dimensions, the device that holds it, or the group of devices, whose key in index_to_device_group_map is negative. A
 * dimension that is cut in blocks or granules (Note [Cuts] in runtime/base/shape/part.h) has a SimpleShardedDimProto
 * for the blocks, one for the granules, of which there are num_shards, and one for the indices of a granule. A tensor
 * that is a partial sum, or whole, is held by all devices of the stage. pipeline_stage is set where the mesh has an
 * axis of that name.
 *
 * Functions return 0, or -1 after a diagnostic. */
#ifndef FRONTEND_DRIVER_ANNOTATIONS_ANNOTATIONS_H
#define FRONTEND_DRIVER_ANNOTATIONS_ANNOTATIONS_H

#include "frontend/options/options.h"
#include "frontend/read/onnx_read.h"
#include "passes/plan/file/annotations.h"

#define ANNOTATIONS_CONFIGURATION "rankc"

/* The annotations of configuration `name`; NULL: of the only one, else of CONFIGURATION. Names of axes are those in the
 * names of devices; without such names all devices of a stage are along axis "tensor".
 *   E0435   an annotation is malformed, or no mesh has such devices
 *   E0436   the model has no annotations, or no such configuration */
int annotations_read(struct annotations *annotations, struct onnx_model *model, const char *name, struct diags *diags);

/* The devices of a tensor's shards in row-major order, `group` devices for each, in order of their numbers.
 * `coordinate` is that on the pipeline axis; ignored without such an axis. */
struct shard_devices {
    int shards, group, *device; /* device[shard * group + i] */
};
struct shard_devices shard_devices_of(const struct mesh *mesh, int coordinate, const struct annotated_tensor *tensor,
                                      struct arena *arena);

/* The name of a device, such as "tensor=1,pipeline=0"; "0" where the mesh has no axes. */
const char *device_name(const struct mesh *mesh, int device, struct arena *arena);

/* --onnx-out: plans the model again as the options say and writes it with the plan. */
int annotations_write_plan(const struct options *options, struct arena *arena, struct diags *diags);

#endif
