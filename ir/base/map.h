/* Map from byte strings to ints, in an arena. Iteration is by insertion order, so nothing hash-ordered can reach an
 * output. Keys are copied. */
#ifndef IR_BASE_MAP_H
#define IR_BASE_MAP_H

#include <stdbool.h>

#include "ir/base/arena.h"

struct map_entry {
    const char *key; /* NUL-terminated copy; may contain NULs, `length` counts */
    size_t length;
    int value;
};

struct map {
    struct arena *arena;
    struct map_entry *entries; /* n of them, in order of insertion */
    int n, capacity;
    int *slots; /* index into entries + 1, 0: free */
    int nslots;
};

void map_init(struct map *map, struct arena *arena);
/* The value of `key`, or -1. Values put are therefore never negative. */
int map_get(const struct map *map, const char *key, size_t length);
/* Sets `key`; true if it was new. */
bool map_put(struct map *map, const char *key, size_t length, int value);

#endif
