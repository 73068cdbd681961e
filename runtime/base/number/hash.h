/* Content hashes: XXH3, 128 bits, as `xxhsum -H128` prints them. They detect changes; they are not cryptographic. */
#ifndef RT_BASE_HASH_H
#define RT_BASE_HASH_H

#include "../io/file_reader.h"
#include "../text/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_HASH_HEX 33 /* 32 digits and a NUL */

struct rt_hash {
    _Alignas(64) unsigned char state[576];
};

void rt_hash_start(struct rt_hash *hash);
void rt_hash_add(struct rt_hash *hash, const void *bytes, size_t count);

/* Add a field preceded by its length, or an integer: adjacent fields cannot be confused. */
void rt_hash_field(struct rt_hash *hash, const void *bytes, size_t count);
void rt_hash_text(struct rt_hash *hash, const char *text);
void rt_hash_int(struct rt_hash *hash, int64_t value);

/* The hash of all bytes added so far, in hexadecimal. More may be added afterwards. */
void rt_hash_hex(const struct rt_hash *hash, char hex[RT_HASH_HEX]);

/* XXH3 of 64 bits, for hash tables in memory. */
uint64_t rt_hash_key(const void *bytes, size_t count);

/* The hash of `count` bytes, or of a regular file. A file that changes while it is read is refused
 * (RT_REASON_CHANGED). */
void rt_hash_bytes(const void *bytes, size_t count, char hex[RT_HASH_HEX]);
bool rt_hash_file(const char *path, char hex[RT_HASH_HEX], struct rt_reason *why);
bool rt_hash_file_below(const char *directory, const char *name, char hex[RT_HASH_HEX], struct rt_reason *why);
bool rt_hash_reader(const struct rt_reader *reader, char hex[RT_HASH_HEX], struct rt_reason *why);

/* The same, shown on a terminal as "hashing NAME: MiB 120 of 900"; `off`: not shown. */
bool rt_hash_reader_shown(const struct rt_reader *reader, const char *name, bool off, char hex[RT_HASH_HEX],
                          struct rt_reason *why);

#endif
