"""Puts the nodes of an ONNX model in another order: those of the graph, of subgraphs and of functions. Needs no ONNX."""

# Fields of onnx.proto, by message: which hold messages that nodes are in, and which is a node's.
WITHIN = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def to_varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def fields(data):
    """(number, start of the field, start of its content, end) of each field of a message."""
    at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        if tag & 7 == 0:
            content, at = at, varint(data, at)[1]
        elif tag & 7 == 2:
            length, content = varint(data, at)
            at = content + length
        else:
            content, at = at, at + {1: 8, 5: 4}[tag & 7]
        yield tag >> 3, start, content, at


def shuffled(data, random, message="model"):
    """The message with its nodes, at every depth, in an order that `random` gives."""
    parts, places, nodes = [], [], []
    for number, start, content, end in fields(data):
        inner = WITHIN[message].get(number)
        if inner is None:
            parts.append(data[start:end])
            continue
        body = shuffled(data[content:end], random, inner)
        part = to_varint(number << 3 | 2) + to_varint(len(body)) + body
        if inner == "node":
            places.append(len(parts))
            nodes.append(part)
        parts.append(part)
    random.shuffle(nodes)
    for place, node in zip(places, nodes):
        parts[place] = node
    return b"".join(parts)
