/* The parameters of a model that is trained: one line for those whose names differ only in numbers. */
#include <inttypes.h>
#include <stdio.h>

#include "frontend/cli/memory.h"
#include "frontend/cli/show/show.h"
#include "ir/base/map.h"

enum { NAME_COLUMNS = 44, SHAPE_COLUMNS = 16, CUT_COLUMNS = 24 };

static const char *shape_text(const struct rt_json *shape, struct arena *arena, int64_t *count) {
    struct strbuf text = {.arena = arena};
    *count = 1;
    for (const struct rt_json *dim = rt_json_first(shape); dim; dim = dim->next) {
        int64_t size = 0;
        rt_json_int(dim, &size);
        *count =
            (int64_t)((uint64_t)*count *
                      (uint64_t)size); /* unsigned: a manifest may hold any number, and signed overflow is undefined */
        strbuf_printf(&text, "%s%" PRId64, text.length ? "," : "", size);
    }
    return arena_printf(arena, "[%s]", strbuf_text(&text));
}

static const char *cut_text(const struct rt_json *partition, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (const struct rt_json *cut = rt_json_first(partition); cut; cut = cut->next) {
        int64_t dim = 0, ways = 0;
        rt_json_int(rt_json_member(cut, "dim"), &dim);
        rt_json_int(rt_json_member(cut, "ways"), &ways);
        strbuf_printf(&text, "%sdim %" PRId64 " in %" PRId64 " (%s)", text.length ? ", " : "", dim, ways,
                      show_text(rt_json_member(cut, "axis"), arena));
    }
    return strbuf_text(&text);
}

/* How ZeRO divides the part: "slices in 4 (data, units)"; "" if it does not. */
static const char *slices_text(const struct compiled_model *compiled, const struct rt_json *axes, struct arena *arena) {
    int64_t ways = 1;
    struct strbuf names = {.arena = arena};
    for (const struct rt_json *axis = rt_json_first(axes); axis; axis = axis->next) {
        strbuf_printf(&names, "%s%s", names.length ? ", " : "", show_text(axis, arena));
        ways *= memory_ways(compiled, rt_json_text(axis));
    }
    return names.length ? arena_printf(arena, "slices in %" PRId64 " (%s)", ways, strbuf_text(&names)) : "";
}

static const char *division_text(const struct compiled_model *compiled, const struct rt_json *parameter,
                                 struct arena *arena) {
    const char *cuts = cut_text(rt_json_member(parameter, "partition"), arena),
               *slices = slices_text(compiled, rt_json_member(parameter, "slices"), arena);
    if (!*cuts && !*slices) return "whole";
    return arena_printf(arena, "%s%s%s", cuts, *cuts && *slices ? ", " : "", slices);
}

static const char *number_text(const struct rt_json *parameter, const char *key, struct arena *arena) {
    double value;
    if (!rt_json_real(rt_json_member(parameter, key), &value)) return "?";
    return arena_printf(arena, "%g", value);
}

/* The parameter's name in the model and, if the exporter stored it in another form, that in PyTorch. */
static const char *name_text(const struct rt_json *parameter, struct arena *arena) {
    const char *name = show_text(rt_json_member(parameter, "name"), arena);
    const struct rt_json *from = rt_json_member(parameter, "computed_from");
    return from ? arena_printf(arena, "%s (of %s)", name, show_text(from, arena)) : name;
}

struct row {
    const char *name, *rest;
    int count;
};
struct rows {
    struct map index;
    VEC(struct row) all;
    int64_t parameters, values, frozen, constants;
    const struct compiled_model *compiled;
};

static const char *rest_text(const struct rt_json *parameter, struct rows *rows, struct arena *arena) {
    const struct rt_json *trained = rt_json_member(parameter, "trained");
    const bool frozen = trained && trained->kind == RT_JSON_BOOL && !trained->boolean;
    int64_t count;
    const char *shape = shape_text(rt_json_member(parameter, "shape"), arena, &count);
    const char *how = frozen ? "not trained"
                             : arena_printf(arena, "lr %s, weight decay %s", number_text(parameter, "lr", arena),
                                            number_text(parameter, "weight_decay", arena));
    rows->parameters++, rows->frozen += frozen;
    rows->values = (int64_t)((uint64_t)rows->values + (uint64_t)count);
    return arena_printf(arena, "%-*s %-*s %s%s", SHAPE_COLUMNS, shape, CUT_COLUMNS,
                        division_text(rows->compiled, parameter, arena), how,
                        rt_json_member(parameter, "doubt") ? ", may be constant" : "");
}

static void add(struct rows *rows, const struct rt_json *parameter, bool fold, struct arena *arena) {
    const char *name = name_text(parameter, arena), *rest = rest_text(parameter, rows, arena);
    const char *key = arena_printf(arena, "%s %s", fold ? show_pattern(arena, name) : name, rest);
    const int at = map_find(&rows->index, key);
    if (at >= 0) {
        rows->all.at[at].name = show_pattern(arena, name);
        rows->all.at[at].count++;
        return;
    }
    map_set(&rows->index, key, rows->all.n);
    VEC_PUSH(arena, &rows->all, ((struct row){name, rest, 1}));
}

static void put_row(struct strbuf *out, const struct row *row) {
    const char *times = row->count > 1 ? arena_printf(out->arena, " (%dx)", row->count) : "";
    strbuf_printf(out, "  %-*s %s\n", NAME_COLUMNS, arena_printf(out->arena, "%s%s", row->name, times), row->rest);
}

void show_parameters(struct strbuf *out, const struct compiled_model *compiled, bool verbose) {
    const struct rt_json *parameters = rt_json_member(compiled->root, "parameters");
    struct rows rows = {.compiled = compiled, .index = {.arena = out->arena}};
    if (!parameters) return;
    for (const struct rt_json *p = rt_json_first(parameters); p; p = p->next) add(&rows, p, !verbose, out->arena);
    const struct rt_json *constants = rt_json_items(compiled->root, "constants");
    for (const struct rt_json *c = constants; c; c = c->next) rows.constants++;
    strbuf_printf(out, "\nparameters: %" PRId64 ", of %" PRId64 " values", rows.parameters, rows.values);
    if (rows.frozen) strbuf_printf(out, ", %" PRId64 " not trained", rows.frozen);
    if (rows.constants) strbuf_printf(out, "; %" PRId64 " constant%s", rows.constants, rows.constants == 1 ? "" : "s");
    strbuf_putc(out, '\n');
    for (int i = 0; i < rows.all.n; i++) put_row(out, &rows.all.at[i]);
    for (const struct rt_json *c = verbose ? constants : NULL; c; c = c->next)
        strbuf_printf(out, "  %-*s %-*s constant: %s\n", NAME_COLUMNS, show_text(rt_json_member(c, "name"), out->arena),
                      SHAPE_COLUMNS, show_text(rt_json_member(c, "type"), out->arena),
                      show_text(rt_json_member(c, "reason"), out->arena));
}
