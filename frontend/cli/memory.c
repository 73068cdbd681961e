#include "frontend/cli/memory.h"

#include "passes/rank/rankplan.h"
#include "runtime/base/shape/flat.h"

#define MOST_ELEMENTS ((int64_t)1 << 50) /* keeps sums of bytes below INT64_MAX, whatever the manifest says */

const char *const memory_kinds[MEMORY_KINDS] = {
#define ARENA(id, name) #name,
#include "runtime/base/arenas.def"
#undef ARENA
    "peak",
};

/* The ranks along each axis: mesh axes, then the scale units of a ZeRO group. */
static void find_ways(const struct compiled_model *compiled, int ways[RT_LAYOUT_AXES]) {
    const int64_t units = compiled->runtime_ngpus / compiled->plan_ngpus;
    const int64_t groups = rt_json_number(rt_json_member(compiled->root, "training"), "zero_ngroups", 1);
    for (int a = 0; a < RT_LAYOUT_AXES; a++) ways[a] = 1;
    for (int a = 0; a < compiled->mesh.naxes; a++) ways[a] = compiled->mesh.axis[a].size;
    ways[compiled->mesh.naxes] = (int)(groups > 0 && units % groups == 0 ? units / groups : units);
}

static int axis_of(const struct compiled_model *compiled, const char *name) {
    const int axis = name ? mesh_axis_by_name(&compiled->mesh, name) : -1;
    return axis >= 0 ? axis : compiled->mesh.naxes;
}

int memory_ways(const struct compiled_model *compiled, const char *axis) {
    int ways[RT_LAYOUT_AXES];
    find_ways(compiled, ways);
    return ways[axis_of(compiled, axis)];
}

/* Reads an entry of "flats" but its elements; false if it is invalid. */
static bool read_flat(const struct compiled_model *compiled, const struct rt_json *entry, struct rt_flat *flat) {
    const char *arena = rt_json_text(rt_json_member(entry, "arena")),
               *dtype = rt_json_text(rt_json_member(entry, "dtype")),
               *slices = rt_json_text(rt_json_member(entry, "slices"));
    int id = 0;
    *flat = (struct rt_flat){0};
    if (!arena || !dtype) return false;
    while (id < RT_ARENAS && strcmp(memory_kinds[id], arena) != 0) id++;
    flat->arena = (enum rt_arena)id;
    flat->dtype = rt_dtype_by_name(dtype);
    for (const struct rt_json *name = rt_json_items(entry, "axes"); name; name = name->next)
        flat->axes |= 1u << axis_of(compiled, rt_json_text(name));
    if (slices) flat->axes |= strcmp(slices, "blocks") == 0 ? RT_FLAT_BLOCKS : RT_FLAT_SCALES;
    return id < RT_ARENAS && flat->dtype < RT_DTYPE_COUNT;
}

static void add_flats(const struct compiled_model *compiled, const struct rt_json *class, int64_t bytes[MEMORY_KINDS]) {
    int ways[RT_LAYOUT_AXES];
    struct rt_flat flat;
    find_ways(compiled, ways);
    for (const struct rt_json *entry = rt_json_items(class, "flats"); entry; entry = entry->next) {
        if (!read_flat(compiled, entry, &flat)) continue;
        for (const struct rt_json *n = rt_json_items(entry, "elements"); n; n = n->next) {
            int64_t at;
            if (rt_json_int(n, &flat.elements) && flat.elements >= 0 && flat.elements <= MOST_ELEMENTS)
                rt_flat_place(&flat, 1, ways, bytes, &at);
        }
    }
}

void memory_of_class(const struct compiled_model *compiled, const struct rt_json *class, const char *key,
                     int64_t bytes[MEMORY_KINDS]) {
    const struct rt_json *memory = rt_json_member(class, key);
    for (int i = 0; i < MEMORY_KINDS; i++) {
        bytes[i] = 0;
        rt_json_int(rt_json_member(memory, memory_kinds[i]), &bytes[i]);
    }
    if (!rt_json_member(class, "flats")) return;
    add_flats(compiled, class, bytes);
    bytes[MEMORY_PEAK] = 0;
    for (int a = 0; a < RT_HOST; a++) bytes[MEMORY_PEAK] += bytes[a];
}
