#include "frontend/driver/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

enum { MOST_PLANNED = 6 };

bool search_is_wanted(const struct options *options) {
    return options->pas.word == OPT_POLICY_AUTODIST;
}

/* Candidates as options -------------------------------------------------------------------------------------------- */

static void add_axis(struct options *options, struct arena *arena, const char *name, int size) {
    if (size == 1) return;
    const struct option_setting setting = {name, arena_printf(arena, "%d", size)};
    VEC_PUSH(arena, &options->pas.settings, setting);
    options->mesh[options->naxes++] = (struct mesh_axis){name, size};
    options->plan_ngpus *= size;
}

struct options search_options(const struct options *given, const struct candidate *candidate, struct arena *arena) {
    struct options options = *given;
    options.mem_limit = 0; /* the search compares with the limit */
    options.pas = (struct option_spec){.word = OPT_POLICY_HYBRID};
    options.naxes = 0;
    options.plan_ngpus = 1;
    add_axis(&options, arena, "tensor", candidate->tensor);
    add_axis(&options, arena, "data", candidate->data);
    add_axis(&options, arena, "pipeline", candidate->pipeline);
    if (!options.naxes) options.pas.word = OPT_POLICY_DP;
    options.runtime_ngpus = options.plan_ngpus * candidate->units;
    options.given[OPT_RUNTIME_NGPUS] = true;
    options_divide_batch(&options);
    options.use_zero = candidate->zero;
    options.recompute = candidate->recompute;
    options.schedule = candidate->schedule;
    return options;
}

/* Planning --------------------------------------------------------------------------------------------------------- */

/* What a complete plan says of a candidate. */
struct outcome {
    struct estimate estimate;
    double weights, gradients, optimizer, others; /* bytes of the rank that needs most */
    int micro_batches;
    const char *refused; /* NULL: it was planned */
};

struct searching {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
    struct search *search;
    int64_t begun; /* rt_now_ms */
};

static void measure(const struct job *job, struct outcome *outcome) {
    const struct training *training = job_training(job);
    outcome->estimate = job->estimate;
    outcome->micro_batches = training ? training->accumulate : 1;
    for (int c = 0; c < job->plan.nclasses; c++) {
        const int64_t *bytes = job->plan.classes[c].bytes;
        const double others = (double)(bytes[RT_ACTIVATIONS] + bytes[RT_COMMUNICATION] + bytes[RT_SCRATCH]);
        if (others < outcome->others) continue;
        outcome->weights = (double)bytes[RT_WEIGHTS], outcome->gradients = (double)bytes[RT_GRADIENTS];
        outcome->optimizer = (double)bytes[RT_OPTIMIZER], outcome->others = others;
    }
}

/* Plans the candidate in memory of its own, which is given back. */
static struct outcome plan_completely(const struct searching *s, const struct candidate *candidate) {
    struct outcome outcome = {0};
    struct arena *scratch = arena_scratch(s->arena);
    struct diags *diags = ARENA_NEW(scratch, struct diags);
    const struct options options = search_options(s->options, candidate, scratch);
    struct job job = {.options = &options, .arena = scratch, .diags = diags, .machine = s->search->machine};
    diags_init(diags, scratch);
    const bool planned = job_read(&job) == 0 && job_plan(&job) == 0;
    if (planned) measure(&job, &outcome);
    for (int i = 0; i < diags->all.n && !planned && !outcome.refused; i++)
        if (diags->all.at[i].severity == RT_SEVERITY_ERROR)
            outcome.refused = arena_strdup(s->arena, diags->all.at[i].text);
    if (!planned && !outcome.refused) outcome.refused = "it cannot be planned";
    arena_release(s->arena, scratch);
    return outcome;
}

/* Candidates ------------------------------------------------------------------------------------------------------- */

static bool may_divide(const struct searching *s, int tensor, int data, int pipeline, int units) {
    const struct options *options = s->options;
    const struct machine *machine = &s->search->machine;
    struct options divided = *options;
    divided.plan_ngpus = tensor * data * pipeline, divided.runtime_ngpus = divided.plan_ngpus * units;
    if (!options_divide_batch(&divided)) return false;
    if (machine->nlevels > 1 && tensor > machine->level[0].devices) return false;
    if (options->given[OPT_PLAN_NGPUS]) return tensor * data * pipeline == options->plan_ngpus;
    return data == 1 && tensor * pipeline * units == options->runtime_ngpus;
}

/* The candidates with these ways of parallelism: ZeRO where there are scale units, schedules where there are stages. */
static void add_variants(const struct searching *s, struct candidate base, bool trains) {
    const struct options *options = s->options;
    static const char *const recomputes[] = {NULL, "selective", "full"};
    for (int r = 0; r < (trains && !options->given[OPT_RECOMPUTE] ? 3 : 1); r++)
        for (int zero = 0; zero <= (trains && base.units * base.data > 1 && !options->given[OPT_USE_ZERO] ? 3 : 0);
             zero++) {
            struct candidate candidate = base;
            candidate.recompute = options->given[OPT_RECOMPUTE] ? options->recompute : recomputes[r];
            candidate.zero = options->given[OPT_USE_ZERO] ? (int)options->use_zero : zero;
            candidate.schedule = options->schedule;
            VEC_PUSH(s->arena, &s->search->all, candidate);
        }
}

static void list_candidates(const struct searching *s, bool trains) {
    const int devices = (int)(s->options->given[OPT_PLAN_NGPUS] ? s->options->plan_ngpus : s->options->runtime_ngpus);
    const int units = (int)(s->options->runtime_ngpus / s->options->plan_ngpus);
    for (int tensor = 1; tensor <= devices; tensor++)
        for (int data = 1; data <= devices / tensor && devices % tensor == 0; data++)
            for (int pipeline = 1; pipeline <= devices / tensor / data && devices / tensor % data == 0; pipeline++) {
                if (devices / tensor / data % pipeline) continue;
                struct candidate base = {.tensor = tensor, .data = data, .pipeline = pipeline};
                base.units = s->options->given[OPT_PLAN_NGPUS] ? units : devices / (tensor * pipeline);
                if (may_divide(s, tensor, data, pipeline, base.units)) add_variants(s, base, trains);
            }
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Predicts all candidates whose base is that of all.at[first]: Note [Search]. */
static void predict_from(const struct searching *s, int first) {
    const struct candidate of = s->search->all.at[first];
    const struct candidate base = {
        .tensor = of.tensor, .data = of.data, .pipeline = 1, .units = 1, .recompute = of.recompute};
    const struct outcome outcome = plan_completely(s, &base);
    const struct estimate *whole = &outcome.estimate;
    struct arena *scratch = arena_scratch(s->arena);
    for (int i = 0; i < s->search->all.n; i++) {
        struct candidate *c = &s->search->all.at[i];
        if (c->tensor != of.tensor || c->data != of.data || !same_text(c->recompute, of.recompute)) continue;
        const struct options options = search_options(s->options, c, scratch);
        const double stages = c->pipeline, micro = options.accumulate ? (double)options.accumulate : 1;
        const double parameters = outcome.weights / stages, ways = c->units;
        c->bound = false;
        double stride = c->tensor * c->data * c->pipeline, exchanged = 0;
        if (outcome.refused) {
            c->refused = outcome.refused, c->predicted = INFINITY;
            continue;
        }
        if (ways > 1 && outcome.gradients > 0) {
            const struct machine_level link = machine_link(&s->search->machine, ways, stride);
            const double times = c->zero == 3 ? 2 * micro + 1 : 2, all = times * parameters * (ways - 1) / ways;
            exchanged = all / link.bandwidth + times * link.latency;
        }
        const double worked = micro * whole->step / outcome.micro_batches / stages;
        const double hidden = worked * s->search->machine.overlap;
        c->predicted = worked * (1 + (stages - 1) / micro) + (exchanged > hidden ? exchanged - hidden : 0);
        c->predicted /= ways * micro;
        const double kept = stages < micro ? stages : micro;
        c->predicted_memory = parameters / (c->zero == 3 ? ways : 1) +
                              outcome.gradients / stages / (c->zero >= 2 ? ways : 1) +
                              outcome.optimizer / stages / (c->zero >= 1 ? ways : 1) + outcome.others * kept / stages;
    }
    arena_release(s->arena, scratch);
}

/* Predicts the candidates without recomputation. Those with it are slower: the prediction without is a lower bound,
 * until their base is planned (choose). */
static void predict_all(const struct searching *s) {
    struct search *search = s->search;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (c->predicted > 0) continue;
        predict_from(s, i);
        for (int k = i + 1; k < search->all.n; k++) {
            struct candidate *other = &search->all.at[k];
            if (other->predicted > 0 || other->tensor != c->tensor || other->data != c->data ||
                other->pipeline != c->pipeline || other->zero != c->zero)
                continue;
            other->predicted = c->predicted;
            other->bound = true;
        }
    }
}

/* Choosing --------------------------------------------------------------------------------------------------------- */

static bool fits(const struct search *search, const struct candidate *candidate) {
    return !candidate->refused && candidate->planned && (double)candidate->estimate.memory <= search->limit;
}

/* The seconds by which candidates are sorted. What is predicted not to fit, with a margin for what the prediction does
 * not know, comes last. */
static double urgency(const struct search *search, const struct candidate *c) {
    if (c->planned || c->refused) return INFINITY;
    return c->predicted_memory > 1.15 * search->limit ? 1e6 * c->predicted : c->predicted;
}

static struct candidate *next_of(const struct search *search) {
    struct candidate *next = NULL;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (isfinite(urgency(search, c)) && (!next || urgency(search, c) < urgency(search, next))) next = c;
    }
    return next;
}

static struct candidate *best_of(const struct search *search) {
    struct candidate *best = NULL;
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        if (fits(search, c) && (!best || c->seconds < best->seconds)) best = c;
    }
    return best;
}

static void plan_candidate(const struct searching *s, struct candidate *candidate) {
    const struct outcome outcome = plan_completely(s, candidate);
    candidate->planned = true;
    candidate->refused = outcome.refused;
    candidate->estimate = outcome.estimate;
    candidate->seconds = outcome.estimate.step / ((double)outcome.micro_batches * candidate->units);
}

/* True while further candidates may be planned. The first that fits is planned however long that takes. */
static bool goes_on(const struct searching *s, int planned) {
    if (!best_of(s->search)) return true;
    if (s->options->search_time) return rt_now_ms() - s->begun < 1000 * s->options->search_time;
    return planned < MOST_PLANNED;
}

static struct candidate *choose(const struct searching *s) {
    for (int planned = 0; goes_on(s, planned);) {
        struct candidate *next = next_of(s->search), *best = best_of(s->search);
        if (!next || (best && best->seconds < next->predicted)) break;
        if (next->bound) {
            predict_from(s, (int)(next - s->search->all.at));
        } else {
            plan_candidate(s, next);
            planned++;
        }
    }
    return best_of(s->search);
}

/* E0430, with the plan that needs the least memory among those that were planned. */
static int refuse(const struct searching *s) {
    const struct search *search = s->search;
    const struct candidate *least = NULL, *any = NULL;
    for (int i = 0; i < search->all.n; i++) {
        const struct candidate *c = &search->all.at[i];
        if (c->refused && !any) any = c;
        if (!c->refused && c->planned && (!least || c->estimate.memory < least->estimate.memory)) least = c;
    }
    if (!least)
        return diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist", "no plan was found: %s",
                          any ? any->refused : "no mesh has that many devices");
    const struct options options = search_options(s->options, least, s->arena);
    diag_error(s->diags, 430, EXIT_LIMIT, "--pas autodist",
               "no plan fits into %.0f bytes of memory per rank: the smallest that was found needs %lld", search->limit,
               (long long)least->estimate.memory);
    diag_note(s->diags, "it is --pas %s with ZeRO %d, recompute %s", options_text(&options, OPT_PAS, s->arena),
              least->zero, least->recompute ? least->recompute : "none");
    return -1;
}

static int by_time(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->planned != b->planned) return a->planned ? -1 : 1;
    const double x = a->planned ? a->seconds : a->predicted, y = b->planned ? b->seconds : b->predicted;
    return x < y ? -1 : x > y;
}

/* Reads the model, so that what is wrong with it is reported once. 0, 1 if it is trained, or -1 after a diagnostic. */
static int read_model(const struct searching *s) {
    struct arena *scratch = arena_scratch(s->arena);
    const struct candidate one = {.tensor = 1, .data = 1, .pipeline = 1, .units = 1};
    const struct options options = search_options(s->options, &one, scratch);
    struct job job = {.options = &options, .arena = scratch, .diags = s->diags};
    const int trains = job_read(&job) < 0 ? -1 : job.graph->train;
    arena_release(s->arena, scratch);
    return trains;
}

int search_plan(const struct options *options, struct arena *arena, struct diags *diags, struct search *search,
                struct options *found) {
    const struct searching s = {options, arena, diags, search, rt_now_ms()};
    const char *machine = options->machine;
    *search = (struct search){.machine = machine_default, .limit = INFINITY};
    if (machine && machine_read(arena, diags, machine, &search->machine) < 0) return -1;
    if (search->machine.memory > 0) search->limit = search->machine.memory;
    if (options->mem_limit) search->limit = (double)options->mem_limit;
    const int trains = read_model(&s);
    if (trains < 0) return -1;
    list_candidates(&s, trains);
    predict_all(&s);
    const struct candidate *best = choose(&s);
    if (!best) return refuse(&s);
    *found = search_options(options, best, arena);
    const struct candidate *next = next_of(search);
    if (next && next->predicted < best->seconds && urgency(search, next) == next->predicted)
        search->gap = 1 - next->predicted / best->seconds;
    const struct candidate chosen = *best;
    qsort(search->all.at, (size_t)search->all.n, sizeof *search->all.at, by_time);
    for (int i = 0; i < search->all.n; i++)
        if (memcmp(&search->all.at[i], &chosen, sizeof chosen) == 0) {
            search->all.at[i] = search->all.at[0];
            search->all.at[0] = chosen;
            break;
        }
    return 0;
}
