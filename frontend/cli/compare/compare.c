/* rankc compare A B: where two dumps of values part. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cli.h"
#include "ir/base/map.h"
#include "runtime/base/npy.h"
#include "runtime/base/number/checked.h"
#include "runtime/base/text/json.h"

/* Values that were written to a directory: by --dump-tensors (Note [Dumps] in runtime/program/dump.c), or one .npy file
 * per tensor, whose stem is the tensor's name with %XX for other bytes than letters, digits, '.', '_' and '-'.
 * Directories are untrusted. */
struct dumped_part {
    const char *file;
    const struct rt_json *ranges; /* per dimension: runs [start, stop]; NULL: the whole tensor */
    bool sliced;
    int64_t slice[2];    /* first element of the ranges, and number of elements */
    const char *partial; /* "sum", "max", "min"; NULL: the value itself */
};

struct dumped_tensor {
    const char *name, *node, *op; /* node and op: "" if unknown */
    int64_t step, micro;          /* micro -1: computed once per step */
    int64_t instruction;
    bool before;  /* it was read before that instruction */
    bool unknown; /* where parts lie is not known */
    bool half;    /* of a 16-bit type */
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    VEC(struct dumped_part) parts;
};

struct dumped {
    const char *directory;
    bool plain;    /* files of names alone: no steps, no order */
    int64_t ranks; /* of a dump */
    VEC(struct dumped_tensor) all;
    struct map index; /* key of a tensor -> its number */
};

enum { RANKS_MOST = 1 << 20 };
#define INDEX_LIMIT ((size_t)1 << 30)

static const char *text_of(const struct rt_json *entry, const char *key, const char *otherwise) {
    const char *text = rt_json_text(rt_json_member(entry, key));
    return text ? text : otherwise;
}

static bool flag_of(const struct rt_json *entry, const char *key) {
    bool flag = false;
    rt_json_bool(rt_json_member(entry, key), &flag);
    return flag;
}

static bool read_shape(struct dumped_tensor *t, const struct rt_json *shape) {
    int64_t count;
    if (!shape || shape->kind != RT_JSON_ARRAY || shape->count > RT_MAX_NDIM) return false;
    for (const struct rt_json *d = shape->first; d; d = d->next)
        if (!rt_json_int(d, &t->dims[t->ndim++])) return false;
    return rt_product(t->dims, t->ndim, &count);
}

/* A path that stays below the directory. */
static bool is_below(const char *file) {
    return *file && *file != '/' && strncmp(file, "../", 3) != 0 && !strstr(file, "/../");
}

/* What two dumps call the same value. */
static const char *dumped_key(const struct dumped_tensor *t, bool by_name, struct arena *arena) {
    if (by_name) return t->name;
    return arena_printf(arena, "%lld %lld %s", (long long)t->step, (long long)t->micro, t->name);
}

/* The tensor of the same key, which is added if it is new. */
static struct dumped_tensor *tensor_like(struct dumped *dumped, const struct dumped_tensor *t, struct arena *arena) {
    const char *key = dumped_key(t, false, arena);
    int at = map_find(&dumped->index, key);
    if (at < 0) {
        at = dumped->all.n;
        map_set(&dumped->index, key, at);
        VEC_PUSH(arena, &dumped->all, *t);
    }
    return &dumped->all.at[at];
}

static bool read_entry(struct dumped *dumped, const struct rt_json *entry, struct arena *arena) {
    struct dumped_tensor t = {.name = text_of(entry, "name", NULL),
                              .node = text_of(entry, "node", ""),
                              .op = text_of(entry, "op", ""),
                              .step = rt_json_number(entry, "step", 1),
                              .micro = rt_json_number(entry, "micro", -1),
                              .instruction = rt_json_number(entry, "instruction", 0),
                              .before = flag_of(entry, "before")};
    const char *dtype = text_of(entry, "dtype", "");
    const struct rt_json *slice = rt_json_member(entry, "slice"), *ranges = rt_json_member(entry, "ranges");
    struct dumped_part part = {.file = text_of(entry, "file", ""), .partial = text_of(entry, "partial", NULL)};
    t.half = !strcmp(dtype, "bf16") || !strcmp(dtype, "fp16");
    if (!t.name || !is_below(part.file) || !read_shape(&t, rt_json_member(entry, "shape"))) return false;
    t.unknown = !ranges || ranges->kind != RT_JSON_ARRAY || ranges->count != t.ndim;
    part.ranges = ranges;
    part.sliced = slice != NULL;
    if (slice && (slice->kind != RT_JSON_ARRAY || slice->count != 2 || !rt_json_int(slice->first, &part.slice[0]) ||
                  !rt_json_int(slice->first->next, &part.slice[1])))
        return false;
    struct dumped_tensor *all = tensor_like(dumped, &t, arena);
    if (all->ndim != t.ndim || memcmp(all->dims, t.dims, (size_t)t.ndim * sizeof *t.dims)) return false;
    all->unknown = all->unknown || t.unknown;
    if (!flag_of(entry, "replica")) VEC_PUSH(arena, &all->parts, part);
    return true;
}

static int refuse_line(const struct dumped *dumped, int64_t rank, int line, struct cli *cli) {
    return diag_error(cli->diags, 389, EXIT_MALFORMED, dumped->directory,
                      "rank_%lld.jsonl, line %d: not an entry that --dump-tensors writes", (long long)rank, line);
}

static int read_rank(struct dumped *dumped, int64_t rank, struct cli *cli) {
    const char *path = arena_printf(cli->arena, "%s/rank_%lld.jsonl", dumped->directory, (long long)rank);
    struct rt_reason why;
    void *bytes;
    size_t count;
    int number = 0;
    if (!own_file(cli->arena, path, INDEX_LIMIT, &bytes, &count, &why))
        return diag_refusal(cli->diags, 389, EXIT_MALFORMED, path, &why);
    for (char *line = bytes, *end; *line; line = end, number++) {
        end = line + strcspn(line, "\n");
        if (!*end) {
            diag_remark(cli->diags, path, "the last line is incomplete and left out: the rank ended while it wrote");
            break;
        }
        *end++ = 0;
        const struct rt_json_document *entry = own_json_text(cli->arena, line, &why);
        if (!entry || !read_entry(dumped, rt_json_root(entry), cli->arena))
            return refuse_line(dumped, rank, number + 1, cli);
    }
    return 0;
}

static int read_dump(struct dumped *dumped, const char *path, struct cli *cli) {
    struct rt_reason why;
    const struct rt_json_document *about = own_json(cli->arena, path, &why);
    if (!about) return diag_refusal(cli->diags, 389, EXIT_MALFORMED, path, &why);
    const struct rt_json *root = rt_json_root(about);
    if (rt_json_number(root, "format", 0) != 1)
        return diag_error(cli->diags, 803, EXIT_MISMATCH, path, "format is not 1; run --dump-tensors again");
    dumped->ranks = rt_json_number(root, "ranks", 0);
    if (dumped->ranks < 1 || dumped->ranks > RANKS_MOST)
        return diag_error(cli->diags, 389, EXIT_MALFORMED, path, "\"ranks\" is out of range");
    for (int64_t r = 0; r < dumped->ranks; r++)
        if (read_rank(dumped, r, cli)) return -1;
    return 0;
}

static int digit_of(char c) {
    const char *digits = "0123456789ABCDEF0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) % 16 : -1;
}

/* The name of a stem. */
static const char *decode(const char *stem, size_t length, struct arena *arena) {
    char *out = arena_printf(arena, "%.*s", (int)length, stem), *to = out;
    for (const char *c = out; *c; c++) {
        const int high = *c == '%' ? digit_of(c[1]) : -1, low = high < 0 ? -1 : digit_of(c[2]);
        const bool coded = low >= 0 && high + low > 0;
        *to++ = coded ? (char)(high * 16 + low) : *c;
        c += coded ? 2 : 0;
    }
    *to = 0;
    return out;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct dumped_tensor *)a)->name, ((const struct dumped_tensor *)b)->name);
}

static void index_plain(struct dumped *dumped, struct arena *arena) {
    if (dumped->all.n) qsort(dumped->all.at, (size_t)dumped->all.n, sizeof *dumped->all.at, compare_names);
    for (int i = 0; i < dumped->all.n; i++) {
        const char *key = dumped_key(&dumped->all.at[i], false, arena);
        map_set(&dumped->index, key, i);
    }
}

static int read_plain(struct dumped *dumped, struct cli *cli) {
    DIR *directory = opendir(dumped->directory);
    if (!directory)
        return diag_error(cli->diags, 601, EXIT_SYSTEM, dumped->directory, "cannot be opened: %s", strerror(errno));
    dumped->plain = true;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (*entry->d_name == '.' || !rt_has_suffix(entry->d_name, ".npy")) continue;
        struct dumped_tensor t = {.name = decode(entry->d_name, strlen(entry->d_name) - 4, cli->arena),
                                  .node = "",
                                  .op = "",
                                  .step = 1,
                                  .micro = -1};
        VEC_PUSH(cli->arena, &t.parts, ((struct dumped_part){.file = arena_strdup(cli->arena, entry->d_name)}));
        VEC_PUSH(cli->arena, &dumped->all, t);
    }
    closedir(directory);
    index_plain(dumped, cli->arena);
    if (dumped->all.n) return 0;
    return diag_error(cli->diags, 389, EXIT_MALFORMED, dumped->directory, "neither dump.json nor a file .npy is there");
}

/* 0, or -1 after a diagnostic. */
static int dumped_open(struct dumped *dumped, const char *directory, struct cli *cli) {
    const char *path = arena_printf(cli->arena, "%s/dump.json", directory);
    *dumped = (struct dumped){.directory = directory, .index = {.arena = cli->arena}};
    struct rt_file_info info;
    struct rt_reason why;
    const int found = rt_file_open(path, &info, &why);
    if (found < 0) return read_plain(dumped, cli);
    close(found);
    return read_dump(dumped, path, cli);
}

/* The complete tensor that is put together. */
struct whole {
    double *values;
    unsigned char *touched;
    int64_t count;
};

static void put_value(struct whole *whole, int64_t at, double value, const char *partial) {
    double *to = &whole->values[at];
    if (!whole->touched[at] || !partial)
        *to = value;
    else if (!strcmp(partial, "sum"))
        *to += value;
    else if (!strcmp(partial, "max"))
        *to = value > *to ? value : *to;
    else
        *to = value < *to ? value : *to;
    whole->touched[at] = 1;
}

/* The indices of one dimension that a part has: false if the file is wrong. */
static bool list_indices(const struct rt_json *runs, int64_t extent, int64_t *out, int64_t *n) {
    *n = 0;
    if (runs->kind != RT_JSON_ARRAY) return false;
    for (const struct rt_json *run = runs->first; run; run = run->next) {
        int64_t start, stop;
        if (run->kind != RT_JSON_ARRAY || run->count != 2 || !rt_json_int(run->first, &start) ||
            !rt_json_int(run->first->next, &stop) || start < 0 || stop < start || stop > extent ||
            *n + stop - start > extent)
            return false;
        for (int64_t i = start; i < stop; i++) out[(*n)++] = i;
    }
    return true;
}

static bool place_part(struct whole *whole, const struct dumped_tensor *t, const struct dumped_part *part,
                       const double *values, int64_t count, struct arena *arena) {
    int64_t *indices[RT_MAX_NDIM], n[RT_MAX_NDIM], at[RT_MAX_NDIM] = {0}, elements;
    const struct rt_json *runs = part->ranges->first;
    for (int d = 0; d < t->ndim; d++, runs = runs->next) {
        indices[d] = ARENA_ARRAY(arena, int64_t, t->dims[d] + 1);
        if (!list_indices(runs, t->dims[d], indices[d], &n[d])) return false;
    }
    if (!rt_product(n, t->ndim, &elements)) return false;
    const int64_t first = part->sliced ? part->slice[0] : 0, wanted = part->sliced ? part->slice[1] : elements;
    if (first < 0 || wanted < 0 || wanted != count || first > elements - wanted) return false;
    for (int64_t i = 0; i < elements; i++) {
        int64_t place = 0;
        for (int d = 0; d < t->ndim; d++) place = place * t->dims[d] + indices[d][at[d]];
        if (i >= first && i - first < count) put_value(whole, place, values[i - first], part->partial);
        for (int d = t->ndim - 1; d >= 0 && ++at[d] == n[d]; d--) at[d] = 0;
    }
    return true;
}

/* A plain file says its shape itself. */
static bool take_plain(struct dumped_tensor *t, const struct rt_tensor *file) {
    t->ndim = file->ndim;
    memcpy(t->dims, file->dims, (size_t)file->ndim * sizeof *file->dims);
    return true;
}

static bool make_whole(struct whole *whole, const struct dumped_tensor *t) {
    if (!rt_product(t->dims, t->ndim, &whole->count) || whole->count > INT64_MAX / 16) return false;
    whole->values = calloc((size_t)whole->count + 1, sizeof *whole->values);
    whole->touched = calloc((size_t)whole->count + 1, 1);
    return whole->values && whole->touched;
}

static int read_part(struct whole *whole, const struct dumped *dumped, struct dumped_tensor *t,
                     const struct dumped_part *part, struct cli *cli) {
    const char *path = arena_printf(cli->arena, "%s/%s", dumped->directory, part->file);
    struct rt_tensor file;
    struct rt_reason why;
    if (!rt_npy_read(&file, path, &why)) return diag_refusal(cli->diags, 389, EXIT_MALFORMED, path, &why);
    double *values = malloc(((size_t)file.count + 1) * sizeof *values);
    bool ok = values && (!dumped->plain || take_plain(t, &file)) && (whole->values || make_whole(whole, t));
    if (!ok) {
        free(values);
        rt_tensor_free(&file);
        return diag_error(cli->diags, 500, EXIT_LIMIT, path, "out of memory");
    }
    rt_convert(values, RT_F64, file.data, file.dtype, (size_t)file.count);
    if (dumped->plain)
        for (int64_t i = 0; i < file.count; i++) put_value(whole, i, values[i], NULL);
    else
        ok = place_part(whole, t, part, values, file.count, cli->arena);
    free(values);
    rt_tensor_free(&file);
    if (ok) return 0;
    return diag_error(cli->diags, 389, EXIT_MALFORMED, path, "the file does not have the part that the index says");
}

static bool is_complete(const struct whole *whole) {
    for (int64_t i = 0; i < whole->count; i++)
        if (!whole->touched[i]) return false;
    return whole->values != NULL;
}

/* The complete tensor, put together from its parts, as f64: the caller frees *values. *complete: parts cover all of
 * it. 0, or -1 after a diagnostic. */
static int dumped_read(const struct dumped *dumped, struct dumped_tensor *t, double **values, int64_t *count,
                       bool *complete, struct cli *cli) {
    struct whole whole = {0};
    int status = 0;
    for (int p = 0; p < t->parts.n && !status; p++) status = read_part(&whole, dumped, t, &t->parts.at[p], cli);
    *complete = !status && is_complete(&whole);
    *values = whole.values;
    *count = whole.count;
    free(whole.touched);
    return status;
}

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
        if (takes_part(c, &dumped->all.at[i])) map_set(map, key, i);
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

static void list_index(const struct dumped_tensor *t, int64_t at, int64_t *index) {
    for (int d = t->ndim - 1; d >= 0; d--) {
        index[d] = t->dims[d] ? at % t->dims[d] : 0;
        at = t->dims[d] ? at / t->dims[d] : 0;
    }
}

static const char *index_text(const struct comparison *c, const struct pair *pair) {
    int64_t index[RT_MAX_NDIM];
    struct strbuf out = {.arena = c->cli->arena};
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
    struct strbuf out = {.arena = c->cli->arena};
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
