#include <limits.h>

#include "ir/text/reader.h"
#include "runtime/base/number/moments.h"

bool read_dtype(struct reader *r, enum rt_dtype *dtype) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a type", word)) return false;
    *dtype = rt_dtype_by_name(word);
    return *dtype != RT_DTYPE_NONE || fail_at(r, start, "unknown type '%s'", word);
}

bool read_type(struct reader *r, struct tensor *tensor) {
    const int64_t *dims;
    const char *start = place(r);
    if (!read_dtype(r, &tensor->dtype) || !read_ints(r, RT_MAX_NDIM, 0, &tensor->ndim, &dims)) return false;
    for (int d = 0; d < tensor->ndim; d++) tensor->dims[d] = dims[d];
    return graph_shape_fits(r->graph, tensor->ndim, tensor->dims) || fail_at(r, start, "the tensor is too large");
}

bool read_axis(struct reader *r, int *axis) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a mesh axis", word)) return false;
    *axis = mesh_axis_by_name(&r->graph->mesh, word);
    return *axis >= 0 ? expect(r, ":") : fail_at(r, start, "the mesh has no axis '%s'", word);
}

static bool read_reduce(struct reader *r, struct placement *placement) {
    *placement = (struct placement){.kind = PLACED_PARTIAL};
    for (int i = 0; i < 3; i++)
        if (take(r, reduce_names[i])) return placement->reduce = (enum rt_reduce)i, true;
    return fail_at(r, r->at, "sum, max or min expected");
}

bool read_cut(struct reader *r, const char *separator, int64_t *blocks, int64_t *grain) {
    if (!expect(r, separator)) return false;
    const char *at = r->at;
    if (!read_int(r, -INT64_MAX, INT64_MAX, "blocks", blocks)) return false;
    if (!*blocks || (*blocks < 0 && *blocks % 2))
        return fail_at(r, at, "blocks must be at least 1, or even and negative for a mirrored cut");
    return expect(r, separator) && read_int(r, 1, INT64_MAX, "grain", grain);
}

static bool read_part(struct reader *r, struct placement *placement) {
    int64_t dim;
    *placement = (struct placement){.kind = PLACED_PART};
    if (!read_int(r, 0, RT_MAX_NDIM - 1, "the dimension", &dim)) return false;
    placement->dim = (int)dim;
    return read_cut(r, ",", &placement->blocks, &placement->grain);
}

/* Reads a window. Its numbers are bounded, so that the indices that positions read do not overflow. */
static bool read_window(struct reader *r, struct placement *placement) {
    const int64_t most = (int64_t)1 << 30;
    struct reach *reach = &placement->reach;
    int64_t dim;
    *placement = (struct placement){.kind = PLACED_WINDOW, .blocks = 1};
    bool done = read_int(r, 0, RT_MAX_NDIM - 1, "the dimension", &dim) && expect(r, ",") &&
                read_int(r, 1, most, "grain", &placement->grain) && expect(r, ",") &&
                read_int(r, 1, most, "positions", &reach->positions) && expect(r, ",") &&
                read_int(r, 1, most, "stride", &reach->stride) && expect(r, ",") &&
                read_int(r, -most, most, "before", &reach->before) && expect(r, ",") &&
                read_int(r, 1, (int64_t)1 << 40, "span", &reach->span);
    if (done) placement->dim = (int)dim;
    return done;
}

static bool read_placement(struct reader *r, struct placement *placement) {
    if (take(r, "own")) return *placement = (struct placement){.kind = PLACED_OWN}, true;
    if (take(r, "flat")) return *placement = (struct placement){.kind = PLACED_FLAT}, true;
    if (take(r, "scales")) return *placement = (struct placement){.kind = PLACED_FLAT, .grain = 1}, true;
    if (take(r, "blocks")) return *placement = (struct placement){.kind = PLACED_FLAT, .grain = RT_MOMENT_BLOCK}, true;
    if (take(r, "partial(")) return read_reduce(r, placement) && expect(r, ")");
    if (take(r, "window(")) return read_window(r, placement) && expect(r, ")");
    return expect(r, "part(") && read_part(r, placement) && expect(r, ")");
}

bool read_layout(struct reader *r, struct layout *layout) {
    int axis;
    do {
        if (!read_axis(r, &axis)) return false;
        struct placement placement = layout_along(layout, axis);
        if (placement.kind != PLACED_WHOLE) return fail_at(r, r->at, "this axis is given twice");
        if (!read_placement(r, &placement)) return false;
        if ((placement.kind == PLACED_OWN) > (axis >= r->graph->mesh.naxes))
            return fail_at(r, r->at, "only along a replica axis a value is a rank's own");
        layout_place(r->arena, layout, axis, placement);
    } while (take(r, ","));
    return expect(r, "}");
}

bool cut_fits(int64_t extent, int64_t blocks, int64_t grain) {
    int64_t product;
    return !__builtin_mul_overflow(blocks, grain, &product) && extent % product == 0;
}

bool check_layout(struct reader *r, const struct definition *definition, const struct tensor *tensor) {
    for (int c = 0; c < tensor->layout.ncuts; c++) {
        const struct placement *placement = &tensor->layout.cuts[c].placement;
        if (!placement_divides(placement)) continue;
        if (placement->dim >= tensor->ndim) return fail_at(r, definition->at, "it has %d dimension(s)", tensor->ndim);
        bool part = placement->kind == PLACED_PART;
        if (!cut_fits(part ? tensor->dims[placement->dim] : placement->reach.positions, placement->blocks,
                      placement->grain))
            return fail_at(r, definition->at, "blocks times grain does not divide %s",
                           part ? arena_printf(r->arena, "dimension %d", placement->dim) : "the positions");
    }
    return true;
}

static bool read_number_of_tensor(struct reader *r, int *number) {
    int64_t value;
    if (!expect(r, "%") || !read_int(r, 0, INT_MAX - 1, "the number of a tensor", &value)) return false;
    *number = (int)value;
    return true;
}

static bool is_defined(const struct reader *r, int number) {
    for (int i = 0; i < r->ndefined; i++)
        if (!r->defined[i].left_out && r->defined[i].number == number) return true;
    return map_get(&r->ids, (const char *)&number, sizeof number) >= 0;
}

struct definition *read_definition(struct reader *r) {
    struct definition new = {.at = place(r), .tensor = -1};
    if (r->ndefined == MAX_OUTPUTS) return fail_at(r, r->at, "too many tensors in one statement"), NULL;
    if (!read_number_of_tensor(r, &new.number)) return NULL;
    if (is_defined(r, new.number)) return fail_at(r, new.at, "%%%d is already defined", new.number), NULL;
    r->defined[r->ndefined++] = new;
    struct definition *definition = &r->defined[r->ndefined - 1];
    if (!read_string(r, &definition->given.name)) return NULL;
    if (!*definition->given.name) return fail_at(r, new.at, "a tensor needs a name"), NULL;
    return definition;
}

bool read_use(struct reader *r, int *tensor) {
    int number;
    const char *start = place(r);
    if (!read_number_of_tensor(r, &number)) return false;
    int found = map_get(&r->ids, (const char *)&number, sizeof number);
    *tensor = found - 1;
    return found < 0 ? fail_at(r, start, "%%%d is not defined here", number) : found != IN_ERROR;
}

void end_statement(struct reader *r, bool good) {
    EACH(r->defined, r->ndefined, i, const struct definition *d)
        if (!d->left_out) map_put(&r->ids, (const char *)&d->number, sizeof d->number, good ? d->tensor + 1 : IN_ERROR);
    r->ndefined = 0;
}
