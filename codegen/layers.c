#include "codegen/layers.h"

#include "ir/base/map.h"
#include "ir/base/str.h"

enum { MIN_PERIOD = 4 }; /* shorter repetitions are more readable written out */

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

void layers_find(const struct rankplan *plan, const struct source *source, int first, int end, struct stretches *out) {
    struct arena *arena = plan->graph->arena;
    const struct rank_class *class = &plan->classes[source->classes[0]];
    const int n = end - first, *kinds = kinds_of(arena, plan, class, source->instructions[0] + first, n);
    repeats_find(arena, kinds, n, MIN_PERIOD, out);
    for (int s = 0; s < out->all.n; s++) out->all.at[s].first += first;
}
