/* rankc compare A B: where two dumps of values part. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/compare/dumped.h"
#include "runtime/base/text/json.h"

/* A tensor that is in both. */
struct pair {
    struct dumped_tensor *a, *b;
    const struct dumped_tensor *where; /* the one of the two that has a node */
    double most, bound;                /* largest difference; what is allowed */
    double of_a, of_b;                 /* there */
    int64_t at;
    const char *unlike; /* why elements cannot be compared; NULL: they were */
    bool equal;
};

struct comparison {
    struct cli *cli;
    struct dumped a, b;
    double rtol, atol; /* rtol < 0: by type */
    bool by_name;      /* one of both has no steps */
    VEC(struct pair) pairs;
    VEC(const struct dumped_tensor *) only_a, only_b;
    int different, first; /* number of pairs that differ; the first of them, -1: none */
};

/* Pairs ------------------------------------------------------------------------------------------------------------ */

static int64_t last_if_none(int64_t micro) {
    return micro < 0 ? INT64_MAX : micro;
}

static int sign_of(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* In the order of execution. What a step computes once follows its micro-batches. */
static int compare_order(const void *left, const void *right) {
    const struct dumped_tensor *a = ((const struct pair *)left)->where, *b = ((const struct pair *)right)->where;
    int sign = sign_of(a->step, b->step);
    if (!sign) sign = sign_of(last_if_none(a->micro), last_if_none(b->micro));
    if (!sign) sign = sign_of(a->instruction, b->instruction);
    if (!sign) sign = (int)b->before - (int)a->before;
    return sign ? sign : strcmp(a->name, b->name);
}

/* Files without steps are of the first step and micro-batch. */
static bool takes_part(const struct comparison *c, const struct dumped_tensor *t) {
    return !c->by_name || (t->step <= 1 && t->micro <= 0);
}

static void index_by(const struct comparison *c, const struct dumped *dumped, struct map *map) {
    map_init(map, c->cli->arena);
    for (int i = 0; i < dumped->all.n; i++) {
        const char *key = dumped_key(&dumped->all.at[i], c->by_name, c->cli->arena);
        if (takes_part(c, &dumped->all.at[i])) map_put(map, key, strlen(key), i);
    }
}

static void find_pairs(struct comparison *c) {
    struct arena *arena = c->cli->arena;
    struct map in_a, in_b;
    index_by(c, &c->a, &in_a);
    index_by(c, &c->b, &in_b);
    for (int i = 0; i < in_a.n; i++) {
        struct dumped_tensor *a = &c->a.all.at[in_a.entries[i].value];
        const int at = map_get(&in_b, in_a.entries[i].key, in_a.entries[i].length);
        struct dumped_tensor *b = at < 0 ? NULL : &c->b.all.at[at];
        if (b) VEC_PUSH(arena, &c->pairs, ((struct pair){.a = a, .b = b, .where = c->a.plain ? b : a}));
        if (!b) VEC_PUSH(arena, &c->only_a, a);
    }
    for (int i = 0; i < in_b.n; i++)
        if (map_get(&in_a, in_b.entries[i].key, in_b.entries[i].length) < 0)
            VEC_PUSH(arena, &c->only_b, &c->b.all.at[in_b.entries[i].value]);
    if (c->pairs.n) qsort(c->pairs.at, (size_t)c->pairs.n, sizeof *c->pairs.at, compare_order);
}

/* Differences ------------------------------------------------------------------------------------------------------ */

/* NaN and infinities are equal to themselves, and infinitely far from all else. */
static double apart(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    const double difference = fabs(a - b);
    return isfinite(difference) ? difference : INFINITY;
}

static double magnitude(const double *values, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i]) && fabs(values[i]) > most) most = fabs(values[i]);
    return most;
}

static void compare_values(struct comparison *c, struct pair *pair, const double *a, const double *b, int64_t n) {
    const double by_type = pair->a->half || pair->b->half ? 2e-2 : 1e-4;
    pair->bound = c->atol + (c->rtol < 0 ? by_type : c->rtol) * magnitude(b, n);
    for (int64_t i = 0; i < n; i++) {
        const double difference = apart(a[i], b[i]);
        if (i && difference <= pair->most) continue;
        pair->most = difference;
        pair->at = i, pair->of_a = a[i], pair->of_b = b[i];
    }
    pair->equal = pair->most <= pair->bound;
}

static bool same_shape(const struct dumped_tensor *a, const struct dumped_tensor *b) {
    return a->ndim == b->ndim && !memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof *a->dims);
}

static int compare_pair(struct comparison *c, struct pair *pair) {
    double *a = NULL, *b = NULL;
    int64_t of_a = 0, of_b = 0;
    bool all_a = false, all_b = false;
    if (pair->a->unknown || pair->b->unknown) {
        pair->unlike = "ranks' parts overlap (windows)";
        pair->equal = true;
        return 0;
    }
    int status = dumped_read(&c->a, pair->a, &a, &of_a, &all_a, c->cli);
    if (!status) status = dumped_read(&c->b, pair->b, &b, &of_b, &all_b, c->cli);
    if (!status && !same_shape(pair->a, pair->b))
        pair->unlike = "the shapes differ";
    else if (!status && !(all_a && all_b))
        pair->unlike = "parts are missing";
    else if (!status)
        compare_values(c, pair, a, b, of_a);
    free(a);
    free(b);
    return status;
}

static int compare_all(struct comparison *c) {
    c->first = -1;
    for (int i = 0; i < c->pairs.n; i++) {
        if (compare_pair(c, &c->pairs.at[i])) return -1;
        if (c->pairs.at[i].equal) continue;
        if (c->first < 0) c->first = i;
        c->different++;
    }
    return 0;
}

/* Reports ---------------------------------------------------------------------------------------------------------- */

static void list_index(const struct dumped_tensor *t, int64_t at, int64_t *index) {
    for (int d = t->ndim - 1; d >= 0; d--) {
        index[d] = t->dims[d] ? at % t->dims[d] : 0;
        at = t->dims[d] ? at / t->dims[d] : 0;
    }
}

static const char *index_text(const struct comparison *c, const struct pair *pair) {
    int64_t index[RT_MAX_NDIM];
    struct strbuf out;
    strbuf_init(&out, c->cli->arena);
    list_index(pair->a, pair->at, index);
    strbuf_putc(&out, '[');
    for (int d = 0; d < pair->a->ndim; d++) strbuf_printf(&out, "%s%" PRId64, d ? ", " : "", index[d]);
    strbuf_putc(&out, ']');
    return out.text;
}

static const char *quote(const struct comparison *c, const char *text) {
    return diag_quote(c->cli->diags, text);
}

/* "'x', step 2, micro-batch 1" */
static const char *value_text(const struct comparison *c, const struct dumped_tensor *t) {
    struct strbuf out;
    strbuf_init(&out, c->cli->arena);
    strbuf_puts(&out, quote(c, t->name));
    if (t->step > 1) strbuf_printf(&out, ", step %" PRId64, t->step);
    if (t->micro >= 0) strbuf_printf(&out, ", micro-batch %" PRId64, t->micro);
    return out.text;
}

static void print_pair(const struct comparison *c, const struct pair *pair) {
    const char *mark = pair->equal ? " " : "*";
    if (pair->unlike)
        printf("%s %-9s %s: %s\n", mark, "-", value_text(c, pair->where), pair->unlike);
    else
        printf("%s %-9.3g %s at %s\n", mark, pair->most, value_text(c, pair->where), index_text(c, pair));
}

static void print_only(const struct comparison *c, const char *directory, const struct dumped_tensor *const *all,
                       int n) {
    for (int i = 0; i < n; i++) printf("  only in %s: %s\n", directory, value_text(c, all[i]));
}

static void print_first(const struct comparison *c) {
    const struct pair *pair = &c->pairs.at[c->first];
    const struct dumped_tensor *t = pair->where;
    printf("first difference: %s", value_text(c, t));
    if (*t->node) printf(", %s node %s (%s)", t->before ? "read by" : "of", quote(c, t->node), t->op);
    if (pair->unlike)
        printf(": %s\n", pair->unlike);
    else
        printf(": %.3g at %s, %.9g and %.9g; the bound is %.3g\n", pair->most, index_text(c, pair), pair->of_a,
               pair->of_b, pair->bound);
}

static void print_text(const struct comparison *c) {
    if (c->cli->options->quiet) return;
    if (c->cli->options->verbose) {
        for (int i = 0; i < c->pairs.n; i++) print_pair(c, &c->pairs.at[i]);
        print_only(c, c->a.directory, c->only_a.at, c->only_a.n);
        print_only(c, c->b.directory, c->only_b.at, c->only_b.n);
    }
    if (c->first >= 0) print_first(c);
    printf("%d of %d tensors differ; %d only in %s, %d only in %s\n", c->different, c->pairs.n, c->only_a.n,
           c->a.directory, c->only_b.n, c->b.directory);
}

static void put_name(struct rt_json_writer *w, const struct dumped_tensor *t) {
    rt_json_key_text(w, "name", t->name);
    rt_json_key_int(w, "step", t->step);
    if (t->micro >= 0) rt_json_key_int(w, "micro", t->micro);
}

static void put_pair(struct rt_json_writer *w, const struct pair *pair) {
    int64_t index[RT_MAX_NDIM];
    rt_json_open(w, '{', RT_JSON_INLINE);
    put_name(w, pair->where);
    rt_json_key_text(w, "node", pair->where->node);
    rt_json_key_text(w, "op", pair->where->op);
    rt_json_key_bool(w, "equal", pair->equal);
    if (pair->unlike) rt_json_key_text(w, "unlike", pair->unlike);
    if (!pair->unlike) {
        list_index(pair->a, pair->at, index);
        rt_json_key_real(w, "difference", pair->most);
        rt_json_key_real(w, "bound", pair->bound);
        rt_json_key_dims(w, "at", index, pair->a->ndim);
        rt_json_key_real(w, "a", pair->of_a);
        rt_json_key_real(w, "b", pair->of_b);
    }
    rt_json_close(w, '}');
}

static void put_only(struct rt_json_writer *w, const char *key, const struct dumped_tensor *const *all, int n) {
    rt_json_key_open(w, key, '[', RT_JSON_LINES);
    for (int i = 0; i < n; i++) {
        rt_json_open(w, '{', RT_JSON_INLINE);
        put_name(w, all[i]);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

static int print_json(const struct comparison *c) {
    struct rt_json_writer *w = own_json_writer(c->cli->arena);
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key_int(w, "format", 1);
    rt_json_key_int(w, "different", c->different);
    rt_json_key(w, "first");
    if (c->first < 0) rt_json_put_null(w);
    if (c->first >= 0) put_pair(w, &c->pairs.at[c->first]);
    rt_json_key_open(w, "tensors", '[', RT_JSON_LINES);
    for (int i = 0; i < c->pairs.n; i++) put_pair(w, &c->pairs.at[i]);
    rt_json_close(w, ']');
    put_only(w, "only_a", c->only_a.at, c->only_a.n);
    put_only(w, "only_b", c->only_b.at, c->only_b.n);
    rt_json_close(w, '}');
    return cli_print_json(c->cli, w);
}

/* The verb --------------------------------------------------------------------------------------------------------- */

static int read_bound(struct cli *cli, const char *option, const char *text, double *out) {
    char *end;
    if (!text) return 0;
    *out = strtod(text, &end);
    if (end != text && !*end && isfinite(*out) && *out >= 0) return 0;
    return diag_error(cli->diags, 205, EXIT_USAGE, NULL, "%s needs a number that is not negative, not %s", option,
                      diag_quote(cli->diags, text));
}

int cli_compare(struct cli *cli) {
    const struct options *options = cli->options;
    struct comparison c = {.cli = cli, .rtol = -1, .atol = 1e-6};
    if (options->more.all.n != 1)
        return diag_error(cli->diags, 200, EXIT_USAGE, NULL, "compare takes two dumps, A and B");
    if (read_bound(cli, "--rtol", options->rtol, &c.rtol) || read_bound(cli, "--atol", options->atol, &c.atol) ||
        dumped_open(&c.a, options->operand, cli) || dumped_open(&c.b, options->more.all.at[0], cli))
        return -1;
    c.by_name = c.a.plain || c.b.plain;
    find_pairs(&c);
    if (!c.pairs.n)
        return diag_error(cli->diags, 1104, EXIT_MISMATCH, NULL, "no tensor of %s is in %s", c.a.directory,
                          c.b.directory);
    if (compare_all(&c)) return -1;
    if (options->json && print_json(&c)) return -1;
    if (!options->json) print_text(&c);
    return c.different ? EXIT_MISMATCH : 0;
}
