#include "ir/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 16, ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    _Alignas(ALIGN) unsigned char data[];
};

void arena_init(struct arena *arena, size_t budget, jmp_buf *failed) {
    *arena = (struct arena){.budget = budget, .failed = failed};
}

void arena_free(struct arena *arena) {
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

static struct arena_chunk *chunk_for(struct arena *arena, size_t bytes) {
#ifdef ARENA_MALLOC
    size_t size = bytes;
#else
    struct arena_chunk *top = arena->chunks;
    if (top && top->size - top->used >= bytes) return top;
    size_t size = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
#endif
    struct arena_chunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk) out_of_memory(arena);
    chunk->used = 0;
    chunk->size = size;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) out_of_memory(arena);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (arena->budget && bytes > arena->budget - arena->used) out_of_memory(arena);
    struct arena_chunk *chunk = chunk_for(arena, bytes);
    void *object = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->used += bytes;
    return memset(object, 0, bytes);
}

void *arena_copy(struct arena *arena, const void *data, size_t bytes) {
    char *copy = arena_alloc(arena, bytes + 1, 1);
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

char *arena_strdup(struct arena *arena, const char *text) {
    return arena_copy(arena, text, strlen(text));
}

char *arena_printf(struct arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = arena_alloc(arena, (size_t)(length > 0 ? length : 0) + 1, 1);
    if (length > 0) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}
