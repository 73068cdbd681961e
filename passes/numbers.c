#include "passes/numbers.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

int numbers_set(struct numbers *numbers, const char *text, size_t length, double least, struct diags *diags) {
    const size_t name = strcspn(text, "=");
    for (int i = 0; i < numbers->n && name + 1 < length; i++) {
        char *end;
        if (strlen(numbers->at[i].name) != name || strncmp(numbers->at[i].name, text, name) != 0) continue;
        double value = strtod(text + name + 1, &end);
        if (end != text + length || !(value >= least && value < numbers->at[i].below && fabs(value) <= FLT_MAX))
            break;
        numbers->at[i].value = value;
        return 0;
    }
    diag_error(diags, 205, EXIT_USAGE, numbers->option, "%s is no option of %s with a number",
               diag_quote(diags, arena_copy(diags->arena, text, length)), numbers->row);
    return diag_note(diags, "it takes %s", *numbers->takes ? numbers->takes : "none"), -1;
}

int numbers_set_all(struct numbers *numbers, const char *list, double least, struct diags *diags) {
    for (const char *at = list; at;) {
        size_t length = strcspn(at, ",");
        if (numbers_set(numbers, at, length, least, diags) < 0) return -1;
        at = at[length] ? at + length + 1 : NULL;
    }
    for (int i = 0; i < numbers->n; i++)
        if (isnan(numbers->at[i].value))
            return diag_error(diags, 205, EXIT_USAGE, numbers->option, "%s needs %s", numbers->row,
                              numbers->at[i].name);
    return 0;
}

double numbers_value(const struct numbers *numbers, const char *name, double fallback) {
    for (int i = 0; i < numbers->n; i++)
        if (strcmp(numbers->at[i].name, name) == 0) return numbers->at[i].value;
    return fallback;
}
