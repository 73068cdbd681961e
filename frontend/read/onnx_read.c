#include "frontend/read/onnx_read.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/read/onnx_check.h"
#include "frontend/read/onnx_data.h"
#include "ir/base/str.h"

/* Scan of an ONNX file's wire format before protobuf-c unpacks it.
 *
 * protobuf-c 1.4.1 recurses without a limit, refuses messages over 2 GB, and may turn 2 bytes of a file into 260 bytes
 * of memory. The scan walks the file once with an explicit stack, driven by protobuf-c's descriptors of onnx.proto. It
 * checks every tag, length and wire type, bounds depth, counts and the memory that the tree will take, and writes a
 * stripped copy: the same messages without unknown fields and without tensor data. The place of every data field of a
 * tensor goes into the table of spans; the private fields first_span and span_count of a TensorProto in the copy name
 * its entries. */
enum { SCAN_WINDOW = 256 << 10 };

/* The bytes of a file: in memory, or read by pread into a window, so that no page of a mapping is touched. */
struct scan_source {
    const unsigned char *bytes; /* NULL: read fd */
    int fd;
    uint64_t size;
    unsigned char *window; /* of SCAN_WINDOW bytes */
    uint64_t window_at;
    size_t window_bytes;
};

enum {
    FRAMES = 3 * ONNX_SUBGRAPHS + 16, /* graph, node, attribute, graph, ...; then a tensor or a type */
    LENGTH_BYTES = 5,     /* of a message's length in the stripped copy: a varint of fixed width, written at its end */
    PRIVATE_FIELD = 1000, /* TensorProto.first_span and up */
    VARINT_BYTES = 10,
    MEMORY_BASE =
        64 << 20,       /* limit of the tree's memory: this plus MEMORY_FACTOR times the bytes that are not tensor */
    MEMORY_FACTOR = 16, /* data, and at most MEMORY_LIMIT */
    MEMORY_LIMIT = 384 << 20
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
    uint64_t seen;          /* bit n: field n has occurred */
    size_t length_at;       /* where its length goes in the stripped copy */
    int fields, counts[32]; /* fields kept so far; messages so far by field number */
    int first_span;         /* number of spans before it */
};

struct scanner {
    struct arena *arena;
    struct diags *diags;
    const char *place;
    struct scan_source *source;
    struct onnx_stripped *stripped;
    struct onnx_spans *spans;
    uint64_t at;            /* offset of the next byte */
    uint64_t cost, payload; /* so far: bytes of memory that the tree will take; bytes of tensor data */
    int nodes, tensors, subgraphs;
    struct frame *frames;
    int depth;
};

/* A field on the wire and its description in onnx.proto. */
struct item {
    uint64_t at; /* offset of its tag */
    uint64_t number;
    enum wire wire;
    const ProtobufCFieldDescriptor *field; /* NULL: not one that rankc reads */
};

/* A pointer to the bytes at offset `at`, valid until the next call. *got is the smaller of `want` (<= SCAN_WINDOW) and
 * the bytes up to the end. NULL at the end, or if the file has become shorter. */
static const unsigned char *scan_peek(struct scan_source *source, uint64_t at, size_t want, size_t *got) {
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

/* The format that a file other than an ONNX model seems to have, for the error; NULL: unknown. */
static const char *looks_like(struct scan_source *source) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (starts_with(source, kinds[i].magic, kinds[i].bytes)) return kinds[i].kind;
    if (is_safetensors(source)) return "a safetensors file";
    if (is_saved_model(source)) return "a TensorFlow SavedModel";
    const unsigned char *text;
    size_t got;
    return is_text(source, &text, &got) ? "text" : NULL;
}

static bool reported_as_other_kind(struct scanner *scanner) {
    const unsigned char *text;
    size_t got;
    const char *kind = looks_like(scanner->source);
    if (!kind) return false;
    if (is_text(scanner->source, &text, &got) &&
        (memmem(text, got, "ir_version", 10) || memmem(text, got, "irVersion", 9))) {
        diag_error(scanner->diags, 302, EXIT_MALFORMED, scanner->place, "text ONNX is not supported");
        diag_help(scanner->diags, "save the model in the binary format (onnx.save with a .onnx name)");
    } else
        diag_error(scanner->diags, 302, EXIT_MALFORMED, scanner->place, "not an ONNX model (looks like %s)", kind);
    return true;
}

/* "model.onnx: byte 123 (graph.node[17].attribute[0])" */
static const char *where(struct scanner *scanner, uint64_t at) {
    struct strbuf text = {.arena = scanner->arena};
    strbuf_printf(&text, "%s: byte %" PRIu64, scanner->place, at);
    for (int i = 1; i < scanner->depth && i < 12; i++) {
        strbuf_printf(&text, "%s%s", i == 1 ? " (" : ".", scanner->frames[i].name);
        if (scanner->frames[i].index >= 0) strbuf_printf(&text, "[%d]", scanner->frames[i].index);
    }
    if (scanner->depth > 12) strbuf_puts(&text, "...");
    if (scanner->depth > 1) strbuf_putc(&text, ')');
    return strbuf_text(&text);
}

__attribute__((format(printf, 4, 5))) static int fail(struct scanner *scanner, int code, uint64_t at,
                                                      const char *format, ...) {
    if (onnx_exit(code) == EXIT_MALFORMED && reported_as_other_kind(scanner)) return -1;
    const char *text;
    ARENA_PRINT_TO(text, scanner->arena, format);
    return diag_error(scanner->diags, code, onnx_exit(code), where(scanner, at), "%s", text);
}

static int fail_format(struct scanner *scanner, uint64_t at, const char *what) {
    return fail(scanner, 302, at, "not an ONNX model: %s at byte %" PRIu64, what, at);
}

static int fail_cut(struct scanner *scanner, const struct item *item, uint64_t needs, uint64_t remain) {
    return fail(scanner, 303, item->at,
                "truncated: field %" PRIu64 " at byte %" PRIu64 " needs %" PRIu64 " bytes, %" PRIu64 " remain",
                item->number, item->at, needs, remain);
}

static int fail_changed(struct scanner *scanner) {
    return diag_error(scanner->diags, 604, EXIT_SYSTEM, scanner->place, "file changed while reading");
}

/* Adds to the memory that the unpacked tree will take: 0, or -1 with E502 above the limit. */
static int charge(struct scanner *scanner, uint64_t bytes) {
    scanner->cost += bytes;
    uint64_t limit = MEMORY_BASE + MEMORY_FACTOR * (scanner->at - scanner->payload);
    if (limit > MEMORY_LIMIT) limit = MEMORY_LIMIT;
    if (scanner->cost <= limit) return 0;
    return fail(scanner, 502, scanner->at, "the model's structure needs more than %" PRIu64 " MiB of memory",
                limit >> 20);
}

static int reserve(struct scanner *scanner, size_t more) {
    struct onnx_stripped *out = scanner->stripped;
    if (more <= out->capacity - out->length) return 0;
    size_t capacity = out->capacity ? out->capacity * 2 : 1 << 14;
    while (capacity < out->length + more) capacity *= 2;
    unsigned char *bytes = realloc(out->bytes, capacity);
    if (!bytes) return diag_error(scanner->diags, 500, EXIT_LIMIT, scanner->place, "out of memory");
    out->bytes = bytes;
    out->capacity = capacity;
    return 0;
}

/* The caller has reserved VARINT_BYTES. */
static void put_varint(struct scanner *scanner, uint64_t value) {
    struct onnx_stripped *out = scanner->stripped;
    for (; value >= 0x80; value >>= 7) out->bytes[out->length++] = (unsigned char)(value | 0x80);
    out->bytes[out->length++] = (unsigned char)value;
}

static void put_tag(struct scanner *scanner, uint32_t number, enum wire wire) {
    put_varint(scanner, (uint64_t)number << 3 | wire);
}

static void put_length(unsigned char *to, size_t length) {
    for (int i = 0; i < LENGTH_BYTES; i++) to[i] = (unsigned char)((length >> 7 * i & 0x7f) | (i < 4 ? 0x80 : 0));
}

/* Copies `length` bytes, which must not go beyond the end of the file, to the stripped copy. */
static int put_from_file(struct scanner *scanner, uint64_t length) {
    if (reserve(scanner, (size_t)length)) return -1;
    for (uint64_t left = length; left;) {
        size_t got;
        const unsigned char *bytes =
            scan_peek(scanner->source, scanner->at, left < SCAN_WINDOW ? (size_t)left : SCAN_WINDOW, &got);
        if (!bytes) return fail_changed(scanner);
        memcpy(scanner->stripped->bytes + scanner->stripped->length, bytes, got);
        scanner->stripped->length += got;
        scanner->at += got;
        left -= got;
    }
    return 0;
}

static struct frame *top_of(struct scanner *scanner) {
    return &scanner->frames[scanner->depth - 1];
}

enum varint_status { VARINT_OK, VARINT_CUT, VARINT_LONG, VARINT_CHANGED };

/* Reads a varint that must end within the innermost message. */
static enum varint_status next_varint(struct scanner *scanner, uint64_t *value) {
    size_t got;
    uint64_t remain = top_of(scanner)->end - scanner->at;
    if (!remain) return VARINT_CUT;
    const unsigned char *bytes =
        scan_peek(scanner->source, scanner->at, remain < VARINT_BYTES ? (size_t)remain : VARINT_BYTES, &got);
    if (!bytes) return VARINT_CHANGED;
    *value = 0;
    for (size_t i = 0; i < got; i++) {
        *value |= (uint64_t)(bytes[i] & 0x7f) << 7 * i;
        if (bytes[i] & 0x80) continue;
        scanner->at += i + 1;
        return VARINT_OK;
    }
    return got == VARINT_BYTES ? VARINT_LONG : VARINT_CUT;
}

/* Reads the varint after the tag of `item`: its value or its length. */
static int item_varint(struct scanner *scanner, const struct item *item, uint64_t *value) {
    enum varint_status status = next_varint(scanner, value);
    if (status == VARINT_OK) return 0;
    if (status == VARINT_CHANGED) return fail_changed(scanner);
    if (status == VARINT_LONG) return fail_format(scanner, scanner->at, "a varint of more than 10 bytes");
    uint64_t remain = top_of(scanner)->end - scanner->at;
    return fail_cut(scanner, item, remain + 1, remain);
}

static int item_length(struct scanner *scanner, const struct item *item, uint64_t *length) {
    if (item_varint(scanner, item, length)) return -1;
    uint64_t remain = top_of(scanner)->end - scanner->at;
    return *length <= remain ? 0 : fail_cut(scanner, item, *length, remain);
}

static int skip_fixed(struct scanner *scanner, const struct item *item, unsigned bytes) {
    uint64_t remain = top_of(scanner)->end - scanner->at;
    if (bytes > remain) return fail_cut(scanner, item, bytes, remain);
    scanner->at += bytes;
    return 0;
}

/* Skips a value of any wire type. */
static int skip_value(struct scanner *scanner, const struct item *item) {
    uint64_t value;
    switch (item->wire) {
    case WIRE_VARINT: return item_varint(scanner, item, &value);
    case WIRE_64: return skip_fixed(scanner, item, 8);
    case WIRE_32: return skip_fixed(scanner, item, 4);
    case WIRE_BYTES:
        if (item_length(scanner, item, &value)) return -1;
        scanner->at += value;
        return 0;
    default: return fail_format(scanner, item->at, "bad protobuf tag");
    }
}

static const enum wire wire_of[] = {[PROTOBUF_C_TYPE_INT32] = WIRE_VARINT,  [PROTOBUF_C_TYPE_INT64] = WIRE_VARINT,
                                    [PROTOBUF_C_TYPE_UINT32] = WIRE_VARINT, [PROTOBUF_C_TYPE_UINT64] = WIRE_VARINT,
                                    [PROTOBUF_C_TYPE_ENUM] = WIRE_VARINT,   [PROTOBUF_C_TYPE_FLOAT] = WIRE_32,
                                    [PROTOBUF_C_TYPE_DOUBLE] = WIRE_64,     [PROTOBUF_C_TYPE_STRING] = WIRE_BYTES,
                                    [PROTOBUF_C_TYPE_BYTES] = WIRE_BYTES,   [PROTOBUF_C_TYPE_MESSAGE] = WIRE_BYTES};

static int take_scalar(struct scanner *scanner, const struct item *item) {
    uint64_t start = scanner->at, value = 0;
    if (reserve(scanner, 3 * VARINT_BYTES) || charge(scanner, 8)) return -1;
    put_tag(scanner, item->field->id, item->wire);
    if (item->wire != WIRE_VARINT) {
        if (skip_value(scanner, item)) return -1;
        uint64_t length = scanner->at - start;
        scanner->at = start;
        return put_from_file(scanner, length);
    }
    if (item_varint(scanner, item, &value)) return -1;
    put_varint(scanner, value);
    return 0;
}

/* Copies a length-delimited field; *bytes is its content in the stripped copy. */
static int take_bytes(struct scanner *scanner, const struct item *item, const unsigned char **bytes, uint64_t *length) {
    if (item_length(scanner, item, length) || charge(scanner, 32 + *length) || reserve(scanner, 3 * VARINT_BYTES))
        return -1;
    put_tag(scanner, item->field->id, WIRE_BYTES);
    put_varint(scanner, *length);
    if (put_from_file(scanner, *length)) return -1;
    *bytes = scanner->stripped->bytes + scanner->stripped->length - *length;
    return 0;
}

static int take_string(struct scanner *scanner, const struct item *item) {
    const unsigned char *bytes;
    uint64_t length;
    if (take_bytes(scanner, item, &bytes, &length)) return -1;
    if (item->field->type != PROTOBUF_C_TYPE_STRING || !memchr(bytes, 0, (size_t)length)) return 0;
    bool external = scanner->depth > 1 && top_of(scanner)->name && strcmp(top_of(scanner)->name, "external_data") == 0;
    return fail(scanner, external ? 364 : 338, item->at, "%s contains a NUL byte",
                external ? "external data location" : item->field->name);
}

/* The number of varints in a packed field, -1 if it is malformed. */
static int64_t packed_count(const unsigned char *bytes, uint64_t length) {
    int64_t count = 0;
    int run = 0;
    for (uint64_t i = 0; i < length; i++) {
        if (++run > VARINT_BYTES) return -1;
        if (!(bytes[i] & 0x80)) count++, run = 0;
    }
    return run ? -1 : count;
}

static int take_packed(struct scanner *scanner, const struct item *item) {
    const unsigned char *bytes;
    uint64_t length;
    if (take_bytes(scanner, item, &bytes, &length)) return -1;
    enum wire wire = wire_of[item->field->type];
    if (wire == WIRE_VARINT) {
        int64_t count = packed_count(bytes, length);
        return count < 0 ? fail_format(scanner, item->at, "bad packed field") : charge(scanner, 8 * (uint64_t)count);
    }
    return length % (wire == WIRE_32 ? 4 : 8) ? fail_format(scanner, item->at, "bad packed field") : 0;
}

/* Tensor data is not copied: adds its place to the spans. Elements with a tag each that follow each other are one
 * span. */
static int take_data(struct scanner *scanner, const struct item *item) {
    uint64_t start = item->at, length;
    bool tagged = item->wire != WIRE_BYTES;
    if (tagged ? skip_value(scanner, item) : item_length(scanner, item, &length)) return -1;
    if (tagged)
        length = scanner->at - start;
    else {
        start = scanner->at;
        scanner->at += length;
    }
    scanner->payload += length;
    struct onnx_span *last =
        scanner->spans->all.n > top_of(scanner)->first_span ? &scanner->spans->all.at[scanner->spans->all.n - 1] : NULL;
    if (tagged && last && last->tagged && last->field == item->field->id && last->offset + last->bytes == start) {
        last->bytes += length;
        return 0;
    }
    if (charge(scanner, 2 * sizeof *last)) return -1;
    VEC_PUSH(scanner->arena, &scanner->spans->all, (struct onnx_span){start, length, item->field->id, tagged});
    return 0;
}

static int count_message(struct scanner *scanner, const ProtobufCMessageDescriptor *type, uint64_t at) {
    if (type == &onnx__node_proto__descriptor && ++scanner->nodes > ONNX_NODES)
        return fail(scanner, 504, at, "more than %d nodes", ONNX_NODES);
    if (type == &onnx__tensor_proto__descriptor && ++scanner->tensors > ONNX_TENSORS)
        return fail(scanner, 502, at, "more than %d tensors", ONNX_TENSORS);
    bool nested = type == &onnx__graph_proto__descriptor && scanner->depth > 1;
    if ((nested && scanner->subgraphs >= ONNX_SUBGRAPHS) || scanner->depth == FRAMES)
        return fail(scanner, 501, at, nested ? "subgraph nesting deeper than %d" : "messages nested deeper than %d",
                    nested ? ONNX_SUBGRAPHS : FRAMES);
    scanner->subgraphs += nested;
    return charge(scanner, type->sizeof_message + 32);
}

static int push_message(struct scanner *scanner, const struct item *item) {
    uint64_t length;
    const ProtobufCFieldDescriptor *field = item->field;
    struct frame *parent = top_of(scanner);
    bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
    if (!repeated && parent->seen >> field->id & 1)
        return fail(scanner, 321, item->at, "%s is given twice", field->name);
    if (item_length(scanner, item, &length) || count_message(scanner, field->descriptor, item->at)) return -1;
    if (reserve(scanner, 2 * VARINT_BYTES)) return -1;
    put_tag(scanner, field->id, WIRE_BYTES);
    scanner->frames[scanner->depth++] = (struct frame){.type = field->descriptor,
                                                       .name = field->name,
                                                       .index = repeated ? parent->counts[field->id & 31]++ : -1,
                                                       .end = scanner->at + length,
                                                       .length_at = scanner->stripped->length,
                                                       .first_span = scanner->spans->all.n};
    scanner->stripped->length += LENGTH_BYTES;
    return 0;
}

static int finish_tensor(struct scanner *scanner) {
    if (reserve(scanner, 4 * VARINT_BYTES)) return -1;
    int first = top_of(scanner)->first_span;
    if (scanner->spans->all.n == first) return 0;
    put_tag(scanner, PRIVATE_FIELD, WIRE_VARINT);
    put_varint(scanner, (uint64_t)first);
    put_tag(scanner, PRIVATE_FIELD + 1, WIRE_VARINT);
    put_varint(scanner, (uint64_t)(scanner->spans->all.n - first));
    return 0;
}

static int pop_message(struct scanner *scanner) {
    const struct frame *top = top_of(scanner);
    if (top->type == &onnx__tensor_proto__descriptor && finish_tensor(scanner)) return -1;
    if (top->type == &onnx__node_proto__descriptor && !(top->seen >> 4 & 1))
        return fail(scanner, 311, scanner->at, "node #%d has no op_type", top->index);
    if (scanner->depth == 1) return 0;
    if (top->type == &onnx__graph_proto__descriptor && scanner->depth > 2) scanner->subgraphs--;
    put_length(scanner->stripped->bytes + top->length_at, scanner->stripped->length - top->length_at - LENGTH_BYTES);
    scanner->depth--;
    return 0;
}

static int next_tag(struct scanner *scanner, struct item *item) {
    uint64_t tag;
    item->at = scanner->at;
    enum varint_status status = next_varint(scanner, &tag);
    if (status == VARINT_CHANGED) return fail_changed(scanner);
    if (status != VARINT_OK || tag >> 3 == 0 || tag >> 32) return fail_format(scanner, item->at, "bad protobuf tag");
    item->number = tag >> 3;
    item->wire = (enum wire)(tag & 7);
    item->field = item->number < PRIVATE_FIELD
                      ? protobuf_c_message_descriptor_get_field(top_of(scanner)->type, (unsigned)item->number)
                      : NULL;
    return 0;
}

static bool is_data(const struct frame *top, const struct item *item) {
    return top->type == &onnx__tensor_proto__descriptor && item->number < 32 && DATA_FIELDS >> item->number & 1;
}

static int scan_field(struct scanner *scanner) {
    struct item item = {0};
    struct frame *top = top_of(scanner);
    if (next_tag(scanner, &item)) return -1;
    if (!item.field) return skip_value(scanner, &item);
    enum wire wire = wire_of[item.field->type];
    bool packed = item.wire == WIRE_BYTES && wire != WIRE_BYTES && item.field->label == PROTOBUF_C_LABEL_REPEATED;
    if (item.wire != wire && !packed)
        return fail_format(scanner, item.at, arena_printf(scanner->arena, "wrong type of field %s", item.field->name));
    if (is_data(top, &item)) return take_data(scanner, &item);
    if (++top->fields > 16 && charge(scanner, 64)) return -1; /* protobuf-c allocates a list beyond 16 fields */
    int status = item.field->type == PROTOBUF_C_TYPE_MESSAGE ? push_message(scanner, &item)
                 : packed                                    ? take_packed(scanner, &item)
                 : wire == WIRE_BYTES                        ? take_string(scanner, &item)
                                                             : take_scalar(scanner, &item);
    top->seen |= 1ull << item.field->id;
    return status;
}

/* Scans all of `source`, a serialised ModelProto, named `place` in diagnostics, into `stripped` and `spans`. 0 or -1
 * after a diagnostic. Spans lie in `arena`; the caller frees stripped->bytes, also after an error.
 * Errors: E302 not ONNX, E303 truncated, E311 no graph or op_type, E321 one message twice, E338 and E364 a NUL in a
 * name, E501 nesting, E502 and E504 size, E500 memory, E604 changed while read. */
static int onnx_scan(struct arena *arena, struct diags *diags, const char *place, struct scan_source *source,
                     struct onnx_stripped *stripped, struct onnx_spans *spans) {
    struct scanner scanner = {
        .arena = arena, .diags = diags, .place = place, .source = source, .stripped = stripped, .spans = spans};
    scanner.frames = ARENA_ARRAY(arena, struct frame, FRAMES);
    scanner.frames[scanner.depth++] =
        (struct frame){.type = &onnx__model_proto__descriptor, .index = -1, .end = source->size};
    while (scanner.depth > 1 || scanner.at < source->size) {
        bool done = scanner.at == top_of(&scanner)->end;
        if (done ? pop_message(&scanner) : scan_field(&scanner)) return -1;
    }
    if (!(scanner.frames[0].seen >> 7 & 1)) return fail(&scanner, 311, scanner.at, "model has no graph");
    return 0;
}

static int not_regular(struct onnx_model *model, mode_t mode) {
    return diag_error(model->diags, 602, EXIT_SYSTEM, model->place, "%s is %s", diag_quote(model->diags, model->path),
                      S_ISDIR(mode) ? "a directory, not a model file" : "not a regular file");
}

/* Checks the file's type before opening, since opening a device may have side effects, and again afterwards, since the
 * file may have been replaced in between. */
static int open_file(struct onnx_model *model) {
    struct stat status;
    if (stat(model->path, &status) != 0) return diag_errno(model->diags, 601, model->place, "open", model->path);
    if (!S_ISREG(status.st_mode)) return not_regular(model, status.st_mode);
    model->fd = open(model->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (model->fd < 0 || fstat(model->fd, &status) != 0)
        return diag_errno(model->diags, 601, model->place, "open", model->path);
    if (!S_ISREG(status.st_mode)) return not_regular(model, status.st_mode);
    if (status.st_size == 0) return diag_error(model->diags, 301, EXIT_MALFORMED, model->place, "model file is empty");
    return onnx_file_add(model, model->fd, model->path, NULL, model->place) < 0 ? -1 : 0;
}

static int open_directory(struct onnx_model *model) {
    const char *slash = strrchr(model->path, '/');
    const char *name = slash ? arena_printf(model->arena, "%.*s", (int)(slash - model->path) + 1, model->path) : ".";
    model->directory = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return model->directory < 0 ? diag_errno(model->diags, 601, model->place, "open", model->path) : 0;
}

static void *tree_alloc(void *arena, size_t bytes) {
    return arena_alloc(arena, 1, bytes);
}
static void tree_free(void *arena, void *object) {
    (void)arena;
    (void)object;
}

static void drop_stripped(struct onnx_model *model) {
    free(model->stripped.bytes);
    model->stripped = (struct onnx_stripped){0};
}

/* Scans the file into a copy without tensor data, which protobuf-c unpacks into model->proto. */
static int read_tree(struct onnx_model *model) {
    const struct onnx_file *file = &model->files.at[0];
    ProtobufCAllocator allocator = {tree_alloc, tree_free, model->arena};
    struct scan_source source = {
        .bytes = file->mapped ? NULL : file->data, .fd = model->fd, .size = (uint64_t)file->bytes};
    if (file->mapped) source.window = arena_alloc(model->arena, SCAN_WINDOW, 1);
    if (onnx_scan(model->arena, model->diags, model->place, &source, &model->stripped, &model->spans)) return -1;
    model->proto = onnx__model_proto__unpack(&allocator, model->stripped.length, model->stripped.bytes);
    if (!model->proto)
        return diag_error(model->diags, 302, EXIT_MALFORMED, model->place, "not an ONNX model: protobuf-c rejects it");
    drop_stripped(model);
    return onnx_file_changed(file, model->fd) ? onnx_file_refuse(model, file) : 0;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void close_model(void *model) {
    onnx_close(model);
}

int onnx_open(struct arena *arena, struct diags *diags, const char *path, bool allow_links, struct onnx_model **out) {
    return onnx_open_with(arena, diags, path, allow_links, NULL, out);
}

int onnx_open_with(struct arena *arena, struct diags *diags, const char *path, bool allow_links,
                   const struct onnx_weights_from *weights, struct onnx_model **out) {
    struct onnx_model *model = *out = ARENA_NEW(arena, struct onnx_model);
    *model = (struct onnx_model){.arena = arena, .diags = diags, .fd = -1, .directory = -1, .allow_links = allow_links};
    arena_own(arena, model, close_model);
    model->path = arena_strdup(arena, path);
    model->place = str_name(arena, path);
    arena_init(&model->scratch, arena->budget, arena->failed);
    map_init(&model->locations, arena);
    map_init(&model->copies, arena);
    map_init(&model->moved, arena);
    int result = open_file(model);
    if (result == 0) result = read_tree(model);
    close_fd(&model->fd);
    if (result == 0) result = open_directory(model);
    if (result == 0 && weights) result = onnx_weights_open(model, weights);
    if (result == 0) result = onnx_check(model);
    arena_free(&model->scratch);
    return result;
}

void onnx_close(struct onnx_model *model) {
    if (!model) return;
    for (int i = 0; i < model->files.n; i++) onnx_file_drop(&model->files.at[i]);
    model->files.n = 0;
    drop_stripped(model);
    arena_free(&model->scratch);
    close_fd(&model->fd);
    close_fd(&model->directory);
}
