#include "codegen/held.h"

#include "codegen/kernel/elementwise.h"

enum access { READS, WRITES, SUMS /* adds to it */ };

struct touched {
    int arena;
    int64_t begin, end;
    enum access access;
};

struct touches {
    VEC(struct touched) all;
};

struct finder {
    const struct rankplan *plan;
    const struct source *source;
    struct touches *pending; /* per class of the source: memory of the launches that the group holds so far */
};

static bool adds_squares(const struct node *node) {
    return node->op->id == OP_SumSquares || node->op->id == OP_AddSquares;
}

static const struct node *node_of(const struct finder *f, const struct instruction *instruction) {
    return &f->plan->graph->nodes.at[instruction->node];
}

static bool is_held(const struct finder *f, const struct rank_class *class, const struct instruction *instruction) {
    const struct node *node = node_of(f, instruction);
    return (adds_squares(node) && node->phase == PHASE_REDUCE) ||
           elementwise_is_held(f->source->kernels->target, f->plan, class, instruction->node);
}

static enum access access_of(const struct finder *f, const struct node *node, int tensor) {
    const int *root = f->plan->root;
    for (int o = 0; o < node->noutputs; o++)
        if (node->outputs[o] == tensor) return adds_squares(node) ? SUMS : WRITES;
    return adds_squares(node) && root[tensor] == root[node->outputs[0]] ? SUMS : READS;
}

/* The memory of the tensor with all that shares it, in all slots. */
static struct touched touch(const struct finder *f, const struct rank_class *class, const struct node *node,
                            int tensor) {
    const struct plan_place *own = &class->place[tensor], *whole = &class->place[f->plan->root[tensor]];
    const struct plan_place *place = whole->offset < 0 || own->arena == PLAN_FLAT ? own : whole;
    const bool indexed = place->arena == PLAN_FLAT || place->arena == RT_CALLER;
    const int64_t slots = place->stride ? class->schedule->shape.slots[place->set] - 1 : 0;
    const int64_t bytes = indexed ? 1 : rankplan_memory(f->plan, class, f->plan->root[tensor]) + slots * place->stride;
    return (struct touched){place->arena, place->offset, place->offset + bytes, access_of(f, node, tensor)};
}

static bool conflict(const struct touched *a, const struct touched *b) {
    if (a->arena != b->arena || a->begin >= b->end || b->begin >= a->end) return false;
    return a->access != b->access || a->access == WRITES || (a->access == SUMS && a->begin != b->begin);
}

/* Adds the memory of an instruction to that of the group, if its launch is held. False: they touch the same. */
static bool join(struct finder *f, int class_number, const struct instruction *instruction, int *held) {
    const struct rank_class *class = &f->plan->classes[f->source->classes[class_number]];
    struct touches *pending = &f->pending[class_number];
    const int before = pending->all.n;
    const bool holds = is_held(f, class, instruction);
    VEC_EACH_VALUE(&instruction->tensors, i, const int tensor) {
        const struct touched here = touch(f, class, node_of(f, instruction), tensor);
        bool known = false;
        for (int k = 0; k < before; k++) {
            const struct touched *there = &pending->all.at[k];
            if (conflict(&here, there)) return false;
            known = known || (here.arena == there->arena && here.begin == there->begin && here.access == there->access);
        }
        if (holds && !known) VEC_PUSH(f->plan->graph->arena, &pending->all, here);
    }
    *held += holds;
    return true;
}

/* Adds the instructions of a stretch, in all classes. `held`: how many launches of one class are held. */
static bool join_all(struct finder *f, const struct stretch *stretch, int *held) {
    *held = 0;
    for (int class = 0; class < f->source->nclasses; class ++) {
        int of_class = 0;
        for (int i = 0; i < stretch->period * stretch->times; i++)
            if (!join(f, class, &f->source->instructions[class][stretch->first + i], &of_class)) return false;
        *held = of_class;
    }
    return true;
}

static void begin_group(struct finder *f) {
    for (int class = 0; class < f->source->nclasses; class ++) f->pending[class].all.n = 0;
}

const int *held_find(const struct rankplan *plan, const struct source *source, const struct stretches *stretches) {
    struct arena *arena = plan->graph->arena;
    struct finder f = {plan, source, ARENA_ARRAY(arena, struct touches, source->nclasses)};
    int *groups = ARENA_ARRAY(arena, int, stretches->all.n + 1),
        *launches = ARENA_ARRAY(arena, int, stretches->all.n + 2);
    int group = 1, held;
    if (!source->kernels->target->holds_launches) return groups;
    VEC_EACH(&stretches->all, s, const struct stretch *stretch) {
        bool joins = join_all(&f, stretch, &held);
        groups[s] = joins && !held ? HELD_ANY : joins ? group : ++group;
        if (!joins) begin_group(&f);
        if (!joins && !join_all(&f, stretch, &held)) {
            begin_group(&f);
            groups[s] = HELD_NONE;
            continue;
        }
        launches[group] += held;
    }
    for (int s = 0; s < stretches->all.n; s++)
        if (groups[s] > 0 && launches[groups[s]] < 2) groups[s] = HELD_NONE;
    return groups;
}
