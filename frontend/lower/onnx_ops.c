/* Look-up of rows of onnx_ops.def by name and version. */
#include "frontend/lower/onnx_ops.h"

#include <string.h>

#define FORM(name_, since_, min_, max_, outputs_, ...)                                                                 \
    .name = #name_, .since = since_, .in_min = min_, .in_max = max_, .out_max = outputs_, .attrs = __VA_ARGS__

#define MAP(name, since, inputs, core_, attrs)                                                                         \
    {.domain = "", FORM(name, since, inputs, inputs, 1, attrs), .core = &ops[OP_##core_], .counted = COUNTED_BROADCAST},
#define OP(name, since, min, max, outputs, lower_, ...)                                                                \
    {.domain = "", FORM(name, since, min, max, outputs, __VA_ARGS__), .lower = lower_},
#define SEQ(name, since, min, max, outputs, lower_, ...)                                                               \
    {.domain = "", FORM(name, since, min, max, outputs, __VA_ARGS__), .lower = lower_, .sequences = true},
#define MS(name, min, max, outputs, lower_, attrs)                                                                     \
    {.domain = "com.microsoft", FORM(name, 1, min, max, outputs, attrs), .lower = lower_},
#define NCHWC(name, min, max, outputs, lower_, attrs)                                                                  \
    {.domain = "com.microsoft.nchwc", FORM(name, 1, min, max, outputs, attrs), .lower = lower_},
#define PREVIEW(name, since, min, max, outputs, lower_, attrs)                                                         \
    {.domain = "ai.onnx.preview", FORM(name, since, min, max, outputs, attrs), .lower = lower_},
#define ML(name, since, min, max, outputs, lower_, attrs)                                                              \
    {.domain = "ai.onnx.ml", FORM(name, since, min, max, outputs, attrs), .lower = lower_},
#define NOT_ML(name, since, code, remedy_)                                                                             \
    {.domain = "ai.onnx.ml", FORM(name, since, 0, 0, 0, ""), .refused = code, .remedy = remedy_},
#define NOT(name, since, code) {.domain = "", FORM(name, since, 0, 0, 0, ""), .refused = code},

const struct onnx_op onnx_ops[] = {
#include "frontend/lower/onnx_ops.def"
};
const int onnx_nops = sizeof onnx_ops / sizeof *onnx_ops;

/* The key of an operator in the index: "domain::name", or "name" in the default domain. */
static const char *row_key(struct arena *arena, const char *domain, const char *name) {
    return *domain ? arena_printf(arena, "%s::%s", domain, name) : name;
}

void onnx_op_index(struct map *rows, struct arena *arena) {
    map_init(rows, arena);
    for (int i = 0; i < onnx_nops; i++) {
        const char *key = row_key(arena, onnx_ops[i].domain, onnx_ops[i].name);
        if (map_find(rows, key) < 0) map_set(rows, key, i);
    }
}

const struct onnx_op *onnx_op_find(const struct map *rows, const char *domain, const char *name, int64_t version,
                                   const struct onnx_op **first) {
    const struct onnx_op *found = NULL;
    const char *key = row_key(rows->arena, domain, name);
    int at = map_find(rows, key);
    *first = at < 0 ? NULL : &onnx_ops[at];
    for (int i = at; i >= 0 && i < onnx_nops && strcmp(onnx_ops[i].name, name) == 0; i++)
        if (onnx_ops[i].since <= version) found = &onnx_ops[i];
    return found;
}
