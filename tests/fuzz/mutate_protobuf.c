/* Mutations that keep a protobuf message well formed, so that they reach behind the framing: a field of a random message
 * of the tree is dropped, doubled, moved or changed, and the lengths around it follow. One mutation in eight is of bytes. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { MAX_DEPTH = 24, VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, VARINT_MOST = 10 };

struct field {
    const unsigned char *start, *payload, *end; /* payload: behind tag and length */
    int wire;
};

struct out {
    unsigned char *at, *end;
    bool full;
};

size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t size, size_t most, unsigned seed);

static unsigned pick(unsigned *seed, size_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)((*seed >> 8) % n);
}

static const unsigned char *take_varint(const unsigned char *at, const unsigned char *end, uint64_t *value) {
    *value = 0;
    for (int i = 0; at < end && i < VARINT_MOST; i++) {
        *value |= (uint64_t)(*at & 0x7f) << (7 * i < 63 ? 7 * i : 63);
        if (!(*at++ & 0x80)) return at;
    }
    return NULL;
}

static size_t put_varint(unsigned char *to, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) to[n++] = (unsigned char)(value | 0x80);
    to[n++] = (unsigned char)value;
    return n;
}

static bool take_field(const unsigned char *at, const unsigned char *end, struct field *field) {
    uint64_t tag, value;
    field->start = at;
    if (!(at = take_varint(at, end, &tag)) || tag < 8) return false;
    field->wire = (int)(tag & 7);
    field->payload = at;
    if (field->wire == VARINT) {
        at = take_varint(at, end, &value);
    } else if (field->wire == BYTES) {
        at = take_varint(at, end, &value);
        field->payload = at;
        at = at && value <= (uint64_t)(end - at) ? at + value : NULL;
    } else if (field->wire == FIXED32 || field->wire == FIXED64) {
        at += field->wire == FIXED32 ? 4 : 8;
        if (at > end) at = NULL;
    } else
        return false;
    field->end = at;
    return at != NULL;
}

/* How many fields a message has; 0 if the bytes are none, or empty. */
static int count_fields(const unsigned char *at, const unsigned char *end) {
    struct field field;
    int n = 0;
    for (; at < end; at = field.end, n++)
        if (!take_field(at, end, &field)) return 0;
    return n;
}

/* The i-th field of a message that has it. */
static struct field nth_field(const unsigned char *at, const unsigned char *end, int i) {
    struct field field = {0};
    for (; i >= 0 && take_field(at, end, &field); i--) at = field.end;
    return field;
}

static void put(struct out *out, const void *bytes, size_t n) {
    if ((size_t)(out->end - out->at) < n)
        out->full = true;
    else if (n)
        memcpy(out->at, bytes, n), out->at += n;
}

/* A field again with another payload; its tag bytes are kept. */
static void put_payload(struct out *out, const struct field *field, const unsigned char *payload, size_t n) {
    unsigned char tag[VARINT_MOST], length[VARINT_MOST];
    uint64_t value;
    take_varint(field->start, field->payload, &value);
    put(out, tag, put_varint(tag, value));
    if (field->wire == BYTES) put(out, length, put_varint(length, n));
    put(out, payload, n);
}

static void put_changed_number(struct out *out, const struct field *field, unsigned *seed) {
    static const int64_t values[] = {0,         1,         -1,        2,         3,         4,        7,
                                     8,         9,         16,        64,        99,        -2,       255,
                                     INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 62};
    unsigned char bytes[VARINT_MOST + 8];
    uint64_t value = (uint64_t)values[pick(seed, sizeof values / sizeof *values)];
    if (field->wire == VARINT) {
        uint64_t old;
        take_varint(field->payload, field->end, &old);
        if (pick(seed, 2)) value = old + pick(seed, 5) - 2;
        put_payload(out, field, bytes, put_varint(bytes, value));
    } else {
        memcpy(bytes, &value, 8);
        put_payload(out, field, bytes, field->wire == FIXED32 ? 4 : 8);
    }
}

static void put_changed_bytes(struct out *out, const struct field *field) {
    size_t n = (size_t)(field->end - field->payload), most = n + 64;
    unsigned char *copy = malloc(most);
    fuzz_check(copy != NULL);
    if (n) memcpy(copy, field->payload, n);
    put_payload(out, field, copy, LLVMFuzzerMutate(copy, n, most));
    free(copy);
}

static void put_other_number(struct out *out, const struct field *field, unsigned *seed) {
    unsigned char tag[VARINT_MOST];
    uint64_t value;
    const unsigned char *behind = take_varint(field->start, field->end, &value);
    put(out, tag, put_varint(tag, ((uint64_t)(1 + pick(seed, 26)) << 3) | (value & 7)));
    put(out, behind, (size_t)(field->end - behind));
}

static bool put_mutated(struct out *out, const unsigned char *at, const unsigned char *end, unsigned *seed,
                        int depth);

static void put_changed(struct out *out, const struct field *field, unsigned *seed, int depth) {
    if (field->wire != BYTES) {
        put_changed_number(out, field, seed);
        return;
    }
    size_t room = (size_t)(out->end - out->at);
    unsigned char *inner = malloc(room + 1);
    fuzz_check(inner != NULL);
    struct out below = {inner, inner + room, false};
    if (pick(seed, 8) && depth < MAX_DEPTH && put_mutated(&below, field->payload, field->end, seed, depth + 1))
        put_payload(out, field, inner, (size_t)(below.at - inner));
    else
        put_changed_bytes(out, field);
    free(inner);
}

/* The message with one change; false if the bytes are no message. */
static bool put_mutated(struct out *out, const unsigned char *at, const unsigned char *end, unsigned *seed,
                        int depth) {
    int n = count_fields(at, end);
    int chosen = n ? (int)pick(seed, (size_t)n) : 0, other = n ? (int)pick(seed, (size_t)n) : 0;
    unsigned kind = pick(seed, 24);
    struct field field, twin = nth_field(at, end, other);
    for (int i = 0; i < n; i++, at = field.end) {
        take_field(at, end, &field);
        if (i == chosen && kind == 0) continue; /* dropped */
        if (i == chosen && kind == 1) put(out, twin.start, (size_t)(twin.end - twin.start));
        if (i == chosen && kind == 2)
            put_other_number(out, &field, seed);
        else if (i == chosen && kind > 2)
            put_changed(out, &field, seed, depth);
        else
            put(out, field.start, (size_t)(field.end - field.start));
    }
    return n && !out->full;
}

size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t size, size_t most, unsigned seed) {
    if (pick(&seed, 8) == 0) return LLVMFuzzerMutate(data, size, most);
    unsigned char *copy = malloc(most);
    fuzz_check(copy != NULL);
    struct out out = {copy, copy + most, false};
    bool good = put_mutated(&out, data, data + size, &seed, 0);
    size_t made = (size_t)(out.at - copy);
    if (good) memcpy(data, copy, made);
    free(copy);
    return good ? made : LLVMFuzzerMutate(data, size, most);
}
