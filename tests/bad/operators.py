"""F. Operators, attributes, shapes. What a node computes is checked where it is imported; a refusal names the node."""
from onnx import TensorProto

import models as m
from case import Row
from models import INT64, attribute, ints, model, node, one, tensor, value, with_attributes

HUGE, LEAST = (1 << 63) - 1, -(1 << 63)
IMAGE, KERNEL = (1, 4, 8, 8), (4, 4, 3, 3)
NAN = float("nan")


def conv(image=IMAGE, kernel=KERNEL, **attributes):
    return lambda d: one("Conv", "x w", (image, kernel), **attributes)


def pool(op="MaxPool", **attributes):
    return lambda d: one(op, "x", (IMAGE,), **{"kernel_shape": [2, 2], **attributes})


def op(name, inputs="x", shapes=((4,),), *initializers, **how):
    """`initializers` are constant operands."""
    return lambda d: one(name, inputs, shapes, initializers, **how)


def reshape(*shape, **attributes):
    return op("Reshape", "x s", ((2, 6),), ints("s", *shape), **attributes)


def sliced(starts, ends, axes, steps):
    return op("Slice", "x a b c d", ((8,),), ints("a", *starts), ints("b", *ends), ints("c", *axes), ints("d", *steps))


def same_output(row_id, make):
    return Row(row_id, make, 0)


def scalar(name, value_, dtype=m.FLOAT):
    return tensor(name, [], [value_], dtype)


def mixed(d):
    return model([node("Add", "x z", "y")], [value("x"), value("z", (4,), INT64)])


def norm(name, scale, x=(2, 4), **attributes):
    return op(name, "x s b", (x, scale, scale), **attributes)


def batch_norm(n, **attributes):
    return op("BatchNormalization", "x s b m v", (IMAGE, (n,), (n,), (n,), (n,)), **attributes)


def einsum(equation, *shapes):
    names = "xzuv"[:len(shapes)]
    return op("Einsum", " ".join(names), shapes, equation=equation)


def dropout(*initializers):
    return op("Dropout", "x r t" if len(initializers) > 1 else "x r", ((4,),), *initializers)


def cast(to):
    return op("Cast", to=to)


def with_input(name, n, shape=(4,)):
    """`name` with its second operand a run-time input of n integers."""
    return lambda d: model([node(name, "x s", "y")], [value("x", shape), value("s", (n,), INT64)], [value("y", None)])


def integer_divide(d):
    return model([node("Div", "x z", "y")], [value("x", (4,), INT64)], [value("y", (4,), INT64)],
                 [ints("z", 1, 0, 2, 0)])


def strided(d):
    """A loss through every other element of a parameter of 8 dimensions, which has no gradient."""
    shape = [1] * 7 + [8]
    nodes = [node("Slice", "w b e a s", "p", name="slice"), node("Mul", "p x", "q"), node("ReduceMean", "q", "y", keepdims=0)]
    weights = [tensor("w", shape, [1] * 8), ints("b", 0), ints("e", 8), ints("a", 7), ints("s", 2)]
    return model(nodes, [value("x", (1,))], [value("y", ())], weights)


ROWS = [
    Row("F01", conv(strides=[0, 0]), 3, r"E0371\]"),
    Row("F01 negative", conv(strides=[-1, 1]), 3, r"E0371\]"),
    Row("F01 huge", conv(strides=[HUGE, HUGE]), 3, r"E0371\]"),
    Row("F02", pool(kernel_shape=[0, 0]), 3, r"E0371\]"),
    Row("F02 average", pool("AveragePool", kernel_shape=[0, 1]), 3, r"E0371\]"),
    Row("F02 missing", lambda d: one("MaxPool", "x", (IMAGE,)), 3, r"E0336\]"),
    Row("F02 huge", pool(kernel_shape=[HUGE, 2]), 3, r"E037[1-4]\]"),
    Row("F03 ndim", conv(kernel=(4, 4, 3, 3, 3)), 3, r"E0372\]"),
    Row("F03 dilations", conv(dilations=[1, 1, 1]), 3, r"E0372\]"),
    Row("F03 strides", conv(strides=[1]), 3, r"E0372\]"),
    Row("F03 pads", conv(pads=[1, 1]), 3, r"E037[24]\]"),
    Row("F03 kernel", conv(kernel_shape=[5, 5]), 3, r"E0372\]"),
    Row("F03 vector", conv(image=(4,)), 3, r"E037[28]\]"),
    Row("F03 bias", op("Conv", "x w b", (IMAGE, KERNEL, (5,))), 3, r"E037[28]\]"),
    *[Row(f"F04 {g}", conv(group=g), 3, r"E0373\]") for g in (0, 3, -1, HUGE)],
    Row("F04 channels", conv(kernel=(4, 3, 3, 3)), 3, r"E037[238]\]"),
    Row("F05 output", conv(image=(1, 4, 2, 2)), 3, r"E0374\]"),
    Row("F05 dilation", conv(dilations=[0, 1]), 3, r"E037[14]\]"),
    Row("F05 pads", conv(pads=[1 << 62] * 4), 3, r"E0374\]|E0505", errors=None),
    Row("F05 least", conv(pads=[LEAST] * 4), 3, r"E0374\]"),
    Row("F05 pool", pool(pads=[9, 9, 9, 9]), 3, r"E0374\]"),
    Row("F05 transposed", op("ConvTranspose", "x w", (IMAGE, KERNEL), pads=[9] * 4), 3, r"E0374\]"),
    Row("F05 out", op("ConvTranspose", "x w", (IMAGE, KERNEL), output_shape=[HUGE, HUGE]), 3, r"E037\d\]|E0505\]",
        errors=None),
    *[Row(f"F06 {name} {a}", op(name, "x", ((2, 3),), axis=a), 3, r"E0375\]")
      for name in ("Softmax", "Flatten", "Concat", "ArgMax") for a in (3, -4, LEAST, HUGE)],
    Row("F06 gather", op("Gather", "x i", ((2, 3),), ints("i", 0), axis=2), 3, r"E0375\]"),
    Row("F06 twice", op("ReduceSum", "x a", ((2, 3),), ints("a", 0, -2)), 3, r"E0375\]"),
    Row("F06 unsqueeze", op("Unsqueeze", "x a", ((2, 3),), ints("a", 9)), 3, r"E0375\]"),
    Row("F06 squeeze", op("Squeeze", "x a", ((2, 3),), ints("a", 0)), 3, r"E037[578]\]"),
    *[Row(f"F07 {p}", op("Transpose", "x", ((2, 3),), perm=p), 3, r"E0376\]")
      for p in ([0, 0], [0, 2], [0], [0, 1, 2], [-1, 0], [LEAST, HUGE])],
    *[Row(f"F08 {s}", reshape(*s), 3, r"E0377\]") for s in ([-1, -1], [-5, 2], [5, 2], [0, 0, 0], [7, -1], [HUGE, 2])],
    Row("F08 allowzero", reshape(0, -1, allowzero=1), 3, r"E0377\]"),
    Row("F08 ndim", reshape(*([1] * 9)), 5, r"E0506\]"),
    Row("F09 broadcast", op("Add", "x z", ((2, 3), (2, 4))), 3, r"E0378\].*\[2, ?3\].*\[2, ?4\]"),
    Row("F09 matmul", op("MatMul", "x z", ((2, 3), (4, 5))), 3, r"E0378\].*\[2, ?3\].*\[4, ?5\]"),
    Row("F09 scalar", op("MatMul", "x z", ((), (4, 5))), 3, r"E0378\]"),
    Row("F09 gemm", op("Gemm", "x z c", ((2, 3), (3, 5), (4,))), 3, r"E0378\]"),
    Row("F09 gemm3", op("Gemm", "x z", ((2, 3, 4), (4, 5))), 3, r"E0378\]"),
    Row("F09 concat", op("Concat", "x z", ((2, 3), (2, 4)), axis=0), 3, r"E0378\]"),
    Row("F09 where", op("Where", "c x z", ((2, 3), (2, 4)), tensor("c", [5], [1] * 5, m.BOOL)), 3, r"E0378\]"),
    Row("F09 expand", op("Expand", "x s", ((3,),), ints("s", 4)), 3, r"E0378\]"),
    Row("F10", mixed, 3, r"E0379\]"),
    Row("F10 float index", op("Gather", "x z", ((4,), (2,))), 3, r"E0379\]"),
    Row("F10 and", op("And", "x z", ((4,), (4,))), 3, r"E0379\]"),
    Row("F11 step", sliced([0], [8], [0], [0]), 3, r"E0380\]"),
    Row("F11 axes", sliced([0, 0], [8, 8], [0, 0], [1, 1]), 3, r"E03(80|75)\]"),
    Row("F11 lengths", sliced([0, 0], [8], [0], [1]), 3, r"E0380\]"),
    *[same_output(f"F11 {s} {e} {t}", sliced([s], [e], [0], [t]))
      for s, e, t in ((LEAST, HUGE, 1), (HUGE, LEAST, -1), (LEAST, HUGE, HUGE), (0, LEAST, 1))],
    Row("F11 least step", sliced([HUGE], [LEAST], [0], [LEAST]), 0),
    Row("F12 sum", op("Split", "x s", ((8,),), ints("s", 3, 4), outputs="y z"), 3, r"E0381\]"),
    Row("F12 negative", op("Split", "x s", ((8,),), ints("s", 9, -1), outputs="y z"), 3, r"E0381\]"),
    Row("F12 wraps", op("Split", "x s", ((8,),), ints("s", HUGE, HUGE, 10), outputs="y z u"), 3, r"E0381\]"),
    Row("F12 count", op("Split", "x s", ((8,),), ints("s", 8), outputs="y z"), 3, r"E0381\]"),
    Row("F12 none", op("Split", "x", ((8,),), outputs="y z", opset=18, num_outputs=0), 3, r"E0381\]"),
    Row("F12 other", op("Split", "x", ((8,),), outputs="y z", opset=18, num_outputs=HUGE), 3, r"E0381\]"),
    *[Row(f"F13 {i}", op("Gather", "x i", ((4,),), ints("i", i)), 3, r"E0382\]") for i in (4, -5, HUGE, LEAST)],
    Row("F13 elements", op("GatherElements", "x i", ((4,),), ints("i", 4)), 3, r"E0382\]"),
    Row("F13 nd", op("GatherND", "x i", ((4,),), ints("i", 4)), 3, r"E0382\]"),
    Row("F13 scatter", op("ScatterElements", "x i u", ((4,), (1,)), ints("i", -5)), 3, r"E0382\]"),
    Row("F13 scatternd", op("ScatterND", "x i u", ((4,), ()), ints("i", 9)), 3, r"E0382\]"),
    Row("F14 expand", op("Expand", "x s", ((1,),), ints("s", 1 << 40)), 0),  # four tebibytes can be planned
    Row("F14 tile", op("Tile", "x s", ((4,),), ints("s", 1 << 60)), 5, r"E0505\]"),
    Row("F14 fill", op("ConstantOfShape", "s", (), ints("s", 1 << 40)), 0),
    Row("F14 pad", op("Pad", "x s", ((4,),), ints("s", 1 << 40, 1 << 40)), 0),
    Row("F14 pad wraps", op("Pad", "x s", ((4,),), ints("s", HUGE, HUGE)), 5, r"E0505\]|E0374\]"),
    Row("F14 pad least", op("Pad", "x s", ((4,),), ints("s", LEAST, 0)), 3, r"E0374\]"),
    Row("F14 resize", op("Resize", "x r s", ((1, 1, 2, 2),), tensor("r", [0], []), tensor("s", [4], [1, 1, 1e9, 1e9])), 5,
        r"E0505\]"),
    Row("F14 resize nan", op("Resize", "x r s", ((1, 1, 2, 2),), tensor("r", [0], []), tensor("s", [4], [1, 1, NAN, 1])), 3,
        r"E03\d\d\]"),
    Row("F14 resize 0", op("Resize", "x r s", ((1, 1, 2, 2),), tensor("r", [0], []), tensor("s", [4], [1, 1, 0, -1])), 3,
        r"E03\d\d\]"),
    Row("F14 range", op("Range", "a b c", (), scalar("a", 0, INT64), scalar("b", HUGE, INT64), scalar("c", 1, INT64)), 5,
        r"E0505\]"),
    Row("F14 range wraps", op("Range", "a b c", (), scalar("a", LEAST, INT64), scalar("b", HUGE, INT64),
                              scalar("c", 1, INT64)), 5, r"E0505\]"),
    Row("F14 outer", op("MatMul", "x z", ((1 << 31, 1), (1, 1 << 31))), 5, r"E0505\]", errors=None),
    Row("F15", op("Range", "a b c", (), scalar("a", 0), scalar("b", 1), scalar("c", 0)), 3, r"E0383\]"),
    Row("F15 nan", op("Range", "a b c", (), scalar("a", 0), scalar("b", NAN), scalar("c", 1)), 3, r"E0383\]"),
    Row("F15 inf", op("Range", "a b c", (), scalar("a", 0), scalar("b", float("inf")), scalar("c", 1)), 5, r"E0505\]"),
    *[Row(f"F16 onehot {k}", op("OneHot", "i k v", (), ints("i", 0), scalar("k", k, INT64), tensor("v", [2], [0, 1])), 3,
          r"E0384\]") for k in (0, -1)],
    Row("F16 onehot huge", op("OneHot", "i k v", (), ints("i", 0), scalar("k", HUGE, INT64), tensor("v", [2], [0, 1])), 5,
        r"E0505\]"),
    Row("F16 cumsum", op("CumSum", "x a", ((4,),), tensor("a", [1, 1], [0], INT64)), 3, r"E0384\]|E0375\]|E0378\]"),
    Row("F17 batch", batch_norm(5), 3, r"E0385\]|E0378\]"),
    Row("F17 layer", norm("LayerNormalization", (5,)), 3, r"E0385\]|E0378\]"),
    Row("F17 epsilon", norm("LayerNormalization", (4,), epsilon=-1.0), 3, r"E0385\]"),
    Row("F17 nan", norm("LayerNormalization", (4,), epsilon=NAN), 3, r"E0385\]"),
    Row("F17 batch nan", batch_norm(4, epsilon=NAN), 3, r"E0385\]"),
    Row("F17 instance", norm("InstanceNormalization", (5,), IMAGE), 3, r"E0385\]|E0378\]"),
    Row("F17 axis", norm("LayerNormalization", (4,), axis=9), 3, r"E0375\]"),
    *[Row(f"F18 {e}", einsum(e, (2, 2)), 3, r"E0386\]")
      for e in ("", "->", "ij,jk->ik", "......->", "i->ij", "ij->ijj", "i1->i", "ij->k", "ijk->", "i.j->", "ij->i->j",
                "a" * 60 + "->a", "ij->\x07")],
    Row("F18 extent", einsum("ii->i", (2, 3)), 3, r"E0386\]|E0378\]"),
    Row("F18 many", einsum("ij,jk->ik", (2, 3), (4, 5)), 3, r"E0386\]|E0378\]"),
    *[Row(f"F19 {r}", dropout(scalar("r", r), scalar("t", 1, m.BOOL)), 3, r"E0387\]") for r in (2.0, -1.0, NAN)],
    *[Row(f"F20 {t}", cast(t), 3, r"E0388\]") for t in (0, 99, -1)],
    Row("F20 string", cast(TensorProto.STRING), 4, r"E0(388|407|404)\]"),
    Row("F21 divide", integer_divide, 0),
    Row("F21 fmod", op("Mod", "x z", ((4,), (4,))), 0),
    Row("F22", op("ReduceSum", "x a", ((0, 3),), ints("a", 0)), 0),
    Row("F22 max", op("ReduceMax", "x", ((0, 3),), axes=[0]), 0),
    Row("F22 argmax", op("ArgMax", "x", ((0, 3),), axis=0), 3, r"E0390\]"),
    Row("F22 topk", op("TopK", "x k", ((2, 3),), ints("k", 4)), 3, r"E0384\]"),
    Row("F22 topk of none", op("TopK", "x k", ((2, 0),), ints("k", 0)), 0),
    Row("F23", with_input("Reshape", 2), 4, r"E0409\](.|\n)*--bind s=FILE"),
    Row("F23 expand", with_input("Expand", 2), 4, r"E0409\]"),
    Row("F23 slice", lambda d: model([node("Slice", "x s e", "y")], [value("x"), value("s", (1,), INT64), value("e", (1,), INT64)],
                                     [value("y", None)]), 0),
    Row("F24 nonzero", lambda d: model([node("NonZero", "x", "y")], None, [value("y", None, INT64)]), 0),
    Row("F24 unique", op("Unique"), 0),
    Row("F24 consumer", lambda d: model([node("NonZero", "x", "p"), node("Unique", "p", "y")], None, [value("y", None, INT64)]),
        4, r"E0410\]: 'Unique' is not supported for an operand whose size along dimension 1 depends on data"),
    Row("F24 compress", lambda d: model([node("Compress", "x c", "y")], [value("x"), value("c", (4,), m.BOOL)],
                                        [value("y", None)]), 0),
    Row("F25", op("SoftmaxCrossEntropyLoss", "x t", ((2, 3),), ints("t", 0, 1, 2)), 3, r"E0378\]"),
    Row("F26 gradient", strided, 4, r"E0411\]", ["--train"]),
    Row("F26 path", lambda d: model([node("Mul", "x x", "s"), node("ReduceMean", "s", "y", keepdims=0)], None, [value("y", ())],
                                    [tensor("w", [4], [1] * 4)]), 2, r"E0413\]", ["--train"], place=None),
    Row("F26 integers", lambda d: model([node("ArgMax", "x", "y", keepdims=0)], None, [value("y", (), INT64)]), 2, r"E0412\]",
        ["--train"], place=None),
    Row("F ints", lambda d: with_attributes(one("Transpose", "x", ((2, 3),)), attribute("perm", ints=[0] * 100000, type=7)), 3,
        r"E0376\]"),
]
