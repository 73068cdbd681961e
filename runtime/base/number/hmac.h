/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), with which ranks prove knowledge of a secret without sending it. */
#ifndef RT_BASE_HMAC_H
#define RT_BASE_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_SHA256_BYTES 32

struct rt_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* hashed so far */
    unsigned char block[64];
};

void rt_sha256_start(struct rt_sha256 *hash);
void rt_sha256_add(struct rt_sha256 *hash, const void *bytes, size_t count);
void rt_sha256_end(struct rt_sha256 *hash, unsigned char digest[RT_SHA256_BYTES]);

/* Message authentication code of the bytes added between start and end; only holders of the key can compute it. */
struct rt_hmac {
    struct rt_sha256 inner, outer;
};

void rt_hmac_start(struct rt_hmac *hmac, const void *key, size_t count);
void rt_hmac_add(struct rt_hmac *hmac, const void *bytes, size_t count);
void rt_hmac_end(struct rt_hmac *hmac, unsigned char code[RT_SHA256_BYTES]);

/* Compares in constant time, so that timing does not reveal where the bytes differ. */
bool rt_same_secret(const void *a, const void *b, size_t count);

#endif
