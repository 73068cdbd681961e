#include "passes/train/numbers.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

void numbers_start(struct numbers *numbers, const char *option, const char *row, const char *takes,
                   struct arena *arena) {
    *numbers = (struct numbers){.option = option, .row = row, .takes = takes};
    for (const char *at = takes; *at; at += strspn(at, " ")) {
        size_t name = strcspn(at, "= ");
        char *end = (char *)(uintptr_t)at + name;
        if (numbers->n == NUMBERS_MAX) BUG("%s takes more than %d numbers", row, NUMBERS_MAX);
        numbers->at[numbers->n].name = arena_copy(arena, at, name);
        numbers->at[numbers->n].value = at[name] == '=' ? strtod(at + name + 1, &end) : NAN;
        numbers->at[numbers->n++].below = *end == '<' ? strtod(end + 1, &end) : INFINITY;
        at = end;
    }
}

/* Words of other programs for the same. */
static const struct {
    const char *word, *meant;
} synonyms[] = {{"learning_rate", "lr"}, {"wd", "weight_decay"}, {"l2", "weight_decay"}, {"epsilon", "eps"},
                {"b1", "beta1"},         {"b2", "beta2"},        {"mu", "momentum"},     {"warmup_steps", "warmup"}};

/* The name that was probably meant, or NULL. */
static const char *nearest_name(const struct numbers *numbers, const char *word) {
    const char *names[NUMBERS_MAX + 1] = {NULL};
    for (int i = 0; i < numbers->n; i++) names[i] = numbers->at[i].name;
    for (size_t s = 0; s < sizeof synonyms / sizeof *synonyms; s++)
        for (int i = 0; i < numbers->n && strcmp(word, synonyms[s].word) == 0; i++)
            if (strcmp(names[i], synonyms[s].meant) == 0) return names[i];
    return str_nearest(word, names);
}

static int refuse_name(const struct numbers *numbers, const char *word, struct diags *diags) {
    const char *near = nearest_name(numbers, word);
    diag_error(diags, 205, EXIT_USAGE, numbers->option, "%s has no option %s%s", numbers->row, diag_quote(diags, word),
               near ? arena_printf(diags->arena, "; did you mean '%s'?", near) : "");
    return diag_note(diags, "its options are %s", *numbers->takes ? numbers->takes : "none"), -1;
}

static int refuse_value(const struct numbers *numbers, int i, const char *value, double least, struct diags *diags) {
    const char *bound = "", *below = "";
    const double number = strtod(value, NULL);
    if (least > -FLT_MAX) bound = arena_printf(diags->arena, " of at least %g", least);
    if (isfinite(numbers->at[i].below)) below = arena_printf(diags->arena, " and less than %g", numbers->at[i].below);
    return diag_error(diags, 205, EXIT_USAGE, numbers->option, "%s of %s must be a number%s%s%s, not %s",
                      numbers->at[i].name, numbers->row, bound, below,
                      fabs(number) > FLT_MAX ? ", within the range of f32" : "", diag_quote(diags, value));
}

int numbers_set(struct numbers *numbers, const char *text, size_t length, double least, struct diags *diags) {
    const char *setting = arena_copy(diags->arena, text, length);
    const char *name = arena_copy(diags->arena, setting, strcspn(setting, "="));
    const char *value = setting + strlen(name) + (setting[strlen(name)] == '=');
    int i = 0;
    char *end;
    while (i < numbers->n && strcmp(numbers->at[i].name, name) != 0) i++;
    if (i == numbers->n) return refuse_name(numbers, name, diags);
    const double number = strtod(value, &end);
    if (end == value || *end || !(number >= least && number < numbers->at[i].below && fabs(number) <= FLT_MAX))
        return refuse_value(numbers, i, value, least, diags);
    numbers->at[i].value = number;
    return 0;
}

int numbers_set_all(struct numbers *numbers, const char *list, double least, struct diags *diags) {
    for (const char *at = list; at;) {
        size_t length = strcspn(at, ",");
        if (numbers_set(numbers, at, length, least, diags) < 0) return -1;
        at = at[length] ? at + length + 1 : NULL;
    }
    for (int i = 0; i < numbers->n; i++)
        if (isnan(numbers->at[i].value))
            return diag_error(diags, 205, EXIT_USAGE, numbers->option, "%s needs %s=NUMBER", numbers->row,
                              numbers->at[i].name);
    return 0;
}

double numbers_value(const struct numbers *numbers, const char *name, double fallback) {
    for (int i = 0; i < numbers->n; i++)
        if (strcmp(numbers->at[i].name, name) == 0) return numbers->at[i].value;
    return fallback;
}
