#include "frontend/text/vocabulary.h"

#include <string.h>

void vocabulary_init(struct vocabulary *vocabulary, struct arena *arena) {
    *vocabulary = (struct vocabulary){.ids = {.arena = arena}};
}

static void make_room(struct vocabulary *vocabulary, int32_t id) {
    int capacity = vocabulary->capacity ? vocabulary->capacity : 256;
    while (capacity <= id) capacity *= 2;
    if (capacity == vocabulary->capacity) return;
    struct span *texts = ARENA_ARRAY(vocabulary->ids.arena, struct span, capacity);
    if (vocabulary->nids) memcpy(texts, vocabulary->texts, (size_t)vocabulary->nids * sizeof *texts);
    vocabulary->texts = texts;
    vocabulary->capacity = capacity;
}

void vocabulary_add(struct vocabulary *vocabulary, struct span text, int32_t id) {
    make_room(vocabulary, id);
    if (id >= vocabulary->nids) vocabulary->nids = id + 1;
    map_put(&vocabulary->ids, text.at, text.bytes, id);
    vocabulary->texts[id] = (struct span){arena_copy(vocabulary->ids.arena, text.at, text.bytes), text.bytes};
    if (text.bytes > vocabulary->longest) vocabulary->longest = text.bytes;
}
