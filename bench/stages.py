#!/usr/bin/python3
"""Two pipeline stages against one rank, one thread a rank, in rounds: each round runs every program once.

    stages.py --rankc RANKC --infer MODEL.onnx NAME=FILE.npy... [--micro 8] [--rounds 5]
    stages.py --rankc RANKC --train MODEL.onnx NAME=FILE.npy... [--micro 8] [--rounds 3]

Inputs of inference hold one micro-batch; it is repeated. Prints a table: the median step, and the ratio to one rank's
step of the same round, median and range."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import numpy

SCHEDULES = ("1f1b", "zb-h1", "zb-h2", "zb-v")


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def infer(rankc, program, inputs):
    words = [word for name, file in inputs for word in ("--input", f"{name}={file}")]
    out = run(rankc, "run", program, *words, "--threads", "1", "--repeat", "5", "--warmup", "1", "--json", "-q")
    return json.loads(out)["step_ms"]["median"]


def train(rankc, program, inputs):
    words = [word for name, file in inputs for word in ("--data", f"{name}={file}")]
    with tempfile.NamedTemporaryFile() as log:
        run(rankc, "train", program, *words, "--steps", "3", "--threads", "1", "--log", log.name, "-q")
        with open(log.name) as lines:
            return statistics.median(json.loads(line)["ms"] for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--infer", metavar="MODEL.onnx")
    kind.add_argument("--train", metavar="MODEL.onnx")
    parser.add_argument("inputs", nargs="+", metavar="NAME=FILE.npy")
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    inputs = [word.split("=", 1) for word in args.inputs]
    model = args.infer or args.train
    words = ["--train", "--optimizer", "adamw:lr=0.0001"] if args.train else []
    words += ["--accumulate", str(args.micro), "-q"]
    staged = [(f"2 stages, {s}", ["--schedule", s]) for s in SCHEDULES] if args.train else [("2 stages", [])]
    with tempfile.TemporaryDirectory() as directory:
        if args.infer:
            for entry in inputs:
                whole = os.path.join(directory, os.path.basename(entry[1]))
                numpy.save(whole, numpy.concatenate([numpy.load(entry[1])] * args.micro))
                entry[1] = whole
        programs = {"one rank": os.path.join(directory, "one")}
        run(args.rankc, "compile", model, *words, "-o", programs["one rank"])
        for name, more in staged:
            programs[name] = os.path.join(directory, name)
            run(args.rankc, "compile", model, *words, "--pas", "pp", "--plan-ngpus", "2", *more, "-o", programs[name])
        times = {name: [] for name in programs}
        for _ in range(args.rounds):
            for name, program in programs.items():
                times[name].append((infer if args.infer else train)(args.rankc, program, inputs))
    print("| program | step, ms | times one rank's speed |\n| --- | ---: | ---: |")
    for name, steps in times.items():
        ratios = [one / step for one, step in zip(times["one rank"], steps)]
        print(f"| {name} | {statistics.median(steps):.0f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
