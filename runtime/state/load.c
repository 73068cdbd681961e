/* Loads weights: the rank's parts of stored tensors, converted while they are copied.
 *
 * The tensors are in the model's own files, which location.json lists with their size, times and hash at compile time,
 * or in the program's slices (load_slices.h). Files are read once, in pieces (Note [Files that shrink] in
 * base/io/file_reader.h).
 *
 * With --broadcast-weights only the first scale unit reads files. Each of its ranks sends its parts to the ranks with
 * the same shard number in the other units: their parts are equal, and of a part with a flat cut, whose slices differ,
 * all is sent and every rank stores its slice. */
#include "state/load_part.h"
#include "state/load_slices.h"

#include "base/number/hash.h"
#include "base/text/json.h"
#include "base/io/progress.h"
#include "kernels/c/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Sources */

static int fail_changed(struct rt *rt, const char *path) {
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                        "'%s' has changed since the program was generated", rt_quote_text(path).text);
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
    if (!rt_hash_reader_shown(file, path, !rt->internal->progress, found, &why)) return fail_reason(rt, path, &why);
    return strcmp(found, hash) == 0 ? RT_OK : fail_changed(rt, path);
}

static int open_source(struct rt *rt, struct source *source, const struct rt_json *entry) {
    const char *name = rt_json_text(rt_json_member(entry, "path"));
    if (!name) return rt_fail_code(rt, RT_ERROR_INPUT, RT_CODE_MANIFEST, "location.json: a file has no path");
    struct rt_reason why;
    const bool open = name[0] == '/' ? rt_reader_open(&source->file, name, &why)
                                     : rt_reader_open_below(&source->file, rt->internal->directory, name, &why);
    return open ? check_source(rt, name, entry, &source->file) : fail_reason(rt, name, &why);
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
        return rt_fail_code(loader->rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT,
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
    const size_t place = rt->rank_class->weights[w], held = (size_t)rt->internal->bytes[RT_WEIGHTS];
    int64_t elements;
    *load = (struct load){.staged = rt->program->device->remote || weight->flat};
    if (!load_part_find(&load->part, rt, weight, &elements) || (weight->flat && weight->packing != RT_PLAIN))
        return false;
    load->end = load->part.rows;
    load->bytes = elements * (int64_t)rt_dtype_bytes(weight->dtype);
    load->stored = rt_stored_part(rt, place, weight->flat, elements);
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
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT,
                            "weight %d of the program does not fit in the arena of weights", w);
    part->dst = load->staged ? loader->staging : rt->arena[RT_WEIGHTS] + load->stored.at;
    part->file = slices;
    if (slices || !is_stored(weight) || !loader->reads) return RT_OK;
    const struct rt_reader *file = &loader->source[weight->file].file;
    if (part->stored_bytes > file->info.bytes || weight->offset > (uint64_t)(file->info.bytes - part->stored_bytes))
        return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_SOURCE_CHANGED,
                            "weight %d is outside of file %d of location.json", w, weight->file);
    part->file = file;
    return RT_OK;
}

/* Copies what the rank stores from the staging buffer to its place. */
static int give_part(struct rt *rt, const struct load *load) {
    const struct load_part *part = &load->part;
    const int64_t size = (int64_t)rt_dtype_bytes(part->weight->dtype);
    const unsigned char *from = part->dst + (load->stored.start * size - part->first * part->row_bytes);
    RT_TRY(rt->program->device->put(rt, rt->arena[RT_WEIGHTS] + load->stored.at, from,
                                    (size_t)(load->stored.count * size)));
    return rt->program->device->finish(rt);
}

/* Reads or generates the needed rows of a part. */
static int read_part(const struct loader *loader, const struct load *load) {
    const struct load_part *part = &load->part;
    const int64_t fit = PIECE_BYTES / part->row_bytes / RT_PANEL * RT_PANEL, step = fit > 0 ? fit : RT_PANEL;
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
    return failed ? fail_reason(loader->rt, "location.json", &why) : RT_OK;
}

/* Copies the part of the first scale unit to the others. */
static int share_part(const struct loader *loader, const struct load *load) {
    struct rt_comm *units = loader->rt->units;
    const int status = units->driver->broadcast(units, load->part.dst, (size_t)load->bytes, 0);
    return status ? rt_fail_comm(loader->rt, units, status) : RT_OK;
}

static int load_weight(struct loader *loader, int w) {
    struct load load;
    struct rt_weight weight = loader->rt->program->weights[w];
    const struct rt_reader *slices = NULL;
    const bool stored = is_stored(&weight), reads = loader->reads || !stored;
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
        if (rt->rank_class->weights[w] == RT_ABSENT || !find_load(&load, loader, &rt->program->weights[w], w)) continue;
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
    const char *directory = loader->rt->internal->directory;
    if (!rt_file_read_below(directory, "location.json", (size_t)1 << 30, &text, &bytes, &why)) {
        if (why.kind != RT_REASON_SYSTEM) return fail_reason(loader->rt, "location.json", &why);
        return rt_fail_code(loader->rt, RT_ERROR_SYSTEM, RT_CODE_MODEL, "%s, in the program's directory '%s'", why.text,
                            rt_quote_text(directory).text);
    }
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
        if (rt->rank_class->weights[w] != RT_ABSENT) status = load_weight(loader, w);
    }
    rt_progress_end(&progress);
    if (!status && loader->sliced) status = load_slices_check(&loader->slices);
    return status ? status : check_sources(loader);
}

int rt_load_weights(struct rt *rt) {
    const struct rt_program *program = rt->program;
    const bool shared = rt->internal->broadcast_weights && rt->units->size > 1;
    struct loader loader = {.rt = rt, .shared = shared, .reads = !shared || rt->unit == 0};
    bool any = false;
    for (int w = 0; w < program->nweights; w++) {
        if (program->weights[w].file >= loader.nsources) loader.nsources = program->weights[w].file + 1;
        if (rt->rank_class->weights[w] != RT_ABSENT) any = true;
    }
    if (!any) return RT_OK;
    loader.source = calloc((size_t)loader.nsources + 1, sizeof(*loader.source));
    if (!loader.source) return rt_fail_memory(rt);
    for (int w = 0; w < program->nweights; w++) {
        const struct rt_weight *weight = &program->weights[w];
        if (rt->rank_class->weights[w] == RT_ABSENT || !is_stored(weight) || !loader.reads) continue;
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
