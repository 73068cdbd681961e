/* Named numbers that a row of a table takes, and what the user says of them: "lr=0.001 momentum=0 steps" and
 * "lr=0.01,steps=100". */
#ifndef PASSES_TRAIN_NUMBERS_H
#define PASSES_TRAIN_NUMBERS_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

enum { NUMBERS_MAX = 8 };

/* In the order of the row. */
struct numbers {
    const char *option, *row, *takes; /* "--optimizer", "adamw", the row's text */
    int n;
    struct {
        const char *name;
        double value; /* NAN: not given, and without a default */
        double below; /* what it must be less than */
    } at[NUMBERS_MAX];
};

/* The defaults of a row: names with "=default", separated by blanks; a name without one must be given.
 * "=default<bound": values must be less. */
void numbers_start(struct numbers *numbers, const char *option, const char *row, const char *takes,
                   struct arena *arena);

/* One "name=number" of `length` bytes, the number at least `least` and finite, also as an f32: 0, or -1 after a
 * diagnostic (E0205). */
int numbers_set(struct numbers *numbers, const char *text, size_t length, double least, struct diags *diags);

/* Several, separated by commas (NULL: none), then all that must be given are: likewise. */
int numbers_set_all(struct numbers *numbers, const char *list, double least, struct diags *diags);

/* The value of a name, `fallback` if the row has none of it. */
double numbers_value(const struct numbers *numbers, const char *name, double fallback);

#endif
