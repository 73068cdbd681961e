#include "codegen/call/placeholders.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/call/placeholders_part.h"
#include "codegen/call/ports.h"
#include "codegen/kernel/elementwise.h"
#include "ir/expr/epilogue.h"
#include "passes/rank/views.h"

/* The functions below write the placeholders of the same name (placeholders.h). */

/* x0, x1, .., y, y1, .. */
static bool is_operand(const char *name) {
    return strcmp(name, "y") == 0 || ((*name == 'x' || *name == 'y') && isdigit((unsigned char)name[1]) && !name[2]);
}

static void put_rows(struct local *local) {
    const int result = local->node.outputs[0];
    const int64_t rows = local_product(local, result, 0, local_tensor(local, result)->ndim - 1);
    if (!local_in_runs(local))
        strbuf_puts(&local->out, local_dims_text(local, result, 0, local_tensor(local, result)->ndim - 1));
    else if (rows % local_runs(local).length)
        strbuf_puts(&local->out, "rows");
    else
        strbuf_printf(&local->out, "%lld", (long long)local_runs(local).length);
}

static void put_list(struct local *local) {
    put_pointers(local, 0);
}

/* The extents of the tensor as an array of n dimensions, with 1s in front. */
static void put_extents(struct local *local, int tensor, int n) {
    const int missing = n - local_tensor(local, tensor)->ndim;
    if (!n) return put_no_array(local);
    open_array(local, "int64_t");
    for (int d = 0; d < n; d++) {
        strbuf_puts(&local->out, d ? ", " : "");
        if (d < missing)
            strbuf_putc(&local->out, '1');
        else
            put_dim(local, tensor, d - missing);
    }
    strbuf_putc(&local->out, '}');
}

static void put_shape(struct local *local, int tensor) {
    put_extents(local, tensor, local_tensor(local, tensor)->ndim);
}

/* The dimension with the next smaller step: elements of `dim` are apart by its elements, or by more; -1: none. */
static int inner_dim(const struct local *local, int tensor, const int64_t *step, int dim) {
    int inner = -1;
    for (int d = 0; d < local_tensor(local, tensor)->ndim; d++)
        if (step[d] > 0 && step[d] < step[dim] && local_shape(local, tensor)[d] != 1 &&
            (inner < 0 || step[d] > step[inner]))
            inner = d;
    return inner;
}

/* The step of a dimension by names: what is inside it, and how often. */
static const char *step_text(struct local *local, int tensor, const int64_t *step, int dim) {
    struct open_sizes *open = local->graph->open;
    const int inner = inner_dim(local, tensor, step, dim);
    const int64_t extent = inner < 0 ? 1 : local_shape(local, tensor)[inner], part = inner < 0 ? 1 : step[inner];
    const bool whole =
        extent && step[dim] % (part * extent) == 0 && (step[dim] == part * extent || !open_is(open, extent));
    if (inner < 0 || step[dim] % part || open_most(open, step[dim]) > INT_MAX)
        return arena_printf(local->out.arena, "%lld", (long long)step[dim]);
    const int64_t times = whole ? step[dim] / part / extent : step[dim] / part;
    const char *texts[] = {arena_printf(local->out.arena, "%lld", (long long)times),
                           whole ? local_dims_text(local, tensor, inner, inner + 1) : "1",
                           step_text(local, tensor, step, inner)};
    return sizes_times(local->out.arena, 3, texts);
}

/* $strided(x0): pointer and strides in elements. */
static void put_strided(struct local *local, int tensor) {
    const struct strides strides = views_strides(local->plan, local->class, tensor);
    const int ndim = local_tensor(local, tensor)->ndim;
    open_argument(local, local->kernels->target->arguments->structure, "rt_strided");
    put_tensor(local, tensor);
    strbuf_puts(&local->out, ", ");
    if (!ndim) put_no_array(local);
    if (ndim) open_array(local, "int64_t");
    for (int d = 0; d < ndim; d++)
        strbuf_printf(&local->out, "%s%s", d ? ", " : "", step_text(local, tensor, strides.step, d));
    strbuf_puts(&local->out, ndim ? "}}" : "}");
}

static void put_ndim(struct local *local, int tensor) {
    strbuf_printf(&local->out, "%d", local_tensor(local, tensor)->ndim);
}

static void put_size(struct local *local, int tensor) {
    strbuf_puts(&local->out, elements_text(local->kernels, local->graph, local->class, tensor));
}

/* $each: 1 in the phases of a micro-batch, else 0. */
static void put_each(struct local *local) {
    strbuf_putc(&local->out, local->node.phase < PHASE_REDUCE ? '1' : '0');
}

static void put_local_bytes(struct local *local, int tensor) {
    const struct tensor *t = local_tensor(local, tensor);
    if (layout_flat_axes(&t->layout))
        strbuf_printf(&local->out, "%s * %zu", elements_text(local->kernels, local->graph, local->class, tensor),
                      rt_dtype_bytes(t->dtype));
    else
        strbuf_printf(&local->out, "%lld", (long long)rankplan_bytes(local->class, local->graph, tensor));
}

static void put_aligned(struct local *local, int tensor) {
    const int ndim = local_tensor(local, local->node.outputs[0])->ndim;
    if (tensor < 0) return put_no_array(local);
    put_extents(local, tensor, ndim);
}

static void put_outer(struct local *local, const char *argument) {
    const int axis = (int)attr_int(&local->node, argument, 0);
    strbuf_puts(&local->out, local_dims_text(local, local->node.outputs[0], 0, axis));
}

static void put_runs(struct local *local, const char *argument) {
    const int axis = (int)attr_int(&local->node, argument, 0);
    if (!local->node.ninputs) return put_no_array(local);
    open_array(local, "int64_t");
    EACH_VALUE(local->node.inputs, local->node.ninputs, k, const int tensor) {
        strbuf_printf(&local->out, "%s%s", k ? ", " : "",
                      local_dims_text(local, tensor, axis, local_tensor(local, tensor)->ndim));
    }
    strbuf_putc(&local->out, '}');
}

static void put_whole(struct local *local, int tensor) {
    const int ndim = local_tensor(local, tensor)->ndim;
    if (!ndim) return put_no_array(local);
    open_array(local, "int64_t");
    for (int d = 0; d < ndim; d++)
        strbuf_printf(&local->out, "%s%s", d ? ", " : "", local_whole_text(local, tensor, d));
    strbuf_putc(&local->out, '}');
}

static void put_type(struct local *local, int tensor) {
    strbuf_puts(&local->out, rt_dtypes[local_tensor(local, tensor)->dtype].name);
}

/* $Tby: "_by_" and the type of the weights if it is not that of the result; "_as_" if the other operand is rounded to
 * it. */
static void put_other_type(struct local *local, int tensor) {
    if (local_tensor(local, tensor)->dtype == local_tensor(local, local->node.outputs[0])->dtype) return;
    strbuf_puts(&local->out, attr_int(&local->node, "rounded", 0) ? "_as_" : "_by_");
    put_type(local, tensor);
}

static void put_bytes(struct local *local, int tensor) {
    strbuf_printf(&local->out, "b%zu", rt_dtype_bytes(local_tensor(local, tensor)->dtype));
}

static void put_dtype(struct local *local, int tensor) {
    strbuf_puts(&local->out, dtype_ids[local_tensor(local, tensor)->dtype]);
}

/* $type(x1), $type(codes): the type of an operand, or the one that an attribute names. */
static void put_type_of(struct local *local, const char *argument) {
    const char *named = attr_text(&local->node, argument, NULL);
    strbuf_puts(
        &local->out,
        dtype_ids[named ? rt_dtype_by_name(named) : local_tensor(local, local_operand(local, argument))->dtype]);
}

/* $vector(x3): 1 if the operand is given and has a dimension. */
static void put_vector(struct local *local, int tensor) {
    strbuf_putc(&local->out, tensor >= 0 && local_tensor(local, tensor)->ndim ? '1' : '0');
}

/* $indexed(x0): the extents after the first batch_dims (an attribute). */
static void put_indexed(struct local *local, int tensor) {
    const int batch = (int)attr_int(&local->node, "batch_dims", 0);
    put_array(local, "int64_t", local_tensor(local, tensor)->ndim - batch, local_shape(local, tensor) + batch);
}

static void put_struct(struct local *local, const char *argument) {
    open_argument(local, local->kernels->target->arguments->structure, argument);
}

/* $count: number of inputs. $count(x1): number of rows of an index tensor of shape (.., depth). */
static void put_count(struct local *local, const char *argument) {
    const int tensor = *argument ? local_operand(local, argument) : -1;
    if (tensor < 0)
        strbuf_printf(&local->out, "%d", local->node.ninputs);
    else
        strbuf_puts(&local->out, local_dims_text(local, tensor, 0, local_tensor(local, tensor)->ndim - 1));
}

static void put_depth(struct local *local, int tensor) {
    put_dim(local, tensor, local_tensor(local, tensor)->ndim - 1);
}

static void put_is64(struct local *local, int tensor) {
    strbuf_puts(&local->out, local_tensor(local, tensor)->dtype == RT_I64 ? "1" : "0");
}

/* $Thead: the type, and where the target's kernels have one the tile size of flash attention (runtime/cuda/flash.cuh):
 * _64 or _128, the smallest that holds a head of q, k and v. */
static void put_head(struct local *local) {
    put_type(local, local->node.outputs[0]);
    if (!local->kernels->target->arguments->sized_heads) return;
    int64_t d = local->extent[dims_find(&local->dims, "d")], e = local->extent[dims_find(&local->dims, "e")];
    struct open_sizes *open = local->graph->open;
    strbuf_puts(&local->out, open_most(open, d) > 64 || open_most(open, e) > 64 ? "_128" : "_64");
}

/* $fp8(format): the format of 8-bit floats that attribute `format` names. */
static void put_fp8(struct local *local, const char *argument) {
    strbuf_puts(&local->out,
                strcmp(attr_text(&local->node, argument, ""), "e5m2") == 0 ? "RT_FP8_E5M2" : "RT_FP8_E4M3");
}

/* $enum(cell): a text attribute in upper case. */
static void put_enum(struct local *local, const char *argument) {
    for (const char *c = attr_text(&local->node, argument, "none"); *c; c++)
        strbuf_putc(&local->out, (char)toupper((unsigned char)*c));
}

static void put_reduce(struct local *local) {
    const char *reduce = attr_text(&local->node, "reduce", "sum");
    for (const char *c = "RT_"; *c; c++) strbuf_putc(&local->out, *c);
    for (; *reduce; reduce++) strbuf_putc(&local->out, (char)toupper((unsigned char)*reduce));
}

/* $key: of random numbers. Layers that differ in it alone share a function. */
static void put_key(struct local *local) {
    strbuf_putc(&local->out, HOLE_KEY);
    VEC_PUSH(local->out.arena, &local->keys, attr_int(&local->node, "key", 0));
}

static void put_scratch(struct local *local) {
    strbuf_puts(&local->out, "rt->arena[RT_SCRATCH]");
}

/* The operands of an epilogue, followed by the extents if sizes are open. */
static void put_epilogue_operands(struct local *local) {
    const int first = op_epilogue_first(&local->node);
    if (!elementwise_epilogue_is_open(local->graph, local->class, &local->node)) return put_pointers(local, first);
    open_array(local, "void *const");
    for (int k = first; k < local->node.ninputs; k++) {
        put_tensor(local, local->node.inputs[k]);
        strbuf_puts(&local->out, ", ");
    }
    strbuf_puts(&local->out, "rt->extents}");
}

static void put_epilogue(struct local *local) {
    if (!attr_find(&local->node, "expr")) return strbuf_puts(&local->out, "NULL");
    const bool half = rt_dtypes[local->graph->tensors.at[local->node.outputs[0]].dtype].kind == RT_KIND_HALF;
    const char *type = op_multiplies_integers(local->node.op) ? "rt_epilogue_int"
                       : half                                 ? "rt_epilogue_half"
                                                              : "rt_epilogue";
    open_argument(local, local->kernels->target->arguments->structure, type);
    strbuf_printf(&local->out, "%s, ", elementwise_epilogue(local->kernels, local->plan, local->class, local->id));
    put_epilogue_operands(local);
    strbuf_putc(&local->out, '}');
}

/* $finish: struct rt_finish with what a library may fuse into the product (activation, bias, residual, sum), and the
 * statement that is executed if the library does not. */
static void put_finish(struct local *local) {
    static const char *const activations[] = {
        [RT_NO_ACTIVATION] = "RT_NO_ACTIVATION", [RT_GELU] = "RT_GELU", [RT_GELU_GRAD] = "RT_GELU_GRAD"};
    const struct target_arguments *arguments = local->kernels->target->arguments;
    struct epilogue epilogue;
    int *tensors, n;
    if (!epilogue_read(local->out.arena, local->graph, &local->node, &epilogue))
        BUG("the epilogue of %s is none of those that libraries fuse", local->node.op->name);
    open_argument(local, arguments->structure, "rt_finish");
    strbuf_puts(&local->out, activations[epilogue.activation]);
    const int operands[] = {epilogue.bias, epilogue.residual, epilogue.sum};
    for (int i = 0; i < 3; i++) {
        strbuf_puts(&local->out, ", ");
        put_tensor(local, operands[i]);
    }
    strbuf_printf(&local->out, "}, %s%s }", arguments->later,
                  elementwise_finish(local->kernels, local->plan, local->class, local->id, &tensors, &n));
    for (int i = 0; i < n; i++) VEC_PUSH(local->out.arena, &local->tensors, tensors[i]);
}
/* A placeholder and the function that writes it: `of` an operand, `by` a text, or `put` with neither. `argument`: the
 * operand or text; NULL: it is in parentheses behind the name. */
static const struct placeholder {
    const char *name, *argument;
    void (*of)(struct local *local, int tensor);
    void (*by)(struct local *local, const char *argument);
    void (*put)(struct local *local);
} placeholders[] = {
    {"shape", .of = put_shape},
    {"ndim", .of = put_ndim},
    {"size", .of = put_size},
    {"bytes", .of = put_local_bytes},
    {"aligned", .of = put_aligned},
    {"strided", .of = put_strided},
    {"whole", .of = put_whole},
    {"indexed", .of = put_indexed},
    {"first_row", .of = put_row},
    {"vector", .of = put_vector},
    {"is64", .of = put_is64},
    {"T", "y", .of = put_type},
    {"T0", "x0", .of = put_type},
    {"T1", "x1", .of = put_type},
    {"Tby", "x1", .of = put_other_type},
    {"B", "y", .of = put_bytes},
    {"dtype", "y", .of = put_dtype},
    {"depth", "x1", .of = put_depth},
    {"held", "x0", .of = put_placement},
    {"wanted", "y", .of = put_placement},
    {"before", "begin", .by = put_padding},
    {"behind", "end", .by = put_padding},
    {"gap", .by = put_gap},
    {"jump", .by = put_jump},
    {"extent", .by = put_extent},
    {"starts", .by = put_starts},
    {"outer", .by = put_outer},
    {"runs", .by = put_runs},
    {"type", .by = put_type_of},
    {"count", .by = put_count},
    {"enum", .by = put_enum},
    {"fp8", .by = put_fp8},
    {"struct", .by = put_struct},
    {"list", .put = put_list},
    {"around", .put = put_around},
    {"reduce", .put = put_reduce},
    {"scratch", .put = put_scratch},
    {"key", .put = put_key},
    {"complete", .put = put_complete},
    {"distance", .put = put_distance},
    {"epilogue", .put = put_epilogue},
    {"finish", .put = put_finish},
    {"Thead", .put = put_head},
    {"flat", .put = put_flat},
    {"each", .put = put_each},
    {"run_rows", .put = put_rows},
    {"run_groups", .put = put_groups},
    {"ring", .put = put_ring},
};

/* Attributes that are an enum of runtime/base/contract.h, with the spelling of each value. */
static const struct {
    const char *attr, *names[3];
} enums[] = {{"algorithm", {"RT_CONV_PRODUCT", "RT_CONV_WINOGRAD"}},
             {"library", {"0", "RT_LIBRARY", "RT_LIBRARY_ATOMIC"}},
             {"nan_to_zero", {"0", "RT_NAN_TO_ZERO", "RT_HIDDEN_ROWS_TO_ZERO"}}};

/* $[p]: the product of the extents of all factors whose names begin with p. */
static void put_product(struct local *local, char first) {
    const char *texts[MAX_FACTORS], *dim;
    int64_t p = 1;
    int n = 0, factors[MAX_FACTORS];
    for (int f = 0; f < local->dims.nfactors; f++) {
        if (local->dims.factor[f].name[0] != first) continue;
        factors[n] = f;
        texts[n++] = local_factor_text(local, f, false);
        p *= local->extent[f];
    }
    if (n > 1 && (dim = local_factors_text(local, n, factors, false))) return strbuf_puts(&local->out, dim);
    if (open_most(local->graph->open, p) <= INT_MAX)
        strbuf_puts(&local->out, sizes_times(local->out.arena, n, texts));
    else
        strbuf_printf(&local->out, "%lld", (long long)p);
}

static void put_attr(struct local *local, const char *name) {
    const struct attr *attr = attr_find(&local->node, name);
    for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
        if (strcmp(enums[i].attr, name) == 0)
            return strbuf_puts(&local->out, enums[i].names[attr_int(&local->node, name, 0)]);
    if (!attr)
        strbuf_putc(&local->out, '0'); /* an optional attribute that is absent */
    else if (attr->kind == ATTR_INTS)
        put_array(local, strcmp(name, "perm") == 0 ? "int" : "int64_t", attr->n, attr->ints);
    else if (attr->kind == ATTR_FLOAT && isinf(attr->number))
        strbuf_puts(&local->out, attr->number < 0 ? "-INFINITY" : "INFINITY");
    else if (attr->kind == ATTR_FLOAT)
        strbuf_printf(&local->out, "%.17g", attr->number);
    else
        strbuf_printf(&local->out, "%lld", (long long)attr->value);
}

static void put_variable(struct local *local, const char *name, const char *argument) {
    int factor = dims_find(&local->dims, name);
    if (strcmp(name, "start") == 0 && *argument) return put_start(local, argument);
    if (strcmp(name, "extent") != 0 && factor >= 0)
        return strbuf_puts(&local->out, local_factor_text(local, factor, false));
    if (is_operand(name)) return put_tensor(local, local_operand(local, name));
    for (size_t i = 0; i < sizeof placeholders / sizeof *placeholders; i++) {
        const struct placeholder *row = &placeholders[i];
        if (strcmp(row->name, name) != 0) continue;
        if (row->argument) argument = row->argument;
        if (row->put) return row->put(local);
        return row->by ? row->by(local, argument) : row->of(local, local_operand(local, argument));
    }
    put_attr(local, name);
}

/* Writes the variable whose name begins at `s`, after '$'; returns the text after it. */
const char *placeholder_write(struct local *local, const char *s) {
    char name[24], argument[24] = "";
    if (s[0] == '[') {
        put_product(local, s[1]);
        return s + 3;
    }
    size_t n = 0;
    bool type = *s == 'T' || *s == 'B'; /* followed by nothing but a digit */
    for (; isalnum((unsigned char)s[n]) || (s[n] == '_' && !type); n++) name[n] = s[n];
    name[n] = 0;
    s += n;
    if (*s != '(' || type) return put_variable(local, name, argument), s;
    size_t length = strcspn(s + 1, ")");
    memcpy(argument, s + 1, length);
    argument[length] = 0;
    put_variable(local, name, argument);
    return s + length + 2;
}
