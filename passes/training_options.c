/* What is said of training on the command line: optimizer, schedule, and rules for some parameters. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "passes/optimizer.h"

const struct optimizer optimizers[] = {
#define OPTIMIZER(name, ...) {#name, __VA_ARGS__},
#include "passes/optimizers.def"
#undef OPTIMIZER
};
const int noptimizers = sizeof optimizers / sizeof *optimizers;

/* What follows the colon of "name:k=v,..", NULL if there is none. */
static const char *list_of(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : NULL;
}

static bool is_called(const char *text, const char *name) {
    size_t length = strcspn(text, ":");
    return strlen(name) == length && strncmp(text, name, length) == 0;
}

/* Optimizers ------------------------------------------------------------------------------------------------------ */

static const char *names_of_all(struct arena *arena) {
    const char *all = "";
    for (int i = 0; i < noptimizers; i++)
        if (!*optimizers[i].when) all = arena_printf(arena, "%s %s", all, optimizers[i].name);
    return all;
}

/* The last row of the name whose condition holds. */
static void settle_row(struct optimizer_choice *choice) {
    const char *name = choice->row->name;
    for (int i = 0; i < noptimizers; i++)
        if (strcmp(optimizers[i].name, name) == 0 &&
            (!*optimizers[i].when || numbers_value(&choice->numbers, optimizers[i].when, 0) != 0))
            choice->row = &optimizers[i];
}

int optimizer_parse(struct optimizer_choice *choice, const char *text, struct arena *arena, struct diags *diags) {
    *choice = (struct optimizer_choice){.text = text};
    for (int i = 0; i < noptimizers && !choice->row; i++)
        if (is_called(text, optimizers[i].name)) choice->row = &optimizers[i];
    if (!choice->row)
        return diag_error(diags, 202, EXIT_USAGE, "--optimizer", "no optimizer is called %s; there are%s",
                          diag_quote(diags, arena_copy(arena, text, strcspn(text, ":"))), names_of_all(arena));
    numbers_start(&choice->numbers, "--optimizer", choice->row->name, choice->row->options, arena);
    if (numbers_set_all(&choice->numbers, list_of(text), 0, diags) < 0) return -1;
    return settle_row(choice), 0;
}

/* Schedules ------------------------------------------------------------------------------------------------------- */

static const char *schedules_text(struct arena *arena) {
    const char *all = "";
    for (int i = 0; i < RT_SCHEDULES; i++) all = arena_printf(arena, "%s %s", all, rt_schedule_rows[i].name);
    return all;
}

/* A whole number of steps. */
static int steps_of(const struct numbers *numbers, const char *name, int64_t *steps, struct diags *diags) {
    double value = numbers_value(numbers, name, 0);
    *steps = (int64_t)value;
    if (value == floor(value) && value < 1e15) return 0;
    return diag_error(diags, 205, EXIT_USAGE, numbers->option, "%s of %s is no whole number", name, numbers->row);
}

int schedule_parse(struct rt_schedule *schedule, const char *text, struct arena *arena, struct diags *diags) {
    struct numbers numbers;
    int kind = 0;
    while (kind < RT_SCHEDULES && !is_called(text, rt_schedule_rows[kind].name)) kind++;
    if (kind == RT_SCHEDULES)
        return diag_error(diags, 202, EXIT_USAGE, "--lr-schedule", "no schedule is called %s; there are%s",
                          diag_quote(diags, arena_copy(arena, text, strcspn(text, ":"))), schedules_text(arena));
    numbers_start(&numbers, "--lr-schedule", rt_schedule_rows[kind].name, rt_schedule_rows[kind].options, arena);
    if (numbers_set_all(&numbers, list_of(text), 0, diags) < 0) return -1;
    *schedule = (struct rt_schedule){.kind = kind, .min = numbers_value(&numbers, "min", 0)};
    if (steps_of(&numbers, "warmup", &schedule->warmup, diags) < 0 ||
        steps_of(&numbers, "steps", &schedule->steps, diags) < 0)
        return -1;
    if (schedule->min > 1)
        return diag_error(diags, 205, EXIT_USAGE, "--lr-schedule", "min is a part of the learning rate, at most 1");
    if (numbers_value(&numbers, "steps", -1) < 0 || schedule->warmup < schedule->steps) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--lr-schedule", "warmup must be less than steps");
}

/* Rules for parameters -------------------------------------------------------------------------------------------- */

int parameter_rule_add(struct training *training, const char *text, struct arena *arena, struct diags *diags) {
    const char *colon = strrchr(text, ':'); /* names may have colons, settings do not */
    struct parameter_rule rule = {.text = text, .optimizer = training->optimizer};
    if (!colon || colon == text)
        return diag_error(diags, 205, EXIT_USAGE, "--param", "%s is not GLOB:frozen or GLOB:lr=..,..",
                          diag_quote(diags, text));
    rule.pattern = arena_copy(arena, text, (size_t)(colon - text));
    rule.optimizer.numbers.option = "--param";
    for (const char *at = colon + 1; at;) {
        size_t length = strcspn(at, ",");
        bool frozen = length == strlen("frozen") && strncmp(at, "frozen", length) == 0;
        if (!frozen && numbers_set(&rule.optimizer.numbers, at, length, 0, diags) < 0) return -1;
        rule.frozen = rule.frozen || frozen;
        rule.own_lr = rule.own_lr || strncmp(at, "lr=", 3) == 0;
        at = at[length] ? at + length + 1 : NULL;
    }
    settle_row(&rule.optimizer);
    VEC_PUSH(arena, &training->rules, rule);
    return 0;
}

const struct parameter_rule *parameter_rule_of(const struct training *training, const char *name) {
    for (int i = training ? training->rules.n - 1 : -1; i >= 0; i--)
        if (fnmatch(training->rules.at[i].pattern, name, 0) == 0) return &training->rules.at[i];
    return NULL;
}

static bool matches_any(const char *pattern, const struct graph *graph) {
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++) {
            const struct tensor *tensor = node->inputs[k] < 0 ? NULL : &graph->tensors.at[node->inputs[k]];
            if (tensor && tensor->kind == TENSOR_WEIGHT && rt_dtype_is_float(tensor->dtype) &&
                fnmatch(pattern, tensor->name, 0) == 0)
                return true;
        }
    }
    return false;
}

int parameter_rules_check(const struct training *training, const struct graph *graph, struct diags *diags) {
    int status = 0;
    for (int i = 0; training && i < training->rules.n; i++)
        if (!matches_any(training->rules.at[i].pattern, graph))
            status = diag_error(diags, 414, EXIT_USAGE, "--param", "no parameter is called %s",
                                diag_quote(diags, training->rules.at[i].pattern));
    return status;
}
