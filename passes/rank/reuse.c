#include "passes/rank/reuse.h"

#include <math.h>
#include <stdlib.h>

struct address {
    int arena;
    int64_t offset;
};

static int by_address(const void *left, const void *right) {
    const struct address *a = left, *b = right;
    if (a->arena != b->arena) return a->arena - b->arena;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Outside of arenas the offset is an index: such addresses are far apart. */
static struct address begin_of(const struct plan_place *place) {
    const int64_t apart = place->arena < RT_ARENAS ? 1 : (int64_t)1 << 40;
    return (struct address){place->arena, place->offset * apart};
}

static struct address end_of(const struct graph *graph, const struct rank_class *class, int tensor) {
    struct address end = begin_of(&class->place[tensor]);
    end.offset += rankplan_room(class, graph, tensor);
    return end;
}

static int find(const struct address *at, int n, struct address address) {
    const struct address *found = bsearch(&address, at, (size_t)n, sizeof *at, by_address);
    return (int)(found - at);
}

/* Sorted, each once: how many. */
static int sort(struct address *at, int n) {
    int kept = 0;
    qsort(at, (size_t)n, sizeof *at, by_address);
    for (int i = 0; i < n; i++)
        if (kept == 0 || by_address(&at[kept - 1], &at[i]) != 0) at[kept++] = at[i];
    return kept;
}

struct pieces pieces_find(const struct graph *graph, const struct rank_class *class, struct arena *arena) {
    const int tensors = graph->tensors.n;
    struct address *at = ARENA_ARRAY(arena, struct address, 2 * tensors + 1);
    int *first = ARENA_ARRAY(arena, int, tensors + 1), *end = ARENA_ARRAY(arena, int, tensors + 1), n = 0;
    for (int t = 0; t < tensors; t++) {
        if (class->place[t].offset < 0) continue;
        at[n++] = begin_of(&class->place[t]);
        at[n++] = end_of(graph, class, t);
    }
    n = sort(at, n);
    for (int t = 0; t < tensors; t++) {
        if (class->place[t].offset < 0) continue;
        first[t] = find(at, n, begin_of(&class->place[t]));
        end[t] = find(at, n, end_of(graph, class, t));
    }
    double *bytes = ARENA_ARRAY(arena, double, n + 1);
    for (int i = 0; i + 1 < n; i++) bytes[i] = (double)(at[i + 1].offset - at[i].offset);
    return (struct pieces){first, end, bytes, n};
}

struct reuse reuse_begin(const struct graph *graph, const struct rank_class *class, struct arena *arena) {
    struct reuse reuse = {.pieces = pieces_find(graph, class, arena)};
    reuse.touched = ARENA_ARRAY(arena, double, reuse.pieces.n + 1);
    for (int i = 0; i < reuse.pieces.n; i++) reuse.touched[i] = -1;
    for (int a = 0; a < RT_ARENAS; a++) reuse.all += (double)class->bytes[a];
    return reuse;
}

double reuse_distance(const struct reuse *reuse, int piece) {
    const double touched = reuse->touched[piece];
    return touched < 0 ? reuse->all : fmin(reuse->now - touched, reuse->all);
}

double reuse_byte_seconds(const struct kernel *kernel, int tensor, double touched, double distant) {
    const struct reuse *reuse = kernel->memory->reuse;
    const struct pieces *pieces = &reuse->pieces;
    double bytes = 0, seconds = 0;
    for (int p = pieces->first[tensor]; p < pieces->end[tensor]; p++) {
        const double behind = fmax(reuse_distance(reuse, p), touched);
        bytes += pieces->bytes[p];
        seconds += pieces->bytes[p] * machine_byte_seconds(kernel->machine, behind, kernel->alone, distant);
    }
    return bytes > 0 ? seconds / bytes : 0;
}

void reuse_touch(struct reuse *reuse, const struct node *node) {
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int tensor = node_tensor(node, k);
        if (tensor < 0) continue;
        const int first = reuse->pieces.first[tensor], end = reuse->pieces.end[tensor];
        for (int p = first; p < end; p++) reuse->now += reuse->pieces.bytes[p];
        for (int p = first; p < end; p++) reuse->touched[p] = reuse->now;
    }
}
