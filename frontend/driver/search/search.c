#include "frontend/driver/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/thread/clock.h"
#include "runtime/base/io/progress.h"

/* Candidates that take the step SHORTENED, and that are planned completely, at most, unless --search-time says how long
 * the search goes on. Of small models more are planned: as many as have so many nodes together. Up to MOST_TIMES
 * as many are planned while another is predicted to be faster than the best of them by more than the part WORTH. With a
 * limit that hardly any fits into, MOST_TRIED are shortened or planned, and then those with the least memory. */
enum { MOST_SHORTENED = 20, MOST_PLANNED = 4, MOST_NODES = 4000, MOST_TIMES = 2, MOST_TRIED = 40 };
static const double WORTH = 0.01;

bool search_is_wanted(const struct options *options) {
    return options->pas.word == OPT_POLICY_AUTODIST;
}

/* What was read. */
struct models {
    VEC(struct search_model *) all;
};

struct searching {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
    struct search *search;
    struct models *models; /* the first: of one rank, with the given or the smallest micro-batches */
    int64_t begun;         /* rt_now_ms */
    struct rt_progress *progress;
};

bool search_fits(const struct search *search, const struct candidate *candidate) {
    return candidate->step == SEARCH_PLANNED && !candidate->refused && candidate->memory <= search->limit;
}

/* The model as the candidate needs it, read the first time that one does. NULL with candidate->refused if it cannot
 * be. */
static const struct search_model *model_of(const struct searching *s, struct candidate *c) {
    struct diags *diags = ARENA_NEW(s->arena, struct diags);
    for (int i = 0; i < s->models->all.n; i++)
        if (search_reads_same(&s->models->all.at[i]->of, c)) {
            c->refused = s->models->all.at[i]->refused;
            return c->refused ? NULL : s->models->all.at[i];
        }
    struct search_model *model = ARENA_NEW(s->arena, struct search_model);
    diags_init(diags, s->arena);
    if (search_read(model, s->options, c, &s->search->machine, s->arena, diags) < 0)
        model->refused = search_first_error(diags, s->arena);
    VEC_PUSH(s->arena, &s->models->all, model);
    c->refused = model->refused;
    return model->refused ? NULL : model;
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

/* Predicts the candidate, and keeps what is predicted beside what later steps tell. */
static void predict(const struct search *search, struct candidate *c, const struct outcome *base) {
    search_predict(search, c, base);
    c->predicted_seconds = c->seconds, c->predicted_memory = c->memory;
}

/* Notes what is known of the bases of a candidate with unequal stages, and predicts it when both are known. */
static void predict_unequal(const struct searching *s, struct candidate *c, const struct candidate *of,
                            const struct outcome *outcome) {
    const struct candidate larger = search_larger_base(c);
    if (search_same_base(c, of)) c->base = outcome;
    if (search_same_base(&larger, of)) c->larger = outcome;
    if (c->step != SEARCH_BOUNDED || c->refused || !c->base || !c->larger) return;
    s->search->families.at[c->family].known = false;
    c->refused = c->base->refused ? c->base->refused : c->larger->refused;
    c->step = SEARCH_PREDICTED;
    if (c->overlap == SEARCH_IF_FASTER) c->overlap = c->larger->overlaps ? SEARCH_ALWAYS : SEARCH_NEVER;
    if (c->refused) return;
    const struct outcome mixed = search_unequal(c);
    predict(s->search, c, &mixed);
    search_bound_unequal(s->search, c, &mixed);
}

/* Predicts the candidates with the base of `of`, which is planned, and equal stages. */
static void predict_family(struct search *search, const struct candidate *of, const struct outcome *outcome) {
    struct search_family *family = search_family_of(search, of);
    if (!family) return;
    family->known = false;
    for (int i = 0; i < family->members.n; i++) {
        struct candidate *c = &search->all.at[family->members.at[i]];
        if (search_own(c) || (c->refused && c->refused != outcome->refused)) continue;
        c->step = SEARCH_PREDICTED, c->refused = outcome->refused, c->base = outcome;
        if (c->overlap == SEARCH_IF_FASTER) c->overlap = outcome->overlaps ? SEARCH_ALWAYS : SEARCH_NEVER;
        if (!c->refused) predict(search, c, outcome);
    }
}

/* Predicts all candidates with the base of `candidate`, and bounds others by them. */
static void predict_from(const struct searching *s, const struct candidate *candidate) {
    struct candidate of = *candidate;
    const struct candidate base = search_base(&of);
    struct outcome *outcome = ARENA_NEW(s->arena, struct outcome);
    const struct search_model *model = model_of(s, &of);
    *outcome = model ? search_shortened(model, s->options, &base, s->arena) : (struct outcome){.refused = of.refused};
    predict_family(s->search, &of, outcome);
    for (int i = 0; i < s->search->unequal.n; i++)
        predict_unequal(s, &s->search->all.at[s->search->unequal.at[i]], &of, outcome);
    if (!outcome->refused) search_bound(s->search, &of, outcome);
}

static void take_outcome(struct candidate *c, enum search_step step, const struct outcome *outcome) {
    c->step = step, c->refused = outcome->refused;
    c->seconds = outcome->part[OUTCOME_STEP] / ((double)outcome->micro_batches * c->units * search_samples(c));
    c->memory = outcome->part[OUTCOME_MEMORY];
}

/* Plans the candidate, which has no stages, for the model with fewer layers. */
static void shorten_model(const struct searching *s, struct candidate *c) {
    const struct outcome outcome = search_shortened(model_of(s, c), s->options, c, s->arena);
    take_outcome(c, SEARCH_SHORTENED, &outcome);
}

/* Members of the candidate's family with the same stages differ from what is predicted of them as it does: what they
 * keep is the same, but for what ZeRO divides. */
static void correct_alike(const struct search *search, const struct candidate *c) {
    const struct search_family *family = &search->families.at[c->family];
    const double slower = c->seconds / c->predicted_seconds, more = c->memory - c->predicted_memory;
    for (int i = 0; i < family->members.n; i++) {
        struct candidate *m = &search->all.at[family->members.at[i]];
        const bool alike = search_ways(m, AXIS_PIPELINE) > 1 && m->units == c->units && !search_own(m) &&
                           decision_same(&decision_rows[DECIDES_schedule], &m->decisions, &c->decisions);
        if (m->step != SEARCH_PREDICTED || m->refused || !alike) continue;
        m->step = SEARCH_SHORTENED;
        m->seconds *= slower, m->memory += more;
    }
}

/* Plans the candidate completely, and keeps the plan if it is the best so far. */
static void plan_completely(const struct searching *s, struct candidate *c) {
    struct search *search = s->search;
    struct job *job;
    const struct search_model *model = model_of(s, c);
    if (!model) return;
    const struct outcome outcome = search_planned(model, s->options, c, NULL, s->arena, &job);
    take_outcome(c, SEARCH_PLANNED, &outcome);
    struct estimate *estimate = ARENA_NEW(s->arena, struct estimate);
    *estimate = outcome.estimate, c->estimate = estimate;
    if (!c->refused && c->predicted_seconds > 0 && !search_own(c)) correct_alike(search, c);
    search->families.at[c->family].known = false;
    const bool best = search_first(search, SEARCH_PLANNED) == c;
    search_forget(best ? search->job : job, s->arena);
    if (best) search->job = job;
}

/* Shows how many plans were tried, the step of the best complete plan, and what is left of --search-time. */
static void show_search(const struct searching *s) {
    struct search *search = s->search;
    const struct candidate *best = search_first(search, SEARCH_PLANNED);
    char text[80], step[40] = "";
    snprintf(text, sizeof text, "search: %d of %d plans tried", search_tried(search), search->all.n);
    if (best) snprintf(step, sizeof step, ", best step %.4g ms", best->seconds * 1e3);
    const double left = (double)s->options->search_time - (double)(rt_now_ms() - s->begun) / 1e3;
    rt_progress_say(s->progress, text, s->options->search_time ? fmax(left, 0) : -1, step);
}

/* In which order candidates bound others: with fewer ranks along context, of these with the smallest micro-batches or
 * as much of one on each rank, of these with the faster form. */
static int bounding_rank(const struct candidate *of, const struct candidate *c, int smallest) {
    const bool near = of->batch == smallest || (search_same_share(c, of) && of != c);
    return 4 * search_ways(of, AXIS_CONTEXT) + 2 * !near + (of->decisions.attention == ATTENTION_RING);
}

/* The first member with equal stages that is not predicted; -1: there is none. */
static int first_open(const struct search *search, const struct search_family *family) {
    for (int i = 0; i < family->members.n; i++) {
        const struct candidate *c = &search->all.at[family->members.at[i]];
        if (c->step == SEARCH_BOUNDED && !c->refused && !search_own(c)) return family->members.at[i];
    }
    return -1;
}

/* A candidate whose base, if it is predicted, bounds that of c: the same with fewer ranks along context, with
 * smaller micro-batches or with the faster form; the first by bounding_rank. -1: there is none that was not
 * predicted. */
static int find_bounding(const struct searching *s, const struct candidate *c) {
    const int smallest = c->batch ? search_ways(c, AXIS_EXPERT) * search_ways(c, AXIS_DATA) : 0;
    int found = -1, least = bounding_rank(c, c, smallest);
    for (int f = 0; f < s->search->families.n; f++) {
        const int open = first_open(s->search, &s->search->families.at[f]);
        if (open < 0) continue;
        const struct candidate *other = &s->search->all.at[open];
        const int ranks = search_ways(other, AXIS_CONTEXT), rank = bounding_rank(other, c, smallest);
        struct candidate like = *c;
        if (rank >= least) continue;
        if (other->batch == smallest || search_same_share(c, other)) like.batch = other->batch;
        like.decisions.mesh.axis[AXIS_CONTEXT].size = ranks;
        if (ranks == 1 || search_has_faster_form(other, c)) search_take_form(&like, other);
        if (search_same_base(&like, other)) found = open, least = rank;
    }
    return found;
}

/* Plans what is not known of the bases of a candidate with unequal stages. */
static void predict_bases(const struct searching *s, const struct candidate *c) {
    const struct candidate larger = search_larger_base(c);
    if (!c->base) predict_from(s, c);
    if (!c->larger) predict_from(s, &larger);
}

/* The candidate takes the next step, or one that bounds it does. */
static void advance(const struct searching *s, struct candidate *c) {
    const int bounding = c->step == SEARCH_BOUNDED && !search_own(c) ? find_bounding(s, c) : -1;
    if (c->step == SEARCH_BOUNDED && search_own(c))
        predict_bases(s, c);
    else if (c->step == SEARCH_BOUNDED)
        predict_from(s, bounding < 0 ? c : &s->search->all.at[bounding]);
    else if (c->step == SEARCH_PREDICTED && search_ways(c, AXIS_PIPELINE) == 1 && search_layers(model_of(s, c)))
        shorten_model(s, c);
    else
        plan_completely(s, c);
    s->search->families.at[c->family].known = false;
    show_search(s);
}

/* Refuses the candidates with more stages than nodes, and those with which a rank has several stages of less than two
 * layers: what it keeps and sends for each is more than it saves. */
static void refuse_short(const struct searching *s) {
    const struct search_model *model = s->models->all.at[0];
    const int layers = search_layers(model), nodes = model->job.graph->order.n;
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i];
        const int chunks = c->schedule.chunks;
        if (!c->refused && layers && chunks > 1 && layers < 2 * chunks * search_ways(c, AXIS_PIPELINE))
            c->refused = "interleaved stages of less than two layers";
        if (!c->refused && search_ways(c, AXIS_PIPELINE) > nodes)
            c->refused = arena_printf(s->arena, "%d pipeline stages, but the model has only %d nodes",
                                      search_ways(c, AXIS_PIPELINE), nodes);
    }
}

/* Predicts the candidates that have nothing that makes a step slower, which bounds the others. */
static void bound_all(const struct searching *s) {
    struct search *search = s->search;
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        const int ranks = search_ways(c, AXIS_EXPERT) * search_ways(c, AXIS_DATA);
        if (c->step == SEARCH_BOUNDED && !c->refused && !c->decisions.recompute && search_ways(c, AXIS_CONTEXT) == 1 &&
            (!c->batch || c->batch == ranks)) {
            if (search_own(c))
                predict_bases(s, c);
            else
                predict_from(s, c);
            show_search(s);
        }
    }
}

/* Choosing --------------------------------------------------------------------------------------------------------- */

/* Without a candidate that is expected to fit: the one with the least memory that was not planned yet. */
static struct candidate *smallest_of(struct search *search) {
    struct candidate *smallest = NULL;
    for (int f = 0; f < search->families.n; f++) search_bound_family(search, &search->families.at[f]);
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->step == SEARCH_PLANNED || c->refused) continue;
        if (!smallest || c->memory < smallest->memory) smallest = c;
    }
    return smallest;
}

/* Candidates that are planned completely, at most. */
static int most_planned(const struct searching *s) {
    const int nodes = s->models->all.at[0]->job.graph->order.n, many = MOST_NODES / (nodes ? nodes : 1);
    return many > MOST_PLANNED ? many : MOST_PLANNED;
}

/* True if the candidate, first by what it takes at least, is also predicted to be faster than the best. What shortened
 * graphs without stages say of a time is exact. */
static bool is_promising(const struct candidate *first, const struct candidate *best) {
    if (!first || !best) return false;
    const bool exact = first->step >= SEARCH_SHORTENED && search_ways(first, AXIS_PIPELINE) == 1;
    return first->seconds < (exact ? 1 : 1 - WORTH) * best->seconds;
}

/* The search: Note [Search]. NULL if nothing that was planned fits. */
static struct candidate *choose(const struct searching *s) {
    int taken[SEARCH_STEPS] = {0}, planned = 0, smallest = 0; /* planned: those that fit */
    const int most = most_planned(s), most_tried = MOST_TRIED + MOST_TIMES * (most - MOST_PLANNED);
    for (;;) {
        const bool late = s->options->search_time && rt_now_ms() - s->begun >= 1000 * s->options->search_time;
        const bool enough = s->options->search_time ? late : taken[SEARCH_SHORTENED] >= MOST_SHORTENED;
        struct candidate *first = search_first(s->search, enough ? SEARCH_SHORTENED : SEARCH_BOUNDED);
        struct candidate *best = search_first(s->search, SEARCH_PLANNED);
        const bool many = planned >= most;
        if (many && !is_promising(first, best)) first = search_first(s->search, SEARCH_SHORTENED);
        const bool done = many && (!is_promising(first, best) || planned >= MOST_TIMES * most);
        const bool tried = late || taken[SEARCH_SHORTENED] + taken[SEARCH_PLANNED] >= most_tried;
        if (best && (best == first || tried || done)) return best;
        if (!first && enough) first = search_first(s->search, SEARCH_BOUNDED);
        const bool by_memory = !first || tried;
        if (by_memory) first = smallest < (late ? 1 : most) ? smallest_of(s->search) : NULL;
        if (!first) return best;
        advance(s, first);
        smallest += by_memory && first->step == SEARCH_PLANNED;
        taken[first->step]++;
        planned += first->step == SEARCH_PLANNED && search_may_fit(s->search, first);
    }
}

/* --measure-topk: plans the best candidates completely, as many as are to be measured, if so many fit. */
static void plan_best(const struct searching *s, int64_t wanted) {
    struct search *search = s->search;
    for (;;) {
        struct candidate *next = NULL;
        int64_t better = 0;
        for (int i = 0; i < search->all.n; i++) {
            struct candidate *c = &search->all.at[i];
            if (c->step == SEARCH_PLANNED || c->refused || !search_may_fit(search, c)) continue;
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
    const bool trains = s->models->all.at[0]->job.graph->train;
    const struct candidate predicted = search->all.at[0];
    if (search_measure(search, s->options, trains, s->arena, s->diags) < 0) return -1;
    if (search_save_machine(search, s->options, s->arena, s->diags) < 0) return -1;
    struct candidate *fastest = &search->all.at[0];
    search->gap = 0;
    if (fastest->seconds == predicted.seconds && fastest->memory == predicted.memory) return 0;
    search_forget(search->job, s->arena);
    const struct outcome outcome =
        search_planned(model_of(s, fastest), s->options, fastest, NULL, s->arena, &search->job);
    return outcome.refused ? diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist", "%s", outcome.refused) : 0;
}

/* E0430, with the plan that needs the least memory among those that were planned; if none was, with the reason of one
 * that was tried, else of one that constraints exclude. */
static int refuse(const struct searching *s) {
    const struct search *search = s->search;
    struct candidate *least = NULL;
    const struct candidate *any = NULL;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->refused && (!any || (any->step == SEARCH_BOUNDED && c->step != SEARCH_BOUNDED))) any = c;
        if (!c->refused && c->step == SEARCH_PLANNED && (!least || c->memory < least->memory)) least = c;
    }
    if (!least)
        return diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist", "no plan was found: %s",
                          any ? any->refused : "no mesh has that many devices");
    diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist",
               "no plan fits into %.0f bytes of memory per rank: the smallest that was found needs %.0f", search->limit,
               least->memory);
    diag_note(s->diags, "it is %s", search_words(least, s->options, s->arena));
    struct job *job = NULL;
    search_planned(model_of(s, least), s->options, least, NULL, s->arena, &job);
    if (job) job_note_memory(job, s->diags);
    search_forget(job, s->arena);
    return -1;
}

/* A candidate, and its class: 0 planned, 1 expected to fit, 2 only bounded, 3 not expected to fit, 4 refused. */
struct ranked {
    double seconds;
    int class, candidate;
};

static int by_time(const void *left, const void *right) {
    const struct ranked *a = left, *b = right;
    if (a->class != b->class) return a->class - b->class;
    if (a->seconds != b->seconds) return a->seconds < b->seconds ? -1 : 1;
    return a->candidate - b->candidate;
}

/* Sorts the candidates, the chosen one first. */
static void sort(struct search *search, const struct candidate *chosen, struct arena *arena) {
    struct ranked *ranked = ARENA_ARRAY(arena, struct ranked, search->all.n);
    struct candidate *sorted = ARENA_ARRAY(arena, struct candidate, search->all.n);
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        const bool small = c->memory <= search->limit;
        if (c->step == SEARCH_BOUNDED) c->seconds = fmax(c->seconds, search->families.at[c->family].least);
        const int class = c == chosen                 ? -1
                          : c->refused                ? 4
                          : c->step == SEARCH_PLANNED ? 0
                          : !small                    ? 3
                          : c->step == SEARCH_BOUNDED ? 2
                                                      : 1;
        ranked[i] = (struct ranked){c->seconds, class, i};
    }
    qsort(ranked, (size_t)search->all.n, sizeof *ranked, by_time);
    for (int i = 0; i < search->all.n; i++) sorted[i] = search->all.at[ranked[i].candidate];
    search->all.at = sorted;
}

int search_plan(const struct options *options, struct arena *arena, struct diags *diags, struct search *search) {
    struct rt_progress progress;
    struct searching s = {.options = options,
                          .arena = arena,
                          .diags = diags,
                          .search = search,
                          .begun = rt_now_ms(),
                          .progress = &progress};
    const char *machine = options->machine;
    *search = (struct search){.arena = arena, .machine = machine_default, .limit = INFINITY, .given = options};
    search->outlines = ARENA_NEW(arena, struct outlines), map_init(&search->outlines->index, arena);
    search->balances = ARENA_NEW(arena, struct balances), map_init(&search->balances->index, arena);
    if (search_can_measure(options, diags) < 0) return -1;
    if (machine && machine_read(arena, diags, machine, &search->machine) < 0) return -1;
    if (search->machine.memory > 0) search->limit = search->machine.memory;
    if (options->mem_limit) search->limit = (double)options->mem_limit;
    struct models models = {0};
    struct search_model *model = ARENA_NEW(arena, struct search_model);
    const struct candidate one = search_one_rank(options);
    if (search_read(model, options, &one, &search->machine, arena, diags) < 0) return -1;
    s.models = &models;
    if (model->job.graph->train) search->tied = search_tied(model), search->tied_once = model->job.training.tied_once;
    VEC_PUSH(arena, &models.all, model);
    const struct plan *partial = model->job.side.constraints ? model->job.side.constraints->refine : NULL;
    const struct job asked = {.options = options, .arena = arena, .diags = diags};
    if (partial && job_check_plan(&asked, partial) < 0) return -1;
    struct options *refined = ARENA_NEW(arena, struct options);
    *refined = partial ? search_refined(options, partial) : *options;
    s.options = search->given = options = refined;
    search_list(search, model->job.graph->train, search_experts(model), search_layers(model));
    search_group(search);
    if (search_constrain(search, options, arena, diags) < 0 ||
        (partial && search_keep_partial(search, partial, diags) < 0))
        return -1;
    refuse_short(&s);
    rt_progress_begin(&progress, 0, options->quiet || options->json);
    bound_all(&s);
    const struct candidate *best = choose(&s);
    if (best) plan_best(&s, options->measure_topk);
    rt_progress_end(&progress);
    if (!best) return refuse(&s);
    best = search_first(search, SEARCH_PLANNED);
    const struct candidate *next = search_first(search, SEARCH_BOUNDED);
    if (next != best) search->gap = fmax(0, 1 - next->seconds / best->seconds);
    sort(search, best, arena);
    if (options->measure_topk && measure(&s) < 0) return -1;
    const int sound = job_verify(search->job);
    diags_append(sound < 0 ? diags : model->job.diags, search->job->diags);
    if (sound < 0) return -1;
    search->job->diags = model->job.diags;
    return 0;
}
