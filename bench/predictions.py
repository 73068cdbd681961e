#!/usr/bin/env python3
"""Compares the times that `rankc plan --machine` predicts with measured ones, on the machine at hand, and writes
docs/measured/predicted-and-measured.md:

    bench/predictions.py --build BUILD [--rounds N] [--only GLOB] [--table FILE.md]

Each round runs the models of each kind under every plan, one thread a rank, --runs times in turn: a time is that of the fastest
step, since what else the host does only adds to it. Other machines on the same host take bandwidth of memory: a run counts with a
profile of the machine (`rankc profile --threads 1`) beside which all processors together copied as they did before and after the
run, to --max-change. There are as many profiles in a round as there are such bandwidths. A profile or a run beside which other
processes kept more than --max-foreign of a processor busy does not count. The result of a cell is that with the median ratio of
predicted to measured, of all rounds and profiles.

Needs numpy and onnx, to write the models."""
import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import numpy

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
COPIED = [(numpy.ones(1 << 24, "f4"), numpy.ones(1 << 24, "f4")) for _ in range(os.cpu_count())]
STEPS = 4


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"predictions: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def bandwidth():
    """Bytes per second that all processors copy together: the median of a few copies that no cache keeps."""
    def copy_all():
        threads = [threading.Thread(target=numpy.copyto, args=pair) for pair in COPIED]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(to.nbytes for to, _ in COPIED) / (time.monotonic() - begin)
    return statistics.median(copy_all() for _ in range(5))


class Profiles:
    """Of the machine, each with the bandwidth at which all processors together copied beside it."""

    def __init__(self, args):
        self.args, self.known = args, []  # (bandwidth, path)

    def taken(self):
        """A new one, if other processes and machines leave this one alone for so long."""
        path = f"{self.args.work}/machine-{len(self.known)}.json"
        for _ in range(10):
            before = bandwidth()
            text, foreign = alone(lambda: run([self.args.rankc, "profile", "--threads", "1"]))
            after = bandwidth()
            if foreign <= self.args.max_foreign and abs(after / before - 1) <= self.args.max_change:
                break
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        self.known.append(((before + after) / 2, path))
        return len(self.known) - 1

    def fits(self, which):
        return abs(bandwidth() / self.known[which][0] - 1) <= self.args.max_change

    def now(self):
        """The index of one that fits the machine as it is."""
        fitting = [which for which in range(len(self.known)) if self.fits(which)]
        return fitting[0] if fitting else self.taken()


def alone(measured):
    """What a function returns, and the processors that others kept busy meanwhile."""
    begin, others = time.monotonic(), busy_seconds() - own_seconds()
    value = measured()
    return value, (busy_seconds() - own_seconds() - others) / (time.monotonic() - begin)


class Cell:
    """A model under a plan."""

    def __init__(self, args, kind, trains, plan):
        self.args, self.kind, self.plan, self.trains = args, kind, plan, trains
        self.model = f"small_{kind}_train" if trains else f"small_{kind}"
        self.name = f"{kind}{', training' if trains else ''}: {plan}"
        self.rounds = []  # (predicted, measured) in seconds; one for each profile of each round
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

    def measure(self, profiles):
        """The index of the profile that fits, and seconds of a step; None if others kept the machine busy, or if its bandwidth
        changed."""
        files = [f"x={self.args.work}/{self.model}.x.npy"]
        if self.trains:
            files.append(f"labels={self.args.work}/{self.model}.labels.npy")
            command = ["train", self.directory, *(w for f in files for w in ("--data", f)), "--steps", str(STEPS)]
        else:
            command = ["run", self.directory, "--input", files[0], "--repeat", str(STEPS), "--warmup", "2"]
        which = profiles.now()
        output, foreign = alone(lambda: run([self.args.rankc, *command, "--threads", "1", "--json", "-q"]))
        line = next(json.loads(line) for line in reversed(output.splitlines()) if '"step_ms"' in line)
        counts = foreign <= self.args.max_foreign and profiles.fits(which)
        return (which, line["step_ms"]["min"] / 1e3) if counts else None

    def predict(self, machine):
        plan = json.loads(run([self.args.rankc, "plan", *self.options(), "--machine", machine, "--json", "-q"]))
        return plan["estimate"]["step_s"]

    def samples(self):
        return self.units() * 4 * (2 if self.trains else 1)

    def middle(self):
        """Predicted and measured, of the round with the median ratio; None: no round counts."""
        rounds = sorted((r for r in self.rounds if r), key=lambda r: r[0] / r[1])
        return rounds[(len(rounds) - 1) // 2] if rounds else None


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")


def prepare(args):
    os.makedirs(args.work, exist_ok=True)
    cells = [Cell(args, kind, trains, plan) for kind in KINDS for trains in (False, True) for plan in (*PLANS, CHOSEN)]
    cells = [cell for cell in cells if fnmatch.fnmatch(cell.name, args.only)]
    profiles = Profiles(args)
    machine = profiles.known[profiles.now()][1]
    for cell in cells:
        if not os.path.exists(f"{args.work}/{cell.model}.onnx"):
            MODELS[cell.model](args.work, cell.model)
        cell.compile(machine)
    return cells


def measure_round(args, cells):
    """A round of the cells of models of one kind: for each profile that was taken, what of each cell was predicted and measured."""
    profiles = Profiles(args)
    times = {cell: [] for cell in cells}
    for _ in range(args.runs):
        for cell in cells:
            times[cell] += [next((t for t in (cell.measure(profiles) for _ in range(3)) if t), (None, 0))]
    for cell in cells:
        for which, (_, machine) in enumerate(profiles.known):
            counted = [seconds for of, seconds in times[cell] if of == which]
            cell.rounds.append((cell.predict(machine), min(counted)) if counted else None)


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
        lines.append(f"| {model} | {plan} | {predicted * 1e3:.1f} | {measured * 1e3:.1f} | {predicted / measured - 1:+.0%} | {sum(r is not None for r in cell.rounds)} |")
    within = sum(e <= 0.15 for e in errors)
    return "\n".join(lines) + f"\n\n{within} of {len(errors)} predictions are within 15 % of the measured time; median error " \
        f"{statistics.median(errors):.1%}, largest {max(errors):.0%}.\n"


def choices(cells):
    """For each model, how much slower a sample is under the chosen plan than under the fastest plan of two ranks, in each
    round."""
    lines = ["| model | fastest plan | chosen / fastest | of the rounds |", "| --- | --- | ---: | --- |"]
    for model in dict.fromkeys(cell.model for cell in cells):
        of_model = [c for c in cells if c.model == model and c.plan != "one rank"]
        ratios, fastest = [], []
        for times in zip(*([r and r[1] / c.samples() for r in c.rounds] for c in of_model)):
            measured = {c.plan: t for c, t in zip(of_model, times) if t}
            if CHOSEN in measured and len(measured) > 1:
                fastest.append(min(measured, key=measured.get))
                ratios.append(measured[CHOSEN] / measured[fastest[-1]])
        if ratios:
            middle = sorted(ratios)[(len(ratios) - 1) // 2]
            lines.append(f"| {model.removeprefix('small_')} | {fastest[ratios.index(middle)]} | {middle:.2f} | "
                         f"{', '.join(f'{r:.2f}' for r in ratios)} |")
    return "\n".join(lines) + "\n"


HEAD = """# Predicted and measured times on this kind of processor

Written by `bench/predictions.py`; do not edit. Each model ran under each plan with one thread a rank, {runs} times in
turn with the other plans, and `rankc plan --machine` predicted the step from a profile of the machine (`rankc profile --threads 1`) beside which the
memory's bandwidth was that before and after the run, within {change:.0%}: other machines on the same host use it too, and at
each bandwidth a profile was taken. The fastest step counts, since what else the host does only adds to it. Runs beside which
other processes kept more than {foreign} of a processor busy do not count. Of several profiles, the row has that with the median
error. The machine: {processor}. Models (bench/models.py): GPT-2 and
Llama with 4 layers of width 512, 4 samples of 128 tokens, 8,192 words; ResNet-50 with 4 images of 112 x 112; MobileNet v2
with 4 images of 160 x 160. Training is AdamW with two micro-batches a step.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", default="/tmp/rankc-predictions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="of each cell in a round")
    parser.add_argument("--only", default="*", help="names of cells, such as 'resnet*: tp 2'")
    parser.add_argument("--max-foreign", type=float, default=0.15)
    parser.add_argument("--max-change", type=float, default=0.15)
    parser.add_argument("--table")
    args = parser.parse_args()
    args.rankc = f"{os.path.abspath(args.build)}/frontend/rankc"
    cells = prepare(args)
    for _ in range(args.rounds):
        for kind in dict.fromkeys(cell.kind for cell in cells):
            measure_round(args, [cell for cell in cells if cell.kind == kind])
        text = report(cells) + "\n## The chosen plan\n\nOf all plans of two ranks, by the measured time of a sample in the same round:\n\n" + choices(cells)
        print(text, flush=True)
        if args.table:
            with open(args.table, "w", encoding="ascii") as file:
                file.write(HEAD.format(foreign=args.max_foreign, change=args.max_change, runs=args.runs, processor=processor()) + text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
