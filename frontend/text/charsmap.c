/* The compiled map of SentencePiece (normalizer.cc, "precompiled_charsmap"): the bytes of a trie as a u32, the trie,
 * and replacements, each ended by a NUL. The trie is a double array as Darts-clone writes it, of u32 units; all are
 * little-endian:
 *
 *     bits 0..7    label                        bit 31       this unit is a value: bits 0..30
 *     bit 8        a value hangs below          bits 9..30   offset to the children, of 8 bits more if bit 9 is set
 *
 * A value is where its replacement begins. */
#include "frontend/text/parts.h"

#include <string.h>

struct charsmap {
    const uint32_t *units;
    size_t nunits;
    struct span replacements;
};

enum { MOST_CHARSMAP = 1 << 26 };

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The bytes that base64 with padding stands for; NULL: it is none. */
static unsigned char *decode_base64(struct arena *arena, struct span text, size_t *bytes) {
    unsigned char *out = arena_alloc(arena, text.bytes / 4 * 3 + 4, 1);
    size_t padding = 0;
    if (text.bytes % 4) return NULL;
    while (padding < 2 && padding < text.bytes && text.at[text.bytes - 1 - padding] == '=') padding++;
    for (size_t i = 0; i < text.bytes; i += 4) {
        uint32_t group = 0;
        for (size_t j = 0; j < 4; j++) {
            const int digit = i + j >= text.bytes - padding ? 0 : digit_of(text.at[i + j]);
            if (digit < 0) return NULL;
            group = group << 6 | (uint32_t)digit;
        }
        for (size_t j = 0; j < 3; j++) out[i / 4 * 3 + j] = (unsigned char)(group >> (16 - 8 * j));
    }
    *bytes = text.bytes / 4 * 3 - padding;
    return out;
}

static uint32_t u32_at(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

struct charsmap *charsmap_read(struct reader *reader, const struct place *place, struct span text) {
    size_t bytes = 0;
    const unsigned char *data = text.bytes <= MOST_CHARSMAP ? decode_base64(reader->arena, text, &bytes) : NULL;
    const size_t trie = data && bytes >= 4 ? u32_at(data) / 4 * 4 : 0;
    if (!trie || trie > bytes - 4) return read_malformed(reader, place, "no compiled map of characters"), NULL;
    struct charsmap *map = ARENA_NEW(reader->arena, struct charsmap);
    uint32_t *units = ARENA_ARRAY(reader->arena, uint32_t, trie / 4);
    for (size_t i = 0; i < trie / 4; i++) units[i] = u32_at(data + 4 + 4 * i);
    *map = (struct charsmap){units, trie / 4, {(const char *)data + 4 + trie, bytes - 4 - trie}};
    if (!utf8_is_valid(map->replacements)) return read_malformed(reader, place, "its replacements are not UTF-8"), NULL;
    return map;
}

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The value of the shortest key that the text begins with; false: none, or the trie leaves its bounds. */
static bool find_value(const struct charsmap *map, struct span text, uint32_t *value) {
    size_t at = offset_of(map->units[0]);
    for (size_t i = 0; i < text.bytes && text.at[i]; i++) {
        const unsigned char byte = (unsigned char)text.at[i];
        at ^= byte;
        if (at >= map->nunits || (map->units[at] & (1u << 31 | 0xff)) != byte) return false;
        const uint32_t unit = map->units[at];
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        if (at >= map->nunits) return false;
        *value = map->units[at] & ~(1u << 31);
        return true;
    }
    return false;
}

bool charsmap_find(const struct charsmap *map, struct span text, struct span *replacement) {
    uint32_t value;
    if (!find_value(map, text, &value) || value > map->replacements.bytes) return false;
    const char *at = map->replacements.at + value;
    const size_t left = map->replacements.bytes - value;
    if (left && (*at & 0xc0) == 0x80) return false; /* in the middle of a character */
    *replacement = (struct span){at, strnlen(at, left)};
    return true;
}
