/* rankc ops [OPERATOR]: lists the supported ONNX operators, from frontend/lower/onnx_ops.def and ir/ops.def. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/call/instruction.h"
#include "frontend/cli/cli.h"
#include "frontend/import/import_state.h"
#include "frontend/read/onnx_check.h"
#include "runtime/base/text/json.h"

/* An operator and its rows in onnx_ops.def, oldest first. An operator that ONNX has withdrawn counts as two: the
 * supported one, and the refused one since then. */
struct family {
    const char *name; /* with its domain, unless that is ONNX's: "com.microsoft::Gelu" */
    const struct onnx_op *forms;
    int nforms;
    const struct op *core; /* the core operator that does its main work; NULL: a composition, or refused */
};

struct families {
    VEC(struct family) all;
};

static bool is_default_domain(const struct family *family) {
    return !*family->forms->domain;
}

/* The error code if the operator is refused, else 0. */
static int refused(const struct family *family) {
    return family->forms->refused;
}

/* The first version of a row. That of the oldest row is the oldest opset that is imported. */
static int form_since(const struct family *family, int form) {
    int since = family->forms[form].since;
    return is_default_domain(family) && since < ONNX_OPSET_MIN ? ONNX_OPSET_MIN : since;
}

/* The core operator of a row: its own, else the one of the same name. */
static const struct op *core_of(const struct onnx_op *row) {
    const struct op *op = row->refused ? NULL : row->core ? row->core : op_find(row->name);
    return op && op->kind != OP_COMM ? op : NULL;
}

static int compare_families(const void *left, const void *right) {
    const struct family *a = left, *b = right;
    int domains = strcmp(a->forms->domain, b->forms->domain), names = strcmp(a->name, b->name);
    return domains ? domains : names ? names : a->forms->since - b->forms->since;
}

static bool is_same_family(const struct onnx_op *a, const struct onnx_op *b) {
    return !strcmp(a->name, b->name) && !strcmp(a->domain, b->domain) && a->refused == b->refused;
}

static void collect(struct families *families, struct arena *arena) {
    for (int i = 0, n; i < onnx_nops; i += n) {
        const struct onnx_op *first = &onnx_ops[i];
        for (n = 1; i + n < onnx_nops && is_same_family(&first[n], first);) n++;
        const char *name = *first->domain ? arena_printf(arena, "%s::%s", first->domain, first->name) : first->name;
        VEC_PUSH(arena, &families->all, (struct family){name, first, n, core_of(&first[n - 1])});
    }
    qsort(families->all.at, (size_t)families->all.n, sizeof *families->all.at, compare_families);
}

/* Where there is no kernel for halves, passes/rewrite/promote_to_f32.c takes that of f32. */
static bool computes(const struct op *op, enum rt_dtype dtype) {
    return op_takes(op, dtype) && op_has_kernel(op, rt_dtypes[dtype].kind == RT_KIND_HALF ? RT_F32 : dtype);
}

/* The types that the core operator computes in, as "f32 f64 i64"; "" for a composition. */
static const char *dtypes_text(const struct family *family, struct arena *arena) {
    struct strbuf text = {.arena = arena};
    for (int t = 0; family->core && t < RT_DTYPE_COUNT; t++)
        if (computes(family->core, (enum rt_dtype)t))
            strbuf_printf(&text, "%s%s", text.length ? " " : "", rt_dtypes[t].name);
    return strbuf_text(&text);
}

/* How a word finds operators, most exact first: the first that finds any is taken. */
enum { MATCH_EXACT, MATCH_ANY_CASE, MATCH_PART, MATCHES };

/* True if `word` is a part of the name, in any case; "_", "-" and blanks in it do not count, so that layer_norm finds
 * LayerNormalization. */
static bool has_part(const char *name, const char *word, struct arena *arena) {
    char *part = arena_strdup(arena, word), *end = part;
    for (const char *c = word; *c; c++)
        if (!strchr("_- ", *c)) *end++ = *c;
    *end = 0;
    return *part && strcasestr(name, part);
}

static bool matches(const struct family *family, const char *pattern, int how, struct arena *arena) {
    const int flags = how == MATCH_ANY_CASE ? FNM_CASEFOLD : 0;
    if (how == MATCH_PART)
        return has_part(family->name, pattern, arena) || (family->core && has_part(family->core->name, pattern, arena));
    return !fnmatch(pattern, family->name, flags) || !fnmatch(pattern, family->forms->name, flags);
}

static int refuse_pattern(struct cli *cli, const struct families *families, const char *pattern) {
    const char **names = ARENA_ARRAY(cli->arena, const char *, families->all.n + 1);
    for (int i = 0; i < families->all.n; i++) names[i] = families->all.at[i].forms->name;
    diag_error(cli->diags, 202, EXIT_USAGE, NULL, "unknown operator %s", diag_quote(cli->diags, pattern));
    if (str_nearest(pattern, names)) diag_help(cli->diags, "did you mean '%s'?", str_nearest(pattern, names));
    return -1;
}

/* Selects the operators that the operand names; without an operand, all. */
static int choose(struct cli *cli, struct families *chosen) {
    const char *pattern = cli->options->operand;
    struct families all = {0};
    collect(&all, cli->arena);
    for (int how = MATCH_EXACT; how < MATCHES && !chosen->all.n; how++)
        for (int i = 0; i < all.all.n; i++)
            if (!pattern || matches(&all.all.at[i], pattern, how, cli->arena))
                VEC_PUSH(cli->arena, &chosen->all, all.all.at[i]);
    return chosen->all.n ? 0 : refuse_pattern(cli, &all, pattern);
}

static void print_table(const struct families *families, struct arena *arena) {
    printf("%-34s %-11s %-16s %s\n", "operator", "opsets", "becomes", "types");
    VEC_EACH(&families->all, i, const struct family *family) {
        struct strbuf opsets = {.arena = arena};
        for (int f = 0; f < family->nforms; f++) strbuf_printf(&opsets, "%s%d", f ? " " : "", form_since(family, f));
        const char *becomes = refused(family) ? "-" : family->core ? family->core->name : "composition";
        const char *types = refused(family) ? onnx_refusal(refused(family)) : dtypes_text(family, arena);
        printf("%-34s %-11s %-*s%s\n", family->name, strbuf_text(&opsets), *types ? 17 : 0, becomes, types);
    }
}

static const char *count_text(int least, int most, const char *what, struct arena *arena) {
    if (most >= ONNX_MANY) return arena_printf(arena, "%d or more %ss", least, what);
    if (least == most) return arena_printf(arena, "%d %s%s", most, what, most == 1 ? "" : "s");
    return arena_printf(arena, "%d to %d %ss", least, most, what);
}

static const char *lower_case(const char *text, struct arena *arena) {
    char *lower = arena_strdup(arena, text);
    for (char *c = lower; *c; c++) *c = (char)tolower((unsigned char)*c);
    return lower;
}

static void print_attributes(const struct onnx_op *form, struct arena *arena) {
    struct onnx_attr attr;
    for (const char *rest = form->attrs; (rest = onnx_next_attr(rest, &attr));) {
        printf("    %.*s  %s", (int)attr.length, attr.name, lower_case(onnx_attr_kind(attr.kind), arena));
        if (attr.fallback) printf(" = %.*s", (int)attr.fallback_length, attr.fallback);
        printf("%s\n", attr.required ? ", required" : "");
    }
}

static void print_form(const struct family *family, int i, struct arena *arena) {
    const struct onnx_op *form = &family->forms[i];
    printf("from %s %d: %s, %s%s\n", is_default_domain(family) ? "opset" : "version", form_since(family, i),
           count_text(form->in_min, form->in_max, "input", arena),
           count_text(form->out_max, form->out_max, "output", arena),
           form->sequences ? "; takes or returns sequences" : "");
    print_attributes(form, arena);
}

/* -v: how the core operator is split, and whether it has a derivative. */
static void print_core(const struct op *op) {
    if (!op) {
        printf("dimensions, gradient: those of its core operators\n");
        return;
    }
    printf("dimensions: %s\n", op->dims ? op->dims : "follow from shapes and attributes");
    printf("gradient: %s\n", op->gradient || op->grad ? "yes" : "no");
}

static void print_one(const struct family *family, bool verbose, struct arena *arena) {
    printf("%s\n", family->name);
    if (refused(family)) {
        printf("not supported: %s (E%04d)\n", onnx_refusal(refused(family)), refused(family));
        return;
    }
    printf("becomes: %s\n", family->core ? arena_printf(arena, "core operator %s", family->core->name)
                                         : "a composition of core operators");
    if (family->core) printf("types: %s\n", dtypes_text(family, arena));
    if (verbose) print_core(family->core);
    for (int i = 0; i < family->nforms; i++) print_form(family, i, arena);
}

static void put_attributes(struct rt_json_writer *writer, const struct onnx_op *form) {
    struct onnx_attr attr;
    rt_json_key_open(writer, "attributes", '[', RT_JSON_INLINE);
    for (const char *rest = form->attrs; (rest = onnx_next_attr(rest, &attr));) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key(writer, "name"), rt_json_put_bytes(writer, attr.name, attr.length);
        rt_json_key_text(writer, "kind", onnx_attr_kind(attr.kind));
        rt_json_key_bool(writer, "required", attr.required);
        rt_json_key(writer, "default");
        if (attr.fallback)
            rt_json_put_bytes(writer, attr.fallback, attr.fallback_length);
        else
            rt_json_put_null(writer);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

/* Writes `most`, or null for ONNX_MANY. */
static void put_limit(struct rt_json_writer *writer, const char *key, int most) {
    rt_json_key(writer, key);
    if (most >= ONNX_MANY)
        rt_json_put_null(writer);
    else
        rt_json_put_int(writer, most);
}

static void put_forms(struct rt_json_writer *writer, const struct family *family) {
    rt_json_key_open(writer, "forms", '[', RT_JSON_LINES);
    EACH(family->forms, family->nforms, i, const struct onnx_op *form) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_int(writer, "since", form_since(family, i));
        put_limit(writer, "least_inputs", form->in_min);
        put_limit(writer, "most_inputs", form->in_max);
        put_limit(writer, "most_outputs", form->out_max);
        rt_json_key_bool(writer, "sequences", form->sequences);
        put_attributes(writer, form);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

static void put_core(struct rt_json_writer *writer, const struct family *family) {
    rt_json_key(writer, "core");
    if (!family->core) {
        rt_json_put_null(writer);
        rt_json_key(writer, "dtypes"), rt_json_put_null(writer);
        return;
    }
    rt_json_put_text(writer, family->core->name);
    rt_json_key_open(writer, "dtypes", '[', RT_JSON_INLINE);
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        if (computes(family->core, (enum rt_dtype)t)) rt_json_put_text(writer, rt_dtypes[t].name);
    rt_json_close(writer, ']');
}

static void put_family(struct rt_json_writer *writer, const struct family *family, struct arena *arena) {
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_text(writer, "domain", family->forms->domain);
    rt_json_key_text(writer, "name", family->forms->name);
    rt_json_key(writer, "refused");
    if (refused(family)) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "code", arena_printf(arena, "E%04d", refused(family)));
        rt_json_key_text(writer, "because", onnx_refusal(refused(family)));
        rt_json_key_int(writer, "since", form_since(family, 0));
        rt_json_close(writer, '}');
    } else {
        rt_json_put_null(writer);
        put_core(writer, family);
        put_forms(writer, family);
    }
    rt_json_close(writer, '}');
}

static int print_json(struct cli *cli, const struct families *families) {
    struct rt_json_writer writer;
    struct rt_reason why;
    int status = 0;
    rt_json_start(&writer);
    rt_json_open(&writer, '{', RT_JSON_LINES);
    rt_json_key_int(&writer, "format", 1);
    rt_json_key_dims(&writer, "opsets", (int64_t[]){ONNX_OPSET_MIN, ONNX_OPSET_MAX}, 2);
    rt_json_key_open(&writer, "operators", '[', RT_JSON_LINES);
    for (int i = 0; i < families->all.n; i++) put_family(&writer, &families->all.at[i], cli->arena);
    rt_json_close(&writer, ']');
    rt_json_close(&writer, '}');
    if (rt_json_end(&writer, &why))
        fputs(writer.text, stdout);
    else
        status = diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "%s", why.text);
    rt_json_discard(&writer);
    return status;
}

int cli_ops(struct cli *cli) {
    struct families families = {0};
    if (cli->options->check) return ops_check(cli->options->check, cli);
    if (choose(cli, &families)) return -1;
    if (cli->options->json) return print_json(cli, &families);
    const bool verbose = cli->options->verbose;
    if (!verbose && (!cli->options->operand || families.all.n > 1)) return print_table(&families, cli->arena), 0;
    for (int i = 0; i < families.all.n; i++) {
        if (i) putchar('\n');
        print_one(&families.all.at[i], verbose, cli->arena);
    }
    return 0;
}
