/* Slices on their way from the model's files to their own. */
#include "frontend/driver/slices_write.h"

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
    /* The source: a constant in memory, or a window of a file, which moves forward with what is wanted of it. */
    const struct sliced *sliced;
    const struct slices_source *source;
    unsigned char *window;
    int64_t window_at, window_bytes, end; /* offsets in the file; `end` of the tensor */
    bool failed;
};

/* Writing -------------------------------------------------------------------------------------------------------- */

static void flush(struct writer *w) {
    output_put(w->stream, w->buffer, (size_t)w->filled);
    w->filled = 0;
}

static void put(struct writer *w, const void *bytes, size_t count) {
    rt_hash_add(&w->file, bytes, count);
    w->bytes += (int64_t)count;
    if (count > (size_t)(BUFFER - w->filled)) flush(w);
    if (count > BUFFER) {
        output_put(w->stream, bytes, count);
        return;
    }
    memcpy(w->buffer + w->filled, bytes, count);
    w->filled += (int)count;
}

/* Reading -------------------------------------------------------------------------------------------------------- */

static void fail_read(struct writer *w, int error) {
    struct diags *diags = w->output->diags;
    w->failed = true;
    if (error)
        diag_error(diags, 601, EXIT_SYSTEM, w->source->given, "cannot read %s: %s", diag_quote(diags, w->source->path),
                   strerror(error));
    else
        diag_error(diags, 604, EXIT_SYSTEM, w->source->given, "file changed while reading");
}

/* Moves the window so that it begins at `at`. */
static void move_window(struct writer *w, int64_t at) {
    const int64_t wanted = w->end - at < WINDOW ? w->end - at : WINDOW;
    w->window_at = at;
    w->window_bytes = 0;
    while (w->window_bytes < wanted && !w->failed) {
        const ssize_t n =
            pread(w->source->fd, w->window + w->window_bytes, (size_t)(wanted - w->window_bytes), at + w->window_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            fail_read(w, n < 0 ? errno : 0);
        else
            w->window_bytes += n;
    }
}

/* Bytes of the tensor from `offset` on: as many as are at hand of the `most` wanted, at least one. */
static const unsigned char *look(struct writer *w, size_t offset, size_t most, size_t *n) {
    *n = most;
    if (w->sliced->bytes) return w->sliced->bytes + offset;
    const int64_t at = (int64_t)w->sliced->stored.offset + (int64_t)offset;
    if (at < w->window_at || at >= w->window_at + w->window_bytes) move_window(w, at);
    const int64_t left = w->window_at + w->window_bytes - at;
    if ((int64_t)most > left) *n = (size_t)left;
    return w->window + (at - w->window_at);
}

static void put_run(void *context, size_t offset, size_t bytes) {
    struct writer *w = context;
    for (size_t done = 0, n; done < bytes && !w->failed; done += n) {
        const unsigned char *at = look(w, offset + done, bytes - done, &n);
        if (w->failed) return;
        rt_hash_add(&w->slice, at, n);
        put(w, at, n);
    }
}

static void put_slice(struct writer *w, const struct slices_source *sources, const struct sliced *sliced, int index) {
    int64_t bytes = (int64_t)rt_dtype_bytes(sliced->dtype);
    for (int d = 0; d < sliced->ndim; d++) bytes *= sliced->dims[d];
    w->sliced = sliced;
    w->source = sliced->bytes || !bytes ? NULL : &sources[sliced->stored.file];
    w->window_bytes = 0;
    w->end = (int64_t)sliced->stored.offset + bytes;
    rt_hash_start(&w->slice);
    slice_walk(sliced, index, put_run, w);
    rt_hash_hex(&w->slice, sliced->slices[index].hash);
}

int slices_write(struct slices *slices, int shard, const struct slices_source *sources, struct output *output,
                 struct slices_file *file) {
    struct arena *arena = output->arena;
    struct writer w = {
        .output = output, .buffer = arena_alloc(arena, BUFFER, 1), .window = arena_alloc(arena, WINDOW, 1)};
    const struct slice_list *list = &slices->of_shard[shard];
    size_t bytes;
    *file = (struct slices_file){.path = slices_path(arena, shard)};
    const char *header = slices_header(slices, shard, arena, &bytes);
    if (!header) return diag_error(output->diags, 500, EXIT_LIMIT, NULL, "out of memory");
    w.stream = output_stream_open(output, file->path);
    rt_hash_start(&w.file);
    put(&w, header, bytes);
    for (int i = 0; i < list->at.n && !w.failed; i++)
        put_slice(&w, sources, &slices->at.at[list->at.at[i].tensor], list->at.at[i].index);
    flush(&w);
    file->bytes = w.bytes;
    rt_hash_hex(&w.file, file->hash);
    return output_stream_close(w.stream) < 0 || w.failed ? -1 : 0;
}
