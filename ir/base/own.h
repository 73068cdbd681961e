/* Files and JSON documents of runtime/base, owned by an arena (arena_own): freed with it, or earlier by arena_release.
 * Functions return false or NULL with the reason in *why. */
#ifndef IR_BASE_OWN_H
#define IR_BASE_OWN_H

#include "ir/base/arena.h"
#include "runtime/base/text/json.h"

/* rt_file_read; release *bytes. */
bool own_file(struct arena *arena, const char *path, size_t limit, void **bytes, size_t *count, struct rt_reason *why);
/* rt_file_read_below; release *bytes. */
bool own_file_below(struct arena *arena, const char *directory, const char *name, size_t limit, void **bytes,
                    size_t *count, struct rt_reason *why);

/* rt_json_read and rt_json_parse; release the document. */
struct rt_json_document *own_json(struct arena *arena, const char *path, struct rt_reason *why);
struct rt_json_document *own_json_text(struct arena *arena, const char *text, struct rt_reason *why);

/* The document in file `name` below `directory` (rt_file_read_below), and rt_sealed_read; release the document. */
struct rt_json_document *own_json_below(struct arena *arena, const char *directory, const char *name,
                                        struct rt_reason *why);
struct rt_json_document *own_sealed(struct arena *arena, const char *directory, const char *name, bool *intact,
                                    struct rt_reason *why);

/* A started JSON writer; own_json_end or arena_release releases it. */
struct rt_json_writer *own_json_writer(struct arena *arena);
/* Ends the document and releases the writer. Returns the text, in the arena, or NULL if memory was exhausted or objects
 * and arrays did not nest. */
const char *own_json_end(struct arena *arena, struct rt_json_writer *writer);

#endif
