/* Copies slices of weights from the model's files to safetensors files. */
#include "frontend/driver/files/sliced_weights.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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
    unsigned char *window;
    int64_t window_at, window_bytes, end; /* offsets in the file; `end` of the tensor */
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

/* The bytes of the tensor from `offset` on: *n of them, between one and `most`, as the window holds. */
static const unsigned char *peek(struct writer *writer, size_t offset, size_t most, size_t *n) {
    *n = most;
    if (writer->sliced->bytes) return writer->sliced->bytes + offset;
    const int64_t at = (int64_t)writer->sliced->stored.offset + (int64_t)offset;
    if (at < writer->window_at || at >= writer->window_at + writer->window_bytes) move_window(writer, at);
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
    writer->end = (int64_t)sliced->stored.offset + bytes;
    rt_hash_start(&writer->slice);
    slice_walk(sliced, index, put_run, writer);
    rt_hash_hex(&writer->slice, sliced->slices[index].hash);
}

int slices_write(struct slices *slices, int shard, const struct slices_source *sources, struct output *output,
                 struct slices_file *file) {
    struct arena *arena = output->arena;
    struct writer writer = {
        .output = output, .buffer = arena_alloc(arena, BUFFER, 1), .window = arena_alloc(arena, WINDOW, 1)};
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
