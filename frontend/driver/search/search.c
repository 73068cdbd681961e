#include "frontend/driver/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

/* Candidates that take the step SHORTENED, and that are planned completely, at most, unless --search-time says how long
 * the search goes on. */
enum { MOST_SHORTENED = 20, MOST_PLANNED = 4 };

/* A candidate that is predicted to need that much more than the limit is not tried: the prediction is not exact. */
static const double memory_margin = 1.15;

bool search_is_wanted(const struct options *options) {
    return options->pas.word == OPT_POLICY_AUTODIST;
}

struct searching {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
    struct search *search;
    struct search_model model;
    int64_t begun; /* rt_now_ms */
};

static bool fits(const struct search *search, const struct candidate *c) {
    return c->memory <= search->limit * (c->step == SEARCH_PLANNED ? 1 : memory_margin);
}

bool search_fits(const struct search *search, const struct candidate *candidate) {
    return candidate->step == SEARCH_PLANNED && !candidate->refused && candidate->memory <= search->limit;
}

/* The candidate with the least time that is not known not to fit, among those that have taken the step `least`; NULL:
 * there is none. */
static struct candidate *first_of(const struct search *search, enum search_step least) {
    struct candidate *first = NULL;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->step < least || c->refused || !fits(search, c)) continue;
        if (!first || c->seconds < first->seconds) first = c;
    }
    return first;
}

/* Bounds ----------------------------------------------------------------------------------------------------------- */

/* True if the candidate is `than` with what makes a step slower, to save memory or to use more ranks for a sample. */
static bool is_slower(const struct candidate *c, const struct candidate *than) {
    struct candidate like = *c;
    like.recompute = than->recompute;
    like.ways[SEARCH_CONTEXT] = than->ways[SEARCH_CONTEXT];
    like.units = than->units;
    return (!than->recompute || c->recompute == than->recompute) && c->zero == than->zero &&
           c->schedule == than->schedule && c->ways[SEARCH_PIPELINE] == than->ways[SEARCH_PIPELINE] &&
           c->ways[SEARCH_CONTEXT] >= than->ways[SEARCH_CONTEXT] &&
           c->ways[SEARCH_CONTEXT] * c->units == than->ways[SEARCH_CONTEXT] * than->units &&
           search_same_base(&like, than);
}

/* Bounds the candidates by those with the base of `of`, which were predicted. */
static void bound_by(const struct searching *s, const struct candidate *of) {
    struct search *search = s->search;
    for (int k = 0; k < search->all.n; k++) {
        const struct candidate *than = &search->all.at[k];
        if (than->refused || !search_same_base(than, of)) continue;
        for (int i = 0; i < search->all.n; i++) {
            struct candidate *c = &search->all.at[i];
            if (c->step == SEARCH_BOUNDED && c->seconds < than->seconds && is_slower(c, than))
                c->seconds = than->seconds;
        }
    }
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

/* Seconds in which scale units exchange the gradients, and with ZeRO 3 the parameters, of a rank. From ZeRO 2 on
 * gradients are reduced in each micro-batch, beside little, with ZeRO 3 parameters are gathered twice in each, beside
 * what one layer computes. */
static double exchanging(const struct searching *s, const struct candidate *c, double parameters, double micro_batches,
                         double worked) {
    double stride = 1;
    for (int a = 0; a < SEARCH_AXES; a++) stride *= c->ways[a];
    const double ways = c->units;
    const struct machine_level link = machine_link(&s->search->machine, ways, stride);
    const double times = c->zero == 3 ? 3 * micro_batches : c->zero == 2 ? micro_batches + 1 : 2;
    const double seconds =
        s->search->machine.correction * times * (parameters * (ways - 1) / ways / link.bandwidth + link.latency);
    const double hidden = fmin(worked * s->search->machine.overlap, seconds);
    return seconds - (c->zero == 3 ? hidden / 2 : c->zero == 2 ? 0 : hidden);
}

/* The layers that the slowest stage takes as long as. Stages have whole layers; what is no layer takes as long as
 * `rest` of them, and is in the last stage. */
static double slowest_stage(double rest, int layers, int stages) {
    double best = INFINITY;
    for (int last = 0; last <= layers; last++) {
        const int others = (layers - last + stages - 2) / (stages - 1);
        best = fmin(best, fmax(rest + last, others));
    }
    return best;
}

/* Bytes of a rank that are neither weights nor of the optimizer: those of each layer for each micro-batch that is kept,
 * and the others. */
static double activations(const struct candidate *c, const struct outcome *base, double micro_batches) {
    const double stages = c->ways[SEARCH_PIPELINE], all = base->part[OUTCOME_OTHERS];
    const double of_layers = base->layers ? base->layers * base->layer[OUTCOME_OTHERS] : all;
    if (stages == 1) return all;
    return all - of_layers + search_law(c).kept * of_layers * fmin(stages, micro_batches) / stages;
}

double search_rest(const struct outcome *outcome) {
    return outcome->part[OUTCOME_STEP] / outcome->layer[OUTCOME_STEP] - outcome->layers;
}

/* Predicts time and memory of the candidate from what the plan of its base says: Note [Search]. */
static void predict(const struct searching *s, struct candidate *c, const struct outcome *base) {
    struct arena *scratch = arena_scratch(s->arena);
    const struct options options = search_options(s->options, c, scratch);
    const double stages = c->ways[SEARCH_PIPELINE], micro = options.accumulate ? (double)options.accumulate : 1;
    const double *part = base->part, parameters = part[OUTCOME_WEIGHTS] / stages, ways = c->units;
    const struct schedule_law law = search_law(c);
    double longest = part[OUTCOME_STEP] / stages;
    arena_release(s->arena, scratch);
    if (stages > 1 && base->layers)
        longest = law.chunks * base->layer[OUTCOME_STEP] *
                  slowest_stage(search_rest(base), base->layers, c->ways[SEARCH_PIPELINE] * law.chunks);
    const double worked = micro * longest / base->micro_batches;
    double seconds = worked * (1 + law.waiting * (stages - 1) / micro);
    if (ways > 1 && part[OUTCOME_GRADIENTS] > 0) seconds += exchanging(s, c, parameters, micro, worked);
    c->seconds = seconds / (ways * micro);
    c->memory = parameters / (c->zero == 3 ? ways : 1) + part[OUTCOME_GRADIENTS] / stages / (c->zero >= 2 ? ways : 1) +
                part[OUTCOME_OPTIMIZER] / stages / (c->zero >= 1 ? ways : 1) + activations(c, base, micro);
}

/* True if a rank has several stages of less than two layers: what it keeps and sends for each is more than it saves. */
static bool are_short(const struct candidate *c) {
    const int chunks = search_law(c).chunks;
    return chunks > 1 && c->base->layers && c->base->layers < 2 * chunks * c->ways[SEARCH_PIPELINE];
}

/* Predicts all candidates with the base of all.at[first]. */
static void predict_from(const struct searching *s, int first) {
    const struct candidate of = s->search->all.at[first], base = search_base(&of);
    struct outcome *outcome = ARENA_NEW(s->arena, struct outcome);
    struct shortened shortened;
    const bool shorter = search_shortened(&s->model, s->options, &base, s->arena, &shortened);
    *outcome = shorter ? shortened.outcome : search_planned(&s->model, s->options, &base, s->arena, NULL);
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i];
        if (c->refused || !search_same_base(c, &of)) continue;
        c->step = SEARCH_PREDICTED, c->refused = outcome->refused, c->base = outcome;
        if (!c->refused && are_short(c)) c->refused = "interleaved stages of less than two layers";
        if (!c->refused) predict(s, c, outcome);
    }
    bound_by(s, &of);
}

static void take_outcome(struct candidate *c, enum search_step step, const struct outcome *outcome) {
    c->step = step, c->refused = outcome->refused;
    c->seconds = outcome->part[OUTCOME_STEP] / ((double)outcome->micro_batches * c->units);
    c->memory = outcome->part[OUTCOME_MEMORY];
}

/* Plans the candidate completely, and keeps the plan if it is the best so far. */
static void plan_completely(const struct searching *s, struct candidate *c) {
    struct search *search = s->search;
    struct job *job;
    const struct outcome outcome = search_planned(&s->model, s->options, c, s->arena, &job);
    take_outcome(c, SEARCH_PLANNED, &outcome);
    struct estimate *estimate = ARENA_NEW(s->arena, struct estimate);
    *estimate = outcome.estimate, c->estimate = estimate;
    const bool best = first_of(search, SEARCH_PLANNED) == c;
    search_forget(best ? search->job : job, s->arena);
    if (best) search->job = job;
}

/* Takes what was planned in the candidate's place. A pipeline with other stages and layers differs from what is
 * predicted of it by as much as the candidate does. */
static void take_shortened(const struct searching *s, struct candidate *c, const struct shortened *shortened) {
    struct candidate predicted = shortened->of, planned = shortened->of;
    struct outcome base = *c->base;
    if (!shortened->layers || shortened->outcome.refused) {
        take_outcome(c, SEARCH_SHORTENED, &shortened->outcome);
        return;
    }
    for (int p = 0; p < OUTCOME_PARTS; p++) base.part[p] -= (base.layers - shortened->layers) * base.layer[p];
    base.layers = shortened->layers;
    predict(s, &predicted, &base);
    take_outcome(&planned, SEARCH_SHORTENED, &shortened->outcome);
    c->step = SEARCH_SHORTENED;
    c->seconds *= planned.seconds / predicted.seconds;
    c->memory *= planned.memory / predicted.memory;
}

/* The candidate takes the next step. */
static void advance(const struct searching *s, struct candidate *c) {
    struct shortened shortened;
    if (c->step == SEARCH_BOUNDED)
        predict_from(s, (int)(c - s->search->all.at));
    else if (c->step == SEARCH_PREDICTED && search_shortened(&s->model, s->options, c, s->arena, &shortened))
        take_shortened(s, c, &shortened);
    else
        plan_completely(s, c);
}

/* Predicts the candidates that have nothing that makes a step slower, which bounds the others. */
static void bound_all(const struct searching *s) {
    struct search *search = s->search;
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        if (c->step == SEARCH_BOUNDED && !c->refused && !c->recompute && c->ways[SEARCH_CONTEXT] == 1)
            predict_from(s, i);
    }
}

/* Choosing --------------------------------------------------------------------------------------------------------- */

/* Without a candidate that is expected to fit: the one with the least memory that was not planned yet. */
static struct candidate *smallest_of(const struct search *search) {
    struct candidate *smallest = NULL;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->step == SEARCH_PLANNED || c->refused) continue;
        if (!smallest || c->memory < smallest->memory) smallest = c;
    }
    return smallest;
}

/* The search: Note [Search]. NULL if nothing that was planned fits. */
static struct candidate *choose(const struct searching *s) {
    int taken[SEARCH_STEPS] = {0}, planned = 0; /* planned: those that fit */
    for (;;) {
        const bool late = s->options->search_time && rt_now_ms() - s->begun >= 1000 * s->options->search_time;
        const bool enough = s->options->search_time ? late : taken[SEARCH_SHORTENED] >= MOST_SHORTENED;
        struct candidate *first = first_of(s->search, enough ? SEARCH_SHORTENED : SEARCH_BOUNDED);
        struct candidate *best = first_of(s->search, SEARCH_PLANNED);
        if (best && (best == first || late || planned >= MOST_PLANNED)) return best;
        if (!first && enough) first = first_of(s->search, SEARCH_BOUNDED);
        if (!first && taken[SEARCH_PLANNED] < MOST_PLANNED) first = smallest_of(s->search);
        if (!first) return best;
        advance(s, first);
        taken[first->step]++;
        planned += first->step == SEARCH_PLANNED && fits(s->search, first);
    }
}

/* --measure-topk: plans the best candidates completely, as many as are to be measured, if so many fit. */
static void plan_best(const struct searching *s, int64_t wanted) {
    const struct search *search = s->search;
    for (;;) {
        struct candidate *next = NULL;
        int64_t better = 0;
        for (int i = 0; i < search->all.n; i++) {
            struct candidate *c = &search->all.at[i];
            if (c->step == SEARCH_PLANNED || c->refused || !fits(search, c)) continue;
            if (!next || c->seconds < next->seconds) next = c;
        }
        for (int i = 0; next && i < search->all.n; i++)
            better += search_fits(search, &search->all.at[i]) && search->all.at[i].seconds <= next->seconds;
        if (!next || better >= wanted) return;
        advance(s, next);
    }
}

/* Chooses by what is measured on this machine. 0, or -1 after a diagnostic. */
static int measure(const struct searching *s) {
    struct search *search = s->search;
    const bool trains = s->model.job.graph->train;
    const struct candidate predicted = search->all.at[0];
    if (search_measure(search, s->options, trains, s->arena, s->diags) < 0) return -1;
    if (search_save_machine(search, s->options, s->arena, s->diags) < 0) return -1;
    const struct candidate *fastest = &search->all.at[0];
    search->gap = 0;
    if (fastest->seconds == predicted.seconds && fastest->memory == predicted.memory) return 0;
    search_forget(search->job, s->arena);
    const struct outcome outcome = search_planned(&s->model, s->options, fastest, s->arena, &search->job);
    return outcome.refused ? diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist", "%s", outcome.refused) : 0;
}

/* E0430, with the plan that needs the least memory among those that were planned. */
static int refuse(const struct searching *s) {
    const struct search *search = s->search;
    const struct candidate *least = NULL, *any = NULL;
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        if (c->refused && !any) any = c;
        if (!c->refused && c->step == SEARCH_PLANNED && (!least || c->memory < least->memory)) least = c;
    }
    if (!least)
        return diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist", "no plan was found: %s",
                          any ? any->refused : "no mesh has that many devices");
    const struct options options = search_options(s->options, least, s->arena);
    diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist",
               "no plan fits into %.0f bytes of memory per rank: the smallest that was found needs %.0f", search->limit,
               least->memory);
    diag_note(s->diags, "it is --pas %s with ZeRO %d, recompute %s", options_text(&options, OPT_PAS, s->arena),
              least->zero, least->recompute ? least->recompute : "none");
    return -1;
}

/* A candidate, and its class: 0 planned, 1 expected to fit, 2 not expected to fit, 3 refused. */
struct ranked {
    struct candidate candidate;
    int class;
};

static int by_time(const void *left, const void *right) {
    const struct ranked *a = left, *b = right;
    if (a->class != b->class) return a->class - b->class;
    return (a->candidate.seconds > b->candidate.seconds) - (a->candidate.seconds < b->candidate.seconds);
}

/* Sorts the candidates, the chosen one first. */
static void sort(struct search *search, const struct candidate *chosen, struct arena *arena) {
    struct ranked *ranked = ARENA_ARRAY(arena, struct ranked, search->all.n);
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        const bool small = c->memory <= search->limit;
        ranked[i] = (struct ranked){*c, c->refused ? 3 : c->step == SEARCH_PLANNED ? 0 : small ? 1 : 2};
        if (c == chosen) ranked[i].class = -1;
    }
    qsort(ranked, (size_t)search->all.n, sizeof *ranked, by_time);
    for (int i = 0; i < search->all.n; i++) search->all.at[i] = ranked[i].candidate;
}

int search_plan(const struct options *options, struct arena *arena, struct diags *diags, struct search *search) {
    struct searching s = {.options = options, .arena = arena, .diags = diags, .search = search, .begun = rt_now_ms()};
    const char *machine = options->machine;
    *search = (struct search){.machine = machine_default, .limit = INFINITY, .given = options};
    if (search_can_measure(options, diags) < 0) return -1;
    if (machine && machine_read(arena, diags, machine, &search->machine) < 0) return -1;
    if (search->machine.memory > 0) search->limit = search->machine.memory;
    if (options->mem_limit) search->limit = (double)options->mem_limit;
    if (search_read(&s.model, options, &search->machine, arena, diags) < 0) return -1;
    const struct plan *partial = s.model.job.side.refine;
    struct options *refined = ARENA_NEW(arena, struct options);
    *refined = partial ? search_refined(options, partial) : *options;
    s.options = search->given = options = refined;
    search_list(search, options, s.model.job.graph->train, arena);
    if (search_constrain(search, options, arena, diags) < 0 ||
        (partial && search_keep_mesh(search, partial, diags) < 0))
        return -1;
    bound_all(&s);
    const struct candidate *best = choose(&s);
    if (!best) return refuse(&s);
    plan_best(&s, options->measure_topk);
    best = first_of(search, SEARCH_PLANNED);
    const struct candidate *next = first_of(search, SEARCH_BOUNDED);
    if (next != best) search->gap = 1 - next->seconds / best->seconds;
    sort(search, best, arena);
    if (options->measure_topk && measure(&s) < 0) return -1;
    diags_append(s.model.job.diags, search->job->diags);
    search->job->diags = s.model.job.diags;
    return 0;
}
