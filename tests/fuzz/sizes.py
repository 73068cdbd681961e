#!/usr/bin/python3
"""Runs programs with open sizes on mutated sizes and inputs, under the address and undefined-behaviour sanitizers.

    tests/fuzz/sizes.py --rankc BUILD/frontend/rankc [--runs N] [--seed S] [--record] [MODEL-DIRECTORY...]

Models are those of tests/models whose dimensions have names in `dims`; each is compiled once with bounds around the sizes there, and
its inputs are those of the folder with other extents. A mutation changes sizes (within the bounds, beyond, against another
input's), an array's type, order or values, or bytes of a file. Every run must end by itself with 0, or with 3 and an error that
names the input; a size beyond its bounds, or two that contradict each other, must end with 3 and no output written. The
programs are linked with the sanitized runtime of build-sanitize (or $SANITIZE_BUILD). Findings are left there.
--record appends to docs/measured/robustness.md."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bad"))
sys.path.append(str(ROOT / "tests"))
from rankc_test import Failed, call, expect, parser_of, read_json  # noqa: E402
from record import record  # noqa: E402

SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
SECONDS = 60  # for a run
TYPES = ["f4", "f8", "i8", "i4", "?", "f2", "u1"]
MOST_ELEMENTS = 1 << 22  # of an input that is written out


def build():
    """The sanitized runtime."""
    directory = Path(os.environ.get("SANITIZE_BUILD", ROOT / "build-sanitize"))
    if not (directory / "build.ninja").exists():
        call("meson", "setup", directory, ROOT, "-Dtests=true", "-Db_sanitize=address,undefined", "-Db_lundef=false",
             "--buildtype=debugoptimized", "-Dc_args=-fno-sanitize-recover=undefined")
    call("ninja", "-C", directory, "runtime/librankc-rt.a", timeout=7200)
    return directory


class Program:
    """A model, compiled once with bounds of LO to HI for each of its dimensions."""

    def __init__(self, rankc, model, work, sanitized):
        self.name = model.name
        sizes = dict(line.split("=") for line in (model / "dims").read_text().split())
        self.bounds = {dim: (max(1, int(size) - 2), int(size) + 3) for dim, size in sizes.items()}
        self.inputs = {file.stem: np.load(file) for file in sorted((model / "inputs").glob("*.npy"))}
        dims = [word for dim, (least, most) in self.bounds.items() for word in ("--dim", f"{dim}={least}..{most}")]
        call(rankc, "compile", model / "model.onnx", "-o", work / model.name, "-q", "--no-build", *dims)
        self.folder = next((work / model.name).rglob("Makefile")).parent
        libraries = f"{sanitized / 'runtime/librankc-rt.a'} -lm -lpthread -ldl -ldnnl"
        call("make", "-C", self.folder, f"RANKC_LIBS={libraries}", env={"CFLAGS": "-O1 " + SANITIZERS})
        self.axes = self.open_axes()

    def open_axes(self):
        """(input, axis) -> dimension, from the manifest's shapes."""
        named = {}
        for entry in read_json(self.folder, "manifest.json")["inputs"]:
            for axis, extent in enumerate(entry["shape"]):
                if isinstance(extent, str) and extent in self.bounds:
                    named[entry["name"], axis] = extent
        return named

    def resized(self, name, sizes):
        array = self.inputs[name]
        shape = [sizes.get(self.axes.get((name, axis)), extent) for axis, extent in enumerate(array.shape)]
        return np.resize(array, shape)


def of_bounds(program, rng):
    return {dim: rng.choice([least, most, rng.randint(least, most)]) for dim, (least, most) in program.bounds.items()}


# Mutations: each takes a program, a generator and the arrays by input; it changes them, and returns whether the run must be refused.

def within(program, rng, arrays):
    return False


def beyond(program, rng, arrays):
    name, axis = rng.choice(list(program.axes))
    least, most = program.bounds[program.axes[name, axis]]
    shape = list(arrays[name].shape)
    shape[axis] = rng.choice([0, least - 1, most + 1, most * 2 + 1, 4096])
    if np.prod(shape) <= MOST_ELEMENTS:
        arrays[name] = np.resize(arrays[name], shape)
    return not least <= arrays[name].shape[axis] <= most


def contradiction(program, rng, arrays):
    """Another size of one of several places that a dimension has."""
    places = list(program.axes)
    name, axis = rng.choice(places)
    dim = program.axes[name, axis]
    others = [place for place in places if place != (name, axis) and program.axes[place] == dim]
    least, most = program.bounds[dim]
    shape = list(arrays[name].shape)
    shape[axis] = rng.randint(least, most)
    arrays[name] = np.resize(arrays[name], shape)
    return any(arrays[other].shape[at] != shape[axis] for other, at in others)


def other_type(program, rng, arrays):
    name = rng.choice(list(arrays))
    with np.errstate(all="ignore"):
        changed = arrays[name].astype(rng.choice(TYPES))
    kind_of = lambda of: "i" if of.kind in "iu" else of.kind  # within a kind, files are converted
    refused = kind_of(changed.dtype) != kind_of(arrays[name].dtype)
    arrays[name] = changed
    return refused


def other_ndim(program, rng, arrays):
    name = rng.choice(list(arrays))
    arrays[name] = rng.choice([arrays[name].ravel(), arrays[name][None], arrays[name][..., None]])
    return False  # what has one dimension anyway stays as it is


def order(program, rng, arrays):
    name = rng.choice(list(arrays))
    arrays[name] = np.asfortranarray(arrays[name])
    return False


def values(program, rng, arrays):
    name = rng.choice(list(arrays))
    array = arrays[name].copy()
    flat = array.reshape(-1).view(np.uint8)
    for _ in range(rng.randint(1, 8)):
        if flat.size:
            flat[rng.randrange(flat.size)] = rng.randrange(256)
    arrays[name] = array
    return False


MUTATIONS = [within, beyond, beyond, contradiction, other_type, other_ndim, order, values]


def mutate_bytes(path, rng):
    data = bytearray(path.read_bytes())
    kind = rng.randrange(3)
    if kind == 0:
        data = data[:rng.randrange(len(data))]
    elif kind == 1:
        data += bytes(rng.randrange(256) for _ in range(rng.randint(1, 64)))
    else:  # mostly in the header
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(min(len(data), 128) if rng.random() < 0.8 else len(data))] = rng.randrange(256)
    path.write_bytes(data)


def run(program, rng, folder):
    """What the mutated run did wrong; an empty text: nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sizes = of_bounds(program, rng)
    arrays = {name: program.resized(name, sizes) for name in program.inputs}
    mutation = rng.choice(MUTATIONS)
    refused = mutation(program, rng, arrays)
    words = []
    for k, (name, array) in enumerate(arrays.items()):
        np.save(folder / f"{k}.npy", array)
        words.append(f"--input={name}={folder / f'{k}.npy'}")
    if rng.random() < 0.25:
        mutate_bytes(folder / f"{rng.randrange(len(arrays))}.npy", rng)
        refused = False
    out = folder / "out"
    out.mkdir()
    try:
        done = subprocess.run([program.folder / "build/run", "--threads=1", f"--output-dir={out}", *words], capture_output=True, text=True,
                              errors="replace", timeout=SECONDS, check=False,
                              env={**os.environ, "ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"})
    except subprocess.TimeoutExpired:
        return f"{mutation.__name__}: takes more than {SECONDS} s"
    said = done.stderr.strip()
    if done.returncode not in (0, 3) or "Sanitizer" in said or "runtime error" in said:
        return f"{mutation.__name__}: exit {done.returncode}: {said[-1500:]}"
    if done.returncode == 3 and "error[E" not in said:
        return f"{mutation.__name__}: exit 3 without an error: {said[-500:]}"
    if refused and done.returncode != 3:
        return f"{mutation.__name__}: exit {done.returncode} for {[array.shape for array in arrays.values()]}, sizes are {program.bounds}"
    if done.returncode == 3 and list(out.iterdir()):
        return f"{mutation.__name__}: refused, but {[file.name for file in out.iterdir()]} is written"
    return ""


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("models", nargs="*", type=Path)
    options = parser.parse_args()
    sanitized = build()
    findings = sanitized / "fuzzing" / "sizes"
    findings.mkdir(parents=True, exist_ok=True)
    models = options.models or sorted(folder.parent for folder in (ROOT / "tests/models").glob("*/dims"))
    start, count = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="rankc-sizes-") as work:
        programs = []
        for model in models:
            try:
                programs.append(Program(options.rankc, model, Path(work), sanitized))
                expect(programs[-1].axes, "no input has an open dimension")
            except Failed as failed:
                print(f"{model.name}: left out: {str(failed)[-300:]}", flush=True)
                programs = [program for program in programs if program.name != model.name]
        for number in range(options.runs):
            rng = random.Random(f"{options.seed} {number}")
            program = rng.choice(programs)
            wrong = run(program, rng, Path(work) / "run")
            if not wrong:
                continue
            count += 1
            shutil.copytree(Path(work) / "run", findings / f"{program.name}-{options.seed}-{number}", dirs_exist_ok=True)
            print(f"FINDING {program.name} {number}: {wrong}", flush=True)
    print(f"{options.runs} runs of {len(programs)} programs ({', '.join(program.name for program in programs)}): {count} findings")
    if options.record:
        record(f"mutated sizes and inputs, seed {options.seed}", options.runs, time.monotonic() - start, count, len(programs))
    return count > 0


if __name__ == "__main__":
    sys.exit(main())
