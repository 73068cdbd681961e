#include "codegen/call/instruction.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernel/elementwise.h"
#include "codegen/call/ports.h"
#include "codegen/kernel/row_kernel.h"
#include "ir/base/str.h"
#include "ir/expr/epilogue.h"
#include "passes/rank/views.h"

enum { HOLE_TENSOR = 1 };

/* A node as the ranks of one class compute it, and the call being written for it. */
struct local {
    const struct rankplan *plan;
    const struct rank_class *class;
    const struct graph *graph;
    struct node node; /* with attributes rewritten for the rank's part */
    struct dims dims;
    int64_t extent[MAX_FACTORS]; /* of the rank's part, by factor of dims */
    struct strbuf out;
    struct instruction *instruction;
    struct kernels *kernels;
};

static int operand_tensor(const struct local *local, const char *operand) {
    int k = atoi(operand + 1);
    if (operand[0] == 'y') return k < local->node.noutputs ? local->node.outputs[k] : -1;
    if (operand[0] != 'x' || k >= local->node.ninputs) return -1;
    return local->node.inputs[k];
}

/* x0, x1, .., y, y1, .. */
static bool is_operand(const char *name) {
    return strcmp(name, "y") == 0 || ((*name == 'x' || *name == 'y') && isdigit((unsigned char)name[1]) && !name[2]);
}

static const int64_t *shape_of(const struct local *local, int tensor) {
    return local->class->dims[tensor];
}
static const struct tensor *tensor_of(const struct local *local, int tensor) {
    return &local->graph->tensors.at[tensor];
}

static void put_tensor(struct local *local, int tensor) {
    if (tensor < 0) {
        strbuf_puts(&local->out, "NULL");
        return;
    }
    strbuf_putc(&local->out, HOLE_TENSOR);
    VEC_PUSH(local->out.arena, &local->instruction->tensors, tensor);
}

/* Appends a text of struct target_arguments, with % replaced by `name`. */
static void open_argument(struct local *local, const char *text, const char *name) {
    int before = (int)strcspn(text, "%");
    strbuf_printf(&local->out, "%.*s%s%s", before, text, text[before] ? name : "", text + before + !!text[before]);
}

static void open_array(struct local *local, const char *type) {
    open_argument(local, local->kernels->target->arguments->array, type);
}

static void put_no_array(struct local *local) {
    strbuf_puts(&local->out, local->kernels->target->arguments->no_array);
}

static void put_array(struct local *local, const char *type, int n, const int64_t *values) {
    if (!n) return put_no_array(local);
    open_array(local, type);
    for (int i = 0; i < n; i++) strbuf_printf(&local->out, "%s%lld", i ? ", " : "", (long long)values[i]);
    strbuf_putc(&local->out, '}');
}

static int64_t product(const int64_t *values, int from, int to) {
    int64_t p = 1;
    for (int i = from; i < to; i++) p *= values[i];
    return p;
}

/* The extent of a dimension of the rank's part, by name if it has one. */
static void put_dim(struct local *local, int tensor, int dim) {
    strbuf_puts(&local->out,
                sizes_extent(local->kernels->sizes, &local->kernels->size_names, local->class, tensor, dim));
}

/* The product of extents of dimensions [from, to). */
static const char *dims_text(struct local *local, int tensor, int from, int to) {
    return sizes_product(local->kernels->sizes, &local->kernels->size_names, local->class, tensor, from, to);
}

/* The extent of the whole tensor's dimension. */
static const char *whole_text(struct local *local, int tensor, int dim) {
    return sizes_whole(local->kernels->sizes, &local->kernels->size_names, tensor, dim);
}

/* A factor, or the rank's part of it: as a dimension of an operand that is this factor alone. */
static const char *factor_text(struct local *local, int factor, bool whole) {
    const int64_t extent = whole ? local->dims.factor[factor].extent : local->extent[factor];
    for (int o = 0; o < local->dims.ninputs + local->dims.noutputs; o++) {
        const bool output = o >= local->dims.ninputs;
        const int k = output ? o - local->dims.ninputs : o;
        const int tensor = output ? local->node.outputs[k] : k < local->node.ninputs ? local->node.inputs[k] : -1;
        for (int d = 0; tensor >= 0 && d < local->dims.operand[o].ndim; d++) {
            const struct dim_factors *of = &local->dims.operand[o].dim[d];
            const int64_t own = whole ? tensor_of(local, tensor)->dims[d] : shape_of(local, tensor)[d];
            if (of->n == 1 && of->factor[0] == factor && own == extent)
                return whole ? whole_text(local, tensor, d) : dims_text(local, tensor, d, d + 1);
        }
    }
    return arena_printf(local->out.arena, "%lld", (long long)extent);
}

/* The functions below write the placeholders of the same name (instruction.h). */

/* Writes the inputs from `first` on as an array of pointers. */
static void put_pointers(struct local *local, int first) {
    if (first == local->node.ninputs) return put_no_array(local);
    open_array(local, "void *const");
    for (int k = first; k < local->node.ninputs; k++) {
        strbuf_puts(&local->out, k > first ? ", " : "");
        put_tensor(local, local->node.inputs[k]);
    }
    strbuf_putc(&local->out, '}');
}

/* A product that is computed in runs of rows (passes/place/product_runs.c). */
struct runs {
    int64_t rows, length;      /* of the product; of a run, the last of which may have fewer */
    int64_t items;             /* before the dimension that ranks divide; 0: they divide none */
    int sum_axis, gather_axis; /* mesh axes; -1: none */
};

static bool in_runs(const struct local *local) {
    return attr_int(&local->node, "runs", 1) > 1;
}

/* A run is the rows of an item, or of the parts of some ranks (Note [Runs of rows] in runtime/core/redist.c). If ranks
 * divide no dimension, runs are equally long, in whole tiles of kernels. */
static struct runs runs_of(const struct local *local) {
    enum { TILE = 16 };
    const int result = local->node.outputs[0], ndim = tensor_of(local, result)->ndim;
    const int dim = (int)attr_int(&local->node, "run_dim", -1);
    struct runs runs = {.rows = product(shape_of(local, result), 0, ndim - 1),
                        .items = dim < 0 ? 0 : product(shape_of(local, result), 0, dim),
                        .sum_axis = (int)attr_int(&local->node, "sum_axis", -1),
                        .gather_axis = (int)attr_int(&local->node, "gather_axis", -1)};
    const int64_t number = runs.items > 1 ? runs.items : attr_int(&local->node, "runs", 1);
    runs.length = (runs.rows + number - 1) / number;
    if (!runs.items && runs.length > TILE) runs.length = (runs.length + TILE - 1) / TILE * TILE;
    return runs;
}

static void put_row(struct local *local, int tensor) {
    put_tensor(local, tensor);
    if (!in_runs(local)) return;
    const int64_t elements = rankplan_elements(local->class, local->graph, tensor);
    strbuf_printf(&local->out, " + row * %lld", (long long)(elements / runs_of(local).rows));
}

static void put_rows(struct local *local) {
    const int result = local->node.outputs[0];
    const int64_t rows = product(shape_of(local, result), 0, tensor_of(local, result)->ndim - 1);
    if (!in_runs(local))
        strbuf_puts(&local->out, dims_text(local, result, 0, tensor_of(local, result)->ndim - 1));
    else if (rows % runs_of(local).length)
        strbuf_puts(&local->out, "rows");
    else
        strbuf_printf(&local->out, "%lld", (long long)runs_of(local).length);
}

static void put_list(struct local *local) {
    put_pointers(local, 0);
}

/* The extents of the tensor as an array of n dimensions, with 1s in front. */
static void put_extents(struct local *local, int tensor, int n) {
    const int missing = n - tensor_of(local, tensor)->ndim;
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
    put_extents(local, tensor, tensor_of(local, tensor)->ndim);
}

/* $strided(x0): pointer and strides in elements. */
static void put_strided(struct local *local, int tensor) {
    const struct strides strides = views_strides(local->plan, local->class, tensor);
    open_argument(local, local->kernels->target->arguments->structure, "rt_strided");
    put_tensor(local, tensor);
    strbuf_puts(&local->out, ", ");
    put_array(local, "int64_t", tensor_of(local, tensor)->ndim, strides.step);
    strbuf_putc(&local->out, '}');
}

static void put_ndim(struct local *local, int tensor) {
    strbuf_printf(&local->out, "%d", tensor_of(local, tensor)->ndim);
}

static void put_size(struct local *local, int tensor) {
    strbuf_puts(&local->out, elements_text(local->kernels, local->graph, local->class, tensor));
}

/* $flat: of a redistribution of slices, the elements that are divided, and the other axes that cut both operand and
 * result. */
static void put_flat(struct local *local) {
    const int from = op_moved_input(&local->node), to = local->node.outputs[0];
    const unsigned held = layout_slices(&tensor_of(local, from)->layout),
                   made = layout_slices(&tensor_of(local, to)->layout),
                   begun = (unsigned)attr_int(&local->node, "slices", 0);
    strbuf_printf(&local->out, "%lld, 0x%x", (long long)rankplan_elements(local->class, local->graph, to),
                  (held & made & ~(1u << attr_int(&local->node, "mesh", 0))) | ((held | made | begun) & RT_FLAT_KINDS));
}

/* $each: 1 in the phases of a micro-batch, else 0. */
static void put_each(struct local *local) {
    strbuf_putc(&local->out, local->node.phase < PHASE_REDUCE ? '1' : '0');
}

static void put_local_bytes(struct local *local, int tensor) {
    const struct tensor *t = tensor_of(local, tensor);
    if (layout_flat_axes(&t->layout))
        strbuf_printf(&local->out, "%s * %zu", elements_text(local->kernels, local->graph, local->class, tensor),
                      rt_dtype_bytes(t->dtype));
    else
        strbuf_printf(&local->out, "%lld", (long long)rankplan_bytes(local->class, local->graph, tensor));
}

static void put_aligned(struct local *local, int tensor) {
    const int ndim = tensor_of(local, local->node.outputs[0])->ndim;
    if (tensor < 0) return put_no_array(local);
    put_extents(local, tensor, ndim);
}

static void put_outer(struct local *local, const char *argument) {
    const int axis = (int)attr_int(&local->node, argument, 0);
    strbuf_puts(&local->out, dims_text(local, local->node.outputs[0], 0, axis));
}

static void put_runs(struct local *local, const char *argument) {
    const int axis = (int)attr_int(&local->node, argument, 0);
    if (!local->node.ninputs) return put_no_array(local);
    open_array(local, "int64_t");
    EACH_VALUE(local->node.inputs, local->node.ninputs, k, const int tensor) {
        strbuf_printf(&local->out, "%s%s", k ? ", " : "",
                      dims_text(local, tensor, axis, tensor_of(local, tensor)->ndim));
    }
    strbuf_putc(&local->out, '}');
}

/* How the class' ranks and the others along the axis divide the tensor. */
static struct rt_placement ranks_placement(struct local *local, int tensor, int axis) {
    int coordinate[RT_MAX_AXES];
    mesh_coordinate(&local->graph->mesh, local->class->shard, coordinate);
    return placement_of_ranks(local->graph, tensor_of(local, tensor), axis, coordinate);
}

/* Writes struct rt_placement for an operand of a redistribution, or for the windows of a node: which part of the
 * dimension each rank of the mesh axis has. */
static void put_ranks_placement(struct local *local, int tensor, int axis) {
    const struct rt_placement held = ranks_placement(local, tensor, axis);
    open_argument(local, local->kernels->target->arguments->structure, "rt_placement");
    strbuf_printf(&local->out, ".cut = {%lld, %lld, %lld, %d}, .extent = %lld", (long long)held.cut.extent,
                  (long long)held.cut.blocks, (long long)held.cut.grain, held.cut.ways, (long long)held.extent);
    if (held.span)
        strbuf_printf(&local->out, ", .stride = %lld, .before = %lld, .span = %lld", (long long)held.stride,
                      (long long)held.before, (long long)held.span);
    strbuf_putc(&local->out, '}');
}

static void put_own_padding(struct local *local, int axis, bool before, int64_t padding) {
    strbuf_printf(&local->out, "rt_window_%s(rt, %d, ", before ? "before" : "behind", axis);
    put_ranks_placement(local, local->node.inputs[0], axis);
    if (!before) strbuf_printf(&local->out, ", %lld", (long long)padding);
    strbuf_putc(&local->out, ')');
}

/* Writes where the rank's part of a factor begins. It depends on the rank's coordinate, so it is computed at run
 * time. */
static void put_factor_start(struct local *local, int factor) {
    int coordinate[RT_MAX_AXES], axes[RT_LAYOUT_AXES];
    const char *before = "";
    int64_t extent = local->dims.factor[factor].extent;
    mesh_coordinate(&local->graph->mesh, local->class->shard, coordinate);
    dims_outermost_first(local->node.split, local->graph->mesh.naxes, axes);
    for (int i = 0; i < local->graph->mesh.naxes; i++) {
        const struct node_split *split = &local->node.split[axes[i]];
        if (split->factor != factor) continue;
        const struct rt_cut cut = {extent, split->blocks, split->grain, local->graph->mesh.axis[axes[i]].size};
        const char *text =
            *before ? arena_printf(local->out.arena, "%lld", (long long)extent) : factor_text(local, factor, true);
        strbuf_printf(&local->out, "%srt_part_start(rt, %d, %s, %lld, %lld)", before, axes[i], text,
                      (long long)split->blocks, (long long)split->grain);
        extent = rt_cut_extent(&cut, coordinate[axes[i]]); /* the same for all ranks of the class */
        before = " + ";
    }
    if (!*before) strbuf_putc(&local->out, '0');
}

static void put_start(struct local *local, const char *argument) {
    put_factor_start(local, dims_find(&local->dims, argument));
}

/* $gap, $jump: how many positions lie between the two runs that the rank has of a factor whose cut is mirrored; of
 * other factors 0. $jump is member `jump` of a structure, or nothing for 0. */
static void put_gap_as(struct local *local, const char *argument, bool member) {
    const int factor = dims_find(&local->dims, argument);
    int coordinate[RT_MAX_AXES], axes[RT_LAYOUT_AXES];
    int64_t extent = local->dims.factor[factor].extent, length = extent;
    const int64_t block = extent / 2;
    struct strbuf turns = {.arena = local->out.arena};
    mesh_coordinate(&local->graph->mesh, local->class->shard, coordinate);
    dims_outermost_first(local->node.split, local->graph->mesh.naxes, axes);
    for (int i = 0; i < local->graph->mesh.naxes; i++) {
        const struct node_split *split = &local->node.split[axes[i]];
        if (split->factor != factor || split->blocks > 0) continue;
        const struct rt_cut cut = {length, split->blocks, split->grain, local->graph->mesh.axis[axes[i]].size};
        strbuf_printf(&turns, " + rt_part_turn(rt, %d, %lld, %lld, %lld)", axes[i], (long long)length,
                      (long long)split->blocks, (long long)split->grain);
        length = rt_cut_extent(&cut, coordinate[axes[i]]);
    }
    if (turns.length)
        strbuf_printf(&local->out, "%s%lld%s", member ? ", .jump = " : "", (long long)(block - length / 2),
                      strbuf_text(&turns));
    else if (!member)
        strbuf_putc(&local->out, '0');
}
static void put_gap(struct local *local, const char *argument) {
    put_gap_as(local, argument, false);
}
static void put_jump(struct local *local, const char *argument) {
    put_gap_as(local, argument, true);
}

/* $starts: needs an operand each of whose dimensions is one factor or has extent 1. */
static void put_starts(struct local *local, const char *argument) {
    const struct operand *operand = &local->dims.operand[*argument == 'y' ? local->dims.ninputs : atoi(argument + 1)];
    if (!operand->ndim) return put_no_array(local);
    open_array(local, "int64_t");
    for (int d = 0; d < operand->ndim; d++) {
        strbuf_puts(&local->out, d ? ", " : "");
        if (operand->dim[d].n)
            put_factor_start(local, operand->dim[d].factor[0]);
        else
            strbuf_putc(&local->out, '0');
    }
    strbuf_putc(&local->out, '}');
}

static void put_whole(struct local *local, int tensor) {
    const int ndim = tensor_of(local, tensor)->ndim;
    if (!ndim) return put_no_array(local);
    open_array(local, "int64_t");
    for (int d = 0; d < ndim; d++) strbuf_printf(&local->out, "%s%s", d ? ", " : "", whole_text(local, tensor, d));
    strbuf_putc(&local->out, '}');
}

/* $before, $behind: padding of the rank's part. It is that of the node, except in a dimension that is read through
 * windows (halos), where it depends on the rank and is computed at run time. */
static void put_padding(struct local *local, const char *argument) {
    int n, windowed[RT_MAX_NDIM];
    const int64_t *padding = attr_ints(&local->node, argument, &n);
    const int spatial = local->dims.operand[0].ndim - n - (int)attr_int(&local->node, "channels_last", 0);
    for (int d = 0; d < n; d++) windowed[d] = -1;
    for (int axis = 0; axis < local->graph->mesh.naxes; axis++) {
        int dim = dims_window_dim(&local->dims, 0, local->node.split[axis].factor);
        if (dim >= 0) windowed[dim - spatial] = axis;
    }
    open_array(local, "int64_t");
    for (int d = 0; d < n; d++) {
        strbuf_puts(&local->out, d ? ", " : "");
        if (windowed[d] < 0)
            strbuf_printf(&local->out, "%lld", (long long)padding[d]);
        else
            put_own_padding(local, windowed[d], strcmp(argument, "begin") == 0, padding[d]);
    }
    strbuf_putc(&local->out, '}');
}

static void put_extent(struct local *local, const char *argument) {
    strbuf_puts(&local->out, factor_text(local, dims_find(&local->dims, argument), true));
}

static void put_type(struct local *local, int tensor) {
    strbuf_puts(&local->out, rt_dtypes[tensor_of(local, tensor)->dtype].name);
}

/* $Tby: "_by_" and the type of the weights if it is not that of the result; "_as_" if the other operand is rounded to
 * it. */
static void put_other_type(struct local *local, int tensor) {
    if (tensor_of(local, tensor)->dtype == tensor_of(local, local->node.outputs[0])->dtype) return;
    strbuf_puts(&local->out, attr_int(&local->node, "rounded", 0) ? "_as_" : "_by_");
    put_type(local, tensor);
}

static void put_bytes(struct local *local, int tensor) {
    strbuf_printf(&local->out, "b%zu", rt_dtype_bytes(tensor_of(local, tensor)->dtype));
}

static void put_dtype(struct local *local, int tensor) {
    strbuf_puts(&local->out, dtype_ids[tensor_of(local, tensor)->dtype]);
}

/* $type(x1), $type(codes): the type of an operand, or the one that an attribute names. */
static void put_type_of(struct local *local, const char *argument) {
    const char *named = attr_text(&local->node, argument, NULL);
    strbuf_puts(&local->out,
                dtype_ids[named ? rt_dtype_by_name(named) : tensor_of(local, operand_tensor(local, argument))->dtype]);
}

/* $vector(x3): 1 if the operand is given and has a dimension. */
static void put_vector(struct local *local, int tensor) {
    strbuf_putc(&local->out, tensor >= 0 && tensor_of(local, tensor)->ndim ? '1' : '0');
}

/* $indexed(x0): the extents after the first batch_dims (an attribute). */
static void put_indexed(struct local *local, int tensor) {
    const int batch = (int)attr_int(&local->node, "batch_dims", 0);
    put_array(local, "int64_t", tensor_of(local, tensor)->ndim - batch, shape_of(local, tensor) + batch);
}

static void put_struct(struct local *local, const char *argument) {
    open_argument(local, local->kernels->target->arguments->structure, argument);
}

/* $count: number of inputs. $count(x1): number of rows of an index tensor of shape (.., depth). */
static void put_count(struct local *local, const char *argument) {
    const int tensor = *argument ? operand_tensor(local, argument) : -1;
    if (tensor < 0)
        strbuf_printf(&local->out, "%d", local->node.ninputs);
    else
        strbuf_puts(&local->out, dims_text(local, tensor, 0, tensor_of(local, tensor)->ndim - 1));
}

static void put_depth(struct local *local, int tensor) {
    put_dim(local, tensor, tensor_of(local, tensor)->ndim - 1);
}

static void put_is64(struct local *local, int tensor) {
    strbuf_puts(&local->out, tensor_of(local, tensor)->dtype == RT_I64 ? "1" : "0");
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

/* $around: extents before, of and after the redistributed dimension (complete along the mesh axis), and the cut's
 * blocks and grain. */
static void put_around(struct local *local) {
    int dim = (int)attr_int(&local->node, "dim", 0), axis = (int)attr_int(&local->node, "mesh", 0),
        from = local->node.inputs[0], tensor = local->node.outputs[0], ndim = tensor_of(local, tensor)->ndim;
    const bool gathers = layout_along(&tensor_of(local, from)->layout, axis).kind == PLACED_PART;
    const struct rt_placement part = ranks_placement(local, gathers ? from : tensor, axis);
    const char *extent = part.extent == tensor_of(local, tensor)->dims[dim]
                             ? whole_text(local, tensor, dim)
                             : arena_printf(local->out.arena, "%lld", (long long)part.extent);
    strbuf_printf(&local->out, "%s, %s, %s, %lld, %lld", dims_text(local, tensor, 0, dim), extent,
                  dims_text(local, tensor, dim + 1, ndim), (long long)attr_int(&local->node, "blocks", 1),
                  (long long)attr_int(&local->node, "grain", 1));
}

/* $run_groups: into how many groups of ranks a gather in runs of rows is divided (Note [Runs of rows] in
 * runtime/core/redist.c), else 0. */
static void put_groups(struct local *local) {
    const int64_t items = product(shape_of(local, local->node.outputs[0]), 0, (int)attr_int(&local->node, "dim", 0));
    strbuf_printf(&local->out, "%lld",
                  (long long)(!in_runs(local) ? 0
                              : items > 1     ? 1
                                              : attr_int(&local->node, "runs", 1)));
}

/* $complete: number of dimensions and extents of the redistributed tensor: complete in the dimensions that are split
 * before or after, else those of the rank's part. */
static void put_complete(struct local *local) {
    int axis = (int)attr_int(&local->node, "mesh", 0), from = local->node.inputs[0], to = local->node.outputs[0];
    const int operands[] = {from, to};
    int64_t dims[RT_MAX_NDIM];
    memcpy(dims, shape_of(local, to), sizeof dims);
    for (int i = 0; i < 2; i++) {
        const struct placement placement = layout_along(&tensor_of(local, operands[i])->layout, axis);
        if (placement_divides(&placement)) dims[placement.dim] = ranks_placement(local, operands[i], axis).extent;
    }
    strbuf_printf(&local->out, "%d, ", tensor_of(local, to)->ndim);
    put_array(local, "int64_t", tensor_of(local, to)->ndim, dims);
}

/* $held, $wanted: the dimension that the input or output of a redistribution is split along, and how ranks hold it. */
static void put_placement(struct local *local, int tensor) {
    const int axis = (int)attr_int(&local->node, "mesh", 0);
    strbuf_printf(&local->out, "%d, ", layout_along(&tensor_of(local, tensor)->layout, axis).dim);
    put_ranks_placement(local, tensor, axis);
}

static void put_reduce(struct local *local) {
    const char *reduce = attr_text(&local->node, "reduce", "sum");
    for (const char *c = "RT_"; *c; c++) strbuf_putc(&local->out, *c);
    for (; *reduce; reduce++) strbuf_putc(&local->out, (char)toupper((unsigned char)*reduce));
}

/* $distance: of a send or receive, the coordinate of the peer along the mesh axis minus the rank's own. */
static void put_distance(struct local *local) {
    int64_t distance = attr_int(&local->node, "to", 0) - attr_int(&local->node, "from", 0);
    bool sends = rankplan_part(local->class, &local->node) == STAGE_READS;
    strbuf_printf(&local->out, "%+lld", (long long)(sends ? distance : -distance));
}

static void put_scratch(struct local *local) {
    strbuf_puts(&local->out, "rt->arena[RT_SCRATCH]");
}

/* $ring: the axis along which positions are cut, and the cut. */
static void put_ring(struct local *local) {
    const int axis = (int)attr_int(&local->node, "mesh", 0);
    const struct node_split *split = &local->node.split[axis];
    strbuf_printf(&local->out, "%d, %lld, %lld", axis, (long long)split->blocks, (long long)split->grain);
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
    strbuf_printf(&local->out, "%s, ",
                  elementwise_epilogue(local->kernels, local->plan, local->class, local->instruction->node));
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
    strbuf_printf(
        &local->out, "}, %s%s }", arguments->later,
        elementwise_finish(local->kernels, local->plan, local->class, local->instruction->node, &tensors, &n));
    for (int i = 0; i < n; i++) VEC_PUSH(local->out.arena, &local->instruction->tensors, tensors[i]);
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

/* $[p]: the product of the extents of all factors whose names begin with p. */
static void put_product(struct local *local, char first) {
    const char *texts[MAX_FACTORS];
    int64_t p = 1;
    int n = 0;
    for (int f = 0; f < local->dims.nfactors; f++) {
        if (local->dims.factor[f].name[0] != first) continue;
        texts[n++] = factor_text(local, f, false);
        p *= local->extent[f];
    }
    if (open_most(local->graph->open, p) <= INT_MAX)
        strbuf_puts(&local->out, sizes_times(local->out.arena, n, texts));
    else
        strbuf_printf(&local->out, "%lld", (long long)p);
}

/* Attributes that are an enum of runtime/base/contract.h, with the spelling of each value. */
static const struct {
    const char *attr, *names[3];
} enums[] = {{"algorithm", {"RT_CONV_PRODUCT", "RT_CONV_WINOGRAD"}},
             {"library", {"0", "RT_LIBRARY", "RT_LIBRARY_ATOMIC"}},
             {"nan_to_zero", {"0", "RT_NAN_TO_ZERO", "RT_HIDDEN_ROWS_TO_ZERO"}}};

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
    if (strcmp(name, "extent") != 0 && factor >= 0) return strbuf_puts(&local->out, factor_text(local, factor, false));
    if (is_operand(name)) return put_tensor(local, operand_tensor(local, name));
    for (size_t i = 0; i < sizeof placeholders / sizeof *placeholders; i++) {
        const struct placeholder *row = &placeholders[i];
        if (strcmp(row->name, name) != 0) continue;
        if (row->argument) argument = row->argument;
        if (row->put) return row->put(local);
        return row->by ? row->by(local, argument) : row->of(local, operand_tensor(local, argument));
    }
    put_attr(local, name);
}

/* Writes the variable whose name begins at `s`, after '$'; returns the text after it. */
static const char *read_variable(struct local *local, const char *s) {
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

/* Replaces products of numbers by their values from offset `from` on: 8*16 by 128. */
static void multiply_out(struct strbuf *out, size_t from) {
    char *at = out->text + from, *star;
    while ((star = strchr(at, '*'))) {
        char *left = star;
        while (left > out->text + from && isdigit((unsigned char)left[-1])) left--;
        if (left == star || !isdigit((unsigned char)star[1])) {
            at = star + 1;
            continue;
        }
        char *end, value[24];
        long long result = strtoll(left, NULL, 10) * strtoll(star + 1, &end, 10);
        int n = snprintf(value, sizeof value, "%lld", result);
        memmove(left + n, end, strlen(end) + 1);
        memcpy(left, value, (size_t)n);
        at = left;
    }
    out->length = strlen(out->text);
}

/* Puts blanks around the * beside a name of a size. */
static void space_out(struct strbuf *out, size_t from) {
    const char *text = arena_strdup(out->arena, out->text + from);
    out->length = from;
    for (const char *c = text; *c; c++) {
        const bool product = *c == '*' && c > text && (c[1] == SIZE_MARK || c[-1] == SIZE_END);
        if (product)
            strbuf_puts(out, " * ");
        else
            strbuf_putc(out, *c);
    }
}

/* Writes the call by an alternative of the call column: the one whose annotation fits the node; of a transfer, the
 * first on the sender and the second on the receiver; of a packed product, the last. */
static void put_call(struct local *local) {
    const struct target *target = local->kernels->target;
    const char *s = local->node.op->call;
    int skip = rankplan_part(local->class, &local->node) == STAGE_WRITES ? 1 : local->dims.alternative;
    if (rankplan_moves_slices(local->graph, &local->node) && strchr(s, '|')) skip = 1;
    if (attr_int(&local->node, "packed", 0)) skip = INT_MAX;
    for (const char *bar; skip > 0 && (bar = strchr(s, '|')); skip--) s = bar + 1;
    bool status = *s == '!';
    const bool in_loop =
        in_runs(local) && local->node.op->kind != OP_COMM; /* which records the number before it begins */
    if (status) strbuf_puts(&local->out, in_loop ? "RT_TRY(" : "RT_TRY_AT(\002, ");
    strbuf_puts(&local->out, local->node.op->user ? "" : target->call_prefix);
    size_t from = local->out.length;
    const char *open = strchr(s, '(');
    bool add_rank = target->arguments->names_rank && strncmp(open, "(rt, ", 5) != 0;
    for (s += status; *s && *s != '|';) {
        if (*s == '$')
            s = read_variable(local, s + 1);
        else
            strbuf_putc(&local->out, *s++);
        if (s == open + 1 && add_rank) strbuf_puts(&local->out, "rt, ");
    }
    multiply_out(&local->out, from);
    space_out(&local->out, from);
    strbuf_puts(&local->out, status ? ");" : ";");
}

/* Sets the extents of the rank's part of every factor and rewrites the node's attributes for it. */
static void localize(struct local *local) {
    struct graph *graph = (struct graph *)local->graph;
    int coordinate[RT_MAX_AXES], axes[RT_LAYOUT_AXES];
    rankplan_localize(graph, local->class, &local->node, &local->dims);
    mesh_coordinate(&graph->mesh, local->class->shard, coordinate);
    for (int f = 0; f < local->dims.nfactors; f++) local->extent[f] = local->dims.factor[f].extent;
    dims_outermost_first(local->node.split, graph->mesh.naxes, axes);
    for (int i = 0; i < graph->mesh.naxes; i++) {
        const struct node_split *split = &local->node.split[axes[i]];
        if (split->factor < 0) continue;
        const struct rt_cut cut = {local->extent[split->factor], split->blocks, split->grain,
                                   graph->mesh.axis[axes[i]].size};
        local->extent[split->factor] = rt_cut_extent(&cut, coordinate[axes[i]]);
    }
}

/* Writes the call that begins the sum of a run's results. */
static void put_run_sum(struct local *local, const struct runs *runs) {
    const int result = local->node.outputs[0], ndim = tensor_of(local, result)->ndim;
    const int64_t columns = shape_of(local, result)[ndim - 1];
    strbuf_printf(&local->out, "\n    RT_TRY(rt_reduce_run(rt, %d, ", runs->sum_axis);
    put_row(local, result);
    strbuf_printf(&local->out, ", %s, ", dtype_ids[tensor_of(local, result)->dtype]);
    if (runs->rows % runs->length)
        strbuf_printf(&local->out, "rows * %lld", (long long)columns);
    else
        strbuf_printf(&local->out, "%lld", (long long)(runs->length * columns));
    if (runs->items == 1)
        strbuf_printf(&local->out, ", (int)(row / %lld), %lld", (long long)runs->length,
                      (long long)(runs->rows / runs->length));
    else
        strbuf_printf(&local->out, ", 0, %d", runs->items > 1);
    strbuf_puts(&local->out, "));");
}

/* Writes the call of a product as a loop over runs of rows, and the communication beside it. */
static void put_runs_loop(struct local *local) {
    const struct runs runs = runs_of(local);
    const long long rows = runs.rows, length = runs.length;
    strbuf_printf(&local->out,
                  "rt_at(rt, instruction + \002);\nfor (int64_t row = 0; row < %lld; row += %lld) {  // %s\n    ", rows,
                  length,
                  runs.gather_axis < 0 ? "beside, the partial sums of the rows before are added"
                                       : "beside, the next rows are gathered");
    if (rows % length)
        strbuf_printf(&local->out, "const int64_t rows = %lld - row < %lld ? %lld - row : %lld;\n    ", rows, length,
                      rows, length);
    if (runs.gather_axis >= 0) strbuf_printf(&local->out, "RT_TRY(rt_all_gather_run(rt, %d));\n    ", runs.gather_axis);
    put_call(local);
    if (runs.sum_axis >= 0) put_run_sum(local, &runs);
    strbuf_puts(&local->out, "\n}");
}

/* Every call records its number, not only calls that may fail: traces, profiles and the search for the origin of a
 * non-finite value use it. */
static const char *watched(const struct rankplan *plan, const char *call) {
    const size_t length = strlen(call);
    if (strncmp(call, "RT_TRY", 6) == 0 || strchr(call, ';') != call + length - 1) return call;
    return arena_printf(plan->graph->arena, "RT_AT(\002, %.*s);", (int)length - 1, call);
}

bool instruction_write(const struct rankplan *plan, const struct rank_class *class, struct kernels *kernels, int id,
                       struct instruction *out) {
    struct local local = {.plan = plan,
                          .class = class,
                          .graph = plan->graph,
                          .node = plan->graph->nodes.at[id],
                          .instruction = out,
                          .kernels = kernels};
    *out = (struct instruction){.node = id, .number = out->number};
    if (plan->moves_nothing[id]) return false;
    strbuf_init(&local.out, plan->graph->arena);
    if (local.node.op->kind == OP_ELEMENTWISE) {
        out->text = watched(plan, elementwise_call(kernels, plan, class, id, &out->tensors.at, &out->tensors.n));
        return true;
    }
    if (local.node.op->kind == OP_PROGRAM) {
        out->text = watched(plan, row_kernel_call(kernels, plan, class, id, &out->tensors.at, &out->tensors.n));
        return true;
    }
    localize(&local);
    if (in_runs(&local) && local.node.op->kind != OP_COMM)
        put_runs_loop(&local);
    else
        put_call(&local);
    out->text = watched(plan, strbuf_text(&local.out));
    return true;
}
