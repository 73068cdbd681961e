/* Content hashes: XXH3 of 128 bits, as `xxhsum -H128` prints it. For noticing change, not for security. */
#ifndef RT_BASE_HASH_H
#define RT_BASE_HASH_H

#include "file_reader.h"
#include "reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_HASH_HEX 33 /* 32 digits and a NUL */

struct rt_hash {
    _Alignas(64) unsigned char state[576];
};

void rt_hash_start(struct rt_hash *hash);
void rt_hash_add(struct rt_hash *hash, const void *bytes, size_t count);

/* A field with its length, or an integer, so that neighbouring fields cannot run into each other. */
void rt_hash_field(struct rt_hash *hash, const void *bytes, size_t count);
void rt_hash_text(struct rt_hash *hash, const char *text);
void rt_hash_int(struct rt_hash *hash, int64_t value);

/* The hash of what was added so far. More may be added afterwards. */
void rt_hash_hex(const struct rt_hash *hash, char hex[RT_HASH_HEX]);

/* Of `count` bytes; of a regular file. A file that changes meanwhile is refused (RT_REASON_CHANGED). */
void rt_hash_bytes(const void *bytes, size_t count, char hex[RT_HASH_HEX]);
bool rt_hash_file(const char *path, char hex[RT_HASH_HEX], struct rt_reason *why);
bool rt_hash_file_below(const char *directory, const char *name, char hex[RT_HASH_HEX], struct rt_reason *why);
bool rt_hash_reader(const struct rt_reader *reader, char hex[RT_HASH_HEX], struct rt_reason *why);

#endif
