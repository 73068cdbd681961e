/* The classes of a plan's ranks: shards of the same pipeline coordinate whose parts of all tensors have the same
 * extents.
 *
 * Note [Classes by coordinate]
 * At most one mesh axis divides a dimension of a tensor, so a shard's coordinate on each axis determines the extents
 * along the dimensions that this axis divides. On each axis, the coordinates for which all these extents are equal form
 * a set; on the pipeline axis each coordinate is a set of its own. A class consists of one set per axis: of all shards
 * whose coordinates are in these sets. So the sets are found from the sizes of the axes, and nothing is computed or
 * stored for each shard. Sets are numbered by their first coordinate, classes by their first shard. A stage that lacks
 * an axis has the first set of that axis alone. */
#include "passes/rank/memplan.h"

#include "ir/base/map.h"

/* The different ways in which tensors are divided along a mesh axis: of a nested cut, one for each extent that the
 * cuts outside it leave some rank. */
struct divisions {
    const struct graph *graph;
    struct arena *arena;
    struct map seen;
    VEC(struct rt_placement) all;
};

static void add_division(struct divisions *divisions, const struct rt_placement *placement) {
    const struct rt_cut *cut = &placement->cut;
    const int64_t key[] = {cut->extent,       cut->blocks,       cut->grain,     placement->extent,
                           placement->stride, placement->before, placement->span};
    if (map_put(&divisions->seen, (const char *)key, sizeof key, 0))
        VEC_PUSH(divisions->arena, &divisions->all, *placement);
}

/* Adds the tensor's division along `axis` for every extent that the cuts of its dimension from number `c` on leave. */
static void divide_further(struct divisions *divisions, const struct tensor *tensor, int axis, int c, int *coordinate) {
    const struct cut *cut = &tensor->layout.cuts[c];
    const struct rt_placement ranks = placement_of_ranks(divisions->graph, tensor, cut->axis, coordinate);
    if (cut->axis == axis) return add_division(divisions, &ranks);
    for (int r = 0; r < ranks.cut.ways; r++) {
        coordinate[cut->axis] = r;
        if (!r || rt_placement_extent(&ranks, r) != rt_placement_extent(&ranks, r - 1))
            divide_further(divisions, tensor, axis, c + 1, coordinate);
    }
}

static void find_divisions(struct divisions *divisions, int axis) {
    map_init(&divisions->seen, divisions->arena);
    VEC_EACH(&divisions->graph->tensors, t, const struct tensor *tensor) {
        const struct placement held = layout_along(&tensor->layout, axis);
        int coordinate[RT_MAX_AXES] = {0}, outermost = 0;
        if (!placement_divides(&held)) continue;
        while (tensor->layout.cuts[outermost].placement.dim != held.dim) outermost++;
        divide_further(divisions, tensor, axis, outermost, coordinate);
    }
}

static bool same_extents(const struct divisions *divisions, int left, int right) {
    for (int i = 0; i < divisions->all.n; i++)
        if (rt_placement_extent(&divisions->all.at[i], left) != rt_placement_extent(&divisions->all.at[i], right))
            return false;
    return true;
}

static void find_sets(struct coordinate_sets *sets, const struct graph *graph, int axis) {
    struct arena *scratch = arena_scratch(graph->arena);
    const int size = graph->mesh.axis[axis].size;
    const bool stages = axis == mesh_pipeline_axis(&graph->mesh);
    struct divisions divisions = {.graph = graph, .arena = scratch};
    find_divisions(&divisions, axis);
    sets->of = ARENA_ARRAY(graph->arena, int, size);
    sets->first = ARENA_ARRAY(graph->arena, int, size);
    for (int c = 0; c < size; c++) {
        int s = 0;
        while (s < sets->n && (stages || !same_extents(&divisions, sets->first[s], c))) s++;
        if (s == sets->n) sets->first[sets->n++] = c;
        sets->of[c] = s;
    }
    arena_release(graph->arena, scratch);
}

static int64_t (*local_dims(const struct graph *graph, const int *coordinate))[RT_MAX_NDIM] {
    int64_t(*dims)[RT_MAX_NDIM] = arena_alloc(graph->arena, (size_t)graph->tensors.n + 1, sizeof *dims);
    for (int t = 0; t < graph->tensors.n; t++) tensor_local_dims(graph, &graph->tensors.at[t], coordinate, dims[t]);
    return dims;
}

static void find_chunks(const struct graph *graph, struct rank_class *class, int coordinate) {
    class->coordinate = coordinate;
    class->chunks = ARENA_ARRAY(graph->arena, int, RT_MAX_CHUNKS);
    for (int chunk = 0; chunk < schedule_chunks(graph); chunk++)
        if (schedule_home(graph, chunk) == coordinate) class->chunks[class->nchunks++] = chunk;
}

static void find_schedule(const struct graph *graph, struct rank_class *class) {
    bool *runs = ARENA_ARRAY(graph->arena, bool, graph->segments.n + 1);
    class->schedule = &graph->schedules.at[class->coordinate];
    class->segments = ARENA_ARRAY(graph->arena, int, class->schedule->nops + 1);
    for (int i = 0; i < class->schedule->nops; i++) runs[class->schedule->ops[i].segment] = true;
    for (int s = 0; s < graph->segments.n; s++)
        if (runs[s]) class->segments[class->nsegments++] = s;
}

/* One set per axis, in mixed radix: what a class consists of. */
struct combination {
    int without_stage; /* the number of the combination with the first pipeline coordinate and these sets */
    int coordinate[RT_MAX_AXES];
    bool exists; /* its stage has the axes along which its coordinates are not 0 */
};

static struct combination combination_at(const struct rankplan *plan, int number) {
    const struct mesh *mesh = &plan->graph->mesh;
    const int pipeline = mesh_pipeline_axis(mesh);
    struct combination at = {.without_stage = number, .exists = true};
    for (int a = 0, rest = number, stride = 1; a < mesh->naxes; a++) {
        const int set = rest % plan->sets[a].n;
        at.coordinate[a] = plan->sets[a].first[set];
        if (a == pipeline) at.without_stage -= set * stride;
        rest /= plan->sets[a].n;
        stride *= plan->sets[a].n;
    }
    for (int a = 0; a < mesh->naxes && pipeline >= 0; a++)
        at.exists = at.exists && (at.coordinate[a] == 0 || mesh_has(mesh, a, at.coordinate[pipeline]));
    return at;
}

void classes_find(struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    const struct mesh *mesh = &graph->mesh;
    const int pipeline = mesh_pipeline_axis(mesh);
    int combinations = 1;
    for (int a = 0; a < mesh->naxes; a++) {
        find_sets(&plan->sets[a], graph, a);
        combinations *= plan->sets[a].n;
    }
    plan->classes = ARENA_ARRAY(graph->arena, struct rank_class, combinations);
    plan->class_of = ARENA_ARRAY(graph->arena, int, combinations);
    int64_t(**dims)[RT_MAX_NDIM] = arena_alloc(graph->arena, (size_t)combinations, sizeof *dims);
    plan->nclasses = 0;
    for (int c = 0; c < combinations; c++) {
        const struct combination at = combination_at(plan, c);
        if (!at.exists) continue;
        struct rank_class *class = &plan->classes[plan->class_of[c] = plan->nclasses++];
        class->shard = mesh_shard(mesh, at.coordinate);
        find_chunks(graph, class, pipeline < 0 ? 0 : at.coordinate[pipeline]);
        if (!dims[at.without_stage]) dims[at.without_stage] = local_dims(graph, at.coordinate);
        class->dims = dims[at.without_stage];
        find_schedule(graph, class);
    }
}

int rankplan_class_of(const struct rankplan *plan, int shard) {
    const struct mesh *mesh = &plan->graph->mesh;
    int coordinate[RT_MAX_AXES], number = 0;
    mesh_coordinate(mesh, shard, coordinate);
    for (int a = mesh->naxes - 1; a >= 0; a--) number = number * plan->sets[a].n + plan->sets[a].of[coordinate[a]];
    return plan->class_of[number];
}

bool rankplan_class_includes(const struct rankplan *plan, const struct rank_class *class, int axis, int coordinate) {
    int own[RT_MAX_AXES];
    mesh_coordinate(&plan->graph->mesh, class->shard, own);
    return plan->sets[axis].of[own[axis]] == plan->sets[axis].of[coordinate];
}
