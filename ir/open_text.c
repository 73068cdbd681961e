/* Numbers of a specimen as text: expressions over the names of sizes (ir/open.h). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/diag.h"
#include "ir/base/str.h"
#include "ir/open.h"

struct printer {
    const struct open_sizes *open;
    struct arena *arena;
    const struct open_names *names;
};

static const char *print(const struct printer *printer, int term, bool loose);
static const char *print_meaning(const struct printer *printer, int term, bool loose);

static int size_term(const struct open_sizes *open, int size) {
    return map_get(&open->known, (const char *)&open->all.at[size].value, sizeof open->all.at[size].value);
}

static void sort_falling(int *terms, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && terms[k] > terms[k - 1]; k--) {
            const int other = terms[k];
            terms[k] = terms[k - 1], terms[k - 1] = other;
        }
}

/* A product: the number first, and a number of units as a size where the steps divide it. */
static const char *print_product(const struct printer *printer, int term, bool loose) {
    const struct open_sizes *open = printer->open;
    const char *letters = "";
    int factors[OPEN_DEPTH + 1], n = 0, sizes = 0;
    int64_t number = 1;
    for (; open->terms.at[term].kind == OPEN_PRODUCT; term = open->terms.at[term].a)
        factors[n++] = open->terms.at[term].b;
    factors[n++] = term;
    sort_falling(factors, n); /* those that were noted last are the last ones of the text */
    for (int i = 0; i < n; i++)
        if (open->terms.at[factors[i]].kind == OPEN_NUMBER) number *= open->terms.at[factors[i]].number;
    for (int i = 0; i < n; i++) {
        const struct open_term *factor = &open->terms.at[factors[i]];
        const int64_t unit = factor->kind == OPEN_UNIT ? open_range_unit(&open->all.at[factor->a].range) : 0;
        if (factor->kind == OPEN_NUMBER) continue;
        if (unit && number % unit == 0) number /= unit, factors[i] = size_term(open, factor->a);
        sizes++;
        letters =
            arena_printf(printer->arena, "%s%s%s", print(printer, factors[i], true), *letters ? " * " : "", letters);
    }
    if (number == 1) return loose && sizes > 1 ? arena_printf(printer->arena, "(%s)", letters) : letters;
    return arena_printf(printer->arena, loose ? "(%lld * %s)" : "%lld * %s", (long long)number, letters);
}

/* Appends the terms of a sum, and of sums in it, in their order; their numbers are added to *number. */
static void put_terms(const struct printer *printer, int term, struct strbuf *out, int64_t *number) {
    const struct open_term *t = &printer->open->terms.at[term];
    if (t->kind == OPEN_SUM) {
        put_terms(printer, t->a, out, number);
        put_terms(printer, t->b, out, number);
    } else if (t->kind == OPEN_NUMBER) {
        *number += t->number;
    } else {
        strbuf_printf(out, "%s%s", out->length ? " + " : "", print(printer, term, false));
    }
}

/* Terms in order, then the number that is left of those in it. */
static const char *print_sum(const struct printer *printer, int term, bool loose) {
    int64_t number = 0;
    struct strbuf out = {.arena = printer->arena};
    put_terms(printer, term, &out, &number);
    if (number) strbuf_printf(&out, " %c %lld", number < 0 ? '-' : '+', llabs(number));
    return loose ? arena_printf(printer->arena, "(%s)", strbuf_text(&out)) : strbuf_text(&out);
}

/* Atoms have names in generated code; an expression is what a name stands for. */
static const char *print_atom(const struct printer *printer, const struct open_term *t, bool loose) {
    static const char *const forms[] = {[OPEN_QUOTIENT] = "%s / %s",
                                        [OPEN_REST] = "%s %% %s",
                                        [OPEN_LESSER] = "lesser(%s, %s)",
                                        [OPEN_GREATER] = "greater(%s, %s)"};
    const bool call = t->kind == OPEN_LESSER || t->kind == OPEN_GREATER;
    const char *a = print(printer, t->a, !call), *b = print(printer, t->b, !call);
    struct strbuf out = {.arena = printer->arena};
    strbuf_puts(&out, loose && !call ? "(" : "");
    for (const char *c = forms[t->kind]; *c; c++) {
        if (*c == '%' && c[1] == 's') {
            strbuf_puts(&out, a);
            a = b, c++;
        } else if (*c == '%') {
            strbuf_putc(&out, *++c);
        } else {
            strbuf_putc(&out, *c);
        }
    }
    strbuf_puts(&out, loose && !call ? ")" : "");
    return strbuf_text(&out);
}

static const char *print(const struct printer *printer, int term, bool loose) {
    const struct open_names *names = printer->names;
    const char *name = names ? names->name(names->context, term) : NULL;
    return name ? name : print_meaning(printer, term, loose);
}

static const char *quoted(struct arena *arena, const char *name) {
    struct strbuf out = {.arena = arena};
    strbuf_quote(&out, name);
    return strbuf_text(&out);
}

static const char *print_meaning(const struct printer *printer, int term, bool loose) {
    const struct open_sizes *open = printer->open;
    const struct open_term *t = &open->terms.at[term];
    switch (t->kind) {
    case OPEN_NUMBER: return arena_printf(printer->arena, "%lld", (long long)t->number);
    case OPEN_SIZE: return quoted(printer->arena, open->all.at[t->a].name);
    case OPEN_UNIT:
        return arena_printf(printer->arena, loose ? "(%s / %lld)" : "%s / %lld",
                            print(printer, size_term(open, t->a), true),
                            (long long)open_range_unit(&open->all.at[t->a].range));
    case OPEN_SUM: return print_sum(printer, term, loose);
    case OPEN_PRODUCT: return print_product(printer, term, loose);
    default: return print_atom(printer, t, loose);
    }
}

const char *open_text(struct open_sizes *open, struct arena *arena, int64_t value, const struct open_names *names,
                      bool loose) {
    const int term = open_term(open, value);
    const struct printer printer = {open, arena, names};
    return term < 0 ? arena_printf(arena, "%lld", (long long)value) : print(&printer, term, loose);
}

const char *open_meaning(struct open_sizes *open, struct arena *arena, int64_t value, const struct open_names *names) {
    const int term = open_term(open, value);
    const struct printer printer = {open, arena, names};
    return term < 0 ? arena_printf(arena, "%lld", (long long)value) : print_meaning(&printer, term, false);
}

bool open_is_atom(const struct open_sizes *open, int term) {
    const enum open_kind kind = open->terms.at[term].kind;
    return kind != OPEN_NUMBER && kind != OPEN_UNIT && kind != OPEN_PRODUCT && kind != OPEN_SUM;
}

bool open_names_alone(struct open_sizes *open, int64_t value) {
    const int term = open_term(open, value);
    return term >= 0 && open_is_atom(open, term);
}

int open_first_size(struct open_sizes *open, int64_t value) {
    int term = open_term(open, value);
    while (term >= 0 && open->terms.at[term].kind != OPEN_SIZE && open->terms.at[term].kind != OPEN_UNIT) {
        const struct open_term *t = &open->terms.at[term];
        term = open_is(open, open->terms.at[t->a].value) && open->terms.at[t->a].kind != OPEN_NUMBER ? t->a : t->b;
    }
    if (term < 0) BUG("%lld is made of no open size", (long long)value);
    return open->terms.at[term].a;
}

static const char *plain_name(const void *context, int term) {
    const struct open_sizes *open = context;
    return open->terms.at[term].kind == OPEN_SIZE ? open->all.at[open->terms.at[term].a].name : NULL;
}

const char *open_plain(struct open_sizes *open, struct arena *arena, int64_t value) {
    return open_text(open, arena, value, &(struct open_names){plain_name, open}, false);
}

const char *open_said(struct open_sizes *open, struct arena *arena, const char *text) {
    struct strbuf out = {.arena = arena};
    for (const char *at = text; *at;) {
        const bool inside = at > text && (isalnum((unsigned char)at[-1]) || strchr("_.'", at[-1]));
        const size_t digits = strspn(at, "0123456789");
        const int64_t value = digits && digits < 19 ? strtoll(at, NULL, 10) : 0;
        if (!inside && value >= OPEN_LEAST_ATOM && open_is(open, value))
            strbuf_puts(&out, open_plain(open, arena, value));
        else
            strbuf_add(&out, at, digits ? digits : 1);
        at += digits ? digits : 1;
    }
    return strbuf_text(&out);
}
