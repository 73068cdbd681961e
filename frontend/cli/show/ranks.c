#include "frontend/cli/show/ranks.h"

#include <inttypes.h>

#include "ir/base/str.h"

/* The last index of the longest run of equal steps that starts at i. */
static int end_of_run(const struct rank_list *list, int i) {
    const int64_t *rank = list->all.at;
    int last = i + 1 < list->all.n ? i + 1 : i;
    while (last + 1 < list->all.n && rank[last + 1] - rank[last] == rank[i + 1] - rank[i]) last++;
    return last;
}

const char *rank_list_text(const struct rank_list *list, struct arena *arena) {
    const int64_t *rank = list->all.at;
    struct strbuf text = {.arena = arena};
    for (int i = 0, last; i < list->all.n; i = last + 1) {
        last = end_of_run(list, i);
        const int64_t step = last > i ? rank[i + 1] - rank[i] : 0;
        strbuf_printf(&text, "%s%" PRId64, i ? "," : "", rank[i]);
        if (step == 1)
            strbuf_printf(&text, "-%" PRId64, rank[last]);
        else if (last - i >= 3)
            strbuf_printf(&text, ",%" PRId64 "..%" PRId64, rank[i + 1], rank[last]);
        else
            last = i;
    }
    return strbuf_text(&text);
}

/* The coordinate on the pipeline axis of a stage; its number if the ranks have one stage each. */
static int64_t home_of(const struct compiled_model *compiled, int64_t stage) {
    const struct rt_json *home = rt_json_items(compiled->root, "stages");
    int64_t coordinate = stage;
    for (int64_t s = 0; home && s < stage; s++) home = home->next;
    rt_json_int(home, &coordinate);
    return coordinate;
}

struct rank_list ranks_of_stage(const struct compiled_model *compiled, int64_t stage, struct arena *arena) {
    const int axis = mesh_pipeline_axis(&compiled->mesh);
    const int64_t home = home_of(compiled, stage);
    struct rank_list list = {0};
    for (int64_t rank = 0; rank < compiled->runtime_ngpus; rank++) {
        int coordinate[RT_MAX_AXES];
        mesh_coordinate(&compiled->mesh, (int)(rank % compiled->plan_ngpus), coordinate);
        if (axis < 0 || coordinate[axis] == home) VEC_PUSH(arena, &list.all, rank);
    }
    return list;
}

/* True if one of the ranges [first, count] includes the coordinate. */
static bool in_ranges(const struct rt_json *ranges, int coordinate) {
    for (const struct rt_json *range = rt_json_first(ranges); range; range = range->next) {
        int64_t first = 0, count = 0;
        const struct rt_json *part = rt_json_first(range);
        if (rt_json_int(part, &first) && rt_json_int(part->next, &count) && first >= 0 && coordinate >= first &&
            coordinate - first < count)
            return true;
    }
    return false;
}

/* True if a class with these coordinates, a list of ranges per mesh axis, includes the shard. */
static bool includes(const struct compiled_model *compiled, const struct rt_json *coordinates, int shard) {
    int coordinate[RT_MAX_AXES];
    const struct rt_json *ranges = rt_json_first(coordinates);
    mesh_coordinate(&compiled->mesh, shard, coordinate);
    for (int a = 0; a < compiled->mesh.naxes; a++, ranges = ranges->next)
        if (!ranges || !in_ranges(ranges, coordinate[a])) return false;
    return true;
}

const struct rt_json **ranks_classes(const struct compiled_model *compiled, struct arena *arena) {
    const struct rt_json **of_shard = ARENA_ARRAY(arena, const struct rt_json *, compiled->plan_ngpus);
    const struct rt_json *class = rt_json_items(compiled->root, "classes");
    for (; class; class = class->next) {
        const struct rt_json *coordinates = rt_json_member(class, "coordinates");
        for (int shard = 0; shard < compiled->plan_ngpus; shard++)
            if (!of_shard[shard] && includes(compiled, coordinates, shard)) of_shard[shard] = class;
    }
    return of_shard;
}

/* The groups of ranks along a mesh axis, in order of their first rank. Along the pipeline axis of unequal stages each
 * scale unit is one. */
static void along_axis(struct rank_groups *groups, const struct compiled_model *compiled, int axis,
                       struct arena *arena) {
    const struct mesh *mesh = &compiled->mesh;
    const int pipeline = mesh_pipeline_axis(mesh);
    const bool unit = axis == pipeline && !mesh_is_even(mesh);
    for (int rank = 0; rank < compiled->runtime_ngpus; rank++) {
        int coordinate[RT_MAX_AXES];
        mesh_coordinate(mesh, (int)(rank % compiled->plan_ngpus), coordinate);
        const int stage = pipeline < 0 ? 0 : coordinate[pipeline];
        struct rank_group group = {rank, mesh->axis[axis].size, mesh_stride(mesh, axis, stage)};
        if (unit) group = (struct rank_group){rank, compiled->plan_ngpus, 1};
        if (unit ? rank % compiled->plan_ngpus == 0 : coordinate[axis] == 0 && mesh_has(mesh, axis, stage))
            VEC_PUSH(arena, &groups->all, group);
    }
}

struct rank_groups ranks_groups(const struct compiled_model *compiled, const struct rt_json *entry,
                                const struct rt_json *const *classes, struct arena *arena) {
    const char *name = rt_json_text(rt_json_member(entry, "axis"));
    const int axis = name ? mesh_axis_by_name(&compiled->mesh, name) : -1;
    const int64_t units = compiled->runtime_ngpus / compiled->plan_ngpus;
    struct rank_groups groups = {0};
    int64_t index;
    if (axis >= 0) along_axis(&groups, compiled, axis, arena);
    if (units == 1 || !rt_json_int(rt_json_member(entry, "class"), &index)) return groups;
    const struct rt_json *class = rt_json_item(compiled->root, "classes", index);
    for (int64_t shard = 0; shard < compiled->plan_ngpus && class; shard++) {
        const struct rank_group group = {shard, units, compiled->plan_ngpus};
        if (classes[shard] == class) VEC_PUSH(arena, &groups.all, group);
    }
    return groups;
}

struct rank_list ranks_of_group(const struct rank_group *group, struct arena *arena) {
    struct rank_list list = {0};
    for (int64_t i = 0; i < group->count; i++) VEC_PUSH(arena, &list.all, group->first + i * group->stride);
    return list;
}
