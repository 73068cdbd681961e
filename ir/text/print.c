#include "ir/text.h"

#include <string.h>

#include "ir/base/str.h"
#include "ir/blocks.h"
#include "ir/build.h"
#include "ir/dims.h"
#include "ir/expr/eval.h"
#include "ir/number.h"
#include "ir/op.h"
#include "ir/provenance.h"
#include "ir/schedule.h"
#include "ir/user.h"

struct printer {
    const struct graph *graph;
    struct strbuf out;
    int *number; /* number in the text by tensor id; -1: not printed yet */
    int next;
    bool *said;                       /* by index of the graph's provenances: it is printed */
    const struct transfer_ends *ends; /* of each coordinate; NULL: there are no schedules */
};

/* A number that may depend on open sizes. */
static const char *number(const struct printer *p, int64_t value) {
    return open_text(p->graph->open, p->out.arena, value, NULL, true);
}

static void print_placement(struct printer *p, const struct placement *placement) {
    struct strbuf *out = &p->out;
    if (placement->kind == PLACED_OWN)
        strbuf_puts(out, "own");
    else if (placement->kind == PLACED_FLAT)
        strbuf_puts(out, placement->grain > 1 ? "blocks" : placement->grain ? "scales" : "flat");
    else if (placement->kind == PLACED_PART)
        strbuf_printf(out, "part(%d,%s,%s)", placement->dim, number(p, placement->blocks), number(p, placement->grain));
    else if (placement->kind == PLACED_WINDOW)
        strbuf_printf(out, "window(%d,%s,%s,%s,%s,%s)", placement->dim, number(p, placement->grain),
                      number(p, placement->reach.positions), number(p, placement->reach.stride),
                      number(p, placement->reach.before), number(p, placement->reach.span));
    else
        strbuf_printf(out, "partial(%s)", reduce_names[placement->reduce]);
}

/* The axis of the outermost cut of the dimension that the cut along `axis` divides; `axis` if it is in no nest. */
static int outermost(const struct layout *layout, int axis) {
    for (int c = 0; c < layout->ncuts; c++)
        if (layout_inner_axis(layout, layout->cuts[c].axis) == axis) return outermost(layout, layout->cuts[c].axis);
    return axis;
}

/* Prints the placements in order of axes. The cuts of one dimension are printed together, at the place of the
 * outermost one and in the order in which they nest. */
static void print_layout(struct printer *p, const struct layout *layout) {
    const char *before = " {";
    uint32_t done = 0; /* bit a: axis a is printed */
    for (int a = 0; a < mesh_layout_axes(&p->graph->mesh); a++)
        for (int axis = outermost(layout, a); axis >= 0 && !(done >> axis & 1u);
             done |= 1u << axis, axis = layout_inner_axis(layout, axis)) {
            const struct placement placement = layout_along(layout, axis);
            if (placement.kind == PLACED_WHOLE) continue;
            strbuf_printf(&p->out, "%s%s:", before, p->graph->mesh.axis[axis].name);
            print_placement(p, &placement);
            before = ", ";
        }
    if (*before == ',') strbuf_putc(&p->out, '}');
}

/* The text of element i of a constant: where `open`, an expression of sizes. */
static const char *element_text(const struct printer *p, const struct tensor *tensor, bool open, int64_t i,
                                char text[NUMBER_TEXT]) {
    const char *at = (const char *)tensor->data + (size_t)i * rt_dtype_bytes(tensor->dtype);
    if (open) return number(p, eval_load(tensor->data, tensor->dtype, i).i);
    number_print(text, tensor->dtype, at);
    return text;
}

static void print_values(struct printer *p, int id) {
    const struct tensor *tensor = &p->graph->tensors.at[id];
    struct strbuf *out = &p->out;
    const bool open = build_is_open(p->graph, id);
    const char *at = tensor->data;
    size_t size = rt_dtype_bytes(tensor->dtype);
    int64_t n = tensor_elements(tensor), run;
    strbuf_puts(out, " = [");
    for (int64_t i = 0; i < n; i += run) {
        char text[NUMBER_TEXT];
        for (run = 1; i + run < n && memcmp(at + (size_t)i * size, at + (size_t)(i + run) * size, size) == 0;) run++;
        strbuf_printf(out, "%s%s", i ? ", " : "", element_text(p, tensor, open, i, text));
        if (run > 1) strbuf_printf(out, "*%lld", (long long)run);
    }
    strbuf_putc(out, ']');
}

/* Prints %7 "name" type, the beginning of every definition. */
static void print_definition(struct printer *p, int id) {
    const struct tensor *tensor = &p->graph->tensors.at[id];
    p->number[id] = p->next++;
    strbuf_printf(&p->out, "%%%d ", p->number[id]);
    strbuf_quote(&p->out, tensor->name);
    strbuf_printf(&p->out, " %s", graph_type_text(p->graph, p->out.arena, tensor, NULL));
}

static void print_use(struct printer *p, int id) {
    if (id < 0)
        strbuf_putc(&p->out, '_');
    else
        strbuf_printf(&p->out, "%%%d", p->number[id]);
}

/* Prints %1, _, %3. */
static void print_uses(struct printer *p, int n, const int *tensors) {
    for (int i = 0; i < n; i++) {
        strbuf_puts(&p->out, i ? ", " : "");
        print_use(p, tensors[i]);
    }
}

static void print_mesh(struct printer *p) {
    const struct mesh *mesh = &p->graph->mesh;
    if (!mesh_layout_axes(mesh)) return;
    strbuf_puts(&p->out, "mesh");
    for (int a = 0; a < mesh->naxes; a++) strbuf_printf(&p->out, " %s", mesh_axis_text(mesh, a, p->graph->arena));
    for (int a = mesh->naxes; a < mesh_layout_axes(mesh); a++) strbuf_printf(&p->out, " %s=*", mesh->axis[a].name);
    strbuf_putc(&p->out, '\n');
}

static void print_chunks(struct printer *p) {
    const struct graph *graph = p->graph;
    if (!graph->chunks.n) return;
    strbuf_puts(&p->out, "chunks");
    for (int c = 0; c < graph->chunks.n; c++) strbuf_printf(&p->out, " %d", graph->chunks.home[c]);
    strbuf_putc(&p->out, '\n');
}

static void print_model(struct printer *p) {
    const struct graph *graph = p->graph;
    if (!graph->opset && (!graph->exporter || !*graph->exporter)) return;
    strbuf_puts(&p->out, "model ");
    strbuf_quote(&p->out, graph->exporter ? graph->exporter : "");
    strbuf_printf(&p->out, " opset=%d\n", graph->opset);
}

/* Prints the open sizes, their limits, and the numbers computed from them (except products), in the order in which the
 * graph lists them. Then prints the next step's value of each size that the program keeps. */
static void print_sizes(struct printer *p) {
    struct open_sizes *open = p->graph->open;
    for (int i = 0; open && i < open->all.n; i++) {
        strbuf_puts(&p->out, "size ");
        strbuf_quote(&p->out, open->all.at[i].name);
        strbuf_printf(&p->out, " %s\n", open_range_text(p->out.arena, &open->all.at[i].range));
    }
    for (int i = 0; open && i < open->limits.n; i++)
        strbuf_printf(&p->out, "limit %lld %s\n", (long long)open->limits.at[i].most,
                      open_text(open, p->out.arena, open->limits.at[i].value, NULL, false));
    for (int i = 0; open && i < open->atoms.n; i++) {
        const struct open_term *term = &open->terms.at[open->atoms.at[i]];
        if (term->kind != OPEN_SIZE && term->kind != OPEN_UNIT)
            strbuf_printf(&p->out, "extent %s\n", open_text(open, p->out.arena, term->value, NULL, false));
    }
    for (int i = 0; open && i < open->all.n; i++) {
        if (!open->all.at[i].next) continue;
        strbuf_puts(&p->out, "next ");
        strbuf_quote(&p->out, open->all.at[i].name);
        strbuf_printf(&p->out, " %s\n", open_text(open, p->out.arena, open->all.at[i].next, NULL, false));
    }
}

static void print_files(struct printer *p) {
    for (int i = 0; i < p->graph->files.n; i++) {
        strbuf_puts(&p->out, "file ");
        strbuf_quote(&p->out, p->graph->files.at[i]);
        strbuf_putc(&p->out, '\n');
    }
}

/* A float that could be read as an integer gets ".0". */
static void print_float(struct strbuf *out, double number) {
    char text[NUMBER_TEXT];
    number_print(text, RT_F64, &number);
    strbuf_printf(out, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

static void print_property(struct strbuf *out, const char *name, const char *value) {
    if (!value || !*value) return;
    strbuf_printf(out, " %s=", name);
    strbuf_quote(out, value);
}

static void print_operator(struct printer *p, const struct user_op *user) {
    strbuf_puts(&p->out, "operator ");
    strbuf_quote(&p->out, user->op.name);
    print_property(&p->out, "types", user->op.types);
    print_property(&p->out, "dims", user->op.dims);
    if (user->op.flops != 1) {
        strbuf_puts(&p->out, " flops=");
        print_float(&p->out, user->op.flops);
    }
    print_property(&p->out, "attrs", user->attrs);
    print_property(&p->out, "expr", user->op.expr);
    print_property(&p->out, "call", user->op.call);
    print_property(&p->out, "kernels", user->kernels);
    print_property(&p->out, "c", user->kernel[USER_C].file);
    print_property(&p->out, "cuda", user->kernel[USER_CUDA].file);
    print_property(&p->out, "gradient", user->gradient);
    print_property(&p->out, "pattern", user->pattern);
    if (strcmp(user->model, user->op.name) != 0) print_property(&p->out, "model", user->model);
    strbuf_putc(&p->out, '\n');
}

/* Prints the weight's mark, its sources, and whether it is constant. */
static void print_role(struct printer *p, const struct tensor *tensor) {
    if (tensor->mark) strbuf_printf(&p->out, " %s", mark_names[tensor->mark]);
    if (tensor->sources) {
        strbuf_putc(&p->out, ' ');
        strbuf_quote(&p->out, tensor->sources);
    }
    if (tensor->constant) strbuf_puts(&p->out, " constant");
}

/* Prints how a weight is made of what is stored. */
static void print_coding(struct printer *p, const struct rt_coding *coding) {
    if (coding->makes) strbuf_printf(&p->out, " %s", coding_names[coding->makes]);
    if (coding->group)
        strbuf_printf(&p->out, " bits=%d group=%lld%s", coding->bits, (long long)coding->group,
                      coding->turned ? " turned" : "");
}

/* Prints the definition of a tensor that no node computes, before its first use. */
static void print_source(struct printer *p, int id) {
    static const char *const keyword[] = {[TENSOR_INPUT] = "input",
                                          [TENSOR_WEIGHT] = "weight",
                                          [TENSOR_CONST] = "const",
                                          [TENSOR_STATE] = "state",
                                          [TENSOR_CONTROL] = "control"};
    if (id < 0 || p->number[id] >= 0) return;
    const struct tensor *tensor = &p->graph->tensors.at[id];
    if (tensor->kind == TENSOR_VALUE) BUG("%s: '%s' is used before it is computed", p->graph->name, tensor->name);
    strbuf_printf(&p->out, "%s ", keyword[tensor->kind]);
    print_definition(p, id);
    if (tensor->kind == TENSOR_WEIGHT && tensor->stored.file >= 0)
        strbuf_printf(&p->out, " @%d+%llu as %s", tensor->stored.file, (unsigned long long)tensor->stored.offset,
                      rt_dtypes[tensor->stored.dtype].name);
    if (tensor->kind == TENSOR_WEIGHT) print_coding(p, &tensor->stored.coding);
    if (tensor->kind == TENSOR_WEIGHT) print_role(p, tensor);
    if ((tensor->kind == TENSOR_STATE || tensor->kind == TENSOR_INPUT) && tensor->gradient)
        strbuf_puts(&p->out, " gradient");
    if (tensor->host) strbuf_puts(&p->out, " host");
    if (tensor->kind == TENSOR_INPUT && tensor->shared && tensor->ndim) strbuf_puts(&p->out, " shared");
    print_layout(p, &tensor->layout);
    if (tensor->kind == TENSOR_CONST) print_values(p, id);
    strbuf_putc(&p->out, '\n');
}

static void print_ints(struct printer *p, const struct attr *attr) {
    strbuf_putc(&p->out, '[');
    for (int i = 0; i < attr->n; i++)
        strbuf_printf(&p->out, "%s%s", i ? ", " : "",
                      open_text(p->graph->open, p->out.arena, attr->ints[i], NULL, false));
    strbuf_putc(&p->out, ']');
}

/* In parentheses where it depends on sizes: a text in quotes would be no number. */
static void print_int(struct printer *p, int64_t value) {
    const char *text = open_text(p->graph->open, p->out.arena, value, NULL, false);
    strbuf_printf(&p->out, open_is(p->graph->open, value) ? "(%s)" : "%s", text);
}

static void print_attr(struct printer *p, const struct attr *attr) {
    struct strbuf *out = &p->out;
    strbuf_printf(out, " %s=", attr->key);
    switch (attr->kind) {
    case ATTR_INT: print_int(p, attr->value); break;
    case ATTR_INTS: print_ints(p, attr); break;
    case ATTR_FLOAT: print_float(out, attr->number); break;
    case ATTR_TEXT: strbuf_quote(out, attr->text); break;
    }
}

static void print_split(struct printer *p, const struct node *node, const struct node_split *split) {
    struct dims dims;
    if (split->factor == SPLIT_PARTIAL) return strbuf_puts(&p->out, "partial");
    if (split->factor == SPLIT_FLAT) return strbuf_puts(&p->out, split->grain > 1 ? "blocks" : "flat");
    dims_bind_checked(p->out.arena, p->graph, node, &dims);
    strbuf_printf(&p->out, "%s/%s/%s", dims.factor[split->factor].name, number(p, split->blocks),
                  number(p, split->grain));
}

static void print_splits(struct printer *p, const struct node *node) {
    const char *before = " split(";
    int axes[RT_LAYOUT_AXES];
    dims_outermost_first(node->split, mesh_layout_axes(&p->graph->mesh), axes);
    for (int i = 0; i < mesh_layout_axes(&p->graph->mesh); i++) {
        const struct node_split *split = &node->split[axes[i]];
        if (split->factor == SPLIT_NONE) continue;
        strbuf_printf(&p->out, "%s%s:", before, p->graph->mesh.axis[axes[i]].name);
        print_split(p, node, split);
        before = ", ";
    }
    if (*before == ',') strbuf_putc(&p->out, ')');
}

/* The origin by its first result; nothing if it is not executed. Only pipeline stages depend on it. */
static void print_origin(struct printer *p, int origin) {
    const int result = p->graph->nodes.at[origin].outputs[0];
    if (p->number[result] < 0) return;
    strbuf_puts(&p->out, " origin=");
    print_use(p, result);
}

static void print_call(struct printer *p, const struct node *node) {
    strbuf_printf(&p->out, " = %s(", node->op->name);
    print_uses(p, node->ninputs, node->inputs);
    strbuf_putc(&p->out, ')');
    for (int i = 0; i < node->nattrs; i++) print_attr(p, &node->attrs[i]);
    if (*node->name) {
        strbuf_puts(&p->out, " node=");
        strbuf_quote(&p->out, node->name);
    }
    print_splits(p, node);
    if (node->stage) strbuf_printf(&p->out, " stage=%d", node->stage);
    if (node->phase) strbuf_printf(&p->out, " phase=%s", phase_names[node->phase]);
    if (node->origin >= 0 && mesh_pipeline_axis(&p->graph->mesh) >= 0) print_origin(p, node->origin);
    strbuf_putc(&p->out, '\n');
}

static void print_provenance(struct printer *p, const struct node *node) {
    const struct provenance *from = provenance_of(p->graph, node->name, NULL);
    if (!from || p->said[from - p->graph->provenances.at]) return;
    p->said[from - p->graph->provenances.at] = true;
    strbuf_puts(&p->out, "from ");
    strbuf_quote(&p->out, from->node);
    print_property(&p->out, "scope", from->scope);
    print_property(&p->out, "word", from->word);
    print_property(&p->out, "line", from->line);
    print_property(&p->out, "code", from->code);
    strbuf_putc(&p->out, '\n');
}

static void print_node(struct printer *p, const struct node *node) {
    for (int i = 0; i < node->ninputs; i++) print_source(p, node->inputs[i]);
    print_provenance(p, node);
    for (int i = 0; i < node->noutputs; i++) {
        strbuf_puts(&p->out, i ? ", " : "");
        if (node->outputs[i] < 0) {
            strbuf_putc(&p->out, '_');
            continue;
        }
        print_definition(p, node->outputs[i]);
        if (p->graph->tensors.at[node->outputs[i]].channels_last) strbuf_puts(&p->out, " channels_last");
        if (p->graph->tensors.at[node->outputs[i]].joined)
            strbuf_printf(&p->out, " joined=%s", joined_names[p->graph->tensors.at[node->outputs[i]].joined]);
        print_layout(p, &p->graph->tensors.at[node->outputs[i]].layout);
    }
    print_call(p, node);
}

static void print_ends(struct printer *p) {
    const struct graph *graph = p->graph;
    for (int i = 0; i < graph->outputs.n; i++) {
        print_source(p, graph->outputs.at[i]);
        strbuf_puts(&p->out, "output ");
        print_use(p, graph->outputs.at[i]);
        strbuf_putc(&p->out, ' ');
        strbuf_quote(&p->out, graph->output_names.at[i]);
        if (graph_counted(graph, i))
            strbuf_printf(&p->out, " dim=%d count=%d", graph_counted(graph, i)->dim, graph_counted(graph, i)->count);
        if (i >= graph->outputs.n - graph->nmetrics) strbuf_puts(&p->out, " metric");
        strbuf_putc(&p->out, '\n');
    }
    VEC_EACH(&graph->updates, i, const struct update *update) {
        print_source(p, update->weight);
        print_source(p, update->value);
        strbuf_printf(&p->out, "update %%%d <- %%%d\n", p->number[update->weight], p->number[update->value]);
    }
    VEC_EACH(&graph->parameters, i, const struct parameter *parameter) {
        print_source(p, parameter->weight);
        print_source(p, parameter->gradient);
        strbuf_printf(&p->out, "parameter %%%d %%%d\n", p->number[parameter->weight], p->number[parameter->gradient]);
    }
}

static void print_tensors(struct printer *p, const char *name, int n, const int *tensors) {
    strbuf_printf(&p->out, " %s=[", name);
    print_uses(p, n, tensors);
    strbuf_putc(&p->out, ']');
}

static void print_segment(struct printer *p, const struct segment *segment) {
    strbuf_printf(&p->out, "segment %s %d order=%d..%d", phase_names[segment->phase], segment->chunk, segment->first,
                  segment->end);
    print_tensors(p, "in", segment->in.n, segment->in.at);
    print_tensors(p, "out", segment->out.n, segment->out.at);
    strbuf_putc(&p->out, '\n');
}

static void print_transfer(struct printer *p, const struct transfer_ends *ends, const struct step_op *op) {
    const struct transfer_end *end = &ends->all.at[op->transfer];
    strbuf_printf(&p->out, "%s %s ", op->kind == STEP_WAIT ? "wait" : "post", end->sends ? "send" : "receive");
    print_use(p, p->graph->nodes.at[end->node].outputs[0]);
    strbuf_printf(&p->out, " micro=%d\n", op->micro);
}

static void print_schedule(struct printer *p, const struct schedule *schedule) {
    strbuf_printf(&p->out, "schedule %d micro_batches=%d slots=", (int)(schedule - p->graph->schedules.at),
                  schedule->shape.micro_batches);
    for (int kind = 0; kind < RT_SLOT_KINDS && schedule->shape.slots[rt_slot_set((enum rt_slot_kind)kind, 0)]; kind++)
        for (int c = 0; c < schedule->shape.nchunks; c++)
            strbuf_printf(&p->out, "%s%d",
                          c      ? ","
                          : kind ? "/"
                                 : "",
                          schedule->shape.slots[rt_slot_set((enum rt_slot_kind)kind, c)]);
    if (schedule->repeat_first < schedule->repeat_end)
        strbuf_printf(&p->out, " repeat=%d..%d", schedule->repeat_first, schedule->repeat_end);
    strbuf_putc(&p->out, '\n');
    const struct transfer_ends *ends = &p->ends[schedule - p->graph->schedules.at];
    EACH(schedule->ops, schedule->nops, i, const struct step_op *op) {
        const struct segment *segment = &p->graph->segments.at[op->segment];
        if (op->kind != STEP_RUN) {
            print_transfer(p, ends, op);
            continue;
        }
        strbuf_printf(&p->out, "run %s %d", phase_names[segment->phase], segment->chunk);
        if (segment->phase < PHASE_REDUCE) strbuf_printf(&p->out, " micro=%d", op->micro);
        strbuf_putc(&p->out, '\n');
    }
}

static void print_graph(struct printer *p, struct arena *arena, const struct graph *graph) {
    *p = (struct printer){.graph = graph, .number = ARENA_ARRAY(arena, int, graph->tensors.n + 1)};
    for (int t = 0; t < graph->tensors.n; t++) p->number[t] = -1;
    p->said = ARENA_ARRAY(arena, bool, graph->provenances.n + 1);
    p->ends = graph->schedules.n ? schedule_ends(graph) : NULL;
    strbuf_init(&p->out, arena);
    strbuf_puts(&p->out, "rankc-ir 1\ngraph ");
    strbuf_quote(&p->out, graph->name);
    strbuf_printf(&p->out, " level=%s%s", level_names[graph->level], graph->train ? " train" : "");
    if (graph->loss_elements) strbuf_printf(&p->out, " elements=%lld", (long long)graph->loss_elements);
    if (graph->micro_batches) strbuf_printf(&p->out, " micro_batches=%d", graph->micro_batches);
    if (graph->open && open_pair(graph->open)) strbuf_printf(&p->out, " specimens=%d", open_pair(graph->open));
    strbuf_putc(&p->out, '\n');
    print_model(p);
    print_mesh(p);
    print_chunks(p);
    print_files(p);
    print_sizes(p);
    for (int i = 0; i < graph->operators.n; i++) print_operator(p, graph->operators.at[i]);
    for (int i = 0; i < graph->inputs.n; i++) print_source(p, graph->inputs.at[i]);
    for (int i = 0; i < graph->controls.n; i++) print_source(p, graph->controls.at[i]);
    for (int i = 0; i < graph->order.n; i++) print_node(p, &graph->nodes.at[graph->order.at[i]]);
    print_ends(p);
    for (int i = 0; i < graph->segments.n; i++) print_segment(p, &graph->segments.at[i]);
    for (int i = 0; i < graph->schedules.n; i++) print_schedule(p, &graph->schedules.at[i]);
}

static const struct node *node_of(const struct graph *graph, const struct block *block, int repetition, int j) {
    return &graph->nodes.at[graph->order.at[block->first + repetition * block->nodes + j]];
}

static void print_block_node(struct printer *p, const struct blocks *blocks, const struct block *block, int j) {
    const struct node *node = node_of(p->graph, block, 0, j), *next = node_of(p->graph, block, 1, j);
    strbuf_puts(&p->out, "#   ");
    print_uses(p, node->noutputs, node->outputs);
    strbuf_printf(&p->out, " = %s(", node->op->name);
    for (int k = 0; k < node->ninputs; k++) {
        const enum input_source source = block_input_source(p->graph, blocks, block, j, k);
        const char *from = source == INPUT_NONE || source == INPUT_INSIDE ? "" : input_source_names[source];
        strbuf_printf(&p->out, "%s%s%s", k ? ", " : "", from, *from ? " " : "");
        print_use(p, source == INPUT_CARRIED ? next->inputs[k] : node->inputs[k]);
    }
    strbuf_puts(&p->out, ")\n");
}

const char *text_print_blocks(struct arena *arena, const struct graph *graph) {
    struct printer p;
    struct blocks blocks;
    print_graph(&p, arena, graph);
    blocks_find(graph, arena, node_kinds(graph, arena, ALIKE), 0, graph->order.n, &blocks);
    VEC_EACH(&blocks.all, b, const struct block *block) {
        strbuf_printf(&p.out, "# block kind=%d order=%d..%d nodes=%d times=%d\n", block->kind, block->first,
                      block->first + block->nodes * block->times, block->nodes, block->times);
        for (int j = 0; j < block->nodes; j++) print_block_node(&p, &blocks, block, j);
    }
    return strbuf_text(&p.out);
}

const char *text_print(struct arena *arena, const struct graph *graph) {
    struct printer p;
    print_graph(&p, arena, graph);
    return strbuf_text(&p.out);
}
