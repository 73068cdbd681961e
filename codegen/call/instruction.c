#include "codegen/call/instruction.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/call/placeholders.h"
#include "codegen/call/ports.h"
#include "codegen/kernel/elementwise.h"
#include "codegen/kernel/row_kernel.h"

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
        local_in_runs(local) && local->node.op->kind != OP_COMM; /* which records the number before it begins */
    if (status) strbuf_puts(&local->out, in_loop ? "RT_TRY(" : "RT_TRY_AT(\002, ");
    strbuf_puts(&local->out, local->node.op->user ? "" : target->call_prefix);
    size_t from = local->out.length;
    const char *open = strchr(s, '(');
    bool add_rank = target->arguments->names_rank && strncmp(open, "(rt, ", 5) != 0;
    for (s += status; *s && *s != '|';) {
        if (*s == '$')
            s = placeholder_write(local, s + 1);
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
    const int result = local->node.outputs[0], ndim = local_tensor(local, result)->ndim;
    const int64_t columns = local_shape(local, result)[ndim - 1];
    strbuf_printf(&local->out, "\n    RT_TRY(rt_reduce_run(rt, %d, ", runs->sum_axis);
    put_row(local, result);
    strbuf_printf(&local->out, ", %s, ", dtype_ids[local_tensor(local, result)->dtype]);
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
    const struct runs runs = local_runs(local);
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
                          .id = id,
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
    if (local_in_runs(&local) && local.node.op->kind != OP_COMM)
        put_runs_loop(&local);
    else
        put_call(&local);
    out->text = watched(plan, strbuf_text(&local.out));
    out->tensors.at = local.tensors.at, out->tensors.n = local.tensors.n;
    out->keys.at = local.keys.at, out->keys.n = local.keys.n;
    return true;
}
