#!/usr/bin/python3
"""Recorded quantised models against the results of ONNX Runtime.

    recorded.py --rankc RANKC --models DIR

DIR/NAME has model.onnx, its inputs, expected.npy (ONNX Runtime's first output, optimisation off) and expected.json: the names
of the inputs, the unit of the last quantisation and the bytes of the initializers; quantised.py --record writes them. On one
rank and on two (tp) results must be within one unit, and the weights of one rank must take at most a tenth more than the
initializers, plus 4 KiB for alignment. Exit status 77 without NumPy."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, NO_COLOR="1", CFLAGS="-O1"))
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def failures(rankc, directory, plan):
    with open(os.path.join(directory, "expected.json")) as file:
        expected = json.load(file)
    inputs = [f"--input={name}={os.path.join(directory, name)}.npy" for name in expected["inputs"]]
    with tempfile.TemporaryDirectory(prefix="rankc-quantised-") as work:
        call([rankc, "compile", os.path.join(directory, "model.onnx"), "-o", work, "-q", *plan])
        call([rankc, "run", work, "--threads", "1", "--output-dir", os.path.join(work, "out"), *inputs])
        with open(os.path.join(work, "out", "outputs.json")) as file:
            value = np.load(os.path.join(work, "out", json.load(file)["outputs"][0]["file"]))
        memory = [rank["memory"]["weights"] for rank in json.loads(call([rankc, "show", "--json", work]))["ranks"]]
    off = np.abs(value.astype("f8") - np.load(os.path.join(directory, "expected.npy"))).max() / expected["unit"]
    if not off <= 1.001:  # in f32, a step is not exactly one
        yield f"{off:.3f} units from ONNX Runtime"
    if not plan and memory[0] > expected["stored"] * 1.1 + 4096:
        yield f"weights of {memory[0]} bytes, initializers of {expected['stored']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--models", required=True)
    args = parser.parse_args()
    names, failed = sorted(os.listdir(args.models)), 0
    for name in names:
        for plan in [], ["--pas", "tp", "--plan-ngpus", "2"]:
            for failure in failures(args.rankc, os.path.join(args.models, name), plan):
                print(f"{name} {' '.join(plan)}: {failure}")
                failed += 1
    print(f"{len(names)} models, {failed} failures")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
