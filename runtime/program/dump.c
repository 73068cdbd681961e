/* Values of tensors while a program runs: --dump-tensors GLOB.
 *
 * Note [Dumps]
 * manifest.json says of every tensor where ranks hold it, and by which instruction it is made ("dump" in
 * base/manifest.h). An observer of the rank's instructions copies the tensors whose name, or whose node's name, matches
 * when the instruction that makes them ends; weights, inputs and states before the first instruction that reads them.
 * Later instructions may reuse the memory.
 *
 *   DIR/dump.json                      format, program, number of ranks
 *   DIR/rank_R.jsonl                   a line per file that rank R wrote, in the order of execution
 *   DIR/step_S/[micro_M/]rank_R/F.npy  the part of rank R
 *
 * Names of tensors are untrusted: F has their letters, digits, '.', '_' and '-'; other bytes, and a '.' in front, are
 * %XX. A name that is too long ends in ~N, where N is the number of the tensor. */
#include "base/io/file.h"
#include "base/manifest.h"
#include "base/number/checked.h"
#include "base/shape/panel.h"
#include "core/place.h"
#include "program/main.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A tensor of the program, as manifest.json describes it. */
struct dump_tensor {
    const char *name;
    enum rt_dtype dtype;
    int ndim, ncuts;
    int64_t dims[RT_MAX_NDIM]; /* complete */
    struct dump_cut {
        int axis, dim;
        int64_t blocks, grain;
    } cuts[RT_LAYOUT_AXES];
    unsigned partial[RT_REDUCES], own, flat; /* bit a: along axis a */
    bool window;
};

/* Where a rank holds it. */
struct dump_place {
    int tensor, instruction;
    bool before, wanted, strided;
    struct rt_value_place at;
    int64_t packing;
    int64_t dims[RT_MAX_NDIM], step[RT_MAX_NDIM];
    int64_t written; /* last step that wrote it; 0: none */
};

static enum rt_dtype numpy_type(enum rt_dtype dtype) {
    if (dtype == RT_BF16 || rt_dtypes[dtype].kind == RT_KIND_CODE_FLOAT) return RT_F32;
    if (rt_dtypes[dtype].kind == RT_KIND_CODE_INT) return RT_I8;
    return rt_dtypes[dtype].kind == RT_KIND_CODE_UINT ? RT_U8 : dtype;
}

static int64_t element_index(const struct dump_tensor *tensor, const struct dump_place *place, const int64_t *at) {
    int64_t index = 0;
    if (place->packing != RT_PLAIN) {
        const struct rt_packed panels = rt_packed_of((enum rt_packing)place->packing, tensor->ndim, place->dims);
        int64_t column = 0;
        for (int d = 1; d < tensor->ndim; d++) column = column * place->dims[d] + at[d];
        return rt_packed_place(&panels, tensor->dtype, at[0], column);
    }
    for (int d = 0; d < tensor->ndim; d++) index += at[d] * place->step[d];
    return index;
}

static bool is_dense(const struct dump_place *place) {
    return !place->strided && place->packing == RT_PLAIN;
}

/* Elements of memory that the part takes; -1: more than there can be. */
static int64_t span_of(const struct dump_tensor *tensor, const struct dump_place *place, int64_t count) {
    if (is_dense(place) || !count) return count;
    if (place->packing != RT_PLAIN) {
        const struct rt_packed panels = rt_packed_of((enum rt_packing)place->packing, tensor->ndim, place->dims);
        return rt_packed_elements(&panels, tensor->dtype);
    }
    int64_t last = 0, step;
    for (int d = 0; d < tensor->ndim; d++)
        if (!rt_mul(place->dims[d] - 1, place->step[d], &step) || !rt_add(last, step, &last)) return -1;
    return last + 1;
}

/* Elements in order: the last dimension is the fastest. */
static void gather(unsigned char *dst, const unsigned char *src, const struct dump_tensor *tensor,
                   const struct dump_place *place, int64_t count) {
    const size_t size = rt_dtype_bytes(tensor->dtype);
    const bool shifted = place->packing != RT_PLAIN && tensor->dtype == RT_U8; /* Note [Panels] */
    int64_t at[RT_MAX_NDIM] = {0};
    for (int64_t i = 0; i < count; i++) {
        memcpy(dst + (size_t)i * size, src + (size_t)element_index(tensor, place, at) * size, size);
        if (shifted) dst[i] ^= 0x80;
        for (int d = tensor->ndim - 1; d >= 0 && ++at[d] == place->dims[d]; d--) at[d] = 0;
    }
}

static bool fetch(struct rt *rt, void *dst, const void *src, size_t bytes) {
    if (rt->program->device->remote)
        return !rt->program->device->get(rt, dst, src, bytes) && !rt->program->device->finish(rt);
    memcpy(dst, src, bytes);
    return true;
}

/* Copies the rank's part to memory that the caller frees, row-major, of a type that numpy has: *dtype.
 * *count: its elements, those of a slice if it is cut flat. NULL: out of memory, or nothing is there (*count 0), or the
 * rank has no such memory (-1). */
static void *dump_copy(struct rt *rt, const struct dump_tensor *tensor, const struct dump_place *place,
                       enum rt_dtype *dtype, int64_t *count) {
    const size_t size = rt_dtype_bytes(tensor->dtype);
    int64_t elements = 0, bytes, start = 0;
    *dtype = numpy_type(tensor->dtype);
    *count = -1;
    if (!rt_product(place->dims, tensor->ndim, &elements)) return NULL;
    const int64_t some = tensor->flat ? rt_flat_count(rt, tensor->flat, elements) : elements;
    if (tensor->flat && place->at.arena != MANIFEST_FLAT) start = rt_flat_start(rt, tensor->flat, elements);
    const int64_t span = span_of(tensor, place, some);
    if (span < 0 || !rt_mul(span, (int64_t)size, &bytes) || !rt_mul(start, (int64_t)size, &start)) return NULL;
    const unsigned char *at = rt_value_at(rt, &place->at, start, bytes);
    if (!at && span) return NULL;
    *count = at ? some : 0;
    if (!at) return NULL;
    unsigned char *raw = malloc((size_t)bytes + 1), *out = NULL;
    bool ok = raw && (!span || fetch(rt, raw, at, (size_t)bytes));
    if (ok && is_dense(place) && *dtype == tensor->dtype) return raw;
    unsigned char *dense = ok ? malloc((size_t)*count * size + 1) : NULL;
    out = dense ? malloc((size_t)*count * rt_dtype_bytes(*dtype) + 1) : NULL;
    if (out) {
        if (is_dense(place))
            memcpy(dense, raw, (size_t)*count * size);
        else
            gather(dense, raw, tensor, place, *count);
        rt_convert(out, *dtype, dense, tensor->dtype, (size_t)*count);
    }
    free(dense);
    free(raw);
    return out;
}

/* A dimension's share of each block (Note [Nested cuts] in base/shape/part.h). */
struct share {
    int64_t blocks, block, start, turned, length;
};

static void cut_share(struct share *share, const struct rt *rt, const struct dump_cut *cut) {
    const struct rt_cut along = rt_cut_along(rt, cut->axis, share->blocks * share->length, cut->blocks, cut->grain);
    if (!rt_cut_is_sound(&along)) return;
    const int64_t whole = share->blocks * share->block;
    share->blocks = rt_blocks(along.blocks);
    share->block = whole / share->blocks;
    share->start += rt_cut_start_in(&along, rt->coordinate[cut->axis], 0);
    share->turned += rt_cut_start_in(&along, rt->coordinate[cut->axis], 1);
    share->length = rt_cut_length(&along, rt->coordinate[cut->axis]);
}

static struct share share_of(const struct rt *rt, const struct dump_tensor *tensor, int dim) {
    struct share share = {1, tensor->dims[dim], 0, 0, tensor->dims[dim]};
    for (int c = 0; c < tensor->ncuts; c++)
        if (tensor->cuts[c].dim == dim) cut_share(&share, rt, &tensor->cuts[c]);
    return share;
}

/* True if the place has the extents of the rank's part of the tensor. */
static bool dump_fits(const struct rt *rt, const struct dump_tensor *tensor, const struct dump_place *place) {
    for (int d = 0; d < tensor->ndim; d++) {
        const struct share share = share_of(rt, tensor, d);
        if (tensor->window ? place->dims[d] > tensor->dims[d] : place->dims[d] != share.blocks * share.length)
            return false;
    }
    return true;
}

static void put_ranges(struct rt_json_writer *writer, const struct rt *rt, const struct dump_tensor *tensor, int dim) {
    const struct share share = share_of(rt, tensor, dim);
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int64_t b = 0; b < share.blocks; b++) {
        const int64_t start = b * share.block + (b % 2 ? share.turned : share.start);
        rt_json_put_dims(writer, (int64_t[]){start, start + share.length}, 2);
    }
    rt_json_close(writer, ']');
}

static unsigned cut_axes(const struct dump_tensor *tensor) {
    unsigned axes = tensor->flat;
    for (int c = 0; c < tensor->ncuts; c++) axes |= 1u << tensor->cuts[c].axis;
    return axes;
}

/* Another rank has the same value: along an axis where all have it, this one is not the first. Stages of a pipeline
 * have different tensors. In inference, scale units compute the same. */
static bool is_replica(const struct rt *rt, const struct dump_tensor *tensor) {
    const struct rt_program *program = rt->program;
    unsigned divided = cut_axes(tensor) | (program->training ? tensor->own : 0);
    for (int r = 0; r < RT_REDUCES; r++) divided |= tensor->partial[r];
    for (int a = 0; a < rt_layout_axes(rt); a++)
        if (a != program->stages - 1 && !(divided >> a & 1) && rt->coordinate[a] > 0) return true;
    return !program->training && rt->unit > 0;
}

/* Writes where the part lies in the complete tensor, as members of a JSON object: "ranges", per dimension the runs of
 * indices [start, stop] that it has, in order; "slice", [start, count] of the elements of these, if it is cut flat;
 * "partial" and "replica". */
static void dump_put_region(struct rt_json_writer *writer, const struct rt *rt, const struct dump_tensor *tensor,
                            const struct dump_place *place) {
    static const char *const names[RT_REDUCES] = {"sum", "max", "min"};
    int64_t elements = 0;
    rt_json_key(writer, "ranges");
    if (tensor->window) rt_json_put_null(writer);
    if (!tensor->window) {
        rt_json_open(writer, '[', RT_JSON_INLINE);
        for (int d = 0; d < tensor->ndim; d++) put_ranges(writer, rt, tensor, d);
        rt_json_close(writer, ']');
    }
    if (tensor->flat && rt_product(place->dims, tensor->ndim, &elements)) {
        rt_json_key_dims(
            writer, "slice",
            (int64_t[]){rt_flat_start(rt, tensor->flat, elements), rt_flat_count(rt, tensor->flat, elements)}, 2);
    }
    for (int r = 0; r < RT_REDUCES; r++)
        if (tensor->partial[r]) rt_json_key_text(writer, "partial", names[r]);
    rt_json_key_bool(writer, "replica", is_replica(rt, tensor));
}

enum { NAME_MOST = 160, PATH_MOST = 4096, FUSED_SHOWN = 8 };

struct dump {
    struct rt_observer observer; /* first member */
    struct rank *self;
    struct rt *rt;
    pthread_t thread; /* of the steps */
    const char *directory;
    struct dump_tensor *tensors;
    struct dump_place *places;
    const struct rt_json **instructions;
    int ntensors, nplaces, ninstructions;
    int64_t matches[2]; /* of all ranks: places that are wanted, and all places */
    FILE *index;        /* rank_R.jsonl */
    int64_t step;
    int done;      /* steps written */
    int current;   /* instruction; -1: none */
    int64_t micro; /* of the current instruction */
    int chunk;
    size_t slot[RT_SLOT_SETS]; /* then */
    bool active, failed;
};

/* How many numbers the list has; of a number that follows from open sizes it has the formula. */
static int numbers_of(const struct rt *rt, const struct rt_json *list, int64_t *out, int most) {
    int n = 0;
    for (const struct rt_json *e = rt_json_first(list); e && n < most; e = e->next, n++)
        if (!rt_json_int(e, &out[n])) rt_size_formula(rt, rt_json_text(e), &out[n]);
    return n;
}

static unsigned bits_of(const struct rt_json *entry, const char *key) {
    return (unsigned)rt_json_number(entry, key, 0);
}

static bool read_tensor(const struct rt *rt, struct dump_tensor *t, const struct rt_json *entry, int naxes) {
    const char *dtype = rt_json_text(rt_json_member(entry, "dtype"));
    t->name = rt_json_text(rt_json_member(entry, "name"));
    t->dtype = dtype ? rt_dtype_by_name(dtype) : RT_DTYPE_NONE;
    t->ndim = numbers_of(rt, rt_json_member(entry, "shape"), t->dims, RT_MAX_NDIM);
    for (const struct rt_json *c = rt_json_items(entry, "cuts"); c && t->ncuts < RT_LAYOUT_AXES; c = c->next) {
        int64_t field[4] = {0};
        if (numbers_of(rt, c, field, 4) < 4 || field[0] < 0 || field[0] >= naxes || field[1] < 0 || field[1] >= t->ndim)
            return false;
        t->cuts[t->ncuts++] = (struct dump_cut){(int)field[0], (int)field[1], field[2], field[3]};
    }
    t->partial[RT_SUM] = bits_of(entry, "sum");
    t->partial[RT_MAX] = bits_of(entry, "max");
    t->partial[RT_MIN] = bits_of(entry, "min");
    t->own = bits_of(entry, "own");
    t->flat = bits_of(entry, "flat");
    t->window = bits_of(entry, "window") != 0;
    return t->name && t->dtype != RT_DTYPE_NONE && !(t->flat >> naxes);
}

static bool read_place(struct dump *d, struct dump_place *place, const struct rt_json *entry) {
    int64_t field[RT_DUMP_FIELDS + 2 * RT_MAX_NDIM];
    const int n = numbers_of(d->rt, entry, field, RT_DUMP_FIELDS + 2 * RT_MAX_NDIM);
    if (n < RT_DUMP_FIELDS || field[0] < 0 || field[0] >= d->ntensors || field[1] < 0 || field[1] >= d->ninstructions)
        return false;
    const int ndim = d->tensors[field[0]].ndim;
    if (n != RT_DUMP_FIELDS + ndim && n != RT_DUMP_FIELDS + 2 * ndim) return false;
    *place = (struct dump_place){.tensor = (int)field[0],
                                 .instruction = (int)field[1],
                                 .before = field[2] != 0,
                                 .at = {field[3], field[4], field[5], field[6]},
                                 .packing = field[7],
                                 .strided = ndim && n == RT_DUMP_FIELDS + 2 * ndim};
    memcpy(place->dims, field + RT_DUMP_FIELDS, (size_t)ndim * sizeof *field);
    if (place->strided) memcpy(place->step, field + RT_DUMP_FIELDS + ndim, (size_t)ndim * sizeof *field);
    for (int i = 0; i < ndim; i++)
        if (place->step[i] < 0) return false;
    if (place->packing < RT_PLAIN || place->packing > RT_PACK_WINDOWS || (place->packing != RT_PLAIN && ndim < 2) ||
        (place->packing != RT_PACK_WINDOWS && place->packing != RT_PLAIN && ndim > 2))
        return false;
    return dump_fits(d->rt, &d->tensors[place->tensor], place);
}

static const char *node_of(const struct dump *d, int instruction) {
    const char *node = rt_json_text(rt_json_member(d->instructions[instruction], "node"));
    return node ? node : "";
}

static bool name_matches(const struct dump *d, const char *name) {
    return fnmatch(d->self->job->options.dump_tensors, name, 0) == 0;
}

static bool is_wanted(const struct dump *d, const struct dump_place *place) {
    if (name_matches(d, d->tensors[place->tensor].name)) return true;
    return !place->before && name_matches(d, node_of(d, place->instruction));
}

static size_t length_of(const struct rt_json *list) {
    return list && list->kind == RT_JSON_ARRAY ? (size_t)list->count : 0;
}

static bool read_lists(struct dump *d, const struct rt_json *root) {
    const struct rt_json *dump = rt_json_member(root, "dump"), *tensors = rt_json_member(dump, "tensors"),
                         *instructions = rt_json_member(root, "instructions");
    const struct rt_json *class = rt_json_items(dump, "places");
    for (long c = d->rt->rank_class - d->rt->program->classes; c > 0 && class; c--) class = class->next;
    d->tensors = calloc(length_of(tensors) + 1, sizeof *d->tensors);
    d->instructions = calloc(length_of(instructions) + 1, sizeof(*d->instructions));
    d->places = calloc(length_of(class) + 1, sizeof *d->places);
    if (!d->tensors || !d->instructions || !d->places) return false;
    for (const struct rt_json *e = rt_json_first(instructions); e; e = e->next) d->instructions[d->ninstructions++] = e;
    bool ok = true;
    for (const struct rt_json *e = rt_json_first(tensors); e; e = e->next)
        ok = read_tensor(d->rt, &d->tensors[d->ntensors++], e, rt_layout_axes(d->rt)) && ok;
    for (const struct rt_json *e = rt_json_first(class); e && ok; e = e->next) {
        ok = read_place(d, &d->places[d->nplaces], e);
        if (ok) d->places[d->nplaces].wanted = is_wanted(d, &d->places[d->nplaces]);
        d->nplaces += ok;
    }
    return ok;
}

static bool make_directory(struct dump *d, const char *path) {
    if (rt_make_directories(path)) return true;
    fail_with(d->self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot make directory '%s': %s", rt_quote_text(path).text,
              strerror(errno));
    d->failed = true;
    return false;
}

static void encode_name(char *out, const char *name, int number) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    size_t n = 0;
    for (const char *c = name; *c && n < NAME_MOST; c++) {
        if (strchr(plain, *c) && (n || *c != '.'))
            out[n++] = *c;
        else
            n += (size_t)sprintf(out + n, "%%%02X", (unsigned char)*c);
    }
    out[n] = 0;
    if (n >= NAME_MOST || !n) sprintf(out + n, "~%d", number);
}

/* The directory of a value, below d->directory; made if it is not there. */
static bool place_directory(struct dump *d, char *path, bool of_micro) {
    char full[PATH_MOST];
    int n = snprintf(path, PATH_MOST, "step_%lld", (long long)d->step);
    if (of_micro) n += snprintf(path + n, PATH_MOST - (size_t)n, "/micro_%lld", (long long)d->micro);
    snprintf(path + n, PATH_MOST - (size_t)n, "/rank_%d", d->rt->rank);
    return snprintf(full, sizeof full, "%s/%s", d->directory, path) < (int)sizeof full && make_directory(d, full);
}

static void put_entry(struct dump *d, struct rt_json_writer *w, const struct dump_place *place, const char *file,
                      enum rt_dtype stored, bool of_micro) {
    const struct dump_tensor *t = &d->tensors[place->tensor];
    const char *op = rt_json_text(rt_json_member(d->instructions[place->instruction], "op"));
    rt_json_start(w);
    rt_json_open(w, '{', RT_JSON_INLINE);
    rt_json_key_text(w, "name", t->name);
    rt_json_key_text(w, "node", node_of(d, place->instruction));
    rt_json_key_text(w, "op", op ? op : "");
    rt_json_key_int(w, "instruction", place->instruction);
    rt_json_key_bool(w, "before", place->before);
    rt_json_key_int(w, "step", d->step);
    if (of_micro) rt_json_key_int(w, "micro", d->micro);
    rt_json_key_text(w, "dtype", rt_dtypes[t->dtype].name);
    rt_json_key_text(w, "stored", rt_dtypes[stored].name);
    rt_json_key_dims(w, "shape", t->dims, t->ndim);
    rt_json_key_dims(w, "part", place->dims, t->ndim);
    dump_put_region(w, d->rt, t, place);
    rt_json_key_text(w, "file", file);
    rt_json_close(w, '}');
}

static void fail_write(struct dump *d, const char *path, int error) {
    fail_with(d->self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write '%s': %s", rt_quote_text(path).text, strerror(error));
    d->failed = true;
}

/* Several micro-batches have a directory each. What is not computed from samples, such as parameters and updates, has
 * none. */
static bool is_of_micro(const struct dump *d, const struct dump_tensor *t) {
    const struct rt_private *private = d->rt->internal;
    const int64_t micros = d->rt->program->training ? (int64_t) private->accumulate * d->rt->units->size
                                                    : rt_inferred_micro_batches(d->rt->program);
    return micros > 1 && (t->own || !d->rt->program->training);
}

/* The number of the tensor among those of its name, from 1 on: a weight that is held in two layouts is two tensors. */
static int copy_of(const struct dump *d, int tensor) {
    int copy = 1;
    for (int t = 0; t < tensor; t++) copy += strcmp(d->tensors[t].name, d->tensors[tensor].name) == 0;
    return copy;
}

static int fail_manifest(struct rank *self) {
    return fail_with(self, EXIT_MISMATCH, RT_CODE_FORMAT, "manifest.json does not describe the tensors");
}

static void write_value(struct dump *d, struct dump_place *place) {
    const struct dump_tensor *t = &d->tensors[place->tensor];
    char below[PATH_MOST], name[NAME_MOST + 32], file[2 * PATH_MOST], path[3 * PATH_MOST];
    enum rt_dtype stored;
    int64_t count;
    const bool of_micro = is_of_micro(d, t);
    struct rt_reason why;
    if (!of_micro && place->written == d->step) return;
    place->written = d->step;
    void *values = dump_copy(d->rt, t, place, &stored, &count);
    if (!values) {
        if (count < 0) fail_manifest(d->self);
        if (count > 0) fail_with(d->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
        d->failed = d->failed || count;
        return;
    }
    encode_name(name, t->name, place->tensor);
    if (place_directory(d, below, of_micro)) {
        const int copy = copy_of(d, place->tensor);
        if (copy > 1)
            snprintf(file, sizeof file, "%s/%s#%d.npy", below, name, copy);
        else
            snprintf(file, sizeof file, "%s/%s.npy", below, name);
        snprintf(path, sizeof path, "%s/%s", d->directory, file);
        const bool ok = t->flat ? rt_npy_write(path, stored, 1, &count, values, &why)
                                : rt_npy_write(path, stored, t->ndim, place->dims, values, &why);
        struct rt_json_writer w;
        if (!ok) fail_reason(d->self, RT_CODE_WRITE, &why), d->failed = true;
        if (ok) put_entry(d, &w, place, file, stored, of_micro);
        if (ok && !rt_json_end_to(&w, d->index)) fail_write(d, "the dump's index", errno);
    } else if (!d->failed)
        fail_write(d, d->directory, ENAMETOOLONG);
    free(values);
}

static void write_matching(struct dump *d, bool before) {
    for (int i = 0; i < d->nplaces && !d->failed; i++) {
        struct dump_place *place = &d->places[i];
        if (place->wanted && place->instruction == d->current && place->before == before) write_value(d, place);
    }
}

/* Values lie in the slots of their own instruction, which may no longer be the current ones. */
static void end_instruction(struct dump *d) {
    size_t now[RT_SLOT_SETS];
    if (d->current < 0) return;
    memcpy(now, d->rt->slot, sizeof now);
    memcpy(d->rt->slot, d->slot, sizeof now);
    write_matching(d, false);
    memcpy(d->rt->slot, now, sizeof now);
    d->current = -1;
}

static int64_t micro_of(const struct rt *rt) {
    return rt->program->training ? rt_numbered(rt, rt->internal->micro) : rt->internal->micro;
}

/* An instruction that is announced several times in a row, for its parts, is one. */
static void begin_instruction(struct rt_observer *observer, struct rt *rt, int instruction) {
    struct dump *d = (struct dump *)observer;
    if (!pthread_equal(pthread_self(), d->thread) || d->failed) return;
    if (instruction == d->current && micro_of(rt) == d->micro && rt->internal->chunk == d->chunk) return;
    end_instruction(d);
    if (instruction < 0 || instruction >= d->ninstructions) return;
    d->current = instruction;
    d->micro = micro_of(rt);
    d->chunk = rt->internal->chunk;
    memcpy(d->slot, rt->slot, sizeof d->slot);
    write_matching(d, true);
}

void dump_begin_step(struct dump *d, int64_t step) {
    if (!d || (!d->self->job->options.steps && d->done)) return; /* steps of inference are equal */
    d->step = step;
    d->active = true;
    rt_observe(d->rt, &d->observer);
}

int dump_end_step(struct dump *d) {
    if (!d || !d->active) return RT_OK;
    end_instruction(d);
    rt_observe_end(d->rt, &d->observer);
    d->active = false;
    d->done++;
    if (!d->failed && fflush(d->index) != 0) fail_write(d, "the dump's index", errno);
    return d->failed ? d->self->status : RT_OK;
}

/* Rank 0 makes the directory and says what is in it. */
static int begin_directory(struct dump *d) {
    const struct rt_program *program = d->rt->program;
    char path[PATH_MOST];
    struct rt_json_writer w;
    struct rt_reason why;
    if (!make_directory(d, d->directory)) return d->self->status;
    snprintf(path, sizeof path, "%s/dump.json", d->directory);
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_LINES);
    rt_json_key_int(&w, "format", 1);
    rt_json_key_text(&w, "program", program->name);
    rt_json_key_int(&w, "ranks", d->rt->world);
    rt_json_key_text(&w, "pattern", d->self->job->options.dump_tensors);
    rt_json_close(&w, '}');
    const struct rt_piece piece = {w.text, rt_json_end(&w, &why) ? w.bytes : 0};
    const bool ok = rt_file_write(path, &piece, 1, &why);
    rt_json_discard(&w);
    return ok ? RT_OK : fail_reason(d->self, RT_CODE_WRITE, &why);
}

static int begin_index(struct dump *d) {
    char path[PATH_MOST];
    if (strlen(d->directory) > PATH_MOST / 2)
        return fail_with(d->self, EXIT_USAGE, RT_CODE_USAGE, "--dump-dir: the path is too long");
    if (d->self->first) RT_TRY(begin_directory(d));
    if (!d->self->first && !make_directory(d, d->directory)) return d->self->status;
    snprintf(path, sizeof path, "%s/rank_%d.jsonl", d->directory, d->rt->rank);
    d->index = fopen(path, "we");
    if (!d->index) fail_write(d, path, errno);
    return d->index ? RT_OK : d->self->status;
}

/* The ranks of one host, or of a file system that all see, write into one directory. */
static int check_match(struct dump *d) {
    int64_t mine[2] = {0, d->nplaces};
    for (int i = 0; i < d->nplaces; i++) mine[0] += d->places[i].wanted;
    RT_TRY(check_comm(d->self, d->rt, d->rt->comm,
                      d->rt->comm->driver->all_reduce(d->rt->comm, d->matches, mine, 2, RT_I64, RT_SUM)));
    if (d->matches[0]) return RT_OK;
    return fail_with(d->self, EXIT_USAGE, RT_CODE_USAGE,
                     "--dump-tensors: no tensor or node of the program matches '%s'; instructions and their nodes are "
                     "in manifest.json",
                     rt_quote_text(d->self->job->options.dump_tensors).text);
}

static void dump_free(struct dump *d) {
    if (d->index) fclose(d->index);
    free(d->tensors);
    free(d->places);
    free(d->instructions);
    free(d);
}

int dump_open(struct dump **out, struct rank *self, struct rt *rt) {
    const struct main_options *options = &self->job->options;
    *out = NULL;
    if (!options->dump_tensors) return RT_OK;
    struct dump *d = calloc(1, sizeof *d);
    if (!d) return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    *d = (struct dump){.observer = {.begins = begin_instruction, .reads_values = true},
                       .self = self,
                       .rt = rt,
                       .thread = pthread_self(),
                       .directory = options->dump_dir ? options->dump_dir : "dump",
                       .current = -1};
    int status = RT_OK;
    if (!read_lists(d, rt_json_root(self->job->manifest.document))) status = fail_manifest(self);
    if (!status) status = check_match(d);
    if (!status) status = begin_index(d);
    if (status)
        dump_free(d);
    else
        *out = d;
    return status;
}

/* Tensors of nodes that were fused exist nowhere. */
static void tell_fused(const struct dump *d) {
    int n = 0;
    for (int i = 0; i < d->ninstructions; i++) {
        const char *into = node_of(d, i), *before = "";
        const struct rt_json *of = rt_json_member(d->instructions[i], "of");
        for (const struct rt_json *m = rt_json_first(of); m; m = m->next) {
            const char *name = rt_json_text(m);
            if (!name || !name_matches(d, name) || strcmp(name, into) == 0 || strcmp(name, before) == 0) continue;
            before = name;
            if (++n <= FUSED_SHOWN)
                fprintf(stderr, "rankc: node '%s' has no tensor of its own: it is fused into '%s'\n",
                        rt_quote_text(name).text, rt_quote_text(into).text);
        }
    }
    if (n > FUSED_SHOWN) fprintf(stderr, "rankc: %d more nodes are fused into others\n", n - FUSED_SHOWN);
}

static void tell_written(const struct dump *d) {
    char ranks[64] = "";
    if (d->rt->world > 1) snprintf(ranks, sizeof ranks, ", counted on each of %d ranks", d->rt->world);
    fprintf(stderr, "rankc: dumped %lld tensor%s of %lld%s, %d step%s, to '%s'\n", (long long)d->matches[0],
            d->matches[0] == 1 ? "" : "s", (long long)d->matches[1], ranks, d->done, d->done == 1 ? "" : "s",
            rt_quote_text(d->directory).text);
    tell_fused(d);
}

int dump_close(struct dump *d, int status) {
    if (!d) return status;
    if (d->active) {
        const int ended = dump_end_step(d); /* what a failed step has computed is kept */
        status = status ? status : ended;
    }
    if (!status && d->self->first && !d->self->job->options.quiet) tell_written(d);
    dump_free(d);
    return status;
}
