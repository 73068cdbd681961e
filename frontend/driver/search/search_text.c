/* What the user is told of a search. */
#include "frontend/driver/search/search.h"

#include <math.h>
#include <string.h>

#include "ir/base/str.h"

enum { SHORT_LIST = 5 };

/* "73.3 GiB", "331 KiB" */
static const char *bytes_text(struct arena *arena, double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; unit < 4 && bytes >= 999.5; unit++) bytes /= 1024;
    return arena_printf(arena, "%.3g %s", bytes, units[unit]);
}

/* "0.0139 s", "33.8 us" */
static const char *seconds_text(struct arena *arena, double seconds) {
    return seconds < 1e-3 ? arena_printf(arena, "%.3g us", seconds * 1e6) : arena_printf(arena, "%.3g s", seconds);
}

static const char *batch_name(const struct options *given, struct arena *arena) {
    return str_escape(arena, given->batch_dim, strlen(given->batch_dim), 120);
}

static void put_decision(struct strbuf *text, const struct candidate *candidate, const struct decision *row) {
    const char *value = row->trait && !row->policies ? search_decides(candidate, row, text->arena) : NULL;
    if (value) strbuf_printf(text, strcmp(value, "yes") ? " --%s %s" : " --%s", row->name, value);
}

const char *search_words(const struct candidate *candidate, const struct options *given, struct arena *arena) {
    const struct options options = search_options(given, candidate, arena);
    const int batch = candidate->batch > 1 || !given->model_config ? candidate->batch : 0;
    struct strbuf text;
    strbuf_init(&text, arena);
    strbuf_printf(&text, "--pas %s --runtime-ngpus %lld", options_text(&options, OPT_PAS, arena),
                  (long long)options.runtime_ngpus);
    if (batch) strbuf_printf(&text, " --dim %s=%d", batch_name(given, arena), batch);
    for (int i = 0; i < DECISIONS; i++)
        if (i != DECIDES_schedule) put_decision(&text, candidate, &decision_rows[i]);
    put_decision(&text, candidate, &decision_rows[DECIDES_schedule]);
    return strbuf_text(&text);
}

/* What candidate->seconds are for. */
static const char *share_of(const struct search *search, const struct candidate *candidate) {
    return !candidate->batch ? "micro-batch" : search->given->model_config ? "sequence" : "sample";
}

/* "0.0123 s a micro-batch, predicted 0.0114 s (-7 %)" */
static const char *measured_text(const struct search *search, const struct candidate *candidate, struct arena *arena) {
    return arena_printf(arena, "%s a %s, predicted %s (%+.0f %%)", seconds_text(arena, candidate->measured),
                        share_of(search, candidate), seconds_text(arena, candidate->seconds),
                        100 * (candidate->seconds / candidate->measured - 1));
}

/* How a time compares with that of the chosen candidate: "1.04 times as slow". */
static const char *compared(double seconds, double chosen, struct arena *arena) {
    const double ratio = seconds / chosen;
    if (fabs(ratio - 1) < 0.005) return "as fast";
    return ratio > 1 ? arena_printf(arena, "%.3g times as slow", ratio)
                     : arena_printf(arena, "%.3g times as fast", 1 / ratio);
}

/* Why the candidate is not the chosen one. */
static const char *verdict(const struct search *search, const struct candidate *candidate, struct arena *arena) {
    const struct candidate *chosen = &search->all.at[0];
    const bool planned = candidate->step == SEARCH_PLANNED;
    if (candidate->refused) return arena_printf(arena, "refused: %s", candidate->refused);
    if (candidate->memory > search->limit)
        return arena_printf(arena, "%s by %s", planned ? "does not fit" : "not planned: predicted not to fit",
                            bytes_text(arena, candidate->memory - search->limit));
    if (candidate->step == SEARCH_BOUNDED && candidate->seconds > chosen->seconds)
        return arena_printf(arena, "not planned: at best %s, by others that are alike",
                            compared(candidate->seconds, chosen->seconds, arena));
    if (candidate->step == SEARCH_BOUNDED) return "not planned: the search ended before";
    if (candidate->unmeasured) return arena_printf(arena, "not measured: %s", candidate->unmeasured);
    if (candidate->measured)
        return arena_printf(arena, "measured %s: %s, %s", compared(candidate->measured, chosen->measured, arena),
                            measured_text(search, candidate, arena), bytes_text(arena, candidate->memory));
    /* one that seems faster was not looked at more closely: the search ended before */
    const bool ended = !planned && candidate->seconds < chosen->seconds && !chosen->measured;
    return arena_printf(arena, "%s%s%s: %s a %s, %s", ended ? "not planned before the search ended: " : "",
                        planned && !chosen->measured ? "" : "predicted ",
                        compared(candidate->seconds, chosen->seconds, arena), seconds_text(arena, candidate->seconds),
                        share_of(search, candidate), bytes_text(arena, candidate->memory));
}

enum { KINDS = 10 };

/* The kinds that the candidate is of. The best of each is reported, that the user sees why it is not chosen. */
static unsigned kinds_of(const struct candidate *c) {
    const struct decisions *d = &c->decisions;
    const char *schedule = search_ways(c, AXIS_PIPELINE) > 1 && d->schedule ? d->schedule : "";
    const bool is[KINDS] = {search_ways(c, AXIS_EXPERT) > 1,
                            c->batch > search_ways(c, AXIS_EXPERT) * search_ways(c, AXIS_DATA),
                            d->cut == CUT_MIRRORED && d->attention == ATTENTION_GATHER,
                            d->attention == ATTENTION_HEADS,
                            d->attention == ATTENTION_RING,
                            d->zero_groups > 1,
                            c->overlap == SEARCH_ALWAYS,
                            strncmp(schedule, "zb-", 3) == 0,
                            strcmp(schedule, "chimera") == 0,
                            c->schedule.chunks > 2};
    unsigned kinds = 0;
    for (int k = 0; k < KINDS; k++) kinds |= (unsigned)is[k] << k;
    return kinds;
}

/* Per candidate: true for the first `least`, and for the first of each kind. */
static bool *find_shown(const struct search *search, int least, struct arena *arena) {
    bool *shown = ARENA_ARRAY(arena, bool, search->all.n + 1);
    unsigned found = 0;
    for (int i = 0; i < search->all.n; i++) {
        const unsigned kinds = kinds_of(&search->all.at[i]);
        shown[i] = i < least || kinds & ~found;
        found |= kinds;
    }
    return shown;
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

enum { MOST_PUT = 20 };

static void put_parts(struct rt_json_writer *writer, const struct estimate *estimate) {
    rt_json_key_real(writer, "step_s", estimate->step), rt_json_key_real(writer, "computing_s", estimate->computing);
    rt_json_key_real(writer, "communicating_s", estimate->communicating),
        rt_json_key_real(writer, "hidden_s", estimate->hidden);
    rt_json_key_real(writer, "waiting_s", estimate->waiting), rt_json_key_real(writer, "bubble", estimate->bubble);
}

static void put_candidate(struct rt_json_writer *writer, const struct search *search, const struct candidate *c,
                          struct arena *arena) {
    static const char *const steps[SEARCH_STEPS] = {"bounded", "predicted", "shortened", "planned"};
    const bool known = !c->refused;
    const double batch = c->batch ? c->batch : 1;
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "options", search_words(c, search->given, arena));
    rt_json_key_text(writer, "known_from", steps[c->step]);
    if (known && c->step > SEARCH_BOUNDED) {
        rt_json_key_real(writer, "micro_batch_s", c->seconds * batch), rt_json_key_real(writer, "memory", c->memory);
        rt_json_key_bool(writer, "fits", c->memory <= search->limit);
    }
    if (known && c->step > SEARCH_PREDICTED) {
        rt_json_key_real(writer, "predicted_micro_batch_s", c->predicted_seconds * batch);
        rt_json_key_real(writer, "predicted_memory", c->predicted_memory);
    }
    if (c->measured > 0) rt_json_key_real(writer, "measured_micro_batch_s", c->measured * batch);
    if (known && c->estimate) put_parts(writer, c->estimate);
    rt_json_key_text(writer, "rejected", c == &search->all.at[0] ? NULL : verdict(search, c, arena));
    rt_json_close(writer, '}');
}

void search_put(struct rt_json_writer *writer, const void *context) {
    const struct search *search = context;
    struct arena *arena = search->job->arena;
    rt_json_key_open(writer, "search", '{', RT_JSON_LINES);
    rt_json_key_text(writer, "machine", search->machine.name);
    if (isfinite(search->limit)) rt_json_key_real(writer, "limit", search->limit);
    rt_json_key_real(writer, "gap", search->gap);
    rt_json_key_int(writer, "candidates", search->all.n);
    rt_json_key_open(writer, "plans", '[', RT_JSON_LINES);
    const bool *shown = find_shown(search, search->given->verbose ? search->all.n : MOST_PUT, arena);
    for (int i = 0; i < search->all.n; i++)
        if (shown[i]) put_candidate(writer, search, &search->all.at[i], arena);
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
}

/* Notes ------------------------------------------------------------------------------------------------------------ */

void search_explain(const struct search *search, const struct options *options, struct arena *arena,
                    struct diags *diags) {
    const struct candidate *chosen = &search->all.at[0];
    const int least = options->measure_topk > SHORT_LIST + 1 ? (int)options->measure_topk : SHORT_LIST + 1;
    int planned = 0, more = 0;
    for (int i = 0; i < search->all.n; i++) planned += search->all.at[i].step == SEARCH_PLANNED;
    const bool *shown = find_shown(search, options->verbose ? search->all.n : least, arena);
    const char *time = chosen->measured ? measured_text(search, chosen, arena)
                                        : arena_printf(arena, "%s a %s", seconds_text(arena, chosen->seconds),
                                                       share_of(search, chosen));
    diag_remark(diags, "--pas autodist", "%s: %s on %s, %s a rank; %d candidate(s), %d planned completely",
                search_words(chosen, options, arena), time, search->machine.name, bytes_text(arena, chosen->memory),
                search->all.n, planned);
    for (int i = 1; i < search->all.n; i++) {
        more += !shown[i];
        if (shown[i])
            diag_note(diags, "%s: %s", search_words(&search->all.at[i], options, arena),
                      verdict(search, &search->all.at[i], arena));
    }
    if (search->gap > 0)
        diag_note(diags, "of those that were not planned, one is predicted to be %.2g %% faster at most",
                  100 * search->gap);
    if (more) diag_note(diags, "%d more candidate(s), with -v", more);
}
