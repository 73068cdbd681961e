/* Training data: files of samples, read on demand.
 *
 * Two formats, by the file's name:
 *   X.npy                       dimension 0 counts samples; the others are the input's shape without its batch
 *                               dimension; any float type for a float input, else any integer type or bool
 *   X.bin:u16[:shift=K]         raw little-endian tokens (u8, u16, u32, i32, i64): sample i is the T tokens from
 *                               i * T + K on, T being the input's size without its batch dimension. shift=1 gives the
 *                               labels of a language model.
 *
 * An input without elements, such as a cache that is empty at first, needs no file.
 *
 * An input that is the same for all samples (struct rt_port) has one tensor, of the input's shape; X.npy may have
 * several copies of it, one behind the other along dimension 0.
 *
 * The sampler gives the order of samples. Values are converted to the input's type. Files are untrusted: sizes are
 * checked at opening and after every read (Note [Files that shrink] in base/io/file_reader.h); kernels check that
 * indices are in range. */
#include "program/feed.h"

#include "base/number/checked.h"
#include "base/number/philox.h"

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

/* Shapes without the dimension of samples, unless the input is the same for all. */
static bool refuse_shape(const struct rt_data *data, const struct rt_tensor *array, const struct spec *spec,
                         struct rt_reason *why) {
    const struct rt_port *port = data->port;
    const int first = !data->shared, left = array->ndim > 0 ? first : 0;
    return rt_refuse(why,
                     data->shared ? "%s has the shape %s, but the input, the same for all samples, has %s"
                                  : "%s has samples of the shape %s, but those of the input have %s",
                     spec->path, shape_format(array->ndim - left, array->dims + left).text,
                     shape_format(port->ndim - first, port->dims + first).text);
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
    if (!fits) return refuse_shape(data, &array, spec, why);
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

/* Opens "FILE.npy" or "FILE.bin:u16[:shift=1]" for an input of the program that is shared or has samples.
 * RT_REASON_CONTENT: type or shape does not fit the input. */
static bool rt_data_open(struct rt_data *data, const struct rt_port *port, int64_t batch, const char *text,
                         struct rt_reason *why) {
    struct spec spec;
    *data = (struct rt_data){.port = port, .batch = batch};
    if (!read_spec(&spec, text, why)) return false;
    data->shared = port->shared;
    rt_product(port->dims, port->ndim, &data->per_sample); /* cannot overflow: checked when the program was opened */
    if (!data->shared) data->per_sample /= batch;
    if (!rt_reader_open(&data->file, spec.path, why)) return false;
    if (!(spec.tokens == RT_DTYPE_NONE ? open_array : open_tokens)(data, &spec, why)) return false;
    if (data->shared && data->samples > 0) return spec.tokens != RT_DTYPE_NONE || has_one_tensor(data, &spec, why);
    if (!data->shared && data->samples >= batch) return true;
    return rt_refuse(why, "%s is too short: it has %lld sample(s), but a micro-batch needs %lld", spec.path,
                     (long long)data->samples, (long long)batch);
}

/* Pieces begin at equal distances; the first and the last byte are in one. */
/* The hash of the samples that the file has: of all bytes up to RT_DATA_HASHED, of larger files of that many, spread
 * evenly. Files of the same hash, type and number of samples count as the same data. */
#define RT_DATA_HASHED ((int64_t)16 << 20)
static bool rt_data_hash(const struct rt_data *data, char hash[RT_HASH_HEX], struct rt_reason *why) {
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

static void rt_data_close(struct rt_data *data) {
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
/* Reads the `batch` samples at positions `position` and following into `dst`, which holds one input. RT_REASON_CHANGED:
 * the file was truncated since it was opened. */
static bool rt_data_read(const struct rt_data *data, const struct rt_sampler *sampler, int64_t position, void *dst,
                         struct rt_reason *why) {
    const int64_t from_row = data->per_sample * (int64_t)rt_dtype_bytes(data->dtype);
    const size_t to_row = (size_t)data->per_sample * rt_dtype_bytes(data->port->dtype);
    int64_t next = data->shared ? 0 : rt_sampler_at(sampler, position);
    if (!data->file.path) return true; /* no elements */
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

/* FILE of "NAME=FILE" if NAME is `name`, else NULL. */
static const char *file_for(const char *spec, const char *name) {
    const size_t length = strlen(name);
    return strncmp(spec, name, length) == 0 && spec[length] == '=' ? spec + length + 1 : NULL;
}

static const char *find_file(const struct feed_options *options, const char *name) {
    for (int i = 0; i < options->n; i++)
        if (file_for(options->specs[i], name)) return file_for(options->specs[i], name);
    return NULL;
}

/* Checks that every argument names an input. */
static int check_names(struct rank *self, const struct feed_options *options) {
    const struct job *job = self->job;
    for (int s = 0; s < options->n; s++) {
        bool known = false;
        for (int i = 0; i < job->program->ninputs; i++)
            known = known || file_for(options->specs[s], job->manifest.inputs[i]);
        if (known) continue;
        return self->status = rt_status_of_exit(inputs_unknown(options->name, options->specs[s], job->manifest.inputs,
                                                               job->program->ninputs, &self->failure));
    }
    return RT_OK;
}

static bool has_no_elements(const struct rt_port *port) {
    int64_t count = 0;
    rt_product(port->dims, port->ndim, &count);
    return !count;
}

/* True if dimension 0 of the input is the batch or a multiple: a sample then has several rows. */
static bool has_samples(const struct rt_port *port, int64_t batch) {
    return port->ndim > 0 && port->dims[0] > 0 && port->dims[0] % batch == 0;
}

static int open_input(struct feed *feed, struct rank *self, const struct feed_options *options, int input) {
    const struct job *job = self->job;
    const char *name = job->manifest.inputs[input], *file = find_file(options, name);
    const struct rt_port *port = &job->program->inputs[input];
    struct rt_reason why;
    if (!file && has_no_elements(port)) {
        feed->data[input] =
            (struct rt_data){.port = port, .batch = feed->batch, .shared = true, .samples = 1, .dtype = port->dtype};
        return RT_OK;
    }
    if (!port->shared && !has_samples(port, feed->batch))
        return fail_with(
            self, EXIT_USAGE, RT_CODE_USAGE,
            "input '%s' has no batch dimension: compile with --bind %s=FILE.npy, which makes it a constant",
            rt_quote_text(name).text, name);
    if (!file)
        return fail_with(self, EXIT_USAGE, RT_CODE_USAGE, "needs %s %s=FILE (%s%s %s)%s", options->name,
                         rt_quote_text(name).text, port->shared ? "" : "samples of ", rt_dtypes[port->dtype].name,
                         port->shared ? shape_format(port->ndim, port->dims).text
                                      : shape_format(port->ndim - (port->ndim > 0), port->dims + 1).text,
                         port->shared ? ", or --bind of compile, which makes it a constant" : "");
    if (rt_data_open(&feed->data[input], port, feed->batch, file, &why)) return RT_OK;
    fail_reason(self, RT_CODE_INPUT, &why);
    failure_where(&self->failure, "%s", rt_quote_text(file).text);
    return self->status;
}

/* Of a program with a batch of one sample, nothing in the graph tells positions [1,T] from tokens [1,T]: a file of one
 * sample, beside files of several, has the input of all samples. */
static void take_single(struct feed *feed, const struct rank *self) {
    int64_t most = 0;
    for (int i = 0; i < feed->program->ninputs; i++)
        if (!feed->data[i].shared && feed->data[i].samples > most) most = feed->data[i].samples;
    for (int i = 0; i < feed->program->ninputs && feed->batch == 1; i++) {
        struct rt_data *data = &feed->data[i];
        if (data->shared || data->tokens || data->samples != 1 || most < 2) continue;
        data->shared = true;
        if (self->first && !self->job->options.quiet)
            fprintf(stderr, "rankc: note: input '%s' has one sample, which is taken for all %lld\n",
                    rt_quote_text(self->job->manifest.inputs[i]).text, (long long)most);
    }
}

/* Sets the number of samples, which must be the same for all inputs. Only a file of tokens may have more, because
 * labels are its tokens shifted by one. */
static int count_samples(struct feed *feed, struct rank *self) {
    int least = -1;
    take_single(feed, self);
    for (int i = 0; i < feed->program->ninputs; i++)
        if (!feed->data[i].shared && (least < 0 || feed->data[i].samples < feed->data[least].samples)) least = i;
    feed->sampler.samples = feed->data[least].samples;
    for (int i = 0; i < feed->program->ninputs; i++) {
        if (feed->data[i].shared || feed->data[i].tokens || feed->data[i].samples == feed->sampler.samples) continue;
        const struct rt_quoted more = rt_quote_text(self->job->manifest.inputs[i]),
                               less = rt_quote_text(self->job->manifest.inputs[least]);
        return fail_with(self, EXIT_MALFORMED, RT_CODE_INPUT, "input '%s' has %lld sample(s), but input '%s' has %lld",
                         more.text, (long long)feed->data[i].samples, less.text, (long long)feed->sampler.samples);
    }
    return RT_OK;
}

/* Samples per micro-batch: the least dimension 0 of the inputs that have samples. */
static int find_batch(struct feed *feed, struct rank *self) {
    const struct rt_program *program = feed->program;
    for (int i = 0; i < program->ninputs; i++) {
        const int64_t rows = program->inputs[i].ndim ? program->inputs[i].dims[0] : 0;
        if (program->inputs[i].shared) continue;
        if (!feed->batch || rows < feed->batch) feed->batch = rows;
    }
    if (feed->batch > 0) return RT_OK;
    return fail_with(self, EXIT_USAGE, RT_CODE_USAGE, "the model has no input with samples of its own");
}

static bool allocate(struct feed *feed) {
    const size_t slots = (size_t)feed->slots, inputs = (size_t)feed->program->ninputs;
    feed->buffers = calloc(slots * inputs + 1, sizeof *feed->buffers);
    feed->samples = calloc(slots + 1, sizeof *feed->samples);
    if (!feed->buffers || !feed->samples) return false;
    for (size_t b = 0; b < slots * inputs; b++) {
        const struct rt_port *port = &feed->program->inputs[b % inputs];
        int64_t count = 0;
        rt_product(port->dims, port->ndim, &count);
        feed->buffers[b] = malloc((size_t)count * rt_dtype_bytes(port->dtype) + 1);
        if (!feed->buffers[b]) return false;
    }
    for (size_t j = 0; j < slots; j++) feed->samples[j] = (const void *const *)(feed->buffers + j * inputs);
    return true;
}

int feed_allocate(struct feed *feed, struct rank *self, int slots) {
    feed->slots = slots;
    return allocate(feed) ? RT_OK : fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

int feed_open(struct feed *feed, struct rank *self, const struct feed_options *options) {
    *feed = (struct feed){.program = self->job->program};
    feed->data = calloc((size_t)feed->program->ninputs + 1, sizeof *feed->data);
    if (!feed->data) return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
    RT_TRY(check_names(self, options));
    RT_TRY(find_batch(feed, self));
    for (int i = 0; i < feed->program->ninputs; i++) RT_TRY(open_input(feed, self, options, i));
    return count_samples(feed, self);
}

int feed_add_terms(const struct feed *feed, struct rank *self, const struct feed_options *options,
                   struct rt_terms *terms) {
    for (int i = 0; i < feed->program->ninputs; i++) {
        const struct rt_data *data = &feed->data[i];
        const char *name = self->job->manifest.inputs[i];
        char hash[RT_HASH_HEX], content[128];
        struct rt_reason why;
        if (!data->file.path) continue;
        if (!rt_data_hash(data, hash, &why)) return fail_reason(self, RT_CODE_INPUT, &why);
        snprintf(content, sizeof content, "%lld samples of %s, hash %s", (long long)data->samples,
                 rt_dtypes[data->dtype].name, hash);
        options_add_content(terms, options->name, name, find_file(options, name), content);
    }
    return RT_OK;
}

void feed_close(struct feed *feed) {
    for (int i = 0; feed->data && i < feed->program->ninputs; i++) rt_data_close(&feed->data[i]);
    for (int b = 0; feed->buffers && b < feed->slots * feed->program->ninputs; b++) free(feed->buffers[b]);
    free(feed->data);
    free(feed->buffers);
    free(feed->samples);
}

int64_t feed_samples(const struct feed *feed, int64_t index) {
    const int64_t left = feed->sampler.samples - index * feed->batch;
    return feed->pads && left < feed->batch ? left : feed->batch;
}

/* Sets the labels from sample `first` on to the number that does not count. */
static void ignore_labels(const struct feed *feed, const struct manifest *manifest, int64_t first, void **buffers) {
    for (int i = 0; i < feed->program->ninputs; i++) {
        const struct rt_data *data = &feed->data[i];
        const size_t size = rt_dtype_bytes(data->port->dtype);
        unsigned char *at = (unsigned char *)buffers[i] + (size_t)(first * data->per_sample) * size;
        for (int64_t n = (feed->batch - first) * data->per_sample; manifest->ignores[i] && n > 0; n--, at += size)
            rt_convert(at, data->port->dtype, &manifest->ignored[i], RT_I64, 1);
    }
}

int feed_read(struct feed *feed, struct rank *self, int slot, int64_t index) {
    void **buffers = feed->buffers + slot * feed->program->ninputs;
    struct rt_reason why;
    for (int i = 0; i < feed->program->ninputs; i++)
        if (!rt_data_read(&feed->data[i], &feed->sampler, index * feed->batch, buffers[i], &why))
            return fail_reason(self, RT_CODE_INPUT, &why);
    if (feed->pads) ignore_labels(feed, &self->job->manifest, feed_samples(feed, index), buffers);
    return RT_OK;
}

int64_t feed_micro_batches(const struct feed *feed) {
    return (feed->sampler.samples + (feed->pads ? feed->batch - 1 : 0)) / feed->batch;
}

bool feed_can_pad(const struct feed *feed, const struct rank *self) {
    for (int i = 0; i < feed->program->ninputs; i++)
        if (self->job->manifest.ignores[i] && !feed->data[i].shared) return true;
    return false;
}
