/* SHA-1 (FIPS 180-4), for the key "checksum" of ONNX's external data. It detects damage, not forgery. */
#ifndef FRONTEND_READ_ONNX_SHA1_H
#define FRONTEND_READ_ONNX_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define SHA1_HEX 41 /* 40 digits and a NUL */

struct sha1 {
    uint32_t state[5];
    uint64_t bytes;
    unsigned char block[64];
};

void sha1_start(struct sha1 *sha1);
void sha1_add(struct sha1 *sha1, const void *bytes, size_t count);
/* Ends the hash and writes its lower-case hexadecimal digits. */
void sha1_hex(struct sha1 *sha1, char hex[SHA1_HEX]);

#endif
