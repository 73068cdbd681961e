#include "codegen/slices.h"

#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/build.h"
#include "runtime/base/io/safetensors.h"

struct finder {
    struct slices *slices;
    const struct rankplan *plan;
    const struct lora_sets *sets;
    struct arena *arena;
    struct map keys;   /* names taken in the files */
    struct map places; /* place in the model -> index of a tensor stored there */
    struct map parts;  /* place in the model and cuts -> index of the tensor */
};

/* A name that is unique in the files: `name`, or `name`#2 .. if it is taken. */
static const char *free_key(struct finder *finder, const char *name) {
    const char *key = name;
    for (int copy = 2; !map_set(&finder->keys, key, 0); copy++) key = arena_printf(finder->arena, "%s#%d", name, copy);
    return key;
}

enum rt_dtype slices_dtype(const struct tensor *tensor) {
    const enum rt_makes makes = tensor->stored.coding.makes;
    return makes == RT_SCALES                                      ? RT_F32
           : tensor->kind == TENSOR_CONST || makes != RT_AS_STORED ? tensor->dtype
                                                                   : tensor->stored.dtype;
}

const char *slices_coding(struct arena *arena, const struct rt_coding *coding, enum rt_dtype dtype) {
    const char *made = coding_names[coding->makes];
    if (!rt_coding_is_code(coding))
        return coding->makes ? arena_printf(arena, "%s %s", made, rt_dtypes[dtype].name) : "";
    return arena_printf(arena, "%s of %d bits, group %lld%s", made, coding->bits, (long long)coding->group,
                        coding->turned ? ", turned" : "");
}

const char *slices_place(struct arena *arena, int64_t file, int64_t offset, enum rt_dtype dtype, int64_t count,
                         const char *coding) {
    return arena_printf(arena, "%lld+%lld %s %lld %s", (long long)file, (long long)offset, rt_dtypes[dtype].name,
                        (long long)count, coding);
}

const char *slices_place_of(struct arena *arena, const struct tensor *tensor) {
    const struct stored *stored = &tensor->stored;
    return slices_place(arena, stored->file, (int64_t)stored->offset, stored->dtype, tensor_elements(tensor),
                        slices_coding(arena, &stored->coding, slices_dtype(tensor)));
}

/* A key that is equal for tensors of the same bytes and cuts. */
static const char *part_text(const struct finder *finder, const struct tensor *tensor, const struct sliced *sliced) {
    struct strbuf out = {.arena = finder->arena};
    strbuf_puts(&out, slices_place_of(finder->arena, tensor));
    for (int d = 0; d < sliced->ndim; d++) strbuf_printf(&out, " %lld", (long long)sliced->dims[d]);
    EACH(sliced->cut, sliced->ncuts, c, const struct slice_cut *cut)
        strbuf_printf(&out, " / %d %d %lld %lld", cut->axis, cut->dim, (long long)cut->blocks, (long long)cut->grain);
    return strbuf_text(&out);
}

static struct sliced describe(const struct tensor *tensor) {
    const bool constant = tensor->kind == TENSOR_CONST;
    struct sliced sliced = {.name = tensor->name,
                            .dtype = slices_dtype(tensor),
                            .ndim = tensor->ndim,
                            .stored = tensor->stored,
                            .bytes = constant ? tensor->data : NULL,
                            .nslices = 1};
    if (constant) sliced.stored = (struct stored){.file = -1, .dtype = tensor->dtype};
    memcpy(sliced.dims, tensor->dims, sizeof sliced.dims);
    return sliced;
}

static void add_cuts(struct sliced *sliced, const struct mesh *mesh, const struct tensor *tensor) {
    for (int c = 0; c < tensor->layout.ncuts; c++) {
        const struct placement *h = &tensor->layout.cuts[c].placement;
        const int axis = tensor->layout.cuts[c].axis, ways = mesh->axis[axis].size;
        if (h->kind != PLACED_PART) continue;
        sliced->cut[sliced->ncuts++] = (struct slice_cut){axis, h->dim, ways, h->blocks, h->grain};
        sliced->nslices *= ways;
    }
}

/* The coordinate of slice `index` along each cut. */
static void place_of(const struct sliced *sliced, int index, int place[RT_MAX_AXES]) {
    for (int c = 0; c < sliced->ncuts; index /= sliced->cut[c++].ways) place[c] = index % sliced->cut[c].ways;
}

/* The cut of a tensor that the cuts before it leave with extents `dims`. */
static struct rt_cut cut_of(const struct slice_cut *cut, const int64_t *dims) {
    return (struct rt_cut){dims[cut->dim], cut->blocks, cut->grain, cut->ways};
}

void slices_shape(struct sliced *sliced, struct arena *arena) {
    sliced->slices = ARENA_ARRAY(arena, struct slice, sliced->nslices);
    EACH(sliced->slices, sliced->nslices, s, struct slice *const slice) {
        int place[RT_MAX_AXES];
        int64_t count = 1;
        place_of(sliced, s, place);
        *slice = (struct slice){.shard = -1, .ndim = sliced->ndim};
        memcpy(slice->dims, sliced->dims, sizeof slice->dims);
        for (int c = 0; c < sliced->ncuts; c++) {
            const struct rt_cut cut = cut_of(&sliced->cut[c], slice->dims);
            slice->dims[sliced->cut[c].dim] = rt_cut_extent(&cut, place[c]);
        }
        for (int d = 0; d < slice->ndim; d++) count *= slice->dims[d];
        slice->bytes = count * (int64_t)rt_dtype_bytes(sliced->dtype);
    }
}

/* The index of the slice that a shard holds. */
static int index_of(const struct sliced *sliced, const struct mesh *mesh, int shard) {
    int coordinate[RT_MAX_AXES], index = 0, stride = 1;
    mesh_coordinate(mesh, shard, coordinate);
    for (int c = 0; c < sliced->ncuts; stride *= sliced->cut[c++].ways)
        index += coordinate[sliced->cut[c].axis] * stride;
    return index;
}

/* Each slice is owned by the first shard that loads it. */
static void find_owners(const struct finder *finder, struct sliced *sliced, int tensor) {
    const struct mesh *mesh = &finder->plan->graph->mesh;
    for (int shard = 0; shard < finder->slices->shards; shard++) {
        if (finder->plan->classes[rankplan_class_of(finder->plan, shard)].place[tensor].offset < 0) continue;
        struct slice *slice = &sliced->slices[index_of(sliced, mesh, shard)];
        if (slice->shard < 0 || shard < slice->shard) slice->shard = shard;
    }
}

static int add(struct finder *finder, struct sliced sliced) {
    sliced.key = free_key(finder, sliced.name);
    slices_shape(&sliced, finder->arena);
    VEC_PUSH(finder->arena, &finder->slices->at, sliced);
    return finder->slices->at.n - 1;
}

/* Adds a tensor of the plan; tensors of the same bytes and cuts share an entry. Of a matrix of an adapter that no file
 * has zeros are stored. */
static int find_loaded(struct finder *finder, int id) {
    const struct graph *graph = finder->plan->graph;
    const struct tensor *tensor = &graph->tensors.at[id];
    struct sliced sliced = describe(tensor);
    add_cuts(&sliced, &graph->mesh, tensor);
    if (tensor->kind != TENSOR_CONST && tensor->stored.file < 0) /* it has an initial value, which takes their place */
        sliced.bytes =
            ARENA_ARRAY(finder->arena, unsigned char, tensor_elements(tensor) * (int64_t)rt_dtype_bytes(sliced.dtype));
    if (sliced.bytes) return add(finder, sliced);
    const char *part = part_text(finder, tensor, &sliced), *place = slices_place_of(finder->arena, tensor);
    const int found = map_find(&finder->parts, part);
    if (found >= 0) return found;
    const int fresh = add(finder, sliced);
    map_set(&finder->parts, part, fresh);
    map_set(&finder->places, place, fresh);
    const int64_t stored = rt_coding_stored(&tensor->stored.coding, tensor_elements(tensor));
    if (tensor->replaces && stored * (int64_t)rt_dtype_bytes(tensor->stored.dtype) > BUILD_KNOWN_BYTES) {
        const char *whole = slices_place(finder->arena, tensor->stored.file, (int64_t)tensor->stored.offset,
                                         tensor->stored.dtype, stored, "");
        map_set(&finder->places, whole, fresh);
    }
    return fresh;
}

/* Adds the matrix of an adapter, as each of the sets has it. */
static int find_sets(struct finder *finder, int id) {
    const struct graph *graph = finder->plan->graph;
    const struct tensor *tensor = &graph->tensors.at[id];
    const char *place = slices_place_of(finder->arena, tensor);
    const int first = finder->slices->at.n;
    for (int i = 0; i < finder->sets->n; i++) {
        struct sliced sliced = describe(tensor);
        sliced.stored.offset += (uint64_t)(i * finder->sets->stride);
        if (finder->sets->bytes) sliced.bytes = finder->sets->bytes + sliced.stored.offset;
        add_cuts(&sliced, &graph->mesh, tensor);
        const int at = add(finder, sliced);
        find_owners(finder, &finder->slices->at.at[at], id);
    }
    map_set(&finder->places, place, first);
    return first;
}

/* Lists slices by owner. Slices of a tensor that no rank loads belong to shard 0. */
static void list_by_shard(struct slices *slices, struct arena *arena) {
    slices->of_shard = ARENA_ARRAY(arena, struct slice_list, slices->shards);
    for (int i = 0; i < slices->at.n; i++)
        EACH(slices->at.at[i].slices, slices->at.at[i].nslices, s, struct slice *const slice) {
            if (slice->shard < 0) slice->shard = 0;
            VEC_PUSH(arena, &slices->of_shard[slice->shard].at, (struct slice_ref){i, s});
        }
}

static void use(struct stored_weights *weights, const struct graph *graph, bool *used, int id) {
    if (id < 0 || used[id]) return;
    used[id] = true;
    if (graph->tensors.at[id].kind == TENSOR_WEIGHT) VEC_PUSH(graph->arena, &weights->at, graph->tensors.at[id]);
}

void slices_stored(struct stored_weights *weights, const struct graph *graph) {
    bool *used = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    *weights = (struct stored_weights){0};
    GRAPH_EACH(graph, i, const struct node *node)
        for (int k = 0; k < node->ninputs; k++) use(weights, graph, used, node->inputs[k]);
    for (int i = 0; i < graph->outputs.n; i++) use(weights, graph, used, graph->outputs.at[i]);
    for (int i = 0; i < graph->updates.n; i++) use(weights, graph, used, graph->updates.at[i].weight);
    for (int i = 0; i < graph->parameters.n; i++) use(weights, graph, used, graph->parameters.at[i].weight);
}

void slices_find(struct slices *slices, const struct rankplan *plan, const struct stored_weights *weights,
                 const struct lora_sets *sets) {
    struct arena *arena = plan->graph->arena;
    struct finder finder = {.slices = slices, .plan = plan, .sets = sets, .arena = arena};
    *slices = (struct slices){.of_weight = ARENA_ARRAY(arena, int, plan->weights.n + 1),
                              .shards = mesh_size(&plan->graph->mesh)};
    map_init(&finder.keys, arena);
    map_init(&finder.places, arena);
    map_init(&finder.parts, arena);
    free_key(&finder, "__metadata__"); /* reserved by the format */
    for (int i = 0; i < plan->weights.n; i++) {
        if (sets->n && plan->graph->tensors.at[plan->weights.at[i]].mark == MARK_ADAPTER) {
            slices->of_weight[i] = find_sets(&finder, plan->weights.at[i]);
            continue;
        }
        slices->of_weight[i] = find_loaded(&finder, plan->weights.at[i]);
        find_owners(&finder, &slices->at.at[slices->of_weight[i]], plan->weights.at[i]);
    }
    VEC_EACH(&weights->at, i, const struct tensor *weight) {
        const char *place = slices_place_of(arena, weight);
        if (map_find(&finder.places, place) >= 0) continue;
        map_set(&finder.places, place, add(&finder, describe(weight)));
    }
    list_by_shard(slices, arena);
}

char *slices_path(struct arena *arena, int shard) {
    return arena_printf(arena, "weights/slices-%d.safetensors", shard);
}

const char *slices_header(const struct slices *slices, int shard, struct arena *arena, size_t *bytes) {
    const struct slice_list *list = &slices->of_shard[shard];
    struct rt_safetensor *tensors = ARENA_ARRAY(arena, struct rt_safetensor, list->at.n + 1);
    struct rt_reason why;
    for (int i = 0; i < list->at.n; i++) {
        const struct sliced *sliced = &slices->at.at[list->at.at[i].tensor];
        const struct slice *slice = &sliced->slices[list->at.at[i].index];
        tensors[i] = (struct rt_safetensor){
            .name = sliced->key, .dtype = sliced->dtype, .ndim = slice->ndim, .bytes = slice->bytes};
        memcpy(tensors[i].dims, slice->dims, sizeof slice->dims);
    }
    char *header = rt_safetensors_header(tensors, list->at.n, NULL, bytes, &why);
    if (header) arena_own(arena, header, free);
    return header;
}

/* A slice in one dimension: `length` indices from `start` on in each of `blocks` blocks of `block` indices, in every
 * second block from `turned` on (Note [Mirrored cuts] in runtime/base/shape/part.h). */
struct run {
    int64_t extent, blocks, block, start, turned, length;
};

struct walk {
    struct run dim[RT_MAX_NDIM];
    int depth;     /* number of dimensions up to the last one that is cut */
    int64_t inner; /* bytes of one index of dimension depth - 1 */
    void (*take)(void *context, size_t offset, size_t bytes);
    void *context;
};

/* Walks dimension `d` and those after it; `above` is the flattened index of the dimensions before. */
static void walk_dim(const struct walk *walk, int d, int64_t above) {
    const struct run *dim = &walk->dim[d];
    for (int64_t b = 0; b < dim->blocks; b++) {
        const int64_t first = above * dim->extent + b * dim->block + (b % 2 ? dim->turned : dim->start);
        if (d + 1 >= walk->depth)
            walk->take(walk->context, (size_t)(first * walk->inner), (size_t)(dim->length * walk->inner));
        else
            for (int64_t i = 0; i < dim->length; i++) walk_dim(walk, d + 1, first + i);
    }
}

void slice_walk(const struct sliced *sliced, int index, void (*take)(void *context, size_t offset, size_t bytes),
                void *context) {
    struct walk walk = {.depth = 1, .inner = (int64_t)rt_dtype_bytes(sliced->dtype), .take = take, .context = context};
    int place[RT_MAX_AXES];
    int64_t dims[RT_MAX_NDIM];
    place_of(sliced, index, place);
    memcpy(dims, sliced->dims, sizeof dims);
    walk.dim[0] = (struct run){1, 1, 1, 0, 0, 1}; /* for a scalar */
    for (int d = 0; d < sliced->ndim; d++)
        walk.dim[d] = (struct run){sliced->dims[d], 1, sliced->dims[d], 0, 0, sliced->dims[d]};
    EACH(sliced->cut, sliced->ncuts, c, const struct slice_cut *at) {
        struct run *run = &walk.dim[at->dim];
        const struct rt_cut cut = cut_of(at, dims);
        run->blocks = rt_blocks(cut.blocks);
        run->block = sliced->dims[at->dim] / run->blocks;
        run->start += rt_cut_start_in(&cut, place[c], 0);
        run->turned += rt_cut_start_in(&cut, place[c], 1);
        run->length = rt_cut_length(&cut, place[c]);
        dims[at->dim] = rt_cut_extent(&cut, place[c]);
        if (at->dim + 1 > walk.depth) walk.depth = at->dim + 1;
    }
    for (int d = walk.depth; d < sliced->ndim; d++) walk.inner *= sliced->dims[d];
    if (sliced->slices[index].bytes) walk_dim(&walk, 0, 0);
}
