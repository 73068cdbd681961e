#include "ir/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Under the address sanitizer, gaps between objects and memory that is not allocated yet are poisoned. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define GUARDED
#endif
#elif defined __SANITIZE_ADDRESS__
#define GUARDED
#endif
#ifdef GUARDED
#include <sanitizer/asan_interface.h>
enum { GAP = 16, CHUNK_BYTES = 1 << 14 }; /* small, since poisoning a chunk takes time */
#define CLOSE ASAN_POISON_MEMORY_REGION
#define OPEN  ASAN_UNPOISON_MEMORY_REGION
#else
enum { GAP = 0, CHUNK_BYTES = 1 << 16 };
#define CLOSE(at, bytes) (void)(at), (void)(bytes)
#define OPEN(at, bytes)  (void)(at), (void)(bytes)
#endif

enum { ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    _Alignas(ALIGN) unsigned char data[];
};

void arena_init(struct arena *arena, size_t budget, jmp_buf *failed) {
    *arena = (struct arena){.budget = budget, .failed = failed};
}

/* An object that arena_own registered. */
struct arena_owned {
    struct arena_owned *next;
    void *object;
    void (*release)(void *object);
};

static void release_all(struct arena *arena) {
    while (arena->owned) {
        struct arena_owned *owned = arena->owned;
        arena->owned = owned->next;
        owned->release(owned->object);
    }
}

void arena_free(struct arena *arena) {
    release_all(arena);
    for (struct arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    arena->chunks = NULL;
    arena->used = 0;
}

static _Noreturn void out_of_memory(struct arena *arena) {
    if (arena->failed) longjmp(*arena->failed, 1);
    abort();
}

/* A chunk with room for that many bytes. Bytes that have not been used are zero. A large object has a chunk of its
 * own, so pages of it that are never written stay untouched. */
static struct arena_chunk *chunk_for(struct arena *arena, size_t bytes) {
#ifdef ARENA_MALLOC
    size_t size = bytes + GAP;
#else
    struct arena_chunk *top = arena->chunks;
    if (top && top->size - top->used >= bytes) return top;
    size_t size = bytes > CHUNK_BYTES / 4 ? bytes + GAP : CHUNK_BYTES;
#endif
    struct arena_chunk *chunk = calloc(1, sizeof *chunk + size);
    if (!chunk) return NULL;
    chunk->used = GAP;
    chunk->size = size;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    CLOSE(chunk->data, size);
    return chunk;
}

/* NULL: out of memory. */
static void *try_alloc(struct arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    const size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (arena->budget && room > arena->budget - arena->used) return NULL;
    struct arena_chunk *chunk = chunk_for(arena, room + GAP);
    if (!chunk) return NULL;
    void *object = chunk->data + chunk->used;
    chunk->used += room + GAP;
    arena->used += room;
    OPEN(object, bytes);
    return object;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size) {
    void *object = try_alloc(arena, count, size);
    if (!object) out_of_memory(arena);
    return object;
}

void arena_own(struct arena *arena, void *object, void (*release)(void *object)) {
    struct arena_owned *owned = try_alloc(arena, 1, sizeof *owned);
    if (!owned) {
        release(object);
        out_of_memory(arena);
    }
    *owned = (struct arena_owned){arena->owned, object, release};
    arena->owned = owned;
}

void arena_release(struct arena *arena, void *object) {
    for (struct arena_owned **at = &arena->owned; *at; at = &(*at)->next) {
        struct arena_owned *owned = *at;
        if (owned->object != object) continue;
        *at = owned->next;
        owned->release(owned->object);
        return;
    }
}

static void free_arena(void *arena) {
    arena_free(arena);
}

struct arena *arena_scratch(struct arena *arena) {
    struct arena *scratch = ARENA_NEW(arena, struct arena);
    arena_init(scratch, 0, arena->failed);
    arena_own(arena, scratch, free_arena);
    return scratch;
}

static void close_descriptor(void *object) {
    close((int)(intptr_t)object);
}

void arena_own_fd(struct arena *arena, int fd) {
    if (fd >= 0) arena_own(arena, (void *)(intptr_t)fd, close_descriptor);
}

void arena_close_fd(struct arena *arena, int fd) {
    if (fd >= 0) arena_release(arena, (void *)(intptr_t)fd);
}

void *arena_copy(struct arena *arena, const void *data, size_t bytes) {
    char *copy = arena_alloc(arena, bytes + 1, 1);
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

char *arena_strdup(struct arena *arena, const char *text) {
    return arena_copy(arena, text, strlen(text));
}

char *arena_vprintf(struct arena *arena, const char *format, va_list args) {
    char first[256]; /* has room for most texts, which are then formatted once */
    va_list again;
    va_copy(again, args);
    const int length = vsnprintf(first, sizeof first, format, args);
    const size_t bytes = length > 0 ? (size_t)length : 0;
    char *text = bytes < sizeof first ? arena_copy(arena, first, bytes) : arena_alloc(arena, bytes + 1, 1);
    if (bytes >= sizeof first) vsnprintf(text, bytes + 1, format, again);
    va_end(again);
    return text;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}
