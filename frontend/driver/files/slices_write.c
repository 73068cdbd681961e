/* Copies slices of weights from the model's files to safetensors files. */
#include "frontend/driver/files/sliced_weights.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/io/coded.h"

enum { WINDOW = 4 << 20, BUFFER = 1 << 20 }; /* bytes read and written at a time */

struct writer {
    struct output *output;
    struct output_stream *stream;
    struct rt_hash file, slice;
    int64_t bytes; /* of the file */
    unsigned char *buffer;
    int filled;
    /* The source: a constant in memory, or a window of a file that moves forward with the reads. */
    const struct sliced *sliced;
    const struct slices_source *source;
    unsigned char *window, *made;
    int64_t window_at, window_bytes, end; /* offsets in the file, or in what is made of it; `end` of the tensor */
    bool failed;
};

static void flush(struct writer *writer) {
    output_put(writer->stream, writer->buffer, (size_t)writer->filled);
    writer->filled = 0;
}

static void put(struct writer *writer, const void *bytes, size_t count) {
    rt_hash_add(&writer->file, bytes, count);
    writer->bytes += (int64_t)count;
    if (count > (size_t)(BUFFER - writer->filled)) flush(writer);
    if (count > BUFFER) {
        output_put(writer->stream, bytes, count);
        return;
    }
    memcpy(writer->buffer + writer->filled, bytes, count);
    writer->filled += (int)count;
}

static void fail_read(struct writer *writer, int error) {
    struct diags *diags = writer->output->diags;
    writer->failed = true;
    if (error)
        diag_error(diags, 601, EXIT_SYSTEM, writer->source->given, "cannot read %s: %s",
                   diag_quote(diags, writer->source->path), strerror(error));
    else
        diag_error(diags, 604, EXIT_SYSTEM, writer->source->given, "file changed while reading");
}

/* Moves the window so that it begins at `at`. */
static void move_window(struct writer *writer, int64_t at) {
    const int64_t wanted = writer->end - at < WINDOW ? writer->end - at : WINDOW;
    writer->window_at = at;
    writer->window_bytes = 0;
    while (writer->window_bytes < wanted && !writer->failed) {
        const ssize_t n = pread(writer->source->fd, writer->window + writer->window_bytes,
                                (size_t)(wanted - writer->window_bytes), at + writer->window_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            fail_read(writer, n < 0 ? errno : 0);
        else
            writer->window_bytes += n;
    }
}

/* Fills the window with codes or scales, whole rows of them, so that it has the byte `at` of all. */
static void make_window(struct writer *writer, int64_t at) {
    const struct sliced *sliced = writer->sliced;
    const struct rt_coding *coding = &sliced->stored.coding;
    const struct rt_reader reader = {writer->source->fd, (char *)writer->source->path, {0}};
    const int64_t columns = sliced->dims[sliced->ndim - 1], groups = columns / rt_coded_columns(coding);
    const struct rt_coded from = {.coding = *coding,
                                  .file = &reader,
                                  .offset = (int64_t)sliced->stored.offset,
                                  .stored = sliced->stored.dtype,
                                  .n = sliced->dims[sliced->ndim - 2],
                                  .k = groups * coding->group};
    const int64_t bytes = rt_coded_bytes(coding, groups), row = at / bytes, left = writer->end / bytes - row,
                  fit = WINDOW / bytes > 1 ? WINDOW / bytes : 1, rows = left < fit ? left : fit;
    struct rt_reason why;
    writer->window_at = row * bytes;
    writer->window_bytes = rows * bytes;
    if (bytes > WINDOW) writer->window = arena_alloc(writer->output->arena, (size_t)bytes, sizeof(float));
    if (rt_coded_make(&from, row, rows, 0, groups, writer->window, &why)) return;
    writer->failed = true;
    diag_refusal(writer->output->diags, 601, EXIT_SYSTEM, writer->source->given, &why);
}

/* Fills the window with floats that are rounded to fewer bits, from byte `at` on. */
static void round_window(struct writer *writer, int64_t at) {
    const struct sliced *sliced = writer->sliced;
    const int64_t from = (int64_t)rt_dtype_bytes(sliced->stored.dtype), to = (int64_t)rt_dtype_bytes(sliced->dtype),
                  end = writer->end, first = at / to;
    unsigned char *made = writer->made;
    writer->end = (int64_t)sliced->stored.offset + end / to * from;
    move_window(writer, (int64_t)sliced->stored.offset + first * from);
    const int64_t count = writer->window_bytes / from;
    rt_retype(made, sliced->dtype, writer->window, sliced->stored.dtype, (size_t)count);
    memcpy(writer->window, made, (size_t)(count * to));
    writer->end = end;
    writer->window_at = first * to;
    writer->window_bytes = count * to;
}

/* The bytes of the tensor from `offset` on: *n of them, between one and `most`, as the window holds. */
static const unsigned char *peek(struct writer *writer, size_t offset, size_t most, size_t *n) {
    *n = most;
    if (writer->sliced->bytes) return writer->sliced->bytes + offset;
    const enum rt_makes makes = writer->sliced->stored.coding.makes;
    const int64_t at = (makes ? 0 : (int64_t)writer->sliced->stored.offset) + (int64_t)offset;
    if (at < writer->window_at || at >= writer->window_at + writer->window_bytes)
        (makes == RT_AS_STORED ? move_window : makes == RT_ROUNDED ? round_window : make_window)(writer, at);
    const int64_t left = writer->window_at + writer->window_bytes - at;
    if ((int64_t)most > left) *n = (size_t)left;
    return writer->window + (at - writer->window_at);
}

static void put_run(void *context, size_t offset, size_t bytes) {
    struct writer *writer = context;
    for (size_t done = 0, n; done < bytes && !writer->failed; done += n) {
        const unsigned char *at = peek(writer, offset + done, bytes - done, &n);
        if (writer->failed) return;
        rt_hash_add(&writer->slice, at, n);
        put(writer, at, n);
    }
}

static void put_slice(struct writer *writer, const struct slices_source *sources, const struct sliced *sliced,
                      int index) {
    int64_t bytes = (int64_t)rt_dtype_bytes(sliced->dtype);
    for (int d = 0; d < sliced->ndim; d++) bytes *= sliced->dims[d];
    writer->sliced = sliced;
    writer->source = sliced->bytes || !bytes ? NULL : &sources[sliced->stored.file];
    writer->window_bytes = 0;
    writer->end = (sliced->stored.coding.makes ? 0 : (int64_t)sliced->stored.offset) + bytes;
    rt_hash_start(&writer->slice);
    slice_walk(sliced, index, put_run, writer);
    rt_hash_hex(&writer->slice, sliced->slices[index].hash);
}

int slices_write(struct slices *slices, int shard, const struct slices_source *sources, struct output *output,
                 struct slices_file *file) {
    struct arena *arena = output->arena;
    struct writer writer = {.output = output,
                            .buffer = arena_alloc(arena, BUFFER, 1),
                            .window = arena_alloc(arena, WINDOW, 64),
                            .made = arena_alloc(arena, WINDOW, 64)};
    const struct slice_list *list = &slices->of_shard[shard];
    size_t bytes;
    *file = (struct slices_file){.path = slices_path(arena, shard)};
    const char *header = slices_header(slices, shard, arena, &bytes);
    if (!header) return diag_error(output->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    writer.stream = output_stream_open(output, file->path);
    rt_hash_start(&writer.file);
    put(&writer, header, bytes);
    for (int i = 0; i < list->at.n && !writer.failed; i++)
        put_slice(&writer, sources, &slices->at.at[list->at.at[i].tensor], list->at.at[i].index);
    flush(&writer);
    file->bytes = writer.bytes;
    rt_hash_hex(&writer.file, file->hash);
    return output_stream_close(writer.stream) < 0 || writer.failed ? -1 : 0;
}
