#include "codegen/manifest/manifest_parts.h"

#include "passes/rank/views.h"

typedef struct rt_json_writer json;

/* When a tensor of a class can be read: after that instruction, or before it. */
struct moment {
    int instruction; /* UNKNOWN: it was not met; NEXT: before the next instruction */
    bool before;
    enum phase phase; /* of the node that makes it */
};
enum { UNKNOWN = -1, NEXT = -2 };

struct dumper {
    json *writer;
    const struct rankplan *plan;
    const struct rank_class *class;
    struct moment *moments; /* per tensor */
    VEC(int) next;          /* tensors whose instruction is NEXT */
};

/* The tensor's dimension that is dimension d of the model's. */
static int dim_of(const struct tensor *tensor, int d) {
    return tensor->channels_last ? image_place(d, tensor->ndim) : d;
}

static int model_dim(const struct tensor *tensor, int d) {
    return tensor->channels_last && d >= 0 ? image_dim(d, tensor->ndim) : d;
}

static void put_tensor(json *writer, const struct graph *graph, const struct tensor *tensor) {
    int64_t dims[RT_MAX_NDIM];
    for (int d = 0; d < tensor->ndim; d++) dims[d] = tensor->dims[dim_of(tensor, d)];
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "name", tensor->name);
    rt_json_key_text(writer, "dtype", rt_dtypes[tensor->dtype].name);
    manifest_put_shape(writer, graph, dims, tensor->ndim);
    rt_json_key_open(writer, "cuts", '[', RT_JSON_INLINE);
    bool window = false;
    EACH(tensor->layout.cuts, tensor->layout.ncuts, c, const struct cut *cut) {
        window = window || cut->placement.kind == PLACED_WINDOW;
        if (cut->placement.kind != PLACED_PART) continue;
        const int64_t entry[] = {cut->axis, model_dim(tensor, cut->placement.dim), cut->placement.blocks,
                                 cut->placement.grain};
        rt_json_open(writer, '[', RT_JSON_INLINE);
        for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) manifest_put_extent(writer, graph, entry[i]);
        rt_json_close(writer, ']');
    }
    rt_json_close(writer, ']');
    for (int r = 0; r < RT_REDUCES; r++)
        if (tensor->layout.partial[r]) rt_json_key_int(writer, reduce_names[r], tensor->layout.partial[r]);
    if (tensor->layout.own) rt_json_key_int(writer, "own", tensor->layout.own);
    if (layout_flat_axes(&tensor->layout)) rt_json_key_int(writer, "flat", layout_slices(&tensor->layout));
    if (window) rt_json_key_int(writer, "window", 1);
    rt_json_close(writer, '}');
}

static struct moment later(struct moment a, struct moment b) {
    if (a.instruction == NEXT || b.instruction == NEXT) return (struct moment){NEXT, true, b.phase};
    if (a.instruction != b.instruction) return a.instruction > b.instruction ? a : b;
    return (struct moment){a.instruction, a.before && b.before, a.phase};
}

/* A view exists once all tensors that it views exist. A tensor of an earlier phase is in its slot only after that
 * phase. */
static void see_view(struct dumper *d, const struct node *node) {
    struct moment all = {UNKNOWN, true, node->phase};
    for (int k = 0; k < node->ninputs; k++) {
        if (node->inputs[k] < 0) continue;
        struct moment *operand = &d->moments[node->inputs[k]];
        if (operand->instruction == UNKNOWN) {
            *operand = (struct moment){NEXT, true, node->phase};
            VEC_PUSH(d->plan->graph->arena, &d->next, node->inputs[k]);
        }
        all = later(all, operand->phase == node->phase ? *operand : (struct moment){NEXT, true, node->phase});
    }
    for (int k = 0; k < node->noutputs; k++) {
        if (node->outputs[k] < 0) continue;
        d->moments[node->outputs[k]] = all;
        if (all.instruction == NEXT) VEC_PUSH(d->plan->graph->arena, &d->next, node->outputs[k]);
    }
}

static void see_instruction(struct dumper *d, const struct node *node, int number) {
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] >= 0 && d->moments[node->inputs[k]].instruction == UNKNOWN)
            d->moments[node->inputs[k]] = (struct moment){number, true, node->phase};
    for (int k = 0; k < node->noutputs; k++)
        if (node->outputs[k] >= 0) d->moments[node->outputs[k]] = (struct moment){number, false, node->phase};
}

static void settle_next(struct dumper *d, int number) {
    for (int i = 0; i < d->next.n; i++)
        if (d->moments[d->next.at[i]].instruction == NEXT) d->moments[d->next.at[i]].instruction = number;
    d->next.n = 0;
}

static void find_moments(struct dumper *d) {
    const struct graph *graph = d->plan->graph;
    int number = 0;
    d->next.n = 0;
    for (int t = 0; t < graph->tensors.n; t++) d->moments[t] = (struct moment){UNKNOWN, true, PHASE_FORWARD};
    GRAPH_EACH(graph, i, const struct node *node) {
        const bool view = d->plan->moves_nothing[graph->order.at[i]];
        const int current = view ? -1 : number++;
        if (!rankplan_part(d->class, node)) continue;
        if (view) {
            see_view(d, node);
            continue;
        }
        settle_next(d, current);
        see_instruction(d, node, current);
    }
}

/* A transformed weight has no elements to dump. */
static bool is_transformed(const struct dumper *d, int tensor) {
    return d->plan->packing[tensor] == RT_PACK_WINOGRAD;
}

static void put_place(struct dumper *d, int tensor, int index) {
    const struct tensor *t = &d->plan->graph->tensors.at[tensor];
    const struct plan_place *place = &d->class->place[tensor];
    const struct moment moment = d->moments[tensor];
    const struct strides strides = views_strides(d->plan, d->class, tensor);
    const bool strided = d->class->strides[tensor] || t->channels_last;
    int64_t row[RT_DUMP_FIELDS + 2 * RT_MAX_NDIM] = {index,        moment.instruction,      moment.before,
                                                     place->arena, place->offset,           place->stride,
                                                     place->set,   d->plan->packing[tensor]};
    int n = RT_DUMP_FIELDS;
    for (int i = 0; i < t->ndim; i++) row[n++] = d->class->dims[tensor][dim_of(t, i)];
    for (int i = 0; i < t->ndim && strided; i++) row[n++] = strides.step[dim_of(t, i)];
    rt_json_open(d->writer, '[', RT_JSON_INLINE);
    for (int i = 0; i < n; i++)
        if (i < RT_DUMP_FIELDS)
            rt_json_put_int(d->writer, row[i]);
        else
            manifest_put_extent(d->writer, d->plan->graph, row[i]);
    rt_json_close(d->writer, ']');
}

static bool is_placed(const struct rankplan *plan, int tensor) {
    for (int c = 0; c < plan->nclasses; c++)
        if (plan->classes[c].place[tensor].offset >= 0) return true;
    return false;
}

/* The tensors that ranks have in memory, in the order of their first use: numbers of tensors in the graph depend on how
 * it was read. */
struct listed {
    int n, *tensors;
    bool *seen; /* per tensor of the graph */
};

static void list_all(struct listed *listed, const struct rankplan *plan, int n, const int *tensors) {
    for (int k = 0; k < n; k++) {
        if (tensors[k] < 0 || listed->seen[tensors[k]]) continue;
        listed->seen[tensors[k]] = true;
        if (is_placed(plan, tensors[k])) listed->tensors[listed->n++] = tensors[k];
    }
}

static struct listed list_tensors(const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    struct listed listed = {.tensors = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1),
                            .seen = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1)};
    GRAPH_EACH(graph, i, const struct node *node) {
        list_all(&listed, plan, node->ninputs, node->inputs);
        list_all(&listed, plan, node->noutputs, node->outputs);
    }
    return listed;
}

static void put_class(struct dumper *d, const struct listed *listed) {
    find_moments(d);
    rt_json_open(d->writer, '[', RT_JSON_INLINE);
    EACH_VALUE(listed->tensors, listed->n, i, const int t) {
        if (d->class->place[t].offset >= 0 && d->moments[t].instruction >= 0 && !is_transformed(d, t))
            put_place(d, t, i);
    }
    rt_json_close(d->writer, ']');
}

void manifest_put_dump(json *writer, const struct rankplan *plan) {
    const struct graph *graph = plan->graph;
    const struct listed listed = list_tensors(plan);
    struct dumper d = {
        .writer = writer, .plan = plan, .moments = ARENA_ARRAY(graph->arena, struct moment, graph->tensors.n + 1)};
    rt_json_key_open(writer, "dump", '{', RT_JSON_LINES);
    rt_json_key_open(writer, "tensors", '[', RT_JSON_LINES);
    for (int i = 0; i < listed.n; i++) put_tensor(writer, graph, &graph->tensors.at[listed.tensors[i]]);
    rt_json_close(writer, ']');
    rt_json_key_open(writer, "places", '[', RT_JSON_LINES);
    for (int c = 0; c < plan->nclasses; c++) {
        d.class = &plan->classes[c];
        put_class(&d, &listed);
    }
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
}
