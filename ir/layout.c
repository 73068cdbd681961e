#include "ir/layout.h"

#include "ir/base/str.h"
#include "ir/base/vec.h"
#include "runtime/base/shape/flat.h"

bool placement_equal(const struct placement *a, const struct placement *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == PLACED_PARTIAL) return a->reduce == b->reduce;
    if (a->kind == PLACED_WHOLE || a->kind == PLACED_OWN) return true;
    if (a->kind == PLACED_FLAT) return a->grain == b->grain;
    if (a->dim != b->dim || a->blocks != b->blocks || a->grain != b->grain) return false;
    return a->kind == PLACED_PART || (a->reach.positions == b->reach.positions && a->reach.stride == b->reach.stride &&
                                      a->reach.before == b->reach.before && a->reach.span == b->reach.span);
}

bool placement_divides(const struct placement *placement) {
    return placement->kind == PLACED_PART || placement->kind == PLACED_WINDOW;
}

static const struct cut *cut_along(const struct layout *layout, int axis) {
    for (int c = 0; c < layout->ncuts; c++)
        if (layout->cuts[c].axis == axis) return &layout->cuts[c];
    return NULL;
}

struct placement layout_along(const struct layout *layout, int axis) {
    const struct cut *cut = cut_along(layout, axis);
    if (cut) return cut->placement;
    for (int r = 0; r < RT_REDUCES; r++)
        if (layout->partial[r] >> axis & 1)
            return (struct placement){.kind = PLACED_PARTIAL, .reduce = (enum rt_reduce)r};
    return (struct placement){.kind = layout->own >> axis & 1 ? PLACED_OWN : PLACED_WHOLE};
}

static bool in_one_dim(const struct cut *a, const struct cut *b) {
    return placement_divides(&a->placement) && placement_divides(&b->placement) && a->placement.dim == b->placement.dim;
}

/* The cuts, which nest in this order, in the order of struct layout. */
static const struct cut *sorted(struct arena *arena, const struct cut *cuts, int n) {
    struct cut *list = ARENA_ARRAY(arena, struct cut, n + 1);
    int done = 0;
    for (int flat = 0; flat < 2; flat++)
        for (int axis = 0; axis < RT_LAYOUT_AXES; axis++)
            for (int c = 0; c < n; c++) {
                if (cuts[c].axis != axis || (cuts[c].placement.kind == PLACED_FLAT) != flat) continue;
                bool outermost = true;
                for (int outer = 0; outer < c; outer++) outermost = outermost && !in_one_dim(&cuts[outer], &cuts[c]);
                if (outermost) list[done++] = cuts[c];
                for (int inner = c + 1; inner < n && outermost; inner++)
                    if (in_one_dim(&cuts[inner], &cuts[c])) list[done++] = cuts[inner];
            }
    return list;
}

/* Removes the cut along `axis` and adds the new one unless that is NULL. */
static void change_cut(struct arena *arena, struct layout *layout, int axis, const struct placement *added) {
    struct cut cuts[RT_LAYOUT_AXES + 1], new = {.axis = axis};
    int n = 0;
    bool done = !added;
    if (added) new.placement = *added;
    EACH(layout->cuts, layout->ncuts, c, const struct cut *cut) {
        if (cut->axis != axis)
            cuts[n++] = *cut;
        else if (!done && in_one_dim(cut, &new))
            cuts[n++] = new, done = true;
    }
    if (!done) cuts[n++] = new;
    layout->ncuts = (int16_t)n;
    layout->cuts = n ? sorted(arena, cuts, n) : NULL;
}

void layout_place(struct arena *arena, struct layout *layout, int axis, struct placement placement) {
    const bool cuts = placement_divides(&placement) || placement.kind == PLACED_FLAT;
    const uint16_t bit = (uint16_t)(1u << axis);
    const struct placement before = layout_along(layout, axis);
    if (placement_equal(&before, &placement)) return;
    for (int r = 0; r < RT_REDUCES; r++) layout->partial[r] &= (uint16_t)~bit;
    layout->own &= (uint16_t)~bit;
    if (placement.kind == PLACED_PARTIAL) layout->partial[placement.reduce] |= bit;
    if (placement.kind == PLACED_OWN) layout->own |= bit;
    if (cuts || cut_along(layout, axis)) change_cut(arena, layout, axis, cuts ? &placement : NULL);
}

static bool same_cuts(const struct layout *a, const struct layout *b) {
    bool same = a->ncuts == b->ncuts;
    for (int c = 0; c < a->ncuts && same && a->cuts != b->cuts; c++)
        same = a->cuts[c].axis == b->cuts[c].axis && placement_equal(&a->cuts[c].placement, &b->cuts[c].placement);
    return same;
}

bool layout_same_part(const struct layout *a, const struct layout *b) {
    bool same = same_cuts(a, b);
    for (int r = 0; r < RT_REDUCES; r++) same = same && a->partial[r] == b->partial[r];
    return same;
}

bool layout_equal(const struct layout *a, const struct layout *b) {
    return a->own == b->own && layout_same_part(a, b);
}

int layout_inner_axis(const struct layout *layout, int axis) {
    const struct cut *cut = cut_along(layout, axis);
    if (!cut || cut + 1 == layout->cuts + layout->ncuts || !placement_divides(&cut->placement)) return -1;
    const struct cut *next = cut + 1;
    return placement_divides(&next->placement) && next->placement.dim == cut->placement.dim ? next->axis : -1;
}

unsigned layout_flat_axes(const struct layout *layout) {
    unsigned axes = 0;
    for (int c = 0; c < layout->ncuts; c++)
        if (layout->cuts[c].placement.kind == PLACED_FLAT) axes |= 1u << layout->cuts[c].axis;
    return axes;
}

unsigned layout_slices(const struct layout *layout) {
    unsigned slices = layout_flat_axes(layout);
    for (int c = 0; c < layout->ncuts; c++)
        if (layout->cuts[c].placement.kind == PLACED_FLAT && layout->cuts[c].placement.grain)
            slices |= layout->cuts[c].placement.grain > 1 ? RT_FLAT_BLOCKS : RT_FLAT_SCALES;
    return slices;
}

static void put_number(struct strbuf *key, char before, int64_t value) {
    strbuf_putc(key, before);
    strbuf_put_int(key, value);
}

void layout_put_key(struct strbuf *key, const struct layout *layout) {
    for (int r = 0; r < RT_REDUCES; r++) put_number(key, ' ', layout->partial[r]);
    put_number(key, ' ', layout->own);
    for (int c = 0; c < layout->ncuts; c++) {
        const struct placement *held = &layout->cuts[c].placement;
        const struct reach *reach = &held->reach;
        put_number(key, ' ', layout->cuts[c].axis), put_number(key, ':', (int64_t)held->kind);
        if (held->kind == PLACED_FLAT) put_number(key, '/', held->grain);
        if (placement_divides(held))
            put_number(key, '/', held->dim), put_number(key, '/', held->blocks), put_number(key, '/', held->grain);
        if (held->kind == PLACED_WINDOW)
            strbuf_printf(key, "/%lld/%lld/%lld/%lld", (long long)reach->positions, (long long)reach->stride,
                          (long long)reach->before, (long long)reach->span);
    }
}
