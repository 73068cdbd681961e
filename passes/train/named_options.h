/* Options by name, numbers or words: a row of a table declares them ("lr=0.001 momentum=0 steps kind=one|other"), and
 * the user gives values ("lr=0.01,steps=100"). */
#ifndef PASSES_TRAIN_NAMED_OPTIONS_H
#define PASSES_TRAIN_NAMED_OPTIONS_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

enum { NAMED_OPTIONS_MAX = 12 };

/* The options of one row, in its order. */
struct named_options {
    const char *option, *row, *takes; /* for diagnostics: "--optimizer", "adamw", the row's text */
    int n;
    struct {
        const char *name;
        double value;      /* NAN: without a default, and not given yet */
        double least;      /* a lower bound; NAN: that of the call */
        double below;      /* an exclusive upper bound; INFINITY: none */
        const char *words; /* "one|other": the value is the number of the word, from 0; NULL: it is a number */
        bool is_switch;    /* words are those of switch_words */
    } at[NAMED_OPTIONS_MAX];
};

/* Sets the options of a row to their defaults. `takes`: "name=default", "name=default<bound" where values must be less
 * than the bound, "name=default>bound" where they may be as small as that, "name=word|other" where they are words, the
 * default first, "name=false" or "name=true" of a switch, which also takes 0 and 1, or "name" of an option that must be
 * given; separated by blanks. */
void named_options_start(struct named_options *options, const char *option, const char *row, const char *takes,
                         struct arena *arena);

/* Parses one "name=value" of `length` bytes; a number must be at least `least`, unless the row has a bound, and finite,
 * as an f32 too. 0, or -1 after a diagnostic (E0205). */
int named_options_set(struct named_options *options, const char *text, size_t length, double least,
                      struct diags *diags);

/* Parses several, separated by commas (NULL: none), and checks that all options have a value. 0, or -1 after a
 * diagnostic (E0205). */
int named_options_set_all(struct named_options *options, const char *list, double least, struct diags *diags);

/* Options that are not numbers alone, behind the colon of "NAME:key=value,..". set() is called for each key and returns
 * -1 for an unknown one. flag: the value of a key without one; NULL: it must have one. */
struct key_options {
    const char *option, *what, *takes; /* for diagnostics: "--amp", "mixed precision", the keys */
    const char *flag;
    int (*set)(void *env, const char *key, const char *value, struct arena *arena);
};
/* 0, or -1 after a diagnostic (E0205). */
int key_options_read(const struct key_options *options, const char *text, void *env, struct arena *arena,
                     struct diags *diags);

/* The value of the option; `fallback` if the row has no option of that name. */
double named_options_value(const struct named_options *options, const char *name, double fallback);

#endif
