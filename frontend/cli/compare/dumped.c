#include "frontend/cli/compare/dumped.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/number/checked.h"
#include "runtime/base/io/file.h"

enum { RANKS_MOST = 1 << 20 };
#define INDEX_LIMIT ((size_t)1 << 30)

/* Reading an index ------------------------------------------------------------------------------------------------- */

static const char *text_of(const struct rt_json *entry, const char *key, const char *otherwise) {
    const char *text = rt_json_text(rt_json_member(entry, key));
    return text ? text : otherwise;
}

static int64_t number_of(const struct rt_json *entry, const char *key, int64_t otherwise) {
    rt_json_int(rt_json_member(entry, key), &otherwise);
    return otherwise;
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

const char *dumped_key(const struct dumped_tensor *t, bool by_name, struct arena *arena) {
    if (by_name) return t->name;
    return arena_printf(arena, "%lld %lld %s", (long long)t->step, (long long)t->micro, t->name);
}

/* The tensor of the same key, which is added if it is new. */
static struct dumped_tensor *tensor_like(struct dumped *dumped, const struct dumped_tensor *t, struct arena *arena) {
    const char *key = dumped_key(t, false, arena);
    int at = map_get(&dumped->index, key, strlen(key));
    if (at < 0) {
        at = dumped->all.n;
        map_put(&dumped->index, key, strlen(key), at);
        VEC_PUSH(arena, &dumped->all, *t);
    }
    return &dumped->all.at[at];
}

static bool read_entry(struct dumped *dumped, const struct rt_json *entry, struct arena *arena) {
    struct dumped_tensor t = {.name = text_of(entry, "name", NULL),
                              .node = text_of(entry, "node", ""),
                              .op = text_of(entry, "op", ""),
                              .step = number_of(entry, "step", 1),
                              .micro = number_of(entry, "micro", -1),
                              .instruction = number_of(entry, "instruction", 0),
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
    if (number_of(root, "format", 0) != 1)
        return diag_error(cli->diags, 803, EXIT_MISMATCH, path, "format is not 1; run --dump-tensors again");
    dumped->ranks = number_of(root, "ranks", 0);
    if (dumped->ranks < 1 || dumped->ranks > RANKS_MOST)
        return diag_error(cli->diags, 389, EXIT_MALFORMED, path, "\"ranks\" is out of range");
    for (int64_t r = 0; r < dumped->ranks; r++)
        if (read_rank(dumped, r, cli)) return -1;
    return 0;
}

/* Plain files ------------------------------------------------------------------------------------------------------ */

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
        map_put(&dumped->index, key, strlen(key), i);
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

int dumped_open(struct dumped *dumped, const char *directory, struct cli *cli) {
    const char *path = arena_printf(cli->arena, "%s/dump.json", directory);
    *dumped = (struct dumped){.directory = directory};
    map_init(&dumped->index, cli->arena);
    struct rt_file_info info;
    struct rt_reason why;
    const int found = rt_file_open(path, &info, &why);
    if (found < 0) return read_plain(dumped, cli);
    close(found);
    return read_dump(dumped, path, cli);
}

/* Values ----------------------------------------------------------------------------------------------------------- */

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

int dumped_read(const struct dumped *dumped, struct dumped_tensor *t, double **values, int64_t *count, bool *complete,
                struct cli *cli) {
    struct whole whole = {0};
    int status = 0;
    for (int p = 0; p < t->parts.n && !status; p++) status = read_part(&whole, dumped, t, &t->parts.at[p], cli);
    *complete = !status && is_complete(&whole);
    *values = whole.values;
    *count = whole.count;
    free(whole.touched);
    return status;
}
