#include "frontend/text/prefixes.h"

#include "ir/base/vec.h"

#include <stdlib.h>
#include <string.h>

static int compare_texts(const struct span *a, const struct span *b) {
    const int order = memcmp(a->at, b->at, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order : a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int compare(const void *a, const void *b) {
    const struct prefix *x = a, *y = b;
    const int order = compare_texts(&x->text, &y->text);
    return order ? order : x->value < y->value ? -1 : x->value > y->value;
}

bool prefixes_make(struct arena *arena, struct prefixes *set, struct prefix *texts, int n) {
    int kept = 0;
    if (n) qsort(texts, (size_t)n, sizeof *texts, compare);
    for (int i = 0; i < n; i++) {
        if (kept && compare_texts(&texts[kept - 1].text, &texts[i].text) == 0) kept--;
        texts[kept++] = texts[i];
    }
    int *first = ARENA_ARRAY(arena, int, 257);
    for (int i = 0; i < kept; i++) first[(unsigned char)texts[i].text.at[0] + 1]++;
    for (int i = 0; i < 256; i++) first[i + 1] += first[i];
    *set = (struct prefixes){texts, kept, first};
    return kept == n;
}

struct prefix_walk prefixes_walk(const struct prefixes *set, struct span text) {
    struct prefix_walk walk = {.set = set, .text = text};
    if (!set->n || !text.bytes) return walk;
    const unsigned char first = (unsigned char)text.at[0];
    walk.from = set->first[first], walk.to = set->first[first + 1], walk.depth = 1;
    return walk;
}

/* The first in [from, to) whose byte at `depth` is `least` or more. All of them are longer than that. */
static int lower_bound(const struct prefix *at, int from, int to, size_t depth, int least) {
    BISECT(from, to, middle, (unsigned char)at[middle].text.at[depth] < least)
    return from;
}

const struct prefix *prefixes_next(struct prefix_walk *walk) {
    const struct prefix *at = walk->set->at;
    while (walk->from < walk->to) {
        /* the shortest comes first, and only one is as long as what agrees */
        const struct prefix *found = at[walk->from].text.bytes == walk->depth ? &at[walk->from] : NULL;
        walk->from += found != NULL;
        if (walk->depth == walk->text.bytes) {
            walk->to = walk->from;
            return found;
        }
        const int next = (unsigned char)walk->text.at[walk->depth];
        walk->from = lower_bound(at, walk->from, walk->to, walk->depth, next);
        walk->to = lower_bound(at, walk->from, walk->to, walk->depth, next + 1);
        walk->depth++;
        if (found) return found;
    }
    return NULL;
}

const struct prefix *prefixes_longest(const struct prefixes *set, struct span text) {
    const struct prefix *longest = NULL, *found;
    struct prefix_walk walk = prefixes_walk(set, text);
    while ((found = prefixes_next(&walk))) longest = found;
    return longest;
}
