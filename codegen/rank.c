#include "codegen/source.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "codegen/call/local.h"
#include "codegen/held.h"
#include "codegen/text/names.h"
#include "codegen/remarks.h"
#include "ir/base/map.h"
#include "ir/base/repeats.h"

/* Note [Layers]
 * Two instructions are alike if their calls have equal text and their tensors equal types, so that they differ in
 * addresses only. A sequence of `period` instructions that occurs `times` times in a row becomes a function that is
 * called `times` times. A pointer in this function stands for a tensor of each call (struct role). If its
 * address is the same in all calls it is a constant of the function. Else the function reads from a table with a row
 * per call what differs: the offset; the arena too, such as where the first layer's input is a sum over ranks; or the
 * whole place, where one call's value lies in slots of micro-batches and another's does not. */

enum { MIN_PERIOD = 4 }; /* shorter repetitions are more readable written out */

/* A number for each instruction, equal for alike instructions whose numbers (Note [Instruction numbers]) are
 * at equal distance from the one before. */
static int *kinds_of(struct arena *arena, const struct rankplan *plan, const struct rank_class *class,
                     const struct instruction *instructions, int n) {
    int *kinds = ARENA_ARRAY(arena, int, n + 1);
    struct map seen = {.arena = arena};
    struct strbuf key = {.arena = arena};
    for (int i = 0; i < n; i++) {
        key.length = 0;
        strbuf_printf(&key, "%d ", i ? instructions[i].number - instructions[i - 1].number : 1);
        instruction_kind(&key, plan, class, &instructions[i]);
        if (map_get(&seen, key.text, key.length) < 0) map_put(&seen, key.text, key.length, seen.n);
        kinds[i] = map_get(&seen, key.text, key.length);
    }
    return kinds;
}

/* Divides instructions [first, end) of the source into stretches, in order; those that occur several times are
 * layers. */
static void layers_find(const struct rankplan *plan, const struct source *source, int first, int end,
                        struct stretches *out) {
    struct arena *arena = plan->graph->arena;
    const struct rank_class *class = &plan->classes[source->classes[0]];
    const int n = end - first, *kinds = kinds_of(arena, plan, class, source->instructions[0] + first, n);
    repeats_find(arena, kinds, n, MIN_PERIOD, out);
    for (int s = 0; s < out->all.n; s++) out->all.at[s].first += first;
}

/* Note [Instruction numbers]
 * Instructions are numbered in the order of the step. The number is the same on all ranks that run the instruction. It
 * is the index into "instructions" of manifest.json, which names the ONNX node. Communication records the current
 * number, so that a report on a waiting rank can say what it waits for. */

/* What the addresses of a role in all calls have in common. */
enum likeness {
    SAME_ADDRESS,
    SAME_ARENA, /* they differ in the offset */
    SAME_SLOT,  /* in arena and offset */
    NOTHING_SAME
};

/* A pointer variable of a generated function. */
struct role {
    const int *tensors; /* per call: the tensor that it points to; then the instruction if is_merged(), else -1 */
    const char *name;
    const char *field; /* of the row of a call: its own name, or that of one with the same address in every call */
    const char *alias; /* the variable that has the same address in every call: of a view's operand; NULL: none */
    bool constant;     /* the step does not write the tensor */
    enum likeness likeness;
};

/* A key of random numbers that is another in other calls. */
struct key {
    const char *name;
    const int64_t *values; /* per call */
};

/* A function being generated: a segment, or a layer. */
struct function {
    const struct rankplan *plan;
    const struct source *source;
    const struct rank_class *class; /* the first class of the source */
    struct arena *arena;
    int times, period; /* calls in a step; instructions from one call to the next */
    int calls;         /* times x classes, those of the first class first */
    int base;          /* in the first call, the value of the variable `instruction` */
    VEC(struct role) roles;
    VEC(struct key) keys;
    struct map known; /* tensors of a role -> its index */
    struct names names;
    struct strbuf body;
    const char *said; /* the node name in the last comment */
    const char *line; /* the line of the exported program in the last comment that has one */
};

static const struct tensor *tensor_at(const struct function *function, int id) {
    return &function->plan->graph->tensors.at[id];
}

static const struct node *node_at(const struct function *function, int i) {
    return &function->plan->graph->nodes.at[function->source->instructions[0][i].node];
}

/* True for a weight that the first and the last layer share although it is called after one of them: the exporter
 * merged equal weights of layers. */
static bool is_merged(const struct function *function, const int *tensors) {
    const struct tensor *weight = tensor_at(function, tensors[0]);
    bool numbered = false;
    if (function->times == 1 || tensors[0] != tensors[function->times - 1] || !tensor_is_stored(weight)) return false;
    for (const char *dot = weight->name; (dot = strchr(dot, '.'));) {
        dot++;
        numbered = numbered || (isdigit((unsigned char)*dot) && dot[strspn(dot, "0123456789")] == '.');
    }
    return numbered;
}

/* The tensor of placeholder `slot` of instruction `i`, for every call of the function. A merged weight has a variable
 * for each instruction, called after it: `i` follows; else -1. */
static const int *slot_tensors(struct function *function, int i, int slot) {
    int *tensors = ARENA_ARRAY(function->arena, int, function->calls + 1);
    for (int call = 0; call < function->calls; call++) {
        const struct instruction *instructions = function->source->instructions[call / function->times];
        tensors[call] = instructions[i + call % function->times * function->period].tensors.at[slot];
    }
    tensors[function->calls] = is_merged(function, tensors) ? i : -1;
    return tensors;
}

static bool is_input(const struct plan_place *place) {
    return place->arena == RT_CALLER;
}

static const struct plan_place *place_in(const struct function *function, const int *tensors, int call) {
    return &function->plan->classes[function->source->classes[call / function->times]].place[tensors[call]];
}

static enum likeness compare_places(const struct plan_place *a, const struct plan_place *b) {
    if (a->set != b->set || a->stride != b->stride) return NOTHING_SAME;
    if (a->arena != b->arena) return SAME_SLOT;
    return a->offset != b->offset ? SAME_ARENA : SAME_ADDRESS;
}

static enum likeness likeness_of(const struct function *function, const int *tensors) {
    enum likeness least = SAME_ADDRESS;
    for (int call = 1; call < function->calls; call++) {
        const enum likeness here = compare_places(place_in(function, tensors, 0), place_in(function, tensors, call));
        if (here > least) least = here;
    }
    return least;
}

/* What an address adds to the offset for the slot of the micro-batch. */
static const char *slot_text(struct arena *arena, const struct plan_place *place) {
    return place->stride ? arena_printf(arena, " + rt->slot[%d] * %lld", place->set, (long long)place->stride) : "";
}

/* For a slice that lies in the memory of the tensor that it was cut from: its offset there, to be added to the
 * address. */
static const char *slice_start(const struct function *function, int tensor) {
    const unsigned axes = layout_slices(&tensor_at(function, tensor)->layout);
    if (!axes) return "";
    return arena_printf(function->arena, " + rt_flat_start(rt, 0x%x, %lld)", axes,
                        (long long)rankplan_elements(function->class, function->plan->graph, tensor));
}

/* True if the tensors of two roles lie in the same memory in every call. */
static bool share_memory(const struct function *function, const int *a, const int *b) {
    const int *root = function->plan->root;
    for (int call = 0; call < function->calls; call++)
        if (a[call] == b[call] || root[a[call]] != root[b[call]]) return false;
    return true;
}

/* The role whose memory the tensors share, as views of it or as results computed in place. NULL if they have memory of
 * their own, or share that of no role of the function. */
static const struct role *viewed(const struct function *function, const int *tensors) {
    if (function->plan->root[tensors[0]] == tensors[0]) return NULL;
    for (int r = function->roles.n - 1; r >= 0; r--)
        if (share_memory(function, function->roles.at[r].tensors, tensors)) return &function->roles.at[r];
    return NULL;
}

/* "(48,72) of (48,144)": the shape of the rank's part, and of the whole tensor if that is more. */
static const char *shape_text(const struct function *function, int tensor) {
    const struct tensor *t = tensor_at(function, tensor);
    struct kernels *kernels = function->source->kernels;
    struct strbuf out = {.arena = function->arena};
    for (int d = 0; d < t->ndim; d++)
        strbuf_printf(&out, "%s%s", d ? "," : "(",
                      sizes_extent(kernels->sizes, &kernels->size_names, function->class, tensor, d));
    strbuf_puts(&out, t->ndim ? ")" : "()");
    if (memcmp(function->class->dims[tensor], t->dims, (size_t)t->ndim * sizeof *t->dims)) {
        for (int d = 0; d < t->ndim; d++)
            strbuf_printf(&out, "%s%s", d ? "," : " of (",
                          sizes_whole(kernels->sizes, &kernels->size_names, tensor, d));
        strbuf_putc(&out, ')');
    }
    return sizes_shown(function->arena, strbuf_text(&out));
}

/* ", the same in layers 0, 2": the layers of a merged weight that share it with others. */
static const char *sharing_text(const struct function *function, const int *tensors) {
    bool all = true;
    struct strbuf out = {.arena = function->arena};
    for (int call = 1; call < function->times; call++) all = all && tensors[call] == tensors[0];
    if (tensors[function->calls] < 0) return "";
    if (all) return ", the same in all layers";
    for (int call = 0; call < function->times; call++) {
        bool shared = false;
        for (int other = 0; other < function->times; other++)
            shared = shared || (other != call && tensors[other] == tensors[call]);
        if (shared) strbuf_printf(&out, "%s %d", out.length ? "," : ", the same in layers", call);
    }
    return strbuf_text(&out);
}

/* True if the tensors of two roles begin at the same address in every call, and their elements have one C type. */
static bool begin_together(const struct function *function, const int *a, const int *b) {
    const struct tensor *first = tensor_at(function, a[0]), *other = tensor_at(function, b[0]);
    if (first->dtype != other->dtype || layout_flat_axes(&first->layout) || layout_flat_axes(&other->layout))
        return false;
    for (int call = 0; call < function->calls; call++)
        if (compare_places(place_in(function, a, call), place_in(function, b, call)) != SAME_ADDRESS) return false;
    return true;
}

/* The address of a role: a constant if it is the same in all calls; else a field of the row of the call says what
 * differs. */
static const char *role_address(const struct function *function, const struct role *role) {
    const struct plan_place *place = place_in(function, role->tensors, 0);
    struct arena *arena = function->arena;
    const char *field = arena_printf(arena, "at->%s", role->field);
    const char *slot = slot_text(arena, place), *start = slice_start(function, role->tensors[0]);
    const char *offset = role->likeness == SAME_ADDRESS ? extents_fixed(function->plan->graph, place->offset) : field;
    if (is_input(place)) return arena_printf(arena, "rt->inputs[%s]", offset);
    if (place->arena == PLAN_FLAT) return arena_printf(arena, "rt->slice[%s]", offset);
    if (role->likeness <= SAME_ARENA)
        return arena_printf(arena, "(%s + %s%s)%s", plan_arena_names[place->arena], offset, slot, start);
    if (role->likeness == NOTHING_SAME) slot = arena_printf(arena, " + rt->slot[%s.set] * %s.stride", field, field);
    return arena_printf(arena, "(rt->arena[%s.arena] + %s.offset%s)%s", field, field, slot, start);
}

/* True for a tensor that a node computes; false for views and for what is stored. */
static bool is_computed(const struct function *function, int tensor) {
    const int producer = tensor_at(function, tensor)->producer;
    return producer >= 0 && !function->plan->moves_nothing[producer];
}

/* Declares the variable of a role, with a comment on the shape. `whole`: the variable in whose memory it lies, NULL if
 * there is none. */
static void declare(struct function *function, const struct role *role, const char *whole) {
    struct strbuf *body = &function->body;
    const int tensor = role->tensors[0];
    const struct tensor *t = tensor_at(function, tensor);
    const char *type =
        arena_printf(function->arena, "%s%s", role->constant ? "const " : "", rt_dtypes[t->dtype].c_type);
    strbuf_printf(body, "%s *%s = ", type, role->name);
    if (role->alias)
        strbuf_printf(body, "%s;  // ", role->alias);
    else
        strbuf_printf(body, "(%s *)%s;  // ", type, role_address(function, role));
    strbuf_printf(body, "%s%s", shape_text(function, tensor),
                  function->plan->packing[tensor] == RT_PLAIN ? "" : " in panels");
    if (layout_flat_axes(&t->layout)) strbuf_puts(body, ", a slice");
    strbuf_puts(body, sharing_text(function, role->tensors));
    const bool computed = is_computed(function, tensor);
    if (role->alias)
        strbuf_puts(body, computed ? ", in place" : ", a view");
    else if (whole)
        strbuf_printf(body, ", %s %s", computed ? "in place of" : "a view of", whole);
    if (t->kind != TENSOR_VALUE && function->calls == 1 && str_is_plain(t->name)) strbuf_printf(body, " %s", t->name);
    strbuf_putc(body, '\n');
}

static const struct node *last_node(const struct function *function, int i) {
    const struct source *source = function->source;
    return &function->plan->graph->nodes
                .at[source->instructions[source->nclasses - 1][i + (function->times - 1) * function->period].node];
}

/* A word for a stored tensor by what the node reads it for. */
static const char *purpose_of(const struct tensor *t, const struct node *node, int tensor) {
    if (node->op->id == OP_Rope) return node->inputs[1] == tensor ? "cos" : "sin";
    if (!rt_dtype_is_float(t->dtype)) return t->ndim ? "numbers" : "number";
    if (t->ndim > 1) return "weight";
    if (!t->ndim) return "number";
    const bool behind = node->op->kind == OP_KERNEL && node_reads(node, tensor) && node_operand(node, tensor) > 1;
    return behind ? "bias" : "weight";
}

/* Words for the name of a variable that instruction i uses. They come from the tensor's own name, for a computed value
 * from its provenance. If that says nothing, a value is named after the node that computes it; any other tensor is
 * named after its purpose in the node of the instruction. */
static const char *words_of(const struct function *function, int i, const int *tensors) {
    const struct graph *graph = function->plan->graph;
    const struct tensor *first = tensor_at(function, tensors[0]),
                        *last = tensor_at(function, tensors[function->calls - 1]);
    const char *a = remarks_value_name(graph, tensors[0]), *b = remarks_value_name(graph, tensors[function->calls - 1]);
    const bool merged = tensors[function->calls] >= 0;
    const bool nothing = tensor_is_stored(first) ? names_says_no_member(a) : names_says_nothing(a);
    if (!nothing && !merged) return names_words(function->arena, a, b);
    if (first->kind == TENSOR_VALUE && first->producer >= 0 && last->producer >= 0)
        return names_words(function->arena, graph->nodes.at[first->producer].name,
                           graph->nodes.at[last->producer].name);
    const char *dot = strrchr(a, '.');
    const char *part =
        dot && (merged || !names_says_nothing(dot + 1)) ? dot + 1 : purpose_of(first, node_at(function, i), tensors[0]);
    return arena_printf(function->arena, "%.*s_%.*s", NAME_MOST - 7,
                        names_words(function->arena, remarks_node_name(graph, node_at(function, i)),
                                    remarks_node_name(graph, last_node(function, i))),
                        6, names_words(function->arena, part, part));
}

/* A word for a variable if no name in the model says anything: for a value, the operator that computes it. */
static const char *word_of_kind(const struct function *function, int id) {
    const struct tensor *t = tensor_at(function, id);
    if (t->kind == TENSOR_INPUT) return "x";
    if (t->kind != TENSOR_VALUE || t->producer < 0) return "w";
    const char *name = function->plan->graph->nodes.at[t->producer].op->name;
    return names_words(function->arena, name, name);
}

/* The tensors that views show: a view of what has no variable in the function is called after that. */
static const int *seen_tensors(const struct function *function, const int *tensors) {
    int *seen = arena_copy(function->arena, tensors, ((size_t)function->calls + 1) * sizeof *tensors);
    for (int call = 0; call < function->calls; call++)
        for (int p; (p = tensor_at(function, seen[call])->producer) >= 0 && function->plan->moves_nothing[p];)
            seen[call] = function->plan->graph->nodes.at[p].inputs[0];
    return seen;
}

/* The role of placeholder `slot`; declares its variable at the first use. */
static const struct role *role_of(struct function *function, int i, int slot) {
    const int *tensors = slot_tensors(function, i, slot);
    const size_t bytes = ((size_t)function->calls + 1) * sizeof *tensors;
    const int known = map_get(&function->known, (const char *)tensors, bytes);
    if (known >= 0) return &function->roles.at[known];
    map_put(&function->known, (const char *)tensors, bytes, function->roles.n);
    const struct role *whole = viewed(function, tensors);
    const int *named = whole ? tensors : seen_tensors(function, tensors);
    struct role role = {.tensors = tensors, .likeness = likeness_of(function, tensors)};
    role.constant = tensor_at(function, tensors[0])->kind != TENSOR_VALUE || is_input(place_in(function, tensors, 0));
    role.name = names_take(&function->names, words_of(function, i, named), word_of_kind(function, named[0]));
    const bool together = whole && begin_together(function, tensors, whole->tensors);
    role.field = together ? whole->field : role.name;
    if (together && !(whole->constant && is_computed(function, tensors[0]))) { /* which would be written */
        role.alias = whole->name;
        role.constant = whole->constant;
    }
    declare(function, &role, whole ? whole->name : NULL);
    VEC_PUSH(function->arena, &function->roles, role);
    return &function->roles.at[function->roles.n - 1];
}

/* Writes the name of a size; returns where its mark ends. */
static const char *put_size(struct strbuf *body, const char *mark) {
    const char *name, *end;
    const size_t length = sizes_name(mark, &name, &end);
    strbuf_add(body, name, length);
    return end - 1;
}

/* Writes key k of the instruction: the number, or where calls have others a field of the row of the call. */
static void put_key(struct function *function, int i, int k) {
    int64_t *values = ARENA_ARRAY(function->arena, int64_t, function->calls);
    bool same = true;
    for (int call = 0; call < function->calls; call++) {
        const struct instruction *instructions = function->source->instructions[call / function->times];
        values[call] = instructions[i + call % function->times * function->period].keys.at[k];
        same = same && values[call] == values[0];
    }
    if (same) return strbuf_puts(&function->body, extents_fixed(function->plan->graph, values[0]));
    int at = 0;
    while (at < function->keys.n &&
           memcmp(function->keys.at[at].values, values, (size_t)function->calls * sizeof *values) != 0)
        at++;
    if (at == function->keys.n) {
        const struct graph *graph = function->plan->graph;
        const char *words = names_words(function->arena, remarks_node_name(graph, node_at(function, i)),
                                        remarks_node_name(graph, last_node(function, i)));
        words = arena_printf(function->arena, "%.*s_key", NAME_MOST - 4, words);
        VEC_PUSH(function->arena, &function->keys, ((struct key){names_take(&function->names, words, "key"), values}));
    }
    strbuf_printf(&function->body, "at->%s", function->keys.at[at].name);
}

/* True if the instruction has the same number in all classes of a source, although others have not. */
static bool is_numbered_alike(const struct function *function, int i) {
    return function->times == 1 && function->calls > 1 && node_at(function, i)->stage == STAGE_ALL;
}

/* Writes what RT_AT adds to `instruction`. */
static void put_number(struct function *function, int i, int number) {
    const bool alike = is_numbered_alike(function, i);
    const char *digits = extents_fixed(function->plan->graph, alike ? number : number - function->base);
    strbuf_printf(&function->body, alike ? "%s - instruction" : "%s", digits);
}

/* Writes the call with its placeholders replaced: tensors, and the instruction's number less that in `instruction`. */
static void put_call(struct function *function, int i) {
    const struct instruction *instruction = &function->source->instructions[0][i];
    int slot = 0, key = 0;
    for (int s = 1; s <= instruction->tensors.n; s++)
        role_of(function, i, s % instruction->tensors.n); /* the result last */
    for (const char *c = instruction->text; *c; c++) {
        if (*c == 1)
            strbuf_puts(&function->body, role_of(function, i, slot++)->name);
        else if (*c == 2)
            put_number(function, i, instruction->number);
        else if (*c == HOLE_KEY)
            put_key(function, i, key++);
        else if (*c == SIZE_MARK)
            c = put_size(&function->body, c);
        else
            strbuf_putc(&function->body, *c);
    }
    strbuf_putc(&function->body, '\n');
}

/* What the variable of the communicated value is called, but for a number. */
static const char *communicated(const struct function *function, int i) {
    const struct graph *graph = function->plan->graph;
    int *tensors = ARENA_ARRAY(function->arena, int, function->calls + 1);
    tensors[function->calls] = -1;
    for (int call = 0; call < function->calls; call++) {
        const struct instruction *instructions = function->source->instructions[call / function->times];
        const int id = instructions[i + call % function->times * function->period].node;
        tensors[call] = op_moved_input(remarks_origin(graph, &graph->nodes.at[id]));
    }
    const char *words = words_of(function, i, tensors);
    return *words ? words : word_of_kind(function, tensors[0]);
}

/* "AllReduce over axis tensor (2 ranks), 4224 bytes: partial sums of attn_c_proj". */
static void put_communication_comment(struct function *function, int i, int axis) {
    const struct graph *graph = function->plan->graph;
    const struct node *node = node_at(function, i);
    const struct tensor *moved = &graph->tensors.at[node->outputs[0]];
    const bool slice = node->op->collective == COLLECTIVE_SEND && layout_flat_axes(&moved->layout);
    strbuf_printf(&function->body, "%s// %s over axis %s (%s), %s%lld bytes: %s %s\n",
                  function->body.length ? "\n" : "", node->op->name, graph->mesh.axis[axis].name,
                  remarks_group(graph, axis), slice ? "a slice of " : "",
                  (long long)rankplan_bytes(function->class, graph, node->outputs[0]), remarks_reason(node),
                  communicated(function, i));
    function->said = NULL;
}

static void put_node_comment(struct function *function, int i) {
    const struct node *node = node_at(function, i);
    const int axis = (int)attr_int(node, "mesh", -1);
    if (node->op->kind == OP_COMM && axis >= 0 && axis < mesh_layout_axes(&function->plan->graph->mesh))
        return put_communication_comment(function, i, axis);
    if (function->said && strcmp(function->said, node->name) == 0) return;
    const struct graph *graph = function->plan->graph;
    strbuf_printf(&function->body, "%s// %s %s%s\n", function->body.length ? "\n" : "", node->op->name,
                  remarks_nodes(graph, node, last_node(function, i)), remarks_line(graph, node, &function->line));
    function->said = node->name;
}

/* The function of instructions from `first` on. A source of several classes has the first number of each in a table. */
static struct function new_function(const struct rankplan *plan, const struct source *source, int times, int period,
                                    int first) {
    const bool in_table = times == 1 && source->nclasses > 1;
    struct function function = {.plan = plan,
                                .source = source,
                                .class = &plan->classes[source->classes[0]],
                                .arena = plan->graph->arena,
                                .times = times,
                                .period = period,
                                .calls = times * source->nclasses,
                                .base = source->instructions[0][in_table ? 0 : first].number};
    strbuf_init(&function.body, function.arena);
    map_init(&function.known, function.arena);
    names_begin(&function.names, function.arena);
    for (int a = 0; a < RT_ARENAS; a++)
        if (a != RT_STATE || plan->states.n) names_reserve(&function.names, plan_arena_names[a]);
    if (plan->graph->open) names_reserve(&function.names, "size"); /* codegen/text/extents.c */
    for (int k = 0; k < source->kernels->names.n; k++) names_reserve(&function.names, source->kernels->names.at[k]);
    return function;
}

/* True if the row of a call has a field for the role. */
static bool has_field(const struct role *role) {
    return role->likeness != SAME_ADDRESS && !role->alias && role->field == role->name;
}

static const char *field_type(const struct role *role) {
    static const char *const types[] = {
        [SAME_ARENA] = "size_t", [SAME_SLOT] = "struct rt_address", [NOTHING_SAME] = "struct rt_place"};
    return types[role->likeness];
}

/* The field of a role in the row of a call. */
static const char *field_text(const struct function *function, const struct role *role, int call) {
    const struct plan_place *place = place_in(function, role->tensors, call);
    const char *slot = role->likeness == NOTHING_SAME
                           ? arena_printf(function->arena, ", %lld, %d", (long long)place->stride, place->set)
                           : "";
    if (role->likeness == SAME_ARENA) return extents_fixed(function->plan->graph, place->offset);
    return arena_printf(function->arena, "{%s, %s%s}", plan_arena_enumerators[place->arena],
                        extents_fixed(function->plan->graph, place->offset), slot);
}

static const char *row_text(const struct function *function, int call) {
    struct strbuf row = {.arena = function->arena};
    for (int r = 0; r < function->roles.n; r++)
        if (has_field(&function->roles.at[r]))
            strbuf_printf(&row, "%s%s", row.length ? ", " : "", field_text(function, &function->roles.at[r], call));
    VEC_EACH(&function->keys, k, const struct key *key)
        strbuf_printf(&row, "%s%s", row.length ? ", " : "", extents_fixed(function->plan->graph, key->values[call]));
    return strbuf_text(&row);
}

/* Binds the table of offsets, a field for each role that is not fixed and a row for each call. True if it has
 * fields. */
static bool bind_offsets(const struct function *function, struct tmpl_env *env) {
    bool differ = function->keys.n > 0;
    tmpl_list(env, "rows");
    tmpl_list(env, "fields");
    VEC_EACH(&function->roles, r, const struct role *role) {
        if (!has_field(role)) continue;
        struct tmpl_env *field = tmpl_entry(env, "fields");
        tmpl_set(field, "field", role->name);
        tmpl_set(field, "type", field_type(role));
        tmpl_setf(field, "shape", "%s%s", shape_text(function, role->tensors[0]),
                  sharing_text(function, role->tensors));
        differ = true;
    }
    VEC_EACH(&function->keys, k, const struct key *key) {
        struct tmpl_env *field = tmpl_entry(env, "fields");
        tmpl_set(field, "field", key->name);
        tmpl_set(field, "type", "int64_t");
        tmpl_set(field, "shape", "of random numbers");
    }
    for (int call = 0; call < function->calls; call++) {
        struct tmpl_env *entry = tmpl_entry(env, "rows");
        tmpl_set(entry, "row", row_text(function, call));
        tmpl_setf(entry, "instruction", "%d", function->source->instructions[call / function->times][0].number);
    }
    tmpl_setf(env, "calls", "%d", function->calls);
    tmpl_set(env, "differ", differ ? "yes" : "");
    return differ;
}

/* Binds the arenas that the text uses, which the function declares first. */
static void bind_arenas(struct tmpl_env *env, const char *text) {
    tmpl_list(env, "arenas");
    for (int a = 0; a < RT_ARENAS; a++) {
        char use[40];
        snprintf(use, sizeof use, "%s + ", plan_arena_names[a]);
        if (!strstr(text, use)) continue;
        struct tmpl_env *entry = tmpl_entry(env, "arenas");
        tmpl_set(entry, "arena", plan_arena_names[a]);
        tmpl_set(entry, "enumerator", plan_arena_enumerators[a]);
    }
}

/* Binds the value of the variable `instruction`, if the function has calls that use it. */
static void bind_instruction(struct function *function, struct tmpl_env *env) {
    const char *body = strbuf_text(&function->body);
    tmpl_set(env, "numbered", strstr(body, "_AT(") || strstr(body, "instruction") ? "yes" : "");
    tmpl_setf(env, "base", "%d", function->base);
}

/* Writes the function of a layer; true if its calls have different addresses. */
static bool write_layer(const struct rankplan *plan, const struct source *source, const struct stretch *stretch,
                        struct tmpl_env *env, const char *name) {
    struct function function = new_function(plan, source, stretch->times, stretch->period, stretch->first);
    for (int j = 0; j < stretch->period; j++) {
        put_node_comment(&function, stretch->first + j);
        put_call(&function, stretch->first + j);
    }
    tmpl_set(env, "layer", name);
    tmpl_set(env, "body", strbuf_text(&function.body));
    bind_instruction(&function, env);
    bind_arenas(env, strbuf_text(&function.body));
    return bind_offsets(&function, env);
}

static void put_loop(struct function *step, const struct stretch *stretch, const char *name, bool differ) {
    const struct instruction *first = &step->source->instructions[0][stretch->first];
    const bool alike = is_numbered_alike(step, stretch->first);
    const char *row = step->calls > 1 ? arena_printf(step->arena, "rt->rank_class->row * %d + i", stretch->times) : "i";
    const char *at = differ ? arena_printf(step->arena, "&%s_at[%s], ", name, row) : "";
    strbuf_printf(&step->body, "%sfor (int i = 0; i < %d; i++)\n", step->body.length ? "\n" : "", stretch->times);
    strbuf_printf(&step->body, "    RT_TRY(%s(rt, %s%s%d + %d * i));\n", name, at, alike ? "" : "instruction + ",
                  alike ? first->number : first->number - step->base, first[stretch->period].number - first->number);
    step->said = NULL;
}

static const char *address_text(const struct function *step, const struct plan_place *place) {
    if (place->arena == PLAN_FLAT) return arena_printf(step->arena, "rt->slice[%lld]", (long long)place->offset);
    return arena_printf(step->arena, "%s + %s%s", plan_arena_names[place->arena],
                        extents_fixed(step->plan->graph, place->offset), slot_text(step->arena, place));
}

/* The address of a value; a slice that lies in an arena begins at its place in the whole. */
static const char *value_text(const struct function *step, int value) {
    const struct graph *graph = step->plan->graph;
    const struct tensor *t = &graph->tensors.at[value];
    const unsigned axes = layout_slices(&t->layout);
    const char *address = address_text(step, &step->class->place[value]);
    if (!axes || step->class->place[value].arena == PLAN_FLAT) return address;
    return arena_printf(step->arena, "%s + rt_flat_start(rt, 0x%x, %lld) * %zu", address, axes,
                        (long long)rankplan_elements(step->class, graph, value), rt_dtype_bytes(t->dtype));
}

static const char *bytes_text(const struct function *step, int tensor) {
    const struct graph *graph = step->plan->graph;
    const struct tensor *t = &graph->tensors.at[tensor];
    const unsigned axes = layout_slices(&t->layout);
    const long long elements = rankplan_elements(step->class, graph, tensor);
    if (axes)
        return arena_printf(step->arena, "(size_t)rt_flat_count(rt, 0x%x, %lld) * %zu", axes, elements,
                            rt_dtype_bytes(t->dtype));
    return arena_printf(step->arena, "%lld", (long long)rankplan_bytes(step->class, graph, tensor));
}

/* Writes copies of new values to weights at the end of the segment, unless they were computed in place. */
static void put_updates(struct function *step, const struct segment *segment) {
    const struct graph *graph = step->plan->graph;
    VEC_EACH_VALUE(&graph->updates, i, struct update u) {
        const struct plan_place *to = &step->class->place[u.weight], *from = &step->class->place[u.value];
        bool in_place = to->arena == from->arena && to->offset == from->offset;
        if (to->offset < 0 || from->offset < 0 || in_place || !schedule_stores(graph, segment, &u)) continue;
        strbuf_printf(&step->body, "\n%s%s, %s, %s);  // update\n", step->source->kernels->target->copy,
                      address_text(step, to), value_text(step, u.value), bytes_text(step, u.weight));
    }
}

/* Begins the group of a stretch, in which launches are held; ends that of the stretch before. */
static void put_group(struct function *step, int *current, int group) {
    if (group == HELD_ANY || group == *current) return;
    if (group > HELD_NONE)
        strbuf_printf(&step->body,
                      "%s// Held until rt_release: one launch for all calls of a function\nRT_TRY(rt_hold(rt));\n",
                      step->body.length ? "\n" : "");
    else
        strbuf_puts(&step->body, "\nRT_TRY(rt_release(rt));\n");
    *current = group;
    step->said = NULL;
}

/* A source being generated. */
struct writer {
    const struct rankplan *plan;
    const struct source *source;
    struct tmpl_env *env;
    int number, layers[PHASES]; /* of the source; layers of each phase written so far */
};

/* "layer_forward", "layer_forward_2": the name of the next function of a layer in that phase. */
static const char *name_layer(struct writer *writer, enum phase phase) {
    const int earlier = writer->layers[phase]++;
    const char *name = arena_printf(writer->plan->graph->arena, "layer_%s", phase_names[phase]);
    return earlier ? arena_printf(writer->plan->graph->arena, "%s_%d", name, earlier + 1) : name;
}

/* Writes the function of a segment of the class, and its layers. */
static void write_segment(struct writer *writer, int index) {
    const struct source *source = writer->source;
    const int first = index ? source->segment_end[index - 1] : 0;
    struct function step = new_function(writer->plan, source, 1, 0, first);
    const struct segment *segment = &writer->plan->graph->segments.at[step.class->segments[index]];
    struct tmpl_env *env = tmpl_entry(writer->env, "segments");
    struct stretches stretches;
    layers_find(writer->plan, source, first, source->segment_end[index], &stretches);
    const int *groups = held_find(writer->plan, source, &stretches);
    int group = HELD_NONE;
    VEC_EACH(&stretches.all, s, const struct stretch *stretch) {
        put_group(&step, &group, groups[s]);
        if (stretch->times == 1) {
            put_node_comment(&step, stretch->first);
            put_call(&step, stretch->first);
        } else {
            const char *name = name_layer(writer, segment->phase);
            bool differ = write_layer(writer->plan, source, stretch, tmpl_entry(writer->env, "layers"), name);
            put_loop(&step, stretch, name, differ);
        }
    }
    put_group(&step, &group, HELD_NONE);
    put_updates(&step, segment);
    tmpl_set(env, "function", source_function(writer->plan->graph, segment, writer->number));
    tmpl_set(env, "purpose", remarks_segment(segment));
    tmpl_set(env, "body", strbuf_text(&step.body));
    tmpl_set(env, "empty", step.body.length ? "" : "yes");
    tmpl_set(env, "shared", step.calls > 1 && step.body.length ? "yes" : "");
    bind_instruction(&step, env);
    bind_offsets(&step, env);
    bind_arenas(env, strbuf_text(&step.body));
}

/* Names of fixed sizes; extents_spell declares the others where they are used. */
static void bind_sizes(struct tmpl_env *env, struct open_sizes *open, const struct size_names *names) {
    bool any = false;
    tmpl_list(env, "sizes");
    for (int i = 0; i < names->all.n; i++) {
        if (open_is(open, names->all.at[i].value)) continue;
        any = true;
        struct tmpl_env *entry = tmpl_entry(env, "sizes");
        tmpl_set(entry, "size", names->all.at[i].name);
        tmpl_setf(entry, "value", "%lld", (long long)names->all.at[i].value);
        tmpl_set(entry, "what", names->all.at[i].what);
    }
    tmpl_set(env, "sized", any ? "yes" : "");
}

static const char rank_template[] = "rank.in";

const char *rank_source(const struct rankplan *plan, const struct source *source, int number,
                        const struct target *target, struct extents *extents, const struct tmpl_env *program) {
    struct arena *arena = plan->graph->arena;
    struct writer writer = {.plan = plan, .source = source, .env = tmpl_env(arena, program), .number = number};
    tmpl_list(writer.env, "layers");
    tmpl_list(writer.env, "segments");
    for (int s = 0; s < plan->classes[source->classes[0]].nsegments; s++) write_segment(&writer, s);
    tmpl_set(writer.env, "kernels", sizes_shown(arena, kernels_text(source->kernels)));
    tmpl_set(writer.env, "epilogues", strstr(kernels_text(source->kernels), " epilogue_") ? "yes" : "");
    bind_sizes(writer.env, plan->graph->open, &source->kernels->size_names);
    tmpl_set(writer.env, "grows", extents_grow(extents) ? "yes" : "");
    tmpl_set(writer.env, "head",
             tmpl_fill(arena, target->head_template, template_text(target->head_template), writer.env));
    tmpl_set(writer.env, "linkage", target->linkage ? target->linkage : "");
    tmpl_set(writer.env, "extents_here", extents ? extents_mark(arena, "rt->extents") : "");
    const char *text = tmpl_fill(arena, rank_template, template_text(rank_template), writer.env);
    return extents ? extents_spell(extents, &source->kernels->size_names, text) : text;
}
