#include "codegen/layers.h"

#include "ir/base/map.h"
#include "ir/base/str.h"

enum {
    MIN_PERIOD = 4, /* shorter repetitions are more readable written out */
    MAX_PERIOD = 1024
};

/* A number for each instruction, equal for alike instructions whose numbers (Note [Instruction numbers] in rank.c) are
 * at equal distance from the one before. */
static int *kinds_of(struct arena *arena, const struct rankplan *plan, const struct rank_class *class,
                     const struct instruction *instructions, int n) {
    int *kinds = ARENA_ARRAY(arena, int, n + 1);
    struct map seen;
    struct strbuf key;
    map_init(&seen, arena);
    strbuf_init(&key, arena);
    for (int i = 0; i < n; i++) {
        key.length = 0;
        strbuf_printf(&key, "%d ", i ? instructions[i].number - instructions[i - 1].number : 1);
        instruction_kind(&key, plan, class, &instructions[i]);
        if (map_get(&seen, key.text, key.length) < 0) map_put(&seen, key.text, key.length, seen.n);
        kinds[i] = map_get(&seen, key.text, key.length);
    }
    return kinds;
}

/* How often the `period` instructions from `first` on occur in a row. */
static int repeats(const int *kinds, int n, int first, int period) {
    int same = 0;
    while (first + period + same < n && kinds[first + same] == kinds[first + period + same]) same++;
    return 1 + same / period;
}

static struct stretch best_from(const int *kinds, int n, int first) {
    struct stretch best = {first, 1, 1};
    for (int period = MIN_PERIOD; period <= MAX_PERIOD && first + 2 * period <= n; period++) {
        if (kinds[first] != kinds[first + period]) continue;
        int times = repeats(kinds, n, first, period);
        if (period * (times - 1) > best.period * (best.times - 1)) best = (struct stretch){first, period, times};
    }
    return best;
}

void layers_find(const struct rankplan *plan, const struct source *source, int first, int end, struct stretches *out) {
    struct arena *arena = plan->graph->arena;
    const struct rank_class *class = &plan->classes[source->classes[0]];
    const int n = end - first, *kinds = kinds_of(arena, plan, class, source->instructions[0] + first, n);
    *out = (struct stretches){0};
    for (int i = 0; i < n;) {
        struct stretch stretch = best_from(kinds, n, i);
        i += stretch.period * stretch.times;
        stretch.first += first;
        VEC_PUSH(arena, &out->all, stretch);
    }
}
