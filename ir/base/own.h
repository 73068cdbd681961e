/* What runtime/base reads and writes, owned by an arena (arena_own): freed with it, or earlier by arena_release. */
#ifndef IR_BASE_OWN_H
#define IR_BASE_OWN_H

#include "ir/base/arena.h"
#include "runtime/base/json.h"

/* As rt_file_read; release *bytes. */
bool own_file(struct arena *arena, const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why);
/* As rt_file_read_below. */
bool own_file_below(struct arena *arena, const char *directory, const char *name, size_t limit, void **bytes,
                    size_t *count, struct rt_reason *why);

/* As rt_json_read and rt_json_parse; release the document. */
struct rt_json_document *own_json(struct arena *arena, const char *path, struct rt_reason *why);
struct rt_json_document *own_json_text(struct arena *arena, const char *text, struct rt_reason *why);

/* Of a file below a directory (rt_file_read_below); as rt_sealed_read. */
struct rt_json_document *own_json_below(struct arena *arena, const char *directory, const char *name,
                                        struct rt_reason *why);
struct rt_json_document *own_sealed(struct arena *arena, const char *directory, const char *name, bool *intact,
                                    struct rt_reason *why);

/* A writer that was started; release it. */
struct rt_json_writer *own_json_writer(struct arena *arena);
/* Ends the text and releases the writer: the arena's copy, or NULL where memory was short or values did not nest. */
const char *own_json_end(struct arena *arena, struct rt_json_writer *writer);

#endif
