/* Lower bounds of time and memory of candidates, from the plans of others that are at least as fast. */
#include <math.h>

#include "frontend/driver/search/search.h"

bool search_has_faster_form(const struct candidate *c, const struct candidate *than) {
    const enum attention_form slower = than->decisions.attention;
    return c->decisions.cut == than->decisions.cut &&
           c->decisions.attention == (slower == ATTENTION_RING ? ATTENTION_GATHER : slower);
}

bool search_same_share(const struct candidate *c, const struct candidate *of) {
    return c->batch &&
           (int64_t)c->batch * search_ways(of, AXIS_CONTEXT) == (int64_t)of->batch * search_ways(c, AXIS_CONTEXT);
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

/* What a candidate needs at least, by the plan of a base `of` with the same recomputation and fewer sequences, or fewer
 * ranks along tensor and context; by that of another one, or one that gathers keys, only its states are known. */
static double least_memory(const struct search *search, const struct candidate *c, const struct candidate *of,
                           const struct outcome *base) {
    const double part_that_follows = search_same_share(c, of) ? 0.97 : 0.8;
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

/* The candidate with the base `of`, and with scale units in place of its ranks along context, which have as many
 * sequences of a micro-batch where these divide it. */
static struct candidate with_base(const struct candidate *c, const struct candidate *of) {
    struct candidate like = *c;
    like.decisions.recompute = of->decisions.recompute, search_take_form(&like, of);
    like.units = c->units * search_ways(c, AXIS_CONTEXT) / search_ways(of, AXIS_CONTEXT);
    like.decisions.mesh.axis[AXIS_CONTEXT].size = search_ways(of, AXIS_CONTEXT);
    if (search_same_share(c, of)) like.batch = of->batch;
    search_drop_own(&like); /* as if all stages were the smaller ones */
    return like;
}

/* How many times as fast as equal ones stages can be of which some have more ranks, at most. */
static double most_speedup(const struct candidate *c) {
    const struct mesh_axis *own = search_own(c);
    return own ? 1 + (double)(own->end - own->first) * (own->size - 1) / search_ways(c, AXIS_PIPELINE) : 1;
}

/* The plan of the base `of` with the least times of one that is slower, or is else the same with larger micro-batches:
 * those in which kernels can compute what is in it. */
static struct outcome least_outcome(const struct candidate *slower, const struct candidate *of,
                                    const struct outcome *outcome) {
    struct outcome least = *outcome;
    if (!search_same_share(slower, of) && slower->batch != of->batch) {
        least.layers = 0; /* stages that take equally long */
        least.micro_batches = (int)((double)outcome->micro_batches * of->batch / slower->batch);
        least.part[OUTCOME_STEP] = outcome->part[OUTCOME_LEAST];
    }
    return least;
}

/* True if the plan of `of` bounds the times of candidates with that base. */
static bool bounds_time(const struct candidate *slower, const struct candidate *of, const struct outcome *outcome) {
    const bool larger = slower->batch > of->batch && outcome->part[OUTCOME_LEAST] > 0;
    return (slower->batch == of->batch || larger || search_same_share(slower, of)) && is_slower(slower, of);
}

/* True if it bounds their memory: what a base without ranks along tensor and context keeps can at most be divided
 * evenly. */
static bool bounds_memory(const struct candidate *divided, const struct candidate *of) {
    return search_ways(of, AXIS_TENSOR) == 1 && search_ways(of, AXIS_CONTEXT) == 1 &&
           search_ways(divided, AXIS_EXPERT) == search_ways(of, AXIS_EXPERT) &&
           search_ways(divided, AXIS_DATA) == search_ways(of, AXIS_DATA) &&
           divided->decisions.recompute == of->decisions.recompute && divided->batch >= of->batch;
}

void search_bound(struct search *search, const struct candidate *of, const struct outcome *outcome) {
    const struct search_known known = {*of, outcome};
    VEC_PUSH(search->arena, &search->known, known);
    for (int f = 0; f < search->families.n; f++) {
        struct search_family *family = &search->families.at[f];
        const struct candidate *one = &search->all.at[family->members.at[0]];
        if (!bounds_time(one, of, outcome)) continue;
        const struct candidate like = with_base(one, of);
        const struct outcome least = least_outcome(one, of, outcome);
        family->least = fmax(family->least, search_least(search, &like, &least));
    }
}

/* Bounds a candidate by the plan of `of`. `least`: least_outcome, NULL if only memory is bounded. */
static void bound_one(const struct search *search, struct candidate *c, const struct search_known *by,
                      const struct outcome *least) {
    c->memory = fmax(c->memory, least_memory(search, c, &by->of, by->outcome));
    if (!least || c->memory > search->limit) return;
    struct candidate like = with_base(c, &by->of);
    search_predict(search, &like, least);
    c->seconds = fmax(c->seconds, like.seconds / most_speedup(c));
}

void search_bound_family(struct search *search, struct search_family *family) {
    const struct candidate *one = &search->all.at[family->members.at[0]];
    for (int k = family->applied; k < search->known.n; k++) {
        const struct search_known *by = &search->known.at[k];
        const bool times = bounds_time(one, &by->of, by->outcome);
        if (!times && !bounds_memory(one, &by->of)) continue;
        const struct outcome least = times ? least_outcome(one, &by->of, by->outcome) : (struct outcome){0};
        for (int i = 0; i < family->members.n; i++) {
            struct candidate *c = &search->all.at[family->members.at[i]];
            if (c->step == SEARCH_BOUNDED && !c->refused) bound_one(search, c, by, times ? &least : NULL);
        }
    }
    family->applied = search->known.n, family->known = false;
}

void search_bound_unequal(struct search *search, const struct candidate *of, const struct outcome *mixed) {
    for (int i = 0; i < search->unequal.n; i++) {
        struct candidate *c = &search->all.at[search->unequal.at[i]];
        if (c->step != SEARCH_BOUNDED || c->rest != of->rest || c->batch != of->batch || !is_slower(c, of)) continue;
        c->seconds = fmax(c->seconds, of->seconds);
        c->memory = fmax(c->memory, least_memory(search, c, of, mixed));
        search->families.at[c->family].known = false;
    }
}
