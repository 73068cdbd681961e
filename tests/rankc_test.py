"""What all test scripts share: their arguments, calls of rankc and of programs, how a check says what failed, and skipping.

A script stands anywhere below tests/ and runs alone: `tests/training/train.py --rankc build/frontend/rankc mlp`. It finds this
module by its own place:

    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    from rankc_test import call, expect, needed, parser_of, report

Plans have names in rankc_plans.py. tests/README.md describes the house."""
import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(TESTS)
MODELS = os.path.join(TESTS, "models")
SAMPLES = os.path.join(SOURCE, "samples", "models")
COMPILER = shlex.split(os.environ.get("CC", "cc"))  # of C, which may be several words, as "ccache gcc"
SKIP = 77  # the exit status that meson counts as skipped


class Failed(AssertionError):
    """A check failed; its text says why."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


def skip(why):
    """Ends the script; meson counts the test as skipped."""
    print(f"skipped: {why}")
    sys.exit(SKIP)


@contextlib.contextmanager
def needed():
    """`with needed(): import numpy`: a script whose modules are not there is skipped."""
    try:
        yield
    except ImportError as missing:
        skip(missing)


def parser_of(doc, rankc=True):
    """The parser of a script's arguments, with --rankc, whose path is made absolute: scripts change directory. `rankc`: None where
    the option may be left out, False where there is none."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rankc is not False:
        parser.add_argument("--rankc", required=bool(rankc), type=os.path.abspath, help="the compiler, build/frontend/rankc")
    return parser


def rankc_of(doc):
    """The path of rankc, for a script with no other arguments."""
    return parser_of(doc).parse_args().rankc


def call(*command, status=0, env=None, timeout=1200, **how):
    """Runs a command and returns what subprocess.run does, with the output as text. It must exit with `status`; None: with any.
    `env`: variables that are set, or with None unset, beside the environment; `how`: cwd, input and others as in subprocess.run."""
    environment = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    words = [word if isinstance(word, bytes) else str(word) for word in command]
    said = shlex.join(os.fsdecode(word) for word in words)
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment, **how)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"not ended after {timeout} s: {said}") from late
    expect(status is None or done.returncode == status,
           f"exit {done.returncode}, not {status}: {said}\n{done.stdout[-2000:]}{done.stderr.strip()[-4000:]}")
    return done


def printed(*command, **how):
    """What a command prints: stdout and stderr."""
    done = call(*command, **how)
    return done.stdout, done.stderr


def json_of(*command, **how):
    """What a command prints, which is JSON."""
    return json.loads(call(*command, **how).stdout)


class Bench:
    """A working directory, and rankc in it."""

    def __init__(self, rankc, work):
        self.rankc, self.work = rankc, work

    def path(self, name):
        return os.path.join(self.work, name)

    def call(self, *words, **how):
        return call(self.rankc, *words, **how)


EPS = {"f64": 2.0 ** -52, "f32": 2.0 ** -23, "fp16": 2.0 ** -10, "bf16": 2.0 ** -7}


def bound_of(one, largest, eps=EPS["f32"]):
    """How far a result under a plan may be from the graph in f64: `one` is as far as one rank is, `largest` the largest value."""
    return 2 * one + 8 * eps * largest


def report(checks):
    """Runs (name, function of a working directory), prints what each returns or why it failed; whether any did."""
    failed = 0
    for name, check in checks:
        with tempfile.TemporaryDirectory(prefix="rankc-test-") as work:
            try:
                said = check(work)
            except Failed as wrong:
                failed += 1
                said = f"FAILED: {wrong}"
        print(f"{name}: {said}", flush=True)
    return failed > 0


def run_named(doc, cases, bench):
    """The main function of a script whose arguments are names of `cases`, functions of bench(rankc, directory); none: all of them."""
    parser = parser_of(doc)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    return report((name, lambda work, name=name: cases[name](bench(options.rankc, work)) or "right") for name in options.names or cases)


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def manifest_of(out):
    """manifest.json of the one program below an output directory."""
    found = [os.path.join(folder, "manifest.json") for folder, _, names in os.walk(out) if "manifest.json" in names]
    expect(len(found) == 1, f"{len(found)} programs in {out}: {found}")
    return read_json(found[0])


def dims_of(model):
    """Options for the dimensions that have names in a model of tests/models, given its folder or its model.onnx."""
    path = os.path.join(model if os.path.isdir(model) else os.path.dirname(model), "dims")
    lines = open(path, encoding="utf-8").read().split() if os.path.exists(path) else []
    return [option for line in lines for option in ("--dim", line)]


def given(folder, option="--input"):
    """The arrays of a folder as words of `rankc run` or, with --data, of `rankc train`."""
    return [word for name in sorted(os.listdir(folder)) if name.endswith(".npy") for word in (option, f"{name[:-4]}={os.path.join(folder, name)}")]


def outputs_of(folder):
    """The outputs that `rankc run --output-dir` wrote, by name."""
    import numpy as np
    return {entry["name"]: np.load(os.path.join(folder, entry["file"])) for entry in read_json(folder, "outputs.json")["outputs"]}
