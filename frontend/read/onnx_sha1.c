#include "frontend/read/onnx_sha1.h"

#include <stdio.h>
#include <string.h>

static uint32_t rotate(uint32_t word, int by) {
    return word << by | word >> (32 - by);
}

/* The round function of step t. FIPS 180-4, 4.1.1. */
static uint32_t mix(int t, uint32_t b, uint32_t c, uint32_t d) {
    if (t < 20) return (b & c) | (~b & d);
    if (t < 40 || t >= 60) return b ^ c ^ d;
    return (b & c) | (b & d) | (c & d);
}

static void add_block(uint32_t state[5], const unsigned char block[64]) {
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
               block[4 * t + 3];
    for (int t = 16; t < 80; t++) w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t sum = rotate(a, 5) + mix(t, b, c, d) + e + w[t] + constants[t / 20];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = sum;
    }
    const uint32_t added[5] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++) state[i] += added[i];
}

void sha1_start(struct sha1 *sha1) {
    *sha1 = (struct sha1){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_add(struct sha1 *sha1, const void *bytes, size_t count) {
    for (const unsigned char *at = bytes; count;) {
        size_t used = sha1->bytes % 64, part = 64 - used < count ? 64 - used : count;
        memcpy(sha1->block + used, at, part);
        sha1->bytes += part;
        at += part;
        count -= part;
        if (sha1->bytes % 64 == 0) add_block(sha1->state, sha1->block);
    }
}

void sha1_hex(struct sha1 *sha1, char hex[SHA1_HEX]) {
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = sha1->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_add(sha1, padding, 1 + (119 - sha1->bytes % 64) % 64);
    sha1_add(sha1, length, sizeof length);
    for (int i = 0; i < 5; i++) snprintf(hex + 8 * i, 9, "%08x", sha1->state[i]);
}
