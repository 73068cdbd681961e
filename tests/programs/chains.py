#!/usr/bin/python3
"""Long chains of operators compile in a time that grows with their length: chains.py --rankc RANKC [--length N]

Each chain is compiled at a quarter of the length and at the whole, as an ONNX model and some as text IR, with a stack of
256 KiB: what recurses along a chain does not get through. Processor time may grow eightfold; four would be linear, sixteen
the square. A ratio above is measured again, since a busy machine can slow one of the two down.
"""
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import needed, parser_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

MOST = 8
STACK = 256 << 10

# What one link makes of the value before it: operator, further operands, attributes.
LINKS = {
    "Transpose": lambda i: ("Transpose", [], {"perm": [1, 0]}),
    "Reshape": lambda i: ("Reshape", ["flat" if i % 2 == 0 else "square"], {}),
    "Slice": lambda i: ("Slice", ["last", "first", "axis", "back"], {}),
    "Relu": lambda i: ("Relu", [], {}),
    "Softmax": lambda i: ("Softmax", [], {"axis": 1}),
    "Add": lambda i: ("Add", ["x"], {}),
    "MatMul": lambda i: ("MatMul", ["w"], {}),
}
CONSTANTS = {"flat": [36], "square": [6, 6], "last": [-1], "first": [-(1 << 40)], "axis": [1], "back": [-1]}

# The same as text IR.
TEXT = {
    "Transpose": lambda i: "Transpose(%{}) perm=[1,0]",
    "Reshape": lambda i: "Reshape(%{}) shape=" + ("[36]" if i % 2 == 0 else "[6,6]"),
    "Slice": lambda i: "Slice(%{}) start=[0,5] step=[1,-1] size=[6,6]",
}

# Chain, form, options; a loss is added where it trains.
CASES = [
    *[(name, "onnx", []) for name in LINKS],
    *[(name, "text", []) for name in TEXT],
    *[("MatMul", "onnx", ["--pas", pas]) for pas in ("tp:tensor=2", "pp:pipeline=3", "data:data=2")],
    ("Relu", "onnx", ["--pas", "hybrid:tensor=2,data=2,pipeline=2"]),
    ("Add", "onnx", ["--train"]),
    ("MatMul", "onnx", ["--train"]),
]


def onnx_chain(path, name, length, loss):
    nodes, value = [], "x"
    for i in range(length):
        op, operands, attributes = LINKS[name](i)
        nodes.append(helper.make_node(op, [value, *operands], [f"v{i}"], **attributes))
        value = f"v{i}"
    if loss:
        nodes.append(helper.make_node("MatMul", [value, "w"], ["m"]))  # whose second operand is a parameter
        nodes.append(helper.make_node("ReduceMean", ["m"], ["loss"], keepdims=0))
        value = "loss"
    constants = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in CONSTANTS.items()]
    constants.append(numpy_helper.from_array(np.eye(6, dtype=np.float32), "w"))
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", 1, [6, 6])],
                              [helper.make_tensor_value_info(value, 1, [] if loss else [6, 6])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())


def text_chain(path, name, length):
    lines = ["rankc-ir 1", 'graph "chain" level=IMPORTED', 'input %0 "x" f32[6,6]']
    lines += [f'%{i + 1} "v{i}" = {TEXT[name](i).format(i)}' for i in range(length)]
    path.write_text("\n".join(lines + [f'output %{length} "y"', ""]))


def limit():
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))


def seconds(rankc, model, out, options):
    """Of the processor, for one compile; ends the test if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = subprocess.run([rankc, "compile", model, "-o", out, "--no-build", "-q", "--reuse", "override", *options],
                          capture_output=True, text=True, preexec_fn=limit)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if made.returncode:
        print(f"FAILED: exit {made.returncode}\n{made.stderr[:500]}")
        sys.exit(1)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--length", type=int, default=20_000)
    args = parser.parse_args()
    failed = 0
    for name, form, options in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            models = []
            for length in (args.length // 4, args.length):
                models.append(Path(scratch) / f"{length}.{'onnx' if form == 'onnx' else 'rir'}")
                if form == "onnx":
                    onnx_chain(models[-1], name, length, "--train" in options)
                else:
                    text_chain(models[-1], name, length)
            for attempt in range(3):
                part, whole = (seconds(args.rankc, m, Path(scratch) / m.stem, options) for m in models)
                if whole < MOST * part:
                    break
            else:
                failed += 1
            print(f"{name} {form} {' '.join(options)}: {part:.2f} s, {whole:.2f} s, {whole / part:.1f} times", flush=True)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
