#!/usr/bin/python3
"""Recorded quantised models against the results of ONNX Runtime.

    recorded.py --rankc RANKC --models DIR

DIR/NAME has model.onnx, its inputs, expected.npy (ONNX Runtime's first output, optimisation off) and expected.json: the names
of the inputs, the unit of the last quantisation, the bytes of the initializers and options of compile; quantised.py --record
writes them. With options, the model is the one before quantisation, and the rest of the one after it. On one
rank, on two and on three (tp) results must be within one unit, and the weights of one rank must take at most a tenth more than the
initializers, plus 4 KiB for alignment. Exit status 77 without NumPy."""
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, json_of, needed, outputs_of, parser_of, read_json  # noqa: E402

with needed():
    import numpy as np


def failures(rankc, directory, plan):
    expected, cflags = read_json(directory, "expected.json"), {"CFLAGS": "-O1"}
    inputs = [f"--input={name}={os.path.join(directory, name)}.npy" for name in expected["inputs"]]
    with tempfile.TemporaryDirectory(prefix="rankc-quantised-") as work:
        call(rankc, "compile", os.path.join(directory, "model.onnx"), "-o", work, "-q", *plan, *expected.get("options", []), env=cflags)
        call(rankc, "run", work, "--threads", "1", "--output-dir", os.path.join(work, "out"), *inputs)
        value = next(iter(outputs_of(os.path.join(work, "out")).values()))
        memory = [rank["memory"]["weights"] for rank in json_of(rankc, "show", "--json", work)["ranks"]]
    off = np.abs(value.astype("f8") - np.load(os.path.join(directory, "expected.npy"))).max() / expected["unit"]
    if not off <= 1.001:  # in f32, a step is not exactly one
        yield f"{off:.3f} units from ONNX Runtime"
    if not plan and memory[0] > expected["stored"] * 1.1 + 4096:
        yield f"weights of {memory[0]} bytes, initializers of {expected['stored']}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--models", required=True)
    args = parser.parse_args()
    names, failed = sorted(os.listdir(args.models)), 0
    for name in names:
        for ranks in 1, 2, 3:
            plan = ["--pas", "tp", "--plan-ngpus", str(ranks)] if ranks > 1 else []
            for failure in failures(args.rankc, os.path.join(args.models, name), plan):
                print(f"{name} {' '.join(plan)}: {failure}")
                failed += 1
    print(f"{len(names)} models, {failed} failures")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
