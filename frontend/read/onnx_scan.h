/* The scan of an ONNX file's wire format that comes before protobuf-c sees it.
 *
 * protobuf-c 1.4.1 recurses without a limit, refuses payloads over 2 GB, and turns 2 bytes of file into 260 of
 * memory. The scan walks the file once with a stack of its own, driven by protobuf-c's descriptors of onnx.proto;
 * it checks every tag, length and wire type, bounds depth, counts and the memory that the tree will take, and
 * writes a slim copy: the same messages without fields that onnx.proto does not name, and without tensor data.
 * Every data field of a tensor becomes an entry of the span table; the slim TensorProto says which entries are its
 * own (first_span, span_count).
 */
#ifndef FRONTEND_READ_ONNX_SCAN_H
#define FRONTEND_READ_ONNX_SCAN_H

#include "frontend/read/onnx_model.h"

enum { SCAN_WINDOW = 256 << 10 };

/* The bytes of a file: in memory, or read through a window (fd), so that no page of a mapping is touched. */
struct scan_source {
    const unsigned char *bytes; /* NULL: read fd */
    int fd;
    uint64_t size;
    unsigned char *window; /* of SCAN_WINDOW bytes */
    uint64_t window_at;
    size_t window_bytes;
};

/* At most `want` (<= SCAN_WINDOW) bytes at `at`, *got of them; NULL when there are none, or the file shrank. */
const unsigned char *scan_peek(struct scan_source *source, uint64_t at, size_t want, size_t *got);

/* Scans all of `source`, a model, named `place` in diagnostics. Spans go to `arena`; the caller
 * frees slim->bytes, also after an error.
 * Errors: E302 not ONNX, E303 truncated, E311 no graph or op_type, E321 one message twice, E338 and E364 a NUL in a
 * name, E501 nesting, E502 and E504 size, E500 memory, E604 changed while read. */
int onnx_scan(struct arena *arena, struct diags *diags, const char *place, struct scan_source *source,
              struct onnx_slim *slim, struct onnx_spans *spans);

#endif
