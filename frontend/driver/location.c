#include "frontend/driver/location.h"

#include "ir/base/own.h"

static void put_file(struct rt_json_writer *w, const struct keys_file *file) {
    rt_json_open(w, '{', RT_JSON_INLINE);
    rt_json_key(w, "path"), rt_json_put_text(w, file->path);
    rt_json_key(w, "bytes"), rt_json_put_int(w, file->bytes);
    rt_json_key(w, "mtime_ns"), rt_json_put_int(w, file->mtime_ns);
    rt_json_key(w, "ctime_ns"), rt_json_put_int(w, file->ctime_ns);
    rt_json_key(w, "hash"), rt_json_put_text(w, file->hash);
    rt_json_close(w, '}');
}

const char *location_text(const struct keys *keys, const struct keys_file *constants, struct arena *arena) {
    struct rt_json_writer *w = own_json_writer(arena);
    rt_json_open(w, '{', RT_JSON_LINES);
    rt_json_key(w, "format"), rt_json_put_int(w, 1);
    rt_json_key(w, "files");
    rt_json_open(w, '[', RT_JSON_LINES);
    for (int i = 0; i < keys->files.n; i++) put_file(w, &keys->files.at[i]);
    if (constants) put_file(w, constants);
    rt_json_close(w, ']');
    rt_json_close(w, '}');
    return own_json_end(arena, w);
}
