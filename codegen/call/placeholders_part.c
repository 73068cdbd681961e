#include "codegen/call/placeholders_part.h"

#include <stdlib.h>
#include <string.h>

/* How the class' ranks and the others along the axis divide the tensor. */
static struct rt_placement ranks_placement(struct local *local, int tensor, int axis) {
    int coordinate[RT_MAX_AXES];
    mesh_coordinate(&local->graph->mesh, local->class->shard, coordinate);
    return placement_of_ranks(local->graph, local_tensor(local, tensor), axis, coordinate);
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
        const char *text = *before ? arena_printf(local->out.arena, "%lld", (long long)extent)
                                   : local_factor_text(local, factor, true);
        strbuf_printf(&local->out, "%srt_part_start(rt, %d, %s, %lld, %lld)", before, axes[i], text,
                      (long long)split->blocks, (long long)split->grain);
        extent = rt_cut_extent(&cut, coordinate[axes[i]]); /* the same for all ranks of the class */
        before = " + ";
    }
    if (!*before) strbuf_putc(&local->out, '0');
}

void put_start(struct local *local, const char *argument) {
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

void put_gap(struct local *local, const char *argument) {
    put_gap_as(local, argument, false);
}

void put_jump(struct local *local, const char *argument) {
    put_gap_as(local, argument, true);
}

/* $starts: needs an operand each of whose dimensions is one factor or has extent 1. */
void put_starts(struct local *local, const char *argument) {
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

/* $before, $behind: padding of the rank's part. It is that of the node, except in a dimension that is read through
 * windows (halos), where it depends on the rank and is computed at run time. */
void put_padding(struct local *local, const char *argument) {
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

void put_extent(struct local *local, const char *argument) {
    strbuf_puts(&local->out, local_factor_text(local, dims_find(&local->dims, argument), true));
}

/* $around: extents before, of and after the redistributed dimension (complete along the mesh axis), and the cut's
 * blocks and grain. */
void put_around(struct local *local) {
    int dim = (int)attr_int(&local->node, "dim", 0), axis = (int)attr_int(&local->node, "mesh", 0),
        from = local->node.inputs[0], tensor = local->node.outputs[0], ndim = local_tensor(local, tensor)->ndim;
    const bool gathers = layout_along(&local_tensor(local, from)->layout, axis).kind == PLACED_PART;
    const struct rt_placement part = ranks_placement(local, gathers ? from : tensor, axis);
    const char *extent = part.extent == local_tensor(local, tensor)->dims[dim]
                             ? local_whole_text(local, tensor, dim)
                             : arena_printf(local->out.arena, "%lld", (long long)part.extent);
    strbuf_printf(&local->out, "%s, %s, %s, %lld, %lld", local_dims_text(local, tensor, 0, dim), extent,
                  local_dims_text(local, tensor, dim + 1, ndim), (long long)attr_int(&local->node, "blocks", 1),
                  (long long)attr_int(&local->node, "grain", 1));
}

/* $run_groups: into how many groups of ranks a gather in runs of rows is divided (Note [Runs of rows] in
 * runtime/core/redist.c), else 0. */
void put_groups(struct local *local) {
    const int64_t items = local_product(local, local->node.outputs[0], 0, (int)attr_int(&local->node, "dim", 0));
    strbuf_printf(&local->out, "%lld",
                  (long long)(!local_in_runs(local) ? 0
                              : items > 1           ? 1
                                                    : attr_int(&local->node, "runs", 1)));
}

/* $complete: number of dimensions and extents of the redistributed tensor: complete in the dimensions that are split
 * before or after, else those of the rank's part. */
void put_complete(struct local *local) {
    int axis = (int)attr_int(&local->node, "mesh", 0), from = local->node.inputs[0], to = local->node.outputs[0];
    const int operands[] = {from, to};
    int64_t dims[RT_MAX_NDIM];
    memcpy(dims, local_shape(local, to), sizeof dims);
    for (int i = 0; i < 2; i++) {
        const struct placement placement = layout_along(&local_tensor(local, operands[i])->layout, axis);
        if (placement_divides(&placement)) dims[placement.dim] = ranks_placement(local, operands[i], axis).extent;
    }
    strbuf_printf(&local->out, "%d, ", local_tensor(local, to)->ndim);
    put_array(local, "int64_t", local_tensor(local, to)->ndim, dims);
}

/* $held, $wanted: the dimension that the input or output of a redistribution is split along, and how ranks hold it. */
void put_placement(struct local *local, int tensor) {
    const int axis = (int)attr_int(&local->node, "mesh", 0);
    strbuf_printf(&local->out, "%d, ", layout_along(&local_tensor(local, tensor)->layout, axis).dim);
    put_ranks_placement(local, tensor, axis);
}

/* $distance: of a send or receive, the coordinate of the peer along the mesh axis minus the rank's own. */
void put_distance(struct local *local) {
    int64_t distance = attr_int(&local->node, "to", 0) - attr_int(&local->node, "from", 0);
    bool sends = rankplan_part(local->class, &local->node) == STAGE_READS;
    strbuf_printf(&local->out, "%+lld", (long long)(sends ? distance : -distance));
}

/* $ring: the axis along which positions are cut, and the cut. */
void put_ring(struct local *local) {
    const int axis = (int)attr_int(&local->node, "mesh", 0);
    const struct node_split *split = &local->node.split[axis];
    strbuf_printf(&local->out, "%d, %lld, %lld", axis, (long long)split->blocks, (long long)split->grain);
}

/* $flat: of a redistribution of slices, the elements that are divided, and the other axes that cut both operand and
 * result. */
void put_flat(struct local *local) {
    const int from = op_moved_input(&local->node), to = local->node.outputs[0];
    const unsigned held = layout_slices(&local_tensor(local, from)->layout),
                   made = layout_slices(&local_tensor(local, to)->layout),
                   begun = (unsigned)attr_int(&local->node, "slices", 0);
    strbuf_printf(&local->out, "%lld, 0x%x", (long long)rankplan_elements(local->class, local->graph, to),
                  (held & made & ~(1u << attr_int(&local->node, "mesh", 0))) | ((held | made | begun) & RT_FLAT_KINDS));
}
