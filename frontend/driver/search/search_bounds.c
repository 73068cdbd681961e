/* Lower bounds of time and memory of candidates, from the plans of others that are at least as fast. */
#include <math.h>

#include "frontend/driver/search/search.h"

bool search_has_faster_form(const struct candidate *c, const struct candidate *than) {
    const enum attention_form slower = than->decisions.attention;
    return c->decisions.cut == than->decisions.cut &&
           c->decisions.attention == (slower == ATTENTION_RING ? ATTENTION_GATHER : slower);
}

void search_take_form(struct candidate *c, const struct candidate *from) {
    c->decisions.attention = from->decisions.attention, c->decisions.cut = from->decisions.cut;
}

static bool same_form(const struct candidate *a, const struct candidate *b) {
    return a->decisions.attention == b->decisions.attention && a->decisions.cut == b->decisions.cut;
}

/* True if the candidate's base is that of `than`, with micro-batches of any size, and with what makes a step slower, to
 * save memory or to use more ranks for a sample. */
static bool is_slower(const struct candidate *c, const struct candidate *than) {
    const char *recompute = than->decisions.recompute;
    if ((recompute && c->decisions.recompute != recompute) ||
        search_ways(c, AXIS_TENSOR) != search_ways(than, AXIS_TENSOR) ||
        search_ways(c, AXIS_CONTEXT) < search_ways(than, AXIS_CONTEXT))
        return false;
    struct candidate like = *c;
    like.batch = than->batch;
    like.decisions.recompute = recompute;
    like.decisions.mesh.axis[AXIS_CONTEXT].size = search_ways(than, AXIS_CONTEXT);
    if (search_ways(than, AXIS_CONTEXT) == 1 || search_has_faster_form(than, c)) search_take_form(&like, than);
    return search_same_base(&like, than);
}

static bool has_slower_base(const struct candidate *c, const struct candidate *than) {
    return c->batch == than->batch && is_slower(c, than);
}

/* What a candidate needs at least, by the plan of a base `of` with the same recomputation and fewer sequences, or fewer
 * ranks along tensor and context; by that of another one, or one that gathers keys, only its states are known. */
static double least_memory(const struct search *search, const struct candidate *c, const struct candidate *of,
                           const struct outcome *base) {
    static const double part_that_follows = 0.8;
    const double larger = c->batch ? (double)c->batch / of->batch : 1;
    const double divided = (double)search_ways(c, AXIS_TENSOR) / search_ways(of, AXIS_TENSOR);
    const double share =
        part_that_follows * larger * search_ways(of, AXIS_CONTEXT) / search_ways(c, AXIS_CONTEXT) / divided;
    const bool gathers = !same_form(c, of) && search_ways(of, AXIS_CONTEXT) > 1;
    if (c->decisions.recompute != of->decisions.recompute || gathers) return search_states(search, c, base) / divided;
    /* weights in the type of products are among the activations, and do not grow with the micro-batch */
    const double casts = larger > 1 && search->given->amp ? base->part[OUTCOME_WEIGHTS] / 2 : 0;
    const double grown = fmin(share, 1) * search_activations(search, c, base, fmax(share, 1)) - fmax(share, 1) * casts;
    return search_states(search, c, base) / divided + fmax(0, grown);
}

/* Sequences of the candidate's micro-batch if each of the ranks that divide it has one; 0: they are as given. */
static int smallest_batch(const struct candidate *c) {
    return c->batch ? search_ways(c, AXIS_EXPERT) * search_ways(c, AXIS_DATA) : 0;
}

/* The plan of the base with micro-batches of that size, that recomputation and so many ranks along context, with the
 * candidate's form of attention, and none along tensor. NULL: not known. */
static const struct outcome *plain_outcome(struct search *search, const struct candidate *c, int batch,
                                           const char *recompute, int context) {
    struct candidate plain = *c;
    plain.decisions.mesh.axis[AXIS_TENSOR].size = 1, plain.decisions.mesh.axis[AXIS_CONTEXT].size = context;
    plain.batch = batch, plain.decisions.sequence_parallel = false;
    if (context == 1) plain.decisions.attention = ATTENTION_GATHER, plain.decisions.cut = CUT_ORDERED;
    plain.decisions.recompute = recompute;
    const struct search_family *family = search_family_of(search, &plain);
    const struct outcome *base = family ? search->all.at[family->members.at[0]].base : NULL;
    return base && !base->refused ? base : NULL;
}

/* The part of a micro-batch. */
static double each(const struct outcome *outcome, enum outcome_part part) {
    return outcome->part[part] / outcome->micro_batches;
}

/* Seconds of a micro-batch. */
static double micro_batch(const struct outcome *outcome) {
    return search_working(outcome->part) / outcome->micro_batches;
}

/* Seconds that the recomputation of the candidate adds to a micro-batch of one rank, at least: what it adds to the
 * smallest one, at the rates of large products. Of that, only the operations grow with the micro-batch: others are of
 * weights, which are cast again. */
static double least_recomputation(struct search *search, const struct candidate *c) {
    const int smallest = smallest_batch(c);
    const struct outcome *without = plain_outcome(search, c, smallest, NULL, 1);
    const struct outcome *with = plain_outcome(search, c, smallest, c->decisions.recompute, 1);
    if (!without || !with || !smallest) return 0;
    const double products = fmax(0, each(with, OUTCOME_PRODUCTS) - each(without, OUTCOME_PRODUCTS));
    return fmax(each(with, OUTCOME_LEAST) - each(without, OUTCOME_LEAST), products * c->batch / smallest);
}

/* Seconds that the ranks of the candidate along context need more, all together, for a micro-batch than one rank, at
 * least: its products are larger. */
static double least_division(struct search *search, const struct candidate *c) {
    const int ranks = search_ways(c, AXIS_CONTEXT);
    const struct outcome *without = plain_outcome(search, c, c->batch, NULL, 1);
    const struct outcome *with = plain_outcome(search, c, c->batch, NULL, ranks);
    return without && with ? fmax(0, ranks * micro_batch(with) - micro_batch(without)) : 0;
}

/* Seconds of a micro-batch of the base `of` that the candidate takes longer at least, since it recomputes or divides
 * sequences, by the bases without ranks along tensor, which divide no more than this time. */
static double least_addition(struct search *search, const struct candidate *c, const struct candidate *of) {
    const bool recomputes = c->decisions.recompute && !of->decisions.recompute;
    const bool divides =
        search_ways(c, AXIS_CONTEXT) > 1 && search_ways(of, AXIS_CONTEXT) == 1 && c->batch == of->batch;
    const double recomputing = recomputes ? least_recomputation(search, c) / search_ways(of, AXIS_CONTEXT) : 0;
    return (recomputing + (divides ? least_division(search, c) : 0)) / search_ways(of, AXIS_TENSOR);
}

/* True if least_addition follows from the plan of this base. */
static bool tells_addition(const struct candidate *of) {
    const bool divides = search_ways(of, AXIS_CONTEXT) > 1, recomputes = of->decisions.recompute;
    return search_ways(of, AXIS_TENSOR) == 1 && divides != recomputes;
}

/* The candidate with the base `of`, and with scale units in place of its ranks along context. */
static struct candidate with_base(const struct candidate *c, const struct candidate *of) {
    struct candidate like = *c;
    like.decisions.recompute = of->decisions.recompute, search_take_form(&like, of);
    like.units = c->units * search_ways(c, AXIS_CONTEXT) / search_ways(of, AXIS_CONTEXT);
    like.decisions.mesh.axis[AXIS_CONTEXT].size = search_ways(of, AXIS_CONTEXT);
    search_drop_own(&like); /* as if all stages were the smaller ones */
    return like;
}

/* How many times as fast as equal ones stages can be of which some have more ranks, at most. */
static double most_speedup(const struct candidate *c) {
    const struct mesh_axis *own = search_own(c);
    return own ? 1 + (double)(own->end - own->first) * (own->size - 1) / search_ways(c, AXIS_PIPELINE) : 1;
}

/* True if least_addition of the candidate may follow from that of `told`; NULL: anything may. */
static bool is_told(const struct candidate *c, const struct candidate *told) {
    if (!told) return true;
    if (told->decisions.recompute) return c->decisions.recompute == told->decisions.recompute;
    return search_ways(c, AXIS_CONTEXT) == search_ways(told, AXIS_CONTEXT) && same_form(c, told) &&
           c->batch == told->batch;
}

/* By candidates of the family of `of` that are the same but for what makes the base slower. `told`: is_told. */
static void bound_by_family(struct search *search, const struct candidate *of, const struct outcome *outcome,
                            const struct candidate *told) {
    const struct search_family *family = search_family_of(search, of);
    struct arena *scratch = arena_scratch(search->arena);
    double *seconds = ARENA_ARRAY(scratch, double, search->nrests);
    bool any = false;
    for (int i = 0; family && i < family->members.n; i++) {
        const struct candidate *c = &search->all.at[family->members.at[i]];
        any = any || !c->refused;
        if (!c->refused) seconds[c->rest] = c->seconds;
    }
    for (int f = 0; any && f < search->families.n; f++) {
        struct search_family *slower = &search->families.at[f];
        const struct candidate *one = &search->all.at[slower->members.at[0]];
        if (!is_told(one, told) || !has_slower_base(one, of)) continue;
        const double more = outcome->micro_batches * least_addition(search, one, of);
        struct outcome least = *outcome;
        least.part[OUTCOME_STEP] += more, least.layer[OUTCOME_STEP] += more / (least.layers ? least.layers : 1);
        slower->known = false;
        for (int i = 0; i < slower->members.n; i++) {
            struct candidate *c = &search->all.at[slower->members.at[i]];
            struct candidate like = with_base(c, of);
            if (c->step != SEARCH_BOUNDED) continue;
            c->seconds = fmax(c->seconds, seconds[c->rest]);
            if (more > 0) {
                search_predict(search, &like, &least);
                c->seconds = fmax(c->seconds, like.seconds / most_speedup(c));
            }
            c->memory = fmax(c->memory, least_memory(search, c, of, outcome));
        }
    }
    arena_release(search->arena, scratch);
}

/* Bounds a candidate with larger micro-batches than `of`. `least`: the plan of `of` with the least times. */
static void bound_one_larger(const struct search *search, struct candidate *c, const struct candidate *of,
                             const struct outcome *outcome, struct outcome *least) {
    struct candidate like = with_base(c, of);
    search_predict(search, &like, least);
    c->seconds = fmax(c->seconds, like.seconds / most_speedup(c));
    c->memory = fmax(c->memory, least_memory(search, c, of, outcome));
}

/* The candidates with larger micro-batches than `of` and a base that is else the same or slower take the least time in
 * which kernels can compute what is in `outcome`, and with the same base as much memory. */
static void bound_larger(struct search *search, const struct candidate *of, const struct outcome *outcome,
                         const struct candidate *told) {
    if (!of->batch || !(outcome->part[OUTCOME_LEAST] > 0)) return;
    for (int f = 0; f < search->families.n; f++) {
        struct search_family *larger = &search->families.at[f];
        const struct candidate *one = &search->all.at[larger->members.at[0]];
        if (one->batch <= of->batch || !is_told(one, told) || !is_slower(one, of)) continue;
        struct outcome least = *outcome;
        least.layers = 0; /* stages that take equally long */
        least.micro_batches = (int)((double)outcome->micro_batches * of->batch / one->batch);
        least.part[OUTCOME_STEP] = outcome->part[OUTCOME_LEAST] + least.micro_batches * least_addition(search, one, of);
        larger->known = false;
        for (int i = 0; i < larger->members.n; i++) {
            struct candidate *c = &search->all.at[larger->members.at[i]];
            if (c->step == SEARCH_BOUNDED && !c->refused) bound_one_larger(search, c, of, outcome, &least);
        }
    }
}

/* By the plan of a base without ranks along tensor and context: what it keeps can at most be divided evenly. */
static void bound_divided(struct search *search, const struct candidate *of, const struct outcome *outcome) {
    for (int f = 0; f < search->families.n; f++) {
        struct search_family *divided = &search->families.at[f];
        const struct candidate *one = &search->all.at[divided->members.at[0]];
        const bool same = search_ways(one, AXIS_EXPERT) == search_ways(of, AXIS_EXPERT) &&
                          search_ways(one, AXIS_DATA) == search_ways(of, AXIS_DATA) &&
                          one->decisions.recompute == of->decisions.recompute;
        if (!same || one->batch < of->batch) continue;
        divided->known = false;
        for (int i = 0; i < divided->members.n; i++) {
            struct candidate *c = &search->all.at[divided->members.at[i]];
            if (c->step == SEARCH_BOUNDED) c->memory = fmax(c->memory, least_memory(search, c, of, outcome));
        }
    }
}

/* Bounds candidates again by the bases that are known, when those of `told` tell what is added to these. */
static void bound_again(struct search *search, const struct candidate *told) {
    for (int f = 0; f < search->families.n; f++) {
        const struct candidate *one = &search->all.at[search->families.at[f].members.at[0]];
        const bool adds = told->decisions.recompute ? !one->decisions.recompute : search_ways(one, AXIS_CONTEXT) == 1;
        if (!one->base || one->base->refused || !adds) continue;
        bound_by_family(search, one, one->base, told);
        if (told->decisions.recompute) bound_larger(search, one, one->base, told);
    }
}

void search_bound(struct search *search, const struct candidate *of, const struct outcome *outcome) {
    bound_by_family(search, of, outcome, NULL);
    bound_larger(search, of, outcome, NULL);
    if (search_ways(of, AXIS_TENSOR) == 1 && search_ways(of, AXIS_CONTEXT) == 1) bound_divided(search, of, outcome);
    if (tells_addition(of)) bound_again(search, of);
}

void search_bound_unequal(struct search *search, const struct candidate *of, const struct outcome *mixed) {
    for (int i = 0; i < search->unequal.n; i++) {
        struct candidate *c = &search->all.at[search->unequal.at[i]];
        if (c->step != SEARCH_BOUNDED || c->rest != of->rest || !has_slower_base(c, of)) continue;
        c->seconds = fmax(c->seconds, of->seconds);
        c->memory = fmax(c->memory, least_memory(search, c, of, mixed));
        search->families.at[c->family].known = false;
    }
}
