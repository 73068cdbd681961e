/* HMAC-SHA256 against the test cases of RFC 4231, SHA-256 against the examples of FIPS 180-4. */
#include "base/number/hmac.h"
#include "../test.h"

#include <stdio.h>
#include <string.h>

/* A text, or where that is NULL `count` times one byte. */
struct bytes {
    const char *text;
    int byte;
    size_t count;
};

static size_t fill(const struct bytes *what, unsigned char *room) {
    if (what->text) return strlen(strcpy((char *)room, what->text));
    memset(room, what->byte, what->count);
    return what->count;
}

static void check_hex(const unsigned char *digest, const char *expected) {
    char hex[2 * RT_SHA256_BYTES + 1];
    for (int i = 0; i < RT_SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

/* RFC 4231, 4.2 to 4.8 but 4.4's key, which counts from 1 to 25 (4.5), and 4.6, which is truncated. */
static const struct {
    struct bytes key, data;
    const char *code;
} cases[] = {
    {{NULL, 0x0b, 20}, {"Hi There", 0, 0}, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
    {{"Jefe", 0, 0},
     {"what do ya want for nothing?", 0, 0},
     "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    {{NULL, 0xaa, 20}, {NULL, 0xdd, 50}, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
    {{NULL, 0xaa, 131},
     {"Test Using Larger Than Block-Size Key - Hash Key First", 0, 0},
     "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    {{NULL, 0xaa, 131},
     {"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
      "hashed "
      "before being used by the HMAC algorithm.",
      0, 0},
     "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
};

TEST(authenticates_as_rfc_4231_says) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char key[256], data[256], code[RT_SHA256_BYTES];
        struct rt_hmac hmac;
        const size_t key_bytes = fill(&cases[i].key, key), bytes = fill(&cases[i].data, data);
        rt_hmac_start(&hmac, key, key_bytes);
        rt_hmac_add(&hmac, data, bytes / 3); /* in pieces */
        rt_hmac_add(&hmac, data + bytes / 3, bytes - bytes / 3);
        rt_hmac_end(&hmac, code);
        check_hex(code, cases[i].code);
    }
}

TEST(takes_a_key_that_counts) {
    unsigned char key[25], data[50], code[RT_SHA256_BYTES];
    struct rt_hmac hmac;
    for (int i = 0; i < 25; i++) key[i] = (unsigned char)(i + 1);
    memset(data, 0xcd, sizeof data);
    rt_hmac_start(&hmac, key, sizeof key);
    rt_hmac_add(&hmac, data, sizeof data);
    rt_hmac_end(&hmac, code);
    check_hex(code, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
}

TEST(hashes_across_blocks) {
    static const struct {
        struct bytes data;
        const char *digest;
    } examples[] = {
        {{"", 0, 0}, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {{"abc", 0, 0}, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 0, 0},
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        unsigned char data[256], digest[RT_SHA256_BYTES];
        struct rt_sha256 hash;
        const size_t bytes = fill(&examples[i].data, data);
        rt_sha256_start(&hash);
        for (size_t at = 0; at < bytes; at++) rt_sha256_add(&hash, data + at, 1);
        rt_sha256_end(&hash, digest);
        check_hex(digest, examples[i].digest);
    }
}

TEST(compares_all_bytes) {
    unsigned char a[RT_SHA256_BYTES] = {0}, b[RT_SHA256_BYTES] = {0};
    assert_true(rt_same_secret(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        b[i] = 0x80;
        assert_false(rt_same_secret(a, b, sizeof a));
        assert_true(rt_same_secret(a, b, i));
        b[i] = 0;
    }
}

int main(void) {
    return run_all_tests("hmac", NULL, NULL);
}
