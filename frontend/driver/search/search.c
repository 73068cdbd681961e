#include "frontend/driver/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/progress.h"

/* Candidates that take the step SHORTENED, and that are planned completely, at most, unless --search-time says how long
 * the search goes on. Of small models more are planned: as many as have so many nodes together. */
enum { MOST_SHORTENED = 20, MOST_PLANNED = 4, MOST_NODES = 4000 };

/* A candidate that is predicted to need that much more than the limit is not tried: the prediction is not exact.
 * Without stages, what follows from shortened graphs is. */
static const double memory_margin = 1.15, shortened_margin = 1.005;

/* A candidate is first if it takes the least time even where predictions are so much too long. */
static const double prediction_error = 0.02;

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
    double tied;           /* search_tied */
    int64_t begun;         /* rt_now_ms */
    struct rt_progress *progress;
};

static bool fits(const struct search *search, const struct candidate *c) {
    const bool exact = c->step == SEARCH_SHORTENED && c->ways[SEARCH_PIPELINE] == 1;
    return c->memory <= search->limit * (c->step == SEARCH_PLANNED ? 1 : exact ? shortened_margin : memory_margin);
}

bool search_fits(const struct search *search, const struct candidate *candidate) {
    return candidate->step == SEARCH_PLANNED && !candidate->refused && candidate->memory <= search->limit;
}

/* Seconds that the candidate takes at least. */
static double least_seconds(const struct candidate *c) {
    return c->seconds * (c->step == SEARCH_PREDICTED ? 1 - prediction_error : 1);
}

/* The candidate with the least time that is not known not to fit, among those that have taken the step `least`; NULL:
 * there is none. */
static struct candidate *first_of(const struct search *search, enum search_step least) {
    struct candidate *first = NULL;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->step < least || c->refused || !fits(search, c)) continue;
        if (!first || least_seconds(c) < least_seconds(first)) first = c;
    }
    return first;
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

/* Bounds ----------------------------------------------------------------------------------------------------------- */

/* The form that communicates as much and in fewer steps, with more in memory; else the form itself. */
static enum search_form faster_form(enum search_form form) {
    return form == SEARCH_RING ? SEARCH_GATHER : form == SEARCH_MIRRORED_RING ? SEARCH_MIRRORED : form;
}

/* True if the candidate's base is that of `than` with what makes a step slower, to save memory or to use more ranks for
 * a sample. */
static bool has_slower_base(const struct candidate *c, const struct candidate *than) {
    struct candidate like = *c;
    like.recompute = than->recompute;
    like.ways[SEARCH_CONTEXT] = than->ways[SEARCH_CONTEXT];
    if (than->ways[SEARCH_CONTEXT] == 1 || than->form == faster_form(c->form)) like.form = than->form;
    return (!than->recompute || c->recompute == than->recompute) &&
           c->ways[SEARCH_CONTEXT] >= than->ways[SEARCH_CONTEXT] && search_same_base(&like, than);
}

/* The same of the rest of the candidate. */
static bool is_rest_alike(const struct candidate *c, const struct candidate *than) {
    return c->own.ways == than->own.ways && c->own.axis == than->own.axis && c->own.first == than->own.first &&
           c->own.end == than->own.end && c->zero == than->zero && c->groups == than->groups &&
           c->schedule == than->schedule && c->ways[SEARCH_PIPELINE] == than->ways[SEARCH_PIPELINE] &&
           c->ways[SEARCH_CONTEXT] * c->units == than->ways[SEARCH_CONTEXT] * than->units;
}

/* The ranks among which ZeRO divides: those of all replica axes, and of scale units those of a group. */
static double zero_ranks(const struct candidate *c) {
    const double units = search_law(c).copies * c->units / (double)c->groups;
    return units * c->ways[SEARCH_CONTEXT] * c->ways[SEARCH_DATA];
}

/* Bytes of weights, gradients and optimizer states of a rank, by the plan of the candidate's base or of one with other
 * micro-batches, recomputation, or ranks along context. */
static double states(const struct candidate *c, const struct outcome *base) {
    const double held = (double)search_law(c).copies / c->ways[SEARCH_PIPELINE], *part = base->part;
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
    const struct schedule_law law = search_law(c);
    if (!c->recompute || strcmp(c->recompute, "full") != 0 || !base->layers) return law.kept;
    return law.kept_full * (1 + boundary * law.chunks * c->ways[SEARCH_PIPELINE] / base->layers);
}

/* Bytes of a rank that are neither weights nor of the optimizer: those of each layer for each micro-batch that is kept,
 * and the others. `share`: of the layers' bytes by the plan of the base that the candidate keeps. */
static double activations(const struct candidate *c, const struct outcome *base, double micro_batches, double share) {
    const double stages = c->ways[SEARCH_PIPELINE], all = base->part[OUTCOME_OTHERS];
    const double of_layers = base->layers ? base->layers * base->layer[OUTCOME_OTHERS] : all;
    if (stages == 1) return all + (share - 1) * of_layers;
    const struct schedule_law law = search_law(c);
    return all - of_layers +
           kept_times(c, base) * share * of_layers * fmin(law.flight * stages, micro_batches) / stages;
}

/* What a candidate needs at least, by the plan of a base `of` with the same recomputation and fewer sequences, or fewer
 * ranks along context; by that of another one, or one that gathers keys, only its states are known. */
static double least_memory(const struct searching *s, const struct candidate *c, const struct candidate *of,
                           const struct outcome *base) {
    static const double part_that_follows = 0.8;
    const double larger = c->batch ? (double)c->batch / of->batch : 1;
    const double share = part_that_follows * larger * of->ways[SEARCH_CONTEXT] / c->ways[SEARCH_CONTEXT];
    const double micro = (double)search_micro_batches(s->options, c);
    const bool gathers = c->form != of->form && of->ways[SEARCH_CONTEXT] > 1;
    if (c->recompute != of->recompute || gathers) return states(c, base);
    return states(c, base) + fmin(share, 1) * activations(c, base, micro, fmax(share, 1));
}

/* Bounds the candidates by those with the base of `of`, which were predicted. */
static void bound_by(const struct searching *s, const struct candidate *of) {
    struct search *search = s->search;
    VEC(const struct candidate *) alike = {0};
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *than = &search->all.at[i];
        if (!than->refused && search_same_base(than, of)) VEC_PUSH(s->arena, &alike, than);
    }
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->step != SEARCH_BOUNDED || !has_slower_base(c, of)) continue;
        for (int k = 0; k < alike.n; k++)
            if (is_rest_alike(c, alike.at[k])) c->seconds = fmax(c->seconds, alike.at[k]->seconds);
        if (alike.n) c->memory = fmax(c->memory, least_memory(s, c, of, alike.at[0]->base));
    }
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

/* Seconds of as many collectives with one pass each over so many bytes, along an axis of the mesh. */
static double passing(const struct searching *s, double times, double bytes, double ways, double stride) {
    const struct machine_level link = machine_link(&s->search->machine, ways, stride);
    return s->search->machine.correction * times * machine_collective(&link, (ways - 1) / ways, bytes, 1);
}

/* Seconds in which scale units exchange the gradients, and with ZeRO 3 the parameters, of a rank. They are reduced
 * beside the last micro-batch; from ZeRO 2 on in each micro-batch, beside little, and with ZeRO 3 parameters are
 * gathered twice in each, beside what one layer computes. ZeRO groups sum what each rank has of the gradients once,
 * with ZeRO 1 after the last micro-batch. */
static double exchanging(const struct searching *s, const struct candidate *c, double parameters, double micro_batches,
                         double worked) {
    double stride = 1;
    for (int a = 0; a < SEARCH_AXES; a++) stride *= c->ways[a];
    stride /= search_law(c).copies;
    const double ways = c->units * search_law(c).copies / (double)c->groups, room = worked * s->search->machine.overlap;
    const double times = c->zero == 3 ? 3 * micro_batches : c->zero == 2 ? micro_batches + 1 : 2;
    const double within = passing(s, times, parameters, ways, stride);
    const double between = c->groups > 1 ? passing(s, 2, parameters / ways, c->groups, stride * ways) : 0;
    const double hidden = c->zero == 3 ? fmin(room, within) / 2 : c->zero == 2 ? 0 : fmin(room / micro_batches, within);
    return within - hidden + fmax(0, between - (c->zero >= 2 ? room / micro_batches : 0));
}

/* The layers that the slowest rank takes as long as, which has `chunks` of the stages, the slowest one among them.
 * Stages have whole layers; what is no layer takes as long as `rest` of them, and is in the last stage. */
static double slowest_rank(double rest, int layers, int stages, int chunks) {
    double best = INFINITY;
    for (int last = 0; last <= layers; last++) {
        const int others = (layers - last + stages - 2) / (stages - 1);
        best = fmin(best, (chunks - 1) * others + fmax(rest + last, others));
    }
    return best;
}

/* Seconds of the micro-batches of a step, without the update. */
static double working(const double part[OUTCOME_PARTS]) {
    return part[OUTCOME_STEP] - part[OUTCOME_UPDATE];
}

/* Seconds of a layer on a stage of the candidate. */
static double layer_seconds(const struct candidate *c, int stage) {
    const struct outcome *of = stage >= c->own.first && stage < c->own.end ? c->larger : c->base;
    return working(of->layer);
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
    return working(outcome->part) / working(outcome->layer) - outcome->layers;
}

/* The part of 1f1b's waiting that the schedule has with that many micro-batches. */
static double waiting_part(const struct schedule_law *law, double stages, double micro) {
    const double enough = law->flight * stages;
    return micro >= enough ? law->waiting : law->few + (law->waiting - law->few) * (micro - 1) / (enough - 1);
}

static double samples_of(const struct candidate *c) {
    return c->batch ? c->batch : 1;
}

/* Bytes that the first stage keeps for the gradients of tied weights that the last one sends for each micro-batch: in
 * the type of products, in two slots, and with several stages on a rank in four (passes/place/messages.h). */
static double tied_gradients(const struct searching *s, const struct candidate *c) {
    const struct schedule_law law = search_law(c);
    const double bytes = s->options->amp ? 2 : 4, slots = law.chunks > law.copies ? 4 : 2;
    if (c->ways[SEARCH_PIPELINE] == 1) return 0;
    return bytes * s->tied / c->ways[SEARCH_TENSOR] * fmin(slots, (double)search_micro_batches(s->options, c));
}

/* Predicts time and memory of the candidate from what the plan of its base says: Note [Search]. */
static void predict(const struct searching *s, struct candidate *c, const struct outcome *base) {
    const struct schedule_law law = search_law(c);
    const double stages = c->ways[SEARCH_PIPELINE], micro = (double)search_micro_batches(s->options, c);
    const double *part = base->part, parameters = part[OUTCOME_WEIGHTS] * law.copies / stages;
    const double ways = c->units * law.copies;
    double longest = working(part) / stages;
    const int chunks = law.chunks / law.copies;
    if (c->own.ways && c->base->layers)
        longest = slowest_unequal(c, search_rest(c->base));
    else if (stages > 1 && base->layers)
        longest = working(base->layer) *
                  slowest_rank(search_rest(base), base->layers, c->ways[SEARCH_PIPELINE] * chunks, chunks);
    const double worked = micro * longest / base->micro_batches;
    double seconds = worked * (1 + waiting_part(&law, stages, micro) * (stages - 1) / micro);
    if (ways > 1 && part[OUTCOME_GRADIENTS] > 0) seconds += exchanging(s, c, parameters, micro, worked);
    seconds += part[OUTCOME_UPDATE] * law.copies / stages / (c->zero ? zero_ranks(c) : 1);
    c->seconds = seconds / (c->units * micro * samples_of(c));
    c->memory = states(c, base) + activations(c, base, micro, 1) + tied_gradients(s, c);
}

/* How many times as fast as equal ones stages can be of which some have more ranks, at most. */
static double most_speedup(const struct candidate *c) {
    const double larger = c->own.end - c->own.first;
    return c->own.ways ? 1 + larger * (c->own.ways - 1) / c->ways[SEARCH_PIPELINE] : 1;
}

/* Bounds the candidates with larger micro-batches than `of` and a base that is else the same or slower: they take the
 * least time in which kernels can compute what is in `outcome`, and with the same base as much memory. */
static void bound_larger(const struct searching *s, const struct candidate *of, const struct outcome *outcome) {
    struct outcome least = *outcome;
    if (!of->batch || !(least.part[OUTCOME_LEAST] > 0)) return;
    least.part[OUTCOME_STEP] = least.part[OUTCOME_LEAST];
    least.layers = 0; /* stages that take equally long */
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i], like = *c;
        if (c->step != SEARCH_BOUNDED || c->refused || c->batch <= of->batch) continue;
        like.batch = of->batch;
        if (!has_slower_base(&like, of)) continue;
        like.batch = c->batch, like.recompute = of->recompute, like.form = of->form;
        like.units = c->units * c->ways[SEARCH_CONTEXT] / of->ways[SEARCH_CONTEXT];
        like.ways[SEARCH_CONTEXT] = of->ways[SEARCH_CONTEXT];
        least.micro_batches = (int)((double)outcome->micro_batches * of->batch / c->batch);
        like.own = (struct own_axis){0}; /* as if all stages were the smaller ones */
        predict(s, &like, &least);
        c->seconds = fmax(c->seconds, like.seconds / most_speedup(c));
        c->memory = fmax(c->memory, least_memory(s, c, of, outcome));
    }
}

/* The layers that a stage of one kind gets, as a multiple of what each of as many equal stages would get, where all
 * stages take equally long. `own`: seconds of the whole model on a stage of that kind. */
static double share_of(const struct candidate *c, double own) {
    const double larger = c->own.end - c->own.first, stages = c->ways[SEARCH_PIPELINE];
    return stages / own / (larger / working(c->larger->part) + (stages - larger) / working(c->base->part));
}

/* The plan of a base with which a candidate of equal stages would take as long, and need as much memory on its fullest
 * rank, as this one. */
static struct outcome of_unequal(const struct candidate *c) {
    const double smaller = share_of(c, working(c->base->part)), larger = share_of(c, working(c->larger->part));
    const bool most = larger * c->larger->part[OUTCOME_MEMORY] > smaller * c->base->part[OUTCOME_MEMORY];
    struct outcome out = most ? *c->larger : *c->base;
    for (int p = 0; p < OUTCOME_PARTS; p++) {
        out.part[p] *= most ? larger : smaller;
        out.layer[p] *= most ? larger : smaller;
    }
    return out;
}

/* Bounds the candidates with such stages and the same base but for what makes a step slower. */
static void bound_unequal(const struct searching *s, const struct candidate *of, const struct outcome *mixed) {
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i];
        if (!c->own.ways || c->step != SEARCH_BOUNDED || !has_slower_base(c, of) || !is_rest_alike(c, of)) continue;
        c->seconds = fmax(c->seconds, of->seconds);
        c->memory = fmax(c->memory, least_memory(s, c, of, mixed));
    }
}

/* Notes what is known of the bases of a candidate with unequal stages, and predicts it when both are known. */
static void predict_unequal(const struct searching *s, struct candidate *c, const struct candidate *of,
                            const struct outcome *outcome) {
    const struct candidate larger = search_larger_base(c);
    if (search_same_base(c, of)) c->base = outcome;
    if (search_same_base(&larger, of)) c->larger = outcome;
    if (c->step != SEARCH_BOUNDED || c->refused || !c->base || !c->larger) return;
    c->refused = c->base->refused ? c->base->refused : c->larger->refused;
    c->step = SEARCH_PREDICTED;
    if (c->overlap == SEARCH_IF_FASTER) c->overlap = c->larger->overlaps ? SEARCH_ALWAYS : SEARCH_NEVER;
    if (c->refused) return;
    const struct outcome mixed = of_unequal(c);
    predict(s, c, &mixed);
    bound_unequal(s, c, &mixed);
}

/* Predicts all candidates with the base of `candidate`, and bounds others by them. */
static void predict_from(const struct searching *s, const struct candidate *candidate) {
    struct candidate of = *candidate;
    const struct candidate base = search_base(&of);
    struct outcome *outcome = ARENA_NEW(s->arena, struct outcome);
    struct shortened shortened;
    const struct search_model *model = model_of(s, &of);
    const bool shorter = model && search_shortened(model, s->options, &base, s->arena, &shortened);
    *outcome = shorter ? shortened.outcome
               : model ? search_planned(model, s->options, &base, s->arena, NULL)
                       : (struct outcome){.refused = of.refused};
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i];
        if (c->own.ways) predict_unequal(s, c, &of, outcome);
        if (c->own.ways || (c->refused && c->refused != outcome->refused) || !search_same_base(c, &of)) continue;
        c->step = SEARCH_PREDICTED, c->refused = outcome->refused, c->base = outcome;
        if (c->overlap == SEARCH_IF_FASTER) c->overlap = outcome->overlaps ? SEARCH_ALWAYS : SEARCH_NEVER;
        if (!c->refused) predict(s, c, outcome);
    }
    if (outcome->refused) return;
    bound_by(s, &of);
    bound_larger(s, &of, outcome);
}

static void take_outcome(struct candidate *c, enum search_step step, const struct outcome *outcome) {
    c->step = step, c->refused = outcome->refused;
    c->seconds = outcome->part[OUTCOME_STEP] / ((double)outcome->micro_batches * c->units * samples_of(c));
    c->memory = outcome->part[OUTCOME_MEMORY];
}

/* Plans the candidate completely, and keeps the plan if it is the best so far. */
static void plan_completely(const struct searching *s, struct candidate *c) {
    struct search *search = s->search;
    struct job *job;
    const struct search_model *model = model_of(s, c);
    if (!model) return;
    const struct outcome outcome = search_planned(model, s->options, c, s->arena, &job);
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

/* Shows how many plans were tried, the step of the best complete plan, and what is left of --search-time. */
static void show_search(const struct searching *s) {
    const struct search *search = s->search;
    const struct candidate *best = first_of(search, SEARCH_PLANNED);
    int tried = 0;
    char text[80], step[40] = "";
    for (int i = 0; i < search->all.n; i++)
        tried += search->all.at[i].refused || search->all.at[i].step > SEARCH_BOUNDED;
    snprintf(text, sizeof text, "search: %d of %d plans tried", tried, search->all.n);
    if (best) snprintf(step, sizeof step, ", best step %.4g ms", best->seconds * 1e3);
    const double left = (double)s->options->search_time - (double)(rt_now_ms() - s->begun) / 1e3;
    rt_progress_say(s->progress, text, s->options->search_time ? fmax(left, 0) : -1, step);
}

/* In which order candidates bound others: with fewer ranks along context, of these with the smallest micro-batches, of
 * these with the faster form. */
static int bounding_rank(const struct candidate *c, int smallest) {
    return 4 * c->ways[SEARCH_CONTEXT] + 2 * (c->batch != smallest) + (c->form != faster_form(c->form));
}

/* A candidate whose base, if it is predicted, bounds that of c: the same with fewer ranks along context, with the
 * smallest micro-batches or with the faster form; the first by bounding_rank. -1: there is none that was not
 * predicted. */
static int find_bounding(const struct searching *s, const struct candidate *c) {
    const int smallest = c->batch ? c->ways[SEARCH_EXPERT] * c->ways[SEARCH_DATA] : 0;
    int found = -1, least = bounding_rank(c, smallest);
    for (int i = 0; i < s->search->all.n; i++) {
        const struct candidate *other = &s->search->all.at[i];
        const int ranks = other->ways[SEARCH_CONTEXT], rank = bounding_rank(other, smallest);
        struct candidate like = *c;
        if (other->step != SEARCH_BOUNDED || other->refused || other->own.ways || rank >= least) continue;
        if (other->batch == smallest) like.batch = smallest;
        like.ways[SEARCH_CONTEXT] = ranks;
        if (ranks == 1 || other->form == faster_form(c->form)) like.form = other->form;
        if (search_same_base(&like, other)) found = i, least = rank;
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
    struct shortened shortened;
    const int bounding = c->step == SEARCH_BOUNDED && !c->own.ways ? find_bounding(s, c) : -1;
    if (c->step == SEARCH_BOUNDED && c->own.ways)
        predict_bases(s, c);
    else if (c->step == SEARCH_BOUNDED)
        predict_from(s, bounding < 0 ? c : &s->search->all.at[bounding]);
    else if (c->step == SEARCH_PREDICTED && search_shortened(model_of(s, c), s->options, c, s->arena, &shortened))
        take_shortened(s, c, &shortened);
    else
        plan_completely(s, c);
    show_search(s);
}

/* Refuses the candidates with more stages than nodes, and those with which a rank has several stages of less than two
 * layers: what it keeps and sends for each is more than it saves. */
static void refuse_short(const struct searching *s) {
    const struct search_model *model = s->models->all.at[0];
    const int layers = search_layers(model), nodes = model->job.graph->order.n;
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i];
        const int chunks = search_law(c).chunks / search_law(c).copies;
        if (!c->refused && layers && chunks > 1 && layers < 2 * chunks * c->ways[SEARCH_PIPELINE])
            c->refused = "interleaved stages of less than two layers";
        if (!c->refused && c->ways[SEARCH_PIPELINE] > nodes)
            c->refused = arena_printf(s->arena, "%d pipeline stages, but the model has only %d nodes",
                                      c->ways[SEARCH_PIPELINE], nodes);
    }
}

/* Predicts the candidates that have nothing that makes a step slower, which bounds the others. */
static void bound_all(const struct searching *s) {
    struct search *search = s->search;
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        const int ranks = c->ways[SEARCH_EXPERT] * c->ways[SEARCH_DATA];
        if (c->step == SEARCH_BOUNDED && !c->refused && !c->recompute && c->ways[SEARCH_CONTEXT] == 1 &&
            (!c->batch || c->batch == ranks)) {
            if (c->own.ways)
                predict_bases(s, c);
            else
                predict_from(s, c);
            show_search(s);
        }
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

/* Candidates that are planned completely, at most. */
static int most_planned(const struct searching *s) {
    const int nodes = s->models->all.at[0]->job.graph->order.n, many = MOST_NODES / (nodes ? nodes : 1);
    return many > MOST_PLANNED ? many : MOST_PLANNED;
}

/* The search: Note [Search]. NULL if nothing that was planned fits. */
static struct candidate *choose(const struct searching *s) {
    int taken[SEARCH_STEPS] = {0}, planned = 0; /* planned: those that fit */
    const int most = most_planned(s);
    for (;;) {
        const bool late = s->options->search_time && rt_now_ms() - s->begun >= 1000 * s->options->search_time;
        const bool enough = s->options->search_time ? late : taken[SEARCH_SHORTENED] >= MOST_SHORTENED;
        struct candidate *first = first_of(s->search, enough ? SEARCH_SHORTENED : SEARCH_BOUNDED);
        struct candidate *best = first_of(s->search, SEARCH_PLANNED);
        if (best && (best == first || late || planned >= most)) return best;
        if (!first && enough) first = first_of(s->search, SEARCH_BOUNDED);
        if (!first && taken[SEARCH_PLANNED] < most) first = smallest_of(s->search);
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
    const bool trains = s->models->all.at[0]->job.graph->train;
    const struct candidate predicted = search->all.at[0];
    if (search_measure(search, s->options, trains, s->arena, s->diags) < 0) return -1;
    if (search_save_machine(search, s->options, s->arena, s->diags) < 0) return -1;
    struct candidate *fastest = &search->all.at[0];
    search->gap = 0;
    if (fastest->seconds == predicted.seconds && fastest->memory == predicted.memory) return 0;
    search_forget(search->job, s->arena);
    const struct outcome outcome = search_planned(model_of(s, fastest), s->options, fastest, s->arena, &search->job);
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
    search_planned(model_of(s, least), s->options, least, s->arena, &job);
    if (job) job_note_memory(job, s->diags);
    search_forget(job, s->arena);
    return -1;
}

/* A candidate, and its class: 0 planned, 1 expected to fit, 2 only bounded, 3 not expected to fit, 4 refused. */
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
        ranked[i] = (struct ranked){*c, c->refused                  ? 4
                                        : c->step == SEARCH_PLANNED ? 0
                                        : !small                    ? 3
                                        : c->step == SEARCH_BOUNDED ? 2
                                                                    : 1};
        if (c == chosen) ranked[i].class = -1;
    }
    qsort(ranked, (size_t)search->all.n, sizeof *ranked, by_time);
    for (int i = 0; i < search->all.n; i++) search->all.at[i] = ranked[i].candidate;
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
    *search = (struct search){.machine = machine_default, .limit = INFINITY, .given = options};
    if (search_can_measure(options, diags) < 0) return -1;
    if (machine && machine_read(arena, diags, machine, &search->machine) < 0) return -1;
    if (search->machine.memory > 0) search->limit = search->machine.memory;
    if (options->mem_limit) search->limit = (double)options->mem_limit;
    struct models models = {0};
    struct search_model *model = ARENA_NEW(arena, struct search_model);
    const struct candidate one = {
        .ways = {1, 1, 1, 1, 1}, .units = 1, .groups = 1, .batch = search_smallest_batch(options)};
    if (search_read(model, options, &one, &search->machine, arena, diags) < 0) return -1;
    s.models = &models;
    if (model->job.graph->train) s.tied = search_tied(model);
    VEC_PUSH(arena, &models.all, model);
    const struct plan *partial = model->job.side.constraints ? model->job.side.constraints->refine : NULL;
    const struct job asked = {.options = options, .arena = arena, .diags = diags};
    if (partial && job_check_plan(&asked, partial) < 0) return -1;
    struct options *refined = ARENA_NEW(arena, struct options);
    *refined = partial ? search_refined(options, partial) : *options;
    s.options = search->given = options = refined;
    search_list(search, options, model->job.graph->train, search_experts(model), search_layers(model), arena);
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
    best = first_of(search, SEARCH_PLANNED);
    const struct candidate *next = first_of(search, SEARCH_BOUNDED);
    if (next != best) search->gap = 1 - next->seconds / best->seconds;
    sort(search, best, arena);
    if (options->measure_topk && measure(&s) < 0) return -1;
    diags_append(model->job.diags, search->job->diags);
    search->job->diags = model->job.diags;
    return 0;
}
