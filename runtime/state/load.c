/* Loads weights: the rank's parts of stored tensors, converted while they are copied.
 *
 * The tensors are in the model's own files, which location.json lists with their size, times and hash at compile time,
 * or in the program's slices (struct load_slices). Files are read once, in pieces (Note [Files that shrink] in
 * base/io/file_reader.h).
 *
 * With --broadcast-weights only the first scale unit reads files. Each of its ranks sends its parts to the ranks with
 * the same shard number in the other units: their parts are equal, and of a part with a flat cut, whose slices differ,
 * all is sent and every rank stores its slice. */
#include "state/load_part.h"

#include "base/io/progress.h"
#include "base/io/safetensors.h"
#include "base/io/sealed.h"
#include "base/number/hash.h"
#include "base/text/diagnostic.h"
#include "base/text/json.h"
#include "kernels/c/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loads weights of a program compiled with `--weights copy`. The program's own files,
 * weights/slices-<shard>.safetensors, have each distinct part (slice) once. "weights" of manifest.json gives the file
 * and the hash of each slice; a slice whose bytes, type or shape differ is refused (E0802). */
struct slice_file {
    struct rt_reader file; /* closed: not opened yet */
    struct rt_safetensors tensors;
    int64_t next; /* where the search for the next tensor begins: files list tensors in the program's order */
};

struct load_slices {
    struct rt *rt;
    struct rt_json_document *manifest;
    const struct rt_json **of_weight; /* entry of "weights" of each weight of the program */
    struct slice_file *file;          /* by shard */
    unsigned char *piece;             /* buffer for hashing */
};

#define HASHED_AT_ONCE ((int64_t)1 << 20) /* bytes */

struct slice_path {
    char text[64];
};

static struct slice_path path_of(int64_t shard) {
    struct slice_path path;
    snprintf(path.text, sizeof path.text, "weights/slices-%lld.safetensors", (long long)shard);
    return path;
}

/* A file below the program's directory whose content is not as rankc wrote it. */
static const struct rt_report modified = {RT_CODE_SOURCE_CHANGED, EXIT_MISMATCH};

static int fail_manifest(struct rt *rt) {
    return rt_fail(rt, RT_ERROR_MISMATCH, "manifest.json belongs to another program than '%s'", rt->program->name);
}

/* Two programs may be linked whose functions have the same names: those of one are then called for the directory of the
 * other. */
static int check_program(struct rt *rt, const struct rt_json *manifest) {
    const struct rt_json *plan = rt_json_member(rt_json_member(manifest, "keys"), "plan");
    const char *key = rt_json_text(rt_json_member(plan, "key"));
    return key && strcmp(key, rt->program->key) == 0 ? RT_OK : fail_manifest(rt);
}

static int fail_slice(struct rt *rt, int64_t shard, const char *name) {
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                        "weight '%s' in '%s' was modified after it was written", rt_quote_text(name).text,
                        path_of(shard).text);
}

int rt_manifest_read(struct rt *rt, struct rt_json_document **manifest) {
    struct rt_reason why;
    bool intact;
    int64_t format;
    *manifest = rt_sealed_read(rt->internal->directory, "manifest.json", &intact, &why);
    if (!*manifest) return rt_fail_reason(rt, NULL, modified, &why);
    if (!rt_json_int(rt_json_member(rt_json_root(*manifest), "format"), &format) || format != RT_MANIFEST_FORMAT)
        return rt_fail(rt, RT_ERROR_MISMATCH, "the format of manifest.json is not %d", RT_MANIFEST_FORMAT);
    if (intact) return check_program(rt, rt_json_root(*manifest));
    rt_sealed_refuse("manifest.json", &why);
    return rt_fail_reason(rt, NULL, modified, &why);
}

/* Opening -------------------------------------------------------------------------------------------------------- */

static const struct rt_json *list_of(const struct rt_json *root, const char *key) {
    const struct rt_json *list = rt_json_member(root, key);
    return list && list->kind == RT_JSON_ARRAY ? list : NULL;
}

/* Entries of "tensors" correspond to the program's weights, in order; "weight" of each is an index into "weights",
 * where the matrices of the first adapter are followed by those of the others. */
static int find_entries(struct load_slices *slices, const struct rt_json *tensors, const struct rt_json **entries,
                        int64_t n) {
    const struct rt *rt = slices->rt;
    int w = 0;
    int64_t at;
    for (const struct rt_json *tensor = tensors->first; tensor; tensor = tensor->next, w++) {
        const int set = rt->program->weights[w].adapter && rt->internal->adapter > 0 ? rt->internal->adapter : 0;
        if (!rt_json_int(rt_json_member(tensor, "weight"), &at) || at < 0 || at >= n - set)
            return fail_manifest(slices->rt);
        slices->of_weight[w] = entries[at + set];
    }
    return RT_OK;
}

static int list_entries(struct load_slices *slices, const struct rt_json *root) {
    const struct rt_json *tensors = list_of(root, "tensors"), *weights = list_of(root, "weights");
    if (!tensors || !weights || tensors->count != slices->rt->program->nweights) return fail_manifest(slices->rt);
    const struct rt_json **entries = calloc((size_t)weights->count + 1, sizeof *entries);
    int64_t n = 0;
    if (!entries) return rt_fail_memory(slices->rt);
    for (const struct rt_json *entry = weights->first; entry; entry = entry->next) entries[n++] = entry;
    int status = find_entries(slices, tensors, entries, n);
    free(entries);
    return status;
}

/* RT_OK or a recorded status; call load_slices_close in both cases. */
static int load_slices_open(struct load_slices *slices, struct rt *rt) {
    *slices = (struct load_slices){.rt = rt};
    RT_TRY(rt_manifest_read(rt, &slices->manifest));
    slices->of_weight = calloc((size_t)rt->program->nweights + 1, sizeof *slices->of_weight);
    slices->file = calloc((size_t)rt->program->plan_ngpus, sizeof *slices->file);
    slices->piece = malloc((size_t)HASHED_AT_ONCE);
    if (!slices->of_weight || !slices->file || !slices->piece) return rt_fail_memory(rt);
    return list_entries(slices, rt_json_root(slices->manifest));
}

static void load_slices_close(struct load_slices *slices) {
    for (int s = 0; slices->file && s < slices->rt->program->plan_ngpus; s++) {
        struct slice_file *file = &slices->file[s];
        rt_safetensors_free(&file->tensors);
        rt_reader_close(&file->file);
    }
    free(slices->piece);
    free(slices->file);
    free(slices->of_weight);
    rt_json_free(slices->manifest);
}

/* Files ---------------------------------------------------------------------------------------------------------- */

static int fail_file(struct rt *rt, int64_t shard, const struct rt_reason *why) {
    char what[sizeof(struct slice_path) + 40];
    snprintf(what, sizeof what, "'%s' was modified after it was written", path_of(shard).text);
    return rt_fail_reason(rt, what, modified, why);
}

static int open_file(struct load_slices *slices, int64_t shard) {
    struct slice_file *file = &slices->file[shard];
    struct rt_reason why;
    if (file->file.path) return RT_OK;
    if (rt_reader_open_below(&file->file, slices->rt->internal->directory, path_of(shard).text, &why) &&
        rt_safetensors_read(&file->tensors, &file->file, &why))
        return RT_OK;
    return fail_file(slices->rt, shard, &why);
}

/* Next tensor of that name, searched cyclically from the last one found. */
static const struct rt_safetensor *find_tensor(struct slice_file *file, const char *name) {
    for (int64_t i = 0; i < file->tensors.n; i++) {
        const int64_t at = (file->next + i) % file->tensors.n;
        if (strcmp(file->tensors.at[at].name, name) != 0) continue;
        file->next = at + 1;
        return &file->tensors.at[at];
    }
    return NULL;
}

/* Slices --------------------------------------------------------------------------------------------------------- */

/* Shape of the rank's slice, as an uncut tensor; *index: its place among the tensor's slices, the first cut varying
 * fastest. */
static void shape_part(const struct rt *rt, const struct rt_weight *weight, struct rt_weight *part, int *index) {
    int stride = 1;
    *part = *weight;
    part->nsplits = 0;
    *index = 0;
    for (int s = 0; s < weight->nsplits; s++) {
        const struct rt_split *split = &weight->split[s];
        const struct rt_cut cut = rt_cut_along(rt, split->axis, part->dims[split->dim], split->blocks, split->grain);
        part->dims[split->dim] = rt_cut_extent(&cut, rt->coordinate[split->axis]);
        *index += rt->coordinate[split->axis] * stride;
        stride *= cut.ways;
    }
}

static bool has_shape(const struct rt_safetensor *tensor, const struct rt_weight *part) {
    return tensor->dtype == part->stored && tensor->ndim == part->ndim &&
           (part->ndim == 0 || memcmp(tensor->dims, part->dims, (size_t)part->ndim * sizeof *part->dims) == 0);
}

/* Hash of `bytes` bytes at `offset` of the file. */
static bool hash_slice(const struct load_slices *slices, const struct rt_reader *file, int64_t offset, int64_t bytes,
                       char hex[RT_HASH_HEX], struct rt_reason *why) {
    struct rt_hash hash;
    rt_hash_start(&hash);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < HASHED_AT_ONCE ? bytes - at : HASHED_AT_ONCE;
        if (!rt_reader_get(file, offset + at, slices->piece, (size_t)n, why)) return false;
        rt_hash_add(&hash, slices->piece, (size_t)n);
        rt_at(slices->rt, -1); /* large slices take long: counts as progress */
    }
    rt_hash_hex(&hash, hex);
    return true;
}

/* Called after reading: checks that the files did not change since their slices were checked. */
static int load_slices_check(struct load_slices *slices) {
    struct rt_reason why;
    for (int s = 0; s < slices->rt->program->plan_ngpus; s++)
        if (slices->file[s].file.path && !rt_reader_check(&slices->file[s].file, true, &why))
            return fail_file(slices->rt, s, &why);
    return RT_OK;
}

/* Finds the rank's slice of weight `w` and checks it. *part describes it as an uncut tensor at part->offset of
 * *file. */
static int load_slice(struct load_slices *slices, int w, struct rt_weight *part, const struct rt_reader **file) {
    struct rt *rt = slices->rt;
    struct rt_reason why;
    char hex[RT_HASH_HEX];
    const struct rt_json *entry = slices->of_weight[w];
    const char *name = rt_json_text(rt_json_member(entry, "name"));
    int index;
    int64_t shard;
    shape_part(rt, &rt->program->weights[w], part, &index);
    const struct rt_json *slice = rt_json_item(entry, "slices", index);
    const char *hash = rt_json_text(rt_json_member(slice, "hash"));
    if (!name || !hash || !rt_json_int(rt_json_member(slice, "shard"), &shard) || shard < 0 ||
        shard >= rt->program->plan_ngpus)
        return fail_manifest(rt);
    RT_TRY(open_file(slices, shard));
    struct slice_file *from = &slices->file[shard];
    const struct rt_safetensor *tensor = find_tensor(from, name);
    if (!tensor || !has_shape(tensor, part)) return fail_slice(rt, shard, name);
    part->offset = (uint64_t)tensor->offset;
    if (!hash_slice(slices, &from->file, (int64_t)part->offset, tensor->bytes, hex, &why))
        return fail_file(rt, shard, &why);
    *file = &from->file;
    return strcmp(hex, hash) == 0 ? RT_OK : fail_slice(rt, shard, name);
}

/* Bytes that one thread loads at a time. */
#define PIECE_BYTES ((int64_t)4 << 20)

struct source {
    struct rt_reader file;
    bool wanted;
};

struct loader {
    struct rt *rt;
    struct source *source;
    int nsources;
    bool sliced; /* some weights are in slices */
    bool shared; /* the first scale unit reads stored weights and sends them to the others */
    bool reads;  /* this rank reads files */
    bool adapts; /* only the chosen adapter is loaded */
    struct load_slices slices;
    unsigned char *staging; /* buffer for rows that are copied to their place; as large as the largest need */
};

/* A weight that is being loaded. Rows of the part are converted where the rank stores them, or in the staging buffer if
 * that is a GPU's memory, or has room for a slice only, which may begin and end within a row. */
struct load {
    struct load_part part;
    int64_t end;   /* rows [part.first, end) are needed */
    int64_t bytes; /* of these rows in memory, with the padding of panels */
    struct rt_stored stored;
    bool staged;
};

static int fail_reason(struct rt *rt, const char *what, const struct rt_reason *why) {
    if (why->kind == RT_REASON_SYSTEM) return rt_fail_code(rt, RT_ERROR_SYSTEM, RT_CODE_MODEL, "%s", why->text);
    return rt_fail_reason(rt, what, (struct rt_report){RT_CODE_MANIFEST, EXIT_MALFORMED}, why);
}

/* Of a file in the program's directory. */
static int fail_own(struct rt *rt, const char *name, const struct rt_reason *why) {
    if (why->kind != RT_REASON_SYSTEM) return fail_reason(rt, name, why);
    return rt_fail(rt, RT_ERROR_SYSTEM, "%s, in the program's directory '%s'", why->text,
                   rt_quote_text(rt->internal->directory).text);
}

/* Sources */

static int fail_changed(struct rt *rt, const char *path) {
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                        "'%s' has changed since the program was generated", rt_quote_text(path).text);
}

/* True if a file of that hash is as it was when it was hashed: the file of constants, when an adapter is chosen. */
static bool was_hashed(const struct rt_hashed *hashed, const struct rt_file_info *info, const char *hash) {
    return strcmp(hashed->hash, hash) == 0 && hashed->info.bytes == info->bytes &&
           hashed->info.mtime_ns == info->mtime_ns && hashed->info.ctime_ns == info->ctime_ns;
}

/* Checks that a file is unchanged: same size and times, or same hash. The change time (0: not known) is compared too,
 * because a user can set back the modification time. */
static int check_source(struct rt *rt, const char *path, const struct rt_json *entry, const struct rt_reader *file) {
    int64_t bytes, mtime, ctime = 0;
    const char *hash = rt_json_text(rt_json_member(entry, "hash"));
    char found[RT_HASH_HEX];
    struct rt_reason why;
    if (!rt_json_int(rt_json_member(entry, "bytes"), &bytes) ||
        !rt_json_int(rt_json_member(entry, "mtime_ns"), &mtime) || !hash)
        return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_MANIFEST, "location.json: bytes, mtime_ns or hash is missing");
    if (bytes != file->info.bytes) return fail_changed(rt, path);
    rt_json_int(rt_json_member(entry, "ctime_ns"), &ctime);
    if (mtime == file->info.mtime_ns && ctime == file->info.ctime_ns) return RT_OK;
    if (was_hashed(&rt->internal->hashed, &file->info, hash)) return RT_OK;
    if (!rt_hash_reader_shown(file, path, !rt->internal->progress, found, &why)) return fail_reason(rt, path, &why);
    if (strcmp(found, hash) != 0) return fail_changed(rt, path);
    rt->internal->hashed.info = file->info;
    memcpy(rt->internal->hashed.hash, found, sizeof found);
    return RT_OK;
}

static int open_source(struct rt *rt, struct source *source, const struct rt_json *entry) {
    const char *name = rt_json_text(rt_json_member(entry, "path"));
    if (!name) return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_MANIFEST, "location.json: a file has no path");
    struct rt_reason why;
    const bool open = name[0] == '/' ? rt_reader_open(&source->file, name, &why)
                                     : rt_reader_open_below(&source->file, rt->internal->directory, name, &why);
    if (open) return check_source(rt, name, entry, &source->file);
    return name[0] == '/' ? fail_reason(rt, name, &why) : fail_own(rt, name, &why);
}

/* location.json may be rewritten when a model moves; its hashes must be those of the model that manifest.json records.
 * Files beyond those of the model were made by the compiler. */
static int check_location(struct rt *rt, const struct rt_json *files) {
    struct rt_json_document *manifest;
    char part[40] = "model";
    int i = 0, status = rt_manifest_read(rt, &manifest);
    const struct rt_json *keys = status ? NULL : rt_json_member(rt_json_root(manifest), "keys");
    const struct rt_json *parts = rt_json_member(rt_json_member(keys, "graph"), "parts");
    for (const struct rt_json *entry = files->first; entry && !status; entry = entry->next) {
        const char *hash = rt_json_text(rt_json_member(entry, "hash")),
                   *was = rt_json_text(rt_json_member(parts, part));
        if (was && (!hash || strcmp(hash, was) != 0))
            status = rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                                  "location.json lists other files than the program was compiled from");
        snprintf(part, sizeof part, "external data %d", ++i);
    }
    rt_json_free(manifest);
    return status;
}

static int open_sources(struct loader *loader, const struct rt_json *root) {
    const struct rt_json *files = rt_json_member(root, "files");
    int64_t format;
    if (!rt_json_int(rt_json_member(root, "format"), &format) || format != 1 || !files ||
        files->kind != RT_JSON_ARRAY || files->count < loader->nsources)
        return rt_fail(loader->rt, RT_ERROR_MISMATCH,
                       "the format of location.json is not 1, or it lists fewer files than the program reads");
    RT_TRY(check_location(loader->rt, files));
    int i = 0;
    for (const struct rt_json *entry = files->first; entry && i < loader->nsources; entry = entry->next, i++)
        if (loader->source[i].wanted) RT_TRY(open_source(loader->rt, &loader->source[i], entry));
    return RT_OK;
}

/* Called after reading: checks that the files did not change since they were checked. */
static int check_sources(struct loader *loader) {
    struct rt_reason why;
    for (int i = 0; i < loader->nsources; i++)
        if (loader->source[i].wanted && !rt_reader_check(&loader->source[i].file, true, &why))
            return fail_reason(loader->rt, "location.json", &why);
    return RT_OK;
}

static void close_sources(struct loader *loader) {
    for (int i = 0; i < loader->nsources; i++) rt_reader_close(&loader->source[i].file);
    free(loader->source);
}

/* Pieces */

/* True if weight `w` of the program is to be loaded; no adapter has matrices of zeros. */
static bool is_loaded(const struct loader *loader, int w) {
    const struct rt *rt = loader->rt;
    const bool adapter = rt->program->weights[w].adapter;
    return rt->rank_class->weights[w] != RT_ABSENT && (adapter ? rt->internal->adapter >= 0 : !loader->adapts);
}

static bool is_stored(const struct rt_weight *weight) {
    return weight->init.kind == RT_INIT_STORED;
}

/* Finds the rows of the part that the rank's slice needs. */
static void find_rows(struct load *load) {
    const struct load_part *part = &load->part;
    const int64_t row = part->row_bytes / (int64_t)rt_dtype_bytes(part->weight->dtype);
    if (!load->stored.count || !row) {
        load->end = load->bytes = 0;
        return;
    }
    load->part.first = load->stored.start / row;
    load->end = (load->stored.start + load->stored.count + row - 1) / row;
    load->bytes = (load->end - load->part.first) * part->row_bytes;
}

/* Describes what the rank stores of a weight. `weight`: weight `w` of the program, or its slice in weights/. */
static bool find_load(struct load *load, const struct loader *loader, const struct rt_weight *weight, int w) {
    const struct rt *rt = loader->rt;
    const size_t place = rt->rank_class->weights[w];
    int64_t elements;
    *load = (struct load){.staged = rt->program->device->remote || weight->flat};
    if (!load_part_find(&load->part, rt, weight, &elements) || (weight->flat && weight->packing != RT_PLAIN))
        return false;
    load->end = load->part.rows;
    load->bytes = elements * (int64_t)rt_dtype_bytes(weight->dtype);
    load->stored = rt_stored_part(rt, RT_WEIGHTS, place, weight->flat, elements);
    const size_t held = (size_t)rt->internal->bytes[load->stored.arena];
    if (load->stored.count < 0 || load->stored.at > held ||
        (uint64_t)load->stored.count * rt_dtype_bytes(weight->dtype) > held - load->stored.at)
        return false;
    if (weight->flat && !(loader->shared && is_stored(weight))) find_rows(load);
    return true;
}

/* Checks weight `w` and finds where its bytes are and where they go. */
static int check_weight(struct loader *loader, struct load *load, const struct rt_weight *weight,
                        const struct rt_reader *slices, int w) {
    struct rt *rt = loader->rt;
    struct load_part *part = &load->part;
    if (!find_load(load, loader, weight, w))
        return rt_fail(rt, RT_ERROR_MISMATCH, "weight %d of the program does not fit in the arena of weights", w);
    part->dst = load->staged ? loader->staging : rt->arena[load->stored.arena] + load->stored.at;
    part->file = slices;
    if (slices || !is_stored(weight) || !loader->reads) return RT_OK;
    const struct rt_reader *file = &loader->source[weight->file].file;
    if (part->stored_bytes > file->info.bytes || weight->offset > (uint64_t)(file->info.bytes - part->stored_bytes))
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                            "weight %d is outside of file %d of location.json", w, weight->file);
    part->file = part->coded.file = file;
    return RT_OK;
}

/* Copies what the rank stores from the staging buffer to its place. */
static int give_part(struct rt *rt, const struct load *load) {
    const struct load_part *part = &load->part;
    const int64_t size = (int64_t)rt_dtype_bytes(part->weight->dtype);
    const unsigned char *from = part->dst + (load->stored.start * size - part->first * part->row_bytes);
    RT_TRY(rt->program->device->put(rt, rt->arena[load->stored.arena] + load->stored.at, from,
                                    (size_t)(load->stored.count * size)));
    return rt->program->device->finish(rt);
}

/* Reads or generates the needed rows of a part. */
static int read_part(const struct loader *loader, const struct load *load) {
    const struct load_part *part = &load->part;
    const int64_t fit = PIECE_BYTES / part->row_bytes / RT_PANEL * RT_PANEL,
                  each = (load->end - part->first) / loader->rt->threads / RT_PANEL * RT_PANEL + RT_PANEL,
                  step = fit == 0     ? RT_PANEL
                         : fit < each ? fit
                                      : each;
    struct rt_reason why;
    bool failed = false;
#pragma omp parallel for schedule(dynamic) num_threads(loader->rt->threads) if (load->end - part->first > step)
    for (int64_t row = part->first; row < load->end; row += step) {
        const int64_t end = load->end - row < step ? load->end : row + step;
        struct rt_reason mine;
        if (load_part_copy(part, row, end, &mine)) continue;
#pragma omp critical
        why = mine, failed = true;
    }
    load_part_sum(part, loader->rt->threads);
    return failed ? fail_reason(loader->rt, "location.json", &why) : RT_OK;
}

/* Copies the part of the first scale unit to the others. */
static int share_part(const struct loader *loader, const struct load *load) {
    struct rt_comm *units = loader->rt->units;
    return rt_end_collective(loader->rt, units,
                             units->driver->broadcast(units, load->part.dst, (size_t)load->bytes, 0));
}

static int load_weight(struct loader *loader, int w) {
    struct load load;
    struct rt_weight weight = loader->rt->program->weights[w];
    const struct rt_reader *slices = NULL;
    const bool stored = is_stored(&weight), reads = loader->reads || !stored;
    if (weight.adapter) weight.offset += (uint64_t)loader->rt->internal->adapter * loader->rt->program->adapter_bytes;
    if (reads && stored && weight.file == RT_SLICES) RT_TRY(load_slice(&loader->slices, w, &weight, &slices));
    RT_TRY(check_weight(loader, &load, &weight, slices, w));
    if (load.end == load.part.first || load.part.row_bytes == 0) return RT_OK;
    rt_at(loader->rt, -1); /* large weights take long: counts as progress */
    if (reads) RT_TRY(read_part(loader, &load));
    if (stored && loader->shared) RT_TRY(share_part(loader, &load));
    return load.staged && load.stored.count ? give_part(loader->rt, &load) : RT_OK;
}

/* Allocates the staging buffer, as large as the most that a weight needs of it. */
static int open_staging(struct loader *loader) {
    struct rt *rt = loader->rt;
    int64_t most = -1;
    for (int w = 0; w < rt->program->nweights; w++) {
        struct load load;
        if (!is_loaded(loader, w) || !find_load(&load, loader, &rt->program->weights[w], w)) continue;
        if (load.staged && load.bytes > most) most = load.bytes;
    }
    if (most < 0) return RT_OK;
    loader->staging = malloc((size_t)most + 1);
    return loader->staging ? RT_OK : rt_fail_memory(rt);
}

/* Opens the files of location.json that this rank reads. */
static int open_located(struct loader *loader) {
    struct rt_reason why;
    void *text;
    size_t bytes;
    if (!loader->nsources || !loader->reads) return RT_OK;
    if (!rt_file_read_below(loader->rt->internal->directory, "location.json", (size_t)1 << 30, &text, &bytes, &why))
        return fail_own(loader->rt, "location.json", &why);
    struct rt_json_document *location = rt_json_parse(text, bytes, &why);
    free(text);
    int status =
        location ? open_sources(loader, rt_json_root(location)) : fail_reason(loader->rt, "location.json", &why);
    rt_json_free(location);
    return status;
}

static int load_all(struct loader *loader) {
    struct rt *rt = loader->rt;
    int status = open_located(loader);
    if (!status && loader->sliced) status = load_slices_open(&loader->slices, rt);
    struct rt_progress progress;
    rt_progress_begin(&progress, 0, !rt->internal->progress);
    for (int w = 0; w < rt->program->nweights && !status; w++) {
        rt_progress_show(&progress, "loading weights: tensor", w, rt->program->nweights, "");
        if (is_loaded(loader, w)) status = load_weight(loader, w);
    }
    rt_progress_end(&progress);
    if (!status && loader->sliced) status = load_slices_check(&loader->slices);
    return status ? status : check_sources(loader);
}

static int load_wanted(struct rt *rt, bool adapts) {
    const struct rt_program *program = rt->program;
    const bool shared = rt->internal->broadcast_weights && rt->units->size > 1;
    struct loader loader = {.rt = rt, .shared = shared, .reads = !shared || rt->unit == 0, .adapts = adapts};
    bool any = false;
    for (int w = 0; w < program->nweights; w++) {
        if (program->weights[w].file >= loader.nsources) loader.nsources = program->weights[w].file + 1;
        if (is_loaded(&loader, w)) any = true;
    }
    if (!any) return RT_OK;
    loader.source = calloc((size_t)loader.nsources + 1, sizeof(*loader.source));
    if (!loader.source) return rt_fail_memory(rt);
    for (int w = 0; w < program->nweights; w++) {
        const struct rt_weight *weight = &program->weights[w];
        if (!is_loaded(&loader, w) || !is_stored(weight) || !loader.reads) continue;
        if (weight->file == RT_SLICES)
            loader.sliced = true;
        else
            loader.source[weight->file].wanted = true;
    }
    int status = open_staging(&loader);
    if (!status) status = load_all(&loader);
    free(loader.staging);
    if (loader.sliced) load_slices_close(&loader.slices);
    close_sources(&loader);
    return status;
}

int rt_load_weights(struct rt *rt) {
    return load_wanted(rt, false);
}

/* Adapters --------------------------------------------------------------------------------------------------------- */

static const char no_adapter[] = "none";

/* Zeros in place of the adapter before, then the matrices of the chosen one. */
static int load_adapter(struct rt *rt) {
    const struct rt_program *program = rt->program;
    struct loader loader = {.rt = rt};
    for (int w = 0; w < program->nweights; w++) {
        struct load load;
        if (!program->weights[w].adapter || rt->rank_class->weights[w] == RT_ABSENT) continue;
        if (!find_load(&load, &loader, &program->weights[w], w))
            return check_weight(&loader, &load, &program->weights[w], NULL, w);
        RT_TRY(program->device->zero(rt, rt->arena[load.stored.arena] + load.stored.at, (size_t)load.bytes));
    }
    return load_wanted(rt, true);
}

/* Records that there is no adapter of the name, with those that there are. */
static int fail_name(struct rt *rt, const char *name) {
    const struct rt_program *program = rt->program;
    char text[sizeof rt->internal->error] = "", meant[RT_QUOTE_BYTES + 32] = "";
    size_t length = 0;
    const char *near = rt_nearest(name, program->adapters, program->nadapters);
    if (near) snprintf(meant, sizeof meant, " (did you mean '%s'?)", rt_quote_text(near).text);
    for (int i = 0; i < program->nadapters && length < sizeof text; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s, ", program->adapters[i]);
    return rt_fail(rt, RT_ERROR_USAGE, "the program has no adapter '%s'%s: it has %.200s%s", rt_quote_text(name).text,
                   meant, text, no_adapter);
}

int rt_take_adapter(struct rt *rt, const char *name) {
    const struct rt_program *program = rt->program;
    int i = 0;
    if (name && !program->nadapters)
        return rt_fail(rt, RT_ERROR_USAGE, "the program chooses among no adapters: compile it with --adapter DIR");
    while (name && i < program->nadapters && strcmp(program->adapters[i], name) != 0) i++;
    if (name && i == program->nadapters && strcmp(name, no_adapter) != 0) return fail_name(rt, name);
    rt->internal->adapter = i < program->nadapters ? i : -1;
    return RT_OK;
}

int rt_set_adapter(struct rt *rt, const char *name) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, name);
    RT_TRY(rt_take_adapter(rt, name));
    return load_adapter(rt);
}
