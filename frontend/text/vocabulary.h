/* The tokens of a model: texts to ids and back. */
#ifndef FRONTEND_TEXT_VOCABULARY_H
#define FRONTEND_TEXT_VOCABULARY_H

#include "frontend/text/unicode.h"
#include "ir/base/map.h"

/* Limits: real vocabularies have up to 262,144 tokens of up to 512 bytes. */
enum { MOST_IDS = 1 << 24, MOST_TOKEN_BYTES = 1 << 13 };

struct vocabulary {
    struct map ids;
    struct span *texts; /* [nids]; bytes 0 and at NULL: no token has the id */
    int nids, capacity;
    size_t longest; /* bytes of the longest token */
};

void vocabulary_init(struct vocabulary *vocabulary, struct arena *arena);

/* Adds a token, whose text is copied; the id is less than MOST_IDS. Of two ids of a text the later counts in that
 * direction, and of two texts of an id the later in the other. */
void vocabulary_add(struct vocabulary *vocabulary, struct span text, int32_t id);

/* -1: none */
static inline int32_t vocabulary_id(const struct vocabulary *vocabulary, struct span text) {
    return map_get(&vocabulary->ids, text.at, text.bytes);
}

/* NULL: none */
static inline const struct span *vocabulary_text(const struct vocabulary *vocabulary, int32_t id) {
    return id >= 0 && id < vocabulary->nids && vocabulary->texts[id].at ? &vocabulary->texts[id] : NULL;
}

#endif
