/* Devices of shards, and names of devices. */
#include "frontend/driver/annotations/annotations.h"

#include "ir/base/str.h"

struct shard_devices shard_devices_of(const struct mesh *mesh, int coordinate, const struct annotated_tensor *tensor,
                                      struct arena *arena) {
    const int devices = mesh_size(mesh), pipeline = mesh_pipeline_axis(mesh);
    const int of_stage = pipeline < 0 ? devices : mesh_stride(mesh, pipeline, coordinate);
    struct shard_devices out = {.shards = 1, .device = ARENA_ARRAY(arena, int, devices + 1)};
    for (int i = 0; i < tensor->ncuts; i++) out.shards *= mesh->axis[tensor->cut[i].axis].size;
    out.group = of_stage / out.shards;
    int *filled = ARENA_ARRAY(arena, int, out.shards);
    for (int d = 0; d < devices; d++) {
        int at[RT_MAX_AXES], shard = 0;
        mesh_coordinate(mesh, d, at);
        if (pipeline >= 0 && at[pipeline] != coordinate) continue;
        for (int i = 0; i < tensor->ncuts; i++)
            shard = shard * mesh->axis[tensor->cut[i].axis].size + at[tensor->cut[i].axis];
        out.device[shard * out.group + filled[shard]++] = d;
    }
    return out;
}

const char *device_name(const struct mesh *mesh, int device, struct arena *arena) {
    int at[RT_MAX_AXES];
    struct strbuf text = {.arena = arena};
    mesh_coordinate(mesh, device, at);
    for (int a = 0; a < mesh->naxes; a++) strbuf_printf(&text, "%s%s=%d", a ? "," : "", mesh->axis[a].name, at[a]);
    return mesh->naxes ? strbuf_text(&text) : "0";
}
