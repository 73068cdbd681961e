/* What the user is told of a search. */
#include "frontend/driver/search.h"

enum { SHORT_LIST = 5 };

static const char *bytes_text(struct arena *arena, double bytes) {
    return arena_printf(arena, "%.3g GiB", bytes / (1024.0 * 1024 * 1024));
}

/* "--pas hybrid:tensor=2 --runtime-ngpus 4 --use-zero 1 --recompute full" */
static const char *words_of(const struct candidate *candidate, const struct options *given, struct arena *arena) {
    const struct options options = search_options(given, candidate, arena);
    return arena_printf(arena, "--pas %s --runtime-ngpus %lld%s%s%s", options_text(&options, OPT_PAS, arena),
                        (long long)options.runtime_ngpus,
                        candidate->zero ? arena_printf(arena, " --use-zero %d", candidate->zero) : "",
                        candidate->recompute ? " --recompute " : "", candidate->recompute ? candidate->recompute : "");
}

/* Why the candidate is not the chosen one. */
static const char *verdict(const struct search *search, const struct candidate *candidate, struct arena *arena) {
    const struct candidate *chosen = &search->all.at[0];
    if (candidate->refused) return arena_printf(arena, "refused: %s", candidate->refused);
    if (!candidate->planned && candidate->predicted_memory > search->limit)
        return arena_printf(arena, "not planned: predicted not to fit by %s",
                            bytes_text(arena, candidate->predicted_memory - search->limit));
    if (!candidate->planned)
        return arena_printf(arena, "not planned: predicted %.3g times as slow", candidate->predicted / chosen->seconds);
    if ((double)candidate->estimate.memory > search->limit)
        return arena_printf(arena, "does not fit by %s",
                            bytes_text(arena, (double)candidate->estimate.memory - search->limit));
    return arena_printf(arena, "%.3g times as slow: %.3g s a micro-batch, %s", candidate->seconds / chosen->seconds,
                        candidate->seconds, bytes_text(arena, (double)candidate->estimate.memory));
}

void search_explain(const struct search *search, const struct options *options, struct arena *arena,
                    struct diags *diags) {
    const struct candidate *chosen = &search->all.at[0];
    int planned = 0, shown = search->all.n;
    for (int i = 0; i < search->all.n; i++) planned += search->all.at[i].planned;
    if (!options->verbose && shown > SHORT_LIST + 1) shown = SHORT_LIST + 1;
    diag_remark(diags, "--pas autodist",
                "%s: %.3g s a micro-batch on %s, %s a rank; %d candidates, %d planned completely",
                words_of(chosen, options, arena), chosen->seconds, search->machine.name,
                bytes_text(arena, (double)chosen->estimate.memory), search->all.n, planned);
    for (int i = 1; i < shown; i++)
        diag_note(diags, "%s: %s", words_of(&search->all.at[i], options, arena),
                  verdict(search, &search->all.at[i], arena));
    if (search->gap > 0)
        diag_note(diags, "of those that were not planned, one is predicted to be %.2g %% faster at most",
                  100 * search->gap);
    if (shown < search->all.n) diag_note(diags, "%d more candidates, with -v", search->all.n - shown);
}
