/* Arenas: memory freed all at once. One per lifetime (a compile, a pass, a rank).
 *
 * arena_alloc never returns NULL. When memory or the arena's budget runs out it jumps to the arena's `failed`
 * point, which the owner set with setjmp: the one place that turns "out of memory" into a diagnostic. Objects are
 * zero-filled. The address sanitizer sees each one, and what runs over its end. Built with -DARENA_MALLOC every object
 * is a malloc of its own, for other memory tools.
 */
#ifndef IR_BASE_ARENA_H
#define IR_BASE_ARENA_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;
struct arena_owned;

struct arena {
    struct arena_chunk *chunks;
    struct arena_owned *owned; /* latest first */
    size_t used, budget;       /* bytes handed out; at most `budget`, 0: no limit */
    jmp_buf *failed;           /* NULL: abort */
};

void arena_init(struct arena *arena, size_t budget, jmp_buf *failed);
void arena_free(struct arena *arena);

/* `count` objects of `size` bytes, zeroed, aligned for any type. The product is checked. */
void *arena_alloc(struct arena *arena, size_t count, size_t size);
/* A copy of `bytes` bytes, followed by a 0 byte that is not counted. */
void *arena_copy(struct arena *arena, const void *data, size_t bytes);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For what lives as long as the arena but is not in it: malloc'ed blocks, mappings, descriptors. release(object) is
 * called by arena_release or else by arena_free, latest first; and at once where memory runs out in the call itself. So
 * nothing is lost when an allocation jumps. */
void arena_own(struct arena *arena, void *object, void (*release)(void *object));
/* Releases an owned object now. NULL is fine. */
void arena_release(struct arena *arena, void *object);
/* An arena for what is needed for a while: arena_release(arena, it) frees it with all that is in it. */
struct arena *arena_scratch(struct arena *arena);
/* The same as arena_own for a file descriptor, which is closed. -1 is fine. */
void arena_own_fd(struct arena *arena, int fd);
void arena_close_fd(struct arena *arena, int fd);

#define ARENA_NEW(arena, type)          ((type *)arena_alloc(arena, 1, sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_alloc(arena, (size_t)(count), sizeof(type)))

#endif
