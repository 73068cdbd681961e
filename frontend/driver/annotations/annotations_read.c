#include <stdlib.h>
#include <string.h>

#include "frontend/driver/annotations/annotations.h"
#include "ir/base/map.h"

enum { MOST_ERRORS = 20, MOST_NAME = 40 /* of an axis */ };

struct reader {
    struct annotations *annotations;
    struct onnx_model *model;
    const Onnx__DeviceConfigurationProto *configuration;
    struct diags *diags;
    const char *where; /* the node */
};

static const Onnx__DeviceConfigurationProto *find_configuration(const Onnx__ModelProto *proto, const char *name) {
    if (!name && proto->n_configuration == 1) return proto->configuration[0];
    for (size_t i = 0; i < proto->n_configuration; i++)
        if (strcmp(onnx_text(proto->configuration[i]->name), name ? name : ANNOTATIONS_CONFIGURATION) == 0)
            return proto->configuration[i];
    return NULL;
}

static int refuse_model(const struct reader *r, const char *name) {
    const Onnx__ModelProto *proto = r->model->proto;
    if (!proto->n_configuration) {
        diag_error(r->diags, 436, EXIT_MISMATCH, r->model->place, "the model has no multi-device annotations");
        return diag_help(r->diags,
                         "rankc compile --onnx-out writes a model with them; or choose another policy with --pas");
    }
    diag_error(r->diags, 436, EXIT_MISMATCH, r->model->place, "the model has no device configuration %s",
               diag_quote(r->diags, name ? name : ANNOTATIONS_CONFIGURATION));
    for (size_t i = 0; i < proto->n_configuration && i < 8; i++)
        diag_note(r->diags, "it has %s", diag_quote(r->diags, onnx_text(proto->configuration[i]->name)));
    return diag_help(r->diags, "choose one with --pas annotated:config=NAME");
}

static int refuse_mesh(const struct reader *r, const char *why) {
    diag_error(r->diags, 435, EXIT_MALFORMED, r->annotations->place, "%s", why);
    return diag_help(
        r->diags, "name devices by their coordinates, such as \"tensor=0,pipeline=1\"; the first axis is the fastest");
}

/* Reads "NAME=COORDINATE,..": adds axes that the mesh lacks, with size 1. False: it is no such name. */
static bool read_name(const char *name, struct mesh *mesh, int at[RT_MAX_AXES], struct arena *arena) {
    for (char *text = arena_strdup(arena, name), *next; text; text = next) {
        char *equals = strchr(text, '='), *end = text;
        if ((next = strchr(text, ','))) *next++ = 0;
        const bool digits = equals > text && equals <= text + MOST_NAME && equals[1] >= '0' && equals[1] <= '9';
        const long coordinate = digits ? strtol(equals + 1, &end, 10) : RT_MAX_RANKS;
        if (coordinate >= RT_MAX_RANKS || *end) return false;
        *equals = 0;
        if (mesh_axis_by_name(mesh, text) < 0 && mesh_take_axis(mesh, text, &(struct rt_mesh_axis){.size = 1}))
            return false;
        at[mesh_axis_by_name(mesh, text)] = (int)coordinate;
    }
    return true;
}

/* The mesh that names of devices say, the last of which is of the last stage. An axis belongs to the stages in which
 * coordinates on it are above 0. False: they say none. */
static bool mesh_of_names(const struct reader *r, struct mesh *mesh) {
    const Onnx__DeviceConfigurationProto *configuration = r->configuration;
    struct arena *arena = r->model->arena;
    const size_t n = configuration->n_device;
    *mesh = (struct mesh){0};
    bool all = n && n == (size_t)configuration->num_devices;
    for (size_t d = n; d-- > 0 && all;) {
        int at[RT_MAX_AXES] = {0};
        int64_t product = 1;
        all = read_name(configuration->device[d], mesh, at, arena);
        const int pipeline = mesh_pipeline_axis(mesh), stage = pipeline < 0 ? 0 : at[pipeline];
        for (int a = 0; a < mesh->naxes && all; a++) {
            struct mesh_axis *axis = &mesh->axis[a];
            if (at[a] >= axis->size) axis->size = at[a] + 1;
            if (at[a] && (!axis->end || stage < axis->first)) axis->first = stage;
            if (at[a] && stage >= axis->end) axis->end = stage + 1;
            all = (product *= axis->size) <= RT_MAX_RANKS;
        }
    }
    const int pipeline = mesh_pipeline_axis(mesh), stages = pipeline < 0 ? 1 : mesh->axis[pipeline].size;
    for (int a = 0; a < mesh->naxes; a++)
        if (a == pipeline || mesh->axis[a].end - mesh->axis[a].first == stages)
            mesh->axis[a].first = mesh->axis[a].end = 0;
    all = all && !mesh_refused(mesh) && (size_t)mesh_size(mesh) == n;
    for (size_t d = 0; d < n && all; d++) all = strcmp(configuration->device[d], device_name(mesh, (int)d, arena)) == 0;
    return all;
}

static const Onnx__NodeDeviceConfigurationProto *annotation_of(const struct reader *r, const Onnx__NodeProto *node) {
    for (size_t i = 0; i < node->n_device_configurations; i++)
        if (strcmp(onnx_text(node->device_configurations[i]->configuration_id), onnx_text(r->configuration->name)) == 0)
            return node->device_configurations[i];
    return NULL;
}

/* Without names: devices of axis "tensor" in each of the stages that nodes have. */
static int default_mesh(const struct reader *r, struct mesh *mesh) {
    const Onnx__GraphProto *graph = r->model->proto->graph;
    const int devices = r->configuration->num_devices;
    int stages = 1;
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeDeviceConfigurationProto *node = annotation_of(r, graph->node[i]);
        if (node && node->has_pipeline_stage && node->pipeline_stage >= stages)
            stages = node->pipeline_stage < RT_MAX_RANKS ? node->pipeline_stage + 1 : RT_MAX_RANKS;
    }
    if (devices % stages) return refuse_mesh(r, "its devices do not divide among its pipeline stages");
    *mesh = (struct mesh){0};
    mesh_add_axis(mesh, axis_rows[AXIS_TENSOR].name, &(struct rt_mesh_axis){.size = devices / stages});
    if (stages > 1) mesh_add_axis(mesh, axis_rows[AXIS_PIPELINE].name, &(struct rt_mesh_axis){.size = stages});
    return 0;
}

static int read_mesh(struct reader *r) {
    struct mesh *mesh = &r->annotations->mesh;
    if (!r->configuration->has_num_devices || r->configuration->num_devices < 1 ||
        r->configuration->num_devices > RT_MAX_RANKS)
        return refuse_mesh(r, arena_printf(r->model->arena, "num_devices must be from 1 to %d", RT_MAX_RANKS));
    return mesh_of_names(r, mesh) ? 0 : default_mesh(r, mesh);
}

static int refuse(const struct reader *r, const Onnx__ShardingSpecProto *spec, const char *why) {
    diag_error(r->diags, 435, EXIT_MALFORMED, r->where, "the sharding of %s %s",
               diag_quote(r->diags, onnx_text(spec->tensor_name)), why);
    return diag_note(r->diags, "annotated in %s", r->annotations->place);
}

/* A sharded dimension before its shards are given to mesh axes. */
struct shards {
    int dim;
    int64_t ways, blocks, pieces, grain;
};

/* The shards of a dimension: one of the simple shardings divides; those before it are blocks, those behind it are the
 * indices of a piece. */
static int read_dim(const struct reader *r, const Onnx__ShardingSpecProto *spec, const Onnx__ShardedDimProto *dim,
                    struct shards *out) {
    const bool alone = dim->n_simple_sharding == 1;
    *out = (struct shards){.ways = 1, .blocks = 1, .grain = 1};
    if (!dim->has_axis || dim->axis < -RT_MAX_NDIM || dim->axis >= RT_MAX_NDIM) return refuse(r, spec, "needs an axis");
    out->dim = (int)dim->axis;
    for (size_t i = 0; i < dim->n_simple_sharding; i++) {
        const Onnx__SimpleShardedDimProto *simple = dim->simple_sharding[i];
        const bool known = simple->dim_case == ONNX__SIMPLE_SHARDED_DIM_PROTO__DIM_DIM_VALUE;
        const int64_t extent = known ? simple->dim_value : 0;
        if (simple->num_shards < 1 || simple->num_shards > RT_MAX_RANKS)
            return refuse(r, spec, "needs num_shards of at least 1");
        if ((known || !alone) && (extent < 1 || extent > INT32_MAX))
            return refuse(r, spec, "needs a dim_value of at least 1");
        if (simple->num_shards > 1 && out->ways > 1) return refuse(r, spec, "divides several parts of one axis");
        if (simple->num_shards > 1) {
            out->blocks = out->grain;
            out->grain = 1;
            out->ways = simple->num_shards, out->pieces = extent;
        } else if (__builtin_mul_overflow(out->grain, known ? extent : 1, &out->grain))
            return refuse(r, spec, "has a dim_value that is too large");
    }
    return 0;
}

/* The group of devices that `key` means, in ascending order: their number, or -1 if one is no device. */
static int group_of(const struct reader *r, const Onnx__ShardingSpecProto *spec, int64_t key, bool *in) {
    const int devices = r->configuration->num_devices;
    int n = 0;
    memset(in, 0, (size_t)devices * sizeof *in);
    for (size_t i = 0; i < spec->n_index_to_device_group_map; i++) {
        const Onnx__IntIntListEntryProto *entry = spec->index_to_device_group_map[i];
        for (size_t k = 0; entry->key == key && k < entry->n_value; k++) {
            if (entry->value[k] < 0 || entry->value[k] >= devices) return -1;
            n += !in[entry->value[k]];
            in[entry->value[k]] = true;
        }
        if (entry->key == key) return n;
    }
    if (key < 0 || key >= devices) return -1;
    in[key] = true;
    return 1;
}

/* True if the devices of the annotation are those of the tensor's cuts. */
static bool has_devices(const struct reader *r, const Onnx__ShardingSpecProto *spec, int coordinate,
                        const struct annotated_tensor *tensor) {
    struct arena *arena = arena_scratch(r->model->arena);
    const struct shard_devices wanted = shard_devices_of(&r->annotations->mesh, coordinate, tensor, arena);
    bool *in = ARENA_ARRAY(arena, bool, r->configuration->num_devices), same = true;
    if (wanted.shards == 1 && spec->n_device == (size_t)wanted.group && wanted.group > 1) /* a list, without a group */
        for (int i = 0; i < wanted.group && same; i++) same = spec->device[i] == wanted.device[i];
    else {
        same = (size_t)wanted.shards == spec->n_device;
        for (int s = 0; s < wanted.shards && same; s++) {
            same = group_of(r, spec, spec->device[s], in) == wanted.group;
            for (int i = 0; i < wanted.group && same; i++) same = in[wanted.device[s * wanted.group + i]];
        }
    }
    arena_release(r->model->arena, arena);
    return same;
}

/* Gives the shards of dims [0, n) to mesh axes, so that the devices are those of the annotation. `left`: shards of dim
 * `at` that axes have not been given to yet. Depth is at most the number of axes and dimensions. */
static bool assign_axes(const struct reader *r, const Onnx__ShardingSpecProto *spec, int coordinate,
                        const struct shards *shards, int n, int at, int64_t left, struct annotated_tensor *tensor) {
    const struct mesh *mesh = &r->annotations->mesh;
    if (left == 1 && at + 1 < n)
        return assign_axes(r, spec, coordinate, shards, n, at + 1, shards[at + 1].ways, tensor);
    if (left == 1) return !spec->n_device || has_devices(r, spec, coordinate, tensor);
    for (int axis = 0; axis < mesh->naxes; axis++) {
        bool used = axis == mesh_pipeline_axis(mesh) || mesh->axis[axis].size == 1 || left % mesh->axis[axis].size ||
                    !mesh_has(mesh, axis, coordinate);
        for (int i = 0; i < tensor->ncuts; i++) used = used || tensor->cut[i].axis == axis;
        if (used) continue;
        tensor->cut[tensor->ncuts++] =
            (struct annotated_cut){axis, shards[at].dim, shards[at].blocks, shards[at].pieces, shards[at].grain};
        if (assign_axes(r, spec, coordinate, shards, n, at, left / mesh->axis[axis].size, tensor)) return true;
        tensor->ncuts--;
    }
    return false;
}

/* The coordinate on the pipeline axis of the first device; 0 without such an axis, -1 if there is no such device. */
static int coordinate_of(const struct reader *r, const Onnx__ShardingSpecProto *spec, int stage) {
    const struct mesh *mesh = &r->annotations->mesh;
    const int devices = r->configuration->num_devices, axis = mesh_pipeline_axis(mesh);
    struct arena *arena = r->model->arena;
    bool *in = ARENA_ARRAY(arena, bool, devices);
    int first = 0, at[RT_MAX_AXES];
    if (axis < 0) return 0;
    if (!spec->n_device) return stage < 0 ? 0 : stage % mesh->axis[axis].size;
    if (group_of(r, spec, spec->device[0], in) < 1) return -1;
    while (!in[first]) first++;
    mesh_coordinate(mesh, first, at);
    return at[axis];
}

/* The sharding of a tensor that the node reads or computes. */
static int read_tensor(const struct reader *r, const Onnx__ShardingSpecProto *spec, struct annotated_node *node) {
    struct shards shards[RT_MAX_NDIM];
    struct annotated_tensor tensor = {.name = onnx_text(spec->tensor_name)};
    int n = 0;
    for (size_t i = 0; i < spec->n_sharded_dim; i++) {
        if (n == RT_MAX_NDIM) return refuse(r, spec, "has too many axes");
        if (read_dim(r, spec, spec->sharded_dim[i], &shards[n]) < 0) return -1;
        for (int k = 0; k < n; k++)
            if (shards[k].dim == shards[n].dim) return refuse(r, spec, "has an axis twice");
        if (shards[n].ways > 1) n++;
    }
    const int coordinate = coordinate_of(r, spec, node->stage);
    if (coordinate < 0) return refuse(r, spec, "names a device that the configuration does not have");
    if (spec->n_device && node->coordinate >= 0 && node->coordinate != coordinate)
        return refuse(r, spec, "names devices of another pipeline stage than those of the node's other tensors");
    if (!(n ? assign_axes(r, spec, coordinate, shards, n, 0, shards[0].ways, &tensor)
            : !spec->n_device || has_devices(r, spec, coordinate, &tensor)))
        return refuse(r, spec, "has shards or devices that are not those of mesh axes");
    if (spec->n_device && mesh_pipeline_axis(&r->annotations->mesh) >= 0) node->coordinate = coordinate;
    VEC_PUSH(r->model->arena, &node->tensors, tensor);
    return 0;
}

static bool has_value(const Onnx__NodeProto *node, const char *name) {
    bool found = false;
    for (size_t i = 0; i < node->n_input && !found; i++) found = strcmp(onnx_text(node->input[i]), name) == 0;
    for (size_t i = 0; i < node->n_output && !found; i++) found = strcmp(onnx_text(node->output[i]), name) == 0;
    return found && *name;
}

/* Names of values and nodes are those of the model's tree, which the arena owns. */
static int read_node(struct reader *r, const Onnx__NodeProto *proto, const char *name) {
    const Onnx__NodeDeviceConfigurationProto *given = annotation_of(r, proto);
    if (!given) return 0;
    struct annotated_node *node = annotations_node(r->annotations, name, r->model->arena);
    if (given->has_pipeline_stage) node->stage = given->pipeline_stage;
    if (given->has_pipeline_stage && node->stage < 0)
        return diag_error(r->diags, 435, EXIT_MALFORMED, r->where, "the node has the pipeline stage %d", node->stage);
    for (size_t i = 0; i < given->n_sharding_spec; i++) {
        const Onnx__ShardingSpecProto *spec = given->sharding_spec[i];
        if (!has_value(proto, onnx_text(spec->tensor_name)))
            return refuse(r, spec, "is of no input or output of the node");
        if (read_tensor(r, spec, node) < 0) return -1;
    }
    return 0;
}

int annotations_read(struct annotations *annotations, struct onnx_model *model, const char *name, struct diags *diags) {
    const Onnx__GraphProto *graph = model->proto->graph;
    struct reader r = {.annotations = annotations, .model = model, .diags = diags};
    struct map count;
    const int before = diags->errors;
    *annotations = (struct annotations){.place = model->place};
    r.configuration = find_configuration(model->proto, name);
    if (!r.configuration) return refuse_model(&r, name);
    annotations->place = arena_printf(model->arena, "%s: device configuration %s", model->place,
                                      diag_quote(diags, onnx_text(r.configuration->name)));
    if (read_mesh(&r) < 0) return -1;
    onnx_count_names(graph, model->arena, &count);
    for (size_t i = 0; i < graph->n_node && diags->errors < before + MOST_ERRORS; i++) {
        r.where = onnx_where_node(model, graph->node[i], (int64_t)i);
        read_node(&r, graph->node[i], onnx_node_name(graph->node[i], &count));
    }
    return diags->errors == before ? 0 : -1;
}
