#include "frontend/read/onnx_scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/str.h"

enum {
    FRAMES = 3 * ONNX_SUBGRAPHS + 16, /* graph, node, attribute, graph, ...; then a tensor or a type */
    LENGTH_BYTES = 5,                 /* of a message in the slim copy: a varint of fixed width, patched afterwards */
    PRIVATE_FIELD = 1000,             /* TensorProto.first_span and up */
    VARINT_BYTES = 10,
    MEMORY_BASE = 64 << 20, /* of the tree: this plus MEMORY_FACTOR times the bytes that are not tensor data, */
    MEMORY_FACTOR = 16,
    MEMORY_LIMIT = 384 << 20 /* and never more than this */
};

enum wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_GROUP, WIRE_END, WIRE_32 };

/* The data fields of TensorProto: float, int32, int64, raw, double, uint64. */
#define DATA_FIELDS (1u << 4 | 1u << 5 | 1u << 7 | 1u << 9 | 1u << 10 | 1u << 11)

/* A message that is being scanned. */
struct frame {
    const ProtobufCMessageDescriptor *type;
    const char *name;       /* of the field that holds it; NULL: the model */
    int index;              /* among the parent's elements of a repeated field, -1: not repeated */
    uint64_t end;           /* offset of its last byte + 1 */
    uint64_t seen;          /* bit: number of a field that occurred */
    size_t length_at;       /* where its length goes in the slim copy */
    int fields, counts[32]; /* fields kept; messages so far by field number */
    int first_span;
};

struct scanner {
    struct arena *arena;
    struct diags *diags;
    const char *place;
    struct scan_source *source;
    struct onnx_slim *slim;
    struct onnx_spans *spans;
    uint64_t at;            /* offset of the next byte */
    uint64_t cost, payload; /* bytes of memory the tree takes so far; bytes of tensor data so far */
    int nodes, tensors, subgraphs;
    struct frame *frames;
    int depth;
};

/* A field: where its tag starts, and what onnx.proto knows of it. */
struct item {
    uint64_t at;
    uint64_t number;
    enum wire wire;
    const ProtobufCFieldDescriptor *field; /* NULL: not one that rankc reads */
};

const unsigned char *scan_peek(struct scan_source *source, uint64_t at, size_t want, size_t *got) {
    *got = 0;
    if (at >= source->size) return NULL;
    if (want > source->size - at) want = (size_t)(source->size - at);
    *got = want;
    if (source->bytes) return source->bytes + at;
    bool inside = at >= source->window_at && at - source->window_at + want <= source->window_bytes;
    if (!inside) {
        ssize_t n = pread(source->fd, source->window, SCAN_WINDOW, (off_t)at);
        source->window_at = at;
        source->window_bytes = n > 0 ? (size_t)n : 0;
        if (source->window_bytes < want) return *got = 0, NULL;
    }
    return source->window + (at - source->window_at);
}

/* ---- what else the file may be ---- */

static bool starts_with(struct scan_source *source, const char *magic, size_t bytes) {
    size_t got;
    const unsigned char *head = scan_peek(source, 0, bytes, &got);
    return head && got == bytes && memcmp(head, magic, bytes) == 0;
}

static bool is_safetensors(struct scan_source *source) {
    size_t got;
    const unsigned char *head = scan_peek(source, 0, 10, &got);
    return head && got == 10 && head[6] == 0 && head[7] == 0 && head[8] == '{' && (head[9] == '"' || head[9] == '}');
}

static bool is_saved_model(struct scan_source *source) { /* schema version 1, MetaGraphDef{MetaInfoDef ... */
    size_t got;
    const unsigned char *head = scan_peek(source, 0, 9, &got);
    if (!head || memcmp(head, "\x08\x01\x12", got < 3 ? got : 3) != 0) return false;
    size_t i = 3;
    while (i < got && head[i] & 0x80) i++;
    return i + 1 < got && head[i + 1] == 0x0a;
}

static bool is_text(struct scan_source *source, const unsigned char **text, size_t *got) {
    *text = scan_peek(source, 0, 512, got);
    for (size_t i = 0; i < *got; i++) {
        unsigned char c = (*text)[i];
        if ((c < 0x20 || c > 0x7e) && c != '\n' && c != '\r' && c != '\t') return false;
    }
    return *text && *got > 0;
}

static bool is_text_onnx(const unsigned char *text, size_t bytes) {
    return memmem(text, bytes, "ir_version", 10) || memmem(text, bytes, "irVersion", 9);
}

static const struct {
    const char *magic;
    size_t bytes;
    const char *kind;
} kinds[] = {{"\x89PNG", 4, "a PNG image"},
             {"\x7f"
              "ELF",
              4, "an ELF program"},
             {"PK\x03\x04", 4, "a zip archive, such as a PyTorch checkpoint"},
             {"GGUF", 4, "a GGUF model"},
             {"\x1f\x8b", 2, "gzip data"},
             {"\x89HDF", 4, "an HDF5 file"},
             {"\x93NUMPY", 6, "a NumPy array"},
             {"\x80\x02", 2, "a Python pickle"},
             {"\xff\xd8\xff", 3, "a JPEG image"}};

/* What a file that is no ONNX model looks like, or NULL. */
static const char *looks_like(struct scan_source *source) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (starts_with(source, kinds[i].magic, kinds[i].bytes)) return kinds[i].kind;
    if (is_safetensors(source)) return "a safetensors file";
    if (is_saved_model(source)) return "a TensorFlow SavedModel";
    const unsigned char *text;
    size_t got;
    return is_text(source, &text, &got) ? "text" : NULL;
}

static bool reported_as_other_kind(struct scanner *s) {
    const unsigned char *text;
    size_t got;
    const char *kind = looks_like(s->source);
    if (!kind) return false;
    if (is_text(s->source, &text, &got) && is_text_onnx(text, got)) {
        diag_error(s->diags, 302, EXIT_MALFORMED, s->place, "text ONNX is not supported");
        diag_help(s->diags, "save the model in the binary format (onnx.save with a .onnx name)");
    } else
        diag_error(s->diags, 302, EXIT_MALFORMED, s->place, "not an ONNX model (looks like %s)", kind);
    return true;
}

/* ---- errors ---- */

/* "model.onnx: byte 123 (graph.node[17].attribute[0])" */
static const char *where(struct scanner *s, uint64_t at) {
    struct strbuf text;
    strbuf_init(&text, s->arena);
    strbuf_printf(&text, "%s: byte %" PRIu64, s->place, at);
    for (int i = 1; i < s->depth && i < 12; i++) {
        strbuf_printf(&text, "%s%s", i == 1 ? " (" : ".", s->frames[i].name);
        if (s->frames[i].index >= 0) strbuf_printf(&text, "[%d]", s->frames[i].index);
    }
    if (s->depth > 12) strbuf_puts(&text, "...");
    if (s->depth > 1) strbuf_putc(&text, ')');
    return strbuf_text(&text);
}

static int fail(struct scanner *s, int code, enum exit_code exit, uint64_t at, const char *text) {
    if (exit == EXIT_MALFORMED && reported_as_other_kind(s)) return -1;
    return diag_error(s->diags, code, exit, where(s, at), "%s", text);
}

static int fail_format(struct scanner *s, uint64_t at, const char *what) {
    return fail(s, 302, EXIT_MALFORMED, at, arena_printf(s->arena, "not an ONNX model: %s at byte %" PRIu64, what, at));
}

static int fail_cut(struct scanner *s, const struct item *item, uint64_t needs, uint64_t remain) {
    return fail(s, 303, EXIT_MALFORMED, item->at,
                arena_printf(s->arena,
                             "truncated: field %" PRIu64 " at byte %" PRIu64 " needs %" PRIu64 " bytes, %" PRIu64
                             " remain",
                             item->number, item->at, needs, remain));
}

static int fail_changed(struct scanner *s) {
    return diag_error(s->diags, 604, EXIT_SYSTEM, s->place, "file changed while reading");
}

/* Accounts for memory that the tree will take. */
static int charge(struct scanner *s, uint64_t bytes) {
    s->cost += bytes;
    uint64_t limit = MEMORY_BASE + MEMORY_FACTOR * (s->at - s->payload);
    if (limit > MEMORY_LIMIT) limit = MEMORY_LIMIT;
    if (s->cost <= limit) return 0;
    return fail(s, 502, EXIT_LIMIT, s->at,
                arena_printf(s->arena, "the model's structure needs more than %" PRIu64 " MiB of memory", limit >> 20));
}

/* ---- the slim copy ---- */

static int reserve(struct scanner *s, size_t more) {
    struct onnx_slim *out = s->slim;
    if (more <= out->capacity - out->length) return 0;
    size_t capacity = out->capacity ? out->capacity * 2 : 1 << 14;
    while (capacity < out->length + more) capacity *= 2;
    unsigned char *bytes = realloc(out->bytes, capacity);
    if (!bytes) return diag_error(s->diags, 500, EXIT_LIMIT, s->place, "out of memory");
    out->bytes = bytes;
    out->capacity = capacity;
    return 0;
}

static void put_byte(struct scanner *s, unsigned byte) {
    s->slim->bytes[s->slim->length++] = (unsigned char)byte;
}

/* The caller has reserved the room: 10 bytes. */
static void put_varint(struct scanner *s, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put_byte(s, (unsigned)value | 0x80);
    put_byte(s, (unsigned)value);
}

static void put_tag(struct scanner *s, uint32_t number, enum wire wire) {
    put_varint(s, (uint64_t)number << 3 | wire);
}

static void put_length(unsigned char *to, size_t length) {
    for (int i = 0; i < LENGTH_BYTES; i++) to[i] = (unsigned char)((length >> 7 * i & 0x7f) | (i < 4 ? 0x80 : 0));
}

/* Copies `length` bytes of the file; they are within it. */
static int put_from_file(struct scanner *s, uint64_t length) {
    if (reserve(s, (size_t)length)) return -1;
    for (uint64_t left = length; left;) {
        size_t got;
        const unsigned char *bytes = scan_peek(s->source, s->at, left < SCAN_WINDOW ? (size_t)left : SCAN_WINDOW, &got);
        if (!bytes) return fail_changed(s);
        memcpy(s->slim->bytes + s->slim->length, bytes, got);
        s->slim->length += got;
        s->at += got;
        left -= got;
    }
    return 0;
}

/* ---- primitive values ---- */

static struct frame *top_of(struct scanner *s) {
    return &s->frames[s->depth - 1];
}

enum varint_status { VARINT_OK, VARINT_CUT, VARINT_LONG, VARINT_CHANGED };

/* A varint that ends within the message on top. */
static enum varint_status next_varint(struct scanner *s, uint64_t *value) {
    size_t got;
    uint64_t remain = top_of(s)->end - s->at;
    if (!remain) return VARINT_CUT;
    const unsigned char *bytes =
        scan_peek(s->source, s->at, remain < VARINT_BYTES ? (size_t)remain : VARINT_BYTES, &got);
    if (!bytes) return VARINT_CHANGED;
    *value = 0;
    for (size_t i = 0; i < got; i++) {
        *value |= (uint64_t)(bytes[i] & 0x7f) << 7 * i;
        if (bytes[i] & 0x80) continue;
        s->at += i + 1;
        return VARINT_OK;
    }
    return got == VARINT_BYTES ? VARINT_LONG : VARINT_CUT;
}

/* The varint that belongs to `item`: its value or its length. */
static int item_varint(struct scanner *s, const struct item *item, uint64_t *value) {
    enum varint_status status = next_varint(s, value);
    if (status == VARINT_OK) return 0;
    if (status == VARINT_CHANGED) return fail_changed(s);
    if (status == VARINT_LONG) return fail_format(s, s->at, "a varint of more than 10 bytes");
    uint64_t remain = top_of(s)->end - s->at;
    return fail_cut(s, item, remain + 1, remain);
}

static int item_length(struct scanner *s, const struct item *item, uint64_t *length) {
    if (item_varint(s, item, length)) return -1;
    uint64_t remain = top_of(s)->end - s->at;
    return *length <= remain ? 0 : fail_cut(s, item, *length, remain);
}

static int skip_fixed(struct scanner *s, const struct item *item, unsigned bytes) {
    uint64_t remain = top_of(s)->end - s->at;
    if (bytes > remain) return fail_cut(s, item, bytes, remain);
    s->at += bytes;
    return 0;
}

/* Steps over a value of any wire type. */
static int skip_value(struct scanner *s, const struct item *item) {
    uint64_t value;
    switch (item->wire) {
    case WIRE_VARINT: return item_varint(s, item, &value);
    case WIRE_64: return skip_fixed(s, item, 8);
    case WIRE_32: return skip_fixed(s, item, 4);
    case WIRE_BYTES:
        if (item_length(s, item, &value)) return -1;
        s->at += value;
        return 0;
    default: return fail_format(s, item->at, "bad protobuf tag");
    }
}

/* ---- fields that are kept ---- */

static const enum wire wire_of[] = {[PROTOBUF_C_TYPE_INT32] = WIRE_VARINT,  [PROTOBUF_C_TYPE_INT64] = WIRE_VARINT,
                                    [PROTOBUF_C_TYPE_UINT32] = WIRE_VARINT, [PROTOBUF_C_TYPE_UINT64] = WIRE_VARINT,
                                    [PROTOBUF_C_TYPE_ENUM] = WIRE_VARINT,   [PROTOBUF_C_TYPE_FLOAT] = WIRE_32,
                                    [PROTOBUF_C_TYPE_DOUBLE] = WIRE_64,     [PROTOBUF_C_TYPE_STRING] = WIRE_BYTES,
                                    [PROTOBUF_C_TYPE_BYTES] = WIRE_BYTES,   [PROTOBUF_C_TYPE_MESSAGE] = WIRE_BYTES};

static int take_scalar(struct scanner *s, const struct item *item) {
    uint64_t start = s->at, value = 0;
    if (reserve(s, 3 * VARINT_BYTES) || charge(s, 8)) return -1;
    put_tag(s, item->field->id, item->wire);
    if (item->wire != WIRE_VARINT) {
        if (skip_value(s, item)) return -1;
        uint64_t length = s->at - start;
        s->at = start;
        return put_from_file(s, length);
    }
    if (item_varint(s, item, &value)) return -1;
    put_varint(s, value);
    return 0;
}

/* Copies a length-delimited field; *bytes is its content in the slim copy. */
static int take_bytes(struct scanner *s, const struct item *item, const unsigned char **bytes, uint64_t *length) {
    if (item_length(s, item, length) || charge(s, 32 + *length) || reserve(s, 3 * VARINT_BYTES)) return -1;
    put_tag(s, item->field->id, WIRE_BYTES);
    put_varint(s, *length);
    if (put_from_file(s, *length)) return -1;
    *bytes = s->slim->bytes + s->slim->length - *length;
    return 0;
}

static int take_string(struct scanner *s, const struct item *item) {
    const unsigned char *bytes;
    uint64_t length;
    if (take_bytes(s, item, &bytes, &length)) return -1;
    if (item->field->type != PROTOBUF_C_TYPE_STRING || !memchr(bytes, 0, (size_t)length)) return 0;
    bool external = s->depth > 1 && top_of(s)->name && strcmp(top_of(s)->name, "external_data") == 0;
    return fail(
        s, external ? 364 : 338, EXIT_MALFORMED, item->at,
        arena_printf(s->arena, "%s contains a NUL byte", external ? "external data location" : item->field->name));
}

/* The elements of a packed run of varints, -1 if it is not one. */
static int64_t packed_count(const unsigned char *bytes, uint64_t length) {
    int64_t count = 0;
    int run = 0;
    for (uint64_t i = 0; i < length; i++) {
        if (++run > VARINT_BYTES) return -1;
        if (!(bytes[i] & 0x80)) count++, run = 0;
    }
    return run ? -1 : count;
}

static int take_packed(struct scanner *s, const struct item *item) {
    const unsigned char *bytes;
    uint64_t length;
    if (take_bytes(s, item, &bytes, &length)) return -1;
    enum wire wire = wire_of[item->field->type];
    if (wire == WIRE_VARINT) {
        int64_t count = packed_count(bytes, length);
        return count < 0 ? fail_format(s, item->at, "bad packed field") : charge(s, 8 * (uint64_t)count);
    }
    return length % (wire == WIRE_32 ? 4 : 8) ? fail_format(s, item->at, "bad packed field") : 0;
}

/* Tensor data: stays in the file, and is noted. Elements that follow each other form one span. */
static int take_data(struct scanner *s, const struct item *item) {
    uint64_t start = item->at, length;
    bool tagged = item->wire != WIRE_BYTES;
    if (tagged ? skip_value(s, item) : item_length(s, item, &length)) return -1;
    if (tagged)
        length = s->at - start;
    else {
        start = s->at;
        s->at += length;
    }
    s->payload += length;
    struct onnx_span *last = s->spans->all.n > top_of(s)->first_span ? &s->spans->all.at[s->spans->all.n - 1] : NULL;
    if (tagged && last && last->tagged && last->field == item->field->id && last->offset + last->bytes == start) {
        last->bytes += length;
        return 0;
    }
    if (charge(s, 2 * sizeof *last)) return -1;
    VEC_PUSH(s->arena, &s->spans->all, (struct onnx_span){start, length, item->field->id, tagged});
    return 0;
}

/* ---- messages ---- */

static int count_message(struct scanner *s, const ProtobufCMessageDescriptor *type, uint64_t at) {
    if (type == &onnx__node_proto__descriptor && ++s->nodes > ONNX_NODES)
        return fail(s, 504, EXIT_LIMIT, at, arena_printf(s->arena, "more than %d nodes", ONNX_NODES));
    if (type == &onnx__tensor_proto__descriptor && ++s->tensors > ONNX_TENSORS)
        return fail(s, 502, EXIT_LIMIT, at, arena_printf(s->arena, "more than %d tensors", ONNX_TENSORS));
    bool nested = type == &onnx__graph_proto__descriptor && s->depth > 1;
    if ((nested && s->subgraphs >= ONNX_SUBGRAPHS) || s->depth == FRAMES)
        return fail(s, 501, EXIT_LIMIT, at,
                    nested ? arena_printf(s->arena, "subgraph nesting deeper than %d", ONNX_SUBGRAPHS)
                           : arena_printf(s->arena, "messages nested deeper than %d", FRAMES));
    s->subgraphs += nested;
    return charge(s, type->sizeof_message + 32);
}

static int push_message(struct scanner *s, const struct item *item) {
    uint64_t length;
    const ProtobufCFieldDescriptor *field = item->field;
    struct frame *parent = top_of(s);
    bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
    if (!repeated && parent->seen >> field->id & 1)
        return fail(s, 321, EXIT_MALFORMED, item->at, arena_printf(s->arena, "%s is given twice", field->name));
    if (item_length(s, item, &length) || count_message(s, field->descriptor, item->at)) return -1;
    if (reserve(s, 2 * VARINT_BYTES)) return -1;
    put_tag(s, field->id, WIRE_BYTES);
    s->frames[s->depth++] = (struct frame){.type = field->descriptor,
                                           .name = field->name,
                                           .index = repeated ? parent->counts[field->id & 31]++ : -1,
                                           .end = s->at + length,
                                           .length_at = s->slim->length,
                                           .first_span = s->spans->all.n};
    s->slim->length += LENGTH_BYTES;
    return 0;
}

static int finish_tensor(struct scanner *s) {
    if (reserve(s, 4 * VARINT_BYTES)) return -1;
    int first = top_of(s)->first_span;
    if (s->spans->all.n == first) return 0;
    put_tag(s, PRIVATE_FIELD, WIRE_VARINT);
    put_varint(s, (uint64_t)first);
    put_tag(s, PRIVATE_FIELD + 1, WIRE_VARINT);
    put_varint(s, (uint64_t)(s->spans->all.n - first));
    return 0;
}

static int pop_message(struct scanner *s) {
    const struct frame *top = top_of(s);
    if (top->type == &onnx__tensor_proto__descriptor && finish_tensor(s)) return -1;
    if (top->type == &onnx__node_proto__descriptor && !(top->seen >> 4 & 1))
        return fail(s, 311, EXIT_MALFORMED, s->at, arena_printf(s->arena, "node #%d has no op_type", top->index));
    if (s->depth == 1) return 0;
    if (top->type == &onnx__graph_proto__descriptor && s->depth > 2) s->subgraphs--;
    put_length(s->slim->bytes + top->length_at, s->slim->length - top->length_at - LENGTH_BYTES);
    s->depth--;
    return 0;
}

/* ---- the walk ---- */

static int next_tag(struct scanner *s, struct item *item) {
    uint64_t tag;
    item->at = s->at;
    enum varint_status status = next_varint(s, &tag);
    if (status == VARINT_CHANGED) return fail_changed(s);
    if (status != VARINT_OK || tag >> 3 == 0 || tag >> 32) return fail_format(s, item->at, "bad protobuf tag");
    item->number = tag >> 3;
    item->wire = (enum wire)(tag & 7);
    item->field = item->number < PRIVATE_FIELD
                      ? protobuf_c_message_descriptor_get_field(top_of(s)->type, (unsigned)item->number)
                      : NULL;
    return 0;
}

static bool is_data(const struct frame *top, const struct item *item) {
    return top->type == &onnx__tensor_proto__descriptor && item->number < 32 && DATA_FIELDS >> item->number & 1;
}

static int scan_field(struct scanner *s) {
    struct item item = {0};
    struct frame *top = top_of(s);
    if (next_tag(s, &item)) return -1;
    if (!item.field) return skip_value(s, &item);
    enum wire wire = wire_of[item.field->type];
    bool packed = item.wire == WIRE_BYTES && wire != WIRE_BYTES && item.field->label == PROTOBUF_C_LABEL_REPEATED;
    if (item.wire != wire && !packed)
        return fail_format(s, item.at, arena_printf(s->arena, "wrong type of field %s", item.field->name));
    if (is_data(top, &item)) return take_data(s, &item);
    if (++top->fields > 16 && charge(s, 64)) return -1; /* protobuf-c's list of fields, beyond what its stack holds */
    int status = item.field->type == PROTOBUF_C_TYPE_MESSAGE ? push_message(s, &item)
                 : packed                                    ? take_packed(s, &item)
                 : wire == WIRE_BYTES                        ? take_string(s, &item)
                                                             : take_scalar(s, &item);
    top->seen |= 1ull << item.field->id;
    return status;
}

int onnx_scan(struct arena *arena, struct diags *diags, const char *place, struct scan_source *source,
              struct onnx_slim *slim, struct onnx_spans *spans) {
    struct scanner s = {.arena = arena, .diags = diags, .place = place, .source = source, .slim = slim, .spans = spans};
    s.frames = ARENA_ARRAY(arena, struct frame, FRAMES);
    s.frames[s.depth++] = (struct frame){.type = &onnx__model_proto__descriptor, .index = -1, .end = source->size};
    while (s.depth > 1 || s.at < source->size) {
        bool done = s.at == top_of(&s)->end;
        if (done ? pop_message(&s) : scan_field(&s)) return -1;
    }
    if (!(s.frames[0].seen >> 7 & 1)) return fail(&s, 311, EXIT_MALFORMED, s.at, "model has no graph");
    return 0;
}
