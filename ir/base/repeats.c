#include "ir/base/repeats.h"

#include <stdbool.h>
#include <stdlib.h>

/* Note [Runs of symbols]
 * A run is a range of the sequence in which every symbol equals the one `period` places before it, at least two periods
 * long, that cannot be extended on either side. There are fewer runs than symbols (Bannai et al. 2017, "The runs
 * theorem"). They are found as by Main and Lorentz (1984, "An O(n log n) algorithm for finding all repetitions in a
 * string"): each run lies in the left half of the sequence, or in the right half, or crosses the middle. A run of
 * period p that crosses the middle m contains m - p or m + p. So for each place c of the sequence, p = |c - m| is the
 * period of a run if the symbols around c and around m agree at p places at least. */

struct run {
    int first, end, period;
};

struct finder {
    struct arena *arena;
    const int *symbols;
    int n;
    int *joined, *after, *before; /* room for 2 n + 1 values each */
    VEC(struct run) runs;
};

/* z[i]: length of the longest common prefix of s and of s from i on (Gusfield 1997, section 1.3). */
static void find_prefixes(const int *s, int n, int *z) {
    int left = 0, right = 0; /* the range [left, right) equals a prefix; right is the largest known */
    z[0] = n;
    for (int i = 1; i < n; i++) {
        int same = i < right ? (z[i - left] < right - i ? z[i - left] : right - i) : 0;
        while (i + same < n && s[same] == s[i + same]) same++;
        z[i] = same;
        if (i + same > right) left = i, right = i + same;
    }
}

/* The run continues outside of [low, high). It is then found in the range of which [low, high) is a half. */
static bool is_cut_short(const struct finder *f, const struct run *run, int low, int high) {
    const int *s = f->symbols;
    return (run->first == low && low > 0 && s[low - 1] == s[low - 1 + run->period]) ||
           (run->end == high && high < f->n && s[high] == s[high - run->period]);
}

/* Finds the runs of [low, high) that cross `middle`. */
static void find_crossing(struct finder *f, int low, int middle, int high) {
    int n = 0;
    for (int i = middle; i < high; i++) f->joined[n++] = f->symbols[i];
    f->joined[n++] = -1; /* differs from every symbol */
    for (int i = low; i < high; i++) f->joined[n++] = f->symbols[i];
    find_prefixes(f->joined, n, f->after);
    n = 0;
    for (int i = middle - 1; i >= low; i--) f->joined[n++] = f->symbols[i];
    f->joined[n++] = -1;
    for (int i = high - 1; i >= low; i--) f->joined[n++] = f->symbols[i];
    find_prefixes(f->joined, n, f->before);
    for (int c = low; c <= high; c++) {
        /* How many symbols agree from c and from the middle on, and before c and before the middle. */
        const int right = c < high ? f->after[high - middle + 1 + c - low] : 0;
        const int left = c > low ? f->before[middle - low + 1 + high - c] : 0;
        const int from = c < middle ? c : middle, to = c < middle ? middle : c;
        const struct run run = {from - left, to + right, to - from};
        if (c != middle && left + right >= run.period && !is_cut_short(f, &run, low, high))
            VEC_PUSH(f->arena, &f->runs, run);
    }
}

static void find_runs(struct finder *f, int low, int high) {
    const int middle = low + (high - low) / 2;
    if (high - low < 2) return;
    find_crossing(f, low, middle, high);
    find_runs(f, low, middle);
    find_runs(f, middle, high);
}

static int by_place(const void *left, const void *right) {
    const struct run *a = left, *b = right;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return (a->period > b->period) - (a->period < b->period);
}

/* A run is also found with multiples of its period: only the shortest is kept. */
static void keep_shortest_periods(struct finder *f) {
    int kept = 0;
    if (f->runs.n) qsort(f->runs.at, (size_t)f->runs.n, sizeof *f->runs.at, by_place);
    VEC_EACH(&f->runs, i, const struct run *run) {
        if (!kept || f->runs.at[kept - 1].first != run->first || f->runs.at[kept - 1].end != run->end)
            f->runs.at[kept++] = *run;
    }
    f->runs.n = kept;
}

/* Runs to choose from, in lists by the number of items that they save. */
struct chooser {
    struct arena *arena;
    int n, least;
    VEC(struct candidate {
        struct run run;
        int next; /* in the list; -1: the last */
    })
    candidates;
    int *lists;             /* by items saved: the first candidate; -1: none */
    bool *taken;            /* per item: it belongs to a chosen repetition */
    struct stretch *chosen; /* per item: the chosen repetition that begins there; times = 0: none */
};

/* The repetition as which the run is counted. Its period is the smallest multiple of the run's period that is at least
 * `least`. */
static struct stretch repetition(const struct chooser *c, const struct run *run) {
    const int multiple = run->period < c->least ? (c->least + run->period - 1) / run->period : 1;
    const int period = run->period * multiple;
    return (struct stretch){run->first, period, (run->end - run->first) / period};
}

static void consider(struct chooser *c, struct run run) {
    const struct stretch counted = repetition(c, &run);
    if (counted.times < 2) return;
    int *list = &c->lists[counted.period * (counted.times - 1)];
    VEC_PUSH(c->arena, &c->candidates, (struct candidate){run, *list});
    *list = c->candidates.n - 1;
}

/* Chooses the run, or considers the ranges of it that no chosen repetition has taken. */
static void choose_or_clip(struct chooser *c, struct run run) {
    bool whole = true;
    for (int i = run.first; i < run.end; i++) whole = whole && !c->taken[i];
    for (int i = run.first, end; i < run.end && !whole; i = end + 1) {
        for (end = i; end < run.end && !c->taken[end];) end++;
        consider(c, (struct run){i, end, run.period});
    }
    if (!whole) return;
    const struct stretch counted = repetition(c, &run);
    c->chosen[run.first] = counted;
    for (int i = 0; i < counted.period * counted.times; i++) c->taken[run.first + i] = true;
}

static void choose(struct chooser *c, const struct finder *f) {
    for (int saved = 0; saved <= c->n; saved++) c->lists[saved] = -1;
    for (int i = f->runs.n - 1; i >= 0; i--) consider(c, f->runs.at[i]); /* lists begin with what is pushed last */
    for (int saved = c->n; saved > 0; saved--)
        while (c->lists[saved] >= 0) {
            const struct candidate candidate = c->candidates.at[c->lists[saved]];
            c->lists[saved] = candidate.next;
            choose_or_clip(c, candidate.run);
        }
}

void repeats_find(struct arena *arena, const int *symbols, int n, int least, struct stretches *out) {
    struct arena *scratch = arena_scratch(arena);
    struct finder finder = {.arena = scratch, .symbols = symbols, .n = n};
    finder.joined = ARENA_ARRAY(scratch, int, 2 * n + 1);
    finder.after = ARENA_ARRAY(scratch, int, 2 * n + 1);
    finder.before = ARENA_ARRAY(scratch, int, 2 * n + 1);
    find_runs(&finder, 0, n);
    keep_shortest_periods(&finder);
    struct chooser chooser = {.arena = scratch, .n = n, .least = least};
    chooser.lists = ARENA_ARRAY(scratch, int, n + 1);
    chooser.taken = ARENA_ARRAY(scratch, bool, n + 1);
    chooser.chosen = ARENA_ARRAY(scratch, struct stretch, n + 1);
    choose(&chooser, &finder);
    *out = (struct stretches){0};
    for (int i = 0; i < n;) {
        const struct stretch stretch = chooser.chosen[i].times ? chooser.chosen[i] : (struct stretch){i, 1, 1};
        VEC_PUSH(arena, &out->all, stretch);
        i += stretch.period * stretch.times;
    }
    arena_release(arena, scratch);
}
