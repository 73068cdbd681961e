#include <stddef.h>
#include <string.h>

#include "ir/number.h"
#include "ir/text/reader.h"
#include "ir/user.h"

enum { MAX_OPERATORS = 256 };

/* The properties of a declaration that are texts, by their places in struct user_op. */
static const struct property {
    const char *name;
    size_t offset;
} properties[] = {{"types", offsetof(struct user_op, op.types)},
                  {"dims", offsetof(struct user_op, op.dims)},
                  {"expr", offsetof(struct user_op, op.expr)},
                  {"call", offsetof(struct user_op, op.call)},
                  {"attrs", offsetof(struct user_op, attrs)},
                  {"gradient", offsetof(struct user_op, gradient)},
                  {"model", offsetof(struct user_op, model)},
                  {"kernels", offsetof(struct user_op, kernels)},
                  {"pattern", offsetof(struct user_op, pattern)},
                  {"c", offsetof(struct user_op, kernel[USER_C].file)},
                  {"cuda", offsetof(struct user_op, kernel[USER_CUDA].file)}};
enum { PROPERTIES = sizeof properties / sizeof *properties };

/* A declaration being read: where its properties stand. */
struct declaration {
    struct user_op *user;
    const char *start;
    struct declared at[PROPERTIES + 1]; /* the last: flops */
};

static bool read_flops(struct reader *r, double *flops) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (!read_number(r, word)) return false;
    bool good = number_parse(word, RT_F64, flops) && *flops >= 0 && *flops <= 1e9;
    return good || fail_at(r, start, "flops is a number from 0 to 1e9");
}

static bool read_text_property(struct reader *r, struct declaration *d, int i) {
    const char **value = (const char **)((char *)d->user + properties[i].offset), *start = place(r);
    d->at[i] = (struct declared){r->line_start, start, r->line};
    if (*value) return fail_at(r, start, "'%s' is given twice", properties[i].name);
    if (!read_string(r, value)) return false;
    if (strlen(*value) > USER_TEXT)
        return fail_at(r, start, "'%s' has more than %d bytes", properties[i].name, USER_TEXT);
    for (const char *c = *value; *c; c++)
        if (*c < 0x20 || *c >= 0x7f)
            return fail_at(r, start, "'%s' has a character that is not printable", properties[i].name);
    return **value || properties[i].offset == offsetof(struct user_op, attrs) ||
           fail_at(r, start, "'%s' is empty", properties[i].name);
}

static bool read_property(struct reader *r, struct declaration *d) {
    char name[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "a property", name) || !expect(r, "=")) return false;
    if (strcmp(name, "flops") == 0) {
        d->at[PROPERTIES] = (struct declared){r->line_start, place(r), r->line};
        return read_flops(r, &d->user->op.flops);
    }
    for (int i = 0; i < PROPERTIES; i++)
        if (strcmp(properties[i].name, name) == 0) return read_text_property(r, d, i);
    return fail_at(r, start, "an operator has no property '%s'", name);
}

/* Reports a fault where the property stands, or at the declaration. */
static bool fail_property(struct reader *r, const struct declared *at, const char *why) {
    const struct reader now = *r;
    r->line = at->line;
    r->line_start = at->line_start;
    fail_at(r, at->at, "%s", why);
    r->line = now.line;
    r->line_start = now.line_start;
    return false;
}

static bool complete(struct reader *r, struct declaration *d, const struct declared *start) {
    struct user_fault fault;
    if (user_op_complete(d->user, r->arena, &fault)) return true;
    struct declared at = *start;
    for (int i = 0; i < PROPERTIES && fault.property; i++)
        if (strcmp(properties[i].name, fault.property) == 0 && d->at[i].at) at = d->at[i];
    if (fault.property && strcmp(fault.property, "pattern") == 0) at.at += 1 + fault.at; /* behind the quotation mark */
    return fail_property(r, &at, fault.why);
}

bool read_operator(struct reader *r) {
    struct declaration d = {.user = ARENA_NEW(r->arena, struct user_op)};
    const struct declared start = {r->line_start, place(r), r->line};
    *d.user = (struct user_op){.op = {.flops = 1}};
    if (!read_string(r, &d.user->op.name)) return false;
    while (!at_line_end(r))
        if (!read_property(r, &d)) return false;
    if (!complete(r, &d, &start)) return false;
    for (int i = 0; i < r->graph->operators.n; i++)
        if (strcmp(r->graph->operators.at[i]->op.name, d.user->op.name) == 0)
            return fail_property(r, &start, "this operator is declared twice");
    if (r->graph->operators.n == MAX_OPERATORS) return fail_property(r, &start, "more than 256 operators");
    VEC_PUSH(r->arena, &r->graph->operators, d.user);
    int gradient = 0;
    while (strcmp(properties[gradient].name, "gradient") != 0) gradient++;
    VEC_PUSH(r->arena, &r->declared, d.at[gradient]);
    return true;
}

bool check_operators(struct reader *r) {
    bool good = true;
    struct user_fault fault;
    for (int i = 0; i < r->graph->operators.n; i++)
        if (!user_op_check_gradient(r->graph->operators.at[i], r->graph->operators.at, r->graph->operators.n, r->arena,
                                    &fault))
            good = fail_property(r, &r->declared.at[i], fault.why);
    return good;
}
