#include "base/number/hmac.h"

#include <string.h>

#define BLOCK 64

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static uint32_t load_word(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void expand_block(const unsigned char *block, uint32_t words[64]) {
    for (int i = 0; i < 16; i++) words[i] = load_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        const uint32_t early = words[i - 15], late = words[i - 2];
        words[i] = words[i - 16] + (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) + words[i - 7] +
                   (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
    }
}

/* FIPS 180-4, 6.2.2; the names are the standard's. */
static void add_block(uint32_t state[8], const unsigned char *block) {
    uint32_t words[64], s[8];
    expand_block(block, words);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = s[0], e = s[4];
        const uint32_t t1 = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                            constants[i] + words[i];
        const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void rt_sha256_start(struct rt_sha256 *hash) {
    *hash = (struct rt_sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void rt_sha256_add(struct rt_sha256 *hash, const void *bytes, size_t count) {
    const unsigned char *from = bytes;
    while (count > 0) {
        const size_t used = hash->bytes % BLOCK, piece = count < BLOCK - used ? count : BLOCK - used;
        memcpy(hash->block + used, from, piece);
        hash->bytes += piece;
        from += piece;
        count -= piece;
        if (used + piece == BLOCK) add_block(hash->state, hash->block);
    }
}

void rt_sha256_end(struct rt_sha256 *hash, unsigned char digest[RT_SHA256_BYTES]) {
    static const unsigned char padding[BLOCK] = {0x80};
    const uint64_t bits = hash->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    rt_sha256_add(hash, padding, BLOCK - (hash->bytes + 8) % BLOCK);
    rt_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < RT_SHA256_BYTES; i++) digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void start_padded(struct rt_sha256 *hash, const unsigned char *key, unsigned char with) {
    unsigned char block[BLOCK];
    for (int i = 0; i < BLOCK; i++) block[i] = key[i] ^ with;
    rt_sha256_start(hash);
    rt_sha256_add(hash, block, sizeof block);
}

void rt_hmac_start(struct rt_hmac *hmac, const void *key, size_t count) {
    unsigned char block[BLOCK] = {0};
    if (count > BLOCK) {
        rt_sha256_start(&hmac->inner);
        rt_sha256_add(&hmac->inner, key, count);
        rt_sha256_end(&hmac->inner, block);
    } else if (count > 0) {
        memcpy(block, key, count);
    }
    start_padded(&hmac->inner, block, 0x36);
    start_padded(&hmac->outer, block, 0x5c);
}

void rt_hmac_add(struct rt_hmac *hmac, const void *bytes, size_t count) {
    rt_sha256_add(&hmac->inner, bytes, count);
}

void rt_hmac_end(struct rt_hmac *hmac, unsigned char code[RT_SHA256_BYTES]) {
    unsigned char digest[RT_SHA256_BYTES];
    rt_sha256_end(&hmac->inner, digest);
    rt_sha256_add(&hmac->outer, digest, sizeof digest);
    rt_sha256_end(&hmac->outer, code);
}

bool rt_same_secret(const void *a, const void *b, size_t count) {
    const volatile unsigned char *x = a, *y = b;
    unsigned char differs = 0;
    for (size_t i = 0; i < count; i++) differs |= x[i] ^ y[i];
    return differs == 0;
}
