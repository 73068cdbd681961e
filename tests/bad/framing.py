"""A. The file, and protobuf's framing."""
import os
import socket
import threading

import models as m
from case import Row

GOOD = m.relu(initializers=[m.tensor("w", [4], [1, 2, 3, 4])]).SerializeToString()


def special(kind):
    def make(d):
        path = d / "m.onnx"
        if kind == "directory":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            s = socket.socket(socket.AF_UNIX)
            s.bind(str(path))
        elif kind == "unreadable":
            path.write_bytes(GOOD)
            path.chmod(0)
            for p in (d, d / "out"):
                p.chmod(0o777)
    return make


def sparse(head, size):
    def make(d):
        with open(d / "m.onnx", "wb") as f:
            f.write(head)
            f.truncate(size)
    return make


def truncate_again_and_again(d):
    """Makes the file shorter and longer while it is read."""
    stop = threading.Event()

    def loop():
        while not stop.is_set():
            os.truncate(d / "m.onnx", 100)
            with open(d / "m.onnx", "wb") as f:
                f.write(BIG)
    thread = threading.Thread(target=loop)
    thread.start()
    return lambda: (stop.set(), thread.join())


BIG = m.relu(initializers=[m.raw("w", [1 << 20], bytes(4 << 20))]).SerializeToString()

KINDS = [("text", b"this is a text, no model\n" * 9), ("png", b"\x89PNG\r\n\x1a\n" + bytes(64)),
         ("elf", b"\x7fELF\x02\x01\x01" + bytes(64)), ("zip", b"PK\x03\x04\x14\0\0\0" + bytes(64)),
         ("safetensors", (2).to_bytes(8, "little") + b'{}'), ("gguf", b"GGUF\x03\0\0\0" + bytes(32)),
         ("json", b'{"irVersion": "8", "graph": {}}'), ("prototxt", b'ir_version: 8\nproducer_name: "x"\ngraph {\n}\n'),
         ("pickle", b"\x80\x02}q\x00." + bytes(16)), ("html", b"<!DOCTYPE html><html></html>")]

FRAMES = [("tag 0", b"\x00"), ("field 0", b"\x02\x00"), ("wire 3", b"\x0b"), ("wire 4", b"\x0c"), ("wire 6", b"\x0e\x00"),
          ("wire 7", b"\x0f\x00"), ("varint of 11 bytes", b"\x08" + b"\xff" * 10 + b"\x01"),
          ("tag of 11 bytes", b"\xff" * 10 + b"\x01")]

LENGTHS = [1 << 31, 1 << 32, 1 << 63, (1 << 64) - 1]

ROWS = [
    Row("A01", lambda d: None, 6, r"E0601\]: cannot open 'm\.onnx': No such file"),
    Row("A02", special("directory"), 6, r"E0602\]: 'm\.onnx' is a directory, not a model file"),
    Row("A03", special("unreadable"), 6, r"E0601\]: cannot open 'm\.onnx': Permission denied", uid=65534),
    Row("A04 fifo", special("fifo"), 6, r"E0602\]: 'm\.onnx' is not a regular file"),
    Row("A04 socket", special("socket"), 6, r"E0602\]: 'm\.onnx' is not a regular file"),
    Row("A04 device", lambda d: None, 6, r"E0602\]: '/dev/zero' is not a regular file", model="/dev/zero", place="/dev/zero"),
    Row("A05", lambda d: b"", 3, r"E0301\]: model file is empty"),
    Row("A06", lambda d: b"\0", 3, r"E0302\]: not an ONNX model.*byte 0"),
    *[Row(f"A07 {name}", lambda d, b=b: b, 3, r"E030[23]\]") for name, b in KINDS],
    *[Row(f"A08 {i}", lambda d, i=i: GOOD[:len(GOOD) * i // 64], 3, r"E03\d\d\]", errors=None) for i in range(1, 64)],
    Row("A09", lambda d: GOOD + b"\xff\xff\xff", 3, rf"E030[23]\].*byte {len(GOOD)}"),
    Row("A10", lambda d: GOOD + GOOD, 3, r"E0321\]", errors=None),
    *[Row(f"A11 {name}", lambda d, b=b: b, 3, r"E0302\].*byte [01]\b") for name, b in FRAMES],
    *[Row(f"A12 {n}", lambda d, n=n: b"\x3a" + m.varint(n), 3, r"E0303\]") for n in LENGTHS],
    Row("A13 200", lambda d: m.nested(200), 5, r"E0501\]: subgraph"),
    Row("A13 3000", lambda d: m.nested(3000), 5, r"E0501\]: subgraph"),
    Row("A13 100000", lambda d: m.nested(100000), 5, r"E0501\]: subgraph"),
    Row("A14", lambda d: m.field(m.MODEL_GRAPH, m.field(m.GRAPH_INITIALIZER, b"") * 1000000), 5, r"E0502\]"),
    Row("A15", lambda d: m.field(1, 8) + m.field(8, m.field(2, 17)) +
        m.field(m.MODEL_GRAPH, m.field(m.GRAPH_NODE, b"") * 1000000), 3, r"E031\d\]: node (#?0) has no op_type|no op_type",
        errors=None),
    Row("A16 op_type", lambda d: m.relu().SerializeToString().replace(b"Relu", b"Re\xff\xfe"), 3, r"E0313\]"),
    Row("A16 name", lambda d: m.model([m.node("Relu", "x", "y", name="name")]).SerializeToString()
        .replace(b"name", b"n\xff\xfee"), 0),
    Row("A17", sparse(b"", 5 << 30), 3, r"E0302\]: not an ONNX model"),
    Row("A18", lambda d: BIG, (0, 3, 6), r"E0604\]: (file changed while reading|'.*m\.onnx' changed while it was read)|E030",
        before=truncate_again_and_again, errors=None, place=None, makes="out/m$"),  # the directory; its result is as it was
    Row("A19", lambda d: m.field(1000, b"unknown") * 100, 3, r"E0311\]: model has no graph"),
    Row("A20 json", lambda d: KINDS[6][1], 3, r"E0302\]"),
    Row("A20 text", lambda d: KINDS[7][1], 3, r"E0302\]"),
]
