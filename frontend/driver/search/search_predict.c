/* What a candidate is predicted to take and to need, from the plan of its base. */
#include <math.h>
#include <string.h>

#include "frontend/driver/search/search.h"
#include "passes/place/zero.h"
#include "passes/plan/policy/policy.h"

/* The ranks among which ZeRO divides: those of all replica axes, and of scale units those of a group. */
static double zero_ranks(const struct candidate *c) {
    const double units = c->units / (double)c->decisions.zero_groups;
    return units * search_ways(c, AXIS_CONTEXT) * search_ways(c, AXIS_DATA);
}

/* True if a rank has the first and the last stage. */
static bool has_both_ends(const struct candidate *c) {
    return c->schedule.kind && c->schedule.kind->is_v;
}

/* What the fullest rank has of a part that follows parameters. Those that are of no layer are of the vocabulary: of the
 * first or the last stage, and tied ones of both. */
static double held(const struct search *search, const struct candidate *c, const struct outcome *base,
                   enum outcome_part part) {
    const double stages = search_ways(c, AXIS_PIPELINE), share = 1 / stages;
    const double of_layers = base->layers * base->layer[part], others = base->part[part] - of_layers;
    if (stages == 1 || !base->layers) return share * base->part[part];
    return share * of_layers + (search->tied > 0 || has_both_ends(c) ? others : others / 2);
}

/* A rank adds the gradients of micro-batches to their sums, if there are several, or with ZeRO 2 and 3. In a base
 * of one micro-batch there are none: they have as many bytes as the weights. */
static double sums(const struct search *search, const struct candidate *c, const struct outcome *base) {
    if (!decisions_sum_gradients(&c->decisions, search_micro_batches(search->given, c))) return 0;
    return held(search, c, base, base->part[OUTCOME_GRADIENTS] > 0 ? OUTCOME_GRADIENTS : OUTCOME_WEIGHTS);
}

double search_states(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const double ranks = zero_ranks(c);
    if (base->part[OUTCOME_UPDATE] == 0) return held(search, c, base, OUTCOME_WEIGHTS);
    return held(search, c, base, OUTCOME_WEIGHTS) / (c->decisions.zero >= ZERO_PARAMETERS ? ranks : 1) +
           sums(search, c, base) / (c->decisions.zero >= ZERO_SUMS ? ranks : 1) +
           held(search, c, base, OUTCOME_OPTIMIZER) / (c->decisions.zero >= ZERO_STATES ? ranks : 1);
}

static bool recomputes_all(const struct candidate *c) {
    return c->decisions.recompute && strcmp(c->decisions.recompute, "full") == 0;
}

/* Bytes of a layer's activations for a micro-batch. Weights in the type of products are among what is kept from the
 * forward to the backward phase; not if they are recomputed, or with ZeRO 3 gathered for each phase. */
static double layer_activations(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const bool gathers = c->decisions.zero >= ZERO_PARAMETERS && search->given->amp && !c->decisions.recompute;
    return base->layer[OUTCOME_OTHERS] - (gathers ? base->layer[OUTCOME_WEIGHTS] / 2 : 0);
}

enum { BOUNDARY = 4 };

/* Bytes of all layers that ranks keep of each micro-batch in flight, in slots, where less memory is shared than in the
 * base. Layers that are recomputed as a whole keep one value each, and each stage has BOUNDARY more of what crosses its
 * boundary: what it receives and sends, forward and backward, or of two micro-batches of inference. Other values that
 * are recomputed are in memory for one micro-batch at a time. */
static double kept_activations(const struct candidate *c, const struct outcome *base, double of_layers) {
    static const double recomputed = 0.88;
    const double stages = (double)c->schedule.chunks * search_ways(c, AXIS_PIPELINE),
                 kept = schedule_kept(&c->schedule);
    if (!recomputes_all(c) || !base->layers) return of_layers * kept * (c->decisions.recompute ? recomputed : 1);
    return kept * (of_layers + BOUNDARY * stages * fmin(base->crossing, of_layers / base->layers));
}

struct schedule_outline search_outline(const struct search *search, const struct candidate *c) {
    struct outlines *known = search->outlines;
    const int ranks = search_ways(c, AXIS_PIPELINE);
    const int64_t micro = search_micro_batches(search->given, c), most = 2 * (int64_t)ranks; /* more change nothing */
    const int64_t key[] = {(int64_t)(intptr_t)c->schedule.kind, c->schedule.chunks, ranks, micro < most ? micro : most};
    const int at = map_get(&known->index, (const char *)key, sizeof key);
    if (at >= 0) return known->all.at[at];
    const struct schedule_outline outline = schedule_outline(&c->schedule, ranks, (int)key[3], search->arena);
    map_put(&known->index, (const char *)key, sizeof key, known->all.n);
    VEC_PUSH(search->arena, &known->all, outline);
    return outline;
}

/* The first rank keeps most micro-batches of its layers, and the last one has fewer layers, and what is no layer. A
 * layer that is recomputed as a whole is in memory on all ranks, and `others` of its base. */
double search_activations(const struct search *search, const struct candidate *c, const struct outcome *base,
                          double share) {
    const double stages = search_ways(c, AXIS_PIPELINE), all = base->part[OUTCOME_OTHERS];
    const double of_layers = base->layers ? base->layers * layer_activations(search, c, base) : all;
    const double others = base->layers ? all - base->layers * base->layer[OUTCOME_OTHERS] : 0;
    if (stages == 1) return others + share * of_layers;
    const double kept = share * kept_activations(c, base, of_layers);
    const struct schedule_outline outline = search_outline(search, c);
    const double first = kept * outline.slots / stages;
    if (base->part[OUTCOME_UPDATE] == 0) return others + first + BOUNDARY * base->crossing;
    if (!base->layers || has_both_ends(c) || recomputes_all(c)) return others + first;
    const double rest = search_rest(base), longest = (base->layers + rest) / stages / base->layers;
    const double shortest = fmax(0, longest - rest / base->layers);
    return fmax(longest * stages * first, others + shortest * stages * kept * outline.last / stages);
}

/* Parameters that ranks exchange, `ways` of them, `stride` apart on the machine: each tensor by a collective. */
struct moved {
    double bytes, tensors, ways, stride;
};

/* Seconds in which all of them are moved so many times. */
static double passing(const struct search *search, enum collective kind, double times, const struct moved *moved) {
    const struct machine_group group = {&search->machine, moved->ways, moved->stride};
    if (moved->ways < 2) return 0;
    return search->machine.correction * times * machine_collective(&group, kind, moved->bytes, fmax(1, moved->tensors));
}

/* The part of the parameters that are of layers: their gathers are prefetched. Without layers: half. */
static double prefetched(const struct outcome *base) {
    return base->layers ? base->layers * base->layer[OUTCOME_WEIGHTS] / base->part[OUTCOME_WEIGHTS] : 0.5;
}

/* What a rank exchanges of the parameters and their gradients: along the axes context and data, with the scale units of
 * its ZeRO group, and with other groups. With ZeRO, each has a part of what the one before has. */
struct exchanged {
    struct moved along, units, groups;
};

static struct exchanged exchanged_of(const struct search *search, const struct candidate *c,
                                     const struct outcome *base) {
    const double bytes = held(search, c, base, OUTCOME_WEIGHTS), tensors = held(search, c, base, OUTCOME_TENSORS);
    const double inner = (double)search_ways(c, AXIS_CONTEXT) * search_ways(c, AXIS_DATA);
    const double ways = (double)c->units / c->decisions.zero_groups;
    double stride = 1;
    for (int a = 0; a < AXIS_ROLES; a++) stride *= search_ways(c, (enum axis_role)a);
    const double part = c->decisions.zero ? bytes / inner : bytes;
    return (struct exchanged){{bytes, tensors, inner, search_ways(c, AXIS_TENSOR)},
                              {part, tensors, ways, stride},
                              {part / ways, tensors, c->decisions.zero_groups, stride * ways}};
}

/* Seconds of a step that are for its micro-batches, and those that are once. */
struct exchange {
    double each, once;
};

/* Seconds in which ranks exchange gradients and parameters. ZeRO 0 and 1 sum gradients over scale units once, beside
 * the last micro-batch unless they wait for sums along axes of the mesh, which are in the base. ZeRO 2 and 3 sum them
 * in each micro-batch, along axes too, beside nothing. New parameters are gathered at the end, with ZeRO 3 in the type
 * of products before the forward and before the backward phase of each micro-batch, most of them beside the computation
 * of another layer. ZeRO groups sum what each rank has of the gradients once. */
static struct exchange exchanging(const struct search *search, const struct candidate *c, const struct outcome *base,
                                  double micro_batches, double worked) {
    static const double beside = 0.87; /* of the gathers that are prefetched: not the first one of a phase */
    const struct machine *machine = &search->machine;
    const int64_t zero = c->decisions.zero;
    struct exchanged of = exchanged_of(search, c, base);
    const struct zero_moves moves = zero_moves(zero, (int64_t)micro_batches);
    const double last = worked / micro_batches;
    const double own = (base->part[OUTCOME_SUMMING] + base->part[OUTCOME_HIDDEN]) / search_ways(c, AXIS_PIPELINE);
    const double along = zero >= ZERO_SUMS ? passing(search, moves.sum, (double)moves.sums, &of.along) : 0;
    const double sums = along + passing(search, moves.sum, (double)moves.sums, &of.units);
    if (zero >= ZERO_PARAMETERS && search->given->amp) of.units.bytes /= 2, of.along.bytes /= 2;
    const double gathers =
        passing(search, COLLECTIVE_ALL_GATHER, (double)moves.gathers, &of.units) +
        (zero >= ZERO_SUMS ? passing(search, COLLECTIVE_ALL_GATHER, (double)moves.gathers, &of.along) : 0);
    const double groups = passing(search, COLLECTIVE_ALL_REDUCE, 1, &of.groups);
    if (zero < ZERO_SUMS) {
        const double begun = machine_hidden(machine, last, of.along.ways > 1 ? own : own + sums);
        return (struct exchange){0, own + sums - begun + gathers + groups};
    }
    const double once = (of.along.ways > 1 ? 0 : own) + groups - machine_hidden(machine, last, groups);
    if (zero < ZERO_PARAMETERS) return (struct exchange){sums, gathers + once};
    return (struct exchange){sums + gathers - machine_hidden(machine, worked, beside * prefetched(base) * gathers),
                             once};
}

double search_working(const double part[OUTCOME_PARTS]) {
    return part[OUTCOME_STEP] - part[OUTCOME_UPDATE] - part[OUTCOME_SUMMING];
}

/* Layers that the rank that works longest of equal stages takes as long as. */
static double longest_of_equal(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const int ranks = search_ways(c, AXIS_PIPELINE), stages = ranks * c->schedule.chunks;
    const struct {
        double rest;
        int64_t layers, ranks, chunks, is_v;
    } key = {search_rest(base), base->layers, ranks, c->schedule.chunks, c->schedule.kind && c->schedule.kind->is_v};
    struct balances *known = search->balances;
    const int at = map_get(&known->index, (const char *)&key, sizeof key);
    if (at >= 0) return known->all.at[at];
    struct arena *scratch = arena_scratch(search->arena);
    double *each = ARENA_ARRAY(scratch, double, stages);
    for (int s = 0; s < stages; s++) each[s] = 1;
    const double longest = policy_pp_of_layers(each, key.rest, base->layers, ranks, &c->schedule, scratch);
    arena_release(search->arena, scratch);
    map_put(&known->index, (const char *)&key, sizeof key, known->all.n);
    VEC_PUSH(search->arena, &known->all, longest);
    return longest;
}

/* Seconds in which the rank that works longest computes the micro-batches of the base. */
static double longest_of(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const struct mesh_axis *own = search_own(c);
    const int ranks = search_ways(c, AXIS_PIPELINE);
    if (own && c->base->layers && c->larger->layers) {
        double *seconds = ARENA_ARRAY(search->arena, double, ranks);
        for (int s = 0; s < ranks; s++)
            seconds[s] = search_working(s >= own->first && s < own->end ? c->larger->layer : c->base->layer);
        return policy_pp_of_layers(seconds, search_rest(c->base), c->base->layers, ranks, &c->schedule, search->arena);
    }
    if (ranks == 1 || !base->layers) return search_working(base->part) / ranks;
    return search_working(base->layer) * longest_of_equal(search, c, base);
}

double search_rest(const struct outcome *outcome) {
    return search_working(outcome->part) / search_working(outcome->layer) - outcome->layers;
}

double search_samples(const struct candidate *c) {
    return c->batch ? c->batch : 1;
}

/* Bytes of the gradients of tied weights that the last stage sends to the first one for each micro-batch: in the type
 * of products. */
static double tied_gradients(const struct search *search, const struct candidate *c) {
    const double bytes = search->given->amp ? 2 : 4;
    if (search->tied_once || search_ways(c, AXIS_PIPELINE) == 1) return 0;
    return bytes * search->tied / search_ways(c, AXIS_TENSOR);
}

/* Those that the first stage keeps: in two slots, and with several stages on a rank in four
 * (passes/place/schedule.c). */
static double tied_slots(const struct search *search, const struct candidate *c) {
    const double slots = c->schedule.chunks > 1 ? 4 : 2;
    return tied_gradients(search, c) * fmin(slots, (double)search_micro_batches(search->given, c));
}

/* Seconds of a micro-batch that ranks with slices of all gradients and parameters save, as with ZeRO 2 and 3. Sums of
 * gradients are added to slices: three times their bytes are moved, of which a cast before the sums takes back two
 * thirds with --amp. ZeRO 3 casts slices of the parameters too, for each phase that reads them. */
static double slicing(const struct search *search, const struct candidate *c, const struct outcome *base, int64_t zero,
                      double micro_batches) {
    const double bandwidth = search->machine.bandwidth * search->machine.traffic;
    const double adds = micro_batches > 1 ? (search->given->amp ? 1 : 3) * base->part[OUTCOME_GRADIENTS] : 0;
    const double casts = zero >= ZERO_PARAMETERS && search->given->amp
                             ? (c->decisions.recompute ? 2 : 1) * base->part[OUTCOME_WEIGHTS]
                             : 0;
    return zero < ZERO_SUMS || bandwidth <= 0 ? 0 : search->machine.correction * (adds + casts) / bandwidth;
}

double search_least(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const double worked = search_working(base->part) / base->micro_batches;
    double ranks = 1;
    for (int a = 0; a < AXIS_PIPELINE; a++) ranks *= search_ways(c, (enum axis_role)a);
    return (worked - fmin(worked / 2, slicing(search, c, base, ZERO_PARAMETERS, INFINITY))) * ranks /
           ((double)search->given->runtime_ngpus * search_samples(c));
}

/* Seconds of a micro-batch in which a rank waits for what its stages receive: of two stages, each from one side. The
 * first one also receives gradients of tied weights, and where ranks have several stages, ahead. */
static double receiving(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const int stages = search_ways(c, AXIS_PIPELINE), chunks = c->schedule.chunks;
    const double times = chunks * (stages * chunks == 2 || base->part[OUTCOME_UPDATE] == 0 ? 1 : 2);
    double stride = 1;
    for (int a = 0; a < AXIS_PIPELINE; a++) stride *= search_ways(c, a);
    const struct machine_group group = {&search->machine, stages, stride};
    if (stages == 1 || base->crossing == 0) return 0;
    const double next = machine_collective(&group, COLLECTIVE_SEND, base->crossing, 1);
    const double bytes = chunks == 1 ? tied_gradients(search, c) : 0;
    const double tied = bytes > 0 ? machine_collective(&group, COLLECTIVE_SEND, bytes, 1) : 0;
    return search->machine.correction * fmax(times * next, next + tied);
}

void search_predict(const struct search *search, struct candidate *c, const struct outcome *base) {
    const double stages = search_ways(c, AXIS_PIPELINE), micro = (double)search_micro_batches(search->given, c);
    const double *part = base->part;
    const struct schedule_outline outline = stages > 1 ? search_outline(search, c) : (struct schedule_outline){0};
    const double worked = micro * longest_of(search, c, base) / base->micro_batches;
    const struct exchange exchange =
        part[OUTCOME_UPDATE] > 0 ? exchanging(search, c, base, micro, worked) : (struct exchange){0};
    double seconds = (worked + micro * receiving(search, c, base) + exchange.each) * (1 + outline.waiting / micro);
    seconds += exchange.once;
    seconds -=
        fmin(worked / 2, micro / stages * (1 - 1 / zero_ranks(c)) * slicing(search, c, base, c->decisions.zero, micro));
    seconds += part[OUTCOME_UPDATE] / stages / (c->decisions.zero ? zero_ranks(c) : 1);
    c->seconds = seconds / (c->units * micro * search_samples(c));
    c->memory = search_states(search, c, base) + search_activations(search, c, base, 1) + tied_slots(search, c);
}

/* The layers that a stage of one kind gets, as a multiple of what each of as many equal stages would get, where all
 * stages take equally long. `own`: seconds of the whole model on a stage of that kind. */
static double share_of(const struct candidate *c, double own) {
    const struct mesh_axis *of = search_own(c);
    const double larger = of->end - of->first, stages = search_ways(c, AXIS_PIPELINE);
    return stages / own /
           (larger / search_working(c->larger->part) + (stages - larger) / search_working(c->base->part));
}

struct outcome search_unequal(const struct candidate *c) {
    const double smaller = share_of(c, search_working(c->base->part)),
                 larger = share_of(c, search_working(c->larger->part));
    const bool most = larger * c->larger->part[OUTCOME_MEMORY] > smaller * c->base->part[OUTCOME_MEMORY];
    struct outcome out = most ? *c->larger : *c->base;
    for (int p = 0; p < OUTCOME_PARTS; p++) {
        out.part[p] *= most ? larger : smaller;
        out.layer[p] *= most ? larger : smaller;
    }
    return out;
}
