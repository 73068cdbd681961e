#include "codegen/program.h"

#include <ctype.h>
#include <string.h>

#include "codegen/text/layout.h"
#include "codegen/text/names.h"
#include "codegen/call/ports.h"
#include "codegen/source.h"
#include "codegen/remarks.h"
#include "codegen/slices.h"
#include "codegen/files.h"
#include "codegen/step.h"
#include "codegen/text/tmpl.h"
#include "ir/base/str.h"
#include "passes/train/lora.h"

enum { ID_DIGITS = 8 }; /* of the key, that tell the model.h of one program from those of others */

static const char *list_of(struct arena *arena, const int64_t *values, int n) {
    struct strbuf out = {.arena = arena};
    for (int i = 0; i < n; i++) strbuf_printf(&out, "%s%lld", i ? ", " : "", (long long)values[i]);
    return n ? strbuf_text(&out) : "0";
}

/* True if functions with this prefix exist elsewhere: in the runtime, or shm_open() .. in the C library. */
static bool is_taken_prefix(const char *prefix) {
    static const char *const taken[] = {"mq", "rt", "sem", "shm"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(prefix, taken[i]) == 0) return true;
    return strncmp(prefix, "rt_", 3) == 0;
}

/* Model and instance as a prefix of C identifiers: "gpt2", or "gpt2_fast" for instance "fast". */
static const char *prefix_of(struct arena *arena, const struct program_info *info) {
    bool named = strcmp(info->instance, "_") != 0;
    char *text = arena_printf(arena, "%s%s%s", info->model, named ? "_" : "", named ? info->instance : "");
    for (char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    const bool fits = isalpha((unsigned char)*text) && !is_taken_prefix(text);
    return fits ? text : arena_printf(arena, "model_%s", text);
}

/* True if the ranks along a replica axis have values of their own. */
static bool is_own(const struct graph *graph, const struct tensor *tensor) {
    for (int axis = graph->mesh.naxes; axis < mesh_layout_axes(&graph->mesh); axis++)
        if (layout_along(&tensor->layout, axis).kind == PLACED_OWN) return true;
    return false;
}

static void bind_splits(struct tmpl_env *env, const struct graph *graph, const struct tensor *tensor) {
    int n = 0;
    struct strbuf out = {.arena = graph->arena};
    EACH(tensor->layout.cuts, tensor->layout.ncuts, c, const struct cut *cut) {
        if (cut->placement.kind != PLACED_PART) continue;
        strbuf_printf(&out, "%s{%d, %d, %lld, %lld}", n++ ? ", " : "", cut->placement.dim, cut->axis,
                      (long long)cut->placement.blocks, (long long)cut->placement.grain);
    }
    tmpl_setf(env, "nsplits", "%d", n);
    tmpl_setf(env, "flat", "0x%x", tensor_slices(tensor));
    tmpl_set(env, "splits", n ? strbuf_text(&out) : "0");
}

/* --init: initial values that replace the stored ones. */
static void bind_init(struct tmpl_env *env, const struct graph *graph, const struct training *training,
                      const struct tensor *tensor) {
    const bool made = rt_dtype_is_float(tensor->dtype) && !tensor->constant;
    const struct init_rule *rule = made ? lora_init_of(training, graph, tensor) : NULL;
    if (!rule) {
        tmpl_set(env, "init", "0"); /* RT_INIT_STORED */
        return;
    }
    const struct init_values values = init_values_of(rule, tensor, graph->arena);
    tmpl_setf(env, "init", "%s, %.17g, %.17g, 0x%llx", rule->row->kind, values.a, values.b,
              (unsigned long long)values.key);
}

/* Binds where the runtime loads the tensor from: file and offset, or the slices listed in manifest.json. */
static void bind_place(struct tmpl_env *env, const struct program_info *info, const struct tensor *tensor,
                       size_t constants) {
    const bool constant = tensor->kind == TENSOR_CONST;
    const unsigned long long offset = constant ? constants : tensor->stored.offset;
    if (info->copies) {
        tmpl_set(env, "file", "RT_SLICES");
        tmpl_set(env, "offset", "0");
        return;
    }
    const int file = tensor->stored.file < 0 ? 0 : tensor->stored.file; /* < 0: it has an initial value of its own */
    tmpl_setf(env, "file", "%d", constant ? info->nfiles : file);
    tmpl_setf(env, "offset", "%llu", offset);
}

/* Binds the type of the stored elements, and how the weight is made of them. Slices are as the rank needs them. */
static void bind_coding(struct tmpl_env *env, const struct program_info *info, const struct tensor *tensor) {
    const struct rt_coding *coding = &tensor->stored.coding;
    const bool stored = tensor->kind != TENSOR_CONST && !info->copies;
    tmpl_set(env, "stored", dtype_ids[stored ? tensor->stored.dtype : slices_dtype(tensor)]);
    if (stored && rt_coding_is_code(coding))
        tmpl_setf(env, "coding", ".coding = {%s, %d, %lld, %s}, ", coding->makes == RT_CODES ? "RT_CODES" : "RT_SCALES",
                  coding->bits, (long long)coding->group, coding->turned ? "true" : "false");
    else
        tmpl_set(env, "coding", "");
}

/* The tensor's name as a comment; a name that could end one, or that is no plain text, is left out. */
static void bind_name(struct tmpl_env *env, const struct tensor *tensor) {
    tmpl_setf(env, "name", "%s%s", str_is_plain(tensor->name) ? "  // " : "",
              str_is_plain(tensor->name) ? tensor->name : "");
}

/* Binds every tensor that is loaded, and collects constants into one file, in order and aligned. True if there are
 * constants, even if they have no elements. */
static bool bind_weights(struct tmpl_env *env, const struct rankplan *plan, const struct program_info *info,
                         struct strbuf *constants) {
    static const char *const packings[] = {[RT_PLAIN] = "0",
                                           [RT_PACK_ROWS] = "RT_PACK_ROWS",
                                           [RT_PACK_COLUMNS] = "RT_PACK_COLUMNS",
                                           [RT_PACK_WINDOWS] = "RT_PACK_WINDOWS",
                                           [RT_PACK_WINOGRAD] = "RT_PACK_WINOGRAD"};
    const struct graph *graph = plan->graph;
    const struct lora_sets *sets = &info->adapters;
    bool any = sets->n && !info->copies, *trained = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    if (any) strbuf_add(constants, (const char *)sets->bytes, (size_t)(sets->n * sets->stride));
    for (int i = 0; i < graph->updates.n; i++) trained[graph->updates.at[i].weight] = true;
    tmpl_list(env, "weights");
    for (int i = 0; i < plan->weights.n; i++) {
        const struct tensor *tensor = &graph->tensors.at[plan->weights.at[i]];
        struct tmpl_env *weight = tmpl_entry(env, "weights");
        bool constant = tensor->kind == TENSOR_CONST;
        while (constant && !info->copies && constants->length % CONSTANTS_ALIGNMENT) strbuf_putc(constants, 0);
        bind_place(weight, info, tensor, constants->length);
        bind_coding(weight, info, tensor);
        tmpl_set(weight, "dtype", dtype_ids[tensor->dtype]);
        tmpl_setf(weight, "ndim", "%d", tensor->ndim);
        tmpl_set(weight, "dims", list_of(graph->arena, tensor->dims, tensor->ndim));
        tmpl_set(weight, "packing", packings[plan->packing[plan->weights.at[i]]]);
        tmpl_set(weight, "trained", trained[plan->weights.at[i]] ? "true" : "false");
        tmpl_set(weight, "own", is_own(graph, tensor) ? "true" : "false");
        tmpl_set(weight, "adapter", info->adapters.n && tensor->mark == MARK_ADAPTER ? ", .adapter = true" : "");
        bind_splits(weight, graph, tensor);
        bind_name(weight, tensor);
        bind_init(weight, graph, constant ? NULL : info->training, tensor);
        if (constant && !info->copies) strbuf_add(constants, tensor->data, (size_t)tensor_bytes(tensor));
        any = any || (constant && !info->copies);
    }
    tmpl_setf(env, "nweights", "%d", plan->weights.n);
    return any;
}

static void bind_states(struct tmpl_env *env, const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    tmpl_set(env, "keeps", plan->states.n && !graph_trains(graph) ? "yes" : "");
    tmpl_list(env, "states");
    for (int i = 0; i < plan->states.n; i++) {
        const struct tensor *tensor = &graph->tensors.at[plan->states.at[i]];
        struct tmpl_env *state = tmpl_entry(env, "states");
        tmpl_set(state, "dtype", dtype_ids[tensor->dtype]);
        tmpl_setf(state, "ndim", "%d", tensor->ndim);
        tmpl_set(state, "dims", list_of(graph->arena, tensor->dims, tensor->ndim));
        bind_splits(state, graph, tensor);
        bind_name(state, tensor);
    }
    tmpl_setf(env, "nstates", "%d", plan->states.n);
}

/* The chunk of the class that computes the tensor, by the class' own numbers. */
static int chunk_of(const struct rankplan *plan, const struct rank_class *class, int tensor) {
    const int producer = plan->graph->tensors.at[tensor].producer;
    for (int c = 0; c < class->nchunks && producer >= 0; c++)
        if (class->chunks[c] == plan->graph->nodes.at[producer].stage) return c;
    return 0;
}

/* The initial values of a struct rt_place. */
static const char *place_text(struct arena *arena, const struct plan_place *place, int chunk) {
    return arena_printf(arena, "{.arena = %s, .offset = %lld, .stride = %lld, .set = %d, .chunk = %d}",
                        plan_arena_enumerators[place->arena], (long long)place->offset, (long long)place->stride,
                        place->set, chunk);
}

static const char *places(const struct rankplan *plan, const struct rank_class *class, bool inputs, int n,
                          const int *tensors) {
    struct strbuf out = {.arena = plan->graph->arena};
    for (int i = 0; i < n; i++) {
        const struct plan_place *place = &class->place[tensors[i]];
        bool given = inputs && place->arena == RT_CALLER; /* read in the caller's memory, not copied */
        strbuf_puts(&out, i ? ", " : "");
        if (place->offset < 0 || given)
            strbuf_printf(&out, "{.arena = %s, .offset = RT_ABSENT}", given ? "RT_CALLER" : "RT_ACTIVATIONS");
        else
            strbuf_puts(&out, place_text(plan->graph->arena, place, inputs ? 0 : chunk_of(plan, class, tensors[i])));
    }
    return n ? strbuf_text(&out) : "{0}";
}

static const char *offsets_of(const struct rankplan *plan, const struct rank_class *class, int n, const int *tensors) {
    struct strbuf out = {.arena = plan->graph->arena};
    for (int i = 0; i < n; i++) {
        int64_t offset = class->place[tensors[i]].offset;
        strbuf_puts(&out, i ? ", " : "");
        if (offset < 0)
            strbuf_puts(&out, "RT_ABSENT");
        else
            strbuf_printf(&out, "%lld", (long long)offset);
    }
    return n ? strbuf_text(&out) : "0";
}

/* The ranks of the classes, numbered within a scale unit, as "ranks 0, 1". */
static const char *ranks_text(const struct rankplan *plan, int nclasses, const int *classes) {
    int n = 0, shards = mesh_size(&plan->graph->mesh);
    struct strbuf out = {.arena = plan->graph->arena};
    for (int s = 0; s < shards; s++)
        for (int c = 0; c < nclasses; c++)
            if (rankplan_class_of(plan, s) == classes[c]) strbuf_printf(&out, "%s%d", n++ ? ", " : "", s);
    return arena_printf(plan->graph->arena, "rank%s %s", n == 1 ? "" : "s", strbuf_text(&out));
}

/* "PHASE_FORWARD". */
static const char *phase_id(struct arena *arena, enum phase phase) {
    char *id = arena_printf(arena, "PHASE_%s", phase_names[phase]);
    for (char *c = id; *c; c++) *c = (char)toupper((unsigned char)*c);
    return id;
}

/* Binds the rank's ends of the transfers between chunks. `numbers`: sources->numbers. */
static void bind_transfers(struct tmpl_env *env, const struct rankplan *plan, const struct rank_class *class,
                           const int *numbers, struct extents *extents) {
    const struct graph *graph = plan->graph;
    const struct transfer_ends ends = plan->ends[class->coordinate];
    int *position = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);
    for (int i = 0; i < graph->order.n; i++) position[graph->order.at[i]] = i;
    tmpl_set(env, "transfers_any", ends.all.n ? "yes" : "");
    tmpl_list(env, "transfers");
    VEC_EACH(&ends.all, e, const struct transfer_end *end) {
        const struct node *node = &graph->nodes.at[end->node];
        const int tensor = end->sends ? node->inputs[0] : node->outputs[0];
        struct tmpl_env *entry = tmpl_entry(env, "transfers");
        tmpl_set(entry, "sends", end->sends ? "true" : "false");
        tmpl_set(entry, "phase", phase_id(graph->arena, node->phase));
        tmpl_setf(entry, "chunk", "%d", schedule_number(graph, end->owner));
        tmpl_set(entry, "place", places(plan, class, false, 1, &tensor));
        tmpl_setf(entry, "transfer", "%d", e);
        tmpl_set(entry, "way", step_transfer(graph, 1, end));
        tmpl_set(entry, "bytes", extents_entry(extents, graph->arena, rankplan_bytes(class, graph, tensor)));
        tmpl_setf(entry, "peer", "%d", schedule_home(graph, (int)attr_int(node, end->sends ? "to" : "from", 0)));
        tmpl_setf(entry, "instruction", "%d", numbers[position[end->node]]);
    }
    tmpl_setf(env, "ntransfers", "%d", ends.all.n);
}

/* The initial values of the table of slots: "2, 1, [RT_MAX_CHUNKS] = 1, 1". */
static const char *slots_text(struct arena *arena, const struct schedule *schedule) {
    struct strbuf out = {.arena = arena};
    for (int kind = 0; kind < RT_SLOT_KINDS && schedule->shape.slots[rt_slot_set((enum rt_slot_kind)kind, 0)]; kind++) {
        const int *slots = schedule->shape.slots + rt_slot_set((enum rt_slot_kind)kind, 0);
        if (kind) strbuf_printf(&out, ", [%d * RT_MAX_CHUNKS] = ", kind);
        for (int c = 0; c < schedule->shape.nchunks; c++) strbuf_printf(&out, "%s%d", c ? ", " : "", slots[c]);
    }
    return strbuf_text(&out);
}

/* Binds the table of segments and the shape of the schedule. */
static void bind_schedule(struct tmpl_env *env, const struct graph *graph, const struct rank_class *class, int source) {
    const struct schedule *schedule = class->schedule;
    tmpl_list(env, "segments");
    for (int s = 0; s < class->nsegments; s++) {
        const struct segment *segment = &graph->segments.at[class->segments[s]];
        struct tmpl_env *entry = tmpl_entry(env, "segments");
        tmpl_set(entry, "segment", step_segment(graph, segment));
        tmpl_set(entry, "phase", phase_id(graph->arena, segment->phase));
        tmpl_setf(entry, "chunk", "%d", schedule_number(graph, segment->chunk));
        tmpl_set(entry, "function", source_function(graph, segment, source));
    }
    tmpl_setf(env, "micro_batches", "%d", schedule->shape.micro_batches);
    tmpl_set(env, "repeats", schedule->shape.repeats ? "true" : "false");
    tmpl_set(env, "step_function", step_function(graph, class->coordinate));
    tmpl_setf(env, "nchunks", "%d", schedule->shape.nchunks);
    tmpl_set(env, "slots", slots_text(graph->arena, schedule));
}

/* Binds the caches to which steps add rows. */
static void bind_growing(struct tmpl_env *env, const struct rankplan *plan, const struct rank_class *class,
                         struct extents *extents) {
    const struct graph *graph = plan->graph;
    int n = 0;
    tmpl_list(env, "growing");
    VEC_EACH(&graph->updates, u, const struct update *update) {
        const struct node *append = made_by(graph, update->value, OP_Append);
        if (!append || class->place[update->weight].offset < 0 || graph_trains(graph)) continue;
        const struct tensor *state = &graph->tensors.at[update->weight];
        const int axis = (int)attr_int(append, "axis", 0);
        const int64_t *dims = class->dims[update->weight];
        int64_t blocks = 1, row = (int64_t)rt_dtype_bytes(state->dtype);
        for (int d = 0; d < axis; d++) blocks *= dims[d];
        for (int d = axis + 1; d < state->ndim; d++) row *= dims[d];
        struct tmpl_env *entry = tmpl_entry(env, "growing");
        tmpl_setf(entry, "offset", "%lld", (long long)class->place[update->weight].offset);
        tmpl_set(entry, "blocks", extents_entry(extents, graph->arena, blocks));
        tmpl_set(entry, "block", extents_entry(extents, graph->arena, dims[axis] * row));
        tmpl_set(entry, "row", extents_entry(extents, graph->arena, row));
        n++;
    }
    tmpl_set(env, "grows", n ? "yes" : "");
    tmpl_setf(env, "ngrowing", "%d", n);
}

/* The enumerators of the segments: those of the class with the most. The first of them are those of the others. */
static const char *segments_text(const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    const struct rank_class *class = &plan->classes[0];
    for (int c = 0; c < plan->nclasses; c++)
        if (plan->classes[c].nsegments > class->nsegments) class = &plan->classes[c];
    struct strbuf out = {.arena = graph->arena};
    for (int s = 0; s < class->nsegments; s++)
        strbuf_printf(&out, "%s%s", s ? ", " : "", step_segment(graph, &graph->segments.at[class->segments[s]]));
    return strbuf_text(&out);
}

static void bind_classes(struct tmpl_env *env, const struct rankplan *plan, const struct sources *sources,
                         struct extents *extents) {
    struct graph *graph = plan->graph;
    tmpl_set(env, "segment_ids", segments_text(plan));
    step_bind(env, plan);
    tmpl_list(env, "classes");
    EACH(plan->classes, plan->nclasses, c, const struct rank_class *class) {
        struct tmpl_env *entry = tmpl_entry(env, "classes");
        tmpl_setf(entry, "class", "%d", c);
        tmpl_setf(entry, "source", "%d", sources->of_class[c]);
        tmpl_setf(entry, "row", "%d", sources->row[c]);
        tmpl_set(entry, "ranks", ranks_text(plan, 1, &c));
        tmpl_set(entry, "input_places", places(plan, class, true, graph->inputs.n, graph->inputs.at));
        tmpl_set(entry, "output_places", places(plan, class, false, graph->outputs.n, graph->outputs.at));
        tmpl_set(entry, "weight_offsets", offsets_of(plan, class, plan->weights.n, plan->weights.at));
        tmpl_set(entry, "state_offsets", offsets_of(plan, class, plan->states.n, plan->states.at));
        tmpl_set(entry, "bytes", list_of(graph->arena, class->bytes, class->bytes[RT_STATE] ? RT_STATE + 1 : RT_STATE));
        tmpl_set(entry, "replaces", class->replaced ? "yes" : "");
        tmpl_setf(entry, "replaced", "%lld", (long long)class->replaced);
        bind_growing(entry, plan, class, extents);
        bind_schedule(entry, graph, class, sources->of_class[c]);
        bind_transfers(entry, plan, class, sources->numbers, extents);
        tmpl_setf(entry, "nflats", "%d", class->flats.n);
        tmpl_set(entry, "cut_flat", class->flats.n ? "yes" : "");
        tmpl_list(entry, "flats");
        VEC_EACH(&class->flats, i, const struct rt_flat *flat) {
            struct tmpl_env *row = tmpl_entry(entry, "flats");
            tmpl_setf(row, "flat", "%s, %s, 0x%x, %lld", plan_arena_enumerators[flat->arena], dtype_ids[flat->dtype],
                      flat->axes, (long long)flat->elements);
        }
        if (class->controls < 0)
            tmpl_set(entry, "controls", "RT_ABSENT");
        else
            tmpl_setf(entry, "controls", "%lld", (long long)class->controls);
    }
}

/* Bit a is set if there is communication along mesh axis a. */
static unsigned axes_in_use(const struct graph *graph) {
    unsigned axes = 0;
    GRAPH_EACH(graph, i, const struct node *node)
        if (op_communicates(node->op)) axes |= 1u << attr_int(node, "mesh", 0);
    return axes;
}

/* True for convolutions: forward, transposed, and the gradient of the weights. */
static bool convolves(const struct node *node) {
    return node->op->call && strncmp(node->op->call, "!conv_", 6) == 0;
}

/* True for attention that a library computes. */
static bool attends(const struct node *node) {
    return attr_int(node, "library", 0) != 0;
}

static const char *any(const struct graph *graph, bool (*is)(const struct node *node)) {
    for (int i = 0; i < graph->order.n; i++)
        if (is(&graph->nodes.at[graph->order.at[i]])) return "true";
    return "false";
}

/* The initial values of struct rt_mesh: ".naxes = 2, .stages = 1, .axis = {{.size = 2}, {.size = 4}}". */
static const char *mesh_initializer(const struct mesh *mesh, struct arena *arena) {
    struct strbuf axes = {.arena = arena};
    for (int a = 0; a < mesh->naxes; a++)
        strbuf_printf(&axes, "%s{.size = %d, .first = %d, .end = %d}", a ? ", " : "", mesh->axis[a].size,
                      mesh->axis[a].end ? mesh->axis[a].first : 0, mesh->axis[a].end);
    return arena_printf(arena, ".naxes = %d, .stages = %d, .axis = {%s}", mesh->naxes, mesh_pipeline_axis(mesh),
                        mesh->naxes ? strbuf_text(&axes) : "0");
}

static void bind_mesh(struct tmpl_env *env, const struct rankplan *plan) {
    const struct mesh *mesh = &plan->graph->mesh;
    int64_t shards = mesh_size(mesh);
    int64_t *classes = ARENA_ARRAY(plan->graph->arena, int64_t, shards + 1);
    for (int s = 0; s < shards; s++) classes[s] = rankplan_class_of(plan, s);
    tmpl_set(env, "mesh_named", remarks_mesh(plan->graph));
    tmpl_set(env, "exporter", remarks_exporter(plan->graph));
    tmpl_set(env, "mesh", mesh_initializer(mesh, plan->graph->arena));
    tmpl_setf(env, "nreplicas", "%d", mesh->nreplicas);
    tmpl_set(env, "step", graph_trains(plan->graph) ? "train_step" : "infer_step");
    tmpl_setf(env, "communicates", "0x%x", axes_in_use(plan->graph));
    tmpl_set(env, "convolves", any(plan->graph, convolves));
    tmpl_set(env, "attends", any(plan->graph, attends));
    tmpl_setf(env, "nclasses", "%d", plan->nclasses);
    tmpl_set(env, "class_of_shard", list_of(plan->graph->arena, classes, (int)shards));
    tmpl_setf(env, "plan_ngpus", "%lld", (long long)shards);
}

static void bind_names(struct tmpl_env *env, struct arena *arena, const struct program_info *info) {
    const char *prefix = prefix_of(arena, info);
    char *guard = arena_printf(arena, "RANKC_%s_H", prefix);
    for (char *c = guard; *c; c++) *c = (char)toupper((unsigned char)*c);
    bool named = strcmp(info->instance, "_") != 0;
    tmpl_set(env, "title", arena_printf(arena, "%s%s%s", info->model, named ? "/" : "", named ? info->instance : ""));
    tmpl_set(env, "name", arena_printf(arena, "%s/%s", info->model, info->instance));
    tmpl_set(env, "prefix", prefix);
    tmpl_set(env, "guard", guard);
    tmpl_set(env, "version", info->version);
    tmpl_set(env, "runtime_cflags", info->runtime_cflags ? info->runtime_cflags : "");
    tmpl_set(env, "runtime_libs", info->runtime_libs ? info->runtime_libs : "");
    tmpl_set(env, "with_runtime", info->with_runtime ? "yes" : "");
    tmpl_set(env, "runtime_sources", info->with_runtime ? runtime_sources(arena) : "");
    tmpl_set(env, "pas", info->pas);
    tmpl_set(env, "key", info->key);
    tmpl_set(env, "id", arena_copy(arena, info->key, ID_DIGITS));
    tmpl_set(env, "work", info->work);
    tmpl_set(env, "model_hash", info->model_hash);
    tmpl_setf(env, "zero_groups", "%d", decisions_zero_groups(info->decisions));
}

static void add_file(struct program *program, struct arena *arena, const char *path, const void *bytes, size_t count) {
    VEC_PUSH(arena, &program->files, (struct program_file){path, bytes, count, NULL});
}

static void add_text(struct program *program, struct arena *arena, const char *path, const char *text) {
    const bool is_code = strchr(path, '.') != NULL; /* the Makefile is not */
    if (is_code) text = layout_source(arena, text);
    add_file(program, arena, path, text, strlen(text));
}

static bool is_added(const struct program *program, const char *path) {
    for (int i = 0; i < program->files.n; i++)
        if (strcmp(program->files.at[i].path, path) == 0) return true;
    return false;
}

static bool is_listed(int n, const struct user_op *const *all, const char *file, enum user_target target) {
    for (int i = 0; i < n; i++)
        if (strcmp(all[i]->kernel[target].file, file) == 0) return true;
    return false;
}

/* Adds the kernels of the user's operators. Sources of ranks include those of the operators that nodes have. */
static void add_operators(struct program *program, struct tmpl_env *env, const struct graph *graph,
                          enum user_target target) {
    const struct user_op **included = ARENA_ARRAY(graph->arena, const struct user_op *, graph->operators.n + 1);
    int n = 0;
    for (int i = 0; i < graph->operators.n; i++)
        EACH(graph->operators.at[i]->kernel, USER_TARGETS, t, const struct user_kernel *kernel) {
            if (kernel->text && !is_added(program, kernel->file))
                add_file(program, graph->arena, kernel->file, kernel->text, kernel->bytes);
        }
    tmpl_list(env, "operators");
    for (int i = 0; i < graph->order.n; i++) {
        const struct user_op *user = graph->nodes.at[graph->order.at[i]].op->user;
        if (!user || !user->kernel[target].file || is_listed(n, included, user->kernel[target].file, target)) continue;
        included[n++] = user;
        tmpl_set(tmpl_entry(env, "operators"), "operator", user->kernel[target].file);
    }
    tmpl_set(env, "own_operators", n ? "yes" : "");
}

/* Adds the sources, their names for the build file, and the prototypes of their functions. */
static void add_sources(struct program *program, struct tmpl_env *env, const struct rankplan *plan,
                        const struct sources *sources, const struct target *target, struct extents *extents) {
    struct arena *arena = plan->graph->arena;
    struct strbuf names = {.arena = arena};
    tmpl_list(env, "functions");
    VEC_EACH(sources, s, const struct source *source) {
        const struct rank_class *first = &plan->classes[source->classes[0]];
        const char *name = source_name(arena, target, s);
        struct tmpl_env *own = tmpl_env(arena, env);
        tmpl_set(own, "ranks", ranks_text(plan, source->nclasses, source->classes));
        tmpl_set(own, "memory", remarks_memory(plan, source->nclasses, source->classes));
        add_text(program, arena, name, rank_source(plan, source, s, target, extents, own));
        strbuf_printf(&names, "%s%s", s ? " " : "", name);
        for (int k = 0; k < first->nsegments; k++)
            tmpl_set(tmpl_entry(env, "functions"), "function",
                     source_function(plan->graph, &plan->graph->segments.at[first->segments[k]], s));
    }
    tmpl_set(env, "sources", strbuf_text(&names));
}

/* Micro-batches of inference, and the axis of pipeline stages that execute several micro-batches. */
static void bind_micro_batches(struct tmpl_env *env, const struct graph *graph) {
    const int stages = graph_overlaps_stages(graph) ? mesh_pipeline_axis(&graph->mesh) : -1;
    tmpl_set(env, "stages", stages < 0 ? "" : arena_printf(graph->arena, "%d", stages + 1));
    tmpl_set(env, "inferred", graph->micro_batches ? arena_printf(graph->arena, "%d", graph->micro_batches) : "");
}

/* The adapters among which the program chooses. */
static void bind_adapters(struct tmpl_env *env, struct arena *arena, const struct lora_sets *sets) {
    struct strbuf names;
    strbuf_init(&names, arena);
    for (int i = 0; i < sets->n; i++) strbuf_printf(&names, "%s\"%s\"", i ? ", " : "", sets->names[i]);
    tmpl_set(env, "adapter_names", strbuf_text(&names));
    tmpl_set(env, "adapts", sets->n ? "yes" : "");
    tmpl_setf(env, "nadapters", "%d", sets->n);
    tmpl_setf(env, "adapter_bytes", "%lld", (long long)sets->stride);
}

static void bind_training(struct tmpl_env *env, const struct graph *graph, const struct program_info *info) {
    const struct training *training = info->training;
    tmpl_set(env, "trains", graph_trains(graph) ? "yes" : "");
    if (!graph_trains(graph)) return;
    tmpl_setf(env, "accumulate", "%d", (int)info->decisions->micro_batches);
    tmpl_setf(env, "bucket_bytes", "%lld", (long long)training->bucket_bytes);
    tmpl_setf(env, "metrics", "%d", graph->nmetrics - ports_input_gradients(graph));
    tmpl_setf(env, "lr", "%.17g", named_options_value(&training->optimizer.options, "lr", 0));
    tmpl_setf(env, "clip_grad_norm", "%.17g", training->clip_grad_norm);
    tmpl_set(env, "averages", training->ema > 0 ? "yes" : "");
    tmpl_set(env, "elements",
             graph->loss_elements ? arena_printf(graph->arena, "%lld", (long long)graph->loss_elements) : "");
    tmpl_setf(env, "schedule", "%s, %lld, %lld, %.17g, %lld", rt_lr_schedule_rows[training->lr_schedule.kind].id,
              (long long)training->lr_schedule.warmup, (long long)training->lr_schedule.steps,
              training->lr_schedule.min, (long long)training->lr_schedule.decay);
}

void program_make(struct program *program, const struct rankplan *plan, const struct sources *sources,
                  const struct target *target, const struct program_info *info) {
    struct graph *graph = plan->graph;
    struct arena *arena = graph->arena;
    struct tmpl_env *env = tmpl_env(arena, NULL);
    *program = (struct program){0};
    struct strbuf constants = {.arena = arena};
    bind_names(env, arena, info);
    tmpl_set(env, "device", target->device);
    tmpl_set(env, "arch", info->arch ? info->arch : "");
    struct extents *extents = extents_new(graph, sources->at[0].kernels->sizes, prefix_of(arena, info));
    ports_bind(env, graph, extents, info->training ? (int)info->decisions->micro_batches : 1);
    tmpl_set(env, "module", graph_gradient_inputs(graph) ? "yes" : "");
    bind_micro_batches(env, graph);
    bind_training(env, graph, info);
    bind_adapters(env, arena, &info->adapters);
    bool has_constants = bind_weights(env, plan, info, &constants);
    bind_states(env, plan);
    bind_classes(env, plan, sources, extents);
    bind_mesh(env, plan);
    add_operators(program, env, graph, target->user_kernel);
    add_sources(program, env, plan, sources, target, extents);
    extents_bind(extents, env);
    for (const struct target_file *file = target->files; file->template; file++)
        add_text(program, arena, file->name, tmpl_fill(arena, file->template, template_text(file->template), env));
    if (info->with_runtime) runtime_files_add(program, arena, target->user_kernel == USER_CUDA);
    if (has_constants) add_file(program, arena, "weights/constants.bin", strbuf_text(&constants), constants.length);
}
