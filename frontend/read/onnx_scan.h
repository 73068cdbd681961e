/* Scan of an ONNX file's wire format before protobuf-c unpacks it.
 *
 * protobuf-c 1.4.1 recurses without a limit, refuses messages over 2 GB, and may turn 2 bytes of a file into 260 bytes
 * of memory. The scan walks the file once with an explicit stack, driven by protobuf-c's descriptors of onnx.proto. It
 * checks every tag, length and wire type, bounds depth, counts and the memory that the tree will take, and writes a
 * stripped copy: the same messages without unknown fields and without tensor data. The place of every data field of a
 * tensor goes into the table of spans; the private fields first_span and span_count of a TensorProto in the copy name
 * its entries.
 */
#ifndef FRONTEND_READ_ONNX_SCAN_H
#define FRONTEND_READ_ONNX_SCAN_H

#include "frontend/read/onnx_model.h"

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

/* A pointer to the bytes at offset `at`, valid until the next call. *got is the smaller of `want` (<= SCAN_WINDOW) and
 * the bytes up to the end. NULL at the end, or if the file has become shorter. */
const unsigned char *scan_peek(struct scan_source *source, uint64_t at, size_t want, size_t *got);

/* Scans all of `source`, a serialised ModelProto, named `place` in diagnostics, into `stripped` and `spans`. 0 or -1
 * after a diagnostic. Spans lie in `arena`; the caller frees stripped->bytes, also after an error.
 * Errors: E302 not ONNX, E303 truncated, E311 no graph or op_type, E321 one message twice, E338 and E364 a NUL in a
 * name, E501 nesting, E502 and E504 size, E500 memory, E604 changed while read. */
int onnx_scan(struct arena *arena, struct diags *diags, const char *place, struct scan_source *source,
              struct onnx_stripped *stripped, struct onnx_spans *spans);

#endif
