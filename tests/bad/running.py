"""F at run time: indices and targets that no compile can know. The model is compiled into the cache, and run."""
import numpy as np

import models as m
from case import Row
from models import model, node, value

HUGE, LEAST = (1 << 63) - 1, -(1 << 63)
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def running(id, made, says, arrays, place=r"node ", **how):
    """`made` on these arrays, by input."""
    def make(d):
        for name, array in arrays.items():
            np.save(d / f"{name}.npy", array)
        return made
    inputs = [word for name in arrays for word in ("--input", f"{name}={name}.npy")]
    return Row(id, make, 3, says, verb=["run", "m.onnx", *inputs], place=place, makes="(cache|tmp)($|/)", seconds=60, **how)


def indexed(op, index, shape=(1,), update=None, **attributes):
    """y = op(x, i), or of scatters op(x, i, u)."""
    inputs = [value("x", X.shape), value("i", shape, m.INT64)]
    arrays = {"x": X, "i": np.full(shape, index, np.int64)}
    if update is not None:
        inputs.append(value("u", update))
        arrays["u"] = np.zeros(update, np.float32)
    n = node(op, " ".join(arrays), "y", **attributes)
    return model([n], inputs, [value("y", None)]), arrays


def row(id, op, index, *how, slow=True, **attributes):
    made, arrays = indexed(op, index, *how, **attributes)
    return running(f"F13 run {id} {index}", made, rf"E0382\].*index {index} ", arrays, slow=slow)


def loss(op, target, **attributes):
    """Scores of 3 samples in 4 classes."""
    made = model([node(op, "x t", "y", **attributes)], [value("x", X.shape), value("t", (3,), m.INT64)], [value("y", ())])
    return made, {"x": X, "t": np.array([0, target, 1])}


def target_row(id, op, target, slow=True, **attributes):
    made, arrays = loss(op, target, **attributes)
    return running(f"F25 run {id} {target}", made, rf"E0382\].*label {target} ", arrays, slow=slow)


def quotient(op, dtype, divisor, slow=True, **attributes):
    """Integers divided by others, of which one is 0."""
    of = np.dtype(dtype)
    kind = m.TensorProto.DataType.Value(dtype.upper())
    made = model([node(op, "a b", "y", **attributes)], [value("a", (2, 2), kind), value("b", (2, 2), kind)], [value("y", (2, 2), kind)])
    arrays = {"a": np.array([[7, 9], [5, 3]], of), "b": np.array([[1, 2], [divisor, 3]], of)}
    return running(f"F13 run {op} {dtype} {divisor}", made, r"E0382\].*integer division by zero: the divisor at \[1, 0\] is 0", arrays, slow=slow)


def branch(name, rows):
    """The product of X and a matrix of so many rows."""
    return m.graph([node("MatMul", f"x {name}", f"of_{name}")], [], [value(f"of_{name}", None)],
                   [m.tensor(name, [rows, 1], [1] * rows)])


def misfit(condition):
    """An If whose else_branch does not fit: no step may choose it."""
    branches = {"then_branch": branch("w4", 4), "else_branch": branch("w5", 5)}
    inputs = [value("x", X.shape), value("c", (), m.BOOL)]
    return model([node("If", "c", "y", **branches)], inputs, [value("y", None)]), {"x": X, "c": np.array(condition)}


ROWS = [
    running("F27 run if", misfit(False)[0], r"E0382\](.|\n)*else_branch does not fit", misfit(False)[1], r"m\.onnx|node "),
    row("gather", "Gather", 3, slow=False),
    *[row("gather", "Gather", i) for i in (-4, HUGE, LEAST)],
    row("gather axis", "Gather", 4, axis=1),
    row("elements", "GatherElements", 3, (1, 4)),
    row("elements", "GatherElements", -4, (1, 4)),
    row("nd", "GatherND", 3, (2, 1)),
    row("nd", "GatherND", -4, (1, 2)),
    row("scatter", "ScatterElements", -4, (1, 4), (1, 4), slow=False),
    row("scatter", "ScatterElements", HUGE, (1, 4), (1, 4)),
    row("scatter nd", "ScatterND", 3, (1, 1), (1, 4)),
    row("scatter nd", "ScatterND", LEAST, (1, 1), (1, 4)),
    quotient("Div", "int64", 0, slow=False),
    quotient("Mod", "int32", 0, slow=False),
    quotient("Mod", "uint8", 0, fmod=1),
    target_row("loss", "SoftmaxCrossEntropyLoss", 4, slow=False),
    target_row("loss", "SoftmaxCrossEntropyLoss", -1),
    target_row("ignored", "SoftmaxCrossEntropyLoss", 4, ignore_index=-7),
    target_row("ignored", "SoftmaxCrossEntropyLoss", -100, ignore_index=2),
    target_row("likelihood", "NegativeLogLikelihoodLoss", HUGE),
]
