#include "lr_schedule.h"

#include "text/reason.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct rt_lr_schedule_row rt_lr_schedule_rows[RT_LR_SCHEDULES] = {
#define SCHEDULE(ID, NAME, OPTIONS, START, FACTOR, HELP) {"RT_LR_SCHEDULE_" #ID, #NAME, OPTIONS, HELP},
#include "lr_schedules.def"
#undef SCHEDULE
};

/* The place where an option begins in a list of them, NULL: it is not there. `ends`: what may follow a name. */
static const char *find_word(const char *list, const char *word, size_t length, const char *ends) {
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, word, length) == 0 && (!at[length] || strchr(ends, at[length]))) return at;
    return NULL;
}

static void *number_called(struct rt_lr_schedule *schedule, const char *word, size_t length, bool *whole) {
    static const struct {
        const char *name;
        size_t at;
    } steps[] = {{"warmup", offsetof(struct rt_lr_schedule, warmup)},
                 {"steps", offsetof(struct rt_lr_schedule, steps)},
                 {"decay", offsetof(struct rt_lr_schedule, decay)}};
    *whole = true;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (strlen(steps[i].name) == length && strncmp(steps[i].name, word, length) == 0)
            return (char *)schedule + steps[i].at;
    *whole = false;
    return length == 3 && strncmp(word, "min", 3) == 0 ? &schedule->min : NULL;
}

/* Sets what "name=number" says. `end`: behind it. */
static bool set_number(struct rt_lr_schedule *schedule, const char *word, const char *end, struct rt_reason *why) {
    const struct rt_lr_schedule_row *row = &rt_lr_schedule_rows[schedule->kind];
    const size_t length = strcspn(word, "=,");
    bool whole;
    char *after;
    void *number = find_word(row->options, word, length, "= ") ? number_called(schedule, word, length, &whole) : NULL;
    if (!number)
        return rt_refuse(why, "%s has no option '%s'; its options are %s", row->name, rt_quote(word, length).text,
                         row->options);
    const double value = word[length] == '=' ? strtod(word + length + 1, &after) : NAN;
    if (!(value >= 0 && value < 1e15) || after != end || (whole ? value != floor(value) : value > 1))
        return rt_refuse(why, "%.*s of %s must be a %s", (int)length, word, row->name,
                         whole ? "whole number of steps" : "fraction of the learning rate, from 0 to 1");
    if (whole)
        *(int64_t *)number = (int64_t)value;
    else
        *(double *)number = value;
    return true;
}

/* An option without "=" in the row must be given. */
static bool check_given(const struct rt_lr_schedule_row *row, const char *list, struct rt_reason *why) {
    for (const char *at = row->options; *at; at += strcspn(at, " "), at += *at == ' ') {
        const size_t length = strcspn(at, "= ");
        if (at[length] == '=') continue;
        const char *given = list;
        while (given && (strncmp(given, at, length) != 0 || given[length] != '=')) {
            given = strchr(given, ',');
            if (given) given++;
        }
        if (!given) return rt_refuse(why, "%s needs %.*s=NUMBER", row->name, (int)length, at);
    }
    return true;
}

static bool find_kind(struct rt_lr_schedule *schedule, const char *text, size_t length, struct rt_reason *why) {
    char all[128] = "";
    for (int kind = 0; kind < RT_LR_SCHEDULES; kind++) {
        const char *name = rt_lr_schedule_rows[kind].name;
        *schedule = (struct rt_lr_schedule){.kind = (enum rt_lr_schedule_kind)kind};
        if (strlen(name) == length && strncmp(name, text, length) == 0) return true;
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", name);
    }
    return rt_refuse(why, "unknown learning-rate schedule '%s'; the schedules are%s", rt_quote(text, length).text, all);
}

bool rt_lr_schedule_parse(struct rt_lr_schedule *schedule, const char *text, struct rt_reason *why) {
    const size_t length = strcspn(text, ":");
    const char *list = text[length] ? text + length + 1 : NULL;
    if (!find_kind(schedule, text, length, why)) return false;
    const struct rt_lr_schedule_row *row = &rt_lr_schedule_rows[schedule->kind];
    for (const char *word = list; word;) {
        const char *end = word + strcspn(word, ",");
        if (!set_number(schedule, word, end, why)) return false;
        word = *end ? end + 1 : NULL;
    }
    if (!check_given(row, list, why)) return false;
    const bool falls = find_word(row->options, "steps", strlen("steps"), " "), decays = schedule->decay > 0;
    if (find_word(row->options, "decay", strlen("decay"), " ") && !decays)
        return rt_refuse(why, "decay of %s must be at least 1", row->name);
    if (falls && schedule->warmup >= schedule->steps) return rt_refuse(why, "warmup must be less than steps");
    return schedule->decay <= schedule->steps - schedule->warmup || !falls ||
           rt_refuse(why, "warmup and decay are more than all steps");
}

struct factor {
    double start, after;
};

static struct factor factors(enum rt_lr_schedule_kind kind, double progress, double decay, double min) {
    switch (kind) {
#define SCHEDULE(ID, NAME, OPTIONS, START, FACTOR, HELP)                                                               \
    case RT_LR_SCHEDULE_##ID:                                                                                          \
        return (struct factor){START, FACTOR};
#include "lr_schedules.def"
#undef SCHEDULE
    case RT_LR_SCHEDULES: break;
    }
    return (struct factor){0, 1};
}

double rt_lr_factor(const struct rt_lr_schedule *schedule, int64_t step) {
    const int64_t done = step - 1, falls = schedule->steps - schedule->warmup;
    const double progress = falls > 0 ? (double)(done - schedule->warmup) / (double)falls : 1,
                 decay = falls > 0 ? (double)schedule->decay / (double)falls : 1;
    const struct factor f = factors(schedule->kind, progress < 1 ? progress : 1, decay, schedule->min);
    if (done >= schedule->warmup) return f.after;
    return f.start + (1 - f.start) * ((double)done / (double)schedule->warmup);
}
