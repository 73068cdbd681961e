#include "passes/train/named_options.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"

static const char switch_words[] = "false|true", switch_numbers[] = "0|1";

/* The number of the word among those that "|" separates; -1: it is none of them. */
static int word_number(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (int i = 0;; i++) {
        const size_t next = strcspn(words, "|");
        if (next == length && strncmp(words, word, length) == 0) return i;
        if (!words[next]) return -1;
        words += next + 1;
    }
}

/* Of the option that is being started. */
static void set_words(struct named_options *options, const char *words) {
    const int number = word_number(switch_words, words);
    options->at[options->n].is_switch = number >= 0;
    options->at[options->n].words = number >= 0 ? switch_words : words;
    options->at[options->n].value = number >= 0 ? number : 0;
}

void named_options_start(struct named_options *options, const char *option, const char *row, const char *takes,
                         struct arena *arena) {
    *options = (struct named_options){.option = option, .row = row, .takes = takes};
    for (const char *at = takes; *at; at += strspn(at, " ")) {
        size_t name = strcspn(at, "= ");
        const size_t length = strcspn(at, " ");
        char *end = (char *)(uintptr_t)at + name;
        if (options->n == NAMED_OPTIONS_MAX) BUG("%s takes more than %d numbers", row, NAMED_OPTIONS_MAX);
        options->at[options->n].name = arena_copy(arena, at, name);
        options->at[options->n].value = at[name] == '=' ? strtod(at + name + 1, &end) : NAN;
        if (at[name] == '=' && end == at + name + 1) set_words(options, arena_copy(arena, end, length - name - 1));
        options->at[options->n].least = *end == '>' ? strtod(end + 1, &end) : NAN;
        options->at[options->n++].below = *end == '<' ? strtod(end + 1, &end) : INFINITY;
        at += length;
    }
}

/* Words of other programs for the same. */
static const struct {
    const char *word, *meant;
} synonyms[] = {{"learning_rate", "lr"}, {"wd", "weight_decay"}, {"l2", "weight_decay"}, {"epsilon", "eps"},
                {"b1", "beta1"},         {"b2", "beta2"},        {"mu", "momentum"},     {"warmup_steps", "warmup"}};

/* The name that was probably meant, or NULL. */
static const char *nearest_name(const struct named_options *options, const char *word) {
    const char *names[NAMED_OPTIONS_MAX + 1] = {NULL};
    for (int i = 0; i < options->n; i++) names[i] = options->at[i].name;
    for (size_t s = 0; s < sizeof synonyms / sizeof *synonyms; s++)
        for (int i = 0; i < options->n && strcmp(word, synonyms[s].word) == 0; i++)
            if (strcmp(names[i], synonyms[s].meant) == 0) return names[i];
    return str_nearest(word, names);
}

static int refuse_name(const struct named_options *options, const char *word, struct diags *diags) {
    const char *near = nearest_name(options, word);
    diag_error(diags, 205, EXIT_USAGE, options->option, "%s has no option %s%s", options->row, diag_quote(diags, word),
               near ? arena_printf(diags->arena, "; did you mean '%s'?", near) : "");
    return diag_note(diags, "its options are %s", *options->takes ? options->takes : "none");
}

static int refuse_value(const struct named_options *options, int i, const char *value, double least,
                        struct diags *diags) {
    const char *bound = "", *below = "";
    const double number = strtod(value, NULL);
    if (options->at[i].words)
        return diag_error(diags, 205, EXIT_USAGE, options->option, "%s of %s must be one of %s, not %s",
                          options->at[i].name, options->row, options->at[i].words, diag_quote(diags, value));
    if (least > -FLT_MAX) bound = arena_printf(diags->arena, " of at least %g", least);
    if (isfinite(options->at[i].below)) below = arena_printf(diags->arena, " and less than %g", options->at[i].below);
    return diag_error(diags, 205, EXIT_USAGE, options->option, "%s of %s must be a number%s%s%s, not %s",
                      options->at[i].name, options->row, bound, below,
                      fabs(number) > FLT_MAX ? ", within the range of f32" : "", diag_quote(diags, value));
}

int named_options_set(struct named_options *options, const char *text, size_t length, double least,
                      struct diags *diags) {
    const char *setting = arena_copy(diags->arena, text, length);
    const char *name = arena_copy(diags->arena, setting, strcspn(setting, "="));
    const char *value = setting + strlen(name) + (setting[strlen(name)] == '=');
    int i = 0;
    char *end;
    while (i < options->n && strcmp(options->at[i].name, name) != 0) i++;
    if (i == options->n) return refuse_name(options, name, diags);
    if (options->at[i].words) {
        int word = word_number(options->at[i].words, value);
        if (word < 0 && options->at[i].is_switch) word = word_number(switch_numbers, value);
        return word < 0 ? refuse_value(options, i, value, least, diags) : (options->at[i].value = word, 0);
    }
    if (!isnan(options->at[i].least)) least = options->at[i].least;
    const double number = strtod(value, &end);
    if (end == value || *end || !(number >= least && number < options->at[i].below && fabs(number) <= FLT_MAX))
        return refuse_value(options, i, value, least, diags);
    options->at[i].value = number;
    return 0;
}

int named_options_set_all(struct named_options *options, const char *list, double least, struct diags *diags) {
    for (const char *at = list; at;) {
        size_t length = strcspn(at, ",");
        if (named_options_set(options, at, length, least, diags) < 0) return -1;
        at = at[length] ? at + length + 1 : NULL;
    }
    for (int i = 0; i < options->n; i++)
        if (isnan(options->at[i].value))
            return diag_error(diags, 205, EXIT_USAGE, options->option, "%s needs %s=NUMBER", options->row,
                              options->at[i].name);
    return 0;
}

double named_options_value(const struct named_options *options, const char *name, double fallback) {
    for (int i = 0; i < options->n; i++)
        if (strcmp(options->at[i].name, name) == 0) return options->at[i].value;
    return fallback;
}

int key_options_read(const struct key_options *options, const char *text, void *env, struct arena *arena,
                     struct diags *diags) {
    for (const char *at = text + strcspn(text, ":"); *at;) {
        const char *setting = arena_copy(arena, at + 1, strcspn(at + 1, ","));
        const char *key = arena_copy(arena, setting, strcspn(setting, "="));
        const char *value = setting[strlen(key)] ? setting + strlen(key) + 1 : options->flag;
        if (!value || !*value || options->set(env, key, value, arena) < 0) {
            diag_error(diags, 205, EXIT_USAGE, options->option, "%s has no option %s", options->what,
                       diag_quote(diags, setting));
            return diag_note(diags, "its options are %s", options->takes);
        }
        at += 1 + strlen(setting);
    }
    return 0;
}
