#!/usr/bin/python3
"""Random operators in inference: drawn.py --rankc RANKC

What is drawn has the operator's distribution; plans of several ranks draw what one rank draws; each step draws other numbers,
and a second start of the program draws the same. Bounds are five standard deviations of the tested mean."""
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import call, needed, parser_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

ROWS, COLUMNS = 64, 96
N = ROWS * COLUMNS
CLASSES = np.log(np.array([0.1, 0.2, 0.3, 0.4], "f4"))

# Output, operator, inputs, attributes, type.
NODES = [("uniform", "RandomUniform", [], {"shape": [ROWS, COLUMNS], "low": -1.0, "high": 3.0}, TensorProto.FLOAT),
         ("wide", "RandomUniform", [], {"shape": [ROWS, COLUMNS], "dtype": TensorProto.DOUBLE}, TensorProto.DOUBLE),
         ("narrow", "RandomUniformLike", ["x"], {"dtype": TensorProto.FLOAT16}, TensorProto.FLOAT16),
         ("normal", "RandomNormal", [], {"shape": [ROWS, COLUMNS], "mean": 2.0, "scale": 0.5}, TensorProto.FLOAT),
         ("same", "RandomNormalLike", ["x"], {"seed": 7.0}, TensorProto.FLOAT),
         ("coin", "Bernoulli", ["x"], {"dtype": TensorProto.BOOL}, TensorProto.BOOL),
         ("class", "Multinomial", ["logarithms"], {"sample_size": COLUMNS}, TensorProto.INT32)]


def is_near(values, mean, deviation):
    return abs(values.astype("f8").mean() - mean) <= 5 * deviation / np.sqrt(values.size)


# What holds of each output. The mean of squares of a normal variable has standard deviation sqrt(2).
HOLDS = {
    "uniform": lambda y: is_near(y, 1, 4 / np.sqrt(12)) and -1 < y.min() < -0.99 and 2.99 < y.max() < 3,
    "wide": lambda y: is_near(y, 0.5, 1 / np.sqrt(12)) and len(np.unique(y)) == N,
    "narrow": lambda y: is_near(y, 0.5, 1 / np.sqrt(12)) and y.dtype == np.float16,
    "normal": lambda y: is_near(y, 2, 0.5) and is_near(((y - 2) / 0.5) ** 2, 1, np.sqrt(2)),
    "same": lambda y: is_near(y, 0, 1) and is_near(y ** 2, 1, np.sqrt(2)) and abs(y).max() > 3,
    "coin": lambda y: is_near(y, 0.3, np.sqrt(0.3 * 0.7)) and y.dtype == bool,
    "class": lambda y: all(is_near(y == k, p, np.sqrt(p * (1 - p))) for k, p in enumerate([0.1, 0.2, 0.3, 0.4])),
}


def write_model(path):
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, [ROWS, COLUMNS]), info("logarithms", TensorProto.FLOAT, [ROWS, len(CLASSES)])]
    nodes = [helper.make_node(op, operands, [name], name=name, **attributes) for name, op, operands, attributes, _ in NODES]
    outputs = [info(name, dtype, [ROWS, COLUMNS]) for name, _, _, _, dtype in NODES]
    graph = helper.make_graph(nodes, "drawn", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)


def draw(args, work, program, warmup):
    """The outputs of the step after `warmup` others."""
    out = work / "out"
    call(args.rankc, "run", program, "--input", f"x={work / 'x.npy'}", "--input", f"logarithms={work / 'logarithms.npy'}",
         "--warmup", warmup, "--repeat", 1, "--threads", 1, "--output-dir", out)
    return {name: np.load(out / f"{name}.npy") for name, *_ in NODES}


def check(args, work):
    write_model(work / "drawn.onnx")
    np.save(work / "x.npy", np.full((ROWS, COLUMNS), 0.3, "f4"))
    np.save(work / "logarithms.npy", np.tile(CLASSES, (ROWS, 1)))
    rules = [f'match "{name}" split out0.{0 if name == "class" else 1}' for name, *_ in NODES]
    (work / "rules").write_text("\n".join(["mesh tensor=3", *rules, ""]))
    plans = {"one": [], "rows": ["--pas", "data:data=2"], "columns": ["--pas", f"manual:{work / 'rules'}"]}
    for name, options in plans.items():
        call(args.rankc, "compile", work / "drawn.onnx", "-o", work / name, "-q", *options)
    first, second, again = (draw(args, work, work / "one", warmup) for warmup in (0, 1, 0))
    for name, *_ in NODES:
        for values in (first[name], second[name]):
            if not HOLDS[name](values):
                yield f"{name}: not the operator's distribution"
        if np.array_equal(first[name], second[name]):
            yield f"{name}: two steps draw the same"
        if not np.array_equal(first[name], again[name]):
            yield f"{name}: two starts draw different numbers"
    for plan in list(plans)[1:]:
        parts = draw(args, work, work / plan, 1)
        for name, *_ in NODES:
            if not np.array_equal(parts[name], second[name]):
                yield f"{name}: {plan} draws other numbers than one rank"


def main():
    parser = parser_of(__doc__)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rankc-drawn-") as work:
        failures = list(check(args, Path(work)))
    for failure in failures:
        print(failure)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
