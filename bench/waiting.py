#!/usr/bin/env python3
"""Measures how much slower a step becomes beside other work, and with more threads than cores, beside ONNX Runtime.

    bench/waiting.py --rankc build/frontend/rankc MODEL.onnx [--dim NAME=N ..] [--shape INPUT=N,N ..] [MODEL.onnx ..]

Every model is compiled, and given random inputs: `--like INPUT=N` draws integers below N (default 2). The options of a
model follow its name. Needs onnxruntime and numpy in the Python that runs it.

Conditions, each on the first two cores that this process may use:

    quiet      2 threads, nothing beside them. The machine must be otherwise idle; "others" says how many cores' worth
               of work other processes did meanwhile
    busy       2 threads beside --busy (8) processes that compute without end, while the samples are taken
    crowded    8 threads

A round takes one sample of every program under every condition, in turn, so that a drift of the machine meets all alike: a
process that runs the model for --seconds and says its median step. The table has the median over the rounds and, in
brackets, the range. With --before RANKC a program of that compiler is a third one, such as of the commit before.

The last lines compare: `busy / quiet` of rankc should be at most 1.5 times that of ONNX Runtime, `crowded / quiet` of
rankc at most 1.3, and quiet at most 1.01 of --before."""
import argparse
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from measure import busy_seconds, own_seconds

CONDITIONS = {"quiet": (2, False), "busy": (2, True), "crowded": (8, False)}


def split(words):
    """Models with their options."""
    groups, parser = [], argparse.ArgumentParser(usage=argparse.SUPPRESS)
    parser.add_argument("model")
    for name in ("dim", "shape", "like", "bind"):
        parser.add_argument(f"--{name}", action="append", default=[])
    for word in words:
        if word.endswith(".onnx"):
            groups.append([])
        groups[-1].append(word)
    return [parser.parse_args(group) for group in groups]


class Model:
    """A model with its inputs, and the programs that compute it."""

    def __init__(self, options, rankc, before, directory):
        self.name = os.path.splitext(os.path.basename(options.model))[0]
        self.model, self.directory = options.model, os.path.join(directory, self.name)
        self.given = [word for name in ("dim", "shape", "bind") for value in getattr(options, name)
                      for word in (f"--{name}", value)]
        self.programs = {"rankc": self.compile(rankc, "now")}
        if before:
            self.programs["before"] = self.compile(before, "before")
        self.inputs = self.draw(dict(like.split("=") for like in options.like))
        self.seconds_per_step = {}

    def compile(self, rankc, where):
        command = [rankc, "compile", self.model, *self.given, "-q", "-o", os.path.join(self.directory, where)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return os.path.join(self.directory, where, self.name, "_")

    def draw(self, below):
        with open(os.path.join(self.programs["rankc"], "manifest.json"), encoding="utf-8") as file:
            ports = json.load(file)["inputs"]
        random, files = np.random.default_rng(0), {}
        for port in ports:
            name, shape, dtype = port["name"], port["shape"], port["dtype"]
            files[name] = os.path.join(self.directory, f"{len(files)}.npy")
            if dtype.startswith("f"):
                value = random.standard_normal(shape, dtype=np.float32).astype(dtype.replace("f", "float"))
            else:
                value = random.integers(0, int(below.get(name, 2)), shape).astype(dtype.replace("i", "int"))
            np.save(files[name], value)
        return files

    def command(self, program, threads, seconds):
        files = [f"{name}={file}" for name, file in self.inputs.items()]
        repeat = max(3, int(seconds / self.seconds_per_step.get((program, threads), 1e-3)))
        if program == "onnxruntime":
            peer = [sys.executable, f"{os.path.dirname(__file__) or '.'}/peer.py", program, self.model, str(threads),
                    f"{self.directory}/result.npy", *files]
            return ["sh", "-c", f"echo {repeat} | {shlex.join(peer)}"]
        inputs = [word for file in files for word in ("--input", file)]
        return [os.path.join(self.programs[program], "build", "run"), "--json", "--threads", str(threads),
                "--warmup", "2", "--repeat", str(repeat), *inputs]


def sample(model, program, threads, seconds):
    """The median step in ms, and how many cores others kept busy."""
    key, begin = (program, threads), (busy_seconds(), own_seconds(), os.times().elapsed)
    if key not in model.seconds_per_step:
        model.seconds_per_step[key] = seconds / 3
        model.seconds_per_step[key] = sample(model, program, threads, seconds)[0] / 1e3
    result = subprocess.run(model.command(program, threads, seconds), check=True, capture_output=True, text=True)
    wall = os.times().elapsed - begin[2]
    others = (busy_seconds() - begin[0] - (own_seconds() - begin[1])) / wall
    return json.loads(result.stdout)["step_ms"]["median"], max(others, 0)


class Beside:
    """Processes that compute until the block ends, at most for a minute each."""

    def __init__(self, count):
        self.count, self.processes = count, []

    def __enter__(self):
        loop = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: sum(range(10000))"
        self.processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(self.count)]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def measure(models, programs, arguments):
    figures = {}
    for number in range(arguments.rounds):
        for model, (condition, (threads, busy)) in itertools.product(models, CONDITIONS.items()):
            for program in programs if number % 2 == 0 else reversed(programs):
                with Beside(arguments.busy if busy else 0):
                    taken = sample(model, program, threads, arguments.seconds)
                figures.setdefault((model.name, program, condition), []).append(taken)
    return figures


def cell(taken):
    times = [time for time, _ in taken]
    return f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})"


def table(models, programs, figures):
    median = {key: statistics.median(time for time, _ in taken) for key, taken in figures.items()}
    print("| model | program | " + " | ".join(f"{c}, ms" for c in CONDITIONS) + " | busy / quiet | crowded / quiet | others |")
    print("|---|---|" + "---|" * (len(CONDITIONS) + 3))
    for model, program in itertools.product(models, programs):
        of = {c: figures[model.name, program, c] for c in CONDITIONS}
        at = {c: median[model.name, program, c] for c in CONDITIONS}
        others = statistics.median(other for _, other in of["quiet"])
        print(f"| {model.name} | {program} | " + " | ".join(map(cell, of.values())) +
              f" | {at['busy'] / at['quiet']:.2f} | {at['crowded'] / at['quiet']:.2f} | {others:.1f} |")
    for model in models:
        slower = {p: median[model.name, p, "busy"] / median[model.name, p, "quiet"] for p in programs}
        text = f"{model.name}: busy / quiet is {slower['rankc'] / slower['onnxruntime']:.2f} times ONNX Runtime's"
        if "before" in programs:
            text += f", quiet {median[model.name, 'rankc', 'quiet'] / median[model.name, 'before', 'quiet']:.3f} of before"
        print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rankc", required=True)
    parser.add_argument("--before", metavar="RANKC")
    parser.add_argument("--busy", type=int, default=8, metavar="N")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    arguments, rest = parser.parse_known_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory() as directory:
        models = [Model(options, arguments.rankc, arguments.before, directory) for options in split(rest)]
        programs = ["rankc", *(["before"] if arguments.before else []), "onnxruntime"]
        table(models, programs, measure(models, programs, arguments))


if __name__ == "__main__":
    main()
