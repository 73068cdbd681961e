#include "codegen/rank.h"

#include <stdio.h>
#include <string.h>

#include "codegen/layers.h"

/* Note [Sites]
 * Every instruction of a step has a number, its site: its place in the order, the same on all ranks that run it,
 * and the index into "instructions" of manifest.json, which names the ONNX node. Communication records it, so that
 * a rank that waits can be asked for what. */

/* A pointer of a function: the tensor it stands for in each call of the function. */
struct role {
    const int *tensors;
    const char *name;
    bool fixed, written;
};

/* One function in the making: the step itself, or a layer. */
struct function {
    const struct rankplan *plan;
    const struct plan_class *class;
    struct arena *arena;
    const struct instruction *instructions;
    int times, period; /* calls, and instructions from one call to the next */
    VEC(struct role) roles;
    int counts[3]; /* names given, per prefix */
    struct strbuf body;
    const char *said; /* node name last put in a comment */
};

static const struct tensor *tensor_at(const struct function *f, int id) {
    return &f->plan->graph->tensors.at[id];
}

static const char *type_name(const struct function *f, int tensor) {
    return rt_dtypes[tensor_at(f, tensor)->dtype].c_type;
}

/* The tensors that slot `slot` of instruction `i` stands for in the function's calls. */
static const int *slot_tensors(struct function *f, int i, int slot) {
    int *tensors = ARENA_ARRAY(f->arena, int, f->times);
    for (int call = 0; call < f->times; call++)
        tensors[call] = f->instructions[i + call * f->period].tensors.at[slot];
    return tensors;
}

static bool one_address(const struct function *f, const int *tensors) {
    const struct plan_place *place = f->class->place;
    for (int call = 1; call < f->times; call++)
        if (place[tensors[call]].offset != place[tensors[0]].offset ||
            place[tensors[call]].arena != place[tensors[0]].arena)
            return false;
    return true;
}

static bool is_written(const struct function *f, int tensor) {
    return tensor_at(f, tensor)->kind == TENSOR_VALUE;
}

static void put_shape_comment(struct function *f, int tensor) {
    const struct tensor *t = tensor_at(f, tensor);
    strbuf_puts(&f->body, "  // (");
    for (int d = 0; d < t->ndim; d++)
        strbuf_printf(&f->body, "%s%lld", d ? "," : "", (long long)f->class->dims[tensor][d]);
    strbuf_puts(&f->body, ")");
    if (t->kind != TENSOR_VALUE && f->times == 1 && str_is_plain(t->name)) strbuf_printf(&f->body, " %s", t->name);
    strbuf_putc(&f->body, '\n');
}

/* Where the role's tensor is: an offset in an arena, of the function or of the call, or an input of the step. */
static const char *address_of(const struct function *f, const struct role *role) {
    const struct plan_place *place = &f->class->place[role->tensors[0]];
    if (place->arena == PLAN_CALLER) return arena_printf(f->arena, "rt->inputs[%lld]", (long long)place->offset);
    const char *arena = plan_arena_names[place->arena];
    if (!role->fixed) return arena_printf(f->arena, "(%s + at->%s)", arena, role->name);
    return arena_printf(f->arena, "(%s + %lld)", arena, (long long)place->offset);
}

static void declare(struct function *f, const struct role *role) {
    int tensor = role->tensors[0];
    bool constant = !role->written || f->class->place[tensor].arena == PLAN_CALLER;
    const char *type = arena_printf(f->arena, "%s%s", constant ? "const " : "", type_name(f, tensor));
    strbuf_printf(&f->body, "%s *%s = (%s *)%s;", type, role->name, type, address_of(f, role));
    put_shape_comment(f, tensor);
}

/* The role of a slot, declared at its first use. */
static const struct role *role_of(struct function *f, int i, int slot) {
    const int *tensors = slot_tensors(f, i, slot);
    for (int r = 0; r < f->roles.n; r++)
        if (memcmp(f->roles.at[r].tensors, tensors, (size_t)f->times * sizeof *tensors) == 0)
            return &f->roles.at[r];
    enum tensor_kind kind = tensor_at(f, tensors[0])->kind;
    int prefix = kind == TENSOR_VALUE ? 0 : kind == TENSOR_INPUT ? 1 : 2;
    struct role role = {.tensors = tensors, .fixed = one_address(f, tensors), .written = is_written(f, tensors[0])};
    role.name = arena_printf(f->arena, "%c%d", "txw"[prefix], f -> counts[prefix]++);
    VEC_PUSH(f->arena, &f->roles, role);
    declare(f, &role);
    return &f->roles.at[f->roles.n - 1];
}

/* The call with its holes filled; `site` is written before the instruction's own number. */
static void put_call(struct function *f, int i, const char *site, int number) {
    const struct instruction *instruction = &f->instructions[i];
    int slot = 0;
    for (int s = 1; s <= instruction->tensors.n; s++)
        role_of(f, i, s % instruction->tensors.n); /* the result last */
    for (const char *c = instruction->text; *c; c++) {
        if (*c == 1)
            strbuf_puts(&f->body, role_of(f, i, slot++)->name);
        else if (*c == 2)
            strbuf_printf(&f->body, "%s%d", site, number);
        else
            strbuf_putc(&f->body, *c);
    }
    strbuf_putc(&f->body, '\n');
}

static void put_node_comment(struct function *f, int i) {
    const struct node *node = &f->plan->graph->nodes.at[f->instructions[i].node];
    if (f->said && strcmp(f->said, node->name) == 0) return;
    strbuf_printf(&f->body, "%s// %s %s\n", f->body.length ? "\n" : "", node->op->name,
                  str_is_plain(node->name) ? node->name : "");
    f->said = node->name;
}

static struct function new_function(const struct rankplan *plan, const struct plan_class *class,
                                    const struct instruction *instructions, int times, int period) {
    struct function f = {.plan = plan,
                         .class = class,
                         .arena = plan->graph->arena,
                         .instructions = instructions,
                         .times = times,
                         .period = period};
    strbuf_init(&f.body, f.arena);
    return f;
}

/* Layers ----------------------------------------------------------------------------------------------------------
 */

static void bind_offsets(const struct function *f, struct tmpl_env *env) {
    struct strbuf fields;
    strbuf_init(&fields, f->arena);
    tmpl_list(env, "rows");
    for (int r = 0; r < f->roles.n; r++)
        if (!f->roles.at[r].fixed) strbuf_printf(&fields, "%s%s", fields.length ? ", " : "", f->roles.at[r].name);
    tmpl_set(env, "fields_text", strbuf_text(&fields));
    for (int call = 0; call < f->times; call++) {
        struct strbuf row;
        strbuf_init(&row, f->arena);
        for (int r = 0; r < f->roles.n; r++)
            if (!f->roles.at[r].fixed)
                strbuf_printf(&row, "%s%lld", row.length ? ", " : "",
                              (long long)f->class->place[f->roles.at[r].tensors[call]].offset);
        tmpl_set(tmpl_entry(env, "rows"), "row", strbuf_text(&row));
    }
}

/* Names of the arenas the text uses, declared at the top of the function. */
static void bind_arenas(struct tmpl_env *env, const char *text) {
    static const char *const enumerators[] = {"RT_WEIGHTS",     "RT_GRADIENTS",     "RT_OPTIMIZER",
                                              "RT_ACTIVATIONS", "RT_COMMUNICATION", "RT_SCRATCH"};
    tmpl_list(env, "arenas");
    for (int a = 0; a < PLAN_ARENAS; a++) {
        char use[40];
        snprintf(use, sizeof use, "%s + ", plan_arena_names[a]);
        if (!strstr(text, use)) continue;
        struct tmpl_env *entry = tmpl_entry(env, "arenas");
        tmpl_set(entry, "arena", plan_arena_names[a]);
        tmpl_set(entry, "enumerator", enumerators[a]);
    }
}

/* True if its calls differ in addresses. */
static bool write_layer(const struct rankplan *plan, const struct plan_class *class,
                        const struct instruction *instructions, const struct stretch *stretch, struct tmpl_env *env,
                        int number) {
    struct function f = new_function(plan, class, instructions, stretch->times, stretch->period);
    for (int j = 0; j < stretch->period; j++) {
        put_node_comment(&f, stretch->first + j);
        put_call(&f, stretch->first + j, "site + ",
                 instructions[stretch->first + j].site - instructions[stretch->first].site);
    }
    tmpl_setf(env, "layer", "layer_%d", number);
    tmpl_setf(env, "times", "%d", stretch->times);
    tmpl_set(env, "body", strbuf_text(&f.body));
    tmpl_set(env, "uses_site", strstr(strbuf_text(&f.body), "site + ") ? "yes" : "");
    bind_offsets(&f, env);
    bind_arenas(env, strbuf_text(&f.body));
    bool differ = false;
    for (int r = 0; r < f.roles.n; r++) differ = differ || !f.roles.at[r].fixed;
    tmpl_set(env, "differ", differ ? "yes" : "");
    return differ;
}

/* The step
 * --------------------------------------------------------------------------------------------------------- */

static void put_loop(struct function *step, const struct stretch *stretch, int number, bool differ) {
    const struct instruction *first = &step->instructions[stretch->first];
    int sites = first[stretch->period].site - first->site;
    strbuf_printf(&step->body, "%sfor (int i = 0; i < %d; i++)\n", step->body.length ? "\n" : "", stretch->times);
    const char *at = differ ? arena_printf(step->arena, "&layer_%d_at[i], ", number) : "";
    strbuf_printf(&step->body, "    RT_TRY(layer_%d(rt, %s%d + %d * i));\n", number, at, first->site, sites);
    step->said = NULL;
}

/* Weights that become other values after the step. */
static void put_updates(struct function *step) {
    const struct graph *graph = step->plan->graph;
    for (int i = 0; i < graph->updates.n; i++) {
        struct update u = graph->updates.at[i];
        const struct plan_place *to = &step->class->place[u.weight], *from = &step->class->place[u.value];
        if (to->offset < 0) continue;
        strbuf_printf(&step->body, "\nmemcpy(%s + %lld, %s + %lld, %lld);  // update\n",
                      plan_arena_names[to->arena], (long long)to->offset, plan_arena_names[from->arena],
                      (long long)from->offset, (long long)rankplan_bytes(step->class, graph, u.weight));
    }
}

/* What ranks of the class execute, in order; returns how many. */
static int instructions_of(const struct rankplan *plan, const struct plan_class *class, struct kernels *kernels,
                           struct instruction *out) {
    const struct graph *graph = plan->graph;
    int n = 0, site = 0;
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        if (graph->nodes.at[id].op->class == OP_VIEW) continue;
        out[n].site = site++;
        if (rankplan_part(class, &graph->nodes.at[id]) && kernel_instruction(plan, class, kernels, id, &out[n]))
            n++;
    }
    return n;
}

const char *rank_source(const struct rankplan *plan, int class, const struct target *target,
                        const struct tmpl_env *program) {
    const struct graph *graph = plan->graph;
    const struct plan_class *c = &plan->classes[class];
    struct tmpl_env *env = tmpl_env(graph->arena, program);
    struct kernels *kernels = kernels_new(graph->arena, target);
    struct instruction *instructions = ARENA_ARRAY(graph->arena, struct instruction, graph->order.n + 1);
    struct stretches stretches;
    int n = instructions_of(plan, c, kernels, instructions), layers = 0;
    layers_find(graph->arena, plan, c, instructions, n, &stretches);
    struct function step = new_function(plan, c, instructions, 1, 0);
    tmpl_list(env, "layers");
    for (int s = 0; s < stretches.all.n; s++) {
        const struct stretch *stretch = &stretches.all.at[s];
        if (stretch->times == 1) {
            put_node_comment(&step, stretch->first);
            put_call(&step, stretch->first, "", instructions[stretch->first].site);
        } else {
            bool differ = write_layer(plan, c, instructions, stretch, tmpl_entry(env, "layers"), layers);
            put_loop(&step, stretch, layers++, differ);
        }
    }
    put_updates(&step);
    tmpl_setf(env, "class", "%d", class);
    tmpl_set(env, "kernels", kernels_text(kernels));
    tmpl_set(env, "body", strbuf_text(&step.body));
    bind_arenas(env, strbuf_text(&step.body));
    return tmpl_fill(graph->arena, target->rank_template, template_text(target->rank_template), env);
}
