"""Small ONNX models, right and wrong, for rows to be made of. Nothing here checks anything."""


from onnx import AttributeProto, TensorProto, helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, shape=(4,), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op, inputs, outputs, name="", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


def tensor(name, dims, data, dtype=FLOAT):
    """Typed data, as many values as given, whatever dims says."""
    t = TensorProto(name=name, data_type=dtype, dims=dims)
    field = {FLOAT: t.float_data, INT64: t.int64_data, TensorProto.DOUBLE: t.double_data}.get(dtype, t.int32_data)
    field.extend(data)
    return t


def raw(name, dims, data, dtype=FLOAT):
    return TensorProto(name=name, data_type=dtype, dims=dims, raw_data=data)


def ints(name, *values):
    return tensor(name, [len(values)], values, INT64)


def graph(nodes, inputs, outputs, initializers=()):
    return helper.make_graph(nodes, "g", inputs, outputs, list(initializers))


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, functions=(), domains=(), ir_version=8):
    """Inputs x [4], outputs y [4] unless given."""
    g = graph(nodes, [value("x")] if inputs is None else inputs, [value("y")] if outputs is None else outputs, initializers)
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    m = helper.make_model(g, opset_imports=opsets, functions=list(functions))
    m.ir_version = ir_version
    return m


def relu(**how):
    """y = Relu(x): the model that is right."""
    return model([node("Relu", "x", "y")], **how)


def one(op, inputs="x", shapes=((4,),), initializers=(), outputs="y", opset=17, dtype=FLOAT, out_shape=None, domains=(),
        domain="", **attributes):
    """A model of one node. `shapes`: of the inputs that are no initializers, in order."""
    known = {t.name for t in initializers}
    names = [n for n in inputs.split() if n not in known]
    n = node(op, inputs, outputs, **attributes)
    n.domain = domain
    return model([n], [value(n, s, dtype) for n, s in zip(names, shapes)],
                 [helper.make_tensor_value_info(o, dtype, out_shape) for o in outputs.split()], initializers, opset,
                 domains=domains)


def attribute(name, **fields):
    """An attribute with exactly these fields, consistent or not."""
    a = AttributeProto(name=name)
    for key, v in fields.items():
        if isinstance(v, (list, tuple)):
            getattr(a, key).extend(v)
        elif hasattr(v, "CopyFrom"):
            getattr(a, key).CopyFrom(v)
        else:
            setattr(a, key, v)
    return a


def with_attributes(m, *attributes):
    m.graph.node[0].attribute.extend(attributes)
    return m


# The wire format, for what no library writes.

def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, payload):
    """A length-delimited field, or a varint where the payload is a number."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload % (1 << 64))
    return varint(number << 3 | 2) + varint(len(payload)) + payload


MODEL_GRAPH, GRAPH_NODE, GRAPH_INITIALIZER, NODE_ATTRIBUTE, ATTRIBUTE_GRAPH = 7, 1, 5, 5, 6


def nested(depth):
    """Graphs in attributes of nodes of graphs, `depth` of them, written from the inside out in linear time."""
    parts, size = [], 0
    for _ in range(depth):
        for number in (ATTRIBUTE_GRAPH, NODE_ATTRIBUTE, GRAPH_NODE):
            head = varint(number << 3 | 2) + varint(size)
            parts.append(head)
            size += len(head)
    return field(8, field(2, 17)) + field(1, 8) + varint(MODEL_GRAPH << 3 | 2) + varint(size) + b"".join(reversed(parts))


