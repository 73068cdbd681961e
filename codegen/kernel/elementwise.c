#include "codegen/kernel/elementwise.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernel/expr_print.h"
#include "codegen/kernel/loops.h"
#include "codegen/text/extents.h"
#include "codegen/text/names.h"
#include "codegen/text/tmpl.h"
#include "ir/base/map.h"
#include "ir/expr/eval.h"
#include "passes/train/training.h"

/* Of slices: one loop, whose number of elements is an argument. */
static void make_flat_loop(struct loops *loops) {
    loops->n = 1;
    loops->flat = true;
    loops->extent[0] = rankplan_elements(loops->class, loops->graph, loops->node->outputs[0]);
    for (int k = 0; k < loops->node->ninputs; k++)
        loops->stride[k][0] = tensor_elements(&loops->graph->tensors.at[loops->node->inputs[k]]) > 1;
}

/* True for a contiguous loop in training, where gradients and parameters have many sizes: one function takes all. */
static bool takes_count(const struct loops *loops) {
    if (!graph_trains(loops->graph) || loops->n != 1) return false;
    for (int k = 0; k < loops->node->ninputs; k++)
        if (loops->stride[k][0] > 1) return false;
    return true;
}

static void make_loops(struct loops *loops) {
    const struct tensor *out = &loops->graph->tensors.at[loops->node->outputs[0]];
    if (layout_flat_axes(&out->layout)) return make_flat_loop(loops);
    loops->n = out->ndim;
    for (int d = 0; d < loops->n; d++) loops->extent[d] = loops->class->dims[loops->node->outputs[0]][d];
    for (int k = 0; k < loops->node->ninputs; k++) loops_strides(loops, k, out->ndim);
    loops_merge(loops, loops->n);
    loops->flat = takes_count(loops);
}

/* True if launches of the node's kernel may be held (Note [Held launches] in runtime/cuda/held.cuh). */
static bool is_held(const struct loops *loops) {
    return loops->target->holds_launches && loops->flat && loops->node->phase == PHASE_UPDATE;
}

const char *elements_text(struct kernels *kernels, const struct graph *graph, const struct rank_class *class,
                          int tensor) {
    const struct tensor *t = &graph->tensors.at[tensor];
    const unsigned axes = layout_slices(&t->layout);
    return axes ? arena_printf(kernels->arena, "rt_flat_count(rt, 0x%x, %lld)", axes,
                               (long long)rankplan_elements(class, graph, tensor))
                : sizes_product(kernels->sizes, &kernels->size_names, class, tensor, 0, t->ndim);
}

/* The last component of the name, if it is an identifier; else NULL. */
static const char *last_word(struct arena *arena, const char *name) {
    const char *dot = strrchr(name, '.');
    while (dot && dot > name && (isdigit((unsigned char)dot[1]) || strncmp(dot, ".stage", 6) == 0)) { /* a copy's */
        name = arena_copy(arena, name, (size_t)(dot - name));
        dot = strrchr(name, '.');
    }
    if (!dot || !islower((unsigned char)dot[1])) return NULL;
    const size_t length = strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return dot[1 + length] || length > 16 ? NULL : dot + 1;
}

/* The function of an optimizer's formulas, such as adamw_update; NULL: the node is something else. */
static const char *update_function(const struct loops *loops) {
    static const char end[] = "_update";
    const char *word =
        loops->flat && loops->node->phase == PHASE_UPDATE ? last_word(loops->arena, loops->node->name) : NULL;
    const size_t length = word ? strlen(word) : 0;
    return length > strlen(end) && strcmp(word + length - strlen(end), end) == 0 ? word : NULL;
}

/* In an optimizer's function, the variable of the new value of a parameter or state: p_t of p. */
static const char *new_value(const struct loops *loops, int result) {
    return arena_printf(loops->arena, "%s_t", loops->result[result]);
}

/* The index of the named value that the expression refers to; -1 if the expression is no such reference. */
static int named_value(const struct expr *value) {
    return value->kind == EXPR_NAME && value->name[0] == 'v' ? atoi(value->name + 1) : -1;
}

/* True if the tensor is of integers, or cast from one: a zero point. */
static bool is_integer(const struct graph *graph, int tensor) {
    const struct node *node = graph_producer(graph, tensor);
    for (; node && (node->op->kind == OP_VIEW || node->op->id == OP_Cast); node = graph_producer(graph, tensor)) {
        if (rt_dtype_is_integer(graph->tensors.at[tensor].dtype)) break;
        tensor = node->inputs[0];
    }
    return rt_dtype_is_integer(graph->tensors.at[tensor].dtype);
}

/* A value of 8 bits that is rounded and then limited: converted in one call. NULL: another value. */
static const char *code_text(const struct loops *loops, const struct expr *value) {
    const enum rt_dtype dtype = loops->graph->tensors.at[loops->node->outputs[0]].dtype;
    char integers[MAX_OPERANDS + 1] = "";
    int n = 0;
    if ((dtype != RT_I8 && dtype != RT_U8) || loops_type(loops) != RT_F32) return NULL;
    for (int k = 0; k < loops->node->ninputs; k++)
        if (loops->node->inputs[k] >= 0 && is_integer(loops->graph, loops->node->inputs[k]))
            integers[n++] = (char)('a' + k);
    if (!expr_is_code(value, dtype, integers)) return NULL;
    const struct expr *most = value->arg[1], *least = value->arg[0]->arg[1], *rounded = value->arg[0]->arg[0];
    return arena_printf(loops->arena, "%scode_%s(%s, %s, %s)", loops->target->call_prefix, rt_dtypes[dtype].name,
                        loops_text(loops, rounded), loops_text(loops, least), loops_text(loops, most));
}

/* Binds the values of a chain of expressions and the local variables they use; true if the loop body needs braces. All
 * values are computed before the first is stored, since a result may lie in the place of an operand. */
static bool bind_chain(const struct loops *loops, struct tmpl_env *env) {
    const struct expr_chain *chain = loops_chain(loops);
    const char *stored[EXPR_VALUES];
    for (int i = 0; i < chain->nnamed; i++)
        loops_name_value(loops, env, loops_local(loops, i), loops_text(loops, chain->named[i]));
    for (int i = 0; i < chain->nvalues; i++) {
        stored[i] = loops_text(loops, chain->value[i]);
        if (chain->nvalues == 1 || named_value(chain->value[i]) >= 0) continue;
        const char *name = update_function(loops) ? new_value(loops, i)
                           : i                    ? arena_printf(loops->arena, "v%d", chain->nnamed + i - 1)
                                                  : "y0";
        loops_name_value(loops, env, name, stored[i]);
        stored[i] = name;
    }
    const char *code = chain->nvalues == 1 ? code_text(loops, chain->value[0]) : NULL;
    tmpl_set(env, "value", code ? code : loops_stored(loops, 0, stored[0]));
    for (int i = 1; i < chain->nvalues; i++) {
        struct tmpl_env *other = tmpl_entry(env, "others");
        tmpl_set(other, "other", loops->result[i]);
        tmpl_set(other, "is", loops_stored(loops, i, stored[i]));
    }
    return (chain->nnamed || chain->nvalues > 1) && loops->n;
}

static const char *cast_text(const struct loops *loops) {
    return loops_cast(loops, loops->graph->tensors.at[loops->node->inputs[0]].dtype,
                      loops->graph->tensors.at[loops->node->outputs[0]].dtype, loops->operand[0]);
}

/* Binds a local variable for operand `k`, which is `tensor` and lies at pointer `name`, if its element would be read in
 * a branch: compilers vectorise a choice between values, but not one between loads. True if the loop body needs
 * braces. */
static bool load_before_branch(struct loops *loops, struct tmpl_env *env, int k, int tensor, const char *name) {
    if (loops->vector[k] || !loops_branch_to(loops, k)) return false;
    const enum rt_dtype dtype = loops->graph->tensors.at[tensor].dtype;
    struct tmpl_env *named = tmpl_entry(env, "named");
    tmpl_setf(named, "v", "const %s %s_i", rt_dtypes[dtype].kind == RT_KIND_HALF ? "float" : rt_dtypes[dtype].c_type,
              name);
    tmpl_set(named, "value", loops->operand[k]);
    loops->operand[k] = arena_printf(loops->arena, "%s_i", name);
    return loops->n > 0;
}

/* The output that shares memory with input `k`, -1 if none. */
static int output_at(const struct rank_class *class, const struct graph *graph, const struct node *node, int k) {
    for (int o = 0; o < node->noutputs; o++) {
        if (node->outputs[o] == node->inputs[k]) return o; /* the matrix product that this call finishes in place */
        int in_place = rankplan_in_place(class, graph, node, o);
        if (in_place >= 0 && node->inputs[in_place] == node->inputs[k]) return o;
    }
    return -1;
}

/* The expression for an element of input `k` at pointer `name`: in memory, or a lane of a vector that is loaded
 * first. */
static const char *element_text(struct loops *loops, struct tmpl_env *env, int k, const char *name, bool in_place) {
    const char *at = loops_index(loops, loops->stride[k]);
    bool again = false;
    if (loops->width == 1 || loops->stride[k][loops->n - 1] != 1) return arena_printf(loops->arena, "%s[%s]", name, at);
    loops->vector[k] = name;
    for (int before = 0; before < k; before++) again = again || loops->vector[before] == name;
    if (again) return arena_printf(loops->arena, "v%s.at[lane]", name);
    struct tmpl_env *read = tmpl_entry(env, "reads");
    tmpl_setf(read, "vector", "%s v%s", in_place ? "auto" : "const auto", name);
    tmpl_setf(read, "from", "%s + %s", name, at);
    return arena_printf(loops->arena, "v%s.at[lane]", name);
}

/* Binds the vectors of results, which are stored at element `at`. A result in the place of an operand uses its
 * vector. */
static void bind_results(const struct loops *loops, struct tmpl_env *env, const char *at) {
    for (int o = 0; o < loops->node->noutputs; o++) {
        bool read = false;
        for (int k = 0; k < loops->node->ninputs; k++) read = read || loops->vector[k] == loops->result[o];
        struct tmpl_env *write = tmpl_entry(env, "writes"), *make = read ? NULL : tmpl_entry(env, "makes");
        tmpl_set(write, "vector", loops->result[o]);
        tmpl_setf(write, "to", "%s + %s", loops->result[o], at);
        if (!make) continue;
        tmpl_set(make, "vector", loops->result[o]);
        tmpl_set(make, "type", loops_type_name(loops, loops->node->outputs[o]));
    }
}

/* Names operands and results of an optimizer's function as its formulas do (passes/train/optimizers.def): results and
 * scalars by the last word of their tensor's name. The other operands that are not changed in place are the stored
 * parameter, p_old, and the gradient, g. */
static void name_update(struct loops *loops, const char **names, const char **results) {
    struct names scope;
    names_begin(&scope, loops->arena);
    names_reserve(&scope, "count");
    for (int i = 0; i < EXPR_VALUES; i++) names_reserve(&scope, arena_printf(loops->arena, "y%d", i));
    for (int i = 0; i < EXPR_INPUTS; i++) names_reserve(&scope, arena_printf(loops->arena, "v%d", i));
    for (int o = 0; o < loops->node->noutputs; o++) {
        const char *word = last_word(loops->arena, loops->graph->tensors.at[loops->node->outputs[o]].name);
        results[o] = names_take(&scope, word ? word : "", "y");
    }
    for (int k = 0; k < loops->node->ninputs; k++) {
        if (output_at(loops->class, loops->graph, loops->node, k) >= 0) continue;
        const char *word = last_word(loops->arena, loops->graph->tensors.at[loops->node->inputs[k]].name);
        const bool stored = tensor_is_stored(&loops->graph->tensors.at[loops->node->inputs[k]]);
        names[k] = names_take(&scope, !loops->stride[k][0] ? word ? word : "" : stored ? "p_old" : "g", "x");
    }
}

/* Names the values of an optimizer's function as the papers do: the value stored in m is m_t, and the first value
 * computed from the gradient is g_t. */
static void name_values(struct loops *loops) {
    const struct expr_chain *chain = loops_chain(loops);
    for (int o = 0; o < chain->nvalues; o++) {
        const int i = named_value(chain->value[o]);
        if (i >= 0) loops->local[i] = new_value(loops, o);
    }
    if (chain->nnamed && !loops->local[0]) loops->local[0] = "g_t";
}

/* The number of words, which single blanks separate. */
static int count_words(const char *text) {
    int n = *text != 0;
    for (; *text; text++) n += *text == ' ';
    return n;
}

/* The comment before an optimizer's function: the method, and how the numbers of a step are computed. "" where options
 * choose among formulas of that name with as many states. */
static const char *remark_of(const struct loops *loops) {
    const char *function = update_function(loops), *end = function ? strstr(function, "_update") : NULL;
    const struct optimizer *found = NULL;
    int noutputs = 0; /* but for an average of the parameter, which is no state of the row */
    for (int i = 0; i < loops->node->noutputs; i++) {
        const char *word = last_word(loops->arena, loops->graph->tensors.at[loops->node->outputs[i]].name);
        noutputs += !word || strcmp(word, "ema") != 0;
    }
    for (int i = 0; i < noptimizers && end; i++) {
        const struct optimizer *row = &optimizers[i];
        if (strncmp(row->name, function, (size_t)(end - function)) != 0 || row->name[end - function]) continue;
        if (count_words(row->states) + 1 != noutputs) continue;
        if (found) return "";
        found = row;
    }
    if (!found) return "";
    return *found->scalars ? arena_printf(loops->arena, "%s. Once a step: %s", found->help, found->scalars)
                           : found->help;
}

/* Binds the parameters of a kernel that takes a table of them, as members of its row. */
static void bind_members(const struct loops *loops, struct tmpl_env *env, const char *parameters) {
    tmpl_list(env, "members");
    tmpl_set(env, "held", loops->held ? "yes" : "");
    for (const char *at = parameters; *at && loops->held; at += strspn(at, ", ")) {
        const size_t length = strcspn(at, ",");
        tmpl_set(tmpl_entry(env, "members"), "member", arena_copy(loops->arena, at, length));
        at += length;
    }
}

/* Binds the function's parameters and sets the spelling of each input in the expression. True if the loop body needs
 * braces. */
static bool bind_operands(struct loops *loops, struct tmpl_env *env) {
    const char *names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j",
                           "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"};
    const char *results[] = {"y", "y1", "y2", "y3", "y4", "y5"};
    _Static_assert(sizeof names / sizeof *names == EXPR_INPUTS, "a name for each input");
    _Static_assert(sizeof results / sizeof *results == EXPR_VALUES, "a name for each result");
    struct strbuf parameters = {.arena = loops->arena}, arguments = {.arena = loops->arena};
    tmpl_list(env, "reads");
    bool block = false;
    const bool updates = update_function(loops) != NULL;
    if (updates) name_update(loops, names, results);
    if (loops->open && !loops->target->arguments->names_rank) strbuf_puts(&parameters, "const struct rt *rt, ");
    for (int o = 0; o < loops->node->noutputs; o++) {
        loops->result[o] = results[o];
        strbuf_printf(&parameters, "%s%s *%s %s", o ? ", " : "", loops_type_name(loops, loops->node->outputs[o]),
                      loops->target->arguments->restricted, results[o]);
        strbuf_printf(&arguments, "%s%s", o ? ", " : "", results[o]);
    }
    if (updates) name_values(loops);
    for (int k = 0; k < loops->node->ninputs; k++) {
        int tensor = loops->node->inputs[k], output = output_at(loops->class, loops->graph, loops->node, k);
        if (output >= 0) {
            loops->operand[k] = loops_loaded(loops, tensor, element_text(loops, env, k, results[output], true));
            block = load_before_branch(loops, env, k, tensor, updates ? results[output] : names[k]) || block;
            continue;
        }
        if (rankplan_is_literal(loops->graph, loops->node, k)) {
            loops->operand[k] = loops_literal(loops, tensor);
            continue;
        }
        const char *name = loops->node->ninputs == 1 && !updates ? "x" : names[k];
        strbuf_printf(&parameters, ", const %s *%s", loops_type_name(loops, tensor), name);
        strbuf_printf(&arguments, ", %s", name);
        loops->operand[k] = loops_loaded(loops, tensor, element_text(loops, env, k, name, false));
        block = load_before_branch(loops, env, k, tensor, name) || block;
    }
    if (loops->flat) {
        strbuf_puts(&parameters, ", int64_t count");
        strbuf_puts(&arguments, ", count");
    }
    tmpl_set(env, "first", results[0]);
    tmpl_set(env, "parameters", strbuf_text(&parameters));
    tmpl_set(env, "arguments", strbuf_text(&arguments));
    bind_members(loops, env, strbuf_text(&parameters));
    return block;
}

/* Index of loop d as an expression of `point`, the number of an element or vector in a CUDA kernel. */
static const char *of_point(const struct loops *loops, int d, int64_t stride) {
    const int width = d == loops->n - 1 ? loops->width : 1;
    const int64_t points = d == loops->n - 1 ? stride : stride / loops->width, extent = loops->extent[d] / width;
    const char *index = points == 1 ? "point" : arena_printf(loops->arena, "point / %lld", (long long)points);
    if (d) index = arena_printf(loops->arena, "%s %% %lld", index, (long long)extent);
    return width > 1 ? arena_printf(loops->arena, "%s * %d", index, width) : index;
}

/* The OpenMP pragma of loop d: threads share the outermost loop, the innermost is vectorised. `simd` is valid, since a
 * result overlaps an operand only where element i lies on element i, which the compiler cannot know. */
static const char *pragma_of(const struct loops *loops, int d, int64_t elements, const char *count) {
    const bool vectors = d == loops->n - 1;
    if (d) return vectors ? "simd" : "";
    return loops_pragma(loops, elements, count, vectors ? "parallel for simd" : "parallel for", vectors ? "simd" : "");
}

static void bind_loops(struct loops *loops, struct tmpl_env *env, bool block) {
    int64_t stride[RT_MAX_NDIM], elements = 1;
    for (int d = loops->n - 1; d >= 0; d--) {
        stride[d] = elements;
        elements *= loops->extent[d];
    }
    tmpl_list(env, "loops");
    for (int d = 0; d < loops->n; d++) {
        struct tmpl_env *loop = tmpl_entry(env, "loops");
        tmpl_setf(loop, "index", "i%d", d);
        const char *extent = loops->flat ? "count" : arena_printf(loops->arena, "%lld", (long long)loops->extent[d]);
        tmpl_set(loop, "extent", extent);
        tmpl_set(loop, "of_point", of_point(loops, d, stride[d]));
        tmpl_setf(loop, "indent", "%*s", 4 * d, "");
        tmpl_set(loop, "open", block && d == loops->n - 1 ? " {" : "");
        tmpl_set(loop, "pragma", pragma_of(loops, d, elements, extent));
    }
    tmpl_setf(env, "close", "%*s", loops->n ? 4 * (loops->n - 1) : 0, "");
    tmpl_setf(env, "depth", "%*s", 4 * loops->n, "");
    tmpl_set(env, "at", loops_index(loops, stride));
    tmpl_list(env, "writes");
    tmpl_list(env, "makes");
    if (loops->width > 1) bind_results(loops, env, loops_index(loops, stride));
    tmpl_setf(env, "width", "%d", loops->width);
    if (loops->flat) {
        tmpl_set(env, "elements", "count");
        tmpl_setf(env, "vectors", "count / %d", loops->width);
    } else {
        tmpl_setf(env, "elements", "%lld", (long long)elements);
        tmpl_setf(env, "vectors", "%lld", (long long)(elements / loops->width));
    }
    const bool narrow = loops_are_narrow(loops, elements);
    tmpl_set(env, "points", narrow ? "RT_POINTS32" : "RT_POINTS");
    loops_bind_open(loops, env, narrow);
}

/* The stem of the function's name: for an update, the name of the optimizer's formulas; for a fused node, the words of
 * its expression; else the operator's name. */
static const char *stem_of(const struct loops *loops) {
    const char *updates = update_function(loops);
    if (updates || loops->node->op->expr) return updates ? updates : loops->node->op->name;
    const char *words = expr_words(loops->arena, loops_chain(loops));
    return words ? arena_printf(loops->arena, "fused_%s", words) : loops->node->op->name;
}

/* The target's call for a contiguous cast from f32 to a 16-bit type: compilers do not use the processor's instructions
 * for it. NULL: the target has none, or the node is no such cast. */
static const char *cast_function(const struct loops *loops) {
    const enum rt_dtype to = loops->graph->tensors.at[loops->node->outputs[0]].dtype;
    if (!loops->target->cast_to_half || !loops_are_cast(loops) || loops->n != 1 || loops->stride[0][0] != 1)
        return NULL;
    if (rt_dtypes[to].kind != RT_KIND_HALF || loops->graph->tensors.at[loops->node->inputs[0]].dtype != RT_F32)
        return NULL;
    return arena_printf(loops->arena, "%s%s", loops->target->cast_to_half, rt_dtypes[to].name);
}

static const char *function_of(struct kernels *kernels, struct loops *loops) {
    struct tmpl_env *env = tmpl_env(kernels->arena, NULL);
    make_loops(loops);
    const char *cast = cast_function(loops);
    loops->flat = loops->flat || cast;
    if (cast) return cast;
    loops->width = loops_width(loops);
    loops->open = loops_are_open(loops);
    loops->held = is_held(loops);
    tmpl_list(env, "named");
    tmpl_list(env, "others");
    tmpl_set(env, "remark", remark_of(loops));
    bool block = bind_operands(loops, env);
    if (loops_are_cast(loops))
        tmpl_set(env, "value", cast_text(loops));
    else
        block = bind_chain(loops, env) || block;
    tmpl_set(env, "block", block ? "yes" : "");
    bind_loops(loops, env, block);
    const struct target *target = kernels->target;
    const char *template = loops->width > 1 ? target->vector_template : target->elementwise_template;
    return kernels_share(kernels, env, template, stem_of(loops));
}

static const char *call_of(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                           const struct node *node, int **tensors, int *n) {
    struct loops loops = {
        .graph = plan->graph, .node = node, .class = class, .target = kernels->target, .arena = kernels->arena};
    const char *function = function_of(kernels, &loops);
    struct strbuf out = {.arena = kernels->arena};
    *tensors = ARENA_ARRAY(kernels->arena, int, loops.node->ninputs + loops.node->noutputs);
    *n = 0;
    strbuf_printf(&out, "%s(%s", function, kernels->target->arguments->names_rank || loops.open ? "rt, " : "");
    for (int o = 0; o < loops.node->noutputs; o++) {
        (*tensors)[(*n)++] = loops.node->outputs[o];
        strbuf_puts(&out, o ? ", \001" : "\001");
    }
    for (int k = 0; k < loops.node->ninputs; k++) {
        if (rankplan_is_literal(plan->graph, loops.node, k)) continue;
        if (output_at(class, plan->graph, loops.node, k) >= 0) continue;
        (*tensors)[(*n)++] = loops.node->inputs[k];
        strbuf_puts(&out, ", \001");
    }
    if (loops.flat) strbuf_printf(&out, ", %s", elements_text(kernels, plan->graph, class, loops.node->outputs[0]));
    strbuf_puts(&out, ");");
    return strbuf_text(&out);
}

const char *elementwise_call(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                             int node, int **tensors, int *n) {
    return call_of(kernels, plan, class, &plan->graph->nodes.at[node], tensors, n);
}

bool elementwise_is_held(const struct target *target, const struct rankplan *plan, const struct rank_class *class,
                         int node) {
    struct loops loops = {.graph = plan->graph,
                          .node = &plan->graph->nodes.at[node],
                          .class = class,
                          .target = target,
                          .arena = plan->graph->arena};
    if (loops.node->op->kind != OP_ELEMENTWISE) return false;
    make_loops(&loops);
    return is_held(&loops);
}

/* In the expression the letter of attribute `result` stands for the product, which is overwritten by the value. */
const char *elementwise_finish(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                               int node, int **tensors, int *n) {
    struct node finish = plan->graph->nodes.at[node];
    int *inputs = ARENA_ARRAY(kernels->arena, int, finish.ninputs), result = (int)attr_int(&finish, "result", 0);
    finish.op = &ops[OP_Fused];
    finish.ninputs--;
    for (int k = 0; k < finish.ninputs; k++)
        inputs[k] = k == result ? finish.outputs[0] : finish.inputs[2 + k - (k > result)];
    finish.inputs = inputs;
    return call_of(kernels, plan, class, &finish, tensors, n);
}

/* Epilogues of products: the loops are over rows and columns of a block */

/* The number of columns of a tensor: by name, where sizes are not open. */
static const char *columns_text(struct kernels *kernels, const struct loops *loops, int tensor) {
    const int last = loops->graph->tensors.at[tensor].ndim - 1;
    if (loops->graph->open) return arena_printf(loops->arena, "%lld", (long long)loops->class->dims[tensor][last]);
    const char *text = sizes_product(kernels->sizes, &kernels->size_names, loops->class, tensor, last, last + 1);
    return strchr(text, '*') ? arena_printf(loops->arena, "(%s)", text) : text;
}

/* The index of an operand's element for a row and column. An operand has all rows or one, and all columns or one. */
static const char *block_index(struct kernels *kernels, const struct loops *loops, int tensor) {
    const int64_t *dims = loops->class->dims[tensor];
    int last = loops->graph->tensors.at[tensor].ndim - 1;
    int64_t columns = last < 0 ? 1 : dims[last], elements = rankplan_elements(loops->class, loops->graph, tensor);
    int64_t rows = columns ? elements / columns : 0;
    const char *row =
        columns == 1 ? "row" : arena_printf(loops->arena, "row * %s", columns_text(kernels, loops, tensor));
    if (rows == 1) return columns == 1 ? "0" : "column";
    return columns == 1 ? row : arena_printf(loops->arena, "%s + column", row);
}

bool elementwise_epilogue_is_open(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    const int first = op_epilogue_first(node);
    bool open = false;
    for (int k = first - 1; k < node->ninputs; k++) {
        const int tensor = k >= first ? node->inputs[k] : node->outputs[0], last = graph->tensors.at[tensor].ndim - 1;
        open = open || (last >= 0 && open_is(graph->open, class->dims[tensor][last]));
    }
    return open;
}

/* Binds the operands of an epilogue: the letter of attribute `result` is the product, the others are its further
 * inputs. */
static void bind_beside(struct kernels *kernels, struct loops *loops, struct tmpl_env *env) {
    const int first = op_epilogue_first(loops->node);
    int result = (int)attr_int(loops->node, "result", 0);
    tmpl_list(env, "operands");
    for (int k = 0; k <= loops->node->ninputs - first; k++) {
        char letter = (char)('a' + k);
        loops->operand[k] = arena_printf(loops->arena, "%c", letter);
        if (k == result) continue;
        int index = k - (k > result), tensor = loops->node->inputs[first + index];
        struct tmpl_env *operand = tmpl_entry(env, "operands");
        tmpl_set(operand, "operand", loops->operand[k]);
        tmpl_set(operand, "type", loops_type_name(loops, tensor));
        tmpl_setf(operand, "index", "%d", index);
        loops->operand[k] = loops_loaded(
            loops, tensor, arena_printf(loops->arena, "%c[%s]", letter, block_index(kernels, loops, tensor)));
        load_before_branch(loops, env, k, tensor, arena_printf(loops->arena, "%c", letter));
    }
    tmpl_set(env, "result", loops->operand[result]);
    tmpl_set(env, "unused",
             loops->node->ninputs == first && !elementwise_epilogue_is_open(loops->graph, loops->class, loops->node)
                 ? "yes"
                 : "");
}

const char *elementwise_epilogue(struct kernels *kernels, const struct rankplan *plan, const struct rank_class *class,
                                 int node) {
    struct tmpl_env *env = tmpl_env(kernels->arena, NULL);
    struct loops loops = {.graph = plan->graph,
                          .node = &plan->graph->nodes.at[node],
                          .class = class,
                          .target = kernels->target,
                          .arena = kernels->arena};
    int y = loops.node->outputs[0];
    const bool integers = op_multiplies_integers(loops.node->op);
    tmpl_list(env, "named");
    tmpl_list(env, "others");
    bind_beside(kernels, &loops, env);
    bind_chain(&loops, env);
    tmpl_set(env, "columns", columns_text(kernels, &loops, y));
    const char *here = arena_printf(kernels->arena, "x[%d]", loops.node->ninputs - op_epilogue_first(loops.node));
    const bool open = elementwise_epilogue_is_open(plan->graph, class, loops.node);
    tmpl_set(env, "extents_here", open ? extents_mark(kernels->arena, here) : "");
    const bool is_half = rt_dtypes[plan->graph->tensors.at[y].dtype].kind == RT_KIND_HALF;
    tmpl_set(env, "integers", integers ? "yes" : "");
    tmpl_set(env, "half", !integers && is_half ? "yes" : "");
    tmpl_set(env, "in_place", !integers && !is_half ? "yes" : "");
    tmpl_set(env, "result_type", loops_type_name(&loops, y));
    const char *words = expr_words(kernels->arena, loops_chain(&loops));
    const char *stem = words ? arena_printf(kernels->arena, "epilogue_%s", words) : "epilogue";
    return kernels_share(kernels, env, kernels->target->epilogue_template, stem);
}
