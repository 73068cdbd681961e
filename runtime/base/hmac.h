/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for showing that one knows a secret without saying it. */
#ifndef RT_BASE_HMAC_H
#define RT_BASE_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_SHA256_BYTES 32

struct rt_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* so far */
    unsigned char block[64];
};

void rt_sha256_start(struct rt_sha256 *hash);
void rt_sha256_add(struct rt_sha256 *hash, const void *bytes, size_t count);
void rt_sha256_end(struct rt_sha256 *hash, unsigned char digest[RT_SHA256_BYTES]);

/* A code of authentication of what is added between start and end; nobody can make it who does not know the key. */
struct rt_hmac {
    struct rt_sha256 inner, outer;
};

void rt_hmac_start(struct rt_hmac *hmac, const void *key, size_t count);
void rt_hmac_add(struct rt_hmac *hmac, const void *bytes, size_t count);
void rt_hmac_end(struct rt_hmac *hmac, unsigned char code[RT_SHA256_BYTES]);

/* Compares in a time that does not depend on where the bytes differ. */
bool rt_same_secret(const void *a, const void *b, size_t count);

#endif
