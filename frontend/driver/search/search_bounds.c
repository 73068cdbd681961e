/* Lower bounds of time and memory of candidates, from the plans of others that are at least as fast. */
#include <math.h>

#include "frontend/driver/search/search.h"

enum search_form search_faster_form(enum search_form form) {
    return form == SEARCH_RING ? SEARCH_GATHER : form == SEARCH_MIRRORED_RING ? SEARCH_MIRRORED : form;
}

/* True if the candidate's base is that of `than` with what makes a step slower, to save memory or to use more ranks for
 * a sample. */
static bool has_slower_base(const struct candidate *c, const struct candidate *than) {
    struct candidate like = *c;
    like.recompute = than->recompute;
    like.ways[SEARCH_CONTEXT] = than->ways[SEARCH_CONTEXT];
    if (than->ways[SEARCH_CONTEXT] == 1 || than->form == search_faster_form(c->form)) like.form = than->form;
    return (!than->recompute || c->recompute == than->recompute) &&
           c->ways[SEARCH_CONTEXT] >= than->ways[SEARCH_CONTEXT] && search_same_base(&like, than);
}

/* What a candidate needs at least, by the plan of a base `of` with the same recomputation and fewer sequences, or fewer
 * ranks along context; by that of another one, or one that gathers keys, only its states are known. */
static double least_memory(const struct search *search, const struct candidate *c, const struct candidate *of,
                           const struct outcome *base) {
    static const double part_that_follows = 0.8;
    const double larger = c->batch ? (double)c->batch / of->batch : 1;
    const double share = part_that_follows * larger * of->ways[SEARCH_CONTEXT] / c->ways[SEARCH_CONTEXT];
    const double micro = (double)search_micro_batches(search->given, c);
    const bool gathers = c->form != of->form && of->ways[SEARCH_CONTEXT] > 1;
    if (c->recompute != of->recompute || gathers) return search_states(c, base);
    return search_states(c, base) + fmin(share, 1) * search_activations(c, base, micro, fmax(share, 1));
}

/* By candidates of the family of `of` that are the same but for what makes the base slower. */
static void bound_by_family(struct search *search, const struct candidate *of, const struct outcome *outcome) {
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
        if (!has_slower_base(&search->all.at[slower->members.at[0]], of)) continue;
        slower->known = false;
        for (int i = 0; i < slower->members.n; i++) {
            struct candidate *c = &search->all.at[slower->members.at[i]];
            if (c->step != SEARCH_BOUNDED) continue;
            c->seconds = fmax(c->seconds, seconds[c->rest]);
            c->memory = fmax(c->memory, least_memory(search, c, of, outcome));
        }
    }
    arena_release(search->arena, scratch);
}

/* How many times as fast as equal ones stages can be of which some have more ranks, at most. */
static double most_speedup(const struct candidate *c) {
    const double larger = c->own.end - c->own.first;
    return c->own.ways ? 1 + larger * (c->own.ways - 1) / c->ways[SEARCH_PIPELINE] : 1;
}

/* Bounds a candidate with larger micro-batches than `of`. `least`: the plan of `of` with the least times. */
static void bound_one_larger(const struct search *search, struct candidate *c, const struct candidate *of,
                             const struct outcome *outcome, struct outcome *least) {
    struct candidate like = *c;
    like.recompute = of->recompute, like.form = of->form;
    like.units = c->units * c->ways[SEARCH_CONTEXT] / of->ways[SEARCH_CONTEXT];
    like.ways[SEARCH_CONTEXT] = of->ways[SEARCH_CONTEXT];
    least->micro_batches = (int)((double)outcome->micro_batches * of->batch / c->batch);
    like.own = (struct own_axis){0}; /* as if all stages were the smaller ones */
    search_predict(search, &like, least);
    c->seconds = fmax(c->seconds, like.seconds / most_speedup(c));
    c->memory = fmax(c->memory, least_memory(search, c, of, outcome));
}

/* The candidates with larger micro-batches than `of` and a base that is else the same or slower take the least time in
 * which kernels can compute what is in `outcome`, and with the same base as much memory. */
static void bound_larger(struct search *search, const struct candidate *of, const struct outcome *outcome) {
    struct outcome least = *outcome;
    if (!of->batch || !(least.part[OUTCOME_LEAST] > 0)) return;
    least.part[OUTCOME_STEP] = least.part[OUTCOME_LEAST];
    least.layers = 0; /* stages that take equally long */
    for (int f = 0; f < search->families.n; f++) {
        struct search_family *larger = &search->families.at[f];
        struct candidate like = search->all.at[larger->members.at[0]];
        if (like.batch <= of->batch) continue;
        like.batch = of->batch;
        if (!has_slower_base(&like, of)) continue;
        larger->known = false;
        for (int i = 0; i < larger->members.n; i++) {
            struct candidate *c = &search->all.at[larger->members.at[i]];
            if (c->step == SEARCH_BOUNDED && !c->refused) bound_one_larger(search, c, of, outcome, &least);
        }
    }
}

void search_bound(struct search *search, const struct candidate *of, const struct outcome *outcome) {
    bound_by_family(search, of, outcome);
    bound_larger(search, of, outcome);
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
