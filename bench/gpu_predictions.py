#!/usr/bin/env python3
"""The time of a training step as `rankc plan --machine` estimates it for a GPU, and as this GPU takes; tests/gpu.sh calls it.

    gpu_predictions.py --rankc RANKC [--compile] [--steps S] [--work DIR] [ROW...]

ROWs are of ROWS: a model of sizes.py and options. The machine is the shipped file of the GPU's name; a step's time is the median of S.
Prints a line of JSON for each, {"figure": ...}. --compile only builds the programs, which later calls with the same DIR use. Exit
status 77 without a GPU of which a file is shipped."""
import argparse
import json
import os
import sys
import tempfile

from gpu import Rankc, gpu_name, say
from measure import Failed, run

MACHINES = {"H200": "h200", "H100": "h100", "A100": "a100-80"}
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


class Row(Rankc):
    """A row of ROWS, compiled in a directory of its own."""

    def __init__(self, args, name):
        model, options = ROWS[name]
        super().__init__(argparse.Namespace(**{**vars(args), "options": options}), model, f"row{list(ROWS).index(name)}")

    def predicted(self, machine):
        words = [self.args.rankc, "plan", self.model, *self.options, "--pas", "dp", "--machine", machine, "--json", "-q"]
        return json.loads(run(words, 120))["estimate"]


def compare(args, name, machine):
    row = Row(args, name)
    if args.compile:
        return
    estimate, measured = row.predicted(machine), row.round(args.steps)["ms"]
    predicted = estimate["step_s"] * 1e3
    say(name=name, model=ROWS[name][0], options=" ".join(row.options), machine=machine, steps=args.steps, predicted_ms=predicted,
        measured_ms=measured, apart=predicted / measured - 1, memory=row.memory())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--work", default=f"{tempfile.gettempdir()}/rankc-gpu-predictions", help="models and programs [%(default)s]")
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    machine = next((machine for known, machine in MACHINES.items() if known in gpu_name()), None)
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
