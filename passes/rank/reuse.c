#include "passes/rank/reuse.h"

#include <math.h>
#include <stdlib.h>

struct at {
    int arena, tensor;
    int64_t offset;
};

static bool is_same_place(const struct at *a, const struct at *b) {
    return a->offset >= 0 && a->arena == b->arena && a->offset == b->offset;
}

static int by_place(const void *left, const void *right) {
    const struct at *a = left, *b = right;
    if (a->arena != b->arena) return a->arena - b->arena;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return a->tensor - b->tensor;
}

struct reuse reuse_begin(const struct graph *graph, const struct rank_class *class, struct arena *arena) {
    const int n = graph->tensors.n;
    struct at *at = ARENA_ARRAY(arena, struct at, n + 1);
    int *slot = ARENA_ARRAY(arena, int, n + 1), slots = 0;
    struct reuse reuse = {.class = class, .slot = slot};
    for (int t = 0; t < n; t++) at[t] = (struct at){class->place[t].arena, t, class->place[t].offset};
    qsort(at, (size_t)n, sizeof *at, by_place);
    for (int i = 0; i < n; i++) slot[at[i].tensor] = i > 0 && is_same_place(&at[i - 1], &at[i]) ? slots - 1 : slots++;
    reuse.touched = ARENA_ARRAY(arena, double, slots + 1);
    for (int s = 0; s < slots; s++) reuse.touched[s] = -1;
    for (int a = 0; a < RT_ARENAS; a++) reuse.all += (double)class->bytes[a];
    return reuse;
}

double reuse_distance(const struct reuse *reuse, int tensor) {
    const double touched = reuse->touched[reuse->slot[tensor]];
    return touched < 0 ? reuse->all : fmin(reuse->now - touched, reuse->all);
}

void reuse_touch(struct reuse *reuse, const struct graph *graph, const struct node *node) {
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int tensor = k < node->ninputs ? node->inputs[k] : node->outputs[k - node->ninputs];
        if (tensor < 0) continue;
        reuse->now += (double)rankplan_bytes(reuse->class, graph, tensor);
        reuse->touched[reuse->slot[tensor]] = reuse->now;
    }
}
