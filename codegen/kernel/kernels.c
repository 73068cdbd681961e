#include "codegen/kernel/kernels.h"

#include <ctype.h>
#include <string.h>

#include "codegen/text/tmpl.h"
#include "ir/base/str.h"

struct kernels *kernels_new(struct arena *arena, const struct target *target, const struct sizes *sizes) {
    struct kernels *kernels = ARENA_NEW(arena, struct kernels);
    kernels->arena = arena;
    kernels->target = target;
    kernels->sizes = sizes;
    map_init(&kernels->by_body, arena);
    return kernels;
}

const char *kernels_text(const struct kernels *kernels) {
    struct strbuf out = {.arena = kernels->arena};
    for (int i = 0; i < kernels->texts.n; i++) strbuf_printf(&out, "%s%s", i ? "\n" : "", kernels->texts.at[i]);
    return strbuf_text(&out);
}

static bool is_taken(const struct kernels *kernels, const char *name) {
    for (int i = 0; i < kernels->names.n; i++)
        if (strcmp(kernels->names.at[i], name) == 0) return true;
    return false;
}

/* "add_3": the operator in lower case, and a number; "acme__gate_3" of an operator acme::Gate. The first function of an
 * optimizer is its name alone, "adamw_update". */
static const char *function_name(struct kernels *kernels, const char *op) {
    char *name = arena_strdup(kernels->arena, op);
    for (char *c = name; *c; c++) *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
    const char *end = strstr(name, "_update");
    const bool alone = end && strcmp(end, "_update") == 0 && !is_taken(kernels, name);
    return alone ? name : arena_printf(kernels->arena, "%s_%d", name, kernels->names.n);
}

static const char *fill(const struct kernels *kernels, struct tmpl_env *env, const char *template, const char *name) {
    tmpl_set(env, "name", name);
    return tmpl_fill(kernels->arena, template, template_text(template), env);
}

/* The template is first filled with a placeholder as name, so that functions which differ only in the name are one. So
 * are those that differ in what equal sizes are called, which are then numbers. */
const char *kernels_share(struct kernels *kernels, struct tmpl_env *env, const char *template, const char *stem) {
    const char *body = sizes_valued(kernels->arena, fill(kernels, env, template, stem));
    const int known = map_find(&kernels->by_body, body);
    if (known >= 0) {
        const char **text = &kernels->texts.at[known], *name = kernels->names.at[known];
        if (strcmp(*text, fill(kernels, env, template, name)) != 0) *text = sizes_valued(kernels->arena, *text);
        return name;
    }
    const char *name = function_name(kernels, stem);
    map_set(&kernels->by_body, body, kernels->names.n);
    VEC_PUSH(kernels->arena, &kernels->names, name);
    VEC_PUSH(kernels->arena, &kernels->texts, fill(kernels, env, template, name));
    return name;
}
