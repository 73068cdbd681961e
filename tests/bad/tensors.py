"""C. Tensors, shapes and sizes of dimensions."""
import struct

from onnx import TensorProto, helper

import models as m
from case import Row
from models import FLOAT, INT64, ints, model, node, one, raw, relu, tensor, value

HUGE, LEAST = (1 << 63) - 1, -(1 << 63)


def weight(t, shape=(4,)):
    """y = x + w."""
    return lambda d: model([node("Add", "x w", "y")], [value("x", shape)], [helper.make_tensor_value_info("y", FLOAT, None)], [t])


def of_type(dtype):
    t = tensor("w", [4], [1] * 4)
    t.data_type = dtype
    return weight(t)


def also(t, **fields):
    for key, v in fields.items():
        getattr(t, key).extend(v) if isinstance(v, list) else setattr(t, key, v)
    return t


def segment(t):
    t.segment.begin, t.segment.end = 0, 2
    return t


def declared(shape, dtype=FLOAT):
    def make(d):
        made = model([node("Relu", "x", "z"), node("Neg", "z", "y")])
        made.graph.value_info.append(value("z", shape, dtype))
        return made
    return make


def stored(shape, dtype=FLOAT, output=False):
    """A constant of [4] that is declared otherwise."""
    def make(d):
        made = model([node("Constant", "", "c", value=tensor("c", [4], [1] * 4)), node("Add", "x c", "y")])
        (made.graph.output if output else made.graph.value_info).append(value("c", shape, dtype))
        return made
    return make


def ceiled(op):
    """Windows at 0, 3 and 6 of 6 elements: ONNX's text gives the last no place, onnx.shape_inference (1.12 to 1.23) does."""
    def make(d):
        made = model([node(op, "x", "z", kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1), node("Relu", "z", "r"),
                      node("GlobalAveragePool", "r", "y")], [value("x", [1, 1, 6, 6])], [value("y", [1, 1, 1, 1])])
        made.graph.value_info.extend([value(name, [1, 1, 3, 3]) for name in "zr"])
        return made
    return make


def symbolic(d):
    return relu(inputs=[value("x", ["batch", 4])], outputs=[value("y", ["batch", 4])])


def untyped(d):
    made = relu()
    made.graph.input[0].type.tensor_type.ClearField("shape")
    return made


def by_dims(*names):
    return [w for n in names for w in ("--dim", n)]


NOTHING = [[0, 4], [4, 0], [0]]
BITS = struct.pack("<6I", 0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x00000001, 0x80000000)

ROWS = [
    Row("C01", weight(raw("w", [1 << 62, 4], bytes(16))), 3, r"E0351\].*'w'.*overflow"),
    Row("C02 31", lambda d: relu(inputs=[value("x", [1 << 31, 1 << 31])], outputs=[value("y", [1 << 31, 1 << 31])]), 5,
        r"E0505\]: value 'x' needs 1\.8e\+19 bytes", errors=2),
    Row("C02 40", lambda d: relu(inputs=[value("x", [1 << 40, 1 << 40])], outputs=[value("y", [1 << 40, 1 << 40])]), 5,
        r"E0505\]", errors=None),
    Row("C03 -1", weight(raw("w", [-1], bytes(4))), 3, r"E0352\]"),
    Row("C03 least", weight(raw("w", [LEAST], bytes(4))), 3, r"E0352\]"),
    Row("C03 info -1", lambda d: relu(inputs=[value("x", [-1])]), 2, r"E0343\].*'x.0'"),
    Row("C03 info", lambda d: relu(inputs=[value("x", [-2])]), 3, r"E0352\]"),
    Row("C03 info least", lambda d: relu(inputs=[value("x", [LEAST])]), 3, r"E0352\]"),
    *[Row(f"C04 {n}", weight(raw("w", [4], bytes(n))), 3, rf"E0353\].*'w'.* 16 bytes, .*{n}\b") for n in (15, 17, 0)],
    Row("C05 short", weight(tensor("w", [4], [1] * 3)), 3, r"E0353\].*'w'"),
    Row("C05 long", weight(tensor("w", [4], [1] * 5)), 3, r"E0353\].*'w'"),
    Row("C06", weight(also(raw("w", [4], bytes(16)), float_data=[1.0] * 4)), 3, r"E0354\]"),
    Row("C06 field", weight(also(tensor("w", [4], []), int64_data=[1] * 4)), 3, r"E035[34]\]"),
    Row("C07", weight(tensor("w", [4], [70000] * 4, TensorProto.FLOAT16)), 3, r"E0355\]"),
    *[Row(f"C08 {t}", of_type(t), 3, r"E0356\]") for t in (0, 99, -1, (1 << 31) - 1)],
    *[Row(f"C09 {t}", of_type(t), 4, r"E0407\].*'w'") for t in (TensorProto.COMPLEX64, TensorProto.STRING)],
    *[Row(f"C10 {n}", weight(raw("w", [1] * n, bytes(4))), 5, r"E0506\]") for n in (9, 64, 1000)],
    Row("C10 input", lambda d: relu(inputs=[value("x", [1] * 9)], outputs=[value("y", [1] * 9)]), 5, r"E0506\]", errors=None),
    *[Row(f"C11 {dims}", lambda d, dims=dims: relu(inputs=[value("x", dims)], outputs=[value("y", dims)]), 0) for dims in NOTHING],
    Row("C11 weight", weight(raw("w", [0], b""), (0,)), 0),
    Row("C12", weight(raw("w", [6], BITS), (6,)), 0),
    Row("C13 segment", weight(segment(raw("w", [4], bytes(16)))), 3, r"E0357\]"),
    Row("C13 name", lambda d: relu(initializers=[raw("", [4], bytes(16))]), 3, r"E0357\]"),
    Row("C14", lambda d: model([node("Where", "c x x", "y")], initializers=[raw("c", [4], b"\0\1\2\3", m.BOOL)]), 3,
        r"E0358\]"),
    Row("C15 shape", declared([5]), 0),
    Row("C15 dtype", declared([4], INT64), 0),
    Row("C15 constant", stored([]), 0),
    Row("C15 constant dtype", stored([4], INT64), 0),
    Row("C15 constant output", stored([], output=True), 0),
    *[Row(f"C15 {op}", ceiled(op), 0) for op in ("MaxPool", "AveragePool")],
    Row("C15 output", lambda d: relu(outputs=[value("y", [5])]), 0),
    Row("C15 output dtype", lambda d: relu(outputs=[value("y", [4], INT64)]), 3, r"E0342\].*i64"),
    Row("C16", symbolic, 2, r"E0343\].*'batch'(.|\n)*help: .*--dim batch=8"),
    *[Row(f"C17 {v}", symbolic, 2, r"E0201\]", by_dims(f"batch={v}"), place=None) for v in ("-1", "1e30", "abc", "")],
    Row("C17 0", symbolic, 0, args=by_dims("batch=0")),
    Row("C17 unknown", symbolic, 2, r"E0201\].*'seq'", by_dims("batch=2", "seq=3"), place=None),
    Row("C17 huge", symbolic, 5, r"E0505\]", by_dims(f"batch={1 << 61}"), errors=None, place=None),
    Row("C17 right", symbolic, 0, args=by_dims("batch=3")),
    Row("C18", untyped, 4, r"E0344\].*(.|\n)*help: --shape x="),
    Row("C18 shape", untyped, 0, args=["--shape", "x=4"]),
    Row("C19", lambda d: relu(inputs=[value("x"), value("w", [5])], initializers=[tensor("w", [4], [1] * 4)]), 3, r"E0342\]"),
    Row("C20 greatest", lambda d: one("Reshape", "x s", initializers=[ints("s", HUGE)]), 3, r"E03(51|77)\]"),
    Row("C20 least", lambda d: one("Reshape", "x s", initializers=[ints("s", LEAST)]), 3, r"E03(51|52|77)\]"),
    Row("C20 fill", lambda d: one("ConstantOfShape", "s", (), [ints("s", HUGE, HUGE)]), 5, r"E0505\]|E0351\]"),
]
