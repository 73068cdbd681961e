#include "ir/blocks.h"

#include "ir/base/map.h"
#include "ir/base/repeats.h"
#include "ir/op.h"

/* The key of a tensor or node: all that must be equal for two of them to be alike. */
struct key {
    struct arena *arena;
    VEC(int64_t) words;
};

static void add(struct key *key, int64_t word) {
    VEC_PUSH(key->arena, &key->words, word);
}

static void add_text(struct key *key, const char *text) {
    const size_t length = text ? strlen(text) : 0;
    add(key, (int64_t)length);
    for (size_t i = 0; i < length; i += sizeof(int64_t)) {
        int64_t word = 0;
        memcpy(&word, text + i, length - i < sizeof word ? length - i : sizeof word);
        add(key, word);
    }
}

/* The number of the key in the map, a new one if it is not there. Empties the key. */
static int number_of(struct key *key, struct map *map) {
    const char *bytes = (const char *)key->words.at;
    const size_t length = (size_t)key->words.n * sizeof *key->words.at;
    int number = map_get(map, bytes, length);
    if (number < 0) map_put(map, bytes, length, number = map->n);
    key->words.n = 0;
    return number;
}

static void add_layout(struct key *key, const struct layout *layout) {
    for (int r = 0; r < RT_REDUCES; r++) add(key, layout->partial[r]);
    add(key, layout->own), add(key, layout->ncuts);
    for (int c = 0; c < layout->ncuts; c++) {
        const struct placement *placement = &layout->cuts[c].placement;
        const struct reach *reach = &placement->reach;
        add(key, layout->cuts[c].axis), add(key, placement->kind), add(key, placement->dim);
        add(key, placement->blocks), add(key, placement->grain);
        if (placement->kind != PLACED_WINDOW) continue;
        add(key, reach->positions), add(key, reach->stride), add(key, reach->before), add(key, reach->span);
    }
}

static void add_attr(struct key *key, const struct attr *attr) {
    int64_t bits;
    memcpy(&bits, &attr->number, sizeof bits);
    add_text(key, attr->key);
    add(key, attr->kind);
    switch (attr->kind) {
    case ATTR_INT: add(key, attr->value); break;
    case ATTR_FLOAT: add(key, bits); break;
    case ATTR_TEXT: add_text(key, attr->text); break;
    case ATTR_INTS:
        add(key, attr->n);
        for (int i = 0; i < attr->n; i++) add(key, attr->ints[i]);
        break;
    }
}

struct numbering {
    const struct graph *graph;
    enum alike alike;
    struct key key;
    struct map types, nodes;
    int *type;  /* per tensor: 1 + its number among the types; 0: not known yet */
    int *stage; /* per tensor: 1 + the stage of the node that computes it; 0: none does, or nodes of all stages do */
};

/* A number for the type of the tensor, and for its layout if that counts; -1: no tensor. */
static int type_of(struct numbering *n, int id) {
    if (id < 0) return -1;
    if (n->type[id]) return n->type[id] - 1;
    const struct tensor *tensor = &n->graph->tensors.at[id];
    add(&n->key, tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++) add(&n->key, tensor->dims[d]);
    add(&n->key, -1); /* is no extent */
    if (n->alike == ALIKE) add(&n->key, tensor->joined);
    if (n->alike == ALIKE) add_layout(&n->key, &tensor->layout);
    return (n->type[id] = 1 + number_of(&n->key, &n->types)) - 1;
}

/* Adds what ALIKE compares beyond ALIKE_IN_TYPES. An input of all stages counts as one of the node's own stage, unless
 * the node communicates. */
static void add_placed(struct numbering *n, const struct node *node) {
    struct key *key = &n->key;
    add(key, node->stage);
    for (int k = 0; k < node->ninputs; k++) {
        const int stage = node->inputs[k] < 0 ? 0 : n->stage[node->inputs[k]];
        add(key, stage || node->op->kind == OP_COMM ? stage : node->stage + 1);
    }
    for (int axis = 0; axis < mesh_layout_axes(&n->graph->mesh); axis++) {
        const struct node_split *split = &node->split[axis];
        add(key, split->factor);
        if (split->factor >= 0) add(key, split->blocks), add(key, split->grain), add(key, split->depth);
    }
    for (int i = 0; i < node->nattrs; i++) add_attr(key, &node->attrs[i]);
}

static int kind_of_node(struct numbering *n, const struct node *node) {
    struct key *key = &n->key;
    /* The keys of types are built in the same memory, so they are numbered first. */
    for (int k = 0; k < node->ninputs; k++) type_of(n, node->inputs[k]);
    for (int k = 0; k < node->noutputs; k++) type_of(n, node->outputs[k]), n->stage[node->outputs[k]] = node->stage + 1;
    add(key, node->op->id), add(key, node->phase), add(key, node->ninputs), add(key, node->noutputs);
    for (int k = 0; k < node->ninputs; k++) add(key, type_of(n, node->inputs[k]));
    for (int k = 0; k < node->noutputs; k++) add(key, type_of(n, node->outputs[k]));
    if (n->alike == ALIKE) add_placed(n, node);
    return number_of(key, &n->nodes);
}

int *node_kinds(const struct graph *graph, struct arena *arena, enum alike alike) {
    int *kinds = ARENA_ARRAY(arena, int, graph->order.n + 1);
    struct arena *scratch = arena_scratch(arena);
    struct numbering n = {.graph = graph, .alike = alike, .key = {.arena = scratch}};
    n.type = ARENA_ARRAY(scratch, int, graph->tensors.n + 1);
    n.stage = ARENA_ARRAY(scratch, int, graph->tensors.n + 1);
    map_init(&n.types, scratch);
    map_init(&n.nodes, scratch);
    for (int i = 0; i < graph->order.n; i++) kinds[i] = kind_of_node(&n, &graph->nodes.at[graph->order.at[i]]);
    arena_release(arena, scratch);
    return kinds;
}

const char *const input_source_names[INPUT_SOURCES] = {"none", "inside", "carried", "shared", "own"};

struct finding {
    const struct graph *graph;
    struct arena *arena;
    const int *kinds, *places;
    const int64_t *live;
    struct map sequences; /* kinds of the nodes of a repetition -> kind of block */
    struct blocks *out;
};

static const struct node *node_at(const struct graph *graph, int place) {
    return &graph->nodes.at[graph->order.at[place]];
}

int *node_places(const struct graph *graph, struct arena *arena) {
    int *places = ARENA_ARRAY(arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) places[t] = -1;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = node_at(graph, i);
        for (int k = 0; k < node->noutputs; k++) places[node->outputs[k]] = i;
    }
    return places;
}

/* Per place: bytes of the values from before it that it or a later node of their phase reads. */
static int64_t *live_bytes(const struct graph *graph, struct arena *arena, const int *places) {
    int64_t *live = ARENA_ARRAY(arena, int64_t, graph->order.n + 2);
    int *last = ARENA_ARRAY(arena, int, graph->tensors.n + 1); /* place of the last reader of the phase */
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = node_at(graph, i);
        for (int k = 0; k < node->ninputs; k++) {
            const int tensor = node->inputs[k], from = tensor < 0 ? -1 : places[tensor];
            if (from >= 0 && node_at(graph, from)->phase == node->phase) last[tensor] = i;
        }
    }
    for (int t = 0; t < graph->tensors.n; t++) { /* differences first, their sums below */
        if (places[t] < 0 || last[t] <= places[t]) continue;
        live[places[t] + 1] += tensor_bytes(&graph->tensors.at[t]);
        live[last[t] + 1] -= tensor_bytes(&graph->tensors.at[t]);
    }
    for (int i = 1; i <= graph->order.n; i++) live[i] += live[i - 1];
    return live;
}

/* Input `was` of a node and input `is` of the node one repetition after it come from the same place (enum
 * input_source), in a block that begins at `first`. */
static bool same_source(const struct finding *f, int first, int nodes, int was, int is) {
    if (was < 0 || is < 0) return was == is;
    const int before = f->places[was], after = f->places[is];
    if (after < first || after - nodes < first) return before < first;
    if (before != after - nodes) return false;
    const struct node *producer = node_at(f->graph, before), *next = node_at(f->graph, after);
    for (int o = 0; o < producer->noutputs; o++)
        if (producer->outputs[o] == was) return next->outputs[o] == is;
    return false;
}

/* The `nodes` nodes from `place` on repeat those before them, in a block that begins at `first`. */
static bool repeats_previous(const struct finding *f, int first, int nodes, int place) {
    for (int i = place; i < place + nodes; i++) {
        const struct node *was = node_at(f->graph, i - nodes), *is = node_at(f->graph, i);
        for (int k = 0; k < is->ninputs; k++)
            if (!same_source(f, first, nodes, was->inputs[k], is->inputs[k])) return false;
    }
    return true;
}

static void add_block(struct finding *f, int first, int nodes, int end) {
    const char *sequence = (const char *)(f->kinds + first);
    const size_t length = (size_t)nodes * sizeof *f->kinds;
    if (end - first < 2 * nodes) return;
    int kind = map_get(&f->sequences, sequence, length);
    if (kind < 0) map_put(&f->sequences, sequence, length, kind = f->out->kinds++);
    VEC_PUSH(f->arena, &f->out->all, (struct block){first, nodes, (end - first) / nodes, kind});
}

/* Adds blocks of the repetitions in [first, end), whose nodes are alike: a block ends where inputs come from elsewhere
 * than in the repetition before. */
static void add_blocks(struct finding *f, int first, int nodes, int end) {
    int begin = first;
    for (int place = first + nodes; place + nodes <= end; place += nodes) {
        if (repeats_previous(f, begin, nodes, place)) continue;
        add_block(f, begin, nodes, place);
        begin = place;
    }
    add_block(f, begin, nodes, first + (end - first) / nodes * nodes);
}

/* The most bytes that are live where two repetitions meet. */
static int64_t most_live(const struct finding *f, int first, int nodes, int end) {
    int64_t most = 0;
    for (int place = first + nodes; place + nodes <= end; place += nodes)
        if (f->live[place] > most) most = f->live[place];
    return most;
}

/* The place at which the first repetition begins, of all at which it can if [first, end) is to be a block (Note
 * [Blocks]). Of equal ones that with the most repetitions, then the first. */
static int choose_begin(const struct finding *f, int first, int nodes, int end) {
    int best = first;
    int64_t least = most_live(f, first, nodes, end);
    for (int begin = first + 1; begin < first + nodes && begin + 2 * nodes <= end; begin++) {
        const int64_t live = most_live(f, begin, nodes, end);
        if (live < least) best = begin, least = live;
    }
    return best;
}

void blocks_find(const struct graph *graph, struct arena *arena, const int *kinds, int first, int end,
                 struct blocks *out) {
    struct stretches stretches;
    *out = (struct blocks){.places = node_places(graph, arena)};
    struct arena *scratch = arena_scratch(arena);
    struct finding f = {.graph = graph, .arena = arena, .kinds = kinds, .places = out->places, .out = out};
    f.live = live_bytes(graph, scratch, out->places);
    map_init(&f.sequences, scratch);
    repeats_find(scratch, kinds + first, end - first, 1, &stretches);
    VEC_EACH_VALUE(&stretches.all, s, const struct stretch stretch) {
        const int begin = first + stretch.first, nodes = stretch.period;
        int tail = begin + nodes * stretch.times; /* the end, and of a last repetition that is not whole */
        if (stretch.times == 1) continue;
        for (; s + 1 < stretches.all.n && stretches.all.at[s + 1].times == 1 && kinds[tail] == kinds[tail - nodes]; s++)
            tail++;
        add_blocks(&f, choose_begin(&f, begin, nodes, tail), nodes, tail);
    }
    arena_release(arena, scratch);
}

enum input_source block_input_source(const struct graph *graph, const struct blocks *blocks, const struct block *block,
                                     int j, int k) {
    const int last = block->first + (block->times - 1) * block->nodes;
    const int tensor = node_at(graph, last + j)->inputs[k], from = tensor < 0 ? -1 : blocks->places[tensor];
    if (tensor < 0) return INPUT_NONE;
    if (from >= block->first) return from >= last ? INPUT_INSIDE : INPUT_CARRIED;
    for (int place = block->first + j; place < last; place += block->nodes)
        if (node_at(graph, place)->inputs[k] != tensor) return INPUT_OWN;
    return INPUT_SHARED;
}
