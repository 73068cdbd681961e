/* A protobuf message under construction, written field by field in the wire format. Messages nest by `put`. */
#ifndef TESTS_WIRE_H
#define TESTS_WIRE_H

#include <string.h>

#include "ir/base/vec.h"

struct wire {
    struct arena *arena;
    VEC(unsigned char) data;
};

static inline struct wire *wire_new(struct arena *arena) {
    struct wire *w = ARENA_NEW(arena, struct wire);
    w->arena = arena;
    return w;
}

static inline void put_bytes(struct wire *w, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) VEC_PUSH(w->arena, &w->data, ((const unsigned char *)bytes)[i]);
}

static inline void put_varint(struct wire *w, uint64_t value) {
    for (; value >= 0x80; value >>= 7) VEC_PUSH(w->arena, &w->data, (unsigned char)(value | 0x80));
    VEC_PUSH(w->arena, &w->data, (unsigned char)value);
}

static inline void put_int(struct wire *w, unsigned field, int64_t value) {
    put_varint(w, field << 3);
    put_varint(w, (uint64_t)value);
}

static inline void put_data(struct wire *w, unsigned field, const void *bytes, size_t count) {
    put_varint(w, field << 3 | 2);
    put_varint(w, count);
    put_bytes(w, bytes, count);
}

static inline void put_text(struct wire *w, unsigned field, const char *text) {
    put_data(w, field, text, strlen(text));
}

static inline void put(struct wire *w, unsigned field, const struct wire *inner) {
    put_data(w, field, inner->data.at, (size_t)inner->data.n);
}

static inline void put_float(struct wire *w, unsigned field, float value) {
    put_varint(w, field << 3 | 5);
    put_bytes(w, &value, sizeof value);
}

#endif
