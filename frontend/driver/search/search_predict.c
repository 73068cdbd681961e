/* What a candidate is predicted to take and to need, from the plan of its base. */
#include <math.h>
#include <string.h>

#include "frontend/driver/search/search.h"
#include "passes/plan/schedules.h"

/* The ranks among which ZeRO divides: those of all replica axes, and of scale units those of a group. */
static double zero_ranks(const struct candidate *c) {
    const double units = c->law->copies * c->units / (double)c->groups;
    return units * c->ways[SEARCH_CONTEXT] * c->ways[SEARCH_DATA];
}

double search_states(const struct candidate *c, const struct outcome *base) {
    const double held = (double)c->law->copies / c->ways[SEARCH_PIPELINE], *part = base->part;
    const double ranks = zero_ranks(c);
    return held *
           (part[OUTCOME_WEIGHTS] / (c->zero == 3 ? ranks : 1) + part[OUTCOME_GRADIENTS] / (c->zero >= 2 ? ranks : 1) +
            part[OUTCOME_OPTIMIZER] / (c->zero >= 1 ? ranks : 1));
}

/* Times the activations of a micro-batch's layers that a rank keeps for each in flight. Layers that are recomputed as a
 * whole keep one value each, and each stage has four more of that size: what it receives and sends, forward and
 * backward. */
static double kept_times(const struct candidate *c, const struct outcome *base) {
    static const double boundary = 4;
    const struct schedule_law *law = c->law;
    if (!c->recompute || strcmp(c->recompute, "full") != 0 || !base->layers) return law->kept;
    return law->kept_full * (1 + boundary * law->chunks * c->ways[SEARCH_PIPELINE] / base->layers);
}

double search_activations(const struct candidate *c, const struct outcome *base, double micro_batches, double share) {
    const double stages = c->ways[SEARCH_PIPELINE], all = base->part[OUTCOME_OTHERS];
    const double of_layers = base->layers ? base->layers * base->layer[OUTCOME_OTHERS] : all;
    if (stages == 1) return all + (share - 1) * of_layers;
    const struct schedule_law *law = c->law;
    return all - of_layers +
           kept_times(c, base) * share * of_layers * fmin(law->flight * stages, micro_batches) / stages;
}

/* Seconds of as many collectives over so many bytes, along an axis of the mesh. */
static double passing(const struct search *search, enum collective kind, double times, double bytes, double ways,
                      double stride) {
    const struct machine_group group = {&search->machine, ways, stride};
    return search->machine.correction * times * machine_collective(&group, kind, bytes, 1);
}

/* The part of the parameters that are of layers: their gathers are prefetched. Without layers: half. */
static double prefetched(const struct outcome *base) {
    return base->layers ? base->layers * base->layer[OUTCOME_WEIGHTS] / base->part[OUTCOME_WEIGHTS] : 0.5;
}

/* Seconds in which scale units exchange the gradients and parameters of a rank. ZeRO 0 and 1 sum the gradients beside
 * the last micro-batch, ZeRO 2 and 3 in each one, beside nothing. The new parameters are gathered at the end, with ZeRO
 * 3 before the forward and before the backward phase of each micro-batch, in the type of products, most of them beside
 * the computation of another layer. ZeRO groups sum what each rank has of the gradients once, with ZeRO 1 after the
 * last micro-batch. */
static double exchanging(const struct search *search, const struct candidate *c, const struct outcome *base,
                         double micro_batches, double worked) {
    static const double beside = 0.87; /* of the gathers that are prefetched: not the first one of a phase */
    const struct machine *machine = &search->machine;
    double stride = 1;
    for (int a = 0; a < SEARCH_AXES; a++) stride *= c->ways[a];
    stride /= c->law->copies;
    const double parameters = base->part[OUTCOME_WEIGHTS] * c->law->copies / c->ways[SEARCH_PIPELINE];
    const double ways = c->units * c->law->copies / (double)c->groups;
    const enum collective sum = c->zero ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE;
    const double sums = c->zero >= 2 ? micro_batches : 1;
    const double gathers = c->zero == 3 ? 2 * micro_batches * (search->given->amp ? 0.5 : 1) : c->zero ? 1 : 0;
    const double summing = passing(search, sum, sums, parameters, ways, stride);
    const double gathering = passing(search, COLLECTIVE_ALL_GATHER, gathers, parameters, ways, stride);
    const double between =
        c->groups > 1 ? passing(search, COLLECTIVE_ALL_REDUCE, 1, parameters / ways, c->groups, stride * ways) : 0;
    const double hidden = c->zero == 3   ? machine_hidden(machine, worked, beside * prefetched(base) * gathering)
                          : c->zero == 2 ? 0
                                         : machine_hidden(machine, worked / micro_batches, summing);
    const double beside_groups = c->zero >= 2 ? machine_hidden(machine, worked / micro_batches, between) : 0;
    return summing + gathering - hidden + between - beside_groups;
}

/* The layers that the slowest of equal stages takes as long as: they have whole layers, and what is no layer takes as
 * long as `rest` of them and is in the last stage. */
static double slowest_stage(double rest, int layers, int stages) {
    const int even = (int)fmin((rest + layers) / stages, (double)layers / (stages - 1));
    double best = INFINITY;
    for (int others = even; others <= even + 1; others++)
        best = fmin(best, fmax(rest + fmax(0, layers - others * (stages - 1)), others));
    return best;
}

/* Equal stages as policy_pp (passes/plan/policy_pp.c) chooses them: the last ones are as long as the slowest, and the
 * first ones have the layers that are left, at least one each. */
struct equal_stages {
    double rest;
    int layers, stages;
    double slowest;
};

/* What the stage takes as long as, in layers. */
static double length_of(const struct equal_stages *s, int stage) {
    const int full = (int)s->slowest, last = (int)fmin(s->slowest - s->rest + 1e-9, s->layers - s->stages + 1);
    if (stage == s->stages - 1) return last + s->rest;
    const int left = s->layers - last - full * (s->stages - 2 - stage) - stage;
    return left < 1 ? 1 : left < full ? left : full;
}

/* The same as slowest_stage for the slowest rank, of a schedule in which each has several stages: `rank + i * ranks`,
 * those with odd i of V schedules from the last rank on. It is one of the first two or the last two. */
static double slowest_rank(const struct candidate *c, double rest, int layers) {
    const int chunks = c->law->chunks / c->law->copies, ranks = c->ways[SEARCH_PIPELINE], stages = ranks * chunks;
    const bool is_v = chunks > 1 && schedule_is_v(c->schedule);
    const struct equal_stages equal = {rest, layers, stages, slowest_stage(rest, layers, stages)};
    double most = chunks > 1 ? 0 : equal.slowest;
    for (int rank = 0; rank < ranks && chunks > 1; rank = rank == 1 && ranks > 4 ? ranks - 2 : rank + 1) {
        double sum = 0;
        for (int i = 0; i < chunks; i++)
            sum += length_of(&equal, i * ranks + (is_v && i % 2 ? ranks - 1 - rank : rank));
        most = fmax(most, sum);
    }
    return most;
}

double search_working(const double part[OUTCOME_PARTS]) {
    return part[OUTCOME_STEP] - part[OUTCOME_UPDATE];
}

/* Seconds of a layer on a stage of the candidate. */
static double layer_seconds(const struct candidate *c, int stage) {
    const struct outcome *of = stage >= c->own.first && stage < c->own.end ? c->larger : c->base;
    return search_working(of->layer);
}

/* True if the candidate's stages can have all layers in that time. What is no layer is in the last one. */
static bool can_compute(const struct candidate *c, double rest, double seconds) {
    const int stages = c->ways[SEARCH_PIPELINE];
    int layers = 0;
    for (int stage = 0; stage < stages; stage++) {
        const double each = layer_seconds(c, stage), left = seconds / each - (stage == stages - 1 ? rest : 0);
        if (left < 0) return false;
        layers += (int)(left * (1 + 1e-9));
    }
    return layers >= c->base->layers;
}

/* The seconds of the slowest of unequal stages, which have whole layers. */
static double slowest_unequal(const struct candidate *c, double rest) {
    double least = INFINITY;
    for (int stage = 0; stage < c->ways[SEARCH_PIPELINE]; stage++)
        for (int layers = 0; layers <= c->base->layers; layers++) {
            const double last = stage == c->ways[SEARCH_PIPELINE] - 1 ? rest : 0;
            const double seconds = (layers + last) * layer_seconds(c, stage);
            if (seconds < least && can_compute(c, rest, seconds)) least = seconds;
        }
    return least;
}

double search_rest(const struct outcome *outcome) {
    return search_working(outcome->part) / search_working(outcome->layer) - outcome->layers;
}

/* The part of 1f1b's waiting that the schedule has with that many micro-batches. */
static double waiting_part(const struct schedule_law *law, double stages, double micro) {
    const double enough = law->flight * stages;
    return micro >= enough ? law->waiting : law->few + (law->waiting - law->few) * (micro - 1) / (enough - 1);
}

double search_samples(const struct candidate *c) {
    return c->batch ? c->batch : 1;
}

/* Bytes of the gradients of tied weights that the last stage sends to the first one for each micro-batch: in the type
 * of products. */
static double tied_gradients(const struct search *search, const struct candidate *c) {
    const double bytes = search->given->amp ? 2 : 4;
    return c->ways[SEARCH_PIPELINE] > 1 ? bytes * search->tied / c->ways[SEARCH_TENSOR] : 0;
}

/* Those that the first stage keeps: in two slots, and with several stages on a rank in four
 * (passes/place/messages.h). */
static double tied_slots(const struct search *search, const struct candidate *c) {
    const double slots = c->law->chunks > c->law->copies ? 4 : 2;
    return tied_gradients(search, c) * fmin(slots, (double)search_micro_batches(search->given, c));
}

/* Seconds of a step in which a rank adds the gradients of micro-batches to their sums, without ZeRO: three times their
 * bytes are moved. */
static double adding(const struct search *search, const struct candidate *c, const struct outcome *base,
                     double micro_batches) {
    const double bytes = base->part[OUTCOME_GRADIENTS] * c->law->copies / c->ways[SEARCH_PIPELINE];
    const double bandwidth = search->machine.bandwidth * search->machine.traffic;
    return micro_batches > 1 && bandwidth > 0 ? search->machine.correction * micro_batches * 3 * bytes / bandwidth : 0;
}

/* Seconds of a micro-batch in which a rank waits for what its stages receive: of two stages, each from one side. The
 * first one also receives gradients of tied weights, and where ranks have several stages, ahead. */
static double receiving(const struct search *search, const struct candidate *c, const struct outcome *base) {
    const int stages = c->ways[SEARCH_PIPELINE], chunks = c->law->chunks / c->law->copies;
    const double times = chunks * (stages * chunks == 2 || base->part[OUTCOME_UPDATE] == 0 ? 1 : 2);
    double stride = 1;
    for (int a = 0; a < SEARCH_PIPELINE; a++) stride *= c->ways[a];
    const struct machine_group group = {&search->machine, stages, stride};
    if (stages == 1 || base->crossing == 0) return 0;
    const double next = machine_collective(&group, COLLECTIVE_SEND, base->crossing, 1);
    const double tied =
        search->tied > 0 && chunks == 1 ? machine_collective(&group, COLLECTIVE_SEND, tied_gradients(search, c), 1) : 0;
    return search->machine.correction * fmax(times * next, next + tied);
}

void search_predict(const struct search *search, struct candidate *c, const struct outcome *base) {
    const struct schedule_law *law = c->law;
    const double stages = c->ways[SEARCH_PIPELINE], micro = (double)search_micro_batches(search->given, c);
    const double *part = base->part;
    const double ways = c->units * law->copies;
    double longest = search_working(part) / stages;
    if (c->own.ways && c->base->layers)
        longest = slowest_unequal(c, search_rest(c->base));
    else if (stages > 1 && base->layers)
        longest = search_working(base->layer) * slowest_rank(c, search_rest(base), base->layers);
    const double worked = micro * longest / base->micro_batches;
    double seconds =
        (worked + micro * receiving(search, c, base)) * (1 + waiting_part(law, stages, micro) * (stages - 1) / micro);
    if (ways > 1 && part[OUTCOME_UPDATE] > 0) seconds += exchanging(search, c, base, micro, worked);
    if (c->zero >= 2) seconds -= fmin(worked / 2, adding(search, c, base, micro) * (1 - 1 / zero_ranks(c)));
    seconds += part[OUTCOME_UPDATE] * law->copies / stages / (c->zero ? zero_ranks(c) : 1);
    c->seconds = seconds / (c->units * micro * search_samples(c));
    c->memory = search_states(c, base) + search_activations(c, base, micro, 1) + tied_slots(search, c);
}

/* The layers that a stage of one kind gets, as a multiple of what each of as many equal stages would get, where all
 * stages take equally long. `own`: seconds of the whole model on a stage of that kind. */
static double share_of(const struct candidate *c, double own) {
    const double larger = c->own.end - c->own.first, stages = c->ways[SEARCH_PIPELINE];
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
