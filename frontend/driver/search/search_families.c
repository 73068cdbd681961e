/* Groups the candidates in families, so that the search finds the best one without looking at each. */
#include <math.h>
#include <string.h>

#include "frontend/driver/search/search.h"
#include "ir/base/map.h"

/* A candidate is not tried if its estimated memory exceeds the limit times this factor. The factor allows for
 * estimates that are too high. Predictions and excerpts of pipelines may be; estimates from shortened graphs without
 * stages hardly are. Lower bounds never are, so they have no factor. */
static const double predicted_margin = 1.15, excerpt_margin = 1.08, shortened_margin = 1.005;

/* The relative error by which predicted times, and the bounds that follow from them, may be too long. It is larger for
 * unequal stages, whose boundaries may lie inside layers. */
static const double prediction_error = 0.02, unequal_error = 0.04;

/* What the candidates of a family have in common (search_same_base), and what else a candidate has: with scale units in
 * place of ranks along context, whose plans have the same stages. `row`: of decisions; of texts, which are listed once,
 * where they stand. */
struct base_key {
    int ways[AXIS_PIPELINE], batch;
    int64_t row[DECISIONS];
};
struct rest_key {
    int stages, ranks, own, ways, first, end;
    int64_t row[DECISIONS];
};

static void take_rows(int64_t row[DECISIONS], const struct decisions *decisions, bool whole) {
    for (int i = 0; i < DECISIONS; i++)
        if (decision_rows[i].whole == whole) row[i] = decision_key(&decision_rows[i], decisions);
}

/* The number of the key, in the order in which they come. */
static int number_of(struct map *map, const void *key, size_t bytes) {
    const int known = map_get(map, key, bytes), next = map->n;
    if (known >= 0) return known;
    map_put(map, key, bytes, next);
    return next;
}

static int base_of(struct map *map, const struct candidate *c) {
    struct base_key key;
    memset(&key, 0, sizeof key); /* padding too */
    for (int a = 0; a < AXIS_PIPELINE; a++) key.ways[a] = search_ways(c, (enum axis_role)a);
    key.batch = c->batch;
    take_rows(key.row, &c->decisions, false);
    return number_of(map, &key, sizeof key);
}

static int rest_of(struct map *map, const struct candidate *c) {
    const struct mesh_axis *own = search_own(c);
    struct rest_key key;
    memset(&key, 0, sizeof key);
    key.stages = search_ways(c, AXIS_PIPELINE), key.ranks = search_ways(c, AXIS_CONTEXT) * c->units;
    if (own) key.own = (int)(own - c->decisions.mesh.axis) + 1, key.ways = own->size;
    if (own) key.first = own->first, key.end = own->end;
    take_rows(key.row, &c->decisions, true);
    return number_of(map, &key, sizeof key);
}

void search_group(struct search *search) {
    struct arena *scratch = arena_scratch(search->arena);
    struct map bases, rests;
    map_init(&bases, scratch), map_init(&rests, scratch);
    for (int i = 0; i < search->all.n; i++) {
        struct candidate *c = &search->all.at[i];
        c->family = base_of(&bases, c), c->rest = rest_of(&rests, c);
        if (c->family == search->families.n) VEC_PUSH(search->arena, &search->families, (struct search_family){0});
        VEC_PUSH(search->arena, &search->families.at[c->family].members, i);
        if (search_own(c)) VEC_PUSH(search->arena, &search->unequal, i);
    }
    search->nrests = rests.n;
    arena_release(search->arena, scratch);
}

struct search_family *search_family_of(struct search *search, const struct candidate *candidate) {
    for (int f = 0; f < search->families.n; f++) {
        struct search_family *family = &search->families.at[f];
        if (search_same_base(&search->all.at[family->members.at[0]], candidate)) return family;
    }
    return NULL;
}

bool search_may_fit(const struct search *search, const struct candidate *c) {
    const double shortened = search_ways(c, AXIS_PIPELINE) == 1 ? shortened_margin : excerpt_margin;
    const double margin[SEARCH_STEPS] = {1, predicted_margin, shortened, 1};
    return c->memory <= search->limit * margin[c->step];
}

/* A lower bound of the candidate's time in seconds. */
static double least_seconds(const struct candidate *c) {
    const double error = search_own(c) ? unequal_error : prediction_error;
    return c->seconds * (c->step <= SEARCH_PREDICTED ? 1 - error : 1);
}

/* The candidate with the smaller lower bound; of equal ones, the one that was listed first. -1: there is no
 * candidate. */
static int earlier_of(const struct search *search, int a, int b) {
    if (a < 0 || b < 0) return a < 0 ? b : a;
    const double seconds = least_seconds(&search->all.at[a]), other = least_seconds(&search->all.at[b]);
    return seconds < other || (seconds == other && a < b) ? a : b;
}

static void refresh(const struct search *search, struct search_family *family) {
    family->known = true, family->tried = 0;
    for (int step = 0; step < SEARCH_STEPS; step++) family->first[step] = -1;
    for (int i = 0; i < family->members.n; i++) {
        const int member = family->members.at[i];
        const struct candidate *c = &search->all.at[member];
        family->tried += c->refused || c->step > SEARCH_BOUNDED;
        if (c->refused || !search_may_fit(search, c)) continue;
        for (int step = 0; step <= (int)c->step; step++)
            family->first[step] = earlier_of(search, family->first[step], member);
    }
}

/* The first member that has taken the step `least`. *seconds: a lower bound of its time. */
static int first_of(const struct search *search, struct search_family *family, enum search_step least,
                    double *seconds) {
    if (!family->known) refresh(search, family);
    const int first = family->first[least];
    const struct candidate *c = &search->all.at[first < 0 ? 0 : first];
    *seconds = least_seconds(c);
    if (c->step == SEARCH_BOUNDED) *seconds = fmax(*seconds, family->least * (1 - unequal_error));
    return first;
}

struct candidate *search_first(struct search *search, enum search_step least) {
    for (;;) {
        double shortest = INFINITY, seconds;
        int first = -1;
        for (int f = 0; f < search->families.n; f++) {
            const int of = first_of(search, &search->families.at[f], least, &seconds);
            if (of >= 0 && (seconds < shortest || (seconds == shortest && of < first))) first = of, shortest = seconds;
        }
        if (first < 0) return NULL;
        struct search_family *family = &search->families.at[search->all.at[first].family];
        if (least > SEARCH_BOUNDED || search->all.at[first].step > SEARCH_BOUNDED || family->applied == search->known.n)
            return &search->all.at[first];
        search_bound_family(search, family);
    }
}

int search_tried(struct search *search) {
    int tried = 0;
    for (int f = 0; f < search->families.n; f++) {
        struct search_family *family = &search->families.at[f];
        if (!family->known) refresh(search, family);
        tried += family->tried;
    }
    return tried;
}
