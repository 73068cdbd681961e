#include "ir/ir.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/expr/expr.h"
#include "ir/op.h"
#include "ir/provenance.h"
#include "runtime/base/number/checked.h"
#include "runtime/base/shape/flat.h"

const char *const level_names[LEVELS] = {"IMPORTED", "TYPED",     "TRAINING",  "PLACED", "COMMUNICATING",
                                         "STAGED",   "SEGMENTED", "SCHEDULED", "PLANNED"};
const char *const phase_names[PHASES] = {"forward", "backward", "weight", "reduce", "update"};
const char *const coding_names[] = {"", "codes", "scales", "rounded"};
const char *const mark_names[MARKS] = {"", "parameter", "buffer", "derived", "fixed", "folded", "moved", "adapter"};
const char *const joined_names[3] = {"", "sum", "max"};
const char *const reduce_names[3] = {"sum", "max", "min"};

void graph_init(struct graph *graph, struct arena *arena, const char *name) {
    *graph = (struct graph){.arena = arena,
                            .lists = arena_scratch(arena),
                            .name = arena_strdup(arena, name),
                            .texts = expr_texts_new(arena)};
}

int graph_add_tensor(struct graph *graph, enum tensor_kind kind, const char *name, enum rt_dtype dtype, int ndim,
                     const int64_t *dims) {
    struct tensor tensor = {.kind = kind, .dtype = dtype, .ndim = ndim, .producer = -1, .copy_of = -1};
    tensor.name = arena_strdup(graph->arena, name);
    for (int d = 0; d < ndim; d++) tensor.dims[d] = dims[d];
    VEC_PUSH(graph->arena, &graph->tensors, tensor);
    return graph->tensors.n - 1;
}

int graph_add_const(struct graph *graph, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims,
                    const void *data) {
    int id = graph_add_tensor(graph, TENSOR_CONST, name, dtype, ndim, dims);
    struct tensor *tensor = &graph->tensors.at[id];
    tensor->data = arena_copy(graph->arena, data, (size_t)tensor_bytes(tensor));
    return id;
}

int graph_add_node(struct graph *graph, const struct op *op, const char *name, int ninputs, const int *inputs,
                   int noutputs, const int *outputs, int nattrs, const struct attr *attrs) {
    struct node node = {.op = op,
                        .name = arena_strdup(graph->arena, name),
                        .ninputs = ninputs,
                        .noutputs = noutputs,
                        .nattrs = nattrs,
                        .origin = -1};
    node.inputs = arena_copy(graph->lists, inputs, (size_t)ninputs * sizeof *inputs);
    node.outputs = arena_copy(graph->lists, outputs, (size_t)noutputs * sizeof *outputs);
    node.attrs = arena_copy(graph->lists, attrs, (size_t)nattrs * sizeof *attrs);
    for (int a = 0; a < RT_LAYOUT_AXES; a++)
        node.split[a] = (struct node_split){.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
    for (int i = 0; i < nattrs; i++)
        if (node.attrs[i].kind == ATTR_INTS)
            node.attrs[i].ints = arena_copy(graph->arena, attrs[i].ints, (size_t)attrs[i].n * sizeof(int64_t));
    int id = graph->nodes.n;
    for (int i = 0; i < noutputs; i++)
        if (outputs[i] >= 0) graph->tensors.at[outputs[i]].producer = id;
    VEC_PUSH(graph->arena, &graph->nodes, node);
    VEC_PUSH(graph->arena, &graph->order, id);
    return id;
}

int graph_add_like(struct graph *graph, int tensor, const char *suffix) {
    const struct tensor like = graph->tensors.at[tensor];
    const char *name = arena_printf(graph->arena, "%s%s", like.name, suffix);
    const int id = graph_add_tensor(graph, TENSOR_VALUE, name, like.dtype, like.ndim, like.dims);
    graph->tensors.at[id].layout = like.layout;
    return id;
}

void graph_add_update(struct graph *graph, int weight, int value) {
    VEC_PUSH(graph->arena, &graph->updates, (struct update){weight, value});
}

void graph_add_metric(struct graph *graph, int tensor, const char *name) {
    VEC_PUSH(graph->arena, &graph->outputs, tensor);
    VEC_PUSH(graph->arena, &graph->output_names, name);
    graph->nmetrics++;
}

int graph_add_copy(struct graph *graph, const struct node *node) {
    const struct node like = *node; /* a copy: `node` may point into the graph's array, which VEC_PUSH moves */
    int id = graph_add_node(graph, like.op, like.name, like.ninputs, like.inputs, like.noutputs, like.outputs,
                            like.nattrs, like.attrs);
    memcpy(graph->nodes.at[id].split, like.split, sizeof like.split);
    graph->nodes.at[id].stage = like.stage;
    graph->nodes.at[id].origin = like.origin;
    graph->nodes.at[id].phase = like.phase;
    return id;
}

static void unshare_node(struct node *node, struct arena *arena) {
    node->inputs = arena_copy(arena, node->inputs, (size_t)node->ninputs * sizeof *node->inputs);
    node->outputs = arena_copy(arena, node->outputs, (size_t)node->noutputs * sizeof *node->outputs);
    node->attrs = arena_copy(arena, node->attrs, (size_t)node->nattrs * sizeof *node->attrs);
}

struct graph *graph_copy(const struct graph *graph, struct arena *arena) {
    struct graph *copy = ARENA_NEW(arena, struct graph);
    if (graph->level >= SEGMENTED) BUG("a graph with segments is copied");
    *copy = *graph;
    copy->arena = arena;
    copy->lists = arena_scratch(arena);
    VEC_UNSHARE(arena, &copy->tensors);
    VEC_UNSHARE(arena, &copy->nodes);
    VEC_UNSHARE(arena, &copy->order);
    VEC_UNSHARE(arena, &copy->inputs);
    VEC_UNSHARE(arena, &copy->outputs);
    VEC_UNSHARE(arena, &copy->output_names);
    VEC_UNSHARE(arena, &copy->counted);
    VEC_UNSHARE(arena, &copy->members);
    VEC_UNSHARE(arena, &copy->recomputed);
    VEC_UNSHARE(arena, &copy->updates);
    VEC_UNSHARE(arena, &copy->parameters);
    VEC_UNSHARE(arena, &copy->controls);
    VEC_UNSHARE(arena, &copy->operators);
    VEC_UNSHARE(arena, &copy->files);
    for (int i = 0; i < copy->nodes.n; i++) unshare_node(&copy->nodes.at[i], copy->lists);
    return copy;
}

/* Calls `visit` for each place in the graph that has a tensor's id. */
static void visit_tensors(struct graph *graph, void (*visit)(int *id, int *new), int *new) {
    GRAPH_EACH(graph, i, struct node *const node) {
        for (int k = 0; k < node->ninputs; k++) visit(&node->inputs[k], new);
        for (int k = 0; k < node->noutputs; k++) visit(&node->outputs[k], new);
    }
    for (int i = 0; i < graph->inputs.n; i++) visit(&graph->inputs.at[i], new);
    for (int i = 0; i < graph->outputs.n; i++) visit(&graph->outputs.at[i], new);
    for (int i = 0; i < graph->controls.n; i++) visit(&graph->controls.at[i], new);
    for (int i = 0; i < graph->updates.n; i++)
        visit(&graph->updates.at[i].weight, new), visit(&graph->updates.at[i].value, new);
    for (int i = 0; i < graph->parameters.n; i++)
        visit(&graph->parameters.at[i].weight, new), visit(&graph->parameters.at[i].gradient, new);
}

static void mark_id(int *id, int *new) {
    if (*id >= 0) new[*id] = 1;
}

static void renumber_id(int *id, int *new) {
    if (*id >= 0) *id = new[*id];
}

/* Ids for the `n` things that are marked by 1 in new[]; -1 for the others. */
static void number_marked(int *new, int n) {
    for (int i = 0, next = 0; i < n; i++) new[i] = new[i] ? next++ : -1;
}

void graph_compact(struct graph *graph) {
    int *tensors = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1), ntensors = 0;
    int *nodes = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1), nnodes = 0, kept = 0;
    if (graph->level >= SEGMENTED) BUG("a graph with segments is compacted");
    visit_tensors(graph, mark_id, tensors);
    for (int t = 0; t < graph->tensors.n; t++)
        if (tensors[t]) mark_id(&graph->tensors.at[t].copy_of, tensors);
    for (int i = 0; i < graph->order.n; i++) nodes[graph->order.at[i]] = 1;
    number_marked(tensors, graph->tensors.n);
    number_marked(nodes, graph->nodes.n);
    visit_tensors(graph, renumber_id, tensors);
    VEC_EACH(&graph->tensors, t, struct tensor *const tensor) {
        if (tensors[t] < 0) continue;
        renumber_id(&tensor->producer, nodes), renumber_id(&tensor->copy_of, tensors);
        graph->tensors.at[ntensors++] = *tensor;
    }
    for (int i = 0; i < graph->nodes.n; i++) {
        if (nodes[i] < 0) continue;
        renumber_id(&graph->nodes.at[i].origin, nodes);
        graph->nodes.at[nnodes++] = graph->nodes.at[i];
    }
    graph->tensors.n = ntensors, graph->nodes.n = nnodes;
    for (int i = 0; i < graph->order.n; i++) renumber_id(&graph->order.at[i], nodes);
    VEC_EACH_VALUE(&graph->members, i, struct member member) {
        renumber_id(&member.node, nodes);
        if (member.node >= 0) graph->members.at[kept++] = member;
    }
    graph->members.n = kept, kept = 0;
    for (int i = 0; i < graph->recomputed.n; i++)
        if (nodes[graph->recomputed.at[i]] >= 0) graph->recomputed.at[kept++] = nodes[graph->recomputed.at[i]];
    graph->recomputed.n = kept;
}

bool tensor_shape_fits(int ndim, const int64_t *dims) {
    int64_t elements, bytes;
    return rt_product(dims, ndim, &elements) && rt_mul(elements, 8, &bytes) && bytes < (int64_t)1 << 46;
}

bool graph_shape_fits(const struct graph *graph, int ndim, const int64_t *dims) {
    int64_t most[RT_MAX_NDIM] = {0}, elements, bytes;
    for (int d = 0; d < ndim; d++) most[d] = dims[d] < 0 ? -1 : open_most(graph->open, dims[d]);
    return tensor_shape_fits(ndim, most) && rt_product(dims, ndim, &elements) && rt_mul(elements, 8, &bytes);
}

int graph_control(struct graph *graph, enum rt_control control) {
    static const char *const names[RT_CONTROLS] = {
#define CONTROL(ID, name) #name,
#include "runtime/base/controls.def"
#undef CONTROL
    };
    for (int c = graph->controls.n; c < RT_CONTROLS; c++) {
        int tensor = graph_add_tensor(graph, TENSOR_CONTROL, names[c], RT_F64, 0, NULL);
        VEC_PUSH(graph->arena, &graph->controls, tensor);
    }
    return graph->controls.at[control];
}

bool graph_trains(const struct graph *graph) {
    return graph->train && graph->controls.n > 0;
}

bool graph_overlaps_stages(const struct graph *graph) {
    return graph->train || graph->micro_batches > 1;
}

void graph_sort_phases(struct graph *graph) {
    int *sorted = ARENA_ARRAY(graph->arena, int, graph->order.n + 1), n = 0;
    for (int phase = 0; phase < PHASES; phase++)
        for (int i = 0; i < graph->order.n; i++)
            if ((int)graph->nodes.at[graph->order.at[i]].phase == phase) sorted[n++] = graph->order.at[i];
    if (n) memcpy(graph->order.at, sorted, (size_t)n * sizeof *sorted);
}

void graph_set_phase(struct graph *graph, int first, enum phase phase) {
    for (int i = first; i < graph->order.n; i++) graph->nodes.at[graph->order.at[i]].phase = phase;
}

enum phase graph_phase_of(const struct graph *graph, int tensor) {
    const struct node *producer = graph_producer(graph, tensor);
    return producer ? producer->phase : PHASE_FORWARD;
}

int graph_gradient_inputs(const struct graph *graph) {
    int n = 0;
    for (int i = 0; i < graph->inputs.n; i++) n += graph->tensors.at[graph->inputs.at[i]].gradient;
    return n;
}

const struct counted_output *graph_counted(const struct graph *graph, int output) {
    for (int i = 0; i < graph->counted.n; i++)
        if (graph->counted.at[i].output == output) return &graph->counted.at[i];
    return NULL;
}

int64_t tensor_elements(const struct tensor *tensor) {
    int64_t elements;
    if (!rt_product(tensor->dims, tensor->ndim, &elements)) BUG("tensor '%s' is too large", tensor->name);
    return elements;
}

int64_t tensor_bytes(const struct tensor *tensor) {
    int64_t bytes;
    if (!rt_mul(tensor_elements(tensor), (int64_t)rt_dtype_bytes(tensor->dtype), &bytes))
        BUG("tensor '%s' is too large", tensor->name);
    return bytes;
}

bool tensor_same_shape(const struct tensor *a, const struct tensor *b) {
    return a->ndim == b->ndim && (!a->ndim || memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims) == 0);
}

bool tensor_same_type(const struct tensor *a, const struct tensor *b) {
    return a->dtype == b->dtype && tensor_same_shape(a, b);
}

bool tensor_is_stored(const struct tensor *tensor) {
    return tensor->kind == TENSOR_WEIGHT || tensor->kind == TENSOR_CONST || tensor->kind == TENSOR_STATE;
}

unsigned tensor_slices(const struct tensor *tensor) {
    return layout_slices(&tensor->layout) | (tensor->host ? RT_FLAT_HOST : 0);
}

static const char *type_text(struct arena *arena, struct open_sizes *open, const struct tensor *tensor,
                             const struct open_names *names) {
    struct strbuf out = {.arena = arena};
    strbuf_puts(&out, rt_dtypes[tensor->dtype].name);
    strbuf_putc(&out, '[');
    for (int d = 0; d < tensor->ndim; d++)
        strbuf_printf(&out, "%s%s", d ? "," : "", open_text(open, arena, tensor->dims[d], names, false));
    strbuf_putc(&out, ']');
    return strbuf_text(&out);
}

const char *tensor_type(struct arena *arena, const struct tensor *tensor) {
    return type_text(arena, NULL, tensor, NULL);
}

const char *graph_type_text(const struct graph *graph, struct arena *arena, const struct tensor *tensor,
                            const struct open_names *names) {
    return type_text(arena, graph->open, tensor, names);
}

const char *node_place(const struct graph *graph, int node) {
    const struct node *n = &graph->nodes.at[node];
    const char *name = str_name(graph->arena, n->name);
    const char *model = str_escape(graph->arena, graph->name, strlen(graph->name), 0);
    return arena_printf(graph->arena, "%s: node %d '%s' (%s)%s", model, node, name, n->op->name,
                        provenance_text(graph->arena, graph, n->name));
}

const struct node *graph_producer(const struct graph *graph, int tensor) {
    const int producer = tensor < 0 ? -1 : graph->tensors.at[tensor].producer;
    return producer < 0 ? NULL : &graph->nodes.at[producer];
}

int node_tensor(const struct node *node, int k) {
    return k < node->ninputs ? node->inputs[k] : node->outputs[k - node->ninputs];
}

bool node_reads(const struct node *node, int tensor) {
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] == tensor) return true;
    return false;
}

int *graph_readers(const struct graph *graph, struct arena *arena) {
    int *readers = ARENA_ARRAY(arena, int, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) readers[node->inputs[k]]++;
    }
    for (int i = 0; i < graph->outputs.n; i++) readers[graph->outputs.at[i]]++;
    for (int i = 0; i < graph->updates.n; i++) readers[graph->updates.at[i].value]++;
    return readers;
}

int node_operand(const struct node *node, int tensor) {
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] == tensor) return k;
    BUG("node '%s' does not read tensor %d", node->name, tensor);
}

bool graph_is_output(const struct graph *graph, int tensor) {
    for (int i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i] == tensor) return true;
    return false;
}

struct uses graph_uses(const struct graph *graph, struct arena *arena) {
    struct uses uses;
    uses.first = ARENA_ARRAY(arena, int, graph->tensors.n + 2);
    int *count = uses.first + 1; /* counts first; while the lists are filled, the end of each list */
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) count[node->inputs[k] + 1]++;
    }
    for (int t = 0; t < graph->tensors.n; t++) count[t + 1] += count[t];
    uses.users = ARENA_ARRAY(arena, int, count[graph->tensors.n] + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) uses.users[count[node->inputs[k]]++] = graph->order.at[i];
    }
    return uses;
}

bool *graph_kept(const struct graph *graph, struct arena *arena) {
    bool *kept = ARENA_ARRAY(arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->outputs.n; i++) kept[graph->outputs.at[i]] = true;
    for (int i = 0; i < graph->updates.n; i++) kept[graph->updates.at[i].value] = true;
    return kept;
}

bool *graph_live(const struct graph *graph, struct arena *arena) {
    bool *live = ARENA_ARRAY(arena, bool, graph->nodes.n + 1), *needed = graph_kept(graph, arena);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        bool *used = &live[graph->order.at[i]];
        for (int k = 0; k < node->noutputs; k++) *used = *used || (node->outputs[k] >= 0 && needed[node->outputs[k]]);
        for (int k = 0; k < node->ninputs && *used; k++)
            if (node->inputs[k] >= 0) needed[node->inputs[k]] = true;
    }
    return live;
}

void graph_keep(struct graph *graph, const bool *chosen, bool keep) {
    int n = 0;
    for (int i = 0; i < graph->order.n; i++)
        if (chosen[graph->order.at[i]] == keep) graph->order.at[n++] = graph->order.at[i];
    graph->order.n = n;
}

int *graph_positions(const struct graph *graph, struct arena *arena) {
    int *positions = ARENA_ARRAY(arena, int, graph->nodes.n + 1);
    for (int i = 0; i < graph->order.n; i++) positions[graph->order.at[i]] = i;
    return positions;
}

const int *graph_take_order(struct graph *graph, int *n) {
    const int *order = graph->order.at;
    *n = graph->order.n;
    graph->order.at = NULL;
    graph->order.n = graph->order.capacity = 0;
    return order;
}

const struct attr *attr_find(const struct node *node, const char *key) {
    for (int i = 0; i < node->nattrs; i++)
        if (strcmp(node->attrs[i].key, key) == 0) return &node->attrs[i];
    return NULL;
}

int64_t attr_int(const struct node *node, const char *key, int64_t fallback) {
    const struct attr *attr = attr_find(node, key);
    return attr && attr->kind == ATTR_INT ? attr->value : fallback;
}

double attr_float(const struct node *node, const char *key, double fallback) {
    const struct attr *attr = attr_find(node, key);
    if (attr && attr->kind == ATTR_INT) return (double)attr->value;
    return attr && attr->kind == ATTR_FLOAT ? attr->number : fallback;
}

const char *attr_text(const struct node *node, const char *key, const char *fallback) {
    const struct attr *attr = attr_find(node, key);
    return attr && attr->kind == ATTR_TEXT ? attr->text : fallback;
}

const int64_t *attr_ints(const struct node *node, const char *key, int *n) {
    const struct attr *attr = attr_find(node, key);
    if (n) *n = attr && attr->kind == ATTR_INTS ? attr->n : 0;
    return attr && attr->kind == ATTR_INTS ? attr->ints : NULL;
}

struct attr attr_of_int(const char *key, int64_t value) {
    return (struct attr){.key = key, .kind = ATTR_INT, .value = value};
}

struct attr attr_of_ints(const char *key, int n, const int64_t *ints) {
    return (struct attr){.key = key, .kind = ATTR_INTS, .n = n, .ints = ints};
}

struct attr attr_of_float(const char *key, double number) {
    return (struct attr){.key = key, .kind = ATTR_FLOAT, .number = number};
}

struct attr attr_of_text(const char *key, const char *text) {
    return (struct attr){.key = key, .kind = ATTR_TEXT, .text = text};
}

void attr_set(struct graph *graph, struct node *node, struct attr attr) {
    if (attr.kind == ATTR_INTS) attr.ints = arena_copy(graph->arena, attr.ints, (size_t)attr.n * sizeof(int64_t));
    struct attr *attrs = ARENA_ARRAY(graph->lists, struct attr, node->nattrs + 1);
    if (node->nattrs) memcpy(attrs, node->attrs, (size_t)node->nattrs * sizeof *attrs);
    node->attrs = attrs;
    for (int i = 0; i < node->nattrs; i++)
        if (strcmp(attrs[i].key, attr.key) == 0) {
            attrs[i] = attr;
            return;
        }
    attrs[node->nattrs++] = attr;
}

static struct rt_placement placement_within(int64_t extent, const struct placement *placement, int ways) {
    struct rt_placement ranks = {.cut = {extent, placement->blocks, placement->grain, ways}, .extent = extent};
    if (placement->kind != PLACED_WINDOW) return ranks;
    ranks.cut.extent = placement->reach.positions;
    ranks.stride = placement->reach.stride;
    ranks.before = placement->reach.before;
    ranks.span = placement->reach.span;
    return ranks;
}

struct rt_placement placement_among(const struct tensor *tensor, const struct placement *placement, int ways) {
    return placement_within(tensor->dims[placement->dim], placement, ways);
}

/* Divides dims[] by the cuts up to the one along `axis`, which it returns; by all if there is no such cut. */
static const struct cut *divide(const struct graph *graph, const struct tensor *tensor, int axis, const int *coordinate,
                                int64_t *dims) {
    for (int d = 0; d < tensor->ndim; d++) dims[d] = tensor->dims[d];
    EACH(tensor->layout.cuts, tensor->layout.ncuts, c, const struct cut *cut) {
        if (cut->axis == axis) return cut;
        if (cut->placement.kind == PLACED_FLAT || cut->axis >= graph->mesh.naxes) continue;
        int64_t *extent = &dims[cut->placement.dim];
        const struct rt_placement ranks = placement_within(*extent, &cut->placement, graph->mesh.axis[cut->axis].size);
        *extent = rt_placement_extent(&ranks, coordinate[cut->axis]);
    }
    return NULL;
}

struct rt_placement placement_of_ranks(const struct graph *graph, const struct tensor *tensor, int axis,
                                       const int *coordinate) {
    int64_t dims[RT_MAX_NDIM];
    const struct cut *cut = divide(graph, tensor, axis, coordinate, dims);
    return placement_within(dims[cut->placement.dim], &cut->placement, graph->mesh.axis[axis].size);
}

void tensor_local_dims(const struct graph *graph, const struct tensor *tensor, const int *coordinate, int64_t *dims) {
    divide(graph, tensor, -1, coordinate, dims);
}
