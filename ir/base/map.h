/* A hash map from byte strings to non-negative ints, in an arena. Keys are copied. Entries are iterated in order of
 * insertion, so hash order reaches no output. */
#ifndef IR_BASE_MAP_H
#define IR_BASE_MAP_H

#include <stdbool.h>

#include "ir/base/arena.h"

struct map_entry {
    const char *key; /* NUL-terminated copy; the key may contain NULs */
    size_t length;
    int value;
};

struct map {
    struct arena *arena;
    struct map_entry *entries; /* n of them, in order of insertion */
    int n, capacity;
    int *slots; /* 1 + index into entries; 0: free */
    int nslots;
};

void map_init(struct map *map, struct arena *arena);
/* The value of `key`, or -1 if it is absent. */
int map_get(const struct map *map, const char *key, size_t length);
/* Sets the value of `key`, which must not be negative; true if the key is new. */
bool map_put(struct map *map, const char *key, size_t length, int value);
/* The same for a text. */
int map_find(const struct map *map, const char *text);
bool map_set(struct map *map, const char *text, int value);

#endif
