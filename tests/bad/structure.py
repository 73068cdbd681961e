"""B. The model and its graph."""
from onnx import TensorProto, helper

import models as m
from case import Row
from models import attribute, model, node, one, relu, tensor, value, with_attributes


def changed(how, base=relu):
    def make(d):
        made = base()
        how(made)
        return made
    return make


def opsets(*pairs):
    def make(d):
        made = relu()
        del made.opset_import[:]
        made.opset_import.extend(helper.make_opsetid(d, v) for d, v in pairs)
        return made
    return make


def cycle(n):
    nodes = [node("Relu", f"v{(i - 1) % n}", f"v{i}") for i in range(n)] + [node("Relu", "v0", "y")]
    return lambda d: model(nodes)


def chain(n):
    """A chain of n nodes, written without the library's time per node."""
    def make(d):
        nodes = []
        for i in range(n):
            a, b = (b"x" if i == 0 else b"v%d" % i), (b"y" if i == n - 1 else b"v%d" % (i + 1))
            nodes.append(m.field(1, m.field(1, a) + m.field(2, b) + m.field(4, b"Relu")))
        ends = m.field(11, value("x").SerializeToString()) + m.field(12, value("y").SerializeToString())
        return m.field(1, 8) + m.field(8, m.field(2, 17)) + m.field(7, b"".join(nodes) + ends)
    return make


def fan(n):
    def make(d):
        reads = [m.field(1, m.field(1, b"x") + m.field(2, b"v%d" % i) + m.field(4, b"Relu")) for i in range(n)]
        ends = m.field(11, value("x").SerializeToString()) + m.field(12, value("v0").SerializeToString())
        return m.field(1, 8) + m.field(8, m.field(2, 17)) + m.field(7, b"".join(reads) + ends)
    return make


def wide(op, n, **attributes):
    return lambda d: one(op, " ".join(["x"] * n), ((4,),), **attributes)


def typed(**fields):
    """A value of a type that is no dense tensor, as input and output."""
    def make(d):
        made = relu()
        info = made.graph.input[0]
        info.ClearField("type")
        elem = helper.make_tensor_type_proto(m.FLOAT, [4])
        kind, = fields
        if kind == "map_type":
            info.type.map_type.key_type = m.INT64
            info.type.map_type.value_type.CopyFrom(elem)
        elif kind == "sparse_tensor_type":
            info.type.sparse_tensor_type.elem_type = m.FLOAT
        else:
            getattr(info.type, kind).elem_type.CopyFrom(elem)
        return made
    return make


def function(name, nodes, inputs=("a",), outputs=("b",), domains=("my",), attributes=()):
    sets = [helper.make_opsetid("", 17)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_function("my", name, list(inputs), list(outputs), nodes, sets, list(attributes))


def call(name, inputs, outputs):
    n = node(name, inputs, outputs)
    n.domain = "my"
    return n


def calling(name, *functions):
    return lambda d: model([call(name, "x", "y")], functions=functions, domains=("my",))


def tower(n):
    """Each function calls the next twice."""
    functions = [function(f"F{i}", [call(f"F{i + 1}", "a", "c"), call(f"F{i + 1}", "c", "b")]) for i in range(n)]
    return calling("F0", *functions, function(f"F{n}", [node("Relu", "a", "b")]))


def branches(cond, bad=False, other="Neg"):
    then = m.graph([node("Relu", "x", "z")], [], [value("z")])
    other = m.graph([node(other, "nothing" if bad else "x", "z")], [], [value("z")])
    return model([node("If", cond, "y", then_branch=then, else_branch=other)],
                 [value("x"), value("c", [], m.BOOL)] if cond == "c" else None,
                 initializers=[] if cond == "c" else [tensor(cond, [], [1], m.BOOL)])


def ref_attribute():
    made = one("Concat", "x x", ((4,),))
    made.graph.node[0].attribute.append(attribute("axis", ref_attr_name="axis", type=2))
    return made


def training(made):
    made.training_info.add()


def sparse(indices, dims=(4,), shape=None, count=None, dtype=m.INT64):
    """y = x + s, where s is a sparse initializer of ones at `indices`; shape: that of the indices."""
    def make(d):
        made = model([node("Add", "x s", "y")])
        s = made.graph.sparse_initializer.add()
        count_ = len(indices) if count is None else count
        s.values.CopyFrom(tensor("s", [count_], [1] * count_))
        s.indices.CopyFrom(tensor("i", [len(indices)] if shape is None else shape, indices, dtype))
        s.dims.extend(dims)
        return made
    return make


def sparse_without(field):
    def make(d):
        made = sparse([0])(d)
        made.graph.sparse_initializer[0].ClearField(field)
        return made
    return make


def quantized(made):
    made.graph.quantization_annotation.add().tensor_name = "x"


def set_field(name, value):
    def change(made):
        setattr(made, name, value)
    return changed(change)


ROWS = [
    Row("B01", lambda d: m.field(1, 8) + m.field(8, m.field(2, 17)), 3, r"E0311\]: model has no graph"),
    Row("B02 missing", changed(lambda p: p.ClearField("ir_version")), 4, r"E0312\]"),
    Row("B02 0", set_field("ir_version", 0), 4, r"E0312\]: ir_version 0"),
    Row("B02 99", set_field("ir_version", 99), 4, r"E0312\]: ir_version 99 is newer than 14, the newest that is supported"),
    Row("K14 IR 14", set_field("ir_version", 14), 0),
    Row("K14 IR 15", set_field("ir_version", 15), 4, r"E0312\]: ir_version 15 is newer than 14, the newest that is supported(.|\n)*help: .*model\.ir_version = 14"),
    Row("K14 opset 29", opsets(("", 29)), 4,
        r"E0401\]: opset 29 is newer than 28, the newest that is supported(.|\n)*help: .*opset_version.*convert_version\(.*target_version = 28"),
    Row("B03", opsets(), 3, r"E0314\]"),
    *[Row(f"B04 {v}", opsets(("", v)), 4, rf"E0401\]: opset {v} ") for v in (0, -1, 999, (1 << 63) - 1)],
    Row("B05", opsets(("", 17), ("", 13)), 3, r"E0315\].*'ai\.onnx' is imported twice \(17, 13\)"),
    Row("B05 spelled", opsets(("", 17), ("ai.onnx", 13)), 3, r"E0315\]"),
    Row("B06", lambda d: one("Foo", domain="com.evil", domains=["com.evil"]), 4, r"E0402\]: operator com\.evil::Foo"),
    Row("B06 all", lambda d: model([node("ImageDecoder", "x", "a"), node("Foo", "a", "b", domain="com.evil"), node("ImageDecoder", "b", "y")],
                                     opset=20, domains=["com.evil"]), 4, r"E0402\]: operators ImageDecoder, com\.evil::Foo"),
    Row("B06 domain", lambda d: one("Foo", domain="com.evil"), 4, r"E0402\]"),
    Row("B07", lambda d: one("Frobnicate"), 3, r"E0403\]: unknown operator Frobnicate in opset 17"),
    Row("B08 newer", lambda d: one("Gelu", opset=13), 3, r"E0403\](.|\n)*help: Gelu was added in opset 20"),
    Row("B08 older", lambda d: one("Upsample", "x s", ((1, 1, 2, 2), (4,)), opset=17), 3, r"E0403\]: unknown operator Upsample in opset 17"),
    Row("B09 1", cycle(1), 3, r"E0322\]"),
    Row("B09 2", cycle(2), 3, r"E0322\]"),
    Row("B09 10000", cycle(10000), 3, r"E0322\]"),
    Row("B10", lambda d: model([node("Relu", "t", "y"), node("Relu", "x", "t")]), 0),
    Row("B11", lambda d: model([node("Relu", "x", "y"), node("Neg", "x", "y")]), 3, r"E0321\].*'y'"),
    Row("B12 input", lambda d: model([node("Relu", "x", "x"), node("Relu", "x", "y")]), 3, r"E0321\].*'x'"),
    Row("B12 initializer", lambda d: model([node("Relu", "x", "w"), node("Relu", "w", "y")],
                                           initializers=[tensor("w", [4], [1] * 4)]), 3, r"E0321\].*'w'"),
    Row("B13", lambda d: model([node("Relu", "zzz", "y")]), 3, r"E0324\].*'zzz' is not defined"),
    Row("B14", lambda d: model([node("Relu", "x", "z")]), 3, r"E0325\].*'y'"),
    Row("B15 inputs", lambda d: relu(inputs=[value("x"), value("x")]), 3, r"E0321\].*'x'"),
    Row("B15 outputs", lambda d: relu(outputs=[value("y"), value("y")]), 0),
    Row("B15 initializers", lambda d: relu(initializers=[tensor("w", [1], [1]), tensor("w", [1], [2])]), 3, r"E0321\].*'w'"),
    Row("B16 outputs", lambda d: relu(outputs=[]), 3, r"E0326\]: graph has no outputs"),
    Row("B16 nodes", lambda d: model([], outputs=[value("x")]), 0),
    Row("B17 many", lambda d: one("Relu", "x x"), 3, r"E0331\]: Relu takes 1 input, but 2 given"),
    Row("B17 few", lambda d: one("Add", "x"), 3, r"E0331\]: Add takes 2 inputs, but 1 given"),
    Row("B17 none", lambda d: one("Relu", ""), 3, r"E0331\]: Relu takes 1 input, but 0 given"),
    Row("B17 outputs", lambda d: one("Relu", "x", outputs="y z"), 3, r"E0331\]"),
    Row("B18 input", changed(lambda p: p.graph.node[0].input.__setitem__(0, "")), 3, r"E033[12]\]"),
    Row("B18 output", changed(lambda p: p.graph.node[0].output.__setitem__(0, "")), 3, r"E0332\]|E0325\]", errors=None),
    Row("B19", lambda d: branches("t", bad=True), 3, r"E0324\]"),
    *[Row(f"B20 {kind}", typed(**{kind: 1}), 4, rf"E0404\]: type {kind[:-5]}(.|\n)* input 'x'")
      for kind in ("map_type", "sparse_tensor_type")],
    Row("B20 sequence_type", typed(sequence_type=1), 2, r"E0343\]: the number of the sequence's tensors(.|\n)* input 'x'"),
    Row("B20 optional_type", typed(optional_type=1), 0),
    Row("B20 string", lambda d: relu(inputs=[value("x", (4,), TensorProto.STRING)]), 4, r"E0404\]|E0407\]"),
    Row("B21", lambda d: branches("c", other="Size"), 4, r"E0405\]"),
    Row("B21 both", lambda d: branches("c"), 0),
    Row("B21 known", lambda d: branches("t"), 0),
    Row("B22 self", calling("F", function("F", [call("F", "a", "b")])), 3, r"E0327\]: function my::F calls itself"),
    Row("B22 mutual", calling("F", function("F", [call("G", "a", "b")]), function("G", [call("F", "a", "b")])), 3, r"E0327\]"),
    Row("B23", tower(30), 5, r"E0504\]"),
    Row("B24 undefined", calling("F", function("F", [node("Relu", "nowhere", "b")])), 3, r"E032[48]\]"),
    Row("B24 output", calling("F", function("F", [node("Relu", "a", "c")])), 3, r"E032[58]\]"),
    Row("B24 duplicate", calling("F", function("F", [node("Relu", "a", "b")]), function("F", [node("Neg", "a", "b")])), 3,
        r"E0328\]"),
    Row("B25", lambda d: with_attributes(one("LeakyRelu", alpha=0.1), attribute("alpha", f=0.2, type=1)), 3, r"E0333\]"),
    Row("B26", lambda d: one("Relu", slope=0.1), 3, r"E0334\]: Relu has no attribute 'slope'"),
    Row("B27 type", lambda d: one("Elu", alpha=1), 3, r"E0335\]"),
    Row("B27 field", lambda d: with_attributes(one("Transpose"), attribute("perm", f=1.0, type=7)), 3, r"E0335\]"),
    Row("B27 two", lambda d: with_attributes(one("Elu"), attribute("alpha", f=1.0, i=1, type=1)), 3, r"E0335\]"),
    Row("B27 none", lambda d: with_attributes(one("Elu"), attribute("alpha", type=1)).SerializeToString()
        .replace(b"\xa0\x01\x01", b"\xa0\x01\x63"), 3, r"E0335\]"),
    Row("B28", lambda d: one("Concat", "x"), 3, r"E0336\]: Concat needs attribute 'axis'"),
    Row("B29", lambda d: ref_attribute(), 3, r"E0337\]"),
    Row("B30 sparse", sparse([0, 3]), 0),
    Row("B30 sparse of two dimensions", sparse([0, 1, 1, 0], (2, 4), (2, 2), 2), 0),
    Row("B30 sparse none", sparse([]), 0),
    Row("B30 sparse beyond", sparse([0, 4]), 3, r"E0359\].*index 1 .*beyond"),
    Row("B30 sparse beyond a dimension", sparse([0, 4, 1, 0], (2, 4), (2, 2), 2), 3, r"E0359\].*index 0 .*beyond"),
    Row("B30 sparse negative", sparse([-1]), 3, r"E0359\].*beyond"),
    *[Row(f"B30 sparse {at}", sparse(at), 3, r"E0359\].*index 1 .*not behind") for at in ([1, 1], [3, 0])],
    Row("B30 sparse shape", sparse([0, 1, 1, 0], (2, 4), (4,), 2), 3, r"E0359\].*fit"),
    Row("B30 sparse type", sparse([0], dtype=TensorProto.INT32), 3, r"E0359\].*i32"),
    Row("B30 sparse data", sparse([0, 1], shape=[3]), 3, r"E0353\]"),
    Row("B30 sparse huge", sparse([0], [1 << 20, 1 << 20]), 5, r"E0505\]"),
    Row("B30 sparse overflow", sparse([0], [1 << 62, 1 << 62]), 3, r"E0351\]"),
    Row("B30 sparse extent", sparse([0], [-1]), 3, r"E0352\]"),
    Row("B30 sparse indices", sparse_without("indices"), 3, r"E0359\].*needs"),
    Row("B30 sparse values", sparse_without("values"), 3, r"E0357\]", errors=None),
    Row("B30 training", changed(training), 0),
    Row("B30 quantized", changed(quantized), 0),
    Row("B31 100000", chain(100000), 0, seconds=60, mebibytes=4096, slow=True),
    Row("B31 2000000", chain(2000000), 5, r"E050[24]\]", seconds=60, mebibytes=2048, slow=True),
    Row("B32 100", wide("Sum", 100), 0),
    Row("B32 concat 1000", wide("Concat", 1000, axis=0), 0),
    Row("B32", wide("Sum", 100000), 0, seconds=60, mebibytes=4096, slow=True),
    Row("B32 concat", wide("Concat", 100000, axis=0), 0, seconds=60, mebibytes=4096, slow=True),
    Row("B33", fan(100000), 0, seconds=60, mebibytes=4096, slow=True),
]
