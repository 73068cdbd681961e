#!/usr/bin/python3
"""Writes with a decoder in random ways, which must not change what it writes, under the address and undefined-behaviour sanitizers.

    tests/fuzz/generation.py --rankc BUILD/frontend/rankc [--runs N] [--seed S] [--runtime FILE.a] [--record]

Four of five draws are loops of generation.c: batches of prompts of any lengths, padded in front; stop tokens; steps of any number of
tokens; tokens taken back; states cut, saved, restored and reset; calls that are refused; under one rank and under plans. The ids must
be those of the rows alone, whose prompts are read in one step and whose tokens one by one, on one rank. Every fifth draw is a call of
`rankc generate` with random options, which must write what another one does with the same draws, on one rank. The decoder
(tests/generate) has been compared with PyTorch there. Programs are linked with the sanitized runtime of build-sanitize (or
$SANITIZE_BUILD), or with --runtime. --record appends to docs/measured/robustness.md."""
import collections
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bad"))
sys.path.append(str(ROOT / "tests"))
from rankc_test import COMPILER, Failed, call, expect, parser_of  # noqa: E402
from record import record  # noqa: E402
from sizes import SANITIZERS, build  # noqa: E402

MODEL = ROOT / "samples/generate/words/model.onnx"
CAPACITY, VOCABULARY = 48, 64
NEAR = 1e-4  # of logits up to 10: rounding may exchange two that are as near
PLANS = {"one": (1, []), "tp2": (1, ["--pas", "tp", "--plan-ngpus", "2"]), "pp2": (1, ["--pas", "pp", "--plan-ngpus", "2"]),
         "data2": (2, ["--pas", "data:data=2", "--plan-ngpus", "2"])}
ENVIRONMENT = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"}
TOGETHER = 20  # loops of a process


class Program:
    """The decoder under a plan, with generation.c."""

    def __init__(self, rankc, work, plan, runtime, flags):
        self.rankc, self.plan, self.work = rankc, plan, work
        self.step, words = PLANS[plan]
        out = Path(tempfile.mkdtemp(dir=work, prefix=plan))
        batch = f"{self.step}..4:{self.step}"
        call(rankc, "compile", MODEL, "--state", "auto", "--dim", f"batch={batch}", "--dim", "sequence=1..24", "--dim",
             f"past_sequence=0..{CAPACITY}", *words, "-o", out, "-q", "--no-build")
        self.folder = next(out.rglob("Makefile")).parent
        libraries = [str(runtime), "-lm", "-lpthread", "-ldl", "-ldnnl"]
        call("make", "-C", self.folder, "build/run", "build/model.a", f"RANKC_LIBS={' '.join(libraries)}", env={"CFLAGS": flags})
        self.loop = self.folder / "loop"
        call(*COMPILER, *flags.split(), "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I", self.folder, "-I",
             self.folder / "build/runtime/include", ROOT / "tests/fuzz/generation.c", self.folder / "build/model.a", *libraries,
             "-o", self.loop)

    def loops(self, seed, first, count, *plain):
        """Lines of generation.c by draw and row."""
        done = call(self.loop, self.folder, CAPACITY, self.step, self.work, seed, first, count, *plain, env=ENVIRONMENT)
        expect(not done.stderr, done.stderr[-1500:])
        found = collections.defaultdict(list)
        for line in done.stdout.splitlines():
            draw, row, token, *gap = line.split()
            found[int(draw), int(row)].append((int(token), *map(float, gap)))
        return found

    def generate(self, *words):
        done = call(self.rankc, "generate", self.folder, "--json", *words, env=ENVIRONMENT)
        expect("Sanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr[-1500:])
        return json.loads(done.stdout)["ids"]


def loop(program, reference, *draws):
    """Faults of loops: tokens that differ where no rounding explains it."""
    found, plain, faults = program.loops(*draws), reference.loops(*draws, "plain"), []
    for key, wanted in plain.items():
        got = [token for token, in found.get(key, [])]
        place = next((i for i, (token, _) in enumerate(wanted) if got[i:i + 1] != [token]), None)
        if place is None and len(got) == len(wanted):
            continue
        if place is None or place >= len(got) or wanted[place][1] > NEAR:
            faults.append(f"draw {key[0]}, row {key[1]}: {got}, not {[token for token, _ in wanted]}")
    return faults


def prompts_of(rng, work, left):
    """Files of 1 to 4 prompts, padded on one side, drawn from rng."""
    rows = [[rng.randrange(4, VOCABULARY) for _ in range(rng.randint(1, 30))] for _ in range(rng.randint(1, 4))]
    width = max(map(len, rows))
    padded = [[0] * (width - len(row)) + row if left else row + [0] * (width - len(row)) for row in rows]
    kept = [[0] * (width - len(row)) + [1] * len(row) if left else [1] * len(row) + [0] * (width - len(row)) for row in rows]
    np.save(work / "ids.npy", np.array(padded))
    np.save(work / "mask.npy", np.array(kept))
    return ["--input", f"input_ids={work}/ids.npy", "--input", f"attention_mask={work}/mask.npy"]


def options_of(rng):
    words = ["--max-new-tokens", rng.randint(1, CAPACITY - 30)]
    for _ in range(rng.choice((0, 0, 1, 3))):
        words += ["--stop", rng.randrange(VOCABULARY)]
    if rng.random() < .5:
        words += ["--temperature", round(rng.uniform(.3, 3), 2), "--seed", rng.randrange(1 << 31)]
    for option, value in (("--top-k", rng.randint(1, VOCABULARY + 4)), ("--top-p", round(rng.uniform(.1, 1), 2)),
                          ("--min-p", round(rng.uniform(0, .2), 3)), ("--repetition-penalty", round(rng.uniform(.7, 1.6), 2))):
        if rng.random() < .3:
            words += [option, value]
    return words


def command(program, reference, work, name):
    """The same of rankc generate."""
    how = random.Random(name + program.plan)
    seen = []
    for which, left in ((program, how.random() < .5), (reference, True)):
        drawn = random.Random(name)
        own = ["--comm", how.choice(("loopback", "shm")), "--threads", how.choice((1, 2))]
        more = ["--output-dir", work / "out"] if how.random() < .3 else []
        seen.append(which.generate(*prompts_of(drawn, work, left), *options_of(drawn), *own, *more))
    return [] if seen[0] == seen[1] else [f"generate, {name!r}, {program.plan}: {seen[0]}, not {seen[1]}"]


def tried(check, *given):
    """The faults that a check returns, or the one that it raises."""
    try:
        return check(*given)
    except Failed as failed:
        return [str(failed)]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runtime", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    sanitized = options.runtime or build() / "runtime/librankc-rt.a"
    start, faults = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="rankc-generation-") as place:
        work = Path(place)
        programs = [Program(options.rankc, work, plan, sanitized.absolute(), "-O1 -g " + SANITIZERS) for plan in PLANS]
        commands = options.runs // 5
        loops = options.runs - commands
        for first in range(0, loops, TOGETHER):
            count = min(TOGETHER, loops - first)
            program = programs[first // TOGETHER % len(programs)]
            faults += tried(loop, program, programs[0], options.seed, first, count)
        for number in range(commands):
            faults += tried(command, programs[number % len(programs)], programs[0], work, f"{options.seed} {number}")
    for fault in faults:
        print(f"FINDING {fault}")
    print(f"{loops} loops and {commands} commands under {len(PLANS)} plans: {len(faults)} findings")
    if options.record:
        record(f"random generations, seed {options.seed}", options.runs, time.monotonic() - start, len(faults))
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main())
