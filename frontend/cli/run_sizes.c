/* Sizes of a model that is run by its file name: dimensions without --dim are open, with bounds from the inputs' sizes
 * rounded up, so that the program in the cache serves calls of other sizes too. Bounds grow: a call beyond those of the
 * program in the cache gets one that has both. */
#include "frontend/cli/run_sizes.h"

#include "ir/base/own.h"
#include "ir/base/str.h"

enum { LEAST_BOUND = 8 };

static int64_t rounded_up(int64_t size) {
    int64_t bound = LEAST_BOUND;
    while (bound < size && bound < (int64_t)1 << 30) bound *= 2;
    return bound < size ? size : bound;
}

/* The bounds that the program in `directory` has for the size; false: it has none. */
static bool bounds_of(const struct rt_json *manifest, const char *name, struct open_range *range) {
    for (const struct rt_json *size = rt_json_items(manifest, "sizes"); size; size = size->next) {
        const char *own = rt_json_text(rt_json_member(size, "name"));
        if (own && strcmp(own, name) == 0)
            return rt_json_int(rt_json_member(size, "least"), &range->least) &&
                   rt_json_int(rt_json_member(size, "most"), &range->most);
    }
    return false;
}

static struct open_range range_for(int64_t size, enum run_bounds bounds, const struct rt_json *manifest,
                                   const char *name) {
    struct open_range range = {bounds == BOUNDS_FROM_ONE && size ? 1 : size, rounded_up(size), 1, 0}, had = range;
    if (bounds == BOUNDS_FIXED) return open_fixed(size);
    const bool fits = bounds_of(manifest, name, &had) && size >= had.least && size <= had.most;
    if (fits || had.least < range.least) range.least = had.least;
    if (fits || had.most > range.most) range.most = had.most;
    range.typical = range.most;
    return range;
}

const char *run_sizes_add(struct options *options, const struct option_sizes *sizes, enum run_bounds bounds,
                          const char *directory, struct arena *arena) {
    struct rt_reason why;
    bool intact;
    struct rt_json_document *document = own_sealed(arena, directory, "manifest.json", &intact, &why);
    const struct rt_json *manifest = document ? rt_json_root(document) : NULL;
    const char *said = "";
    VEC_UNSHARE(arena, &options->dims.all);
    VEC_EACH(&sizes->all, i, const struct option_size *size) {
        const struct open_range range = range_for(size->range.most, bounds, manifest, size->name);
        VEC_PUSH(arena, &options->dims.all, ((struct option_size){size->name, range}));
        said = arena_printf(arena, "%s%s%s=%s", said, i ? ", " : "", str_name(arena, size->name),
                            open_range_text(arena, &range));
    }
    return said;
}
