#include "frontend/driver/output/location.h"

#include "ir/base/own.h"

static void put_file(struct rt_json_writer *writer, const struct hashed_file *file) {
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "path", file->path);
    rt_json_key_int(writer, "bytes", file->bytes);
    rt_json_key_int(writer, "mtime_ns", file->mtime_ns);
    rt_json_key_int(writer, "ctime_ns", file->ctime_ns);
    rt_json_key_text(writer, "hash", file->hash);
    rt_json_close(writer, '}');
}

const char *location_text(const struct location *location, struct arena *arena) {
    const int nfiles = location->keys ? location->keys->files.n : 0;
    struct rt_json_writer *writer = own_json_writer(arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", 1);
    rt_json_key_int(writer, "runtime_ngpus", location->runtime_ngpus);
    rt_json_key_open(writer, "files", '[', RT_JSON_LINES);
    for (int i = 0; i < nfiles; i++) put_file(writer, &location->keys->files.at[i]);
    if (location->constants) put_file(writer, location->constants);
    rt_json_close(writer, ']');
    if (location->tokenizer) rt_json_key_text(writer, "tokenizer", location->tokenizer);
    rt_json_close(writer, '}');
    return own_json_end(arena, writer);
}
