#include "codegen/manifest/manifest.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "codegen/call/instruction.h"
#include "codegen/manifest/manifest_parts.h"
#include "ir/base/own.h"
#include "ir/expr/eval.h"
#include "ir/provenance.h"
#include "passes/plan/file/plan_text.h"
#include "runtime/base/shape/bucket.h"
#include "runtime/base/number/hash.h"
#include "runtime/base/text/json.h"
#include "runtime/base/manifest.h"

/* Writes "estimate": the machine, seconds of a step and its parts, and operations of all ranks together. */
static void manifest_put_estimate(struct rt_json_writer *writer, const struct machine *machine,
                                  const struct estimate *estimate) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"step_s", estimate->step},
                   {"computing_s", estimate->computing},
                   {"products_s", estimate->by_part[KERNEL_PRODUCT]},
                   {"attention_s", estimate->by_part[KERNEL_ATTENTION]},
                   {"adding_gradients_s", estimate->by_part[KERNEL_ADD]},
                   {"other_kernels_s", estimate->by_part[KERNEL_ADD] + estimate->by_part[KERNEL_OTHER]},
                   {"launching_s", estimate->by_part[KERNEL_LAUNCH]},
                   {"communicating_s", estimate->communicating},
                   {"hidden_s", estimate->hidden},
                   {"waiting_s", estimate->waiting},
                   {"bubble", estimate->bubble},
                   {"model_flops", estimate->model_flops},
                   {"model_flops_causal", estimate->model_flops_causal},
                   {"executed_flops", estimate->executed_flops},
                   {"executed_flops_causal", estimate->executed_flops_causal},
                   {"peak_flops", estimate->peak_rate}};
    rt_json_key_open(writer, "estimate", '{', RT_JSON_LINES);
    rt_json_key_text(writer, "machine", machine->name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        rt_json_key_real(writer, numbers[i].key, numbers[i].value);
    rt_json_key_int(writer, "memory", estimate->memory);
    rt_json_key_int(writer, "device_memory", (int64_t)machine->memory);
    if (estimate->tokens) rt_json_key_int(writer, "tokens", estimate->tokens);
    rt_json_close(writer, '}');
}

typedef struct rt_json_writer json;

/* `module`: the loss is the caller's. */
static void put_training(json *writer, const struct program_info *info, bool module) {
    const struct training *training = info->training;
    const struct decisions *decisions = info->decisions;
    rt_json_key_open(writer, "training", '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "optimizer", training->optimizer.text);
    rt_json_key_text(writer, "amp", training->amp.text ? training->amp.text : "");
    if (training->fp8.text) rt_json_key_text(writer, "fp8", training->fp8.text);
    rt_json_key_text(writer, "lr_schedule", training->lr_schedule_text);
    rt_json_key_open(writer, "params", '[', RT_JSON_INLINE);
    for (int i = 0; i < training->rules.n; i++) rt_json_put_text(writer, training->rules.at[i].text);
    rt_json_close(writer, ']');
    rt_json_key_open(writer, "inits", '[', RT_JSON_INLINE);
    for (int i = 0; i < training->inits.n; i++) rt_json_put_text(writer, training->inits.at[i].text);
    rt_json_close(writer, ']');
    if (training->loras.n) rt_json_key_open(writer, "loras", '[', RT_JSON_INLINE);
    for (int i = 0; i < training->loras.n; i++) rt_json_put_text(writer, training->loras.at[i].text);
    if (training->loras.n) rt_json_close(writer, ']');
    if (decisions->recompute) rt_json_key_text(writer, "recompute", decisions->recompute);
    rt_json_key_int(writer, "accumulate", decisions->micro_batches);
    rt_json_key_int(writer, "zero", decisions->zero);
    rt_json_key_int(writer, "zero_ngroups", decisions->zero_groups);
    rt_json_key_int(writer, "zero_prefetch", decisions->zero_prefetch);
    rt_json_key_int(writer, "bucket_bytes", training->bucket_bytes);
    if (training->tied_once) rt_json_key_bool(writer, "tied_once", true);
    rt_json_key_real(writer, "clip_grad_norm", training->clip_grad_norm);
    if (training->ema > 0) rt_json_key_real(writer, "ema", training->ema);
    if (training->moments_int8) rt_json_key_bool(writer, "moments_int8", true);
    if (training->gradients_bf16) rt_json_key_bool(writer, "gradients_bf16", true);
    if (training->offload) rt_json_key_text(writer, "offload", offload_names[training->offload]);
    if (training->amp.skip) rt_json_key_bool(writer, "skip_nonfinite", true);
    if (module) rt_json_key_bool(writer, "module", true);
    rt_json_close(writer, '}');
}

static void put_key(json *writer, const char *name, const struct key *key) {
    rt_json_key_open(writer, name, '{', RT_JSON_LINES);
    rt_json_key_text(writer, "key", key->hex);
    rt_json_key_open(writer, "parts", '{', RT_JSON_LINES);
    for (int i = 0; i < key->parts.n; i++) rt_json_key_text(writer, key->parts.at[i].name, key->parts.at[i].value);
    rt_json_close(writer, '}');
    rt_json_close(writer, '}');
}

void manifest_put_extent(json *writer, const struct graph *graph, int64_t extent) {
    if (open_is(graph->open, extent))
        rt_json_put_text(writer, open_plain(graph->open, graph->arena, extent));
    else
        rt_json_put_int(writer, extent);
}

void manifest_put_shape(json *writer, const struct graph *graph, const int64_t *dims, int ndim) {
    rt_json_key_open(writer, "shape", '[', RT_JSON_INLINE);
    for (int d = 0; d < ndim; d++) manifest_put_extent(writer, graph, dims[d]);
    rt_json_close(writer, ']');
}

/* Writes "sizes": the open sizes, with the values that "touched" holds for. Of a size that the program keeps, "next" is
 * the value in the next step. */
static void put_sizes(json *writer, struct open_sizes *open, const int64_t *sizes) {
    rt_json_key_open(writer, "sizes", '[', RT_JSON_LINES);
    for (int i = 0; i < open->all.n; i++) {
        const struct open_range *range = &open->all.at[i].range;
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "name", open->all.at[i].name);
        rt_json_key_int(writer, "least", range->least);
        rt_json_key_int(writer, "most", range->most);
        rt_json_key_int(writer, "step", range->step);
        rt_json_key_int(writer, "typical", range->typical);
        if (open->all.at[i].next)
            rt_json_key_text(writer, "next", open_text(open, open->arena, open->all.at[i].next, NULL, false));
        if (sizes) rt_json_key_int(writer, "size", sizes[i]);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

/* `uses`: of inputs, for what they index; NULL for outputs. */
static void put_ports(json *writer, const char *key, const struct graph *graph, int n, const int *tensors,
                      const char *const *names, const struct uses *uses) {
    struct arena *scratch = arena_scratch(graph->arena);
    rt_json_key_open(writer, key, '[', RT_JSON_LINES);
    for (int i = 0; i < n; i++) {
        const struct tensor *tensor = &graph->tensors.at[tensors[i]];
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "name", names ? names[i] : tensor->name);
        rt_json_key_text(writer, "dtype", rt_dtypes[tensor->dtype].name);
        manifest_put_shape(writer, graph, tensor->dims, tensor->ndim);
        /* of an open extent the least, so that random indices are right for all sizes */
        const struct index_use use = uses ? index_use_of(graph, uses, tensors[i], scratch) : (struct index_use){0};
        const int64_t below = open_least(graph->open, use.below);
        if (below > 0) rt_json_key_int(writer, "below", below);
        if (use.ignores && !use.below) rt_json_key_int(writer, "ignored", use.ignored);
        if (tensor->shared) rt_json_key_bool(writer, "shared", true);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
    arena_release(graph->arena, scratch);
}

/* Writes the coordinates of the set as ranges [first, count]. */
static void put_ranges(json *writer, const struct coordinate_sets *sets, int set, int size) {
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int c = 0, end; c < size; c = end) {
        end = c + 1;
        if (sets->of[c] != set) continue;
        while (end < size && sets->of[end] == set) end++;
        rt_json_put_dims(writer, (int64_t[]){c, end - c}, 2);
    }
    rt_json_close(writer, ']');
}

/* Writes "coordinates": for each mesh axis those of the class' shards. */
static void put_coordinates(json *writer, const struct rankplan *plan, const struct rank_class *class) {
    const struct mesh *mesh = &plan->graph->mesh;
    int coordinate[RT_MAX_AXES];
    mesh_coordinate(mesh, class->shard, coordinate);
    rt_json_key_open(writer, "coordinates", '[', RT_JSON_INLINE);
    for (int a = 0; a < mesh->naxes; a++)
        put_ranges(writer, &plan->sets[a], plan->sets[a].of[coordinate[a]], mesh->axis[a].size);
    rt_json_close(writer, ']');
}

static bool same_kind(const struct rt_flat *a, const struct rt_flat *b) {
    return a->arena == b->arena && a->dtype == b->dtype && a->axes == b->axes;
}

/* Writes "flats", the tensors that are cut flat: an entry per arena, type and axes, with the elements of each part. */
static void put_flats(json *writer, const struct graph *graph, const struct rank_class *class) {
    const struct mesh *mesh = &graph->mesh;
    bool *done = ARENA_ARRAY(graph->arena, bool, class->flats.n + 1); /* per tensor: it is in an entry */
    if (!class->flats.n) return;
    rt_json_key_open(writer, "flats", '[', RT_JSON_INLINE);
    VEC_EACH(&class->flats, i, const struct rt_flat *flat) {
        if (done[i]) continue;
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "arena", plan_arena_names[flat->arena]);
        rt_json_key_text(writer, "dtype", rt_dtypes[flat->dtype].name);
        rt_json_key_open(writer, "axes", '[', RT_JSON_INLINE);
        for (int a = 0; a < mesh_layout_axes(mesh); a++)
            if (flat->axes >> a & 1u) rt_json_put_text(writer, mesh->axis[a].name);
        rt_json_close(writer, ']');
        if (flat->axes & RT_FLAT_BLOCKS) rt_json_key_text(writer, "slices", "blocks");
        if (flat->axes & RT_FLAT_SCALES) rt_json_key_text(writer, "slices", "scales");
        rt_json_key_open(writer, "elements", '[', RT_JSON_INLINE);
        for (int k = i; k < class->flats.n; k++) {
            if (!same_kind(&class->flats.at[k], flat)) continue;
            rt_json_put_int(writer, class->flats.at[k].elements);
            done[k] = true;
        }
        rt_json_close(writer, ']');
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

enum { MOST_POSITIONS = 160 }; /* of a curve */

static int64_t live_at(const struct rank_class *class, int position) {
    return class->live[RT_ACTIVATIONS][position] + class->live[RT_COMMUNICATION][position];
}

/* Writes "slots", the bytes of a slot of each set (Note [Slots in memory] in slots.c): [enum rt_slot_kind, chunk,
 * activations, communication]; and "inputs", the bytes of the copies of inputs that are held during the whole step. */
static void put_slots(json *writer, const struct rank_class *class) {
    int64_t strides[RT_SLOT_SETS][RT_ARENAS] = {{0}}, inputs = class->held[RT_ACTIVATIONS];
    for (int i = 0; i < class->kept.n; i++) {
        const struct plan_place *place = &class->place[class->kept.at[i]];
        if (place->stride) strides[place->set][place->arena] = place->stride;
    }
    rt_json_key_open(writer, "slots", '[', RT_JSON_INLINE);
    EACH_VALUE(strides, RT_SLOT_SETS, set, const int64_t *bytes) {
        const int64_t entry[] = {set / RT_MAX_CHUNKS, set % RT_MAX_CHUNKS, bytes[RT_ACTIVATIONS],
                                 bytes[RT_COMMUNICATION]};
        inputs -= class->schedule->shape.slots[set] * bytes[RT_ACTIVATIONS];
        if (bytes[RT_ACTIVATIONS] || bytes[RT_COMMUNICATION]) rt_json_put_dims(writer, entry, 4);
    }
    rt_json_close(writer, ']');
    rt_json_key_int(writer, "inputs", inputs);
}

/* "live": memory over the order of nodes (struct rank_class). An entry is one of `each` positions: where the most is
 * live. */
static void put_live(json *writer, const struct rank_class *class, int positions) {
    static const enum rt_arena arenas[] = {RT_ACTIVATIONS, RT_COMMUNICATION};
    const int each = (positions + MOST_POSITIONS - 1) / MOST_POSITIONS;
    rt_json_key_open(writer, "live", '{', RT_JSON_INLINE);
    rt_json_key_int(writer, "positions", positions);
    for (size_t a = 0; a < sizeof arenas / sizeof *arenas; a++) {
        rt_json_key_open(writer, plan_arena_names[arenas[a]], '[', RT_JSON_INLINE);
        for (int first = 0; first < positions; first += each) {
            int at = first;
            for (int i = first; i < positions && i < first + each; i++)
                if (live_at(class, i) > live_at(class, at)) at = i;
            rt_json_put_int(writer, class->live[arenas[a]][at]);
        }
        rt_json_close(writer, ']');
    }
    rt_json_key_int(writer, "held", class->held[RT_ACTIVATIONS] + class->held[RT_COMMUNICATION]);
    put_slots(writer, class);
    rt_json_close(writer, '}');
}

/* The bytes of each arena, of "state" where the program keeps any, and "peak", the sum of those on the device. */
static void put_arenas(json *writer, const int64_t *bytes) {
    int64_t peak = 0;
    for (int a = 0; a < RT_ARENAS; a++) {
        if (a < RT_STATE || bytes[a]) rt_json_key_int(writer, plan_arena_names[a], bytes[a]);
        peak += a < RT_HOST ? bytes[a] : 0;
    }
    rt_json_key_int(writer, "peak", peak);
    rt_json_close(writer, '}');
}

/* Writes "touched": what a call of the manifest's sizes touches of "memory". */
static void put_touched(json *writer, const struct manifest *manifest, int c) {
    int64_t bytes[RT_ARENAS];
    if (!manifest->sizes) return;
    rankplan_touched(manifest->plan, c, manifest->sizes, bytes);
    rt_json_key_open(writer, "touched", '{', RT_JSON_INLINE);
    put_arenas(writer, bytes);
}

static void put_state(json *writer, const struct rankplan *plan, int c) {
    int64_t copied, replaced;
    if (!plan->classes[c].bytes[RT_STATE]) return;
    rankplan_state(plan, c, &copied, &replaced);
    rt_json_key_int(writer, "state_copied", copied);
    rt_json_key_int(writer, "state_replaced", replaced);
}

static void put_classes(json *writer, const struct manifest *manifest) {
    const struct rankplan *plan = manifest->plan;
    rt_json_key_open(writer, "classes", '[', RT_JSON_LINES);
    EACH(plan->classes, plan->nclasses, c, const struct rank_class *class) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        put_coordinates(writer, plan, class);
        rt_json_key_text(writer, "source",
                         source_name(plan->graph->arena, manifest->target, manifest->sources->of_class[c]));
        rt_json_key_open(writer, "memory", '{', RT_JSON_INLINE);
        put_arenas(writer, class->bytes);
        put_state(writer, plan, c);
        put_touched(writer, manifest, c);
        put_flats(writer, plan->graph, class);
        put_live(writer, class, plan->graph->order.n);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

static const struct {
    enum op_id op;
    const char *kind;
} kinds[] = {{OP_AllReduce, "all_reduce"},         {OP_AllGather, "all_gather"},
             {OP_ReduceScatter, "reduce_scatter"}, {OP_ReduceScatterOnto, "reduce_scatter"},
             {OP_AllReduceOnto, "all_reduce"},     {OP_AllToAll, "all_to_all"},
             {OP_HaloExchange, "halo_exchange"},   {OP_Transfer, "send_recv"},
             {OP_Broadcast, "broadcast"},          {OP_RingAttention, "ring"},
             {OP_RingAttentionGrad, "ring"}};
enum { NKINDS = sizeof kinds / sizeof *kinds };

/* The number of buckets in which ranks of the class reduce gradients over the units (runtime/base/shape/bucket.h). */
static int count_buckets(const struct rankplan *plan, const struct rank_class *class, int64_t bucket_bytes) {
    const struct graph *graph = plan->graph;
    struct rt_bucket bucket = {0};
    int n = 0;
    GRAPH_EACH(graph, i, const struct node *node) {
        if (node->op->id != OP_AllReduceStart || attr_int(node, "mesh", -1) < graph->mesh.naxes ||
            !rankplan_part(class, node))
            continue;
        const int tensor = node->outputs[0];
        const enum rt_dtype dtype = graph->tensors.at[tensor].dtype;
        const int64_t at = class->place[tensor].offset, bytes = rankplan_bytes(class, graph, tensor);
        if (rt_bucket_ends_before(&bucket, at, dtype)) bucket.bytes = 0;
        n += !bucket.bytes;
        if (rt_bucket_add(&bucket, at, dtype, bytes, bucket_bytes)) bucket.bytes = 0;
    }
    return bucket_bytes ? n : 0;
}

/* How often a step executes the node. */
static int64_t times_of(const struct manifest *manifest, const struct node *node) {
    const int64_t micro_batches = manifest->info->decisions->micro_batches;
    return node->phase < PHASE_REDUCE && micro_batches ? micro_batches : 1;
}

/* True for a gather that starts before its result is needed. */
static bool is_prefetched(const struct node *node) {
    return node->op->id == OP_AllGather && attr_int(node, "begun", 0);
}

/* Communication between scale units, of gradients and slices of parameters. */
static const struct {
    enum op_id op, onto;
    const char *kind;
} unit_kinds[] = {{OP_AllReduce, OP_AllReduceOnto, "unit_sum"},
                  {OP_ReduceScatter, OP_ReduceScatterOnto, "reduce_scatter"},
                  {OP_AllGather, OP_AllGather, "all_gather"}};
enum { UNIT_KINDS = sizeof unit_kinds / sizeof *unit_kinds };

/* True for communication between scale units of that kind that ranks of the class execute. */
static bool is_between_units(const struct manifest *manifest, const struct rank_class *class, const struct node *node,
                             int kind) {
    return (node->op->id == unit_kinds[kind].op || node->op->id == unit_kinds[kind].onto) &&
           attr_int(node, "mesh", -1) >= manifest->plan->graph->mesh.naxes && rankplan_part(class, node);
}

/* Writes a row per class of shards, whose ranks in all scale units communicate, and kind. */
static void put_between_units(json *writer, const struct manifest *manifest) {
    const struct graph *graph = manifest->plan->graph;
    for (int row = 0; row < manifest->plan->nclasses * UNIT_KINDS && manifest->info->training; row++) {
        const int c = row / UNIT_KINDS, kind = row % UNIT_KINDS;
        const struct rank_class *class = &manifest->plan->classes[c];
        int64_t count = 0, bytes = 0, prefetched = 0;
        GRAPH_EACH(graph, i, const struct node *node) {
            if (!is_between_units(manifest, class, node, kind)) continue;
            count += times_of(manifest, node);
            prefetched += is_prefetched(node) ? times_of(manifest, node) : 0;
            bytes += times_of(manifest, node) *
                     open_typical(graph->open, tensor_bytes(&graph->tensors.at[node->outputs[0]]));
        }
        if (!count) continue;
        const int buckets = count_buckets(manifest->plan, class, manifest->info->training->bucket_bytes);
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "kind", unit_kinds[kind].kind);
        rt_json_key_int(writer, "count", count);
        rt_json_key_int(writer, "bytes", bytes);
        if (kind == 0) rt_json_key_int(writer, "buckets", buckets);
        if (prefetched) rt_json_key_int(writer, "prefetched", prefetched);
        rt_json_key_int(writer, "class", c);
        rt_json_close(writer, '}');
    }
}

/* Bytes of all that the node moves along its axis, on all ranks together. */
static int64_t moved_bytes(const struct graph *graph, const struct node *node) {
    int tensors[4] = {node->outputs[0]}, n = node->op->ring ? op_ring_tensors(node, tensors) : 1;
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += open_typical(graph->open, tensor_bytes(&graph->tensors.at[tensors[i]]));
    return bytes;
}

/* Writes "communication": a row per kind and mesh axis, for all groups of ranks along it. */
static void put_communication(json *writer, const struct manifest *manifest) {
    const struct graph *graph = manifest->plan->graph;
    rt_json_key_open(writer, "communication", '[', RT_JSON_LINES);
    for (int kind = 0; kind < NKINDS; kind++)
        for (int axis = 0; axis < graph->mesh.naxes; axis++) {
            int64_t count = 0, begun = 0, prefetched = 0, bytes = 0;
            GRAPH_EACH(graph, i, const struct node *node) {
                if (node->op->id != kinds[kind].op || attr_int(node, "mesh", -1) != axis) continue;
                count += times_of(manifest, node);
                begun += !is_prefetched(node) && attr_int(node, "begun", 0);
                prefetched += is_prefetched(node) ? times_of(manifest, node) : 0;
                bytes += times_of(manifest, node) * moved_bytes(graph, node);
            }
            if (!count) continue;
            rt_json_open(writer, '{', RT_JSON_INLINE);
            rt_json_key_text(writer, "kind", kinds[kind].kind);
            rt_json_key_int(writer, "count", count);
            rt_json_key_int(writer, "bytes", bytes);
            if (begun) rt_json_key_int(writer, "begun", begun);
            if (prefetched) rt_json_key_int(writer, "prefetched", prefetched);
            rt_json_key_text(writer, "axis", graph->mesh.axis[axis].name);
            rt_json_close(writer, '}');
        }
    put_between_units(writer, manifest);
    rt_json_close(writer, ']');
}

/* Writes the path of the node's module, if it is known, in the form of a name with scopes: "layers.0/attn/q_proj". */
static void put_scope(json *writer, const struct graph *graph, const char *node) {
    const struct provenance *from = provenance_of(graph, node, NULL);
    if (!from || !*from->scope) return;
    char *scope = arena_strdup(graph->arena, from->scope);
    for (char *c = scope; *c; c++)
        if (*c == '.' && !isdigit((unsigned char)c[1])) *c = '/';
    rt_json_key_text(writer, "scope", scope);
}

static void put_nodes(json *writer, const struct manifest *manifest) {
    const struct plan *decided = manifest->decided;
    rt_json_key_open(writer, "nodes", '[', RT_JSON_LINES);
    VEC_EACH(&decided->nodes, i, const struct plan_node *node) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "name", node->name);
        put_scope(writer, manifest->plan->graph, node->name);
        rt_json_key_text(writer, "op", node->op);
        plan_put_partition(writer, decided, node, false);
        rt_json_key_int(writer, "stage", node->stage);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

/* 1 + the first member of each node; *next: 1 + the one that follows each member. */
static int *chain_members(const struct graph *graph, int **next) {
    int *first = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);
    *next = ARENA_ARRAY(graph->arena, int, graph->members.n + 1);
    for (int i = graph->members.n - 1; i >= 0; i--) {
        (*next)[i] = first[graph->members.at[i].node];
        first[graph->members.at[i].node] = i + 1;
    }
    return first;
}

/* Writes the names of the nodes that a fused node consists of; equal adjacent names once. */
static void put_members(json *writer, const struct graph *graph, int first, const int *next) {
    if (!first) return;
    rt_json_key_open(writer, "of", '[', RT_JSON_INLINE);
    for (int i = first; i; i = next[i - 1]) {
        const int more = next[i - 1];
        const char *name = graph->members.at[i - 1].name;
        if (!more || strcmp(graph->members.at[more - 1].name, name) != 0) rt_json_put_text(writer, name);
    }
    rt_json_close(writer, ']');
}

/* Writes "instructions", indexed by the number of the instruction (Note [Instruction numbers] in rank.c). */
static void put_instructions(json *writer, const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    int *next, *first = chain_members(graph, &next);
    rt_json_key_open(writer, "instructions", '[', RT_JSON_LINES);
    GRAPH_EACH(graph, i, const struct node *node) {
        if (plan->moves_nothing[graph->order.at[i]]) continue;
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "node", node->name);
        rt_json_key_text(writer, "op", node->op->name);
        const char *from = provenance_text(graph->arena, graph, node->name);
        if (*from) rt_json_key_text(writer, "from", from + 1);
        const struct provenance *origin = provenance_of(graph, node->name, NULL);
        if (origin && *origin->scope) rt_json_key_text(writer, "module", origin->scope);
        put_members(writer, graph, first[graph->order.at[i]], next);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

/* Which non-finite values the constants have that are literals in the node's code, as bits:
 * HAS_INFINITY, HAS_NAN. */
static int constants_of(const struct graph *graph, const struct node *node) {
    int seen = 0;
    for (int k = 0; k < node->ninputs; k++) {
        if (!rankplan_is_literal(graph, node, k)) continue;
        const struct tensor *t = &graph->tensors.at[node->inputs[k]];
        const struct number value = eval_load(t->data, t->dtype, 0);
        if (value.is_float && !isfinite(value.f)) seen |= isnan(value.f) ? HAS_NAN : HAS_INFINITY;
    }
    return seen;
}

/* Writes the places of an instruction's floating-point tensors, as runtime/base/manifest.h says. */
static void put_values(json *writer, const char *key, const struct rankplan *plan, const struct rank_class *class,
                       int n, const int *tensors) {
    rt_json_key_open(writer, key, '[', RT_JSON_INLINE);
    for (int i = 0; i < n; i++) {
        if (tensors[i] < 0 || class->place[tensors[i]].offset < 0) continue;
        const enum rt_dtype dtype = plan->graph->tensors.at[tensors[i]].dtype;
        const struct plan_place *place = &class->place[tensors[i]];
        if (!rt_dtype_is_float(dtype)) continue;
        const unsigned axes = layout_slices(&plan->graph->tensors.at[tensors[i]].layout);
        const int64_t elements = rankplan_bytes(class, plan->graph, tensors[i]) / (int64_t)rt_dtype_bytes(dtype);
        rt_json_put_dims(writer,
                         (int64_t[]){place->arena, place->offset, dtype, elements, place->stride, axes, place->set},
                         place->set      ? 7
                         : axes          ? 6
                         : place->stride ? 5
                                         : 4);
    }
    rt_json_close(writer, ']');
}

/* For training: the tensors of each instruction of a rank class, which are searched when a loss is not finite. */
static void put_class_values(json *writer, const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    rt_json_open(writer, '[', RT_JSON_LINES);
    for (int i = 0, numbered = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (plan->moves_nothing[graph->order.at[i]]) continue;
        const int number = numbered++;
        if (!rankplan_part(class, node)) continue;
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_int(writer, "instruction", number);
        rt_json_key_int(writer, "phase", node->phase);
        rt_json_key_int(writer, "constants", constants_of(graph, node));
        put_values(writer, "operands", plan, class, node->ninputs, node->inputs);
        put_values(writer, "results", plan, class, node->noutputs, node->outputs);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

static void put_all_values(json *writer, const struct rankplan *plan) {
    rt_json_key_open(writer, "values", '[', RT_JSON_LINES);
    for (int c = 0; c < plan->nclasses; c++) put_class_values(writer, plan, &plan->classes[c]);
    rt_json_close(writer, ']');
}

static void put_slices(json *writer, const struct graph *graph, const struct tensor *tensor) {
    rt_json_key_open(writer, "slices", '[', RT_JSON_INLINE);
    for (int c = 0; c < tensor->layout.ncuts; c++) {
        const struct placement *h = &tensor->layout.cuts[c].placement;
        if (h->kind != PLACED_PART) continue;
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "axis", graph->mesh.axis[tensor->layout.cuts[c].axis].name);
        rt_json_key_int(writer, "dim", h->dim);
        rt_json_key_int(writer, "blocks", h->blocks);
        rt_json_key_int(writer, "unit", h->grain);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

/* Writes "classes", those that hold the tensor, unless all do: stages of a pipeline hold different ones. */
static void put_holders(json *writer, const struct rankplan *plan, int tensor) {
    int n = 0;
    for (int c = 0; c < plan->nclasses; c++) n += plan->classes[c].place[tensor].offset >= 0;
    if (n == plan->nclasses) return;
    rt_json_key_open(writer, "classes", '[', RT_JSON_INLINE);
    for (int c = 0; c < plan->nclasses; c++)
        if (plan->classes[c].place[tensor].offset >= 0) rt_json_put_int(writer, c);
    rt_json_close(writer, ']');
}

/* `stored`: tensor -> its index in the list "weights"; NULL: there is no such list. */
static void put_tensors(json *writer, const char *key, const struct rankplan *plan, int n, const int *tensors,
                        const int *stored) {
    const struct graph *graph = plan->graph;
    rt_json_key_open(writer, key, '[', RT_JSON_LINES);
    for (int i = 0; i < n; i++) {
        const struct tensor *tensor = &graph->tensors.at[tensors[i]];
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "name", tensor->name);
        rt_json_key_text(writer, "dtype", rt_dtypes[tensor->dtype].name);
        rt_json_key_dims(writer, "shape", tensor->dims, tensor->ndim);
        put_slices(writer, graph, tensor);
        put_holders(writer, plan, tensors[i]);
        if (stored) rt_json_key_int(writer, "weight", stored[i]);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

static void put_sliced(json *writer, const struct graph *graph, const struct sliced *sliced) {
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "name", sliced->key);
    rt_json_key_text(writer, "dtype", rt_dtypes[sliced->dtype].name);
    rt_json_key_dims(writer, "shape", sliced->dims, sliced->ndim);
    rt_json_key_int(writer, "file", sliced->stored.file);
    rt_json_key_int(writer, "offset", sliced->stored.file < 0 ? 0 : (int64_t)sliced->stored.offset);
    const struct rt_coding *coding = &sliced->stored.coding;
    if (coding->makes) {
        rt_json_key_text(writer, "made", slices_coding(graph->arena, coding, sliced->dtype));
        rt_json_key_text(writer, "of", rt_dtypes[sliced->stored.dtype].name);
    }
    rt_json_key_open(writer, "cuts", '[', RT_JSON_INLINE);
    EACH(sliced->cut, sliced->ncuts, c, const struct slice_cut *at) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "axis", graph->mesh.axis[at->axis].name);
        rt_json_key_int(writer, "dim", at->dim);
        rt_json_key_int(writer, "ways", at->ways);
        rt_json_key_int(writer, "blocks", at->blocks);
        rt_json_key_int(writer, "unit", at->grain);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
    rt_json_key_open(writer, "slices", '[', RT_JSON_INLINE);
    for (int s = 0; s < sliced->nslices; s++) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_int(writer, "shard", sliced->slices[s].shard);
        rt_json_key_text(writer, "hash", sliced->slices[s].hash);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
}

/* Writes "weights": the tensors stored in weights/, their places in the model (file and offset as in graph.rir; file
 * -1: a constant), their cuts, and their slices, ordered by coordinates along the cuts, the first cut fastest. */
static void put_weights(json *writer, const struct graph *graph, const struct slices *slices) {
    rt_json_key_open(writer, "weights", '[', RT_JSON_LINES);
    for (int i = 0; i < slices->at.n; i++) put_sliced(writer, graph, &slices->at.at[i]);
    rt_json_close(writer, ']');
}

static void put_files(json *writer, const struct program *program) {
    rt_json_key_open(writer, "files", '[', RT_JSON_LINES);
    VEC_EACH(&program->files, i, const struct program_file *file) {
        char hex[RT_HASH_HEX];
        if (file->bytes) rt_hash_bytes(file->bytes, file->count, hex);
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "path", file->path);
        rt_json_key_int(writer, "bytes", (int64_t)file->count);
        rt_json_key_text(writer, "hash", file->bytes ? hex : file->hash);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

/* Writes "adapters": the names of those among which the program chooses. */
static void put_adapters(json *writer, const struct lora_sets *sets) {
    rt_json_key_open(writer, "adapters", '[', RT_JSON_INLINE);
    for (int i = 0; i < sets->n; i++) rt_json_put_text(writer, sets->names[i]);
    rt_json_close(writer, ']');
}

/* Writes the peaks with which profiles of runs compare, as in a machine file. */
static void put_machine(json *writer, const struct machine *machine) {
    rt_json_key_open(writer, "machine", '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "name", machine->name);
    rt_json_key_real(writer, "bandwidth", machine->bandwidth);
    machine_put_types(writer, "rates", machine->rate);
    machine_put_types(writer, "peaks", machine->peak);
    rt_json_close(writer, '}');
}

/* What only a program reads, as it runs: a plan without one can do without. */
static void put_for_runs(json *writer, const struct manifest *manifest) {
    put_instructions(writer, manifest->plan);
    manifest_put_work(writer, manifest->plan);
    manifest_put_dump(writer, manifest->plan);
    if (manifest->machine) put_machine(writer, manifest->machine);
    if (manifest->info->training) put_all_values(writer, manifest->plan);
}

const char *manifest_text(const struct manifest *manifest) {
    const struct graph *graph = manifest->plan->graph;
    json *writer = own_json_writer(graph->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", RT_MANIFEST_FORMAT);
    rt_json_key_text(writer, "rankc", manifest->info->version);
    rt_json_key_text(writer, "model", manifest->info->model);
    rt_json_key_text(writer, "instance", manifest->info->instance);
    rt_json_key_text(writer, "target", manifest->target->name);
    rt_json_key_text(writer, "attention", manifest->info->attention);
    if (manifest->info->weight_dtype) rt_json_key_text(writer, "weight_dtype", manifest->info->weight_dtype);
    if (manifest->info->cache_dtype) rt_json_key_text(writer, "cache_dtype", manifest->info->cache_dtype);
    if (manifest->info->adapters.n) put_adapters(writer, &manifest->info->adapters);
    rt_json_key_text(writer, "pas", manifest->info->pas);
    if (manifest->info->training) put_training(writer, manifest->info, graph_gradient_inputs(graph) > 0);
    if (graph->micro_batches) rt_json_key_int(writer, "micro_batches", graph->micro_batches);
    if (graph->product_runs) rt_json_key_int(writer, "product_runs", graph->product_runs);
    if ((manifest->info->training || graph->micro_batches > 1) && graph->schedules.n > 1)
        manifest_put_schedule(writer, manifest->plan, machine_or_default(manifest->machine), manifest->info->decisions);
    if (manifest->estimate) manifest_put_estimate(writer, manifest->machine, manifest->estimate);
    if (manifest->put_generation) manifest->put_generation(writer, manifest->generation);
    if (manifest->put_search) manifest->put_search(writer, manifest->search);
    rt_json_key_int(writer, "plan_ngpus", mesh_size(&graph->mesh));
    plan_put_mesh(writer, &graph->mesh);
    plan_put_chunks(writer, &graph->chunks);
    rt_json_key_open(writer, "keys", '{', RT_JSON_LINES);
    put_key(writer, "graph", manifest->graph_key);
    put_key(writer, "plan", manifest->plan_key);
    if (manifest->info->training) put_key(writer, "work", manifest->work_key);
    rt_json_close(writer, '}');
    if (graph->open) put_sizes(writer, graph->open, manifest->sizes);
    const struct uses uses = graph_uses(graph, graph->arena);
    put_ports(writer, "inputs", graph, graph->inputs.n - graph_gradient_inputs(graph), graph->inputs.at, NULL, &uses);
    put_ports(writer, "outputs", graph, graph->outputs.n - graph->nmetrics, graph->outputs.at, graph->output_names.at,
              NULL);
    put_classes(writer, manifest);
    put_communication(writer, manifest);
    put_nodes(writer, manifest);
    if (manifest->program) put_for_runs(writer, manifest);
    put_tensors(writer, "tensors", manifest->plan, manifest->plan->weights.n, manifest->plan->weights.at,
                manifest->slices ? manifest->slices->of_weight : NULL);
    if (manifest->info->training)
        put_tensors(writer, "states", manifest->plan, manifest->plan->states.n, manifest->plan->states.at, NULL);
    if (manifest->info->training) manifest_put_parameters(writer, manifest->plan, manifest->info);
    if (manifest->slices) put_weights(writer, graph, manifest->slices);
    if (manifest->program) put_files(writer, manifest->program);
    rt_sealed_close(writer);
    return own_json_end(graph->arena, writer);
}
