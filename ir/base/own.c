#include "ir/base/own.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/io/file.h"
#include "runtime/base/io/sealed.h"

bool own_file(struct arena *arena, const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why) {
    if (!rt_file_read(path, limit, bytes, count, why)) return false;
    arena_own(arena, *bytes, free);
    return true;
}

bool own_file_below(struct arena *arena, const char *directory, const char *name, size_t limit, void **bytes,
                    size_t *count, struct rt_reason *why) {
    if (!rt_file_read_below(directory, name, limit, bytes, count, why)) return false;
    arena_own(arena, *bytes, free);
    return true;
}

static void free_document(void *document) {
    rt_json_free(document);
}

static struct rt_json_document *own_document(struct arena *arena, struct rt_json_document *document) {
    if (document) arena_own(arena, document, free_document);
    return document;
}

struct rt_json_document *own_json(struct arena *arena, const char *path, struct rt_reason *why) {
    return own_document(arena, rt_json_read(path, why));
}

struct rt_json_document *own_json_text(struct arena *arena, const char *text, struct rt_reason *why) {
    return own_document(arena, rt_json_parse(text, strlen(text), why));
}

struct rt_json_document *own_json_below(struct arena *arena, const char *directory, const char *name,
                                        struct rt_reason *why) {
    void *text;
    size_t bytes;
    if (!own_file_below(arena, directory, name, (size_t)4 << 30, &text, &bytes, why)) return NULL;
    struct rt_json_document *document = rt_json_parse(text, bytes, why);
    arena_release(arena, text);
    return own_document(arena, document);
}

struct rt_json_document *own_sealed(struct arena *arena, const char *directory, const char *name, bool *intact,
                                    struct rt_reason *why) {
    return own_document(arena, rt_sealed_read(directory, name, intact, why));
}

static void discard_writer(void *writer) {
    rt_json_discard(writer);
}

struct rt_json_writer *own_json_writer(struct arena *arena) {
    struct rt_json_writer *writer = ARENA_NEW(arena, struct rt_json_writer);
    rt_json_start(writer);
    arena_own(arena, writer, discard_writer);
    return writer;
}

const char *own_json_end(struct arena *arena, struct rt_json_writer *writer) {
    struct rt_reason why;
    const char *text = rt_json_end(writer, &why) ? arena_copy(arena, writer->text, writer->bytes) : NULL;
    arena_release(arena, writer);
    return text;
}
