#!/usr/bin/python3
"""Loops of elementwise operators in C are vectorised by gcc, also where an operand is broadcast along the innermost loop; what a
choice reads is loaded before it, and so is what one in the epilogue of a product does, with operands of several types.

    vectors.py --rankc RANKC [DTYPE...]

Not asked of operators that call the C library (sin, pow ..) or divide whole numbers. Other compilers are not looked at."""
import os
import re
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
from harness import call, expect, parser_of, report # noqa: E402

F, B, I = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
SHAPE = [64, 512, 49] # threads share such loops, so gcc makes functions of them
BROADCAST = {"all": SHAPE, "row": [64, 512, 1], "column": [49], "middle": [512, 1], "one": []}
UNARY = "Abs Ceil Celu Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Softplus Softsign Sqrt Tanh ThresholdedRelu IsNaN IsInf"
BINARY = { # type of the operands and of the result
    (F, F): "Add Sub Mul Div Max Min PRelu",
    (F, B): "Equal Less LessOrEqual Greater GreaterOrEqual",
    (I, I): "Add Sub Mul Max Min BitwiseAnd BitwiseOr BitwiseXor",
    (B, B): "And Or Xor",
}


class Graph:
    def __init__(self):
        self.nodes, self.inputs, self.outputs = [], {}, []

    def read(self, dtype, shape, which="a"):
        """The name of a graph input. An operand of its own for each place: gcc knows that max(a, a) is a."""
        name = f"{which}{dtype}_{'_'.join(map(str, shape))}"
        self.inputs[name] = helper.make_tensor_value_info(name, dtype, shape)
        return name

    def node(self, op, inputs, dtype, name):
        self.nodes.append(helper.make_node(op, inputs, [name]))
        self.outputs.append(helper.make_tensor_value_info(name, dtype, SHAPE))

    def save(self, path):
        graph = helper.make_graph(self.nodes, "vectors", list(self.inputs.values()), self.outputs)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def write(path):
    graph = Graph()
    for op in UNARY.split():
        graph.node(op, [graph.read(F, SHAPE)], B if op.startswith("Is") else F, op)
    for kind, shape in BROADCAST.items():
        for (dtype, result), ops in BINARY.items():
            for op in ops.split():
                graph.node(op, [graph.read(dtype, SHAPE), graph.read(dtype, shape, "b")], result, f"{op}_{dtype}_{kind}")
        graph.node("Where", [graph.read(B, SHAPE), graph.read(F, SHAPE), graph.read(F, shape, "b")], F, f"Where_else_{kind}")
        graph.node("Where", [graph.read(B, SHAPE), graph.read(F, shape, "b"), graph.read(F, SHAPE)], F, f"Where_then_{kind}")
    for kind in ("all", "column"): # otherwise it is the same for a loop, which copies either operand
        graph.node("Where", [graph.read(B, BROADCAST[kind]), graph.read(F, SHAPE), graph.read(F, SHAPE, "b")], F, f"Where_if_{kind}")
    graph.node("Clip", [graph.read(F, SHAPE), graph.read(F, [], "c"), graph.read(F, [], "d")], F, "Clip")
    graph.save(path)


def functions_of(source):
    """Per function with a loop that is to be vectorised: the numbers of its lines."""
    found, lines, start = {}, source.split("\n"), 0
    for number, line in enumerate(lines, 1):
        start = number if line.startswith("static void ") else start
        if line.startswith("#pragma omp") and "simd" in line.split():
            found[lines[start - 1].split("(")[0].split()[-1]] = range(start, number + 1)
    return found


def check(rankc, work, dtype):
    write(f"{work}/vectors.onnx")
    call(rankc, "compile", f"{work}/vectors.onnx", "-o", f"{work}/out", "-q", "--no-build", "--dtype", dtype)
    directory = f"{work}/out/vectors/_"
    said = call("make", "-C", directory, "build/rank_0.o", "CFLAGS=-O3 -fopt-info-vec-note", timeout=600).stderr
    with open(f"{directory}/rank_0.c", encoding="ascii") as file:
        functions = functions_of(file.read())
    # said of a function that threads execute, at the pragma of its outermost loop
    good = {int(line) for line in re.findall(r"rank_0\.c:(\d+):\d+: note: vectorized 1 loops in function", said)}
    wrong = [name for name, lines in functions.items() if not good & set(lines)]
    expect(len(functions) > 100, f"only {len(functions)} loops")
    expect(not wrong, f"{len(wrong)} of {len(functions)} loops are not: {', '.join(wrong)}")
    return f"{len(functions)} loops"


def check_epilogue(rankc, work):
    """where(c, x w, s) and where(c, s, x w), against NumPy."""
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((5, 7)).astype("f4"), "c": rng.random((5, 9)) < 0.5, "s": np.array(-2.5, "f4")}
    weights = rng.standard_normal((7, 9)).astype("f4")
    product = given["x"] @ weights
    expected = {"y": np.where(given["c"], product, given["s"]), "z": np.where(given["c"], given["s"], product)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Where", ["c", "p", "s"], ["y"]),
             helper.make_node("MatMul", ["x", "w"], ["q"]), helper.make_node("Where", ["c", "s", "q"], ["z"])]
    for kept, name in ((nodes[:2], "y"), (nodes[2:], "z")):
        inputs = [helper.make_tensor_value_info(n, B if n == "c" else F, a.shape) for n, a in given.items()]
        graph = helper.make_graph(kept, name, inputs, [helper.make_tensor_value_info(name, F, [5, 9])], [numpy_helper.from_array(weights, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), f"{work}/{name}.onnx")
        for n, a in given.items():
            np.save(f"{work}/{n}.npy", a)
        call(rankc, "compile", f"{work}/{name}.onnx", "-o", f"{work}/out", "-q", timeout=600)
        with open(f"{work}/out/{name}/_/rank_0.c", encoding="ascii") as file:
            expect("static void epilogue_" in file.read(), "the product does not compute the choice")
        files = [word for n in given for word in ("--input", f"{n}={work}/{n}.npy")]
        call(rankc, "run", f"{work}/out/{name}", *files, "--output-dir", f"{work}/{name}", "-q")
        worst = abs(np.load(f"{work}/{name}/{name}.npy") - expected[name]).max()
        expect(worst < 1e-5, f"{name} is {worst} off")
    return "right"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("dtypes", nargs="*", default=["f32", "bf16"], metavar="DTYPE")
    args = parser.parse_args()
    rankc = args.rankc
    cases = [("epilogue", lambda work: check_epilogue(rankc, work))]
    if "Free Software Foundation" not in call("cc", "--version").stdout:
        print("cc is not gcc: loops are not looked at")
    else:
        cases += [(dtype, lambda work, dtype=dtype: check(rankc, work, dtype)) for dtype in args.dtypes]
    return report(cases)


if __name__ == "__main__":
    sys.exit(main())
