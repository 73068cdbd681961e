/* Repetitions in a sequence of symbols: where a sequence of symbols occurs several times in a row (a tandem repeat).
 *
 * The caller numbers its items, such as the nodes of a graph or the calls of a program, so that two items have equal
 * numbers (symbols) if and only if they are alike. The symbols a b c a b c a b c d e e are then three times a b c, d,
 * and two times e. */
#ifndef IR_BASE_REPEATS_H
#define IR_BASE_REPEATS_H

#include "ir/base/vec.h"

/* The items [first, first + period * times). times > 1: `period` items that occur `times` times in a row. times = 1:
 * a single item, period = 1, that belongs to no repetition. */
struct stretch {
    int first, period, times;
};

struct stretches {
    VEC(struct stretch) all;
};

/* Divides the n items, whose symbols are not negative, into stretches, in order. All memory is in `arena`.
 *
 * Of repetitions that overlap, the one that saves the most items, period * (times - 1), is taken first. So layers are
 * found before repetitions within a layer, and these are not reported. The period is the shortest one, or, if that is
 * shorter than `least`, its smallest multiple that is not. The time is O(n log n), however long the periods are. */
void repeats_find(struct arena *arena, const int *symbols, int n, int least, struct stretches *out);

#endif
