#include "saved.h"

#include "../number/checked.h"
#include "../number/hash.h"
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_FILES 64                /* open at the same time */
#define JSON_MOST  ((size_t)1 << 30) /* bytes of checkpoint.json */

const char *const rt_saved_kinds[RT_SAVED_KINDS] = {"parameters", "optimizer"};

struct file {
    struct rt_saved_file is;
    const char *hash;         /* of the header; in format 1 of the file */
    struct rt_file_info info; /* when its header was read */
    struct rt_reader reader;  /* closed: it was not needed yet, or others were */
    struct rt_safetensors header;
    struct rt_json_document **described; /* metadata of each tensor of the header */
    struct rt_saved_part *parts;         /* of each tensor of the header */
    bool checked;                        /* format 1: the file has its hash */
};

struct tensors {
    struct rt_saved_tensor *at;
    struct rt_saved_tensor **by_name;
    int n;
};

struct rt_saved {
    int directory, format;
    char hash[RT_HASH_HEX]; /* of checkpoint.json */
    const char *path;
    struct rt_json_document *json;
    struct tensors kind[RT_SAVED_KINDS];
    struct file *file;
    int nfiles;
    int open[OPEN_FILES], opened; /* a ring: files in the order of opening */
    /* the chunk that was read last */
    const struct rt_saved_part *of;
    int64_t chunk;
    unsigned char *bytes;
};

struct file_path {
    char text[PATH_MAX];
};

static struct file_path path_of(const struct rt_saved *saved, const char *name) {
    struct file_path path;
    snprintf(path.text, sizeof path.text, "%s/%s", saved->path, name);
    return path;
}

static bool refuse_file(const struct rt_saved *saved, const char *name, const char *what, struct rt_reason *why) {
    return rt_refuse(why, "checkpoint '%s' is damaged: %s", rt_quote_text(path_of(saved, name).text).text, what);
}

static bool refuse_json(const struct rt_saved *saved, const char *what, struct rt_reason *why) {
    return refuse_file(saved, RT_SAVED_JSON, what, why);
}

/* checkpoint.json */

/* hex: the hash of the text. */
static bool is_intact(const char *text, size_t bytes, char hex[RT_HASH_HEX]) {
    const char *at = memmem(text, bytes, RT_SAVED_HASH, strlen(RT_SAVED_HASH));
    if (!at || bytes - (size_t)(at - text) < strlen(RT_SAVED_HASH) + RT_HASH_HEX) return false;
    rt_hash_bytes(text, (size_t)(at - text), hex);
    return memcmp(at + strlen(RT_SAVED_HASH), hex, RT_HASH_HEX - 1) == 0;
}

/* Of a file that cannot be opened: says whether it is missing. Returns false. */
static bool refuse_missing(const struct rt_saved *saved, const char *name, struct rt_reason *why) {
    if (faccessat(saved->directory, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
        why->kind = RT_REASON_MISSING;
    return false;
}

static bool read_json(struct rt_saved *saved, struct rt_reason *why) {
    const struct file_path path = path_of(saved, RT_SAVED_JSON);
    void *text;
    size_t bytes;
    int64_t format = 0;
    if (!rt_file_read_at(saved->directory, path.text, JSON_MOST, &text, &bytes, why))
        return refuse_missing(saved, RT_SAVED_JSON, why);
    const bool intact = is_intact(text, bytes, saved->hash);
    if (intact) saved->json = rt_json_parse(text, bytes, why);
    free(text);
    if (!intact) return refuse_json(saved, "its hash differs", why);
    if (!saved->json) {
        const struct rt_reason found = *why;
        return found.kind == RT_REASON_CONTENT ? refuse_json(saved, found.text, why) : false;
    }
    rt_json_int(rt_json_member(rt_json_root(saved->json), "format"), &format);
    saved->format = (int)format;
    if (format >= RT_SAVED_OLDEST && format <= RT_SAVED_FORMAT) return true;
    return rt_refuse_kind(why, RT_REASON_MISMATCH, "'%s' has format %lld; this version reads formats %d to %d",
                          rt_quote_text(path.text).text, (long long)format, RT_SAVED_OLDEST, RT_SAVED_FORMAT);
}

static enum rt_dtype dtype_named(const char *name) {
    for (int t = 0; name && t < RT_DTYPE_COUNT; t++)
        if (strcmp(rt_dtypes[t].name, name) == 0) return (enum rt_dtype)t;
    return RT_DTYPE_NONE;
}

static bool read_shape(const struct rt_json *shape, int *ndim, int64_t *dims) {
    int64_t elements;
    if (!shape || shape->kind != RT_JSON_ARRAY || shape->count > RT_MAX_NDIM) return false;
    *ndim = 0;
    for (const struct rt_json *dim = shape->first; dim; dim = dim->next)
        if (!rt_json_int(dim, &dims[(*ndim)++])) return false;
    return rt_product(dims, *ndim, &elements);
}

static bool read_tensor(struct rt_saved_tensor *tensor, const struct rt_json *entry) {
    tensor->name = rt_json_text(rt_json_member(entry, "name"));
    tensor->copy_of = rt_json_text(rt_json_member(entry, "copy_of"));
    tensor->dtype = dtype_named(rt_json_text(rt_json_member(entry, "dtype")));
    return tensor->name && tensor->dtype != RT_DTYPE_NONE &&
           read_shape(rt_json_member(entry, "shape"), &tensor->ndim, tensor->dims);
}

static int by_name(const void *a, const void *b) {
    const struct rt_saved_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static bool read_tensors(const struct rt_saved *saved, struct tensors *out, const struct rt_json *list,
                         struct rt_reason *why) {
    if (!list || list->kind != RT_JSON_ARRAY || list->count > INT_MAX)
        return refuse_json(saved, "it lists no tensors", why);
    out->at = calloc((size_t)list->count + 1, sizeof *out->at);
    out->by_name = calloc((size_t)list->count + 1, sizeof(struct rt_saved_tensor *));
    if (!out->at || !out->by_name) return rt_refuse_memory(why, (size_t)list->count * sizeof *out->at);
    for (const struct rt_json *entry = list->first; entry; entry = entry->next) {
        struct rt_saved_tensor *tensor = &out->at[out->n];
        if (!read_tensor(tensor, entry)) return refuse_json(saved, "it has a malformed tensor", why);
        out->by_name[out->n++] = tensor;
    }
    qsort(out->by_name, (size_t)out->n, sizeof *out->by_name, by_name);
    for (int i = 1; i < out->n; i++)
        if (by_name(&out->by_name[i - 1], &out->by_name[i]) == 0)
            return refuse_json(saved, "it lists a tensor twice", why);
    return true;
}

/* True for "KIND-R.safetensors". Other names could lead out of the directory. */
static bool is_file_name(const char *name, int *kind) {
    for (*kind = 0; *kind < RT_SAVED_KINDS; ++*kind) {
        const size_t stem = strlen(rt_saved_kinds[*kind]);
        if (strncmp(name, rt_saved_kinds[*kind], stem) != 0 || name[stem] != '-') continue;
        const char *number = name + stem + 1;
        const size_t digits = strspn(number, "0123456789");
        return digits > 0 && digits < 10 && strcmp(number + digits, ".safetensors") == 0;
    }
    return false;
}

static int kind_of(const struct file *file) {
    int kind;
    is_file_name(file->is.name, &kind);
    return kind;
}

static bool read_files(struct rt_saved *saved, const struct rt_json *list, struct rt_reason *why) {
    int kind;
    if (!list || list->kind != RT_JSON_ARRAY || list->count > INT_MAX)
        return refuse_json(saved, "it lists no files", why);
    if (!(saved->file = calloc((size_t)list->count + 1, sizeof *saved->file)))
        return rt_refuse_memory(why, (size_t)list->count * sizeof *saved->file);
    for (const struct rt_json *entry = list->first; entry; entry = entry->next) {
        struct file *file = &saved->file[saved->nfiles];
        const char *name = rt_json_text(rt_json_member(entry, "path"));
        file->hash = rt_json_text(rt_json_member(entry, "hash"));
        if (!name || !is_file_name(name, &kind) || !file->hash ||
            !rt_json_int(rt_json_member(entry, "bytes"), &file->is.bytes))
            return refuse_json(saved, "it has a malformed file", why);
        snprintf(file->is.name, sizeof file->is.name, "%s", name);
        file->reader.fd = -1;
        saved->nfiles++;
    }
    return true;
}

static bool refuse_tensor(const struct rt_saved *saved, const struct file *file, const char *tensor, const char *what,
                          struct rt_reason *why) {
    return rt_refuse(why, "checkpoint '%s' is damaged: tensor '%s' %s",
                     rt_quote_text(path_of(saved, file->is.name).text).text, rt_quote_text(tensor).text, what);
}

static bool read_cut(struct rt_region *region, const struct rt_json *cut) {
    struct rt_region_cut rule;
    return rt_json_int(rt_json_member(cut, "dim"), &rule.dim) &&
           rt_json_int(rt_json_member(cut, "blocks"), &rule.blocks) &&
           rt_json_int(rt_json_member(cut, "unit"), &rule.grain) &&
           rt_json_int(rt_json_member(cut, "part"), &rule.part) &&
           rt_json_int(rt_json_member(cut, "parts"), &rule.parts) && rt_region_cut(region, &rule);
}

/* Reads a part's region and hashes; true if they fit the tensor in the file. */
static bool read_part(const struct rt_saved *saved, struct rt_saved_part *part, const struct rt_saved_tensor *tensor,
                      const struct rt_safetensor *stored, const struct rt_json *described) {
    const struct rt_json *cuts = rt_json_member(described, "slices");
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    if (!cuts || cuts->kind != RT_JSON_ARRAY || !read_shape(rt_json_member(described, "shape"), &ndim, dims) ||
        ndim != tensor->ndim || memcmp(dims, tensor->dims, (size_t)ndim * sizeof *dims) != 0 ||
        stored->dtype != tensor->dtype || stored->ndim != ndim)
        return false;
    part->region = rt_region_whole(dims, ndim);
    part->offset = stored->offset;
    part->hashes = rt_json_text(rt_json_member(described, "hashes"));
    for (const struct rt_json *cut = cuts->first; cut; cut = cut->next)
        if (!read_cut(&part->region, cut)) return false;
    for (int d = 0; d < ndim; d++)
        if (rt_region_extent(&part->region, d) != stored->dims[d]) return false;
    const int64_t chunks = (stored->bytes + RT_SAVED_CHUNK - 1) / RT_SAVED_CHUNK;
    return saved->format == RT_SAVED_OLDEST ||
           (part->hashes && strlen(part->hashes) == (size_t)chunks * (RT_HASH_HEX - 1));
}

static bool read_parts(struct rt_saved *saved, struct file *file, struct rt_reason *why) {
    const int kind = kind_of(file);
    const size_t n = (size_t)file->header.n;
    file->described = calloc(n + 1, sizeof(struct rt_json_document *));
    file->parts = calloc(n + 1, sizeof *file->parts);
    if (!file->described || !file->parts) return rt_refuse_memory(why, n * sizeof *file->parts);
    for (size_t i = 0; i < n; i++) {
        const struct rt_safetensor *stored = &file->header.at[i];
        const char *text = rt_json_text(rt_json_member(file->header.metadata, stored->name));
        struct rt_saved_tensor *tensor =
            (struct rt_saved_tensor *)rt_saved_find(saved, (enum rt_saved_kind)kind, stored->name);
        struct rt_saved_part *part = &file->parts[i];
        if (text) file->described[i] = rt_json_parse(text, strlen(text), why);
        if (!tensor || !file->described[i] || !read_part(saved, part, tensor, stored, rt_json_root(file->described[i])))
            return refuse_tensor(saved, file, stored->name, "is not as checkpoint.json describes it", why);
        part->file = (int)(file - saved->file);
        part->next = tensor->parts;
        tensor->parts = part;
    }
    return true;
}

/* Opens the file; the one that was opened OPEN_FILES openings ago is closed. */
static bool open_file(struct rt_saved *saved, struct file *file, struct rt_reason *why) {
    if (file->reader.path) return true;
    int *place = &saved->open[saved->opened % OPEN_FILES];
    if (saved->opened >= OPEN_FILES) rt_reader_close(&saved->file[*place].reader);
    if (!rt_reader_open_at(&file->reader, saved->directory, path_of(saved, file->is.name).text, why))
        return refuse_missing(saved, file->is.name, why);
    *place = (int)(file - saved->file);
    saved->opened++;
    const struct rt_file_info *now = &file->reader.info, *then = &file->info;
    if (now->bytes != file->is.bytes) return refuse_file(saved, file->is.name, "its size differs", why);
    if (!file->header.header || (now->mtime_ns == then->mtime_ns && now->ctime_ns == then->ctime_ns)) return true;
    return rt_refuse_changed(why, file->reader.path);
}

static bool read_header(struct rt_saved *saved, struct file *file, struct rt_reason *why) {
    char hex[RT_HASH_HEX];
    if (!open_file(saved, file, why)) return false;
    file->info = file->reader.info;
    if (!rt_safetensors_read_hashed(&file->header, &file->reader, hex, why)) {
        const struct rt_reason found = *why;
        return found.kind == RT_REASON_CONTENT ? refuse_file(saved, file->is.name, found.text, why) : false;
    }
    if (saved->format != RT_SAVED_OLDEST && strcmp(hex, file->hash) != 0)
        return refuse_file(saved, file->is.name, "the hash of its header differs", why);
    return read_parts(saved, file, why);
}

static bool read_all(struct rt_saved *saved, bool json_only, struct rt_reason *why) {
    if (!read_json(saved, why)) return false;
    const struct rt_json *root = rt_json_root(saved->json);
    for (int k = 0; k < RT_SAVED_KINDS; k++)
        if (!read_tensors(saved, &saved->kind[k], rt_json_member(root, rt_saved_kinds[k]), why)) return false;
    if (!read_files(saved, rt_json_member(root, "files"), why)) return false;
    for (int i = 0; i < saved->nfiles && !json_only; i++)
        if (!read_header(saved, &saved->file[i], why)) return false;
    return true;
}

struct rt_saved *rt_saved_open(int directory, const char *path, bool json_only, struct rt_reason *why) {
    struct rt_saved *saved = calloc(1, sizeof *saved);
    if (!saved) return rt_refuse_memory(why, sizeof *saved), NULL;
    saved->directory = directory;
    saved->path = path;
    if (read_all(saved, json_only, why)) return saved;
    rt_saved_close(saved);
    return NULL;
}

void rt_saved_close(struct rt_saved *saved) {
    if (!saved) return;
    for (int i = 0; i < saved->nfiles; i++) {
        struct file *file = &saved->file[i];
        for (int64_t t = 0; file->described && t < file->header.n; t++) rt_json_free(file->described[t]);
        rt_reader_close(&file->reader);
        rt_safetensors_free(&file->header);
        free(file->described);
        free(file->parts);
    }
    for (int k = 0; k < RT_SAVED_KINDS; k++) {
        free(saved->kind[k].at);
        free(saved->kind[k].by_name);
    }
    rt_json_free(saved->json);
    free(saved->file);
    free(saved->bytes);
    free(saved);
}

const struct rt_json *rt_saved_root(const struct rt_saved *saved) {
    return rt_json_root(saved->json);
}

const struct rt_json *rt_saved_made_of(const struct rt_json *manifest) {
    return rt_json_member(rt_json_member(rt_json_member(manifest, "keys"), "work"), "parts");
}

/* The first part of `a` that `b` has otherwise; NULL: none. */
static const struct rt_json *first_difference(const struct rt_json *a, const struct rt_json *b) {
    for (const struct rt_json *part = a ? a->first : NULL; part; part = part->next) {
        const char *own = rt_json_text(part), *other = rt_json_text(rt_json_member(b, part->key));
        if (own && (!other || strcmp(own, other) != 0)) return part;
    }
    return NULL;
}

struct part_text {
    char text[RT_QUOTE_BYTES + 2];
};

/* The value of a part for a message; "" is that of an option that was not given. */
static struct part_text show_part(const struct rt_json *parts, const char *key) {
    const char *value = rt_json_text(rt_json_member(parts, key));
    struct part_text shown = {"unset"};
    if (value && value[0]) snprintf(shown.text, sizeof shown.text, "'%s'", rt_quote_text(value).text);
    return shown;
}

void rt_saved_refuse(const struct rt_saved *saved, const struct rt_json *manifest, struct rt_reason *why) {
    const struct rt_json *theirs = rt_json_member(rt_saved_root(saved), "made_of"), *ours = rt_saved_made_of(manifest),
                         *part = theirs && ours ? first_difference(theirs, ours) : NULL;
    if (theirs && ours && !part) part = first_difference(ours, theirs);
    if (!part) {
        rt_refuse(why, "compiled from another model or other options");
        return;
    }
    rt_refuse(why, "whose %s is %s, not %s", part->key, show_part(theirs, part->key).text,
              show_part(ours, part->key).text);
}

int rt_saved_format(const struct rt_saved *saved) {
    return saved->format;
}

const char *rt_saved_hash(const struct rt_saved *saved) {
    return saved->hash;
}

int rt_saved_count(const struct rt_saved *saved, enum rt_saved_kind kind) {
    return saved->kind[kind].n;
}

const struct rt_saved_tensor *rt_saved_at(const struct rt_saved *saved, enum rt_saved_kind kind, int index) {
    return &saved->kind[kind].at[index];
}

const struct rt_saved_tensor *rt_saved_find(const struct rt_saved *saved, enum rt_saved_kind kind, const char *name) {
    const struct rt_saved_tensor wanted = {.name = name}, *key = &wanted;
    const struct tensors *in = &saved->kind[kind];
    struct rt_saved_tensor *const *found = bsearch(&key, in->by_name, (size_t)in->n, sizeof *in->by_name, by_name);
    return found ? *found : NULL;
}

/* The average of the parameter; NULL: it has none. */
static const struct rt_saved_tensor *average_of(const struct rt_saved *saved, const struct rt_saved_tensor *tensor) {
    const char *name = tensor->copy_of ? tensor->copy_of : tensor->name;
    const size_t size = strlen(name) + sizeof ".ema";
    char *own = malloc(size);
    if (own) snprintf(own, size, "%s.ema", name);
    const struct rt_saved_tensor *state = own ? rt_saved_find(saved, RT_SAVED_OPTIMIZER, own) : NULL;
    free(own);
    return state && state->dtype == tensor->dtype && state->ndim == tensor->ndim &&
                   memcmp(state->dims, tensor->dims, (size_t)tensor->ndim * sizeof *tensor->dims) == 0
               ? state
               : NULL;
}

bool rt_saved_average(struct rt_saved *saved, struct rt_reason *why) {
    struct tensors *parameters = &saved->kind[RT_SAVED_PARAMETERS];
    bool any = false;
    for (int i = 0; i < parameters->n; i++) {
        const struct rt_saved_tensor *average = average_of(saved, &parameters->at[i]);
        if (average) parameters->at[i].parts = average->parts;
        any = any || average;
    }
    return any || rt_refuse_kind(why, RT_REASON_MISMATCH, "'%s' has no averages: it was trained without --ema",
                                 rt_quote_text(saved->path).text);
}

int rt_saved_files(const struct rt_saved *saved) {
    return saved->nfiles;
}

const struct rt_saved_file *rt_saved_file(const struct rt_saved *saved, int index) {
    return &saved->file[index].is;
}

static int64_t part_bytes(const struct rt_saved_tensor *tensor, const struct rt_saved_part *part) {
    int64_t elements = 1;
    for (int d = 0; d < part->region.ndim; d++) elements *= rt_region_extent(&part->region, d);
    return elements * (int64_t)rt_dtype_bytes(tensor->dtype);
}

/* Format 1: checks the complete file before its first use. */
static bool check_file(struct rt_saved *saved, struct file *file, struct rt_reason *why) {
    char hex[RT_HASH_HEX];
    if (file->checked || saved->format != RT_SAVED_OLDEST) return true;
    if (!rt_hash_reader(&file->reader, hex, why)) return false;
    file->checked = strcmp(hex, file->hash) == 0;
    return file->checked || refuse_file(saved, file->is.name, "its hash differs", why);
}

/* Makes saved->bytes the part's chunk, with its hash checked. */
static bool read_chunk(struct rt_saved *saved, const struct rt_saved_tensor *tensor, const struct rt_saved_part *part,
                       int64_t chunk, struct rt_reason *why) {
    struct file *file = &saved->file[part->file];
    const int64_t first = chunk * RT_SAVED_CHUNK, left = part_bytes(tensor, part) - first;
    const size_t count = (size_t)(left < RT_SAVED_CHUNK ? left : RT_SAVED_CHUNK);
    char hex[RT_HASH_HEX];
    if (saved->of == part && saved->chunk == chunk) return true;
    if (!saved->bytes && !(saved->bytes = malloc((size_t)RT_SAVED_CHUNK)))
        return rt_refuse_memory(why, (size_t)RT_SAVED_CHUNK);
    saved->of = NULL;
    if (!open_file(saved, file, why) || !check_file(saved, file, why) ||
        !rt_reader_get(&file->reader, part->offset + first, saved->bytes, count, why))
        return false;
    rt_hash_bytes(saved->bytes, count, hex);
    if (part->hashes && strncmp(hex, part->hashes + chunk * (RT_HASH_HEX - 1), RT_HASH_HEX - 1) != 0)
        return refuse_tensor(saved, file, tensor->name, "differs from its hash", why);
    if (saved->format == RT_SAVED_OLDEST && !rt_reader_check(&file->reader, true, why)) return false;
    saved->of = part;
    saved->chunk = chunk;
    return true;
}

/* A read under way. */
struct reading {
    struct rt_saved *saved;
    const struct rt_saved_tensor *tensor;
    const struct rt_saved_part *part;
    int64_t start, count; /* elements of the region that are wanted */
    unsigned char *to;
    int64_t done; /* elements so far */
};

static bool read_bytes(const struct reading *reading, int64_t from, int64_t to, int64_t count, struct rt_reason *why) {
    while (count > 0) {
        const int64_t chunk = from / RT_SAVED_CHUNK, at = from % RT_SAVED_CHUNK;
        const int64_t some = count < RT_SAVED_CHUNK - at ? count : RT_SAVED_CHUNK - at;
        if (!read_chunk(reading->saved, reading->tensor, reading->part, chunk, why)) return false;
        memcpy(reading->to + to, reading->saved->bytes + at, (size_t)some);
        from += some, to += some, count -= some;
    }
    return true;
}

/* A run that the part and the region have in common; reads what of it is wanted. */
static bool read_run(void *context, int64_t from, int64_t to, int64_t count, struct rt_reason *why) {
    struct reading *reading = context;
    const int64_t size = (int64_t)rt_dtype_bytes(reading->tensor->dtype), end = reading->start + reading->count;
    const int64_t first = to > reading->start ? to : reading->start, last = to + count < end ? to + count : end;
    if (first >= last) return true;
    reading->done += last - first;
    return read_bytes(reading, (from + first - to) * size, (first - reading->start) * size, (last - first) * size, why);
}

bool rt_saved_read(struct rt_saved *saved, const struct rt_saved_tensor *tensor, const struct rt_region *region,
                   int64_t start, int64_t count, void *to, struct rt_reason *why) {
    struct reading reading = {.saved = saved, .tensor = tensor, .start = start, .count = count, .to = to};
    const struct rt_region_visitor visitor = {read_run, &reading};
    for (const struct rt_saved_part *part = tensor->parts; part; part = part->next) {
        reading.part = part;
        if (!rt_region_common(&part->region, region, &visitor, why)) return false;
    }
    if (reading.done == count) return true;
    return rt_refuse(why, "the files of checkpoint '%s' do not have all of tensor '%s', or have some of it twice",
                     rt_quote_text(saved->path).text, rt_quote_text(tensor->name).text);
}

bool rt_saved_check(struct rt_saved *saved, const struct rt_saved_tensor *tensor, const struct rt_saved_part *part,
                    struct rt_reason *why) {
    const int64_t chunks = (part_bytes(tensor, part) + RT_SAVED_CHUNK - 1) / RT_SAVED_CHUNK;
    for (int64_t i = 0; i < chunks; i++)
        if (!read_chunk(saved, tensor, part, i, why)) return false;
    return true;
}
