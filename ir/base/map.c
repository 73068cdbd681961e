#include "ir/base/map.h"

#include <string.h>

#include "runtime/base/number/hash.h"

void map_init(struct map *map, struct arena *arena) {
    *map = (struct map){.arena = arena};
}

/* The slot that holds `key`, or the free one where it belongs. */
static int find(const struct map *map, const char *key, size_t length) {
    int slot = (int)(rt_hash_key(key, length) >> 33) & (map->nslots - 1);
    for (; map->slots[slot]; slot = (slot + 1) & (map->nslots - 1)) {
        const struct map_entry *entry = &map->entries[map->slots[slot] - 1];
        if (entry->length == length && memcmp(entry->key, key, length) == 0) break;
    }
    return slot;
}

int map_get(const struct map *map, const char *key, size_t length) {
    if (!map->n) return -1;
    int entry = map->slots[find(map, key, length)];
    return entry ? map->entries[entry - 1].value : -1;
}

static void grow(struct map *map) {
    int capacity = map->capacity ? map->capacity * 2 : 16;
    struct map_entry *entries = ARENA_ARRAY(map->arena, struct map_entry, capacity);
    if (map->n) memcpy(entries, map->entries, (size_t)map->n * sizeof *entries);
    map->entries = entries;
    map->capacity = capacity;
    map->nslots = 2 * capacity;
    map->slots = ARENA_ARRAY(map->arena, int, map->nslots);
    for (int i = 0; i < map->n; i++) map->slots[find(map, entries[i].key, entries[i].length)] = i + 1;
}

bool map_put(struct map *map, const char *key, size_t length, int value) {
    if (map->n == map->capacity) grow(map);
    int slot = find(map, key, length);
    if (map->slots[slot]) {
        map->entries[map->slots[slot] - 1].value = value;
        return false;
    }
    map->entries[map->n] = (struct map_entry){arena_copy(map->arena, key, length), length, value};
    map->slots[slot] = ++map->n;
    return true;
}

int map_find(const struct map *map, const char *text) {
    return map_get(map, text, strlen(text));
}

bool map_set(struct map *map, const char *text, int value) {
    return map_put(map, text, strlen(text), value);
}
