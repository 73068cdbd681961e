#include "passes/plan/schedules.h"

#include <string.h>

#include "ir/base/str.h"

const char *const schedule_default = "1f1b";

static void put(struct column *column, enum phase phase, int micro) {
    VEC_PUSH(column->arena, &column->cells, (struct cell){phase, micro});
}

static void fill_gpipe(struct column *column) {
    for (int m = 0; m < column->micro_batches; m++) put(column, PHASE_FORWARD, m);
    for (int m = 0; m < column->micro_batches; m++) put(column, PHASE_BACKWARD, m);
}

/* A stage begins with as many forward segments as there are stages after it. The last pair of a forward and a backward
 * segment is repeated for further micro-batches: with two micro-batches per stage, it refers to earlier ones, such as
 * those whose sends it waits for, by differences that are right for all further ones. */
static void fill_1f1b(struct column *column) {
    const int after = column->stages - 1 - column->stage, n = column->micro_batches;
    const int warm_up = after < n ? after : n;
    for (int m = 0; m < warm_up; m++) put(column, PHASE_FORWARD, m);
    for (int m = warm_up; m < n; m++) {
        column->repeat_first = column->cells.n;
        put(column, PHASE_FORWARD, m);
        put(column, PHASE_BACKWARD, m - warm_up);
        column->repeat_end = column->cells.n;
    }
    for (int m = n - warm_up; m < n; m++) put(column, PHASE_BACKWARD, m);
    if (n < 2 * column->stages) column->repeat_first = column->repeat_end = 0;
}

static const struct schedule_kind kinds[] = {
#define SCHEDULE(name, fill, help) {name, fill, help},
#include "passes/plan/schedules.def"
#undef SCHEDULE
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const struct schedule_kind *schedule_kind_find(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

int schedule_listed(const struct schedule_kind *kind, int stages, int micro_batches) {
    return kind->fill == fill_1f1b && micro_batches > 2 * stages ? 2 * stages : micro_batches;
}

int schedule_check(const char *name, struct diags *diags) {
    struct strbuf names;
    if (schedule_kind_find(name)) return 0;
    strbuf_init(&names, diags->arena);
    for (int i = 0; i < KINDS; i++) strbuf_printf(&names, "%s%s", i ? ", " : "", kinds[i].name);
    return diag_error(diags, 202, EXIT_USAGE, "--schedule", "unknown schedule %s; the schedules are %s",
                      diag_quote(diags, name), strbuf_text(&names));
}
