#!/usr/bin/python3
"""Kernels for GPUs on shapes that take them through vectors, chunks and sorting: what the C target computes.

    large.py --rankc RANKC [DTYPE...]

Rows of multiples of 16 bytes and others, with NaN and infinities; columns long enough to be cut; indices of which some are
many times the same."""
import sys

from stand_in import by_type, call, needed # noqa: E402

with needed():
    import numpy as np

# operator with attributes, and inputs: shapes of floats, "rows<extent>[count]" of indices
NODES = [
    ("Softmax axis=1", ["7,136"]), ("Softmax axis=1", ["5,131"]), ("Softmax axis=0", ["70,5"]), ("LogSoftmax axis=1", ["5,140"]),
    ("LayerNorm epsilon=1e-05", ["6,136", "136", "136"]), ("LayerNorm epsilon=1e-05", ["6,129", "129", None]),
    ("RMSNorm epsilon=1e-05", ["6,136", "136"]), ("SumSquares to=\"f64\"", ["1003"]),
    ("ReduceSum axes=[0] keepdims=0", ["300,40"]), ("ReduceSum axes=[1] keepdims=1", ["3,1000,33"]),
    ("ReduceMax axes=[0] keepdims=0", ["257,3"]), ("ReduceSum axes=[1] keepdims=0", ["5,256"]),
    ("ReduceProd axes=[0] keepdims=0", ["129,2"]),
    ("GatherGrad axis=0 size=1000", ["700,12", "rows1000[700]"]), ("GatherGrad axis=0 size=300", ["130,5", "rows3[130]"]),
    ("GatherGrad axis=1 size=70000", ["2,65,3", "rows70000[65]"]), ("GatherGrad axis=0 size=5", ["1,4", "rows5[1]"]),
    ("ExpertMatMul trans_b=1", ["70,65", "3,40,65", "rows3[70]"]), ("ExpertMatMul trans_b=0", ["9,33", "12,33,7", "rows12[9]"]),
    ("ExpertWeightGrad experts=5", ["130,33", "130,20", "rows5[130]"]),
    ("Transpose perm=[1,0]", ["48,32"]), ("Transpose perm=[0,2,1]", ["3,8,20"]), ("Transpose perm=[2,0,1]", ["5,4,24"]),
    ("Transpose perm=[0,3,1,2]", ["2,4,12,8"]), ("Transpose perm=[1,0]", ["33,16"]), ("Transpose perm=[2,1,0]", ["4,3,8"]),
    ("Mul", ["6,136", "136"]), ("Mul", ["6,134", "6,1"]), ("Exp", ["9,24"]), ("Add", ["3,5,16", "1,5,16"]), ("Add", ["4,1,16", "3,16"]),
]
SPECIAL = {0: [np.nan], 3: [np.nan, -np.inf], 2: [np.inf, -np.inf]}
BOUND = {"f32": 2e-6, "f64": 4e-15} # of the largest; sums of up to 1000 terms in another order


def graph(dtype):
    lines, inputs = ["rankc-ir 1", 'graph "large" level=TYPED'], []

    def given(text):
        if text is None:
            return "_"
        name, kind = f"x{len(inputs)}", "i64" if text.startswith("rows") else dtype
        shape = text.split("[")[1][:-1] if kind == "i64" else text
        lines.append(f'input %{given.next} "{name}" {kind}[{shape}]')
        inputs.append(text)
        given.next += 1
        return f"%{given.next - 1}"

    given.next = 0
    results = []
    for node, operands in NODES:
        op, *attributes = node.split(" ")
        operands = [given(text) for text in operands]
        lines.append(f'%{given.next} "y" = {op}({", ".join(operands)}) {" ".join(attributes)}')
        results.append(given.next)
        given.next += 1
    lines += [f'output %{result} "y{i}"' for i, result in enumerate(results)]
    return "\n".join(lines) + "\n", inputs


def value_of(rng, i, text, dtype):
    if text.startswith("rows"):
        extent, count = (int(n) for n in text[4:-1].split("["))
        skewed = (rng.random(count) ** 3 * extent).astype("i8")
        return skewed - extent * rng.integers(0, 2, count)
    value = rng.standard_normal([int(n) for n in text.split(",")]).astype({"f32": "f4", "f64": "f8"}[dtype])
    flat = value.reshape(-1)
    flat[:len(SPECIAL.get(i, []))] = SPECIAL.get(i, [])
    if i == 1:
        value[2] = -np.inf
    return value


def distance(got, expected):
    finite = np.isfinite(expected)
    if got.shape != expected.shape or not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return np.inf
    return np.abs(got[finite] - expected[finite]).max(initial=0) / max(np.abs(expected[finite]).max(initial=0), 1e-30)


def check(rankc, work, dtype):
    text, inputs = graph(dtype)
    rng = np.random.default_rng(11)
    with open(f"{work}/large.rir", "w") as out:
        out.write(text)
    given = []
    for i, shape in enumerate(inputs):
        np.save(f"{work}/x{i}.npy", value_of(rng, i, shape, dtype))
        given += ["--input", f"x{i}={work}/x{i}.npy"]
    results = {}
    for target in ("c", "cuda"):
        call(rankc, "compile", f"{work}/large.rir", "-o", f"{work}/{target}", "-q", "--target", target, timeout=900)
        call(rankc, "run", f"{work}/{target}", *given, "--output-dir", f"{work}/{target}/out", "--kernels", "reference", timeout=900)
        results[target] = [np.load(f"{work}/{target}/out/y{i}.npy") for i in range(len(NODES))]
    failures = []
    for (node, operands), got, expected in zip(NODES, results["cuda"], results["c"]):
        error = distance(got, expected)
        if not error <= BOUND[dtype]:
            failures.append(f"{dtype} {node} {operands}: {error:.1e}")
    print(f"{dtype}: {len(NODES)} nodes, {len(failures)} failures")
    return failures


if __name__ == "__main__":
    sys.exit(by_type(__doc__, BOUND, check))
