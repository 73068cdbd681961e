#!/usr/bin/env python3
"""Compares the times that `rankc plan --machine` predicts with measured ones, on the machine at hand, and writes
docs/predicted-and-measured.md:

    bench/predictions.py --build BUILD [--rounds N] [--only GLOB] [--table FILE.md]

Each round takes a profile of the machine (`rankc profile --threads 1`), and then runs every model under every plan, one
thread a rank. What is compared are times of the same round, since the machine's speed changes over hours. A run beside
which other processes kept more than --max-foreign of a processor busy does not count. The result of a cell is the round
with the median ratio.

Needs numpy and onnx, to write the models."""
import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import time

from measure import busy_seconds, own_seconds
from models import MODELS

KINDS = ("gpt2", "llama", "resnet", "mobilenet")
PLANS = {
    "one rank": ["--pas", "dp"],
    "dp, 2 units": ["--pas", "dp", "--runtime-ngpus", "2"],
    "tp 2": ["--pas", "tp:tensor=2"],
    "pp 2": ["--pas", "pp:pipeline=2"],
    "data 2": ["--pas", "data:data=2"],
}
CHOSEN = "autodist"
STEPS = 8


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"predictions: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Cell:
    """A model under a plan."""

    def __init__(self, args, kind, trains, plan):
        self.args, self.plan, self.trains = args, plan, trains
        self.model = f"small_{kind}_train" if trains else f"small_{kind}"
        self.name = f"{kind}{', training' if trains else ''}: {plan}"
        self.rounds = []  # (predicted, measured) in seconds
        self.directory = f"{args.work}/compiled/{self.model}/{''.join(c for c in plan if c.isalnum())}"

    def options(self):
        words = PLANS.get(self.plan) or ["--pas", "autodist", "--runtime-ngpus", "2"]
        training = ["--train", "--optimizer", "adamw", "--accumulate", "2"] if self.trains else []
        return [f"{self.args.work}/{self.model}.onnx", *words, *training]

    def compile(self, machine):
        where = ["-o", f"{self.args.work}/compiled", "--instance-name", os.path.basename(self.directory)]
        run([self.args.rankc, "compile", *self.options(), "--machine", machine, *where, "--reuse", "override", "-q"])

    def units(self):
        with open(f"{self.directory}/manifest.json", encoding="utf-8") as file:
            return 1 if self.plan == "one rank" else 2 // json.load(file)["plan_ngpus"]

    def measure(self):
        """Seconds of a step, or None if other processes kept the machine busy."""
        files = [f"x={self.args.work}/{self.model}.x.npy"]
        if self.trains:
            files.append(f"labels={self.args.work}/{self.model}.labels.npy")
            command = ["train", self.directory, *(w for f in files for w in ("--data", f)), "--steps", str(STEPS)]
        else:
            command = ["run", self.directory, "--input", files[0], "--repeat", str(STEPS), "--warmup", "2"]
        begin, others = time.monotonic(), busy_seconds() - own_seconds()
        output = run([self.args.rankc, *command, "--threads", "1", "--json", "-q"])
        foreign = (busy_seconds() - own_seconds() - others) / (time.monotonic() - begin)
        line = next(json.loads(line) for line in reversed(output.splitlines()) if '"step_ms"' in line)
        return line["step_ms"]["median"] / 1e3 if foreign <= self.args.max_foreign else None

    def round(self, machine):
        measured = self.measure() or self.measure()
        if measured:
            plan = json.loads(run([self.args.rankc, "plan", *self.options(), "--machine", machine, "--json", "-q"]))
            self.rounds.append((plan["estimate"]["step_s"], measured))

    def middle(self):
        """Predicted and measured, of the round with the median ratio; None: no round counts."""
        return sorted(self.rounds, key=lambda r: r[0] / r[1])[len(self.rounds) // 2] if self.rounds else None


def prepare(args):
    os.makedirs(args.work, exist_ok=True)
    machine = f"{args.work}/machine.json"
    cells = [Cell(args, kind, trains, plan) for kind in KINDS for trains in (False, True) for plan in (*PLANS, CHOSEN)]
    cells = [cell for cell in cells if fnmatch.fnmatch(cell.name, args.only)]
    with open(machine, "w", encoding="ascii") as file:
        file.write(run([args.rankc, "profile", "--threads", "1"]))
    for cell in cells:
        if not os.path.exists(f"{args.work}/{cell.model}.onnx"):
            MODELS[cell.model](args.work, cell.model)
        cell.compile(machine)
    return cells, machine


def report(cells):
    lines = ["| model | plan | predicted, ms | measured, ms | error | rounds |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    errors = []
    for cell in cells:
        model, plan = cell.name.split(": ")
        if not cell.middle():
            lines.append(f"| {model} | {plan} | | | | 0 |")
            continue
        predicted, measured = cell.middle()
        errors.append(abs(predicted / measured - 1))
        lines.append(f"| {model} | {plan} | {predicted * 1e3:.1f} | {measured * 1e3:.1f} | {predicted / measured - 1:+.0%} | {len(cell.rounds)} |")
    within = sum(e <= 0.15 for e in errors)
    return "\n".join(lines) + f"\n\n{within} of {len(errors)} predictions are within 15 % of the measured time; median error " \
        f"{statistics.median(errors):.1%}, largest {max(errors):.0%}.\n"


def choices(cells):
    """For each model, the time of a sample under the chosen plan and under the fastest plan of two ranks."""
    lines = ["| model | chosen, ms a sample | fastest, ms a sample | fastest plan | chosen / fastest |", "| --- | ---: | ---: | --- | ---: |"]
    for model in dict.fromkeys(cell.model for cell in cells):
        times = {c.plan: c.middle()[1] / c.units() / 4 * 1e3 / (2 if c.trains else 1)
                 for c in cells if c.model == model and c.plan != "one rank" and c.middle()}
        if CHOSEN in times and len(times) > 1:
            fastest = min(times, key=times.get)
            lines.append(f"| {model.removeprefix('small_')} | {times[CHOSEN]:.2f} | {times[fastest]:.2f} | {fastest} | {times[CHOSEN] / times[fastest]:.2f} |")
    return "\n".join(lines) + "\n"


HEAD = """# Predicted and measured times on this kind of processor

Written by `bench/predictions.py`; do not edit. Each model ran under each plan with one thread a rank, and `rankc plan
--machine` predicted the step from a profile of the machine taken in the same round (`rankc profile --threads 1`). Runs
beside which other processes kept more than {foreign} of a processor busy do not count. Models (bench/models.py): GPT-2 and
Llama with 4 layers of width 512, 4 samples of 128 tokens, 8,192 words; ResNet-50 with 4 images of 112 x 112; MobileNet v2
with 4 images of 160 x 160. Training is AdamW with two micro-batches a step.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", default="/tmp/rankc-predictions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="*", help="names of cells, such as 'resnet*: tp 2'")
    parser.add_argument("--max-foreign", type=float, default=0.15)
    parser.add_argument("--table")
    args = parser.parse_args()
    args.rankc = f"{os.path.abspath(args.build)}/frontend/rankc"
    cells, machine = prepare(args)
    for round_ in range(args.rounds):
        if round_:
            with open(machine, "w", encoding="ascii") as file:
                file.write(run([args.rankc, "profile", "--threads", "1"]))
        for cell in cells:
            cell.round(machine)
        text = report(cells) + "\n## The chosen plan\n\nOf all plans of two ranks, by the measured time of a sample:\n\n" + choices(cells)
        print(text, flush=True)
        if args.table:
            with open(args.table, "w", encoding="ascii") as file:
                file.write(HEAD.format(foreign=args.max_foreign) + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
