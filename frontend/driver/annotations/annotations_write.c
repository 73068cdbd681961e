#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/driver/annotations/annotations.h"
#include "frontend/driver/job/job.h"
#include "frontend/read/onnx_splice.h"
#include "runtime/base/io/file.h"

enum { ANNOTATIONS_IR_VERSION = 11 };

struct writer {
    const struct annotations *annotations;
    struct onnx_model *model;
    struct arena *arena;
    struct map stages; /* value name -> stage of the node that computes it */
    struct map count;  /* node name -> nodes of that name */
};

/* A node of the model. */
struct described {
    const Onnx__NodeProto *node;
    const struct annotated_node *entry; /* NULL: rankc has no such node */
    int stage;                          /* -1: the mesh has no stages */
};

static struct onnx_message pack(struct arena *arena, const ProtobufCMessage *message) {
    const size_t count = protobuf_c_message_get_packed_size(message);
    unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, count + 1);
    protobuf_c_message_pack(message, bytes);
    return (struct onnx_message){bytes, count};
}

static Onnx__SimpleShardedDimProto *simple_dim(struct arena *arena, int64_t extent, int64_t shards) {
    Onnx__SimpleShardedDimProto *out = ARENA_NEW(arena, Onnx__SimpleShardedDimProto);
    onnx__simple_sharded_dim_proto__init(out);
    out->dim_case = ONNX__SIMPLE_SHARDED_DIM_PROTO__DIM_DIM_VALUE;
    out->dim_value = extent;
    out->has_num_shards = 1;
    out->num_shards = shards;
    return out;
}

/* The cuts [first, end) of one dimension. Nested cuts have the blocks and granules of the outermost one. */
static Onnx__ShardedDimProto *sharded_dim(const struct writer *w, const struct annotated_tensor *tensor, int first,
                                          int end) {
    Onnx__ShardedDimProto *out = ARENA_NEW(w->arena, Onnx__ShardedDimProto);
    const struct annotated_cut *cut = &tensor->cut[first];
    int64_t shards = 1;
    onnx__sharded_dim_proto__init(out);
    out->has_axis = 1;
    out->axis = cut->dim;
    out->simple_sharding = ARENA_ARRAY(w->arena, Onnx__SimpleShardedDimProto *, 3);
    for (int i = first; i < end; i++) shards *= w->annotations->mesh.axis[tensor->cut[i].axis].size;
    if (cut->blocks > 1) out->simple_sharding[out->n_simple_sharding++] = simple_dim(w->arena, cut->blocks, 1);
    out->simple_sharding[out->n_simple_sharding++] = simple_dim(w->arena, cut->pieces, shards);
    if (cut->grain > 1) out->simple_sharding[out->n_simple_sharding++] = simple_dim(w->arena, cut->grain, 1);
    return out;
}

/* Devices, or where several hold a shard, groups of them with the keys -1, -2 .. */
static void put_devices(const struct writer *w, const struct annotated_tensor *tensor, int coordinate,
                        Onnx__ShardingSpecProto *out) {
    const struct shard_devices devices = shard_devices_of(&w->annotations->mesh, coordinate, tensor, w->arena);
    out->device = ARENA_ARRAY(w->arena, int64_t, devices.shards);
    out->index_to_device_group_map = ARENA_ARRAY(w->arena, Onnx__IntIntListEntryProto *, devices.shards);
    for (int s = 0; s < devices.shards; s++) {
        const int *group = &devices.device[s * devices.group];
        out->device[out->n_device++] = devices.group == 1 ? *group : -1 - s;
        if (devices.group == 1) continue;
        Onnx__IntIntListEntryProto *entry = ARENA_NEW(w->arena, Onnx__IntIntListEntryProto);
        onnx__int_int_list_entry_proto__init(entry);
        entry->has_key = 1;
        entry->key = -1 - s;
        entry->value = ARENA_ARRAY(w->arena, int64_t, devices.group);
        for (int i = 0; i < devices.group; i++) entry->value[entry->n_value++] = group[i];
        out->index_to_device_group_map[out->n_index_to_device_group_map++] = entry;
    }
}

static Onnx__ShardingSpecProto *sharding_of(const struct writer *w, const struct annotated_tensor *tensor,
                                            int coordinate) {
    Onnx__ShardingSpecProto *out = ARENA_NEW(w->arena, Onnx__ShardingSpecProto);
    onnx__sharding_spec_proto__init(out);
    out->tensor_name = arena_strdup(w->arena, tensor->name);
    out->sharded_dim = ARENA_ARRAY(w->arena, Onnx__ShardedDimProto *, RT_MAX_AXES);
    for (int first = 0, end; first < tensor->ncuts; first = end) {
        for (end = first; end < tensor->ncuts && tensor->cut[end].dim == tensor->cut[first].dim;) end++;
        out->sharded_dim[out->n_sharded_dim++] = sharded_dim(w, tensor, first, end);
    }
    put_devices(w, tensor, coordinate, out);
    return out;
}

/* The stage of a node that rankc has none of is the last one that computes one of its inputs. */
static struct described describe(struct writer *w, const Onnx__NodeProto *node) {
    struct described out = {node, annotations_find(w->annotations, onnx_node_name(node, &w->count)), -1};
    if (mesh_pipeline_axis(&w->annotations->mesh) < 0) return out;
    out.stage = out.entry ? out.entry->stage : 0;
    for (size_t i = 0; i < node->n_input && !out.entry; i++) {
        const int of_input = map_find(&w->stages, onnx_text(node->input[i]));
        if (of_input > out.stage) out.stage = of_input;
    }
    for (size_t i = 0; i < node->n_output; i++) map_set(&w->stages, onnx_text(node->output[i]), out.stage);
    return out;
}

/* Lists the shardings of the tensors, once each. */
static void add_shardings(const struct writer *w, const struct annotated_node *entry, char **names, size_t n,
                          Onnx__NodeDeviceConfigurationProto *out) {
    for (size_t i = 0; i < n && entry; i++) {
        const struct annotated_tensor *tensor = annotated_tensor(entry, onnx_text(names[i]));
        bool listed = !tensor;
        for (size_t k = 0; k < out->n_sharding_spec && !listed; k++)
            listed = strcmp(out->sharding_spec[k]->tensor_name, names[i]) == 0;
        if (!listed) out->sharding_spec[out->n_sharding_spec++] = sharding_of(w, tensor, entry->coordinate);
    }
}

static struct onnx_message annotate_node(const struct writer *w, const struct described *of) {
    Onnx__NodeDeviceConfigurationProto out;
    onnx__node_device_configuration_proto__init(&out);
    out.configuration_id = ANNOTATIONS_CONFIGURATION;
    out.sharding_spec = ARENA_ARRAY(w->arena, Onnx__ShardingSpecProto *, of->node->n_input + of->node->n_output + 1);
    add_shardings(w, of->entry, of->node->input, of->node->n_input, &out);
    add_shardings(w, of->entry, of->node->output, of->node->n_output, &out);
    out.has_pipeline_stage = of->stage >= 0;
    out.pipeline_stage = of->stage;
    if (!out.n_sharding_spec && !out.has_pipeline_stage) return (struct onnx_message){0};
    return pack(w->arena, &out.base);
}

/* "input 1 split in dimension 0 along tensor (2)" */
static void note_splits(const struct writer *w, const struct annotated_node *entry, const char *what, char **names,
                        size_t n, struct strbuf *note) {
    const struct mesh *mesh = &w->annotations->mesh;
    for (size_t i = 0; i < n && entry; i++) {
        const struct annotated_tensor *tensor = annotated_tensor(entry, onnx_text(names[i]));
        for (int c = 0; tensor && c < tensor->ncuts; c++)
            strbuf_printf(note, "%s%s %d split in dimension %d along %s (%d)", note->length ? "; " : "", what, (int)i,
                          tensor->cut[c].dim, mesh->axis[tensor->cut[c].axis].name,
                          mesh->axis[tensor->cut[c].axis].size);
    }
}

/* The annotation of a node in words, as an entry of its metadata: viewers show that. */
static struct onnx_message note_node(const struct writer *w, const struct described *of) {
    Onnx__StringStringEntryProto out;
    struct strbuf note = {.arena = w->arena};
    note_splits(w, of->entry, "input", of->node->input, of->node->n_input, &note);
    note_splits(w, of->entry, "output", of->node->output, of->node->n_output, &note);
    if (!note.length) strbuf_puts(&note, "whole on every device");
    if (of->stage >= 0) strbuf_printf(&note, "; pipeline stage %d", of->stage);
    onnx__string_string_entry_proto__init(&out);
    out.key = ANNOTATIONS_CONFIGURATION;
    out.value = note.text;
    return pack(w->arena, &out.base);
}

static struct onnx_message configuration(const struct writer *w) {
    const int devices = mesh_size(&w->annotations->mesh);
    Onnx__DeviceConfigurationProto out;
    onnx__device_configuration_proto__init(&out);
    out.name = ANNOTATIONS_CONFIGURATION;
    out.has_num_devices = 1;
    out.num_devices = devices;
    out.device = ARENA_ARRAY(w->arena, char *, devices + 1);
    for (int d = 0; d < devices; d++)
        out.device[out.n_device++] = arena_strdup(w->arena, device_name(&w->annotations->mesh, d, w->arena));
    return pack(w->arena, &out.base);
}

static const char *directory_of(const char *path, struct arena *arena) {
    const char *slash = strrchr(path, '/');
    return slash ? arena_printf(arena, "%.*s", (int)(slash - path) + 1, path) : "./";
}

/* True if both exist and are the same file or directory. */
static bool is_same(const char *one, const char *other) {
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Copies a file of external data to the same place beside the new model, where locations are looked for. */
static int copy_data(const struct onnx_file *file, const char *to, struct diags *diags) {
    const struct rt_piece piece = {file->data, (size_t)file->bytes};
    const void *have;
    struct rt_file_info info;
    struct rt_reason why;
    if (access(to, F_OK) == 0) {
        if (!rt_file_map(to, &have, &info, &why)) return diag_refusal(diags, 601, EXIT_SYSTEM, "--onnx-out", &why);
        const bool equal = info.bytes == file->bytes && (!info.bytes || memcmp(have, file->data, piece.count) == 0);
        rt_file_unmap(have, info.bytes);
        if (equal) return 0;
        diag_error(diags, 201, EXIT_USAGE, "--onnx-out", "%s exists, and is not the model's", diag_quote(diags, to));
        return diag_help(diags, "write the file to another directory, or to that of the model");
    }
    if (!rt_file_write(to, &piece, 1, &why)) return diag_refusal(diags, 611, EXIT_SYSTEM, "--onnx-out", &why);
    diag_remark(diags, "--onnx-out", "weights of the model are copied to %s", diag_quote(diags, to));
    return 0;
}

/* Locations of external data are relative to the model: in another directory the new model has a copy. */
static int place_data(const struct onnx_model *model, const char *path, struct arena *arena, struct diags *diags) {
    const char *directory = directory_of(path, arena);
    if (is_same(path, model->path))
        return diag_error(diags, 201, EXIT_USAGE, "--onnx-out", "the file is the model itself");
    if (is_same(directory, directory_of(model->path, arena))) return 0;
    for (int i = 1; i < model->files.n; i++) {
        const struct onnx_file *file = &model->files.at[i];
        if (file->location && copy_data(file, arena_printf(arena, "%s%s", directory, file->location), diags) < 0)
            return -1;
    }
    return 0;
}

/* Writes the model to the file `path` with these annotations as CONFIGURATION, which replaces one of that name. All
 * other bytes stay as they are, but that ir_version is at least 11. External data is referenced as before; in another
 * directory it is copied.
 *   E0201   the file is the model, or a copy would overwrite another file
 *   E0611   it cannot be written */
static int annotations_write(const struct annotations *annotations, struct onnx_model *model, const char *path,
                             struct diags *diags) {
    const Onnx__GraphProto *graph = model->proto->graph;
    struct writer w = {.annotations = annotations, .model = model, .arena = model->arena};
    struct onnx_message *nodes = ARENA_ARRAY(w.arena, struct onnx_message, graph->n_node + 1),
                        *notes = ARENA_ARRAY(w.arena, struct onnx_message, graph->n_node + 1);
    if (place_data(model, path, w.arena, diags) < 0) return -1;
    map_init(&w.stages, w.arena);
    onnx_count_names(graph, w.arena, &w.count);
    for (size_t i = 0; i < graph->n_node; i++) {
        const int64_t at = onnx_node_index(model, graph->node[i], (int64_t)i);
        const struct described described = describe(&w, graph->node[i]);
        nodes[at] = annotate_node(&w, &described), notes[at] = note_node(&w, &described);
    }
    const struct onnx_splice splice = {.configuration = ANNOTATIONS_CONFIGURATION,
                                       .ir_version = ANNOTATIONS_IR_VERSION,
                                       .added = configuration(&w),
                                       .nodes = nodes,
                                       .notes = notes};
    return onnx_splice(model, &splice, path);
}

int annotations_write_plan(const struct options *options, struct arena *arena, struct diags *diags) {
    struct diags quiet = {.arena = arena};
    struct job job = {.options = options, .arena = arena, .diags = &quiet};
    int status = job_read(&job);
    if (!status && !job.model)
        return diag_error(diags, 201, EXIT_USAGE, "--onnx-out", "only an ONNX model can be written with its plan");
    if (!status && (job_ranks(&job) < 0 || job_read_training(&job) < 0)) status = -1;
    const struct pass_context context = job_pass_context(&job);
    if (!status) status = pipeline_run(job.graph, &context, pass_find("policy"));
    if (!status) {
        struct annotations annotations = {.place = job.model->place, .mesh = job.graph->mesh};
        diags_init(&quiet, arena); /* remarks of the plan have been said */
        annotations_of_graph(&annotations, job.graph, arena, &quiet);
        status = annotations_write(&annotations, job.model, options->onnx_out, &quiet);
    }
    diags_append(diags, &quiet);
    return status;
}
