/* Mutations that keep a protobuf message well formed, so that they reach behind the framing. Either a field of a random
 * message of the tree is dropped, doubled, moved or changed; or a leaf gets the value of another leaf of the same kind
 * (the same field numbers from the root: a node's input becomes another name, an operator another operator, a size
 * another size). The lengths around it follow. One mutation in eight is of bytes. */
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
    static const int64_t values[] = {0,  1,  -1, 2,   3,         4,         7,         8,         9,         16,
                                     64, 99, -2, 255, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 62};
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

static bool put_mutated(struct out *out, const unsigned char *at, const unsigned char *end, unsigned *seed, int depth);

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

/* At the root mostly the largest field of a few: a model is its graph. */
static int choose_field(const unsigned char *at, const unsigned char *end, int n, unsigned *seed, int depth) {
    int chosen = (int)pick(seed, (size_t)n);
    for (int tries = depth ? 0 : 4; tries; tries--) {
        int other = (int)pick(seed, (size_t)n);
        struct field a = nth_field(at, end, chosen), b = nth_field(at, end, other);
        if (b.end - b.start > a.end - a.start) chosen = other;
    }
    return chosen;
}

/* The message with one change; false if the bytes are no message. */
static bool put_mutated(struct out *out, const unsigned char *at, const unsigned char *end, unsigned *seed, int depth) {
    int n = count_fields(at, end);
    int chosen = n ? choose_field(at, end, n, seed, depth) : 0, other = n ? (int)pick(seed, (size_t)n) : 0;
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

/* A leaf of the tree: a number, or bytes that are a name or no message. */
struct leaf {
    int depth, index[MAX_DEPTH]; /* which field, at every level from the root */
    uint64_t kind;               /* the field numbers on the way, as one number */
    struct field field;
};

/* What a walk over all leaves looks for: one of a kind, each with the same chance. */
struct search {
    uint64_t kind; /* 0: any */
    int found;
    unsigned *seed;
    struct leaf here, chosen;
};

static bool is_name(const struct field *field) {
    for (const unsigned char *at = field->payload; at < field->end; at++)
        if (*at < 0x20 || *at > 0x7e) return false;
    return true;
}

static void search_leaves(struct search *search, const unsigned char *at, const unsigned char *end) {
    struct leaf *here = &search->here;
    const uint64_t kind = here->kind;
    struct field field;
    uint64_t tag;
    for (int i = 0; at < end && here->depth < MAX_DEPTH && take_field(at, end, &field); i++, at = field.end) {
        take_varint(field.start, field.end, &tag);
        here->kind = kind * 0x100000001b3u + tag;
        here->index[here->depth++] = i;
        here->field = field;
        if (field.wire == BYTES && !is_name(&field) && count_fields(field.payload, field.end))
            search_leaves(search, field.payload, field.end);
        else if ((!search->kind || search->kind == here->kind) && pick(search->seed, (size_t)++search->found) == 0)
            search->chosen = *here;
        here->depth--;
    }
    here->kind = kind;
}

/* The message with `leaf`, which lies in it from level `depth` on, replaced by the value of `other`. */
static void put_replaced(struct out *out, const unsigned char *at, const unsigned char *end, const struct leaf *leaf,
                         const struct leaf *other, int depth) {
    struct field field;
    for (int i = 0; at < end && take_field(at, end, &field); i++, at = field.end) {
        if (i != leaf->index[depth]) {
            put(out, field.start, (size_t)(field.end - field.start));
        } else if (depth + 1 == leaf->depth) {
            put_payload(out, &field, other->field.payload, (size_t)(other->field.end - other->field.payload));
        } else {
            size_t room = (size_t)(out->end - out->at);
            unsigned char *inner = malloc(room + 1);
            fuzz_check(inner != NULL);
            struct out below = {inner, inner + room, false};
            put_replaced(&below, field.payload, field.end, leaf, other, depth + 1);
            out->full |= below.full;
            put_payload(out, &field, inner, (size_t)(below.at - inner));
            free(inner);
        }
    }
}

/* False if there is nothing to exchange. */
static bool put_exchanged(struct out *out, const unsigned char *at, const unsigned char *end, unsigned *seed) {
    struct search any = {.seed = seed}, alike = {.seed = seed};
    search_leaves(&any, at, end);
    if (!any.found) return false;
    alike.kind = any.chosen.kind;
    search_leaves(&alike, at, end);
    if (alike.found) put_replaced(out, at, end, &any.chosen, &alike.chosen, 0);
    return alike.found && !out->full;
}

size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t size, size_t most, unsigned seed) {
    unsigned kind = pick(&seed, 8);
    if (kind == 0) return LLVMFuzzerMutate(data, size, most);
    unsigned char *copy = malloc(most);
    fuzz_check(copy != NULL);
    struct out out = {copy, copy + most, false};
    bool good =
        kind < 5 ? put_exchanged(&out, data, data + size, &seed) : put_mutated(&out, data, data + size, &seed, 0);
    size_t made = (size_t)(out.at - copy);
    if (good) memcpy(data, copy, made);
    free(copy);
    return good ? made : LLVMFuzzerMutate(data, size, most);
}
