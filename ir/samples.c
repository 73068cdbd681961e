/* Note [Batch]
 * Dimensions of two tensors run along each other if a node reads or writes both by the same factor of its annotation:
 * rows of x and of x w, or the T of a mask [T,T] and of scores [B,H,T,T]. Of a dimension that is a product, such as the
 * rows (b t) of flattened tokens, the slowest factor counts. So the dimensions of a graph fall into classes, whatever
 * their extents are.
 *
 * The batch is the class that is dimension 0 of the most inputs, an input that has the class twice, as a mask [T,T]
 * has, left out; among equals, of the most values that nodes compute. An input is the same for all samples if it has no
 * dimension, or if its dimension 0 is not of that class and one of these holds:
 *
 *   its extent is 1 and the batch is larger, or neither is a multiple of the other;
 *   a further dimension of the input is the batch, as of the state [L,B,H] of a recurrent layer;
 *   its class is a further dimension of an input, or a dimension of a weight.
 *
 * Without such evidence another class counts samples that meet those of the batch nowhere before the loss. */
#include "ir/dims.h"
#include "ir/op.h"

/* What is known of a class. */
struct evidence {
    int inputs, values; /* of which the class is dimension 0 */
    bool elsewhere;     /* it is a further dimension of an input, or a dimension of a weight */
};

struct classes {
    const struct graph *graph;
    int *first;                /* per tensor: the number of its dimension 0 among all dimensions */
    int *of;                   /* per dimension: another of its class, or itself for the representative */
    struct evidence *evidence; /* per representative */
};

static int root(const struct classes *c, int at) {
    while (c->of[at] != at) at = c->of[at] = c->of[c->of[at]];
    return at;
}

static int class_of(const struct classes *c, int tensor, int dim) {
    return root(c, c->first[tensor] + dim);
}

/* The slowest factor of the dimension that has several indices; -1: none has. */
static int slowest(const struct dims *dims, const struct dim_factors *dim) {
    for (int i = 0; i < dim->n; i++)
        if (dims->factor[dim->factor[i]].extent > 1) return dim->factor[i];
    return -1;
}

/* Joins the classes of dimensions that the node reads or writes by the same factor. */
static void join_dims(const struct classes *c, const struct node *node) {
    struct arena *scratch = arena_scratch(c->graph->arena);
    struct dims dims;
    int known[MAX_FACTORS]; /* per factor: 1 + the class of the dimensions so far; 0: none */
    const bool bound = dims_bind(scratch, c->graph, node, &dims, NULL) == 0;
    for (int f = 0; f < MAX_FACTORS; f++) known[f] = 0;
    for (int k = 0; bound && k < dims.ninputs + dims.noutputs; k++) {
        const int tensor = node_tensor(node, k);
        const bool fits = tensor >= 0 && c->graph->tensors.at[tensor].ndim == dims.operand[k].ndim;
        for (int d = 0; fits && d < dims.operand[k].ndim; d++) {
            const int factor = slowest(&dims, &dims.operand[k].dim[d]);
            if (factor < 0) continue;
            const int own = class_of(c, tensor, d);
            if (known[factor])
                c->of[own] = root(c, known[factor] - 1);
            else
                known[factor] = 1 + own;
        }
    }
    arena_release(c->graph->arena, scratch);
}

static void find_classes(struct classes *c) {
    const struct graph *graph = c->graph;
    int n = 0;
    c->first = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; n += graph->tensors.at[t++].ndim) c->first[t] = n;
    c->of = ARENA_ARRAY(graph->arena, int, n + 1);
    c->evidence = ARENA_ARRAY(graph->arena, struct evidence, n + 1);
    for (int i = 0; i < n; i++) c->of[i] = i;
    for (int i = 0; i < graph->order.n; i++) join_dims(c, &graph->nodes.at[graph->order.at[i]]);
}

/* True if the class is a dimension of the tensor from `dim` on. */
static bool has_class(const struct classes *c, int tensor, int dim, int class) {
    for (int d = dim; d < c->graph->tensors.at[tensor].ndim; d++)
        if (class_of(c, tensor, d) == class) return true;
    return false;
}

static void find_evidence(const struct classes *c) {
    VEC_EACH(&c->graph->tensors, t, const struct tensor *tensor) {
        const bool input = tensor->kind == TENSOR_INPUT, weight = tensor->kind == TENSOR_WEIGHT;
        const int class = tensor->ndim ? class_of(c, t, 0) : -1;
        if (class >= 0 && input && !has_class(c, t, 1, class)) c->evidence[class].inputs++;
        if (class >= 0 && tensor->kind == TENSOR_VALUE) c->evidence[class].values++;
        for (int d = input ? 1 : 0; d < tensor->ndim && (input || weight); d++)
            if (tensor->dims[d] > 1) c->evidence[class_of(c, t, d)].elsewhere = true;
    }
}

/* The class of the batch; -1: no input has a dimension. */
static int find_batch(const struct classes *c) {
    int best = -1;
    VEC_EACH_VALUE(&c->graph->inputs, i, const int input) {
        if (!c->graph->tensors.at[input].ndim) continue;
        const int class = class_of(c, input, 0);
        const struct evidence *own = &c->evidence[class], *most = best < 0 ? NULL : &c->evidence[best];
        if (!most || own->inputs > most->inputs || (own->inputs == most->inputs && own->values > most->values))
            best = class;
    }
    return best;
}

/* True if dimension 0 of the input, which is not of the class `batch`, counts no samples. */
static bool is_shared(const struct classes *c, int input, int batch, int64_t extent) {
    const int class = class_of(c, input, 0);
    const int64_t own = c->graph->tensors.at[input].dims[0];
    const bool fits = own % extent == 0 || (own > 1 && extent % own == 0);
    return !fits || has_class(c, input, 1, batch) || c->evidence[class].elsewhere;
}

void samples_find_shared(struct graph *graph) {
    struct classes c = {.graph = graph};
    find_classes(&c);
    find_evidence(&c);
    const int batch = find_batch(&c);
    int64_t extent = 0; /* the least of the batch */
    for (int i = 0; i < graph->inputs.n; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        const bool counts = input->ndim && class_of(&c, graph->inputs.at[i], 0) == batch && input->dims[0] > 0;
        if (counts && (!extent || input->dims[0] < extent)) extent = input->dims[0];
    }
    VEC_EACH_VALUE(&graph->inputs, i, const int id) {
        struct tensor *input = &graph->tensors.at[id];
        const bool other = input->ndim && class_of(&c, id, 0) != batch;
        input->shared = !input->ndim || (other && extent && is_shared(&c, id, batch, extent));
    }
}
