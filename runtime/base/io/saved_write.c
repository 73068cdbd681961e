#include "saved_write.h"

#include "../number/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_DIGITS (RT_HASH_HEX - 1)

/* Writes dim, blocks and grain of each cut; if `part`, also the part's number and the number of parts, else the mesh
 * axis. */
static void put_cuts(struct rt_json_writer *w, const struct rt_saved_entry *entry, bool part) {
    rt_json_key_open(w, "slices", '[', RT_JSON_INLINE);
    for (int i = 0; i < entry->ncuts; i++) {
        const struct rt_region_cut *cut = &entry->cuts[i].cut;
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key_int(w, "dim", cut->dim);
        rt_json_key_int(w, "blocks", cut->blocks);
        rt_json_key_int(w, "unit", cut->grain);
        if (!part) rt_json_key_int(w, "axis", entry->cuts[i].axis);
        if (part) rt_json_key_int(w, "part", cut->part);
        if (part) rt_json_key_int(w, "parts", cut->parts);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

bool rt_saved_region(const struct rt_saved_entry *entry, struct rt_region *region) {
    *region = rt_region_whole(entry->dims, entry->ndim);
    for (int i = 0; i < entry->ncuts; i++)
        if (!rt_region_cut(region, &entry->cuts[i].cut)) return false;
    return true;
}

/* Writes shape, cuts and hashes as JSON within a string, because safetensors metadata has string values only. */
static void put_part(struct rt_json_writer *w, const struct rt_saved_entry *entry, const char *hashes) {
    struct rt_json_writer text;
    struct rt_reason why;
    rt_json_start(&text);
    rt_json_open(&text, '{', RT_JSON_INLINE);
    rt_json_key_dims(&text, "shape", entry->dims, entry->ndim);
    put_cuts(&text, entry, true);
    if (entry->copy_of) rt_json_key_text(&text, "copy_of", entry->copy_of);
    rt_json_key_text(&text, "hashes", hashes);
    rt_json_close(&text, '}');
    rt_json_key(w, entry->name);
    if (rt_json_end(&text, &why))
        rt_json_put_bytes(w, text.text, text.bytes - 1);
    else
        w->failed = w->out_of_memory = true;
    rt_json_discard(&text);
}

static void put_metadata(struct rt_json_writer *w, const void *context) {
    const struct rt_saved_output *out = context;
    for (int i = 0; i < out->n; i++) put_part(w, &out->entries[i], out->hashes[i]);
}

static char *header_of(const struct rt_saved_output *out, size_t *bytes, struct rt_reason *why) {
    const struct rt_safetensors_metadata metadata = {put_metadata, out};
    return rt_safetensors_header(out->tensors, out->n, &metadata, bytes, why);
}

static void release(struct rt_saved_output *out) {
    for (int i = 0; i < out->n && out->hashes; i++) free(out->hashes[i]);
    free(out->hashes);
    free(out->tensors);
}

static bool describe(struct rt_saved_output *out, int index, struct rt_reason *why) {
    const struct rt_saved_entry *entry = &out->entries[index];
    struct rt_safetensor *tensor = &out->tensors[index];
    struct rt_region region;
    if (!rt_saved_region(entry, &region))
        return rt_refuse(why, "the cuts of tensor '%s' do not fit its shape", rt_quote_text(entry->name).text);
    *tensor = (struct rt_safetensor){.name = entry->name, .dtype = entry->dtype, .ndim = entry->ndim};
    tensor->bytes = (int64_t)rt_dtype_bytes(entry->dtype);
    for (int d = 0; d < entry->ndim; d++) tensor->bytes *= tensor->dims[d] = rt_region_extent(&region, d);
    const size_t digits = (size_t)((tensor->bytes + RT_SAVED_CHUNK - 1) / RT_SAVED_CHUNK) * HASH_DIGITS;
    char *hashes = out->hashes[index] = malloc(digits + 1);
    if (!hashes) return rt_refuse_memory(why, digits + 1);
    memset(hashes, '0', digits);
    hashes[digits] = 0;
    return true;
}

static void pass_empty(struct rt_saved_output *out) {
    while (out->next < out->n && out->done == out->tensors[out->next].bytes) {
        out->next++;
        out->done = 0;
    }
}

bool rt_saved_output_begin(struct rt_saved_output *out, int directory, const char *path,
                           const struct rt_saved_entry *entries, int n, struct rt_reason *why) {
    *out = (struct rt_saved_output){.entries = entries, .n = n};
    out->tensors = calloc((size_t)n + 1, sizeof *out->tensors);
    out->hashes = calloc((size_t)n + 1, sizeof(char *));
    bool ok = (out->tensors && out->hashes) || rt_refuse_memory(why, (size_t)n * sizeof *out->tensors);
    for (int i = 0; i < n && ok; i++) ok = describe(out, i, why);
    size_t bytes;
    char *header = ok ? header_of(out, &bytes, why) : NULL;
    if (!header) return release(out), false;
    rt_file_begin_at(&out->file, directory, path);
    rt_file_append(&out->file, header, bytes);
    out->bytes = (int64_t)bytes;
    free(header);
    pass_empty(out);
    return true;
}

void rt_saved_output_append(struct rt_saved_output *out, const void *bytes, int64_t count) {
    const unsigned char *from = bytes;
    for (int64_t at = 0; at < count; at += RT_SAVED_CHUNK, out->done += RT_SAVED_CHUNK) {
        char hex[RT_HASH_HEX];
        const int64_t some = count - at < RT_SAVED_CHUNK ? count - at : RT_SAVED_CHUNK;
        rt_hash_bytes(from + at, (size_t)some, hex);
        memcpy(out->hashes[out->next] + out->done / RT_SAVED_CHUNK * HASH_DIGITS, hex, HASH_DIGITS);
    }
    rt_file_append(&out->file, bytes, (size_t)count);
    out->bytes += count;
    if (out->done > out->tensors[out->next].bytes) out->done = out->tensors[out->next].bytes;
    pass_empty(out);
}

bool rt_saved_output_end(struct rt_saved_output *out, int64_t *bytes, char hash[RT_HASH_HEX], struct rt_reason *why) {
    struct rt_reason ended;
    size_t length = 0;
    char *header = header_of(out, &length, why);
    if (header) {
        rt_hash_bytes(header, length, hash);
        rt_file_replace_start(&out->file, header, length);
    } else {
        out->file.error = ENOMEM; /* removes the file */
    }
    *bytes = out->bytes;
    const bool ok = rt_file_end(&out->file, &ended);
    if (header && !ok) *why = ended;
    free(header);
    release(out);
    return header && ok;
}

/* checkpoint.json */

void rt_saved_file_name(struct rt_saved_file *out, enum rt_saved_kind kind, int rank) {
    snprintf(out->name, sizeof out->name, "%s-%d.safetensors", rt_saved_kinds[kind], rank);
}

static void put_tensors(struct rt_json_writer *w, const struct rt_saved_summary *summary, int kind) {
    rt_json_key_open(w, rt_saved_kinds[kind], '[', RT_JSON_LINES);
    for (int i = 0; i < summary->ntensors[kind]; i++) {
        const struct rt_saved_entry *entry = &summary->tensors[kind][i];
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key_text(w, "name", entry->name);
        if (entry->copy_of) rt_json_key_text(w, "copy_of", entry->copy_of);
        rt_json_key_text(w, "dtype", rt_dtypes[entry->dtype].name);
        rt_json_key_dims(w, "shape", entry->dims, entry->ndim);
        put_cuts(w, entry, false);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

static void put_files(struct rt_json_writer *w, const struct rt_saved_summary *summary) {
    rt_json_key_open(w, "files", '[', RT_JSON_LINES);
    for (int i = 0; i < summary->nfiles; i++) {
        const struct rt_saved_written *file = &summary->files[i];
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key_text(w, "path", file->is.name);
        rt_json_key_int(w, "bytes", file->is.bytes);
        rt_json_key_text(w, "hash", file->hash);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

/* The sizes of the axes; of one that some pipeline stages alone have, size and first and last stage. */
static void put_mesh(struct rt_json_writer *w, const struct rt_mesh *mesh) {
    rt_json_key_open(w, "mesh", '[', RT_JSON_INLINE);
    for (int a = 0; a < mesh->naxes; a++) {
        const struct rt_mesh_axis *axis = &mesh->axis[a];
        if (!axis->end) {
            rt_json_put_int(w, axis->size);
            continue;
        }
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key_int(w, "size", axis->size);
        rt_json_key_dims(w, "stages", (int64_t[]){axis->first, axis->end - 1}, 2);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

static void put_made_of(struct rt_json_writer *w, const struct rt_json *made_of) {
    if (!made_of || made_of->kind != RT_JSON_OBJECT) return;
    rt_json_key_open(w, "made_of", '{', RT_JSON_LINES);
    for (const struct rt_json *part = made_of->first; part; part = part->next)
        if (rt_json_text(part)) rt_json_key_text(w, part->key, rt_json_text(part));
    rt_json_close(w, '}');
}

static void put_summary(struct rt_json_writer *w, const struct rt_saved_summary *summary) {
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key_int(w, "format", RT_SAVED_FORMAT);
    rt_json_key_text(w, "name", summary->name);
    rt_json_key_text(w, "program", summary->program);
    put_made_of(w, summary->made_of);
    rt_json_key_int(w, "step", summary->step);
    rt_json_key_int(w, "micro_batches", summary->micro_batches);
    rt_json_key_int(w, "micro_batches_per_step", summary->micro_batches_per_step);
    rt_json_key_int(w, "seed", summary->seed);
    put_mesh(w, summary->mesh);
    for (int k = 0; k < RT_SAVED_KINDS; k++) put_tensors(w, summary, k);
    put_files(w, summary);
}

bool rt_saved_summary_write(const struct rt_saved_summary *summary, int directory, const char *path,
                            struct rt_reason *why) {
    struct rt_json_writer w;
    char hash[RT_HASH_HEX];
    rt_json_start(&w);
    put_summary(&w, summary);
    rt_hash_bytes(w.text, w.bytes, hash);
    rt_json_key_text(&w, "hash_above", hash);
    rt_json_close(&w, '}');
    const bool complete = rt_json_end(&w, why);
    const struct rt_piece piece = {w.text, w.bytes};
    const bool ok = complete && rt_file_create_at(directory, path, &piece, 1, why);
    rt_json_discard(&w);
    return ok;
}
