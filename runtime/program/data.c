#include "program/data.h"

#include "base/number/checked.h"
#include "base/number/philox.h"
#include "base/npy.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Note [Shuffling]
 * A pseudo-random permutation that needs no memory: a Feistel network over 2 * half bits, whose rounds mix one half of
 * the bits into the other with Philox, keyed by seed, epoch and round (Luby and Rackoff 1988). Results outside the
 * range are permuted again until they are inside ("cycle walking", Black and Rogaway 2002). At least a quarter of the
 * numbers is inside. */

enum { ROUNDS = 8 };

static uint64_t permute(const struct rt_sampler *sampler, int64_t epoch, int half, uint64_t number) {
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = number >> half, right = number & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t stream = (uint64_t)epoch * ROUNDS + round;
        const uint64_t mixed = left ^ (rt_philox_at(right, stream, sampler->seed).word[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t rt_sampler_at(const struct rt_sampler *sampler, int64_t position) {
    const int64_t epoch = position / sampler->samples;
    uint64_t number = (uint64_t)(position % sampler->samples);
    int half = 1;
    if (!sampler->shuffle) return (int64_t)number;
    while (half < 31 && (int64_t)1 << 2 * half < sampler->samples) half++;
    do number = permute(sampler, epoch, half, number);
    while (number >= (uint64_t)sampler->samples);
    return (int64_t)number;
}

/* A parsed argument: "train.bin:u16:shift=1". */
struct spec {
    char path[PATH_MAX];
    enum rt_dtype tokens; /* RT_DTYPE_NONE: .npy */
    int64_t shift;
};

static const struct {
    const char *name;
    enum rt_dtype dtype;
} token_types[] = {{"u8", RT_U8}, {"u16", RT_U16}, {"u32", RT_U32}, {"i32", RT_I32}, {"i64", RT_I64}};

static bool read_tokens(struct spec *spec, const char *text, struct rt_reason *why) {
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; i < sizeof token_types / sizeof *token_types; i++)
        if (strlen(token_types[i].name) == length && strncmp(text, token_types[i].name, length) == 0)
            spec->tokens = token_types[i].dtype;
    if (spec->tokens == RT_DTYPE_NONE)
        return rt_refuse(why, "'%s' is not a token type (u8, u16, u32, i32, i64)", rt_quote_text(text).text);
    text += length;
    if (!*text) return true;
    char *end = "?";
    if (strncmp(text, ":shift=", 7) == 0) spec->shift = strtoll(text + 7, &end, 10);
    if (*end || !text[7] || spec->shift < 0)
        return rt_refuse(why, "'%s' after the token type is not :shift=K", rt_quote_text(text).text);
    return true;
}

static bool read_spec(struct spec *spec, const char *text, struct rt_reason *why) {
    const char *colon = strstr(text, ".bin:");
    const size_t length = colon ? (size_t)(colon - text) + 4 : strlen(text);
    *spec = (struct spec){.tokens = RT_DTYPE_NONE};
    if (length >= sizeof spec->path) return rt_refuse(why, "the file's name is too long");
    memcpy(spec->path, text, length);
    spec->path[length] = 0;
    if (colon) return read_tokens(spec, colon + 5, why);
    const char *dot = strrchr(text, '.');
    if (dot && strcmp(dot, ".npy") == 0) return true;
    return rt_refuse(why, "data must be FILE.npy or FILE.bin:TYPE, not '%s'", rt_quote_text(text).text);
}

/* Sizes */

static bool open_tokens(struct rt_data *data, const struct spec *spec, struct rt_reason *why) {
    const int64_t size = (int64_t)rt_dtype_bytes(spec->tokens), tokens = data->file.info.bytes / size - spec->shift;
    data->tokens = true;
    data->dtype = spec->tokens;
    data->first = tokens > 0 ? spec->shift * size : 0;
    data->samples = tokens > 0 && data->per_sample ? tokens / data->per_sample : 0;
    if (data->file.info.bytes % size == 0) return true;
    return rt_refuse(why, "%s: %lld bytes are not a whole number of %lld-byte tokens", spec->path,
                     (long long)data->file.info.bytes, (long long)size);
}

/* Indices of dimension 0 that belong to a sample: all of them if the input is the same for all samples. */
static int64_t rows_of_sample(const struct rt_data *data) {
    const struct rt_port *port = data->port;
    return port->ndim ? port->dims[0] / (data->shared ? 1 : data->batch) : 1;
}

static bool open_array(struct rt_data *data, const struct spec *spec, struct rt_reason *why) {
    struct rt_tensor array;
    if (!rt_npy_find(&array, &data->first, &data->file, why)) return false;
    const struct rt_port *port = data->port;
    const int64_t rows = rows_of_sample(data), found = array.ndim ? array.dims[0] : 1;
    bool fits = array.ndim == port->ndim;
    for (int d = 1; d < port->ndim && fits; d++) fits = array.dims[d] == port->dims[d];
    if (data->shared && fits) fits = rows ? found && found % rows == 0 : !found;
    data->dtype = array.dtype;
    data->samples = fits ? (rows ? found / rows : 1) : 0;
    if (!fits)
        return rt_refuse(why,
                         data->shared ? "%s: the input is the same for all samples, and the file has not its shape"
                                      : "%s: the shape of a sample differs from that of the input without its batch "
                                        "dimension",
                         spec->path);
    if (rt_dtype_is_float(array.dtype) == rt_dtype_is_float(port->dtype)) return true;
    return rt_refuse(why, "%s contains %s, but the input is %s", spec->path, rt_dtypes[array.dtype].name,
                     rt_dtypes[port->dtype].name);
}

/* Checks that all copies in the file are the same tensor. */
static bool has_one_tensor(const struct rt_data *data, const struct spec *spec, struct rt_reason *why) {
    enum { PIECE = 4096 };
    unsigned char first[PIECE], other[PIECE];
    const int64_t bytes = data->per_sample * (int64_t)rt_dtype_bytes(data->dtype);
    for (int64_t copy = 1; copy < data->samples; copy++)
        for (int64_t done = 0; done < bytes; done += PIECE) {
            const int64_t at = data->first + done;
            const size_t n = (size_t)(bytes - done < PIECE ? bytes - done : PIECE);
            if (!rt_reader_get(&data->file, at, first, n, why) ||
                !rt_reader_get(&data->file, at + copy * bytes, other, n, why))
                return false;
            if (memcmp(first, other, n) != 0)
                return rt_refuse(why,
                                 "%s: the input is the same for all samples, and the file has several tensors that "
                                 "differ; if each is of a sample of its own, compile with --shared none",
                                 spec->path);
        }
    return true;
}

bool rt_data_open(struct rt_data *data, const struct rt_port *port, int64_t batch, const char *text,
                  struct rt_reason *why) {
    struct spec spec;
    *data = (struct rt_data){.port = port, .batch = batch};
    if (!read_spec(&spec, text, why)) return false;
    data->shared = port->shared;
    if (!data->shared && (port->ndim < 1 || port->dims[0] < 1 || port->dims[0] % batch != 0))
        return rt_refuse(why, "the input has no batch dimension");
    rt_product(port->dims, port->ndim, &data->per_sample); /* cannot overflow: checked when the program was opened */
    if (!data->shared) data->per_sample /= batch;
    if (!rt_reader_open(&data->file, spec.path, why)) return false;
    if (!(spec.tokens == RT_DTYPE_NONE ? open_array : open_tokens)(data, &spec, why)) return false;
    if (data->shared && data->samples > 0) return spec.tokens != RT_DTYPE_NONE || has_one_tensor(data, &spec, why);
    if (!data->shared && data->samples >= batch) return true;
    return rt_refuse(why, "%s is too short: it has %lld samples, but a micro-batch needs %lld", spec.path,
                     (long long)data->samples, (long long)batch);
}

/* Pieces begin at equal distances; the first and the last byte are in one. */
bool rt_data_hash(const struct rt_data *data, char hash[RT_HASH_HEX], struct rt_reason *why) {
    enum { PIECE = 1 << 16 };
    const int64_t bytes = data->samples * data->per_sample * (int64_t)rt_dtype_bytes(data->dtype),
                  hashed = bytes < RT_DATA_HASHED ? bytes : RT_DATA_HASHED, pieces = (hashed + PIECE - 1) / PIECE;
    unsigned char *piece = malloc(PIECE);
    struct rt_hash all;
    if (!piece) return rt_refuse_memory(why, PIECE);
    rt_hash_start(&all);
    bool ok = true;
    for (int64_t i = 0; i < pieces && ok; i++) {
        const size_t count = (size_t)(bytes < PIECE ? bytes : PIECE);
        const int64_t at = pieces > 1 ? (bytes - (int64_t)count) / (pieces - 1) * i : 0;
        const int64_t from = i > 0 && i == pieces - 1 ? bytes - (int64_t)count : at;
        ok = rt_reader_get(&data->file, data->first + from, piece, count, why);
        if (ok) rt_hash_add(&all, piece, count);
    }
    free(piece);
    if (ok) rt_hash_hex(&all, hash);
    return ok;
}

void rt_data_close(struct rt_data *data) {
    rt_reader_close(&data->file);
}

/* Reads `count` elements from byte `offset` on; converts them piece by piece if the input has another type. */
static bool read_elements(const struct rt_data *data, int64_t offset, unsigned char *dst, int64_t count,
                          struct rt_reason *why) {
    enum { PIECE = 4096 };
    const size_t from = rt_dtype_bytes(data->dtype), to = rt_dtype_bytes(data->port->dtype);
    uint64_t piece[PIECE]; /* room for elements of any type */
    if (data->dtype == data->port->dtype) return rt_reader_get(&data->file, offset, dst, (size_t)count * from, why);
    for (int64_t done = 0, n; done < count; done += n) {
        n = count - done < PIECE ? count - done : PIECE;
        if (!rt_reader_get(&data->file, offset + done * (int64_t)from, piece, (size_t)n * from, why)) return false;
        rt_convert(dst + (size_t)done * to, data->port->dtype, piece, data->dtype, (size_t)n);
    }
    return true;
}

/* Consecutive samples are read at once. */
bool rt_data_read(const struct rt_data *data, const struct rt_sampler *sampler, int64_t position, void *dst,
                  struct rt_reason *why) {
    const int64_t from_row = data->per_sample * (int64_t)rt_dtype_bytes(data->dtype);
    const size_t to_row = (size_t)data->per_sample * rt_dtype_bytes(data->port->dtype);
    int64_t next = data->shared ? 0 : rt_sampler_at(sampler, position);
    if (data->shared)
        return read_elements(data, data->first, dst, data->per_sample, why) && rt_reader_check(&data->file, false, why);
    for (int64_t done = 0, run; done < data->batch; done += run) {
        const int64_t first = next;
        run = 0;
        do next = rt_sampler_at(sampler, position + done + ++run);
        while (done + run < data->batch && next == first + run);
        if (!read_elements(data, data->first + first * from_row, (unsigned char *)dst + (size_t)done * to_row,
                           run * data->per_sample, why))
            return false;
    }
    return rt_reader_check(&data->file, false, why);
}
