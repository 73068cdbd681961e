/* Arenas: memory that is freed all at once, one arena per lifetime (a compilation, a pass, a rank).
 *
 * arena_alloc never returns NULL. When memory or the arena's budget is exhausted it jumps to `failed`, which the owner
 * of the arena set with setjmp; there the failure becomes a diagnostic. Objects are zero-filled. AddressSanitizer sees
 * the bounds of each object. Built with -DARENA_MALLOC, every object is a malloc of its own, for other memory
 * checkers. */
#ifndef IR_BASE_ARENA_H
#define IR_BASE_ARENA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct arena_chunk;
struct arena_owned;

struct arena {
    struct arena_chunk *chunks;
    struct arena_owned *owned; /* latest first */
    size_t used, budget;       /* bytes allocated; their limit, 0: none */
    jmp_buf *failed;           /* NULL: abort */
};

/* An empty arena. arena_free releases its memory and all that it owns. */
void arena_init(struct arena *arena, size_t budget, jmp_buf *failed);
void arena_free(struct arena *arena);

/* `count` objects of `size` bytes, zeroed, aligned for any type. The product is checked. */
void *arena_alloc(struct arena *arena, size_t count, size_t size);
/* A copy of `bytes` bytes, followed by a NUL that `bytes` does not count. */
void *arena_copy(struct arena *arena, const void *data, size_t bytes);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_vprintf(struct arena *arena, const char *format, va_list args);
/* In a function (.., const char *format, ...): sets `text` to what arena_printf would return. */
#define ARENA_PRINT_TO(text, arena, format)                                                                            \
    do {                                                                                                               \
        va_list print_arguments;                                                                                       \
        va_start(print_arguments, format);                                                                             \
        (text) = arena_vprintf(arena, format, print_arguments);                                                        \
        va_end(print_arguments);                                                                                       \
    } while (0)
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ties a resource outside the arena (malloc'ed block, mapping, descriptor) to the arena's lifetime: release(object) is
 * called by arena_release or else by arena_free, the latest object first. If this call itself runs out of memory it
 * calls release(object) before it jumps, so nothing leaks. */
void arena_own(struct arena *arena, void *object, void (*release)(void *object));
/* Releases an owned object now. `object` may be NULL. */
void arena_release(struct arena *arena, void *object);
/* A temporary arena that is owned by `arena`: arena_release(arena, scratch) frees all that was allocated in it. */
struct arena *arena_scratch(struct arena *arena);
/* arena_own and arena_release for a file descriptor, which is closed. -1 is allowed and ignored. */
void arena_own_fd(struct arena *arena, int fd);
void arena_close_fd(struct arena *arena, int fd);

#define ARENA_NEW(arena, type)          ((type *)arena_alloc(arena, 1, sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_alloc(arena, (size_t)(count), sizeof(type)))

#endif
