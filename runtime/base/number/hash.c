#include "hash.h"

#include "../io/progress.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(struct rt_hash) >= sizeof(XXH3_state_t), "state of XXH3 fits");
_Static_assert(_Alignof(struct rt_hash) >= 64, "XXH3 wants cache lines");

enum { BLOCK = 1 << 17 }; /* bytes of a file read at a time */

static XXH3_state_t *state_of(struct rt_hash *hash) {
    return (XXH3_state_t *)(void *)hash->state;
}

void rt_hash_start(struct rt_hash *hash) {
    memset(hash, 0, sizeof *hash);
    XXH3_128bits_reset(state_of(hash));
}

uint64_t rt_hash_key(const void *bytes, size_t count) {
    return XXH3_64bits(bytes, count);
}

void rt_hash_add(struct rt_hash *hash, const void *bytes, size_t count) {
    if (count > 0) XXH3_128bits_update(state_of(hash), bytes, count);
}

void rt_hash_int(struct rt_hash *hash, int64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    rt_hash_add(hash, bytes, sizeof bytes);
}

void rt_hash_field(struct rt_hash *hash, const void *bytes, size_t count) {
    rt_hash_int(hash, (int64_t)count);
    rt_hash_add(hash, bytes, count);
}

void rt_hash_text(struct rt_hash *hash, const char *text) {
    rt_hash_field(hash, text, strlen(text));
}

static void digest_hex(XXH128_hash_t digest, char hex[RT_HASH_HEX]) {
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, digest);
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = digits[canonical.digest[i] >> 4];
        hex[2 * i + 1] = digits[canonical.digest[i] & 15];
    }
    hex[32] = 0;
}

void rt_hash_hex(const struct rt_hash *hash, char hex[RT_HASH_HEX]) {
    digest_hex(XXH3_128bits_digest((const XXH3_state_t *)(const void *)hash->state), hex);
}

void rt_hash_bytes(const void *bytes, size_t count, char hex[RT_HASH_HEX]) {
    digest_hex(XXH3_128bits(count > 0 ? bytes : "", count), hex);
}

bool rt_hash_reader_shown(const struct rt_reader *reader, const char *name, bool off, char hex[RT_HASH_HEX],
                          struct rt_reason *why) {
    struct rt_hash hash;
    struct rt_progress progress;
    unsigned char block[BLOCK];
    char what[120];
    bool read = true;
    snprintf(what, sizeof what, "hashing %.80s: MiB", off ? "" : rt_quote_text(name).text);
    rt_progress_begin(&progress, 0, off);
    rt_hash_start(&hash);
    for (int64_t at = 0, left; read && (left = reader->info.bytes - at) > 0; at += BLOCK) {
        const size_t count = left < BLOCK ? (size_t)left : BLOCK;
        read = rt_reader_get(reader, at, block, count, why);
        if (read) rt_hash_add(&hash, block, count);
        if (!off) rt_progress_show(&progress, what, at >> 20, reader->info.bytes >> 20, "");
    }
    rt_progress_end(&progress);
    rt_hash_hex(&hash, hex);
    return read && rt_reader_check(reader, true, why);
}

bool rt_hash_reader(const struct rt_reader *reader, char hex[RT_HASH_HEX], struct rt_reason *why) {
    return rt_hash_reader_shown(reader, "", true, hex, why);
}

static bool hash_and_close(struct rt_reader *reader, char hex[RT_HASH_HEX], struct rt_reason *why) {
    const bool ok = rt_hash_reader(reader, hex, why);
    rt_reader_close(reader);
    return ok;
}

bool rt_hash_file(const char *path, char hex[RT_HASH_HEX], struct rt_reason *why) {
    struct rt_reader reader;
    return rt_reader_open(&reader, path, why) && hash_and_close(&reader, hex, why);
}

bool rt_hash_file_below(const char *directory, const char *name, char hex[RT_HASH_HEX], struct rt_reason *why) {
    struct rt_reader reader;
    return rt_reader_open_below(&reader, directory, name, why) && hash_and_close(&reader, hex, why);
}
