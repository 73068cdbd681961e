/* Pipeline parallelism: divides the order of nodes into as many stages as the pipeline axis has ranks, so that the
 * slowest stage, its sends and receives included, is as fast as possible. Boundaries at the same place of repeated
 * layers are preferred if they are nearly as good: stages with equal layers have equal code (Note [Sources] in
 * codegen/source.h). With prefer=memory, stages have about as many bytes of weights each instead. */
#include "passes/plan/policy/policy.h"

#include <math.h>
#include <string.h>

#include "ir/blocks.h"
#include "ir/dims.h"
#include "passes/plan/schedule/schedules.h"
#include "passes/plan/stages.h"
#include "passes/train/training.h"

enum {
    MAX_CUTS = 1024, /* boundaries considered: those where the least data crosses */
    OUTSIDE = -1     /* kind of a boundary that is not in a block */
};
#define IMPOSSIBLE 1e300 /* seconds */
#define AVOIDED    1e3   /* seconds that a stage counts more whose nodes follow their readers to other stages */
static const double nearly = 1.02; /* boundaries of one kind are taken up to this multiple of the best time */

struct places {
    int n;
    int at[MAX_CUTS + 2];          /* position in the order before which a stage may begin; 0 and the end included */
    const int *position;           /* per node: which position decides its stage (stage_positions) */
    double cost[MAX_CUTS + 2];     /* seconds of all nodes before it */
    int stay[MAX_CUTS + 2];        /* nodes before it but for those that only move inputs and follow their readers */
    double crossing[MAX_CUTS + 2]; /* seconds that a stage waits for the values that cross it */
    int kind[MAX_CUTS + 2];        /* equal at the same place of repeated layers (find_kinds) */
    /* per stage: positions of the first and last node that --refine gives it, n and -1: none; NULL: no --refine */
    int *first_given, *last_given;
    double *ranks; /* per stage, as a multiple of those of the largest */
};

/* Number of nodes of the forward phase, the first of the order: those that are divided into stages. */
static int count_forward(const struct graph *graph) {
    int n = 0;
    while (n < graph->order.n && graph->nodes.at[graph->order.at[n]].phase == PHASE_FORWARD) n++;
    return n;
}

/* Bytes of a rank's part of the node's result, by the splits that the draft has so far. */
static double part_bytes(const struct draft *draft, const struct graph *graph, int id) {
    struct node node = graph->nodes.at[id];
    struct dims dims;
    const struct tensor *tensor = &graph->tensors.at[node.outputs[0]];
    double bytes = (double)tensor_bytes(tensor);
    memcpy(node.split, draft->split[id], RT_MAX_AXES * sizeof *node.split);
    dims_bind_checked(graph->arena, graph, &node, &dims);
    const struct layout layout = dims_layout_given(graph, &dims, &node, 0);
    EACH(layout.cuts, layout.ncuts, c, const struct cut *cut) bytes /= graph->mesh.axis[cut->axis].size;
    return bytes;
}

/* Per position of the order: seconds that each of the two stages waits for the values that are live across it, but for
 * the latency of the first, which every boundary has. Messages are on their way while both stages compute: a round of
 * all stages takes as long as they compute and each message is sent, so half of its time counts for either stage.
 * Recomputed values are not sent. In training their gradients are sent back. */
static double *crossings(const struct draft *draft, const struct machine *machine, const bool *recomputed,
                         const int *position, int n) {
    const struct graph *graph = graph_typical(draft->graph, draft->graph->arena);
    const struct mesh *mesh = &graph->mesh;
    const int axis = mesh_pipeline_axis(mesh);
    const struct machine_group stages = {machine, mesh->axis[axis].size, mesh_stride(mesh, axis, 0)};
    const struct machine_group farthest = {machine, 2, stages.ranks * stages.stride / 2};
    const double times = graph->train ? 1 : 0.5;
    const double first = times * machine_link(&farthest, COLLECTIVE_SEND).latency;
    double *cross = ARENA_ARRAY(graph->arena, double, n + 2);
    int *last = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    EACH_VALUE(graph->order.at, n, i, const int id) {
        const struct node *node = &graph->nodes.at[id];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && position[id] > last[node->inputs[k]]) last[node->inputs[k]] = position[id];
    }
    for (int i = 0; i < n; i++) { /* differences first, their sums below */
        int id = graph->order.at[i], out = graph->nodes.at[id].outputs[0];
        if (recomputed[id] || last[out] <= position[id]) continue;
        const double seconds = times * machine_collective(&farthest, COLLECTIVE_SEND, part_bytes(draft, graph, id), 1);
        cross[position[id] + 1] += seconds;
        cross[last[out] + 1] -= seconds;
    }
    for (int i = 1; i <= n; i++) cross[i] += cross[i - 1];
    for (int i = 1; i <= n; i++) cross[i] = fmax(0, cross[i] - first);
    return cross;
}

static int count_at_most(const double *cross, int n, double most) {
    int count = 0;
    for (int i = 1; i < n; i++) count += cross[i] <= most;
    return count;
}

/* Which boundaries are considered: all that cost at most `least` to cross, and `taken` of the `between` that cost
 * more but at most `most`, evenly spaced. */
struct choice {
    double least, most;
    int between, taken;
};

/* Chooses at most MAX_CUTS boundaries, those with the least to send; finds the bounds by bisection. */
static struct choice choose_places(const double *cross, int n) {
    struct choice choice = {-1, 0, 0, 0};
    for (int i = 1; i < n; i++)
        if (cross[i] > choice.most) choice.most = cross[i];
    for (int round = 0; round < 60 && n > MAX_CUTS; round++) {
        const double middle = (choice.least + choice.most) / 2;
        if (count_at_most(cross, n, middle) > MAX_CUTS)
            choice.most = middle;
        else
            choice.least = middle;
    }
    const int below = count_at_most(cross, n, choice.least);
    choice.between = count_at_most(cross, n, choice.most) - below;
    choice.taken = choice.between < MAX_CUTS - below ? choice.between : MAX_CUTS - below;
    return choice;
}

/* True if boundary number `i` of those between the bounds is considered. */
static bool is_taken(const struct choice *choice, int i) {
    return (int64_t)(i + 1) * choice->taken / choice->between > (int64_t)i * choice->taken / choice->between;
}

/* Per position of the order: its place within a repetition of a block (ir/blocks.h), numbered over all kinds of blocks;
 * OUTSIDE if no block has a node there or ends there. */
static int *find_kinds(const struct graph *graph, int forward) {
    struct arena *arena = graph->arena;
    struct blocks blocks;
    int *kinds = ARENA_ARRAY(arena, int, forward + 1), n = 0;
    blocks_find(graph, arena, node_kinds(graph, arena, ALIKE_IN_TYPES), 0, forward, &blocks);
    int *first = ARENA_ARRAY(arena, int, blocks.kinds + 1); /* per kind of block: 1 + the number of its first place */
    for (int i = 0; i <= forward; i++) kinds[i] = OUTSIDE;
    VEC_EACH(&blocks.all, b, const struct block *block) {
        if (!first[block->kind]) first[block->kind] = n + 1, n += block->nodes;
        for (int i = 0; i <= block->nodes * block->times; i++)
            kinds[block->first + i] = first[block->kind] - 1 + i % block->nodes;
    }
    return kinds;
}

/* Per position of the order: bytes of the weights that the node there is the first to read. */
static double *weights_read(const struct graph *graph) {
    double *bytes = ARENA_ARRAY(graph->arena, double, graph->order.n + 1);
    bool *read = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        EACH_VALUE(node->inputs, node->ninputs, k, const int tensor) {
            if (tensor < 0 || graph->tensors.at[tensor].kind != TENSOR_WEIGHT || read[tensor]) continue;
            read[tensor] = true;
            bytes[i] += (double)tensor_bytes(&graph->tensors.at[tensor]);
        }
    }
    return bytes;
}

/* Per position of the order: seconds of the nodes whose stage it decides, and of those that compute their gradients, in
 * a micro-batch. */
static double *costs(const struct draft *draft, const struct pass_context *context, const int *position, int n) {
    const struct graph *graph = draft->graph;
    double *seconds = ARENA_ARRAY(graph->arena, double, graph->nodes.n + 1);
    const int micro_batches = context->training ? (int)context->decisions.micro_batches : 1;
    double *cost = ARENA_ARRAY(graph->arena, double, n + 1);
    const bool *live = stage_live(graph);
    plan_seconds(draft, context, seconds);
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i], origin = i < n ? id : stage_origin(graph, live, id);
        const bool once = graph->nodes.at[id].phase >= PHASE_REDUCE; /* in a step */
        if (origin >= 0) cost[position[origin]] += seconds[id] / (once ? micro_batches : 1);
    }
    return cost;
}

/* True for operators without arithmetic, which move or cast elements: they cost about the same in any stage. */
static bool only_moves(const struct node *node) {
    return node->op->flops == 0;
}

/* Per tensor: true for inputs, stored tensors, and what the forward phase only moves elements of them to. */
static bool *moved_inputs(const struct graph *graph) {
    bool *moved = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    const int forward = count_forward(graph);
    for (int t = 0; t < graph->tensors.n; t++) moved[t] = graph->tensors.at[t].kind != TENSOR_VALUE;
    for (int i = 0; i < forward; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        bool all = only_moves(node);
        for (int k = 0; k < node->ninputs; k++) all = all && (node->inputs[k] < 0 || moved[node->inputs[k]]);
        for (int k = 0; k < node->noutputs; k++) moved[node->outputs[k]] = all;
    }
    return moved;
}

/* Where memory is preferred, stages are balanced by bytes of weights; seconds, counted as bytes, decide between equal
 * ones. No stage begins with a node whose stage an earlier position decides: it would not have that node. */
static void list_places(struct places *places, const struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    const double *bytes = context->decisions.prefer == PREFER_MEMORY ? weights_read(graph) : NULL;
    const bool *recomputed = stage_recomputed(graph);
    const int n = count_forward(graph), *position = stage_positions(graph, recomputed);
    const double *cross = crossings(draft, machine_or_default(context->machine), recomputed, position, n),
                 *seconds = costs(draft, context, position, n);
    const int *kinds = find_kinds(graph, n);
    const struct choice choice = choose_places(cross, n);
    const bool *moved = moved_inputs(graph);
    double cost = 0;
    int between = 0, stay = 0;
    places->n = 0;
    places->position = position;
    for (int i = 0; i <= n; i++) {
        const bool end = i == 0 || i == n, equal = !end && cross[i] > choice.least && cross[i] <= choice.most;
        const bool chosen = end || cross[i] <= choice.least || (equal && is_taken(&choice, between++));
        if (chosen && (end || position[graph->order.at[i]] == i)) {
            places->at[places->n] = i;
            places->cost[places->n] = cost;
            places->stay[places->n] = stay;
            places->kind[places->n] = kinds[i];
            places->crossing[places->n++] = end ? 0 : cross[i];
        }
        if (i < n) cost += seconds[i];
        if (i < n && bytes) cost += bytes[i];
        if (i < n) stay += !moved[graph->nodes.at[graph->order.at[i]].outputs[0]];
    }
}

/* Dynamic programming. best[s][j]: the least possible time of the slowest of s stages before boundary j; from[s][j]:
 * the boundary at which the last of them begins. Every stage has at least one node. Returns the time of the slowest
 * stage; cuts[stages] becomes -1 if no stages have the nodes that are given to them. */
static double balance(const struct places *p, int stages, struct arena *arena, int *cuts) {
    double *best = ARENA_ARRAY(arena, double, (stages + 1) * p->n);
    int *from = ARENA_ARRAY(arena, int, (stages + 1) * p->n);
    for (int i = 0; i < (stages + 1) * p->n; i++) best[i] = IMPOSSIBLE;
    best[0] = 0;
    for (int s = 1; s <= stages; s++)
        for (int j = s; j < p->n; j++)
            for (int i = j - 1; i >= s - 1; i--) {
                const double computing = (p->cost[j] - p->cost[i]) / p->ranks[s - 1];
                if (computing > best[s * p->n + j]) break; /* earlier boundaries leave this stage even more */
                if (p->first_given && (p->at[i] > p->first_given[s - 1] || p->at[j] <= p->last_given[s - 1])) continue;
                const double stage =
                    computing + p->crossing[i] + p->crossing[j] + (p->stay[j] == p->stay[i] ? AVOIDED : 0);
                const double slowest = fmax(best[(s - 1) * p->n + i], stage);
                if (slowest > best[s * p->n + j] || slowest >= IMPOSSIBLE) continue;
                best[s * p->n + j] = slowest;
                from[s * p->n + j] = i;
            }
    for (int s = stages, j = p->n - 1; s >= 0; s--) cuts[s] = p->at[j], j = from[s * p->n + j];
    if (best[stages * p->n + p->n - 1] >= IMPOSSIBLE) cuts[stages] = -1;
    return best[stages * p->n + p->n - 1];
}

/* The boundaries of one kind, and both ends. */
static struct places *of_kind(const struct places *all, int kind, struct arena *arena) {
    struct places *some = ARENA_NEW(arena, struct places);
    some->first_given = all->first_given, some->last_given = all->last_given, some->ranks = all->ranks;
    for (int p = 0; p < all->n; p++) {
        if (p > 0 && p < all->n - 1 && all->kind[p] != kind) continue;
        some->at[some->n] = all->at[p];
        some->cost[some->n] = all->cost[p];
        some->stay[some->n] = all->stay[p];
        some->crossing[some->n++] = all->crossing[p];
    }
    return some;
}

/* Seconds to send what crosses the boundaries. */
static double sending(const struct places *p, int stages, const int *cuts) {
    double seconds = 0;
    for (int i = 0, s = 1; i < p->n && s < stages; i++)
        if (p->at[i] == cuts[s]) seconds += p->crossing[i], s++;
    return seconds;
}

/* Sets cuts[s] to the position of the order at which stage s begins, cuts[stages] to its end. Of the kinds of
 * boundaries with which stages are nearly as fast as they can be, the one with the least to send is taken, then the one
 * with the fastest stages. */
static void choose_cuts(const struct places *places, int stages, struct arena *arena, int *cuts) {
    const double limit = balance(places, stages, arena, cuts) * nearly;
    double least = IMPOSSIBLE, fastest = IMPOSSIBLE;
    int *alike = ARENA_ARRAY(arena, int, stages + 1);
    for (int p = 1; p < places->n - 1; p++) {
        bool tried = places->kind[p] == OUTSIDE;
        for (int q = 1; q < p; q++) tried = tried || places->kind[q] == places->kind[p];
        if (tried) continue;
        const struct places *some = of_kind(places, places->kind[p], arena);
        if (some->n - 1 < stages) continue;
        const double slowest = balance(some, stages, arena, alike), sent = sending(some, stages, alike);
        if (slowest >= limit || sent > least || (sent == least && slowest >= fastest)) continue;
        least = sent;
        fastest = slowest;
        memcpy(cuts, alike, (size_t)(stages + 1) * sizeof *cuts);
    }
}

/* Finds which stages --refine gives to nodes. Nodes that only move elements are not looked at: they may be in another
 * stage than their position says. */
static void find_given(struct places *places, const struct draft *draft, int stages) {
    const struct graph *graph = draft->graph;
    const int n = count_forward(graph);
    places->first_given = places->last_given = NULL;
    if (!draft->given_stage) return;
    places->first_given = ARENA_ARRAY(graph->arena, int, stages);
    places->last_given = ARENA_ARRAY(graph->arena, int, stages);
    for (int s = 0; s < stages; s++) places->first_given[s] = n, places->last_given[s] = -1;
    for (int i = 0; i < n; i++) {
        const int id = graph->order.at[i], stage = draft->given_stage[id], at = places->position[id];
        if (stage < 0 || only_moves(&graph->nodes.at[id])) continue;
        if (at < places->first_given[stage]) places->first_given[stage] = at;
        if (at > places->last_given[stage]) places->last_given[stage] = at;
    }
}

/* A stage of fewer ranks gets less to do. */
static void find_ranks(struct places *places, const struct draft *draft, int stages) {
    const struct mesh *mesh = &draft->graph->mesh;
    const int axis = mesh_pipeline_axis(mesh);
    int most = 1;
    places->ranks = ARENA_ARRAY(draft->graph->arena, double, stages);
    for (int s = 0; s < stages; s++) {
        const int ranks = mesh_stride(mesh, axis, draft_coordinate(draft, s));
        places->ranks[s] = ranks;
        if (ranks > most) most = ranks;
    }
    for (int s = 0; s < stages; s++) places->ranks[s] = mesh_is_even(mesh) ? 1 : places->ranks[s] / most;
}

/* Every stage has the inputs and loads stored tensors. So operators that only move elements of those are put into the
 * first stage that reads the result, which then need not be sent there. */
static void follow_readers(struct draft *draft) {
    const struct graph *graph = draft->graph;
    int *stage = draft->stage;
    const int forward = count_forward(graph);
    const bool *moved = moved_inputs(graph);
    /* per tensor: the first stage that reads it, -1: none */
    int *first = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) first[t] = -1;
    for (int i = forward - 1; i >= 0; i--) {
        const int id = graph->order.at[i];
        const struct node *node = &graph->nodes.at[id];
        const int out = node->outputs[0];
        if (moved[out] && first[out] >= 0) stage[id] = first[out];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && (first[node->inputs[k]] < 0 || stage[id] < first[node->inputs[k]]))
                first[node->inputs[k]] = stage[id];
    }
}

/* Per node: true if nothing but new values of weights needs it. */
static bool *find_update_nodes(const struct graph *graph) {
    const int forward = count_forward(graph);
    bool *read = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1); /* per tensor: by more than updates */
    bool *only = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    for (int i = 0; i < graph->outputs.n; i++) read[graph->outputs.at[i]] = true;
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        bool needed = i >= forward;
        for (int k = 0; k < node->noutputs; k++) needed = needed || (node->outputs[k] >= 0 && read[node->outputs[k]]);
        only[graph->order.at[i]] = !needed;
        for (int k = 0; k < node->ninputs && needed; k++)
            if (node->inputs[k] >= 0) read[node->inputs[k]] = true;
    }
    return only;
}

/* New values of weights, such as running statistics, are on the stage that computes their operands: no later stage
 * reads them, and the weight is there. What they need of stored tensors alone, such as a part of the old value, is on
 * the first stage that reads it: an earlier one would hold the weight too. */
static void keep_updates(struct draft *draft) {
    const struct graph *graph = draft->graph;
    const int forward = count_forward(graph);
    const bool *only = find_update_nodes(graph);
    bool *stored = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1); /* per node: of stored tensors alone */
    int *first = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1);  /* per tensor: the first stage that reads it */
    EACH_VALUE(graph->order.at, forward, i, const int id) {
        const struct node *node = &graph->nodes.at[id];
        int last = -1;
        for (int k = 0; k < node->ninputs && only[id]; k++) {
            const int producer = node->inputs[k] < 0 ? -1 : graph->tensors.at[node->inputs[k]].producer;
            if (producer >= 0 && !stored[producer] && draft->stage[producer] > last) last = draft->stage[producer];
        }
        stored[id] = only[id] && last < 0;
        if (last >= 0) draft->stage[id] = last;
    }
    for (int t = 0; t < graph->tensors.n; t++) first[t] = -1;
    for (int i = forward - 1; i >= 0; i--) {
        const int id = graph->order.at[i];
        const struct node *node = &graph->nodes.at[id];
        if (stored[id] && first[node->outputs[0]] >= 0) draft->stage[id] = first[node->outputs[0]];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && (first[node->inputs[k]] < 0 || draft->stage[id] < first[node->inputs[k]]))
                first[node->inputs[k]] = draft->stage[id];
    }
}

/* Removes boundaries between a node that reads a weight and the new value of it that the forward phase computes, as
 * where a batch normalization is used twice: the stage of the node would need the value of a later one. Stages grow
 * with positions, so what is placed by stages is placed by positions alike. */
static void keep_together(struct places *places, const struct graph *graph) {
    const int forward = count_forward(graph);
    struct draft draft = {.graph = graph, .stage = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1)};
    int *first =
        ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1); /* per tensor: the first position that reads it */
    memcpy(draft.stage, places->position, (size_t)graph->nodes.n * sizeof *draft.stage);
    follow_readers(&draft);
    keep_updates(&draft);
    for (int t = 0; t < graph->tensors.n; t++) first[t] = graph->order.n;
    for (int i = 0; i < forward; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const int at = draft.stage[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0 && at < first[node->inputs[k]]) first[node->inputs[k]] = at;
    }
    VEC_EACH(&graph->updates, u, const struct update *update) {
        const int producer = graph->tensors.at[update->value].producer;
        if (producer < 0 || graph->nodes.at[producer].phase != PHASE_FORWARD) continue;
        int kept = 0;
        for (int p = 0; p < places->n; p++) {
            if (places->at[p] > first[update->weight] && places->at[p] <= draft.stage[producer]) continue;
            places->at[kept] = places->at[p];
            places->cost[kept] = places->cost[p];
            places->stay[kept] = places->stay[p];
            places->kind[kept] = places->kind[p];
            places->crossing[kept++] = places->crossing[p];
        }
        places->n = kept;
    }
}

/* Boundaries of a model of equal layers, of which one takes seconds[stage]. What is no layer is behind the last one. */
static struct places *between_layers(const double *seconds, double rest, int layers, int stages, struct arena *arena) {
    struct places *places = ARENA_NEW(arena, struct places);
    places->ranks = ARENA_ARRAY(arena, double, stages);
    for (int s = 0; s < stages; s++) places->ranks[s] = 1 / seconds[s];
    places->n = layers + 2;
    for (int p = 0; p < places->n; p++) {
        places->at[p] = places->stay[p] = p;
        places->cost[p] = p <= layers ? p : layers + rest;
    }
    return places;
}

/* Seconds of the rank whose stages take longest. */
static double slowest_rank(const struct places *p, const int *cuts, const struct schedule_choice *schedule, int ranks) {
    double most = 0;
    for (int r = 0; r < ranks; r++) {
        double sum = 0;
        for (int i = 0; i < schedule->chunks; i++) {
            const int stage = schedule_chunk(schedule, ranks, r, i);
            sum += (p->cost[cuts[stage + 1]] - p->cost[cuts[stage]]) / p->ranks[stage];
        }
        most = fmax(most, sum);
    }
    return most;
}

/* The same of stages that have parts of layers: all but the last one take equally long. *slowest: seconds of the
 * slowest stage. */
static double slowest_divided(const double *seconds, double rest, int layers, int stages, int chunks, double *slowest) {
    static const double parts = 8; /* of a layer, whose operators are whole */
    const double own = seconds[stages - 1], unit = seconds[0] / parts;
    double speed = 0, best = INFINITY;
    for (int s = 0; s < stages - 1; s++) speed += 1 / seconds[s];
    const double even = floor(fmin((rest + layers) / (speed + 1 / own), layers / speed) / unit);
    *slowest = INFINITY;
    for (int more = 0; more < 2; more++) {
        const double others = (even + more) * unit, last = own * fmax(rest, rest + layers - others * speed);
        if (fmax(last, others) >= *slowest) continue;
        *slowest = fmax(last, others), best = *slowest + (chunks - 1) * others;
    }
    return best;
}

double policy_pp_of_layers(const double *seconds, double rest, int layers, int ranks,
                           const struct schedule_choice *schedule, struct arena *arena) {
    const int stages = schedule->chunks * ranks;
    double most;
    const double divided = slowest_divided(seconds, rest, layers, stages, schedule->chunks, &most);
    if (layers + 1 < stages || layers >= MAX_CUTS) return divided;
    struct arena *scratch = arena_scratch(arena);
    const struct places *places = between_layers(seconds, rest, layers, stages, scratch);
    int *cuts = ARENA_ARRAY(scratch, int, stages + 1);
    const bool whole = balance(places, stages, scratch, cuts) <= nearly * most;
    const double slowest = whole ? slowest_rank(places, cuts, schedule, ranks) : divided;
    arena_release(arena, scratch);
    return slowest;
}

int policy_pp(struct draft *draft, const struct pass_context *context) {
    const struct graph *graph = draft->graph;
    struct diags *diags = context->diags;
    const int stages = draft_stages(draft), forward = count_forward(graph);
    if (stages == 1) return 0;
    if (forward < stages)
        return diag_error(diags, 421, EXIT_LIMIT, graph->name,
                          "%d pipeline stage(s), but the model has only %d node(s)", stages, forward);
    struct places *places = ARENA_NEW(graph->arena, struct places);
    int *cuts = ARENA_ARRAY(graph->arena, int, stages + 1);
    list_places(places, draft, context);
    keep_together(places, graph);
    if (places->n - 1 < stages)
        return diag_error(diags, 421, EXIT_LIMIT, graph->name,
                          "%d pipeline stage(s), but the model can be divided into at most %d", stages, places->n - 1);
    find_given(places, draft, stages);
    find_ranks(places, draft, stages);
    choose_cuts(places, stages, graph->arena, cuts);
    if (cuts[stages] < 0)
        return diag_error(diags, 421, EXIT_LIMIT, graph->name,
                          "no %d pipeline stage(s) have the nodes that --refine gives them", stages);
    EACH_VALUE(graph->order.at, forward, i, const int id) {
        for (int s = 0; s < stages; s++)
            if (cuts[s] <= places->position[id]) draft->stage[id] = s;
    }
    follow_readers(draft);
    keep_updates(draft);
    for (int i = 0; i < forward && draft->given_stage; i++) {
        const int id = graph->order.at[i];
        if (draft->given_stage[id] >= 0) draft->stage[id] = draft->given_stage[id];
    }
    stages_follow(draft);
    return policy_constrain_stages(draft, context);
}
