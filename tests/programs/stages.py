#!/usr/bin/python3
"""A pipeline of 300 stages, each with code of its own, against NumPy: stages.py --rankc RANKC

No two neighbouring stages have the same shapes, so the ranks are of many classes.
"""
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_test import call, needed, rankc_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

STAGES = 300


def make(path):
    """Products with matrices of 3 to 7 columns in turn; gives them."""
    rng = np.random.default_rng(0)
    sizes = [3 + i % 5 for i in range(STAGES + 1)]
    weights = [(rng.standard_normal((m, n)) / np.sqrt(m)).astype(np.float32) for m, n in zip(sizes, sizes[1:])]
    names = ["x", *[f"v{i}" for i in range(STAGES - 1)], "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(STAGES)]
    graph = helper.make_graph(nodes, "deep", [helper.make_tensor_value_info("x", 1, [2, sizes[0]])],
                              [helper.make_tensor_value_info("y", 1, [2, sizes[-1]])],
                              [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return weights


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        weights = make(scratch / "deep.onnx")
        x = np.random.default_rng(1).standard_normal((2, weights[0].shape[0])).astype(np.float32)
        np.save(scratch / "x.npy", x)
        for command in (["compile", "deep.onnx", "--pas", "pp", "--plan-ngpus", str(STAGES), "-o", "out", "-q"],
                        ["run", "out", "--input", "x=x.npy", "--output-dir", "result", "--comm", "loopback", "--threads", "1"]):
            call(rankc, *command, cwd=scratch)
        y, ref = np.load(scratch / "result" / "y.npy"), x.astype(np.float64)
        for w in weights:
            ref = ref @ w.astype(np.float64)
    error = np.abs(y - ref).max() / np.abs(ref).max()
    print(f"{STAGES} stages: largest error {error:.2g} of the largest value")
    return not error < 1e-4


if __name__ == "__main__":
    sys.exit(main())
