#!/usr/bin/env python3
"""The time of a training step as `rankc plan --machine` estimates it for a GPU, and as this GPU takes; tests/gpu.sh calls it.

    gpu_predictions.py --rankc RANKC [--compile | --estimate MACHINE] [--steps S] [--work DIR] [ROW...]

ROWs are of ROWS: a model of sizes.py and options. The machine is the shipped file that `rankc doctor` names; a step's time is the
median of S. Prints a line of JSON for each, {"figure": ...}. --compile only builds the programs, which later calls with the same DIR use.
--estimate only estimates, for that machine: {"name": ..., "machine": ..., "predicted_ms": ...}, which gpu_report.py takes in place of
older estimates. Exit status 77 without a GPU of which a file is shipped."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from gpu import TRAINING, Rankc, say, write_model
from measure import Failed, run

ROWS = {
    "GPT-2": ("gpu_gpt2", ""),
    "GPT-2, attention as products": ("gpu_gpt2", "--attention products"),
    "GPT-2, rankc's flash attention": ("gpu_gpt2", "--attention flash"),
    "GPT-2, atomic gradients": ("gpu_gpt2", "--attention cudnn-atomic"),
    "GPT-2, recompute full": ("gpu_gpt2", "--recompute full"),
    "GPT-2, recompute selective": ("gpu_gpt2", "--recompute selective"),
    "GPT-2, 8-bit floats": ("gpu_gpt2", "--fp8 hybrid"),
    "GPT-2, four micro-batches": ("gpu_gpt2", "--accumulate 4"),
    "GPT-2, 50257 words": ("gpu_gpt2_odd", ""),
    "Llama 1.1B": ("gpu_llama", ""),
    "Llama 1.1B, atomic gradients": ("gpu_llama", "--attention cudnn-atomic"),
    "Llama 1.1B, 8-bit floats": ("gpu_llama", "--fp8 hybrid"),
    "Llama 1.1B, recompute full": ("gpu_llama", "--recompute full"),
}


def machine_of(rankc):
    """The shipped file of this machine's GPU; None: there is none."""
    said = subprocess.run([rankc, "doctor"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^GPU .* --machine ([\w-]+)", said, re.MULTILINE)
    return found and found[1]


def estimate(args, name, machine):
    model, options = ROWS[name]
    words = [args.rankc, "plan", write_model(args.work, model), *TRAINING, *options.split(), "--target", "cuda", "--pas", "dp"]
    return json.loads(run([*words, "--machine", machine, "--json", "-q"], 120))["estimate"]["step_s"] * 1e3


class Row(Rankc):
    """A row of ROWS, compiled in a directory of its own."""

    def __init__(self, args, name):
        model, options = ROWS[name]
        super().__init__(argparse.Namespace(**{**vars(args), "options": options}), model, f"row{list(ROWS).index(name)}")


def compare(args, name, machine):
    row = Row(args, name)
    if args.compile:
        return
    predicted, measured = estimate(args, name, machine), row.round(args.steps)["ms"]
    say(name=name, model=ROWS[name][0], options=" ".join(row.options), machine=machine, steps=args.steps, predicted_ms=predicted,
        measured_ms=measured, apart=predicted / measured - 1, memory=row.memory())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--estimate", metavar="MACHINE")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--work", default=f"{tempfile.gettempdir()}/rankc-gpu-predictions", help="models and programs [%(default)s]")
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    if args.estimate:
        for name in args.rows:
            print(json.dumps({"name": name, "machine": args.estimate, "predicted_ms": estimate(args, name, args.estimate)}), flush=True)
        return 0
    machine = machine_of(args.rankc)
    if not machine:
        print("skipped: no GPU of which a machine file is shipped")
        return 77
    try:
        for name in args.rows:
            compare(args, name, machine)
    except Failed as why:
        print(f"FAILED: {why}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
